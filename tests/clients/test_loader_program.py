"""A C program on the real libur_loader.so.0, without SYCL, with Intel's own adapter and ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.clients import (
    CASES,
    HERE,
    WATCHED,
    Case,
    Compiler,
    adapter_path,
    complaints,
    printed,
    run,
)
from helpers.support import RunPython

from fairlead.loader.ur.abi import UR

SOURCE = HERE / "loader_program.c"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("intercept", ["0", "1"])
def test_it_prints_what_it_says(
    case: Case, intercept: str, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    adapter = adapter_path(case.adapter)
    given = compile_client.c(SOURCE), now, drivers[case.driver], adapter
    output = run(*given, UR_ENABLE_LOADER_INTERCEPT=intercept, **WATCHED)
    found, queue, commands, done = printed(SOURCE).splitlines()
    lines, code = {
        Case("intel", "pocl_wheel"): ([found, queue, done], 0),  # has no cl_khr_command_buffer
        Case("intel", "pocl-3.1"): (
            [found, queue, "error: urCommandBufferAppendMemBufferFillExp: 0x4"],
            1,
        ),  # has an old one
    }.get(case, ([found, queue, commands, done], 0))
    assert (output.out.splitlines(), output.code) == (lines, code)
    assert code or complaints(output) == []


@pytest.mark.driver("pocl_wheel")
def test_two_adapters_at_once(
    now: Path, compile_client: Compiler, drivers: dict[str, str], real_plugins: Path
) -> None:
    """Ours and Intel's for Level Zero, which finds no device here."""
    both = f"{adapter_path('fairlead')},{real_plugins / 'ur-now/libur_adapter_level_zero.so.0'}"
    output = run(compile_client.c(SOURCE), now, drivers["pocl_wheel"], both)
    assert (output.out, output.err, output.code) == (printed(SOURCE), "", 0)


SELECTED = """
import fairlead
from fairlead.loader.base.errors import NotFoundError
try:
    for device in fairlead.adapters().select():
        print(device.name)
except NotFoundError:
    pass
"""
SELECTORS = (
    "opencl:0 !opencl:0 !opencl:1 !opencl:cpu *:*;!opencl:0 !cuda:* !*:0 opencl:*;!opencl:1 "
    "level_zero:*;!opencl:0 level_zero:* opencl:1;!cuda:*"
)


@pytest.mark.parametrize("text", SELECTORS.split())
def test_both_loaders_select_the_same_devices(text: str, now: Path, run_python: RunPython) -> None:
    """Of two OpenCL platforms, Intel's and PoCL's."""
    loader, name = now / "lib/libur_loader.so.0", str(UR["UR_DEVICE_INFO_NAME"])
    adapter = adapter_path("fairlead")
    environ = {"ONEAPI_DEVICE_SELECTOR": text, "UR_ADAPTERS_FORCE_LOAD": adapter}
    theirs = run_python(
        (HERE / "selected_devices.py").read_text(), str(loader), name, env=environ
    ).out.splitlines()
    ours = run_python(SELECTED, env=environ).out.splitlines()
    assert [one.strip() for one in ours] == [one.strip() for one in theirs]
