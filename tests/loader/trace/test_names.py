"""Names of kernels and queues, values of arguments, and the clock of devices."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from fairlead.icd.abi import OPENCL
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
