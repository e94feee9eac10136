"""Native handles that a program gave to objects, which it leaves to its end."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.given_handles import count_releases
from helpers.support import RunPython

from fairlead import plugins

OWN = {
    "opencl": (plugins.reference_adapter, "cl", ()),
    "level_zero": (plugins.level_zero_adapter, "ze", ("urSampler",)),  # it has no such function
}


@pytest.mark.parametrize("backend", OWN)
def test_a_handle_that_two_objects_own_is_released_once(
    backend: str, each_driver: Driver, run_python: RunPython
) -> None:
    """PoCL ends a process that releases a sampler twice."""
    library, api, left_out = OWN[backend]
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    counts = count_releases(run_python, str(library()), backend, api, left_out, env)
    assert counts.pop("urDevice") == 0  # a root device
    assert counts == dict.fromkeys(counts, 1)
