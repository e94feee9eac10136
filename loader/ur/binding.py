"""Binds a plugin: makes one complete, safe dispatch table from an open library.

A UR adapter exports up to 26 optional functions `urGet<Table>ProcAddrTable(version, table)`. Each
fills one table. `bind_adapter` passes a buffer that is larger than any known table and filled with
a marker. The first markers that remain show the length of the adapter's table. The lengths
determine the *layout* (abi.py says why the version cannot). Then the functions are copied to where
the newest layout has them.

A PI plugin exports `piPluginInit(struct _pi_plugin *)`. `bind_plugin` copies the table that it
writes, after it has compared every entry with the exported function of that name.

In the resulting table, a missing function returns UNSUPPORTED_FEATURE. A function of a missing
table returns UNINITIALIZED, as with the real loader. No slot is NULL, and the table is never freed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base import layers
from ..base.errors import FairleadError
from ..base.library import Library
from ..base.table import DispatchTable
from ..pi.abi import API_VERSION as PI_VERSION
from ..pi.abi import PI, PI_SUCCESS, TABLE_OFFSET, VERSION_SIZE, PIError
from .abi import API_VERSION, UR, VERSION, URError, name_getter
from .adapt import adapt

_BUFFER_WORDS: Final = 1024  # words: several times the longest table that was ever seen
_MARK: Final = 0x4C44_4146_0000_0001  # not an address: bits 48 to 63 of a user's address are 0
# ur_result_t urGetPlatformProcAddrTable(ur_api_version_t, ur_platform_dditable_t *), and others
_GetTable = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p)
# pi_result piPluginInit(pi_plugin *)
_PluginInit = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class BindError(FairleadError):
    """A library is not a plugin, or violates the protocol of plugins."""


@dataclass(frozen=True)
class PluginBinding:
    """The result of binding a plugin.

    Attributes:
        version: the version of its interface, such as "0.12" or "15.47.1".
        layout: the layout of an adapter's tables, such as "2026.2".
        missing: the functions that it does not have.
        adapted_by: the layer that adapts an older layout, None if there is none.
    """

    table: DispatchTable
    version: str
    layout: str = ""
    missing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    adapted_by: layers.Layer | None = None


# Unified Runtime


def bind_adapter(library: Library, *, layout: str | None = None) -> PluginBinding:
    """Bind a Unified Runtime adapter.

    Args:
        layout: refuse an adapter that does not have this layout of `UR.layouts`.

    Raises:
        BindError: it is not an adapter, refuses the version, or has tables of an unknown layout.
    """
    filled = {table: _call_getter(library, table) for table in _list_tables()}
    tables = {table: words for table, words in filled.items() if words is not None}
    if not tables:
        raise BindError(
            "it exports no urGet…ProcAddrTable function, so it is not a Unified Runtime adapter",
            remedy="name the library of an adapter, libur_adapter_….so.0",
        )
    if not any(tables.get("Adapter", ())[:1]):
        raise BindError(
            "it has no urAdapterGet (urGetAdapterProcAddrTable gives none), so that no platform "
            "can be found through it",
            remedy="update or reinstall the adapter",
        )
    found, exact = find_layout({table: len(words) for table, words in tables.items()})
    if layout not in (None, found):
        raise BindError(
            f"its tables have the layout of {found}, not that of {layout}: functions would be "
            "called in each other's place",
            remedy=f"use the adapter of release {layout}, or let fairlead adapt it by not asking "
            "for a layout",
        )
    newest = next(iter(UR.layouts))
    notes = (
        () if exact else (f"its tables are not complete; what there is fits the layout of {found}",)
    )
    if found != newest:
        notes += (
            f"its tables have the layout of {found}; fairlead calls it through one of {newest}",
        )
    return _make_adapter_binding(tables, found, notes, library.path)


def find_layout(lengths: Mapping[str, int]) -> tuple[str, bool]:
    """Return the layout of an adapter, and whether its tables match it exactly.

    An adapter may lack tables or functions at the end of a table. Without an exact match, the
    layout with the most complete tables is used, the newest of several.

    Args:
        lengths: table to the number of its entries.

    Raises:
        BindError: no layout fits, or the fitting layouts contradict each other.
    """
    complete = {
        name: {table: len(functions) for table, functions in tables.items()}
        for name, tables in UR.layouts.items()
    }
    given = {table: length for table, length in lengths.items() if length}
    for name, tables in complete.items():
        if tables == given:
            return name, True
    fitting = [
        name
        for name, tables in complete.items()
        if all(length <= tables.get(table, 0) for table, length in given.items())
    ]
    remedy = f"use an adapter of one of these releases: {', '.join(complete)}; or update fairlead"
    code = "UR_RESULT_ERROR_UNSUPPORTED_VERSION"
    if not fitting:
        newest, tables = next(iter(complete.items()))
        odd = "; ".join(
            f"{table} has {n} entries, not {tables.get(table, 0)}"
            for table, n in given.items()
            if n != tables.get(table)
        )
        raise BindError(
            f"its tables have a layout that is not known: compared with {newest}, {odd}",
            code=code,
            remedy=remedy,
        )
    whole = [
        name
        for name in fitting
        if all(length == complete[name][table] for table, length in given.items())
    ]
    candidates = whole or fitting
    best = max(
        candidates,
        key=lambda name: sum(complete[name].get(table) == n for table, n in given.items()),
    )
    doubtful = next(
        (table for table, length in given.items() if _is_doubtful(table, length, best, candidates)),
        None,
    )
    if doubtful:
        raise BindError(
            f"its tables are not complete, and which functions are in {doubtful} cannot be told "
            f"from its {given[doubtful]} entries",
            code=code,
            remedy=remedy,
        )
    return best, False


def _is_doubtful(table: str, length: int, best: str, candidates: Sequence[str]) -> bool:
    """Return whether layouts disagree on the entries of a table.

    The candidates are compared, or all layouts if `best` has more entries.
    """
    rivals = candidates if length == len(UR.layouts[best][table]) else UR.layouts
    return (
        len({UR.layouts[name][table][:length] for name in rivals if table in UR.layouts[name]}) > 1
    )


def _list_tables() -> Sequence[str]:
    return list(dict.fromkeys(table for tables in UR.layouts.values() for table in tables))


def _call_getter(library: Library, table: str) -> list[int] | None:
    """Return the words that the adapter's getter wrote, None if it has no such getter."""
    name = name_getter(table)
    address = library.find_own_symbol(name)
    if address is None:
        return None
    words = (ctypes.c_uint64 * _BUFFER_WORDS).from_buffer_copy(
        _MARK.to_bytes(8, sys.byteorder) * _BUFFER_WORDS
    )
    code = _GetTable(address)(API_VERSION, words)
    if code:
        result, meaning = URError.describe(code)
        remedy = "install an adapter of Unified Runtime 0.12 (DPC++ 2025.3 or 2026)"
        if result == "UR_RESULT_ERROR_UNINITIALIZED":
            meaning = "it cannot start"
            remedy = "see what it prints: FAIRLEAD_PROBE=0 shows all of it"
        raise BindError(
            f"it refuses to fill its table {table}: {meaning}",
            routine=name,
            code=result,
            remedy=remedy,
        )
    if words[_BUFFER_WORDS - 1] != _MARK:
        raise BindError(
            "it wrote beyond the end of the table",
            routine=name,
            remedy="update or reinstall the adapter",
        )
    written = words[:]
    while written and written[-1] == _MARK:
        written.pop()
    return [word if word != _MARK else 0 for word in written]


