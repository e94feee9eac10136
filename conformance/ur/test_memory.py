"""Buffers and sub-buffers: contents, host pointers, queries."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

ACCESS = ("READ_WRITE", "WRITE_ONLY", "READ_ONLY")


@pytest.mark.parametrize(
    "flags", each(ACCESS, "urMemBufferCreate", "{}: tells its size and context")
)
def test_access(ur: URCalls, make: URObjects, context: int, flags: str) -> None:
    buffer = make.buffer(SIZE, flags)
    equal(ur.info("urMemGetInfo", buffer, "UR_MEM_INFO_SIZE"), SIZE, "the size")
    equal(ur.info("urMemGetInfo", buffer, "UR_MEM_INFO_CONTEXT"), context, "the context")


@rule(
    "urMemBufferCreate",
    "ALLOC_COPY_HOST_POINTER: begins with what the host memory holds, and leaves that alone",
)
def test_copy_host_pointer(make: URObjects, queue: int) -> None:
    host = ints(range(COUNT))
    buffer = make.buffer(SIZE, "READ_WRITE ALLOC_COPY_HOST_POINTER", host)
    equal(make.read(queue, buffer), list(range(COUNT)), "what the buffer holds")
    make.launch(queue, make.kernel("twice"), BufferValue(buffer))
    equal(
        make.read(queue, buffer),
        [2 * value for value in range(COUNT)],
        "what the buffer holds after a launch",
    )
    equal(list(host), list(range(COUNT)), "what the host memory holds after a launch")


@rule(
    "urMemBufferCreate",
    "USE_HOST_POINTER: the buffer's contents are the host memory's, which map and unmap bring up "
    "to date",
)
def test_use_host_pointer(ur: URCalls, make: URObjects, queue: int) -> None:
    host = ints(range(COUNT))
    buffer = make.buffer(SIZE, "READ_WRITE USE_HOST_POINTER", host)
    make.launch(queue, make.kernel("twice"), BufferValue(buffer))
    place = ctypes.c_void_p()
    ur.ok(
        "urEnqueueMemBufferMap",
        queue,
        buffer,
        True,
        UR["UR_MAP_FLAG_READ"],
        0,
        SIZE,
        0,
        None,
        None,
        place,
    )
    seen, where = list(host), place.value
    ur.ok("urEnqueueMemUnmap", queue, buffer, place)
    ur.ok("urQueueFinish", queue)
    equal(where, ctypes.addressof(host), "where it is mapped")
    equal(
        seen, [2 * value for value in range(COUNT)], "what the host memory holds while it is mapped"
    )


@rule("urMemBufferCreate", "ALLOC_HOST_POINTER: a buffer as any other")
def test_alloc_host_pointer(make: URObjects, queue: int) -> None:
    buffer = make.buffer(SIZE, "READ_WRITE ALLOC_HOST_POINTER")
    make.write(queue, buffer, range(COUNT))
    equal(make.read(queue, buffer), list(range(COUNT)), "what was written")


def make_part(
    ur: URCalls, make: URObjects, buffer: int, origin: int, size: int, flags: str = "READ_WRITE"
) -> int:
    region = ur.struct("ur_buffer_region_t", origin=origin, size=size)
    given = (
        buffer,
        UR[f"UR_MEM_FLAG_{flags}"],
        UR["UR_BUFFER_CREATE_TYPE_REGION"],
        ctypes.byref(region),
    )
    return make.own("urMemRelease", ur.new("urMemBufferPartition", *given))


def query_alignment(ur: URCalls) -> int:
    return max(ur.device_says("UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN") // 8, 4)


@rule("urMemBufferPartition", "a sub-buffer is a window on its buffer")
def test_sub_buffer(ur: URCalls, make: URObjects, queue: int) -> None:
    step = query_alignment(ur)
    count = 3 * step // 4
    buffer = make.buffer(3 * step)
    make.write(queue, buffer, [1] * count)
    part = make_part(ur, make, buffer, step, step)
    make.launch(queue, make.kernel(), BufferValue(part), ints([8]), size=(step // 4,))
    expected = [1] * (step // 4) + [8] * (step // 4) + [1] * (step // 4)
    equal(make.read(queue, buffer, count) == expected, True, "whether just the window was written")
    equal(make.read(queue, part, step // 4), [8] * (step // 4), "what the sub-buffer holds")


@rule("urMemBufferPartition", "a sub-buffer tells its own size")
def test_sub_buffer_size(ur: URCalls, make: URObjects) -> None:
    step = query_alignment(ur)
    part = make_part(ur, make, make.buffer(2 * step), step, step)
    equal(ur.info("urMemGetInfo", part, "UR_MEM_INFO_SIZE"), step, "the size")


@rule("urMemBufferPartition", "a sub-buffer keeps its buffer alive")
def test_sub_buffer_keeps_its_buffer(ur: URCalls, make: URObjects, queue: int) -> None:
    step = query_alignment(ur)
    buffer = make.buffer(2 * step)
    part = make_part(ur, make, buffer, 0, step)
    make.release(buffer)
    make.write(queue, part, range(step // 4))
    equal(make.read(queue, part, step // 4), list(range(step // 4)), "what the sub-buffer holds")


@rule("urMemBufferPartition", "an origin that is not aligned: MISALIGNED_SUB_BUFFER_OFFSET")
def test_misaligned(ur: URCalls, make: URObjects) -> None:
    step = query_alignment(ur)
    if step < 8:
        unsupported("the device aligns to no more than a number")
    region = ur.struct("ur_buffer_region_t", origin=step // 2, size=step)
    ur.fails(
        "urMemBufferPartition",
        "MISALIGNED_SUB_BUFFER_OFFSET|INVALID_BUFFER_SIZE",
        make.buffer(3 * step),
        UR["UR_MEM_FLAG_READ_WRITE"],
        UR["UR_BUFFER_CREATE_TYPE_REGION"],
        region,
        ctypes.c_void_p(),
    )


@rule("urMemBufferCreate", "a new buffer holds nothing, but can be read")
def test_unwritten(make: URObjects, queue: int, buffer: int) -> None:
    equal(len(make.read(queue, buffer)), COUNT, "the number of elements")


@rule("urMemRelease", "a command that was enqueued before may still use the buffer")
def test_released_while_in_use(ur: URCalls, make: URObjects, queue: int) -> None:
    source, target = make.buffer(), make.buffer()
    make.write(queue, source, range(COUNT))
    make.enqueue("urEnqueueMemBufferCopy", queue, source, target, 0, 0, SIZE)
    make.release(source)
    equal(make.read(queue, target), list(range(COUNT)), "what the copy gave")
