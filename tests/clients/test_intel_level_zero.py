"""Intel's own adapters for Level Zero under the real libsycl, on fairlead's loader and driver.

libsycl → Intel's adapter → libze_loader.so.1 → fairlead's driver → an OpenCL driver that takes SPIR-V. It gives what
the reference adapter gives. libsycl fills USM by a kernel of DPC++ on this backend. So no program calls `queue.fill`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from helpers.clients import (
    DEVICE_PROGRAMS,
    HERE,
    ZE_VARIABLES,
    Compiler,
    error_of,
    on,
    printed,
)

from fairlead.loader.ze import libze_loader
from fairlead.plugins import level_zero_driver

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("driver", on("intel_cpu"))]

#: The second adapter has no contexts of sub-devices alone. It does not ask the driver.
_NO_CONTEXT: Final = "level_zero backend failed with error: 19 (UR_RESULT_ERROR_INVALID_DEVICE)"
PROGRAMS: Final = DEVICE_PROGRAMS


@pytest.mark.parametrize("kind", ["", "_v2"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_prints_what_it_says(
    program: str,
    kind: str,
    driver: str,
    real_plugins: Path,
    compile_client: Compiler,
    drivers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = libze_loader.environment({"LD_LIBRARY_PATH": str(real_plugins / "umf")})
    monkeypatch.setenv("LD_LIBRARY_PATH", loader["LD_LIBRARY_PATH"])
    output = compile_client.run_device(
        [program],
        drivers[driver],
        str(real_plugins / f"ur-now/libur_adapter_level_zero{kind}.so.0"),
        ZEL_LIBRARY_PATH=loader["ZEL_LIBRARY_PATH"],
        ZE_ENABLE_ALT_DRIVERS=level_zero_driver(),
        UR_LOADER_USE_LEVEL_ZERO_V2=str(int(bool(kind))),
        **ZE_VARIABLES.get(program, {}),
    )
    if (kind, program) == ("_v2", "sub_devices"):
        assert (error_of(output), output.out.count("sums")) == (_NO_CONTEXT, 2)
        return
    assert (output.out, output.code) == (printed(HERE / f"device/{program}.cpp"), 0), output.err
