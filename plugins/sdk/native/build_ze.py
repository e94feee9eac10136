"""Builds the C between a caller and a Level Zero driver written in Python.

It is to loader/ze/ze.abi what build.py and shells.py are to loader/ur/ur.abi:

- `fairlead.plugins.sdk._native_ze` is a cffi module with the API's types. Its `extern "Python"`
  functions are the entry points: `py_zeInit` gets the driver's number and the arguments. Some begin
  in C (`_CALLS`), as `c_zeCommandListClose`, and call Python for what C cannot do (ze_calls.h).
- `ze_entries.h` is for shell.c: a C function for each entry point, and the functions that fill a
  loader's tables. A table is filled as far as the version goes that the loader names, because an
  older loader has less room.

setup.py calls `ffibuilder()` and `describe_shells()`. `python plugins/sdk/native/build_ze.py
DIRECTORY` only writes the generated headers there, for tests in C.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
build = SimpleNamespace(**runpy.run_path(str(HERE / "build.py")))
shells = SimpleNamespace(**runpy.run_path(str(HERE / "shells.py")))
c_types, in_c, building = build.c_types, build.in_c, build.building

#: Functions that a program without a loader calls first. They start the driver, as getters do.
_STARTING = frozenset({"zeInit", "zeInitDrivers", "zeDriverGet"})

#: The entry points that have a function in C, by their file.
_CALLS = {
    "ze_kernels.c": (
        *("zeKernelSetArgumentValue", "zeKernelSetGroupSize"),
        "zeKernelSetGlobalOffsetExp",
    ),
    "ze_lists.c": (
        *("zeCommandListAppendLaunchKernel", "zeCommandListUpdateMutableCommandsExp"),
        "zeCommandListClose",
    ),
    "ze_queues.c": (
        *("zeCommandQueueExecuteCommandLists", "zeCommandQueueSynchronize"),
        *("zeCommandListImmediateAppendCommandListsExp", "zeCommandListHostSynchronize"),
    ),
    "ze_events.c": ("zeEventHostReset", "zeEventQueryStatus", "zeEventHostSynchronize"),
}
#: The constants that C uses, by the beginnings of their names.
_CONSTANTS = ("ZE_STRUCTURE_TYPE_MUTABLE_", "ZE_MUTABLE_COMMAND_EXP_FLAG_")

_EXPORTED = '__attribute__((visibility("default")))'


def read_ze() -> Any:
    """Return the ABI data of Level Zero."""
    return building.read_api("ze")


def get_tables() -> dict[str, tuple[str, ...]]:
    """Return the names of each table's functions in order."""
    (newest,) = read_ze().layouts.values()
    return newest


def compute_version() -> int:
    """Return a number for what a shell and a fairlead have to agree on."""
    return c_types.compute_version(read_ze(), read_ze().slots)


def _emit_getter(table: str, names: tuple[str, ...], first: int) -> str:
    """Return the function that fills a loader's table."""
    since = [read_ze().functions[name].since for name in names]
    if sorted(since) != since:
        raise ValueError(f"an older version's {table} is not the beginning of the newest")
    numbers = ", ".join(f"{major << 16 | minor:#x}" for major, minor in since)
    return (
        f"{_EXPORTED} int32_t zeGet{table}ProcAddrTable(uint32_t version, void **table) {{\n"
        f"    static const uint32_t since[] = {{{numbers}}};\n"
        f"    return fl_fill_since(version, table, {first}, since, {len(names)});\n}}"
    )


def _emit_empty_getter(prefix: str, table: str) -> str:
    """Return a getter that fills nothing. Some loaders pass over a driver without it."""
    return (
        f"{_EXPORTED} int32_t {prefix}Get{table}ProcAddrTable(uint32_t version, void **table) {{\n"
        "    return fl_fill_since(version, table, 0, NULL, 0);\n}"
    )


def emit_ze_entries() -> str:
    """Return the text of ze_entries.h."""
    api, found = read_ze(), list(read_ze().slots)
    lines = list(
        shells.emit_head(
            api,
            found,
            "fairlead.plugins.sdk.ze.start",
            compute_version(),
            UNINITIALIZED="ZE_RESULT_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="ZE_RESULT_ERROR_UNSUPPORTED_VERSION",
            NULL_POINTER="ZE_RESULT_ERROR_INVALID_NULL_POINTER",
        )
    )
    lines += c_types.declare_types(api)
    for number, function in enumerate(found):
        text = shells.emit_entry(function, number)
        starts = function.name in _STARTING
        lines.append(text.replace("fl_body(", "fl_body_started(") if starts else text)
    slots = ", ".join(f"(void *){function.name}" for function in found)
    lines.append(f"static void *const table_0[] = {{{slots}}};")
    lines.append("static void *const *const fl_tables[] = {table_0};")
    first = 0
    for table, names in get_tables().items():
        lines.append(_emit_getter(table, names, first))
        first += len(names)
    for prefix, others in api.other_tables.items():
        lines += (_emit_empty_getter(prefix, table) for table in others)
    return "\n".join([*lines, ""])


