"""Every kind of update of a SYCL graph, on the adapters for CUDA and HIP: bit for bit what the
reference adapter gives on the same device.
"""

from __future__ import annotations

import pytest
from helpers.graph_updates import compare_updates
from helpers.support import RunPython

from fairlead import plugins

from .conftest import CudaDriver, Installed, newer_hip


@newer_hip
def test_updates_give_what_the_reference_adapter_gives(
    installed: Installed,
    selected: dict[str, str],
    real_driver: CudaDriver | None,
    run_python: RunPython,
) -> None:
    if real_driver is not None:
        pytest.skip("NVIDIA's OpenCL has no shared memory, so the reference adapter has none")
    reference = {
        "OCL_ICD_FILENAMES": installed.opencl,
        "OCL_ICD_VENDORS": installed.opencl,
        "UR_ADAPTERS_FORCE_LOAD": str(plugins.reference_adapter()),
    }
    compare_updates(run_python, reference, selected)
