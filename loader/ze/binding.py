"""Binds a Level Zero driver: makes one complete, safe dispatch table from an open library.

A driver exports `zeGet<Table>ProcAddrTable(version, table)` for each table. Each getter gets a
buffer that is larger than any known table, so a newer driver overruns nothing. A driver that
refuses the newest version is asked for older ones. Entries that came after the version that it
accepts are not read.

In the resulting table, a missing function returns UNSUPPORTED_FEATURE. No slot is NULL, and the
table is never freed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from ..base import layers
from ..base.errors import FairleadError
from ..base.library import Library
from ..base.table import DispatchTable
from .abi import API_VERSION, TABLES, VERSION, ZE, LevelZeroError, count_entries, name_getter

_BUFFER_WORDS: Final = 1024  # words: several times the longest table
_UNSUPPORTED_VERSION: Final = ZE.codes["ZE_RESULT_ERROR_UNSUPPORTED_VERSION"]
#: What no program can do without. One of a row is enough.
_NEEDED: Final = (
    ("zeInit", "zeInitDrivers"),
    ("zeDriverGet", "zeInitDrivers"),
    ("zeDeviceGet",),
    ("zeDeviceGetProperties",),
)
# ze_result_t zeGetGlobalProcAddrTable(ze_api_version_t, ze_global_dditable_t *), and others
_GetTable = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


class DriverBindError(FairleadError):
    """A library is not a Level Zero driver, or violates the protocol of drivers."""


@dataclass(frozen=True)
class DriverBinding:
    """The result of binding a driver.

    Attributes:
        version: the version of its tables, such as "1.17"; at most that of fairlead.
        missing: the functions that it does not have.
        missing_tables: the tables that it has no getter for.
    """

    table: DispatchTable
    version: str
    missing: frozenset[str]
    missing_tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def bind_driver(library: Library) -> DriverBinding:
    """Bind a driver. None of its functions has been called then, except getters of tables.

    Raises:
        DriverBindError: it is not a driver, refuses every version, or lacks what programs need.
    """
    getters = {table: library.find_own_symbol(name_getter(table)) for table in TABLES}
    missing_tables = tuple(table for table, address in getters.items() if not address)
    if len(missing_tables) == len(TABLES):
        raise DriverBindError(
            "it exports no zeGet…ProcAddrTable function, so it is not a Level Zero driver",
            remedy="name the library of a driver, such as libze_intel_gpu.so.1",
        )
    if library.find_own_symbol("zelLoaderGetVersions"):
        raise DriverBindError(
            "it is a Level Zero loader, which opens drivers and is none itself",
            remedy="name the driver itself, such as libze_intel_gpu.so.1",
        )
    version = 0
    words: dict[str, int] = {}
    for table, address in getters.items():
        if address:
            known, entries = _fill_table(address, table)
            version = max(version, known)
            words |= zip(TABLES[table][: count_entries(table, known)], entries, strict=False)
    has = {name: word for name, word in words.items() if word}
    for row in _NEEDED:
        if not any(name in has for name in row):
            raise DriverBindError(
                f"it has no {' and no '.join(row)}, so that no device can be found through it",
                remedy="update or reinstall the driver",
            )
    address, slots = layers.make_table(ZE)
    for name, word in has.items():
        slots[ZE.functions[name].slot] = word
    return DriverBinding(
        DispatchTable(ZE, address, label=library.path.rsplit("/", 1)[-1]),
        format_version(version),
        frozenset(ZE.functions) - set(has),
        missing_tables,
        _explain_version(version),
    )


def format_version(version: int) -> str:
    """Return a version of the API as text: "1.17"."""
    return f"{version >> 16}.{version & 0xFFFF}"


def _fill_table(address: int, table: str) -> tuple[int, list[int]]:
    """Return the newest version that a getter accepts, and the entries that it wrote."""
    call: Any = _GetTable(address)
    code = 0
    for version in range(API_VERSION, (API_VERSION >> 16 << 16) - 1, -1):
        entries = (ctypes.c_uint64 * _BUFFER_WORDS)()
        code = call(version, entries)
        if code == 0:
            return version, list(entries)
        if code != _UNSUPPORTED_VERSION:
            break
    name, sentence = LevelZeroError.describe(code)
    raise DriverBindError(
        f"it refuses to fill its table {table}: {sentence}",
        routine=name_getter(table),
        code=name,
        remedy=f"use a driver for Level Zero {VERSION} or older"
        if code == _UNSUPPORTED_VERSION
        else "see what it prints: FAIRLEAD_PROBE=0 shows all of it",
    )


def _explain_version(version: int) -> tuple[str, ...]:
    if version == API_VERSION:
        return ()
    return (
        f"its tables are those of Level Zero {format_version(version)}: what came later returns "
        "UNSUPPORTED_FEATURE",
    )
