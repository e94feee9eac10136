"""The facts about a machine that a reader needs to compare its figures with others."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("fairlead", "pyopencl", "numpy", "pocl-binary-distribution", "intel-opencl-rt")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*arguments: str) -> str:
    """Return git's answer about the source tree, "" without one.

    It takes no locks, because others may work in the tree.
    """
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def load() -> list[float]:
    """Return the load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def facts() -> dict[str, Any]:
    """Return the machine and the versions of everything, when the run begins."""
    revision = _git("rev-parse", "--short=12", "HEAD")
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {package: _installed(package) for package in _PACKAGES if _installed(package)},
        "revision": revision
        + (" with changes" if revision and _git("status", "--porcelain") else ""),
        "load_before": load(),
    }
