"""What examples print, and how they are run."""

from __future__ import annotations

import re
from typing import Final

#: Runs the script that the first argument names as Python does, with the other arguments.
RUN_SCRIPT: Final = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def check_claims(out: str, platform: str, what: str, unit: str) -> None:
    """Check that every claim is printed, and that the numbers agree with it."""
    assert re.search(rf"^{platform}.*: \S+", out, re.MULTILINE), out
    assert f"\n  {what}\n" in out
    for variant in ("called", "replayed"):
        line = re.search(
            rf"{variant} +([\d.]+) µs per {unit}; off NumPy by (\S+) \(allowed: (\S+)\)", out
        )
        assert line, out
        taken, error, allowed = map(float, line.groups())
        assert taken > 0 and error <= allowed
    assert re.search(r"replaying is [\d.]+ times as fast", out)
    assert "called and replayed results agree: bit for bit" in out
