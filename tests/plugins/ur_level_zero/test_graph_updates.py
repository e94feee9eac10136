"""Every kind of update of a SYCL graph, on this adapter: bit for bit what the reference adapter
gives.

Graph → this adapter → fairlead's Level Zero driver → each OpenCL driver, by each path.
"""

from __future__ import annotations

from helpers.drivers import Driver
from helpers.graph_updates import compare_updates
from helpers.support import RunPython

from fairlead import plugins
from fairlead.plugins.ur_level_zero.command_buffer.paths import VARIABLE

PATHS = ("auto", "immediate-append", "wait-event")


def test_updates_give_what_the_reference_adapter_gives(
    each_driver: Driver, run_python: RunPython
) -> None:
    each_driver.skip_unless_it_shares(run_python)
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    reference = {**env, "UR_ADAPTERS_FORCE_LOAD": str(plugins.reference_adapter())}
    ours = {**env, "UR_ADAPTERS_FORCE_LOAD": str(plugins.level_zero_adapter())}
    compare_updates(run_python, reference, *({**ours, VARIABLE: path} for path in PATHS))
