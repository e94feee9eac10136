"""A PI plugin in the form of a Unified Runtime adapter, so that the cases for adapters test it.

`loader/pi/serve.py` makes a plugin of an adapter, by pi_from_ur.map. This goes the other way, by
the same map: a call of a UR function becomes one of the PI function that it serves. What PI cannot
say (an event of a recorded command, a pool) is answered UNSUPPORTED_FEATURE, and so is a function
without a counterpart. Info queries are a suite of their own (test_info.py): here they only answer.

PI has one code for several of UR. `write_in_pi` makes texts of UR speak of PI, and codes that PI
does not tell apart equal.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fairlead.loader.base.abi import Constant, Function
from fairlead.loader.base.layers import Layer
from fairlead.loader.base.query import query
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI, PIError, check
from fairlead.loader.pi.mapping import ENUMS, FUNCTIONS, RESULTS, STRUCTS, Enum
from fairlead.loader.pi.serve import split_line, write_answer
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.plugin import Plugin

_KINDS: Final = "platform", "device", "context", "queue", "program", "kernel", "event", "sampler"
#: The handle of the adapter that PI does not have.
_ADAPTER: Final = 1
_UNSUPPORTED: Final = PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]
#: PI code to UR code: the one of the same name, else the first that the map has.
_CODES: Final[dict[int, int]] = {}
for _ur, _pi in RESULTS.items():
    if _pi not in _CODES or UR.errors[_ur][0][10:] == PI.errors[_pi][0][2:]:
        _CODES[_pi] = _ur

#: A type of UR's handles to PI's code for a wrong one.
_HANDLES: Final = {
    f"ur_{kind}_handle_t": PI.codes[f"PI_ERROR_INVALID_{code}"]
    for kind, code in (
        *((kind, kind.upper()) for kind in _KINDS),
        ("mem", "MEM_OBJECT"),
        ("exp_command_buffer", "COMMAND_BUFFER_KHR"),
    )
}

#: What makes a PI call's arguments of a UR call's words.
_Maker = Callable[[Sequence[int]], Any]
#: A UR function to the Python function that calls PI instead. It returns PI's code.
_WRITTEN: Final[dict[str, Callable[..., int]]] = {}


class _NoCounterpart(Exception):
    """PI cannot say what a call of UR says."""


def as_adapter(plugin: Plugin) -> Plugin:
    """Return a plugin's functions, platforms and devices as those of an adapter."""
    layer = Layer(UR, 0, UR.codes["UR_RESULT_ERROR_UNINITIALIZED"])
    layer.handle(_Calls(plugin).answer)
    known = {*_WRITTEN, *_MAPPED}
    return dataclasses.replace(
        plugin,
        candidate=dataclasses.replace(plugin.candidate, interface="UR"),
        binding=dataclasses.replace(
            plugin.binding,
            table=DispatchTable(UR, layer.address, label="UR on PI"),
            missing=frozenset(name for name in UR.functions if name not in known),
        ),
        handles=(_ADAPTER,),
        validation=None,
    )


def write_in_pi(text: str) -> str:
    """Return a text with PI's names of functions, of codes and of other constants."""
    return re.sub(r"\b(ur[A-Z]\w+|UR_\w+)", lambda found: _NAMES.get(found[0], found[0]), text)


class _Calls:
    """Answers calls of UR by calls of a plugin."""

    def __init__(self, plugin: Plugin) -> None:
        self.pi = plugin.table

    def answer(self, slot: int, words: Sequence[int]) -> int:
        """Answer a call with its ur_result_t."""
        function = UR.slots[slot]
        try:
            if function.name in _WRITTEN:
                code = _WRITTEN[function.name](self.pi, *words)
            elif function.name in _MAPPED:
                code = _MAPPED[function.name](self.pi, words)
            else:
                code = _UNSUPPORTED
        except _NoCounterpart:
            code = _UNSUPPORTED
        except PIError as error:
            code = error.value
        for parameter, word in zip(function.parameters, words, strict=True):
            # UR has a code of its own for a NULL of any type
            if not word and not parameter.stars and _HANDLES.get(parameter.type) == code:
                return UR.codes["UR_RESULT_ERROR_INVALID_NULL_HANDLE"]
        return _CODES.get(code, UR.codes["UR_RESULT_ERROR_UNKNOWN"])


