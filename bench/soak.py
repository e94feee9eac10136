"""Eight threads that update and enqueue command-buffers of the reference adapter, and check
results.

A thread gives some launches new values, in one update or one by one. It enqueues the
command-buffer, does both again without waiting, and reads the numbers. An update that is lost, or
that changes an earlier enqueue, gives other numbers.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

import psutil

from fairlead.loader.ur.abi import UR

from .adapter_work import (
    Argument,
    Update,
    ValueUpdate,
    adapter,
    append,
    c_functions,
    check,
    command_buffer,
    function,
    make,
    ok,
)
from .measuring import Row, Target

_MIB: Final = 1 << 20
_THREADS: Final = 8
_LAUNCHES: Final = 16
_SOURCE: Final = b"""
kernel void fold(global uint *cells, uint value) {
    size_t i = get_global_id(0);
    cells[i] = 3 * cells[i] + value;
}
"""


class _Functions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("update", "enqueue", "read", "release")]


class _Worker(ctypes.Structure):
    """`worker` of adapter.c."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                "call",
                "queue",
                "buffer",
                "memory",
                "updates",
                "values",
                "cells",
                "expected",
            )
        ),
        *((name, ctypes.c_uint32) for name in ("launches", "random")),
        *((name, ctypes.c_uint64) for name in ("enqueued", "updated", "wrong")),
        ("end", ctypes.c_double),
        ("code", ctypes.c_int32),
        ("thread", ctypes.c_void_p),
    ]


def _kernel(context: int) -> int:
    program = make("urProgramCreateWithIL", context, _SOURCE, len(_SOURCE), None)
    ok("urProgramBuild", context, program, None)
    return make("urKernelCreate", program, b"fold")


def _queue(context: int, device: int, out_of_order: bool) -> int:
    flags = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"] if out_of_order else 0
    properties = UR.get_struct("ur_queue_properties_t")(
        UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, flags
    )
    return make("urQueueCreate", context, device, ctypes.byref(properties))


def _prepare(
    worker: _Worker, number: int, context: int, device: int, kernel: int, out_of_order: bool
) -> list[Any]:
    """Make what a thread works with. Returns the objects to keep alive."""
    zeros = (ctypes.c_uint32 * _LAUNCHES)()
    desc = UR.get_struct("ur_buffer_properties_t")(
        UR["UR_STRUCTURE_TYPE_BUFFER_PROPERTIES"], None, ctypes.addressof(zeros)
    )
    flags = UR["UR_MEM_FLAG_READ_WRITE"] | UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
    worker.memory = make(
        "urMemBufferCreate", context, flags, ctypes.sizeof(zeros), ctypes.byref(desc)
    )
    worker.queue = _queue(context, device, out_of_order)
    worker.buffer = command_buffer(context, device, in_order=number % 4 < 2, updatable=True)
    values, updates, lists = (
        (ctypes.c_uint32 * _LAUNCHES)(),
        (Update * _LAUNCHES)(),
        (ValueUpdate * _LAUNCHES)(),
    )
    for index in range(_LAUNCHES):
        value = ctypes.addressof(values) + 4 * index
        rows = (Argument * 2)(
            Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"], index=0, size=8),
            Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"], index=1, size=4),
        )
        rows[0].value.memObjTuple.hMem, rows[1].value.value = worker.memory, value
        command = append(worker.buffer, kernel, rows, 1, 1, offset=index, updatable=True)
        kind = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC"]
        lists[index] = ValueUpdate(kind, None, 1, 4, None, value)
        updates[index].stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"]
        updates[index].hCommand, updates[index].newWorkDim = command, 1
        updates[index].numNewValueArgs, updates[index].pNewValueArgList = (
            1,
            ctypes.addressof(lists[index]),
        )
    ok("urCommandBufferFinalizeExp", worker.buffer)
    expected, cells = (ctypes.c_uint32 * _LAUNCHES)(), (ctypes.c_uint32 * _LAUNCHES)()
    worker.launches, worker.random = _LAUNCHES, number + 1
    for name, array in (
        ("values", values),
        ("updates", updates),
        ("expected", expected),
        ("cells", cells),
    ):
        setattr(worker, name, ctypes.addressof(array))
    return [zeros, values, updates, lists, expected, cells]


def measure(quick: bool) -> list[Row]:
    """Measure a minute, in ten parts: the memory after the first and after the last.

    Every other thread has an out-of-order queue.
    """
    device = adapter().devices[0].handle
    context = make("urContextCreate", 1, (ctypes.c_void_p * 1)(device), None)
    names = (
        "urCommandBufferUpdateKernelLaunchExp",
        "urEnqueueCommandBufferExp",
        "urEnqueueMemBufferRead",
        "urEventRelease",
    )
    functions, kernel = _Functions(*map(function, names)), _kernel(context)
    workers = (_Worker * _THREADS)()
    kept = []
    for number, worker in enumerate(workers):
        worker.call = ctypes.addressof(functions)
        kept.append(_prepare(worker, number, context, device, kernel, bool(number % 2)))
    process, memory = psutil.Process(os.getpid()), []
    for _ in range(10):
        check(
            c_functions().soak(workers, _THREADS, ctypes.c_double(0.1 if quick else 6.0)),
            "pthread_create",
        )
        memory.append(process.memory_info().rss / _MIB)
    return _rows(workers, memory, quick)


def _rows(workers: Any, memory: list[float], quick: bool) -> list[Row]:
    codes = [worker.code for worker in workers if worker.code]
    enqueued, updated = (
        sum(getattr(worker, name) for worker in workers) for name in ("enqueued", "updated")
    )
    done = f"{enqueued:,} enqueues, {updated:,} updates in {_THREADS} threads"
    named = ", ".join(sorted({UR.errors.get(code, (str(code), ""))[0] for code in codes}))
    wrong = sum(worker.wrong for worker in workers)
    series = {
        f"after {part + 1} of {len(memory)} parts": {"median": size}
        for part, size in enumerate(memory)
    }
    flat = None if quick else Target("≤", 1.01)  # memory still grows in a short run
    return [
        Row(
            "threads that update and enqueue: calls that failed",
            len(codes),
            "",
            Target("≤", 0),
            note=named or done,
        ),
        Row(
            "threads that update and enqueue: results that are wrong",
            wrong,
            "",
            Target("≤", 0),
            note=done,
        ),
        Row(
            "threads that update and enqueue: memory at the end ÷ after a tenth",
            memory[-1] / memory[0],
            "×",
            flat,
            series,
            "MiB",
            note=f"{memory[0]:.1f} → {memory[-1]:.1f} MiB",
        ),
    ]
