"""The drivers of CUDA and HIP in `fairlead devices`, `fairlead info` and `fairlead doctor`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.doctor import COMMAND, Machine
from helpers.support import RunPython

#: The call that says that there is no device.
WITHOUT = {"cuda": "cuDeviceGetCount", "hip": "hipInit"}


#: The profile decides what is read of a device. The other tests are of an API's name and states.
_ONE_HIP = pytest.mark.parametrize(
    "fake", ["cuda", "hip-6.4", pytest.param("hip-5.2", marks=pytest.mark.thorough)], indirect=True
)


@pytest.fixture(params=["cuda", "hip-5.2", "hip-6.4"])
def fake(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """An API, as `--interface` takes it, and its fake driver."""
    api, _, profile = request.param.partition("-")
    if not profile:
        return api, request.getfixturevalue("fake_cuda_path")
    paths: Callable[[str], Path] = request.getfixturevalue("fake_hip_paths")
    return api, paths(profile)


def test_devices_are_listed_and_described(run_python: RunPython, fake: tuple[str, Path]) -> None:
    api, path = fake
    env = {"LD_LIBRARY_PATH": str(path.parent), "FAKE_CUDA_DEVICES": "2"}

    def run(*words: str) -> str:
        return run_python(COMMAND, *words, "--interface", api, env=env).out

    lines = [line.split()[:6] for line in run("devices").splitlines()[1:]]
    assert lines == [[api, f"0:{number}", "gpu", "Fake", "GPU", str(number)] for number in (0, 1)]
    rows: list[dict[str, Any]] = json.loads(run("devices", "--json"))
    assert {row["library"] for row in rows} == {str(path.resolve())}
    version = {"libcuda.so.1": "99.0", "libamdhip64.so.5": "5.2", "libamdhip64.so.6": "6.4"}
    assert rows[0]["interface"] == api.upper()
    assert rows[0]["interface_version"] == version[path.name]
    text = run("info", f"{api} 0:1")
    warp = "32" if api == "cuda" else "64"
    assert f"warp size: {warp}" in text and "memory: 1 GiB" in text and "GPU 0" not in text
    assert "clock rate: 1000000 kHz" in text and f"uuid: {'02' * 16}" in text
    assert ("architecture: gfx90a" in text) == (api == "hip")
    (found,) = json.loads(run("info", f"{api} 0:0", "--json"))
    name = {"cuda": "CU_DEVICE_ATTRIBUTE_WARP_SIZE", "hip": "hipDeviceAttributeWarpSize"}[api]
    assert found["info"][name] == int(warp)


@_ONE_HIP
def test_no_device_is_an_error_with_the_reasons(
    run_python: RunPython, fake: tuple[str, Path]
) -> None:
    api, path = fake
    env = {"LD_LIBRARY_PATH": str(path.parent), "FAKE_CUDA_DEVICES": "0"}
    done = run_python(COMMAND, "devices", "--interface", api, env=env, check=False)
    assert done.code == 1 and f"no {api.upper()} driver with a device was found" in done.err
    assert f"{path.name} (the dynamic linker's search): {WITHOUT[api]} [" in done.err
    rows = run_python(COMMAND, "devices", "--interface", api, "--json", env=env)
    assert json.loads(rows.out) == [] and "warning: " in rows.err


@_ONE_HIP
def test_the_doctor_tells_their_states(machine: Machine, fake: tuple[str, Path]) -> None:
    api, path = fake
    machine.env["LD_LIBRARY_PATH"] = str(path.parent)
    machine.env["HIP_VISIBLE_DEVICES"] = "0"
    facts = machine.examine()
    (driver,) = [one for one in facts["gpus"] if one["interface"] == api.upper()]
    assert driver["state"] == "usable" and driver["devices"][0].startswith("Fake GPU 0")
    assert driver["real_path"] == str(path.resolve()) and driver["version"]
    told = {variable["name"]: variable["outcome"] for variable in facts["variables"]}
    assert "hides the devices" in told["HIP_VISIBLE_DEVICES"]
    assert f"usable: {api.upper()} {path.resolve()}" in machine.text
    compilers = driver["compilers"]
    assert compilers.keys() == {"OpenCL C", "CUDA C" if api == "cuda" else "HIP C++"}
    if api == "hip":  # the library of the tests lies beside the driver
        assert compilers["OpenCL C"] == "libamd_comgr.so.2"
    for language, name in compilers.items():
        assert f"  compiler of {language}: {name}" in machine.text
    machine.env["FAIRLEAD_EXCLUDE"] = path.name
    (driver,) = [one for one in machine.examine()["gpus"] if one["interface"] == api.upper()]
    assert driver["state"] == "excluded" and path.name in driver["reason"]


@_ONE_HIP
def test_the_doctor_tells_why_they_have_no_device(machine: Machine, fake: tuple[str, Path]) -> None:
    """A driver without a device is a warning where there is a GPU, and nothing elsewhere."""
    api, path = fake
    machine.env.update({"LD_LIBRARY_PATH": str(path.parent), "FAKE_CUDA_DEVICES": "0"})
    facts = machine.examine()
    (driver,) = [one for one in facts["gpus"] if one["interface"] == api.upper()]
    assert driver["state"] == "idle" and driver["reason"].startswith(f"{WITHOUT[api]} [")
    problems = [one for one in facts["problems"] if one["what"] == driver["library"]]
    assert [one["severity"] for one in problems] == ["warning"] * bool(facts["nodes"])


@_ONE_HIP
def test_the_doctor_tells_a_driver_that_crashes(
    machine: Machine, tmp_path: Path, fake: tuple[str, Path]
) -> None:
    api, path = fake
    library = tmp_path / path.name
    source = f"int {'cu' if api == 'cuda' else 'hip'}Init(unsigned f) {{ return *(int *)0L; }}"
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    machine.env["LD_LIBRARY_PATH"] = str(tmp_path)
    facts = machine.examine()
    (driver,) = [one for one in facts["gpus"] if one["interface"] == api.upper()]
    (problem,) = [one for one in facts["problems"] if one["what"] == driver["library"]]
    assert driver["state"] == "refused" and problem["severity"] == "error"
    assert "SIGSEGV" in problem["reason"]
    assert f"FAIRLEAD_EXCLUDE='*{path.name}'" in problem["remedy"]
