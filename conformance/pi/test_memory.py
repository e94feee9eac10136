"""Buffers, sub-buffers, rectangles, mapping, images."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.arrays import handles, ints, sizes
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.pi.objects import PIObjects, codes
from fairlead.conformance.pi.recorder import offset, region
from fairlead.conformance.shared_cases import check_rectangles
from fairlead.loader.pi.abi import PI

CREATE = "piMemBufferCreate"
COPY_RECT = "piEnqueueMemBufferCopyRect"


def _make_struct(struct: Any, *values: int) -> Any:
    return ctypes.byref(struct(*values))


@rule(CREATE, "creates a buffer, of the size that was asked for, in its context")
def test_create(bare_objects: PIObjects) -> None:
    objects = bare_objects
    buffer = objects.make(
        CREATE, objects.context, PI["PI_MEM_FLAGS_ACCESS_RW"], 64, None, ..., None
    )
    answers = [
        objects.number("piMemGetInfo", buffer, name) for name in ("PI_MEM_SIZE", "PI_MEM_CONTEXT")
    ]
    equal(answers, [64, objects.context], "size and context")


@rule(CREATE, "an error if the size is 0")
def test_no_size(bare_objects: PIObjects) -> None:
    bare_objects.buffer([0])
    buffer = ctypes.c_void_p()
    code = bare_objects.pi.piMemBufferCreate(
        bare_objects.context, PI["PI_MEM_FLAGS_ACCESS_RW"], 0, None, ctypes.byref(buffer), None
    )
    codes(code, "INVALID_BUFFER_SIZE", "INVALID_VALUE")


@rule(CREATE, "PI_MEM_FLAGS_HOST_PTR_USE: the host's memory is the buffer's when it is mapped")
def test_host_memory(bare_objects: PIObjects, queue: int) -> None:
    objects, data = bare_objects, ints(range(1024))
    objects.buffer([0])
    flags = PI["PI_MEM_FLAGS_ACCESS_RW"] | PI["PI_MEM_FLAGS_HOST_PTR_USE"]
    buffer = objects.make(CREATE, objects.context, flags, 4096, data, ..., None)
    pattern = ctypes.byref(ctypes.c_int32(9))
    objects.call("piEnqueueMemBufferFill", queue, buffer, pattern, 4, 0, 64, 0, None, None)
    arguments = (buffer, True, PI["PI_MAP_READ"], 0, 4096, 0, None, None)
    pointer = objects.make("piEnqueueMemBufferMap", queue, *arguments, ...)
    equal(
        (pointer, data[:17]),
        (ctypes.addressof(data), [9] * 16 + [16]),
        "the address, and the memory",
    )
    objects.call("piEnqueueMemUnmap", queue, buffer, pointer, 0, None, None)
    objects.finish(queue)


@rule("piEnqueueMemBufferWrite", "what is written is read")
def test_write(bare_objects: PIObjects, queue: int) -> None:
    buffer, data = bare_objects.buffer([0] * 8), ints(range(4))
    bare_objects.call("piEnqueueMemBufferWrite", queue, buffer, True, 8, 16, data, 0, None, None)
    equal(bare_objects.read(queue, buffer), [0, 0, 0, 1, 2, 3, 0, 0], "the buffer")


@rule("piEnqueueMemBufferCopy", "copies the bytes")
def test_copy(bare_objects: PIObjects, queue: int) -> None:
    source, target = bare_objects.buffer(range(8)), bare_objects.buffer([0] * 8)
    bare_objects.call("piEnqueueMemBufferCopy", queue, source, target, 4, 8, 12, 0, None, None)
    equal(bare_objects.read(queue, target), [0, 0, 1, 2, 3, 0, 0, 0], "the buffer")


@rule("piEnqueueMemBufferFill", "fills with the pattern of the time of the call")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64])
def test_fill(bare_objects: PIObjects, queue: int, size: int) -> None:
    buffer, pattern = bare_objects.buffer([0] * 48), (ctypes.c_ubyte * size)(*range(1, size + 1))
    expected = bytes(64) + bytes(pattern) * (64 // size) + bytes(64)
    bare_objects.call("piEnqueueMemBufferFill", queue, buffer, pattern, size, 64, 64, 0, None, None)
    ctypes.memset(pattern, 0xFF, size)
    equal(bytes(ints(bare_objects.read(queue, buffer))), expected, "the buffer")


@rule(COPY_RECT, "copies a box; the host's forms write and read one")
def test_rect(bare_objects: PIObjects, queue: int) -> None:
    check_rectangles(
        bare_objects,
        queue,
        (bare_objects.buffer([0] * 64), bare_objects.buffer([0] * 64)),
        ("piEnqueueMemBufferWriteRect", COPY_RECT, "piEnqueueMemBufferReadRect"),
        (region(8, 2, 2), offset(4, 1, 1), offset(8, 2, 0)),
    )


@rule("piMemBufferPartition", "a sub-buffer is a part of its buffer")
def test_sub_buffer(bare_objects: PIObjects, queue: int) -> None:
    objects = bare_objects
    align = max(
        objects.number("piDeviceGetInfo", objects.device, "PI_DEVICE_INFO_MEM_BASE_ADDR_ALIGN")
        // 32,
        1,
    )
    buffer, data = objects.buffer([0] * (align + 8)), ints([5] * 4)
    region = PI.get_struct("pi_buffer_region_struct")(align * 4, 16)
    arguments = (
        PI["PI_MEM_FLAGS_ACCESS_RW"],
        PI["PI_BUFFER_CREATE_TYPE_REGION"],
        ctypes.byref(region),
    )
    part = objects.make("piMemBufferPartition", buffer, *arguments, ...)
    objects.call("piEnqueueMemBufferWrite", queue, part, True, 0, 16, data, 0, None, None)
    equal(objects.number("piMemGetInfo", part, "PI_MEM_SIZE"), 16, "its size")
    equal(objects.read(queue, buffer)[align:], [5] * 4 + [0] * 4, "the buffer from there on")


@rule("piEnqueueMemBufferMap", "gives the buffer's bytes, and takes what is written there")
def test_map(bare_objects: PIObjects, queue: int) -> None:
    objects, flags = bare_objects, PI["PI_MAP_READ"] | PI["PI_MAP_WRITE"]
    buffer = objects.buffer(range(8))
    pointer = objects.make(
        "piEnqueueMemBufferMap", queue, buffer, True, flags, 8, 16, 0, None, None, ...
    )
    mapped = (ctypes.c_int32 * 4).from_address(pointer)
    found = list(mapped)
    mapped[0] = 50
    objects.call("piEnqueueMemUnmap", queue, buffer, pointer, 0, None, None)
    equal(
        (found, objects.read(queue, buffer)),
        ([2, 3, 4, 5], [0, 1, 50, 3, 4, 5, 6, 7]),
        "what was mapped, and the buffer",
    )


@rule(
    "piextMemGetNativeHandle",
    "piextMemCreateWithNativeHandle gives memory of the same native handle",
)
def test_native_memory(bare_objects: PIObjects) -> None:
    objects, buffer = bare_objects, bare_objects.buffer([1] * 4)
    native = objects.make("piextMemGetNativeHandle", buffer, objects.device, ...)
    again = objects.make("piextMemCreateWithNativeHandle", native, objects.context, False, ...)
    equal(
        objects.make("piextMemGetNativeHandle", again, objects.device, ...),
        native,
        "the native handle",
    )


@rule("piextKernelSetArgMemObj", "a kernel works on a buffer")
def test_kernel(objects: PIObjects, queue: int) -> None:
    buffer = objects.buffer(range(8))
    objects.launch(queue, objects.kernel("increment", buffer), 8)
    equal(objects.read(queue, buffer), list(range(1, 9)), "the buffer")


# Images of 8 × 8 pixels of four 32-bit unsigned integers

_ORIGIN, _WHOLE = PI.get_struct("pi_image_offset_struct"), PI.get_struct("pi_image_region_struct")


def _make_image(objects: PIObjects, value: int) -> int:
    if not objects.number("piDeviceGetInfo", objects.device, "PI_DEVICE_INFO_IMAGE_SUPPORT"):
        unsupported("the device has no images (PI_DEVICE_INFO_IMAGE_SUPPORT)")
    form = PI.get_struct("pi_image_format")(
        PI["PI_IMAGE_CHANNEL_ORDER_RGBA"], PI["PI_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32"]
    )
    shape = PI.get_struct("pi_image_desc")(PI["PI_MEM_TYPE_IMAGE2D"], 8, 8, 1, 1)
    pixels = (ctypes.c_uint32 * 256)(*[value] * 256)
    flags = PI["PI_MEM_FLAGS_ACCESS_RW"] | PI["PI_MEM_FLAGS_HOST_PTR_COPY"]
    return objects.make(
        "piMemImageCreate",
        objects.context,
        flags,
        ctypes.byref(form),
        ctypes.byref(shape),
        pixels,
        ...,
    )


def _read_pixels(objects: PIObjects, queue: int, image: int) -> list[int]:
    """Return the first value of each pixel."""
    into = (ctypes.c_uint32 * 256)()
    where = (_make_struct(_ORIGIN, 0, 0, 0), _make_struct(_WHOLE, 8, 8, 1), 0, 0)
    objects.call("piEnqueueMemImageRead", queue, image, True, *where, into, 0, None, None)
    return list(into[::4])


@rule("piEnqueueMemImageRead", "gives the pixels")
def test_image(bare_objects: PIObjects, queue: int) -> None:
    equal(_read_pixels(bare_objects, queue, _make_image(bare_objects, 3)), [3] * 64, "the pixels")


@rule("piEnqueueMemImageWrite", "writes a region")
def test_write_image(bare_objects: PIObjects, queue: int) -> None:
    objects, image, data = (
        bare_objects,
        _make_image(bare_objects, 1),
        (ctypes.c_uint32 * 16)(*[9] * 16),
    )
    where = (_make_struct(_ORIGIN, 2, 3, 0), _make_struct(_WHOLE, 2, 2, 1), 0, 0)
    objects.call("piEnqueueMemImageWrite", queue, image, True, *where, data, 0, None, None)
    expected = [9 if x in (2, 3) and y in (3, 4) else 1 for y in range(8) for x in range(8)]
    equal(_read_pixels(objects, queue, image), expected, "the pixels")


@rule("piEnqueueMemImageCopy", "copies a region")
def test_copy_image(bare_objects: PIObjects, queue: int) -> None:
    objects, source, target = (
        bare_objects,
        _make_image(bare_objects, 5),
        _make_image(bare_objects, 1),
    )
    where = (
        _make_struct(_ORIGIN, 0, 0, 0),
        _make_struct(_ORIGIN, 6, 6, 0),
        _make_struct(_WHOLE, 2, 2, 1),
    )
    objects.call("piEnqueueMemImageCopy", queue, source, target, *where, 0, None, None)
    expected = [5 if x >= 6 and y >= 6 else 1 for y in range(8) for x in range(8)]
    equal(_read_pixels(objects, queue, target), expected, "the pixels")


@rule("piEnqueueMemImageFill", "fills a region")
def test_fill_image(bare_objects: PIObjects, queue: int) -> None:
    objects, image, colour = (
        bare_objects,
        _make_image(bare_objects, 1),
        (ctypes.c_uint32 * 4)(7, 7, 7, 7),
    )
    code = objects.pi.piEnqueueMemImageFill(
        queue, image, colour, sizes(0, 0, 0), sizes(8, 1, 1), 0, None, None
    )
    if PI.errors[code][0] == "PI_ERROR_UNSUPPORTED_FEATURE":
        unsupported("the plugin does not fill images")
    codes(code, "PI_SUCCESS")
    equal(_read_pixels(objects, queue, image), [7] * 8 + [1] * 56, "the pixels")


_SAMPLING = """
kernel void sample(read_only image2d_t image, sampler_t how, global int *out) {
    out[get_global_id(0)] = read_imageui(image, how, (int2)(get_global_id(0), 0)).x;
}
"""


def _make_sampler(objects: PIObjects) -> int:
    """Make a sampler that gives the nearest pixel of the image."""
    names = ("NORMALIZED_COORDS", "ADDRESSING_MODE", "FILTER_MODE")
    values = (
        0,
        PI["PI_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE"],
        PI["PI_SAMPLER_FILTER_MODE_NEAREST"],
    )
    pairs = [
        (PI[f"PI_SAMPLER_PROPERTIES_{name}"], value)
        for name, value in zip(names, values, strict=True)
    ]
    words = [word for pair in pairs for word in pair]
    return objects.make("piSamplerCreate", objects.context, (ctypes.c_uint64 * 7)(*words, 0), ...)


@pytest.mark.usefixtures("opencl_c")
@rule("piextKernelSetArgSampler", "a kernel samples an image")
def test_sampled_image(bare_objects: PIObjects, queue: int) -> None:
    objects, image = bare_objects, _make_image(bare_objects, 6)
    sampler, out = _make_sampler(objects), objects.buffer([0] * 10)
    kernel = objects.make("piKernelCreate", objects.build(_SAMPLING), b"sample", ...)
    objects.set_argument(kernel, 0, image)
    objects.call("piextKernelSetArgSampler", kernel, 1, handles(sampler))
    objects.set_argument(kernel, 2, out)
    objects.launch(queue, kernel, 10)
    equal(objects.read(queue, out), [6] * 10, "what the kernel has read, beyond the edge too")


@rule("piMemImageGetInfo", "the sizes that the image was made with")
def test_image_sizes(bare_objects: PIObjects) -> None:
    image = _make_image(bare_objects, 1)
    names = ("WIDTH", "HEIGHT", "ELEMENT_SIZE")
    found = [
        bare_objects.number("piMemImageGetInfo", image, f"PI_IMAGE_INFO_{name}") for name in names
    ]
    equal(found, [8, 8, 16], "width, height, and bytes of a pixel")
