"""What libOpenCL.so.1 runs to get a verdict: `python -IS start.py FOLDER NAME KEY`.

Most of a Python's own start is the code that packages put into .pth files. So this takes folders
from these files, and runs nothing. If fairlead does not come up that way, Python starts as usual.
FOLDER is where fairlead lies, for a Python that has none.
"""

from __future__ import annotations

import gc
import os
import site
import sys
from contextlib import suppress


def _enter_environment() -> None:
    """Take the place of site.main, which runs the code of packages: it changes no more than paths.

    A virtual environment is what has a pyvenv.cfg beside Python's program, or above that.
    """
    prefixes = [sys.base_prefix, sys.base_exec_prefix]
    bin_folder = os.path.dirname(os.path.abspath(sys.executable))
    home = os.path.dirname(bin_folder)
    for place in (bin_folder, home):
        config = os.path.join(place, "pyvenv.cfg")
        with suppress(OSError), open(config, encoding="utf-8", errors="replace") as file:
            settings = ["".join(line.split()).lower() for line in file]
            takes_all = "include-system-site-packages=true" in settings
            prefixes = [home, *(prefixes if takes_all else [])]
            sys.prefix = sys.exec_prefix = home
            break
    for folder in site.getsitepackages(prefixes):
        with suppress(OSError):
            _add_folder(folder)


def _add_folder(folder: str) -> None:
    """Add a folder of packages, and the folders that its .pth files name."""
    names = sorted(os.listdir(folder))
    if folder in sys.path:
        return
    sys.path.append(folder)
    for name in names:
        if name.endswith(".pth"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                places = [os.path.join(folder, line.strip()) for line in file if line.strip()]
            sys.path += filter(os.path.isdir, places)


def main(folder: str, *arguments: str) -> None:
    """Find fairlead, and have it search."""
    gc.disable()  # this process ends before there is much to collect
    _enter_environment()
    sys.path.append(folder)
    try:
        from fairlead.icd.libopencl.verdict_file import main as answer
    except ImportError:
        site.main()
        from fairlead.icd.libopencl.verdict_file import main as answer
    answer(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
