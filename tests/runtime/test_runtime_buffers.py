"""Buffers: where their contents are, who waits for whom, what becomes of them in the end."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from typing import Any

import numpy
import pytest
from helpers.support import CHILD_TIMEOUT
from helpers.sycl import SOURCE, Gate, N

from fairlead.conformance.threads import in_threads
from fairlead.runtime import (
    Accessor,
    Buffer,
    Context,
    Errc,
    Handler,
    Program,
    Queue,
    SYCLError,
    devices,
)
from fairlead.runtime import coherent_memory as buffers


def add(buffer: Buffer, program: Program, value: int, mode: str = "read_write"):
    return lambda h: h.parallel_for(N, program.add, h.access(buffer, mode), numpy.int32(value))


def test_contents_come_back_when_it_is_closed(queue: Queue, program: Program) -> None:
    data = numpy.arange(N, dtype=numpy.int32)
    with Buffer(data) as buffer:
        assert (buffer.shape, buffer.size, buffer.nbytes, len(buffer)) == ((N,), N, 4 * N, N)
        queue.submit(add(buffer, program, 5))
        assert (buffer.numpy() == numpy.arange(N) + 5).all()
        queue.submit(add(buffer, program, 1))
    assert (data == numpy.arange(N) + 6).all()
    buffer.close()


def test_nothing_comes_back_unless_it_is_wanted(queue: Queue, program: Program) -> None:
    data = numpy.zeros(N, numpy.int32)
    fixed = numpy.zeros(N, numpy.int32)
    fixed.flags.writeable = False
    later = Buffer(data)
    later.set_write_back(False)
    for buffer in (Buffer(data, write_back=False), Buffer(fixed, write_back=False), later):
        queue.submit(add(buffer, program, 5))
        assert (buffer.numpy() == 5).all()
        buffer.close()
    assert not data.any() and not fixed.any()


def test_a_result_is_not_lost_in_a_read_only_array(queue: Queue, program: Program) -> None:
    fixed, final = numpy.ones(N, numpy.int32), numpy.zeros(N, numpy.int32)
    fixed.flags.writeable = False
    with Buffer(fixed) as buffer:
        assert (buffer.numpy() == 1).all()
        for use in (lambda: queue.submit(add(buffer, program, 5)), lambda: write(buffer)):
            with pytest.raises(SYCLError, match="read-only") as caught:
                use()
            assert caught.value.errc is Errc.invalid and "write_back=False" in caught.value.remedy
        buffer.set_final_data(final)
        queue.submit(add(buffer, program, 5))
    assert (final == 6).all() and (fixed == 1).all()


def write(buffer: Buffer) -> None:
    with buffer.host_access("write"):
        pass


def test_contents_go_to_the_array_that_is_named_last(queue: Queue, program: Program) -> None:
    data, final = numpy.zeros(N, numpy.int32), numpy.zeros((N // 2, 4), numpy.float64)[:, ::2]
    buffer = Buffer(data)
    buffer.set_final_data(final)
    queue.submit(add(buffer, program, 2))
    buffer.close()
    assert not data.any() and (final == 2).all()
    nothing = Buffer(data)
    nothing.set_final_data(None)
    queue.submit(add(nothing, program, 2))
    nothing.close()
    assert not data.any()
    with pytest.raises(SYCLError, match="has 65 or cannot be written to"):
        Buffer(N, "int32").set_final_data(numpy.zeros(N + 1))
    with pytest.raises(SYCLError, match="no array that could be written to"):
        Buffer(N, "int32", write_back=True)


def test_arrays_that_are_not_contiguous(queue: Queue) -> None:
    data = numpy.arange(40, dtype=numpy.int16).reshape(5, 8)
    part = data[::2, 1::3]
    expected = part * 0 + 7
    with Buffer(part) as buffer:
        assert (buffer.numpy() == part).all()
        queue.submit(lambda h: h.fill(h.access(buffer), numpy.int16(7)))
    assert (part == expected).all() and data[1, 1] == 9


@pytest.mark.parametrize("wrong", [0, (), (1, 2, 3, 4), (4, 0), -1])
def test_shapes_that_no_buffer_has(wrong: object) -> None:
    with pytest.raises(SYCLError, match="one to three dimensions") as caught:
        Buffer(wrong, "int32")
    assert caught.value.errc is Errc.invalid


def test_a_list_is_contents_and_a_tuple_is_a_shape(queue: Queue, program: Program) -> None:
    with Buffer([1, 2, 3], numpy.int32) as listed, Buffer((1, 2, 3), numpy.int32) as shaped:
        assert (listed.shape, shaped.shape, listed.write_back) == ((3,), (1, 2, 3), False)
        queue.submit(lambda h: h.parallel_for(3, program.add, h.access(listed), numpy.int32(1)))
        assert listed.numpy().tolist() == [2, 3, 4]
    assert Buffer([[1, 2], [3, 4]], "float32").numpy().tolist() == [[1, 2], [3, 4]]
    assert Buffer(numpy.zeros(3, "int16"), "int16").dtype == "int16"
    with pytest.raises(SYCLError, match="a list needs a dtype"):
        Buffer([1, 2, 3])
    with pytest.raises(SYCLError, match="elements are int32, not float32") as caught:
        Buffer(numpy.zeros(3, numpy.int32), numpy.float32)
    assert "astype" in caught.value.remedy
    with pytest.raises(SYCLError, match="no array that could be written to"):
        Buffer([1, 2, 3], numpy.int32, write_back=True)


def test_what_no_buffer_is_made_of() -> None:
    with pytest.raises(SYCLError, match="needs a dtype"):
        Buffer(4)
    with pytest.raises(SYCLError, match="Python objects"):
        Buffer(numpy.array([None]))
    with pytest.raises(SYCLError, match="no access mode 'up'"):
        Accessor(Buffer(4, "int32"), "up")
    with pytest.raises(SYCLError, match="numpy's ndarray is not a Buffer"):
        Accessor(numpy.zeros(3))  # pyright: ignore[reportArgumentType]


def test_memory_is_made_when_it_is_needed(queue: Queue) -> None:
    buffer = Buffer(1 << 50, "uint8")  # more than there is
    assert "uint8" in repr(buffer)
    with pytest.raises((SYCLError, MemoryError)):
        queue.submit(lambda h: h.fill(h.access(buffer), 0))


@pytest.mark.parametrize(
    "modes",
    list(itertools.product(("read", "write", "read_write", "discard"), repeat=2)),
    ids="-".join,
)
def test_who_waits_for_whom(queue: Queue, gate: Gate, modes: tuple[str, str]) -> None:
    """Two readers do not wait for each other; everybody else waits for who came before."""
    buffer = Buffer(numpy.zeros(N, numpy.int32), write_back=False)
    order = []

    def use(mode: str, name: str, *events: object):
        def group(handler: Handler) -> None:
            handler.depends_on(*events)
            handler.access(buffer, mode)
            handler.host_task(lambda: order.append(name))

        return queue.submit(group)

    first = use(modes[0], "first", gate.event)
    second = use(modes[1], "second")
    if modes == ("read", "read"):
        second.wait()
    assert first.done is False
    assert second.done is (modes == ("read", "read"))
    gate.open()
    queue.wait()
    assert order == (["second", "first"] if modes == ("read", "read") else ["first", "second"])


def test_contexts_and_drivers_share_a_buffer(queue: Queue) -> None:
    others = [Queue(device) for device in devices()] + [Queue(Context(queue.device)), queue]
    builds = [Program(other.context, SOURCE) for other in others]
    data = numpy.zeros(N, numpy.int32)
    with Buffer(data) as buffer:
        for _ in range(3):
            for other, build in zip(others, builds, strict=True):
                other.submit(add(buffer, build, 1))
        totals = [Buffer(N, "int32") for _ in others]
        for other, build, total in zip(
            others, builds, totals, strict=True
        ):  # all read at the same time
            other.submit(
                lambda h, build=build, total=total: h.parallel_for(
                    N, build.copy, h.access(buffer, "read"), h.access(total, "discard")
                )
            )
        assert all((total.numpy() == 3 * len(others)).all() for total in totals)
        with buffer.host_access() as array:
            array += 1
        others[0].submit(add(buffer, builds[0], 1))
    assert (data == 3 * len(others) + 2).all()


def test_the_host_reads_beside_readers_and_holds_off_who_writes(
    queue: Queue, program: Program
) -> None:
    buffer, target = Buffer(numpy.zeros(N, numpy.int32)), Buffer(N, "int32")
    queue.submit(add(buffer, program, 1))
    with buffer.host_access("read") as array, buffer.host_access("read") as again:
        assert (array == 1).all() and (again == 1).all() and not array.flags.writeable

        def read(h: Handler) -> None:
            h.parallel_for(N, program.copy, h.access(buffer, "read"), h.access(target, "discard"))

        queue.submit(read).wait()
        written = queue.submit(add(buffer, program, 1))
        assert not written.done
    written.wait()
    assert (buffer.numpy() == 2).all() and (target.numpy() == 1).all()


def test_host_accessors_of_threads_take_turns(queue: Queue, program: Program) -> None:
    buffer = Buffer(numpy.zeros(N, numpy.int32))
    queue.submit(add(buffer, program, 1))

    def work(_: int) -> None:
        for _ in range(10):
            with buffer.host_access() as array:
                array += 1
            queue.submit(add(buffer, program, 1))
            with buffer.host_access("read") as array:
                assert (array == array[0]).all()

    in_threads(4, work)
    assert (buffer.numpy() == 81).all()


def test_host_tasks_have_accessors(queue: Queue, program: Program) -> None:
    buffer = Buffer(numpy.zeros((8, 8), numpy.int32))
    queue.submit(lambda h: h.fill(h.access(buffer), 3))
    kept = []

    def group(handler: Handler) -> None:
        whole = handler.access(buffer, "read_write")
        part = handler.access(buffer, "read", (2, 2), (1, 1))
        kept.append(part)

        def task() -> None:
            whole.array[1, 1] = 50
            assert part.array.tolist() == [[50, 3], [3, 3]] and not part.array.flags.writeable

        handler.host_task(task)

    queue.submit(group).wait()
    queue.submit(lambda h: h.parallel_for(64, program.add, h.access(buffer), numpy.int32(1)))
    assert buffer.numpy()[1, 1] == 51 and buffer.numpy()[0, 0] == 4
    with pytest.raises(SYCLError, match="only inside its host task"):
        _ = kept[0].array


def test_update_host_brings_it_to_the_array(queue: Queue, program: Program) -> None:
    data = numpy.zeros(N, numpy.int32)
    buffer = Buffer(data)
    queue.submit(add(buffer, program, 4))
    queue.submit(lambda h: h.update_host(h.access(buffer, "read"))).wait()
    assert (data == 4).all()


def test_a_closed_buffer_says_so(queue: Queue, program: Program) -> None:
    buffer = Buffer(numpy.zeros(N, numpy.int32))
    accessor = Accessor(buffer)
    buffer.close()
    for use in (
        lambda: queue.submit(add(buffer, program, 1)),
        lambda: queue.submit(lambda h: h.parallel_for(N, program.add, accessor, numpy.int32(1))),
        buffer.numpy,
        lambda: Accessor(buffer),
    ):
        with pytest.raises(SYCLError, match="the buffer is closed") as caught:
            use()
        assert caught.value.errc is Errc.invalid


def test_closing_waits_for_commands_that_have_not_begun(
    queue: Queue, program: Program, gate: Gate
) -> None:
    data = numpy.zeros(N, numpy.int32)
    buffer = Buffer(data)
    queue.submit(
        lambda h: (
            h.depends_on(gate.event),
            h.parallel_for(N, program.add, h.access(buffer), numpy.int32(9)),
        )
    )
    closing = threading.Thread(target=buffer.close)
    closing.start()
    assert closing.is_alive() and not data.any()
    gate.open()
    closing.join()
    assert (data == 9).all()


def test_a_buffer_that_nobody_names_is_written_back(
    queue: Queue, program: Program, gate: Gate
) -> None:
    data = numpy.zeros(N, numpy.int32)
    buffer = Buffer(data)
    event = queue.submit(add(buffer, program, 2))
    del buffer, event
    gc.collect()
    assert (data == 2).all()

    def later() -> None:
        buffer = Buffer(data)
        group = add(buffer, program, 9)
        queue.submit(lambda h: (h.depends_on(gate.event), group(h)))

    later()  # now its command alone has it
    assert (data == 2).all()
    gate.open()
    queue.wait()
    gc.collect()
    queue.host_task(lambda: None).wait()
    assert (data == 11).all()


def test_a_buffer_that_goes_in_a_submission_is_closed_by_another_thread(
    queue: Queue, gate: Gate
) -> None:
    """Garbage may be collected there.

    The host task that it waits for may want the lock that the submission has.
    """
    data, other = numpy.zeros(N, numpy.int32), Buffer((N,), "int32")
    buffer = Buffer(data)

    def fill() -> None:
        other.numpy()
        accessor.array[:] = 3

    accessor = Accessor(buffer, "write")
    with buffers.lock:
        queue.submit(lambda h: (h.depends_on(gate.event), h.require(accessor), h.host_task(fill)))
        gate.open()
        Buffer.__del__(buffer)  # by the collector, who finds a cycle
        assert not data.any()
    closed = threading.Event()
    buffers._closing.add(closed.set)
    assert closed.wait(CHILD_TIMEOUT)
    assert (data == 3).all()


def test_a_buffer_that_is_collected_is_closed_by_another_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector runs while its thread holds any lock, of which others may wait for some."""
    closed, by = threading.Event(), dict[str, int]()
    close = Buffer._close_quietly

    def note(self: Any) -> None:
        close(self)
        if name := getattr(self, "name", ""):  # others are of earlier tests
            by[name] = threading.get_ident()
            closed.set()

    monkeypatch.setattr(Buffer, "_close_quietly", note)
    buffer: Any = Buffer(numpy.zeros(N, numpy.int32))
    buffer.itself, buffer.name = buffer, "collected"
    del buffer
    gc.collect()
    assert closed.wait(CHILD_TIMEOUT) and by["collected"] != threading.get_ident()
    buffer = Buffer(numpy.zeros(N, numpy.int32))
    buffer.name = "deleted"
    del buffer
    assert by["deleted"] == threading.get_ident()


