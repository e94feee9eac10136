"""Binds a plugin: from an open library to one complete dispatch table that is safe to call.

A UR adapter exports up to 26 functions `urGet<Table>ProcAddrTable(version, table)`, each of which fills one table; all of them are
optional. `bind_adapter` calls each with a buffer larger than any known table, in which every word holds a mark: how far the marks are
overwritten is how long the adapter believes the table to be. From that the *layout* is told (`ur.py` says why the version number
cannot tell it), and the functions are put where the newest layout has them.

A PI plugin exports `piPluginInit(struct _pi_plugin *)`. `bind_plugin` fills the table from what it wrote, after comparing every entry
with the function that is exported under the name which belongs there.

In the table that comes out a slot for which the plugin has nothing answers UNSUPPORTED_FEATURE, one of a table that it does not have
UNINITIALIZED, as through the real loader. Nothing of it is ever NULL, and it is never freed.
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
from .abi import API_VERSION, UR, VERSION, URError, getter
from .adapt import adapt

_ROOM: Final = 1024  # words: several times the longest table that was ever seen
_MARK: Final = 0x4C44_4146_0000_0001  # not an address: bits 48 to 63 of a user's address are 0
_GetTable = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p)
_PluginInit = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class BindError(FairleadError):
    """A library was refused: it is no plugin, or does not keep to the protocol of one."""


@dataclass(frozen=True)
class PluginBinding:
    """How a plugin was bound: its table, its `version` ("0.12", "15.47.1"), for UR the `layout` of its tables ("2026.2"), the names of
    the functions that it does not have, remarks for the user, and the layer that adapts an older layout."""

    table: DispatchTable
    version: str
    layout: str = ""
    missing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    adapted_by: layers.Layer | None = None


# Unified Runtime


def bind_adapter(library: Library, *, layout: str | None = None) -> PluginBinding:
    """Bind a Unified Runtime adapter. With `layout`, one of `UR.layouts`, an adapter of any other layout is refused.

    Raises BindError if it is no adapter, refuses our version, or has tables of a layout that is not known.
    """
    filled = {table: _fill(library, table) for table in _all_tables()}
    tables = {table: words for table, words in filled.items() if words is not None}
    if not tables:
        raise BindError(
            "it exports no urGet…ProcAddrTable function, so it is no Unified Runtime adapter",
            remedy="name the library of an adapter, libur_adapter_….so.0",
        )
    if not any(tables.get("Adapter", ())[:1]):
        raise BindError(
            "it has no urAdapterGet (urGetAdapterProcAddrTable gives none), so that no platform can be found through it",
            remedy="update or reinstall the adapter",
        )
    found, exact = layout_of({table: len(words) for table, words in tables.items()})
    if layout not in (None, found):
        raise BindError(
            f"its tables have the layout of {found}, not that of {layout}: functions would be called in each other's place",
            remedy=f"use the adapter of release {layout}, or let fairlead adapt it by not asking for a layout",
        )
    newest = next(iter(UR.layouts))
    notes = (
        () if exact else (f"its tables are not complete; what there is fits the layout of {found}",)
    )
    if found != newest:
        notes += (
            f"its tables have the layout of {found}; fairlead calls it through one of {newest}",
        )
    return _bound_adapter(tables, found, notes, library.path)


def layout_of(lengths: Mapping[str, int]) -> tuple[str, bool]:
    """The layout of an adapter whose tables have these lengths, and whether it fits exactly.

    An adapter need not have every table, nor fill all of one, so that what is no layout's exact picture is taken for the one of which
    most tables are whole, the newest of several. Raises BindError if it fits into none, or if the layouts that it could be of disagree.
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
            f"its tables are not complete, and which functions are in {doubtful} cannot be told from its {given[doubtful]} entries",
            code=code,
            remedy=remedy,
        )
    return best, False


