"""Gives the commands of a document to a captured queue, by the functions of its recording table.

The commands are calls of OpenCL with handles and addresses, as those were that were saved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..captured_graphs.parameter import find_entry
from ..icd._native import ffi, lib
from ..icd.abi import OPENCL
from ..icd.calls import call, find_driver_function, get_address
from ..icd.command_buffer.edits import MEMORY, SAMPLER, UNSET, VALUE
from ..icd.errors import check
from ..loader.base.operations import OPERATIONS, SVM
from .document import KERNEL, LONGEST_ARGUMENT, MARKER, Document


class RecordedObjects:
    """What a document's references lead to, as OpenCL's functions take it."""

    def __init__(self, memory: list[Any], samplers: list[Any], parameters: list[Any]) -> None:
        self.addresses = [_find_address(one) for one in memory]
        self.samplers = [one.int_ptr for one in samplers]
        self.parameters = [_find_pointer(one) for one in parameters]

    def refer_to(self, reference: Any, start: int) -> int:
        """Return a memory object, or an address, that a transfer refers to."""
        if isinstance(reference, dict):
            return self.parameters[reference["parameter"]][0]
        return self.addresses[reference] + start


def _find_address(memory: Any) -> int:
    if isinstance(memory, np.ndarray):
        return memory.ctypes.data
    pointer = getattr(memory, "svm_ptr", None)
    return memory.int_ptr if pointer is None else pointer


def _find_required_size(kernel: Any, device: Any) -> list[int]:
    """Return the local size that a kernel's source requires, nothing for any."""
    import pyopencl as cl

    name = cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE
    sizes = kernel.get_work_group_info(name, device)
    return sizes if any(sizes) else []


def _find_pointer(parameter: Any) -> tuple[int, int]:
    """Return the handle of a Parameter's own memory object and 0, or its address and size."""
    entry = find_entry(parameter)
    if entry is parameter:
        return ctypes.addressof(parameter), parameter.dtype.itemsize
    return entry.handle, 0


#: What launches call most. Handles and addresses are numbers.
_SET: Final = ffi.typeof("int32_t (*)(uintptr_t, uint32_t, size_t, uintptr_t)")
_LAUNCH: Final = ffi.typeof(
    "int32_t (*)(uintptr_t, uintptr_t, uint32_t, uintptr_t, uintptr_t, uintptr_t, uint32_t,"
    " uintptr_t, uintptr_t)"
)

_INVALID_ARG_VALUE: Final = OPENCL.codes["CL_INVALID_ARG_VALUE"]
_RELEASE: Final = ffi.typeof("int32_t (*)(uintptr_t)")


