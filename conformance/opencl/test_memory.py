"""Buffers, sub-buffers, mapping, host memory and SVM."""

from __future__ import annotations

import ctypes
import threading

import pytest

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import equal, failed, rule
from fairlead.conformance.opencl.commands import expect_code
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.conformance.opencl.shared_cases import check_rectangles
from fairlead.icd.abi import OPENCL
from fairlead.icd.objects import CLDevice


@rule("clEnqueueWriteBuffer", "what is written is read")
def test_write_and_read(objects: CLObjects, queue: int) -> None:
    buffer, data = objects.buffer([0] * 8), ints(range(4))
    objects.call("clEnqueueWriteBuffer", queue, buffer, True, 8, 16, data)
    equal(objects.read(queue, buffer), [0, 0, 0, 1, 2, 3, 0, 0], "the buffer")


@rule("clEnqueueCopyBuffer", "copies the bytes")
def test_copy(objects: CLObjects, queue: int) -> None:
    source, target = objects.buffer(range(8)), objects.buffer([0] * 8)
    objects.call("clEnqueueCopyBuffer", queue, source, target, 4, 8, 12)
    equal(objects.read(queue, target), [0, 0, 1, 2, 3, 0, 0, 0], "the buffer")


@rule("clEnqueueFillBuffer", "fills with the pattern of the time of the call")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64, 128])
def test_fill(objects: CLObjects, queue: int, size: int) -> None:
    buffer, pattern = objects.buffer([0] * 96), (ctypes.c_ubyte * size)(*range(1, size + 1))
    expected = bytes(128) + bytes(pattern) * (128 // size) + bytes(128)
    objects.call("clEnqueueFillBuffer", queue, buffer, pattern, size, 128, 128)
    ctypes.memset(pattern, 0xFF, size)
    equal(bytes(ints(objects.read(queue, buffer))), expected, "the buffer")


@rule("clEnqueueCopyBufferRect", "copies a box; the host's forms write and read one")
def test_rect(objects: CLObjects, queue: int) -> None:
    check_rectangles(
        objects,
        queue,
        (objects.buffer([0] * 64), objects.buffer([0] * 64)),
        ("clEnqueueWriteBufferRect", "clEnqueueCopyBufferRect", "clEnqueueReadBufferRect"),
        (sizes(8, 2, 2), sizes(4, 1, 1), sizes(8, 2, 0)),
    )


@rule("clCreateSubBuffer", "is a part of its buffer, and counts as its reference")
def test_sub_buffer(objects: CLObjects, queue: int, chosen: CLDevice) -> None:
    align = max(chosen.info("CL_DEVICE_MEM_BASE_ADDR_ALIGN") // 32, 1)  # the query counts bits
    buffer = objects.buffer([0] * (align + 8))
    region = OPENCL.get_struct("cl_buffer_region")(align * 4, 16)
    kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
    part = objects.make("clCreateSubBuffer", buffer, 0, kind, ctypes.byref(region))
    objects.launch(queue, objects.kernel("increment", part), 4)
    equal(objects.read(queue, buffer)[align:], [1] * 4 + [0] * 4, "the buffer from there on")
    answers = [
        objects.number("clGetMemObjectInfo", part, f"CL_MEM_{name}")
        for name in ("OFFSET", "SIZE", "ASSOCIATED_MEMOBJECT")
    ]
    equal(answers, [align * 4, 16, buffer], "offset, size and buffer")


@rule("clEnqueueMapBuffer", "gives the buffer's bytes, and takes what is written there")
def test_map(objects: CLObjects, queue: int) -> None:
    buffer, code = objects.buffer(range(8)), ctypes.c_int32(1)
    flags = OPENCL["CL_MAP_READ"] | OPENCL["CL_MAP_WRITE"]
    pointer = objects.cl.clEnqueueMapBuffer(
        queue, buffer, True, flags, 8, 16, 0, None, None, ctypes.byref(code)
    )
    expect_code(code.value, "CL_SUCCESS")
    mapped = (ctypes.c_int32 * 4).from_address(pointer)
    found, count = list(mapped), objects.number("clGetMemObjectInfo", buffer, "CL_MEM_MAP_COUNT")
    mapped[0] = 50
    objects.call("clEnqueueUnmapMemObject", queue, buffer, pointer)
    objects.finish(queue)
    equal((found, count), ([2, 3, 4, 5], 1), "what was mapped, and CL_MEM_MAP_COUNT")
    equal(objects.read(queue, buffer), [0, 1, 50, 3, 4, 5, 6, 7], "the buffer")


@rule("clCreateBuffer", "CL_MEM_USE_HOST_PTR: mapping gives the host's memory")
def test_host_memory(objects: CLObjects, queue: int) -> None:
    data, code = ints(range(1024)), ctypes.c_int32()
    flags = OPENCL["CL_MEM_READ_WRITE"] | OPENCL["CL_MEM_USE_HOST_PTR"]
    buffer = objects.make("clCreateBuffer", objects.context, flags, 4096, data)
    objects.launch(queue, objects.kernel("increment", buffer), 1024)
    pointer = objects.cl.clEnqueueMapBuffer(
        queue, buffer, True, OPENCL["CL_MAP_READ"], 0, 4096, 0, None, None, ctypes.byref(code)
    )
    expect_code(code.value, "CL_SUCCESS")
    equal(
        (pointer, list(data)),
        (ctypes.addressof(data), list(range(1, 1025))),
        "the address, and the memory",
    )
    objects.call("clEnqueueUnmapMemObject", queue, buffer, pointer)
    objects.finish(queue)


@rule(
    "clSetMemObjectDestructorCallback",
    "is called when the last reference is gone, those of commands among them",
)
def test_destructor(bare_objects: CLObjects) -> None:
    called = threading.Event()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    callback = prototype(lambda memory, data: called.set())
    inner = bare_objects.new_maker()
    bare_objects.call("clSetMemObjectDestructorCallback", inner.buffer([0]), callback, None)
    early = called.is_set()
    inner.close()
    if early or not called.wait(10):
        failed(
            "the callback is called at the release",
            "it was called before" if early else "it is not",
        )


@rule("clEnqueueSVMMemcpy", "SVM: fill, copy, map, and a kernel")
def test_svm(objects: CLObjects, queue: int) -> None:
    source, target = objects.svm(32), objects.svm(32)
    objects.call("clEnqueueSVMMemFill", queue, source, ctypes.c_int32(5), 4, 32)
    kernel = objects.kernel("copy")
    for index, pointer in enumerate((source, target)):
        objects.call("clSetKernelArgSVMPointer", kernel, index, pointer)
    objects.launch(queue, kernel, 8)
    objects.call("clEnqueueSVMMemcpy", queue, True, source, target, 16)
    objects.call("clEnqueueSVMMap", queue, True, OPENCL["CL_MAP_READ"], target, 32)
    found = list((ctypes.c_int32 * 8).from_address(target))
    objects.call("clEnqueueSVMUnmap", queue, target)
    objects.finish(queue)
    equal(found, [5] * 8, "the memory")
