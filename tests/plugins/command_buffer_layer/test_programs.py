"""A C program with command-buffers, on drivers and under loaders that know nothing of the layer."""

from __future__ import annotations

import ctypes.util
import sys
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import FakeDriver

from fairlead.icd import trace_layer
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.plugins import command_buffer_layer

from .conftest import Layered

#: Enough rounds to meet each batch size with each set of buffers, and measured engines' trials.
ROUNDS = "40"


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_a_network_is_replayed_bit_for_bit(
    layered: Layered, network: Path, each_driver: Driver, engine: str
) -> None:
    env = {"FAIRLEAD_COMMAND_BUFFER": engine}
    assert layered(network, ROUNDS, "release", drivers=[each_driver.library], env=env).out == (
        "right\n"
    )


def test_a_program_may_end_with_live_command_buffers(
    layered: Layered, network: Path, each_driver: Driver
) -> None:
    assert layered(network, "8", drivers=[each_driver.library]).out == "right\n"


@pytest.mark.parametrize("inner", [command_buffer_layer.find_library(), trace_layer.find_library()])
@pytest.mark.parametrize("is_first", [True, False])
def test_layers_together(
    layered: Layered,
    network: Path,
    pocl_wheel: Candidate,
    tmp_path: Path,
    inner: Path,
    is_first: bool,
) -> None:
    layers = [str(inner), str(command_buffer_layer.find_library())]
    env = {
        "OPENCL_LAYERS": ":".join(layers if is_first else layers[::-1]),
        "FAIRLEAD_TRACE_LOG": str(tmp_path / "log"),
    }
    assert layered(network, "8", "x", drivers=[pocl_wheel.library], env=env).out == "right\n"


def _loader(name: str) -> Path:
    if name == "khronos":
        path = Path(sys.prefix) / "lib/libOpenCL.so.1"
    else:
        path = Path("/usr/lib/x86_64-linux-gnu") / (ctypes.util.find_library("OpenCL") or "none")
    if not path.exists():
        pytest.skip(f"no loader {path}")
    return path


@pytest.mark.parametrize("loader", ["khronos", "machine"])
def test_other_loaders_load_the_layer(
    layered: Layered, network: Path, intel_cpu: Candidate, loader: str
) -> None:
    path = _loader(loader)
    env = {"LD_DEBUG": "libs"}
    output = layered(network, "8", drivers=[locate(intel_cpu)[0]], loader=path, env=env)
    assert output.out == "right\n"
    assert f"calling init: {path}" in output.err


def test_without_python_a_program_is_told_so(
    layered: Layered, network: Path, intel_cpu: Candidate
) -> None:
    env = {"FAIRLEAD_PYTHON": "/nowhere/python"}
    output = layered(network, drivers=[locate(intel_cpu)[0]], env=env, check=False)
    assert output.out == "clCreateCommandBufferKHR: -5\n"
    assert "FAIRLEAD_PYTHON is /nowhere/python" in output.err


def test_a_driver_without_devices_does_no_harm(
    layered: Layered, network: Path, fake_driver: FakeDriver
) -> None:
    output = layered(network, drivers=[fake_driver(devices=0)], check=False)
    assert output.code == 1 and output.out.startswith("clGetDeviceIDs: ")
