"""What cannot be captured is refused in the caller's line.

After any failure nothing has changed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import warnings
from collections.abc import Callable

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers import images
from helpers.captures import Numbers
from helpers.images import IMAGE2D
from helpers.programs import build_once

from fairlead.captured_graphs.context import CapturedGraph, CaptureError, capture
from fairlead.captured_graphs.swaps import CaptureWarning
from fairlead.conformance.threads import in_threads
from fairlead.icd._native import ffi, lib
from fairlead.icd.abi import OPENCL

#: What is refused does not depend on the driver.
pytestmark = pytest.mark.one_driver

SOURCE = "__kernel void add(__global float *a, float s) { a[get_global_id(0)] += s; }"
N = 64


def pointers(queue: cl.CommandQueue) -> list[bytes]:
    """Word 0 of queue and context, and the bytes of the driver's whole table."""
    words = [
        bytes(ffi.buffer(ffi.cast("char *", handle), 8))
        for handle in (queue.int_ptr, queue.context.int_ptr)
    ]
    table = lib.fl_table_of(ffi.cast("void *", queue.context.int_ptr))
    return [*words, bytes(ffi.buffer(table, 149 * 8))]


@pytest.fixture
def kernel(context: cl.Context) -> cl.Kernel:
    return build_once(context, SOURCE).add


@pytest.fixture
def buffer(queue: cl.CommandQueue) -> cl.Buffer:
    result = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, N * 4)
    cl.enqueue_fill_buffer(queue, result, np.full(1, 0, np.float32), 0, N * 4).wait()
    return result


