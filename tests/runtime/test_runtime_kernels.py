"""Programs, kernels, every kind of argument, ranges, and the events of launches."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import numpy
import pytest
from helpers.sycl import SOURCE, Gate, N, zeros
from helpers.tables import table

from fairlead.conformance.threads import in_threads
from fairlead.icd.abi import OPENCL
from fairlead.runtime import (
    USM,
    Accessor,
    Buffer,
    Context,
    Errc,
    Event,
    Handler,
    LocalMemory,
    NDRange,
    Program,
    Queue,
    RawArgument,
    SYCLError,
    kernel_types,
    malloc_shared,
)
from fairlead.runtime.arguments import make_argument


def test_a_kernel_is_one_object_with_its_name_and_arguments(program: Program) -> None:
    assert program.add is program.kernel("add")
    assert (program.sum.name, program.sum.num_args) == ("sum", 3)
    with pytest.raises(SYCLError, match="the program has no kernel 'nothing'") as caught:
        program.kernel("nothing")
    assert caught.value.errc is Errc.invalid
    with pytest.raises(AttributeError):
        _ = program.nothing


def test_the_compilers_words_are_in_the_error(context: Context) -> None:
    with pytest.raises(SYCLError, match="undeclared_thing") as caught:
        Program(context, "kernel void broken(global int *a) { a[0] = undeclared_thing; }")
    assert caught.value.errc is Errc.build and caught.value.remedy


def test_options_reach_the_compiler(queue: Queue, context: Context, memory: USM) -> None:
    built = Program(
        context, "kernel void value(global int *a) { a[get_global_id(0)] = VALUE; }", "-DVALUE=42"
    )
    queue.parallel_for(N, built.value, memory).wait()
    assert (memory.array == 42).all()


def test_binaries_go_round(queue: Queue, context: Context, program: Program, memory: USM) -> None:
    again = Program.from_binary(context, program.binary())
    queue.parallel_for(N, again.store, memory, numpy.int32(6)).wait()
    assert (memory.array == 6).all()
    with pytest.raises(SYCLError):
        Program.from_binary(context, b"no program at all")
    with pytest.raises(SYCLError, match="not a SPIR-V module"):
        Program(context, b"no program at all")


ARGUMENTS = """
typedef struct { char c; double d; } pair;
kernel void values(global double *out, char c, short s, int i, long l, float f, double d, uchar b,
    float4 v, pair p) {
  out[0] = c; out[1] = s; out[2] = i; out[3] = l; out[4] = f; out[5] = d; out[6] = b; out[7] = v.w;
  out[8] = p.d + p.c;
}
kernel void shared_sum(global int *out, local int *scratch, local int *other) {
  size_t i = get_local_id(0);
  scratch[i] = i + 1;
  other[i] = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  int total = 0;
  for (size_t k = 0; k < get_local_size(0); k++) total += scratch[k] * other[k];
  out[get_global_id(0)] = total;
}
kernel void is_null(global int *out, global const int *maybe) { out[0] = maybe == 0; }
"""


class Pair(ctypes.Structure):
    _fields_ = (("c", ctypes.c_byte), ("d", ctypes.c_double))


def test_values_of_every_type(queue: Queue, context: Context) -> None:
    built, out = Program(context, ARGUMENTS), malloc_shared(9, "float64", queue)
    vector = numpy.arange(4, dtype=numpy.float32)
    for pair in (
        Pair(1, 0.5),
        numpy.array((1, 0.5), numpy.dtype([("c", "i1"), ("d", "f8")], align=True))[()],
        RawArgument(bytes(Pair(1, 0.5))),
    ):
        out.array[:] = 0
        queue.parallel_for(
            1,
            built.values,
            out,
            numpy.int8(-1),
            ctypes.c_short(-2),
            numpy.int32(3),
            ctypes.c_int64(1 << 40),
            numpy.float32(0.5),
            ctypes.c_double(2.5),
            True,
            RawArgument(vector.tobytes()),
            pair,
        ).wait()
        assert out.array.tolist() == [-1, -2, 3, 1 << 40, 0.5, 2.5, 1, 3, 1.5]


def test_local_memory_and_null(queue: Queue, context: Context, memory: USM) -> None:
    built = Program(context, ARGUMENTS)
    queue.parallel_for(
        NDRange(N, 8), built.shared_sum, memory, LocalMemory(8, "int32"), LocalMemory(32)
    ).wait()
    assert (memory.array == 36).all()
    queue.parallel_for(1, built.is_null, memory, None).wait()
    assert memory.array[0] == 1
    with pytest.raises(SYCLError, match="at least one byte"):
        LocalMemory(0)


def test_an_accessor_made_elsewhere_is_required_by_being_an_argument(
    queue: Queue, program: Program
) -> None:
    buffer = Buffer(numpy.zeros(N, numpy.int32))
    queue.parallel_for(N, program.add, Accessor(buffer), numpy.int32(2))
    queue.parallel_for(N, program.mul, Accessor(buffer), numpy.int32(4))
    assert (buffer.numpy() == 8).all()


def test_arguments_that_are_wrong_are_named(queue: Queue, program: Program, memory: USM) -> None:
    for arguments, message in (
        (
            (memory, 3),
            r"(?s)argument 1 is a Python int, which does not say how many bytes.*numpy.int32",
        ),
        ((memory, 3.0), r"(?s)argument 1 is a Python float.*numpy.float32"),
        ((memory, "3"), "argument 1, of type str, can be no kernel's argument"),
        ((numpy.zeros(3), numpy.int32(1)), "argument 0, of type ndarray"),
        ((memory,), "the kernel add has 2 arguments, 1 are set"),
        ((memory, numpy.int32(1), numpy.int32(2)), "the kernel add has 2 arguments, 3 are set"),
    ):
        with pytest.raises(SYCLError, match=message) as caught:
            queue.parallel_for(N, program.add, *arguments)
        assert caught.value.errc is Errc.kernel_argument
    with pytest.raises(SYCLError, match="argument 0 is not set"):
        queue.submit(lambda h: (h.set_arg(1, numpy.int32(1)), h.parallel_for(N, program.add)))
    with pytest.raises(SYCLError, match="index is 0 or more"):
        queue.submit(lambda h: h.set_arg(-1, numpy.int32(1)))
    with pytest.raises(SYCLError) as caught:
        queue.parallel_for(N, program.add, memory, RawArgument(bytes(8)))
    assert (
        caught.value.errc is Errc.kernel_argument and "UR_RESULT_ERROR_INVALID" in caught.value.code
    )
    assert "argument 1" in caught.value.message and "numpy.float32" in caught.value.remedy


def test_ranges_of_every_dimension(queue: Queue, program: Program) -> None:
    memory = zeros(queue)
    z, y, x = numpy.mgrid[0:4, 0:4, 0:4]
    queue.parallel_for(NDRange((4, 4, 4), (2, 1, 4), (1, 2, 3)), program.ids, memory).wait()
    assert (
        memory.array.reshape(4, 4, 4) == (x + 1) + 100 * (y + 2) + 10000 * (z + 3) + 2000000
    ).all()
    queue.parallel_for(NDRange((8, 8), (4, 2)), program.ids, memory).wait()
    y, x = numpy.mgrid[0:8, 0:8]
    assert (memory.array.reshape(8, 8) == x + 100 * y + 4000000).all()
    queue.parallel_for((numpy.int64(N),), program.store, memory, numpy.int32(1)).wait()  # pyright: ignore[reportArgumentType]
    queue.submit(lambda h: h.single_task(program.store, memory, numpy.int32(2))).wait()
    assert memory.array[0] == 2 and (memory.array[1:] == 1).all()


def test_ranges_that_are_none(queue: Queue, program: Program, memory: USM) -> None:
    for wrong in (
        (),
        (1, 1, 1, 1),
        NDRange((4, 4), 2),
        NDRange(10, 3),
        NDRange(8, 0),
        NDRange(8, -4),
        NDRange((8,), (4,), (0, 0)),
    ):
        with pytest.raises(SYCLError) as caught:
            queue.parallel_for(wrong, program.add, memory, numpy.int32(1))
        assert caught.value.errc is Errc.nd_range, wrong
    assert not memory.array.any()


def test_an_event_knows_its_state_and_times(
    queue: Queue, program: Program, memory: USM, device_gate: Gate
) -> None:
    event = queue.parallel_for(
        N, program.add, memory, numpy.int32(1), depends_on=[device_gate.event]
    )
    assert event.status == "submitted" and not event.done
    device_gate.open()
    waiting = [threading.Thread(target=event.wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert event.status == "complete" and event.done
    times = [event.profiling(what) for what in ("submit", "start", "end")]
    assert times == sorted(times) and times[0] > 0
    with pytest.raises(SYCLError, match="no profiling information 'middle'"):
        event.profiling("middle")
    with pytest.raises(SYCLError, match="a host task has no profiling") as caught:
        queue.host_task(lambda: None).profiling("end")
    assert caught.value.errc is Errc.profiling
    Event().wait()
    assert Event().status == "complete"


def test_times_need_a_queue_that_profiles(queue: Queue, program: Program, memory: USM) -> None:
    plain = Queue(queue.context, queue.device)
    event = plain.parallel_for(N, program.add, memory, numpy.int32(1))
    with pytest.raises(SYCLError) as caught:
        event.profiling("start")
    assert caught.value.errc is Errc.profiling and "profiling=True" in caught.value.remedy


def test_what_a_callback_raises_goes_to_the_hook(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would learn of it. The event is complete all the same."""
    reported: list[Any] = []
    done = threading.Event()

    def hook(report: Any) -> None:
        reported.append(report.exc_value)
        done.set()

    def fail(event: Event) -> None:
        raise ValueError("in a callback")

    monkeypatch.setattr(sys, "unraisablehook", hook)
    event = queue.host_task(lambda: None)
    event.add_callback(fail)
    event.wait()
    assert done.wait(60)
    assert [str(error) for error in reported] == ["in a callback"]


