"""Programs that load adapters: one in C, without Python (fake/host.c)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from helpers.support import ROOT, Output, run_program


class Host(Protocol):
    """Runs the program with commands, and with more variables in the environment.

    Example: `host("open", path, "table").out`.
    """

    def __call__(self, *commands: str | Path, env: Mapping[str, str] = {}) -> Output: ...


def compile_host(directory: Path) -> Host:
    """Compile the program into a directory."""
    program = directory / "host"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-o", str(program), "-lpthread", "-ldl"]
    subprocess.run(
        [*os.environ.get("CC", "cc").split(), str(ROOT / "tests/fake/host.c"), *flags], check=True
    )

    def host(*commands: str | Path, env: Mapping[str, str] = {}) -> Output:
        return run_program(program, *commands, env={**os.environ, **env})

    return host
