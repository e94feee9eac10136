"""The adapter on Level Zero under the real libsycl: device code of SYCL, on fairlead's own Level
Zero driver.

libsycl → the adapter → fairlead's driver → an OpenCL driver that takes SPIR-V. It gives what the
reference adapter gives. libsycl fills USM by a kernel of DPC++ on this backend. So no program calls
`queue.fill`.
"""

from __future__ import annotations

from typing import Final

import pytest
from helpers.clients import DEVICE_PROGRAMS, HERE, ZE_VARIABLES, Compiler, on, printed

from fairlead import plugins

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("driver", on("intel_cpu"))]

#: Programs with graphs, and the others.
GRAPHS: Final = ("graph", "graph_update")
OTHERS: Final = sorted({*DEVICE_PROGRAMS} - {*GRAPHS})


@pytest.mark.parametrize("program", OTHERS)
def test_it_prints_what_it_says(
    program: str, driver: str, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    output = compile_client.run_device(
        [program],
        drivers[driver],
        plugins.level_zero_adapter(),
        **ZE_VARIABLES.get(program, {}),
    )
    source = HERE / f"device/{program}.cpp"
    assert (output.out, output.err, output.code) == (printed(source), "", 0)


@pytest.mark.parametrize("path", ["wait-event", "immediate-append", "auto"])
@pytest.mark.parametrize("program", GRAPHS)
def test_graphs_and_their_updates_by_each_path(
    program: str,
    path: str,
    driver: str,
    compile_client: Compiler,
    drivers: dict[str, str],
) -> None:
    output = compile_client.run_device(
        [program],
        drivers[driver],
        plugins.level_zero_adapter(),
        FAIRLEAD_ZE_COMMAND_BUFFER=path,
        UR_LOG_FAIRLEAD="level:info",
    )
    assert (output.out, output.code) == (printed(HERE / f"device/{program}.cpp"), 0)
    if path == "auto":
        why = "one-append, because the driver has zeCommandListImmediateAppendCommandListsExp"
    else:
        why = f"{path}, because FAIRLEAD_ZE_COMMAND_BUFFER says so"
    assert f"commands: {why}" in output.err