def test_callbacks_are_called_once_it_is_complete(
    queue: Queue, program: Program, memory: USM, device_gate: Gate
) -> None:
    seen, called = [], threading.Event()
    event = queue.parallel_for(
        N, program.add, memory, numpy.int32(1), depends_on=[device_gate.event]
    )
    event.add_callback(lambda one: (seen.append((one, one.status)), called.set()))
    assert not seen
    device_gate.open()
    assert called.wait(60) and seen == [(event, "complete")]


def test_two_threads_launch_one_kernel(queue: Queue, context: Context) -> None:
    built = Program(context, SOURCE)
    memories = [zeros(queue) for _ in range(4)]

    def work(number: int) -> None:
        mine = Queue(context, queue.device, in_order=True)
        for _ in range(50):
            mine.parallel_for(N, built.add, memories[number], numpy.int32(number + 1))
        mine.wait()

    in_threads(4, work)
    assert [int(memory.array[3]) for memory in memories] == [50, 100, 150, 200]


@table("wrong", [-1, (4, -4), 8.0, None, "8", True, NDRange(-8, 8), 1 << 64, (1, 1 << 64)])
def test_what_is_no_range_is_refused(
    queue: Queue, program: Program, memory: USM, wrong: Any
) -> None:
    with pytest.raises(SYCLError, match="is not a range") as caught:
        queue.parallel_for(wrong, program.add, memory, numpy.int32(1))
    assert caught.value.errc is Errc.nd_range


