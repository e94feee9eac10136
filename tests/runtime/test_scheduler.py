"""The order of commands and host tasks, what happens to errors, threads, and the end of the
process."""

from __future__ import annotations

import _thread
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy
import pyopencl as cl
import pytest
from helpers.support import CHILD_TIMEOUT, RunPython
from helpers.sycl import SOURCE, Gate, N, zeros

from fairlead.conformance.threads import in_threads
from fairlead.runtime import (
    USM,
    Buffer,
    Context,
    Device,
    Errc,
    Event,
    Handler,
    NDRange,
    Program,
    Queue,
    SYCLError,
    workers,
)
from fairlead.runtime.deferred_actions import DeferredActions
from fairlead.runtime.event import Unfinished
from fairlead.runtime.interop import event_of, to_pyopencl


def store(program: Program, memory: USM, value: int, *events: Event):
    return lambda handler: (
        handler.depends_on(*events),
        handler.parallel_for(N, program.store, memory, numpy.int32(value)),
    )


def test_long_chains_of_host_tasks_and_commands(
    queue: Queue, program: Program, memory: USM, gate: Gate
) -> None:
    event, ran = gate.event, []
    for number in range(400):
        event = queue.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[event])
        if number % 40 == 0:
            event = queue.host_task(
                lambda number=number: ran.append((number, int(memory.array[0]))), depends_on=[event]
            )
    assert event.status == "submitted" and not memory.array.any()
    gate.open()
    event.wait()
    assert (memory.array == 400).all()
    assert ran == [(number, number + 1) for number in range(0, 400, 40)]


def test_a_wait_ends_when_everything_has_ended() -> None:
    """Also if the first part has failed."""
    waited = list[bool]()

    class Other:
        def wait(self) -> None:
            waited.append(True)

    event, other = Event(), Event()
    event.error, event.others = ZeroDivisionError(), (other,)
    other.deferred = cast(Any, Other())
    with pytest.raises(ZeroDivisionError):
        event.wait()
    assert len(waited) == 1
    event.others = ()
    with pytest.raises(ZeroDivisionError):
        Event.wait_all([event, other])
    assert len(waited) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_queue_raises_an_error_of_a_host_task_once(
    queue: Queue, kind: type[BaseException]
) -> None:
    """A KeyboardInterrupt that a task raises is not Ctrl-C, after which a wait can be repeated."""

    def fail() -> None:
        raise kind

    queue.host_task(fail)
    with pytest.raises(kind):
        queue.wait()
    queue.wait()


def test_a_chain_behind_one_gate_is_no_recursion(in_order: Queue, program: Program) -> None:
    opened, memory = threading.Event(), zeros(in_order)
    in_order.host_task(opened.wait)
    events = [in_order.parallel_for(1, program.add, memory, numpy.int32(1)) for _ in range(1500)]
    opened.set()
    events[-1].wait()
    assert memory.array[0] == 1500


def test_an_in_order_queue_keeps_its_order_through_host_tasks(
    in_order: Queue, program: Program
) -> None:
    memory, opened, seen = zeros(in_order), threading.Event(), []
    in_order.parallel_for(N, program.store, memory, numpy.int32(1))
    in_order.host_task(lambda: (opened.wait(), seen.append(int(memory.array[5]))))
    in_order.parallel_for(N, program.store, memory, numpy.int32(2))
    in_order.host_task(lambda: seen.append(int(memory.array[5])))
    last = in_order.parallel_for(N, program.add, memory, numpy.int32(3))
    assert last.status != "complete"
    opened.set()
    in_order.wait()
    assert seen == [1, 2] and (memory.array == 5).all()


def test_a_barrier_is_after_everything_and_before_everything(
    queue: Queue, program: Program, memory: USM, gate: Gate, device_gate: Gate
) -> None:
    queue.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[device_gate.event])
    barrier = queue.barrier()
    after = queue.parallel_for(N, program.mul, memory, numpy.int32(10))
    task = queue.host_task(lambda: memory.array.__setitem__(0, -1))
    device_gate.open()
    assert (
        barrier.status == "submitted" and after.status == "submitted" and task.status == "submitted"
    )
    gate.open()
    queue.wait()
    assert memory.array[0] in (-1, -10) and (memory.array[1:] == 10).all()


