"""The driver's own command-buffers under the reference adapter: what they refuse, and where they
are left alone."""

from __future__ import annotations

import ctypes
from typing import Any

import psutil
import pytest
from helpers.command_bench import COUNT, Bench, bumped, explain, pointer, sizes, update, value

from fairlead.icd.command_buffer.driver_command_buffer import Support, find_support
from fairlead.plugins.opencl.core import adapter as reference


def support(bench: Bench) -> Support | None:
    return find_support(reference.objects.list_owned("ur_device_handle_t")[bench.device].cl)


@pytest.mark.parametrize("what", ["no local size", "dimensions", "half of it"])
def test_an_update_that_is_refused_changes_nothing(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`half of it` is what Intel's driver does: it keeps, of an update that it refuses, what comes
    before the refused part."""
    buffer, one = bench.buffer(updatable=True), {"local_size": sizes(1), "handle": True}
    commands = [
        bench.launch(buffer, "bump", pointer(bench.address), value(add), **one)[1] for add in (1, 2)
    ]
    code = bench.ur("urCommandBufferGetNativeHandleExp", buffer, ctypes.c_void_p())
    found, original, calls = support(bench), Support.function, list[int]()
    if found is None or found.mutable is None:
        assert code == "UNSUPPORTED_FEATURE"
        bench.ur.ok("urCommandBufferReleaseExp", buffer)
        return
    bench.finalize(buffer)

    def function(support: Support, name: str) -> Any:
        driver = original(support, name)

        def half(cl: int, count: int, kinds: Any, configs: Any) -> int:
            calls.append(count)
            given = cl, count - 1, kinds, configs
            return driver(cl, count, kinds, configs) if len(calls) > 1 else driver(*given) or -6

        return half if what == "half of it" and name == "clUpdateMutableCommandsKHR" else driver

    monkeypatch.setattr(Support, "function", function)
    good = update(
        commands[0],
        values={1: ctypes.c_int(100)},
        pNewGlobalWorkSize=sizes(8),
        pNewLocalWorkSize=sizes(2),
    )
    two = {
        "newWorkDim": 2,
        "pNewGlobalWorkOffset": sizes(0, 0),
        "pNewGlobalWorkSize": sizes(2, 2),
        "pNewLocalWorkSize": sizes(1, 1),
    }
    bad, expected = {
        "no local size": (
            update(commands[1], values={1: ctypes.c_int(7)}, pNewGlobalWorkSize=sizes(4)),
            "INVALID_VALUE",
        ),
        "dimensions": (update(commands[1], **two), "INVALID_VALUE"),
        "half of it": (update(commands[1], values={1: ctypes.c_int(7)}), "OUT_OF_HOST_MEMORY"),
    }[what]
    assert bench.update(buffer, good, bad) == expected
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)
    bench.reset()
    assert bench.update(buffer, update(commands[0], values={1: ctypes.c_int(5)})) == "SUCCESS"
    assert bench.run(buffer) == bumped(list(range(COUNT)), 5, 2)


@pytest.mark.parametrize("mode", ["auto", "replay"])
def test_enqueues_and_updates_take_no_memory(
    bench: Bench, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Intel's own command-buffers they do, 2 KB a command: whoever does not ask for these does
    not get them, however fast they are."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", mode)
    buffer, process = bench.buffer(updatable=True), psutil.Process()
    commands = [
        bench.launch(buffer, "bump", pointer(bench.address), value(add), handle=True)[1]
        for add in range(64)
    ]
    bench.finalize(buffer)

    def work(times: int) -> int:
        for turn in range(times):
            got = bench.update(buffer, update(commands[turn % 64], values={1: ctypes.c_int(turn)}))
            assert got == "SUCCESS"
            bench.run(buffer)
        return process.memory_info().rss

    before = work(50)
    assert work(400) - before < 8 << 20  # of 50 MiB that it would be
    found = support(bench)
    said = explain(buffer, bench.queue)
    assert mode != "auto" or found is None or found.mutable is None or found.defect in said