# Functions of the map


def _to_pi(type_: str, value: int) -> int:
    """Return a UR constant, or bits, in a type of PI."""
    enum = ENUMS[type_]
    if value in enum.answers:
        return enum.answers[value]
    bits = [1 << n for n in range(value.bit_length()) if value >> n & 1]
    if not enum.bits or any(bit not in enum.answers for bit in bits):
        raise _NoCounterpart
    return sum(enum.answers[bit] for bit in bits)


def _struct_to_pi(address: int, name: str) -> Any:
    """Return the PI struct that is made of the UR struct `name` at an address."""
    if not address:
        return None
    pi, fields = STRUCTS[name]
    types = {field.name: field.type for field in PI.structs[pi].fields}
    source, made = UR.get_struct(name).from_address(address), PI.get_struct(pi)()
    stype = UR.constants.get(f"UR_STRUCTURE_TYPE_{name[3:-2].upper()}")
    if stype and getattr(source, "stype", stype.value) != stype.value:
        raise _NoCounterpart
    for ur, of in fields.items():
        value = getattr(source, ur)
        setattr(made, of, _to_pi(types[of], value) if types[of] in ENUMS else value)
    return ctypes.byref(made)


def _as_text(make: _Maker) -> _Maker:
    return lambda words: _text(make(words))


class _BackwardCall:
    """A UR function that a line of the map calls, called backwards."""

    def __init__(self, function: Function, line: str) -> None:
        self.function = function
        ur, texts = split_line(function, line)
        self.fixed: list[tuple[int, int]] = []  # what PI always gives UR
        self.given: list[int] = []  # what PI has no parameter for, and UR has to be given
        found: dict[str, _Maker] = {}
        for index, (text, target) in enumerate(zip(texts, ur.parameters, strict=True)):
            if text.isdecimal():
                self.fixed.append((index, int(text)))
            elif text == "adapter":
                self.fixed.append((index, _ADAPTER))
            elif text == "scratch":
                self.given.append(index)
            elif text.endswith("}"):
                for field, name in re.findall(r"(\w+)=(\w+)", text):
                    found[name] = self._make_field_maker(index, target.type, field)
            else:
                found[text.lstrip("*")] = self._make_maker(index, text, target)
        self.makers = [
            _as_text(found[p.name])
            if PI.make_ctype(p.type, p.stars, p.const) is ctypes.c_char_p
            else found.get(p.name, lambda words: 0)
            for p in function.parameters
        ]

    def _make_field_maker(self, index: int, struct: str, field: str) -> _Maker:
        kind = UR.get_struct(struct)
        return lambda words: (
            getattr(kind.from_address(words[index]), field, 0) or 0 if words[index] else 0
        )

    def _make_maker(self, index: int, text: str, target: Any) -> _Maker:
        if text.startswith("*"):
            return lambda words: ctypes.byref(ctypes.c_uint64(words[index]))
        if target.stars == 1 and target.type in STRUCTS:
            return lambda words: _struct_to_pi(words[index], target.type)
        type_ = next(p for p in self.function.parameters if p.name == text)
        if not type_.stars and type_.type in ENUMS:
            return lambda words: _to_pi(type_.type, words[index])
        return lambda words: words[index]

    def __call__(self, pi: DispatchTable, words: Sequence[int]) -> int:
        if any(words[index] != value for index, value in self.fixed):
            raise _NoCounterpart
        if not all(words[index] for index in self.given):
            raise _NoCounterpart
        return getattr(pi, self.function.name)(*(make(words) for make in self.makers))


