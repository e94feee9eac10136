"""Intel's Unified Runtime adapters of PyPI, on libze_loader.so.1 and on this driver.

The first adapter runs command-buffers by either of two paths, the second one by its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

from fairlead.loader.ze import libze_loader
from fairlead.plugins import level_zero_driver

_CHOICE: Final = "UR_L0_CMD_BUFFER_USE_IMMEDIATE_APPEND_PATH"
#: What the adapter's file is called, and what chooses the path. Immediate appends need immediate
#: lists, or the adapter aborts.
WAYS: Final = {
    "wait-event": ("", {_CHOICE: "0"}),
    "immediate-append": ("", {_CHOICE: "1", "UR_L0_USE_IMMEDIATE_COMMANDLISTS": "1"}),
    "v2": ("_v2", {}),
}
CODE = "from helpers.level_zero_program import main; main({path!r})"


@pytest.mark.parametrize("way", WAYS)
def test_kernels_and_updated_command_buffers_run(
    way: str, real_plugins: Path, each_driver: Driver, run_python: RunPython
) -> None:
    _run(real_plugins / "ur-now", way, real_plugins, each_driver, run_python)


@pytest.mark.one_driver
@pytest.mark.parametrize("way", WAYS)
def test_they_run_on_adapters_of_an_earlier_release(
    way: str, real_plugins: Path, each_driver: Driver, run_python: RunPython
) -> None:
    _run(real_plugins / "ur-then", way, real_plugins, each_driver, run_python)


def _run(
    release: Path, way: str, real_plugins: Path, each_driver: Driver, run_python: RunPython
) -> None:
    kind, variables = WAYS[way]
    adapter = release / f"libur_adapter_level_zero{kind}.so.0"
    paths = {"LD_LIBRARY_PATH": str(real_plugins / "umf")}
    # not preloaded, because the adapter's static loader shall find the library itself
    loader = {
        name: v for name, v in libze_loader.make_environment(paths).items() if name != "LD_PRELOAD"
    }
    env = {
        **paths,
        **loader,
        **variables,
        "ZE_ENABLE_ALT_DRIVERS": level_zero_driver(),
        "OCL_ICD_FILENAMES": each_driver.library,
        "OCL_ICD_VENDORS": each_driver.library,
        "UR_LOADER_USE_LEVEL_ZERO_V2": str(int(way == "v2")),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = run_python(CODE.format(path=str(adapter)), env=env)
    assert done.out == "5 5 0\n605 605 0\n1705 1705 0\n", done.err
