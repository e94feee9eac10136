"""PyOpenCL's own tests, from its source: under fairlead.preload each does what it does without.

Without, PyOpenCL calls the loader in its wheel. fairlead opens the driver in that process, too: on
new CPUs the PoCL wheel builds no kernel before its repair.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers.clients import outcomes
from helpers.support import CHILD_TIMEOUT, run_program

from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow
REPAIRED = "from fairlead.icd.drivers import drivers\ndrivers()\n"
PRELOADED = """
from fairlead import preload


def pytest_terminal_summary():
    print(
        "loaders:", [line.split()[-1] for line in open("/proc/self/maps") if "/libOpenCL" in line]
    )
"""

#: The files beside test_wrapper.py.
FURTHER = (
    "test_algorithm",
    "test_array",
    "test_arrays_in_structs",
    "test_clmath",
    "test_clrandom",
    "test_enqueue_copy",
)
#: PoCL 3.0 crashes in it, under any loader: it frees memory that commands of another queue use.
LEFT_OUT = "test_array.py::test_arrays_with_svm_allocators"


@pytest.fixture(scope="module")
def suite() -> Path:
    """The folder of the tests of the installed PyOpenCL."""
    sources = os.environ.get("PYOPENCL_SOURCES", "")
    folder = Path(sources) / f"pyopencl-{version('pyopencl')}/test"
    if not folder.exists():
        pytest.skip(f"{folder} is not there: `make test` fetches it where the index has sources")
    return folder


def run(suite: Path, file: str, driver: str, folder: Path, plugin: str) -> dict[str, str]:
    """Run a file of tests in a process that begins with a plugin of pytest. Returns the outcomes.

    Args:
        suite: the folder of PyOpenCL's tests.
        file: the file's name.
        driver: the only driver.
        folder: for the plugin and the report.
        plugin: the plugin's source.
    """
    folder.mkdir()
    (folder / "begin.py").write_text(plugin, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "begin", "-p", "no:cacheprovider"]
    command += [f"--deselect={LEFT_OUT}", f"--rootdir={suite}", file]
    ways = {
        "OCL_ICD_VENDORS": driver,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "",
    }
    done = run_program(
        *command,
        f"--junitxml={folder / 'report.xml'}",
        env={**os.environ, **ways},
        cwd=suite,
        timeout=2 * CHILD_TIMEOUT,
    )
    assert done.code in (0, 1), f"{done.out}\n{done.err}"
    is_ours = "/icd/libopencl/libOpenCL.so.1" in done.out
    assert is_ours == (plugin == PRELOADED), done.out
    return outcomes(folder / "report.xml")


def same(suite: Path, file: str, driver: str, folder: Path) -> int:
    """Check that a file's tests have the same outcomes, and return how many passed."""
    without = run(suite, file, driver, folder / "without", REPAIRED)
    assert run(suite, file, driver, folder / "with", PRELOADED) == without
    return list(without.values()).count("passed")


def test_preload_changes_no_outcome(suite: Path, pocl_wheel: Candidate, tmp_path: Path) -> None:
    """In the file that calls each function of OpenCL."""
    assert same(suite, "test_wrapper.py", pocl_wheel.library, tmp_path) > 30


@pytest.mark.thorough
@pytest.mark.parametrize("file", FURTHER)
def test_preload_changes_no_outcome_in_further_files(
    suite: Path, pocl_wheel: Candidate, tmp_path: Path, file: str
) -> None:
    assert same(suite, f"{file}.py", pocl_wheel.library, tmp_path) > 0


def test_no_file_is_forgotten(suite: Path) -> None:
    assert {path.stem for path in suite.glob("test_*.py")} == {"test_wrapper", *FURTHER}
