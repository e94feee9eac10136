"""What a kernel's arguments are accessed at, for each item: `read_kernel`.

    >>> access = read_kernel(source, "-I include", "scale", {"__OPENCL_VERSION__": "300"})
    >>> access.arguments["x"].own
    Own(offset=4 * i + x__offset, width=4, …)

An item is an id of the launch, or a number of the loop over items (`access.loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from pycparser import c_ast

from .c_types import CType, SourceTypes
from .conditions import Condition, GroupSize, Injective, LaunchValues
from .errors import UnreadableKernel
from .items import uses_after, uses_of_ids
from .parsing import ParsedProgram, parse_program
from .polynomials import Polynomial, Symbol, number
from .walk import Access, FoundLoop, Walk, parameters

__all__ = [
    "ArgumentAccess",
    "ItemLoop",
    "KernelAccess",
    "KernelParameter",
    "LaunchValues",
    "Own",
    "Reason",
    "UnreadableKernel",
    "read_kernel",
]


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel."""

    name: str
    index: int
    type: CType
    declaration: c_ast.Decl


@dataclass(frozen=True)
class Own:
    """Each item has a piece of memory of its own, and accesses nothing else of the argument.

    Attributes:
        offset: The first byte of the piece, from where the argument points to.
        width: Bytes of the piece.
        needs: What must be true of a launch. Without it, nothing is known.
    """

    offset: Polynomial
    width: int
    needs: frozenset[Condition]

    def holds(self, values: LaunchValues) -> bool:
        """Say whether this is true of a launch."""
        return all(condition.holds(values) for condition in self.needs)


@dataclass(frozen=True)
class Reason:
    """Why an argument may be accessed anywhere: a sentence, and the line of the source."""

    text: str
    line: int


@dataclass(frozen=True)
class ArgumentAccess:
    """How a kernel accesses the memory of one argument.

    Attributes:
        reads, writes: What it does.
        own: Each item's piece; None if any item may access any element.
        reason: Why `own` is None.
        written_first: Whether each item writes all of its piece before it reads any of it.
    """

    parameter: KernelParameter
    reads: bool
    writes: bool
    own: Own | None
    reason: Reason | None
    written_first: bool


@dataclass(frozen=True)
class ItemLoop:
    """The loop over items, `for (i = first + get_global_id(0); i < behind; i += global size)`.

    Attributes:
        node: The loop.
        variable: The name of its counter, and `type` its type.
        first, behind: The first item, and the number behind the last one.
        carried: Variables that one turn leaves for a later one, as the sum of a reduction.
        uses_ids: Whether the body uses the ids otherwise than by the counter.
    """

    node: c_ast.For
    variable: str
    type: CType
    first: Polynomial
    behind: Polynomial
    carried: frozenset[str]
    uses_ids: bool


@dataclass(frozen=True, eq=False)
class KernelAccess:
    """What is known of a kernel.

    Attributes:
        program: The syntax tree of its program: helpers, types and pragmas.
        function: Its own.
        parameters: In their order.
        arguments: The accesses to each argument that is a pointer to global or constant memory.
        loop: The loop over items, if the kernel has one.
        uses: What else it uses: `barrier`, `local memory`, `atomics`, `printf`.
        ids: The functions of ids that it or its helpers call.
        returns: Whether it has a `return`.
    """

    name: str
    program: ParsedProgram
    function: c_ast.FuncDef
    parameters: tuple[KernelParameter, ...]
    arguments: Mapping[str, ArgumentAccess]
    loop: ItemLoop | None
    uses: frozenset[str]
    ids: frozenset[str]
    returns: bool

    @cached_property
    def all_own(self) -> bool:
        """Whether each item accesses pieces of its own only."""
        return all(one.own for one in self.arguments.values())


def read_kernel(
    source: str, options: str, kernel_name: str, device_macros: Mapping[str, str | None]
) -> KernelAccess:
    """Say what a kernel reads and writes. Answers are kept.

    Args:
        source: The program's source, in OpenCL C.
        options: Its build options.
        kernel_name: The kernel.
        device_macros: What the driver defines for its device: names and texts. None says that a
            name is not defined. A source that asks for other such names is not understood.

    Raises:
        UnreadableKernel: It is not known what the kernel does. The error says why.
    """
    found = _read(source, options, kernel_name, frozenset(device_macros.items()))
    if isinstance(found, UnreadableKernel):
        raise found
    return found


@lru_cache(maxsize=1024)
def _read(
    source: str, options: str, kernel_name: str, macros: frozenset[tuple[str, str | None]]
) -> KernelAccess | UnreadableKernel:
    try:
        program = parse_program(source, options, macros)
        if kernel_name not in program.functions:
            raise UnreadableKernel(f"the source has no kernel {kernel_name}")
        return _describe(program, program.functions[kernel_name], options)
    except UnreadableKernel as error:
        return error
    except RecursionError:
        return UnreadableKernel("it is nested too deeply")
    except Exception as error:  # a fault of this package must not stop the user's program
        return UnreadableKernel(f"reading it fails with {error!r}")


