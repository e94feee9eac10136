"""A captured graph as the driver's command-buffer has the results of its replay.

explain() says which of the two it is.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from helpers.programs import build_once

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer.driver_command_buffer import find_support

SOURCE = (
    "__kernel void bump(__global int *cell, int number) { cell[get_global_id(0)] = "
    "3 * cell[get_global_id(0)] + number; }"
)
COUNT = 64


@pytest.mark.parametrize("mode", ["native", "replay", "auto"])
@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
def test_a_graph_gives_the_same_either_way(
    request: pytest.FixtureRequest,
    context: cl.Context,
    device: cl.Device,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    kind: str,
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", mode)
    queue = request.getfixturevalue(kind)
    kernel = build_once(context, SOURCE).bump
    first, second = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * COUNT) for _ in range(2))
    cl.enqueue_fill_buffer(queue, second, np.zeros(1, np.int32), 0, 4 * COUNT).wait()
    with capture(queue) as graph:
        event = cl.enqueue_fill_buffer(queue, first, np.ones(1, np.int32), 0, 4 * COUNT)
        for number in range(3):
            event = kernel(queue, (COUNT,), None, first, np.int32(number), wait_for=[event])
        event = cl.enqueue_copy(queue, second, first, wait_for=[event], byte_count=2 * COUNT)
        kernel(queue, (COUNT // 4,), None, second, np.int32(7), wait_for=[event])
    loop = graph.finalize()
    for times in (1, 2):
        loop.replay(queue, times).wait()
    value = 1
    for number in range(3):
        value = 3 * value + number
    got = np.empty(COUNT, np.int32)
    cl.enqueue_copy(queue, got, second)
    expected = [3 * value + 7] * (COUNT // 4) + [value] * (COUNT // 4) + [0] * (COUNT // 2)
    assert got.tolist() == expected
    said = loop.explain(queue)
    if mode == "native" and find_support(device.int_ptr) is not None:
        assert "  native  cl_khr_command_buffer; FAIRLEAD_COMMAND_BUFFER=native" in said
    if mode == "replay":
        assert (
            "  native  not chosen: FAIRLEAD_COMMAND_BUFFER=replay" in said and "  replay  " in said
        )


def test_what_the_extension_lacks_is_replayed(
    queue: cl.CommandQueue, context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "native")
    buffer, host = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4), np.array([5], np.int32)
    with capture(queue) as graph:
        cl.enqueue_copy(queue, buffer, host, is_blocking=False)
    loop = graph.finalize()
    loop.replay(queue).wait()
    got = np.empty(1, np.int32)
    cl.enqueue_copy(queue, got, buffer)
    assert got[0] == 5
    said = loop.explain(queue)
    assert "replay" in said and ("write" in said or "has no cl_khr_command_buffer" in said)
