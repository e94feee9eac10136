"""Launches of the command-buffer layer: a copy of the kernel, its arguments of this moment,
clEnqueueNDRangeKernel's errors.

What the program sets on its kernel afterwards does not change the launch. The layer's library has
seen what was set (native/kernels.c). Launches of a command-buffer share a copy of a kernel, because
engines set the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from ...icd._native import ffi, lib
from ...icd.abi import OPENCL
from ...icd.calls import call, get_address, query_kernel_name
from ...icd.command_buffer.edits import MEMORY, POINTER, UNSET, VALUE
from ...icd.errors import check
from .buffers import ALL_ASSERTS, LayerCommand, LayerCommandBuffer, get_layer
from .entries import ask, check_bits, make_error, read_numbers
from .facts import DeviceFacts, KernelFacts
from .memory import keep_part
from .recording import CommandRecording, declare_recording

_UNSET, _SET, _SET_POINTER = range(3)  # native/layer.h
_FIELDS: Final = "CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"
_ARGUMENTS: Final = OPENCL["CL_MUTABLE_DISPATCH_ARGUMENTS_KHR"]
_ASSERTS: Final = "CL_MUTABLE_DISPATCH_ASSERTS_KHR"
#: CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR … CL_MUTABLE_DISPATCH_EXEC_INFO_KHR.
_ALL_FIELDS: Final = 0x1F
_POINTER_SIZE: Final = 8  # bytes


@dataclass(frozen=True)
class LayerRange:
    """The sizes of a launch.

    Attributes:
        offset, local: None for NULL.
    """

    offset: Sequence[int] | None
    size: Sequence[int]
    local: Sequence[int] | None

    @property
    def numbers(self) -> list[int]:
        """`fl_command.n` of the launch."""
        zeros, ones = (0, 0, 0), (1, 1, 1)
        dim = len(self.size)
        return [
            *(self.offset or zeros[:dim]),
            *zeros[dim:],
            *self.size,
            *ones[dim:],
            *(self.local or zeros[:dim]),
            *ones[dim:],
        ]

    @property
    def groups(self) -> int | None:
        """The number of work-groups, None if the driver chooses their size."""
        if self.local is None:
            return None
        return prod(-(-size // local) for size, local in zip(self.size, self.local, strict=True))

    @property
    def is_uniform(self) -> bool | None:
        """Whether all work-groups have the same size, None if the driver chooses it."""
        if self.local is None:
            return None
        return not any(size % local for size, local in zip(self.size, self.local, strict=True))


def read_range(dim: int, offset: int | None, size: int | None, local: int | None) -> LayerRange:
    """Read the sizes of a launch.

    Raises:
        OpenCLError: CL_INVALID_WORK_DIMENSION, CL_INVALID_GLOBAL_WORK_SIZE.
    """
    if not 1 <= dim <= 3:
        raise make_error("CL_INVALID_WORK_DIMENSION", f"{dim} dimensions")
    if not size:
        raise make_error("CL_INVALID_GLOBAL_WORK_SIZE", "the global size is NULL")
    return LayerRange(
        read_numbers(offset, "size_t", dim) if offset else None,
        read_numbers(size, "size_t", dim),
        read_numbers(local, "size_t", dim) if local else None,
    )


def check_sizes(kernel: KernelFacts, device: DeviceFacts, launch: LayerRange) -> None:
    """Check the sizes of a launch as clEnqueueNDRangeKernel does.

    Raises:
        OpenCLError: CL_INVALID_GLOBAL_WORK_SIZE, CL_INVALID_GLOBAL_OFFSET,
            CL_INVALID_WORK_ITEM_SIZE, CL_INVALID_WORK_GROUP_SIZE.
    """
    if not all(0 < size < 1 << device.bits for size in launch.size):
        raise make_error("CL_INVALID_GLOBAL_WORK_SIZE", f"the global size is {launch.size}")
    for offset, size in zip(launch.offset or (), launch.size, strict=False):
        if offset + size >= 1 << device.bits:
            raise make_error("CL_INVALID_GLOBAL_OFFSET", f"{offset} and {size} work-items")
    local, required = launch.local, kernel.required
    if local is None:
        return
    if not all(local):
        raise make_error("CL_INVALID_WORK_GROUP_SIZE", f"the local size is {local}")
    if any(size > most for size, most in zip(local, device.most_items, strict=False) if most):
        raise make_error("CL_INVALID_WORK_ITEM_SIZE", f"{local} of at most {device.most_items}")
    if any(required) and required[: len(local)] != list(local):
        raise make_error("CL_INVALID_WORK_GROUP_SIZE", f"the kernel requires groups of {required}")
    if kernel.most_items and prod(local) > kernel.most_items:
        raise make_error("CL_INVALID_WORK_GROUP_SIZE", f"{prod(local)} of {kernel.most_items}")
    if kernel.is_uniform and not launch.is_uniform:
        raise make_error("CL_INVALID_WORK_GROUP_SIZE", f"{local} does not divide {launch.size}")


def get_copy(buffer: LayerCommandBuffer, kernel: int, arguments: LayerArguments) -> Any:
    """Return our copy of a kernel as it is now, which the command-buffer keeps.

    Args:
        arguments: those of the launch. Where SVM pointers stick, launches with other ones have
            another copy, made from the program. Which ones a deferred launch will have is unknown.

    Raises:
        OpenCLError: CL_OUT_OF_RESOURCES if the driver makes no copy.
    """
    sticks = buffer.get_device(buffer.queues[0].device).pointers_stick
    pointers = arguments if arguments.is_deferred else tuple(arguments.pointers)
    key = kernel, get_layer().exec_changes(kernel), pointers if sticks else ()
    copy = buffer.copies.get(key)
    if copy is None:
        made = (
            _create(kernel)
            if sticks
            else get_address(lib.fl_clone_kernel(_make_void_pointer(kernel)))
        )
        if not made:
            raise make_error("CL_OUT_OF_RESOURCES", "the driver cannot copy the kernel")
        copy = buffer.copies[key] = _make_void_pointer(made)
        for name, value in _list_exec_infos(kernel):
            data = ffi.from_buffer(value)
            call(made, "clSetKernelExecInfo", name, len(value), get_address(data))
    return copy


def _create(kernel: int) -> int:
    code = ffi.new("int32_t *")
    program = ask(kernel, "clGetKernelInfo", "CL_KERNEL_PROGRAM", "uintptr_t", "CL_INVALID_KERNEL")
    name = ffi.new("char[]", query_kernel_name(kernel).encode())
    return call(program, "clCreateKernel", ffi.string(name), get_address(code)) or 0


def _list_exec_infos(kernel: int) -> list[tuple[int, bytes]]:
    """What clSetKernelExecInfo has set on a kernel."""
    found: list[tuple[int, bytes]] = []
    needed = ffi.new("size_t *")
    see = get_layer().seen_exec_info
    while name := see(kernel, len(found), None, 0, get_address(needed)):
        room = ffi.new("char[]", needed[0] + 1)
        see(kernel, len(found), get_address(room), needed[0], get_address(needed))
        found.append((name, bytes(ffi.buffer(room, needed[0]))))
    return found


def _make_void_pointer(handle: int) -> Any:
    return ffi.cast("void *", handle)


def find_kind(kernel: int, index: int, data: bytes | None) -> int:
    """Return what an argument is that clSetKernelArg has set: VALUE, MEMORY or SAMPLER."""
    if data is None or len(data) != _POINTER_SIZE or not any(data):
        return VALUE
    object_ = int.from_bytes(data, "little")
    return lib.fl_kind_of_argument(_make_void_pointer(kernel), index, _make_void_pointer(object_))


class LayerArguments:
    """The arguments of a launch, as changes of an empty list.

    Args:
        buffer: the command-buffer. The list keeps memory objects and samplers; this keeps what
            memory objects are parts of.
        device: the device that runs it, a handle.
        may_defer: whether an update may set what is not set yet.

    Attributes:
        is_deferred: whether an argument is not set yet.

    Raises:
        OpenCLError: CL_INVALID_KERNEL_ARGS, CL_MISALIGNED_SUB_BUFFER_OFFSET.
    """

    def __init__(
        self, buffer: LayerCommandBuffer, kernel: int, count: int, device: int, may_defer: bool
    ) -> None:
        self._device, self.is_deferred = device, False
        self.changes = ffi.new("fl_change[]", max(1, count))
        self.count, self.pointers = count, list[int]()
        self._kept: list[Any] = []
        see, needed, pointer = get_layer().seen_argument, ffi.new("size_t *"), ffi.new("void **")
        room = ffi.new("char[64]")
        for index in range(count):
            places = get_address(needed), get_address(pointer)
            kind = see(kernel, index, get_address(room), 64, *places)
            if kind == _UNSET and not may_defer:
                raise make_error(
                    "CL_INVALID_KERNEL_ARGS",
                    f"argument {index} was never set: set it, or record the launch with "
                    "CL_MUTABLE_DISPATCH_ARGUMENTS_KHR in a mutable command-buffer",
                )
            if kind == _UNSET:
                self.is_deferred = True
                self.changes[index] = (index, UNSET, 0, ffi.NULL)
                continue
            if kind == _SET_POINTER:
                self.pointers.append(index)
                self.changes[index] = (index, POINTER, 0, pointer[0])
                continue
            held = room
            if needed[0] > 64:
                held = ffi.new("char[]", needed[0])
                see(kernel, index, get_address(held), needed[0], *places)
            data = bytes(ffi.buffer(held, needed[0])) if pointer[0] else None
            self._set(buffer, kernel, index, needed[0], data)

    def _set(
        self, buffer: LayerCommandBuffer, kernel: int, index: int, size: int, data: bytes | None
    ) -> None:
        kind, value = find_kind(kernel, index, data), ffi.NULL
        if data is not None:
            value = ffi.new("char[]", data)
            self._kept.append(value)
        if kind == MEMORY and data is not None:
            keep_part(buffer, int.from_bytes(data, "little"), self._device)
        self.changes[index] = (index, kind, size, value)

    def make(self) -> Any:
        """Return the list, an `fl_arguments *`, a reference. Raises MemoryError."""
        made = lib.fl_change_arguments(ffi.NULL, self.count, self.changes, self.count)
        if not made:
            raise MemoryError("no memory for a launch's arguments")
        return made


def _find_fields(recording: CommandRecording) -> int:
    """What of the launch can be updated. Raises OpenCLError."""
    name = "CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR"
    given = recording.given.get(_FIELDS, _ALL_FIELDS)
    check_bits(given, _ALL_FIELDS, name)
    has_svm = recording.buffer.get_device(recording.queue.device).has_svm
    exec_info = OPENCL["CL_MUTABLE_DISPATCH_EXEC_INFO_KHR"]
    if not has_svm and recording.given.get(_FIELDS, 0) & exec_info:
        raise make_error("CL_INVALID_OPERATION", f"{name} does not have CL_…_EXEC_INFO_KHR")
    return given if has_svm else given & ~exec_info


@declare_recording(known=(_FIELDS, _ASSERTS))
def clCommandNDRangeKernelKHR(
    recording: CommandRecording,
    kernel: int | None,
    dim: int,
    offset: int | None,
    size: int | None,
    local: int | None,
) -> LayerCommand:
    buffer, device = recording.buffer, recording.queue.device
    fields, asserts = _find_fields(recording), recording.given.get(_ASSERTS, 0)
    check_bits(asserts, ALL_ASSERTS, "the asserts")
    facts, known = buffer.get_kernel(kernel, device), buffer.get_device(device)
    launch = read_range(dim, offset, size, local)
    assert kernel is not None
    check_sizes(facts, known, launch)
    asserts |= buffer.asserts
    if asserts and launch.local is None:
        raise make_error(
            "CL_INVALID_VALUE", "a launch that promises no more work-groups needs a local size"
        )
    if launch.local is None and any(facts.required) and set(facts.required[dim:]) <= {1}:
        # The only size that there can be. PoCL 3.0 refuses NULL here.
        launch = replace(launch, local=facts.required[:dim])
    # Only who names the flag may leave arguments for later, although it is on by default.
    may_defer = buffer.mutable and bool(recording.given.get(_FIELDS, 0) & _ARGUMENTS)
    arguments = LayerArguments(buffer, kernel, facts.count, device, may_defer)
    copy = get_copy(buffer, kernel, arguments)
    made = recording.add(
        "kernel",
        "NDRANGE_KERNEL",
        global_offset=launch.numbers[0:3],
        global_size=launch.numbers[3:6],
        local_size=launch.numbers[6:9],
        kernel=copy,
        arguments=arguments.make(),
        work_dim=dim,
        has_offset=launch.offset is not None,
        has_local=launch.local is not None,
    )
    made.kernel, made.fields, made.asserts = kernel, fields, asserts
    made.groups = launch.groups
    if arguments.is_deferred:
        buffer.deferred.append(made)
    return made


def check_on_copy(copy: int, index: int, kind: int, size: int, value: int | None) -> None:
    """Let the driver check an argument, on our copy. Raises OpenCLError: what it answers."""
    if kind == POINTER:
        code = call(copy, "clSetKernelArgSVMPointer", index, value)
        check(code, "clSetKernelArgSVMPointer", f"It is argument {index}.")
    else:
        code = call(copy, "clSetKernelArg", index, size, value)
        check(code, "clSetKernelArg", f"It is argument {index}.")
