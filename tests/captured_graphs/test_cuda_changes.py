"""The GPU changes between OpenCL and CUDA: what that costs counts where it happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cuda_program import Program

from fairlead.captured_graphs.context import capture
from fairlead.icd._native import ffi, lib
from fairlead.icd.command_buffer.engines import cuda as cuda_engine
from fairlead.icd.command_buffer.engines.cuda import BuiltCuda

COUNT = lib.FL_CUDA_MEASURED


@pytest.fixture
def built(program: Program) -> Iterator[BuiltCuda]:
    """A graph of ten launches, which the driver would take 50 µs for."""
    y = program.buffer(1)
    with capture(program.queue) as graph:
        for _ in range(10):
            program.scale(y, 1, 1)
    loop = graph.finalize()
    loop.replay(program.queue, wait=True)
    made = next(one for one in gc.get_objects() if isinstance(one, BuiltCuda) and one._count == 10)
    made._launch_seconds = 5e-6
    yield made
    loop.replay(program.queue, wait=True)  # it is still there


def decide(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> dict[int, str]:
    """What is left to the driver after replays of so many µs each."""

    def tell(graph: object, times: Any, ran: Any) -> int:
        for number, time in enumerate(taken):
            times[number], ran[number] = 1000 * time, 1000 * on_device
        return 1

    fake = SimpleNamespace(fl_cuda_times=tell, FL_CUDA_MEASURED=COUNT)
    with monkeypatch.context() as patched:
        patched.setattr(cuda_engine, "lib", fake)
        found = built.find_slower_commands()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(
    ("taken", "on_device"),
    [
        ([25] * 8, 10),
        ([2000, *[25] * 7], 10),  # the first one, which prepares
        ([25] * 5 + [800] + [25] * 2, 10),  # one that was interrupted
        ([330] * 8, 300),  # long kernels are no change
        ([160, *[85] * 7], 10),  # a slow host
    ],
)
def test_a_loop_without_changes_is_for_cuda(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> None:
    assert decide(built, monkeypatch, taken, on_device) == {}


@pytest.mark.parametrize(
    ("taken", "on_device"),
    [
        ([165] * 8, 10),
        ([440] * 8, 300),  # the driver's launches would be hidden behind the kernels
        ([25, 165] * 4, 10),
    ],
)
def test_what_changes_cost_more_than_launches_is_for_the_driver(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch, taken: list[int], on_device: int
) -> None:
    found = decide(built, monkeypatch, taken, on_device)
    assert list(found) == list(range(10))
    assert "the GPU changes from OpenCL to CUDA and back for" in found[0]


def test_changes_count_as_often_as_they_happen(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    built._launch_seconds = 10e-6  # the driver would take 90 µs more than the device
    seldom, often = [25, 165, 165, *[25] * 5], [25, 165, 165, 165, *[25] * 4]
    assert decide(built, monkeypatch, seldom, 10) == {}
    assert len(decide(built, monkeypatch, often, 10)) == 10


def test_replays_are_measured_in_all_and_on_the_device(built: BuiltCuda) -> None:
    taken, ran = ffi.new("uint64_t[]", COUNT), ffi.new("uint64_t[]", COUNT)
    graph = built._graph
    for _ in range(2):  # the second time after a trial
        assert not lib.fl_cuda_times(graph, taken, ran)
        assert built.find_slower_commands() is None
        assert not lib.fl_run_cuda(graph, COUNT)
        for _ in range(COUNT - 1):
            assert not lib.fl_run_cuda(graph, 1)
        assert lib.fl_cuda_times(graph, taken, ran)
        assert all(0 < ran[number] <= taken[number] for number in range(COUNT))
        built.measure_again()


def test_without_events_no_change_is_seen(
    built: BuiltCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decide(built, monkeypatch, [165] * 8, 2**64 // 1000 - 1) == {}
