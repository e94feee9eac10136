"""Kernels with images and samplers: launches, updates, and what is refused."""

from __future__ import annotations

from ctypes import Array, byref, c_float, c_int, c_uint64, c_void_p
from typing import Any, Final

import pytest
from helpers.ze_bench import ZeBench, argument
from helpers.ze_calls import new

from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero import contexts, images, kernels
from fairlead.plugins.level_zero.in_c import UNKNOWN

SOURCE: Final = b"""
constant sampler_t plain = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void flip(read_only image2d_t from, write_only image2d_t to) {
    int x = get_global_id(0), last = get_image_width(from) - 1;
    write_imageui(to, (int2)(last - x, 0), read_imageui(from, plain, (int2)(x, 0)));
}
kernel void sample(read_only image2d_t image, sampler_t sampler, global int *out, float step) {
    int i = get_global_id(0);
    out[i] = (int)read_imageui(image, sampler, (float2)((i - 2) * step + step / 2, 0.0f)).x;
}
"""
WIDTH: Final = 4
CHANNELS: Final = 4
END: Final = (None, 0, None)


def pixels(*numbers: int) -> Array[c_int]:
    """Return pixels of four channels, which all drivers have. All four are the number."""
    return (c_int * (CHANNELS * len(numbers)))(*(one for one in numbers for _ in range(CHANNELS)))


def image(bench: ZeBench, *numbers: int) -> c_void_p:
    """Return a line of numbers, as an argument."""
    desc = new("ze_image_desc_t", type=ZE["ZE_IMAGE_TYPE_2D"], flags=1)
    desc.width, desc.height, desc.depth, desc.arraylevels = len(numbers), 1, 1, 1
    letters = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in "RGBA")
    layout = ZE["ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32"]
    desc.format = ZE.get_struct("ze_image_format_t")(layout, 0, *letters)
    made = bench.ze.make("zeImageCreate", bench.context, bench.device, desc)
    queue, data = bench.immediate(), pixels(*numbers)
    bench.ze.ok("zeCommandListAppendImageCopyFromMemory", queue, made, data, None, *END)
    bench.finish(queue)
    return c_void_p(made)


def numbers_of(bench: ZeBench, one: c_void_p) -> list[int]:
    """Return the numbers of an image."""
    queue, data = bench.immediate(), pixels(*[0] * WIDTH)
    bench.ze.ok("zeCommandListAppendImageCopyToMemory", queue, data, one, None, *END)
    bench.finish(queue)
    return list(data[::CHANNELS])


def sampler(
    bench: ZeBench, addressing: str, filtering: str = "NEAREST", normalized: bool = True
) -> c_void_p:
    desc = new(
        "ze_sampler_desc_t",
        addressMode=ZE[f"ZE_SAMPLER_ADDRESS_MODE_{addressing}"],
        filterMode=ZE[f"ZE_SAMPLER_FILTER_MODE_{filtering}"],
        isNormalized=normalized,
    )
    return c_void_p(bench.ze.make("zeSamplerCreate", bench.context, bench.device, desc))