def test_a_task_that_ends_its_thread_does_not_end_the_closing_of_buffers(queue: Queue) -> None:
    buffer = Buffer(numpy.zeros(N, numpy.int32))
    failed = queue.submit(lambda h: (h.access(buffer), h.host_task(sys.exit)))
    with pytest.raises(SystemExit):
        failed.wait()
    closed = threading.Event()
    with buffers.lock:
        Buffer.__del__(buffer)
    buffers._closing.add(closed.set)
    assert closed.wait(CHILD_TIMEOUT)
    with pytest.raises(SystemExit):
        queue.wait()


def test_what_failed_is_told_and_not_written_back(queue: Queue) -> None:
    data = numpy.zeros(N, numpy.int32)
    buffer = Buffer(data)
    queue.submit(lambda h: (h.access(buffer), h.host_task(lambda: 1 / 0)))
    with pytest.raises(ZeroDivisionError):
        buffer.numpy()
    with pytest.raises(ZeroDivisionError):
        queue.wait()
    with buffer.host_access("discard") as array:  # who needs nothing of before goes on
        array[:] = 4
    assert (buffer.numpy() == 4).all()
    queue.submit(lambda h: (h.access(buffer), h.host_task(lambda: 1 / 0)))
    with pytest.raises(ZeroDivisionError):
        buffer.close()
    with pytest.raises(ZeroDivisionError):
        queue.wait()


