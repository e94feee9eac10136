"""Every program of examples/ on the adapters for CUDA and HIP, in a process of its own.

Those for the runtime compute there what they compute elsewhere. Those for PyOpenCL need a device of
OpenCL's, and say so.
"""

from __future__ import annotations

from typing import Final

import pytest
from helpers.support import ROOT, RunPython

from .conftest import Installed, newer_hip

pytestmark = pytest.mark.slow

EXAMPLES: Final = ROOT / "examples"
_AGREE: Final = "called and replayed results agree: bit for bit"
_REFUSED: Final = (
    "has no counterpart in pyopencl, which has devices of OpenCL's alone\n"
    "  remedy: ONEAPI_DEVICE_SELECTOR=opencl:* selects one"
)
#: Small arguments of each program, and what it says at its end.
CASES: Final = {
    "conjugate_gradient": ("--size 12", _AGREE),
    "wave_3d": ("--size 8 --steps 40", _AGREE),
    "image_pipeline": ("--size 24 --pictures 3", _AGREE),
    "commands_aggregation": ("--work-size 2", "every element is 1,000,000"),
    "heat": ("--size 16 --steps 4", _REFUSED),
    "array_program": ("--countries 33 --days 4", _REFUSED),
    "conjugate_gradient_arrays": ("--size 12", _REFUSED),
    "tissue": ("--size 16 --steps 4", _REFUSED),
}
#: Programs that take no device of an adapter: they ask `fairlead.devices()`, which is OpenCL.
OPENCL_ALONE: Final = {"wave", "parameter_sweep"}
#: What is no program.
OTHERS: Final = {"comparison", "toy_adapter"}

#: Runs the script that the first argument names as Python does, with the other arguments.
RUN: Final = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", CASES)
@newer_hip
def test_it_computes_or_says_why_not(
    run_python: RunPython, selected: dict[str, str], installed: Installed, name: str
) -> None:
    arguments, last = CASES[name]
    program = str(EXAMPLES / f"{name}.py")
    refused = last == _REFUSED
    done = run_python(RUN, program, *arguments.split(), env=selected, check=not refused)
    assert (done.err if refused else done.out).rstrip().endswith(last)
    assert (f"a Device of {installed.backend} {last}" in done.err) == refused


def test_every_example_is_here() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == CASES.keys() | OPENCL_ALONE | OTHERS
    for name in OPENCL_ALONE:
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        assert "fairlead.devices()" in text and "fairlead.runtime" not in text
