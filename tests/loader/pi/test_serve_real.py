"""PI served from a real adapter, beside a real plugin."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, RunPython

from fairlead.loader.pi.abi import PI
from fairlead.loader.pi.mapping import ENUMS

_PROGRAM = ROOT / "tests/helpers/pi_program.py"


#: What the plugin of 2024 answers against its own header: UR's bits of floating-point capabilities.
_PLUGIN_IS_WRONG = ("FP_CONFIG", "PLATFORM", "EXTENSIONS", "COMPOSITE_DEVICE")


@pytest.fixture(scope="module")
def answers(
    run_python: RunPython, real_plugins: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The program's results through Intel's adapter of 2025.3, and through its PI plugin of
    2024."""
    libraries = f"{sys.prefix}/lib"
    vendors = tmp_path_factory.mktemp(
        "vendors"
    )  # not OCL_ICD_FILENAMES: ocl-icd does not know that
    (vendors / "intel.icd").write_text(f"{libraries}/libintelocl.so\n", encoding="utf-8")
    found = {}
    for kind, path in (
        ("adapter", "ur-then/libur_adapter_opencl.so.0"),
        ("plugin", "pi/libpi_opencl.so"),
    ):
        arguments = (kind, str(real_plugins / path), str(real_plugins / "umf"), libraries)
        found[kind] = json.loads(
            run_python(
                _PROGRAM.read_text(encoding="utf-8"),
                *arguments,
                env={"OCL_ICD_VENDORS": str(vendors)},
            ).out
        )
    return found


def test_program_computes_through_a_real_adapter(answers: dict[str, Any]) -> None:
    found = answers["adapter"]["run"]
    assert found["kernel"] == "scale"
    assert found["usm"] == [True, True]
    assert found["times ascend"]
    assert found["command"] == PI["PI_COMMAND_TYPE_NDRANGE_KERNEL"]
    assert found["buffers"] == {
        "rectangle": [10, 11, 12, 18, 19, 20],
        "filled": [7, 9, 7, 9, 7, 9, 7, 9, 8, 9],
        "buffer size": 64,
    }
    assert found["command-buffer"] == {"right": True, "points differ": True}
    assert found["odds"]["no such kernel"] == PI.codes["PI_ERROR_INVALID_KERNEL_NAME"]


def test_program_finds_the_same_through_a_real_plugin(answers: dict[str, Any]) -> None:
    served, plugin = answers["adapter"]["run"], answers["plugin"]["run"]
    cannot = {
        "devices DEFAULT",
        "command",
        "buffers",
        "command-buffer",
    }  # of the plugin: it fails, or answers in UR's numbers
    assert {key: value for key, value in served.items() if key not in cannot} == {
        key: value for key, value in plugin.items() if key not in cannot
    }


def test_infos_are_those_of_a_real_plugin(answers: dict[str, Any]) -> None:
    served, plugin = answers["adapter"]["infos"], answers["plugin"]["infos"]
    both = [
        name
        for name in served
        if served[name][0] == plugin[name][0] == 0 and not name.endswith(_PLUGIN_IS_WRONG)
    ]
    assert len(both) > 60

    def numbers(found: dict[str, Any]) -> dict[str, bytes]:
        """Return numbers without trailing zeros.

        The plugin answers bools and some bits in UR's width instead of its header's.
        """
        return {name: bytes.fromhex(found[name][1]).rstrip(b"\0") for name in both}

    assert numbers(served) == numbers(plugin)


def test_service_does_what_aborts_the_plugin(answers: dict[str, Any]) -> None:
    assert answers["adapter"]["beyond"] == {
        "called": [True, [[0, 42]]],
        "user event": PI.codes["PI_ERROR_UNSUPPORTED_FEATURE"],
        "partition": "",
        "context's platform": True,
        "atomics": 0x1F,
    }
    assert answers["adapter"]["end"] == answers["plugin"]["end"] == [0, True]
    assert answers["adapter"]["after"] == PI.codes["PI_ERROR_UNINITIALIZED"]


def test_enums_of_queries_cover_every_query() -> None:
    groups = {
        p.type
        for f in PI.slots
        for p in f.parameters
        if p.name == "param_name" or p.type == "pi_peer_attr"
    }
    assert groups <= set(ENUMS)
