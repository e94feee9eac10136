"""Random programs, by calls, as captured and fused: each plan runs, and all bits are the same."""

from __future__ import annotations

import pyopencl as cl
import pytest
from helpers.fusion_programs import Kernels, RandomProgram

#: Programs of one test, on each driver.
PROGRAMS = 25


def check_programs(queue: cl.CommandQueue, first: int) -> None:
    """Check some programs, of which many are fused."""
    kernels, fused = Kernels(queue.context), 0
    for seed in range(first, first + PROGRAMS):
        fused += bool(RandomProgram(queue, kernels, seed).check())
    assert fused > PROGRAMS // 4


@pytest.mark.parametrize("first", range(0, 4 * PROGRAMS, PROGRAMS))
def test_random_programs(queue: cl.CommandQueue, first: int) -> None:
    check_programs(queue, first)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(4 * PROGRAMS, 200 * PROGRAMS, PROGRAMS))
def test_more_random_programs(queue: cl.CommandQueue, first: int) -> None:
    check_programs(queue, first)
