"""Reductions of PyOpenCL as the end of a run: each item adds its value to a sum.

A work-group of such a kernel has a lane for each work-item. A lane adds one element of each piece
of memory to its sum, and a tree puts the sums together. A CPU runs lane after lane, so it walks
through memory in strides. The new kernel has one work-item for a group, which runs through one
piece after the other. That does the same, bit for bit, because:

- the kernel is PyOpenCL's, statement by statement. Only expressions are its own;
- each lane adds the same values in the same order, and the tree has the same pairs;
- an element is an item: no other lane or group has it. So launches over the same items can be
  calculated where it is read, as in fusion.py. Their results are written if others read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pycparser import c_ast

from ...calls import get_address
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import KernelAccess
from ...kernel_source.syntax import assigned, uses_of_ids
from .arguments import NotFused, read_arguments
from .kernels import (
    KernelRead,
    declare_needed,
    list_macros,
    make_kernel_read,
    parse_kernel,
    read_access,
)
from .uses import ListSnapshot, PackedArguments

#: The body of PyOpenCL's template (pyopencl/reduction.py) as `write_opencl` writes its statements.
#: What stands between @ differs.
_TEMPLATE: Final = """@pointers@
local pcl_out_type pcl_ldata[@lanes@]
unsigned int pcl_lid = get_local_id(0)
const long pcl_base_idx = ((get_group_id(0) * @lanes@) * pcl_seq_count) + pcl_lid
long i = pcl_start + (pcl_base_idx * pcl_step)
pcl_out_type pcl_acc = @neutral@
for (unsigned pcl_s = 0; pcl_s < pcl_seq_count; ++pcl_s)
{
  if (i >= pcl_stop)
    break;
  pcl_acc = @sum@;
  i += @lanes@ * pcl_step;
}

pcl_ldata[pcl_lid] = pcl_acc
@tree@if (pcl_lid == 0)
  pcl_out[get_group_id(0)] = pcl_ldata[0];
"""
_HALVING: Final = """barrier(CLK_LOCAL_MEM_FENCE)
if (pcl_lid < @half@)
{
  pcl_ldata[pcl_lid] = @sum@;
}