def test_many_readers_are_forgotten(queue: Queue, program: Program) -> None:
    buffer, target = Buffer(numpy.ones(N, numpy.int32)), Buffer(N, "int32")
    for number in range(300):
        queue.submit(
            lambda h: h.parallel_for(
                N, program.copy, h.access(buffer, "read"), h.access(target, "discard")
            )
        )
        if number % 50 == 0:
            queue.wait()
    queue.submit(add(buffer, program, 1))
    assert (buffer.numpy() == 2).all() and (target.numpy() == 1).all()


#: The shape of a buffer, of a part of it, and where that begins.
PARTS = [
    ((6,), (3,), (2,)),
    ((5, 6), (2, 6), (1, 0)),
    ((5, 6), (3, 2), (1, 3)),
    ((4, 5, 6), (2, 3, 2), (1, 2, 3)),
    ((4, 5, 6), (1, 3, 6), (2, 1, 0)),
]


@pytest.mark.parametrize(("shape", "part", "offset"), PARTS)
def test_parts_are_copied_in_every_direction(
    queue: Queue, shape: tuple, part: tuple, offset: tuple
) -> None:
    count = int(numpy.prod(shape))
    data, other = (
        numpy.arange(count, dtype=numpy.int32).reshape(shape),
        numpy.full(shape, -1, numpy.int32),
    )
    inside = tuple(slice(start, start + size) for start, size in zip(offset, part, strict=True))
    begin = tuple(slice(0, size) for size in part)
    source, target = Buffer(data, write_back=False), Buffer(other, write_back=False)
    taken = numpy.zeros(part, numpy.int32)
    queue.submit(lambda h: h.copy(h.access(source, "read", part, offset), taken)).wait()
    assert (taken == data[inside]).all()
    queue.submit(lambda h: h.copy(taken * 2, h.access(target, "write", part, offset)))
    expected = other.copy()
    expected[inside] = data[inside] * 2
    assert (target.numpy() == expected).all()
    queue.submit(
        lambda h: h.copy(h.access(source, "read", part, offset), h.access(target, "write", part))
    )
    expected[begin] = data[inside]
    assert (target.numpy() == expected).all()


