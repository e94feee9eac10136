"""Images: contents of every kind, queries, kernels that read and write them, command-buffers."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import pytest

from fairlead.conformance.checks import each, equal, rule
from fairlead.conformance.ur import kernels
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.conformance.ur.recording import Update, URRecording, need
from fairlead.conformance.ur.values import BufferValue, ImageValue, SamplerValue, make_offset
from fairlead.loader.ur.abi import UR

WIDTH, HEIGHT = 8, 8
PIXELS = WIDTH * HEIGHT


def make_region(width: int = WIDTH, height: int = HEIGHT) -> Any:
    return UR.get_struct("ur_rect_region_t")(width, height, 1)


def make_pixels(first: float = 0.0) -> Any:
    """Return pixels of four floats. Red is the number of the pixel."""
    return (ctypes.c_float * (4 * PIXELS))(
        *[first + i if channel == 0 else 1.0 for i in range(PIXELS) for channel in range(4)]
    )


def write_image(ur: URCalls, make: URObjects, queue: int) -> int:
    """Return an image with these pixels."""
    image, where = make.image(WIDTH, HEIGHT), (make_offset(), make_region())
    ur.ok("urEnqueueMemImageWrite", queue, image, True, *where, 0, 0, make_pixels())
    ur.ok("urQueueFinish", queue)
    return image


def read_pixels(ur: URCalls, queue: int, image: int) -> Any:
    """Return the pixels of an image."""
    out, where = make_pixels(-1000), (make_offset(), make_region())
    ur.ok("urEnqueueMemImageRead", queue, image, True, *where, 0, 0, out)
    return out


@rule("urEnqueueMemImageRead", "gives what urEnqueueMemImageWrite put in")
def test_round_trip(ur: URCalls, make: URObjects, queue: int) -> None:
    image = write_image(ur, make, queue)
    equal(list(read_pixels(ur, queue, image)), list(make_pixels()), "the pixels")


@rule("urEnqueueMemImageRead", "a part of the image")
def test_part(ur: URCalls, make: URObjects, queue: int) -> None:
    image, out = write_image(ur, make, queue), (ctypes.c_float * 16)()
    where = make_offset(3, 2), make_region(2, 2)
    ur.ok("urEnqueueMemImageRead", queue, image, True, *where, 0, 0, out)
    equal(list(out)[0::4], [19.0, 20.0, 27.0, 28.0], "red of four pixels")


@rule("urEnqueueMemImageCopy", "a part of an image to a part of another")
def test_copy(ur: URCalls, make: URObjects, queue: int) -> None:
    image, other = (write_image(ur, make, queue) for _ in range(2))
    where = make_offset(0, 0), make_offset(4, 4), make_region(2, 1)
    ur.ok("urEnqueueMemImageCopy", queue, image, other, *where)
    equal(read_red(ur, queue, other)[36:38], [0.0, 1.0], "red of the copied pixels")


@rule("urMemImageGetInfo", "size, format and pixel are those that it was made with")
def test_info(ur: URCalls, make: URObjects) -> None:
    image = make.image(WIDTH, HEIGHT)
    found = {
        name: ur.info("urMemImageGetInfo", image, f"UR_IMAGE_INFO_{name}")
        for name in ("WIDTH", "HEIGHT", "ELEMENT_SIZE")
    }
    equal(found, {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "ELEMENT_SIZE": 16}, "what it says of itself")


@rule("urEnqueueKernelLaunchWithArgsExp", "a kernel samples an image")
def test_sampled(ur: URCalls, make: URObjects, queue: int) -> None:
    image = write_image(ur, make, queue)
    sampler, buffer = make.sampler(), make.buffer(4 * PIXELS)
    program = make.source_program(kernels.IMAGE_SOURCE)
    given = ImageValue(image), SamplerValue(sampler), BufferValue(buffer)
    make.launch(queue, make.kernel("sample", program=program), *given, size=(WIDTH, HEIGHT))
    out = (ctypes.c_float * PIXELS)()
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, 4 * PIXELS, out)
    equal(list(out), [float(i) for i in range(PIXELS)], "red of the pixels")


@rule("urMemImageCreate", "begins with what the host memory holds")
def test_host_pointer(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    data = make_pixels(5.0)
    flags = UR["UR_MEM_FLAG_READ_WRITE"] | UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
    given = (
        context,
        flags,
        ctypes.byref(make.image_format()),
        ctypes.byref(make.image_shape(WIDTH, HEIGHT)),
        data,
    )
    image = make.own("urMemRelease", ur.new("urMemImageCreate", *given))
    equal(list(read_pixels(ur, queue, image)), list(data), "the pixels")


# Every kind of image, of bytes

#: How many pixels the images of each kind have: x, y, z.
KINDS: Final = {
    "IMAGE1D": (6, 1, 1),
    "IMAGE1D_ARRAY": (6, 4, 1),
    "IMAGE2D": (6, 4, 1),
    "IMAGE2D_ARRAY": (6, 4, 3),
    "IMAGE3D": (6, 4, 3),
}
#: What the specification demands of every adapter, in RGBA.
FORMATS: Final = (
    *("UNORM_INT8", "UNORM_INT16", "SNORM_INT8", "SNORM_INT16", "SIGNED_INT8", "SIGNED_INT16"),
    *("SIGNED_INT32", "UNSIGNED_INT8", "UNSIGNED_INT16", "UNSIGNED_INT32", "HALF_FLOAT", "FLOAT"),
)
Extent = tuple[int, int, int]


def describe_image(ur: URCalls, kind: str, **fields: int) -> Any:
    """Return a ur_image_desc_t."""
    if kind.endswith("ARRAY"):
        ur.require("UR_DEVICE_INFO_IMAGE_MAX_ARRAY_SIZE")
    x, y, z = KINDS[kind]
    images = {"IMAGE1D_ARRAY": y, "IMAGE2D_ARRAY": z}.get(kind, 1)
    given = {"width": x, "height": y, "depth": z, "arraySize": images} | fields
    return ur.struct("ur_image_desc_t", type=UR[f"UR_MEM_TYPE_{kind}"], **given)


def make_format(ur: URCalls, channel: str = "UNSIGNED_INT8") -> Any:
    """Return a ur_image_format_t: RGBA, with channels of a type."""
    order, kind = UR["UR_IMAGE_CHANNEL_ORDER_RGBA"], UR[f"UR_IMAGE_CHANNEL_TYPE_{channel}"]
    return ur.struct("ur_image_format_t", channelOrder=order, channelType=kind)


def make_image(
    ur: URCalls, make: URObjects, context: int, desc: Any, channel: str = "UNSIGNED_INT8"
) -> int:
    """Make an image, without contents."""
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    given = ctypes.byref(make_format(ur, channel)), ctypes.byref(desc), None
    made = ur.new("urMemImageCreate", context, UR["UR_MEM_FLAG_READ_WRITE"], *given)
    return make.own("urMemRelease", made)


def make_box(origin: Extent, size: Extent) -> tuple[Any, Any]:
    return UR.get_struct("ur_rect_offset_t")(*origin), UR.get_struct("ur_rect_region_t")(*size)


def make_data(kind: str) -> bytes:
    """Return pixels for an image of a kind, all different."""
    x, y, z = KINDS[kind]
    return bytes((7 * i + i // 251) % 256 for i in range(4 * x * y * z))


def fill_image(ur: URCalls, queue: int, image: int, kind: str) -> None:
    """Fill an image of a kind."""
    data = ctypes.create_string_buffer(make_data(kind), len(make_data(kind)))
    ends = 0, 0, data, 0, None, None
    ur.ok("urEnqueueMemImageWrite", queue, image, True, *make_box((0, 0, 0), KINDS[kind]), *ends)
    ur.ok("urQueueFinish", queue)


def cut_data(kind: str, origin: Extent, size: Extent) -> bytes:
    """Return a part of `make_data`."""
    (x, y, _), data = KINDS[kind], make_data(kind)
    starts = [
        4 * ((origin[2] + k) * y * x + (origin[1] + j) * x + origin[0])
        for k in range(size[2])
        for j in range(size[1])
    ]
    return b"".join(data[at : at + 4 * size[0]] for at in starts)


def choose_part(kind: str) -> tuple[Extent, Extent]:
    """Origin and size of a part of an image of a kind."""
    x, y, z = KINDS[kind]
    return (1, min(1, y - 1), min(1, z - 1)), (x - 2, max(1, y - 2), max(1, z - 1))


@pytest.mark.parametrize(
    "kind", each(KINDS, "urEnqueueMemImageWrite", "{}: a part is read as it was written")
)
def test_kind(ur: URCalls, make: URObjects, context: int, queue: int, kind: str) -> None:
    image = make_image(ur, make, context, describe_image(ur, kind))
    fill_image(ur, queue, image, kind)
    origin, size = choose_part(kind)
    out = ctypes.create_string_buffer(4 * size[0] * size[1] * size[2])
    ends = 0, 0, out, 0, None, None
    ur.ok("urEnqueueMemImageRead", queue, image, True, *make_box(origin, size), *ends)
    equal(list(out.raw), list(cut_data(kind, origin, size)), "the bytes of the pixels")


@rule("urEnqueueMemImageRead", "rows and slices of host memory are as far apart as the pitches say")
def test_pitches(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    image = make_image(ur, make, context, describe_image(ur, "IMAGE3D"))
    fill_image(ur, queue, image, "IMAGE3D")
    origin, size = choose_part("IMAGE3D")
    row, slice_ = 4 * size[0] + 8, (4 * size[0] + 8) * (size[1] + 1)
    out = ctypes.create_string_buffer(slice_ * size[2])
    ends = row, slice_, out, 0, None, None
    ur.ok("urEnqueueMemImageRead", queue, image, True, *make_box(origin, size), *ends)
    rows = [
        out.raw[k * slice_ + j * row :][: 4 * size[0]]
        for k in range(size[2])
        for j in range(size[1])
    ]
    equal(list(b"".join(rows)), list(cut_data("IMAGE3D", origin, size)), "the bytes of the pixels")


@pytest.mark.parametrize("kind", each(KINDS, "urMemImageGetInfo", "{}: the sizes that it has"))
def test_sizes(ur: URCalls, make: URObjects, context: int, kind: str) -> None:
    image, (x, y, z) = make_image(ur, make, context, describe_image(ur, kind)), KINDS[kind]
    expected = {"WIDTH": x}
    if kind in ("IMAGE2D", "IMAGE2D_ARRAY", "IMAGE3D"):
        expected["HEIGHT"] = y
    if kind == "IMAGE3D":
        expected["DEPTH"] = z
    if kind.endswith("ARRAY"):
        expected["ARRAY_SIZE"] = y if kind == "IMAGE1D_ARRAY" else z
    names = {name: f"UR_IMAGE_INFO_{name}" for name in expected}
    found = {name: ur.info("urMemImageGetInfo", image, query) for name, query in names.items()}
    equal(found, expected, "what it says of itself")


@pytest.mark.parametrize(
    "channel", each(FORMATS, "urMemImageCreate", "RGBA of {}, which every adapter has")
)
def test_format(ur: URCalls, make: URObjects, context: int, channel: str) -> None:
    image = make_image(ur, make, context, describe_image(ur, "IMAGE2D"), channel)
    told = ur.raw_info("urMemImageGetInfo", image, "UR_IMAGE_INFO_FORMAT")
    equal(told, bytes(make_format(ur, channel)), "its format")


@rule("urEnqueueMemImageCopy", "a slice of a 3D image to a 2D image")
def test_copy_slice(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    volume = make_image(ur, make, context, describe_image(ur, "IMAGE3D"))
    image = make_image(ur, make, context, describe_image(ur, "IMAGE2D"))
    fill_image(ur, queue, volume, "IMAGE3D")
    start, size = make_box((0, 0, 2), (6, 4, 1))
    origin = UR.get_struct("ur_rect_offset_t")(0, 0, 0)
    ur.ok("urEnqueueMemImageCopy", queue, volume, image, start, origin, size)
    out = ctypes.create_string_buffer(4 * 24)
    ur.ok("urEnqueueMemImageRead", queue, image, True, origin, size, 0, 0, out)
    equal(list(out.raw), list(cut_data("IMAGE3D", (0, 0, 2), (6, 4, 1))), "the bytes of the pixels")


@rule("urMemImageCreate", "takes host memory with pitches")
def test_host_pitches(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    data = ctypes.create_string_buffer(bytes(i % 253 for i in range(3 * 160)), 3 * 160)
    desc = describe_image(ur, "IMAGE3D", rowPitch=32, slicePitch=160)  # rows of 8, slices of 5 rows
    given = ctypes.byref(make_format(ur)), ctypes.byref(desc), data
    flags = UR["UR_MEM_FLAG_READ_WRITE"] | UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
    image = make.own("urMemRelease", ur.new("urMemImageCreate", context, flags, *given))
    out = ctypes.create_string_buffer(4 * 72)
    ends = 0, 0, out, 0, None, None
    ur.ok("urEnqueueMemImageRead", queue, image, True, *make_box((0, 0, 0), (6, 4, 3)), *ends)
    rows = [data.raw[k * 160 + j * 32 :][:24] for k in range(3) for j in range(4)]
    equal(list(out.raw), list(b"".join(rows)), "the bytes of the pixels")


# What is refused


@pytest.mark.parametrize(
    "kind", each(KINDS, "urEnqueueMemImageRead", "{}: a region beyond the image is refused")
)
def test_beyond(ur: URCalls, make: URObjects, context: int, queue: int, kind: str) -> None:
    image = make_image(ur, make, context, describe_image(ur, kind))
    out = ctypes.create_string_buffer(4096)
    for axis, length in enumerate(KINDS[kind]):
        origin = tuple(length if other == axis else 0 for other in range(3))
        for name in ("urEnqueueMemImageRead", "urEnqueueMemImageWrite"):
            ends = 0, 0, out, 0, None, None
            where = make_box((origin[0], origin[1], origin[2]), (1, 1, 1))
            ur.fails(name, "INVALID_SIZE|INVALID_VALUE", queue, image, True, *where, *ends)


@pytest.mark.parametrize(
    "field", each(("width", "height", "depth"), "urMemImageCreate", "{} of 0 is refused")
)
def test_empty(ur: URCalls, context: int, field: str) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    desc, made = describe_image(ur, "IMAGE3D", **{field: 0}), ctypes.byref(ctypes.c_void_p())
    given = (
        UR["UR_MEM_FLAG_READ_WRITE"],
        ctypes.byref(make_format(ur)),
        ctypes.byref(desc),
        None,
        made,
    )
    ur.fails(
        "urMemImageCreate", "INVALID_IMAGE_SIZE|INVALID_IMAGE_FORMAT_DESCRIPTOR", context, *given
    )


@rule("urMemImageCreate", "an image larger than the device's limit is refused")
def test_too_large(ur: URCalls, context: int) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    desc = describe_image(
        ur, "IMAGE2D", width=ur.device_says("UR_DEVICE_INFO_IMAGE2D_MAX_WIDTH") + 1
    )
    given = UR["UR_MEM_FLAG_READ_WRITE"], ctypes.byref(make_format(ur)), ctypes.byref(desc), None
    ur.fails("urMemImageCreate", "INVALID_IMAGE_SIZE", context, *given, ctypes.c_void_p())


@rule("urEnqueueMemImageRead", "a buffer is not an image")
def test_buffer_is_no_image(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    ends = 0, 0, ctypes.create_string_buffer(64), 0, None, None
    where = make_box((0, 0, 0), (1, 1, 1))
    buffer = make.buffer()
    ur.fails("urEnqueueMemImageRead", "INVALID_MEM_OBJECT", queue, buffer, True, *where, *ends)


# Kernels, command-buffers, native handles


def reverse_rows(first: float = 0.0) -> list[float]:
    """Red of `make_pixels` with each row the other way round."""
    return [first + HEIGHT * y + WIDTH - 1 - x for y in range(HEIGHT) for x in range(WIDTH)]


def read_red(ur: URCalls, queue: int, image: int) -> list[float]:
    """Red of an image's pixels."""
    return list(read_pixels(ur, queue, image))[0::4]


