"""What the layer says of drivers that exist only in tests: new ones, old ones, and broken ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, FakeDriver

from .conftest import Layered

#: Prints a device's extensions, their versions, and whether an extension function is the layer's.
LIST = """
import ctypes, json

library = ctypes.CDLL("libOpenCL.so.1")
platform, device, size = (ctypes.c_void_p * 1)(), (ctypes.c_void_p * 1)(), ctypes.c_size_t()
assert library.clGetPlatformIDs(1, platform, None) == 0
assert (
    library.clGetDeviceIDs(
        ctypes.c_void_p(platform[0]), ctypes.c_uint64(0xFFFFFFFF), 1, device, None
    )
    == 0
)


def ask(function, handle, name):
    code = function(ctypes.c_void_p(handle), name, ctypes.c_size_t(0), None, ctypes.byref(size))
    if code:
        return code
    room = ctypes.create_string_buffer(size.value + 1)
    code = function(ctypes.c_void_p(handle), name, size, room, None)
    return code or room.raw[: size.value].decode("latin-1")


print(
    json.dumps([ask(library.clGetDeviceInfo, device[0], name) for name in (0x1030, 0x1060, 0x12A9)])
)
print(
    json.dumps(
        [ask(library.clGetPlatformInfo, platform[0], name) for name in (0x904, 0x907, 0x908)]
    )
)
find = library.clGetExtensionFunctionAddressForPlatform
find.restype = ctypes.c_void_p
print(json.dumps(bool(find(ctypes.c_void_p(platform[0]), b"clRemapCommandBufferKHR"))))
"""
OURS = (
    "cl_khr_command_buffer cl_khr_command_buffer_mutable_dispatch "
    "cl_khr_command_buffer_multi_device"
)

#: A driver's list of its extensions with versions.
VERSIONS = (
    "if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) {{"
    " struct {{ cl_uint version; char name[64]; }} all[3] = {{"
    ' {{{base}, "cl_khr_command_buffer"}},'
    ' {{{mutable}, "cl_khr_command_buffer_mutable_dispatch"}},'
    ' {{{devices}, "cl_khr_command_buffer_multi_device"}}}};'
    " return give(all, sizeof all, room, into, size); }}"
)


def version(major: int, minor: int, patch: int) -> int:
    """A cl_version."""
    return major << 22 | minor << 12 | patch


NEW = {"base": version(0, 9, 8), "mutable": version(0, 9, 5), "devices": version(0, 9, 2)}


def listed(layered: Layered, driver: object) -> list[Any]:
    """What LIST prints of a driver."""
    output = layered(sys.executable, "-c", LIST, drivers=[str(driver)])
    return [json.loads(line) for line in output.out.splitlines()]


@pytest.mark.parametrize("older", [None, *NEW])
def test_a_driver_as_new_is_left_alone(
    layered: Layered, fake_driver: FakeDriver, older: str | None
) -> None:
    have = {**NEW, "base": version(1, 0, 0)}
    if older:
        have[older] = version(0, 9, 1)
    driver = fake_driver(at_query=VERSIONS.format(**have))
    (names, _, capabilities), (platform, _, _), remaps = listed(layered, driver)
    if older:
        assert names == f"cl_khr_fake cl_khr_other {OURS}\0"
        assert str(platform).endswith(f" {OURS}\0") and remaps is True
    else:
        assert names == "cl_khr_fake cl_khr_other\0"
        assert OURS not in str(platform) and remaps is False
        assert capabilities == "\x0c" + 7 * "\0", "the driver's own"


@pytest.mark.parametrize(
    "text", ["OpenCL 1.1 fake", "OpenCL", "", "fake 3.0", "OpenCL 1.", "OpenCL 99999999999999"]
)
def test_old_and_nonsensical_devices_are_left_alone(
    layered: Layered, fake_driver: FakeDriver, text: str
) -> None:
    query = f'if (name == CL_DEVICE_VERSION) return give_text("{text}", room, into, size);'
    (names, _, _), _, remaps = listed(layered, fake_driver(at_query=query))
    assert names == "cl_khr_fake cl_khr_other\0" and remaps is False


def test_other_command_buffer_extensions_are_hidden(
    layered: Layered, fake_driver: FakeDriver
) -> None:
    driver = fake_driver(device_extension='"cl_fake_command_buffer_more  cl_khr_fake"')
    (names, versions, _), _, _ = listed(layered, driver)
    assert names == f"cl_khr_fake cl_khr_other {OURS}\0"
    assert "cl_fake_command_buffer_more" not in str(versions)


@pytest.mark.parametrize(
    "query",
    [
        "if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) return CL_INVALID_VALUE;",
        "if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) return give(sizes, 5, room, into, size);",
        "if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) return give(sizes, 0, room, into, size);",
        "if (name == CL_DEVICE_EXTENSIONS_WITH_VERSION) { if (size) *size = (size_t)1 << 62;"
        " return CL_SUCCESS; }",
    ],
)
def test_a_device_that_answers_nonsense(
    layered: Layered, fake_driver: FakeDriver, query: str
) -> None:
    (names, _, capabilities), _, remaps = listed(layered, fake_driver(at_query=query))
    assert names == f"cl_khr_fake cl_khr_other {OURS}\0" and remaps is True
    assert capabilities == "\x15" + 7 * "\0"


def test_a_platform_without_devices(layered: Layered, fake_driver: FakeDriver) -> None:
    output = layered(sys.executable, "-c", LIST, drivers=[fake_driver(devices=0)], check=False)
    assert output.code == 1 and "AssertionError" in output.err


@pytest.mark.parametrize("engine", ["auto", "replay"])
@pytest.mark.parametrize("icd", [1, 2])
def test_command_buffers_on_a_driver_of_either_kind(
    layered: Layered, fake_driver: FakeDriver, tmp_path: Path, icd: int, engine: str
) -> None:
    """An enqueue makes the recorded launches; the driver runs nothing, but writes them down."""
    folder = ROOT / "tests/plugins/command_buffer_layer"
    code = f"""import sys; sys.path.insert(0, {str(folder)!r})
from calls import *
cb, a = create(), buffer(4)
for number in range(3):
    launch(cb, kernel("add", a, (number,)), 4)
finalize(cb)
for _ in range(5):
    enqueue(cb)
ok(cl.clReleaseCommandBufferKHR(cb))
"""
    log = tmp_path / "log"
    env = {"FAKE_LOG": str(log), "FAIRLEAD_COMMAND_BUFFER": engine}
    layered(sys.executable, "-c", code, drivers=[fake_driver(icd=icd)], env=env)
    assert log.read_text(encoding="utf-8").count("clEnqueueNDRangeKernel") == 15
