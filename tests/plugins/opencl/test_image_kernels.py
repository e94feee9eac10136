"""Kernels with images and samplers: launches, the older functions, command-buffers and updates."""

from __future__ import annotations

import ctypes

import pytest
from helpers.command_bench import Bench
from helpers.image_calls import image_content, new_image
from helpers.launching import MEM, SAMPLER, Numbers, build_once, rows, sizes
from helpers.memory_calls import held_back, struct
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR

WIDTH, HEIGHT = 12, 5  # of the images of these tests
SOURCE = b"""
constant sampler_t plain = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void flip(read_only image2d_t from, write_only image2d_t to) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    int2 place = (int2)(get_image_width(from) - 1 - at.x, at.y);
    write_imageui(to, place, read_imageui(from, plain, at));
}
kernel void sample(read_only image2d_t image, sampler_t sampler, global int *out, float step) {
    int i = get_global_id(0);
    out[i] = (int)read_imageui(image, sampler, (float2)((i - 2) * step + step / 2, 0.0f)).x;
}
kernel void lines(read_only image1d_array_t from, write_only image2d_array_t to) {
    int x = get_global_id(0), y = get_global_id(1);
    write_imageui(to, (int4)(x, y, 2, 0), read_imageui(from, plain, (int2)(x, y)));
}
"""
WHOLE = WIDTH, HEIGHT, 1


@pytest.fixture
def kernels(ur: Calls, context: int) -> dict[str, int]:
    program = build_once(ur, context, SOURCE)
    names = ("flip", "sample", "lines")
    return {name: ur.make("urKernelCreate", program, name.encode()).value or 0 for name in names}


@pytest.fixture
def images(ur: Calls, context: int) -> list[ctypes.c_void_p]:
    """Two images with contents, and two that are to get some."""
    contents = (picture(1), picture(2), bytes(240), bytes(240))
    return [new_image(ur, context, data=data) for data in contents]


def picture(seed: int) -> bytes:
    """Pixels of RGBA."""
    return bytes((seed * 37 + i * seed) % 256 for i in range(240))


def flipped(data: bytes) -> bytes:
    """Pixels with each row the other way round."""
    lines = [[data[at : at + 4] for at in range(row, row + 48, 4)] for row in range(0, 240, 48)]
    return b"".join(b"".join(reversed(line)) for line in lines)


def sampler(
    ur: Calls, context: int, addressing: str = "CLAMP_TO_EDGE", normalized: bool = False
) -> ctypes.c_void_p:
    """A sampler that takes the nearest pixel."""
    mode = UR[f"UR_SAMPLER_ADDRESSING_MODE_{addressing}"]
    fields = {"normalizedCoords": normalized, "addressingMode": mode}
    desc = struct("ur_sampler_desc_t", "SAMPLER_DESC", **fields)
    return ur.make("urSamplerCreate", context, desc)


def test_the_older_functions_take_images_and_samplers(
    old: Calls, context: int, queue: int, kernels: dict[str, int], images: list[ctypes.c_void_p]
) -> None:
    flip, sample = kernels["flip"], kernels["sample"]
    old.ok("urKernelSetArgMemObj", flip, 0, None, images[0])
    old.ok("urKernelSetArgMemObj", flip, 1, None, images[2])
    shape = None, sizes((WIDTH, HEIGHT)), None
    old.ok("urEnqueueKernelLaunch", queue, flip, 2, *shape)
    assert image_content(old, queue, images[2], WHOLE) == flipped(picture(1))
    made = sampler(old, context)
    assert old("urKernelSetArgSampler", sample, 1, None, images[0]) == "INVALID_SAMPLER"
    assert old("urKernelSetArgMemObj", sample, 0, None, made) == "INVALID_MEM_OBJECT"
    old.ok("urKernelSetArgSampler", sample, 1, None, made)
    old.ok("urSamplerRelease", made)  # the argument keeps it
    numbers, step = Numbers(old, context, 16), ctypes.c_float(1)
    old.ok("urKernelSetArgMemObj", sample, 0, None, images[0])
    old.ok("urKernelSetArgMemObj", sample, 2, None, numbers.handle)
    old.ok("urKernelSetArgValue", sample, 3, 4, None, step)
    shape = None, sizes((16,)), None
    old.ok("urEnqueueKernelLaunch", queue, sample, 1, *shape)
    red = list(picture(1)[0:48:4])
    assert numbers.read(queue) == [red[0]] * 2 + red + [red[-1]] * 2
    old.ok("urMemRelease", numbers.handle)


def test_an_argument_of_a_released_image_is_not_there(
    old: Calls, context: int, queue: int, kernels: dict[str, int]
) -> None:
    source, target = (new_image(old, context) for _ in range(2))
    for index, image in enumerate((source, target)):
        old.ok("urKernelSetArgMemObj", kernels["flip"], index, None, image)
    old.ok("urMemRelease", source)
    shape = None, sizes((WIDTH, HEIGHT)), None
    given = queue, kernels["flip"], 2, *shape, None, 0, None, None
    assert old("urEnqueueKernelLaunch", *given) == "INVALID_KERNEL_ARGS"
    old.ok("urMemRelease", target)


# command-buffers


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True])
def test_images_in_command_buffers(
    old: Calls,
    mode: str,
    bench: Bench,
    kernels: dict[str, int],
    images: list[ctypes.c_void_p],
    older: bool,
) -> None:
    ur, flip = old, kernels["flip"]
    buffer = bench.buffer()
    for source, target in ((0, 2), (2, 3)):
        table = rows((MEM, images[source].value), (MEM, images[target].value))
        shape = None, sizes((WIDTH, HEIGHT)), None
        ends = 0, None, 0, None, 0, None, None, None, None
        if older:
            for index, image in enumerate((source, target)):
                ur.ok("urKernelSetArgMemObj", flip, index, None, images[image])
            ur.ok("urCommandBufferAppendKernelLaunchExp", buffer, flip, 2, *shape)
        else:
            name = "urCommandBufferAppendKernelLaunchWithArgsExp"
            ur.ok(name, buffer, flip, 2, *shape, 2, table, *ends)
    bench.run(bench.finalize(buffer), 2)
    assert image_content(ur, bench.queue, images[2], WHOLE) == flipped(picture(1))
    assert image_content(ur, bench.queue, images[3], WHOLE) == picture(1)


def test_a_released_sampler_lives_until_the_kernel_ends(
    ur: Calls, context: int, queue: int, kernels: dict[str, int]
) -> None:
    gate, go = held_back(ur, context)
    image, made = new_image(ur, context, data=picture(1)), sampler(ur, context, "CLAMP")
    numbers, step = Numbers(ur, context, 16), ctypes.c_float(1)
    table = rows((MEM, image.value), (SAMPLER, made.value), numbers.argument, 0)
    table[3].value.value = ctypes.addressof(step)
    ends = 4, table, None, 1, array(gate), None
    name = "urEnqueueKernelLaunchWithArgsExp"
    ur.ok(name, queue, kernels["sample"], 1, None, sizes((16,)), None, *ends)
    ur.ok("urKernelRelease", kernels["sample"])  # its arguments hold the sampler, too
    ur.ok("urSamplerRelease", made)
    for _ in range(64):
        sampler(ur, context, "REPEAT", True)
    go()
    assert numbers.read(queue) == [0, 0, *picture(1)[0:48:4], 0, 0]
