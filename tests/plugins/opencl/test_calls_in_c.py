"""Entry points that begin in C: what runs there, what C leaves to Python, and what Python learns of
it."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.entries import asked_of_python, begin_in_c
from helpers.launching import MEM, POINTER, VALUE, Numbers, launch, sizes
from helpers.memory_calls import held_back, struct
from helpers.support import RunPython
from helpers.ur_calls import Calls, array

from fairlead.conformance.threads import in_threads
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.opencl.events import UREvent
from fairlead.plugins.sdk._native import ffi, lib
from fairlead.plugins.sdk.objects import close_released


@pytest.fixture(autouse=True)
def in_c(adapter: Any) -> None:
    """Leave these tests out in a process whose calls all begin in Python."""
    if not begin_in_c():
        pytest.skip("FAIRLEAD_CALLS=python")


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The entry points that Python is asked for."""
    with asked_of_python() as names:
        yield names


def stayed_in_c(asked: list[str]) -> bool:
    """Whether Python was asked for nothing but waits: one that is not over soon goes to Python."""
    return set(asked) <= {"urEventWait", "urQueueFinish"}


@pytest.fixture
def kernel(ur: Calls, program: int) -> int:
    return ur.make("urKernelCreate", program, b"store").value or 0


def owned(type_name: str) -> dict[int, Any]:
    """The objects that Python knows."""
    return reference.objects.list_owned(type_name)


def alloc(ur: Calls, context: int, device: PluginDevice, size: int = 256) -> int:
    return ur.make("urUSMDeviceAlloc", context, device.handle, None, None, size).value or 0


def status(ur: Calls, event: Any) -> int:
    found = ctypes.c_uint32()
    name = UR["UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"]
    ur.ok("urEventGetInfo", event, name, 4, found)
    return found.value


@pytest.mark.slow
def test_commands_and_waits_do_not_reach_python(
    ur: Calls, queue: int, context: int, kernel: int, asked: list[str]
) -> None:
    numbers, other = Numbers(ur, context, 4), Numbers(ur, context, 4)
    arguments = numbers.argument, 7
    for local in (None, (1,)):  # Python tells C the local size, and the driver compiles
        assert launch(ur, queue, kernel, (2,), *arguments, local=local) == "SUCCESS"
        ur.ok("urQueueFinish", queue)
    asked.clear()
    event, last, pattern = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32(5)
    assert launch(ur, queue, kernel, (2,), *arguments, event=ctypes.byref(event)) == "SUCCESS"
    assert launch(ur, queue, kernel, (2,), *arguments, waits=[event], local=(1,)) == "SUCCESS"
    ur.ok("urEnqueueEventsWait", queue, 1, array(event), last)
    ur.ok("urEnqueueEventsWaitWithBarrier", queue)
    ur.ok("urEnqueueMemBufferCopy", queue, numbers.handle, other.handle, 0, 0, 8)
    fill = other.handle, ctypes.byref(pattern), 4, 8, 8
    ur.ok("urEnqueueMemBufferFill", queue, *fill)
    assert other.read(queue) == [7, 8, 5, 5]
    write = other.handle, True, 0, 4, ctypes.byref(pattern)
    ur.ok("urEnqueueMemBufferWrite", queue, *write)
    ur.ok("urQueueFlush", queue)
    ur.ok("urEventWait", 2, array(event, last))
    assert status(ur, event) == UR["UR_EVENT_STATUS_COMPLETE"]
    ur.ok("urQueueFinish", queue)
    assert other.read(queue)[0] == 5
    assert not {event.value, last.value} & set(owned("ur_event_handle_t"))
    for handle in (event, last):
        ur.ok("urEventRelease", handle)
        assert ur("urEventRelease", handle) == "INVALID_EVENT"
    assert stayed_in_c(asked)


def test_memory_by_address_does_not_reach_python(
    ur: Calls, device: PluginDevice, context: int, queue: int, asked: list[str]
) -> None:
    first = alloc(ur, context, device)  # Python tells C what the devices have
    asked.clear()
    memory, source = alloc(ur, context, device), (ctypes.c_int32 * 4)(1, 2, 3, 4)
    found, pattern = (ctypes.c_int32 * 4)(), ctypes.c_int32(9)
    ur.ok("urEnqueueUSMMemcpy", queue, True, memory, source, 16)
    ur.ok("urEnqueueUSMFill", queue, memory + 8, 4, pattern, 4)
    ur.ok("urEnqueueUSMMemcpy", queue, True, found, memory, 16)
    assert list(found) == [1, 2, 9, 4]
    size = ctypes.c_size_t()
    ask = context, memory + 100, UR["UR_USM_ALLOC_INFO_SIZE"], 8, ctypes.byref(size), None
    ur.ok("urUSMGetMemAllocInfo", *ask)
    assert size.value == 256
    ur.ok("urUSMFree", context, memory)
    assert asked == []
    ur.ok("urUSMFree", context, first)
    assert set(asked) <= {"urUSMFree"}  # Python allocated it if the device was new to C
    assert ur("urUSMFree", context, memory) == "INVALID_MEM_OBJECT"