"""
_HOLES: Final = {
    "pointers": r"global pcl_out_type \*pcl_out = .*(?:\nglobal .*)*",
    **dict.fromkeys(("lanes", "half"), r"\d+"),
    "tree": r"(?:barrier(?s:.)*\n)?",
}
#: An item of it: it has an element of `pcl_out` for its sum.
_ITEM: Final = """{declared}
{head}
{{
    {pointers};
    long fl_at = get_global_id(0), i = {start}L + fl_at * {step}L;
    pcl_out[fl_at] = {sum};
}}
"""
#: The argument that gets the sums, and those that the items depend on.
_RESULT: Final = "pcl_out__base"
NUMBERS: Final = ("pcl_start", "pcl_step", "pcl_stop", "pcl_seq_count", "pcl_out__offset")
#: Variables of the new kernel: the sums of a group's lanes, and the number of a lane.
_SUMS: Final = "fl_sums"
_LANE: Final = "fl_lane"
#: What an item adds to.
SUM: Final = f"{_SUMS}[{_LANE}]"


class _Form(NamedTuple):
    """The expressions of a reduction.

    Attributes:
        lanes: of a work-group.
        neutral: what a sum begins with.
        tree: sums of two lanes, and how many lanes have one.
    """

    pointers: str
    lanes: int
    neutral: str
    sum: str
    tree: tuple[tuple[int, str], ...]


class Reduction(NamedTuple):
    """What a reduction does with the values of its items.

    Attributes:
        pieces: how many elements a lane has at most.
        groups: how many work-groups there are.
        result: the argument that gets a sum from each group.
        offset: bytes from where that points to, to the first sum.
        kernel: what one item does.
        items: how many there are.
    """

    form: _Form
    pieces: int
    groups: int
    result: int
    offset: int
    kernel: KernelRead
    items: int

    def write_kernel(self, head: str, item: str, body: Sequence[str], to: str) -> str:
        """Return the text of the new kernel.

        Args:
            head: how it begins.
            item: the name of an item's number.
            body: the statements of an item.
            to: the pointer that gets the sums.
        """
        lanes, pieces = self.form.lanes, self.pieces
        loop = f"for (size_t {_LANE} = 0; {_LANE} <"
        lines = [
            head,
            f"  pcl_out_type {_SUMS}[{lanes}];",
            f"  {loop} {lanes}; {_LANE}++)",
            f"    {SUM} = {self.form.neutral};",
            f"  for (uint fl_piece = 0; fl_piece < {pieces}; fl_piece++) {{",
            f"    const size_t fl_at = (get_global_id(0) * {pieces} + fl_piece) * {lanes};",
            f"    const size_t fl_end = clamp({self.items}UL, fl_at, fl_at + {lanes}UL) - fl_at;",
            f"    {loop} fl_end; {_LANE}++) {{",
            f"      const size_t {item} = fl_at + {_LANE};",
            *(f"  {line}" for line in body),
            "    }",
            "  }",
        ]
        for half, text in self.form.tree:
            lines += [f"  {loop} {half}; {_LANE}++)", f"    {SUM} = {text};"]
        result = f"((global pcl_out_type *)({to} + {self.offset}L))[get_global_id(0)]"
        return "\n".join([*lines, f"  {result} = {_SUMS}[0];", "}"]) + "\n"


def read_reduction(
    snapshot: ListSnapshot, command: Any, packed: PackedArguments
) -> Reduction | None:
    """Return what a launch does that is one of PyOpenCL's reductions; None if it is none.

    Args:
        command: an `fl_command *`.
        packed: the arguments, with numbers for memory (`MemoryNames`).

    Raises:
        NotFused: It cannot be a part of another kernel.
    """
    if command.work_dim != 1 or not command.has_local or (command.has_offset and command.n[0]):
        return None
    access, options = read_access(get_address(command.kernel), snapshot)
    form, lanes, values = find_form(access), command.n[6], dict[str, int]()
    if form is None or lanes != form.lanes:
        return None
    read = read_arguments(snapshot, packed)
    for one in access.parameters:
        turns, _ = read[one.index] or ((0,), 0)
        if one.type.kind == "integer" and isinstance(turns[0], bytes) and len({*turns}) == 1:
            values[one.name] = int.from_bytes(turns[0], "little", signed=one.type.signed)
    if any(values.get(name, -1) < 0 for name in NUMBERS) or not values["pcl_step"]:
        raise NotFused("its range is not known, or goes backwards")
    start, step, stop, pieces, offset = (values[name] for name in NUMBERS)
    items, groups = -(-(stop - start) // step), command.n[3] // lanes
    if items > groups * pieces * lanes:
        raise NotFused("its groups leave elements out")
    macros = list_macros(snapshot.commands.devices[0])
    try:
        kernel = _make_item(access, form, start, step, options, macros)
    except UnreadableKernel as error:
        raise NotFused(f"its kernel is not understood: {error}") from None
    out = next(one.index for one in access.parameters if one.name == _RESULT)
    return Reduction(form, pieces, groups, out, offset, kernel, items)


@lru_cache(256)
def find_form(access: KernelAccess) -> _Form | None:
    """Return the expressions of a kernel that is one of PyOpenCL's reductions, else None."""
    nodes = access.function.body.block_items or []
    if "local memory" not in access.uses:
        return None
    found = _compile(_TEMPLATE).fullmatch("\n".join(write_opencl(node) for node in nodes))
    halving = _compile(_HALVING)
    if found is None or halving.sub("", found["tree"]):
        return None
    tree = list[tuple[int, str]]()
    for one in halving.finditer(found["tree"]):
        half, text = int(one["half"]), one["sum"].replace("pcl_ldata[pcl_lid]", SUM)
        text = text.replace(f"pcl_ldata[pcl_lid + {half}]", f"{_SUMS}[{_LANE} + {half}]")
        tree.append((half, text))
    own = {"i", "pcl_acc", *(one.name for one in access.parameters)}
    own.update(re.findall(r"\*(\w+) =", found["pointers"]))
    functions, folded = access.program.functions, [found["neutral"], *dict(tree).values()]
    words, more = (set(re.findall(r"\w+", text)) for text in (" ".join(folded), found["sum"]))
    loop = next(one for one in nodes if isinstance(one, c_ast.For))
    if (
        words & own
        or any(word.startswith(("pcl_", "get_")) for word in (words | more) - {"pcl_acc"})
        or any(uses_of_ids(functions, functions[word]) for word in words & functions.keys())
        or assigned(loop.stmt.block_items[1].rvalue)
    ):
        return None
    lanes, what = int(found["lanes"]), (found["neutral"], found["sum"], tuple(tree))
    return _Form(found["pointers"], lanes, *what)


@lru_cache
def _compile(template: str) -> re.Pattern[str]:
    seen = set[str]()

    def write(hole: re.Match[str]) -> str:
        name = hole[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{_HOLES.get(name, '.+')})"

    return re.compile(re.sub(r"@(\w+)@", write, re.escape(template)))


@lru_cache(256)
def _make_item(
    access: KernelAccess,
    form: _Form,
    start: int,
    step: int,
    options: str,
    macros: frozenset[tuple[str, str | None]],
) -> KernelRead:
    """Return a kernel whose body is what one item of the launch computes."""
    needed = declare_needed(access)
    pragmas = [f"#pragma {one}" for one in access.program.pragmas]
    text = _ITEM.format(
        declared="\n".join([*pragmas, *needed.values()]),
        head=write_opencl(access.function.decl),
        pointers=form.pointers.replace("\n", ";\n"),
        start=start,
        step=step,
        sum=re.sub(r"\bpcl_acc\b", "pcl_out[fl_at]", form.sum),
    )
    item, options = parse_kernel(text, options, access.name, macros)
    made = make_kernel_read(item, options)
    if _RESULT not in made.elements:
        raise UnreadableKernel("a sum has no built-in type")
    return replace(made, declared=needed)
