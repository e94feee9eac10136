"""Which library of PoCL's binary has a kernel's function, and which ones are not opened.

What fairlead reads of PoCL's kernels.

Sizes of structs that PoCL's binaries have, beside those that the device computes.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyopencl as cl
import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

from fairlead.icd import libopencl, pocl_kernels
from fairlead.icd.drivers import platforms
from fairlead.icd.pocl_kernels import PoclKernel
from fairlead.icd.pocl_structs import find_struct_sizes

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


def test_without_a_home_pocl_s_cache_is_not_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files run in this process, and others may have written what lies here."""
    planted = tmp_path / ".cache/pocl/kcache/folder/4-1-1/step.so"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"code")
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    taken: list[bytes] = []
    monkeypatch.setattr(pocl_kernels, "is_whole_library", lambda library: True)
    monkeypatch.setattr(PoclKernel, "_find_function", lambda _, data: taken.append(data) or 1)
    kernel = PoclKernel("step", (), (), (), (0, 0, 0), False, b"", "folder", None)
    assert kernel.find_specialized((4, 1, 1), no_offset=False, small_grid=False) == 0
    assert not taken
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel.find_specialized((4, 1, 1), no_offset=False, small_grid=False) == 1
    assert taken == [b"code"]


TYPES = {
    "one": "typedef struct { char c; } one;",
    "padded": "typedef struct { char c; double d; int numbers[11]; } padded;",
    "packed": "typedef struct __attribute__((packed)) { char c; double d; short s; } packed;",
    "aligned": "typedef struct __attribute__((aligned(32))) { int i; } aligned;",
    "vectors": "typedef struct { float3 f; short3 s; char2 c; ulong8 u; } vectors;",
    "nested": "typedef struct { padded p[3]; packed q; one o; } nested;",
    "joined": "typedef union { char c[5]; int i; short s[7]; } joined;",
    "large": "typedef struct { nested n[9]; uchar last; } large;",
}
LISTED = ", ".join(f"{name} {name}_" for name in TYPES)
SOURCE = "\n".join(
    (
        *TYPES.values(),
        "kernel void nothing(void) {}",
        f"kernel void take(global int *out, {LISTED}, int last) {{",
        "    out[0] = one_.c + padded_.numbers[3] + last;",
        "}",
        "kernel void other(local int *out, joined by) { out[0] = by.i; }",
        "kernel void tell(global int *out) {",
        *(f"    out[{place}] = sizeof({name});" for place, name in enumerate(TYPES)),
        "}",
    )
)


@pytest.fixture
def program(each_driver: Driver) -> cl.Program:
    platform = next(one for one in platforms() if each_driver.has(one))
    context = cl.Context([platform.devices[0].to_pyopencl()])
    return cl.Program(context, SOURCE).build()


def test_sizes_are_those_of_the_device(program: cl.Program) -> None:
    """Those of other drivers are unknown: these refuse a struct of another size."""
    queue, told = cl.CommandQueue(program.context), np.empty(len(TYPES), np.int32)
    out = cl.Buffer(program.context, cl.mem_flags.WRITE_ONLY, told.nbytes)
    cl.Kernel(program, "tell")(queue, (1,), (1,), out)
    cl.enqueue_copy(queue, told, out)
    sizes = dict(enumerate(told.tolist(), 1))
    joined = sizes[1 + list(TYPES).index("joined")]
    expected = {"take": sizes, "other": {1: joined}, "nothing": {}, "tell": {}}
    binary = program.binaries[0]
    assert find_struct_sizes(binary) == (expected if binary.startswith(b"poclbin") else {})


def test_damaged_binaries_have_sizes_or_none(program: cl.Program) -> None:
    lot, binary = Random(1), program.binaries[0]
    for _ in range(40):
        damaged = bytearray(binary[: lot.randrange(len(binary))] if lot.random() < 0.3 else binary)
        for _ in range(lot.randint(1, 20)):
            damaged[lot.randrange(len(damaged))] = lot.randrange(256)
        for rows in find_struct_sizes(bytes(damaged)).values():
            assert all(size >= 0 for size in rows.values())
