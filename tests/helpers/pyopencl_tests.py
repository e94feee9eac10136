"""PyOpenCL's own tests, in a pytest of their own, with helpers/replayed_pyopencl.py as a plugin.

The tests are in PyOpenCL's source distribution. PYOPENCL_SOURCE names the folder that it was
unpacked to (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from helpers.support import run_program

from .clients import outcomes
from .support import ROOT


def passed(
    source: Path, arguments: Sequence[str], report: Path, variables: dict[str, str]
) -> tuple[set[str], str]:
    """Return the tests that pass and what was printed, after checking that all came to an end.

    Args:
        source: the folder with the tests.
        arguments: what pytest and the plugin are given: options and a module.
        report: the file for pytest's report.
        variables: variables of the child. Those by which OpenCL's loaders find drivers, OCL_ICD_…,
            are taken away first.
    """
    environment = {name: value for name, value in os.environ.items() if "OCL_ICD" not in name}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    plugins = ("-p", "no:cacheprovider", "-p", "helpers.replayed_pyopencl")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, f"--junitxml={report}", *arguments]
    done = run_program(*command, env=environment | variables, cwd=source)
    assert done.code in (0, 1), done.out[-2000:] + done.err[-2000:]
    found = outcomes(report)
    return {name for name, outcome in found.items() if outcome == "passed"}, done.out
