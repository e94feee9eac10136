"""PyOpenCL's own tests on an NVIDIA GPU: each launch as a CUDA Graph writes the same as by OpenCL.

The tests are in PyOpenCL's source distribution. PYOPENCL_SOURCE names the folder that it was
unpacked to (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.drivers import Driver, chosen_drivers

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.driver("nvidia")]

_ROOT = Path(__file__).resolve().parents[2]
#: By the seconds that they take, longest first, for workers of pytest-xdist.
_MODULES = (
    *("test_algorithm.py", "test_array.py", "test_clmath.py", "test_wrapper.py"),
    *("test_clrandom.py", "test_arrays_in_structs.py"),
)


@pytest.fixture(scope="module")
def source() -> Path:
    """The folder with PyOpenCL's tests."""
    folder = os.environ.get("PYOPENCL_SOURCE")
    if folder is None:
        pytest.skip("PYOPENCL_SOURCE names no source distribution of PyOpenCL")
    return Path(folder, "test")


def passed(source: Path, module: str, vendors: Path, *options: str) -> tuple[set[str], str]:
    """The tests of a module that pass, and what was printed."""
    report = vendors / "report.xml"
    environment = {name: value for name, value in os.environ.items() if "OCL_ICD" not in name}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "tests")]),
        "FAIRLEAD_CUDA": "1",
        "FAIRLEAD_COMMAND_BUFFER": "cuda",
        "OCL_ICD_VENDORS": str(vendors),
        "PYOPENCL_TEST": "nvidia",
    }
    plugins = ("no:cacheprovider", "no:benchmark", "helpers.replayed_pyopencl")
    chosen = [part for name in plugins for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "markers=bitonic: of theirs", *chosen]
    command += [f"--junitxml={report}", *options, module]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    cases = ElementTree.parse(report).getroot().iter("testcase")
    names = {f"{one.get('classname')}::{one.get('name')}" for one in cases if not len(one)}
    return names, done.stdout


@pytest.mark.parametrize("module", _MODULES)
def test_each_launch_writes_the_same_by_cuda_and_by_opencl(
    source: Path, module: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    driver: Driver = next(one for one in chosen_drivers(pytestconfig) if one.name == "nvidia")
    (tmp_path / "nvidia.icd").write_text(f"{driver.library}\n", encoding="utf-8")
    plain, _ = passed(source, module, tmp_path, "--as-it-is")
    found, said = passed(source, module, tmp_path, "--compared")
    print("\n".join(line for line in said.splitlines() if "calls of PyOpenCL" in line))
    assert plain and plain <= found, sorted(plain - found)
    assert re.search(r"\d+ calls of PyOpenCL were compared, and the same", said)
    assert "compared, and different" not in said, said[-3000:]
