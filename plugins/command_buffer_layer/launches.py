"""Launches: a copy of the kernel, its arguments of this moment, clEnqueueNDRangeKernel's errors.

What the program sets on its kernel afterwards does not change the launch. The layer's library has
seen what was set (native/kernels.c). Launches of a command-buffer share a copy of a kernel, because
engines set the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from ...icd._native import ffi, lib
from ...icd.abi import OPENCL
from ...icd.calls import address, call, kernel_name, profile_of_device
from ...icd.command_buffer.edits import MEMORY, POINTER, VALUE
from ...icd.errors import check
from .buffers import ALL_ASSERTS, LayerCommand, LayerCommandBuffer, layer
from .entries import ask, ask_all, check_bits, numbers, refused
from .memory import check_alignment, keep_parents
from .recording import CommandRecording, records

_UNSET, _SET, _SET_POINTER = range(3)  # native/layer.h
_FIELDS: Final = "CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"
_ASSERTS: Final = "CL_MUTABLE_DISPATCH_ASSERTS_KHR"
#: CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR … CL_MUTABLE_DISPATCH_EXEC_INFO_KHR.
_ALL_FIELDS: Final = 0x1F
_POINTER_SIZE: Final = 8  # bytes


@dataclass(frozen=True)
class LayerRange:
    """The sizes of a launch.

    Attributes:
        offset, local: None for NULL.
        size: the global size.
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


def range_of(dim: int, offset: int | None, size: int | None, local: int | None) -> LayerRange:
    """Read the sizes of a launch.

    Raises:
        OpenCLError: CL_INVALID_WORK_DIMENSION, CL_INVALID_GLOBAL_WORK_SIZE.
    """
    if not 1 <= dim <= 3:
        raise refused("CL_INVALID_WORK_DIMENSION", f"{dim} dimensions")
    if not size:
        raise refused("CL_INVALID_GLOBAL_WORK_SIZE", "the global size is NULL")
    return LayerRange(
        numbers(offset, "size_t", dim) if offset else None,
        numbers(size, "size_t", dim),
        numbers(local, "size_t", dim) if local else None,
    )


def check_sizes(kernel: int, device: int, launch: LayerRange) -> None:
    """Check the sizes of a launch as clEnqueueNDRangeKernel does.

    Args:
        kernel: the kernel.
        device: the device that runs it.
        launch: the sizes.

    Raises:
        OpenCLError: CL_INVALID_GLOBAL_WORK_SIZE, CL_INVALID_GLOBAL_OFFSET,
            CL_INVALID_WORK_ITEM_SIZE, CL_INVALID_WORK_GROUP_SIZE.
    """
    bits = ask_all(device, "clGetDeviceInfo", "CL_DEVICE_ADDRESS_BITS", "uint32_t", 1)[0] or 64
    if not all(0 < size < 1 << bits for size in launch.size):
        raise refused("CL_INVALID_GLOBAL_WORK_SIZE", f"the global size is {launch.size}")
    for offset, size in zip(launch.offset or (), launch.size, strict=False):
        if offset + size >= 1 << bits:
            raise refused("CL_INVALID_GLOBAL_OFFSET", f"{offset} and {size} work-items")
    info = "clGetKernelWorkGroupInfo"
    required = ask_all(kernel, info, "CL_KERNEL_COMPILE_WORK_GROUP_SIZE", "size_t", 3, device)
    local = launch.local
    if local is None:
        return
    most = ask_all(device, "clGetDeviceInfo", "CL_DEVICE_MAX_WORK_ITEM_SIZES", "size_t", 3)
    if any(not size for size in local):
        raise refused("CL_INVALID_WORK_GROUP_SIZE", f"the local size is {local}")
    if any(size > limit for size, limit in zip(local, most, strict=False) if limit):
        raise refused("CL_INVALID_WORK_ITEM_SIZE", f"{local} work-items of at most {most}")
    if any(required) and required[: len(local)] != list(local):
        raise refused("CL_INVALID_WORK_GROUP_SIZE", f"the kernel requires groups of {required}")
    together = ask_all(kernel, info, "CL_KERNEL_WORK_GROUP_SIZE", "size_t", 1, device)[0]
    if together and prod(local) > together:
        raise refused("CL_INVALID_WORK_GROUP_SIZE", f"{prod(local)} work-items of {together}")
    if any(size % part for size, part in zip(launch.size, local, strict=True)) and _is_uniform(
        kernel, device
    ):
        raise refused("CL_INVALID_WORK_GROUP_SIZE", f"{local} does not divide {launch.size}")