def test_parts_are_filled_where_they_are_contiguous(queue: Queue) -> None:
    buffer = Buffer(numpy.zeros((4, 6), numpy.int16))
    queue.submit(lambda h: h.fill(h.access(buffer, "write", (2, 6), (1, 0)), 9))
    queue.submit(lambda h: h.fill(h.access(buffer, "write", (1, 2), (3, 2)), 4))
    expected = numpy.zeros((4, 6), numpy.int16)
    expected[1:3] = 9
    expected[3, 2:4] = 4
    assert (buffer.numpy() == expected).all()
    with pytest.raises(SYCLError, match="cannot be filled"):
        queue.submit(lambda h: h.fill(h.access(buffer, "write", (2, 2)), 9))


def test_parts_that_are_none(queue: Queue) -> None:
    buffer, small = Buffer(numpy.zeros((4, 6), numpy.int16)), numpy.zeros(3, numpy.int16)
    for shape, offset in (
        ((5, 1), None),
        ((4, 6), (0, 1)),
        ((0, 1), None),
        ((1, 1), (-1, 0)),
        ((2,), None),
        (None, (1,)),
    ):
        with pytest.raises(SYCLError) as caught:
            Accessor(buffer, "read", shape, offset)
        assert caught.value.errc is Errc.invalid
    with pytest.raises(SYCLError, match="the memory has 6 bytes, the accessor 48"):
        queue.submit(lambda h: h.copy(h.access(buffer, "read"), small))
    with pytest.raises(SYCLError, match="differ in size"):
        queue.submit(
            lambda h: h.copy(
                h.access(buffer, "read", (2, 2)), h.access(Buffer(9, "int16"), "write")
            )
        )