def _map(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    cl.enqueue_map_buffer(
        queue, buffer, cl.map_flags.READ, 0, (N,), np.dtype(np.float32), is_blocking=False
    )


def _map_image(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    image = images.make(queue.context, IMAGE2D)
    cl.enqueue_map_image(
        queue,
        image,
        cl.map_flags.READ,
        (0, 0),
        (4, 4),
        (4, 4, 4),
        np.dtype(np.uint32),
        is_blocking=False,
    )


def _read_image(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    image, out = images.make(queue.context, IMAGE2D), np.empty((4, 8, 4), np.uint32)
    cl.enqueue_copy(queue, out, image, origin=(0, 0), region=(8, 4))


def _wait(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    cl.enqueue_fill_buffer(queue, buffer, np.full(1, 1, np.float32), 0, N * 4).wait()


def _callback(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    event = cl.enqueue_fill_buffer(queue, buffer, np.full(1, 1, np.float32), 0, N * 4)
    event.set_callback(cl.command_execution_status.COMPLETE, lambda status: None)


REFUSED: dict[str, tuple[Callable[[cl.CommandQueue, cl.Buffer], object], str]] = {
    "clFinish": (
        lambda queue, buffer: queue.finish(),
        "waits for commands that have only been recorded",
    ),
    "clWaitForEvents": (_wait, "waits for commands that have only been recorded"),
    "clSetEventCallback": (_callback, "callback at completion"),
    "clEnqueueReadBuffer": (
        lambda queue, buffer: cl.enqueue_copy(queue, np.zeros(N, np.float32), buffer),
        "blocking transfer",
    ),
    "clEnqueueWriteBuffer": (
        lambda queue, buffer: cl.enqueue_copy(queue, buffer, np.zeros(N, np.float32)),
        "blocking transfer",
    ),
    "clEnqueueMapBuffer": (_map, "cannot be captured"),
    "clEnqueueMapImage": (_map_image, "cannot be captured"),
    "clEnqueueReadImage": (_read_image, "blocking transfer"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_captured_is_refused_in_the_callers_line(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer, call: str
) -> None:
    queue.finish()
    before = pointers(queue)
    act, why = REFUSED[call]
    with pytest.raises(CaptureError, match=why) as caught, capture(queue) as graph:
        kernel(queue, (N,), None, buffer, np.float32(1))
        act(queue, buffer)
    error = caught.value
    assert error.routine == call and error.code == "CL_INVALID_OPERATION" and error.remedy
    assert error.where.startswith(__file__ + ":")
    assert any(
        frame.filename == __file__ and frame.name in ("<lambda>", act.__name__)
        for frame in traceback.extract_tb(error.__traceback__)
    )
    assert len(graph) == 0
    assert pointers(queue) == before
    result = np.empty(N, np.float32)
    cl.enqueue_copy(queue, result, buffer)
    assert (result == 0).all()


def test_a_refusal_that_the_program_swallows_is_raised_when_the_block_ends(
    queue: cl.CommandQueue,
) -> None:
    wanted = pytest.raises(CaptureError, match=r"clFinish.*\n.*remedy: wait after a replay")
    with wanted, capture(queue), contextlib.suppress(cl.LogicError):
        queue.finish()


def test_an_exception_in_the_block_passes_and_leaves_nothing(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    queue.finish()
    before = pointers(queue)
    with pytest.raises(ZeroDivisionError), capture(queue) as graph:
        kernel(queue, (N,), None, buffer, np.float32(1))
        raise ZeroDivisionError
    assert len(graph) == 0 and graph.queue is None
    assert pointers(queue) == before
    assert lib.fl_forgotten_kernels()
    with pytest.raises(CaptureError, match="the block failed, and nothing of it was captured"):
        graph.finalize()


def test_invalid_commands_raise_pyopencls_own_error(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    with pytest.raises(cl.LogicError, match="INVALID_VALUE"), capture(queue):
        cl.enqueue_fill_buffer(queue, buffer, b"", 0, N * 4)


def test_another_thread_is_refused_and_the_block_says_so(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    seen: list[BaseException] = []

    def intrude() -> None:
        try:
            cl.enqueue_fill_buffer(queue, buffer, np.full(1, 9, np.float32), 0, 4)
        except cl.Error as error:
            seen.append(error)

    queue.finish()
    before = pointers(queue)
    with (
        pytest.raises(CaptureError, match="another thread used the queue"),
        capture(queue) as graph,
    ):
        kernel(queue, (N,), None, buffer, np.float32(1))
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert len(seen) == 1 and "INVALID_OPERATION" in str(seen[0])
    assert len(graph) == 0 and pointers(queue) == before


@pytest.mark.slow
def test_threads_with_queues_of_their_own_are_not_disturbed(
    context: cl.Context, kernel: cl.Kernel
) -> None:
    """Eight threads capture, replay and run directly on one context; each gets its own result."""
    source = SOURCE.replace("add", "bump")

    def work(number: int) -> None:
        queue = cl.CommandQueue(context)
        bump = build_once(context, source).bump
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, N * 4)
        cl.enqueue_fill_buffer(queue, buffer, np.full(1, 0, np.float32), 0, N * 4)
        for _ in range(20):
            with capture(queue) as graph:
                for _ in range(10):
                    bump(queue, (N,), None, buffer, np.float32(number))
            graph.finalize().replay(queue)
            bump(queue, (N,), None, buffer, np.float32(1))
        result = np.empty(N, np.float32)
        cl.enqueue_copy(queue, result, buffer)
        assert (result == 20 * (10 * number + 1)).all(), f"{number}: {result[:3]}"

    in_threads(8, work)


def test_a_queue_is_captured_once_at_a_time(
    queue: cl.CommandQueue, context: cl.Context, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    other = cl.CommandQueue(context)
    with capture(queue) as outer:
        with (
            pytest.raises(Exception, match="end the other capture of this queue first"),
            capture(queue),
        ):
            pass
        with capture(other) as inner:
            kernel(other, (N,), None, buffer, np.float32(1))
        kernel(queue, (N,), None, buffer, np.float32(2))
    assert (len(outer), len(inner)) == (1, 1)
    outer.finalize().replay(queue).wait()
    inner.finalize().replay(queue).wait()
    result = np.empty(N, np.float32)
    cl.enqueue_copy(queue, result, buffer)
    assert (result == 3).all()


def test_the_same_queue_given_twice_is_one_queue(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    with capture(queue, queue) as graph:
        kernel(queue, (N,), None, buffer, np.float32(1))
    assert [node.queue for node in graph] == [queue]


def test_too_many_queues_are_refused_and_all_put_back(context: cl.Context) -> None:
    queues = [cl.CommandQueue(context) for _ in range(300)]
    with pytest.raises(Exception, match=r"CL_INVALID_VALUE.*\n.*63 in one block"), capture(*queues):
        pass
    blocks = []
    with pytest.raises(Exception, match=r"CL_OUT_OF_RESOURCES.*\n.*at most 512 queues"):
        for one in queues:
            block = capture(one)
            block.__enter__()
            blocks.append(block)
    assert len(blocks) == 256  # each captures the graph's own queue as well
    for block in blocks:
        block.__exit__(None, None, None)
    with capture(*queues[:60]) as graph:
        for one in queues[:60]:
            cl.enqueue_marker(one)
    assert len(graph) == 60


def test_an_event_of_another_capture_is_foreign(
    queue: cl.CommandQueue, context: cl.Context, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    other = cl.CommandQueue(context)
    with (
        pytest.raises(CaptureError, match="belongs to another context or to another capture"),
        capture(queue),
    ):
        event = kernel(queue, (N,), None, buffer, np.float32(1))
        with capture(other):
            kernel(other, (N,), None, buffer, np.float32(1), wait_for=[event])


def test_an_event_of_another_context_is_foreign(
    device: cl.Device, queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    foreign = cl.UserEvent(cl.Context([device]))
    with pytest.raises(CaptureError, match="belongs to another context"), capture(queue):
        kernel(queue, (N,), None, buffer, np.float32(1), wait_for=[foreign])
    foreign.set_status(cl.command_execution_status.COMPLETE)


def test_queues_of_two_contexts_are_refused(device: cl.Device, queue: cl.CommandQueue) -> None:
    context = cl.Context([device])
    other = cl.CommandQueue(context)
    with (
        pytest.raises(Exception, match=r"CL_INVALID_CONTEXT.*\n.*capture queues of one context"),
        capture(queue, other),
    ):
        pass


@pytest.mark.parametrize("wrong", [None, 3, "queue"])
def test_what_is_no_queue_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"expected a pyopencl.CommandQueue, got"), capture(wrong):
        pass
    with pytest.raises(TypeError, match="no queue was given"), capture():
        pass


def test_a_graph_is_not_finalized_inside_its_block(queue: cl.CommandQueue) -> None:
    with pytest.raises(CaptureError, match="the block has not ended"), capture(queue) as graph:
        graph.finalize()


def test_waits_of_pyopencl_array_for_its_own_lists_keep_the_order(
    context: cl.Context, out_of_order: cl.CommandQueue
) -> None:
    """An array that was written many times waits for its oldest events, to forget them.

    Later commands still come after those events.
    """
    queue = out_of_order
    x = pyopencl.array.to_device(queue, np.ones(N, np.float32))
    y = pyopencl.array.zeros(queue, N, np.float32)
    queue.finish()
    with capture(queue) as graph:
        for _ in range(30):
            y += x
    assert "barrier" in {node.op for node in graph}
    graph.finalize().replay(queue).wait()
    assert (y.get() == 30).all()


def test_the_extra_queue_of_a_graph_records_too(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    def library_function(queue: cl.CommandQueue) -> None:
        kernel(queue, (N,), None, buffer, np.float32(5))

    graph: CapturedGraph
    with capture(queue) as graph:
        library_function(graph.queue)
    assert len(graph) == 1
    graph.finalize().replay(queue).wait()
    result = np.empty(N, np.float32)
    cl.enqueue_copy(queue, result, buffer)
    assert (result == 5).all()


def test_every_enqueue_function_is_either_recorded_or_refused(queue: cl.CommandQueue) -> None:
    """Nothing of a captured queue reaches the driver unseen: every clEnqueue… slot of its table is
    exchanged."""
    enqueue = [function for function in OPENCL.slots if function.name.startswith("clEnqueue")]
    driver = lib.fl_table_of(ffi.cast("void *", queue.int_ptr))
    with capture(queue):
        table = ffi.cast("void ***", queue.int_ptr)[0]
        same = [f.name for f in enqueue if table[f.slot] == driver[f.slot]]
        wrong_slot_0 = table[0] != lib.fl_stubs[0]
    assert same == [] and not wrong_slot_0


def test_what_a_signal_handler_raises_is_raised_when_the_block_ends(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    """A handler may run while PyOpenCL's C++ calls fairlead, where nothing can be raised."""

    class Interrupt(Exception):
        pass

    class Bomb:
        def __init__(self) -> None:
            self.hits = 0

        def __call__(self, *arguments: object) -> None:
            self.hits += 1
            if self.hits == 3:
                raise Interrupt

    before = pointers(queue)
    bomb = Bomb()
    with pytest.raises(Interrupt), pytest.MonkeyPatch.context() as patch, capture(queue) as graph:
        patch.setattr("fairlead.captured_graphs.pyopencl_client.find_calling_place", bomb)
        for _ in range(5):
            kernel(queue, (N,), None, buffer, np.float32(1))
    assert len(graph) == 0 and graph.state == "failed"
    assert pointers(queue) == before


def test_keep_of_host_memory_lifts_no_refusal(
    queue: cl.CommandQueue, kernel: cl.Kernel, buffer: cl.Buffer
) -> None:
    kernel.set_args(buffer, np.float32(1))
    with (
        pytest.raises(CaptureError, match="before the block, or never"),
        capture(queue, keep=[np.zeros(4)]),
    ):
        cl.enqueue_nd_range_kernel(queue, kernel, (N,), None)


def test_a_variable_that_cannot_be_looked_at_does_no_harm(
    queue: cl.CommandQueue, buffer: cl.Buffer
) -> None:
    import weakref

    class Thing:
        pass

    proxy = weakref.proxy(Thing())  # its object is gone: whoever touches it gets a ReferenceError
    with capture(queue) as graph:
        cl.enqueue_copy(queue, buffer, np.zeros(N, np.float32), is_blocking=False)
    assert len(graph) == 1
    del proxy


def test_commands_on_a_queue_that_is_not_captured_are_told(numbers: Numbers) -> None:
    other = cl.CommandQueue(numbers.queue.context)
    context = cl.Context([numbers.queue.device])
    elsewhere, foreign = (
        cl.CommandQueue(context),
        cl.Buffer(context, cl.mem_flags.READ_WRITE, 256),
    )
    kernel = cl.Kernel(numbers.program, "add")
    zero, host = np.array(0, np.int32), np.zeros(64, np.int32)
    with pytest.warns(CaptureWarning) as caught, capture(numbers.queue) as graph:
        numbers.add(1)
        for _ in range(3):
            kernel(other, (64,), None, numbers.buffer, np.int32(10))
        cl.enqueue_copy(other, host, numbers.buffer)
        cl.enqueue_fill_buffer(elsewhere, foreign, zero, 0, 256)  # another context is no mistake
    other.finish()
    elsewhere.finish()
    assert len(graph) == 1 and numbers.value() == 30 and host[0] == 30
    names = [str(one.message).split()[0] for one in caught]
    assert names == ["clEnqueueNDRangeKernel", "clEnqueueReadBuffer"]
    first, second = (one.lineno for one in caught)
    assert {one.filename for one in caught} == {__file__} and second == first + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        cl.enqueue_copy(other, host, numbers.buffer)  # the block has ended
        with capture(numbers.queue, other):
            kernel(other, (64,), None, numbers.buffer, np.int32(10))


def test_memory_that_a_block_fills_when_it_makes_it_is_told(numbers: Numbers) -> None:
    context, flags = numbers.queue.context, cl.mem_flags
    ones, pixels = np.ones(64, np.int32), np.zeros((4, 4, 4), np.uint8)
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8)
    readable = flags.READ_WRITE | flags.COPY_HOST_PTR
    earlier = cl.Buffer(context, readable, hostbuf=ones)
    target = cl.Buffer(context, flags.READ_WRITE, 256)
    with pytest.warns(CaptureWarning) as caught, capture(numbers.queue) as graph:
        first = sys._getframe().f_lineno
        copied = cl.Buffer(context, readable, hostbuf=ones)
        used = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=ones)
        whole = cl.Buffer(context, readable, hostbuf=np.ones(2048, np.int32))
        image = cl.create_image(context, readable, form, hostbuf=pixels, shape=(4, 4))
        unused = cl.Buffer(context, readable, hostbuf=ones)  # replays do nothing with it
        empty = cl.Buffer(context, flags.READ_WRITE, 256)
        constant = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=ones)
        kernel = cl.Kernel(numbers.program, "add")
        for buffer in (copied, whole[4096:4352], earlier, empty):
            kernel(numbers.queue, (64,), None, buffer, np.int32(1))
        cl.enqueue_copy(numbers.queue, empty, constant)
        cl.enqueue_copy(numbers.queue, target, used)
        where = {"origin": (0, 0), "region": (4, 4), "is_blocking": False}
        cl.enqueue_copy(numbers.queue, pixels, image, **where)
    assert len(graph) == 7 and unused.size == 256
    assert [one.lineno - first for one in caught] == [1, 2, 3, 4]
    assert {one.filename for one in caught} == {__file__}
    assert all(
        "every replay goes on with what the one before" in str(one.message) for one in caught
    )
