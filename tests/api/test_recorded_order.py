"""The order of recorded commands: queues, events, and what the host waited for."""

from __future__ import annotations

from typing import Any

from fairlead.graph_files.order import RecordedOrder

ONE, TWO, FREE = 1, 2, 3  # queues; the last one is out of order


class Enqueued:
    """Commands that are given to an order, as a recording gives them."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.order = RecordedOrder(self.commands)

    def add(self, queue: int, *waits: int, event: int = 0, **kind: bool) -> list[int]:
        """Enqueue a command; what it comes after."""
        after = self.order.place(queue, queue != FREE, waits, **kind)
        self.commands.append({"op": "kernel", "after": after})
        self.order.note_command(queue, event)
        return after


def test_a_queue_in_order_is_a_chain() -> None:
    enqueued = Enqueued()
    assert enqueued.add(ONE, event=7) == []
    assert enqueued.add(ONE, 7) == [0]
    assert enqueued.add(ONE, 7, event=8) == [1]  # its own events say nothing new
    assert enqueued.add(TWO, 7, 8) == [2]  # of another queue the last one counts
    assert enqueued.add(TWO) == [3]


def test_events_out_of_order() -> None:
    enqueued = Enqueued()
    assert enqueued.add(FREE, event=7) == []
    assert enqueued.add(FREE, event=8) == []
    assert enqueued.add(FREE, 7, 8) == [0, 1]
    assert enqueued.add(FREE, 99) == []  # an event that nobody has recorded


def test_markers_and_barriers_out_of_order() -> None:
    enqueued = Enqueued()
    enqueued.add(FREE)
    enqueued.add(FREE)
    assert enqueued.add(FREE, is_place=True) == [0, 1]
    assert enqueued.add(FREE) == []  # a marker holds nothing up
    assert enqueued.add(FREE, is_place=True, is_barrier=True) == [0, 1, 2, 3]
    assert enqueued.add(FREE) == [4]
    assert enqueued.add(FREE, is_place=True) == [4, 5]


def test_what_the_host_waited_for_comes_before() -> None:
    enqueued = Enqueued()
    enqueued.add(ONE)
    assert enqueued.add(TWO) == []
    enqueued.order.finish(ONE, True)
    assert enqueued.add(TWO) == [0, 1]
    assert enqueued.add(TWO) == [2]  # that is known by now
    enqueued.add(ONE, event=7)
    enqueued.order.wait(7)
    assert enqueued.add(TWO) == [3, 4]
    enqueued.order.wait_for_last(TWO, True)
    assert enqueued.add(ONE) == [4, 5]


def test_waiting_for_a_queue_out_of_order_is_a_place() -> None:
    enqueued = Enqueued()
    enqueued.add(FREE)
    enqueued.add(FREE)
    enqueued.order.finish(FREE, False)
    assert enqueued.commands[2] == {"op": "marker", "after": [0, 1]}
    assert enqueued.add(FREE) == [2] and enqueued.add(ONE) == [2]


def test_what_lies_between_separates() -> None:
    enqueued = Enqueued()
    enqueued.add(ONE, event=7)
    enqueued.add(TWO)
    enqueued.order.add_gap()
    assert enqueued.order.find_predecessors_of_write() == [2]
    assert enqueued.commands[2] == {"op": "marker", "after": [0, 1]}
    enqueued.commands.append({"op": "write", "after": [2]})
    enqueued.order.note_write()
    assert enqueued.add(TWO, 7) == [3]  # the event may be another one's by now
    enqueued.order.add_gap()
    assert len(enqueued.commands) == 5  # at the end nothing follows, and no place is needed
