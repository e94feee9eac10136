"""The source of a fused kernel: each old kernel becomes a function of one item."""

from __future__ import annotations

import copy
import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from pycparser import c_ast

from ...kernel_source.conditions import Three
from ...kernel_source.parsing import write_opencl
from ...kernel_source.syntax import walk_tree
from .kernels import ITEM_FUNCTIONS, KernelRead
from .launches import RecordedLaunch
from .parameters import FusedParameters
from .places import FIRST, IDS, ITEM

if TYPE_CHECKING:
    from .runs import Run

#: Types of factors, and how their bytes are unpacked.
_FORMATS: Final = {"float": "=f", "double": "=d"}
_INVERSES: Final = {"+": "-", "-": "+"}
#: As many items have numbers that an int can be, also with those of the last work-groups.
_MOST_INTS: Final = (1 << 31) - (1 << 16)


def write_functions(run: Run, parameters: FusedParameters) -> tuple[list[str], list[str]]:
    """Return what launches need and functions that do what they do; and the calls, in order."""
    functions, names = list[str](), dict[Any, str]()
    calls, met = list[str](), set[int]()
    for place, launch in enumerate(run.launches):
        kernel = launch.kernel
        own = tuple(
            one.name
            for one, value in zip(kernel.parameters, launch.arguments, strict=True)
            if value.key in parameters.variables
        )
        factors = () if run.is_isolated else find_factors(launch)  # a GPU waits for memory anyway
        key = kernel, own, launch.range, factors
        name = names.get(key)
        if name is None:
            name = names[key] = f"fl_kernel_{len(names)}"
            shape = launch.range, launch.grid
            functions.append(_write_function(kernel, name, own, *shape, factors))
        calls += parameters.write_call(name, place, launch, met)
        met |= {one.handle for one in launch.memory[0]}
    texts = [*run.declared.values(), *functions]
    return texts, parameters.write_body(calls)


def write_pragmas(launches: Sequence[RecordedLaunch]) -> list[str]:
    """Return the pragmas of the programs of launches."""
    found = [pragma for one in launches for pragma in one.kernel.access.program.pragmas]
    return [f"#pragma {pragma}" for pragma in dict.fromkeys(found)]


