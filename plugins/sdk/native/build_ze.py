"""Builds the C between a caller and a Level Zero driver written in Python.

It is to loader/ze/ze.abi what build.py is to loader/ur/ur.abi:

- `fairlead.plugins.sdk._native_ze` is a cffi module with the API's types. Its `extern "Python"`
  functions are the entry points: `py_zeInit` gets the driver's number and the arguments.
- `ze_entries.h` is for shell.c: a C function for each entry point, and the functions that fill a
  loader's tables. A table is filled as far as the version goes that the loader names, because an
  older loader has less room.

setup.py calls `ffibuilder()` and `shells()`.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
build = SimpleNamespace(**runpy.run_path(str(HERE / "build.py")))
building = build.building

#: Functions that a program without a loader calls first. They start the driver, as getters do.
_STARTING = frozenset({"zeInit", "zeInitDrivers", "zeDriverGet"})

_EXPORTED = '__attribute__((visibility("default")))'


def ze() -> Any:
    """Return the ABI data of Level Zero."""
    return building.api("ze")


def tables() -> dict[str, tuple[str, ...]]:
    """Return the names of each table's functions in order."""
    (newest,) = ze().layouts.values()
    return newest


def version() -> int:
    """Return a number for what a shell and a fairlead have to agree on."""
    return build.version(ze(), ze().slots)


def _getter(table: str, names: tuple[str, ...], first: int) -> str:
    """Return the function that fills a loader's table."""
    since = [ze().functions[name].since for name in names]
    if sorted(since) != since:
        raise ValueError(f"an older version's {table} is not the beginning of the newest")
    numbers = ", ".join(f"{major << 16 | minor:#x}" for major, minor in since)
    return (
        f"{_EXPORTED} int32_t zeGet{table}ProcAddrTable(uint32_t version, void **table) {{\n"
        f"    static const uint32_t since[] = {{{numbers}}};\n"
        f"    return fl_fill_since(version, table, {first}, since, {len(names)});\n}}"
    )


def _empty_getter(prefix: str, table: str) -> str:
    """Return a getter that fills nothing. Some loaders pass over a driver without it."""
    return (
        f"{_EXPORTED} int32_t {prefix}Get{table}ProcAddrTable(uint32_t version, void **table) {{\n"
        "    return fl_fill_since(version, table, 0, NULL, 0);\n}"
    )


def entries() -> str:
    """Return the text of ze_entries.h."""
    api, found = ze(), list(ze().slots)
    lines = list(
        build.head(
            api,
            found,
            "fairlead.plugins.sdk.ze.start",
            version(),
            UNINITIALIZED="ZE_RESULT_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="ZE_RESULT_ERROR_UNSUPPORTED_VERSION",
            NULL_POINTER="ZE_RESULT_ERROR_INVALID_NULL_POINTER",
        )
    )
    lines += build.types(api)
    for number, function in enumerate(found):
        text = build.entry(function, number)
        starts = function.name in _STARTING
        lines.append(text.replace("fl_body(", "fl_body_started(") if starts else text)
    slots = ", ".join(f"(void *){function.name}" for function in found)
    lines.append(f"static void *const table_0[] = {{{slots}}};")
    lines.append("static void *const *const fl_tables[] = {table_0};")
    first = 0
    for table, names in tables().items():
        lines.append(_getter(table, names, first))
        first += len(names)
    for prefix, others in api.other_tables.items():
        lines += (_empty_getter(prefix, table) for table in others)
    return "\n".join([*lines, ""])


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.plugins.sdk._native_ze`."""
    from cffi import FFI

    ffi, types = FFI(), "\n".join(build.types(ze()))
    ffi.cdef(types + build.callbacks(ze().slots))
    ffi.cdef('extern "Python" { void py_ze_teardown(uint32_t number); }')
    ffi.cdef("#define FL_SHELL_VERSION ...")
    lines = [
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <stdint.h>",
        types,
        f"#define FL_SHELL_VERSION {version()}u",
    ]
    options = building.extension([], [HERE], "-Wno-unused-function")
    ffi.set_source("fairlead.plugins.sdk._native_ze", "\n".join(lines), **options)
    return ffi


def shells() -> list[Any]:
    """Return the setuptools extension of libfairlead_ze_shell.so."""
    building.write_if_new(building.GENERATED / "ze_entries.h", entries())
    return [build.shell("libfairlead_ze_shell", "ze_shell.c")]