def _is_uniform(kernel: int, device: int) -> bool:
    """Whether a kernel's groups all have the same size: so in OpenCL C before 2.0."""
    program = ask(kernel, "clGetKernelInfo", "CL_KERNEL_PROGRAM", "uintptr_t", "CL_INVALID_KERNEL")
    text = ffi.new("char[4096]")
    options = OPENCL["CL_PROGRAM_BUILD_OPTIONS"]
    call(program, "clGetProgramBuildInfo", device, options, 4096, address(text), None)
    given = ffi.string(text).decode(errors="replace")
    if "-cl-uniform-work-group-size" in given:
        return True
    return not any(f"-cl-std={name}" in given for name in ("CL2", "CL3", "CLC++"))


def copy_of(buffer: LayerCommandBuffer, kernel: int, pointers: Sequence[int]) -> Any:
    """Return our copy of a kernel as it is now, which the command-buffer keeps.

    Args:
        buffer: the command-buffer.
        kernel: the program's kernel, which is kept, too.
        pointers: which arguments are SVM pointers. Where these stick, launches with other ones
            have another copy, made from the program.

    Raises:
        OpenCLError: CL_OUT_OF_RESOURCES if the driver makes no copy.
    """
    device = buffer.queues[0].device
    sticks = profile_of_device(device).svm_arguments_stick
    key = kernel, layer().exec_changes(kernel), tuple(pointers) if sticks else ()
    copy = buffer.copies.get(key)
    if copy is None:
        buffer.hold("Kernel", kernel)
        made = _create(kernel) if sticks else address(lib.fl_clone_kernel(_void(kernel)))
        if not made:
            raise refused("CL_OUT_OF_RESOURCES", "the driver cannot copy the kernel")
        copy = buffer.copies[key] = _void(made)
        for name, value in _exec_infos(kernel):
            data = ffi.from_buffer(value)
            call(made, "clSetKernelExecInfo", name, len(value), address(data))
    return copy


def _create(kernel: int) -> int:
    code = ffi.new("int32_t *")
    program = ask(kernel, "clGetKernelInfo", "CL_KERNEL_PROGRAM", "uintptr_t", "CL_INVALID_KERNEL")
    name = ffi.new("char[]", kernel_name(kernel).encode())
    return call(program, "clCreateKernel", ffi.string(name), address(code)) or 0


def _exec_infos(kernel: int) -> list[tuple[int, bytes]]:
    """What clSetKernelExecInfo has set on a kernel."""
    found: list[tuple[int, bytes]] = []
    needed = ffi.new("size_t *")
    see = layer().seen_exec_info
    while name := see(kernel, len(found), None, 0, address(needed)):
        room = ffi.new("char[]", needed[0] + 1)
        see(kernel, len(found), address(room), needed[0], address(needed))
        found.append((name, bytes(ffi.buffer(room, needed[0]))))
    return found


def _void(handle: int) -> Any:
    return ffi.cast("void *", handle)


def kind_of(kernel: int, index: int, data: bytes | None) -> int:
    """Return what an argument is that clSetKernelArg has set: VALUE, MEMORY or SAMPLER."""
    if data is None or len(data) != _POINTER_SIZE or not any(data):
        return VALUE
    object_ = int.from_bytes(data, "little")
    return lib.fl_kind_of_argument(_void(kernel), index, _void(object_))


class LayerArguments:
    """The arguments of a launch, as changes of an empty list.

    Args:
        buffer: the command-buffer. The list keeps memory objects and samplers; this keeps what
            memory objects are parts of.
        kernel: the kernel.
        count: how many arguments it has.
    """

    def __init__(self, buffer: LayerCommandBuffer, kernel: int, count: int) -> None:
        self.changes = ffi.new("fl_change[]", max(1, count))
        self.count, self.pointers = count, list[int]()
        self._kept: list[Any] = []
        see, needed, pointer = layer().seen_argument, ffi.new("size_t *"), ffi.new("void **")
        room = ffi.new("char[64]")
        for index in range(count):
            places = address(needed), address(pointer)
            kind = see(kernel, index, address(room), 64, *places)
            if kind == _UNSET:
                raise refused("CL_INVALID_KERNEL_ARGS", f"argument {index} was never set")
            if kind == _SET_POINTER:
                self.pointers.append(index)
                self.changes[index] = (index, POINTER, 0, pointer[0])
                continue
            held = room
            if needed[0] > 64:
                held = ffi.new("char[]", needed[0])
                see(kernel, index, address(held), needed[0], *places)
            data = bytes(ffi.buffer(held, needed[0])) if pointer[0] else None
            self._set(buffer, kernel, index, needed[0], data)

    def _set(
        self, buffer: LayerCommandBuffer, kernel: int, index: int, size: int, data: bytes | None
    ) -> None:
        kind, value = kind_of(kernel, index, data), ffi.NULL
        if data is not None:
            value = ffi.new("char[]", data)
            self._kept.append(value)
        if kind == MEMORY and data is not None:
            keep_parents(buffer, int.from_bytes(data, "little"))
        self.changes[index] = (index, kind, size, value)

    def make(self) -> Any:
        """Return the list, an `fl_arguments *`, a reference. Raises MemoryError."""
        made = lib.fl_change_arguments(ffi.NULL, self.count, self.changes, self.count)
        if not made:
            raise MemoryError("no memory for a launch's arguments")
        return made