def _is_doubtful(table: str, length: int, best: str, candidates: Sequence[str]) -> bool:
    """Whether layouts disagree on the entries that a table has: the candidates, and all of them where `best` has more entries."""
    rivals = candidates if length == len(UR.layouts[best][table]) else UR.layouts
    return (
        len({UR.layouts[name][table][:length] for name in rivals if table in UR.layouts[name]}) > 1
    )


def _all_tables() -> Sequence[str]:
    return list(dict.fromkeys(table for tables in UR.layouts.values() for table in tables))


def _fill(library: Library, table: str) -> list[int] | None:
    """What the adapter's getter wrote: the words up to the last one that it touched. None if it has no such getter."""
    name = getter(table)
    address = library.own_symbol(name)
    if address is None:
        return None
    words = (ctypes.c_uint64 * _ROOM).from_buffer_copy(_MARK.to_bytes(8, sys.byteorder) * _ROOM)
    code = _GetTable(address)(API_VERSION, words)
    if code:
        result, meaning = URError.describe(code)
        remedy = "install an adapter of Unified Runtime 0.12 (DPC++ 2025.3 or 2026)"
        if result == "UR_RESULT_ERROR_UNINITIALIZED":
            meaning, remedy = (
                "it cannot start",
                "see what it prints: FAIRLEAD_PROBE=0 shows all of it",
            )
        raise BindError(
            f"it refuses to fill its table {table}: {meaning}",
            routine=name,
            code=result,
            remedy=remedy,
        )
    if words[_ROOM - 1] != _MARK:
        raise BindError(
            "it wrote beyond the end of the table",
            routine=name,
            remedy="update or reinstall the adapter",
        )
    written = words[:]
    while written and written[-1] == _MARK:
        written.pop()
    return [word if word != _MARK else 0 for word in written]


def _bound_adapter(
    tables: Mapping[str, Sequence[int]], layout: str, notes: tuple[str, ...], path: str
) -> PluginBinding:
    address, slots = layers.new_table(UR)
    uninitialized = layers.stubs(UR, "uninitialized")
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

    Raises BindError if it is no plugin, refuses our version, or if neither its version nor its exported names say which function is
    where in its table.
    """
    address = library.own_symbol("piPluginInit")
    if address is None:
        raise BindError(
            "it does not export piPluginInit, so it is no PI plugin",
            remedy="name the library of a plugin, libpi_….so",
        )
    block = (ctypes.c_uint64 * (_ROOM + TABLE_OFFSET // 8))(*[_MARK] * (_ROOM + TABLE_OFFSET // 8))
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
            f"it speaks PI {version or 'of no version'}, which differs from {PI_VERSION} in the parameters of its functions",
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
    return _bound_plugin(library, version, words)


def _bound_plugin(library: Library, version: str, words: Sequence[int]) -> PluginBinding:
    """The table by position in the version whose order is known, as long as no exported name speaks against it; else by names."""
    exported = {function.name: library.own_symbol(function.name) for function in PI.slots}
    elsewhere = [
        f.name
        for f in PI.slots
        if exported[f.name] and words[f.slot or 0] not in (0, exported[f.name])
    ]
    known = version.split(".")[:2] == PI_VERSION.split(".")
    if not known and not any(exported.values()):
        raise BindError(
            f"it speaks PI {version} and exports none of its functions, so that their order in its table is not known",
            routine="piPluginInit",
            remedy=f"install a plugin of PI {PI_VERSION}",
        )
    ordered = known and not elsewhere
    address, slots = layers.new_table(PI)
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
    """Every slot of the table answers UNINITIALIZED from now on: its library is about to be closed. Whatever traces it lets it go."""
    api: Any = binding.table.api
    slots = (ctypes.c_void_p * len(api.slots)).from_address(binding.table.address)
    for slot, stub in enumerate(layers.stubs(api, "uninitialized")):
        slots[slot] = stub
    for layer in reversed(binding.table.layers):
        binding.table.remove(layer)
        layer.release()
    binding.table.refresh()
    if binding.adapted_by:
        binding.adapted_by.release()
