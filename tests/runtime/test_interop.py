"""PyOpenCL's objects in the runtime and the runtime's in PyOpenCL; native commands; processes."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.support import CHILD_TIMEOUT, RunPython, WatchedLock
from helpers.sycl import SOURCE, N, raises, zeros

from fairlead.runtime import (
    USM,
    Buffer,
    Context,
    Device,
    Errc,
    Event,
    Handler,
    InteropHandle,
    Program,
    Queue,
    Sampler,
    SYCLError,
    devices,
    interop,
)
from fairlead.runtime.interop import context_of, device_of, event_of, queue_of, to_pyopencl


@pytest.fixture
def theirs(queue: Queue) -> cl.CommandQueue:
    """A queue of PyOpenCL's own, in the same context."""
    return cl.CommandQueue(to_pyopencl(queue.context), to_pyopencl(queue.device))


def test_objects_go_there_and_come_back(queue: Queue, device: Device, program: Program) -> None:
    there = to_pyopencl(queue)
    assert there.device.name.strip() == device.name and to_pyopencl(queue.context) == there.context
    assert device_of(there.device) is device
    assert context_of(there.context) is queue.context
    assert (
        to_pyopencl(program.add).function_name == "add"
        and "sum" in to_pyopencl(program).kernel_names
    )
    with pytest.raises(SYCLError, match="no counterpart"):
        to_pyopencl(3)


def test_their_context_and_queue_are_one_object_each(device: Device) -> None:
    context = cl.Context([to_pyopencl(device)])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    ours = queue_of(queue)
    assert ours.context is context_of(context) and ours is queue_of(queue)
    assert (ours.in_order, ours.profiling, ours.native()) == (True, True, queue.int_ptr)
    memory = zeros(ours)
    event = ours.parallel_for(N, Program(ours.context, SOURCE).add, memory, numpy.int32(1))
    queue.finish()
    assert event.status == "complete" and event.profiling("end") >= event.profiling("start")
    assert (memory.array == 1).all()


def test_threads_that_ask_at_the_same_time_get_the_same_context(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, lock = cl.Context([to_pyopencl(device)]), WatchedLock(interop._lock)
    threads, results = list[threading.Thread](), list[Context]()

    def look_up(one: Any) -> Device:
        """Between the search for a known context and the making of another one."""
        if not lock.is_watching:
            lock.wanted.set()
        elif not threads:
            threads.append(threading.Thread(target=lambda: results.append(context_of(theirs))))
            threads[0].start()
            assert lock.wanted.wait(CHILD_TIMEOUT)
        return device_of(one)

    monkeypatch.setattr(interop, "_lock", lock)
    monkeypatch.setattr(interop, "device_of", look_up)
    results.append(context_of(theirs))
    threads[0].join()
    assert results[0] is results[1]


def test_pyopencl_objects_keep_their_context(device: Device) -> None:
    """On Intel's driver a queue does not: its context is gone with the program's last reference."""

    def make() -> tuple[cl.CommandQueue, cl.Program, cl.Kernel]:
        queue = Queue(Context(device))
        program = Program(queue.context, SOURCE)
        return to_pyopencl(queue), to_pyopencl(program), to_pyopencl(program.add)

    queue, program, kernel = make()
    gc.collect()
    assert queue.context.devices == [to_pyopencl(device)]
    assert program.get_info(cl.program_info.CONTEXT) == queue.context
    assert kernel.context.devices == queue.context.devices
    assert queue_of(queue).context is context_of(queue.context)


@pytest.mark.driver("intel_cpu")
def test_a_queue_of_theirs_whose_context_is_gone(device: Device) -> None:
    def make() -> tuple[cl.CommandQueue, cl.UserEvent]:
        context = cl.Context([to_pyopencl(device)])
        return cl.CommandQueue(context), cl.UserEvent(context)

    queue, event = make()
    gc.collect()
    if "Intel" not in device.platform.name:
        assert queue_of(queue).context is context_of(queue.context)
        return
    with pytest.raises(SYCLError, match=r"(?s)context of the pyopencl.CommandQueue is gone.*keep"):
        queue_of(queue)
    with pytest.raises(SYCLError, match=r"(?s)context of the pyopencl.UserEvent is gone.*keep"):
        event_of(event, Context(device))


def test_events_go_both_ways(
    queue: Queue, theirs: cl.CommandQueue, program: Program, memory: USM
) -> None:
    user = cl.UserEvent(theirs.context)
    event = queue.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[user])
    marker = cl.enqueue_marker(theirs, wait_for=[event.to_pyopencl()])
    task = queue.host_task(lambda: None, depends_on=[marker])
    assert not task.done
    user.set_status(cl.command_execution_status.COMPLETE)
    task.wait()
    marker.wait()
    with pytest.raises(SYCLError, match="no single event"):
        task.to_pyopencl()
    with pytest.raises(SYCLError, match="int is not an Event"):
        queue.barrier([3])


