"""Graph arguments of mutable lists: an extension of NPUs, whose graphs no list has here.

That the device does not have the flag is in test_mutable.py."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from typing import Final

import pytest
from helpers.ze_bench import ZeBench, argument
from helpers.ze_calls import array, new

GRAPH_ARGUMENTS: Final = 128


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (GRAPH_ARGUMENTS, "UNSUPPORTED_ENUMERATION"),
        (GRAPH_ARGUMENTS | 1, "UNSUPPORTED_ENUMERATION"),
        (2 * GRAPH_ARGUMENTS, "INVALID_ENUMERATION"),
    ],
)
def test_a_command_that_asks_for_them_is_refused(bench: ZeBench, flags: int, code: str) -> None:
    """The list goes on as if nobody had asked: what is appended next has no identifier."""
    made, number = bench.list(mutable=True), ctypes.c_uint64(7)
    kernel = bench.kernel("add", bench.ints(0).pointer, c_int(1))
    desc = new("ze_mutable_command_id_exp_desc_t", flags=flags)
    given = made, byref(desc), byref(number)
    assert bench.ze.code("zeCommandListGetNextCommandIdExp", *given) == code
    given = made, byref(desc), 1, array(kernel), byref(number)
    assert bench.ze.code("zeCommandListGetNextCommandIdWithKernelsExp", *given) == code
    assert number.value == 7
    assert bench.next_id(made) == 1
    bench.launch(made, kernel)
    bench.finish(made)


def test_a_change_of_one_is_refused_and_nothing_changes(bench: ZeBench) -> None:
    out, made = bench.ints(0), bench.list(mutable=True)
    command = bench.next_id(made)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)))
    bench.ze.ok("zeCommandListClose", made)
    graph = new("ze_mutable_graph_argument_exp_desc_t", commandId=command)
    for changes in ((graph,), (argument(command, 1, c_int(5)), graph)):
        assert bench.update(made, *changes) == "INVALID_ARGUMENT"
    bench.run(made)
    assert out[0] == 1
    bench.ze.ok("zeCommandListDestroy", made)
