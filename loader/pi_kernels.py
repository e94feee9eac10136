"""Kernels of PI served from Unified Runtime: their arguments, their launches, and where the releases of UR differ.

Adapters up to 2026.1 take arguments one by one (urKernelSetArg…), as PI gives them. One of 2026.2 takes all of them with the launch, so
that they wait in `Service.kernels` until then. What the adapter has decides, not what it calls itself.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .pi import PI
from .pi_mapping import ENUMS, new
from .pi_translation import context_devices, serves, text, word_of
from .ur import UR

if TYPE_CHECKING:
    from .pi_from_ur import Service


@dataclass(frozen=True)
class KernelArgument:
    """An argument that waits for its launch: a UR_EXP_KERNEL_ARG_TYPE_…, the size, and for a value its bytes, else word and flags."""

    kind: str
    size: int
    word: int = 0
    flags: int = 0
    data: bytes = b""


_SET: Final = "urKernelSetArgValue"  # stands for all that set one argument


@serves("piKernelCreate")
def _kernel_create(service: Service, program: int, name: int, kernel: int) -> int:
    return _fresh(service, service.call("urKernelCreate", program, text(name), kernel), kernel)


@serves("piextKernelCreateWithNativeHandle")
def _kernel_from_native(service: Service, native: int, context: int, program: int, owned: int, kernel: int) -> int:
    given = ctypes.byref(new("ur_kernel_native_properties_t", isNativeHandleOwned=bool(owned)))
    return _fresh(service, service.call("urKernelCreateWithNativeHandle", native, context, program, given, kernel), kernel)


def _fresh(service: Service, code: int, kernel: int) -> int:
    """A new kernel may have the handle of one that is gone: it has none of its arguments."""
    if not code:
        service.kernels.pop(ctypes.c_uint64.from_address(kernel).value, None)
    return code


def _set_argument(service: Service, kernel: int, index: int, given: KernelArgument, name: str, *arguments: Any) -> int:
    """Set it now if the adapter can, else when the kernel is launched."""
    if service.has(name):
        return service.call(name, kernel, index, *arguments)
    service.kernels.setdefault(kernel, {})[index] = given
    return 0


@serves("piKernelSetArg")
def _set_arg(service: Service, kernel: int, index: int, size: int, value: int) -> int:
    """Without a value it is local memory."""
    if not value:
        return _set_argument(service, kernel, index, KernelArgument("LOCAL", size), "urKernelSetArgLocal", size, None)
    given = KernelArgument("VALUE", size, data=ctypes.string_at(value, size))
    return _set_argument(service, kernel, index, given, "urKernelSetArgValue", size, None, value)


@serves("piextKernelSetArgPointer")
def _set_arg_pointer(service: Service, kernel: int, index: int, size: int, value: int) -> int:
    """PI gives the address of the pointer, UR wants the pointer."""
    pointer = ctypes.c_uint64.from_address(value).value if value else 0
    given = KernelArgument("POINTER", size, word=pointer)
    return _set_argument(service, kernel, index, given, "urKernelSetArgPointer", None, pointer)


@serves("piextKernelSetArgMemObj")
def _set_arg_mem(service: Service, kernel: int, index: int, properties: int, value: int) -> int:
    mem = ctypes.c_uint64.from_address(value).value if value else 0
    flags, given = 0, None
    if properties:
        access = PI.struct("pi_mem_obj_property").from_address(properties).mem_access
        flags = ENUMS["pi_mem_obj_access"].to_ur(access)
        given = ctypes.byref(new("ur_kernel_arg_mem_obj_properties_t", memoryAccess=flags))
    return _set_argument(service, kernel, index, KernelArgument("MEM_OBJ", 8, mem, flags), "urKernelSetArgMemObj", given, mem)


@serves("piextKernelSetArgSampler")
def _set_arg_sampler(service: Service, kernel: int, index: int, value: int) -> int:
    sampler = ctypes.c_uint64.from_address(value).value if value else 0
    return _set_argument(service, kernel, index, KernelArgument("SAMPLER", 8, sampler), "urKernelSetArgSampler", None, sampler)


def _arguments(service: Service, kernel: int) -> Any:
    """The kernel's arguments as a launch takes them: an array of ur_exp_kernel_arg_properties_t, in the order of their indices."""
    given = sorted(service.kernels.get(kernel, {}).items())
    array = (UR.struct("ur_exp_kernel_arg_properties_t") * len(given))()
    array.kept = []
    for entry, (index, value) in zip(array, given, strict=False):
        entry.stype = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"]
        entry.type = UR[f"UR_EXP_KERNEL_ARG_TYPE_{value.kind}"]
        entry.index, entry.size = index, value.size
        if value.kind == "MEM_OBJ":
            entry.value.memObjTuple.hMem, entry.value.memObjTuple.flags = value.word, value.flags
        elif value.kind == "VALUE":
            array.kept.append(ctypes.create_string_buffer(value.data, max(value.size, 1)))
            entry.value.value = ctypes.addressof(array.kept[-1])
        else:
            entry.value.pointer = value.word
    return array


