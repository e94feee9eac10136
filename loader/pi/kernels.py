"""Kernels of PI, served from Unified Runtime: arguments and launches.

Adapters up to 2026.1 take arguments one by one (urKernelSetArg…), as PI does. Adapters of 2026.2
take all of them with the launch. Until then, `Service.kernels` stores them. The functions of the
adapter decide, not its version.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from ..ur.abi import UR, URError
from .abi import PI
from .mapping import ENUMS, make_struct
from .queries import query_context_devices
from .translation import make_c_string, read_word, serves

if TYPE_CHECKING:
    from .serve import Service


_Entry: Final = UR.get_struct("ur_exp_kernel_arg_properties_t")
_STYPE: Final = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"]
_VALUE, _POINTER, _MEM_OBJ, _LOCAL, _SAMPLER = (
    UR[f"UR_EXP_KERNEL_ARG_TYPE_{kind}"]
    for kind in ("VALUE", "POINTER", "MEM_OBJ", "LOCAL", "SAMPLER")
)
_SET: Final = "urKernelSetArgValue"  # an adapter has all functions that set an argument, or none


class KernelArguments:
    """The arguments of a kernel until its launch.

    Attributes:
        array: the entries that a launch takes, in the order of their indices. They point into
            `_values`, where a new value for an argument replaces the old one.
    """

    def __init__(self) -> None:
        self.array: Any = (_Entry * 0)()
        self._entries: dict[int, Any] = {}
        self._values: dict[int, Any] = {}

    def set(self, index: int, kind: int, size: int, word: int = 0, flags: int = 0) -> None:
        """Set an argument.

        Args:
            kind: its type, UR_EXP_KERNEL_ARG_TYPE_….
            size: its size in bytes.
            word: the address of a value, otherwise the handle or the pointer.
            flags: how a memory object is accessed.
        """
        entry = self._entries.get(index)
        if entry is None:
            entry = self._insert(index)
        entry.type, entry.size = kind, size
        if kind == _VALUE:
            room = self._values.get(index)
            if room is None or len(room) < size:
                room = self._values[index] = ctypes.create_string_buffer(max(size, 8))
            ctypes.memmove(room, word, size)
            entry.value.value = ctypes.addressof(room)
        elif kind == _MEM_OBJ:
            entry.value.memObjTuple.hMem, entry.value.memObjTuple.flags = word, flags
        else:
            entry.value.pointer = word

    def _insert(self, index: int) -> Any:
        """Insert an entry, which needs a new array."""
        old = {**self._entries, index: _Entry(stype=_STYPE, index=index)}
        self.array = (_Entry * len(old))(*[old[key] for key in sorted(old)])
        self._entries = dict(zip(sorted(old), self.array, strict=True))
        return self._entries[index]


#: The arguments of a kernel without arguments.
_NONE: Final = KernelArguments()


@serves("piKernelCreate")
def _create_kernel(service: Service, program: int, name: int, kernel: int) -> int:
    return _forget_arguments(
        service, service.call("urKernelCreate", program, make_c_string(name), kernel), kernel
    )


@serves("piextKernelCreateWithNativeHandle")
def _create_kernel_from_native(
    service: Service, native: int, context: int, program: int, owned: int, kernel: int
) -> int:
    given = ctypes.byref(
        make_struct("ur_kernel_native_properties_t", isNativeHandleOwned=bool(owned))
    )
    return _forget_arguments(
        service,
        service.call("urKernelCreateWithNativeHandle", native, context, program, given, kernel),
        kernel,
    )


def _forget_arguments(service: Service, code: int, kernel: int) -> int:
    """Forget the arguments of a freed kernel whose handle a new kernel has got."""
    if not code:
        service.kernels.pop(ctypes.c_uint64.from_address(kernel).value, None)
    return code


@serves("piKernelRelease")
def _release_kernel(service: Service, kernel: int) -> int:
    """The last release also frees the stored arguments."""
    is_last = kernel in service.kernels and _count_references(service, kernel) == 1
    code = service.call("urKernelRelease", kernel)
    if is_last and not code:
        service.kernels.pop(kernel, None)
    return code


def _count_references(service: Service, kernel: int) -> int:
    try:
        return read_word(
            service.query("urKernelGetInfo", kernel, UR["UR_KERNEL_INFO_REFERENCE_COUNT"])
        )
    except URError:
        return 0


def _store_argument(
    service: Service, kernel: int, index: int, kind: int, size: int, word: int = 0, flags: int = 0
) -> int:
    """Store an argument until the kernel is launched."""
    arguments = service.kernels.get(kernel)
    if arguments is None:
        arguments = service.kernels.setdefault(kernel, KernelArguments())
    arguments.set(index, kind, size, word, flags)
    return 0


@serves("piKernelSetArg")
def _set_arg(service: Service, kernel: int, index: int, size: int, value: int) -> int:
    """Without a value, the argument is local memory."""
    if not service.has(_SET):
        return _store_argument(service, kernel, index, _VALUE if value else _LOCAL, size, value)
    if value:
        return service.call("urKernelSetArgValue", kernel, index, size, None, value)
    return service.call("urKernelSetArgLocal", kernel, index, size, None)


@serves("piextKernelSetArgPointer")
def _set_arg_pointer(service: Service, kernel: int, index: int, size: int, value: int) -> int:
    """PI passes the address of the pointer, UR the pointer."""
    pointer = _read_word(value)
    if not service.has(_SET):
        return _store_argument(service, kernel, index, _POINTER, size, pointer)
    return service.call("urKernelSetArgPointer", kernel, index, None, pointer)


@serves("piextKernelSetArgMemObj")
def _set_arg_mem(service: Service, kernel: int, index: int, properties: int, value: int) -> int:
    mem, flags, given = _read_word(value), 0, None
    if properties:
        access = PI.get_struct("pi_mem_obj_property").from_address(properties).mem_access
        flags = ENUMS["pi_mem_obj_access"].convert_to_ur(access)
        given = ctypes.byref(make_struct("ur_kernel_arg_mem_obj_properties_t", memoryAccess=flags))
    if not service.has(_SET):
        return _store_argument(service, kernel, index, _MEM_OBJ, 8, mem, flags)
    return service.call("urKernelSetArgMemObj", kernel, index, given, mem)


@serves("piextKernelSetArgSampler")
def _set_arg_sampler(service: Service, kernel: int, index: int, value: int) -> int:
    sampler = _read_word(value)
    if not service.has(_SET):
        return _store_argument(service, kernel, index, _SAMPLER, 8, sampler)
    return service.call("urKernelSetArgSampler", kernel, index, None, sampler)


def _read_word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value if address else 0


@serves("piEnqueueKernelLaunch")
def _launch(service: Service, queue: int, kernel: int, *arguments: int, flags: int = 0) -> int:
    """Launch a kernel.

    `arguments` are dimensions, offset, global size, local size, number of events, events, event.
    """
    sizes, events = arguments[:4], arguments[4:]
    extra = (
        ctypes.byref(make_struct("ur_kernel_launch_ext_properties_t", flags=flags))
        if flags
        else None
    )
    if not service.has(_SET):
        values = service.kernels.get(kernel, _NONE).array
        return service.call(
            "urEnqueueKernelLaunchWithArgsExp",
            queue,
            kernel,
            *sizes,
            len(values),
            values,
            extra,
            *events,
        )
    if service.has("urEnqueueKernelLaunch_2025_3"):
        properties = (_LaunchProperty * 1)(_LaunchProperty(1, (1, 0))) if flags else None
        return service.call(
            "urEnqueueKernelLaunch_2025_3",
            queue,
            kernel,
            *sizes,
            len(properties or ()),
            properties,
            *events,
        )
    return service.call("urEnqueueKernelLaunch", queue, kernel, *sizes, extra, *events)


@serves("piextEnqueueCooperativeKernelLaunch")
def _launch_cooperative(service: Service, queue: int, kernel: int, *arguments: int) -> int:
    return _launch(
        service, queue, kernel, *arguments, flags=UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
    )


class _LaunchProperty(ctypes.Structure):
    """A launch property of 2025.3: 24 bytes, an id (1: cooperative) and its value."""

    _fields_ = (("id", ctypes.c_uint32), ("value", ctypes.c_uint64 * 2))


@serves("piextCommandBufferNDRangeKernel")
def _append_launch(service: Service, buffer: int, kernel: int, *arguments: int) -> int:
    """Append a launch to a command-buffer.

    `arguments` are dimensions, offset, global size, local size, number of sync points, sync points,
    sync point.
    """
    *first, sync_point = arguments
    sizes, waits = first[:4], first[4:]
    rest = (0, None, *waits, 0, None, sync_point, None, None)
    if not service.has(_SET):
        values = service.kernels.get(kernel, _NONE).array
        name = "urCommandBufferAppendKernelLaunchWithArgsExp"
        return service.call(name, buffer, kernel, *sizes, len(values), values, *rest)
    return service.call("urCommandBufferAppendKernelLaunchExp", buffer, kernel, *sizes, *rest)


@serves("piextKernelSuggestMaxCooperativeGroupCount")
def _suggest_group_count(
    service: Service, kernel: int, local_size: int, dynamic_size: int, count: int
) -> int:
    """UR also takes a device. It is the first one of the kernel's context."""
    context = read_word(service.query("urKernelGetInfo", kernel, UR["UR_KERNEL_INFO_CONTEXT"]))
    size = ctypes.byref(ctypes.c_size_t(local_size))
    device = query_context_devices(service, context)[0]
    return service.call(
        "urKernelSuggestMaxCooperativeGroupCount", kernel, device, 1, size, dynamic_size, count
    )


@serves("piKernelSetExecInfo")
def _set_exec_info(service: Service, kernel: int, name: int, size: int, value: int) -> int:
    """A pi_bool has four bytes, UR's bool has one. Pointers are equal in both."""
    if not value:
        return PI.codes["PI_ERROR_INVALID_VALUE"]
    asked = ENUMS["pi_kernel_exec_info"].convert_to_ur(name)
    given: Any = value
    if name == PI["PI_USM_INDIRECT_ACCESS"]:
        given, size = ctypes.c_uint8(ctypes.c_uint32.from_address(value).value != 0), 1
    elif name == PI["PI_EXT_KERNEL_EXEC_INFO_CACHE_CONFIG"]:
        given = ctypes.c_uint32(
            ENUMS["pi_kernel_cache_config"].convert_to_ur(ctypes.c_uint32.from_address(value).value)
        )
    return service.call(
        "urKernelSetExecInfo",
        kernel,
        asked,
        size,
        None,
        given if given is value else ctypes.byref(given),
    )
