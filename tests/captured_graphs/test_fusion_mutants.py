"""Wrong proofs of fusion are caught: with each mutant a program of the tests gives other bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyopencl as cl
import pytest

from fairlead.icd.command_buffer.rewrites import reductions, used_bytes, uses

from . import test_fused_reductions, test_fusion

pytestmark = [pytest.mark.thorough, pytest.mark.one_driver("pocl_wheel")]


def _read_as_if_it_wrote_nothing(*arguments: Any, read: Any = reductions._read_reader) -> Any:
    found = read(*arguments)
    return replace(found, memory=[replace(one, writes=False) for one in found.memory])


def _leave_all_out(
    commands: Any, sources: Any, known: Any, handle: int, reader: int
) -> uses.MemoryUse:
    return replace(known[handle], commands=frozenset())


#: What is wrong, where, and the program that shows it.
MUTANTS: dict[str, tuple[Any, str, Callable[..., Any], Callable[[cl.CommandQueue], Any]]] = {
    "items never meet": (
        used_bytes.UsedBytes,
        "allows",
        lambda self, other: True,
        lambda queue: test_fusion.test_a_kernel_that_reads_its_neighbours(
            queue, cl.Program(queue.context, test_fusion.SOURCE).build(), "neighbours"
        ),
    ),
    "nobody holds memory": (
        uses,
        "_count_references",
        lambda memory: 1,
        test_fusion.test_what_the_program_holds_is_written,
    ),
    "nobody else reads": (
        reductions,
        "_leave_out",
        _leave_all_out,
        test_fused_reductions.test_what_others_read_is_written,
    ),
    "readers write nothing": (
        reductions,
        "_read_reader",
        _read_as_if_it_wrote_nothing,
        lambda queue: test_fused_reductions.test_kernels_that_work_in_groups(queue, "turns"),
    ),
    "pointers are never moved": (
        reductions.ReaderRun,
        "_is_at_first",
        lambda self, name, variable: True,
        lambda queue: test_fused_reductions.test_kernels_that_work_in_groups(queue, "behind"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where, attribute, mutant, show = MUTANTS[name]
    monkeypatch.setattr(where, attribute, mutant)
    with pytest.raises(AssertionError, match=r"^wait"):
        show(queue)
