"""The PI functions that differ from Unified Runtime by more than words: each is written out, the others are in `pi_from_ur.map`.
Those of kernels are in `pi_kernels`, info queries in `pi_queries`.

A function gets the `Service` and the PI call's arguments as words, and returns a pi_result. Whatever is refused or fails on the way is
raised (`PIError`, `URError`): the service makes a result of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ..ur.abi import UR, check
from .abi import PI
from .mapping import ENUMS, new, refuse, struct_at

if TYPE_CHECKING:
    from .serve import Service

#: PI function → the function that serves it.
FUNCTIONS: Final[dict[str, Callable[..., int]]] = {}

UNSUPPORTED_FEATURE: Final = PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"]
_Notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def serves(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Put the decorated function into `FUNCTIONS`."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        FUNCTIONS[name] = function
        return function

    return register


# Reading and writing the caller's memory


def _words(address: int, count: int, size: int = 8) -> list[int]:
    kind = ctypes.c_uint64 if size == 8 else ctypes.c_uint32
    return list((kind * count).from_address(address)) if address and count else []


def _put(address: int, value: int) -> None:
    """Write a 64-bit word, if there is a place for it."""
    if address:
        ctypes.c_uint64.from_address(address).value = value


def _give(found: list[int], num_entries: int, entries: int, count_ret: int) -> int:
    """Answer a list of handles: as many as there is room for at `entries`, and how many there are at `count_ret`."""
    for index, handle in enumerate(found[:num_entries] if entries else ()):
        _put(entries + 8 * index, handle)
    if count_ret:
        ctypes.c_uint32.from_address(count_ret).value = len(found)
    return 0


def _list(address: int) -> Iterator[int]:
    """The words of a list that ends with 0."""
    while address and (word := ctypes.c_uint64.from_address(address).value):
        yield word
        address += 8


def _properties(address: int, group: str) -> dict[str, int]:
    """A list of names and values that ends with 0: constant's name → value. A name that `group` does not have is refused."""
    words = []
    while address and (name := ctypes.c_uint64.from_address(address).value):
        words.append((name, ctypes.c_uint64.from_address(address + 8).value))
        address += 16
    names = PI.groups[group]
    if any(name not in names for name, _ in words):
        raise refuse(
            "PI_ERROR_INVALID_PROPERTY",
            f"{[hex(name) for name, _ in words if name not in names]} are not of {group}.",
        )
    return {names[name]: value for name, value in words}


def text(address: int) -> Any:
    """A C string as ctypes passes it, NULL for 0."""
    return ctypes.c_char_p(address or None)


def word_of(data: bytes) -> int:
    """The handle, or number, that a query answered."""
    return int.from_bytes(data[:8], "little")


# Platforms and devices


@serves("piPlatformsGet")
def _platforms_get(service: Service, num_entries: int, platforms: int, num_platforms: int) -> int:
    """UR asks each adapter for itself."""
    found = [
        platform
        for adapter in service.adapters
        for platform in service.handles("urPlatformGet", adapter)
    ]
    return _give(found, num_entries, platforms, num_platforms)


@serves("piDevicesGet")
def _devices_get(
    service: Service,
    platform: int,
    device_type: int,
    num_entries: int,
    devices: int,
    num_devices: int,
) -> int:
    """PI's types are bits, UR's are not: each is asked for; an accelerator of PI is any of three types of UR."""
    everything = PI["PI_DEVICE_TYPE_ALL"]
    bits = (
        [bit for bit in (1, 2, 4, 8, 16) if device_type & bit]
        if device_type & everything != everything
        else [everything]
    )
    if not bits or device_type & ~everything:
        raise refuse("PI_ERROR_INVALID_DEVICE_TYPE", f"{device_type:#x} is no type.")
    types = [ENUMS["pi_device_type"].to_ur(bit) for bit in bits]
    if PI["PI_DEVICE_TYPE_ACC"] in bits:
        types += [UR["UR_DEVICE_TYPE_MCA"], UR["UR_DEVICE_TYPE_VPU"]]
    found = [device for kind in types for device in _devices_of_type(service, platform, kind)]
    return _give(list(dict.fromkeys(found)), num_entries, devices, num_devices)


def _devices_of_type(service: Service, platform: int, kind: int) -> list[int]:
    count = ctypes.c_uint32()
    code = service.ur.urDeviceGet(platform, kind, 0, None, ctypes.byref(count))
    if UR.errors.get(code, ("",))[0] in (
        "UR_RESULT_ERROR_DEVICE_NOT_FOUND",
        "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION",
    ):
        return []
    check(code, "urDeviceGet")
    return service.handles("urDeviceGet", platform, kind) if count.value else []


