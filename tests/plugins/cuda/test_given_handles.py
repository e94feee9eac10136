"""Native handles of CUDA and HIP that a program gave to objects, which it leaves to its end."""

from __future__ import annotations

from helpers.given_handles import count_releases
from helpers.support import RunPython

from .conftest import Installed


def test_a_handle_that_two_objects_own_is_released_once(
    installed: Installed, run_python: RunPython
) -> None:
    """Devices, contexts and streams are nobody's: they live as long as the process."""
    left_out = ["urDevice", "urContext", "urQueue", "urSampler"]
    if installed.backend == "hip":
        left_out.append("urKernel")  # HIP does not tell the module of a function
    args = str(installed.library), installed.backend, installed.backend, left_out
    counts = count_releases(run_python, *args, installed.environment)
    expected = {"urEvent": 1, "urMem": 1, "urProgram": 1, "urKernel": 0}
    assert counts == {stem: expected[stem] for stem in counts}
