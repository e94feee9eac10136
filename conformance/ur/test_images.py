"""Images: contents, what they say about themselves, a kernel that samples one."""

from __future__ import annotations

import ctypes
from typing import Any

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ur import kernels
from fairlead.conformance.ur.calls import Calls
from fairlead.conformance.ur.objects import Objects
from fairlead.conformance.ur.values import Buffer, Image, Sampler
from fairlead.loader.ur.abi import UR

WIDTH, HEIGHT = 8, 8
PIXELS = WIDTH * HEIGHT


def place(x: int = 0, y: int = 0) -> Any:
    return UR.struct("ur_rect_offset_t")(x, y, 0)


def whole(width: int = WIDTH, height: int = HEIGHT) -> Any:
    return UR.struct("ur_rect_region_t")(width, height, 1)


def pixels(first: float = 0.0) -> Any:
    """Return pixels of four floats. Red is the number of the pixel."""
    return (ctypes.c_float * (4 * PIXELS))(
        *[first + i if channel == 0 else 1.0 for i in range(PIXELS) for channel in range(4)]
    )


def written(ur: Calls, make: Objects, context: int, queue: int) -> int:
    image = make.image(context, WIDTH, HEIGHT)
    ur.ok(
        "urEnqueueMemImageWrite",
        queue,
        image,
        True,
        place(),
        whole(),
        0,
        0,
        pixels(),
        0,
        None,
        None,
    )
    ur.ok("urQueueFinish", queue)
    return image


@rule("urEnqueueMemImageRead", "gives what urEnqueueMemImageWrite put in")
def test_round_trip(ur: Calls, make: Objects, context: int, queue: int) -> None:
    image, out = written(ur, make, context, queue), pixels(-1000)
    ur.ok("urEnqueueMemImageRead", queue, image, True, place(), whole(), 0, 0, out, 0, None, None)
    equal(list(out), list(pixels()), "the pixels")


@rule("urEnqueueMemImageRead", "a part of the image")
def test_part(ur: Calls, make: Objects, context: int, queue: int) -> None:
    image, out = written(ur, make, context, queue), (ctypes.c_float * 16)()
    ur.ok(
        "urEnqueueMemImageRead",
        queue,
        image,
        True,
        place(3, 2),
        whole(2, 2),
        0,
        0,
        out,
        0,
        None,
        None,
    )
    equal(list(out)[0::4], [19.0, 20.0, 27.0, 28.0], "red of four pixels")


@rule("urEnqueueMemImageCopy", "a part of an image to a part of another")
def test_copy(ur: Calls, make: Objects, context: int, queue: int) -> None:
    image, other, out = (
        written(ur, make, context, queue),
        written(ur, make, context, queue),
        pixels(),
    )
    ur.ok(
        "urEnqueueMemImageCopy",
        queue,
        image,
        other,
        place(0, 0),
        place(4, 4),
        whole(2, 1),
        0,
        None,
        None,
    )
    ur.ok("urEnqueueMemImageRead", queue, other, True, place(), whole(), 0, 0, out, 0, None, None)
    equal(list(out)[0::4][36:38], [0.0, 1.0], "red of the copied pixels")


@rule("urMemImageGetInfo", "size, format and pixel are those that it was made with")
def test_info(ur: Calls, make: Objects, context: int) -> None:
    image = make.image(context, WIDTH, HEIGHT)
    found = {
        name: ur.info("urMemImageGetInfo", image, f"UR_IMAGE_INFO_{name}")
        for name in ("WIDTH", "HEIGHT", "ELEMENT_SIZE")
    }
    equal(found, {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "ELEMENT_SIZE": 16}, "what it says of itself")


@rule("urEnqueueKernelLaunchWithArgsExp", "a kernel samples an image")
def test_sampled(ur: Calls, make: Objects, context: int, queue: int) -> None:
    image = written(ur, make, context, queue)
    sampler, buffer = make.sampler(context), make.buffer(context, 4 * PIXELS)
    program = make.source_program(context, kernels.IMAGE_SOURCE)
    given = Image(image), Sampler(sampler), Buffer(buffer)
    make.launch(queue, make.kernel(program, "sample"), *given, size=(WIDTH, HEIGHT))
    out = (ctypes.c_float * PIXELS)()
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, 4 * PIXELS, out, 0, None, None)
    equal(list(out), [float(i) for i in range(PIXELS)], "red of the pixels")


@rule("urMemImageCreate", "begins with what the host memory holds")
def test_host_pointer(ur: Calls, make: Objects, context: int, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
    data, out = pixels(5.0), pixels()
    flags = UR["UR_MEM_FLAG_READ_WRITE"] | UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
    given = (
        context,
        flags,
        ctypes.byref(make.image_format()),
        ctypes.byref(make.image_shape(WIDTH, HEIGHT)),
        data,
    )
    image = make.own("urMemRelease", ur.new("urMemImageCreate", *given))
    ur.ok("urEnqueueMemImageRead", queue, image, True, place(), whole(), 0, 0, out, 0, None, None)
    equal(list(out), list(data), "the pixels")
