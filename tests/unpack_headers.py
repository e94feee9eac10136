"""Takes the CL headers out of the intel-sycl-rt wheel: `unpack_headers.py WHEEL DIRECTORY` makes DIRECTORY/CL/*.h."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath


def main(wheel: str, directory: str) -> None:
    target = Path(directory) / "CL"
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if path.parent.name == "CL" and path.suffix == ".h":
                (target / path.name).write_bytes(archive.read(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
