"""A fake adapter with Python functions, which make objects as the ABI data says, and its
validation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from fairlead.loader.base import layers
from fairlead.loader.base.abi import Function
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.validation import Validation

CODES = {name.removeprefix("UR_RESULT_ERROR_"): code for code, (name, _) in UR.errors.items()}


Attach = Callable[..., tuple[Any, Validation, list[str]]]


class Adapter:
    """Answers every function with UR_RESULT_SUCCESS, or with `answers`, and writes new objects to
    outputs.

    A handle points to the dispatch table, as a real adapter's does. `calls` are the functions that
    were called. `lists` are the objects of urAdapterGet, urPlatformGet and urDeviceGet; `infos` the
    answers of information queries.
    """

    def __init__(self) -> None:
        self.table = (ctypes.c_void_p * len(UR.slots))(*layers.make_stubs(UR, "unsupported"))
        self.address = ctypes.addressof(self.table)
        self._kept: list[Any] = []
        for function in UR.slots:
            call = function.prototype(self._function(function))
            self._kept.append(call)
            self.table[function.slot or 0] = ctypes.cast(call, ctypes.c_void_p).value
        self.reset()

    def reset(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, int] = {}
        self.infos: dict[int, list[int]] = {}
        self.recycled: list[int] = []
        self.lists = {
            "urAdapterGet": [self.object()],
            "urPlatformGet": [self.object()],
            "urDeviceGet": [self.object(), self.object()],
        }

    def object(self) -> int:
        """A new handle."""
        if self.recycled:
            return self.recycled.pop()
        self._kept.append((ctypes.c_void_p * 8)(self.address))
        return ctypes.addressof(self._kept[-1])

    def _function(self, function: Function) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(function.name)
            self._write(
                function,
                {p.name: value for p, value in zip(function.parameters, arguments, strict=True)},
            )
            return self.answers.get(function.name, 0)

        return call

    def _write(self, function: Function, values: dict[str, Any]) -> None:
        if function.name in self.lists:
            array = list(values.values())[-2]
            count = values["NumEntries"]
            total = list(values.values())[-1]
            self._fill(array, self.lists[function.name][:count] if array else [])
            self._fill(total, [len(self.lists[function.name])], ctypes.c_uint32)
        elif "pPropValue" in values and "pPropSizeRet" in values:
            info = self.infos.get(values["propName"], [])
            self._fill(values["pPropValue"], info)
            self._fill(values["pPropSizeRet"], [8 * len(info)])
        else:
            for p in function.parameters:
                if p.stars and (
                    (UR.resolve(p.type) == "handle" and "out" in p.words) or p.name == "ppMem"
                ):
                    self._fill(values[p.name], [self.object()])

    @staticmethod
    def _fill(address: int | None, words: Iterable[int], ctype: Any = ctypes.c_uint64) -> None:
        for i, word in enumerate(words if address else ()):
            ctype.from_address((address or 0) + i * ctypes.sizeof(ctype)).value = word


@pytest.fixture(scope="module")
def the_adapter() -> Adapter:
    return Adapter()


@pytest.fixture
def adapter(the_adapter: Adapter) -> Adapter:
    """One table for all tests: what was given to C is never freed, and there are 16 layers."""
    the_adapter.reset()
    return the_adapter


@pytest.fixture
def attach(adapter: Adapter) -> Iterator[Attach]:
    """`attach(PARAMETER, LIFETIME)` returns a table, its validation, and the reported lines."""
    attached: list[Validation] = []

    def start(*names: str) -> tuple[Any, Validation, list[str]]:
        lines: list[str] = []
        validated = Validation(names, report=lines.append)
        attached.append(validated)
        table = DispatchTable(UR, adapter.address)
        validated.attach(table)
        return table, validated, lines

    yield start
    for each in attached:
        each.close()


def handle() -> ctypes.c_void_p:
    return ctypes.c_void_p()


def array(*values: ctypes.c_void_p) -> Any:
    return (ctypes.c_void_p * len(values))(*values)


def make(create: Any, *arguments: Any) -> ctypes.c_void_p:
    """The object that a function gives through its last parameter."""
    made = handle()
    assert create(*arguments, ctypes.byref(made)) == 0
    return made


def devices(table: Any, count: int = 1) -> tuple[ctypes.c_void_p, Any]:
    """The platform, and its first devices, as a program finds them."""
    adapter, platform, found = handle(), handle(), (ctypes.c_void_p * count)()
    assert table.urAdapterGet(1, ctypes.byref(adapter), None) == 0
    assert table.urPlatformGet(adapter, 1, ctypes.byref(platform), None) == 0
    assert table.urDeviceGet(platform, UR["UR_DEVICE_TYPE_ALL"], count, found, None) == 0
    return platform, found


def context_of(table: Any) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    """A device and a context for it."""
    _, found = devices(table)
    return ctypes.c_void_p(found[0]), make(table.urContextCreate, 1, found, None)
