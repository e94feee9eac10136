"""Native handles: the handle behind an object, and an object that is made of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.conformance.ur.world import World


@dataclass(frozen=True)
class Way:
    """How to get a native handle, and how to make an object of one.

    `more` and `given` are the other arguments of the two functions. `query` is one that the new
    object must answer as the first does.
    """

    stem: str
    handle: Callable[[World], int]
    more: Callable[[World], tuple[Any, ...]]
    create: str
    given: Callable[[World], tuple[Any, ...]]
    properties: str
    query: str
    release: str = ""


def list_nothing(world: World) -> tuple[Any, ...]:
    return ()


def in_context(world: World) -> tuple[Any, ...]:
    return (world.the_context,)


def list_adapter(world: World) -> tuple[Any, ...]:
    return (world.adapter,)


WAYS = (
    Way(
        "urPlatform",
        lambda w: w.platform,
        list_nothing,
        "urPlatformCreateWithNativeHandle",
        list_adapter,
        "platform",
        "UR_PLATFORM_INFO_NAME",
    ),
    Way(
        "urDevice",
        lambda w: w.device,
        list_nothing,
        "urDeviceCreateWithNativeHandle",
        list_adapter,
        "device",
        "UR_DEVICE_INFO_NAME",
        release="urDeviceRelease",
    ),
    Way(
        "urContext",
        lambda w: w.the_context,
        list_nothing,
        "urContextCreateWithNativeHandle",
        lambda w: (w.adapter, 1, handles(w.device)),
        "context",
        "UR_CONTEXT_INFO_NUM_DEVICES",
        release="urContextRelease",
    ),
    Way(
        "urQueue",
        lambda w: w.the_queue,
        lambda w: (None,),
        "urQueueCreateWithNativeHandle",
        lambda w: (w.the_context, w.device),
        "queue",
        "UR_QUEUE_INFO_FLAGS",
        release="urQueueRelease",
    ),
    Way(
        "urEvent",
        lambda w: w.the_event,
        list_nothing,
        "urEventCreateWithNativeHandle",
        in_context,
        "event",
        "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS",
        release="urEventRelease",
    ),
    Way(
        "urMem",
        lambda w: w.the_buffer,
        lambda w: (w.device,),
        "urMemBufferCreateWithNativeHandle",
        in_context,
        "mem",
        "UR_MEM_INFO_SIZE",
        release="urMemRelease",
    ),
    Way(
        "urProgram",
        lambda w: w.the_program,
        list_nothing,
        "urProgramCreateWithNativeHandle",
        in_context,
        "program",
        "UR_PROGRAM_INFO_NUM_KERNELS",
        release="urProgramRelease",
    ),
    Way(
        "urKernel",
        lambda w: w.the_kernel,
        list_nothing,
        "urKernelCreateWithNativeHandle",
        lambda w: (w.the_context, w.the_program),
        "kernel",
        "UR_KERNEL_INFO_FUNCTION_NAME",
        release="urKernelRelease",
    ),
    Way(
        "urSampler",
        lambda w: w.the_sampler,
        list_nothing,
        "urSamplerCreateWithNativeHandle",
        in_context,
        "sampler",
        "UR_SAMPLER_INFO_FILTER_MODE",
        release="urSamplerRelease",
    ),
)


def each(function: Callable[[Way], str], text: str) -> list[Any]:
    return [pytest.param(way, id=way.stem, marks=rule(function(way), text)) for way in WAYS]


def query_native(ur: URCalls, world: World, way: Way) -> int:
    return ur.new(f"{way.stem}GetNativeHandle", way.handle(world), *way.more(world))


@pytest.mark.parametrize(
    "way", each(lambda way: f"{way.stem}GetNativeHandle", "gives the same handle each time")
)
def test_get(ur: URCalls, world: World, way: Way) -> None:
    equal(query_native(ur, world, way), query_native(ur, world, way), "the native handle")


@pytest.mark.parametrize(
    "way",
    each(
        lambda way: way.create,
        "an object that is not owned answers as the first, and leaves it alone",
    ),
)
def test_create(ur: URCalls, make: URObjects, world: World, way: Way) -> None:
    handle, info = way.handle(world), f"{way.stem}GetInfo"
    first = ur.info(info, handle, way.query)
    how = ur.struct(f"ur_{way.properties}_native_properties_t", isNativeHandleOwned=False)
    made = ur.new(way.create, query_native(ur, world, way), *way.given(world), ctypes.byref(how))
    again = ur.info(info, made, way.query)
    if way.release:
        ur.ok(way.release, made)
    equal(again, first, way.query)
    equal(
        ur.info(info, handle, way.query),
        first,
        f"{way.query} of the first object, after the other was released",
    )


@pytest.mark.parametrize("way", each(lambda way: way.create, "NULL for the properties is as good"))
def test_create_without_properties(ur: URCalls, world: World, way: Way) -> None:
    made = ur.new(way.create, query_native(ur, world, way), *way.given(world), None)
    if way.release:
        ur.ok(way.release, made)


@rule(
    "urMemBufferCreateWithNativeHandle",
    "a buffer of the application's own cl_mem, owned from then on, is used by a kernel",
)
def test_own_buffer(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    cl, code = make.cl(), ctypes.c_int32()
    native = cl.clCreateBuffer(
        make.native("urContextGetNativeHandle", context), 1, SIZE, None, ctypes.byref(code)
    )
    equal(code.value, 0, "the driver's answer to clCreateBuffer")
    how = ur.struct("ur_mem_native_properties_t", isNativeHandleOwned=True)
    buffer = make.own(
        "urMemRelease",
        ur.new("urMemBufferCreateWithNativeHandle", native, context, how),
    )
    make.launch(queue, make.kernel(), BufferValue(buffer), ints([9]))
    equal(make.read(queue, buffer), [9] * COUNT, "what the kernel wrote")


@rule("urKernelCreateWithNativeHandle", "a kernel of the application's own cl_kernel is launched")
def test_own_kernel(
    ur: URCalls, make: URObjects, context: int, queue: int, program: int, buffer: int
) -> None:
    cl, code = make.cl(), ctypes.c_int32()
    native = cl.clCreateKernel(
        make.native("urProgramGetNativeHandle", program), b"store", ctypes.byref(code)
    )
    equal(code.value, 0, "the driver's answer to clCreateKernel")
    how = ur.struct("ur_kernel_native_properties_t", isNativeHandleOwned=True)
    given = native, context, program, ctypes.byref(how)
    kernel = make.own("urKernelRelease", ur.new("urKernelCreateWithNativeHandle", *given))
    make.launch(queue, kernel, BufferValue(buffer), ints([10]))
    equal(make.read(queue, buffer), [10] * COUNT, "what the kernel wrote")


@rule(
    "urQueueCreateWithNativeHandle",
    "a queue of the application's own cl_command_queue executes commands",
)
def test_own_queue(ur: URCalls, make: URObjects, context: int, device: int, buffer: int) -> None:
    cl, code = make.cl(), ctypes.c_int32()
    natives = (
        make.native("urContextGetNativeHandle", context),
        make.native("urDeviceGetNativeHandle", device),
    )
    native = cl.clCreateCommandQueue(*natives, 0, ctypes.byref(code))
    equal(code.value, 0, "the driver's answer to clCreateCommandQueue")
    how = ur.struct("ur_queue_native_properties_t", isNativeHandleOwned=True)
    given = native, context, device, ctypes.byref(how)
    queue = make.own("urQueueRelease", ur.new("urQueueCreateWithNativeHandle", *given))
    make.launch(queue, make.kernel(), BufferValue(buffer), ints([11]))
    equal(make.read(queue, buffer), [11] * COUNT, "what the kernel wrote")


@rule("urEventGetNativeHandle", "the application can wait for it by OpenCL")
def test_native_event(make: URObjects, queue: int, buffer: int) -> None:
    cl = make.cl()
    event = make.launch(queue, make.kernel(), BufferValue(buffer), ints([12]))
    native = make.native("urEventGetNativeHandle", event)
    equal(cl.clWaitForEvents(1, handles(native)), 0, "the driver's answer to clWaitForEvents")
    equal(make.read(queue, buffer), [12] * COUNT, "what the kernel wrote")


@rule("urDeviceCreateWithNativeHandle", "gives the handle that urDeviceGet gives")
def test_same_device(ur: URCalls, world: World, device: int) -> None:
    made = ur.new(
        "urDeviceCreateWithNativeHandle", ur.new("urDeviceGetNativeHandle", device), world.adapter
    )
    ur.ok("urDeviceRelease", made)
    equal(made, device, "the handle")


@rule("urPlatformCreateWithNativeHandle", "gives the handle that urPlatformGet gives")
def test_same_platform(ur: URCalls, world: World, platform: int) -> None:
    made = ur.new(
        "urPlatformCreateWithNativeHandle",
        ur.new("urPlatformGetNativeHandle", platform),
        world.adapter,
    )
    equal(made, platform, "the handle")


@rule("urMemImageCreateWithNativeHandle", "an image answers as the first")
def test_image(ur: URCalls, world: World) -> None:
    native = ur.new("urMemGetNativeHandle", world.the_image, world.device)
    how = ur.struct("ur_mem_native_properties_t", isNativeHandleOwned=False)
    shape = ctypes.byref(world.image_format()), ctypes.byref(world.image_shape())
    made = ur.new("urMemImageCreateWithNativeHandle", native, world.the_context, *shape, how)
    width = ur.info("urMemImageGetInfo", made, "UR_IMAGE_INFO_WIDTH")
    ur.ok("urMemRelease", made)
    equal(width, ur.info("urMemImageGetInfo", world.the_image, "UR_IMAGE_INFO_WIDTH"), "the width")
