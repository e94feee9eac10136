"""Command-buffers that cannot be made leave nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.icd.errors import OpenCLError
from fairlead.plugins.command_buffer_layer import buffers, remap
from fairlead.plugins.command_buffer_layer.buffers import LayerCommandBuffer, LayerQueue
from fairlead.plugins.command_buffer_layer.entries import make_error


class Layer:
    """What C does for command-buffers. `handles` are those that it gives, and the last free one."""

    def __init__(self, *handles: int) -> None:
        self.handles, self.freed = list(handles), list[int]()

    def new_handle(self, kind: int, like: int) -> int:
        return self.handles.pop(0)

    def free_handle(self, handle: int) -> None:
        self.freed.append(handle)

    def set_route(self, handle: int, route: Any) -> None:
        pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of the driver."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(buffers, "call", lambda *arguments: made.append(arguments) or 0)
    return made


@pytest.fixture
def queue() -> LayerQueue:
    found = LayerQueue.__new__(LayerQueue)
    found.handle, found.context, found.device, found.properties, found.in_order = 3, 1, 2, 0, True
    return found


def test_a_command_buffer_without_a_handle_keeps_no_queue(
    calls: list[tuple[Any, ...]], queue: LayerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers, "_state", Layer(0))
    with pytest.raises(MemoryError):
        LayerCommandBuffer([queue], None)
    assert calls == [(3, "clRetainCommandQueue"), (3, "clReleaseCommandQueue")]


def test_a_copy_that_fails_is_closed(
    calls: list[tuple[Any, ...]], queue: LayerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Layer(0x100, 0x200)
    monkeypatch.setattr(buffers, "_state", layer)
    old = LayerCommandBuffer([queue], None)
    old.runner = cast("Any", object())  # it is finalized

    def fail(self: LayerCommandBuffer) -> None:
        raise MemoryError

    monkeypatch.setattr(LayerCommandBuffer, "finalize", fail)
    with pytest.raises(MemoryError):
        remap.make_remapped(old, [queue])
    assert layer.freed == [0x200] and set(buffers._buffers) == {0x100}
    old.runner = None
    old.close()


@pytest.mark.parametrize("wanted", [False, True])
def test_the_events_of_an_enqueue_that_fails_at_its_end_are_released(
    calls: list[tuple[Any, ...]], queue: LayerQueue, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    monkeypatch.setattr(buffers, "_state", Layer(0x100))

    class Runner:
        native = SimpleNamespace(holds_events=False)

        def enqueue(self, *arguments: Any, **options: Any) -> tuple[int, int, int, list[int]]:
            return 0, 50, -1, [60]

    def enqueue_barrier(handle: int, waits: list[int]) -> int:
        if 50 in waits:
            raise make_error("CL_OUT_OF_RESOURCES", "")
        return 40

    monkeypatch.setattr(buffers, "enqueue_barrier", enqueue_barrier)
    other = LayerQueue.__new__(LayerQueue)
    other.__dict__.update(vars(queue) | {"handle": 4})
    buffer = LayerCommandBuffer([queue, other], None)
    buffer.runner = cast("Any", Runner())
    calls.clear()
    with pytest.raises(OpenCLError):
        buffer.enqueue([], [], wanted)
    assert sorted(calls) == [(40, "clReleaseEvent"), (50, "clReleaseEvent"), (60, "clReleaseEvent")]
