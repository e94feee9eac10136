"""SYCL-Graph of DPC++ 2024.2 on the reference plugin's command-buffers.

Intel's plugin has no copies in command-buffers on the drivers here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.clients import DRIVERS, HERE, cxx, on, run

from fairlead import plugins


@pytest.fixture(scope="module")
def home(pi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DPC++ 2024.2 with the reference plugin in the place of its own."""
    folder = tmp_path_factory.mktemp("pi-graph")
    (folder / "lib").mkdir()
    for library in (*(pi / "lib").iterdir(), *(pi / "dpctl").glob("libDPCTLSyclInterface.so*")):
        if library.name == "libsycl.so.7":
            shutil.copy(library, folder / "lib")
        elif library.name != "libpi_opencl.so":
            os.symlink(library, folder / "lib" / library.name)
    os.symlink(plugins.reference_plugin(), folder / "lib/libpi_opencl.so")
    return folder


@pytest.fixture(scope="module")
def program(home: Path) -> Path:
    """pi_graph.cpp, compiled."""
    libraries = [
        home / "lib/libsycl.so.7",
        home / "lib/libDPCTLSyclInterface.so",
        "-Wl,--allow-shlib-undefined",
    ]
    command = [*cxx(), "-O1", HERE / "pi_graph.cpp", "-o", home / "pi_graph", *libraries]
    done = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return home / "pi_graph"


@pytest.mark.parametrize("driver", on(*DRIVERS))
def test_graph_is_recorded_and_run(
    driver: str, home: Path, program: Path, drivers: dict[str, str]
) -> None:
    output = run([program], home, drivers[driver])
    assert (output.out, output.code) == ("recorded: 3 200 0\nrun: 0 200 12 212\n", 0)


@pytest.mark.parametrize("driver", on(*DRIVERS))
def test_it_becomes_a_command_buffer(
    driver: str, home: Path, program: Path, drivers: dict[str, str]
) -> None:
    output = run([program], home, drivers[driver], SYCL_PI_TRACE="2")
    calls = [
        line.removeprefix("---> ").rstrip("(")
        for line in output.out.splitlines()
        if line.startswith("---> piext")
    ]
    appended = [
        call.removeprefix("piextCommandBuffer") for call in calls if "CommandBuffer" in call
    ]
    assert appended == [
        "Create",
        "MemcpyUSM",
        "FillUSM",
        "PrefetchUSM",
        "AdviseUSM",
        "NDRangeKernel",
        "NDRangeKernel",
        "Finalize",
        *["piextEnqueueCommandBuffer"] * 3,
    ]