@serves("piDevicePartition")
def _device_partition(
    service: Service, device: int, properties: int, num_devices: int, out: int, num_out: int
) -> int:
    """PI: a type, its values, 0. UR: pairs of both."""
    kind, *values = list(_list(properties)) or [0]
    kind = ENUMS["pi_device_partition_property"].to_ur(kind)
    name = UR.groups["ur_device_partition_t"][kind]
    if name == "UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN":
        values = [ENUMS["pi_device_affinity_domain"].to_ur(value) for value in values]
    pairs = (UR.struct("ur_device_partition_property_t") * max(len(values), 1))()
    for pair, value in zip(pairs, values or [0], strict=False):
        pair.type, pair.value.count = kind, value
    asked = new("ur_device_partition_properties_t", pProperties=pairs, PropCount=len(pairs))
    return service.call("urDevicePartition", device, ctypes.byref(asked), num_devices, out, num_out)


@serves("piextDeviceSelectBinary")
def _select_binary(service: Service, device: int, binaries: int, count: int, selected: int) -> int:
    """UR wants to know nothing of a binary but its target."""
    described = (UR.struct("ur_device_binary_t") * max(count, 1))()
    for entry, address in zip(described, _words(binaries, count), strict=False):
        entry.stype = UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"]
        entry.pDeviceTargetSpec = (
            PI.struct("pi_device_binary_struct").from_address(address).DeviceTargetSpec
        )
    return service.call("urDeviceSelectBinary", device, described, count, selected)


# Queues


def _queue_properties(flags: int, index: int | None = None) -> Any:
    chain = None if index is None else new("ur_queue_index_properties_t", computeIndex=index)
    return new(
        "ur_queue_properties_t", flags=ENUMS["pi_queue_properties"].to_ur(flags), pNext=chain
    )


def _listed_queue_properties(address: int) -> Any:
    given = _properties(address, "pi_queue_properties")
    return _queue_properties(given.get("PI_QUEUE_FLAGS", 0), given.get("PI_QUEUE_COMPUTE_INDEX"))


@serves("piQueueCreate")
def _queue_create(service: Service, context: int, device: int, flags: int, queue: int) -> int:
    return service.call(
        "urQueueCreate", context, device, ctypes.byref(_queue_properties(flags)), queue
    )


@serves("piextQueueCreate")
def _queue_create_listed(
    service: Service, context: int, device: int, properties: int, queue: int
) -> int:
    return service.call(
        "urQueueCreate", context, device, ctypes.byref(_listed_queue_properties(properties)), queue
    )


@serves("piextQueueCreateWithNativeHandle")
def _queue_from_native(
    service: Service,
    native: int,
    kind: int,
    context: int,
    device: int,
    owned: int,
    properties: int,
    queue: int,
) -> int:
    wanted = _listed_queue_properties(properties)
    number = ctypes.c_int32(kind)
    described = new("ur_queue_native_desc_t", pNativeData=ctypes.addressof(number), pNext=wanted)
    given = new("ur_queue_native_properties_t", isNativeHandleOwned=bool(owned), pNext=described)
    return service.call(
        "urQueueCreateWithNativeHandle", native, context, device, ctypes.byref(given), queue
    )


# Memory


@serves("piMemBufferCreate")
def _buffer_create(
    service: Service, context: int, flags: int, size: int, host: int, mem: int, properties: int
) -> int:
    chain = None
    for name, value in _properties(properties, "pi_mem_properties").items():
        if name == "PI_MEM_PROPERTIES_ALLOC_BUFFER_LOCATION":
            chain = new("ur_buffer_alloc_location_properties_t", location=value, pNext=chain)
        else:
            chain = new("ur_buffer_channel_properties_t", channel=value, pNext=chain)
    given = (
        ctypes.byref(new("ur_buffer_properties_t", pHost=host, pNext=chain))
        if host or chain
        else None
    )
    return service.call(
        "urMemBufferCreate", context, ENUMS["pi_mem_flags"].to_ur(flags), size, given, mem
    )


