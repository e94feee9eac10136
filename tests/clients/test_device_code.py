"""SYCL programs with device code, which libsycl compiles at run time, on a driver that takes
SPIR-V: both adapters give the same."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from helpers.clients import (
    DEVICE_PROGRAMS,
    HERE,
    WATCHED,
    Compiler,
    adapter_path,
    complaints,
    error_of,
    on,
    outputs,
    printed,
    run,
    without_titles,
)
from helpers.support import Output

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("driver", on("intel_cpu"))]

#: What Intel's adapter has not: updates of graphs on this driver.
_NO_UPDATE: Final = "Device does not support Command Graph update"
#: The layers do not follow the handles that urDevicePartition returns.
_UNWATCHED: Final = ("sub_devices",)
_WATCHED: Final = tuple(name for name in DEVICE_PROGRAMS if name not in _UNWATCHED)


@pytest.mark.parametrize("adapter", [pytest.param("intel", marks=pytest.mark.thorough), "fairlead"])
@pytest.mark.parametrize("programs", [_WATCHED, _UNWATCHED], ids=["watched", "unwatched"])
def test_they_print_what_they_say(
    adapter: str,
    programs: tuple[str, ...],
    driver: str,
    compile_client: Compiler,
    drivers: dict[str, str],
) -> None:
    """They run one after the other in one process: loading libsycl takes longer than they do."""
    watched = {} if programs == _UNWATCHED else WATCHED
    output = compile_client.run_device(programs, drivers[driver], adapter_path(adapter), **watched)
    said = outputs(output, programs)
    for program in programs:
        if (adapter, program) == ("intel", "graph_update"):
            assert (error_of(said[program]), said[program].code) == (_NO_UPDATE, 1)
        else:
            assert (said[program].out, said[program].code) == (
                printed(HERE / f"device/{program}.cpp"),
                0,
            ), said[program].err
    assert output.code == 0
    assert adapter == "intel" or not watched or without_titles(complaints(output)) == []


@pytest.mark.parametrize("way", ["native", "replay"])
def test_command_buffers_of_both_kinds(
    way: str, driver: str, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    programs = ("graph", "graph_update")
    output = compile_client.run_device(
        programs, drivers[driver], adapter_path("fairlead"), FAIRLEAD_COMMAND_BUFFER=way
    )
    expected = {name: Output(0, printed(HERE / f"device/{name}.cpp"), "") for name in programs}
    assert outputs(output, programs) == expected
    assert output.code == 0


def test_binaries_of_programs_come_from_the_cache_of_libsycl(
    driver: str, now: Path, compile_client: Compiler, drivers: dict[str, str], tmp_path: Path
) -> None:
    """The second run makes its programs of what the first one asked the adapter for,
    urProgramGetInfo's binaries."""
    cache = {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": tmp_path, "SYCL_UR_TRACE": "2"}
    made_of_binaries = []
    for _ in range(2):
        output = run(
            compile_client.sycl("groups"), now, drivers[driver], adapter_path("fairlead"), **cache
        )
        said = output.out + output.err
        made_of_binaries.append("---> urProgramCreateWithBinary" in said)
        assert "transposed: 0 4 8 12 1 5" in said
    assert made_of_binaries == [False, True]