def _make_adapter_binding(
    tables: Mapping[str, Sequence[int]], layout: str, notes: tuple[str, ...], path: str
) -> PluginBinding:
    address, slots = layers.make_table(UR)
    uninitialized = layers.make_stubs(UR, "uninitialized")
    has: set[str] = set()
    newest = next(iter(UR.layouts.values()))
    for table, functions in (*newest.items(), *UR.layouts[layout].items()):
        if table not in tables:
            for slot in (UR.functions[name].slot or 0 for name in functions if name):
                slots[slot] = uninitialized[slot]
    for table, words in tables.items():
        for name, word in zip(UR.layouts[layout].get(table, ()), words, strict=False):
            if name and word:
                slots[UR.functions[name].slot] = word
                has.add(name)
    table = DispatchTable(UR, address, label=path.rsplit("/", 1)[-1])
    filled, layer = adapt(table, frozenset(has))
    return PluginBinding(
        table, VERSION, layout, frozenset(UR.functions) - has - filled, notes, layer
    )


# PI


def bind_plugin(library: Library) -> PluginBinding:
    """Bind a PI plugin.

    Raises:
        BindError: it is not a plugin, refuses the version, or has functions in an unknown order.
    """
    address = library.find_own_symbol("piPluginInit")
    if address is None:
        raise BindError(
            "it does not export piPluginInit, so it is not a PI plugin",
            remedy="name the library of a plugin, libpi_….so",
        )
    block = (ctypes.c_uint64 * (_BUFFER_WORDS + TABLE_OFFSET // 8))(
        *[_MARK] * (_BUFFER_WORDS + TABLE_OFFSET // 8)
    )
    ctypes.memset(block, 0, TABLE_OFFSET)
    ctypes.memmove(block, PI_VERSION.encode() + b"\0", len(PI_VERSION) + 1)
    code = _PluginInit(address)(ctypes.addressof(block))
    if code != PI_SUCCESS:
        name, sentence = PIError.describe(code)
        raise BindError(
            f"it refuses PI {PI_VERSION}: {sentence}",
            routine="piPluginInit",
            code=name,
            remedy="install a plugin of PI 15 (DPC++ 2024), the last version there was",
        )
    header = bytes(block)[:TABLE_OFFSET]
    version = header[VERSION_SIZE : 2 * VERSION_SIZE].split(b"\0", 1)[0].decode("ascii", "replace")
    if version.split(".")[0] != PI_VERSION.split(".")[0]:
        raise BindError(
            f"it speaks PI {version or 'of no version'}, which differs from {PI_VERSION} in the "
            "parameters of its functions",
            routine="piPluginInit",
            code="PI_ERROR_INVALID_OPERATION",
            remedy="install a plugin of PI 15 (DPC++ 2024), the last version there was",
        )
    words = [word if word != _MARK else 0 for word in block[TABLE_OFFSET // 8 :]]
    if not any(words):
        raise BindError(
            "it left its table empty",
            routine="piPluginInit",
            remedy="update or reinstall the plugin",
        )
    return _make_plugin_binding(library, version, words)


def _make_plugin_binding(library: Library, version: str, words: Sequence[int]) -> PluginBinding:
    """Fill the table by position if the order is known and no exported name contradicts it.

    Otherwise fill it by exported names.
    """
    exported = {function.name: library.find_own_symbol(function.name) for function in PI.slots}
    elsewhere = [
        f.name
        for f in PI.slots
        if exported[f.name] and words[f.slot or 0] not in (0, exported[f.name])
    ]
    known = version.split(".")[:2] == PI_VERSION.split(".")
    if not known and not any(exported.values()):
        raise BindError(
            f"it speaks PI {version} and exports none of its functions, so that their order in its "
            "table is not known",
            routine="piPluginInit",
            remedy=f"install a plugin of PI {PI_VERSION}",
        )
    ordered = known and not elsewhere
    address, slots = layers.make_table(PI)
    has: set[str] = set()
    for function in PI.slots:
        pointer = (words[function.slot or 0] if ordered else 0) or exported[function.name]
        if pointer:
            slots[function.slot] = pointer
            has.add(function.name)
    if "piPlatformsGet" not in has:
        raise BindError(
            "it has no piPlatformsGet, so that no platform can be found",
            remedy="update or reinstall the plugin",
        )
    why = (
        f"its table has another order than that of PI {PI_VERSION} ({elsewhere[0]} is elsewhere)"
        if elsewhere
        else ""
    )
    why = why or ("" if known else f"the order of the functions of PI {version} is not known")
    notes = (f"{why}: bound by exported names",) if why else ()
    table = DispatchTable(PI, address, label=library.path.rsplit("/", 1)[-1])
    return PluginBinding(
        table, version, "", frozenset(function.name for function in PI.slots) - has, notes
    )


def unbind(binding: PluginBinding) -> None:
    """Make every slot of the table return UNINITIALIZED, because its library will be closed.

    The layers in front of the table are removed.
    """
    api: Any = binding.table.api
    slots = (ctypes.c_void_p * len(api.slots)).from_address(binding.table.address)
    for slot, stub in enumerate(layers.make_stubs(api, "uninitialized")):
        slots[slot] = stub
    for layer in reversed(binding.table.layers):
        binding.table.remove(layer)
        layer.release()
    binding.table.refresh()
    if binding.adapted_by:
        binding.adapted_by.release()
