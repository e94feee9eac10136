"""USM: kinds, views, lifetime, and the commands that use it; NumPy arrays as host memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from helpers.support import RunPython
from helpers.sycl import Gate, N, zeros

from fairlead.graph import CommandGraph
from fairlead.runtime import (
    USM,
    Errc,
    Event,
    Handler,
    Program,
    Queue,
    SYCLError,
    malloc_device,
    malloc_host,
    malloc_shared,
)

KINDS = {"device": malloc_device, "host": malloc_host, "shared": malloc_shared}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_filled_and_copied(queue: Queue, program: Program, kind: str) -> None:
    memory = KINDS[kind](N, numpy.int32, queue)
    assert (memory.kind, memory.size, memory.nbytes, memory.context) == (
        kind,
        N,
        4 * N,
        queue.context,
    )
    assert memory.device is (None if kind == "host" else queue.device)
    event = queue.fill(memory, numpy.int32(5))
    event = queue.parallel_for(N, program.mul, memory, numpy.int32(3), depends_on=[event])
    got = numpy.zeros(N, numpy.int32)
    queue.memcpy(got, memory, depends_on=[event]).wait()
    assert (got == 15).all()


def test_views_show_the_memory_and_keep_it(queue: Queue) -> None:
    memory = malloc_shared(N, "float64", queue)
    view = memory.array
    view[:] = 2.5
    gone = weakref.ref(memory)
    address = memory.pointer
    del memory
    gc.collect()
    assert gone() is not None and view.ctypes.data == address and view.sum() == 2.5 * N
    del view
    gc.collect()
    assert gone() is None
    with pytest.raises(SYCLError, match="host cannot reach device memory"):
        _ = malloc_device(4, "int32", queue).array


def test_parts_of_an_allocation(queue: Queue, program: Program, memory: USM) -> None:
    part = memory + 10
    assert (part.pointer, part.size) == (memory.pointer + 40, N - 10)
    queue.parallel_for(5, program.add, part, numpy.int32(1)).wait()
    assert memory.array.nonzero()[0].tolist() == [10, 11, 12, 13, 14]
    for outside in (-1, N):
        with pytest.raises(SYCLError, match="is not within"):
            _ = memory + outside


def test_memory_of_other_packages_from_an_element_on(
    queue: Queue, program: Program, memory: USM
) -> None:
    """dpctl tells the address of the allocation, and how many elements after it an array begins."""

    class Part:
        __sycl_usm_array_interface__ = memory.__sycl_usm_array_interface__ | {
            "shape": (2, 2),
            "strides": (2, 1),
            "offset": 3,
        }

    queue.parallel_for(4, program.add, Part(), numpy.int32(2)).wait()
    assert memory.array.nonzero()[0].tolist() == [3, 4, 5, 6]
    queue.memset(Part(), 0).wait()
    assert not memory.array.any()


def test_a_copy_refuses_memory_of_other_packages_with_gaps(queue: Queue, memory: USM) -> None:
    class Theirs:
        def __init__(self, name: str, **facts: object) -> None:
            setattr(self, name, memory.__sycl_usm_array_interface__ | {"shape": (4,)} | facts)

    sycl, cuda = "__sycl_usm_array_interface__", "__cuda_array_interface__"
    for theirs in (
        Theirs(sycl, strides=(2,)),
        Theirs(cuda, strides=(8,)),
        Theirs(cuda, data=(memory.pointer, True)),
    ):
        with pytest.raises(SYCLError, match="not contiguous, or cannot be written to") as caught:
            queue.memset(theirs, 1)
        assert caught.value.errc is Errc.invalid and "its own package" in caught.value.remedy
    for theirs in (Theirs(sycl, strides=(1,)), Theirs(cuda, strides=(4,))):
        queue.memset(theirs, 1).wait()
    assert memory.array.nonzero()[0].tolist() == [0, 1, 2, 3]


def test_an_object_of_another_package_without_memory_of_a_device_is_refused(
    queue: Queue, program: Program, memory: USM
) -> None:
    """Such as a tensor of torch on the CPU, whose class has the interface."""

    class Tensor:
        def __init__(self, on_device: bool) -> None:
            self.on_device = on_device

        @property
        def __cuda_array_interface__(self) -> object:
            if self.on_device:
                return memory.__sycl_usm_array_interface__
            raise AttributeError

    queue.parallel_for(N, program.add, Tensor(True), numpy.int32(2)).wait()
    assert (memory.array == 2).all()
    with pytest.raises(SYCLError, match="argument 0, of type Tensor, can be no kernel's") as caught:
        queue.parallel_for(N, program.add, Tensor(False), numpy.int32(2))
    assert caught.value.errc is Errc.kernel_argument


class Theirs:
    """Memory of another package."""

    def __init__(self, owner: Any, pointer: int) -> None:
        self.owner = owner
        self.__sycl_usm_array_interface__ = {
            "data": (pointer, False),
            "shape": (N,),
            "typestr": "<i4",
        }


def add_one(theirs: Theirs, queue: Queue, program: Program, gate: Gate, in_graph: bool) -> Event:
    def add(handler: Handler) -> None:
        handler.parallel_for(N, program.add, theirs, numpy.int32(1))

    if not in_graph:
        return queue.submit(lambda handler: (handler.depends_on(gate.event), add(handler)))
    graph = CommandGraph(queue)
    graph.add(add)
    return queue.graph(graph.finalize(), depends_on=[gate.event])


def check_life(owner: Any, address: int, submit: Callable[[Theirs], Event], gate: Gate) -> None:
    """Check that memory of another package lives until a command that waits has used it."""
    theirs = Theirs(owner, address)
    gone, event = weakref.ref(theirs), submit(theirs)
    del theirs
    gc.collect()
    assert gone() is not None
    gate.open()
    event.wait()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("in_graph", [False, True], ids=["kernel", "graph"])
def test_memory_of_other_packages_lives_until_a_kernel_has_run(
    queue: Queue, program: Program, memory: USM, device_gate: Gate, in_graph: bool
) -> None:
    def submit(theirs: Theirs) -> Event:
        return add_one(theirs, queue, program, device_gate, in_graph)

    check_life(memory, memory.pointer, submit, device_gate)


def test_memory_of_other_packages_lives_until_it_is_copied(queue: Queue, device_gate: Gate) -> None:
    """They free it at once, while the driver knows its address alone."""
    memory, array = malloc_device(N, "int32", queue), numpy.full(N, 6, numpy.int32)

    def submit(theirs: Theirs) -> Event:
        return queue.memcpy(memory, theirs, depends_on=[device_gate.event])

    check_life(array, array.ctypes.data, submit, device_gate)


def test_sizes_that_are_nothing(queue: Queue, memory: USM) -> None:
    for count in (0, -3):
        with pytest.raises(SYCLError, match="at least one element") as caught:
            malloc_device(count, "int32", queue)
        assert caught.value.errc is Errc.invalid
    queue.memcpy(memory, numpy.empty(0, numpy.int32)).wait()
    queue.memset(memory, 1, 0).wait()
    queue.fill(memory, numpy.int32(3), 0).wait()
    assert not memory.array.any()


def test_more_memory_than_there_is(queue: Queue) -> None:
    with pytest.raises(SYCLError) as caught:
        malloc_device(1 << 60, "uint8", queue)
    assert (
        caught.value.errc in (Errc.memory_allocation, Errc.runtime)
        and caught.value.routine == "urUSMDeviceAlloc"
    )


def test_memory_that_is_dropped_while_a_kernel_uses_it(queue: Queue, program: Program) -> None:
    for _ in range(20):
        memory = malloc_device(1 << 16, "int32", queue)
        queue.parallel_for(1 << 16, program.slow, memory, numpy.int32(200))
        del memory
    lost = Queue(queue.context, queue.device)  # gone before its kernel has ended
    memory = malloc_device(1 << 16, "int32", queue)
    lost.parallel_for(1 << 16, program.slow, memory, numpy.int32(500))
    del lost
    del memory
    gc.collect()


def test_memory_that_is_dropped_before_its_command_began(
    queue: Queue, program: Program, gate: Gate
) -> None:
    memory, result = zeros(queue), zeros(queue)
    gone = weakref.ref(memory)
    first = queue.parallel_for(N, program.add, memory, numpy.int32(4), depends_on=[gate.event])
    last = queue.memcpy(result, memory, depends_on=[first])
    del memory
    gc.collect()
    assert gone() is not None
    gate.open()
    last.wait()
    assert (result.array == 4).all()


def test_arrays_that_nobody_names_live_until_they_are_copied(
    queue: Queue, device_gate: Gate
) -> None:
    memories = [malloc_device(1 << 18, "int32", queue) for _ in range(8)]
    for number, memory in enumerate(memories):
        queue.memcpy(
            memory, numpy.full(1 << 18, number, numpy.int32), depends_on=[device_gate.event]
        )
    noise = [
        numpy.full(1 << 18, -1, numpy.int32) for _ in range(8)
    ]  # would take the places of what was freed
    device_gate.open()
    queue.wait()
    for number, memory in enumerate(memories):
        queue.memcpy(noise[number], memory).wait()
        assert (noise[number] == number).all()


def test_memory_that_is_dropped_is_freed_after_what_waits_for_this_thread(
    queue: Queue, program: Program, memory: USM, device_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, ur = threading.Event(), queue.adapter.ur
    other = malloc_device(N, numpy.int32, queue)
    address, free = other.pointer, ur.urUSMFree
    monkeypatch.setattr(
        ur, "urUSMFree", lambda *what: (free(*what), what[1] == address and freed.set())
    )
    event = queue.parallel_for(
        N, program.add, memory, numpy.int32(1), depends_on=[device_gate.event]
    )
    del other  # garbage is collected at any time: it must not wait for the gate
    assert not freed.is_set()
    device_gate.open()
    event.wait()
    assert freed.wait(60)


def test_memory_that_is_dropped_while_another_thread_waits_is_freed_there(
    queue: Queue, device_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, ur = queue.context, queue.adapter.ur
    memory = malloc_device(N, "int32", queue)
    first, second = (malloc_device(N, "int32", queue) for _ in range(2))
    waits, freed, here = threading.Event(), threading.Event(), threading.get_ident()
    freeing: set[int] = set()
    finish, free = ur.urQueueFinish, ur.urUSMFree
    addresses = [first.pointer, second.pointer]

    def note_free(context: int, address: int) -> None:
        freeing.add(threading.get_ident())
        if threading.get_ident() != here:  # where it would wait for the gate for ever
            free(context, address)
            if address == addresses[-1]:
                freed.set()

    monkeypatch.setattr(ur, "urUSMFree", note_free)
    dropped = Queue(context, queue.device)
    handle = dropped.handle
    monkeypatch.setattr(ur, "urQueueFinish", lambda of: (of == handle and waits.set(), finish(of)))
    event = dropped.memcpy(memory, numpy.full(N, 7, "int32"), depends_on=[device_gate.event])
    del dropped, first  # another thread waits for the queue, then it frees the memory
    assert waits.wait(60)
    del second
    assert not freeing
    device_gate.open()
    event.wait()
    assert freed.wait(60) and here not in freeing


def test_a_queue_that_nobody_names_has_its_arrays(queue: Queue, device_gate: Gate) -> None:
    memory, array = malloc_device(N, "int32", queue), numpy.full(N, 7, numpy.int32)
    gone = weakref.ref(array)
    event = Queue(queue.context, queue.device).memcpy(memory, array, depends_on=[device_gate.event])
    del array
    gc.collect()
    assert gone() is not None
    device_gate.open()
    event.wait()
    gc.collect()
    assert gone() is None


def test_copied_arrays_are_let_go(queue: Queue) -> None:
    memory, alive = malloc_device(N, "int32", queue), []
    for _ in range(200):
        array = numpy.zeros(N, numpy.int32)
        alive.append(weakref.ref(array))
        queue.memcpy(memory, array).wait()
        del array
    assert not any(ref() is not None for ref in alive)


def test_copies_between_everything(queue: Queue) -> None:
    source, target = malloc_host(N, "int32", queue), zeros(queue)
    source.array[:] = numpy.arange(N)
    queue.memcpy(target.pointer, source.pointer, 40).wait()
    assert target.array[:12].tolist() == [*range(10), 0, 0]
    queue.copy(source, target, 20).wait()
    assert target.array[19] == 19 and target.array[20] == 0
    into = numpy.zeros((4, 4), numpy.int32)
    queue.copy(source, into).wait()
    assert into.tolist() == numpy.arange(16).reshape(4, 4).tolist()


def test_fills_repeat_their_pattern(queue: Queue, memory: USM) -> None:
    queue.fill(memory, 3).wait()  # an element of the memory's type
    assert (memory.array == 3).all()
    queue.fill(memory, b"\1\0\0\0\2\0\0\0", 2).wait()
    assert memory.array[:6].tolist() == [1, 2, 1, 2, 3, 3]
    queue.fill(memory + 4, b"\xff" * 8, 3).wait()
    assert memory.array[:12].tolist() == [1, 2, 1, 2, -1, -1, -1, -1, -1, -1, 3, 3]
    queue.memset(memory, 0xAB).wait()
    assert (memory.array.view("uint8") == 0xAB).all()
    queue.fill(memory, numpy.int64(7), depends_on=queue.memset(memory, 0)).wait()
    assert (memory.array == 7).all()
    queue.fill(memory, b"\1\0\0\0\2\0\0\0").wait()
    assert (memory.array == [1, 2] * (N // 2)).all()
    with pytest.raises(SYCLError, match="is not an element of int32"):
        queue.fill(memory, numpy.float32(1.5))


def test_hints_are_taken(queue: Queue, memory: USM) -> None:
    event = queue.prefetch(memory)
    event = queue.mem_advise(memory, depends_on=[event])
    queue.prefetch(memory, 64, depends_on=[event]).wait()
    with pytest.raises(SYCLError, match="no advice 'SOON'") as caught:
        queue.mem_advise(memory, "SOON")
    assert "SET_READ_MOSTLY" in caught.value.remedy


def test_what_is_no_memory(queue: Queue, memory: USM) -> None:
    fixed = numpy.zeros(N, numpy.int32)
    fixed.flags.writeable = False
    for call, message in (
        (lambda: queue.memcpy(memory, "text"), "str is not memory"),
        (lambda: queue.memcpy(memory, True), "bool is not memory"),
        (lambda: queue.memcpy(memory, numpy.zeros((8, 8))[:, ::2]), "not contiguous"),
        (lambda: queue.memcpy(fixed, memory), "cannot be written to"),
        (lambda: queue.memcpy(memory, fixed, 4 * N + 1), "more than there are"),
        (lambda: queue.memcpy(memory.pointer, memory.pointer), "addresses alone do not say"),
        (lambda: queue.memset(memory, 0, -1), "-1 bytes"),
    ):
        with pytest.raises(SYCLError, match=message) as caught:
            call()
        assert caught.value.errc is Errc.invalid and caught.value.remedy


LACKING = """
from fairlead.runtime import Queue, SYCLError, devices, malloc_host, malloc_shared
for device in devices():
    for allocate in (malloc_host, malloc_shared):
        try:
            allocate(16, "int32", Queue(device))
        except SYCLError as error:
            print(error.errc.name, error.routine, "has no" in error.message, bool(error.remedy))
"""


def test_a_device_without_a_kind_says_so(run_python: RunPython) -> None:
    said = set(run_python(LACKING, env={"FAIRLEAD_USM": "buffer"}).out.splitlines())
    assert said == {f"feature_not_supported malloc_{kind} True True" for kind in ("host", "shared")}
