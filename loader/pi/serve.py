"""Serves PI from a Unified Runtime adapter: `serve` creates a PI table for an adapter's table.

The PI table is a layer without a next table (`layers.Layer`), so C code can call it. A call arrives
at `Service.answer_call` as slot and words. Most functions are one line of `pi_from_ur.map`. A
`MappedCall` converts the words by the types of both prototypes (mapping.py) and calls UR. A
`MappedQuery` also converts the name that is asked for and the answer. All other functions are
Python (translation.py, queries.py). Result codes are converted back. PI's handles are UR's.

`UNSUPPORTED` lists what UR cannot serve, with the reason. These functions return
PI_ERROR_UNSUPPORTED_FEATURE, like those that the adapter lacks. `piTearDown` releases the adapter.
From then on every function returns PI_ERROR_UNINITIALIZED.
"""

from __future__ import annotations

import ctypes
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from ..base import layers
from ..base.abi import Function
from ..base.errors import FairleadError
from ..base.forks import make_lock
from ..base.query import query, query_handles
from ..base.table import DispatchTable
from ..ur.abi import UR, URError, check
from . import devices, kernels, memory, programs, queries  # noqa: F401 - they fill TRANSLATIONS
from .abi import PI, PIError
from .mapping import (
    ENUMS,
    FUNCTIONS,
    UNSUPPORTED,
    answer,
    convert_result,
    make_argument_conversion,
    make_struct,
    refuse,
)
from .translation import FUNCTIONS as TRANSLATIONS

__all__ = ["UNSUPPORTED", "Service", "serve"]

#: Makes an argument of a UR call from the words of the PI call.
_Maker: TypeAlias = "Callable[[Service, Sequence[int]], Any]"

#: Type to the result of a call with a NULL handle of it. An adapter would crash.
_NULL_HANDLE: Final = {
    "pi_platform": "PI_ERROR_INVALID_PLATFORM",
    "pi_device": "PI_ERROR_INVALID_DEVICE",
    "pi_context": "PI_ERROR_INVALID_CONTEXT",
    "pi_queue": "PI_ERROR_INVALID_QUEUE",
    "pi_mem": "PI_ERROR_INVALID_MEM_OBJECT",
    "pi_program": "PI_ERROR_INVALID_PROGRAM",
    "pi_kernel": "PI_ERROR_INVALID_KERNEL",
    "pi_event": "PI_ERROR_INVALID_EVENT",
    "pi_sampler": "PI_ERROR_INVALID_SAMPLER",
    "pi_ext_command_buffer": "PI_ERROR_INVALID_COMMAND_BUFFER_KHR",
}
#: Parameters that may be NULL, although the header does not say so.
_MAY_BE_NULL: Final = {
    ("piextKernelCreateWithNativeHandle", "program"),
    ("piextMemGetNativeHandle", "dev"),
}

_TOKEN: Final = re.compile(r"[^,{}]*\{(?:[^{}]|\{[^{}]*\})*\}|[^,{}]+")


def serve(table: DispatchTable, ended: Callable[[], object] = lambda: None) -> DispatchTable:
    """Return a PI 15.47 table that the UR adapter behind `table` answers.

    The table is never freed. Call its `piTearDown` when it is no longer used.

    Args:
        table: the table of a bound adapter.
        ended: called at the end of `piTearDown`.

    Raises:
        FairleadError: `table` is not a table of Unified Runtime, or 16 tables of PI are in use.
    """
    if table.api is not UR:
        raise FairleadError(
            f"PI can only be served from a Unified Runtime adapter, and {table!r} is a table of "
            f"{table.api.name}",
            remedy="give the table of a bound UR adapter; a PI plugin has a PI table already",
        )
    layer = layers.Layer(PI, 0, PI.codes["PI_ERROR_UNINITIALIZED"])
    service = Service(table, layer, ended)
    layer.handle(service.answer_call)
    return DispatchTable(PI, layer.address, label=f"PI from {table.label or 'UR'}")