def test_a_second_barrier_waits_for_what_is_between_them(queue: Queue, gate: Gate) -> None:
    queue.barrier()
    opened = threading.Event()
    queue.host_task(opened.wait)
    gate.open()
    second = queue.barrier()
    assert not second.done
    opened.set()
    second.wait()


def test_a_barrier_of_events_waits_for_these(queue: Queue, gate: Gate) -> None:
    ready = queue.barrier([queue.memset(zeros(queue), 1)])
    ready.wait()
    blocked = queue.barrier([gate.event])
    assert blocked.status == "submitted"
    gate.open()
    blocked.wait()


def test_an_error_of_a_host_task_reaches_everyone_who_waits(
    queue: Queue, program: Program, memory: USM
) -> None:
    task = queue.host_task(lambda: 1 / 0)
    after = queue.submit(store(program, memory, 5, task))
    much_later = queue.host_task(lambda: memory.array.fill(6), depends_on=[after])
    for event in (task, after, much_later):
        with pytest.raises(ZeroDivisionError):
            event.wait()
        with pytest.raises(ZeroDivisionError):
            _ = event.status
        assert event.done
    with pytest.raises(ZeroDivisionError):
        queue.wait()
    queue.wait()  # it was told
    assert not memory.array.any()


def test_the_first_error_of_many_tasks_is_what_a_queue_tells(queue: Queue) -> None:
    def fail(number: int) -> None:
        raise ValueError(number)

    events = [queue.host_task(lambda number=number: fail(number)) for number in range(300)]
    with pytest.raises(ValueError, match="299"):
        events[-1].wait()
    with pytest.raises(ValueError):
        queue.wait()


def test_an_in_order_queue_goes_on_after_its_error_was_told(
    in_order: Queue, program: Program
) -> None:
    memory = zeros(in_order)
    in_order.host_task(lambda: {}["nothing"])
    in_order.submit(store(program, memory, 1))
    with pytest.raises(KeyError):
        in_order.wait()
    in_order.submit(store(program, memory, 2))
    in_order.wait()
    assert (memory.array == 2).all()


def test_a_task_that_ends_its_thread_leaves_nobody_hanging(queue: Queue) -> None:
    task = queue.host_task(lambda: (_ for _ in ()).throw(SystemExit(3)))
    after = queue.host_task(lambda: None, depends_on=[task])
    never = queue.host_task(lambda: None)
    with pytest.raises(SystemExit) as caught:
        after.wait()
    assert caught.value.code == 3  # as with concurrent.futures: what a task raises, wait raises
    with pytest.raises(SystemExit):
        queue.wait()
    assert never.done  # everything was waited for
    queue.wait()


def test_a_command_that_is_refused_later_tells_it_in_wait(
    queue: Queue, program: Program, memory: USM, gate: Gate
) -> None:
    size = 1 << 22  # work-items in one work-group
    assert size > queue.device.info("MAX_WORK_GROUP_SIZE")
    with pytest.raises(SYCLError) as at_once:
        queue.parallel_for(NDRange(size, size), program.add, memory, numpy.int32(1))
    later = queue.parallel_for(
        NDRange(size, size), program.add, memory, numpy.int32(1), depends_on=[gate.event]
    )
    gate.open()
    with pytest.raises(SYCLError) as caught:
        later.wait()
    assert at_once.value.errc is caught.value.errc is Errc.nd_range
    with pytest.raises(SYCLError, match="kernel, name: add"):
        queue.wait()


def test_queues_of_one_context_and_of_others_depend_on_each_other(
    queue: Queue, program: Program, memory: USM
) -> None:
    other = Queue(queue.context, queue.device)
    third = Queue(Context(queue.device))
    theirs = zeros(third)
    build = Program(third.context, SOURCE)
    event = queue.submit(store(program, memory, 4))
    event = other.parallel_for(N, program.mul, memory, numpy.int32(3), depends_on=[event])
    event = third.parallel_for(N, build.store, theirs, numpy.int32(1), depends_on=[event])
    event = queue.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[event])
    event.wait()
    assert (memory.array == 13).all() and (theirs.array == 1).all()
    third.wait()


def test_drivers_depend_on_each_other(
    queue: Queue, program: Program, memory: USM, device_gate: Gate, other_device: Device
) -> None:
    foreign = Queue(other_device)
    theirs, build = zeros(foreign), Program(foreign.context, SOURCE)
    first = queue.parallel_for(
        N, program.add, memory, numpy.int32(1), depends_on=[device_gate.event]
    )
    second = foreign.parallel_for(N, build.add, theirs, numpy.int32(2), depends_on=[first])
    third = queue.parallel_for(N, program.add, memory, numpy.int32(3), depends_on=[second])
    assert (first.done, second.done, third.done) == (False, False, False)
    device_gate.open()
    third.wait()
    foreign.wait()
    assert (memory.array == 4).all() and (theirs.array == 2).all()


