"""Names of kernels and queues, values of arguments, and the clock of devices.

Counters of a trace: commands in flight, and bytes moved, over time.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.abi import OPENCL
from fairlead.loader.trace.counters import find_counters, make_counter_events
from fairlead.loader.trace.device import (
    DeviceCommand,
    KernelRow,
    _convert_clocks,
    make_kernel_table,
)
from fairlead.loader.trace.environment import Wanted
from fairlead.loader.trace.names import Names
from fairlead.loader.trace.printing import TracedCall, format_kernel_argument


def call(name: str, time: int, *arguments: int, result: int = 0, **pieces: bytes) -> TracedCall:
    function = OPENCL.functions[name]
    names = [parameter.name for parameter in function.parameters]
    read = {names.index(parameter): data for parameter, data in pieces.items()}
    words = arguments + (0,) * (len(names) - len(arguments))
    return TracedCall(OPENCL, function, "", 1, time, time + 1, words, result, read)


def test_a_handle_that_is_used_again_has_the_name_of_its_time() -> None:
    calls = [
        call("clCreateKernel", 10, 1, 2, result=77, kernel_name=b"first\0"),
        call("clCreateKernel", 20, 1, 2, result=77, kernel_name=b"second\0"),
        call("clCreateKernel", 30, 1, 2, result=0, kernel_name=b"failed\0"),
        call("clCloneKernel", 40, 77, result=78),
    ]
    names = Names(reversed(calls))
    assert [names.find_kernel(77, time) for time in (12, 19, 22, 99)] == ["first"] * 2 + [
        "second"
    ] * 2
    assert (names.find_kernel(78, 50), names.find_kernel(1, 50)) == ("second", "")
    launch = call("clEnqueueNDRangeKernel", 15, 5, 77)
    assert dict(names.format_arguments(launch))["kernel"] == "0x4d (first)"


def test_queues_are_numbered_in_the_order_of_their_calls() -> None:
    calls = [call("clCreateCommandQueue", time, 1, result=100 + time) for time in (3, 1, 2)]
    names = Names(calls)
    assert [names.find_queue(100 + time, 9) for time in (1, 2, 3)] == [
        "queue 1",
        "queue 2",
        "queue 3",
    ]


def test_a_kernel_that_the_program_asks_for_its_name_has_that_name() -> None:
    function = OPENCL["CL_KERNEL_FUNCTION_NAME"]
    asked = call("clGetKernelInfo", 50, 9, function, 6, 1, param_value=b"sweep\0")
    assert Names([asked]).find_kernel(9, 20) == "sweep"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack("=f", 2.5), "1075838976 or 2.5f"),
        (struct.pack("=i", 7), "7"),
        (struct.pack("=i", -1), "-1"),
        (struct.pack("=d", 0.1), "0x3fb999999999999a or 0.1"),
        (struct.pack("=q", 0x7F00DEADBEEF), "0x7f00deadbeef"),
        (b"\x05", "5"),
        (b"\x01\x02\x03", "3 bytes 010203"),
        (bytes(40), f"40 bytes {'00' * 32}..."),
    ],
)
def test_the_value_of_an_argument_is_what_it_may_be(data: bytes, text: str) -> None:
    assert format_kernel_argument(data) == text


def test_the_clock_of_a_device_is_brought_to_that_of_the_calls() -> None:
    one = DeviceCommand("clEnqueueNDRangeKernel", 1, 5, 1000, 1010, 7, 8, 20, 30, 1, "k", "q")
    two = replace(one, begin=1100, end=1120, queued=107, submitted=108, started=120, ended=130)
    first, second = _convert_clocks([one, two])
    assert 1000 <= first.queued <= 1010 and 1100 <= second.queued <= 1120
    assert first.duration == second.duration == 10 and second.started - first.started == 100
    same = replace(one, queued=1005, submitted=1006, started=1008, ended=1009)
    assert list(_convert_clocks([same])) == [same]


def test_the_table_of_kernels() -> None:
    events = [{"ph": "X", "cat": "device", "name": "k", "dur": duration} for duration in (2, 4, 6)]
    others = [{"ph": "X", "cat": "cl", "name": "clFinish", "dur": 9}, {"ph": "M", "name": "k"}]
    assert make_kernel_table([*events, *others]) == (KernelRow("k", 3, 12000, 4000.0, 2000, 6000),)


def test_patterns_of_names() -> None:
    wanted = Wanted.from_patterns(" clEnqueue*, clFinish,")
    assert wanted.includes("clEnqueueMarker") and wanted.includes("clFinish")
    assert not wanted.includes("clFlush") and Wanted.from_patterns("").includes("anything")


def command(queued: float, ended: float, tid: int = 9, pid: int = 7, **args: Any) -> dict[str, Any]:
    times = {"queued": queued, "ended": ended}
    return {"ph": "X", "cat": "device", "pid": pid, "tid": tid, "args": times | args}


def test_the_values_of_a_known_trace() -> None:
    events = [
        command(1, 5, bytes=100),
        command(2, 5),
        command(3, 9, bytes=20),
        command(9, 9),  # ends as it is queued
        command(4, 6, tid=10),
        {"ph": "X", "cat": "cl", "name": "clFinish", "pid": 7, "tid": 1, "args": {}},
    ]
    assert [(one.tid, one.name, one.points) for one in find_counters(events)] == [
        (9, "commands in flight", [(1, 1), (2, 2), (3, 3), (5, 1), (9, 0)]),
        (9, "bytes moved", [(5, 100), (9, 120)]),
        (10, "commands in flight", [(4, 1), (6, 0)]),
    ]


def test_counters_of_two_queues_have_two_names() -> None:
    """Viewers know counters by their process and name."""
    rows = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"queue": queue}}
        for tid, queue in ((9, "device: queue 1"), (10, "device: queue 2"))
    ]
    found = list(make_counter_events([*rows, command(1, 2, bytes=8), command(1, 3, tid=10)]))
    assert [(one["name"], one["ts"], one["args"]) for one in found] == [
        ("queue 1: commands in flight", 1, {"commands": 1}),
        ("queue 1: commands in flight", 2, {"commands": 0}),
        ("queue 1: bytes moved", 2, {"bytes": 8}),
        ("queue 2: commands in flight", 1, {"commands": 1}),
        ("queue 2: commands in flight", 3, {"commands": 0}),
    ]


spans = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 99)).map(
    lambda one: (min(one[:2]), max(one[:2]), one[2])
)


@given(st.lists(spans, min_size=1))
def test_a_curve_is_what_counting_gives(commands: list[tuple[int, int, int]]) -> None:
    events = [command(begin, end, bytes=size) for begin, end, size in commands]
    curves = {one.name: one.points for one in find_counters(events)}
    flights = curves["commands in flight"]
    counts = [sum(begin <= time < end for begin, end, _ in commands) for time in range(31)]
    assert max((value for _, value in flights), default=0) == max(counts)
    assert all(value >= 0 for _, value in flights)
    assert not flights or flights[-1][1] == 0
    for time, count in enumerate(counts):
        assert next((value for at, value in reversed(flights) if at <= time), 0) == count
    moved = curves.get("bytes moved", [])
    assert (moved[-1][1] if moved else 0) == sum(size for *_, size in commands)
    assert [value for _, value in moved] == sorted(value for _, value in moved)
