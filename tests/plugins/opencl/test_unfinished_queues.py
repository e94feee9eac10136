"""A queue's commands go on after its release: what waits for the queues of a context or device
waits for them too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import pytest
from helpers.memory_calls import held_back, new_queue
from helpers.support import ROOT, RunPython
from helpers.ur_calls import Calls, array

from fairlead.icd.command_buffer import queue_release
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl import queues, unfinished
from fairlead.plugins.opencl.core import CLObject
from fairlead.plugins.opencl.core import adapter as reference

SIZE = 64


@pytest.fixture
def device(pocl_wheel_device: PluginDevice) -> PluginDevice:
    """PoCL's, which frees USM by a function of its table."""
    return pocl_wheel_device


@pytest.fixture
def table(context: int) -> DispatchTable:
    """The driver's functions."""
    found = reference.objects.find_lent("ur_context_handle_t", context)
    assert isinstance(found, CLObject)
    return found.table


class Held:
    """A copy into USM that a user event holds back, in a queue that was released. A wait for it
    opens the gate."""

    def __init__(
        self,
        ur: Calls,
        context: int,
        device: int,
        monkeypatch: pytest.MonkeyPatch,
        *flags: str,
        has_event: bool = True,
    ) -> None:
        self.ur = ur
        self.gate, self._open = held_back(ur, context)
        self.memory = ur.make("urUSMDeviceAlloc", context, device, None, None, SIZE).value or 0
        self.host = ctypes.create_string_buffer(b"x" * SIZE, SIZE)
        queue = new_queue(ur, context, device, *flags)
        arguments = (queue, False, self.memory, self.host, SIZE, 1, array(self.gate))
        self.copied = ctypes.c_void_p()
        event = ctypes.byref(self.copied) if has_event else None
        ur.ok("urEnqueueUSMMemcpy", *arguments, event)
        ur.ok("urQueueRelease", queue)
        for module, name in ((queues, "finish"), (unfinished, "wait_for_event")):
            monkeypatch.setattr(module, name, self.opening(getattr(module, name)))

    def opening(self, real: Callable[..., None]) -> Callable[..., None]:
        def wait(*arguments: Any) -> None:
            self._open()
            real(*arguments)

        return wait

    def is_complete(self) -> bool:
        name = "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
        return self.ur.number("urEventGetInfo", self.copied, name) == 0

    def end(self) -> None:
        if self.copied:
            self.ur.ok("urEventWait", 1, array(self.copied))
            self.ur.ok("urEventRelease", self.copied)
        self.ur.ok("urEventRelease", self.gate)


@pytest.mark.parametrize("flags", [(), ("OUT_OF_ORDER_EXEC_MODE_ENABLE",)])
def test_memory_is_freed_after_the_commands_of_a_released_queue(
    ur: Calls,
    context: int,
    device: PluginDevice,
    table: DispatchTable,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
) -> None:
    held = Held(ur, context, device.handle, monkeypatch, *flags)
    real, complete = table.clSVMFree, list[bool]()

    def free(*arguments: Any) -> None:
        complete.append(held.is_complete())
        real(*arguments) if complete[-1] else None  # else the copy would write to free memory

    monkeypatch.setattr(table, "clSVMFree", free)
    ur.ok("urUSMFree", context, held.memory)
    assert complete == [True]
    held.end()


@pytest.mark.parametrize("flags", [(), ("OUT_OF_ORDER_EXEC_MODE_ENABLE",)])
def test_memory_is_freed_after_commands_of_a_queue_that_nothing_holds(
    ur: Calls,
    context: int,
    device: PluginDevice,
    table: DispatchTable,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
) -> None:
    """No event of it is left, so its object is gone."""
    held = Held(ur, context, device.handle, monkeypatch, *flags, has_event=False)
    real, contents = table.clSVMFree, list[bytes]()

    def free(cl: int, memory: int) -> None:
        contents.append(ctypes.string_at(memory, SIZE))
        real(cl, memory) if contents == [held.host.raw] else None

    monkeypatch.setattr(table, "clSVMFree", free)
    ur.ok("urUSMFree", context, held.memory)
    assert contents == [held.host.raw]
    held.end()