class Service:
    """An adapter that serves PI.

    Attributes:
        ur: the adapter's table.
        layer: the layer that is the PI table.
        kernels: the stored arguments of each kernel, if the adapter takes them with the launch.
    """

    def __init__(
        self, ur: DispatchTable, layer: layers.Layer, ended: Callable[[], object] = lambda: None
    ) -> None:
        self.ur = ur
        self.layer = layer
        self._when_ended = ended
        self.kernels: dict[int, kernels.KernelArguments] = {}
        self._ended = False
        self._adapters: list[int] | None = None
        self._lock = make_lock()
        self._absent = frozenset(
            {0, *layers.make_stubs(UR, "unsupported"), *layers.make_stubs(UR, "uninitialized")}
        )
        self._has: dict[str, bool] = {}
        self._told = False

    def answer_call(self, slot: int, arguments: Sequence[int]) -> int:
        """Answer a PI call with its pi_result.

        An unexpected error is printed once, and the call returns PI_ERROR_UNKNOWN.
        """
        try:
            required, translation = _plans.get(slot) or _plan(slot)
            for index, code in required:
                if not arguments[index]:
                    return code
            return translation(self, arguments)
        except PIError as error:
            return error.value
        except URError as error:
            return convert_result(error.value)
        except Exception:
            if not self._told:
                self._told = True
                traceback.print_exc()
            return PI.codes["PI_ERROR_UNKNOWN"]

    # What translations use

    def has(self, name: str) -> bool:
        """Return whether the adapter implements a UR function."""
        if name not in self._has:
            self._has[name] = self.ur.get_pointer(UR.functions[name].slot or 0) not in self._absent
        return self._has[name]

    def call(self, name: str, *arguments: Any) -> int:
        """Call a UR function and return the PI result code."""
        function = getattr(self.ur, name, None)
        return (
            convert_result(function(*arguments))
            if function
            else PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]
        )

    def query(self, name: str, *arguments: Any) -> bytes:
        """Return the answer of a UR info query. The last argument is what is asked for.

        Raises:
            URError: the adapter refuses the query.
        """
        return query(getattr(self.ur, name), name, check, *arguments)

    def query_handles(self, name: str, *arguments: Any) -> list[int]:
        """Return the handles that a UR function lists.

        Raises:
            URError: the adapter refuses the call.
        """
        return query_handles(getattr(self.ur, name), name, check, *arguments)

    @property
    def adapters(self) -> list[int]:
        """The adapter's handles, usually one.

        Raises:
            URError: the adapter refuses to list them.
        """
        with self._lock:
            if self._adapters is None:
                self._adapters = self.query_handles("urAdapterGet")
            return self._adapters

    @property
    def adapter(self) -> int:
        """The adapter's first handle.

        Raises:
            PIError: it has none.
        """
        if not self.adapters:
            raise refuse("PI_ERROR_UNINITIALIZED", "The adapter has no driver to work with.")
        return self.adapters[0]

    def end(self) -> None:
        """Release the adapter and stop answering. Another `serve` may use the table again."""
        with self._lock:
            adapters, self._adapters = self._adapters or [], []
        for adapter in adapters:
            self.call("urAdapterRelease", adapter)
        self.kernels.clear()
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.layer.release()
            self._when_ended()


# Functions that follow from the map


def write_answer(data: bytes, size: int, value: int, size_ret: int) -> int:
    """Write the answer of a query to the caller's memory, and return the pi_result.

    Args:
        size: the size of the memory at `value` in bytes.
        value: where the answer is written, 0 if it is not wanted.
        size_ret: where its length is written, 0 if it is not wanted.
    """
    if value and size < len(data):
        return PI.codes["PI_ERROR_INVALID_VALUE"]
    if value:
        ctypes.memmove(value, data, len(data))
    if size_ret:
        ctypes.c_size_t.from_address(size_ret).value = len(data)
    return 0


def split_line(function: Function, line: str) -> tuple[Function, list[str]]:
    """Return the UR function of the right side of a line in the map, and a text for each of its
    parameters.

    Raises:
        ValueError: it gives the function too few or too many.
    """
    name, _, arguments = line.partition("(")
    texts = [text.strip() for text in _TOKEN.findall(arguments.rstrip(")"))] or [
        p.name for p in function.parameters
    ]
    ur = UR.functions[name]
    if len(texts) != len(ur.parameters):
        raise ValueError(
            f"{name} has {len(ur.parameters)} parameters, and {function.name} gives it {len(texts)}"
        )
    return ur, texts


