"""Calls of the driver that fail or overlap where they seldom do."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from helpers.ur_calls import Calls, array

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl import devices, events
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.opencl.devices import URDevice, divide


def find(kind: str, handle: int) -> Any:
    """The adapter's object of a handle."""
    name = f"ur_{kind}_handle_t"
    return reference.objects.list_owned(name).get(handle) or reference.objects.find_lent(
        name, handle
    )


@pytest.mark.usefixtures("divisible")
def test_two_threads_divide_a_device_into_the_same_sub_devices(
    device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = find("device", device.handle)
    monkeypatch.setattr(devices, "_divided", type(devices._divided)())
    wanted = (OPENCL["CL_DEVICE_PARTITION_EQUALLY"], 1, 0)
    real, found = whole.table.clCreateSubDevices, list[list[URDevice]]()
    other = threading.Thread(target=lambda: found.append(divide(whole, wanted)))

    def create(*arguments: Any) -> int:
        if arguments[2] and other.ident is None:
            other.start()
            other.join(0.5)  # it goes on alone, if it can
        return real(*arguments)

    monkeypatch.setattr(whole.table, "clCreateSubDevices", create)
    found.append(divide(whole, wanted))
    other.join()
    one, another = found
    assert [part.cl for part in one] == [part.cl for part in another]


def test_a_pattern_lives_until_it_is_read_if_nobody_can_say_when(
    ur: Calls, device: PluginDevice, context: int, queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = find("context", context).table
    refuse = OPENCL.codes["CL_OUT_OF_RESOURCES"]
    monkeypatch.setattr(table, "clSetEventCallback", lambda *_: refuse)
    memory = ur.make("urUSMSharedAlloc", context, device.handle, None, None, 12).value or 0
    pattern, read = (ctypes.c_uint8 * 3)(1, 2, 3), (ctypes.c_uint8 * 12)()
    ur.ok("urEnqueueUSMFill", queue, memory, 3, pattern, 12)
    ur.ok("urEnqueueUSMMemcpy", queue, True, read, memory, 12)
    ur.ok("urUSMFree", context, memory)
    assert list(read) == [1, 2, 3] * 4


def test_a_wait_for_a_failed_user_event_fails(
    ur: Calls, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the driver takes it for a success, as NVIDIA's does."""
    owner = find("context", context)
    table, error = owner.table, ctypes.c_int32()
    gate = table.clCreateUserEvent(owner.cl, ctypes.byref(error))
    fail = table.clSetUserEventStatus
    monkeypatch.setattr(table, "clWaitForEvents", lambda *_: fail(gate, -5))
    monkeypatch.setattr(events, "waits_itself", lambda _: False)
    event = ur.make("urEventCreateWithNativeHandle", gate, context)
    code = ur("urEventWait", 1, array(event))
    ur.ok("urEventRelease", event)
    table.clReleaseEvent(gate)
    assert code == "IN_EVENT_LIST_EXEC_STATUS"


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_what_waited_for_a_failure_has_failed_in_every_thread(
    ur: Calls, context: int, queue: int, in_main_thread: bool
) -> None:
    """Intel's driver calls it complete, and only its own wait and its callbacks tell more."""
    owner, error, codes = find("context", context), ctypes.c_int32(), list[str | None]()
    gate = owner.table.clCreateUserEvent(owner.cl, ctypes.byref(error))
    event = ur.make("urEventCreateWithNativeHandle", gate, context)
    behind = ctypes.c_void_p()
    ur.ok("urEnqueueEventsWait", queue, 1, array(event), behind)
    owner.table.clSetUserEventStatus(gate, -5)

    def wait() -> None:
        codes.append(ur("urEventWait", 1, array(behind)))

    if in_main_thread:
        wait()
    else:
        other = threading.Thread(target=wait)
        other.start()
        other.join()
    status = ur.number("urEventGetInfo", behind, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
    codes.append(ur("urEnqueueEventsWait", queue, 1, array(behind)))
    ur.ok("urQueueFinish", queue)
    for one in (event, behind):
        ur.ok("urEventRelease", one)
    owner.table.clReleaseEvent(gate)
    assert codes == ["IN_EVENT_LIST_EXEC_STATUS"] * 2
    assert status == UR["UR_EVENT_STATUS_ERROR"]
