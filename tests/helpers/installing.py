"""What tests of packages share: running a command that has to succeed, and environments."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path


def run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(wheel: Path, target: Path) -> None:
    """Install a wheel alone into a folder. Python compiles what is imported there, and no more."""
    options = ("--quiet", "--no-deps", "--no-compile", "--target", str(target))
    run(sys.executable, "-m", "pip", "install", *options, str(wheel))


def environment(path: Path) -> Path:
    """The site-packages of a new environment.

    It has the packages of this one; not fairlead, which is there by a .pth file only.
    """
    venv.create(path, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = path / "lib" / version / "site-packages"
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return site
