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
from typing import Final

from pycparser import c_ast

from .conditions import Injective, LaunchValues, Needs
from .errors import UnreadableKernel
from .evaluation import Access, KernelParameter, SignedResult
from .parsing import ParsedProgram, parse_program
from .polynomials import Polynomial, number
from .syntax import line_of, uses_of_ids
from .walk import ItemLoop, Walk


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
    needs: Needs

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


@dataclass(frozen=True, eq=False)
class KernelAccess:
    """What is known of a kernel.

    Attributes:
        program: The syntax tree of its program: helpers, types and pragmas.
        function: Its own.
        parameters: In their order.
        accesses: To the memory of arguments, in the order in which an item does them.
        arguments: What they mean for each pointer to global or constant memory.
        loop: The loop over items, if the kernel has one.
        uses: What else it uses: `barrier`, `local memory`, `atomics`, `printf`.
        ids: The functions of ids that it or its helpers call.
        returns: Whether it has a `return`.
        signed: What an item calculates with signed integers.
    """

    name: str
    program: ParsedProgram
    function: c_ast.FuncDef
    parameters: tuple[KernelParameter, ...]
    accesses: tuple[Access, ...]
    arguments: Mapping[str, ArgumentAccess]
    loop: ItemLoop | None
    uses: frozenset[str]
    ids: frozenset[str]
    returns: bool
    signed: tuple[SignedResult, ...]

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
        device_macros: What the driver defines for its device: names and texts. None says that a
            name is not defined. What is assumed of names is in `KernelAccess.program.decisions`.

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
    pointers = [one for one in walk.parameters if one.type.kind == "pointer"]
    return KernelAccess(
        function.decl.name,
        program,
        function,
        tuple(walk.parameters),
        tuple(walk.accesses),
        {one.name: _argument(one, walk) for one in pointers if one.type.space != "local"},
        walk.loop,
        frozenset(walk.uses),
        uses_of_ids(program.functions, function),
        bool(walk.returned),
        tuple(dict.fromkeys(walk.signed)),
    )


def _argument(parameter: KernelParameter, walk: Walk) -> ArgumentAccess:
    accesses = [one for one in walk.accesses if one.argument == parameter.name]
    reads = any(not one.writes for one in accesses)
    writes = any(one.writes for one in accesses)
    if parameter.type.space == "constant":
        own = Reason("it is constant memory", line_of(parameter.declaration))
    elif accesses:
        own = _find_own(accesses, "item" if walk.loop else "id")
    else:
        own = Own(Polynomial(), 0, frozenset())
    if isinstance(own, Reason):
        return ArgumentAccess(parameter, reads, writes, None, own, False)
    first = accesses[0] if accesses else None
    is_first = first is not None and first.writes and first.certain and first.width == own.width
    return ArgumentAccess(parameter, reads, writes, own, None, is_first)


def _find_own(accesses: list[Access], kind: str) -> Own | Reason:
    """Find the piece of an item that all accesses lie in. Items are symbols of a kind."""
    low: Polynomial | None = None
    least = most = 0
    needs: Needs = frozenset()
    for one in accesses:
        if one.offset is None:
            return Reason("it is accessed at a place that is not known", one.line)
        if not one.width:
            return Reason("the size of an element is not known", one.line)
        offset = one.offset
        needs |= one.needs
        if why := _refuse(offset, kind):
            return Reason(why, one.line)
        if low is None:
            low, least, most = offset, 0, one.width
        distance = (offset - low).constant
        if distance is None:
            return Reason("it is accessed at several places that depend on the item", one.line)
        least, most = min(least, distance), max(most, distance + one.width)
    assert low is not None
    start, width = low + number(least), most - least
    for symbol in start.symbols:
        stride = start.coefficient(symbol)
        constant = None if stride is None else stride.constant
        if symbol.varies and constant is not None and abs(constant) < width:
            return Reason("an item accesses what belongs to its neighbours", accesses[0].line)
    return Own(start, width, needs | {Injective(start, width)})


_WHY: Final = {
    "id": "it is accessed outside of the loop over items",
    "quotient": "its place depends on a division",
    "bits": "its place depends on bits of a number",
    "local": "its place depends on the place in the group",
    "group": "its place depends on the group",
    "turn": "its place depends on the turn of a loop",
}


def _refuse(offset: Polynomial, kind: str) -> str:
    varying = [symbol for symbol in offset.symbols if symbol.varies]
    if not varying:
        return "all items access the same element"
    for symbol in sorted(varying, key=str):
        if symbol.kind != kind:
            return _WHY[symbol.kind]
        if offset.coefficient(symbol) is None:
            return f"its place is not a linear form of {symbol}"
    return ""