def test_an_event_of_another_context_of_theirs(
    queue: Queue, device: Device, program: Program, memory: USM
) -> None:
    other = cl.Context([to_pyopencl(device)])
    user = cl.UserEvent(other)
    event = queue.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[user])
    assert (
        event_of(user, queue.context).context is not queue.context and event.status == "submitted"
    )
    user.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert (memory.array == 1).all()


def test_an_event_of_theirs_that_fails(queue: Queue, theirs: cl.CommandQueue, memory: USM) -> None:
    user = cl.UserEvent(theirs.context)
    task = queue.host_task(lambda: memory.array.fill(1), depends_on=[user])
    user.set_status(-5)
    with pytest.raises(SYCLError) as caught:
        task.wait()
    assert caught.value.routine == "urEventWait"
    with pytest.raises(SYCLError):
        queue.wait()
    assert not memory.array.any()


def test_their_kernels_are_launched(queue: Queue, theirs: cl.CommandQueue, memory: USM) -> None:
    program = cl.Program(theirs.context, SOURCE).build()
    kernel = program.store
    queue.parallel_for(N, kernel, memory, numpy.int32(8)).wait()
    assert (memory.array == 8).all()
    with pytest.raises(SYCLError, match="str is not a Kernel"):
        queue.parallel_for(N, "store", memory)


def test_their_buffers_and_arrays_are_arguments(
    queue: Queue, theirs: cl.CommandQueue, program: Program
) -> None:
    buffer = cl.Buffer(
        theirs.context,
        cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR,
        hostbuf=numpy.arange(N, dtype=numpy.int32),
    )
    array = cl_array.zeros(theirs, N, numpy.int32)
    theirs.finish()
    event = queue.parallel_for(N, program.copy, buffer, array)
    queue.parallel_for(N, program.add, array, numpy.int32(1), depends_on=[event]).wait()
    assert (array.get() == numpy.arange(N) + 1).all()
    with pytest.raises(SYCLError, match="does not begin where its buffer does") as caught:
        queue.parallel_for(N // 2, program.add, array[N // 2 :], numpy.int32(1))
    assert caught.value.errc is Errc.kernel_argument


def test_their_memory_is_copied_and_filled(
    queue: Queue, theirs: cl.CommandQueue, memory: USM
) -> None:
    data = numpy.arange(N, dtype=numpy.int32)
    array, other = (
        cl_array.zeros(theirs, N, numpy.int32),
        cl.Buffer(theirs.context, cl.mem_flags.READ_WRITE, 4 * N),
    )
    theirs.finish()
    event = queue.memcpy(array, data)
    event = queue.memcpy(other, array, depends_on=[event])
    event = queue.memcpy(array[10:20], other, 40, depends_on=[event])
    event = queue.memcpy(memory, array, depends_on=[event])
    event.wait()
    data[10:20] = numpy.arange(10)
    assert (memory.array == data).all()
    queue.fill(other, numpy.int32(6)).wait()
    queue.memcpy(data, other).wait()
    assert (data == 6).all()
    with pytest.raises(SYCLError, match="is not memory for this"):
        queue.prefetch(other)


def test_their_svm_is_an_argument_and_copied_and_filled(
    queue: Queue, theirs: cl.CommandQueue, program: Program
) -> None:
    made: list[Any] = [  # without a queue: PoCL's clEnqueueSVMFree reads a list that is gone
        cl.SVMAllocation(theirs.context, 4 * N, 0, cl.svm_mem_flags.READ_WRITE) for _ in range(2)
    ]
    data = numpy.zeros(N, numpy.int32)
    event = queue.fill(made[0], numpy.int32(4))
    event = queue.parallel_for(N, program.add, made[0], numpy.int32(3), depends_on=[event])
    event = queue.memcpy(made[1], made[0], depends_on=[event])
    queue.memcpy(data, made[1], depends_on=[event]).wait()
    assert (data == 7).all()


def test_memory_of_another_context_of_theirs_is_refused(
    queue: Queue, device: Device, program: Program
) -> None:
    context = cl.Context([to_pyopencl(device)])
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * N)
    with pytest.raises(SYCLError, match="belongs to another context") as caught:
        queue.parallel_for(N, program.add, buffer, numpy.int32(1))
    assert caught.value.errc is Errc.invalid


def test_their_memory_lives_until_the_command_has_run(
    queue: Queue, theirs: cl.CommandQueue, program: Program
) -> None:
    opened = cl.UserEvent(theirs.context)
    gate = queue.host_task(lambda: opened.wait())
    array = cl_array.zeros(theirs, N, numpy.int32)
    theirs.finish()
    gone = weakref.ref(array)
    event = queue.parallel_for(N, program.add, array, numpy.int32(1), depends_on=[gate])
    del array
    gc.collect()
    assert gone() is not None
    opened.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    queue.wait()
    gc.collect()
    assert gone() is None


