"""The source of a fused kernel: each old kernel becomes a function of one item."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pycparser import c_ast

from ...kernel_source.parsing import write_opencl
from .kernels import KernelRead
from .launches import RecordedLaunch
from .parameters import FusedParameters
from .places import FIRST, ITEM

if TYPE_CHECKING:
    from .runs import Run


def write_functions(run: Run, parameters: FusedParameters) -> tuple[list[str], list[str]]:
    """Return what launches need and functions that do what they do; and the calls, in order."""
    functions, names = list[str](), dict[tuple[int, tuple[str, ...]], str]()
    calls, met = list[str](), set[int]()
    for place, launch in enumerate(run.launches):
        kernel = launch.kernel
        own = tuple(
            one.name
            for one, value in zip(kernel.parameters, launch.arguments, strict=True)
            if value.key in parameters.variables
        )
        name = names.get((id(kernel), own))
        if name is None:
            name = names[id(kernel), own] = f"fl_kernel_{len(names)}"
            functions.append(_write_function(kernel, name, own))
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
    test = f"  if ({item} < {items}UL)\n" if items % (run.group * lanes) else ""
    head = f"kernel void fairlead_fused({', '.join(one.text for one in parameters.rows)}) {{"
    head = "\n".join([*write_pragmas(run.launches), *texts, head])
    if run.reduction is not None:
        return run.reduction.write_kernel(
            head, ITEM, body, parameters.name(run.launches[-1].result)
        )
    lines = [
        head,
        f"  const size_t {item} = get_global_id(0){first};",
        f"{test}  {{",
        *body,
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


@lru_cache(1024)
def _write_function(kernel: KernelRead, name: str, own: tuple[str, ...]) -> str:
    """Return a kernel as a function of one item.

    Args:
        own: the arguments instead of whose elements it takes pointers to variables.
    """
    function = copy.deepcopy(kernel.access.function)
    function.decl.funcspec = []
    function.decl.name = function.decl.type.type.declname = name
    for one in own:
        variable, kind = kernel.elements[one]
        _TakeVariable(variable, f"fl_own_{one}").visit(function.body)
        function.decl.type.args.params.append(_declare(f"fl_own_{one}", kind, is_pointer=True))
    function.decl.type.args.params.append(_declare(ITEM, "size_t"))
    block = function.body.block_items
    if kernel.loop is None:
        _TakeItem().visit(function.body)
    else:
        place = kernel.access.function.body.block_items.index(kernel.loop.node)
        block[place] = _run_once(block[place], kernel.loop.variable)
    return write_opencl(function)


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


class _TakeVariable(c_ast.NodeVisitor):
    """Lets a function use a variable for the element of an array."""

    def __init__(self, array: str, pointer: str) -> None:
        self._array, self._pointer = array, pointer

    def generic_visit(self, node: Any) -> None:
        for name, child in node.children():
            is_element = isinstance(child, c_ast.ArrayRef) and isinstance(child.name, c_ast.ID)
            if is_element and child.name.name == self._array:
                # children() names them so: "args" or "exprs[1]"
                field, _, place = name.partition("[")
                new = c_ast.UnaryOp("*", c_ast.ID(self._pointer))
                if place:
                    getattr(node, field)[int(place[:-1])] = new
                else:
                    setattr(node, field, new)
            else:
                self.visit(child)


class _TakeItem(c_ast.NodeVisitor):
    """Lets a function take the number of its item instead of asking for its id."""

    def visit_FuncCall(self, node: Any) -> None:
        if getattr(node.name, "name", "") == "get_global_id":
            node.name, node.args = c_ast.ID("(size_t)"), c_ast.ExprList([c_ast.ID(ITEM)])
        else:
            self.generic_visit(node)