def test_more_local_memory_than_there_is_is_refused(
    queue: Queue, context: Context, memory: USM
) -> None:
    """One driver ends the process otherwise."""
    built, most = Program(context, ARGUMENTS), queue.device.local_memory
    for sizes in ((most + 4,), (most, 4)):
        with pytest.raises(
            SYCLError, match=f"{sum(sizes)} bytes of local memory, the device has {most}"
        ) as caught:
            queue.parallel_for(NDRange(N, 8), built.shared_sum, memory, *map(LocalMemory, sizes))
        assert caught.value.errc is Errc.invalid and caught.value.routine == "set_arg"

    def twice(handler: Handler) -> None:
        handler.set_args(memory, LocalMemory(32), LocalMemory(32))
        handler.set_arg(2, LocalMemory(most - 32))  # in place of what was set before: just enough
        handler.parallel_for(NDRange(N, 8), built.shared_sum)

    queue.submit(twice).wait()
    assert (memory.array == 36).all()


def test_values_with_the_same_bytes_are_one_argument_and_others_are_not() -> None:
    one, again = make_argument(numpy.int32(1)), make_argument(numpy.int32(1))
    assert make_argument(numpy.uint32(1)) is not one  # which is converted where an int is declared
    assert again is one and one.keep == b"\1\0\0\0" == ctypes.string_at(one.word, 4)
    zero, negative = make_argument(numpy.float32(0.0)), make_argument(numpy.float32(-0.0))
    assert zero.keep != negative.keep