class _BackwardQuery(_BackwardCall):
    """An info query. Its answer is converted, unless both interfaces have the same."""

    def __init__(self, function: Function, line: str) -> None:
        super().__init__(function, line)
        asked = next(p.type_from for p in function.parameters if p.name == "param_value")
        self.asked = next(n for n, p in enumerate(function.parameters) if p.name == asked)
        enum = ENUMS[function.parameters[self.asked].type]
        self.pairs = {
            constant.value: (PI.constants[pi], constant)
            for pi, constant in reversed(enum.constants.items())
            if pi in PI.constants
        }

    def __call__(self, pi: DispatchTable, words: Sequence[int]) -> int:
        asked, size, value, size_ret = words[-4:]
        if self.function.name == "piDeviceGetInfo" and asked == _SUPPORT:
            call, name = pi.piDeviceGetInfo, PI["PI_DEVICE_INFO_EXTENSIONS"]
            names = query(call, "piDeviceGetInfo", check, words[0], name)
            return write_answer(bytes([b"ur_exp_command_buffer" in names]), size, value, size_ret)
        if asked not in self.pairs:
            raise _NoCounterpart
        one, other = self.pairs[asked]
        before = [make(words) for make in self.makers[: self.asked]]
        before += [one.value, *[0] * (len(self.makers) - self.asked - 4)]
        call, convert = getattr(pi, self.function.name), _find_conversion(one, other)
        if convert is None or (not value and (size or not size_ret)):  # the latter is an error
            return call(*before, size, value, size_ret)
        data = query(call, self.function.name, check, *before)
        return write_answer(convert(data), size, value, size_ret)


_SUPPORT: Final = UR["UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP"]


def _find_conversion(pi: Constant, ur: Constant) -> Callable[[bytes], bytes] | None:
    """Return how to convert the answer of a PI query to UR's, None if they are the same."""
    pi_type, ur_type = pi.answer.removesuffix("[]"), ur.answer.removesuffix("[]")
    if ur_type in ("ur_image_format_t", "ur_device_partition_property_t"):
        raise _NoCounterpart
    if not pi_type or not ur_type or "*" in pi_type:
        return None
    enum = ENUMS.get(pi_type)
    pi_size, ur_size = ctypes.sizeof(PI.make_ctype(pi_type)), ctypes.sizeof(UR.make_ctype(ur_type))
    if enum is None and pi_size == ur_size:
        return None

    def convert(data: bytes) -> bytes:
        step = pi_size if pi.answer.endswith("[]") else max(len(data), 1)
        words = [int.from_bytes(data[at : at + step], "little") for at in range(0, len(data), step)]
        if ur_type == "ur_device_partition_t" and words and not words[-1]:
            words.pop()  # it ends PI's list
        if enum:
            words = [_to_ur(enum, word) for word in words]
        return b"".join(word.to_bytes(8, "little")[:ur_size] for word in words)

    return convert


def _to_ur(enum: Enum, word: int) -> int:
    """Return the UR value for a word of a PI answer."""
    if word in enum.values or not word >> 31:
        return enum.convert_to_ur(word)
    if enum.pi == "pi_event_status":  # the driver's own number of an error
        return UR["UR_EVENT_STATUS_ERROR"]
    return enum.convert_to_ur(word - (1 << 32))


def _make_mapped() -> dict[str, _BackwardCall]:
    made: dict[str, _BackwardCall] = {}
    for name, line in FUNCTIONS.items():
        function = PI.functions[name]
        is_query = any(p.type_from for p in function.parameters if p.name == "param_value")
        made.setdefault(
            line.partition("(")[0], (_BackwardQuery if is_query else _BackwardCall)(function, line)
        )
    return made


# Functions that differ by more than names and types


