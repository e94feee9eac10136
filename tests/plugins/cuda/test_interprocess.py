"""Events that are used again, and memory and events of other processes."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.support import RunPython
from helpers.ur_calls import array

from fairlead.loader.ur.abi import UR

from .conftest import COUNT, SIZE, Adapted, Installed, Knobs, Work

_PROFILES, _SHARED = UR["UR_EXP_EVENT_FLAG_ENABLE_PROFILING"], UR["UR_EXP_EVENT_FLAG_IPC_EXP"]


def _description(flags: int) -> Any:
    made = UR.get_struct("ur_exp_event_desc_t")()
    made.stype, made.flags = UR["UR_STRUCTURE_TYPE_EXP_EVENT_DESC"], flags
    return ctypes.byref(made)


def _event(work: Work, flags: int = 0) -> int:
    given = work.context, work.device, _description(flags)
    return work.ur.make("urEventCreateExp", *given).value or 0


def _signal(work: Work, event: int, queue: int = 0) -> str:
    """Let a barrier signal an event. It is not replaced."""
    place = ctypes.c_void_p(event)
    given = queue or work.queue, None, 0, None, ctypes.byref(place)
    code = work.ur("urEnqueueEventsWaitWithBarrierExt", *given)
    assert place.value == event
    return code


def _number(work: Work, event: int, name: str) -> int:
    return work.ur.number("urEventGetInfo", event, f"UR_EVENT_INFO_{name}")


@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_barriers_signal_an_event_again_and_again(work: Work, flags: str) -> None:
    event, out, queue = _event(work), work.memory(), work.new_queue(flags)
    done = UR["UR_EVENT_STATUS_COMPLETE"]
    assert _number(work, event, "COMMAND_EXECUTION_STATUS") == done
    other = work.new_queue()
    for number in range(3):
        work.queue = queue
        work.launch(work.kernel("store"), out, ctypes.c_int32(number))
        assert _signal(work, event) == "SUCCESS"
        given = other, out, 4, (number + 7).to_bytes(4, "little"), SIZE, 1, array(event), None
        work.ur.ok("urEnqueueUSMFill", *given)
        work.ur.ok("urQueueFinish", other)
        assert work.numbers(out) == [number + 7] * COUNT
    assert _number(work, event, "REFERENCE_COUNT") == 1
    work.ur.ok("urEventWait", 1, array(event))
    work.ur.ok("urEventRelease", event)


def test_other_handles_at_the_place_of_the_event_are_replaced(work: Work) -> None:
    """A program that does not know reusable events may leave anything there."""
    given = work.queue, None, 0, None
    first = work.ur.make("urEnqueueEventsWaitWithBarrierExt", *given).value or 0
    for old in (first, 12345678, work.queue):
        place = ctypes.c_void_p(old)
        work.ur.ok("urEnqueueEventsWaitWithBarrierExt", *given, place)
        assert place.value not in (None, old)
        work.ur.ok("urEventRelease", place)
    assert _number(work, first, "REFERENCE_COUNT") == 1


def test_times_of_reusable_events(work: Work) -> None:
    name, room = UR["UR_PROFILING_INFO_COMMAND_END"], ctypes.c_uint64()
    ask = name, 8, ctypes.byref(room), None
    timed, plain, shared = _event(work, _PROFILES), _event(work), _event(work, _SHARED)
    profiling = work.new_queue("PROFILING_ENABLE")
    for event, queue, code in (
        (timed, work.queue, "SUCCESS"),
        (plain, work.queue, "PROFILING_INFO_NOT_AVAILABLE"),
        (plain, profiling, "SUCCESS"),
        (shared, profiling, "PROFILING_INFO_NOT_AVAILABLE"),
    ):
        assert _signal(work, event, queue) == "SUCCESS"
        work.ur.ok("urQueueFinish", queue)
        assert work.ur("urEventGetProfilingInfo", event, *ask) == code
    assert room.value > 0


@pytest.mark.parametrize(
    ("flags", "code"), [(_PROFILES | _SHARED, "INVALID_VALUE"), (8, "INVALID_ENUMERATION")]
)
def test_flags_that_no_event_has(work: Work, flags: int, code: str) -> None:
    made = ctypes.byref(ctypes.c_void_p())
    assert work.ur("urEventCreateExp", work.context, work.device, _description(flags), made) == code


def _handle(work: Work, routine: str, *given: Any) -> bytes:
    """Return the bytes of a handle, which is put back."""
    place, size = ctypes.c_void_p(), ctypes.c_size_t()
    work.ur.ok(routine, *given, ctypes.byref(place), ctypes.byref(size))
    data = ctypes.string_at(place.value or 0, size.value)
    put = routine.replace("Get", "Put")
    work.ur.ok(put, work.context, place)
    assert work.ur(put, work.context, place) == "INVALID_VALUE"
    return data


def test_a_handle_leads_to_the_same_in_its_own_process(work: Work) -> None:
    memory, event = work.memory(), _event(work, _SHARED)
    handle = _handle(work, "urIPCGetMemHandleExp", work.context, memory + 16)
    given = work.context, work.device, handle
    opened = [work.ur.make("urIPCOpenMemHandleExp", *given, len(handle)).value for _ in range(2)]
    assert opened == [memory + 16] * 2
    for code in ("SUCCESS", "SUCCESS", "INVALID_VALUE"):
        assert work.ur("urIPCCloseMemHandleExp", work.context, memory + 16) == code
    handle = _handle(work, "urIPCGetEventHandleExp", event)
    given = work.context, handle, len(handle)
    other = work.ur.make("urIPCOpenEventHandleExp", *given).value or 0
    assert _signal(work, other) == "SUCCESS"
    work.ur.ok("urEventWait", 1, array(event))
    refused = ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())
    assert work.ur("urIPCGetEventHandleExp", other, *refused) == "INVALID_EVENT"
    work.ur.ok("urEventRelease", other)
    work.ur.ok("urEventRelease", event)
    made = ctypes.byref(ctypes.c_void_p())
    assert work.ur("urIPCOpenEventHandleExp", *given, made) == "INVALID_VALUE"


def test_what_has_no_handle(work: Work) -> None:
    refused = ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())
    for address in (work.memory("Host"), work.memory("Shared"), 64):
        assert work.ur("urIPCGetMemHandleExp", work.context, address, *refused) == "INVALID_VALUE"
    assert work.ur("urIPCGetEventHandleExp", _event(work), *refused) == "INVALID_EVENT"
    made = ctypes.byref(ctypes.c_void_p())
    for name, device in (("Mem", (work.device,)), ("Event", ())):
        given = work.context, *device, bytes(8), 8, made
        assert work.ur(f"urIPCOpen{name}HandleExp", *given) == "INVALID_VALUE"


@pytest.mark.parametrize(
    ("name", "routine"), [("IpcGetMemHandle", "Mem"), ("IpcGetEventHandle", "Event")]
)
def test_a_driver_that_refuses_gives_no_handle(
    work: Work, fake: Knobs, adapted: Adapted, name: str, routine: str
) -> None:
    place = ctypes.c_void_p()
    given: Any = (work.context, work.memory()) if routine == "Mem" else (_event(work, _SHARED),)
    fake.fail(name, 2)
    refused = ctypes.byref(place), ctypes.byref(ctypes.c_size_t())
    code = work.ur(f"urIPCGet{routine}HandleExp", *given, *refused)
    assert (code, place.value) == ("OUT_OF_DEVICE_MEMORY", None)


#: A process and its child. Each fills a half of the parent's memory, and signals its event. The
#: child's fill comes after the parent's event, the parent's read after the child's.
PROCESSES = """
import ctypes, subprocess, sys
import fairlead
from fairlead.loader.ur.abi import UR
ur = next(iter(fairlead.adapters()))
table, device = ur.table, ur.devices[0].handle
def ok(name, *given):
    code = getattr(table, name)(*given)
    assert code == 0, (name, code)
