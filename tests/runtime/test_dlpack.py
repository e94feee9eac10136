"""DLPack both ways: USM in NumPy, other packages' memory as USM, and the life of capsules."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from typing import Any

import numpy
import pytest
from helpers.support import RunPython
from helpers.sycl import N

from fairlead.runtime import (
    USM,
    Program,
    Queue,
    SYCLError,
    from_dlpack,
    malloc_device,
    malloc_host,
    malloc_shared,
)
from fairlead.runtime import dlpack as ours


@pytest.fixture
def shared(queue: Queue) -> USM:
    return malloc_shared(N, numpy.int32, queue)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "complex64", "bool", "float64"])
@pytest.mark.parametrize("make", [malloc_host, malloc_shared])
def test_numpy_has_the_memory_itself(queue: Queue, make: Any, dtype: str) -> None:
    memory = make(N, dtype, queue)
    memory.array[:] = numpy.arange(N) % 2
    view = numpy.from_dlpack(memory)
    assert (view.ctypes.data, view.dtype, view.shape) == (memory.pointer, memory.dtype, (N,))
    assert view.tolist() == memory.array.tolist()


def test_commands_come_before_who_takes_the_memory(
    queue: Queue, program: Program, shared: USM
) -> None:
    queue.fill(shared, numpy.int32(2)).wait()
    for _ in range(3):
        last = queue.parallel_for(N, program.mul, shared, numpy.int32(3))
        queue.barrier([last])
    assert numpy.from_dlpack(shared).tolist() == [54] * N


@pytest.mark.parametrize("make", [malloc_host, malloc_shared])
def test_torch_has_the_memory_itself(queue: Queue, program: Program, make: Any) -> None:
    torch = pytest.importorskip("torch")
    memory = make(N, numpy.int32, queue)
    queue.fill(memory, numpy.int32(2))
    tensor = torch.from_dlpack(memory)
    assert (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape)) == (
        memory.pointer,
        torch.int32,
        (N,),
    )
    tensor += 3
    queue.parallel_for(N, program.mul, memory, numpy.int32(4)).wait()
    assert tensor.tolist() == [20] * N
    same = from_dlpack(tensor[4:], queue)
    assert (same.pointer, same.size) == (memory.pointer + 16, N - 4)
    del memory
    queue.fill(same, numpy.int32(1)).wait()
    assert tensor.tolist() == [20] * 4 + [1] * (N - 4)
    for refused in (tensor[::2], torch.zeros(N, dtype=torch.int32)):
        with pytest.raises(SYCLError, match=r"contiguous|is not memory of"):
            from_dlpack(refused, queue)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 3)])
def test_a_capsule_that_nobody_takes_lets_the_memory_go(shared: USM, version: Any) -> None:
    capsule = shared.__dlpack__(max_version=version)
    is_new = version is not None and version[0] >= 1
    assert ("dltensor_versioned" in repr(capsule)) is is_new and '"dltensor' in repr(capsule)
    gone = weakref.ref(shared.allocation)
    shared.allocation = None
    gc.collect()
    assert gone() is None  # the capsule has the USM, which has the allocation
    before = len(ours._given)
    del capsule
    assert len(ours._given) == before - 1


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_memory_stays_as_long_as_who_has_taken_it(queue: Queue, version: Any) -> None:
    memory = malloc_shared(N, numpy.int32, queue)
    gone = weakref.ref(memory)
    taken = ours.take(memory.__dlpack__(max_version=version))
    del memory
    gc.collect()
    assert gone() is not None and taken.size == N
    taken.release()
    taken.release()
    gc.collect()
    assert gone() is None


def test_a_capsule_is_taken_once(shared: USM) -> None:
    capsule = shared.__dlpack__()
    ours.take(capsule).release()
    for value in (capsule, 5):
        with pytest.raises(BufferError, match="taken before"):
            ours.take(value)


class _Old:
    """An object of before DLPack 1.0, with memory of a USM."""

    def __init__(self, memory: USM, **changes: Any) -> None:
        self.memory, self.changes = memory, changes

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __dlpack__(self) -> Any:
        capsule = self.memory.__dlpack__()
        address = ours._address_in(capsule, b"dltensor")
        tensor = ours._Managed.from_address(address).tensor
        for name, value in self.changes.items():
            setattr(tensor, name, value)
        return capsule


def test_memory_of_other_packages_is_usm(queue: Queue, program: Program, shared: USM) -> None:
    shared.array[:] = 5
    alias = from_dlpack(_Old(shared, byte_offset=8), queue)
    assert (alias.pointer, alias.kind, alias.size) == (shared.pointer + 8, "shared", N)
    queue.parallel_for(N - 2, program.add, alias, numpy.int32(1)).wait()
    assert shared.array.tolist() == [5, 5] + [6] * (N - 2)
    before, done = len(ours._given), threading.Event()
    del alias
    gc.collect()
    queue.context._deferred.add(done.set)  # it may come after commands of other tests
    assert done.wait(60) and len(ours._given) == before - 1


def _several(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> dict[str, Any]:
    """Return the changes for a tensor of several dimensions."""
    numbers = ctypes.c_int64 * len(shape)
    steps = numbers(*strides) if strides else None
    return {"ndim": len(shape), "shape": numbers(*shape), "strides": steps}


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 16), (16, 1)), ((2, 4, 8), None), ((1, 64), (7, 1)), ((8, 1, 8), (8, 3, 1)), ((), None)],
)
def test_memory_of_several_dimensions_lies_in_a_row(
    queue: Queue, shared: USM, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    """The step of a dimension of one element may be any number."""
    given = _Old(shared, **_several(shape, strides))
    alias = from_dlpack(given, queue)
    assert (alias.pointer, alias.size) == (shared.pointer, N if shape else 1)


@pytest.mark.parametrize(
    ("shape", "strides"), [((16, 4), (1, 16)), ((4, 8), (16, 1)), ((2, 2, 4), (4, 8, 1))]
)
def test_rows_with_gaps_and_columns_are_refused(
    queue: Queue, shared: USM, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    given = _Old(shared, **_several(shape, strides))
    with pytest.raises(SYCLError, match="is not contiguous"):
        from_dlpack(given, queue)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lanes": 4}, "4 × 32 bits"),
        ({"code": 3}, "DLPack's type 3"),
        ({"bits": 4}, "1 × 4 bits"),
        ({"code": 2, "bits": 8}, "1 × 8 bits"),
        ({"strides": (ctypes.c_int64 * 1)(2)}, "is not contiguous"),
    ],
)
def test_what_usm_cannot_be(queue: Queue, shared: USM, changes: dict[str, Any], why: str) -> None:
    before = len(ours._given)
    with pytest.raises(SYCLError, match=why):
        from_dlpack(_Old(shared, **changes), queue)
    gc.collect()
    assert len(ours._given) == before


def test_memory_that_is_not_the_contexts(queue: Queue) -> None:
    array = numpy.zeros(N)
    with pytest.raises(SYCLError, match=r"is not memory of (.|\n)*queue\.memcpy"):
        from_dlpack(array, queue)
    array.flags.writeable = False
    with pytest.raises(SYCLError, match=r"may only be read|readonly"):
        from_dlpack(array, queue)
    with pytest.raises(SYCLError, match="object with __dlpack__"):
        from_dlpack([1], queue)


def test_what_is_not_given(queue: Queue, shared: USM) -> None:
    with pytest.raises(BufferError, match="cannot use device memory"):
        malloc_device(4, "int32", queue).__dlpack__()
    wishes: tuple[dict[str, Any], ...] = {"copy": True}, {"dl_device": (2, 0)}
    for wish in wishes:
        with pytest.raises(BufferError, match="without a copy"):
            shared.__dlpack__(**wish)
    with pytest.raises(BufferError, match="no elements"):
        malloc_shared(4, [("a", "i4")], queue).__dlpack__()
    shared.__dlpack__(copy=False, dl_device=(ours.CPU, 0), stream=None)


END = """
import numpy
from fairlead.runtime import Queue, malloc_shared
kept = malloc_shared(4, "int32", Queue())
kept.array[:] = 7
view, left = numpy.from_dlpack(kept), kept.__dlpack__()
import builtins, sys
builtins.last = view, left
print(view.sum())
"""


def test_a_process_ends_with_memory_that_was_given(run_python: RunPython) -> None:
    """NumPy and the capsule call the deleter when this package's modules are gone."""
    assert run_python(END).out.strip() == "28"
