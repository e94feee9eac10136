"""The buffers that a program holds where its capture block can reach them.

They are in variables, attributes, lists, closures and globals, and are compared before and after a
block (swaps.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

from numpy import ndarray

from ..loader.base.frames import get_variables
from . import pyopencl_client as _client

#: More objects than this are not looked at, nor more members of a list.
_MOST_OBJECTS: Final = 1000
_MOST_MEMBERS: Final = 32
#: So many steps from a variable.
_DEEPEST: Final = 4
_PLAIN: Final = frozenset((int, float, complex, str, bytes, bool, type(None), ndarray))
#: Their objects hold no buffers that a program exchanges.
_OTHERS: Final = frozenset(("builtins", "numpy", "pyopencl", "fairlead", "threading"))


def find_held_buffers(frame: FrameType) -> dict[str, int]:
    """Return the handles of buffers and arrays by how the program writes them: `u`, `self.u`.

    Args:
        frame: the frame of the function with the block.
    """
    found: dict[str, int] = {}
    seen: set[int] = set()
    variables = get_variables(frame)
    waiting = deque((name, value, 0) for name, value in variables.items())
    waiting += ((*one, 0) for one in _list_globals(frame.f_code, frame.f_globals))
    count = 0
    while waiting and count < _MOST_OBJECTS:
        path, thing, depth = waiting.popleft()
        count += 1
        looked_at = depth == 0 or _is_memory(type(thing))
        handle = _client.find_buffer_handle(thing) if looked_at else 0
        if handle:
            found.setdefault(path, handle)
        elif depth < _DEEPEST and id(thing) not in seen:
            seen.add(id(thing))
            waiting += ((*one, depth + 1) for one in _list_members(path, thing))
    return found


@lru_cache(maxsize=256)
def _is_memory(kind: type[Any]) -> bool:
    """Whether a type is or extends PyOpenCL's. This runs no code of the program."""
    return any(one.__module__.startswith("pyopencl") for one in kind.__mro__)


def _list_globals(code: CodeType, variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function's text names, and what it names of modules."""
    for name in code.co_names:
        value = variables.get(name)
        if type(value) is ModuleType and is_of_program(value.__name__):
            members = vars(value)
            yield from ((f"{name}.{one}", members[one]) for one in code.co_names if one in members)
        elif value is not None:
            yield name, value


def _list_members(path: str, thing: Any) -> Iterable[tuple[str, Any]]:
    """Return what an object holds, by how the program writes it."""
    kind = type(thing)
    if kind in (list, tuple, deque):
        return [
            (f"{path}[{i}]", one)
            for i, one in enumerate(islice(thing, _MOST_MEMBERS))
            if type(one) not in _PLAIN
        ]
    if kind is dict:
        return [(f"{path}[{key!r}]", one) for key, one in _list_items(thing) if _is_key(key)]
    if kind is MethodType:
        return [(path.rpartition(".")[0] or path, thing.__self__), (path, thing.__func__)]
    if kind is FunctionType:
        return _list_variables(thing)
    return _list_attributes(path, thing)


def _list_items(members: dict[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return [
            one for one in islice(members.items(), 8 * _MOST_MEMBERS) if type(one[1]) not in _PLAIN
        ]
    except RuntimeError:  # another thread changes it
        return []


def _is_key(key: Any) -> bool:
    return type(key) in (str, int)


def _list_variables(function: FunctionType) -> list[tuple[str, Any]]:
    """Return the globals and the variables of other functions that a function's text names."""
    if not is_of_program(function.__module__ or ""):
        return []
    found = list(_list_globals(function.__code__, function.__globals__))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # it has none yet
            continue
    wrapped = vars(function).get("__wrapped__")
    return found if wrapped is None else [*found, (function.__name__, wrapped)]


def _list_attributes(path: str, thing: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object, without its properties."""
    kind = type(thing)
    if not is_of_program(kind.__module__):
        return []
    try:
        members = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        members = {}
    found = [(f"{path}.{name}", one) for name, one in _list_items(members)]
    return found + [(f"{path}.{name}", one) for name, one in read_slots(thing)]


def read_slots(thing: Any) -> list[tuple[str, Any]]:
    """Return what an object of a program's class holds in slots, by their names."""
    kind, found = type(thing), []
    for base in kind.__mro__:
        for name, slot in vars(base).items():
            if type(slot) is MemberDescriptorType and is_of_program(base.__module__):
                try:
                    found.append((name, slot.__get__(thing, kind)))
                except AttributeError:  # it is not set
                    continue
    return found


def is_of_program(module: str) -> bool:
    """Whether a module may be the program's: no library's that holds no buffers."""
    return module.partition(".")[0] not in _OTHERS
