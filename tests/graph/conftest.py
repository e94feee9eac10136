"""The fixtures of tests/helpers/sycl.py, with which every test runs on every driver.

Another adapter is not ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.sycl import (  # noqa: F401
    context,
    device,
    device_gate,
    gate,
    graph,
    in_order,
    memory,
    other_device,
    parts,
    program,
    queue,
)


@pytest.fixture
def other_adapter(real_plugins: Path, tmp_path: Path) -> dict[str, str]:
    """The environment in which Intel's own OpenCL adapter is the only one."""
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    return {"UR_ADAPTERS_FORCE_LOAD": str(adapter)}
