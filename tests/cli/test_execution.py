"""Commands that `fairlead run`, `record` and `trace` run: their exit codes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from fairlead.cli.execution import SIGNALLED, CommandError, execute


def test_exit_codes_are_those_of_shells() -> None:
    assert execute([sys.executable, "-c", "raise SystemExit(3)"], os.environ) == 3
    ends_itself = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert execute([sys.executable, "-c", ends_itself], os.environ) == SIGNALLED + signal.SIGKILL
    for command, code in (("/nowhere/program", 127), ("/etc/passwd", 126)):
        with pytest.raises(CommandError) as caught:
            execute([command], os.environ)
        assert caught.value.exit_code == code and caught.value.remedy


def test_a_signal_that_comes_before_the_command_has_begun_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = subprocess.Popen

    def begin_late(*given: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return begin(*given, **options)

    monkeypatch.setattr(subprocess, "Popen", begin_late)
    before = signal.getsignal(signal.SIGTERM)
    assert execute(["sleep", "30"], os.environ) == SIGNALLED + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
