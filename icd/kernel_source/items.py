"""Whether the turns of a loop over items are independent of each other and of the ids.

This looks at names only. A name stands for each variable of that name, so the answers are right
where names are shadowed, too: "yes, it uses that" may be wrong, and "no" is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pycparser import c_ast

from .parsing import ParsedProgram
from .walk import assigned, children

#: Functions whose answers depend on the range and its division into groups.
_IDS: Final = re.compile(r"get_\w+|\w*(work|sub)_group\w*")
_CONDITIONAL: Final = (c_ast.If, c_ast.While, c_ast.DoWhile, c_ast.For, c_ast.Switch)


def uses_of_ids(program: ParsedProgram, node: c_ast.Node) -> frozenset[str]:
    """Return the functions of ids that a part of a kernel calls, itself or in helpers."""
    found: set[str] = set()
    todo, seen = [node], set[str]()
    while todo:
        for name in list_names(todo.pop()):
            if name in program.functions:
                if name not in seen:
                    seen.add(name)
                    todo.append(program.functions[name])
            elif _IDS.fullmatch(name):
                found.add(name)
    return frozenset(found)


def uses_after(
    program: ParsedProgram, kernel: c_ast.FuncDef, loop: c_ast.For, variable: str
) -> tuple[frozenset[str], bool]:
    """Return what a loop carries from turn to turn, and whether its body uses ids.

    A variable is carried if it is declared outside of the body and changed in it. An array that
    is declared outside counts as changed where it is named.
    """
    declared = {
        node.name: node
        for part in (kernel.decl, *_others(kernel, loop))
        for node in walk_tree(part)
        if isinstance(node, c_ast.Decl) and node.name
    }
    pointers = {name for name, node in declared.items() if isinstance(node.type, c_ast.PtrDecl)}
    arrays = {name for name, node in declared.items() if isinstance(node.type, c_ast.ArrayDecl)}
    named = set(list_names(loop.stmt))
    changed = assigned(loop.stmt) | (assigned(loop.stmt, elements=True) - pointers)
    carried = frozenset((changed | (arrays & named)) & set(declared))
    depends = set[str]()
    while more := _depend(program, kernel, loop, depends) - depends:
        depends |= more
    depends.discard(variable)
    return carried, bool(depends & named or uses_of_ids(program, loop.stmt))


def _depend(
    program: ParsedProgram, kernel: c_ast.FuncDef, loop: c_ast.For, depends: set[str]
) -> set[str]:
    """Return the variables whose values come from ids, or from variables that do."""
    found: set[str] = set()
    for part in _others(kernel, loop):
        for node in walk_tree(part):
            sources: list[c_ast.Node | None] = []
            changed: frozenset[str] | set[str] = set()
            if isinstance(node, c_ast.Decl):
                sources, changed = [node.init], {node.name} if node.name else set()
            elif isinstance(node, c_ast.Assignment | c_ast.FuncCall):
                sources, changed = [node], assigned(node)
            elif isinstance(
                node, c_ast.If | c_ast.While | c_ast.DoWhile | c_ast.For | c_ast.Switch
            ):
                sources, changed = [node.cond], assigned(node)
            elif isinstance(node, c_ast.TernaryOp | c_ast.BinaryOp):
                sources, changed = [node], assigned(node)
            for source in filter(None, sources):
                if depends & set(list_names(source)) or uses_of_ids(program, source):
                    found |= changed
    return found


def _others(kernel: c_ast.FuncDef, loop: c_ast.For) -> list[c_ast.Node]:
    return [node for node in kernel.body.block_items or [] if node is not loop]


def walk_tree(node: c_ast.Node) -> Iterator[c_ast.Node]:
    """Yield a node and all below it."""
    yield node
    for child in children(node):
        yield from walk_tree(child)


def list_names(node: c_ast.Node) -> Iterator[str]:
    """Yield the names in a part of a kernel."""
    return (one.name for one in walk_tree(node) if isinstance(one, c_ast.ID))
