"""The CUDA driver and its devices.

cuda.abi against cuda.h of NVIDIA's wheel (CUDA_HEADERS names its folder).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.abi_header import compile_lines, function_lines, struct_lines, type_lines, value_lines
from helpers.cuda import FakeCuda

import fairlead
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda.abi import CUDA, CudaError
from fairlead.loader.cuda.driver import SEARCH, CudaDriver


@pytest.mark.slow
def test_devices(fake_cuda: FakeCuda) -> None:
    device, other = fake_cuda.driver.devices
    assert (other.name, other.uuid) == ("Fake GPU 1", b"\2" * 16)
    assert (device.name, device.uuid, device.capability) == ("Fake GPU 0", b"\1" * 16, (9, 0))
    assert fake_cuda.driver.version == (99, 0) and device.shares_memory
    assert fake_cuda.driver.find_device(b"\1" * 16) is device
    assert fake_cuda.driver.find_device(bytes(16)) is None


@pytest.mark.parametrize("count", ["0", "2"])
def test_a_driver_without_a_device(
    fake_cuda_path: Path, monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DEVICES", count)
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    found, refusals = SEARCH.find([Candidate(str(fake_cuda_path), "a test")])
    assert (found is None) == (count == "0")
    assert [("CUDA_ERROR_NO_DEVICE" in one.reason) for one in refusals] == [True] * (count == "0")


def test_a_failure_is_a_typed_error(fake_cuda: FakeCuda) -> None:
    fake_cuda.fail("cuDeviceGetCount", 999)
    with pytest.raises(CudaError, match="CUDA_ERROR_UNKNOWN"):
        CudaDriver(fake_cuda.driver.library, "a test")


def test_every_function_can_fail(fake_cuda: FakeCuda) -> None:
    """The fake has every function, and a knob for each."""
    for function in CUDA.slots:
        fake_cuda.fail(function.name, 999)
        given = [
            None
            if parameter.stars
            else CUDA.get_struct(parameter.type)()
            if parameter.type in CUDA.structs
            else 0
            for parameter in function.parameters
        ]
        assert getattr(fake_cuda.driver.table, function.name)(*given) == 999, function.name


def test_calls_are_traced(fake_cuda: FakeCuda) -> None:
    with fairlead.trace(["cuda"]) as calls:
        fake_cuda.driver.table.cuInit(0)
        fake_cuda.driver.table.cuInit(1)
    first, second = map(str, calls)
    assert "cuInit(" in first and "CUDA_SUCCESS" in first
    assert "CUDA_ERROR_INVALID_VALUE" in second
    assert os.path.basename(fake_cuda.driver.path) == "libcuda.so.1"


_TYPES = {"uint32_t": "unsigned int", "uint64_t": "unsigned long long", "uint8_t": "unsigned char"}


@pytest.fixture(scope="module")
def cuda_h() -> Path:
    """The header."""
    folder = os.environ.get("CUDA_HEADERS", "")
    path = Path(folder, "cuda.h")
    if not folder or not path.exists():
        pytest.skip("needs CUDA_HEADERS, the folder of cuda.h (pip: nvidia-cuda-runtime)")
    return path


def test_the_data_are_those_of_the_header(cuda_h: Path, tmp_path: Path) -> None:
    values = {name: one.value for name, one in CUDA.constants.items()} | CUDA.codes
    lines = [
        *function_lines(CUDA.slots, _TYPES),
        *struct_lines(CUDA, CUDA.structs),
        *type_lines(CUDA, CUDA.types),
        *value_lines(values),
    ]
    compile_lines(lines, tmp_path, ["cuda.h"], f"-I{cuda_h.parent}")