def test_many_threads_submit(queue: Queue, in_order: Queue, program: Program) -> None:
    memories = [zeros(queue) for _ in range(8)]
    ran = []

    def work(number: int) -> None:
        memory, event = memories[number], Event()
        for step in range(20):
            at = (queue, in_order)[step % 2]
            event = at.parallel_for(N, program.add, memory, numpy.int32(1), depends_on=[event])
            if step % 5 == 0:
                event = at.host_task(
                    lambda step=step: ran.append((number, step)), depends_on=[event]
                )
        event.wait()

    in_threads(8, work)
    assert all((memory.array == 20).all() for memory in memories)
    assert sorted(ran) == [(number, step) for number in range(8) for step in (0, 5, 10, 15)]


def test_more_host_tasks_at_once_than_there_are_threads(queue: Queue, gate: Gate) -> None:
    ran = []
    tasks = [
        queue.host_task(lambda number=number: ran.append(number), depends_on=[gate.event])
        for number in range(500)
    ]
    assert not ran
    gate.open()
    Event.wait_all(tasks)
    assert sorted(ran) == list(range(500))


def test_host_tasks_that_wait_for_each_other_all_run(queue: Queue) -> None:
    """However many there are: those that take their turns come to it though none before them
    ends."""
    count = 150
    together = threading.Barrier(count)
    Event.wait_all([queue.host_task(together.wait) for _ in range(count)])


def test_a_thread_does_not_wait_for_its_own_host_accessor(
    queue: Queue, program: Program, memory: USM
) -> None:
    data = numpy.zeros(N, numpy.int32)
    buffer = Buffer(data)
    with buffer.host_access() as array:
        used = queue.submit(
            lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1))
        )
        after = queue.memset(
            memory, 1, depends_on=[queue.host_task(lambda: None, depends_on=[used])]
        )
        waits = {
            "wait": (used.wait, after.wait, lambda: Event.wait_all([after])),
            "Queue.wait": (queue.wait,),
            "Buffer.close": (buffer.close,),
            "host_access": (buffer.numpy, lambda: buffer.host_access().__enter__()),
        }
        for routine, calls in waits.items():
            for wait in calls:
                with pytest.raises(SYCLError, match="this thread would wait for itself") as caught:
                    wait()
                assert (caught.value.routine, caught.value.errc) == (routine, Errc.invalid)
                assert "host_access" in caught.value.remedy
        other = threading.Thread(target=used.wait)  # who holds nothing may wait
        other.start()
        assert not used.done
        array[:] = 5
    queue.wait()
    other.join()
    buffer.close()
    assert (data == 6).all() and (memory.array == 0x01010101).all()


def test_a_host_task_does_not_wait_for_itself(queue: Queue) -> None:
    with pytest.raises(SYCLError, match="the host task that it runs"):
        queue.host_task(queue.wait).wait()
    with pytest.raises(SYCLError, match="the host task that it runs"):
        queue.wait()
    other = Queue(queue.context, queue.device)
    queue.host_task(lambda: other.host_task(lambda: None).wait() or other.wait()).wait()


