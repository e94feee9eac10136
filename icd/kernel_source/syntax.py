"""Questions about parts of a syntax tree, which need no values: names, assignments, jumps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pycparser import c_ast

#: Functions whose answers depend on the range and its division into groups.
_IDS: Final = re.compile(r"get_\w+|\w*(work|sub)_group\w*")
_LOOPS: Final = (c_ast.For, c_ast.While, c_ast.DoWhile)


def line_of(node: c_ast.Node) -> int:
    """Return the line of a node; 0 if it has none."""
    return node.coord.line if node.coord else 0


def children(node: c_ast.Node) -> list[c_ast.Node]:
    """Return the parts of a node."""
    parts: list[tuple[str, c_ast.Node]] = list(node.children() or ())  # pyright: ignore
    return [child for _, child in parts]


def walk_tree(node: c_ast.Node | None) -> Iterator[c_ast.Node]:
    """Yield a node and all below it."""
    if node is not None:
        yield node
        for child in children(node):
            yield from walk_tree(child)


def list_names(node: c_ast.Node | None) -> Iterator[str]:
    """Yield the names in a part of a kernel."""
    return (one.name for one in walk_tree(node) if isinstance(one, c_ast.ID))


def assigned(node: c_ast.Node | None, *, elements: bool = False) -> frozenset[str]:
    """Return the names of the variables that a part of a kernel may change.

    With `elements`, also those whose elements it changes: of arrays, or behind pointers.
    """
    through = (c_ast.StructRef, c_ast.Cast, *([c_ast.ArrayRef] if elements else []))
    names: set[str] = set()
    for one in walk_tree(node):
        target = None
        if isinstance(one, c_ast.Assignment):
            target = one.lvalue
        elif isinstance(one, c_ast.UnaryOp) and one.op.strip("p") in ("++", "--", "&"):
            target = one.expr
        while isinstance(target, through):
            target = target.expr if isinstance(target, c_ast.Cast) else target.name
        if isinstance(target, c_ast.ID):
            names.add(target.name)
    return frozenset(names)


def addressed(node: c_ast.Node) -> frozenset[str]:
    """Return the names of the variables whose address is taken."""
    names: set[str] = set()
    for one in walk_tree(node):
        if isinstance(one, c_ast.UnaryOp) and one.op == "&":
            target = one.expr
            while isinstance(target, c_ast.StructRef) and target.type == ".":
                target = target.name
            if isinstance(target, c_ast.ID):
                names.add(target.name)
    return frozenset(names)


def declared(node: c_ast.Node | None) -> dict[str, c_ast.Decl]:
    """Return the declarations in a part of a kernel, by their names."""
    found = (one for one in walk_tree(node) if isinstance(one, c_ast.Decl))
    return {one.name: one for one in found if one.name}


def ends_early(body: c_ast.Node, *, inside: bool = False) -> bool:
    """Whether a loop's body may end the loop: by `return`, or a `break` that is not `inside`
    another loop or a switch."""
    if isinstance(body, c_ast.Return) or (isinstance(body, c_ast.Break) and not inside):
        return True
    inside = inside or isinstance(body, (*_LOOPS, c_ast.Switch))
    return any(ends_early(child, inside=inside) for child in children(body))


def uses_of_ids(functions: Mapping[str, c_ast.FuncDef], node: c_ast.Node) -> frozenset[str]:
    """Return the functions of ids that a part of a kernel calls, itself or in helpers.

    Args:
        functions: The program's functions.
    """
    found, seen, todo = set[str](), set[str](), [node]
    while todo:
        for name in list_names(todo.pop()):
            if name not in functions:
                found |= {name} if _IDS.fullmatch(name) else set()
            elif name not in seen:
                seen.add(name)
                todo.append(functions[name])
    return frozenset(found)


class Needed(NamedTuple):
    """A declaration that a kernel needs, and the lines that may be parts of it."""

    node: c_ast.Node
    first: int
    last: int


def find_needed(declarations: Sequence[c_ast.Node], function: c_ast.FuncDef) -> list[Needed]:
    """Return what a kernel needs of its program: itself, helpers, types and tables, in order."""
    uses = [_names_used(node) for node in declarations]
    gives = [_names_given(node) for node in declarations]
    wanted = {function.decl.name}
    while True:
        needed = [number for number, names in enumerate(gives) if names & wanted]
        more = wanted.union(*(uses[number] for number in needed))
        if more == wanted:
            break
        wanted = more
    lines = [[line_of(one) for one in walk_tree(node) if one.coord] or [0] for node in declarations]
    found: list[Needed] = []
    for number in needed:
        first = min(lines[number])
        if number:  # words before its first node may be on lines of their own
            first = min(first, max(lines[number - 1]) + 1)
        last = min(lines[number + 1]) if number + 1 < len(lines) else _NO_LINE
        found.append(Needed(declarations[number], first, max(last, *lines[number])))
    return found


_NO_LINE: Final = 1 << 60
_TAGGED: Final = (c_ast.Struct, c_ast.Union, c_ast.Enum)


def _names_used(node: c_ast.Node) -> set[str]:
    found = {one.name for one in walk_tree(node) if isinstance(one, (c_ast.ID, *_TAGGED))} - {None}
    words = (one.names for one in walk_tree(node) if isinstance(one, c_ast.IdentifierType))
    return found.union(*words)


def _names_given(node: c_ast.Node) -> set[str]:
    if isinstance(node, c_ast.FuncDef):
        return {node.decl.name}
    found = {one.name for one in walk_tree(node) if isinstance(one, (c_ast.Enumerator, *_TAGGED))}
    return (found | {node.name} if isinstance(node, c_ast.Decl | c_ast.Typedef) else found) - {None}


def uses_ids(
    functions: Mapping[str, c_ast.FuncDef], kernel: c_ast.FuncDef, loop: c_ast.For, counter: str
) -> bool:
    """Whether the body of a loop uses ids otherwise than by the loop's counter.

    It looks at names only. A name stands for each variable of that name. So "yes" may be wrong
    where names are shadowed, and "no" is not.
    """
    depends = set[str]()
    while True:
        found = set[str]()
        for part in _others(kernel, loop):
            if depends & set(list_names(part)) or uses_of_ids(functions, part):
                found |= assigned(part, elements=True) | declared(part).keys()
        if found <= depends:
            break
        depends |= found
    named = set(list_names(loop.stmt)) - {counter}
    return bool(depends & named or uses_of_ids(functions, loop.stmt))


def _others(kernel: c_ast.FuncDef, loop: c_ast.For) -> list[c_ast.Node]:
    """Return the parts of a kernel that each work-item does once."""
    many = isinstance(loop.init, (c_ast.DeclList, c_ast.ExprList))
    first = children(loop.init) if many else [loop.init] if loop.init else []
    return [*(node for node in kernel.body.block_items or [] if node is not loop), *first]
