"""Images and samplers: contents of every type, copies, kernels, what is refused."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Final

import pytest

from fairlead.conformance.checks import each, equal, rule, unsupported
from fairlead.conformance.ze.calls import ZECalls, new
from fairlead.conformance.ze.objects import IMAGE_SIZES, ZEObjects
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice

TO, FROM = "zeCommandListAppendImageCopyToMemory", "zeCommandListAppendImageCopyFromMemory"
END: Final = (None, 0, None)
Triple = tuple[int, int, int]


@pytest.fixture(autouse=True)
def limits(ze: ZECalls, device: int) -> Any:
    """What the device says of its images. It has some, or the case is unsupported."""
    row = new("ze_device_image_properties_t")
    ze.ok("zeDeviceGetImageProperties", device, row)
    return row if row.maxImageDims2D else unsupported("the device has no images (maxImageDims2D)")


@pytest.fixture
def append(ze: ZECalls, make: ZEObjects) -> Any:
    """Appends a command to a synchronous immediate list."""
    mode = ZE["ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS"]
    made = make.immediate(mode=mode)
    return lambda routine, *given: ze.ok(routine, made, *given, *END)


def make_description(kind: str = "2D", layout: str = "8_8_8_8") -> Any:
    """Return a ze_image_desc_t of whole numbers."""
    x, y, z = IMAGE_SIZES["1D" if kind == "BUFFER" else kind]
    count = {"1DARRAY": y, "2DARRAY": z}.get(kind, 1)
    sizes = {"width": x, "height": y, "depth": z, "arraylevels": count}
    number = ZE[f"ZE_IMAGE_TYPE_{kind}"]
    desc = new("ze_image_desc_t", type=number, flags=ZE["ZE_IMAGE_FLAG_KERNEL_WRITE"], **sizes)
    swizzle = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in "RGBA")
    kind_of_numbers = ZE["ZE_IMAGE_FORMAT_TYPE_UINT"]
    layout_number = ZE[f"ZE_IMAGE_FORMAT_LAYOUT_{layout}"]
    desc.format = ZE.get_struct("ze_image_format_t")(layout_number, kind_of_numbers, *swizzle)
    return desc


def make_pixels(kind: str = "2D") -> Any:
    x, y, z = IMAGE_SIZES[kind]
    count = 4 * x * y * z
    return ctypes.create_string_buffer(bytes(7 * i % 251 for i in range(count)), count)


def make_region(origin: Triple, size: Triple) -> Any:
    return byref(ZE.get_struct("ze_image_region_t")(*origin, *size))


def select_part(kind: str, origin: Triple, size: Triple) -> list[int]:
    """Return a region of `pixels`."""
    (x, y, _), data = IMAGE_SIZES[kind], make_pixels(kind).raw
    starts = [
        4 * (origin[0] + x * (j + y * k))
        for k in range(origin[2], origin[2] + size[2])
        for j in range(origin[1], origin[1] + size[1])
    ]
    return [byte for at in starts for byte in data[at : at + 4 * size[0]]]


@pytest.mark.parametrize("kind", each(IMAGE_SIZES, FROM, "{}: a region is read as it was written"))
def test_contents(kind: str, make: ZEObjects, append: Any) -> None:
    image, data, (x, y, z) = (
        make.image(make_description(kind)),
        make_pixels(kind),
        IMAGE_SIZES[kind],
    )
    append(FROM, image, data, None)
    origin, size = (1, min(1, y - 1), min(1, z - 1)), (x - 2, max(1, y - 2), max(1, z - 1))
    out = ctypes.create_string_buffer(4 * size[0] * size[1] * size[2])
    append(TO, out, image, make_region(origin, size))
    equal(list(out.raw), select_part(kind, origin, size), "the bytes of the pixels")


@rule("zeCommandListAppendImageCopyRegion", "a slice of a 3D image to a 2D image")
def test_region(make: ZEObjects, append: Any) -> None:
    volume, flat = make.image(make_description("3D")), make.image(make_description())
    append(FROM, volume, make_pixels("3D"), None)
    slices = make_region((0, 0, 0), (6, 4, 1)), make_region((0, 0, 2), (6, 4, 1))
    append("zeCommandListAppendImageCopyRegion", flat, volume, *slices)
    out = ctypes.create_string_buffer(96)
    append(TO, out, flat, None)
    equal(list(out.raw), select_part("3D", (0, 0, 2), (6, 4, 1)), "the bytes of the pixels")


@rule("zeCommandListAppendImageCopy", "a whole image in a regular list, as often as it runs")
def test_whole(ze: ZECalls, make: ZEObjects, queue: int, append: Any) -> None:
    images = [make.image(make_description()) for _ in range(2)]
    made, out = make.list(), ctypes.create_string_buffer(96)
    ze.ok("zeCommandListAppendImageCopy", made, images[1], images[0], *END)
    make.barrier(made)
    ze.ok(TO, made, out, images[1], None, *END)
    make.close_list(made)
    for first in (0, 4):
        data = ctypes.create_string_buffer(make_pixels().raw[first:] + bytes(first), 96)
        append(FROM, images[0], data, None)
        make.run(queue, made)
        equal(list(out.raw), list(data.raw), "the bytes of the pixels")


@rule("zeKernelSetArgumentValue", "a kernel samples an image, and writes another")
def test_kernel(make: ZEObjects, queue: int, append: Any) -> None:
    images = [make.image(make_description()) for _ in range(2)]
    append(FROM, images[0], make_pixels(), None)
    given = (ctypes.c_void_p(one) for one in (*images, make.sampler()))
    made = make.list()
    make.launch(made, make.kernel("flip", *given), 6)
    make.close_list(made)
    make.run(queue, made)
    out = ctypes.create_string_buffer(24)
    append(TO, out, images[1], make_region((0, 0, 0), (6, 1, 1)))
    found, data = out.raw, make_pixels().raw
    backwards = [byte for x in reversed(range(6)) for byte in data[4 * x : 4 * x + 4]]
    equal(list(found), backwards, "the first line")


@rule("zeKernelSetArgumentValue", "a kernel reads an image of a buffer")
def test_image_of_a_buffer(make: ZEObjects, queue: int, append: Any, limits: Any) -> None:
    if not limits.maxImageBufferSize:
        unsupported("the device has no images of buffers (maxImageBufferSize)")
    image, out = make.image(make_description("BUFFER")), make.ints(count=6)
    append(FROM, image, make_pixels("1D"), None)
    made = make.list()
    make.launch(made, make.kernel("reds", ctypes.c_void_p(image), out.pointer), 6)
    make.close_list(made)
    make.run(queue, made)
    equal(out.all, list(make_pixels("1D").raw[::4]), "the first channel of the pixels")


@rule("zeImageGetProperties", "what can be created can be sampled")
def test_properties(ze: ZECalls, device: int) -> None:
    row = new("ze_image_properties_t")
    ze.ok("zeImageGetProperties", device, byref(make_description()), row)
    point = ZE["ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT"]
    equal(row.samplerFilterFlags & point, point, "whether the nearest pixel can be taken")


@rule("zeImageCreate", "refuses NULL, and types that do not exist")
def test_refused(ze: ZECalls, make: ZEObjects) -> None:
    ask, out = ("zeImageCreate", make.context, make.device), byref(ctypes.c_void_p())
    ze.refuses("INVALID_NULL_POINTER", *ask, None, out)
    wrong = make_description()
    wrong.type = 99
    ze.refuses("INVALID_ENUMERATION", *ask, byref(wrong), out)
    ze.refuses("INVALID_NULL_HANDLE", "zeImageDestroy", None)


@rule("zeCommandListAppendImageCopyToMemory", "waits for its events, and signals one")
def test_events(ze: ZECalls, make: ZEObjects, append: Any) -> None:
    image, out = make.image(make_description()), ctypes.create_string_buffer(96)
    data = make_pixels()
    append(FROM, image, data, None)
    first, last = make.events(2)
    made = make.immediate()
    ze.ok(TO, made, out, image, None, last, 1, (ctypes.c_void_p * 1)(first))
    ze.answers("NOT_READY", "zeEventQueryStatus", last)
    ze.ok("zeEventHostSignal", first)
    make.finish(made, last)
    equal(list(out.raw), list(data.raw), "the bytes of the pixels")


@rule("zeImageViewCreateExt", "a view has the pixels of its image, and the image those of its view")
def test_view(
    make: ZEObjects, ze: ZECalls, chosen: ZEDevice, device: int, context: int, append: Any
) -> None:
    if "ZE_extension_image_view" not in chosen.driver.extensions:
        unsupported("the driver has no ZE_extension_image_view")
    image, desc = make.image(make_description()), make_description(layout="32")
    desc.format.y = desc.format.z = ZE["ZE_IMAGE_FORMAT_SWIZZLE_0"]
    desc.format.w = ZE["ZE_IMAGE_FORMAT_SWIZZLE_1"]
    view = ze.create("zeImageViewCreateExt", context, device, byref(desc), image)
    make.defer(lambda: ze.number("zeImageDestroy", view))
    data, room = make_pixels(), ctypes.create_string_buffer(len(make_pixels()))
    for target, source in ((image, view), (view, image)):
        append(FROM, target, data, None)
        append(TO, room, source, None)
        equal(room.raw, data.raw, "the bytes")
        data = ctypes.create_string_buffer(bytes(reversed(data.raw)), len(data))