def _fields_of(recording: CommandRecording) -> int:
    """What of the launch can be updated. Raises OpenCLError."""
    name, device = "CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR", recording.queue.device
    given = recording.given.get(_FIELDS, _ALL_FIELDS)
    check_bits(given, _ALL_FIELDS, name)
    has_svm = ask_all(device, "clGetDeviceInfo", "CL_DEVICE_SVM_CAPABILITIES", "uint64_t", 1)[0]
    exec_info = OPENCL["CL_MUTABLE_DISPATCH_EXEC_INFO_KHR"]
    if not has_svm and recording.given.get(_FIELDS, 0) & exec_info:
        raise refused("CL_INVALID_OPERATION", f"{name} does not have CL_…_EXEC_INFO_KHR")
    return given if has_svm else given & ~exec_info


def check_kernel(buffer: LayerCommandBuffer, kernel: int | None, device: int) -> int:
    """Check a kernel for a device, and return how many arguments it has.

    Raises:
        OpenCLError: CL_INVALID_KERNEL, CL_INVALID_CONTEXT, CL_INVALID_PROGRAM_EXECUTABLE.
    """
    if not kernel:
        raise refused("CL_INVALID_KERNEL", "the kernel is NULL")
    found = {
        name: ask(kernel, "clGetKernelInfo", f"CL_KERNEL_{name}", kind, "CL_INVALID_KERNEL")
        for name, kind in (
            ("CONTEXT", "uintptr_t"),
            ("PROGRAM", "uintptr_t"),
            ("NUM_ARGS", "uint32_t"),
        )
    }
    if found["CONTEXT"] != buffer.context:
        raise refused("CL_INVALID_CONTEXT", "the kernel is of another context")
    built = ask_all(
        *(found["PROGRAM"], "clGetProgramBuildInfo", "CL_PROGRAM_BUILD_STATUS", "int32_t", 1),
        device,
    )[0]
    if built:
        raise refused("CL_INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device")
    return found["NUM_ARGS"]


@records(known=(_FIELDS, _ASSERTS))
def clCommandNDRangeKernelKHR(
    recording: CommandRecording,
    kernel: int | None,
    dim: int,
    offset: int | None,
    size: int | None,
    local: int | None,
) -> LayerCommand:
    buffer, device = recording.buffer, recording.queue.device
    fields, asserts = _fields_of(recording), recording.given.get(_ASSERTS, 0)
    check_bits(asserts, ALL_ASSERTS, "the asserts")
    count = check_kernel(buffer, kernel, device)
    launch = range_of(dim, offset, size, local)
    assert kernel is not None
    check_sizes(kernel, device, launch)
    arguments = LayerArguments(buffer, kernel, count)
    _check_alignment(recording, arguments)
    copy = copy_of(buffer, kernel, arguments.pointers)
    made = recording.add(
        "kernel",
        "NDRANGE_KERNEL",
        launch.numbers,
        kernel=copy,
        arguments=arguments.make(),
        work_dim=dim,
        has_offset=launch.offset is not None,
        has_local=launch.local is not None,
    )
    made.kernel, made.fields, made.asserts = kernel, fields, asserts | buffer.asserts
    made.groups = launch.groups
    return made


def _check_alignment(recording: CommandRecording, arguments: LayerArguments) -> None:
    """Check where sub-buffers begin. Raises OpenCLError (CL_MISALIGNED_SUB_BUFFER_OFFSET)."""
    for change in arguments.changes:
        if change.kind == MEMORY and change.value:
            handle = ffi.cast("uintptr_t *", change.value)[0]
            offset = ask_all(handle, "clGetMemObjectInfo", "CL_MEM_OFFSET", "size_t", 1)[0]
            check_alignment(offset, recording.queue.device)


def check_on_copy(copy: int, index: int, kind: int, size: int, value: int | None) -> None:
    """Let the driver check an argument, on our copy. Raises OpenCLError: what it answers."""
    if kind == POINTER:
        code = call(copy, "clSetKernelArgSVMPointer", index, value)
        check(code, "clSetKernelArgSVMPointer", f"It is argument {index}.")
    else:
        code = call(copy, "clSetKernelArg", index, size, value)
        check(code, "clSetKernelArg", f"It is argument {index}.")
