"""Images of buffers (ZE_IMAGE_TYPE_BUFFER): contents, kernels, queries, and what is refused."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p
from typing import Any, Final

import pytest
from helpers.ze_bench import ZeBench
from helpers.ze_calls import new

from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero.core import driver

END: Final = (None, 0, None)
TO, FROM = "zeCommandListAppendImageCopyToMemory", "zeCommandListAppendImageCopyFromMemory"


def described(width: int, kind: str = "BUFFER") -> Any:
    """Return a ze_image_desc_t of whole numbers."""
    desc = new("ze_image_desc_t", type=ZE[f"ZE_IMAGE_TYPE_{kind}"], flags=1, width=width)
    letters = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in "R001")
    number = ZE["ZE_IMAGE_FORMAT_TYPE_SINT"]
    desc.format = ZE.get_struct("ze_image_format_t")(
        ZE["ZE_IMAGE_FORMAT_LAYOUT_32"], number, *letters
    )
    return desc


def has_them(bench: ZeBench) -> bool:
    """Return whether the device says that it has images of buffers."""
    found = bench.ze.properties(
        "zeDeviceGetImageProperties", "ze_device_image_properties_t", bench.device
    )
    return found.maxImageBufferSize > 0


@pytest.fixture
def images(bench: ZeBench) -> ZeBench:
    """A context whose device has them."""
    if not has_them(bench):
        pytest.skip("kernels with images of buffers crash this driver: driver_profiles.md")
    return bench


def make(bench: ZeBench, *numbers: int, kind: str = "BUFFER") -> c_void_p:
    """Return an image with these numbers, as an argument."""
    desc = described(len(numbers), kind)
    one = bench.ze.make("zeImageCreate", bench.context, bench.device, byref(desc))
    queue, data = bench.immediate(), (c_int * len(numbers))(*numbers)
    bench.ze.ok(FROM, queue, one, data, None, *END)
    bench.finish(queue)
    return c_void_p(one)


def numbers_of(bench: ZeBench, one: c_void_p, count: int, *, start: int = 0) -> list[int]:
    queue, data = bench.immediate(), (c_int * count)()
    region = ZE.get_struct("ze_image_region_t")(start, 0, 0, count, 1, 1)
    bench.ze.ok(TO, queue, data, one, byref(region), *END)
    bench.finish(queue)
    return list(data)


def test_where_there_are_none(bench: ZeBench) -> None:
    """The answers agree: what a device says, what a format says, and the creation."""
    there, desc, out = has_them(bench), described(4), c_void_p()
    code = "SUCCESS" if there else "UNSUPPORTED_FEATURE"
    given = bench.context, bench.device, byref(desc), byref(out)
    assert bench.ze.code("zeImageCreate", *given) == code
    assert bool(out.value) == there
    row = new("ze_image_properties_t")
    assert bench.ze.code("zeImageGetProperties", bench.device, byref(desc), row) == code
    support = new("ze_image_format_support_ext_properties_t")
    row.pNext = ctypes.addressof(support)
    bench.ze.ok("zeImageGetProperties", bench.device, byref(desc), row)
    assert bool(support.supported) == there
    profile = driver.objects.list_owned("ze_device_handle_t")[bench.device].platform.ur.profile
    assert profile.images_of_buffers_crash != there


def test_a_region_is_read_and_copied(images: ZeBench) -> None:
    """Also to a 1D image and back, and by device memory."""
    one, other = make(images, *range(10, 18)), make(images, *[0] * 8, kind="1D")
    last, memory = make(images, *[0] * 8), images.ints(*[0] * 8)
    assert numbers_of(images, one, 3, start=2) == [12, 13, 14]
    queue = images.immediate(flags=2)
    images.ze.ok("zeCommandListAppendImageCopy", queue, other, one, *END)
    images.ze.ok(TO, queue, memory.address, other, None, *END)
    images.ze.ok(FROM, queue, last, memory.address, None, *END)
    images.finish(queue)
    assert memory.all == numbers_of(images, last, 8) == list(range(10, 18))


@pytest.mark.parametrize("width", [0, 1 << 60])
def test_sizes_that_cannot_be(images: ZeBench, width: int) -> None:
    out = c_void_p()
    given = images.context, images.device, byref(described(width)), byref(out)
    assert images.ze.code("zeImageCreate", *given) == "UNSUPPORTED_SIZE"
    assert not out.value