def test_python_gives_up_memory_that_c_made(
    ur: Calls, device: PluginDevice, context: int, queue: int
) -> None:
    ur.ok("urUSMFree", context, alloc(ur, context, device))  # Python tells C what the devices have
    free = "urEnqueueUSMFreeExp", queue
    desc = struct("ur_usm_pool_desc_t", "USM_POOL_DESC")
    memory = alloc(ur, context, device)
    pool = ur.make("urUSMPoolCreate", context, desc)
    assert ur(*free, pool, memory, 0, None, None) == "INVALID_VALUE"  # it is of no pool
    ur.ok("urUSMFree", context, memory)
    memory = alloc(ur, context, device)
    assert ur(*free, None, memory + 1, 0, None, None) == "INVALID_MEM_OBJECT"
    ur.ok(*free, None, memory, 0, None, None)
    assert ur("urUSMFree", context, memory) == "INVALID_MEM_OBJECT"
    ur.ok("urQueueFinish", queue)


def test_what_c_does_not_expect_goes_to_python(
    ur: Calls, device: PluginDevice, context: int, queue: int, kernel: int, asked: list[str]
) -> None:
    numbers, value = Numbers(ur, context, 4), ctypes.c_int32()
    other_context = ur.make("urContextCreate", 1, array(device.handle))
    foreign = ur.make("urQueueCreate", other_context, device.handle)
    far, memory = ctypes.c_void_p(), alloc(ur, context, device, 64)
    ur.ok("urEnqueueEventsWait", foreign, 0, None, far)
    event = ctypes.byref(ctypes.c_void_p())
    transfer, no_waits = (numbers.handle, False, 0, 4, ctypes.byref(value)), (0, None, None)
    for routine, arguments, code in (
        ("urQueueFinish", (0,), "INVALID_NULL_HANDLE"),
        ("urQueueFlush", (numbers.handle,), "INVALID_QUEUE"),
        ("urEventWait", (0, array(far)), "INVALID_VALUE"),
        ("urEventWait", (1, array(queue)), "INVALID_EVENT"),
        ("urEventGetInfo", (far, 0x7FFF, 8, ctypes.byref(far), None), "INVALID_ENUMERATION"),
        ("urEnqueueEventsWait", (queue, 1, None, event), "INVALID_EVENT_WAIT_LIST"),
        ("urEnqueueEventsWait", (queue, 1, array(far), event), "INVALID_CONTEXT"),
        ("urEnqueueMemBufferRead", (foreign, *transfer, *no_waits), "INVALID_CONTEXT"),
        (
            "urEnqueueMemBufferWrite",
            (queue, numbers.handle, False, 12, 8, ctypes.byref(value), *no_waits),
            "INVALID_SIZE",
        ),
        (
            "urEnqueueMemBufferCopy",
            (queue, numbers.handle, queue, 0, 0, 4, *no_waits),
            "INVALID_MEM_OBJECT",
        ),
        (
            "urEnqueueMemBufferFill",
            (queue, numbers.handle, ctypes.byref(value), 3, 0, 3, *no_waits),
            "INVALID_SIZE",
        ),
        ("urEnqueueUSMMemcpy", (queue, True, memory, 8, 4, *no_waits), "INVALID_MEM_OBJECT"),
        (
            "urEnqueueUSMMemcpy",
            (queue, True, memory + 60, ctypes.byref(value), 8, *no_waits),
            "INVALID_SIZE",
        ),
        (
            "urEnqueueUSMFill",
            (queue, memory, 4, ctypes.byref(value), 68, *no_waits),
            "INVALID_SIZE",
        ),
        ("urUSMFree", (context, memory + 1), "INVALID_MEM_OBJECT"),
        ("urUSMFree", (other_context, memory), "INVALID_MEM_OBJECT"),
    ):
        asked.clear()
        assert (ur(routine, *arguments), asked) == (code, [routine]), (routine, code)
    assert launch(ur, foreign.value or 0, kernel, (1,), numbers.argument, 1) == "INVALID_CONTEXT"
    assert launch(ur, queue, kernel, (1,), numbers.argument, (MEM, queue)) == "INVALID_MEM_OBJECT"
    assert launch(ur, queue, kernel, (1,), numbers.argument, 1, local=(0,)) == (
        "INVALID_WORK_GROUP_SIZE"
    )
    ur.ok("urUSMFree", context, memory)


