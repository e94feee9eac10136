"""Takes files out of a wheel: `unpack_wheel.py WHEEL DIRECTORY PATTERN...` puts what lies at paths that end in one of the patterns
into DIRECTORY, with as many of the innermost folders as the pattern names: `CL/*.h` makes DIRECTORY/CL/cl.h."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath


def main(wheel: str, directory: str, *patterns: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            for pattern in patterns:
                if path.match(pattern):
                    target = Path(directory, *path.parts[-len(PurePosixPath(pattern).parts) :])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
