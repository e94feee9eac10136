"""The variables of a kernel: which are in scope, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pycparser import c_ast

from .c_types import CType
from .errors import UnreadableKernel
from .syntax import addressed
from .values import Integer, Pointer, Value, join

Key = tuple[str, int]


class Variables:
    """What a walk knows at one place of a kernel.

    A value that is known is right on every path. Where branches meet, a variable keeps its value
    if both agree. Before a loop, all that the loop assigns is forgotten. A variable whose address
    is taken is never known.

    Attributes:
        line: Where the walk is.
        program_scope: The variables of the program: nothing is known of them.
        body: Of the function that is walked.
    """

    def __init__(self) -> None:
        self.line = 0
        self.body: c_ast.Node | None = None
        self.known: dict[Key, Value] = {}
        self.program_scope: dict[str, tuple[Key, CType]] = {}
        self._scopes = [self.program_scope]
        self._untracked: frozenset[str] = frozenset()
        self._pointed: dict[Key, frozenset[str]] = {}  # where pointers of loops may lead
        self._keys = 0
        self._branches = 0

    def refuse(self, reason: str) -> UnreadableKernel:
        """Return an error with the line of the walk."""
        return UnreadableKernel(reason, self.line)

    def declare(self, name: str, type_: CType) -> Key:
        """Begin a variable of the innermost scope."""
        self._keys += 1
        self._scopes[-1][name] = (name, self._keys), type_
        return name, self._keys

    def find(self, name: str) -> tuple[Key, CType] | None:
        """Return the variable that a name means here, and its type."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def never_know(self, name: str) -> None:
        """Know nothing of a variable from now on, because others can change it."""
        self._untracked |= {name}

    @property
    def pointed(self) -> frozenset[str]:
        """The variables that may change otherwise than where their names are assigned."""
        return self._untracked

    def is_tracked(self, name: str) -> bool:
        """Whether a variable changes only where its name is assigned."""
        return name not in self._untracked

    def set(self, key: Key, type_: CType, value: Value) -> Value:
        """Give a variable a value. Returns what is known of it then."""
        name = key[0]
        if isinstance(value, Integer):
            value = value.convert(type_)
        elif isinstance(value, Pointer):
            if type_.kind == "pointer" and type_.target and self.is_tracked(name):
                value = value.to(type_.target)
            else:
                value = self.lose(value, f"a pointer is kept in {name}")
        else:
            value = None
        value = value if self.is_tracked(name) else None
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
                self.known[key] = value.lost if isinstance(value, Pointer) else None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Walk a block, whose variables end with it."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    @contextmanager
    def function(self, body: c_ast.Node) -> Iterator[None]:
        """Walk a function, which sees the program's variables and its own."""
        before = self._scopes, self._untracked, self.body
        self._scopes, self._untracked = [self.program_scope, {}], addressed(body)
        self.body = body
        yield
        self._scopes, self._untracked, self.body = before

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
        self.known = join_known(before, self.known)

    @property
    def in_branch(self) -> bool:
        """Whether the walk is in what may not be done."""
        return self._branches > 0


def join_known(left: dict[Key, Value], right: dict[Key, Value]) -> dict[Key, Value]:
    """Return what is known after either of two branches."""
    return {key: join(left.get(key), right.get(key)) for key in {*left, *right}}
