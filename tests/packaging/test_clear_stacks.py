"""Libraries that ask for an executable stack, which new versions of glibc refuse."""

from __future__ import annotations

import struct
from pathlib import Path

from helpers.clear_stacks import main

from fairlead.icd import libopencl


def test_only_the_flag_is_cleared(tmp_path: Path) -> None:
    library = Path(libopencl.find_library()).read_bytes()
    (table,) = struct.unpack_from("<Q", library, 0x20)
    entry, count = struct.unpack_from("<HH", library, 0x36)
    places = (table + entry * number for number in range(count))
    stack = next(p for p in places if struct.unpack_from("<I", library, p)[0] == 0x6474E551)
    asks = library[: stack + 4] + struct.pack("<I", 7) + library[stack + 8 :]
    for name, data in (("liba.so.1", asks), ("libb.so.1", library), ("c.so.txt", b"text")):
        (tmp_path / name).write_bytes(data)
    main(tmp_path)
    assert library == asks[: stack + 4] + struct.pack("<I", 6) + asks[stack + 8 :]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "liba.so.1": library,
        "libb.so.1": library,
        "c.so.txt": b"text",
    }