def test_a_device_is_waited_for_with_the_commands_of_a_released_queue(
    ur: Calls, context: int, device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(ur, context, device.handle, monkeypatch)
    ur.ok("urDeviceWaitExp", device.handle)
    assert held.is_complete()
    held.end()
    ur.ok("urUSMFree", context, held.memory)


def test_a_queue_that_only_its_event_holds_is_waited_for(
    ur: Calls, context: int, device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle is gone, the queue is not."""
    held = Held(ur, context, device.handle, monkeypatch)
    event = reference.objects.list_owned("ur_event_handle_t")[held.copied.value or 0]
    assert event.queue is not None and not event.queue.handle
    ur.ok("urUSMFree", context, held.memory)
    assert held.is_complete()
    held.end()


@pytest.mark.usefixtures("divisible")
def test_a_queue_is_released_without_a_look_at_its_device(
    ur: Calls, device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL 3.1 deletes a sub-device that has queues."""
    properties = UR.get_struct("ur_device_partition_properties_t")
    one = UR.get_struct("ur_device_partition_property_t")(UR["UR_DEVICE_PARTITION_EQUALLY"])
    one.value.equally = 1
    wanted = properties(
        UR["UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES"], None, ctypes.addressof(one), 1
    )
    parts = (ctypes.c_void_p * 1)()
    ur.ok("urDevicePartition", device.handle, ctypes.byref(wanted), 1, parts)
    context = ur.make("urContextCreate", 1, parts).value or 0
    gate, open_gate = held_back(ur, context)
    queue = new_queue(ur, context, parts[0] or 0, "OUT_OF_ORDER_EXEC_MODE_ENABLE")
    last = ur.make("urEnqueueEventsWait", queue, 1, array(gate))
    asked: list[int] = []
    monkeypatch.setattr(queue_release, "find_device_profile", asked.append)
    ur.ok("urQueueRelease", queue)
    open_gate()
    ur.ok("urEventWait", 1, array(last))
    ur.ok("urEventRelease", last)
    ur.ok("urEventRelease", gate)
    while queue_release.release_ended():
        pass
    assert asked == []
    ur.ok("urContextRelease", context)
    ur.ok("urDeviceRelease", parts[0])


#: Closes the adapter while a queue on a sub-device has commands. Prints what the driver is called
#: for meanwhile. With "held" a command waits for a user event that nothing completes.
LEAVING: Final = """
import ctypes, sys

sys.path.append(sys.argv[1])
from helpers.memory_calls import held_back, new_queue
from helpers.support import ROOT, RunPython
from helpers.ur_calls import Calls, array
from fairlead import plugins
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.plugins.opencl.core import adapter as reference

adapter = load(
    PluginCandidate(plugins.__path__[0] + "/libur_adapter_fairlead.so.0", "test", backend="opencl")
)
ur, (device, *_) = Calls(adapter.table), [
    one for one in adapter.devices if one.platform.version == sys.argv[2]
]
one = UR.get_struct("ur_device_partition_property_t")(UR["UR_DEVICE_PARTITION_EQUALLY"])
one.value.equally = 1
wanted = UR.get_struct("ur_device_partition_properties_t")(
    UR["UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES"], None, ctypes.addressof(one), 1
)
parts = (ctypes.c_void_p * 1)()
ur.ok("urDevicePartition", device.handle, ctypes.byref(wanted), 1, parts, None)
context = ur.make("urContextCreate", 1, parts, None)
queue = new_queue(ur, context, parts[0])
gates = [held_back(ur, context)[0]] if "held" in sys.argv else []
ur.ok("urEnqueueEventsWait", queue, len(gates), array(*gates) if gates else None, None)
table = reference.objects.find_lent("ur_context_handle_t", context.value).table
for name in ("clReleaseCommandQueue", "clReleaseEvent", "clReleaseContext", "clReleaseDevice"):
    def note(handle, name=name, real=getattr(table, name)):
        print(name.removeprefix("clRelease"))
        return real(handle)
    setattr(table, name, note)
adapter.close()
"""


@pytest.mark.usefixtures("divisible")
@pytest.mark.parametrize("held", [False, True])
def test_the_end_releases_markers_before_contexts_and_devices(
    device: PluginDevice, run_python: RunPython, held: bool
) -> None:
    """PoCL deletes a sub-device that has commands, and looks at it when their event is released.

    What a command may use that never ends is left.
    """
    arguments = [str(ROOT / "tests"), device.platform.version, *(["held"] if held else [])]
    released = run_python(LEAVING, *arguments).out.split()
    assert released == ["CommandQueue", *([] if held else ["Event", "Context", "Device"])]
