"""Dispatch tables: a function by its name, layers in front of it, and observers of new tables."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
from typing import Any

import pytest

from fairlead.loader.base import layers
from fairlead.loader.base.layers import Layer
from fairlead.loader.base.never_copied import CopyError
from fairlead.loader.base.table import POINTER_SIZE, DispatchTable, list_tables, unwatch, watch
from fairlead.loader.ur.abi import UR

FINISH = UR.functions["urQueueFinish"]
UNSUPPORTED = next(
    code for code, (name, _) in UR.errors.items() if name == "UR_RESULT_ERROR_UNSUPPORTED_FEATURE"
)


def table(answer: int | None = None) -> tuple[DispatchTable, Any]:
    """A table in which urQueueFinish answers a number, and the array of its slots."""
    address, slots = layers.make_table(UR)
    if answer is not None:
        slots.keep = FINISH.prototype(lambda queue: answer)
        slots[FINISH.slot] = ctypes.cast(slots.keep, ctypes.c_void_p).value
    return DispatchTable(UR, address, label="a table"), slots


def test_a_function_is_called_by_its_name() -> None:
    one, _ = table(3)
    assert one.urQueueFinish(0x10) == 3
    assert one.urQueueFlush(0x10) == UNSUPPORTED


def test_the_second_use_of_a_function_looks_nothing_up() -> None:
    one, _ = table(3)
    assert one.urQueueFinish is one.urQueueFinish
    assert "urQueueFinish" in vars(one)


def test_a_name_that_is_no_function() -> None:
    one, _ = table()
    with pytest.raises(AttributeError, match="no slot of the dispatch table is called urNothing"):
        one.urNothing()
    assert not hasattr(one, "clFinish")


def test_a_slot_that_is_null() -> None:
    one, slots = table()
    slots[FINISH.slot] = None
    assert one.get_pointer(FINISH.slot or 0) == 0
    with pytest.raises(AttributeError, match="the slot of urQueueFinish is NULL in this table"):
        one.urQueueFinish(1)


def test_a_slot_that_changed_is_seen_after_refresh() -> None:
    one, slots = table(3)
    assert one.urQueueFinish(1) == 3
    slots[FINISH.slot] = layers.make_stubs(UR, "unsupported")[FINISH.slot or 0]
    one.refresh()
    assert one.urQueueFinish(1) == UNSUPPORTED


def test_layers_are_on_top_of_each_other_and_leave_no_trace() -> None:
    one, _ = table(3)
    before = one.urQueueFinish
    assert one.top == one.address
    layer = Layer(UR, one.top)
    one.push(layer)
    layer.handle(before=lambda slot, arguments: 8)
    assert one.top == layer.address and one.layers == (layer,)
    assert one.urQueueFinish(1) == 8 and before(1) == 3
    assert one.get_pointer(FINISH.slot or 0) == ctypes.cast(before, ctypes.c_void_p).value, (
        "the table itself is untouched"
    )
    one.remove(layer)
    layer.release()
    assert one.layers == () and one.top == one.address and one.urQueueFinish(1) == 3


class Front:
    """A layer that is nothing but the address of another table."""

    def __init__(self, address: int, next: int) -> None:
        self.address, self.next = address, next

    def redirect(self, next: int) -> None:
        self.next = next

    def release(self) -> None:
        pass


def test_layers_are_taken_out_in_any_order() -> None:
    one, _ = table(1)
    kept = [table(number) for number in (4, 5)]
    fronts = [Front(kept[0][0].address, one.address), Front(kept[1][0].address, kept[0][0].address)]
    for front in fronts:
        one.push(front)
    assert one.urQueueFinish(1) == 5
    one.remove(fronts[0])
    assert one.urQueueFinish(1) == 5 and one.layers == (fronts[1],)
    assert fronts[1].next == one.address, "what was taken out is led past"
    one.remove(fronts[0])
    assert one.layers == (fronts[1],), "one that is not there is no error"
    one.remove(fronts[1])
    assert one.urQueueFinish(1) == 1


def test_tables_that_live_and_tables_that_are_made() -> None:
    made: list[DispatchTable] = []
    watch(made.append)
    try:
        one, _ = table()
        assert made == [one] and one in list_tables()
    finally:
        unwatch(made.append)
    other, _ = table()
    assert made == [one] and other in list_tables()
    address = other.address
    del other
    gc.collect()
    assert address not in {living.address for living in list_tables()}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_table_is_not_copied(duplicate: Any) -> None:
    with pytest.raises(CopyError):
        duplicate(DispatchTable(UR, layers.make_table(UR)[0]))


def test_a_table_tells_whose_it_is() -> None:
    one, _ = table()
    assert repr(one) == f"<DispatchTable a table at {one.address:#x}>"
    assert repr(DispatchTable(UR, one.address)) == f"<DispatchTable at {one.address:#x}>"
    assert ctypes.sizeof(ctypes.c_void_p) == POINTER_SIZE
