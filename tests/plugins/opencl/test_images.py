"""Images of the reference adapter: how they are made, transfers, and what is refused.

Samplers of the reference adapter.

Transfers of images on queues to sub-devices, with which PoCL crashes by itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.image_calls import (
    COPY,
    KINDS,
    READ_WRITE,
    create_image,
    image_content,
    image_desc,
    image_format,
    new_image,
)
from helpers.memory_calls import (
    content,
    finish,
    held_back,
    new_buffer,
    new_queue,
    opencl,
    rect,
    region,
    struct,
)
from helpers.tables import table
from helpers.ur_calls import Calls, array

from fairlead.icd.abi import OPENCL
from fairlead.icd.objects import CLDevice
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice


def info(ur: Calls, image: ctypes.c_void_p, name: str) -> int:
    return ur.number("urMemImageGetInfo", image, f"UR_IMAGE_INFO_{name}")


# native handles


def test_an_image_over_a_buffer_comes_as_a_native_handle(
    ur: Calls, context: int, queue: int
) -> None:
    buffer = new_buffer(ur, context, 48, bytes(range(48)))
    driver, native = opencl(ur, context)
    desc = OPENCL.get_struct("cl_image_desc")(
        image_type=OPENCL["CL_MEM_OBJECT_IMAGE1D_BUFFER"],
        image_width=12,
        buffer=ur.make("urMemGetNativeHandle", buffer).value,
    )
    form = OPENCL.get_struct("cl_image_format")(OPENCL["CL_RGBA"], OPENCL["CL_UNSIGNED_INT8"])
    code = ctypes.c_int32()
    flags = OPENCL["CL_MEM_READ_WRITE"]
    given = ctypes.byref(form), ctypes.byref(desc), None, ctypes.byref(code)
    cl = driver.clCreateImage(native, flags, *given)
    assert code.value == 0
    owned = struct("ur_mem_native_properties_t", "MEM_NATIVE_PROPERTIES", isNativeHandleOwned=True)
    shape = ctypes.byref(image_desc("IMAGE1D"))
    given = ctypes.byref(image_format()), shape, ctypes.byref(owned)
    image = ur.make("urMemImageCreateWithNativeHandle", cl, context, *given)
    assert image_content(ur, queue, image, (12, 1, 1)) == bytes(range(48))
    patch = ctypes.create_string_buffer(b"new!", 4)
    ends = 0, 0, patch, 0, None, None
    ur.ok("urEnqueueMemImageWrite", queue, image, True, rect(3), region(1), *ends)
    assert content(ur, queue, buffer, 4, 12) == b"new!"


def test_native_handles_that_are_no_such_image(
    ur: Calls, context: int, device: PluginDevice
) -> None:
    image, buffer = new_image(ur, context), new_buffer(ur, context, 64)
    native, native_buffer = (
        ur.make("urMemGetNativeHandle", memory).value for memory in (image, buffer)
    )

    def take(native: Any, where: int, form: Any, desc: Any) -> str:
        given = ctypes.byref(form), ctypes.byref(desc), None, ctypes.byref(ctypes.c_void_p())
        return ur("urMemImageCreateWithNativeHandle", native, where, *given)

    plain, shape = image_format(), image_desc("IMAGE2D")
    wrong = "INVALID_IMAGE_FORMAT_DESCRIPTOR"
    assert take(0, context, plain, shape) == "INVALID_NULL_HANDLE"
    assert take(0x1000, context, plain, shape) == "INVALID_VALUE"
    assert take(native_buffer, context, plain, shape) == "INVALID_MEM_OBJECT"
    assert take(native, context, image_format("RGBA", "FLOAT"), shape) == wrong
    assert take(native, context, plain, image_desc("IMAGE3D")) == wrong
    other = ur.make("urContextCreate", 1, array(device.handle))
    assert take(native, other.value or 0, plain, shape) == "INVALID_CONTEXT"
    made = ctypes.byref(ctypes.c_void_p())
    assert ur("urMemBufferCreateWithNativeHandle", native, context, None, made) == (
        "INVALID_MEM_OBJECT"
    )


# what is refused

NO_IMAGE = "INVALID_IMAGE_FORMAT_DESCRIPTOR"


@table(
    "kind, fields",
    [
        ("IMAGE2D", {"rowPitch": 44}),
        ("IMAGE2D", {"rowPitch": 50}),
        ("IMAGE3D", {"slicePitch": 192}),
        ("IMAGE3D", {"slicePitch": 250}),
        ("IMAGE3D", {"rowPitch": 64, "slicePitch": 240}),
        ("IMAGE2D_ARRAY", {"slicePitch": 192}),
        ("IMAGE1D_ARRAY", {"slicePitch": 40}),
    ],
)
def test_pitches_of_host_memory(ur: Calls, context: int, kind: str, fields: dict[str, int]) -> None:
    host = ctypes.create_string_buffer(4096)
    desc = image_desc(kind, **fields)
    assert create_image(ur, context, desc, flags=READ_WRITE | COPY, host=host)[0] == NO_IMAGE


def test_formats_that_there_are_not(ur: Calls, context: int) -> None:
    desc = image_desc("IMAGE2D")
    for field in ("channelOrder", "channelType"):
        form = image_format()
        setattr(form, field, 99)
        assert create_image(ur, context, desc, form)[0] == NO_IMAGE
    odd = image_format("RGB", "FLOAT")
    assert create_image(ur, context, desc, odd)[0] == "UNSUPPORTED_IMAGE_FORMAT"


@table(
    "kind, row, slice_, code",
    [
        ("IMAGE2D", 47, 0, "INVALID_SIZE"),
        ("IMAGE2D", 48, 240, "SUCCESS"),  # there is one slice, whatever its pitch
        ("IMAGE3D", 0, 239, "INVALID_SIZE"),
        ("IMAGE3D", 52, 240, "INVALID_SIZE"),
        ("IMAGE3D", 52, 260, "SUCCESS"),
        ("IMAGE1D_ARRAY", 0, 47, "INVALID_SIZE"),
        ("IMAGE1D_ARRAY", 47, 0, "INVALID_SIZE"),
    ],
)
def test_pitches_of_transfers(
    ur: Calls, context: int, queue: int, kind: str, row: int, slice_: int, code: str
) -> None:
    image, room = new_image(ur, context, kind), ctypes.create_string_buffer(4096)
    area = rect(), region(*KINDS[kind])
    for name in ("urEnqueueMemImageRead", "urEnqueueMemImageWrite"):
        assert ur(name, queue, image, True, *area, row, slice_, room, 0, None, None) == code


def test_copies_that_cannot_be(ur: Calls, context: int, queue: int) -> None:
    image = new_image(ur, context)
    other = new_image(ur, context, format=image_format("RGBA", "FLOAT"))
    copy, area = "urEnqueueMemImageCopy", region(4, 4)
    ends = area, 0, None, None
    assert ur(copy, queue, image, other, rect(), rect(), *ends) == NO_IMAGE
    assert ur(copy, queue, image, image, rect(), rect(3, 1), *ends) == "OVERLAPPING_REGIONS"


def test_an_image_is_no_buffer_and_a_buffer_no_image(
    ur: Calls, context: int, device: PluginDevice, queue: int
) -> None:
    image, buffer = new_image(ur, context), new_buffer(ur, context, 4096)
    room, made = ctypes.create_string_buffer(4096), ctypes.byref(ctypes.c_void_p())
    ends, area = (0, None, None), (rect(), region(1))
    part = ctypes.byref(struct("ur_buffer_region_t", "BUFFER_REGION", origin=0, size=4))
    size = ctypes.byref(ctypes.c_size_t())
    buffers = struct("ur_exp_command_buffer_desc_t", "EXP_COMMAND_BUFFER_DESC")
    commands = ur.make("urCommandBufferCreateExp", context, device.handle, buffers)
    appended = None, 0, None, 0, None, None, None, None
    for name, *given in (
        ("urEnqueueMemBufferRead", queue, image, True, 0, 4, room, *ends),
        ("urEnqueueMemBufferWrite", queue, image, True, 0, 4, room, *ends),
        ("urEnqueueMemBufferCopy", queue, image, buffer, 0, 0, 4, *ends),
        ("urEnqueueMemBufferCopy", queue, buffer, image, 0, 0, 4, *ends),
        ("urEnqueueMemBufferCopyRect", queue, buffer, image, rect(), *area, 0, 0, 0, 0, *ends),
        ("urEnqueueMemBufferReadRect", queue, image, True, rect(), *area, 0, 0, 0, 0, room, *ends),
        ("urEnqueueMemBufferFill", queue, image, room, 4, 0, 4, *ends),
        ("urEnqueueMemBufferMap", queue, image, True, 1, 0, 4, *ends, made),
        ("urMemBufferPartition", image, 0, UR["UR_BUFFER_CREATE_TYPE_REGION"], part, made),
        ("urCommandBufferAppendMemBufferFillExp", commands, image, room, 4, 0, 4, *appended[1:]),
        ("urCommandBufferAppendMemBufferReadExp", commands, image, 0, 4, room, *appended[1:]),
        ("urEnqueueMemImageRead", queue, buffer, True, *area, 0, 0, room, *ends),
        ("urEnqueueMemImageWrite", queue, buffer, True, *area, 0, 0, room, *ends),
        ("urEnqueueMemImageCopy", queue, buffer, image, rect(), *area, *ends),
        ("urEnqueueMemImageCopy", queue, image, buffer, rect(), *area, *ends),
        ("urMemImageGetInfo", buffer, UR["UR_IMAGE_INFO_WIDTH"], 0, None, size),
    ):
        assert ur(name, *given) == "INVALID_MEM_OBJECT", name


def test_devices_without_images(
    ur: Calls, context: int, queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = new_image(ur, context)
    ask = CLDevice.info

    def without(device: CLDevice, name: str) -> Any:
        return False if name == "CL_DEVICE_IMAGE_SUPPORT" else ask(device, name)

    monkeypatch.setattr(CLDevice, "info", without)
    assert create_image(ur, context, image_desc("IMAGE2D"))[0] == "UNSUPPORTED_FEATURE"
    area, room = (rect(), region(1)), ctypes.create_string_buffer(4)
    ends = 0, 0, room, 0, None, None
    for name in ("urEnqueueMemImageRead", "urEnqueueMemImageWrite"):
        assert ur(name, queue, image, True, *area, *ends) == "UNSUPPORTED_FEATURE"
    given = queue, image, image, rect(), *area, 0, None, None
    assert ur("urEnqueueMemImageCopy", *given) == "UNSUPPORTED_FEATURE"
    made = ctypes.byref(ctypes.c_void_p())
    sampler = ctypes.byref(struct("ur_sampler_desc_t", "SAMPLER_DESC"))
    assert ur("urSamplerCreate", context, sampler, made) == "UNSUPPORTED_FEATURE"


def describe(normalized: bool = True, addressing: int = 1, filtering: int = 0) -> object:
    return ctypes.byref(
        struct(
            "ur_sampler_desc_t",
            "SAMPLER_DESC",
            normalizedCoords=normalized,
            addressingMode=addressing,
            filterMode=filtering,
        )
    )


def test_what_is_no_sampler(ur: Calls, context: int) -> None:
    made = ctypes.byref(ctypes.c_void_p())
    assert ur("urSamplerCreate", None, describe(), made) == "INVALID_NULL_HANDLE"
    assert ur("urSamplerCreate", context, None, made) == "INVALID_NULL_POINTER"
    assert ur("urSamplerCreate", context, describe(), None) == "INVALID_NULL_POINTER"
    assert ur("urSamplerCreate", context, describe(addressing=5), made) == "INVALID_ENUMERATION"
    assert ur("urSamplerCreate", context, describe(filtering=2), made) == "INVALID_ENUMERATION"
    assert ur("urSamplerCreateWithNativeHandle", 0, context, None, made) == "INVALID_NULL_HANDLE"
    assert ur("urSamplerCreateWithNativeHandle", 0x1000, context, None, made) == "INVALID_VALUE"
    native = ur.make("urContextGetNativeHandle", context).value
    refused = {
        "INVALID_SAMPLER",
        "INVALID_CONTEXT",
    }  # not every driver knows one of its objects from another
    assert ur("urSamplerCreateWithNativeHandle", native, context, None, made) in refused


PIXELS = bytes(range(240))  # of an image of 12 by 5


@pytest.fixture
def part(ur: Calls, device: PluginDevice, divisible: None) -> Iterator[int]:
    """A sub-device of one compute unit."""
    one = UR.get_struct("ur_device_partition_property_t")(type=UR["UR_DEVICE_PARTITION_EQUALLY"])
    one.value.equally = 1
    fields = {"pProperties": ctypes.addressof(one), "PropCount": 1}
    how = struct("ur_device_partition_properties_t", "DEVICE_PARTITION_PROPERTIES", **fields)
    made = ctypes.c_void_p()
    ur.ok("urDevicePartition", device.handle, how, 1, made)
    yield made.value or 0
    ur.ok("urDeviceRelease", made)


@pytest.fixture
def its_context(ur: Calls, part: int) -> int:
    return ur.make("urContextCreate", 1, array(part)).value or 0


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("flag", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_every_transfer(ur: Calls, part: int, its_context: int, flag: str, blocking: bool) -> None:
    flags = ("PROFILING_ENABLE", *filter(None, [flag]))
    queue = new_queue(ur, its_context, part, *flags).value or 0
    first, second = new_image(ur, its_context), new_image(ur, its_context)
    data, room = ctypes.create_string_buffer(PIXELS, 240), ctypes.create_string_buffer(240)
    written, copied, read = (ctypes.c_void_p() for _ in range(3))
    whole = rect(), region(12, 5)
    ends = 0, 0, data, 0, None, ctypes.byref(written)
    ur.ok("urEnqueueMemImageWrite", queue, first, blocking, *whole, *ends)
    ends = 1, array(written), ctypes.byref(copied)
    ur.ok("urEnqueueMemImageCopy", queue, first, second, rect(), *whole, *ends)
    ends = 0, 0, room, 1, array(copied), ctypes.byref(read)
    ur.ok("urEnqueueMemImageRead", queue, second, blocking, *whole, *ends)
    assert ur.number("urEventGetInfo", read, "UR_EVENT_INFO_COMMAND_QUEUE") == queue
    ur.ok("urQueueFinish", queue)
    assert room.raw == PIXELS
    for event, kind in ((written, "WRITE"), (copied, "COPY"), (read, "READ")):
        finish(ur, event, f"MEM_IMAGE_{kind}")


def test_a_transfer_has_its_place_in_the_order(ur: Calls, part: int, its_context: int) -> None:
    queue = new_queue(ur, its_context, part).value or 0
    gate, go = held_back(ur, its_context)
    image = new_image(ur, its_context, data=bytes(240))
    data, room = ctypes.create_string_buffer(PIXELS, 240), ctypes.create_string_buffer(240)
    whole, read = (rect(), region(12, 5)), ctypes.c_void_p()
    ur.ok("urEnqueueMemImageWrite", queue, image, False, *whole, 0, 0, data, 1, array(gate))
    ends = 0, 0, room, 0, None, ctypes.byref(read)
    ur.ok("urEnqueueMemImageRead", queue, image, False, *whole, *ends)
    assert not ur.number("urQueueGetInfo", queue, "UR_QUEUE_INFO_EMPTY")
    assert room.raw == bytes(240)
    go()
    ur.ok("urEventWait", 1, array(read))
    assert room.raw == PIXELS
    assert image_content(ur, queue, image, (12, 5, 1)) == PIXELS
