"""Intel's Unified Runtime adapters of PyPI on libze_loader.so.1, with fake drivers.

They have a static loader linked in, which opens libze_loader.so.1 and asks it for tables of its own
version.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.support import FakePlugin, RunPython

from fairlead.loader.base.search import Candidate
from fairlead.loader.ze import libze_loader

ADAPTERS = [
    f"{release}/libur_adapter_level_zero{kind}.so.0"
    for release in ("ur-now", "ur-then")
    for kind in ("", "_v2")
]
CODE = "import fairlead; print([device.name for device in fairlead.adapters().select()])"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_lists_the_devices_of_all_drivers(
    adapter: str, real_plugins: Path, fake_ze: FakePlugin, run_python: RunPython
) -> None:
    one, two = fake_ze(), fake_ze(name='"Two"')
    umf = {"LD_LIBRARY_PATH": str(real_plugins / "umf")}
    # not preloaded, because the adapter's static loader shall find the library itself
    loader = {
        name: v for name, v in libze_loader.make_environment(umf).items() if name != "LD_PRELOAD"
    }
    forced = {"UR_ADAPTERS_FORCE_LOAD": str(real_plugins / adapter)}
    for drivers, names in ((f"{one}", ["Fake 0"]), (f"{one},{two}", ["Fake 0", "Two 0"])):
        env = {**umf, **loader, **forced, "ZE_ENABLE_ALT_DRIVERS": drivers}
        assert run_python(CODE, env=env).out == f"{names}\n"


@pytest.mark.driver("pocl_wheel")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_runs_where_there_is_neither_loader_nor_driver(
    adapter: str, real_plugins: Path, pocl_wheel: Candidate, run_python: RunPython
) -> None:
    """`fairlead run` gives it both: the driver is fairlead's own, on PoCL."""
    env = {
        "LD_LIBRARY_PATH": str(real_plugins / "umf"),
        "UR_ADAPTERS_FORCE_LOAD": str(real_plugins / adapter),
        "OCL_ICD_VENDORS": pocl_wheel.library,
    }
    run = "from fairlead.cli.main import main; main()"
    done = run_python(run, "run", "--", sys.executable, "-c", CODE, env=env)
    assert done.out.startswith("['pthread")