def write_source(run: Run, parameters: FusedParameters) -> str:
    """Return the source of a kernel that does what launches do, in order."""
    texts, body = write_functions(run, parameters)
    items, lanes = run.launches[0].items, parameters.lanes
    item, first = (ITEM, "") if lanes == 1 else (FIRST, f" * {lanes}")
    x, y, _ = run.grid or (items, 1, 1)
    # Intel's compiler sees only so that `int i = get_global_id(0)` is the next one's i less 1
    kind = "(int)" if not run.is_isolated and items < _MOST_INTS else ""
    place = [f"  const size_t {item} = {kind}get_global_id(0){first};"]
    if run.grid is not None:
        place = [f"  const size_t {one} = {kind}get_global_id({n});" for n, one in enumerate(IDS)]
        ids = [f"{kind}{one}" for one in IDS]
        place.append(f"  const size_t {ITEM} = ({ids[2]} * {y} + {ids[1]}) * {x} + {ids[0]};")
    test = f"  if ({IDS[0] if run.grid else item} < {x}UL)\n" if x % (run.group * lanes) else ""
    head = f"kernel void fairlead_fused({', '.join(one.text for one in parameters.rows)}) {{"
    head = "\n".join([*write_pragmas(run.launches), *texts, head])
    if run.reduction is not None:
        return run.reduction.write_kernel(
            head, ITEM, body, parameters.name(run.launches[-1].result)
        )
    lines = [
        head,
        *place,
        f"{test}  {{",
        *body,
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


@lru_cache(1024)
def _write_function(
    kernel: KernelRead,
    name: str,
    own: tuple[str, ...],
    range_: Three,
    grid: Three | None,
    factors: Sequence[tuple[str, int]],
) -> str:
    """Return a kernel as a function of one item.

    Args:
        own: the arguments instead of whose elements it takes pointers to variables.
        range_, grid, factors: of its launch.
    """
    function = copy.deepcopy(kernel.access.function)
    kinds = {one.name: one.type.name for one in kernel.parameters}
    _drop_factors(function.body, {name: (kinds[name], number) for name, number in factors})
    function.decl.funcspec = []
    function.decl.name = function.decl.type.type.declname = name
    for one in own:
        variable, kind = kernel.elements[one]
        _exchange(function.body, partial(_find_variable, variable, f"fl_own_{one}"))
        function.decl.type.args.params.append(_declare(f"fl_own_{one}", kind, is_pointer=True))
    for one in IDS if grid else (ITEM,):
        function.decl.type.args.params.append(_declare(one, "size_t"))
    block = function.body.block_items
    if kernel.loop is None:
        _exchange(function.body, partial(_find_item, range_, grid is not None))
    else:
        place = kernel.access.function.body.block_items.index(kernel.loop.node)
        block[place] = _run_once(block[place], kernel.loop.variable)
    return write_opencl(function)


def find_factors(launch: RecordedLaunch) -> tuple[tuple[str, int], ...]:
    """Return the arguments of a launch that stay 1 or -1, by name."""
    found = list[tuple[str, int]]()
    for one, given in zip(launch.kernel.parameters, launch.arguments, strict=True):
        value, form = given.turns[0], _FORMATS.get(one.type.name)
        if form and isinstance(value, bytes) and given.key is not None and not given.address:
            (number,) = struct.unpack(form, value)
            if number in (1, -1):
                found.append((one.name, int(number)))
    return tuple(found)


def _drop_factors(body: c_ast.Node, factors: Mapping[str, tuple[str, int]]) -> None:
    """Leave factors of 1 and -1 out of sums of elements: PyOpenCL's `x - y` is
    `a * ((float) x[i]) + b * ((float) y[i])`.

    Such a product is exact, so the sum rounds as before, also where it was contracted. In a sum
    with another product a compiler would contract that one instead.
    """
    nodes = list(walk_tree(body))
    products = {
        node: factors[node.left.name]
        for node in nodes
        if isinstance(node, c_ast.BinaryOp)
        and (node.op, type(node.left), type(node.right)) == ("*", c_ast.ID, c_ast.Cast)
        and node.left.name in factors
        and write_opencl(node.right.to_type) == factors[node.left.name][0]
        and isinstance(node.right.expr, c_ast.ArrayRef)
    }
    # what is used otherwise may be another variable of the name, or get another value
    uses = Counter(node.name for node in nodes if isinstance(node, (c_ast.ID, c_ast.Decl)))
    uses.subtract(node.left.name for node in products)
    for node in nodes:
        if not isinstance(node, c_ast.BinaryOp) or node.op not in _INVERSES:
            continue
        left, right = products.get(node.left, ("", 0))[1], products.get(node.right, ("", 0))[1]
        if left == 1 and right and not uses[node.left.left.name] + uses[node.right.left.name]:
            node.op = node.op if right == 1 else _INVERSES[node.op]
            node.left, node.right = node.left.right, node.right.right


def _run_once(loop: Any, variable: str) -> Any:
    """Return the body of a loop over items for the item of this call.

    `continue` in it ends the item, as it did in the loop.
    """
    item = c_ast.Assignment("=", c_ast.ID(variable), c_ast.ID(ITEM))
    first: list[Any] = [item]
    if isinstance(loop.init, c_ast.DeclList):
        first = [*loop.init.decls, item]
    return c_ast.Compound([*first, c_ast.DoWhile(c_ast.Constant("int", "0"), loop.stmt)])


def _declare(name: str, kind: str, *, is_pointer: bool = False) -> Any:
    """Return the declaration of a parameter, or of a pointer to a variable."""
    type_: Any = c_ast.TypeDecl(name, [], None, c_ast.IdentifierType([kind]))
    if is_pointer:
        type_ = c_ast.PtrDecl([], type_)
    return c_ast.Decl(*(name, [], [], [], []), type_, None, None)


def _exchange(node: Any, find: Callable[[Any], Any]) -> None:
    """Exchange the parts of a node for which another one is found."""
    for name, child in node.children():
        new = find(child)
        if new is None:
            _exchange(child, find)
            continue
        field, _, place = name.partition("[")  # children() names them so: "args" or "exprs[1]"
        if place:
            getattr(node, field)[int(place[:-1])] = new
        else:
            setattr(node, field, new)


def _find_variable(array: str, pointer: str, node: Any) -> Any:
    """Return the variable that stands for an element of an array, None for other nodes."""
    is_element = isinstance(node, c_ast.ArrayRef) and getattr(node.name, "name", "") == array
    return c_ast.UnaryOp("*", c_ast.ID(pointer)) if is_element else None


def _find_item(range_: Three, is_grid: bool, node: Any) -> Any:
    """Return what stands for a question for ids or for the range, None for other nodes."""
    name = getattr(node.name, "name", "") if isinstance(node, c_ast.FuncCall) else ""
    if name not in ITEM_FUNCTIONS:
        return None
    dimension = int(node.args.exprs[0].value)
    size = range_[dimension]
    text = ITEM if size == math.prod(range_) else "0"
    text = IDS[dimension] if is_grid else text
    text = f"{size}UL" if name == "get_global_size" else text
    return c_ast.Cast(_declare("", "size_t").type, c_ast.ID(text))
