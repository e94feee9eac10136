"""Libraries whose entry points are in Python: copies of a shell, with a configuration of their own.

The configuration names a module, and the Python in whose environment it runs. A shell
(plugins/sdk/native/shell.c) is compiled when fairlead is installed. So a copy takes milliseconds
and no compiler. setup.py makes fairlead's own libraries with `configure`, before anything else of
fairlead exists. So this file imports only the standard library.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

MARK = b"FAIRLEAD SHELL CONFIGURATION\n"
ROOM = 8192  # bytes: shell.c's `configuration`


def find_python_library() -> str:
    """Return the path of this Python's shared library, "" if it was built without one."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    folders = (sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib"))
    paths = (os.path.join(folder, name) for folder in folders if ".so" in name)
    return next(filter(os.path.exists, paths), "")


def make_configuration(module: str, *, here: bool = True) -> str:
    """Return the configuration of a shell.

    Args:
        module: the module or file of the adapter.
        here: whether to add the paths of this Python, its library and its packages.

    Raises:
        ValueError: a path has a line break in it.
    """
    lines = {"module": module}
    if here:
        lines |= {
            "program": sys.executable,
            "library": find_python_library(),
            "site": sysconfig.get_path("purelib"),
        }
    if any("\n" in value for value in lines.values()):
        raise ValueError(f"a path has a line break in it: {lines}")
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def parse_configuration(text: str) -> dict[str, str]:
    """Return the lines `name=value` of a shell's configuration."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def make_library(shell: str | Path, module: str, *, here: bool = True) -> bytes:
    """Return a copy of a shell with a configuration.

    Args:
        here: see `make_configuration`.

    Raises:
        ValueError: the file is not a shell, or the configuration is too long.
    """
    with open(shell, "rb") as file:
        data = file.read()
    at = data.find(MARK)
    text = MARK + os.fsencode(make_configuration(module, here=here))
    if at < 0:
        raise ValueError(f"{shell} is not a shell of fairlead")
    if len(text) >= ROOM:
        raise ValueError("the configuration is too long")
    return data[:at] + text.ljust(ROOM, b"\0") + data[at + ROOM :]


def configure(shell: Path, output: Path, module: str, *, here: bool = True) -> None:
    """Write a copy of a shell with a configuration.

    Args:
        shell, module, here: see `make_library`.

    Raises:
        ValueError: see `make_library`.
    """
    data = make_library(shell, module, here=here)
    output.parent.mkdir(parents=True, exist_ok=True)
    # A library that is mapped must not change while it is used, so it is replaced.
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        scratch.chmod(0o755)
        os.replace(scratch, output)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
