"""Buffers, USM, samplers and images of PI, served from Unified Runtime."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..ur.abi import UR
from .abi import PI
from .mapping import ENUMS, convert_struct, make_struct, refuse
from .translation import read_properties, read_word, read_words, serves, write_word

if TYPE_CHECKING:
    from .serve import Service


@serves("piMemBufferCreate")
def _create_buffer(
    service: Service, context: int, flags: int, size: int, host: int, mem: int, properties: int
) -> int:
    chain = None
    for name, value in read_properties(properties, "pi_mem_properties").items():
        if name == "PI_MEM_PROPERTIES_ALLOC_BUFFER_LOCATION":
            chain = make_struct(
                "ur_buffer_alloc_location_properties_t", location=value, pNext=chain
            )
        else:
            chain = make_struct("ur_buffer_channel_properties_t", channel=value, pNext=chain)
    given = (
        ctypes.byref(make_struct("ur_buffer_properties_t", pHost=host, pNext=chain))
        if host or chain
        else None
    )
    return service.call(
        "urMemBufferCreate", context, ENUMS["pi_mem_flags"].convert_to_ur(flags), size, given, mem
    )


#: A flag of a USM allocation to the UR struct and the flag in it.
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


def _make_usm_description(properties: int, alignment: int = 0) -> Any:
    given = read_properties(properties, "pi_usm_mem_properties")
    flags: dict[str, int] = {}
    for name, (struct, flag) in _USM_FLAGS.items():
        if given.get("PI_MEM_ALLOC_FLAGS", 0) & PI[name]:
            flags[struct] = flags.get(struct, 0) | UR[flag]
    chain = None
    if "PI_MEM_USM_ALLOC_BUFFER_LOCATION" in given:
        chain = make_struct(
            "ur_usm_alloc_location_desc_t", location=given["PI_MEM_USM_ALLOC_BUFFER_LOCATION"]
        )
    for struct, value in flags.items():
        chain = make_struct(struct, flags=value, pNext=chain)
    return make_struct("ur_usm_desc_t", align=alignment, pNext=chain)


@serves("piextUSMHostAlloc")
def _allocate_host(
    service: Service, pointer: int, context: int, properties: int, size: int, alignment: int
) -> int:
    described = ctypes.byref(_make_usm_description(properties, alignment))
    return service.call("urUSMHostAlloc", context, described, None, size, pointer)


def _allocate_on_device(
    name: str,
    service: Service,
    pointer: int,
    context: int,
    device: int,
    properties: int,
    size: int,
    alignment: int,
) -> int:
    described = ctypes.byref(_make_usm_description(properties, alignment))
    return service.call(name, context, device, described, None, size, pointer)


serves("piextUSMDeviceAlloc")(partial(_allocate_on_device, "urUSMDeviceAlloc"))
serves("piextUSMSharedAlloc")(partial(_allocate_on_device, "urUSMSharedAlloc"))


@serves("piextUSMPitchedAlloc")
def _allocate_pitched(
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
    described = ctypes.byref(_make_usm_description(properties))
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
def _set_memory(
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
def _set_memory_2d(
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


_SAMPLER_FIELDS: Final = {
    "PI_SAMPLER_PROPERTIES_NORMALIZED_COORDS": ("normalizedCoords", None),
    "PI_SAMPLER_PROPERTIES_ADDRESSING_MODE": ("addressingMode", "pi_sampler_addressing_mode"),
    "PI_SAMPLER_PROPERTIES_FILTER_MODE": ("filterMode", "pi_sampler_filter_mode"),
}


@serves("piSamplerCreate")
def _create_sampler(service: Service, context: int, properties: int, sampler: int) -> int:
    """Properties that the list does not contain have OpenCL's defaults."""
    described = make_struct(
        "ur_sampler_desc_t",
        normalizedCoords=True,
        addressingMode=UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP"],
    )
    for name, value in read_properties(properties, "pi_sampler_properties").items():
        if name not in _SAMPLER_FIELDS:
            raise refuse("PI_ERROR_UNSUPPORTED_FEATURE", f"UR has no {name}.")
        field, enum = _SAMPLER_FIELDS[name]
        setattr(described, field, ENUMS[enum].convert_to_ur(value) if enum else bool(value))
    return service.call("urSamplerCreate", context, ctypes.byref(described), sampler)


@serves("piextMemUnsampledImageCreate")
def _create_unsampled_image(
    service: Service,
    context: int,
    device: int,
    memory: int,
    form: int,
    image: int,
    mem: int,
    handle: int,
) -> int:
    """UR creates no memory object for it, so PI's is NULL."""
    write_word(mem, 0)
    given = (
        ctypes.byref(convert_struct(form, "ur_image_format_t")),
        ctypes.byref(convert_struct(image, "ur_image_desc_t")),
    )
    return service.call(
        "urBindlessImagesUnsampledImageCreateExp", context, device, memory, *given, handle
    )


@serves("piextMemSampledImageCreate")
def _create_sampled_image(
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
    """UR takes the sampler's description, which the sampler itself reports."""
    write_word(mem, 0)
    fields = {}
    for field, name in (
        ("normalizedCoords", "NORMALIZED_COORDS"),
        ("addressingMode", "ADDRESSING_MODE"),
        ("filterMode", "FILTER_MODE"),
    ):
        fields[field] = read_word(
            service.query("urSamplerGetInfo", sampler, UR[f"UR_SAMPLER_INFO_{name}"])
        )
    given = (
        convert_struct(form, "ur_image_format_t"),
        convert_struct(image, "ur_image_desc_t"),
        make_struct("ur_sampler_desc_t", **fields),
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
def _copy_image(
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
    """PI describes the image and the size of the host's memory. UR takes both descriptions."""
    kind = PI.groups["pi_image_copy_flags"].get(flags, "")
    device_side = convert_struct(image, "ur_image_desc_t")
    host_side = convert_struct(image, "ur_image_desc_t")
    if host_extent:
        host_side.width, host_side.height, host_side.depth = read_words(host_extent, 3)
    sides, types = {
        "PI_IMAGE_COPY_HOST_TO_DEVICE": ((host_side, device_side), "MEM_TO_IMAGE"),
        "PI_IMAGE_COPY_DEVICE_TO_HOST": ((device_side, host_side), "IMAGE_TO_MEM"),
    }.get(kind, ((device_side, device_side), "IMAGE_TO_IMAGE"))
    region = make_struct("ur_exp_image_copy_region_t")
    for field, address in (
        ("srcOffset", source_offset),
        ("dstOffset", target_offset),
        ("copyExtent", extent),
    ):
        if address:
            setattr(region, field, type(getattr(region, field))(*read_words(address, 3)))
    pixels = ctypes.byref(convert_struct(form, "ur_image_format_t"))
    return service.call(
        "urBindlessImagesImageCopyExp",
        *(queue, source, target, *map(ctypes.byref, sides), pixels, pixels, ctypes.byref(region)),
        *(
            ENUMS["pi_image_copy_flags"].convert_to_ur(flags),
            UR[f"UR_EXP_IMAGE_COPY_INPUT_TYPES_{types}"],
            num,
            events,
            event,
        ),
    )
