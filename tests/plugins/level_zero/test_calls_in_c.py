"""Entry points that begin in C: what runs there, and what C and Python learn of each other."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import addressof, byref, c_int, c_short, c_void_p
from pathlib import Path

import pytest
from helpers.entries import asked_of_python, begin_in_c, calls_in
from helpers.support import RunPython
from helpers.ze_bench import ZeBench, argument, group_count
from helpers.ze_calls import array, new

from fairlead.plugins.level_zero import kernels
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.in_c import UNKNOWN


@pytest.fixture
def asked(bench: ZeBench) -> Iterator[list[str]]:
    """The entry points that Python is asked for.

    On Intel's driver it is asked for more with kernels of a binary, whose arguments have no types.
    """
    if not begin_in_c(driver):
        pytest.skip("FAIRLEAD_CALLS=python")
    bench.compiles = True
    with asked_of_python(driver) as names:
        yield names


@pytest.fixture(params=["c", "python"])
def language(request: pytest.FixtureRequest, bench: ZeBench) -> Iterator[str]:
    """Where calls begin."""
    with calls_in(request.param, driver):
        yield request.param


def test_a_launch_like_an_earlier_one_is_appended_in_c(bench: ZeBench, asked: list[str]) -> None:
    out = bench.ints(count=4)
    made, kernel = bench.list(in_order=True), bench.kernel("add", out.pointer, c_int(1))
    bench.launch(made, kernel, 4)
    asked.clear()
    for value in (10, 100):
        bench.set(kernel, 1, c_int(value))
        bench.launch(made, kernel, 2)
    assert not asked
    bench.close_list(made)
    bench.run(made)
    bench.run(made)
    assert out.all == [222, 222, 2, 2]


def test_a_change_of_an_argument_stays_in_c(bench: ZeBench, asked: list[str]) -> None:
    out, other = bench.ints(count=4), bench.ints(count=4)
    made, numbers = bench.list(mutable=True), []
    for _ in range(2):
        numbers.append(bench.next_id(made))
        bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 4)
    bench.close_list(made)
    number, second = numbers
    bench.run(made)
    asked.clear()
    for value in (5, 6):
        assert bench.update(made, argument(number, 1, c_int(value))) == "SUCCESS"
    assert bench.update(made, argument(second, 0, other.pointer)) == "SUCCESS"
    bench.close_list(made)
    assert not asked
    bench.run(made)
    assert (out.all, other.all) == ([8] * 4, [1] * 4)


def test_an_execution_keeps_what_it_had(bench: ZeBench, asked: list[str]) -> None:
    """What runs is not changed by an update, nor by the close after it."""
    out = bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    bench.run(made, wait=False)
    asked.clear()
    assert bench.update(made, argument(number, 1, c_int(70))) == "SUCCESS"
    bench.close_list(made)
    assert not asked
    bench.run(made)
    assert out.all == [71] * 4


def test_appends_of_c_and_python_are_in_their_order(bench: ZeBench, language: str) -> None:
    out, (event,) = bench.ints(1, 1, 1, 1), bench.events(1)
    made = bench.list(in_order=True)
    given = "add", out.pointer, c_int(1)
    add, mul = bench.kernel(*given), bench.kernel("mul", out.pointer, c_int(3))
    for kernel, signal in ((add, 0), (mul, 0), (add, event), (add, 0), (mul, 0)):
        bench.launch(made, kernel, 4, signal)
    bench.close_list(made)
    bench.run(made)
    assert out.all == [24] * 4
    assert bench.ze.code("zeEventQueryStatus", event) == "SUCCESS"
    bench.ze.ok("zeCommandListReset", made)
    bench.launch(made, add, 4)
    bench.close_list(made)
    bench.run(made)
    assert out.all == [25] * 4


def test_c_and_python_change_one_launch(bench: ZeBench, language: str) -> None:
    out = bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    assert bench.update(made, argument(number, 1, c_int(5))) == "SUCCESS"
    changes = group_count(number, 2), argument(number, 1, c_int(1))
    assert bench.update(made, *changes) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [1, 1, 0, 0]
    assert bench.update(made, argument(number, 1, c_int(7))) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [8, 8, 0, 0]
    assert bench.update(made, group_count(number, 4)) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [15, 15, 7, 7]


def test_a_refused_chain_changes_nothing(bench: ZeBench, language: str) -> None:
    out = bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    good = argument(number, 1, c_int(9))
    assert bench.update(made, good, argument(number, 1, c_short(9))) == "INVALID_ARGUMENT"
    assert bench.update(made, good, argument(number + 1, 1, c_int(9))) == "INVALID_ARGUMENT"
    assert bench.update(made, good, argument(number, 2, c_int(9))) == "INVALID_ARGUMENT"
    bench.run(made)
    assert out.all == [1] * 4


def test_a_changed_list_is_closed_before_it_runs(bench: ZeBench, language: str) -> None:
    out = bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    assert bench.update(made, argument(number, 1, c_int(2))) == "SUCCESS"
    execute = "zeCommandQueueExecuteCommandLists"
    assert bench.ze.code(execute, bench.queue, 1, array(made), None) == ("INVALID_ARGUMENT")
    bench.close_list(made)
    bench.close_list(made)  # it is closed already
    bench.run(made)
    assert out.all == [2] * 4


def test_null_is_an_argument(bench: ZeBench, language: str) -> None:
    out = bench.ints(count=4)
    kernel = bench.kernel("copy", out.pointer, c_void_p(), size=1)
    made, number = bench.closed(kernel, 4)
    source = bench.ints(1, 2, 3, 4)
    assert bench.update(made, argument(number, 1, source.pointer)) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out.all == [1, 2, 3, 4]


def test_arguments_that_the_driver_does_not_describe(
    bench: ZeBench, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it may be for SPIR-V: eight bytes that are an address in memory are a pointer."""
    monkeypatch.setattr(kernels, "find_kind", lambda kernel, index: UNKNOWN)
    out, other = bench.ints(count=4), bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    assert bench.update(made, argument(number, 1, c_int(6))) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    changes = argument(number, 0, other.pointer), argument(number, 1, c_int(7))
    assert bench.update(made, *changes) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert (out.all, other.all) == ([6] * 4, [7] * 4)


@pytest.mark.slow
def test_a_ring_of_changes_is_refused(bench: ZeBench, language: str) -> None:
    out = bench.ints(count=4)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), 4)
    change = argument(number, 1, c_int(6))
    change.pNext = addressof(change)
    desc = new("ze_mutable_commands_exp_desc_t", pNext=change)
    update = "zeCommandListUpdateMutableCommandsExp"
    assert bench.ze.code(update, made, byref(desc)) == "INVALID_ARGUMENT"
    bench.run(made)
    assert out.all == [1] * 4


_SWITCHED_OFF = """
from helpers.ze_calls import ZeCalls
from helpers.entries import begin_in_c
from fairlead.plugins import level_zero_driver
from fairlead.plugins.level_zero.core import driver
ZeCalls(level_zero_driver()).ok("zeInit", 0)
print(begin_in_c(driver))
"""


@pytest.mark.parametrize(("value", "in_c"), [("python", False), ("c", True), ("x", True)])
def test_the_variable(value: str, in_c: bool, run_python: RunPython) -> None:
    tests = str(Path(__file__).parents[2])
    done = run_python(_SWITCHED_OFF, env={"FAIRLEAD_CALLS": value, "PYTHONPATH": tests})
    assert done.out.split() == [str(in_c)]
    assert ("FAIRLEAD_CALLS=x is ignored" in done.err) == (value == "x")
