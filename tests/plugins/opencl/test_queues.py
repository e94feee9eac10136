"""Queues, and what is enqueued that moves nothing and launches nothing."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
from helpers.drivers import Driver
from helpers.memory_calls import held_back, opencl
from helpers.support import ROOT, RunPython
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl import queues
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.opencl.events import UREvent
from fairlead.plugins.sdk.objects import close_released

pytestmark = pytest.mark.usefixtures("begins_in")

Properties = UR.get_struct("ur_queue_properties_t")
PROFILING = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
OUT_OF_ORDER = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]


@pytest.fixture(params=[0, PROFILING, OUT_OF_ORDER, OUT_OF_ORDER | PROFILING])
def any_queue(
    request: pytest.FixtureRequest, ur: Calls, device: PluginDevice, context: int
) -> Iterator[int]:
    """A queue of each kind."""
    properties = Properties(UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, request.param)
    made = ur.make("urQueueCreate", context, device.handle, ctypes.byref(properties))
    yield made.value or 0
    ur.ok("urQueueRelease", made)


def test_a_time_stamp_lies_between_what_comes_before_and_after(ur: Calls, any_queue: int) -> None:
    times = []
    for blocking in (True, False, True):
        event = ur.make("urEnqueueTimestampRecordingExp", any_queue, blocking)
        ur.ok("urEventWait", 1, array(event))
        times.append(ur.number("urEventGetProfilingInfo", event, "UR_PROFILING_INFO_COMMAND_END"))
        given = "urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE"
        assert ur.number(*given) == UR["UR_COMMAND_TIMESTAMP_RECORDING_EXP"]
        assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE") == any_queue
        queued, submitted, start, end = (
            ur.number("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
            for name in ("QUEUED", "SUBMIT", "START", "END")
        )
        assert queued == submitted <= start == end  # the call, and the time on the device
        ur.ok("urEventRelease", event)
    assert 0 < times[0] <= times[1] <= times[2]


def test_a_queue_that_was_finished_while_a_command_was_enqueued_is_not_empty(
    ur: Calls, context: int, any_queue: int
) -> None:
    """As urUSMFree does it, in another thread, with all queues of the context."""
    queue = reference.objects.list_owned("ur_queue_handle_t")[any_queue]
    table, (gate, open_gate) = queue.table, held_back(ur, context)

    class Between:
        """The driver's table, and a thread that finishes the queue just before the marker is
        there."""

        def clEnqueueMarkerWithWaitList(self, *arguments: object) -> int:
            queue.table = table
            queue.drain()
            return table.clEnqueueMarkerWithWaitList(*arguments)

    queue.table = Between()
    ur.ok("urEnqueueEventsWait", any_queue, 1, array(gate))
    assert queue.table is table
    assert ur.number("urQueueGetInfo", any_queue, "UR_QUEUE_INFO_EMPTY") == 0
    open_gate()
    ur.ok("urQueueFinish", any_queue)
    assert ur.number("urQueueGetInfo", any_queue, "UR_QUEUE_INFO_EMPTY") == 1


def test_a_host_task_does_not_run_after_a_failure(
    ur: Calls, any_queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if only the event's status tells it, and the callback gets 0, as NVIDIA's does."""
    queue = reference.objects.list_owned("ur_queue_handle_t")[any_queue]
    table, told, ran = queue.table, list[int](), list[int]()

    class Completing:
        """The driver's table. It completes what shall fail: PoCL never ends what waits for that,
        and Intel's driver may end the process."""

        def clSetUserEventStatus(self, event: int, status: int) -> int:
            told.append(status)
            return table.clSetUserEventStatus(event, 0)

        def __getattr__(self, name: str) -> Any:
            return getattr(table, name)

    monkeypatch.setattr(queue, "table", Completing())
    monkeypatch.setattr(UREvent, "status", -5)
    monkeypatch.setattr(UREvent, "check_usable", lambda _: None)
    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: ran.append(1))
    ur.ok("urEnqueueHostTaskExp", any_queue, task)
    ur.ok("urQueueFinish", any_queue)
    assert told == [-5] and not ran