class DocumentRecorder:
    """Gives a document's commands to a captured queue."""

    def __init__(
        self,
        queue: int,
        kernels: list[Any],
        arguments: RecordedObjects,
        document: Document,
        done: int,
        device: Any,
    ) -> None:
        self._queue, self._kernels, self._document = queue, [k.int_ptr for k in kernels], document
        #: The local size that each kernel requires. Not every driver uses it by itself.
        self._required = [_find_required_size(one, device) for one in kernels]
        self._arguments, self._done = arguments, done
        self._events: list[int] = []
        self._set = [
            ffi.cast(_SET, find_driver_function(kernel, "clSetKernelArg"))
            for kernel in self._kernels
        ]
        self._enqueue = ffi.cast(_LAUNCH, _find_recorder(queue, "clEnqueueNDRangeKernel"))
        self._pointers = [ffi.cast("void *", kernel) for kernel in self._kernels]
        self._handles = [ffi.cast("void *", one) for one in arguments.addresses]
        #: What each kernel's arguments were set to last.
        self._last: list[dict[int, Any]] = [{} for _ in self._kernels]
        #: Kernels' arguments and kinds that their declarations suit.
        self._suiting: set[tuple[int, int, int]] = set()
        self._kept: list[Any] = []
        self._sizes, self._event = ffi.new("size_t[9]"), ffi.new("uintptr_t *")
        #: Global size, local size and offset; where an argument's value lies.
        self._size_at = tuple(get_address(self._sizes + at) for at in (0, 3, 6))
        self._value = ffi.new("unsigned char[]", LONGEST_ARGUMENT)
        self._word, self._value_at = ffi.cast("uintptr_t *", self._value), get_address(self._value)

    def run(self) -> None:
        """Record all commands. Raises OpenCLError."""
        event = get_address(self._event)
        try:
            for number, command in enumerate(self._document.commands):
                waits = [self._events[one] for one in command["after"]]
                is_launch = command["op"] == KERNEL
                if command["op"] == MARKER and not waits:  # without one it waits for everything
                    waits = [self._done]
                listed = ffi.new("uintptr_t[]", waits) if waits else ffi.NULL
                end = len(waits), get_address(listed), event
                if is_launch:
                    code = self._enqueue(self._queue, *self._prepare_launch(command), *end)
                    routine = "clEnqueueNDRangeKernel"
                else:
                    routine, arguments = self._find_call(command)
                    code = _find_recording(self._queue, routine)(self._queue, *arguments, *end)
                if code:
                    check(code, f"{routine} (command {number})")
                self._events.append(self._event[0])
        finally:
            self._release()

    def _release(self) -> None:
        if not self._events:
            return
        release = ffi.cast(_RELEASE, find_driver_function(self._events[0], "clReleaseEvent"))
        for one in self._events:
            release(one)

    def _find_call(self, command: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the function that enqueues a transfer or a marker, and what it takes between queue
        and wait list."""
        if command["op"] == MARKER:
            return "clEnqueueMarkerWithWaitList", ()
        operation = OPERATIONS[command["op"]]
        self._kept = []
        function = operation.functions["cl"]
        return function.name, tuple(self._find_value(command, name) for name in function.operands)

    def _find_value(self, command: Mapping[str, Any], name: str) -> int:
        """Return what a transfer's function takes for an operand."""
        if name == "blocking":
            return 0
        if name in ("source", "target"):
            return self._arguments.refer_to(command[name], command.get(f"{name}_start", 0))
        if name == "pattern_size":
            return len(command["pattern"]) // 2  # it is in hexadecimal digits
        if name in ("pattern", "colour"):
            data = bytes.fromhex(command["pattern"])
            return self._keep(ffi.new("unsigned char[]", data + bytes(max(0, 16 - len(data)))))
        value = command[name]
        return value if isinstance(value, int) else self._keep(ffi.new("size_t[]", value))

    def _keep(self, room: Any) -> int:
        """Return the address of memory, which lives until the next transfer."""
        self._kept.append(room)
        return get_address(room)

    def _prepare_launch(self, command: Mapping[str, Any]) -> tuple[int, ...]:
        """Set a kernel's arguments. Returns what its enqueue takes between queue and wait list."""
        number = command["kernel"]
        kernel, last = self._kernels[number], self._last[number]
        for index, argument in enumerate(command["args"]):
            if last.get(index) != argument or "local" in argument:
                code = self._set_argument(number, kernel, index, argument)
                if code:
                    check(code, f"clSetKernelArg (argument {index})")
                last[index] = argument
        dimensions, (size, local, offset) = len(command["global"]), self._size_at
        self._sizes[0:dimensions] = command["global"]
        group = command.get("local") or self._required[number][:dimensions]
        if group:
            self._sizes[3 : 3 + dimensions] = group
        if "offset" in command:
            self._sizes[6 : 6 + dimensions] = command["offset"]
        return (
            kernel,
            dimensions,
            offset if "offset" in command else 0,
            size,
            local if group else 0,
        )

    def _set_argument(
        self, number: int, kernel: int, index: int, argument: Mapping[str, Any]
    ) -> int:
        """Set an argument of a kernel. Returns OpenCL's code."""
        kind, size, pointer = UNSET, ffi.sizeof("void *"), self._value_at
        if "value" in argument:
            data = bytes.fromhex(argument["value"])
            ffi.memmove(self._value, data, len(data))
            kind = VALUE if len(data) == size and any(data) else UNSET
            size = len(data)
        elif "memory" in argument:
            kind, memory = MEMORY, argument["memory"]
            if self._document.memory[memory]["kind"] == SVM:
                place = self._arguments.addresses[memory] + argument.get("start", 0)
                return call(kernel, "clSetKernelArgSVMPointer", index, place)
        elif "local" in argument:
            size, pointer = argument["local"], 0
        elif "sampler" in argument:
            kind, self._word[0] = SAMPLER, self._arguments.samplers[argument["sampler"]]
        else:
            place, length = self._arguments.parameters[argument["parameter"]]
            if length:
                size, pointer = length, place
            else:
                kind, self._word[0] = MEMORY, place
        if kind and not self._suits(number, index, kind):
            return _INVALID_ARG_VALUE
        if "memory" in argument:
            return lib.fl_set_memory(
                self._pointers[number], index, self._handles[argument["memory"]]
            )
        return self._set[number](kernel, index, size, pointer)

    def _suits(self, number: int, index: int, kind: int) -> bool:
        """Whether a kernel's source declares an argument as what the file says that it is."""
        key = number, index, kind
        if key not in self._suiting and lib.fl_suits_declaration(
            self._pointers[number], index, kind
        ):
            self._suiting.add(key)
        return key in self._suiting


def _find_recorder(queue: int, routine: str) -> Any:
    """Return the function to which a captured queue's own table leads, a pointer."""
    return ffi.cast("void ***", queue)[0][OPENCL.functions[routine].slot]


def _find_recording(queue: int, routine: str) -> Any:
    return _make_prototype(routine, get_address(_find_recorder(queue, routine)))


@lru_cache(maxsize=64)
def _make_prototype(routine: str, pointer: int) -> Any:
    return OPENCL.functions[routine].prototype(pointer)