def test_python_gets_the_object_of_an_event_that_c_made(
    ur: Calls, context: int, queue: int
) -> None:
    event = ur.make("urEnqueueEventsWait", queue)
    assert event.value not in owned(UREvent.type)
    assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_REFERENCE_COUNT") == 1
    assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE") == queue
    found = owned(UREvent.type)[event.value or 0]
    assert found.references == 1 and found.command == UR["UR_COMMAND_EVENTS_WAIT"]
    assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_CONTEXT") == context
    ur.ok("urEventRetain", event)
    ur.ok("urEventRelease", event)
    ur.ok("urEventWait", 1, array(event))
    ur.ok("urEventRelease", event)
    close_released()
    assert found.handle == 0 and ur("urEventWait", 1, array(event)) == "INVALID_EVENT"


def test_an_event_keeps_its_queue(ur: Calls, device: PluginDevice, context: int) -> None:
    queue = ur.make("urQueueCreate", context, device.handle)
    events = [ur.make("urEnqueueEventsWait", queue) for _ in range(3)]
    ur.ok("urEventRelease", events.pop())
    ur.ok("urQueueRelease", queue)
    close_released()
    gc.collect()
    known = owned(UREvent.type)
    assert {event.value for event in events} <= set(known)
    assert all(not known[event.value or 0].queue.is_closed for event in events)
    ur.ok("urEventWait", 2, array(*events))
    shown = {ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE") for event in events}
    assert len(shown) == 1 and shown != {queue.value}


def test_python_learns_of_arguments_that_c_has_set(
    ur: Calls, old: Calls, context: int, queue: int, kernel: int, asked: list[str]
) -> None:
    numbers, value = Numbers(ur, context, 2), ctypes.c_int32(40)
    old.ok("urKernelSetArgMemObj", kernel, 0, None, numbers.handle)
    old.ok("urKernelSetArgValue", kernel, 1, 4, None, value)
    assert asked == []
    last = owned("ur_kernel_handle_t")[kernel].arguments
    assert last[0].value is owned("ur_mem_handle_t")[numbers.handle]
    assert (last[1].kind, last[1].value) == (VALUE, bytes(value))
    del last
    common = queue, kernel, 1, None, sizes((2,)), sizes((1,)), None, 0, None, None
    old.ok("urEnqueueKernelLaunch", *common)
    assert asked == [] and numbers.read(queue) == [40, 41]
    asked.clear()  # a wait while the driver compiles goes on in Python
    ur.ok("urMemRelease", numbers.handle)
    assert old("urEnqueueKernelLaunch", *common) == "INVALID_KERNEL_ARGS"
    assert asked == ["urEnqueueKernelLaunch"]


def test_a_refused_argument_leaves_the_last_one(
    ur: Calls, old: Calls, context: int, queue: int, kernel: int
) -> None:
    numbers, value = Numbers(ur, context, 2), ctypes.c_int32(4)
    assert launch(ur, queue, kernel, (1,), numbers.argument, 1) == "SUCCESS"
    wrong = old("urKernelSetArgValue", kernel, 9, 4, None, ctypes.byref(value))
    assert wrong == "INVALID_KERNEL_ARGUMENT_INDEX"
    assert launch(ur, queue, kernel, (1,), numbers.argument, (POINTER, 8)) != "SUCCESS"
    assert launch(ur, queue, kernel, (2,)) == "SUCCESS" and numbers.read(queue) == [1, 2]


def test_a_free_waits_for_commands(
    ur: Calls, device: PluginDevice, context: int, queue: int
) -> None:
    alloc(ur, context, device)
    memory, (event, complete), freed = alloc(ur, context, device), held_back(ur, context), []
    ur.ok("urEnqueueEventsWait", queue, 1, array(event))
    thread = threading.Thread(target=lambda: freed.append(ur("urUSMFree", context, memory)))
    thread.start()
    assert lib.fl_kind_of_memory(memory) == UR["UR_USM_TYPE_DEVICE"] and not freed
    complete()
    thread.join()
    assert freed == ["SUCCESS"] and lib.fl_kind_of_memory(memory) == 0


def test_a_context_does_not_reach_python(ur: Calls, device: PluginDevice, asked: list[str]) -> None:
    made = ur.make("urContextCreate", 1, array(device.handle))
    ur.ok("urContextRetain", made)
    ur.ok("urContextRelease", made)
    ur.ok("urContextRelease", made)
    assert asked == [] and ur("urContextRelease", made) == "INVALID_CONTEXT"
    assert ur("urContextCreate", 0, array(device.handle), None, ctypes.byref(made)) != "SUCCESS"
    assert asked == ["urContextCreate"]


def test_python_gets_the_object_of_a_context_that_c_made(ur: Calls, device: PluginDevice) -> None:
    made = ur.make("urContextCreate", 1, array(device.handle))
    assert made.value not in owned("ur_context_handle_t")
    assert ur.number("urContextGetInfo", made, "UR_CONTEXT_INFO_DEVICES") == device.handle
    assert ur.number("urContextGetInfo", made, "UR_CONTEXT_INFO_REFERENCE_COUNT") == 1
    queue = ur.make("urQueueCreate", made, device.handle)
    known = owned("ur_context_handle_t")[made.value or 0]
    assert owned("ur_queue_handle_t")[queue.value or 0].context is known
    ur.ok("urContextRelease", made)
    ur.ok("urQueueFinish", queue)
    ur.ok("urQueueRelease", queue)
    assert ur("urContextRetain", made) == "INVALID_CONTEXT"


def test_memory_keeps_its_context(ur: Calls, device: PluginDevice) -> None:
    context = ur.make("urContextCreate", 1, array(device.handle))
    ur.number("urContextGetInfo", context, "UR_CONTEXT_INFO_REFERENCE_COUNT")
    alloc(ur, context.value or 0, device)  # by Python, if it is the first of the process
    made = alloc(ur, context.value or 0, device)
    cl = owned("ur_context_handle_t")[context.value or 0].cl
    assert lib.fl_find_memory(cl)
    ur.ok("urContextRelease", context)
    close_released()
    assert not lib.fl_find_memory(cl) and lib.fl_kind_of_memory(made)


def test_first_memory_of_a_context(ur: Calls, device: PluginDevice, asked: list[str]) -> None:
    """Once Python has told what a device has, C allocates in every context of it."""
    context = ur.make("urContextCreate", 1, array(device.handle))
    ur.ok("urUSMFree", context, alloc(ur, context.value or 0, device))
    ur.ok("urContextRelease", context)
    asked.clear()
    context = ur.make("urContextCreate", 1, array(device.handle))
    cl = ffi.cast("fl_handle *", context.value or 0).words[0]
    made = alloc(ur, context.value or 0, device)
    assert asked == [] and lib.fl_find_memory(cl) == made
    ur.ok("urContextRelease", context)  # the memory keeps the cl_context
    close_released()
    assert lib.fl_find_memory(cl) == made and not owned("ur_context_handle_t").get(
        context.value or 0
    )
    other = ur.make("urContextCreate", 1, array(device.handle))
    assert ffi.cast("fl_handle *", other.value or 0).words[0] != cl


@pytest.fixture
def all_are_soon_over() -> Iterator[None]:
    """However slow this thread is."""
    soon, lib.fl_soon = lib.fl_soon, 1 << 62
    yield
    lib.fl_soon = soon


def test_launches_that_are_soon_over(
    ur: Calls, queue: int, context: int, kernel: int, asked: list[str], all_are_soon_over: None
) -> None:
    """C remembers of a kernel and its range that the launch ended soon."""
    numbers, known = Numbers(ur, context, 4), owned("ur_queue_handle_t")[queue].struct
    for local in (None, (1,)):  # Python tells C the local size
        assert launch(ur, queue, kernel, (2,), numbers.argument, 7, local=local) == "SUCCESS"
        ur.ok("urQueueFinish", queue)
    asked.clear()
    known.brief = [0] * len(known.brief)
    event = ctypes.c_void_p()
    given = numbers.argument, 0
    assert launch(ur, queue, kernel, (2,), *given, event=ctypes.byref(event)) == "SUCCESS"
    ur.ok("urEventWait", 1, array(event))
    ur.ok("urEventRelease", event)
    assert known.enqueued == known.finished
    learned = list(known.brief)
    assert any(learned) and stayed_in_c(asked)
    assert launch(ur, queue, kernel, (2,), numbers.argument, 5) == "SUCCESS"
    ur.ok("urQueueFinish", queue)  # in the driver
    assert numbers.read(queue)[:2] == [5, 6] and known.launch in learned
    assert launch(ur, queue, kernel, (4,), numbers.argument, 5) == "SUCCESS"
    assert known.launch not in learned  # other sizes
    ur.ok("urQueueFinish", queue)


def test_kernels_that_the_program_knows_are_launched_in_c(
    ur: Calls, queue: int, context: int, kernel: int, asked: list[str]
) -> None:
    """Two kernels of one cl_kernel keep each other away."""
    native = ctypes.c_size_t()
    ur.ok("urKernelGetNativeHandle", kernel, native)
    other = ur.make("urKernelCreateWithNativeHandle", native.value, context).value or 0
    first, second = (owned("ur_kernel_handle_t")[one] for one in (kernel, other))
    assert first.cl == second.cl and first.struct.busy == second.struct.busy
    numbers = Numbers(ur, context, 4)
    for one in (kernel, other):
        for local in (None, (1,)):  # Python tells C the local size
            assert launch(ur, queue, one, (2,), numbers.argument, 7, local=local) == "SUCCESS"
    asked.clear()
    for value, one in enumerate((kernel, other, kernel)):
        assert launch(ur, queue, one, (2,), numbers.argument, value, local=(1,)) == "SUCCESS"
        assert numbers.read(queue)[:2] == [value, value + 1]
    assert stayed_in_c(asked)
    with first.lock:  # Python has it: C leaves the other kernel's launch to Python, which waits
        thread = threading.Thread(target=launch, args=(ur, queue, other, (2,), numbers.argument, 9))
        thread.start()
    thread.join()
    assert numbers.read(queue)[:2] == [9, 10]


def test_answers_are_kept(ur: Calls, device: PluginDevice, kernel: int, asked: list[str]) -> None:
    name = ur.info("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_NAME")
    size = ctypes.c_size_t()
    group = kernel, device.handle, UR["UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE"], 8
    ur.ok("urKernelGetGroupInfo", *group, size)
    asked.clear()
    assert ur.info("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_NAME") == name
    again = ctypes.c_size_t()
    ur.ok("urKernelGetGroupInfo", *group, again)
    assert asked == [] and again.value == size.value > 0
    room = ctypes.create_string_buffer(1)
    ask = UR["UR_DEVICE_INFO_NAME"], 1, room, None
    assert ur("urDeviceGetInfo", device.handle, *ask) == "INVALID_SIZE"
    count = [
        ur.number("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_REFERENCE_COUNT")
        for _ in range(2)
    ]
    assert count[0] == count[1] and asked.count("urDeviceGetInfo") >= 3


def test_threads_make_and_release_events(ur: Calls, queue: int) -> None:
    """Some events become Python's while other threads make and release more."""
    failed: list[str] = []

    def work(number: int) -> None:
        for index in range(100):
            event = ur.make("urEnqueueEventsWait", queue)
            if index % 10 == number % 10:
                ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE")
            failed.extend(
                code
                for code in (ur("urEventWait", 1, array(event)), ur("urEventRelease", event))
                if code != "SUCCESS"
            )

    in_threads(4, work)
    assert failed == []


_TRACED = """
import fairlead
from fairlead.runtime import Queue, devices
queue = Queue(devices()[0])
with fairlead.trace() as trace:
    queue.adapter.call("urEnqueueEventsWait", queue.handle, 0, None, None)
    queue.adapter.call("urQueueFlush", queue.handle)
queue.adapter.call("urQueueFlush", queue.handle)
names = [call.name for call in trace.calls]
print(names.count("clEnqueueMarkerWithWaitList"), names.count("clFlush"))
"""


def test_a_trace_sees_what_c_calls(run_python: RunPython) -> None:
    assert run_python(_TRACED).out.split() == ["1", "1"]


_SWITCHED_OFF = """
from helpers.entries import begin_in_c
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.plugins import reference_adapter
from fairlead.plugins.opencl.core import adapter
load(PluginCandidate(reference_adapter(), "test", backend="opencl"))
print(begin_in_c(), len(adapter.in_c) > 30)
"""


@pytest.mark.parametrize(("value", "in_c"), [("python", False), ("c", True), ("x", True)])
def test_the_variable(value: str, in_c: bool, run_python: RunPython) -> None:
    tests = str(Path(__file__).parents[2])
    done = run_python(_SWITCHED_OFF, env={"FAIRLEAD_CALLS": value, "PYTHONPATH": tests})
    assert done.out.split() == [str(in_c), "True"]
    assert ("FAIRLEAD_CALLS=x is ignored" in done.err) == (value == "x")