def _calls(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def register(function: Callable[..., int]) -> Callable[..., int]:
        _WRITTEN[name] = function
        return function

    return register


def _read(address: int, struct: str, field: str) -> Any:
    """Return a field of a UR struct at an address, 0 if that is NULL."""
    return getattr(UR.get_struct(struct).from_address(address), field) or 0 if address else 0


def _queue_list(flags: int) -> Any:
    """Return the properties of a queue as a list that ends with 0."""
    return (ctypes.c_uint64 * 3)(PI["PI_QUEUE_FLAGS"], flags)


def _text(address: int) -> Any:
    return ctypes.c_char_p(address or None)


@_calls("urPlatformGet")
def _get_platforms(pi: DispatchTable, adapter: int, *rest: int) -> int:
    if adapter != _ADAPTER:
        raise _NoCounterpart
    return pi.piPlatformsGet(*rest)


@_calls("urDeviceGet")
def _get_devices(pi: DispatchTable, platform: int, kind: int, *rest: int) -> int:
    return pi.piDevicesGet(platform, _to_pi("pi_device_type", kind), *rest)


@_calls("urDevicePartition")
def _partition(pi: DispatchTable, device: int, properties: int, *rest: int) -> int:
    first = _read(properties, "ur_device_partition_properties_t", "pProperties")
    if not first:
        return pi.piDevicePartition(device, None, *rest)
    pair = UR.get_struct("ur_device_partition_property_t")
    pairs = pair * _read(properties, "ur_device_partition_properties_t", "PropCount")
    given = pairs.from_address(first)
    kind = _to_pi("pi_device_partition_property", given[0].type)
    words = [kind, *(one.value.count for one in given), 0, 0]
    return pi.piDevicePartition(device, (ctypes.c_ssize_t * len(words))(*words), *rest)


@_calls("urDeviceSelectBinary")
def _select_binary(pi: DispatchTable, device: int, binaries: int, count: int, chosen: int) -> int:
    given = (UR.get_struct("ur_device_binary_t") * count).from_address(binaries)
    made = [
        PI.get_struct("pi_device_binary_struct")(
            Version=1,
            Kind=PI["PI_DEVICE_BINARY_OFFLOAD_KIND_SYCL"],
            Format=PI["PI_DEVICE_BINARY_TYPE_SPIRV"],
            DeviceTargetSpec=one.pDeviceTargetSpec,
        )
        for one in given
    ]
    places = (ctypes.c_void_p * count)(*map(ctypes.addressof, made))
    return pi.piextDeviceSelectBinary(device, places, count, chosen)


@_calls("urQueueCreate")
def _create_queue(pi: DispatchTable, context: int, device: int, properties: int, queue: int) -> int:
    flags = _to_pi("pi_queue_properties", _read(properties, "ur_queue_properties_t", "flags"))
    return pi.piextQueueCreate(context, device, _queue_list(flags), queue)


@_calls("urQueueGetNativeHandle")
def _get_native_queue(pi: DispatchTable, queue: int, described: int, native: int) -> int:
    return pi.piextQueueGetNativeHandle(queue, native, ctypes.byref(ctypes.c_int32()))


@_calls("urMemBufferCreate")
def _create_buffer(
    pi: DispatchTable, context: int, flags: int, size: int, properties: int, buffer: int
) -> int:
    host = _read(properties, "ur_buffer_properties_t", "pHost")
    given = _to_pi("pi_mem_flags", flags)
    return pi.piMemBufferCreate(context, given, size, host, buffer, None)


def _allocate(name: str, count: int) -> None:
    """Let a function of UR that allocates call one of PI. `count` handles begin its arguments."""

    @_calls(f"urUSM{name}Alloc")
    def allocate(pi: DispatchTable, *words: int) -> int:
        *where, properties, pool, size, place = words
        if pool:
            raise _NoCounterpart
        align = _read(properties, "ur_usm_desc_t", "align")
        return getattr(pi, f"piextUSM{name}Alloc")(place, *where, None, size, align)


for _name in ("Host", "Device", "Shared"):
    _allocate(_name, 1)


@_calls("urEnqueueUSMFill")
def _fill(
    pi: DispatchTable, queue: int, memory: int, width: int, pattern: int, size: int, *rest: int
) -> int:
    if width != 1 or not pattern:
        raise _NoCounterpart
    value = ctypes.c_uint8.from_address(pattern).value
    return pi.piextUSMEnqueueMemset(queue, memory, value, size, *rest)


@_calls("urSamplerCreate")
def _create_sampler(pi: DispatchTable, context: int, described: int, sampler: int) -> int:
    if not described:
        raise _NoCounterpart
    given = UR.get_struct("ur_sampler_desc_t").from_address(described)
    modes = {
        name: _to_pi(f"pi_sampler_{name.lower()}", value)
        for name, value in (
            ("ADDRESSING_MODE", given.addressingMode),
            ("FILTER_MODE", given.filterMode),
        )
    }
    pairs = [("NORMALIZED_COORDS", int(given.normalizedCoords)), *modes.items()]
    words = [word for name, value in pairs for word in (PI[f"PI_SAMPLER_PROPERTIES_{name}"], value)]
    return pi.piSamplerCreate(context, (ctypes.c_uint64 * 7)(*words), sampler)


@_calls("urProgramCreateWithBinary")
def _create_from_binary(pi: DispatchTable, *words: int) -> int:
    *given, properties, program = words
    if properties:
        raise _NoCounterpart
    return pi.piProgramCreateWithBinary(*given, 0, None, None, program)


def _devices(pi: DispatchTable, context: int) -> tuple[int, Any]:
    """Return number and array of a context's devices, for which UR builds."""
    asked = PI["PI_CONTEXT_INFO_DEVICES"]
    data = query(pi.piContextGetInfo, "piContextGetInfo", check, context, asked)
    return len(data) // 8, (ctypes.c_uint64 * (len(data) // 8)).from_buffer_copy(data)


@_calls("urProgramBuild")
def _build(pi: DispatchTable, context: int, program: int, options: int) -> int:
    return pi.piProgramBuild(program, *_devices(pi, context), _text(options), None, None)


@_calls("urProgramCompile")
def _compile(pi: DispatchTable, context: int, program: int, options: int) -> int:
    given = program, *_devices(pi, context), _text(options)
    return pi.piProgramCompile(*given, 0, None, None, None, None)


@_calls("urProgramLink")
def _link(
    pi: DispatchTable, context: int, count: int, programs: int, options: int, linked: int
) -> int:
    given = context, *_devices(pi, context), _text(options), count, programs
    return pi.piProgramLink(*given, None, None, linked)


@_calls("urKernelCreate")
def _create_kernel(pi: DispatchTable, program: int, name: int, kernel: int) -> int:
    return pi.piKernelCreate(program, _text(name), kernel)


@_calls("urKernelRelease")
def _release_kernel(pi: DispatchTable, kernel: int) -> int:
    return pi.piKernelRelease(kernel)


@_calls("urKernelCreateWithNativeHandle")
def _create_kernel_from_native(
    pi: DispatchTable, native: int, context: int, program: int, properties: int, kernel: int
) -> int:
    owned = _read(properties, "ur_kernel_native_properties_t", "isNativeHandleOwned")
    return pi.piextKernelCreateWithNativeHandle(native, context, program, owned, kernel)


@_calls("urQueueCreateWithNativeHandle")
def _create_queue_from_native(
    pi: DispatchTable, native: int, context: int, device: int, properties: int, queue: int
) -> int:
    owned = _read(properties, "ur_queue_native_properties_t", "isNativeHandleOwned")
    given = native, 0, context, device, owned, _queue_list(0)
    return pi.piextQueueCreateWithNativeHandle(*given, queue)


@_calls("urKernelSetExecInfo")
def _set_exec_info(
    pi: DispatchTable, kernel: int, name: int, size: int, properties: int, value: int
) -> int:
    asked, given = _to_pi("pi_kernel_exec_info", name), value
    if asked == PI["PI_USM_INDIRECT_ACCESS"] and value:
        flag = ctypes.c_uint32(ctypes.c_uint8.from_address(value).value)
        return pi.piKernelSetExecInfo(kernel, asked, 4, ctypes.byref(flag))
    return pi.piKernelSetExecInfo(kernel, asked, size, given)


_ARGUMENT_TYPE: Final = "ur_exp_kernel_arg_type_t"


def _set_arguments(pi: DispatchTable, kernel: int, count: int, first: int) -> int:
    """Set a launch's arguments, one by one. Returns the first error, or 0."""
    kind, names = UR.get_struct("ur_exp_kernel_arg_properties_t"), UR.groups[_ARGUMENT_TYPE]
    if bool(count) != bool(first):
        raise _NoCounterpart
    for one in (kind * count).from_address(first) if first else ():
        if one.type not in names:
            raise _NoCounterpart
        name = names[one.type].rpartition("_TYPE_")[2]
        word = ctypes.byref(ctypes.c_uint64(one.value.pointer or 0))
        if name in ("VALUE", "LOCAL"):
            value = one.value.value if name == "VALUE" else None
            code = pi.piKernelSetArg(kernel, one.index, one.size, value)
        elif name == "POINTER":
            code = pi.piextKernelSetArgPointer(kernel, one.index, 8, word)
        elif name == "MEM_OBJ":
            code = pi.piextKernelSetArgMemObj(kernel, one.index, None, word)
        else:
            code = pi.piextKernelSetArgSampler(kernel, one.index, word)
        if code:
            return code
    return 0


@_calls("urEnqueueKernelLaunchWithArgsExp")
def _launch(pi: DispatchTable, queue: int, kernel: int, *words: int) -> int:
    *shape, count, arguments, extra, waits, events, event = words
    if extra:
        raise _NoCounterpart
    code = _set_arguments(pi, kernel, count, arguments)
    return code or pi.piEnqueueKernelLaunch(queue, kernel, *shape, waits, events, event)


@_calls("urCommandBufferCreateExp")
def _create_command_buffer(
    pi: DispatchTable, context: int, device: int, described: int, buffer: int
) -> int:
    name = "ur_exp_command_buffer_desc_t"
    if not described or any(_read(described, name, x) for x in ("isUpdatable", "isInOrder")):
        raise _NoCounterpart
    profiling = _read(described, name, "enableProfiling")
    flags = PI["PI_QUEUE_FLAG_PROFILING_ENABLE"] if profiling else 0
    words = _queue_list(flags)
    given = PI.get_struct("pi_ext_command_buffer_desc")(properties=ctypes.addressof(words))
    return pi.piextCommandBufferCreate(context, device, ctypes.byref(given), buffer)


@_calls("urCommandBufferAppendKernelLaunchWithArgsExp")
def _append_launch(pi: DispatchTable, buffer: int, kernel: int, *words: int) -> int:
    *shape, count, arguments, number, others, points, after = words[:-5]
    *unknown, point, event, command = words[-5:]
    if any((number, others, *unknown, event, command)):
        raise _NoCounterpart
    code = _set_arguments(pi, kernel, count, arguments)
    return code or pi.piextCommandBufferNDRangeKernel(buffer, kernel, *shape, points, after, point)


_MAPPED: Final[Mapping[str, _BackwardCall]] = _make_mapped()
#: PI function to UR function, where the call is written here.
_OTHERS: Final = {
    "urPlatformGet": "piPlatformsGet",
    "urDeviceGet": "piDevicesGet",
    "urQueueCreate": "piextQueueCreate",
    "urQueueCreateWithNativeHandle": "piextQueueCreateWithNativeHandle",
    "urQueueGetNativeHandle": "piextQueueGetNativeHandle",
    "urKernelCreateWithNativeHandle": "piextKernelCreateWithNativeHandle",
    "urDeviceSelectBinary": "piextDeviceSelectBinary",
    "urEnqueueUSMFill": "piextUSMEnqueueMemset",
    "urEnqueueKernelLaunchWithArgsExp": "piEnqueueKernelLaunch",
    "urCommandBufferCreateExp": "piextCommandBufferCreate",
    "urCommandBufferAppendKernelLaunchWithArgsExp": "piextCommandBufferNDRangeKernel",
}
_NAMES: Final[Mapping[str, str]] = {
    **{name: name.replace("ur", "pi", 1) for name in _WRITTEN},
    **{name: name.replace("urUSM", "piextUSM") for name in _WRITTEN if "USM" in name},
    **{name: call.function.name for name, call in _MAPPED.items()},
    **_OTHERS,
    **{name: PI.errors[RESULTS[code]][0] for code, (name, _) in UR.errors.items()},
    **{
        constant.name: name
        for enum in ENUMS.values()
        for name, constant in reversed(enum.constants.items())
    },
}