#: A flag of a USM allocation → the UR struct and the flag in it.
_USM_FLAGS: Final = {
    "PI_MEM_ALLOC_WRTITE_COMBINED": (
        "ur_usm_device_desc_t",
        "UR_USM_DEVICE_MEM_FLAG_WRITE_COMBINED",
    ),
    "PI_MEM_ALLOC_INITIAL_PLACEMENT_DEVICE": (
        "ur_usm_device_desc_t",
        "UR_USM_DEVICE_MEM_FLAG_INITIAL_PLACEMENT",
    ),
    "PI_MEM_ALLOC_INITIAL_PLACEMENT_HOST": (
        "ur_usm_host_desc_t",
        "UR_USM_HOST_MEM_FLAG_INITIAL_PLACEMENT",
    ),
    "PI_MEM_ALLOC_DEVICE_READ_ONLY": (
        "ur_usm_device_desc_t",
        "UR_USM_DEVICE_MEM_FLAG_DEVICE_READ_ONLY",
    ),
}


def _usm_description(properties: int, alignment: int = 0) -> Any:
    given = _properties(properties, "pi_usm_mem_properties")
    flags: dict[str, int] = {}
    for name, (struct, flag) in _USM_FLAGS.items():
        if given.get("PI_MEM_ALLOC_FLAGS", 0) & PI[name]:
            flags[struct] = flags.get(struct, 0) | UR[flag]
    chain = None
    if "PI_MEM_USM_ALLOC_BUFFER_LOCATION" in given:
        chain = new(
            "ur_usm_alloc_location_desc_t", location=given["PI_MEM_USM_ALLOC_BUFFER_LOCATION"]
        )
    for struct, value in flags.items():
        chain = new(struct, flags=value, pNext=chain)
    return new("ur_usm_desc_t", align=alignment, pNext=chain)


@serves("piextUSMHostAlloc")
def _host_alloc(
    service: Service, pointer: int, context: int, properties: int, size: int, alignment: int
) -> int:
    described = ctypes.byref(_usm_description(properties, alignment))
    return service.call("urUSMHostAlloc", context, described, None, size, pointer)


@serves("piextUSMDeviceAlloc")
def _device_alloc(
    service: Service,
    pointer: int,
    context: int,
    device: int,
    properties: int,
    size: int,
    alignment: int,
) -> int:
    described = ctypes.byref(_usm_description(properties, alignment))
    return service.call("urUSMDeviceAlloc", context, device, described, None, size, pointer)


@serves("piextUSMSharedAlloc")
def _shared_alloc(
    service: Service,
    pointer: int,
    context: int,
    device: int,
    properties: int,
    size: int,
    alignment: int,
) -> int:
    described = ctypes.byref(_usm_description(properties, alignment))
    return service.call("urUSMSharedAlloc", context, device, described, None, size, pointer)


@serves("piextUSMPitchedAlloc")
def _pitched_alloc(
    service: Service,
    pointer: int,
    pitch: int,
    context: int,
    device: int,
    properties: int,
    width: int,
    height: int,
    element: int,
) -> int:
    described = ctypes.byref(_usm_description(properties))
    return service.call(
        "urUSMPitchedAllocExp",
        context,
        device,
        described,
        None,
        width,
        height,
        element,
        pointer,
        pitch,
    )


@serves("piextUSMEnqueueMemset")
def _memset(
    service: Service,
    queue: int,
    pointer: int,
    value: int,
    count: int,
    num: int,
    events: int,
    event: int,
) -> int:
    pattern = ctypes.byref(ctypes.c_uint8(value & 0xFF))
    return service.call("urEnqueueUSMFill", queue, pointer, 1, pattern, count, num, events, event)


@serves("piextUSMEnqueueMemset2D")
def _memset_2d(
    service: Service,
    queue: int,
    pointer: int,
    pitch: int,
    value: int,
    width: int,
    height: int,
    num: int,
    events: int,
    event: int,
) -> int:
    pattern = ctypes.byref(ctypes.c_uint8(value & 0xFF))
    return service.call(
        "urEnqueueUSMFill2D", queue, pointer, pitch, 1, pattern, width, height, num, events, event
    )


# Programs