def make_turn_kernel(make: URObjects) -> int:
    return make.kernel("turn", program=make.source_program(kernels.IMAGE_SOURCE))


@rule("urEnqueueKernelLaunchWithArgsExp", "a kernel writes an image, and released images live")
def test_written_by_a_kernel(ur: URCalls, make: URObjects, queue: int) -> None:
    source, target = write_image(ur, make, queue), make.image(WIDTH, HEIGHT)
    sampler = make.sampler()
    given = ImageValue(source), SamplerValue(sampler), BufferValue(target)
    make.launch(queue, make_turn_kernel(make), *given, size=(WIDTH, HEIGHT))
    make.release(source)
    make.release(sampler)
    equal(read_red(ur, queue, target), reverse_rows(), "red of the pixels")


@rule("urCommandBufferAppendKernelLaunchWithArgsExp", "images and samplers are arguments as others")
def test_recorded(ur: URCalls, make: URObjects, queue: int) -> None:
    source, target = write_image(ur, make, queue), make.image(WIDTH, HEIGHT)
    sampler, recording = make.sampler(), URRecording(make)
    given = ImageValue(source), SamplerValue(sampler), BufferValue(target)
    recording.launch(make_turn_kernel(make), *given, size=(WIDTH, HEIGHT))
    recording.finalize_and_run(queue)
    equal(read_red(ur, queue, target), reverse_rows(), "red of the pixels")


