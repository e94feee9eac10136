"""Gives the commands of a document to a captured queue, by the functions of its recording table.

The commands are calls of OpenCL with handles and addresses, as those were that were saved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ..captured_graphs.parameter import entry_of
from ..icd._native import ffi
from ..icd.abi import OPENCL
from ..icd.calls import address, call, function_of
from ..icd.errors import check
from .document import KERNEL, MARKER, Document
from .operations import OPERATIONS, SVM


class RecordedObjects:
    """What a document's references lead to, as OpenCL's functions take it."""

    def __init__(self, memory: list[Any], samplers: list[Any], parameters: list[Any]) -> None:
        self.addresses = [_address_of(one) for one in memory]
        self.samplers = [one.int_ptr for one in samplers]
        self.parameters = [_pointer_of(one) for one in parameters]

    def pointer(self, reference: Any, start: int) -> int:
        """A memory object, or an address, that a transfer refers to."""
        if isinstance(reference, dict):
            return self.parameters[reference["parameter"]][0]
        return self.addresses[reference] + start


def _address_of(memory: Any) -> int:
    if isinstance(memory, np.ndarray):
        return memory.ctypes.data
    pointer = getattr(memory, "svm_ptr", None)
    return memory.int_ptr if pointer is None else pointer


def _pointer_of(parameter: Any) -> tuple[int, int]:
    """The handle of a Parameter's own memory object and 0, or its address and size."""
    entry = entry_of(parameter)
    if entry is parameter:
        return ctypes.addressof(parameter), parameter.dtype.itemsize
    return entry.handle, 0


class DocumentRecorder:
    """Gives a document's commands to a captured queue."""

    def __init__(
        self,
        queue: int,
        kernels: list[Any],
        arguments: RecordedObjects,
        document: Document,
        done: int,
    ) -> None:
        self._queue, self._kernels, self._document = queue, [k.int_ptr for k in kernels], document
        self._arguments, self._done = arguments, done
        self._events: list[int] = []
        self._set = [function_of(kernel, "clSetKernelArg") for kernel in self._kernels]
        #: What each kernel's arguments were set to last.
        self._last: list[dict[int, Any]] = [{} for _ in self._kernels]
        self._kept: list[Any] = []
        self._word, self._size = ffi.new("uintptr_t *"), ffi.new("size_t[9]")

    def run(self) -> None:
        """Record all commands. Raises OpenCLError."""
        event = ffi.new("uintptr_t *")
        try:
            for number, command in enumerate(self._document.commands):
                waits = [self._events[one] for one in command["after"]]
                if command["op"] == MARKER and not waits:  # without one it waits for everything
                    waits = [self._done]
                listed = ffi.new("uintptr_t[]", waits)
                end = len(waits), address(listed) if waits else None, address(event)
                routine, arguments = self._call_of(command)
                code = _recording(self._queue, routine)(self._queue, *arguments, *end)
                check(code, f"{routine} (command {number})")
                self._events.append(event[0])
        finally:
            for one in self._events:
                call(one, "clReleaseEvent")

    def _call_of(self, command: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        if command["op"] == KERNEL:
            return "clEnqueueNDRangeKernel", self._launch(command)
        if command["op"] == MARKER:
            return "clEnqueueMarkerWithWaitList", ()
        operation = OPERATIONS[command["op"]]
        self._kept = []
        made = [value for name in operation.order for value in self._values(command, name)]
        return operation.routine, tuple(made)

    def _values(self, command: Mapping[str, Any], name: str) -> tuple[Any, ...]:
        """What a transfer's function takes for a name of `FileOperation.order`."""
        if not name:
            return (0,)  # not blocking
        if name in ("source", "target"):
            return (self._arguments.pointer(command[name], command.get(f"{name}_start", 0)),)
        if name in ("pattern", "colour"):
            data = bytes.fromhex(command["pattern"])
            room = ffi.new("unsigned char[]", data + bytes(max(0, 16 - len(data))))
            self._kept.append(room)
            return (address(room),) if name == "colour" else (address(room), len(data))
        value = command[name]
        if isinstance(value, int):
            return (value,)
        room = ffi.new("size_t[]", value)
        self._kept.append(room)
        return (address(room),)

    def _launch(self, command: Mapping[str, Any]) -> tuple[Any, ...]:
        number = command["kernel"]
        kernel, last = self._kernels[number], self._last[number]
        for index, argument in enumerate(command["args"]):
            if "local" in argument or last.get(index) != argument:
                self._set_argument(number, kernel, index, argument)
                last[index] = argument
        dimensions, room = len(command["global"]), self._size
        room[0:dimensions] = command["global"]
        ranges: dict[str, int | None] = {"offset": None, "local": None}
        for place, name in ((3, "local"), (6, "offset")):
            if name in command:
                room[place : place + dimensions] = command[name]
                ranges[name] = address(room + place)
        return kernel, dimensions, ranges["offset"], address(room), ranges["local"]

    def _set_argument(
        self, number: int, kernel: int, index: int, argument: Mapping[str, Any]
    ) -> None:
        word, routine, data = self._word, self._set[number], None
        if "value" in argument:
            data = ffi.new("unsigned char[]", bytes.fromhex(argument["value"]))
            size, pointer = len(argument["value"]) // 2, address(data)
        elif "local" in argument:
            size, pointer = argument["local"], None
        elif "parameter" in argument:
            pointer, size = self._arguments.parameters[argument["parameter"]]
            if not size:
                word[0], size, pointer = pointer, 8, address(word)
        elif "sampler" in argument:
            word[0] = self._arguments.samplers[argument["sampler"]]
            size, pointer = 8, address(word)
        else:
            memory = self._arguments.addresses[argument["memory"]] + argument.get("start", 0)
            if self._document.memory[argument["memory"]]["kind"] == SVM:
                code = call(kernel, "clSetKernelArgSVMPointer", index, memory)
                check(code, "clSetKernelArgSVMPointer")
                return
            word[0] = memory
            size, pointer = 8, address(word)
        code = routine(kernel, index, size, pointer)
        del data
        check(code, f"clSetKernelArg (argument {index})")


def _recording(queue: int, routine: str) -> Any:
    """The function to which a captured queue's own table leads."""
    slot = OPENCL.functions[routine].slot
    table = ffi.cast("void ***", queue)[0]
    return _prototype(routine, address(table[slot]))


@lru_cache(maxsize=64)
def _prototype(routine: str, pointer: int) -> Any:
    return OPENCL.functions[routine].prototype(pointer)
