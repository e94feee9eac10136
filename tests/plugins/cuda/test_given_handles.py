"""Native handles of CUDA and HIP that a program gave to objects, which it leaves to its end."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.given_handles import count_releases
from helpers.support import RunPython

from fairlead.loader.ur.abi import UR

from .conftest import Adapted, Installed, Work


def test_a_handle_that_two_objects_own_is_released_once(
    installed: Installed, run_python: RunPython
) -> None:
    """Devices, contexts and our streams are nobody's: they live as long as the process."""
    left_out = ["urDevice", "urContext", "urSampler"]
    if installed.backend == "hip":
        left_out.append("urKernel")  # HIP does not tell the module of a function
    args = str(installed.library), installed.backend, installed.backend, left_out
    counts = count_releases(run_python, *args, installed.environment)
    expected = {"urQueue": 0, "urEvent": 1, "urMem": 1, "urProgram": 1, "urKernel": 0}
    assert counts == {stem: expected[stem] for stem in counts}


@pytest.mark.parametrize("owned", [False, True])
def test_a_stream_that_the_program_gave_ends_with_its_queue(
    work: Work, adapted: Adapted, monkeypatch: pytest.MonkeyPatch, owned: bool
) -> None:
    """One that it keeps is left to it."""
    devices, gone = adapted.module("devices"), list[int]()
    ask = devices.CuDevice.ask

    def look(device: Any, name: str, *arguments: Any) -> int:
        if name == "StreamDestroy":
            gone.append(arguments[0])
        return ask(device, name, *arguments)

    monkeypatch.setattr(devices.CuDevice, "ask", look)
    stream, kind = ctypes.c_void_p(), UR["UR_STRUCTURE_TYPE_QUEUE_NATIVE_PROPERTIES"]
    table, is_cuda = adapted.driver.table, adapted.package.endswith("cuda")
    if is_cuda:
        native = work.ur.make("urContextGetNativeHandle", work.context)
        assert table.cuCtxPushCurrent_v2(native) == 0
    create = table.cuStreamCreate if is_cuda else table.hipStreamCreateWithFlags
    assert create(ctypes.byref(stream), 0) == 0
    if is_cuda:
        assert table.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
    how = UR.get_struct("ur_queue_native_properties_t")(kind, None, owned)
    queue = work.ur.make(
        *("urQueueCreateWithNativeHandle", stream.value, work.context, work.device),
        ctypes.byref(how),
    )
    work.ur.ok("urQueueFinish", queue)
    work.ur.ok("urQueueRelease", queue)
    assert gone == [stream.value] * owned
    if not owned:
        assert (table.cuStreamDestroy_v2 if is_cuda else table.hipStreamDestroy)(stream) == 0
