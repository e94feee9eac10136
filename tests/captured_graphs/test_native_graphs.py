"""What a driver's own command-buffers cannot hold is replayed, and explain() says so."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from fairlead.captured_graphs.context import capture


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
