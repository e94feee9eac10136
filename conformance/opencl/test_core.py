"""References, queries and queues.

fairlead needs what is tested here, and in memory, kernels and events, of every driver.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import each, equal, rule, unsupported
from fairlead.conformance.opencl.commands import expect_code
from fairlead.conformance.opencl.objects import OUT_OF_ORDER, CLObjects
from fairlead.conformance.opencl.shared_cases import run_in_threads
from fairlead.icd.abi import OPENCL
from fairlead.icd.objects import CLDevice

#: Kinds of objects, how to make one, and the query for its reference count.
COUNTED = {
    "context": (
        "Context",
        "clGetContextInfo",
        "CL_CONTEXT_REFERENCE_COUNT",
        lambda objects: objects.new_context(),
    ),
    "queue": (
        "CommandQueue",
        "clGetCommandQueueInfo",
        "CL_QUEUE_REFERENCE_COUNT",
        lambda objects: objects.queue(),
    ),
    "buffer": (
        "MemObject",
        "clGetMemObjectInfo",
        "CL_MEM_REFERENCE_COUNT",
        lambda objects: objects.buffer([0]),
    ),
    "program": (
        "Program",
        "clGetProgramInfo",
        "CL_PROGRAM_REFERENCE_COUNT",
        lambda objects: objects.program,
    ),
    "kernel": (
        "Kernel",
        "clGetKernelInfo",
        "CL_KERNEL_REFERENCE_COUNT",
        lambda objects: objects.kernel("increment"),
    ),
    "event": (
        "Event",
        "clGetEventInfo",
        "CL_EVENT_REFERENCE_COUNT",
        lambda objects: objects.user_event(),
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind,
            marks=rule(f"clRetain{row[0]}", "adds a reference, which a release takes away"),
        )
        for kind, row in COUNTED.items()
    ],
)
def test_references(objects: CLObjects, kind: str) -> None:
    name, routine, query, make = COUNTED[kind]
    handle = make(objects)
    counts = [objects.number(routine, handle, query)]
    for action in ("Retain", "Release"):
        objects.call(f"cl{action}{name}", handle)
        counts.append(objects.number(routine, handle, query))
    equal([counts[1] - counts[0], counts[2] - counts[0]], [1, 0], "the count's changes")


# Queries

#: Queries that every object of a kind must answer, by the size of the answer in bytes.
INFOS = {
    "clGetDeviceInfo": {
        4: (
            "CL_DEVICE_VENDOR_ID CL_DEVICE_MAX_COMPUTE_UNITS CL_DEVICE_AVAILABLE "
            "CL_DEVICE_COMPILER_AVAILABLE CL_DEVICE_MEM_BASE_ADDR_ALIGN CL_DEVICE_IMAGE_SUPPORT"
        ),
        8: (
            "CL_DEVICE_TYPE CL_DEVICE_MAX_WORK_GROUP_SIZE CL_DEVICE_GLOBAL_MEM_SIZE "
            "CL_DEVICE_LOCAL_MEM_SIZE CL_DEVICE_MAX_MEM_ALLOC_SIZE CL_DEVICE_PLATFORM "
            "CL_DEVICE_QUEUE_ON_HOST_PROPERTIES CL_DEVICE_PROFILING_TIMER_RESOLUTION"
        ),
    },
    "clGetContextInfo": {
        4: "CL_CONTEXT_REFERENCE_COUNT CL_CONTEXT_NUM_DEVICES",
        8: "CL_CONTEXT_DEVICES",
    },
    "clGetCommandQueueInfo": {
        4: "CL_QUEUE_REFERENCE_COUNT",
        8: "CL_QUEUE_CONTEXT CL_QUEUE_DEVICE CL_QUEUE_PROPERTIES",
    },
    "clGetMemObjectInfo": {
        4: "CL_MEM_TYPE CL_MEM_MAP_COUNT CL_MEM_REFERENCE_COUNT",
        8: (
            "CL_MEM_FLAGS CL_MEM_SIZE CL_MEM_HOST_PTR CL_MEM_CONTEXT "
            "CL_MEM_ASSOCIATED_MEMOBJECT CL_MEM_OFFSET"
        ),
    },
    "clGetProgramInfo": {
        4: "CL_PROGRAM_REFERENCE_COUNT CL_PROGRAM_NUM_DEVICES",
        8: "CL_PROGRAM_CONTEXT CL_PROGRAM_NUM_KERNELS",
    },
    "clGetKernelInfo": {
        4: "CL_KERNEL_NUM_ARGS CL_KERNEL_REFERENCE_COUNT",
        8: "CL_KERNEL_CONTEXT CL_KERNEL_PROGRAM",
    },
    "clGetEventInfo": {
        4: "CL_EVENT_COMMAND_TYPE CL_EVENT_COMMAND_EXECUTION_STATUS CL_EVENT_REFERENCE_COUNT",
        8: "CL_EVENT_COMMAND_QUEUE CL_EVENT_CONTEXT",
    },
}
_OWNERS = {
    "clGetDeviceInfo": lambda objects: objects.device,
    "clGetContextInfo": lambda objects: objects.context,
    "clGetCommandQueueInfo": lambda objects: objects.queue(),
    "clGetMemObjectInfo": lambda objects: objects.buffer([0] * 4),
    "clGetProgramInfo": lambda objects: objects.program,
    "clGetKernelInfo": lambda objects: objects.kernel("increment"),
    "clGetEventInfo": lambda objects: objects.user_event(),
}
QUERIES = [
    pytest.param(
        routine,
        name,
        size,
        id=name,
        marks=rule(routine, f"answers {name}; CL_INVALID_VALUE if there is less room"),
    )
    for routine, by_size in INFOS.items()
    for size, names in by_size.items()
    for name in names.split()
]


@pytest.mark.parametrize(("routine", "name", "size"), QUERIES)
def test_query(objects: CLObjects, routine: str, name: str, size: int) -> None:
    owner, room = _OWNERS[routine](objects), ctypes.create_string_buffer(64)
    equal(len(objects.info(routine, owner, name)), size, "bytes of the answer")
    expect_code(
        getattr(objects.cl, routine)(owner, OPENCL[name], size - 1, room, None), "CL_INVALID_VALUE"
    )


@pytest.mark.parametrize(
    "routine", each(INFOS, "{}", "CL_INVALID_VALUE if param_name is not supported")
)
def test_unknown_query(objects: CLObjects, routine: str) -> None:
    expect_code(
        getattr(objects.cl, routine)(_OWNERS[routine](objects), 0x7FFFFFFF, 0, None, None),
        "CL_INVALID_VALUE",
    )


# Queues


@rule("clCreateCommandQueue", "a queue in order runs commands one after another")
def test_in_order(objects: CLObjects, queue: int) -> None:
    buffer = objects.buffer([0] * 1024)
    for value in range(20):
        objects.launch(queue, objects.kernel("twice_plus", buffer, ctypes.c_int32(value % 2)), 1024)
    expected = 0
    for value in range(20):
        expected = 2 * expected + value % 2
    equal(objects.read(queue, buffer), [expected] * 1024, "the buffer")


@rule("clCreateCommandQueue", "on a queue out of order events keep the order")
def test_out_of_order(objects: CLObjects, out_of_order: int) -> None:
    buffer, waits, event = objects.buffer([0] * 1024), [], ctypes.c_void_p()
    for value in (7, 3, 7, 5):
        kernel = objects.kernel("twice_plus", buffer, ctypes.c_int32(value))
        objects.launch(out_of_order, kernel, 1024, waits, ctypes.byref(event))
        waits = [objects.owned(event.value or 0, "cl_event")]
    objects.finish(out_of_order)
    equal(objects.read(out_of_order, buffer), [((7 * 2 + 3) * 2 + 7) * 2 + 5] * 1024, "the buffer")


@rule("clEnqueueBarrierWithWaitList", "what comes after a barrier waits for what is before it")
def test_barrier(objects: CLObjects, out_of_order: int) -> None:
    buffer = objects.buffer([0] * 1024)
    for value in (7, 3, 7, 5):
        objects.launch(
            out_of_order, objects.kernel("twice_plus", buffer, ctypes.c_int32(value)), 1024
        )
        objects.call("clEnqueueBarrierWithWaitList", out_of_order)
    objects.finish(out_of_order)
    equal(objects.read(out_of_order, buffer), [((7 * 2 + 3) * 2 + 7) * 2 + 5] * 1024, "the buffer")


@rule("clGetCommandQueueInfo", "CL_QUEUE_PROPERTIES are those it was made with")
@pytest.mark.parametrize("properties", [0, 1, 2, 3])
def test_queue_properties(objects: CLObjects, chosen: CLDevice, properties: int) -> None:
    if properties & ~chosen.info("CL_DEVICE_QUEUE_ON_HOST_PROPERTIES"):
        unsupported("the device has no such queues")
    equal(
        objects.number("clGetCommandQueueInfo", objects.queue(properties), "CL_QUEUE_PROPERTIES"),
        properties,
        "the properties",
    )


@rule("clCreateCommandQueueWithProperties", "takes CL_QUEUE_PROPERTIES, and NULL")
def test_queue_with_properties(objects: CLObjects, chosen: CLDevice) -> None:
    if objects.version < (2, 0):
        unsupported("it came with OpenCL 2.0")
    wanted = OUT_OF_ORDER & chosen.info("CL_DEVICE_QUEUE_ON_HOST_PROPERTIES")
    what = (ctypes.c_uint64 * 3)(OPENCL["CL_QUEUE_PROPERTIES"], wanted, 0)
    found = []
    for properties in (what, None):
        queue = objects.make(
            "clCreateCommandQueueWithProperties", objects.context, objects.device, properties
        )
        found.append(objects.number("clGetCommandQueueInfo", queue, "CL_QUEUE_PROPERTIES"))
    equal(found, [wanted, 0], "the properties")


@rule("clReleaseCommandQueue", "a queue that is released goes on with its commands")
def test_released_queue(objects: CLObjects) -> None:
    inner, buffer, event = objects.new_maker(), objects.buffer([0] * 1024), ctypes.c_void_p()
    queue = inner.make("clCreateCommandQueue", objects.context, objects.device, 0)
    objects.launch(queue, objects.kernel("increment", buffer), 1024, event=ctypes.byref(event))
    objects.call("clFlush", queue)
    inner.close()
    objects.call("clWaitForEvents", 1, handles(objects.owned(event.value or 0, "cl_event")))
    equal(objects.read(objects.queue(), buffer), [1] * 1024, "the buffer")


@rule("clEnqueueNDRangeKernel", "8 threads, each with a queue, a kernel and a buffer of its own")
def test_threads(objects: CLObjects) -> None:
    def work(own: CLObjects, number: int) -> tuple[list[int], list[int]]:
        buffer, queue = own.buffer([0] * 64), own.queue()
        kernel = own.kernel("add", buffer, ctypes.c_int32(number))
        for _ in range(20):
            own.launch(queue, kernel, 64)
        return own.read(queue, buffer), [20 * number] * 64

    run_in_threads(objects, work)
