"""PyOpenCL's own tests, in which each kernel, copy and fill is a captured graph that is replayed.

helpers/pyopencl_tests.py says where the tests are.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from helpers import pyopencl_tests
from helpers.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.driver("pocl_wheel")]

#: Those that PoCL compiles in some minutes.
_ALGORITHMS = "elwise or take or arange or reverse or if_positive or astype or sum or minmax or dot"
_MORE_ALGORITHMS = (
    "reduction_not or struct_reduce or test_scan or copy_if or partition or unique or preservation"
)
_SORTS = "segmented_scan or test_sort or list_builder"
_ARRAYS = "rmul or pow_array or pow_number or multiply or addition or subtract_array"


def passed(source: Path, module: str, report: Path, library: str, *options: str) -> set[str]:
    """The tests of a module, or some of them, that pass, after checking that all came to an end."""
    variables = {
        "FAIRLEAD_COMMAND_BUFFER": "direct",
        "OCL_ICD_FILENAMES": library,
        "PYOPENCL_TEST": "portable",
    }
    found, said = pyopencl_tests.passed(source, [*options, *shlex.split(module)], report, variables)
    if not options:
        assert "replayed by the engine direct" in said
    return found


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
    pyopencl_tests_folder: Path, module: str, pocl_wheel: Driver, tmp_path: Path
) -> None:
    library = pocl_wheel.library
    plain = passed(pyopencl_tests_folder, module, tmp_path / "plain.xml", library, "--as-it-is")
    assert plain
    assert plain <= passed(pyopencl_tests_folder, module, tmp_path / "replayed.xml", library)
