"""What libOpenCL.so.1 runs to get a verdict: `python -IS start.py FOLDER FILE KEY`.

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


def _add_folder(folder: str, known: set[str] | None = None) -> None:
    """Stands in for site.addsitedir."""
    if folder in sys.path:
        return
    sys.path.append(folder)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".pth"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                places = [os.path.join(folder, line.strip()) for line in file if line.strip()]
            sys.path += filter(os.path.isdir, places)


def main(folder: str, *arguments: str) -> None:
    """Find fairlead, and have it search."""
    gc.disable()  # this process ends before there is much to collect
    usual, site.addsitedir = site.addsitedir, _add_folder
    with suppress(OSError):
        site.addsitepackages(site.venv(set()))
    sys.path.append(folder)
    try:
        from fairlead.icd.libopencl.verdict_file import main as answer
    except ImportError:
        site.addsitedir = usual
        site.main()
        from fairlead.icd.libopencl.verdict_file import main as answer
    answer(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
