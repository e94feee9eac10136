"""The variables of a kernel: which are in scope, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pycparser import c_ast

from .c_types import CType
from .errors import UnreadableKernel
from .growth import BEHIND, KNOWN, Root, Row
from .syntax import addressed
from .values import Integer, Pointer, Unknown, Value, find_flows, join


class Variables:
    """What a walk knows at one place of a kernel.

    A value that is known is right on every path. Where branches meet, a variable keeps its value
    if both agree. Before a loop, all that the loop assigns is forgotten. A variable whose address
    is taken is never known.

    Attributes:
        line: Where the walk is.
        program_scope: The variables of the program: nothing is known of them.
        rows: What was assigned.
    """

    def __init__(self) -> None:
        self.line = 0
        self.known: dict[Root, Value] = {}
        self.rows: list[Row] = []
        self.program_scope: dict[str, tuple[Root, CType]] = {}
        self._scopes = [self.program_scope]
        self._addressed: frozenset[str] = frozenset()
        self._pointed: dict[Root, frozenset[str]] = {}  # where pointers of loops may lead
        self._roots: dict[Root | None, Root] = {}
        self._branches = 0

    def refuse(self, reason: str) -> UnreadableKernel:
        """Return an error with the line of the walk."""
        return UnreadableKernel(reason, self.line)

    def declare(self, name: str, type_: CType, *, is_tracked: bool = True) -> Root:
        """Begin a variable of the innermost scope.

        Args:
            is_tracked: Whether it changes only where its name is assigned, or its address is taken.
        """
        key = name, len(self._roots) + 1
        self._scopes[-1][name] = key, type_
        self._roots[key] = key if is_tracked and name not in self._addressed else BEHIND
        return key

    def find(self, name: str) -> tuple[Root, CType] | None:
        """Return the variable that a name means here, and its type."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def is_tracked(self, key: Root) -> bool:
        """Whether a variable changes only where its name is assigned."""
        return self._roots[key] == key

    def find_root(self, key: Root | None) -> Root:
        """Return what stands for a variable: itself, or all that pointers may lead to."""
        return self._roots.get(key, KNOWN)

    def get_unknown(self, key: Root | None) -> Unknown:
        """Return what stands for the value of a variable if nothing is known of it."""
        return Unknown(None, {self.find_root(key): 1})

    def note(self, root: Root, value: Value) -> None:
        """Note that a variable, or a part of it, gets a value."""
        self.rows.append((root, find_flows(value), self.line))

    def list_changed(self, first: int) -> frozenset[str]:
        """Return the variables in scope that rows may have changed, from the first one on.

        A pointer that may lead to several may lead to any array.
        """
        roots = {root for root, *_ in self.rows[first:]}
        arrays = roots & {BEHIND}
        return frozenset(
            name
            for scope in self._scopes
            for name, (key, type_) in scope.items()
            if self._roots[key] in roots or (type_.kind == "array" and arrays)
        )

    def set(self, key: Root, type_: CType, value: Value) -> Value:
        """Give a variable a value. Returns what is known of it then."""
        name = key[0]
        found: Value = Unknown(type_, find_flows(value))
        if isinstance(value, Integer):
            found = value.convert(type_) or found
        elif isinstance(value, Pointer):
            if type_.kind == "pointer" and type_.target and self.is_tracked(key):
                found = value.to(type_.target)
            else:
                self.lose(value, f"a pointer is kept in {name}")
        self.note(self.find_root(key), found)
        value = found if self.is_tracked(key) else self.get_unknown(key)
        if key in self._pointed:
            arguments = value.arguments if isinstance(value, Pointer) else None
            if arguments is None or not arguments <= self._pointed[key]:
                raise self.refuse(f"{name} points elsewhere in a loop")
        self.known[key] = value
        return value

    def lose(self, value: Value, reason: str) -> None:
        """Refuse a kernel in which a pointer to an argument goes where it is not followed."""
        if isinstance(value, Pointer) and value.arguments:
            raise self.refuse(reason)

    def forget(self, names: frozenset[str]) -> None:
        """Forget what a loop or a switch assigns. Pointers stay in the same arguments."""
        for key, value in self.known.items():
            if key[0] in names:
                if isinstance(value, Pointer):
                    self._pointed[key] = value.arguments
                self.known[key] = (
                    value.lost if isinstance(value, Pointer) else self.get_unknown(key)
                )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Walk a block, whose variables end with it."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    @contextmanager
    def function(self, body: c_ast.Node) -> Iterator[None]:
        """Walk a function, which sees the program's variables and its own."""
        before = self._scopes, self._addressed
        self._scopes, self._addressed = [self.program_scope, {}], addressed(body)
        yield
        self._scopes, self._addressed = before

    @contextmanager
    def branch(self, *, is_done: bool = False) -> Iterator[None]:
        """Walk what may or may not be done; afterwards know only what is true either way.

        Args:
            is_done: Each item does it.
        """
        before = self.known
        self.known = dict(before)
        self._branches += not is_done
        yield
        self._branches -= not is_done
        self.known = self.join_known(before, self.known)

    @property
    def in_branch(self) -> bool:
        """Whether the walk is in what may not be done."""
        return self._branches > 0

    def join_known(self, left: dict[Root, Value], right: dict[Root, Value]) -> dict[Root, Value]:
        """Return what is known after either of two branches."""
        found = dict[Root, Value]()
        for key in {*left, *right}:
            one, other = left.get(key, Unknown()), right.get(key, Unknown())
            value = one if one == other else join(one, other)
            is_lost = isinstance(value, Unknown) and one != other
            found[key] = self.get_unknown(key) if is_lost else value
        return found
