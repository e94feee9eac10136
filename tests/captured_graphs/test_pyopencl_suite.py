"""PyOpenCL's own tests, in which each kernel, copy and fill is a captured graph that is replayed.

The tests are in PyOpenCL's source distribution. PYOPENCL_SOURCE names the folder that it was
unpacked to (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.driver("pocl_wheel")]

#: Those that PoCL compiles in some minutes.
_ALGORITHMS = "elwise or take or arange or reverse or if_positive or astype or sum or minmax or dot"
_MORE_ALGORITHMS = (
    "reduction_not or struct_reduce or test_scan or copy_if or partition or unique or preservation"
)
_SORTS = "segmented_scan or test_sort or list_builder"
_ARRAYS = "rmul or pow_array or pow_number or multiply or addition or subtract_array"

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def source() -> Path:
    """The folder with PyOpenCL's tests."""
    folder = os.environ.get("PYOPENCL_SOURCE")
    if folder is None:
        pytest.skip("PYOPENCL_SOURCE names no source distribution of PyOpenCL")
    return Path(folder, "test")


def passed(source: Path, module: str, report: Path, library: str, *options: str) -> set[str]:
    """The tests of a module, or some of them, that pass, after checking that all came to an end."""
    paths = [str(_ROOT), str(_ROOT / "tests")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "FAIRLEAD_COMMAND_BUFFER": "direct",
        "OCL_ICD_FILENAMES": library,
        "PYOPENCL_TEST": "portable",
    }
    plugin = ("-p", "no:cacheprovider", "-p", "helpers.replayed_pyopencl", *options)
    command = (sys.executable, "-m", "pytest", "-q", *plugin, f"--junitxml={report}")
    command += (*shlex.split(module),)
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    if not options:
        assert "replayed by the engine direct" in done.stdout
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if not len(case)}


@pytest.mark.parametrize(
    "module",
    [
        "test_wrapper.py",
        "test_arrays_in_structs.py",
        "test_clmath.py",
        "test_clrandom.py",
        f"test_algorithm.py -k '{_ALGORITHMS}'",
        f"test_algorithm.py -k '{_MORE_ALGORITHMS}'",
        f"test_algorithm.py -k '{_SORTS}'",
        f"test_array.py -k '{_ARRAYS}'",
    ],
)
def test_what_passes_plainly_passes_when_it_is_replayed(
    source: Path, module: str, pocl_wheel: Driver, tmp_path: Path
) -> None:
    library = pocl_wheel.library
    plain = passed(source, module, tmp_path / "plain.xml", library, "--as-it-is")
    assert plain
    assert plain <= passed(source, module, tmp_path / "replayed.xml", library)
