"""urDeviceGetInfo: every property has its place in one table, and answers what Intel's own adapter
answers on the same driver.

docs/adapter_support.md tells the truth: every entry point is declared, or there is a reason why
not.
"""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from helpers.support import ROOT, FakeDriver, RunPython
from helpers.tables import table
from helpers.ur_calls import Calls

from fairlead import plugins
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.opencl import device_info, device_tables
from fairlead.plugins.opencl.core import adapter as declared
from fairlead.plugins.opencl.devices import URDevice as OwnDevice
from fairlead.plugins.opencl.devices import get_device
from fairlead.plugins.opencl.unsupported import REASONS, TABLES, make_page
from fairlead.plugins.sdk import capability_properties

PROPERTIES: Final = [
    name.removeprefix("UR_DEVICE_INFO_")
    for name, c in UR.constants.items()
    if c.group == "ur_device_info_t"
]

#: Prints {property: "code" or hex digits} of the first device whose platform's name has a word in
#: it, by an adapter's library.
PROGRAM: Final = """
import ctypes, json, sys
from fairlead.api import make_nested_environment
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.base.query import query
from fairlead.loader.ur.abi import UR, URError, check

adapter = load(
    PluginCandidate(sys.argv[1], "test", backend="opencl"), environment=make_nested_environment()
)
device = next(device for device in adapter.devices if sys.argv[2] in device.platform.name)
answers = {}
for name, constant in UR.constants.items():
    if constant.group == "ur_device_info_t":
        try:
            answer = query(
                adapter.table.urDeviceGetInfo, name, check, device.handle, constant.value
            )
            if constant.answer == "char[]":
                answer = " ".join(answer.decode().strip("\\0").split()).encode()
            answers[name.removeprefix("UR_DEVICE_INFO_")] = (
                "handle" if "handle" in constant.answer else answer.hex()
            )
        except URError as error:
            answers[name.removeprefix("UR_DEVICE_INFO_")] = error.code.removeprefix(
                "UR_RESULT_ERROR_"
            )
print(json.dumps(answers))
sys.stdout.flush()
"""

_INTEL, _POCL = "Intel", "Portable Computing Language"
_NO_USM: Final = "shared virtual memory stands in where the driver has no USM"

#: What this adapter answers otherwise than Intel's of 2025.3.3: on which drivers, and why.
DIFFERENT: Final = {
    "QUEUE_ON_DEVICE_PROPERTIES": (_INTEL, "0: neither adapter makes queues on a device"),
    "COMMAND_BUFFER_SUPPORT_EXP": (_POCL, "also without cl_khr_command_buffer"),
    "COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP": (
        _INTEL,
        _POCL,
        "kernels and events can be exchanged too",
    ),
    "COMMAND_BUFFER_EVENT_SUPPORT_EXP": (
        _INTEL,
        _POCL,
        "commands of a command-buffer can wait for events and signal them",
    ),
    "TIMESTAMP_RECORDING_SUPPORT_EXP": (
        _INTEL,
        _POCL,
        "a marker on a queue of the adapter's own has the time",
    ),
    "ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP": (_INTEL, _POCL, "urEnqueueNativeCommandExp is there"),
    "USM_POOL_SUPPORT": (_INTEL, _POCL, "pools are there"),
    "USM_HOST_SUPPORT": (_POCL, _NO_USM),
    "USM_DEVICE_SUPPORT": (_POCL, _NO_USM),
    "USM_SINGLE_SHARED_SUPPORT": (_POCL, _NO_USM),
    "USM_CROSS_SHARED_SUPPORT": (_POCL, _NO_USM),
    "USM_CONTEXT_MEMCPY_SUPPORT_EXP": (_INTEL, _POCL, "urUSMContextMemcpyExp is there"),
    "KERNEL_LAUNCH_CAPABILITIES": (_INTEL, "cooperative launches, by cl_intel_concurrent_dispatch"),
    "GLOBAL_VARIABLE_SUPPORT": (
        _INTEL,
        "both entry points and the driver's functions are there, in Intel's too",
    ),
    "PROGRAM_SET_SPECIALIZATION_CONSTANTS": (
        _POCL,
        "the driver takes no SPIR-V; Intel's says so of every driver",
    ),
    "NODE_MASK": (
        _INTEL,
        "no answer where the LUID is not valid (cl_khr_device_uuid); Intel's hands on the 0",
    ),
}


def ask(
    run_python: RunPython, library: Path, platform: str, drivers: dict[str, str]
) -> dict[str, str]:
    return json.loads(run_python(PROGRAM, str(library), platform, env=drivers).out.splitlines()[-1])


def test_every_property_has_one_place() -> None:
    without = [name for names in device_tables.WITHOUT.values() for name in names]
    tables: tuple[Any, ...] = (
        device_tables.PLAIN,
        device_tables.LATER,
        capability_properties.CAPABILITY_PROPERTIES,
        device_tables.FIXED,
        device_info.FUNCTIONS,
    )
    assert Counter([*(name for table in tables for name in table), *without]) == Counter(PROPERTIES)