@serves("piProgramCreateWithBinary")
def _program_from_binary(
    service: Service,
    context: int,
    count: int,
    devices: int,
    lengths: int,
    binaries: int,
    num_metadata: int,
    metadata: int,
    status: int,
    program: int,
) -> int:
    properties = None
    if num_metadata:
        entries = (UR.struct("ur_program_metadata_t") * num_metadata)()
        for entry, address in zip(entries, _words(metadata, num_metadata), strict=False):
            _metadata(entry, PI.struct("pi_device_binary_property_struct").from_address(address))
        properties = ctypes.byref(
            new("ur_program_properties_t", count=num_metadata, pMetadatas=entries)
        )
    code = service.call(
        "urProgramCreateWithBinary", context, count, devices, lengths, binaries, properties, program
    )
    for index in range(count if status else 0):
        ctypes.c_int32.from_address(status + 4 * index).value = code
    return code


def _metadata(entry: Any, source: Any) -> None:
    """A number of PI is where the size of anything else is."""
    entry.pName = source.Name
    entry.type = ENUMS["pi_property_type"].to_ur(source.Type)
    if source.Type == PI["PI_PROPERTY_TYPE_UINT32"]:
        entry.size, entry.value.data32 = 4, source.ValSize
    else:
        entry.size, entry.value.pData = source.ValSize, source.ValAddr


@serves("piProgramBuild")
def _program_build(
    service: Service, program: int, count: int, devices: int, options: int, notify: int, data: int
) -> int:
    """UR builds for a list of devices only by an extension, which an adapter may not have: else for all of the context."""
    return _build(service, "urProgramBuild", program, count, devices, options, notify, data)


@serves("piProgramCompile")
def _program_compile(
    service: Service,
    program: int,
    count: int,
    devices: int,
    options: int,
    num_headers: int,
    headers: int,
    names: int,
    notify: int,
    data: int,
) -> int:
    """UR has no headers."""
    if num_headers:
        return UNSUPPORTED_FEATURE
    return _build(service, "urProgramCompile", program, count, devices, options, notify, data)


def _build(
    service: Service,
    name: str,
    program: int,
    count: int,
    devices: int,
    options: int,
    notify: int,
    data: int,
) -> int:
    code = UNSUPPORTED_FEATURE
    if count and devices and service.has(name + "Exp"):
        code = service.call(name + "Exp", program, count, devices, 0, text(options))
    if code == UNSUPPORTED_FEATURE:
        context = word_of(service.query("urProgramGetInfo", program, UR["UR_PROGRAM_INFO_CONTEXT"]))
        code = service.call(name, context, program, text(options))
    return _notified(code, program, notify, data)


def _notified(code: int, program: int, notify: int, data: int) -> int:
    """With a callback PI may build later: it was done at once, and is told now."""
    if notify:
        _Notify(notify)(program, data)
    return code


@serves("piProgramLink")
def _program_link(
    service: Service,
    context: int,
    count: int,
    devices: int,
    options: int,
    num_programs: int,
    programs: int,
    notify: int,
    data: int,
    linked: int,
) -> int:
    code = UNSUPPORTED_FEATURE
    if count and devices and service.has("urProgramLinkExp"):
        code = service.call(
            "urProgramLinkExp",
            context,
            count,
            devices,
            0,
            num_programs,
            programs,
            text(options),
            linked,
        )
    if code == UNSUPPORTED_FEATURE:
        code = service.call("urProgramLink", context, num_programs, programs, text(options), linked)
    return _notified(code, ctypes.c_uint64.from_address(linked).value, notify, data)


# Samplers, images, command-buffers

_SAMPLER_FIELDS: Final = {
    "PI_SAMPLER_PROPERTIES_NORMALIZED_COORDS": ("normalizedCoords", None),
    "PI_SAMPLER_PROPERTIES_ADDRESSING_MODE": ("addressingMode", "pi_sampler_addressing_mode"),
    "PI_SAMPLER_PROPERTIES_FILTER_MODE": ("filterMode", "pi_sampler_filter_mode"),
}


@serves("piSamplerCreate")
def _sampler_create(service: Service, context: int, properties: int, sampler: int) -> int:
    """What the list does not name has OpenCL's default."""
    described = new(
        "ur_sampler_desc_t",
        normalizedCoords=True,
        addressingMode=UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP"],
    )
    for name, value in _properties(properties, "pi_sampler_properties").items():
        if name not in _SAMPLER_FIELDS:
            raise refuse("PI_ERROR_UNSUPPORTED_FEATURE", f"UR has no {name}.")
        field, enum = _SAMPLER_FIELDS[name]
        setattr(described, field, ENUMS[enum].to_ur(value) if enum else bool(value))
    return service.call("urSamplerCreate", context, ctypes.byref(described), sampler)


