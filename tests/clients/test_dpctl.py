"""dpctl: today's on Unified Runtime adapters, and the one of the PI generation on PI plugins."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest
from helpers.clients import (
    CASES,
    DRIVERS,
    HERE,
    LEAK,
    WATCHED,
    Case,
    adapter_path,
    complaints,
    error_of,
    on,
    plugin_path,
    run,
)
from helpers.support import Output

PLATFORMS: Final = {
    "intel_cpu": "Intel(R) OpenCL",
    "pocl_wheel": "Portable Computing Language",
    "pocl-3.1": "Portable Computing Language",
}
EXPECTED: Final = """\
device: device 0 1 2 3 4 5 6 7
host: host 1 2 3 4 5 6 7 8
shared: shared 2 3 4 5 6 7 8 9
copied: 0 1 2 3 4 5 6 7
memcpy: 70 71 72 73 74 75 76 77
kernels: 3 2 True True False
axpy: 10 12 14 16 18 20 22 24
shape: 400 402 404 420 422 424 440 442 444 460 462 464
times: True event_status_type.complete
done:
"""
_PROGRAM: Final = HERE / "dpctl_program.py"
_NO_USM: Final = "USMAllocationError: USM allocation failed"


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """On what dpctl runs."""
    return request.param


def check(output: Output, case: Case, in_order: bool = False) -> None:
    """Check a run of the program.

    Without cl_intel_unified_shared_memory Intel's adapter and plugin have no USM.
    """
    listed, limits, queue, *rest = output.out.splitlines(keepends=True)
    usm = case.adapter != "intel" or case.driver == "intel_cpu"
    assert f"| {PLATFORMS[case.driver]} | backend_type.opencl device_type.cpu" in listed
    assert limits == f"limits: True True True {usm}\n"
    assert queue == f"queue: {in_order} True\n"
    if usm:
        assert ("".join(rest), output.code) == (EXPECTED, 0)
    else:
        assert (error_of(output), output.code) == (_NO_USM, 1)


def test_dpctl(case: Case, dpctl: Path, drivers: dict[str, str]) -> None:
    given = [sys.executable, _PROGRAM], dpctl, drivers[case.driver], adapter_path(case.adapter)
    output = run(*given, PYTHONPATH=dpctl)
    check(output, case)
    assert output.err == ""


def test_dpctl_in_order(case: Case, dpctl: Path, drivers: dict[str, str]) -> None:
    output = run(
        [sys.executable, _PROGRAM, "in_order"],
        dpctl,
        drivers[case.driver],
        adapter_path(case.adapter),
        PYTHONPATH=dpctl,
    )
    check(output, case, in_order=True)
    assert output.err == ""


def test_the_loader_has_nothing_to_complain_of(
    case: Case, dpctl: Path, drivers: dict[str, str]
) -> None:
    """Of the adapter, that is: dpctl itself keeps a reference to its context to the end."""
    given = [sys.executable, _PROGRAM], dpctl, drivers[case.driver], adapter_path(case.adapter)
    output = run(*given, PYTHONPATH=dpctl, **WATCHED)
    check(output, case)
    assert complaints(output) == [LEAK]


@pytest.fixture
def with_plugin(pi: Path, tmp_path: Path) -> Path:
    """DPC++ 2024.2 in a folder of its own: it looks for libpi_opencl.so beside the real file of
    libsycl.so.7."""
    (tmp_path / "lib").mkdir()
    for library in (pi / "lib").iterdir():
        if library.name == "libsycl.so.7":
            shutil.copy(library, tmp_path / "lib")
        elif library.name != "libpi_opencl.so":
            os.symlink(library, tmp_path / "lib" / library.name)
    os.symlink(pi / "dpctl", tmp_path / "dpctl")
    return tmp_path


def test_dpctl_of_the_pi_generation(
    case: Case, pi: Path, with_plugin: Path, drivers: dict[str, str]
) -> None:
    os.symlink(plugin_path(case.adapter, pi), with_plugin / "lib/libpi_opencl.so")
    output = run(
        [sys.executable, _PROGRAM], with_plugin, drivers[case.driver], PYTHONPATH=with_plugin
    )
    check(output, case)
    assert output.err == ""


@pytest.mark.parametrize("driver", on(*DRIVERS))
def test_without_a_plugin_there_is_no_device(
    driver: str, with_plugin: Path, drivers: dict[str, str]
) -> None:
    output = run([sys.executable, _PROGRAM], with_plugin, drivers[driver], PYTHONPATH=with_plugin)
    assert error_of(output).startswith("SyclQueueCreationError") and output.code == 1
