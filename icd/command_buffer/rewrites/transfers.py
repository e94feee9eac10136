"""Copies and fills of buffers, as launches over the items of their neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..._native import ffi, lib
from ...calls import get_address
from .arguments import NotFused, make_arguments
from .kernels import list_macros, make_kernel_read, parse_kernel
from .launches import RecordedLaunch, make_launch
from .opaque import measure_kind
from .used_bytes import MemoryNames, find_root
from .uses import ListSnapshot, pack_arguments

#: A transfer as a kernel over the items of its neighbours.
_TRANSFERS: Final = {
    "copy": """kernel void copy_items(
        global const uchar *from, ulong from_at, global uchar *to, ulong to_at) {
      global const {0} *x = (global const {0} *)((global const uchar *)from + from_at);
      global {0} *z = (global {0} *)((global uchar *)to + to_at);
      z[get_global_id(0)] = x[get_global_id(0)];
    }""",
    "fill": """kernel void fill_items({0} value, global uchar *to, ulong to_at) {
      global {0} *z = (global {0} *)((global uchar *)to + to_at);
      z[get_global_id(0)] = value;
    }""",
}
#: Types of elements, by their bytes. Others are used where a launch has them.
_ELEMENTS: Final = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "uint4"}
#: A store of three elements may leave the bytes of the fourth.
_BUILT_IN: Final = re.compile(r"(u?(char|short|int|long)|float|double)(2|4|8|16)?")


def read_transfer(
    snapshot: ListSnapshot,
    number: int,
    like: RecordedLaunch,
    types: Mapping[tuple[int, int], str],
    names: MemoryNames,
) -> tuple[RecordedLaunch, Any]:
    """Return a copy or a fill of a buffer as a launch over the items of another one, and a list of
    its arguments.

    Args:
        snapshot: the commands.
        types: of the elements of memory objects, by the root and the bytes of an element.
        names: takes its memory.

    Raises:
        NotFused: it is something else.
    """
    commands, name = snapshot.commands, snapshot.commands.name_operation(number)
    row, text = commands.array[number], _TRANSFERS.get(name)
    if text is None or number in snapshot.moving:
        raise NotFused(f"{name} is not fused")
    size, places = row.n[6], (row.n[0], row.n[3])
    width = size // like.items
    if width not in _ELEMENTS or size % like.items or any(place % width for place in places):
        raise NotFused(f"it has {size} bytes, those beside it {like.items} items")
    target, source = get_address(row.target), get_address(row.source)
    roots = (find_root(one, snapshot.roots).root for one in (source, target) if one)
    known = (types.get((root, width)) for root in roots)
    kind = next(filter(None, known), _ELEMENTS[width])
    given: list[int | bytes] = [target, places[1].to_bytes(8, "little")]
    if name == "copy":
        given = [source, places[0].to_bytes(8, "little"), *given]
    else:
        pattern = bytes(ffi.buffer(row.pattern, row.pattern_size))
        value = (pattern * width)[: max(width, len(pattern))]
        if value != value[:width] * (len(value) // width):
            raise NotFused("its pattern is larger than an item")
        given = [value[:width], *given]
    listed = ffi.gc(make_arguments(given), lib.fl_release_arguments)
    text, macros = text.replace("{0}", kind), list_macros(commands.devices[0])
    access, options = parse_kernel(text, like.kernel.options, f"{name}_items", macros)
    kernel, packed = make_kernel_read(access, options), names.rename(pack_arguments(listed))
    return make_launch(snapshot, kernel, packed, (like.items, 1, 1), is_transfer=True), listed


def list_types(
    launches: Iterable[tuple[RecordedLaunch, MemoryNames]],
) -> dict[tuple[int, int], str]:
    """Return the types of the elements that launches use: see `read_transfer`.

    An item may use several elements, whose type is not as wide as what it uses.
    """
    found: dict[tuple[int, int], str] = {}
    for launch, names in launches:
        handles = names.handles
        for one in launch.memory[0]:
            key = handles.get(one.root, one.root), one.width
            if one.stride == one.width and key not in found:
                kind = launch.find_element(one.handle) or ""
                if _BUILT_IN.fullmatch(kind) and measure_kind(kind) == one.width:
                    found[key] = kind
    return found