def kernel(bench: ZeBench, name: str, *arguments: Any) -> int:
    return bench.kernel(name, *arguments, module=bench.module(SOURCE))


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(
    ("addressing", "expected"),
    [
        ("REPEAT", [30, 40, 10, 20, 30, 40, 10, 20]),
        ("CLAMP", [10, 10, 10, 20, 30, 40, 40, 40]),
        ("CLAMP_TO_BORDER", [0, 0, 10, 20, 30, 40, 0, 0]),
        ("MIRROR", [20, 10, 10, 20, 30, 40, 40, 30]),
    ],
)
def test_what_lies_beyond_an_image(
    bench: ZeBench,
    addressing: str,
    expected: list[int],
    described: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not described:
        monkeypatch.setattr(kernels, "find_kind", lambda kernel, index: UNKNOWN)
    out = bench.ints(count=8)
    given = image(bench, 10, 20, 30, 40), sampler(bench, addressing), out.pointer, c_float(0.25)
    made = bench.immediate()
    bench.launch(made, kernel(bench, "sample", *given), 8)
    bench.finish(made)
    assert out.all == expected


@pytest.mark.slow
def test_a_captured_graph_has_images(bench: ZeBench) -> None:
    """Copies and a launch, which the graph runs again with what the image has then."""
    source, target = image(bench, 1, 2, 3, 4), image(bench, 0, 0, 0, 0)
    data, out = pixels(1, 2, 3, 4), pixels(*[0] * WIDTH)
    made, copy = bench.immediate(flags=ZE["ZE_COMMAND_QUEUE_FLAG_IN_ORDER"]), "ImageCopyFromMemory"
    bench.ze.ok("zeCommandListBeginGraphCaptureExt", made)
    bench.ze.ok(f"zeCommandListAppend{copy}", made, source, data, None, *END)
    bench.launch(made, kernel(bench, "flip", source, target), WIDTH)
    bench.ze.ok("zeCommandListAppendImageCopyToMemory", made, out, target, None, *END)
    graph = bench.ze.make("zeCommandListEndGraphCaptureExt", made)
    assert not any(out), "nothing has run"
    executable = bench.ze.make("zeGraphInstantiateExt", graph)
    for first in (1, 5):
        data[:] = pixels(*range(first, first + WIDTH))
        bench.ze.ok("zeCommandListAppendGraphExt", made, executable, None, *END)
        bench.ze.ok("zeCommandListHostSynchronize", made, (1 << 64) - 1)
        assert list(out) == list(reversed(data))


def test_images_of_a_launch_are_updated(bench: ZeBench) -> None:
    one, other = image(bench, 1, 2, 3, 4), image(bench, 5, 6, 7, 8)
    targets = [image(bench, 0, 0, 0, 0) for _ in range(2)]
    made, number = bench.closed(kernel(bench, "flip", one, targets[0]), WIDTH)
    bench.run(made)
    changes = argument(number, 0, other), argument(number, 1, targets[1])
    assert bench.update(made, *changes) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert [numbers_of(bench, each) for each in targets] == [[4, 3, 2, 1], [8, 7, 6, 5]]


def test_the_sampler_of_a_launch_is_updated(bench: ZeBench) -> None:
    out, one = bench.ints(count=8), image(bench, 10, 20, 30, 40)
    given = one, sampler(bench, "CLAMP"), out.pointer, c_float(0.25)
    made, number = bench.closed(kernel(bench, "sample", *given), 8)
    bench.run(made)
    assert out.all == [10, 10, 10, 20, 30, 40, 40, 40]
    assert bench.update(made, argument(number, 1, sampler(bench, "REPEAT"))) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [30, 40, 10, 20, 30, 40, 10, 20]


def test_updates_that_cannot_be(bench: ZeBench) -> None:
    """A wrong kind of object, a missing one, a wrong size. The launch stays as it was."""
    one, target = image(bench, 1, 2, 3, 4), image(bench, 0, 0, 0, 0)
    made, number = bench.closed(kernel(bench, "flip", one, target), WIDTH)
    for wrong in (sampler(bench, "CLAMP"), c_void_p(64), c_void_p(), c_int(1), c_uint64(0)):
        assert bench.update(made, argument(number, 0, wrong)) == "INVALID_ARGUMENT"
    bench.run(made)
    assert numbers_of(bench, target) == [4, 3, 2, 1]


# refusals


def test_arguments_that_cannot_be(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.compiles = True  # Intel's driver knows no types of the arguments of a binary's kernels
    flip, one = kernel(bench, "flip"), image(bench, 1)
    out, some = bench.ints(count=1), sampler(bench, "CLAMP")

    def code(made: int, index: int, value: Any, size: int = 8) -> str:
        where = byref(value) if value is not None else None
        return bench.ze.code("zeKernelSetArgumentValue", made, index, size, where)

    for wrong in (some, out.pointer, c_void_p(), None):
        assert code(flip, 0, wrong) == "INVALID_ARGUMENT"
    assert code(flip, 0, one, 4) == "INVALID_KERNEL_ARGUMENT_SIZE"
    assert code(flip, 2, one) == "INVALID_KERNEL_ARGUMENT_INDEX"
    sample = kernel(bench, "sample")
    for wrong in (one, c_void_p(), None):
        assert code(sample, 1, wrong) == "INVALID_ARGUMENT"
    monkeypatch.setattr(contexts, "_shared", {})  # as if it had other devices
    other = ZeBench(bench.ze, bench.driver)
    foreign = image(other, 1)
    assert code(flip, 0, foreign) == "INVALID_ARGUMENT"
    bench.ze.ok("zeImageDestroy", foreign)
    other.close()


def test_an_image_that_is_gone_is_missing(bench: ZeBench) -> None:
    one, target = image(bench, 1, 2, 3, 4), image(bench, 0, 0, 0, 0)
    flip, made = kernel(bench, "flip", one, target), bench.list()
    bench.ze.ok("zeImageDestroy", one)
    count = new("ze_group_count_t", groupCountX=1, groupCountY=1, groupCountZ=1)
    append = "zeCommandListAppendLaunchKernel", made, flip, byref(count)
    assert bench.ze.code(*append, *END) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"addressMode": 9}, "INVALID_ENUMERATION"), ({"filterMode": 9}, "INVALID_ENUMERATION")],
)
def test_samplers_that_cannot_be(bench: ZeBench, fields: dict[str, int], code: str) -> None:
    desc, out = new("ze_sampler_desc_t", **fields), c_void_p()
    given = bench.context, bench.device, byref(desc), byref(out)
    assert bench.ze.code("zeSamplerCreate", *given) == code
    missing = bench.context, bench.device, None, byref(out)
    assert bench.ze.code("zeSamplerCreate", *missing) == "INVALID_NULL_POINTER"


def test_a_sampler_of_a_device_without_images(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "has_images", lambda device: False)
    desc, out = new("ze_sampler_desc_t"), c_void_p()
    given = bench.context, bench.device, byref(desc), byref(out)
    assert bench.ze.code("zeSamplerCreate", *given) == "UNSUPPORTED_FEATURE"