@serves("piEnqueueKernelLaunch")
def _launch(service: Service, queue: int, kernel: int, *arguments: int, flags: int = 0) -> int:
    """`arguments`: dimensions, offset, global size, local size; number of events, events, event."""
    sizes, events = arguments[:4], arguments[4:]
    extra = ctypes.byref(new("ur_kernel_launch_ext_properties_t", flags=flags)) if flags else None
    if not service.has(_SET):
        values = _arguments(service, kernel)
        return service.call("urEnqueueKernelLaunchWithArgsExp", queue, kernel, *sizes, len(values), values, extra, *events)
    if service.has("urEnqueueKernelLaunch_2025_3"):
        properties = (_LaunchProperty * 1)(_LaunchProperty(1, (1, 0))) if flags else None
        return service.call("urEnqueueKernelLaunch_2025_3", queue, kernel, *sizes, len(properties or ()), properties, *events)
    return service.call("urEnqueueKernelLaunch", queue, kernel, *sizes, extra, *events)


@serves("piextEnqueueCooperativeKernelLaunch")
def _launch_cooperative(service: Service, queue: int, kernel: int, *arguments: int) -> int:
    return _launch(service, queue, kernel, *arguments, flags=UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"])


class _LaunchProperty(ctypes.Structure):
    """An element of the list that 2025.3 takes: 24 bytes, an id (1: cooperative) and its value."""

    _fields_ = (("id", ctypes.c_uint32), ("value", ctypes.c_uint64 * 2))


@serves("piextCommandBufferNDRangeKernel")
def _append_launch(service: Service, buffer: int, kernel: int, *arguments: int) -> int:
    """`arguments`: dimensions, offset, global size, local size; number of sync points, sync points, sync point."""
    *first, sync_point = arguments
    sizes, waits = first[:4], first[4:]
    rest = (0, None, *waits, 0, None, sync_point, None, None)
    if not service.has(_SET):
        values = _arguments(service, kernel)
        name = "urCommandBufferAppendKernelLaunchWithArgsExp"
        return service.call(name, buffer, kernel, *sizes, len(values), values, *rest)
    return service.call("urCommandBufferAppendKernelLaunchExp", buffer, kernel, *sizes, *rest)


@serves("piextKernelSuggestMaxCooperativeGroupCount")
def _suggest_group_count(service: Service, kernel: int, local_size: int, dynamic_size: int, count: int) -> int:
    """UR asks for a device: the first of the kernel's context."""
    context = word_of(service.query("urKernelGetInfo", kernel, UR["UR_KERNEL_INFO_CONTEXT"]))
    size = ctypes.byref(ctypes.c_size_t(local_size))
    device = context_devices(service, context)[0]
    return service.call("urKernelSuggestMaxCooperativeGroupCount", kernel, device, 1, size, dynamic_size, count)


@serves("piKernelSetExecInfo")
def _set_exec_info(service: Service, kernel: int, name: int, size: int, value: int) -> int:
    """A pi_bool has four bytes, UR's one; pointers are the same in both."""
    asked = ENUMS["pi_kernel_exec_info"].to_ur(name)
    given: Any = value
    if name == PI["PI_USM_INDIRECT_ACCESS"]:
        given, size = ctypes.c_uint8(ctypes.c_uint32.from_address(value).value != 0), 1
    elif name == PI["PI_EXT_KERNEL_EXEC_INFO_CACHE_CONFIG"]:
        given = ctypes.c_uint32(ENUMS["pi_kernel_cache_config"].to_ur(ctypes.c_uint32.from_address(value).value))
    return service.call("urKernelSetExecInfo", kernel, asked, size, None, given if given is value else ctypes.byref(given))
