"""Intel's Unified Runtime adapters of PyPI on libze_loader.so.1, with fake drivers.

They have a static loader linked in, which opens libze_loader.so.1 and asks it for tables of its own
version.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.support import FakePlugin, RunPython

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
    loader = {name: v for name, v in libze_loader.environment(umf).items() if name != "LD_PRELOAD"}
    forced = {"UR_ADAPTERS_FORCE_LOAD": str(real_plugins / adapter)}
    for drivers, names in ((f"{one}", ["Fake 0"]), (f"{one},{two}", ["Fake 0", "Two 0"])):
        env = {**umf, **loader, **forced, "ZE_ENABLE_ALT_DRIVERS": drivers}
        assert run_python(CODE, env=env).out == f"{names}\n"
