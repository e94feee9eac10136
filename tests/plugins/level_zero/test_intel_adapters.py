"""Intel's Unified Runtime adapters of PyPI, on libze_loader.so.1 and on this driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

from fairlead.loader.ze import libze_loader
from fairlead.plugins import level_zero_driver

ADAPTERS = [
    f"{release}/libur_adapter_level_zero{kind}.so.0"
    for release in ("ur-now", "ur-then")
    for kind in ("", "_v2")
]
CODE = "from helpers.level_zero_program import main; main({path!r})"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_kernels_and_updated_command_buffers_run(
    adapter: str, real_plugins: Path, each_driver: Driver, run_python: RunPython
) -> None:
    paths = {"LD_LIBRARY_PATH": str(real_plugins / "umf")}
    # not preloaded, because the adapter's static loader shall find the library itself
    loader = {
        name: v for name, v in libze_loader.environment(paths).items() if name != "LD_PRELOAD"
    }
    env = {
        **paths,
        **loader,
        "ZE_ENABLE_ALT_DRIVERS": level_zero_driver(),
        "OCL_ICD_FILENAMES": each_driver.library,
        "OCL_ICD_VENDORS": each_driver.library,
        "UR_LOADER_USE_LEVEL_ZERO_V2": str(int("v2" in adapter)),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = run_python(CODE.format(path=str(real_plugins / adapter)), env=env)
    assert done.out == "5 5 0\n605 605 0\n1705 1705 0\n", done.err