def test_what_is_accessed_after_the_operation_counts_as_well(queue: Queue) -> None:
    handler = Handler(queue.context)
    first = handler.access(Buffer(numpy.zeros(N, numpy.int32)))
    handler.host_task(lambda: None)
    second = handler.access(Buffer(numpy.zeros(N, numpy.int32)), "read")
    assert list(handler.take_command().requirements) == [first, second]


TYPES = """
kernel void types(global double *out, float f, int i, uint u, uchar c, long l) {
    out[0] = f; out[1] = i; out[2] = u; out[3] = c; out[4] = l;
}
"""


def test_numbers_become_what_the_kernel_declares(queue: Queue) -> None:
    """Float and int have four bytes each, so the driver would take either for the other."""
    kernel, out = Program(queue, TYPES).kernel("types"), zeros(queue, 5, numpy.float64)
    plain = (numpy.float32(2), numpy.int32(2), numpy.uint32(2), numpy.uint8(2), numpy.int64(2))
    others = (numpy.int32(2), numpy.float32(2), ctypes.c_int32(2), numpy.int64(2), True)
    for given, last in ((plain, 2), (others, 1), ((numpy.float64(2),) * 5, 2)):
        queue.parallel_for(1, kernel, out, *given).wait()
        assert out.array.tolist() == [2, 2, 2, 2, last]
    queue.parallel_for(1, kernel, out, numpy.float32("nan"), *plain[1:]).wait()
    assert numpy.isnan(out.array[0])
    queue.parallel_for(1, kernel, out, RawArgument(b"\0\0\0\x40"), *plain[1:]).wait()
    assert out.array[0] == 2


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (1, numpy.int32((1 << 24) + 1), "is declared float, and int32 16777217 is not"),
        (1, numpy.float64(0.1), "is declared float, and float64 0.1 is not"),
        (1, numpy.complex64(1), "is declared float, and complex64"),
        (2, numpy.float32(2.5), "is declared int, and float32 2.5"),
        (2, numpy.float32("inf"), "is declared int, and float32 inf"),
        (2, numpy.float32("nan"), "is declared int, and float32 nan"),
        (3, numpy.int32(-1), "is declared uint, and int32 -1"),
        (4, ctypes.c_int(300), "is declared uchar, and int32 300"),
        (5, numpy.uint64(1 << 63), "is declared long, and uint64"),
        (0, numpy.int64(8), "is declared a pointer, and a value is not"),
        (5, None, "is declared long, and memory is not"),
    ],
)
def test_numbers_that_would_change_are_refused(
    queue: Queue, index: int, value: Any, message: str
) -> None:
    given: list[Any] = [zeros(queue, 5, numpy.float64), *(numpy.uint8(1),) * 5]
    given[index] = value
    with pytest.raises(SYCLError, match=f"argument {index} of types {message}") as caught:
        queue.parallel_for(1, Program(queue, TYPES).kernel("types"), *given)
    assert caught.value.errc is Errc.kernel_argument


def test_the_numbers_by_which_types_are_asked_for_are_opencls() -> None:
    assert OPENCL.functions["clGetKernelArgInfo"].slot == kernel_types.SLOT
    assert OPENCL["CL_KERNEL_ARG_TYPE_NAME"] == kernel_types.TYPE_NAME
    assert kernel_types.TAG.to_bytes(8, "big") == b"OPENCL31"
