"""Intel's own adapters for Level Zero under the real libsycl, on fairlead's loader and driver.

libsycl → Intel's adapter → libze_loader.so.1 → fairlead's driver → an OpenCL driver that takes
SPIR-V. It gives what the reference adapter gives. libsycl fills USM by a kernel of DPC++ on this
backend. So no program calls `queue.fill`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from helpers.clients import (
    DEVICE_PROGRAMS,
    HERE,
    ZE_PROCESSES,
    ZE_VARIABLES,
    Compiler,
    error_of,
    on,
    outputs,
    printed,
)
from helpers.support import Output

from fairlead.loader.ze import libze_loader
from fairlead.plugins import level_zero_driver

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("driver", on("intel_cpu"))]

#: The second adapter has no contexts of sub-devices alone. It does not ask the driver.
_NO_CONTEXT: Final = "level_zero backend failed with error: 19 (UR_RESULT_ERROR_INVALID_DEVICE)"
PROGRAMS: Final = DEVICE_PROGRAMS
#: The second adapter of 2025.3 refuses to unmap a buffer, without a call of the driver. These
#: programs end there.
_NO_UNMAP: Final = "exception in ~buffer Enqueue process failed."
_WITH_BUFFERS: Final = "arguments", "graph", "graph_update"


def run_on(
    adapter: Path,
    real_plugins: Path,
    programs: Sequence[str],
    driver: str,
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
) -> Output:
    """Run programs in one process on an adapter, with fairlead's loader and driver."""
    loader = libze_loader.make_environment({"LD_LIBRARY_PATH": str(real_plugins / "umf")})
    monkeypatch.setenv("LD_LIBRARY_PATH", loader["LD_LIBRARY_PATH"])
    return compiler.run_device(
        programs,
        driver,
        str(adapter),
        ZEL_LIBRARY_PATH=loader["ZEL_LIBRARY_PATH"],
        ZE_ENABLE_ALT_DRIVERS=level_zero_driver(),
        UR_LOADER_USE_LEVEL_ZERO_V2=str(int("_v2" in adapter.name)),
        **ZE_VARIABLES.get(programs[0], {}),
    )


def check(output: Output, program: str, kind: str) -> None:
    """Check that a program printed what it says, or that the second adapter refused its context."""
    if (kind, program) == ("_v2", "sub_devices"):
        assert (error_of(output), output.out.count("sums")) == (_NO_CONTEXT, 2)
    else:
        assert (output.out, output.code) == (printed(HERE / f"device/{program}.cpp"), 0), output.err


@pytest.mark.parametrize("kind", ["", "_v2"])
@pytest.mark.parametrize("programs", ZE_PROCESSES, ids=lambda names: f"{len(names)} programs")
def test_they_print_what_they_say(
    programs: tuple[str, ...],
    kind: str,
    driver: str,
    real_plugins: Path,
    compile_client: Compiler,
    drivers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = real_plugins / f"ur-now/libur_adapter_level_zero{kind}.so.0"
    output = run_on(adapter, real_plugins, programs, drivers[driver], compile_client, monkeypatch)
    said = outputs(output, programs)
    assert said.keys() == set(programs)
    for program, one in said.items():
        check(one, program, kind)
    assert len(programs) == 1 or output.code == 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["", "_v2"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_dpcpp_2025_prints_the_same(
    program: str,
    kind: str,
    driver: str,
    real_plugins: Path,
    compile_then: Compiler,
    drivers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """libsycl.so.8 of 2025.3.3, with its own loader of Unified Runtime and its own adapters."""
    adapter = real_plugins / f"ur-then/libur_adapter_level_zero{kind}.so.0"
    output = run_on(adapter, real_plugins, [program], drivers[driver], compile_then, monkeypatch)
    if kind and program in _WITH_BUFFERS:
        expected = printed(HERE / f"device/{program}.cpp")
        assert output.out and expected.startswith(output.out) and _NO_UNMAP in output.err
    else:
        check(output, program, kind)
