"""Memory that a program releases and gets again, on PoCL with the fake CUDA driver.

PoCL counts a command's use of a buffer as a reference, so a buffer in use is not kept there.
NVIDIA's driver does not count it: test_cuda_on_gpu.py has the same random programs.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda_program import COPIED, READ_WRITE, SIZE, Program
from helpers.pool_programs import run_random_program

from fairlead.captured_graphs.context import capture
from fairlead.conformance.threads import in_threads
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import call, find_function

_LARGE: Final = 3 << 20
#: So many releases are worth markers (icd/native/cuda_idle.c).
_ENOUGH: Final = 16
_OUT_OF_ORDER: Final = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
pytestmark = pytest.mark.slow


@pytest.fixture
def program(cuda_on_pocl: Any) -> Program:
    """A program in a new context, with room for what it releases."""
    lib.fl_limit_kept(1 << 30)
    return Program(cuda_on_pocl)


def _address(buffer: cl.MemoryObject) -> int:
    return lib.fl_cuda_address(ffi.cast("void *", buffer.int_ptr))


def _make(program: Program, size: int = _LARGE) -> cl.Buffer:
    return cl.Buffer(program.context, READ_WRITE, size)


def _make_and_release(program: Program, size: int = _LARGE) -> int:
    """Return CUDA's address of a buffer that is gone."""
    return _address(_make(program, size))


def _count() -> Any:
    return lib.fl_count_shared()


@pytest.mark.parametrize("size", [4, 4 * SIZE, 1 << 16, (1 << 20) - 1, 1 << 20, _LARGE])
def test_the_next_buffer_of_the_same_size_is_the_released_one(program: Program, size: int) -> None:
    before = _count()
    address = _make_and_release(program, size)
    assert _count().kept > before.kept and _count().small == before.small
    again = _make(program, size)
    assert _address(again) == address and again.reference_count == 1
    now = _count()
    assert (now.kept, now.reused) == (before.kept, before.reused + 1)
    other = _make(program, size)
    assert _address(other) != address


def test_a_released_handle_is_none(program: Program) -> None:
    """The driver would still know it."""
    buffer, count = _make(program), ctypes.c_uint32()
    handle, invalid = buffer.int_ptr, -38  # CL_INVALID_MEM_OBJECT
    del buffer
    query, where = OPENCL["CL_MEM_REFERENCE_COUNT"], ctypes.addressof(count)
    ask = find_function(program.queue.int_ptr, "clGetMemObjectInfo")
    assert ask(handle, query, 4, where, None) == invalid
    release = find_function(program.queue.int_ptr, "clReleaseMemObject")
    assert release(handle) == invalid
    again = _make(program)
    assert again.int_ptr == handle and again.reference_count == 1


def test_buffers_with_other_flags_are_other_objects(program: Program) -> None:
    def make(flags: int) -> cl.Buffer:
        return cl.Buffer(program.context, flags, _LARGE)

    released = _address(make(cl.mem_flags.READ_ONLY))
    other = make(cl.mem_flags.WRITE_ONLY)
    assert _address(other) != released and other.flags == cl.mem_flags.WRITE_ONLY
    again = make(cl.mem_flags.READ_ONLY)
    assert _address(again) == released and again.flags == cl.mem_flags.READ_ONLY


def _release_many(program: Program, size: int = _LARGE) -> set[int]:
    """Release so many buffers that markers are put. Return their addresses."""
    many = [_make(program, size) for _ in range(_ENOUGH)]
    return set(map(_address, many))


def _reuses(
    program: Program, released: set[int], make: Callable[[], cl.Buffer], tries: int = 5000
) -> bool:
    """Whether one of the next buffers lies in memory that was released, when nothing runs."""
    seen = set(released)
    for _ in range(tries):  # PoCL's threads may take a while to complete a marker
        program.queue.finish()
        address = _address(make())
        if address in seen:
            return True
        seen.add(address)
    return False


