"""Wrong proofs of fusion are caught: random programs give other bits with each mutant.

A mutant is a function of the rewrites in which one text is exchanged.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pyopencl as cl
import pytest
from helpers.fusion_programs import Kernels, RandomProgram

from fairlead.icd.command_buffer.rewrites import kernels as kernels_read
from fairlead.icd.command_buffer.rewrites import (
    launches,
    places,
    runs,
    sources,
    transfers,
    used_bytes,
    uses,
)

from . import test_fused_reductions as reduced

pytestmark = [pytest.mark.thorough, pytest.mark.one_driver("pocl_wheel")]

#: What is wrong: the function, its text, and what stands there instead.
MUTANTS: dict[str, tuple[Any, str, str]] = {
    "no other product is in a sum": (sources._drop_factors, "== 1 and right and", "== 1 and"),
    "a name is one variable": (
        sources._drop_factors,
        "and not uses[node.left.left.name] + uses[node.right.left.name]",
        "",
    ),
    "items never meet": (used_bytes.UsedBytes.allows, "if not self.meets(other)", "if True"),
    "places are alike": (used_bytes.UsedBytes.allows, "return same and", "return"),
    "reads never meet writes": (
        used_bytes.UsedBytes.meets,
        "not (self.writes or other.writes)",
        "not (self.writes and other.writes)",
    ),
    "views are apart": (
        used_bytes.UsedBytes.meets,
        "self.root != other.root",
        "self.handle != other.handle",
    ),
    "all launches have as many items": (
        runs.Run.why_not,
        "if first.items != launch.items",
        "if False",
    ),
    "nobody holds memory": (uses.find_users, "None if count_others(handle) else", ""),
    "others do not use memory": (places.find_own, "and run.issuperset(users[handle])", ""),
    "rows are as long as the range": (
        used_bytes._find_items,
        "factor and values.value(factor)",
        "before * own.width",
    ),
    "all grids are alike": (runs.Run.why_not, "launch.grid not in (None, self.grid)", "False"),
    "memory is written first": (places.find_temporaries, "and not one.is_loaded", ""),
    "ids are numbers of items": (kernels_read._check_ids, "access.ids - ITEM_FUNCTIONS", "set()"),
    "a loop keeps nothing": (kernels_read._check_ids, "if loop.carried", "if False"),
    "buffers begin with their views": (
        uses.look_up,
        "Root(told[0], ",
        "Root(told[0], 0 * ",
    ),
    "patterns are items": (
        transfers.read_transfer,
        "value != value[:width] * (len(value) // width)",
        "False",
    ),
    "nobody else accesses memory": (
        runs.RunList.find_users,
        "return True\n        return self",
        "return False\n        return False and self",
    ),
    "all pieces have a part of the result": (launches._end, "one.root == out.root", "False"),
    "loops over items run alone": (
        launches._find_memory,
        "if kernel.loop is not None and not all(",
        "if False and not all(",
    ),
}

#: The kernels that show a mutant, where few programs have them together.
LIKES = {
    "ids are numbers of items": ["ids", "scaled"],
    "loops over items run alone": ["running", "in_strides"],
    "rows are as long as the range": ["turned_grid", "scaled", "turned_cube"],
    "all grids are alike": ["cube", "flat"],
    "a loop keeps nothing": ["carried", "in_strides"],
    "patterns are items": ["fill", "scaled"],
    "others do not use memory": ["moved", "sum"],
    "no other product is in a sum": ["beside", "sums"],
    "all launches have as many items": ["guarded", "scaled"],
    "buffers begin with their views": ["scaled", "sum", "swapped"],
    "a name is one variable": ["hidden", "sums"],
}
#: The mutants of reductions, and a program that shows each.
SHOWN: dict[str, Callable[[cl.CommandQueue], Any]] = {
    "nobody else accesses memory": reduced.test_what_changes_after_a_reduction_is_written,
    "all pieces have a part of the result": reduced.test_the_result_is_memory_of_launches_before,
}
#: Programs that are tried with each mutant.
PROGRAMS = 60


def exchange(function: Any, old: str, new: str) -> Any:
    """Return the code of a function with another text."""
    plain = inspect.unwrap(function)
    text = textwrap.dedent(inspect.getsource(plain))
    assert text.count(old) == 1, f"{plain.__qualname__} has other text now"
    found = dict[str, Any]()
    source = "from __future__ import annotations\n" + text.replace(old, new)
    exec(source, plain.__globals__, found)
    return inspect.unwrap(found[plain.__name__]).__code__


@pytest.fixture
def forget() -> Iterator[None]:
    """Let nothing that a mutant has found out be known before it, or after it."""
    cached = (
        kernels_read.make_kernel_read,
        kernels_read.find_kinds,
        kernels_read.find_elements,
        kernels_read.parse_kernel,
        sources._write_function,
    )
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(
    queue: cl.CommandQueue,
    context: cl.Context,
    monkeypatch: pytest.MonkeyPatch,
    forget: None,
    name: str,
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")  # engines compile kernels, too
    function, old, new = MUTANTS[name]
    monkeypatch.setattr(inspect.unwrap(function), "__code__", exchange(function, old, new))
    if name in SHOWN:
        with pytest.raises(AssertionError, match=r"^\('wait', \["):
            SHOWN[name](queue)
        return
    kernels = Kernels(context)
    for seed in range(PROGRAMS):
        try:
            RandomProgram(queue, kernels, seed, LIKES.get(name, ())).check(ways=["wait"])
        except AssertionError:
            return
    pytest.fail(f"{PROGRAMS} programs gave the same bits")