@serves("piextMemUnsampledImageCreate")
def _unsampled_image(
    service: Service,
    context: int,
    device: int,
    memory: int,
    form: int,
    image: int,
    mem: int,
    handle: int,
) -> int:
    """UR makes no memory object for it: PI's is NULL."""
    _put(mem, 0)
    given = (
        ctypes.byref(struct_at(form, "ur_image_format_t")),
        ctypes.byref(struct_at(image, "ur_image_desc_t")),
    )
    return service.call(
        "urBindlessImagesUnsampledImageCreateExp", context, device, memory, *given, handle
    )


@serves("piextMemSampledImageCreate")
def _sampled_image(
    service: Service,
    context: int,
    device: int,
    memory: int,
    form: int,
    image: int,
    sampler: int,
    mem: int,
    handle: int,
) -> int:
    """UR takes the sampler's description: the sampler tells it."""
    _put(mem, 0)
    fields = {}
    for field, name in (
        ("normalizedCoords", "NORMALIZED_COORDS"),
        ("addressingMode", "ADDRESSING_MODE"),
        ("filterMode", "FILTER_MODE"),
    ):
        fields[field] = word_of(
            service.query("urSamplerGetInfo", sampler, UR[f"UR_SAMPLER_INFO_{name}"])
        )
    given = (
        struct_at(form, "ur_image_format_t"),
        struct_at(image, "ur_image_desc_t"),
        new("ur_sampler_desc_t", **fields),
    )
    return service.call(
        "urBindlessImagesSampledImageCreateExp",
        context,
        device,
        memory,
        *map(ctypes.byref, given),
        handle,
    )


@serves("piextMemImageCopy")
def _image_copy(
    service: Service,
    queue: int,
    target: int,
    source: int,
    form: int,
    image: int,
    flags: int,
    source_offset: int,
    target_offset: int,
    extent: int,
    host_extent: int,
    num: int,
    events: int,
    event: int,
) -> int:
    """PI describes the image and how large the host's memory is; UR wants a description of both sides."""
    kind = PI.groups["pi_image_copy_flags"].get(flags, "")
    device_side = struct_at(image, "ur_image_desc_t")
    host_side = struct_at(image, "ur_image_desc_t")
    if host_extent:
        host_side.width, host_side.height, host_side.depth = _words(host_extent, 3)
    sides, types = {
        "PI_IMAGE_COPY_HOST_TO_DEVICE": ((host_side, device_side), "MEM_TO_IMAGE"),
        "PI_IMAGE_COPY_DEVICE_TO_HOST": ((device_side, host_side), "IMAGE_TO_MEM"),
    }.get(kind, ((device_side, device_side), "IMAGE_TO_IMAGE"))
    region = new("ur_exp_image_copy_region_t")
    for field, address in (
        ("srcOffset", source_offset),
        ("dstOffset", target_offset),
        ("copyExtent", extent),
    ):
        if address:
            setattr(region, field, type(getattr(region, field))(*_words(address, 3)))
    pixels = ctypes.byref(struct_at(form, "ur_image_format_t"))
    return service.call(
        "urBindlessImagesImageCopyExp",
        *(queue, source, target, *map(ctypes.byref, sides), pixels, pixels, ctypes.byref(region)),
        *(
            ENUMS["pi_image_copy_flags"].to_ur(flags),
            UR[f"UR_EXP_IMAGE_COPY_INPUT_TYPES_{types}"],
            num,
            events,
            event,
        ),
    )


@serves("piextCommandBufferCreate")
def _command_buffer_create(
    service: Service, context: int, device: int, desc: int, buffer: int
) -> int:
    """PI's has a queue's properties. Its order is that of the sync points, never that of the calls: isInOrder stays false."""
    address = PI.struct("pi_ext_command_buffer_desc").from_address(desc).properties if desc else 0
    flags = _properties(address or 0, "pi_queue_properties").get("PI_QUEUE_FLAGS", 0)
    profiling = bool(flags & PI["PI_QUEUE_FLAG_PROFILING_ENABLE"])
    wanted = ctypes.byref(new("ur_exp_command_buffer_desc_t", enableProfiling=profiling))
    return service.call("urCommandBufferCreateExp", context, device, wanted, buffer)


@serves("piTearDown")
def _tear_down(service: Service, torn: int) -> int:
    """The parameter is in truth a bool that the plugin sets (measured: that of 2024 does, without looking whether it is NULL)."""
    if torn:
        ctypes.c_bool.from_address(torn).value = True
    service.end()
    return 0
