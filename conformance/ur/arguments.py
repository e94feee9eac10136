"""Valid calls of every entry point, as lists of arguments that a case then changes.

A parameter's valid value follows from its type in the ABI data, and from the tables here, which
know names: sizes that fit each other, objects of the `World`, correct structs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import unsupported
from fairlead.loader.base.abi import Parameter
from fairlead.loader.ur.abi import UR

from .objects import COUNT, SIZE
from .spirv import SPEC_ID, make_store
from .values import CALLBACK, BufferValue
from .world import World

_BLOCK: Final = 1 << 12  # bytes behind every pointer about which nothing else is known

#: The world's object of each type of handle.
_HANDLES: Final[dict[str, Callable[[World], int]]] = {
    "ur_adapter_handle_t": lambda w: w.adapter,
    "ur_platform_handle_t": lambda w: w.platform,
    "ur_device_handle_t": lambda w: w.device,
    "ur_context_handle_t": lambda w: w.the_context,
    "ur_queue_handle_t": lambda w: w.the_queue,
    "ur_event_handle_t": lambda w: w.the_event,
    "ur_mem_handle_t": lambda w: w.the_buffer,
    "ur_program_handle_t": lambda w: w.the_program,
    "ur_kernel_handle_t": lambda w: w.the_kernel,
    "ur_sampler_handle_t": lambda w: w.the_sampler,
    "ur_usm_pool_handle_t": lambda w: w.the_pool,
    "ur_exp_command_buffer_handle_t": lambda w: w.open_command_buffer,
    "ur_exp_command_buffer_command_handle_t": lambda w: w.updatable[1],
}

#: Objects and numbers by the name of the parameter, or by function and name.
_NAMED: Final[dict[str, Callable[[World], Any]]] = {
    "hImage": lambda w: w.the_image,
    "hImageSrc": lambda w: w.the_image,
    "hImageDst": lambda w: w.other_image,
    "urMemImageGetInfo.hMemory": lambda w: w.the_image,
    "hBufferDst": lambda w: w.other_buffer,
    "hDstMem": lambda w: w.other_buffer,
    "pMappedPtr": lambda w: w.mapped,
    "urEnqueueKernelLaunch.hKernel": lambda w: w.empty_kernel,
    "urCommandBufferAppendKernelLaunchExp.hKernel": lambda w: w.empty_kernel,
    "numArgs": lambda w: 2,
    "pArgs": lambda w: w.arguments(BufferValue(w.the_buffer), ctypes.c_int32(1))[1],
    "urEnqueueCommandBufferExp.hCommandBuffer": lambda w: w.closed_command_buffer,
    "urCommandBufferUpdateKernelLaunchExp.hCommandBuffer": lambda w: w.updatable[0],
    "size": lambda w: COUNT,
    "urMemBufferCreate.size": lambda w: SIZE,
    "patternSize": lambda w: 4,
    "workDim": lambda w: 1,
    "numWorkDim": lambda w: 1,
    "urProgramSetSpecializationConstants.hProgram": lambda w: w.unbuilt_program,
    # without support for command events an append with one is refused
    "pSyncPoint": lambda w: None,
    "phCommand": lambda w: None,
    "pGlobalWorkOffset": lambda w: sizes(0, 0, 0),
    "pGlobalWorkSize": lambda w: sizes(COUNT, 1, 1),
    "pLocalWorkSize": lambda w: sizes(1, 1, 1),
    "width": lambda w: 16,
    "height": lambda w: 2,
    "pitch": lambda w: 16,
    "srcPitch": lambda w: 16,
    "dstPitch": lambda w: 16,
    "widthInBytes": lambda w: 64,
    "elementSizeBytes": lambda w: 4,
    "bufferRowPitch": lambda w: 16,
    "hostRowPitch": lambda w: 16,
    "srcRowPitch": lambda w: 16,
    "dstRowPitch": lambda w: 16,
    "bufferSlicePitch": lambda w: 32,
    "hostSlicePitch": lambda w: 32,
    "srcSlicePitch": lambda w: 32,
    "dstSlicePitch": lambda w: 32,
    "flags": lambda w: 0,
    "advice": lambda w: 0,
    "urMemBufferCreate.flags": lambda w: UR["UR_MEM_FLAG_READ_WRITE"],
    "urMemBufferPartition.flags": lambda w: UR["UR_MEM_FLAG_READ_WRITE"],
    "urMemImageCreate.flags": lambda w: UR["UR_MEM_FLAG_READ_WRITE"],
    "mapFlags": lambda w: UR["UR_MAP_FLAG_READ"],
    "DeviceType": lambda w: UR["UR_DEVICE_TYPE_ALL"],
    "propSize": lambda w: _BLOCK,
    "pKernelName": lambda w: b"store",
    "pFunctionName": lambda w: b"store",
    "pFrontendOption": lambda w: b"-O2",
    "pGlobalVariableName": lambda w: b"variable",
    "pIL": lambda w: w.keep(ctypes.create_string_buffer(make_store())),
    "length": lambda w: len(make_store()),
    **{
        f"urEnqueueMemImage{what}.region": lambda w: UR.get_struct("ur_rect_region_t")(4, 4, 1)
        for what in ("Read", "Write", "Copy")
    },
    "urUSMGetMemAllocInfo.pMem": lambda w: w.the_usm,
    "urUSMFree.pMem": lambda w: w.the_usm,
    "urEventSetCallback.execStatus": lambda w: UR["UR_EXECUTION_INFO_COMPLETE"],
    "hNativePlatform": lambda w: w.native("urPlatformGetNativeHandle", w.platform),
    "hNativeDevice": lambda w: w.native("urDeviceGetNativeHandle", w.device),
    "hNativeContext": lambda w: w.native("urContextGetNativeHandle", w.the_context),
    "hNativeEvent": lambda w: w.native("urEventGetNativeHandle", w.the_event),
    "hNativeProgram": lambda w: w.native("urProgramGetNativeHandle", w.the_program),
    "hNativeKernel": lambda w: w.native("urKernelGetNativeHandle", w.the_kernel),
    "hNativeSampler": lambda w: w.native("urSamplerGetNativeHandle", w.the_sampler),
    "hNativeQueue": lambda w: _query_native(w, "urQueueGetNativeHandle", w.the_queue, None),
    "hNativeMem": lambda w: _query_native(w, "urMemGetNativeHandle", w.the_buffer, w.device),
}

#: How to fill the structs that functions take, besides `stype`.
_STRUCTS: Final[dict[str, Callable[[World], dict[str, Any]]]] = {
    "ur_image_format_t": lambda w: {
        "channelOrder": UR["UR_IMAGE_CHANNEL_ORDER_RGBA"],
        "channelType": UR["UR_IMAGE_CHANNEL_TYPE_FLOAT"],
    },
    "ur_image_desc_t": lambda w: {
        "type": UR["UR_MEM_TYPE_IMAGE2D"],
        "width": 8,
        "height": 8,
        "depth": 1,
        "arraySize": 1,
    },
    "ur_sampler_desc_t": lambda w: {
        "addressingMode": UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE"]
    },
    "ur_buffer_region_t": lambda w: {"origin": 0, "size": COUNT},
    "ur_device_partition_properties_t": lambda w: {
        "pProperties": ctypes.addressof(w.keep(_make_partition())),
        "PropCount": 1,
    },
    "ur_device_binary_t": lambda w: {
        "pDeviceTargetSpec": ctypes.cast(w.keep(ctypes.c_char_p(b"spir64")), ctypes.c_void_p).value
    },
    "ur_specialization_constant_info_t": lambda w: {
        "id": SPEC_ID,
        "size": 4,
        "pValue": ctypes.addressof(w.keep(ctypes.c_int32(1))),
    },
    "ur_exp_command_buffer_update_kernel_launch_desc_t": lambda w: {
        "hCommand": w.updatable[1],
        "newWorkDim": 1,
    },
    "ur_rect_region_t": lambda w: {"width": 16, "height": 2, "depth": 2},
}

#: The objects that errors.txt names by a word.
_WORDS: Final[dict[str, Callable[[World], Any]]] = {
    "events": lambda w: handles(w.the_event),
    "nulls": lambda w: handles(0),
    "failed": lambda w: handles(w.failed_event),
    "points": lambda w: (ctypes.c_uint32 * 1)(1),
    "kernels": lambda w: handles(w.other_kernel),
    "block": lambda w: ctypes.create_string_buffer(b"\x5a" * 64, _BLOCK),
    "zeros": lambda w: sizes(0, 0, 0),
    "no_name": lambda w: b"no such name",
    "largest": lambda w: w.ur.device_says("UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE") + 1,
    "huge": lambda w: (1 << 64) - 1,
}

_INVALID_ENUMERATION: Final = 0x7FFFFF00


class Call:
    """A valid call of a function: `arguments` by name, in order."""

    def __init__(self, world: World, function: str) -> None:
        self.world, self.function = world, UR.functions[function]
        self.arguments: dict[str, Any] = {}
        for parameter in self.function.parameters:
            self.arguments[parameter.name] = self._make_valid(parameter)

    def __call__(self) -> int:
        """Call the function and return the code."""
        pairs = zip(self.function.parameters, self.arguments.values(), strict=True)
        given = (
            ctypes.byref(value) if p.stars and isinstance(value, ctypes.Structure) else value
            for p, value in pairs
        )
        return getattr(self.world.ur.table, self.function.name)(*given)

    def change(self, name: str, field: str, word: str) -> None:
        """Change an argument, or a field of the struct that it points to: see errors.txt."""
        parameter = next(p for p in self.function.parameters if p.name == name)
        if field:
            self._change_field(parameter, field, word)
        else:
            self.arguments[name] = self._read_value(parameter, word)

    def _change_field(self, parameter: Parameter, field: str, word: str) -> None:
        """Change a field of the struct that an argument points to."""
        struct = self.arguments[parameter.name]
        if isinstance(struct, ctypes.Array):
            struct = struct[0]
        if struct is None:
            struct = self.arguments[parameter.name] = self._make_struct(parameter.type)
        member = next(f for f in UR.structs[parameter.type].fields if f.name == field)
        value = self._read_value(member, word)
        if isinstance(value, ctypes.Array):
            value = ctypes.addressof(self.world.keep(value))
        setattr(struct, field, value)

    def _read_value(self, parameter: Parameter, word: str) -> Any:
        """Return what a word of errors.txt means, as an argument or as the value of a field."""
        if word == "?":
            return 1 << 30 if UR.is_bitfield(parameter.type) else _INVALID_ENUMERATION
        if word == "same_kernel":
            return self.world.keep(handles(self.arguments["hKernel"]))
        if word in _WORDS:
            return self.world.keep(_WORDS[word](self.world))
        if not word:
            return (
                None
                if parameter.stars or UR.resolve(parameter.type) in ("handle", "callback")
                else 0
            )
        return int(word) if word.isdecimal() else sum(UR[name] for name in word.split("|"))

    def _make_valid(self, parameter: Parameter) -> Any:
        """Return a valid argument."""
        name, function = parameter.name, self.function.name
        named = _NAMED.get(f"{function}.{name}") or _NAMED.get(name)
        if named:
            return named(self.world)
        if name == "phEvent" and "optional" in parameter.words:
            return None
        if parameter.stars and not {"out", "inout"}.isdisjoint(parameter.words):
            return self._make_block()
        if parameter.stars:
            return self._make_pointer(parameter)
        base = UR.resolve(parameter.type)
        if base == "handle":
            return self.handle(parameter.type)
        if base == "callback":
            return CALLBACK
        if base == "struct":
            return self._make_struct(parameter.type)
        if parameter.type in UR.groups and not UR.is_bitfield(parameter.type):
            return next(iter(UR.groups[parameter.type]))
        return self._make_number(parameter)

    def _make_number(self, parameter: Parameter) -> int:
        """Return 1 for the count of a mandatory list, else 0."""
        counted = [p for p in self.function.parameters if p.length == parameter.name]
        return int(any("optional" not in p.words or "out" in p.words for p in counted))

    def _make_pointer(self, parameter: Parameter) -> Any:
        """Return what a parameter points to.

        That is NULL if it is allowed, else a value of the type, else a block of bytes.
        """
        if "optional" in parameter.words:
            return None
        base = UR.resolve(parameter.type)
        if base == "handle" and parameter.stars == 1:
            return self.world.keep(handles(self.handle(parameter.type)))
        if base == "struct" and parameter.stars == 1:
            return self._make_struct(parameter.type)
        if parameter.type == "char":
            return b"" if parameter.stars == 1 else self._make_block()
        if parameter.name in ("pMem", "pMemory", "pDst", "pSrc") and "USM" in self.function.name:
            return self.world.other_usm if parameter.name == "pDst" else self.world.the_usm
        return self._make_block()

    def handle(self, kind: str) -> int:
        """Return a valid object of a type."""
        if kind not in _HANDLES:
            unsupported(f"the suite makes no object of type {kind}")
        return _HANDLES[kind](self.world)

    def _make_struct(self, name: str) -> Any:
        made = self.world.ur.struct(name, **_STRUCTS.get(name, lambda w: {})(self.world))
        return self.world.keep(made)

    def _make_block(self) -> Any:
        return self.world.keep(ctypes.create_string_buffer(_BLOCK))


def _query_native(world: World, routine: str, handle: int, more: Any) -> int:
    return world.ur.new(routine, handle, more)


def _make_partition() -> Any:
    one = UR.get_struct("ur_device_partition_property_t")(type=UR["UR_DEVICE_PARTITION_EQUALLY"])
    one.value.equally = 1
    return one