def test_an_interrupted_wait_can_be_made_again(
    queue: Queue, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    queue.host_task(lambda: ran.append(1), depends_on=[gate.event])

    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.wait()
    assert not ran
    gate.open()
    queue.wait()
    assert ran == [1]


def test_threads_are_few_when_little_runs_at_once(queue: Queue) -> None:
    before = sum(thread.name.startswith("fairlead-") for thread in threading.enumerate())
    for _ in range(50):
        queue.host_task(lambda: None).wait()
    assert sum(thread.name.startswith("fairlead-") for thread in threading.enumerate()) <= max(
        before, 64
    )


def test_callbacks_need_no_thread_while_they_wait(queue: Queue, gate: Gate) -> None:
    called: list[Event] = []
    all_called = threading.Event()
    task = queue.host_task(lambda: None, depends_on=[gate.event])
    for _ in range(200):
        task.add_callback(
            lambda event: (called.append(event), len(called) == 200 and all_called.set())
        )
    assert not called
    gate.open()
    assert all_called.wait(60) and set(called) == {task}


def test_a_submission_within_a_host_task(queue: Queue, program: Program, memory: USM) -> None:
    queue.host_task(lambda: queue.submit(store(program, memory, 3)).wait()).wait()
    assert (memory.array == 3).all()


def test_the_handler_takes_one_command(queue: Queue, program: Program, memory: USM) -> None:
    def two(handler: Handler) -> None:
        handler.memset(memory, 0)
        handler.memset(memory, 1)

    with pytest.raises(Exception, match="names a second operation, memset after memset"):
        queue.submit(two)
    with pytest.raises(RuntimeError, match="mine"):
        queue.submit(lambda handler: (_ for _ in ()).throw(RuntimeError("mine")))
    queue.submit(lambda handler: None).wait()


EXIT = """
import threading, numpy, sys
from fairlead.runtime import *

device = next(one for one in devices() if one.platform.version == sys.argv[2])
queue = Queue(device)
never = threading.Event()
what = sys.argv[1]
memory = malloc_device(1 << 20, "uint8", queue)
if what == "running":
    begun = threading.Event()
    queue.host_task(lambda: (begun.set(), never.wait()))
    begun.wait()
elif what == "waiting":
    gate = queue.host_task(never.wait)
    queue.memset(memory, 1, depends_on=[gate])
    queue.host_task(print, depends_on=[gate])
elif what == "busy":
    for _ in range(20):
        queue.memcpy(numpy.zeros(1 << 20, numpy.uint8), memory)
    queue.host_task(lambda: None, depends_on=[queue.memset(memory, 2)])
elif what == "buffer":
    buffer = Buffer(numpy.zeros(100))
    queue.submit(lambda handler: handler.fill(handler.access(buffer), 1.0))
    buffer.host_access().__enter__()
    queue.submit(lambda handler: handler.fill(handler.access(buffer), 2.0))
elif what == "failed":
    queue.host_task(lambda: 1 / 0)
elif what == "chain":
    event = Event()
    for _ in range(300):
        event = queue.host_task(
            lambda: None, depends_on=[queue.memset(memory, 3, depends_on=[event])]
        )
print("end", flush=True)
"""


@pytest.mark.parametrize("what", ["running", "waiting", "busy", "buffer", "failed", "chain"])
def test_the_process_ends_whatever_is_pending(
    device: Device, what: str, run_python: RunPython
) -> None:
    done = run_python(EXIT, what, device.platform.version)
    assert (done.out, done.err) == ("end\n", "")


#: Ends like a process of Python 3.12, which starts no thread once it has begun to end.
NO_THREADS = """
import atexit, sys, threading
from fairlead.runtime import *

device = next(one for one in devices() if one.platform.version == sys.argv[2])

def refuse(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

def use():
    queue = Queue(Context(device), device)
    memory = malloc_device(1 << 20, "uint8", queue)
    queue.memset(memory, 1)
    return queue, memory

def begin_to_end():
    threading.Thread.start = refuse
    if sys.argv[1] == "again":
        begin_to_end.used = use()

finish, is_idle, asked = Context.finish, Context.is_idle, []

def noted_finish(context):
    finish(context)
    print("waited", flush=True)

def noted_idle(context):
    asked.append(context)
    if len(asked) == 3:
        print("asked", is_idle(context) in (True, False), flush=True)
    return len(asked) >= 3

Context.finish, Context.is_idle = noted_finish, noted_idle
if sys.argv[1] == "never":
    threading.Thread.start = refuse
used = use()
atexit.register(begin_to_end)
"""


@pytest.mark.parametrize(
    ("when", "says"),
    [("early", "waited\n"), ("again", "waited\nwaited\n"), ("never", "asked True\n")],
)
def test_the_end_waits_for_commands_where_no_thread_can_be_started_any_more(
    device: Device, when: str, says: str, run_python: RunPython
) -> None:
    done = run_python(NO_THREADS, when, device.platform.version)
    assert (done.out, done.err) == (says, "")


BOUNDED = """
import atexit, sys, threading
from fairlead.runtime import *
from fairlead.runtime import context

device = next(one for one in devices() if one.platform.version == sys.argv[2])
context._LONGEST_END = 0.0
never = threading.Event()
Context.finish = lambda self: never.wait()
Context.is_idle = lambda self: False
if sys.argv[1] == "never":
    def refuse(*_):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse
made = Context(device)
print("end", flush=True)
"""


@pytest.mark.parametrize("when", ["early", "never"])
def test_the_end_gives_up_what_never_ends(device: Device, when: str, run_python: RunPython) -> None:
    done = run_python(BOUNDED, when, device.platform.version)
    assert (done.out, done.err) == ("end\n", "")


def test_actions_go_on_after_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    actions, done = DeferredActions(), threading.Event()
    called: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        actions.add(lambda: called.append(1))
    actions.add(lambda: called.append(2))
    actions.add(done.set)
    assert done.wait(CHILD_TIMEOUT) and called == [1, 2]


CLOSING_IN_A_CHILD = """
import os, threading
from fairlead.runtime import coherent_memory
coherent_memory._closing.add(lambda: None)  # whose thread no child has
if os.fork() == 0:
    done = threading.Event()
    coherent_memory._closing.add(done.set)
    print(done.wait(20), flush=True)
    os._exit(0)
os.wait()
"""


def test_buffers_are_closed_in_a_forked_child_too(run_python: RunPython) -> None:
    assert run_python(CLOSING_IN_A_CHILD).out == "True\n"


def test_a_finalizer_may_drop_events_while_others_are_dropped() -> None:
    class Finalizer:
        def __init__(self, drop: Callable[[], None]) -> None:
            self.drop = drop

        def __del__(self) -> None:
            self.drop()

    for drop in (Unfinished.drop_done, Unfinished.drop_first_done):
        events = Unfinished()
        for event in (Event(), Event(), Event()):
            event.held = Finalizer(events.drop_first_done)
            events.add(event)
        drop(events)
        assert not list(events)


def test_an_event_is_asked_and_dropped_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that runs in between must not make it another one."""
    first, second = Event(), Event()
    events = Unfinished()
    events.add(first)
    events.add(second)
    second.held = "memory in use"

    def ask(self: Event) -> bool:
        if self is first and not asked:
            asked.append(self)
            events.drop_first_done()
        return self is first

    asked: list[Event] = []
    monkeypatch.setattr(Event, "done", property(ask))
    events.drop_first_done()
    assert list(events) == [second] and second.held


def test_what_an_event_holds_lives_until_its_last_part_is_complete(gate: Gate) -> None:
    event, waiting = Event(), threading.Event()
    event.held = Event()
    gone = weakref.ref(event.held)

    class Observed(Event):
        __slots__ = ()

        def _wait_alone(self) -> None:
            waiting.set()
            super()._wait_alone()

    last = Observed()
    last.others = (gate.event,)
    event.others = (last,)
    thread = threading.Thread(target=event.wait)
    thread.start()
    assert waiting.wait(CHILD_TIMEOUT) and gone() is not None
    gate.open()
    thread.join()
    assert gone() is None


def test_a_host_task_without_a_thread_fails(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    queue, called = Queue(device), list[int]()
    monkeypatch.setattr(workers, "_workers", type(workers._workers)())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        failed = queue.submit(lambda h: h.host_task(lambda: called.append(1)))
        after = queue.submit(lambda h: (h.depends_on(failed), h.host_task(lambda: None)))
        for event in (failed, after):
            with pytest.raises(
                SYCLError, match=r"(?s)no thread can be started.*ulimit -u"
            ) as caught:
                event.wait()
            assert caught.value.errc is Errc.runtime
    queue.submit(lambda h: h.host_task(lambda: called.append(2))).wait()
    assert called == [2]


def test_a_context_that_goes_does_not_wait(device: Device) -> None:
    """A thread of its own waits for what runs in it, and then releases the queues."""
    contexts = [Context(device)]
    user = cl.UserEvent(to_pyopencl(contexts[0]))
    released, ur = threading.Event(), contexts[0].adapter.ur
    queue = Queue(contexts[0])
    handle, release = queue.handle, ur.urQueueRelease
    queue.barrier([event_of(user, contexts[0])])
    del queue
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ur, "urQueueRelease", lambda one: (release(one), one == handle and released.set())
        )
        collector = threading.Thread(target=contexts.clear, daemon=True)
        collector.start()
        collector.join(CHILD_TIMEOUT)
        assert not collector.is_alive() and not released.is_set()
        user.set_status(cl.command_execution_status.COMPLETE)
        assert released.wait(CHILD_TIMEOUT)
