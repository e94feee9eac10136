"""Lists with branches: a queue in order runs them at the same time."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls

from fairlead.icd.command_buffer import direct_device
from fairlead.icd.drivers import platforms
from fairlead.plugins.level_zero import contexts
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.lists import ZeCommandList
from fairlead.plugins.level_zero.queues import ZeQueue

MEASURED = 40  # runs after which the engine knows what it shares


def explain(bench: ZeBench, made: int) -> str:
    """Return how the only part of a list runs."""
    list_ = driver.objects.list_owned(ZeCommandList.type)[made]
    queue = driver.objects.list_owned(ZeQueue.type)[bench.queue]
    (part,) = list_.recording.list_parts()
    return part.buffer.explain(queue.stream.cl)


def copy(bench: ZeBench, made: int, target: int, source: int, size: int, *waits: int) -> int:
    """Append a copy after others, and return the event of its end."""
    (end,) = bench.events(1)
    bench.copy(made, target, source, size, end, *waits)
    return end


@pytest.mark.parametrize("in_order", [False, True])
def test_threads_share_the_branches_of_a_list(
    ze: ZeCalls, direct_pocl: Driver, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """Two branches of two copies. An in-order list has none."""
    monkeypatch.setattr(direct_device, "_LEAST", 0)
    monkeypatch.setattr(direct_device, "_PERCENT", 1 << 30)  # it is always worth it
    monkeypatch.setattr(direct_device, "query_compute_units", lambda device: 2)
    monkeypatch.setattr(direct_device, "count_cores", lambda: 2)
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if direct_pocl.has(one))
    monkeypatch.setattr(contexts, "_shared", {})  # a new cl_context, of which nothing is known
    bench = ZeBench(ze, ze.listed("zeDriverGet")[place])
    numbers, made = bench.ints(7, 0, 0, 0, 0), bench.list(in_order=in_order)
    at = [numbers.address + 4 * index for index in range(5)]
    for middle in (1, 3):
        end = copy(bench, made, at[middle], at[0], 4)
        copy(bench, made, at[middle + 1], at[middle], 4, end)
    bench.ze.ok("zeCommandListClose", made)
    for _ in range(MEASURED):
        bench.run(made)
    numbers[0] = 9
    bench.run(made)
    assert numbers.all == [9] * 5
    said = explain(bench, made)
    assert "one native kernel" in said
    assert ("2 threads run 4 commands together" in said) != in_order
    bench.ze.ok("zeCommandListDestroy", made)
    bench.close()
