"""A C program on the real libur_loader.so.0, without SYCL: what it finds and what runs, on Intel's own adapter and on ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.clients import (
    CASES,
    HERE,
    WATCHED,
    Case,
    Compiler,
    Drivers,
    adapter_path,
    complaints,
    printed,
    run,
)

SOURCE = HERE / "loader_program.c"


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("intercept", ["0", "1"])
def test_it_prints_what_it_says(
    case: Case, intercept: str, now: Path, compile_client: Compiler, drivers: Drivers
) -> None:
    adapter = adapter_path(case.adapter)
    output = run(
        [compile_client(SOURCE)],
        now,
        drivers[case.driver],
        adapter,
        UR_ENABLE_LOADER_INTERCEPT=intercept,
        **WATCHED,
    )
    found, queue, commands, done = printed(SOURCE).splitlines()
    lines, code = {
        Case("intel", "pocl_wheel"): ([found, queue, done], 0),  # has no cl_khr_command_buffer
        Case("intel", "debian_pocl"): (
            [found, queue, "error: urCommandBufferAppendMemBufferFillExp: 0x4"],
            1,
        ),  # has an old one
    }.get(case, ([found, queue, commands, done], 0))
    assert (output.out.splitlines(), output.code) == (lines, code)
    assert code or complaints(output) == []


def test_two_adapters_at_once(
    now: Path, compile_client: Compiler, drivers: Drivers, real_plugins: Path
) -> None:
    """Ours and Intel's for Level Zero, which finds no device here."""
    both = f"{adapter_path('fairlead')},{real_plugins / 'ur-now/libur_adapter_level_zero.so.0'}"
    output = run([compile_client(SOURCE)], now, drivers["pocl_wheel"], both)
    assert (output.out, output.err, output.code) == (printed(SOURCE), "", 0)
