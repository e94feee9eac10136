"""SYCL programs on the real libsycl: each prints what its source says, on Intel's adapter and on
ours.

They run one after the other in one process, also under the loader's layers. These say at its end
what was not released.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from helpers.clients import (
    CASES,
    HERE,
    LEAK,
    PROGRAMS,
    WATCHED,
    Case,
    Compiler,
    adapter_path,
    complaints,
    error_of,
    is_repaired,
    on,
    outputs,
    printed,
    run,
    without_titles,
)
from helpers.support import Output

from fairlead.loader.ze import libze_loader
from fairlead.plugins import level_zero_adapter

_UNSUPPORTED: Final = (
    "Enqueue process failed. opencl backend failed with error: 44 "
    "(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)"
)
_NO_NATIVE: Final = "opencl backend failed with error: 44 (UR_RESULT_ERROR_UNSUPPORTED_FEATURE)"
_INVALID: Final = (
    "Enqueue process failed. opencl backend failed with error: 4 (UR_RESULT_ERROR_INVALID_VALUE)"
)
_UNKNOWN: Final = (
    "Enqueue process failed. opencl backend failed with error: 2147483646 (UR_RESULT_ERROR_UNKNOWN)"
)
_NO_UPDATE: Final = "Device does not support Command Graph update"
_NO_GRAPH: Final = "opencl backend is not supported by SYCL Graph extension."
_NO_SHARED: Final = "Device does not support shared USM allocations!"
_NO_DEVICE: Final = "Device does not support USM device allocations!"
#: PyPI's PoCL on a CPU that its LLVM does not know. Only fairlead repairs it
#: (icd/driver_profiles.py).
_NO_BUILD: Final = "OpenCL C does not build: -11"

#: PoCL has no cl_intel_unified_shared_memory, and what Intel's adapter does without is:
_WITHOUT_USM: Final = {
    **dict.fromkeys(("explicit_graph", "queue_usm", "recorded_graph", "repeated"), _NO_DEVICE),
    **dict.fromkeys(("kernels", "prefetch", "profiling", "subgraph", "usm_2d"), _NO_SHARED),
    **dict.fromkeys(("update_command_group", "update_parameters", "update_whole"), _NO_SHARED),
}
#: The errors that programs end with, one line each. What is not here works.
REFUSED: Final[dict[Case, dict[str, str]]] = {
    Case("intel", "intel_cpu"): {
        **dict.fromkeys(
            ("update_buffer", "update_command_group", "update_parameters", "update_whole"),
            _NO_UPDATE,
        ),
        **dict.fromkeys(("native_queue", "prefetch"), _UNSUPPORTED),
        "buffers_host": _INVALID,
    },
    # has no cl_khr_command_buffer
    Case("intel", "pocl_wheel"): {
        **_WITHOUT_USM,
        **dict.fromkeys(("buffers", "buffers_host", "native_graph", "update_buffer"), _NO_GRAPH),
        "native_queue": _UNSUPPORTED,
    },
    # Its cl_khr_command_buffer is 0.9.0. Intel's adapter calls the functions of 0.9.5 and later.
    Case("intel", "pocl-3.1"): {
        **_WITHOUT_USM,
        **dict.fromkeys(("buffers", "buffers_host"), _INVALID),
        "native_graph": _UNKNOWN,
        "native_queue": _UNSUPPORTED,
        "update_buffer": _NO_UPDATE,
    },
    # native commands need a native command-buffer
    Case("fairlead", "pocl_wheel"): {"native_graph": _NO_NATIVE},
}
_BUILDS_ON_POCL: Final = ("images", "queue_buffers", "sub_buffer")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """On what the program runs."""
    return request.param


def refusal(case: Case, program: str, drivers: dict[str, str]) -> str | None:
    """The error that a program ends with on a case, if it does."""
    if (
        case == Case("intel", "pocl_wheel")
        and program in _BUILDS_ON_POCL
        and is_repaired(drivers["pocl_wheel"])
    ):
        return _NO_BUILD
    return REFUSED.get(case, {}).get(program)


def test_they_print_what_they_say(
    case: Case, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    output = run(
        compile_client.sycl(*PROGRAMS), now, drivers[case.driver], adapter_path(case.adapter)
    )
    refused = {program: refusal(case, program, drivers) for program in PROGRAMS}
    assert told(output, PROGRAMS) == expected(refused)
    assert output.code == 0


def told(output: Output, programs: Sequence[str]) -> dict[str, tuple[str, str, int]]:
    """What each program of one process came to: its output, or the error that ended it."""
    return {
        program: (error_of(one) if one.code == 1 else one.out, one.err, one.code)
        for program, one in outputs(output, programs).items()
    }


def expected(refused: dict[str, str | None]) -> dict[str, tuple[str, str, int]]:
    """The same as the sources say it, with the errors of those that are refused."""
    return {
        program: (error, "", 1) if error else (printed(HERE / f"sycl/{program}.cpp"), "", 0)
        for program, error in refused.items()
    }


#: The loader sees the handles of our adapter, which are the same on each driver.
_ON_ONE_DRIVER: Final = [
    pytest.param(
        *case.values,
        id=case.id,
        marks=(*case.marks, *([] if case.id == "fairlead-intel_cpu" else [pytest.mark.thorough])),
    )
    for case in CASES
]


def _complaints_of(
    programs: Sequence[str],
    case: Case,
    now: Path,
    compile_client: Compiler,
    drivers: dict[str, str],
) -> list[str]:
    """What the layers report of programs in one process, which print what they say."""
    given = compile_client.sycl(*programs), now, drivers[case.driver], adapter_path(case.adapter)
    output = run(*given, **WATCHED)
    said = outputs(output, programs)
    for program, one in said.items():
        refused = refusal(case, program, drivers)
        source = HERE / f"sycl/{program}.cpp"
        assert (one.out == printed(source)) if refused is None else (error_of(one) == refused)
    assert said.keys() == set(programs)
    return without_titles(complaints(output))


@pytest.mark.parametrize("case", _ON_ONE_DRIVER, indirect=True)
def test_the_loader_has_nothing_to_complain_of(
    case: Case, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    """All are one process, but for those of which something is known."""
    known = {
        program: KNOWN_COMPLAINTS[case.adapter, program]
        for program in PROGRAMS
        if (case.adapter, program) in KNOWN_COMPLAINTS
    }
    fine = [program for program in PROGRAMS if program not in known]
    assert _complaints_of(fine, case, now, compile_client, drivers) == []
    for program, expected in known.items():
        found = _complaints_of([program], case, now, compile_client, drivers)
        assert found == ([] if refusal(case, program, drivers) else expected)


#: References that the layers do not count, whatever the adapter: a buffer made by partition, and
#: the event of a two-dimensional copy. libsycl makes such copies only on adapters that have them,
#: as ours. The layers call the release of either one too many.
_UNCOUNTED: Final = [
    "[ERROR]: Attempting to release nonexistent handle 0x…",
    "[ERROR]: Retained -1 reference(s) to handle 0x…",
]
KNOWN_COMPLAINTS: Final = {
    ("intel", "sub_buffer"): _UNCOUNTED,
    ("fairlead", "sub_buffer"): _UNCOUNTED,
    ("fairlead", "usm_2d"): _UNCOUNTED,
}


def test_the_loader_does_complain(
    case: Case, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    source, program = HERE / "sycl/leaking.cpp", "leaking"
    given = compile_client.sycl(program), now, drivers[case.driver], adapter_path(case.adapter)
    output = run(*given, **WATCHED)
    assert (output.out, output.code) == (printed(source), 0)
    assert LEAK in complaints(output)


@pytest.mark.parametrize("driver", on("intel_cpu", "pocl-3.1"))
@pytest.mark.parametrize("way", ["native", "replay"])
def test_command_buffers_of_both_kinds(
    way: str, driver: str, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    """Our engines and the driver's cl_khr_command_buffer give the same results."""
    programs = [name for name in PROGRAMS if not name.startswith(("queue_", "usm_", "sub_buffer"))]
    given = compile_client.sycl(*programs), now, drivers[driver], adapter_path("fairlead")
    output = run(*given, FAIRLEAD_COMMAND_BUFFER=way)
    refused = dict.fromkeys(programs) | ({"native_graph": _NO_NATIVE} if way == "replay" else {})
    assert told(output, programs) == expected(refused)
    assert output.code == 0


