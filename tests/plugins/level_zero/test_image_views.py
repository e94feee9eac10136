"""Views: other images of the same pixels."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any

import pytest
from helpers.ze_bench import ZeBench
from helpers.ze_calls import new

from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero.core import driver

CREATE, VIEW = "zeImageCreate", "zeImageViewCreateExt"
TO, FROM = "zeCommandListAppendImageCopyToMemory", "zeCommandListAppendImageCopyFromMemory"
END = (None, 0, None)
WIDTH, HEIGHT = 6, 4
SOURCE = b"""
kernel void words(read_only image2d_t from, global uint *out) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    out[at.x + at.y * 6] = read_imageui(from, at).x;
}
kernel void put(write_only image2d_t to) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imageui(to, at, (uint4)(0x01020300 + at.x + 16 * at.y));
}
"""


def described(
    layout: str = "8_8_8_8", kind: str = "2D", letters: str = "RGBA", **fields: Any
) -> Any:
    """Return a ze_image_desc_t of whole numbers, which kernels write."""
    sizes = {"width": WIDTH, "height": HEIGHT, "depth": 1, "arraylevels": 1}
    number, flags = ZE[f"ZE_IMAGE_TYPE_{kind}"], ZE["ZE_IMAGE_FLAG_KERNEL_WRITE"]
    desc = new("ze_image_desc_t", type=number, flags=flags, **{**sizes, **fields})
    swizzle = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in letters)
    form = ZE[f"ZE_IMAGE_FORMAT_LAYOUT_{layout}"], ZE["ZE_IMAGE_FORMAT_TYPE_UINT"]
    desc.format = ZE.get_struct("ze_image_format_t")(*form, *swizzle)
    return desc


ONE = described("32", letters="R001")


def image_of(bench: ZeBench, desc: Any) -> int:
    return bench.ze.make(CREATE, bench.context, bench.device, byref(desc))


def view_of(bench: ZeBench, image: int, desc: Any, routine: str = VIEW) -> int:
    return bench.ze.make(routine, bench.context, bench.device, byref(desc), image)


def refusal(bench: ZeBench, image: int, desc: Any) -> str:
    return bench.ze.code(VIEW, bench.context, bench.device, byref(desc), image, c_void_p())


def extensions(bench: ZeBench) -> set[bytes]:
    routine, count = "zeDriverGetExtensionProperties", ctypes.c_uint32()
    bench.ze.ok(routine, bench.driver, byref(count), None)
    rows = (ZE.get_struct("ze_driver_extension_properties_t") * count.value)()
    bench.ze.ok(routine, bench.driver, byref(count), rows)
    return {row.name for row in rows}


@pytest.fixture
def image(bench: ZeBench) -> int:
    """A 2D image of four bytes a pixel, on a driver whose images have views."""
    if not driver.objects.list_owned("ze_device_handle_t")[bench.device].pitch_alignment:
        pytest.skip("needs a driver that makes 2D images of buffers: Intel's")
    assert b"ZE_extension_image_view" in extensions(bench)
    return image_of(bench, described())


def launch(bench: ZeBench, name: str, *arguments: Any) -> None:
    """Run a kernel for each pixel, and wait."""
    kernel = bench.kernel(name, *arguments, module=bench.module(SOURCE))
    made, count = bench.immediate(mode=1), new("ze_group_count_t", groupCountZ=1)
    count.groupCountX, count.groupCountY = WIDTH, HEIGHT
    bench.ze.ok("zeCommandListAppendLaunchKernel", made, kernel, count)


def append(bench: ZeBench, routine: str, *given: Any) -> None:
    bench.ze.ok(routine, bench.immediate(mode=1), *given, *END)


@pytest.mark.parametrize("routine", [VIEW, "zeImageViewCreateExp"])
def test_kernels_read_pixels_by_a_view(bench: ZeBench, image: int, routine: str) -> None:
    view, out = view_of(bench, image, ONE, routine), bench.ints(count=WIDTH * HEIGHT)
    data = bytes(7 * place % 251 for place in range(4 * WIDTH * HEIGHT))
    append(bench, FROM, image, data, None)
    launch(bench, "words", c_void_p(view), out.pointer)
    words = (ctypes.c_int32 * (WIDTH * HEIGHT)).from_buffer_copy(data)
    assert out.all == list(words)


def test_an_image_has_what_its_view_is_given(bench: ZeBench, image: int) -> None:
    """Also after the view is destroyed, and the other way round."""
    view, room = view_of(bench, image, ONE), ctypes.create_string_buffer(4 * WIDTH * HEIGHT)
    launch(bench, "put", c_void_p(view))
    bench.ze.ok("zeImageDestroy", view)
    append(bench, TO, room, image, None)
    assert room.raw[:8] == bytes([0, 3, 2, 1, 1, 3, 2, 1])
    again = view_of(bench, image, ONE)
    bench.ze.ok("zeImageDestroy", image)
    append(bench, TO, ctypes.memset(room, 0, 4) and room, again, None)
    assert room.raw[:8] == bytes([0, 3, 2, 1, 1, 3, 2, 1])


def test_a_view_may_have_views_and_another_swizzle(bench: ZeBench, image: int) -> None:
    data = bytes(range(4 * WIDTH * HEIGHT))
    append(bench, FROM, image, data, None)
    view = view_of(bench, view_of(bench, image, ONE), described(letters="BGRA"))
    out = bench.ints(count=WIDTH * HEIGHT)
    launch(bench, "words", c_void_p(view), out.pointer)
    assert out.all == list(data[2::4])  # x is what lies third in memory


def test_an_image_of_a_buffer_has_views(bench: ZeBench, image: int) -> None:
    fields = {"kind": "BUFFER", "height": 1}
    first = image_of(bench, described(**fields))
    other = view_of(bench, first, described("32", letters="R001", **fields))
    data, room = bytes(range(4 * WIDTH)), ctypes.create_string_buffer(4 * WIDTH)
    append(bench, FROM, other, data, None)
    append(bench, TO, room, first, None)
    assert room.raw == data


def test_views_that_cannot_be_are_refused(bench: ZeBench, image: int) -> None:
    plane = new("ze_image_view_planar_ext_desc_t", planeIndex=0)
    for desc, code in (
        (described(pNext=plane), "UNSUPPORTED_FEATURE"),
        (described("16_16_16_16"), "UNSUPPORTED_IMAGE_FORMAT"),
        (described(width=WIDTH - 1), "INVALID_ARGUMENT"),
        (described(height=HEIGHT + 1), "INVALID_ARGUMENT"),
        (described(kind="BUFFER", height=1), "INVALID_ARGUMENT"),
        (described("YUYV"), "UNSUPPORTED_IMAGE_FORMAT"),
    ):
        assert refusal(bench, image, desc) == code
    other = image_of(bench, described(kind="3D", depth=2))
    assert refusal(bench, other, described(kind="3D", depth=2)) == "UNSUPPORTED_FEATURE"
    context = bench.ze.make("zeContextCreate", bench.driver, new("ze_context_desc_t"))
    view = bench.ze.make(VIEW, context, bench.device, byref(ONE), image)
    bench.ze.ok("zeImageDestroy", view)
    bench.ze.ok("zeContextDestroy", context)


def test_a_driver_without_views_says_so(bench: ZeBench) -> None:
    if b"ZE_extension_image_view" in extensions(bench):
        pytest.skip("needs a driver that makes no 2D images of buffers: PoCL")
    assert refusal(bench, image_of(bench, described()), ONE) == "UNSUPPORTED_FEATURE"
    text = c_void_p()
    bench.ze.ok("zeDriverGetLastErrorDescription", bench.driver, text)
    assert b"makes no views" in ctypes.string_at(text.value or 0)