def make(name, *given):
    place = ctypes.c_void_p()
    ok(name, *given, ctypes.byref(place))
    return place.value
def handles(*some):
    return (ctypes.c_void_p * len(some))(*some)
def fill(address, number, *waits):
    waits = len(waits), handles(*waits) if waits else None
    ok("urEnqueueUSMFill", queue, address, 4, number.to_bytes(4, "little"), 32, *waits, None)
def signal(event):
    ok("urEnqueueEventsWaitWithBarrierExt", queue, None, 0, None, handles(event))
def handle(name, *given):
    place, size = ctypes.c_void_p(), ctypes.c_size_t()
    ok(name, *given, ctypes.byref(place), ctypes.byref(size))
    return ctypes.string_at(place.value, size.value)
context = make("urContextCreate", 1, handles(device), None)
queue = make("urQueueCreate", context, device, None)
if len(sys.argv) > 2:
    memory, theirs, ours = map(bytes.fromhex, sys.argv[1:])
    address = make("urIPCOpenMemHandleExp", context, device, memory, len(memory))
    again = make("urIPCOpenMemHandleExp", context, device, memory, len(memory))
    events = [make("urIPCOpenEventHandleExp", context, one, len(one)) for one in (theirs, ours)]
    assert table.urUSMReleaseExp(context, address), "it was not imported"
    assert table.urEnqueueUSMFreeExp(queue, None, address, 0, None, None)
    fill(address + 32, 9, events[0])
    signal(events[1])
    ok("urQueueFinish", queue)
    ok("urIPCCloseMemHandleExp", context, again)
    ok("urIPCCloseMemHandleExp", context, address)
    assert table.urIPCCloseMemHandleExp(context, address)
    for event in events:
        ok("urEventRelease", event)
else:
    memory = make("urUSMDeviceAlloc", context, device, None, None, 80)
    flags = UR.get_struct("ur_exp_event_desc_t")(UR["UR_STRUCTURE_TYPE_EXP_EVENT_DESC"], None, 2)
    events = [make("urEventCreateExp", context, device, ctypes.byref(flags)) for _ in range(2)]
    fill(memory + 16, 5)
    signal(events[0])
    given = handle("urIPCGetMemHandleExp", context, memory + 16), *(
        handle("urIPCGetEventHandleExp", event) for event in events
    )
    program = sys.executable, "-c", sys.argv[1]
    subprocess.run([*program, *(one.hex() for one in given)], check=True)
    out = (ctypes.c_int32 * 16)()
    ok("urEnqueueUSMMemcpy", queue, True, out, memory + 16, 64, 1, handles(events[1]), None)
    print(list(out))
"""


@pytest.mark.slow
def test_two_processes_share_memory_and_events(run_python: RunPython, installed: Installed) -> None:
    given = {**installed.environment, "UR_ADAPTERS_FORCE_LOAD": installed.library}
    assert run_python(PROCESSES, PROCESSES, env=given).out.strip() == str([5] * 8 + [9] * 8)