def test_idle_memory_is_used_for_another_size(program: Program) -> None:
    released = _release_many(program)
    other = _make(program, _LARGE - 4)
    assert _address(other) not in released  # commands might run
    assert _reuses(program, released, lambda: _make(program, _LARGE - 8))
    assert _make_and_release(program, _LARGE + (4 << 20)) not in released  # it has no room


def test_a_buffer_that_the_host_writes_lies_in_idle_memory(program: Program) -> None:
    def make() -> cl.Buffer:
        host = np.full(_LARGE // 4, 7, np.int32)
        return cl.Buffer(program.context, READ_WRITE | COPIED, hostbuf=host)

    released = _release_many(program)
    first = make()
    assert _address(first) not in released and program.values(first) == [7]
    assert _reuses(program, released, make)
    assert program.values(make()) == [7]


@pytest.mark.parametrize("queues", ["two in order", "one out of order", "none"])
def test_other_queues_are_asked_by_markers(program: Program, queues: str) -> None:
    if queues == "two in order":
        second = cl.CommandQueue(program.context)
    else:
        program = Program(program.fake)
        program.queue = cl.CommandQueue(program.context, properties=_OUT_OF_ORDER)
        second = None
    if queues == "none":
        program.queue = Program(program.fake).queue
    address = _make_and_release(program)
    next_one = _make(program)
    assert _address(next_one) != address
    released = _release_many(program)
    assert _reuses(program, released, lambda: _make(program))
    del second


def test_what_waits_in_another_queue_keeps_released_memory(program: Program) -> None:
    second, flag = cl.CommandQueue(program.context), cl.UserEvent(program.context)
    cl.enqueue_barrier(second, wait_for=[flag])
    second.flush()
    released = _release_many(program)
    assert not _reuses(program, released, lambda: _make(program), 4)
    flag.set_status(cl.command_execution_status.COMPLETE)
    second.finish()
    assert _reuses(program, released, lambda: _make(program))


def test_a_queue_that_is_gone_may_still_run(program: Program) -> None:
    second, flag = cl.CommandQueue(program.context), cl.UserEvent(program.context)
    cl.enqueue_barrier(second, wait_for=[flag])
    kept = _make(program)  # the gone queue might use it
    del second
    gc.collect()
    address = _address(kept)
    del kept
    other = _make(program)
    assert _address(other) != address
    flag.set_status(cl.command_execution_status.COMPLETE)
    released = _release_many(program)
    assert _reuses(program, released, lambda: _make(program))


def test_a_queue_has_as_many_references_as_the_program_took(program: Program) -> None:
    second = cl.CommandQueue(program.context)
    call(second.int_ptr, "clRetainCommandQueue")
    again = cl.CommandQueue.from_int_ptr(second.int_ptr, retain=False)
    del second
    address = _make_and_release(program)
    other = _make(program)
    assert _address(other) != address  # the second queue lives
    del again
    address = _make_and_release(program)
    program.queue.finish()
    _make_and_release(program, _LARGE + (8 << 20))  # looks at the marker of the gone queue
    assert _reuses(program, _release_many(program) | {address}, lambda: _make(program))


@pytest.mark.parametrize("how", ["retained", "callback", "mapped", "part of an image", "captured"])
def test_what_others_may_use_is_not_kept(program: Program, how: str) -> None:
    buffer, held, told = _make(program), [], []
    address = _address(buffer)
    if how == "retained":
        call(buffer.int_ptr, "clRetainMemObject")
        held.append(cl.Buffer.from_int_ptr(buffer.int_ptr, retain=False))
    elif how == "callback":
        made = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: told.append(1))
        pointer = ctypes.cast(made, ctypes.c_void_p).value
        assert not call(buffer.int_ptr, "clSetMemObjectDestructorCallback", pointer, None)
    elif how == "mapped":
        held.append(
            cl.enqueue_map_buffer(
                program.queue,
                buffer,
                cl.map_flags.READ,
                0,
                (4,),
                np.dtype(np.int32),
                is_blocking=True,
            )
        )
    elif how == "part of an image":
        pixel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        with suppress(cl.Error):  # PoCL makes none, but the program has asked
            held.append(cl.create_image(program.context, READ_WRITE, pixel, (64,), buffer=buffer))
    else:
        with capture(program.queue) as graph:
            program.scale(buffer, 2, 1)
        held.append(graph)
    del buffer
    gc.collect()
    other = _make(program)
    if how == "callback":
        assert told == [1]
    else:
        assert _address(other) != address


