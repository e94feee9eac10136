"""The adapter on Level Zero under the real libsycl: device code of SYCL, on fairlead's own Level
Zero driver.

libsycl → the adapter → fairlead's driver → an OpenCL driver that takes SPIR-V. It gives what the
reference adapter gives. libsycl fills USM by a kernel of DPC++ on this backend. So no program calls
`queue.fill`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from helpers.clients import HERE, ZE_PROCESSES, ZE_VARIABLES, Compiler, on, outputs, printed
from helpers.support import Output

from fairlead import plugins

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("driver", on("intel_cpu"))]

GRAPHS: Final = ("graph", "graph_update")


def expected(programs: tuple[str, ...]) -> dict[str, Output]:
    """What programs of one process come to."""
    return {name: Output(0, printed(HERE / f"device/{name}.cpp"), "") for name in programs}


@pytest.mark.parametrize("process", ZE_PROCESSES, ids=lambda names: f"{len(names)} programs")
def test_they_print_what_they_say(
    process: tuple[str, ...], driver: str, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    programs = tuple(name for name in process if name not in GRAPHS)
    variables = ZE_VARIABLES.get(programs[0], {})
    adapter = plugins.level_zero_adapter()
    output = compile_client.run_device(programs, drivers[driver], adapter, **variables)
    assert (outputs(output, programs), output.code) == (expected(programs), 0)


@pytest.mark.parametrize("path", ["wait-event", "immediate-append", "auto"])
def test_graphs_and_their_updates_by_each_path(
    path: str, driver: str, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    output = compile_client.run_device(
        GRAPHS,
        drivers[driver],
        plugins.level_zero_adapter(),
        FAIRLEAD_ZE_COMMAND_BUFFER=path,
        UR_LOG_FAIRLEAD="level:info",
    )
    found = {name: replace(one, err="") for name, one in outputs(output, GRAPHS).items()}
    assert (found, output.code) == (expected(GRAPHS), 0)
    if path == "auto":
        why = "one-append, because the driver has zeCommandListImmediateAppendCommandListsExp"
    else:
        why = f"{path}, because FAIRLEAD_ZE_COMMAND_BUFFER says so"
    assert f"commands: {why}" in output.err