#: Releases out-of-order queues, and the events in them, while commands run that wait for each
#: other; and waits in other queues.
LEAVING: Final = """
import ctypes, faulthandler, sys

faulthandler.dump_traceback_later(30, exit=True)  # only if it hangs
sys.path.append(sys.argv[2])
from helpers.drivers import Driver
from helpers.memory_calls import new_buffer, new_queue
from helpers.ur_calls import Calls, array
from fairlead import plugins
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate

adapter = load(
    PluginCandidate(plugins.__path__[0] + "/libur_adapter_fairlead.so.0", "test", backend="opencl")
)
ur, device = (
    Calls(adapter.table),
    next(found for found in adapter.devices if sys.argv[1] in found.platform.name).handle,
)
context = ur.make("urContextCreate", 1, array(device), None)
buffer, host = new_buffer(ur, context, 64), (ctypes.c_char * 64)()
for _ in range(100):
    queue, events = new_queue(ur, context, device, "OUT_OF_ORDER_EXEC_MODE_ENABLE"), []
    for _ in range(5):
        given = (len(events[-1:]), array(*events[-1:]) if events else None)
        events.append(ur.make("urEnqueueMemBufferWrite", queue, buffer, False, 0, 64, host, *given))
    for made in events:
        ur.ok("urEventRelease", made)
    ur.ok("urQueueRelease", queue)
    queue = new_queue(ur, context, device)
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, 64, host, 0, None, None)
    ur.ok("urQueueRelease", queue)
print("released")
"""


def test_a_queue_is_released_while_its_commands_run(
    each_driver: Driver, run_python: RunPython
) -> None:
    """Intel's driver would hang."""
    assert run_python(LEAVING, each_driver.platform, str(ROOT / "tests")).out == "released\n"


def test_a_native_event_has_the_queue_of_its_command(
    ur: Calls, context: int, queue: int, device: PluginDevice
) -> None:
    made = ur.make("urEnqueueEventsWait", queue)
    native = ur.make("urEventGetNativeHandle", made).value
    again = ur.make("urEventCreateWithNativeHandle", native, context)
    assert ur.number("urEventGetInfo", again, "UR_EVENT_INFO_COMMAND_QUEUE") == queue
    command = ur.number("urEventGetInfo", again, "UR_EVENT_INFO_COMMAND_TYPE")
    assert command == UR["UR_COMMAND_EVENTS_WAIT"]


def test_a_native_event_has_a_queue_that_the_adapter_does_not_know(
    ur: Calls, context: int, device: PluginDevice
) -> None:
    table, native_context = opencl(ur, context)
    native_device = ur.make("urDeviceGetNativeHandle", device.handle).value
    code, native = ctypes.c_int32(), ctypes.c_void_p()
    native_queue = table.clCreateCommandQueue(native_context, native_device, 0, ctypes.byref(code))
    assert table.clEnqueueMarkerWithWaitList(native_queue, 0, None, ctypes.byref(native)) == 0
    event = ur.make("urEventCreateWithNativeHandle", native.value, context)
    queue = ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE")
    assert ur.make("urQueueGetNativeHandle", queue).value == native_queue
    assert ur.number("urQueueGetInfo", queue, "UR_QUEUE_INFO_DEVICE") == device.handle
    ur.ok("urQueueFinish", queue)
    ur.ok("urEventRelease", event)
    assert table.clReleaseEvent(native) == table.clReleaseCommandQueue(native_queue) == 0


def test_a_native_handle_of_nothing_makes_an_event_that_is_complete(
    ur: Calls, context: int, any_queue: int
) -> None:
    event = ur.make("urEventCreateWithNativeHandle", 0, context)
    ur.ok("urEventWait", 1, array(event))
    ur.ok("urEnqueueEventsWait", any_queue, 1, array(event))
    ur.ok("urQueueFinish", any_queue)
    assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_QUEUE") == 0


def test_a_queue_that_is_being_closed_is_not_waited_for(
    ur: Calls, device: PluginDevice, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weak reference leads to it until its finalizer has returned, and its handle may be no
    queue's any more."""
    drained: list[int] = []

    def close(self: Any) -> None:
        closed(self)
        if not isinstance(self, queues.URQueue):
            return
        other = threading.Thread(target=queues.drain_queues, kwargs={"context": self.context})
        other.start()
        other.join()

    closed = queues.CLObject.close
    monkeypatch.setattr(queues.URQueue, "drain", lambda self: drained.append(self.cl))
    made = ur.make("urQueueCreate", context, device.handle)
    native = ur.make("urQueueGetNativeHandle", made).value
    with monkeypatch.context() as patch:
        patch.setattr(queues.CLObject, "close", close)
        ur.ok("urQueueRelease", made)
        close_released()
    assert native not in drained
