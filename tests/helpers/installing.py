"""What tests of packages share: running a command that has to succeed."""

from __future__ import annotations

import subprocess
from pathlib import Path


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