def _list_calls() -> dict[str, str]:
    """Return the parameters of the entry points that have a function in C, by their names."""
    names = [name for found in _CALLS.values() for name in found]
    return {
        name: ", ".join(c_types.declare_parameters(read_ze().functions[name])) for name in names
    }


def emit_ze_types() -> str:
    """Return the text of ze_types.h: types, the kinds of handles, and constants."""
    api = read_ze()
    constants = [c for c in api.constants.values() if c.name.startswith(_CONSTANTS)]
    lines = [
        building.emit_first_line("plugins/sdk/native/build_ze.py", api),
        "#pragma once\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>",
        *c_types.declare_types(api),
        c_types.declare_kinds(api),
        *(f"#define {c.name} ({c.value})" for c in constants),
        f"#define ZE_RESULT_NOT_READY ({api.codes['ZE_RESULT_NOT_READY']})",
    ]
    return "\n".join([*lines, ""])


def emit_entries_in_c() -> str:
    """Return the text of ze_entries_in_c.h: the functions in C, and their parameters as macros."""
    calls = _list_calls()
    lines = [
        building.emit_first_line("plugins/sdk/native/build_ze.py", read_ze()),
        '#pragma once\n#include "ze_types.h"',
        *(f"#define PARAMETERS_{name} uint32_t driver, {given}" for name, given in calls.items()),
        *(f"int32_t fl_{name}(PARAMETERS_{name});" for name in calls),
    ]
    return "\n".join([*lines, ""])


def _emit_call(name: str, given: str) -> str:
    """Return an entry point that Python answers if C does not."""
    names = ", ".join(p.name for p in read_ze().functions[name].parameters)
    return (
        f"static int32_t py_{name}(uint32_t, {given});\n"
        f"static int32_t c_{name}(uint32_t driver, {given}) {{\n"
        f"    int32_t code = fl_{name}(driver, {names});\n"
        f"    return code == FL_TO_PYTHON ? py_{name}(driver, {names}) : code;\n}}"
    )


def write_headers(directory: Path) -> None:
    """Write ze_types.h, ze_entries_in_c.h and ze_entries.h there."""
    building.write_if_new(directory / "ze_types.h", emit_ze_types())
    building.write_if_new(directory / "ze_entries_in_c.h", emit_entries_in_c())
    building.write_if_new(directory / "ze_entries.h", emit_ze_entries())


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.plugins.sdk._native_ze`."""
    from cffi import FFI

    write_headers(building.GENERATED)
    build.write_headers(building.GENERATED)
    ffi = FFI()
    calls = _list_calls()
    table = in_c.emit_address_table([f"c_{name}" for name in calls])
    declared = [
        *(*c_types.declare_types(read_ze()), c_types.declare_kinds(read_ze())),
        "struct fl_kernel; struct fl_buffer; struct fl_array; struct fl_driver;",
        (HERE / "ze_calls.cdef.h").read_text(encoding="utf-8"),
        c_types.declare_callbacks(read_ze().slots),
        'extern "Python" { void py_ze_teardown(uint32_t number); }',
        f"{table.declaration} extern const fl_in_c_table fl_in_c;",
        "#define FL_SHELL_VERSION ...",
    ]
    ffi.cdef("\n".join(declared))
    lines = [
        '#include "ze_calls.h"\n#include "ze_entries_in_c.h"',
        f"#define FL_SHELL_VERSION {compute_version()}u",
        *(_emit_call(name, given) for name, given in calls.items()),
        table.declaration,
        table.definition,
    ]
    sources = [HERE / name for name in _CALLS]
    options = building.describe_extension(
        sources, [HERE, building.GENERATED], "-Wno-unused-function"
    )
    options["depends"] += build.ICD_HEADERS
    ffi.set_source("fairlead.plugins.sdk._native_ze", "\n".join(lines), **options)
    return ffi


def describe_shells() -> list[Any]:
    """Return the setuptools extension of libfairlead_ze_shell.so."""
    write_headers(building.GENERATED)
    return [shells.describe_shell("libfairlead_ze_shell", "ze_shell.c")]


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
