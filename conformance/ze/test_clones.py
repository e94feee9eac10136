"""Clones of closed command lists."""

from __future__ import annotations

import ctypes
from ctypes import c_int32

import pytest

from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.ze.calls import ZECalls
from fairlead.conformance.ze.objects import Ints, ZEObjects, argument, needs
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice

CLONE = "zeCommandListCreateCloneExp"
_NAME = "ZE_experimental_command_list_clone"


class Clones:
    """Lists that can be cloned, and their clones. They are destroyed before their sources."""

    def __init__(self, make: ZEObjects) -> None:
        self.make = make

    def list(self, *, mutable: bool = False, in_order: bool = False) -> int:
        """Make a list that can be cloned."""
        flags = ZE["ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE"]
        return self.make.list(mutable=mutable, in_order=in_order, flags=flags)

    def make_storing_list(self, out: Ints, value: int) -> int:
        """Return a closed list that stores a value at the first place."""
        made = self.list()
        self.make.launch(made, self.make.kernel("store", out.pointer, c_int32(value)), 1)
        self.make.close_list(made)
        return made

    def clone(self, source: int) -> int:
        """Clone a closed list."""
        made = self.make.ze.create(CLONE, source)
        self.make.defer(lambda: self.make.ze.number("zeCommandListDestroy", made))
        return made


@pytest.fixture
def clones(make: ZEObjects, chosen: ZEDevice) -> Clones:
    """Clones lists, if the driver has the extension."""
    if _NAME not in chosen.driver.extensions:
        unsupported(f"the driver has no {_NAME}")
    return Clones(make)


@pytest.mark.parametrize("in_order", [False, True])
@rule(CLONE, "a clone does what its source does, as often as it is executed")
def test_same(make: ZEObjects, ze: ZECalls, queue: int, clones: Clones, in_order: bool) -> None:
    first, out = make.ints(3, 4), make.ints(count=2)
    source, pattern = clones.list(in_order=in_order), c_int32(7)
    ze.ok("zeCommandListAppendMemoryCopy", source, out.address, first.address, 8)
    make.barrier(source)
    make.launch(source, make.kernel("twice", out.pointer), 1)
    ze.ok("zeCommandListAppendMemoryFill", source, first.address, pattern, 4, 4)
    make.close_list(source)
    made = clones.clone(source)
    make.check_result(queue, made, out, 6, 4)
    make.check_result(queue, made, out, 14, 4)
    make.check_result(queue, source, out, 14, 4)


@rule(CLONE, "a clone may be made while its source runs, and run beside it")
def test_running(make: ZEObjects, ze: ZECalls, queue: int, clones: Clones) -> None:
    out, (event,) = make.ints(count=1), make.events()
    source, gate, other = clones.make_storing_list(out, 5), make.list(), make.queue()
    make.barrier(gate, 0, event)
    make.close_list(gate)
    make.run(queue, gate, source, wait=False)
    made = clones.clone(source)
    make.check_result(other, made, out, 5)
    out.fill(0)
    ze.ok("zeEventHostSignal", event)
    make.finish(queue)
    equal(out.all, [5], "what the source has written")


@rule(CLONE, "a clone signals and waits for the events of its source")
def test_events(make: ZEObjects, ze: ZECalls, queue: int, clones: Clones) -> None:
    out, (gate, end) = make.ints(count=1), make.events(2)
    source = clones.list()
    make.launch(source, make.kernel("store", out.pointer, c_int32(5)), 1, end, gate)
    make.close_list(source)
    make.run(queue, clones.clone(source), wait=False)
    ze.answers("NOT_READY", "zeEventQueryStatus", end)
    ze.ok("zeEventHostSignal", gate)
    make.finish(queue, end)
    equal(out.all, [5], "what the clone has written")


@rule(CLONE, "a clone is closed, and inherits that it can be cloned, changed and reset")
def test_inherits(make: ZEObjects, ze: ZECalls, queue: int, clones: Clones) -> None:
    out = make.ints(count=2)
    second = clones.clone(clones.clone(clones.make_storing_list(out, 5)))
    make.check_result(queue, second, out, 5, 0)
    ze.ok("zeCommandListReset", second)
    make.launch(second, make.kernel("store", out.pointer, c_int32(6)), 2)
    make.close_list(second)
    make.check_result(queue, clones.clone(second), out, 6, 6)


@rule(CLONE, "a mutable list and its clone are changed alone, by the same identifiers")
def test_mutable(make: ZEObjects, queue: int, clones: Clones, mutable: int) -> None:
    needs(mutable, "KERNEL_ARGUMENTS")
    out, source = make.ints(count=1), clones.list(mutable=True)
    number = make.next_id(source)
    make.launch(source, make.kernel("store", out.pointer, c_int32(1)), 1)
    make.close_list(source)
    make.change(source, argument(number, 1, c_int32(2)))
    made = clones.clone(source)
    make.change(made, argument(number, 1, c_int32(3)))
    make.check_result(queue, source, out, 2)
    make.check_result(queue, made, out, 3)
    make.change(source, argument(number, 1, c_int32(4)))
    make.check_result(queue, made, out, 3)
    make.check_result(queue, source, out, 4)


@rule(CLONE, "refuses NULL")
def test_null(ze: ZECalls, clones: Clones) -> None:
    made = ctypes.c_void_p()
    ze.refuses("INVALID_NULL_HANDLE", CLONE, None, made)
    source = clones.list()
    clones.make.close_list(source)
    ze.refuses("INVALID_NULL_POINTER", CLONE, source, None)