def test_a_host_task_writes_to_the_copy_that_later_commands_see(
    queue: Queue, program: Program
) -> None:
    """Also where the buffer's first contents are an array that must not be written to."""
    for _ in range(20):
        buffer = Buffer(numpy.ones(N, numpy.int32), write_back=False)

        def ten_more(handler: Handler, buffer: Buffer = buffer) -> None:
            accessor = handler.access(buffer)

            def add() -> None:
                accessor.array[:] += 10

            handler.host_task(add)

        queue.submit(ten_more)
        queue.submit(
            lambda h, buffer=buffer: h.parallel_for(
                N, program.add, h.access(buffer), numpy.int32(1)
            )
        )
        assert (buffer.numpy() == 12).all()


def test_an_accessor_is_used_as_its_mode_says(queue: Queue) -> None:
    with Buffer(numpy.zeros(N, numpy.int32)) as buffer:
        host = numpy.zeros(N, numpy.int32)
        for use in (
            lambda h: h.fill(h.access(buffer, "read"), 1),
            lambda h: h.copy(host, h.access(buffer, "read")),
            lambda h: h.copy(h.access(buffer, "discard"), host),
        ):
            with pytest.raises(SYCLError, match="the accessor's mode is") as caught:
                queue.submit(use)
            assert caught.value.errc is Errc.invalid
        with pytest.raises(SYCLError, match="cannot be copied to elements of float64"):
            queue.submit(lambda h: h.copy(h.access(buffer, "read"), host.astype(numpy.float64)))
        with pytest.raises(SYCLError, match="is not an element of int32"):
            queue.submit(lambda h: h.fill(h.access(buffer), numpy.float64(1.5)))