class MappedCall:
    """A PI function that calls one UR function.

    Args:
        line: the right side of its line in the map.
    """

    def __init__(self, function: Function, line: str) -> None:
        self.pi = function
        self.ur, texts = split_line(function, line)
        self.name = self.ur.name
        self.makers = [
            self._find_maker(text, target)
            for text, target in zip(texts, self.ur.parameters, strict=True)
        ]
        #: Whether UR takes PI's words unchanged.
        self.is_unchanged = texts == [p.name for p in function.parameters] and not any(
            map(make_argument_conversion, function.parameters, self.ur.parameters)
        )

    def __call__(self, service: Service, arguments: Sequence[int]) -> int:
        if self.is_unchanged:
            return service.call(self.name, *arguments)
        return service.call(self.name, *[make(service, arguments) for make in self.makers])

    def _find_maker(self, text: str, target: Any) -> _Maker:
        if text.isdecimal():
            return lambda service, arguments: int(text)
        if text == "adapter":
            return lambda service, arguments: service.adapter
        if text == "scratch":
            return lambda service, arguments: ctypes.byref(ctypes.c_uint64())
        if text.endswith("}"):
            make = self._make_struct_maker(text)
            return lambda service, arguments: ctypes.byref(make(service, arguments))
        index = self._find_index(text.lstrip("*"))
        if text.startswith("*"):
            return lambda service, arguments: ctypes.c_void_p.from_address(arguments[index]).value
        convert = make_argument_conversion(self.pi.parameters[index], target)
        if convert is None:
            return lambda service, arguments: arguments[index]
        return lambda service, arguments: convert(arguments[index])

    def _make_struct_maker(self, text: str) -> _Maker:
        name, _, inner = text[:-1].partition("{")
        fields: dict[str, _Maker] = {}
        for pair in filter(None, (part.strip() for part in _TOKEN.findall(inner))):
            key, _, value = pair.partition("=")
            if value.endswith("}"):
                fields[key] = self._make_struct_maker(value)
            else:
                index = self._find_index(value)
                fields[key] = lambda service, arguments, index=index: arguments[index]
        return lambda service, arguments: make_struct(
            name, **{key: make(service, arguments) for key, make in fields.items()}
        )

    def _find_index(self, name: str) -> int:
        return next(
            index for index, parameter in enumerate(self.pi.parameters) if parameter.name == name
        )


class MappedQuery(MappedCall):
    """An info query. Both functions end with the size, the value and the answer's size."""

    def __init__(self, function: Function, line: str) -> None:
        super().__init__(function, line)
        self.asked = self._find_index(
            next(
                p.type_from
                for p in function.parameters
                if "out" in p.words or "inout" in p.words
                if p.type_from
            )
        )
        self.info = ENUMS[function.parameters[self.asked].type]

    def __call__(self, service: Service, arguments: Sequence[int]) -> int:
        name = PI.groups[self.info.pi].get(arguments[self.asked], "")
        own = queries.ANSWERS.get(name)
        if own:
            return write_answer(own(service, *arguments), *arguments[-3:])
        if name in self.info.fixed:
            size = ctypes.sizeof(PI.make_ctype(PI.constants[name].answer))
            return write_answer(self.info.fixed[name].to_bytes(size, "little"), *arguments[-3:])
        if name not in self.info.constants:
            return PI.codes["PI_ERROR_INVALID_VALUE"]
        convert = answer(PI.constants[name], self.info.constants[name])
        values = [make(service, arguments) for make in self.makers]
        # UR refuses a size of 0 even if the answer is empty.
        no_room = not arguments[-3] and arguments[-2]
        if convert is None and not no_room:
            return service.call(self.name, *values)
        data = service.query(self.name, *values[:-3])
        return write_answer(
            _cut_to_caller(convert(data) if convert else data, len(data), arguments[-3]),
            *arguments[-3:],
        )


def _cut_to_caller(data: bytes, before: int, size: int) -> bytes:
    """Cut a converted number to the size that the caller has room for, if that loses nothing.

    Plugins of 2024 answered in UR's width (a bool in one byte), and clients give only that room.
    """
    return (
        data[:size]
        if before <= size < len(data) and not any(data[size:]) and len(data) <= 8
        else data
    )


def _make_translation(function: Function) -> Callable[[Service, Sequence[int]], int]:
    if function.name in UNSUPPORTED:
        return lambda service, arguments: PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]
    written = TRANSLATIONS.get(function.name)
    if written:
        return lambda service, arguments: written(service, *arguments)
    is_query = any(p.type_from for p in function.parameters if p.name == "param_value")
    return (MappedQuery if is_query else MappedCall)(function, FUNCTIONS[function.name])


#: Slot to its plan: (parameter, result if it is NULL) for each that must not be NULL, and what
#: answers the call.
_plans: dict[int, tuple[tuple[tuple[int, int], ...], Callable[[Service, Sequence[int]], int]]] = {}


def _plan(slot: int) -> Any:
    """Return the plan of a slot, which is made at its first call."""
    function = PI.slots[slot]
    _plans[slot] = tuple(_list_required(function)), _make_translation(function)
    return _plans[slot]


def _list_required(function: Function) -> Iterator[tuple[int, int]]:
    """Yield the parameters that must not be NULL, and the result if one is NULL.

    They are handles and pointers to outputs.
    """
    for index, p in enumerate(function.parameters):
        handle = not p.stars and p.type in _NULL_HANDLE
        if "optional" in p.words or (function.name, p.name) in _MAY_BE_NULL:
            continue
        if handle or (p.stars and "out" in p.words):
            yield index, PI.codes[_NULL_HANDLE[p.type] if handle else "PI_ERROR_INVALID_VALUE"]