def test_the_pool_is_limited(program: Program) -> None:
    before = _count().kept
    lib.fl_limit_kept(before + (64 << 20))
    for _ in range(4):
        many = [_make(program) for _ in range(_ENOUGH * 2)]
        del many
        program.queue.finish()
    for _ in range(3):  # a release looks whether the rest is idle
        _make_and_release(program)
        program.queue.finish()
    assert _count().kept <= before + (64 << 20)
    unmapped = program.fake.calls("cuMemUnmap")
    _make_and_release(program, 80 << 20)
    assert program.fake.calls("cuMemUnmap") > unmapped
    lib.fl_limit_kept(0)
    program.queue.finish()
    _make_and_release(program)
    kept = _count().kept
    _make_and_release(program)
    assert _count().kept <= kept


def test_what_is_kept_goes_where_cuda_has_no_memory_left(program: Program) -> None:
    released = _release_many(program)
    other = _make(program, _LARGE - 4)  # markers
    program.queue.finish()
    unmapped = program.fake.calls("cuMemUnmap")
    program.fake.fail("cuMemCreate", 2)
    large = _make(program, 48 << 20)
    assert _address(large) == 0
    assert program.fake.calls("cuMemUnmap") - unmapped >= len(released) - 1
    program.fake.fail("cuMemCreate", 0)
    assert _address(_make(program, 48 << 20)) and _address(other)


def test_a_context_that_ends_keeps_nothing(program: Program) -> None:
    def mapped() -> int:
        return program.fake.calls("cuMemMap") - program.fake.calls("cuMemUnmap")

    gc.collect()
    _make_and_release(program)
    before, kept = mapped(), _count().kept
    for ending in ("context first", "queue first", "buffer last"):
        other = Program(program.fake)
        last = _make(other, 5 << 20)
        _release_many(other)
        assert mapped() > before
        queue = other.queue
        if ending == "queue first":
            other.queue = program.queue
            del queue
            del last, other
        elif ending == "context first":
            del last, other
            del queue
        else:
            del other
            del queue
            del last
        gc.collect()
        assert (mapped(), _count().kept) == (before, kept), ending


def test_a_queue_keeps_its_context(program: Program) -> None:
    """A program may forget its context: PyOpenCL asks the queue for it at each turn."""
    queue = Program(program.fake).queue
    gc.collect()
    addresses = {_address(cl.Buffer(queue.context, READ_WRITE, _LARGE)) for _ in range(5)}
    assert len(addresses) == 1


@pytest.mark.parametrize(
    ("given", "expected"), [("0", 0), ("7", 7 << 20), ("", None), ("many", None)]
)
def test_the_limit_is_a_variable(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    given: str,
    expected: int | None,
) -> None:
    monkeypatch.setenv("FAIRLEAD_CUDA_POOL", given)
    (device,) = cuda_sharing._shared.values()
    limit = cuda_sharing._find_limit()
    assert limit == (device.query_size() // 16 if expected is None else expected)
    said = capfd.readouterr().err
    assert ("FAIRLEAD_CUDA_POOL=many is ignored" in said) == (given == "many")


def test_threads_release_and_create_at_once(program: Program) -> None:
    def work(number: int) -> None:
        queue = cl.CommandQueue(program.context)
        for turn in range(60):
            size = 4 * SIZE if turn % 3 else _LARGE
            host = np.full(size // 4, number, np.int32)
            buffer = cl.Buffer(program.context, READ_WRITE, size)
            cl.enqueue_copy(queue, buffer, host)
            got = np.empty_like(host)
            cl.enqueue_copy(queue, got, buffer)
            assert (got == number).all(), (number, turn)

    in_threads(4, work)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_compute_the_same(program: Program, seed: int) -> None:
    before = _count().reused
    assert run_random_program(program.context, seed) == []
    assert _count().reused > before
