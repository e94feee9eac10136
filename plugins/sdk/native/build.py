"""Builds `fairlead.plugins.sdk._native`, the C between a caller and an adapter written in Python.

It is a cffi module, generated from loader/ur/ur.abi. Its `extern "Python"` functions are the entry
points: `py_urQueueFinish` gets the adapter's number and the arguments. Some entry points begin in
C, as `c_urQueueRetain` (entries_in_c.py). They call Python only for what C cannot do. The other C
files are hand-written. A loader finds all of them through a shell (shells.py).

setup.py calls `ffibuilder()`. `python plugins/sdk/native/build.py DIRECTORY` only writes the
generated headers there, for tests in C.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
ICD = HERE.parents[2] / "icd" / "native"
in_c = SimpleNamespace(**runpy.run_path(str(HERE / "entries_in_c.py")))
c_types, building = in_c.c_types, in_c.building
#: What C of fairlead.icd may be included.
ICD_HEADERS = [os.path.relpath(header) for header in sorted(ICD.glob("*.h"))]

#: The C that Python sees, and the Python that C calls besides entry points.
_CDEF = (
    *("shell.cdef.h", "counts.cdef.h", "interrupts.cdef.h", "launches.cdef.h"),
    *("calls.cdef.h", "level_zero.cdef.h"),
)
_OTHER_CALLBACKS = (
    "void py_teardown(uint32_t number); void py_reap(void);"
    " uintptr_t py_part(void *context, uintptr_t address);"
)


def write_headers(directory: Path) -> None:
    """Write opencl_abi.h, operations.cdef.h, ur_calls.h, ur_types.h and ze_slots.h there."""
    icd = SimpleNamespace(**runpy.run_path(str(ICD / "build.py")))
    building.write_if_new(directory / "opencl_abi.h", icd.emit_header())
    name = "operations.cdef.h"
    building.write_if_new(directory / name, icd.emit_operations()[name])
    building.write_if_new(directory / "ur_calls.h", in_c.emit_ur_calls())
    building.write_if_new(directory / "ur_types.h", c_types.emit_ur_types())
    building.write_if_new(directory / "ze_slots.h", in_c.emit_ze_slots())


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.plugins.sdk._native`."""
    from cffi import FFI

    write_headers(building.GENERATED)
    ffi = FFI()
    version = c_types.compute_version(c_types.read_ur(), c_types.list_functions())
    names = [*in_c.find_counts_and_updates(), *in_c.list_calls()]
    table = in_c.emit_address_table(
        [*(f"c_{name}" for name in names), *(f"lz_{name}" for name in in_c.LEVEL_ZERO)]
    )
    # one text: each call of cdef reads all types once more
    declared = [
        *(*c_types.declare_types(c_types.read_ur()), c_types.declare_kinds(c_types.read_ur())),
        *((HERE / header).read_text(encoding="utf-8") for header in _CDEF),
        c_types.declare_callbacks(c_types.list_functions()),
        f'extern "Python" {{ {_OTHER_CALLBACKS} }}',
        f"{table.declaration} extern const fl_in_c_table fl_in_c;",
        "#define FL_SHELL_VERSION ...",
    ]
    ffi.cdef("\n".join(declared))
    headers = (
        "ur_types.h",
        "shell.cdef.h",
        "interrupts.cdef.h",
        "launches.h",
        "calls.h",
        "level_zero.cdef.h",
        "gpu_launches.h",
    )
    lines = [
        *(f'#include "{header}"' for header in headers),
        f"#define FL_SHELL_VERSION {version}u",
        *in_c.emit_functions(),
        table.declaration,
        table.definition,
    ]
    names = ("counts.c", "interrupts.c", "launches.c", "answers.c", "progress.c", "gpu_appends.c")
    names += ("level_zero.c",)
    sources = [HERE / name for name in (*names, *in_c.CALLS)]
    options = building.describe_extension(
        sources, [HERE, building.GENERATED], "-Wno-unused-function"
    )
    options["depends"] += ICD_HEADERS
    ffi.set_source("fairlead.plugins.sdk._native", "\n".join(lines), **options)
    return ffi


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
