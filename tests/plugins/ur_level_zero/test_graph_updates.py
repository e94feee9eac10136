"""Every kind of update of a SYCL graph, on this adapter: bit for bit what the reference adapter
gives.

Graph → this adapter → fairlead's Level Zero driver → each OpenCL driver, by each path.
"""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython

from fairlead import plugins
from fairlead.plugins.ur_level_zero.command_buffer.paths import VARIABLE

CODE = "from helpers.graph_updates_program import main; main()"
STEPS = 10


@pytest.mark.parametrize("path", ["auto", "immediate-append", "wait-event"])
def test_updates_give_what_the_reference_adapter_gives(
    path: str, each_driver: Driver, run_python: RunPython
) -> None:
    env = {
        "OCL_ICD_FILENAMES": each_driver.library,
        "OCL_ICD_VENDORS": each_driver.library,
        "PYTHONPATH": str(ROOT / "tests"),
        VARIABLE: path,
    }
    found = [
        run_python(CODE, env={**env, "UR_ADAPTERS_FORCE_LOAD": str(adapter)}).out
        for adapter in (plugins.reference_adapter(), plugins.level_zero_adapter())
    ]
    assert found[0] == found[1]
    states = found[0].splitlines()
    assert len(states) == len({line.split()[-2:][0] + line.split()[-1] for line in states}) == STEPS