@rule("urCommandBufferUpdateKernelLaunchExp", "gives a launch another image")
def test_updated(ur: URCalls, make: URObjects, queue: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    source, target = write_image(ur, make, queue), make.image(WIDTH, HEIGHT)
    other, recording = make.image(WIDTH, HEIGHT), URRecording(make, isUpdatable=True)
    ends = 0, 0, make_pixels(100.0), 0, None, None
    ur.ok("urEnqueueMemImageWrite", queue, other, True, make_offset(), make_region(), *ends)
    ur.ok("urQueueFinish", queue)
    given = ImageValue(source), SamplerValue(make.sampler()), BufferValue(target)
    step = recording.launch(make_turn_kernel(make), *given, size=(WIDTH, HEIGHT), command=True)
    recording.finalize_and_run(queue)
    equal(read_red(ur, queue, target), reverse_rows(), "red of the pixels")
    recording.update(Update(step.command, {0: ImageValue(other)}, dimensions=2))
    recording.run(queue)
    equal(read_red(ur, queue, target), reverse_rows(100.0), "red of the pixels after the update")


@rule("urMemImageCreateWithNativeHandle", "is the same image")
def test_native_handle(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    make.require_opencl()
    image = write_image(ur, make, queue)
    native = ur.new("urMemGetNativeHandle", image, make.device)
    form, desc = make.image_format(), make.image_shape(WIDTH, HEIGHT)
    how = ur.struct("ur_mem_native_properties_t", isNativeHandleOwned=False)
    given = native, context, ctypes.byref(form), ctypes.byref(desc), ctypes.byref(how)
    other = make.own("urMemRelease", ur.new("urMemImageCreateWithNativeHandle", *given))
    equal(read_red(ur, queue, other), list(make_pixels())[0::4], "red of the pixels")
