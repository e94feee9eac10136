"""Which library of PoCL's binary has a kernel's function, and which ones are not opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.support import RunPython

from fairlead.icd import libopencl, pocl_kernels

LIBRARY = Path(libopencl.find_library())


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"/k/0-0-0/k.so": b"1"}, b"1"),
        ({"/k/0-0-0/parallel_aB3xYz.so": b"0", "/k/0-0-0/k.so": b"1"}, b"1"),
        ({"/k/0-0-0/k.so_aB3xYz.so": b"", "/k/0-0-0/k.so": b"1"}, b"1"),
        ({"/k/0-0-0/parallel_aB3xYz.so": b"0"}, b""),
        ({"/k/0-0-0/k.so_aB3xYz.so": b"0"}, b""),
        ({"/k/8-1-1/k.so": b"0", "/k/0-0-0/k.bc": b"0"}, b""),
        ({"/kk/0-0-0/kkkk_a1b2.so": b"1", "/kk/0-0-0/parallel_aB3xYz.so": b"0"}, b"1"),
        ({"/kk/0-0-0/kk_9.so": b"", "/kk/0-0-0/kkkk_a1b2.so": b"1"}, b"1"),
        ({}, b""),
    ],
    ids=[
        "one",
        "beside a file of 7.1's linker",
        "beside a file of 7.2's linker",
        "a file of 7.1's linker alone",
        "a file of 7.2's linker alone",
        "other sizes",
        "a long name",
        "a long name, beside an empty file",
        "none",
    ],
)
def test_which_file_is_the_library(files: dict[str, bytes], found: bytes) -> None:
    rows = ((path.encode(), data) for path, data in files.items())
    assert pocl_kernels._find_library("k", rows) == found


def test_a_kernel_may_be_called_like_the_linkers_file() -> None:
    rows = [(b"/p/0-0-0/parallel_sorter.so", b"1")]
    assert pocl_kernels._find_library("parallel_sorter", rows) == b"1"


def test_libraries_that_are_cut_off() -> None:
    library = LIBRARY.read_bytes()
    assert pocl_kernels.is_whole_library(library)
    for size in (0, 1, 63, 64, 4096, len(library) // 2, len(library) - 1):
        assert not pocl_kernels.is_whole_library(library[:size]), size
    assert "is cut off" in str(pocl_kernels._explain_untrusted(library[: len(library) // 2]))


#: Asks for the function of one local size, whose file in PoCL's cache is half of a library.
_CUT_OFF = """
import os, sys
from pathlib import Path
from fairlead.icd.pocl_kernels import PoclKernel

folder = Path(os.environ["POCL_CACHE_DIR"], "AB", "k", "8-1-1-goffs0-smallgrid")
folder.mkdir(parents=True)
library = Path(sys.argv[1]).read_bytes()
folder.joinpath("k.so").write_bytes(library[: len(library) // 2])
kernel = PoclKernel("k", (), (), (), (0, 0, 0), False, b"", "AB/k", None)
print(kernel.find_specialized([8, 1, 1], no_offset=True, small_grid=True))
"""


def test_a_library_of_the_cache_that_is_cut_off_is_not_opened(
    run_python: RunPython, tmp_path: Path
) -> None:
    done = run_python(_CUT_OFF, str(LIBRARY), env={"POCL_CACHE_DIR": str(tmp_path)})
    assert done.out == "0\n"
