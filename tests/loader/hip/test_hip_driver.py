"""HIP's library and its devices, in both profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.hip import FakeHip
from helpers.support import RunPython

import fairlead
from fairlead.loader.hip import driver
from fairlead.loader.hip.abi import HIP, HipError
from fairlead.loader.hip.driver import HipDriver


def test_devices(fake_hip: FakeHip) -> None:
    (device,) = fake_hip.driver.devices
    assert (device.name, device.uuid, device.capability) == ("Fake GPU 0", b"\1" * 16, (9, 0))
    assert device.architecture == "gfx90a:sramecc+:xnack-"
    assert device.description == "Fake GPU 0 (gfx90a:sramecc+:xnack-)"
    assert "{}.{}".format(*fake_hip.driver.version) == fake_hip.profile
    assert fake_hip.driver.find_device(b"\1" * 16) is device


def test_the_generation_is_that_of_the_symbols(fake_hip: FakeHip) -> None:
    old = fake_hip.profile == "5.2"
    assert fake_hip.driver.generation == (5 if old else 6)
    assert fake_hip.driver.get_constant("hipMemoryTypeHost") == (0 if old else 1)
    layout = fake_hip.driver.get_struct("hipMemAllocationProp")
    assert (layout.location.offset, layout.type.offset) == ((4, 16) if old else (8, 0))


#: Looks for a device in one library, in a child. Arguments: the library, the file of the kernel's
#: driver.
FIND = """
import sys
from fairlead.loader.base.search import Candidate
from fairlead.loader.hip import driver
driver.KFD = sys.argv[2]
found, (refusal,) = driver.SEARCH.find([Candidate(sys.argv[1], "a test")])
print(found, refusal.reason, "|", refusal.remedy)
"""
NO_DEVICE = {"5.2": "hipErrorInvalidDevice", "6.4": "hipErrorNoDevice"}


def test_a_machine_without_a_device(
    fake_hip_path: Path, hip_profile: str, run_python: RunPython
) -> None:
    """It says which code the library has, and that the kernel's driver is missing."""
    environ = {"FAKE_CUDA_DEVICES": "0", "FAIRLEAD_PROBE": "0"}
    text = run_python(FIND, str(fake_hip_path), "/dev/none", env=environ).out
    assert text.startswith(f"None hipInit [{NO_DEVICE[hip_profile]}]:")
    assert "There is no /dev/none" in text and "--device=/dev/none" in text


def test_a_device_that_this_user_may_not_use(fake_hip_path: Path, run_python: RunPython) -> None:
    environ = {"FAKE_CUDA_DEVICES": "0", "FAIRLEAD_PROBE": "0"}
    code = f"import os\nos.access = lambda path, mode: False\n{FIND}"
    text = run_python(code, str(fake_hip_path), "/dev/null", env=environ).out
    assert "This user may not open /dev/null" in text and "render" in text
    text = run_python(FIND, str(fake_hip_path), "/dev/null", env=environ).out
    assert "HIP_VISIBLE_DEVICES" in text and "/dev/null" not in text


def test_debians_library(run_python: RunPython) -> None:
    """Debian 12's HIP 5.2.3 says everything up to the device, in a child process."""
    folder = Path(os.environ.get("AMD", ""), "usr/lib/x86_64-linux-gnu")
    library = folder / "libamdhip64.so.5"
    if not library.exists():
        pytest.skip("AMD names no HIP: `make test` fetches Debian 12's where apt-get is")
    if os.path.exists(driver.KFD):
        pytest.skip("there is an AMD GPU here, or its driver")
    environ = {"LD_LIBRARY_PATH": str(folder), "AMD_LOG_LEVEL": None}
    for probe in ("0", "1"):
        environ["FAIRLEAD_PROBE"] = probe
        text = run_python(FIND, str(library), driver.KFD, env=environ, fresh=True).out
        assert text.startswith("None hipInit [hipErrorInvalidDevice]:")
        assert "There is no /dev/kfd" in text
    code = "import sys\nfrom fairlead.loader.base.library import open_library\n"
    code += "from fairlead.loader.hip.abi import HIP\nfound = open_library(sys.argv[1])\n"
    code += "print([one.name for one in HIP.slots if not found.find_symbol(one.name)])"
    missing = run_python(code, str(library), env=environ, fresh=True).out
    assert eval(missing) == [one.name for one in HIP.slots if one.since > (5, 2)]


@pytest.mark.parametrize(
    "function", ["hipDriverGetVersion", "hipDeviceGetName", "hipGetDeviceProperties"]
)
def test_a_failure_is_a_typed_error(fake_hip: FakeHip, function: str) -> None:
    new = function == "hipGetDeviceProperties" and fake_hip.driver.generation == 6
    name = f"{function}R0600" if new else function
    fake_hip.fail(name, 999)
    with pytest.raises(HipError, match=rf"{name} \[hipErrorUnknown\]"):
        HipDriver(fake_hip.driver.library, "a test")


def test_calls_are_traced(fake_hip: FakeHip) -> None:
    with fairlead.trace(["hip"]) as calls:
        fake_hip.driver.table.hipInit(0)
        fake_hip.driver.table.hipInit(1)
    first, second = map(str, calls)
    assert "hipInit(" in first and "hipSuccess" in first
    assert "hipErrorInvalidValue" in second


def test_the_environment_traces(fake_hip_path: Path, run_python: RunPython) -> None:
    code = (
        "import sys\nfrom fairlead.loader.hip.driver import HipDriver\nHipDriver.open(sys.argv[1])"
    )
    environ = {"FAIRLEAD_TRACE": "hip", "FAIRLEAD_TRACE_ONLY": "hipDeviceGet*"}
    text = run_python(code, str(fake_hip_path), env=environ, fresh=True).err
    assert "hipDeviceGetName" in text and "hipInit" not in text
