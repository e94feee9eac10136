"""Mutable command lists: what an update changes.

These are the cases of the public conformance tests: arguments, local memory, group count, group
size and global offset; the kernel, also with its signal event and with its wait events; several
kernels and events; the signal event; no wait events, and another one; several changes at once; and
a mutable list beside a regular one.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ze.calls import ZECalls, handles
from fairlead.conformance.ze.objects import (
    ZEObjects,
    argument,
    global_offset,
    group_count,
    group_size,
    needs,
)
from fairlead.loader.ze.abi import ZE

UPDATE = "zeCommandListUpdateMutableCommandsExp"
KERNELS = "zeCommandListUpdateMutableCommandKernelsExp"
SIGNAL = "zeCommandListUpdateMutableCommandSignalEventExp"
WAITS = "zeCommandListUpdateMutableCommandWaitEventsExp"


def change_kernel(ze: ZECalls, made: int, number: int, kernel: int) -> None:
    ze.ok(KERNELS, made, 1, ctypes.c_uint64(number), handles(kernel))


def record_kernels(
    make: ZEObjects, old: int, new: int, signal: int = 0, *waits: int
) -> tuple[int, int]:
    """Return a closed list of a launch that may become another one, and its identifier."""
    names = "KERNEL_ARGUMENTS", "GROUP_COUNT", "SIGNAL_EVENT", "WAIT_EVENTS", "KERNEL_INSTRUCTION"
    flags = sum(ZE[f"ZE_MUTABLE_COMMAND_EXP_FLAG_{name}"] for name in names)
    return make.closed(old, 4, flags, old, new, signal=signal, waits=waits)


@rule("zeDeviceGetProperties", "ze_mutable_command_list_exp_properties_t says what can change")
def test_properties(mutable: int) -> None:
    equal(bool(mutable), True, "whether anything of a command can be changed")


@rule(UPDATE, "an argument that is a value changes")
def test_value(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out = make.ints(count=4)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(7)), 4)
    make.check_result(queue, made, out, 7, 7, 7, 7)
    make.change(made, argument(number, 1, c_int32(5)))
    make.check_result(queue, made, out, 5, 5, 5, 5)


@rule(UPDATE, "an argument that is a pointer changes")
def test_pointer(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out, other = make.ints(count=2), make.ints(count=2)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(7)), 2)
    make.change(made, argument(number, 0, other.pointer))
    make.check_result(queue, made, other, 7, 7)
    equal(out.all, [0, 0], "the memory of the argument before")


@rule(UPDATE, "the size of local memory changes with the group")
def test_local_memory(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS", "GROUP_SIZE")
    out = make.ints(count=8)
    made, number = make.closed(make.kernel("sums", out.pointer, 8, size=2), 2)
    make.check_result(queue, made, out, 3, 3, 3, 3, 0, 0, 0, 0)
    make.change(made, argument(number, 1, 16), group_size(number, 4))
    make.check_result(queue, made, out, *[10] * 8)


@rule(UPDATE, "the group count changes, up and down")
def test_group_count(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "GROUP_COUNT")
    out = make.ints(count=4)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(1)), 1)
    for count in (4, 2):
        out.fill(0)
        make.change(made, group_count(number, count))
        make.check_result(queue, made, out, *[1] * count, *[0] * (4 - count))


@rule(UPDATE, "no groups: nothing is launched, until the group count changes again")
def test_no_groups(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "GROUP_COUNT")
    out = make.ints(count=2)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(1)), 2)
    for counts, expected in (((0, 1, 1), [0, 0]), ((2, 0, 1), [0, 0]), ((2, 1, 1), [1, 1])):
        make.change(made, group_count(number, *counts))
        make.check_result(queue, made, out, *expected)


@rule(UPDATE, "the group size changes")
def test_group_size(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "GROUP_SIZE")
    out = make.ints(count=8)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(1), size=1), 2)
    make.change(made, group_size(number, 4))
    make.check_result(queue, made, out, *[1] * 8)


@rule(UPDATE, "the global offset changes")
def test_global_offset(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "GLOBAL_OFFSET")
    out = make.ints(count=4)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(1)), 2)
    make.change(made, global_offset(number, 2))
    make.check_result(queue, made, out, 0, 0, 1, 1)


@rule(UPDATE, "one call changes several things of several commands")
def test_several_changes(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS", "GROUP_COUNT")
    out, other = make.ints(count=4), make.ints(count=4)
    made, numbers = make.list(mutable=True), []
    for memory in (out, other):
        numbers.append(make.next_id(made))
        make.launch(made, make.kernel("store", memory.pointer, c_int32(1)), 4)
    make.close_list(made)
    make.change(
        made,
        argument(numbers[0], 1, c_int32(5)),
        group_count(numbers[0], 2),
        argument(numbers[1], 1, c_int32(6)),
    )
    make.check_result(queue, made, out, 5, 5, 0, 0)
    equal(other.all, [6] * 4, "what the second launch has written")


@rule(UPDATE, "the last of several changes counts, and a list can be updated again and again")
def test_again_and_again(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out = make.ints(count=2)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(1)), 2)
    for value in range(20):
        changes = argument(number, 1, c_int32(-1)), argument(number, 1, c_int32(value))
        make.change(made, *changes)
        make.check_result(queue, made, out, value, value)


@rule(KERNELS, "the kernel changes")
def test_kernel(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_INSTRUCTION", "KERNEL_ARGUMENTS", "GROUP_COUNT")
    out = make.ints(count=4)
    store, twice = make.kernel("store", out.pointer, c_int32(3)), make.kernel("twice")
    made, number = record_kernels(make, store, twice)
    make.check_result(queue, made, out, 3, 3, 3, 3)
    change_kernel(ze, made, number, twice)
    make.change(made, argument(number, 0, out.pointer), group_count(number, 2))
    make.check_result(queue, made, out, 6, 6, 3, 3)


@rule(KERNELS, "a command whose kernel changes signals its event")
def test_kernel_signals(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_INSTRUCTION", "KERNEL_ARGUMENTS", "GROUP_COUNT")
    out, (event,) = make.ints(2, 2, 2, 2), make.events()
    store, twice = make.kernel("store", out.pointer, c_int32(3)), make.kernel("twice")
    made, number = record_kernels(make, store, twice, event)
    change_kernel(ze, made, number, twice)
    make.change(made, argument(number, 0, out.pointer), group_count(number, 4))
    ze.answers("NOT_READY", "zeEventQueryStatus", event)
    make.check_result(queue, made, out, 4, 4, 4, 4)
    ze.ok("zeEventQueryStatus", event)


@rule(KERNELS, "a command whose kernel changes waits for its events")
def test_kernel_waits(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_INSTRUCTION", "KERNEL_ARGUMENTS", "GROUP_COUNT")
    out, (event,) = make.ints(2, 2, 2, 2), make.events()
    store, twice = make.kernel("store", out.pointer, c_int32(3)), make.kernel("twice")
    made, number = record_kernels(make, store, twice, 0, event)
    change_kernel(ze, made, number, twice)
    make.change(made, argument(number, 0, out.pointer), group_count(number, 4))
    make.run(queue, made, wait=False)
    equal(out.all, [2] * 4, "the memory before the event is signaled")
    ze.ok("zeEventHostSignal", event)
    make.finish(queue)
    equal(out.all, [4] * 4, "the memory after that")


@rule(SIGNAL, "a command signals another event, or none")
def test_signal_event(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "SIGNAL_EVENT")
    out, (first, second) = make.ints(count=1), make.events(2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    made, number = make.closed(kernel, signal=first)
    ze.ok(SIGNAL, made, number, second)
    make.close_list(made)
    make.run(queue, made)
    ze.answers("NOT_READY", "zeEventQueryStatus", first)
    ze.ok("zeEventQueryStatus", second)
    ze.ok("zeEventHostReset", second)
    ze.ok(SIGNAL, made, number)
    make.close_list(made)
    make.run(queue, made)
    ze.answers("NOT_READY", "zeEventQueryStatus", second)


@rule(WAITS, "a command waits for another event")
def test_wait_event(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "WAIT_EVENTS")
    out, (first, second) = make.ints(count=1), make.events(2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    made, number = make.closed(kernel, waits=(first,))
    ze.ok(WAITS, made, number, 1, handles(second))
    make.close_list(made)
    ze.ok("zeEventHostSignal", second)
    make.check_result(queue, made, out, 1)


@rule(WAITS, "NULL instead of a list: the command waits for nothing")
def test_wait_for_nothing(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "WAIT_EVENTS")
    out, events = make.ints(count=1), make.events(2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    made, number = make.closed(kernel, waits=events)
    ze.ok(WAITS, made, number)
    make.close_list(made)
    make.check_result(queue, made, out, 1)


@rule(WAITS, "NULL in a list: the command does not wait for that event any more")
def test_wait_for_one_less(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "WAIT_EVENTS")
    out, (first, second) = make.ints(count=1), make.events(2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    made, number = make.closed(kernel, waits=(first, second))
    ze.ok(WAITS, made, number, 2, handles(0, second))
    make.close_list(made)
    ze.ok("zeEventHostSignal", second)
    make.check_result(queue, made, out, 1)


@rule("zeCommandListImmediateAppendCommandListsExp", "runs a regular and a mutable list in order")
def test_lists_on_an_immediate_list(make: ZEObjects, ze: ZECalls, mutable: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out, immediate = make.ints(count=2), make.immediate()
    regular = make.list()
    make.launch(regular, make.kernel("store", out.pointer, c_int32(1)), 2)
    make.close_list(regular)
    made, number = make.closed(make.kernel("store", out.pointer, c_int32(2)), 1)
    make.change(made, argument(number, 1, c_int32(3)))
    routine = "zeCommandListImmediateAppendCommandListsExp"
    ze.ok(routine, immediate, 2, handles(regular, made), None, 0, None)
    make.finish(immediate)
    equal(out.all, [3, 1], "what both lists have written")


@rule("zeCommandListGetNextCommandIdExp", "an identifier is of the next command alone")
def test_next_command(make: ZEObjects, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out, other = make.ints(count=1), make.ints(count=1)
    made = make.list(mutable=True)
    make.launch(made, make.kernel("store", other.pointer, c_int32(1)), 1)
    number = make.next_id(made)
    make.launch(made, make.kernel("store", out.pointer, c_int32(2)), 1)
    make.launch(made, make.kernel("store", other.pointer, c_int32(3)), 1)
    make.close_list(made)
    make.change(made, argument(number, 1, c_int32(9)))
    make.check_result(queue, made, out, 9)
    equal(other.all, [3], "what the commands without identifiers have written")


@rule("zeCommandListReset", "a mutable list records anew, with new identifiers")
def test_reset(make: ZEObjects, ze: ZECalls, mutable: int, queue: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out = make.ints(count=1)
    made, _ = make.closed(make.kernel("store", out.pointer, c_int32(1)), 1)
    ze.ok("zeCommandListReset", made)
    number = make.next_id(made)
    make.launch(made, make.kernel("store", out.pointer, c_int32(2)), 1)
    make.close_list(made)
    make.change(made, argument(number, 1, c_int32(3)))
    make.check_result(queue, made, out, 3)
