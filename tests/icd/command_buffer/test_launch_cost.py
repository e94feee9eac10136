"""What launches cost: measured once for a device, and nothing is left where that fails."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pytest

from fairlead.icd import calls
from fairlead.icd.command_buffer import launch_cost
from fairlead.icd.command_buffer.engine import QueueKind
from fairlead.icd.drivers import platforms

pytestmark = pytest.mark.driver("pocl_wheel")


@pytest.fixture
def device(pocl_wheel: Any) -> cl.Device:
    found = next(one for one in platforms() if "PoCL" in one.version)
    return found.devices[0].to_pyopencl()


def test_a_device_is_measured_once_in_all_contexts(
    device: cl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a context is another one's later."""
    measured: list[int] = []
    monkeypatch.setattr(launch_cost, "_known", {})
    monkeypatch.setattr(
        launch_cost, "_measure", lambda target, size: measured.append(target.context) or 1e-6
    )
    contexts = [cl.Context([device]) for _ in range(2)]
    for context in contexts:
        target = QueueKind(context.int_ptr, device.int_ptr, 0)
        assert launch_cost.measure_launch(target, 1) == 1e-6
    assert measured == [contexts[0].int_ptr]


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["clBuildProgram", "clCreateKernel", "clFinish"])
def test_a_measurement_that_fails_leaves_nothing(
    device: cl.Device, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    made: list[str] = []
    call = launch_cost.call

    def failing(handle: int, routine: str, *values: Any) -> Any:
        kind = routine.removeprefix("clCreate").removeprefix("clRelease").partition("With")[0]
        if kind in ("Program", "Kernel"):
            made.append(kind) if "Create" in routine else made.remove(kind)
        answer = call(handle, routine, *values)
        if routine != fails:
            return answer
        if routine == "clCreateKernel":
            call(answer, "clReleaseKernel")
            made.remove(kind)
            launch_cost.ffi.cast("int32_t *", values[-1])[0] = -6
        return -6

    context = cl.Context([device])
    for module in calls, launch_cost:
        monkeypatch.setattr(module, "call", failing)
    target = QueueKind(context.int_ptr, device.int_ptr, 0)
    assert launch_cost._measure(target, 1) == launch_cost._UNKNOWN
    assert made == []
