"""Takes files out of a wheel: `unpack_wheel.py WHEEL DIRECTORY PATTERN...`.

A file whose path ends in a pattern goes into DIRECTORY, with as many of the innermost folders as
the pattern names: `CL/*.h` makes DIRECTORY/CL/cl.h. A pattern that ends in `/**` names a folder,
which is taken with everything below it: `include/sycl/**` makes
DIRECTORY/include/sycl/ext/oneapi/owner_less.hpp.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath


def main(wheel: str, directory: str, *patterns: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            for pattern in patterns:
                kept = (
                    _below(name, pattern[:-2])
                    if pattern.endswith("/**")
                    else _innermost(name, pattern)
                )
                if kept is not None:
                    target = Path(directory, kept)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


def _innermost(name: str, pattern: str) -> PurePosixPath | None:
    path = PurePosixPath(name)
    return (
        PurePosixPath(*path.parts[-len(PurePosixPath(pattern).parts) :])
        if path.match(pattern)
        else None
    )


def _below(name: str, folder: str) -> PurePosixPath | None:
    """Return the path from `folder`, which ends in a slash, or None if it lies elsewhere."""
    _, found, rest = f"/{name}".partition(f"/{folder}")
    return PurePosixPath(folder, rest) if found and not name.endswith("/") else None


if __name__ == "__main__":
    main(*sys.argv[1:])
