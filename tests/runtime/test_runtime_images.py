"""Images and samplers: kinds, formats, contents, copies, host tasks, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest
from helpers.sycl import Gate, raises
from helpers.tables import table

from fairlead.runtime import (
    USM,
    Accessor,
    Buffer,
    Device,
    Errc,
    Image,
    Program,
    Queue,
    Sampler,
    malloc_host,
)
from fairlead.runtime.context import Context

SOURCE = """
constant sampler_t plain = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void flip(read_only image2d_t from, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, (int2)(get_image_width(from) - 1 - at.x, at.y), read_imageui(from, plain, at));
}
kernel void halve(read_only image2d_t from, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(to, at, 0.5f * read_imagef(from, plain, at));
}
kernel void sample(read_only image1d_t from, sampler_t how, global float *out, float step) {
  out[get_global_id(0)] = read_imagef(from, how, get_global_id(0) * step).x;
}
kernel void corners(read_only image3d_t volume, read_only image1d_array_t lines,
                    read_only image2d_array_t stack, global uint *out) {
  int4 last = (int4)(get_image_width(volume) - 1, get_image_height(volume) - 1,
                     get_image_depth(volume) - 1, 0);
  out[0] = read_imageui(volume, plain, last).x;
  out[1] = read_imageui(lines, plain, (int2)(2, 1)).x;
  out[2] = read_imageui(stack, plain, (int4)(3, 0, 1, 0)).x;
}
"""
HEIGHT, WIDTH = 5, 12


@pytest.fixture(scope="module")
def kernels(context: Context) -> Program:
    return Program(context, SOURCE)


def picture(seed: int = 1) -> numpy.ndarray[Any, Any]:
    return numpy.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 4), numpy.uint8)


def flip(queue: Queue, kernels: Program, source: Image, target: Image) -> None:
    queue.submit(
        lambda h: h.parallel_for(
            (WIDTH, HEIGHT), kernels.flip, h.access(source, "read"), h.access(target, "discard")
        )
    )


# contents


def test_a_kernel_reads_and_writes_images(queue: Queue, kernels: Program) -> None:
    source, target = picture(), numpy.zeros((HEIGHT, WIDTH, 4), numpy.uint8)
    with Image(source, channels=4) as image, Image(target, channels=4) as other:
        flip(queue, kernels, image, other)
        assert (other.numpy() == source[:, ::-1]).all()
    assert (target == source[:, ::-1]).all()


def test_contents_come_and_go_with_the_host(queue: Queue, kernels: Program) -> None:
    images = [Image((HEIGHT, WIDTH), numpy.uint8, channels=4) for _ in range(2)]
    with images[0].host_access("discard") as array:
        array[:] = picture()
    flip(queue, kernels, *images)
    with images[1].host_access() as array:
        assert (array == picture()[:, ::-1]).all()
        array[:, 0] = 7
    flip(queue, kernels, images[1], images[0])
    expected = picture()
    expected[:, -1] = 7
    assert (images[0].numpy() == expected).all()


def test_a_host_task_sees_the_pixels(queue: Queue, kernels: Program) -> None:
    source, target = (
        Image(picture(), channels=4, write_back=False),
        Image((HEIGHT, WIDTH), numpy.uint8, channels=4),
    )
    flip(queue, kernels, source, target)
    seen: list[Any] = []

    def look(h: Any) -> None:
        accessor = h.access(target, "read_write", (2, 3), (1, 4))

        def task() -> None:
            seen.append(accessor.array.copy())
            accessor.array[:] = 0

        h.host_task(task)

    queue.submit(look)
    flip(queue, kernels, target, source)
    expected = picture()[:, ::-1].copy()
    assert (source.numpy()[:, ::-1][1:3, 4:7] == 0).all()
    assert (seen[0] == expected[1:3, 4:7]).all()


def test_an_image_goes_from_one_driver_to_another(
    device: Device, other_device: Device, kernels: Program
) -> None:
    first, second = Queue(device), Queue(other_device)
    image, middle, last = (Image((HEIGHT, WIDTH), numpy.uint8, channels=4) for _ in range(3))
    with image.host_access("discard") as array:
        array[:] = picture()
    flip(first, kernels, image, middle)
    flip(second, Program(second, SOURCE), middle, last)
    assert (last.numpy() == picture()).all()
    second.wait()


@table(
    "dtype, normalized, factor",
    [
        ("uint8", True, 1 / 255),
        ("uint16", True, 1 / 65535),
        ("int8", True, 1 / 127),
        ("int16", True, 1 / 32767),
        ("float16", False, 1.0),
        ("float32", False, 1.0),
    ],
)
def test_kernels_convert_formats(
    queue: Queue, kernels: Program, dtype: str, normalized: bool, factor: float
) -> None:
    array = numpy.arange(HEIGHT * WIDTH * 4).reshape(HEIGHT, WIDTH, 4) % 120
    source = Image(array.astype(dtype), channels=4, normalized=normalized, write_back=False)
    target = Image((HEIGHT, WIDTH), numpy.float32, channels=4)
    queue.submit(
        lambda h: h.parallel_for(
            (WIDTH, HEIGHT), kernels.halve, h.access(source, "read"), h.access(target, "discard")
        )
    )
    assert target.numpy() == pytest.approx(array * factor / 2, abs=1e-6)


def test_kinds_of_images(queue: Queue, kernels: Program) -> None:
    kind: dict[str, Any] = {"channels": 4, "write_back": False}
    volume = numpy.arange(2 * 3 * 4 * 4, dtype=numpy.uint32).reshape(2, 3, 4, 4)
    lines = numpy.arange(100, 100 + 2 * 5 * 4, dtype=numpy.uint32).reshape(2, 5, 4)
    stack = volume + 500
    images = (
        Image(volume, **kind),
        Image(lines, image_array=True, **kind),
        Image(stack, image_array=True, **kind),
    )
    assert [image.declared for image in images] == [
        "image3d_t",
        "image1d_array_t",
        "image2d_array_t",
    ]
    out = Buffer(3, numpy.uint32)
    queue.submit(
        lambda h: h.parallel_for(
            1, kernels.corners, *(h.access(image, "read") for image in images), h.access(out)
        )
    )
    assert out.numpy().tolist() == [volume[1, 2, 3, 0], lines[1, 2, 0], stack[1, 0, 3, 0]]


@table(
    "addressing, filtering, normalized, expected",
    [
        ("clamp_to_edge", "nearest", False, [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]),
        ("clamp", "nearest", False, [1, 1, 2, 2, 3, 3, 4, 4, 0, 0]),
        ("repeat", "nearest", True, [1, 1, 2, 2, 3, 3, 4, 4, 1, 1]),
        ("mirrored_repeat", "nearest", True, [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]),
        ("clamp_to_edge", "linear", False, [1, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4, 4]),
    ],
)
def test_samplers(
    queue: Queue,
    kernels: Program,
    addressing: str,
    filtering: str,
    normalized: bool,
    expected: list[float],
) -> None:
    array = numpy.zeros((4, 4), numpy.float32)
    array[:, 0] = 1, 2, 3, 4
    image, out = Image(array, channels=4), Buffer(10, numpy.float32)
    step = numpy.float32(0.5 / (4 if normalized else 1))
    sampler = Sampler(addressing, filtering, normalized)
    queue.submit(
        lambda h: h.parallel_for(
            10, kernels.sample, h.access(image, "read"), sampler, h.access(out, "discard"), step
        )
    )
    assert out.numpy() == pytest.approx(expected, abs=1e-2)


def test_what_a_waiting_command_uses_lives(queue: Queue, kernels: Program, gate: Gate) -> None:
    array = numpy.zeros((4, 4), numpy.float32)
    array[:, 0] = 1, 2, 3, 4
    out = Buffer(4, numpy.float32)

    def sample(h: Any) -> None:
        image, sampler = Image(array.copy(), channels=4, write_back=False), Sampler()
        h.depends_on(gate.event)
        arguments = h.access(image, "read"), sampler, h.access(out), numpy.float32(1)
        h.parallel_for(4, kernels.sample, *arguments)

    queue.submit(sample)
    gc.collect()
    gate.open()
    assert out.numpy().tolist() == [1, 2, 3, 4]


# copies


def test_copies_between_images_and_memory(queue: Queue) -> None:
    first = Image(picture(), channels=4, write_back=False)
    second = Image(picture(2), channels=4, write_back=False)
    queue.submit(
        lambda h: h.copy(
            h.access(first, "read", (2, 3), (1, 4)), h.access(second, "write", (2, 3), (3, 9))
        )
    )
    expected = picture(2)
    expected[3:5, 9:12] = picture()[1:3, 4:7]
    assert (second.numpy() == expected).all()
    patch, part = numpy.full((2, 2, 4), 9, numpy.uint8), numpy.empty((3, 5, 4), numpy.uint8)
    queue.submit(lambda h: h.copy(patch, h.access(second, "write", (2, 2), (0, 1))))
    queue.submit(lambda h: h.copy(h.access(second, "read", (3, 5), (0, 0)), part)).wait()
    expected[0:2, 1:3] = 9
    assert (part == expected[:3, :5]).all()


def test_copies_to_and_from_usm(queue: Queue) -> None:
    memory: USM = malloc_host(HEIGHT * WIDTH * 4, numpy.uint8, queue)
    memory.array[:] = picture().ravel()
    image = Image((HEIGHT, WIDTH), numpy.uint8, channels=4)
    queue.submit(lambda h: h.copy(memory, h.access(image, "discard")))
    assert (image.numpy() == picture()).all()
    memory.array[:] = 0
    queue.submit(lambda h: h.copy(h.access(image, "read"), memory)).wait()
    assert (memory.array == picture().ravel()).all()


@pytest.mark.parametrize("shape", [(12,), (5, 12), (3, 5, 12)])
@pytest.mark.parametrize("image_array", [False, True])
def test_parts_of_every_kind(queue: Queue, shape: tuple[int, ...], image_array: bool) -> None:
    if image_array and len(shape) == 1:
        with raises(Errc.invalid, "image has two or three dimensions"):
            Image(shape, numpy.uint16, image_array=True)
        return
    array = numpy.arange(4 * numpy.prod(shape), dtype=numpy.uint16).reshape(*shape, 4)
    image = Image(array, channels=4, image_array=image_array, write_back=False)
    part, offset = tuple(size - 2 for size in shape), (1,) * len(shape)
    found = numpy.empty((*part, 4), numpy.uint16)
    queue.submit(lambda h: h.copy(h.access(image, "read", part, offset), found)).wait()
    assert (found == array[tuple(slice(1, size - 1) for size in shape)]).all()


# what is refused


@table(
    "given, words, message",
    [
        ((picture(),), {"channels": 5}, "1 to 4 channels, not 5"),
        ((picture(),), {"channels": 3}, "the last axis of the array has 4 elements"),
        ((picture(),), {"channels": 4, "order": "RGB"}, "'RGB' is not an order of 4 channels"),
        ((picture(),), {"channels": 4, "order": "nonsense"}, "'nonsense' is not an order"),
        ((picture(), "int8"), {"channels": 4}, "the array's elements are uint8, not int8"),
        (((4, 4),), {}, "an image of a shape or a list needs a dtype"),
        (((4, 4), "float64"), {}, "no channels of float64"),
        (((4, 4), "int64"), {}, "no channels of int64"),
        (((4, 4), ">i4"), {}, "no channels of >i4"),
        (((4, 4), "float32"), {"normalized": True}, "no normalized channels of float32"),
        (((4, 0), "float32"), {}, "at least one pixel"),
        (((2, 2, 2, 2), "float32"), {}, "one to three dimensions"),
        (("text", "float32"), {}, "'text' is not a shape"),
        ((None,), {}, "None is not an array, list or shape"),
        (((4, 4), "float32"), {"write_back": True}, "no array that could be written to"),
    ],
)
def test_images_that_there_are_not(
    given: tuple[Any, ...], words: dict[str, Any], message: str
) -> None:
    with raises(Errc.invalid, message):
        Image(*given, **words)


@table(
    "words, message",
    [
        ({"addressing": "sideways"}, "no mode 'sideways'"),
        ({"filtering": "cubic"}, "no mode 'cubic'"),
        ({"addressing": "repeat"}, "'repeat' needs normalized coordinates"),
        ({"addressing": None}, "no mode None"),
    ],
)
def test_samplers_that_there_are_not(words: dict[str, Any], message: str) -> None:
    with raises(Errc.invalid, message):
        Sampler(**words)


def test_arguments_are_what_the_kernel_declares(queue: Queue, kernels: Program) -> None:
    image, buffer = Image((4, 4), "uint8", channels=4), Buffer(4, "uint8")
    volume, line = Image((4, 4, 4), "uint8", channels=4), Image(4, "uint8", channels=4)

    def give(kernel: Any, *arguments: Any) -> Any:
        return lambda: queue.submit(lambda h: h.parallel_for(1, kernel, *arguments))

    good, step = Accessor(image), numpy.float32(1)
    for call, message in (
        (give(kernels.flip, good, Accessor(buffer)), "argument 1 of flip is declared image2d_t"),
        (give(kernels.flip, Accessor(volume), good), "an object of the type image3d_t"),
        (give(kernels.flip, Sampler(), good), "an object of the type sampler_t"),
        (give(kernels.flip, numpy.int32(1), good), "declared image2d_t, and a value"),
        (give(kernels.sample, Accessor(line), good, Accessor(buffer), step), "declared sampler_t"),
        (give(kernels.sample, Accessor(line), Sampler(), good, step), "declared a pointer"),
        (give(kernels.sample, Accessor(line), Sampler(), Accessor(buffer), Sampler()), "float"),
    ):
        with raises(Errc.kernel_argument, message):
            call()


def test_copies_that_there_are_not(queue: Queue) -> None:
    image, buffer = Image((4, 4), "uint8", channels=4), Buffer((4, 4), "uint8")
    other, words = Image((4, 4), "uint8", channels=4, normalized=True), Image((4, 4), "uint16")

    def copy(source: Any, target: Any) -> Any:
        return lambda: queue.submit(lambda h: h.copy(source, target))

    unsupported, wrong = Errc.feature_not_supported, Errc.invalid
    for errc, call, message in (
        (unsupported, copy(Accessor(image), Accessor(buffer)), "between an image and a buffer"),
        (unsupported, copy(Accessor(buffer), Accessor(image)), "between an image and a buffer"),
        (wrong, copy(Accessor(image), Accessor(other)), "the images have different formats"),
        (wrong, copy(Accessor(image), Accessor(image, "read", (2, 2))), "cannot be written to"),
        (wrong, copy(Accessor(image), Accessor(image, "write", (2, 2))), "differ in shape"),
        (wrong, copy(Accessor(words), numpy.empty(16, "uint8")), "elements of uint8 cannot"),
        (wrong, copy(Accessor(words), numpy.empty(15, "uint16")), "the memory has 30 bytes"),
        (
            unsupported,
            lambda: queue.submit(lambda h: h.fill(h.access(image), numpy.uint8(0))),
            "no fill of an image",
        ),
    ):
        with raises(errc, message):
            call()


def test_what_the_device_does_not_have(queue: Queue) -> None:
    for image, errc, message in (
        (Image((4, 4), "float32", channels=3), Errc.feature_not_supported, "this image format"),
        (Image((1 << 20, 1), "uint8", channels=4), Errc.invalid, "larger than the device"),
    ):
        array = numpy.zeros((*image.shape, image.channels), image.dtype)
        with raises(errc, message):
            queue.submit(lambda h, i=image, a=array: h.copy(a, h.access(i, "discard")))


def test_a_device_without_images(
    device: Device, kernels: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(Context([device]))
    monkeypatch.setitem(vars(device), "aspects", device.aspects - {"image"})
    image = Image((4, 4), "float32", channels=4)
    with raises(Errc.feature_not_supported, "has no images"):
        queue.submit(lambda h: h.copy(numpy.zeros((4, 4, 4), "float32"), h.access(image)))
    sampler = Sampler()
    with raises(Errc.feature_not_supported, "has no images"):
        sampler.memory(queue.context)


def test_a_closed_image_and_a_read_only_array(queue: Queue, kernels: Program) -> None:
    image = Image(picture(), channels=4)
    image.close()
    with raises(Errc.invalid, "the image is closed"):
        Accessor(image)
    array = picture()
    array.flags.writeable = False
    with raises(Errc.invalid, "the array that the image was made of is read-only"):
        Accessor(Image(array, channels=4), "write")


def test_they_tell_of_themselves() -> None:
    assert repr(Image((5, 12), "uint8", channels=4, normalized=True)) == (
        "<Image 5×12 RGBA normalized uint8>"
    )
    assert repr(Image((2, 5, 12), "float32", image_array=True)) == "<Image array 2×5×12 R float32>"
    assert repr(Sampler()) == "<Sampler clamp_to_edge nearest pixels>"
    image = Image((5, 12), "uint16", channels=4)
    assert (image.size, image.nbytes, image.itemsize, len(image)) == (240, 480, 8, 5)
    assert Accessor(image, "read", (2, 3)).nbytes == 48
