"""Unified Runtime adapters of others, called through our tables, each in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython

from fairlead.loader.base.linker import find_library
from fairlead.loader.ze import libze_loader

PROGRAM = (ROOT / "tests/helpers/ur_program.py").read_text(encoding="utf-8")


#: The tests of Intel's adapter run on Intel's driver.
on_intel = pytest.mark.driver("intel_cpu")


@pytest.fixture
def opencl_adapter(real_plugins: Path, tmp_path: Path) -> Path:
    """Intel's OpenCL adapter of 2025.3.3, beside the library that it needs."""
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    return adapter


@on_intel
def test_a_context_usm_a_copy_and_a_kernel_run_on_intels_driver(
    opencl_adapter: Path, run_python: RunPython, present_drivers: tuple[Driver, ...]
) -> None:
    answer = json.loads(run_python(PROGRAM, str(opencl_adapter), "Intel").out)
    assert {driver.platform for driver in present_drivers} <= set(answer["platforms"])
    assert any(device.startswith("opencl cpu ") for device in answer["devices"])
    assert answer["layout"] == "2025.3"
    assert answer["right"] and answer["nanoseconds"] > 0


@on_intel
def test_what_the_adapter_does_not_have_is_answered(
    opencl_adapter: Path, run_python: RunPython
) -> None:
    answer = json.loads(run_python(PROGRAM, str(opencl_adapter), "Intel").out)
    from fairlead.loader.ur.abi import UR

    assert UR.errors[answer["unsupported"]][0] == "UR_RESULT_ERROR_UNINITIALIZED"


@on_intel
def test_full_validation_has_nothing_to_say_about_it(
    opencl_adapter: Path, run_python: RunPython
) -> None:
    done = run_python(
        PROGRAM, str(opencl_adapter), "Intel", env={"UR_ENABLE_LAYERS": "UR_LAYER_FULL_VALIDATION"}
    )
    assert json.loads(done.out)["right"]
    assert done.err == ""


@on_intel
def test_a_trace_of_it_names_functions_arguments_and_results(
    opencl_adapter: Path, run_python: RunPython
) -> None:
    done = run_python(PROGRAM, str(opencl_adapter), "Intel", env={"SYCL_UR_TRACE": "2"})
    lines = done.out.splitlines()
    assert json.loads(lines[-1])["right"]
    assert "   ---> urContextCreate" in lines
    (launch,) = (
        line for line in lines if line.startswith("   <--- urEnqueueKernelLaunchWithArgsExp(")
    )
    assert (
        ".workDim = 1" in launch and "{1000}" in launch and launch.endswith("-> UR_RESULT_SUCCESS;")
    )
    (name,) = (line for line in lines if line.startswith("   <--- urKernelCreate("))
    assert '.pKernelName = "triple"' in name


def test_an_adapter_of_another_layout_is_refused_where_one_is_asked_for(
    opencl_adapter: Path, run_python: RunPython
) -> None:
    code = """
import sys
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.binding import BindError
from fairlead.loader.ur.discovery import PluginCandidate
try:
    load(PluginCandidate(sys.argv[1], "test"), layout="2026.2")
except BindError as error:
    print(error)
"""
    said = run_python(code, str(opencl_adapter)).out
    assert "its tables have the layout of 2025.3, not that of 2026.2" in said
    assert "remedy" in said


@pytest.mark.parametrize("has_loader", [True, False])
@pytest.mark.parametrize(
    "name", ["libur_adapter_level_zero.so.0", "libur_adapter_level_zero_v2.so.0"]
)
def test_level_zero_adapters_without_a_driver_are_bound_have_no_platform_and_say_why(
    name: str, has_loader: bool, real_plugins: Path, tmp_path: Path, run_python: RunPython
) -> None:
    if not has_loader and find_library("libze_loader.so.1"):
        pytest.skip("the system has a libze_loader.so.1")
    adapter = tmp_path / name
    adapter.symlink_to(real_plugins / "ur-now" / name)
    os.symlink(real_plugins / "umf/libumf.so.1", tmp_path / "libumf.so.1")
    code = """
import sys
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
adapter = load(PluginCandidate(sys.argv[1], "test", backend="level_zero"))
print(adapter.binding.layout, len(adapter.platforms), adapter.idle, adapter.remedy, sep="|")
adapter.close()
"""
    env = libze_loader.make_environment({}, []) if has_loader else {}
    said = run_python(code, str(adapter), env=env).out.strip()
    layout, platforms, idle, remedy = said.split("|")
    assert (layout, platforms) == ("2026.2", "0")
    assert ("libze_loader.so.1 is not found" in idle) != has_loader
    assert "Level Zero" in remedy
