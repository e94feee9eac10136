"""The CUDA driver is found, or every place has a reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers.cuda import FakeCuda

import fairlead
from fairlead.loader.base.errors import NotFoundError
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda import driver
from fairlead.loader.cuda.abi import CudaError
from fairlead.loader.cuda.driver import CudaDriver, find, open_driver


def test_devices(fake_cuda: FakeCuda) -> None:
    (device,) = fake_cuda.driver.devices
    assert (device.name, device.uuid, device.capability) == ("Fake GPU 0", b"\1" * 16, (9, 0))
    assert fake_cuda.driver.version == (13, 0) and device.shares_memory
    assert fake_cuda.driver.device_of(b"\1" * 16) is device
    assert fake_cuda.driver.device_of(bytes(16)) is None


def test_the_first_place_that_works_is_taken(fake_cuda_path: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF")
    places = [tmp_path / "missing.so", broken, fake_cuda_path]
    found, refusals = find([Candidate(str(path), "a test") for path in places])
    assert found is not None and found.path == str(fake_cuda_path.resolve())
    assert [refusal.what for refusal in refusals] == [str(path) for path in places[:2]]
    assert refusals[0].reason == "there is no such file" and refusals[1].reason


@pytest.mark.parametrize("count", ["0", "2"])
def test_a_driver_without_a_device(
    fake_cuda_path: Path, monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DEVICES", count)
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    found, refusals = find([Candidate(str(fake_cuda_path), "a test")])
    assert (found is None) == (count == "0")
    assert [("CUDA_ERROR_NO_DEVICE" in one.reason) for one in refusals] == [True] * (count == "0")


def test_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake_cuda_path: Path
) -> None:
    steps = (Candidate(str(tmp_path / "no.so"), "a test"), Candidate(str(fake_cuda_path), "b"))
    monkeypatch.setenv("FAIRLEAD_EXCLUDE", "libcuda.so.1")
    monkeypatch.setattr(driver, "STEPS", steps)
    monkeypatch.setattr(driver, "find", lambda: find(steps))
    monkeypatch.setattr(driver, "_driver", None)
    with pytest.raises(NotFoundError, match=r"no\.so \(a test\).*(\n.*)*FAIRLEAD_EXCLUDE"):
        fairlead.cuda()


def test_a_missing_function_is_an_error_and_no_crash(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    source = "int cuInit(unsigned flags) { return (int)flags; }"
    subprocess.run(command, input=source, text=True, check=True)
    with pytest.raises(CudaError, match=r"cuDriverGetVersion \[CUDA_ERROR_NOT_SUPPORTED\]"):
        open_driver(str(library))


def test_a_failure_is_a_typed_error(fake_cuda: FakeCuda) -> None:
    fake_cuda.fail("cuDeviceGetCount", 999)
    with pytest.raises(CudaError, match="CUDA_ERROR_UNKNOWN"):
        CudaDriver(fake_cuda.driver.library, "a test")


def test_calls_are_traced(fake_cuda: FakeCuda) -> None:
    with fairlead.trace(["cuda"]) as calls:
        fake_cuda.driver.table.cuInit(0)
        fake_cuda.driver.table.cuInit(1)
    first, second = map(str, calls)
    assert "cuInit(" in first and "CUDA_SUCCESS" in first
    assert "CUDA_ERROR_INVALID_VALUE" in second
    assert os.path.basename(fake_cuda.driver.path) == "libcuda.so.1"