def test_a_native_command_uses_the_native_queue(
    queue: Queue, program: Program, memory: USM
) -> None:
    buffer = cl.Buffer(to_pyopencl(queue.context), cl.mem_flags.READ_WRITE, 4 * N)
    seen = []

    def native(handle: InteropHandle) -> None:
        there = cl.CommandQueue.from_int_ptr(handle.native_queue(), True)
        seen.append(handle.native_command_buffer())
        cl.enqueue_fill_buffer(there, buffer, numpy.array(9, numpy.int32), 0, 4 * N)
        cl.enqueue_barrier(there)

    queue.submit(lambda h: h.native_command(native)).wait()
    queue.wait()
    queue.memcpy(memory, buffer).wait()
    assert seen == [0] and (memory.array == 9).all()
    with pytest.raises(ZeroDivisionError):
        queue.submit(lambda h: h.native_command(lambda handle: 1 / 0))


def test_a_native_command_uses_the_native_memory_of_a_buffer(queue: Queue) -> None:
    data = numpy.zeros(N, numpy.int32)

    def submitted(handler: Handler) -> None:
        accessor = handler.access(buffer)

        def native(handle: InteropHandle) -> None:
            there = cl.CommandQueue.from_int_ptr(handle.native_queue(), True)
            memory: Any = cl.MemoryObject.from_int_ptr(handle.native_memory(accessor), True)
            cl.enqueue_fill_buffer(there, memory, numpy.array(7, numpy.int32), 0, 4 * N)
            cl.enqueue_barrier(there)

        handler.native_command(native)

    with Buffer(data) as buffer:
        queue.submit(submitted)
    assert (data == 7).all()


@pytest.mark.parametrize("order", ["pyopencl, fairlead.runtime", "fairlead.runtime, pyopencl"])
def test_either_may_be_imported_first(order: str, run_python: RunPython) -> None:
    code = f"""
import {order}
import numpy
from fairlead.runtime import Queue, devices
from fairlead.runtime.interop import device_of, queue_of
for platform in pyopencl.get_platforms():
    for device in platform.get_devices():
        queue = queue_of(pyopencl.CommandQueue(pyopencl.Context([device])))
        data = numpy.zeros(4, numpy.int32)
        there = pyopencl.Buffer(queue.keep.context, pyopencl.mem_flags.READ_WRITE, 16)
        queue.fill(there, numpy.int32(3)).wait()
        queue.memcpy(data, there).wait()
        print(data.tolist())
"""
    lines = run_python(code).out.splitlines()
    assert lines and set(lines) == {"[3, 3, 3, 3]"}


def test_a_forked_child_lets_everything_go_and_is_told(run_python: RunPython) -> None:
    code = """
import gc, os, threading, numpy
from fairlead.runtime import *
for device in devices():
    queue, never = Queue(device), threading.Event()
    memory, buffer = malloc_shared(16, "int32", queue), Buffer(numpy.zeros(16))
    event = queue.memset(memory, 1, depends_on=[queue.host_task(never.wait)])
    child = os.fork()
    if not child:
        told = []
        for use in (lambda: Queue(device), lambda: queue.memset(memory, 2), queue.wait):
            try:
                use()
            except SYCLError as error:
                told.append("forked" in str(error) and "spawn" in str(error))
        del queue, memory, buffer, event, use
        gc.collect()
        os._exit(7 if told == [True, True, True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    never.set()
    event.wait()
    print(set(memory.array.tolist()))
"""
    assert set(run_python(code).out.splitlines()) == {"{16843009}"}


def test_nothing_imports_pyopencl_by_itself(run_python: RunPython) -> None:
    code = (
        "import sys; from fairlead.runtime import Queue; import fairlead.graph; "
        "Queue().wait(); print('pyopencl' in sys.modules)"
    )
    assert run_python(code).out == "False\n"
    assert len(devices()) and Event().done


IMAGES = """
kernel void turn(read_only image2d_t from, sampler_t how, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, (int2)(get_image_width(from) - 1 - at.x, at.y), read_imageui(from, how, at));
}
"""


def test_their_images_are_arguments(queue: Queue, theirs: cl.CommandQueue) -> None:
    array = numpy.arange(80, dtype=numpy.uint8).reshape(4, 5, 4)
    source = cl.image_from_array(theirs.context, array, 4)
    target = cl.image_from_array(theirs.context, numpy.zeros_like(array), 4, "w")
    kernel = Program(queue, IMAGES).turn
    queue.parallel_for((5, 4), kernel, source, Sampler(), target).wait()
    found = numpy.empty_like(array)
    cl.enqueue_copy(theirs, found, target, origin=(0, 0), region=(5, 4))
    assert (found == array[:, ::-1]).all()
    volume = cl.image_from_array(theirs.context, array.reshape(2, 2, 5, 4), 4)
    with raises(Errc.kernel_argument, "is declared image2d_t"):
        queue.parallel_for((5, 4), kernel, volume, Sampler(), target)
    context = cl.Context(theirs.context.devices)  # Intel's images do not keep theirs
    other = cl.image_from_array(context, array, 4)
    with raises(Errc.invalid, "belongs to another context"):
        queue.parallel_for((5, 4), kernel, other, Sampler(), target)
    with raises(Errc.invalid, "is not memory for this"):
        queue.memcpy(array, source)
