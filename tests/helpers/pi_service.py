"""PI served from a Unified Runtime adapter whose functions are Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.loader.base import layers
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import serve
from fairlead.loader.ur.abi import UR


class Adapter:
    """A UR table whose functions are Python.

    `on(name, function)` sets one; `calls` are the arguments of the calls, by name.
    """

    def __init__(self) -> None:
        address, self.slots = layers.make_table(UR)
        self.table = DispatchTable(UR, address, label="made up")
        self.calls: dict[str, list[Any]] = {}
        self.kept: list[Any] = []
        self.on("urAdapterGet", lambda room, out, count: give([0xADA], out, count))

    def on(self, name: str, answer: Callable[..., int] = lambda *arguments: 0) -> None:
        """Have a function. It gets what came, pointers as numbers."""

        def function(*arguments: Any) -> int:
            self.calls.setdefault(name, []).append(arguments)
            return answer(*(0 if argument is None else argument for argument in arguments))

        self.kept.append(UR.functions[name].prototype(function))
        self.slots[UR.functions[name].slot] = ctypes.cast(self.kept[-1], ctypes.c_void_p).value
        self.table.refresh()


def give(found: list[int], out: int, count: int) -> int:
    for index, handle in enumerate(found if out else ()):
        ctypes.c_uint64.from_address(out + 8 * index).value = handle
    if count:
        ctypes.c_uint32.from_address(count).value = len(found)
    return 0


def tell(data: bytes) -> Callable[..., int]:
    """An info query that answers `data`."""

    def answer(*arguments: Any) -> int:
        size, value, size_ret = arguments[-3:]
        if value:
            ctypes.memmove(value, data, min(size, len(data)))
        if size_ret:
            ctypes.c_size_t.from_address(size_ret).value = len(data)
        return 0

    return answer


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest.fixture
def pi(adapter: Adapter) -> Iterator[DispatchTable]:
    table = serve(adapter.table)
    yield table
    table.piTearDown(None)


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def long_words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def word(value: int = 0) -> Any:
    return ctypes.c_uint64(value)


def ask(function: Any, *arguments: Any) -> bytes:
    size = ctypes.c_size_t()
    assert function(*arguments, 0, None, ctypes.byref(size)) == 0
    answer = ctypes.create_string_buffer(size.value or 1)
    assert function(*arguments, size.value, answer, None) == 0
    return answer.raw[: size.value]
