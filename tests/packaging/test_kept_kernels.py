"""What tests keep of PoCL's cache between runs: programs with a damaged file are removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.kept_files import remove_damaged_kernels

from fairlead.icd import libopencl

LIBRARY = Path(libopencl.find_library()).read_bytes()
BITCODE = b"BC\xc0\xde\x35\x14\0\0"


def program(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    """A program as PoCL keeps it, with these files beside those that each has."""
    made = folder / "AB" / name
    files = {"program.bc": BITCODE, "k/0-0-0/k.so": LIBRARY, **files}
    for path, data in files.items():
        made.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        made.joinpath(path).write_bytes(data)
    return made


@pytest.mark.parametrize(
    "damaged",
    [
        {"program.bc": b""},
        {"program.bc": bytes(4096)},
        {"k/8-1-1/k.so": b""},
        {"k/8-1-1/k.so": LIBRARY[: len(LIBRARY) // 2]},
        {"k/8-1-1/k.so": bytes(len(LIBRARY))},
    ],
    ids=["no bitcode", "bitcode of zeros", "no library", "half a library", "a library of zeros"],
)
def test_a_program_with_a_damaged_file_is_removed(
    tmp_path: Path, damaged: dict[str, bytes]
) -> None:
    whole, other = program(tmp_path, "WHOLE", {}), program(tmp_path, "OTHER", damaged)
    remove_damaged_kernels(tmp_path)
    assert whole.joinpath("k/0-0-0/k.so").read_bytes() == LIBRARY and not other.exists()
