"""PyOpenCL's own tests on an NVIDIA GPU: each launch as a CUDA Graph writes the same as by OpenCL.

helpers/pyopencl_tests.py says where the tests are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import pyopencl_tests
from helpers.drivers import Driver, chosen_drivers

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.driver("nvidia")]

#: By the seconds that they take, longest first, for workers of pytest-xdist.
_MODULES = (
    *("test_algorithm.py", "test_array.py", "test_clmath.py", "test_wrapper.py"),
    *("test_clrandom.py", "test_arrays_in_structs.py"),
)


def passed(source: Path, module: str, vendors: Path, option: str) -> tuple[set[str], str]:
    """The tests of a module that pass, and what was printed."""
    variables = {
        "FAIRLEAD_CUDA": "1",
        "FAIRLEAD_COMMAND_BUFFER": "cuda",
        "OCL_ICD_VENDORS": str(vendors),
        "PYOPENCL_TEST": "nvidia",
    }
    arguments = ("-p", "no:benchmark", "-o", "markers=bitonic: of theirs", option, module)
    return pyopencl_tests.passed(source, arguments, vendors / "report.xml", variables)


@pytest.mark.parametrize("module", _MODULES)
def test_each_launch_writes_the_same_by_cuda_and_by_opencl(
    pyopencl_tests_folder: Path, module: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    driver: Driver = next(one for one in chosen_drivers(pytestconfig) if one.name == "nvidia")
    (tmp_path / "nvidia.icd").write_text(f"{driver.library}\n", encoding="utf-8")
    plain, _ = passed(pyopencl_tests_folder, module, tmp_path, "--as-it-is")
    found, said = passed(pyopencl_tests_folder, module, tmp_path, "--compared")
    print("\n".join(line for line in said.splitlines() if "calls of PyOpenCL" in line))
    assert plain and plain <= found, sorted(plain - found)
    assert re.search(r"\d+ calls of PyOpenCL were compared, and the same", said)
    assert "compared, and different" not in said, said[-3000:]