def _describe(program: ParsedProgram, function: c_ast.FuncDef, options: str) -> KernelAccess:
    old = "-cl-std=" not in options or "-cl-std=CL1" in options
    walk = Walk(program, function, old or "-cl-uniform-work-group-size" in options)
    types = SourceTypes(program)
    declared = tuple(
        KernelParameter(name, index, type_, node)
        for index, (name, type_, node) in enumerate(parameters(function, types))
    )
    arguments = {
        one.name: _argument(one, walk)
        for one in declared
        if one.type.kind == "pointer" and one.type.space in ("global", "constant")
    }
    ids = uses_of_ids(program, function)
    return KernelAccess(
        function.decl.name,
        program,
        function,
        declared,
        arguments,
        walk.loop and _loop(walk.loop, program, function),
        frozenset(walk.uses),
        ids,
        walk.returns,
    )


def _loop(found: FoundLoop, program: ParsedProgram, function: c_ast.FuncDef) -> ItemLoop:
    carried, uses_ids = uses_after(program, function, found.node, found.variable)
    return ItemLoop(
        found.node, found.variable, found.type, found.first, found.behind, carried, uses_ids
    )


def _argument(parameter: KernelParameter, walk: Walk) -> ArgumentAccess:
    accesses = [one for one in walk.accesses if one.argument == parameter.name]
    reads = any(not one.writes for one in accesses)
    writes = any(one.writes for one in accesses)
    if parameter.type.space == "constant":
        reason = Reason("it is constant memory", _line(parameter.declaration))
        return ArgumentAccess(parameter, reads, writes, None, reason, False)
    own = _find_own(accesses, walk) if accesses else Own(Polynomial(), 0, frozenset())
    reason = None
    if isinstance(own, Reason):
        own, reason = None, own
    first = accesses[0] if accesses else None
    whole = first is not None and own is not None and first.width == own.width
    written_first = first is not None and whole and first.writes and first.certain
    return ArgumentAccess(parameter, reads, writes, own, reason, written_first)


def _line(node: c_ast.Node) -> int:
    return node.coord.line if node.coord else 0


def _find_own(accesses: list[Access], walk: Walk) -> Own | Reason:
    """Find the piece of an item that all accesses lie in."""
    kinds = {"item"} if walk.loop else {"id"}
    low: Polynomial | None = None
    least = most = 0
    needs: frozenset[Condition] = frozenset()
    for one in accesses:
        if one.offset is None or one.why:
            return Reason(one.why, one.line)
        offset, more = _with_group_sizes(one.offset)
        needs |= one.needs | more
        if why := _refuse(offset, kinds):
            return Reason(why, one.line)
        if low is None:
            low, least, most = offset, 0, one.width
        distance = (offset - low).constant
        if distance is None:
            return Reason("it is accessed at several places that depend on the item", one.line)
        least, most = min(least, distance), max(most, distance + one.width)
    assert low is not None
    own = Own(low + number(least), most - least, needs)
    injective = Injective(own.offset, own.width)
    for symbol in own.offset.symbols:
        stride = own.offset.coefficient(symbol)
        constant = None if stride is None else stride.constant
        if symbol.varies and constant is not None and abs(constant) < own.width:
            return Reason("an item accesses what belongs to its neighbours", accesses[0].line)
    return Own(own.offset, own.width, needs | {injective})


def _refuse(offset: Polynomial, kinds: set[str]) -> str:
    varying = [symbol for symbol in offset.symbols if symbol.varies]
    if not varying:
        return "all items access the same element"
    for symbol in sorted(varying, key=str):
        if symbol.kind not in kinds:
            return _WHY.get(symbol.kind, f"its place depends on {symbol}")
        if offset.coefficient(symbol) is None:
            return f"its place is not a linear form of {symbol}"
    return ""


_WHY = {
    "id": "it is accessed outside of the loop over items",
    "counter": "an item accesses several elements in a loop",
    "quotient": "its place depends on a division",
    "local": "its place depends on the place in the group",
    "group": "its place depends on the group",
}


def _with_group_sizes(offset: Polynomial) -> tuple[Polynomial, frozenset[Condition]]:
    """Read `16 * group + local` as the id, if groups have 16 items."""
    needs: set[Condition] = set()
    for symbol in offset.symbols:
        group = Symbol("group", symbol.name)
        if symbol.kind != "local" or group not in offset.symbols:
            continue
        one, other = offset.coefficient(symbol), offset.coefficient(group)
        step = one.constant if one else None
        jump = other.constant if other else None
        if step and jump and not jump % step and jump // step > 0:
            needs.add(GroupSize(int(symbol.name), jump // step))
            id_ = Polynomial((((Symbol("id", symbol.name),), step),))
            gone = Polynomial((((symbol,), step),)) + Polynomial((((group,), jump),))
            offset = offset - gone + id_
    return offset, frozenset(needs)