def test_through_the_loader_s_own_tables(
    case: Case, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    """With several adapters the loader finds an object's table by its first word.

    UR_ENABLE_LOADER_INTERCEPT makes it do so with one.
    """
    programs = ("explicit_graph", "queue_buffers", "kernels")
    given = compile_client.sycl(*programs), now, drivers[case.driver], adapter_path(case.adapter)
    output = run(*given, UR_ENABLE_LOADER_INTERCEPT="1")
    refused = {program: refusal(case, program, drivers) for program in programs}
    assert told(output, programs) == expected(refused)
    assert output.code == 0


#: What Level Zero does not do: libsycl's `update_host` (docs/level_zero_adapter.md), and programs
#: that call OpenCL themselves.
_NOT_ON_LEVEL_ZERO: Final = ("buffers_host", "native_graph", "native_queue")


@pytest.mark.parametrize("driver", on("intel_cpu", "pocl_wheel"))
def test_the_adapter_on_level_zero_gives_the_same(
    driver: str, now: Path, compile_client: Compiler, drivers: dict[str, str]
) -> None:
    """Their kernels are OpenCL C, which modules of fairlead's own driver take."""
    programs = [program for program in PROGRAMS if program not in _NOT_ON_LEVEL_ZERO]
    given = compile_client.sycl(*programs), now, drivers[driver], level_zero_adapter()
    output = run(*given, LEVEL_ZERO_LOADER=libze_loader.find_library())
    assert told(output, programs) == expected(dict.fromkeys(programs))
    assert output.code == 0
