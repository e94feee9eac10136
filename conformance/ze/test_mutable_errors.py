"""Mutable command lists: what an update refuses, and that it then changes nothing.

Level Zero lets a driver leave checks to the loader's validation layer. These cases are counted
apart for that reason.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int16, c_int32
from typing import Any

import pytest

from fairlead.conformance.checks import each, rule, unsupported
from fairlead.conformance.ze.calls import ZECalls, handles, new
from fairlead.conformance.ze.objects import (
    Ints,
    ZEObjects,
    argument,
    chained,
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
NEXT = "zeCommandListGetNextCommandIdExp"

#: What a change needs, and the change of a command.
CHANGES: dict[str, Callable[[int], Any]] = {
    "KERNEL_ARGUMENTS": lambda number: argument(number, 1, c_int32(2)),
    "GROUP_COUNT": lambda number: group_count(number, 2),
    "GROUP_SIZE": lambda number: group_size(number, 1),
    "GLOBAL_OFFSET": lambda number: global_offset(number, 1),
}


@pytest.fixture
def out(make: ZEObjects, mutable: int) -> Ints:
    """What the launch of a case writes."""
    needs(mutable, "KERNEL_ARGUMENTS")
    return make.ints(count=2)


@pytest.fixture
def kernel(make: ZEObjects, out: Ints) -> int:
    """The kernel that writes 1."""
    return make.kernel("store", out.pointer, c_int32(1))


def refuse(ze: ZECalls, made: int, *changes: Any, error: str = "INVALID_ARGUMENT") -> None:
    ze.refuses(error, UPDATE, made, chained(*changes))


@pytest.mark.parametrize("flag", each(CHANGES, UPDATE, "refuses {} if it was not asked for"))
def test_flag(
    flag: str, make: ZEObjects, ze: ZECalls, mutable: int, kernel: int, queue: int
) -> None:
    needs(mutable, flag)
    other = next((name for name in CHANGES if name != flag and mutable & get_flag(name)), "")
    if not other:
        unsupported("the device can change nothing else")
    made, number = make.closed(kernel, 2, get_flag(other))
    refuse(ze, made, CHANGES[flag](number))


def get_flag(name: str) -> int:
    return ZE[f"ZE_MUTABLE_COMMAND_EXP_FLAG_{name}"]


@rule(UPDATE, "refuses an unknown identifier, and makes no change of the call")
def test_unknown_identifier(
    make: ZEObjects, ze: ZECalls, out: Ints, kernel: int, queue: int
) -> None:
    made, number = make.closed(kernel, 2)
    refuse(ze, made, argument(number, 1, c_int32(9)), argument(number + 1, 1, c_int32(9)))
    make.check_result(queue, made, out, 1, 1)


@rule(UPDATE, "refuses an argument that the kernel does not have")
def test_argument_index(make: ZEObjects, ze: ZECalls, out: Ints, kernel: int, queue: int) -> None:
    made, number = make.closed(kernel, 2)
    refuse(ze, made, argument(number, 1, c_int32(9)), argument(number, 2, c_int32(9)))
    make.check_result(queue, made, out, 1, 1)


@rule(UPDATE, "refuses an argument of another size")
def test_argument_size(make: ZEObjects, ze: ZECalls, out: Ints, kernel: int, queue: int) -> None:
    made, number = make.closed(kernel, 2)
    refuse(ze, made, argument(number, 1, c_int16(9)))
    refuse(ze, made, argument(number, 0, c_int32(9)))
    make.check_result(queue, made, out, 1, 1)


@rule(UPDATE, "refuses a struct that is not a change")
def test_struct(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made, _ = make.closed(kernel, 2)
    refuse(ze, made, new("ze_device_mem_alloc_desc_t"))


@rule(UPDATE, "refuses flags, which are reserved")
def test_reserved_flags(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made, number = make.closed(kernel, 2)
    desc = chained(argument(number, 1, c_int32(2)))
    desc.flags = 1
    ze.refuses("INVALID_ENUMERATION", UPDATE, made, desc)


@rule(UPDATE, "refuses NULL")
def test_null(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made, _ = make.closed(kernel, 2)
    ze.refuses("INVALID_NULL_HANDLE", UPDATE, None, chained())
    ze.refuses("INVALID_NULL_POINTER", UPDATE, made, None)


@rule(UPDATE, "refuses a list that is not mutable")
def test_list_is_not_mutable(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made = make.list()
    make.launch(made, kernel, 2)
    make.close_list(made)
    refuse(ze, made, argument(1, 1, c_int32(2)))


@rule(UPDATE, "refuses a list that was never closed")
def test_open_list(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made = make.list(mutable=True)
    number = make.next_id(made)
    make.launch(made, kernel, 2)
    refuse(ze, made, argument(number, 1, c_int32(2)))


@rule("zeCommandQueueExecuteCommandLists", "refuses a list that was changed and not closed again")
def test_close_after_update(
    make: ZEObjects, ze: ZECalls, out: Ints, kernel: int, queue: int
) -> None:
    made, number = make.closed(kernel, 2)
    ze.ok(UPDATE, made, chained(argument(number, 1, c_int32(2))))
    routine = "zeCommandQueueExecuteCommandLists"
    ze.refuses("INVALID_ARGUMENT", routine, queue, 1, handles(made), None)
    make.close_list(made)
    make.check_result(queue, made, out, 2, 2)


@rule(NEXT, "refuses a list that is not mutable, and one that is closed")
def test_next_identifier(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    number, desc = ctypes.c_uint64(), new("ze_mutable_command_id_exp_desc_t")
    made, _ = make.closed(kernel, 2)
    for one in (make.list(), made):
        ze.refuses("INVALID_ARGUMENT", NEXT, one, desc, number)


@rule(NEXT, "refuses NULL and unknown flags")
def test_next_identifier_null(make: ZEObjects, ze: ZECalls, mutable: int) -> None:
    number, desc = ctypes.c_uint64(), new("ze_mutable_command_id_exp_desc_t", flags=1 << 30)
    made = make.list(mutable=True)
    ze.refuses("INVALID_NULL_POINTER", NEXT, made, None, number)
    ze.refuses("INVALID_ENUMERATION", NEXT, made, desc, number)


@rule(SIGNAL, "refuses an identifier that did not ask for it")
def test_signal_flag(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    (event,) = make.events()
    made, number = make.closed(kernel, 2, get_flag("KERNEL_ARGUMENTS"))
    ze.refuses("INVALID_ARGUMENT", SIGNAL, made, number, event)


@rule(SIGNAL, "refuses an event of another kind of pool")
def test_signal_kind(make: ZEObjects, ze: ZECalls, mutable: int, kernel: int) -> None:
    needs(mutable, "SIGNAL_EVENT")
    (event,), (timed,) = make.events(), make.events(flags=1 | 4)
    made, number = make.closed(kernel, 2, signal=event)
    ze.refuses("INVALID_ARGUMENT", SIGNAL, made, number, timed)


@rule(WAITS, "refuses another number of events")
def test_wait_count(make: ZEObjects, ze: ZECalls, mutable: int, kernel: int) -> None:
    needs(mutable, "WAIT_EVENTS")
    first, second = make.events(2)
    made, number = make.closed(kernel, 2, waits=(first,))
    ze.refuses("INVALID_SIZE", WAITS, made, number, 2, handles(first, second))


@rule(WAITS, "refuses an identifier that did not ask for it")
def test_wait_flag(make: ZEObjects, ze: ZECalls, kernel: int) -> None:
    made, number = make.closed(kernel, 2, get_flag("KERNEL_ARGUMENTS"))
    ze.refuses("INVALID_ARGUMENT", WAITS, made, number)


@pytest.fixture
def twice(make: ZEObjects, mutable: int) -> int:
    """The kernel `twice`. The case is unsupported if a command cannot change its kernel."""
    needs(mutable, "KERNEL_INSTRUCTION")
    return make.kernel("twice")


@pytest.fixture
def alternatives(make: ZEObjects, kernel: int, twice: int) -> tuple[int, int]:
    """A closed list of a launch that may become `twice`, and its identifier."""
    flags = get_flag("KERNEL_ARGUMENTS") | get_flag("GROUP_COUNT") | get_flag("KERNEL_INSTRUCTION")
    return make.closed(kernel, 2, flags, kernel, twice)


def give_kernel(number: int, kernel: int) -> tuple[int, Any, Any]:
    """Return arguments that give a command another kernel."""
    return 1, byref(ctypes.c_uint64(number)), handles(kernel)


@rule(NEXT, "refuses to let kernels change, since it is given none")
def test_next_identifier_without_kernels(make: ZEObjects, ze: ZECalls, twice: int) -> None:
    flags = get_flag("KERNEL_INSTRUCTION")
    number, desc = ctypes.c_uint64(), new("ze_mutable_command_id_exp_desc_t", flags=flags)
    made = make.list(mutable=True)
    ze.refuses("INVALID_ARGUMENT", NEXT, made, desc, number)


@rule(KERNELS, "refuses a kernel that was not announced")
def test_other_kernel(make: ZEObjects, ze: ZECalls, alternatives: tuple[int, int]) -> None:
    made, number = alternatives
    other = make.kernel("sizes")
    ze.refuses("INVALID_KERNEL_HANDLE", KERNELS, made, *give_kernel(number, other))


@rule(KERNELS, "refuses an identifier that did not ask for it")
def test_kernel_flag(make: ZEObjects, ze: ZECalls, kernel: int, twice: int) -> None:
    made, number = make.closed(kernel, 2, get_flag("KERNEL_ARGUMENTS"))
    ze.refuses("INVALID_ARGUMENT", KERNELS, made, *give_kernel(number, twice))


@rule(KERNELS, "refuses a kernel after another change of its command")
def test_kernel_after_all_else(ze: ZECalls, alternatives: tuple[int, int], twice: int) -> None:
    made, number = alternatives
    ze.ok(UPDATE, made, chained(group_count(number, 1)))
    ze.refuses("INVALID_ARGUMENT", KERNELS, made, *give_kernel(number, twice))


#: What another kernel needs, without one part of it.
INCOMPLETE: dict[str, Callable[[int, Ints], list[Any]]] = {
    "an argument": lambda number, _: [group_count(number, 2)],
    "a group count": lambda number, out: [argument(number, 0, out.pointer)],
}


@pytest.mark.parametrize(
    "lacks", each(INCOMPLETE, "zeCommandListClose", "refuses a launch whose new kernel lacks {}")
)
def test_new_kernel_lacks(
    lacks: str, ze: ZECalls, out: Ints, alternatives: tuple[int, int], twice: int
) -> None:
    made, number = alternatives
    ze.ok(KERNELS, made, *give_kernel(number, twice))
    ze.ok(UPDATE, made, chained(*INCOMPLETE[lacks](number, out)))
    ze.refuses("INVALID_ARGUMENT", "zeCommandListClose", made)


#: Changes of a command that is not there.
UNKNOWN: dict[str, Callable[[int, int], tuple[Any, ...]]] = {
    SIGNAL: lambda number, _: (number, None),
    WAITS: lambda number, _: (number, 0, None),
    KERNELS: give_kernel,
}


@pytest.mark.parametrize("routine", each(UNKNOWN, "{}", "refuses an unknown identifier"))
def test_no_such_command(
    routine: str, ze: ZECalls, alternatives: tuple[int, int], twice: int
) -> None:
    made, number = alternatives
    ze.refuses("INVALID_ARGUMENT", routine, made, *UNKNOWN[routine](number + 1, twice))


@rule("zeCommandListCreate", "refuses flags of a mutable list, which are reserved")
def test_mutable_list_flags(make: ZEObjects, ze: ZECalls, mutable: int) -> None:
    chained_desc = new("ze_mutable_command_list_exp_desc_t", flags=1)
    desc, made = new("ze_command_list_desc_t", pNext=chained_desc), ctypes.c_void_p()
    given = make.context, make.device, byref(desc), byref(made)
    ze.refuses("INVALID_ENUMERATION", "zeCommandListCreate", *given)