@pytest.mark.parametrize("platform", [_INTEL, _POCL])
def test_answers_are_those_of_intels_adapter(
    platform: str,
    real_plugins: Path,
    tmp_path: Path,
    run_python: RunPython,
    wheel_drivers: dict[str, str],
) -> None:
    theirs = tmp_path / "libur_adapter_opencl.so.0"
    theirs.symlink_to(real_plugins / "ur-then" / theirs.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    expected = ask(run_python, theirs, platform, wheel_drivers)
    answers = ask(
        run_python,
        Path(plugins.__file__).with_name("libur_adapter_fairlead.so.0"),
        platform,
        wheel_drivers,
    )
    unknown_to_it = "INVALID_ENUMERATION"
    others = {
        name: (answers[name], answer)
        for name, answer in expected.items()
        if answer not in (answers[name], unknown_to_it)
    }
    assert set(others) == {
        name for name, (*drivers, _) in DIFFERENT.items() if platform in drivers
    }, others
    assert not {"UNKNOWN", unknown_to_it} & set(answers.values())


def test_command_buffers_can_do_everything(device: PluginDevice) -> None:
    assert device.info("COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP") == 0x3F
    for name, answer in (("SUPPORT", True), ("EVENT_SUPPORT", True), ("SUBGRAPH_SUPPORT", False)):
        assert device.info(f"COMMAND_BUFFER_{name}_EXP") is answer


# devices of other versions and kinds


def older(native: int, version: tuple[int, int]) -> OwnDevice:
    """A device of ours whose driver says that it is of an older OpenCL, without any extension."""
    device = OwnDevice(native, get_device(native).platform)
    vars(device.icd).update(version_number=version, extensions=frozenset())
    return device


OLDER: Final = {
    (1, 0): {
        "DOUBLE_FP_CONFIG": 0,
        "LINKER_AVAILABLE": False,
        "IMAGE_SRGB": False,
        "ATOMIC_MEMORY_ORDER_CAPABILITIES": 1,
        "ATOMIC_MEMORY_SCOPE_CAPABILITIES": 0b111,
        "NATIVE_VECTOR_WIDTH_INT": 0,
        "BUILT_IN_KERNELS": "",
        "UUID": None,
    },
    (1, 2): {
        "LINKER_AVAILABLE": True,
        "QUEUE_ON_DEVICE_PROPERTIES": 0,
        "IL_VERSION": "",
        "HALF_FP_CONFIG": 0,
        "SUB_GROUP_SIZES_INTEL": [1],
    },
    (2, 0): {
        "ATOMIC_FENCE_ORDER_CAPABILITIES": 0b11111,
        "ATOMIC_MEMORY_SCOPE_CAPABILITIES": 0b1111,
        "PROGRAM_SET_SPECIALIZATION_CONSTANTS": False,
        "DEVICE_ID": None,
        "ATOMIC_64": False,
    },
}


@pytest.mark.parametrize("version", OLDER)
def test_an_older_driver_is_not_asked_for_what_came_later(
    ur: Calls, device: PluginDevice, version: tuple[int, int]
) -> None:
    native = ctypes.c_void_p()
    ur.ok("urDeviceGetNativeHandle", device.handle, native)
    old = older(native.value or 0, version)
    answer = declared._functions["urDeviceGetInfo"]
    for name, expected in OLDER[version].items():
        assert answer(old, UR[f"UR_DEVICE_INFO_{name}"]) == expected, name


def test_an_accelerator_that_answers_little(
    fake_driver: FakeDriver, tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "fake.icd").write_text(str(fake_driver()), encoding="utf-8")
    library = Path(plugins.__file__).with_name("libur_adapter_fairlead.so.0")
    done = run_python(PROGRAM, str(library), "Fake", env={"OCL_ICD_VENDORS": str(tmp_path)})
    answers = json.loads(done.out.splitlines()[-1])
    assert bytes.fromhex(answers["TYPE"]) == UR["UR_DEVICE_TYPE_FPGA"].to_bytes(4, "little")
    assert bytes.fromhex(answers["NAME"]) == b"Fake device"
    assert (
        answers["SUB_GROUP_SIZES_INTEL"] == "01000000"
        and answers["MAX_NUM_SUB_GROUPS"] == "01000000"
    )
    assert answers["VENDOR_ID"] == answers["UUID"] == "UNSUPPORTED_ENUMERATION"
    assert "UNKNOWN" not in answers.values(), done.err


EVERY = [name for names in TABLES.values() for name in names]


def test_every_entry_point_is_implemented_or_has_one_reason() -> None:
    assert len(EVERY) == 241
    reasons = Counter(name for names in REASONS.values() for name in names)
    there = [name for name in EVERY if name in declared.declared]
    assert Counter(there) + reasons == Counter(EVERY)


def test_the_page_is_what_the_adapter_declares() -> None:
    assert (ROOT / "docs/adapter_support.md").read_text(encoding="utf-8") == make_page() + "\n"


def test_the_module_prints_the_page(run_python: RunPython) -> None:
    done = run_python(
        "import runpy; runpy.run_module('fairlead.plugins.opencl.unsupported', run_name='__main__')"
    )
    assert done.out == make_page() + "\n"


@table("name", [name for names in REASONS.values() for name in names])
def test_what_is_not_implemented_answers_unsupported_feature(
    ur: Calls, adapter: Plugin, name: str
) -> None:
    nothing = [None if p.stars else UR.make_ctype(p.type)() for p in UR.functions[name].parameters]
    assert ur(name, *nothing) == "UNSUPPORTED_FEATURE"
