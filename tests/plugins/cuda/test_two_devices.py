"""A context of two devices: memory, events and graphs of one beside those of the other.

The driver of the tests has two devices. On a machine with one GPU these tests are left out.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import pytest
from helpers.ur_calls import Calls, array

from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.plugin import Plugin

from .conftest import COUNT, SIZE, Adapted, Work

_ONES, _TWOS, _THREES = [1] * COUNT, [2] * COUNT, [3] * COUNT


class Pair(NamedTuple):
    """An in-order queue on each device of one context."""

    one: Work
    two: Work


@pytest.fixture
def pair(gpu_plugin: Plugin, ur: Calls) -> Pair:
    """The first two devices."""
    if len(gpu_plugin.devices) < 2:
        pytest.skip("needs two GPUs")
    one, two = (device.handle for device in gpu_plugin.devices[:2])
    context = ur.make("urContextCreate", 2, array(one, two)).value or 0
    return Pair(Work(ur, one, context), Work(ur, two, context))


def _copy(work: Work, target: int, source: int, *waits: int) -> int:
    """Copy from memory of either device, after events, and return the event of the copy."""
    listed = (len(waits), array(*waits)) if waits else (0, None)
    given = work.queue, False, target, source, SIZE, *listed
    return work.ur.make("urEnqueueUSMMemcpy", *given).value or 0


def test_the_devices_are_different(pair: Pair, ur: Calls) -> None:
    one, two = pair
    assert one.device != two.device
    ask = "urContextGetInfo", one.context
    assert ur.number(*ask, "UR_CONTEXT_INFO_NUM_DEVICES") == 2
    assert ur.info(*ask, "UR_CONTEXT_INFO_DEVICES") == bytes(array(one.device, two.device))
    for work in pair:
        memory, room = work.memory(), ctypes.c_void_p()
        given = work.context, memory, UR["UR_USM_ALLOC_INFO_DEVICE"], 8
        ur.ok("urUSMGetMemAllocInfo", *given, ctypes.byref(room))
        assert room.value == work.device


def test_a_program_is_built_for_both(pair: Pair) -> None:
    kernel = pair.one.kernel("store")
    for number, work in enumerate(pair):
        memory = work.memory()
        work.launch(kernel, memory, ctypes.c_int32(number + 1))
        assert work.numbers(memory) == [number + 1] * COUNT


def test_memory_is_copied_from_one_to_the_other_after_its_event(pair: Pair, ur: Calls) -> None:
    one, two = pair
    first, second, back = one.memory(), two.memory(), one.memory()
    one.launch(one.kernel("store"), first, ctypes.c_int32(1))
    launched = ur.make("urEnqueueEventsWait", one.queue).value or 0
    copied = _copy(two, second, first, launched)
    two.launch(one.kernel("add_one"), second)
    added = ur.make("urEnqueueEventsWait", two.queue).value or 0
    returned = _copy(one, back, second, copied, added)
    ur.ok("urEventWait", 1, array(returned))
    assert (one.numbers(first), one.numbers(back)) == (_ONES, _TWOS)


@pytest.mark.parametrize("kind", ["Host", "Shared"])
def test_both_use_memory_of_the_host(pair: Pair, ur: Calls, kind: str) -> None:
    one, two = pair
    memory = one.memory(kind)
    one.launch(one.kernel("store"), memory, ctypes.c_int32(1))
    ur.ok("urQueueFinish", one.queue)
    two.launch(one.kernel("add_one"), memory)
    ur.ok("urQueueFinish", two.queue)
    assert list((ctypes.c_int32 * COUNT).from_address(memory)) == _TWOS


def test_a_buffer_is_on_both(pair: Pair, ur: Calls) -> None:
    one, two = pair
    flag = UR["UR_MEM_FLAG_READ_WRITE"]
    buffer = ur.make("urMemBufferCreate", one.context, flag, SIZE).value or 0
    pattern = (1).to_bytes(4, "little")
    given = one.queue, buffer, pattern, 4, 0, SIZE, 0, None
    filled = ur.make("urEnqueueMemBufferFill", *given).value or 0
    ur.ok("urEnqueueEventsWaitWithBarrier", two.queue, 1, array(filled))
    two.launch(one.kernel("add_one"), BufferValue(buffer))
    ur.ok("urQueueFinish", two.queue)
    one.launch(one.kernel("add_one"), BufferValue(buffer))
    out = (ctypes.c_int32 * COUNT)()
    ur.ok("urEnqueueMemBufferRead", one.queue, buffer, True, 0, SIZE, out)
    assert list(out) == _THREES
    ur.ok("urMemRelease", buffer)


def test_a_kernel_reads_memory_of_a_peer_while_access_is_enabled(pair: Pair, ur: Calls) -> None:
    one, two = pair
    room, peers = ctypes.c_int(), (two.device, one.device)
    given = *peers, UR["UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT"], 4, ctypes.byref(room), None
    ur.ok("urUsmP2PPeerAccessGetInfoExp", *given)
    if not room.value:
        assert ur("urUsmP2PEnablePeerAccessExp", *peers) != "SUCCESS"
        return
    memory = one.memory()
    one.put(memory, b"".join((1).to_bytes(4, "little") for _ in range(COUNT)))
    ur.ok("urUsmP2PEnablePeerAccessExp", *peers)
    assert ur("urUsmP2PEnablePeerAccessExp", *peers) != "SUCCESS"
    two.launch(one.kernel("add_one"), memory)
    ur.ok("urQueueFinish", two.queue)
    ur.ok("urUsmP2PDisablePeerAccessExp", *peers)
    assert ur("urUsmP2PDisablePeerAccessExp", *peers) != "SUCCESS"
    assert one.numbers(memory) == _TWOS


def test_each_has_command_buffers(pair: Pair, ur: Calls) -> None:
    how = UR.get_struct("ur_exp_command_buffer_desc_t")()
    how.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
    kernel, memories = pair.one.kernel("add_one"), [work.memory() for work in pair]
    for work, memory in zip(pair, memories, strict=True):
        work.put(memory, bytes(SIZE))
        given = work.context, work.device, ctypes.byref(how)
        commands = ur.make("urCommandBufferCreateExp", *given).value or 0
        shape = 1, (ctypes.c_size_t * 1)(0), (ctypes.c_size_t * 1)(COUNT), None
        more = 0, None, 0, None, None, None, None
        launch = "urCommandBufferAppendKernelLaunchWithArgsExp"
        ur.ok(launch, commands, kernel, *shape, *work.arguments(memory), 0, None, *more)
        ur.ok("urCommandBufferFinalizeExp", commands)
        other = pair.two if work is pair.one else pair.one
        wrong = other.queue, commands, 0, None, None
        assert ur("urEnqueueCommandBufferExp", *wrong) != "SUCCESS"
        for _ in range(2):
            ur.ok("urEnqueueCommandBufferExp", work.queue, commands)
        assert work.numbers(memory) == _TWOS
        ur.ok("urCommandBufferReleaseExp", commands)


def test_a_command_buffer_copies_between_devices(pair: Pair, ur: Calls) -> None:
    """Its launches are one device's: Unified Runtime has no command-buffers of several."""
    one, two = pair
    how = UR.get_struct("ur_exp_command_buffer_desc_t")()
    how.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
    first, second, points = one.memory(), two.memory(), (ctypes.c_uint32 * 2)()
    two.put(second, b"".join((1).to_bytes(4, "little") for _ in range(COUNT)))
    given = one.context, one.device, ctypes.byref(how)
    commands = ur.make("urCommandBufferCreateExp", *given).value or 0
    append, copied, added = "urCommandBufferAppendUSMMemcpyExp", points, ctypes.byref(points, 4)
    ur.ok(append, commands, first, second, SIZE, 0, None, 0, None, copied, None, None)
    shape = 1, (ctypes.c_size_t * 1)(0), (ctypes.c_size_t * 1)(COUNT), None
    launched = 1, copied, 0, None, added, None, None
    launch = "urCommandBufferAppendKernelLaunchWithArgsExp"
    kernel = one.kernel("add_one")
    ur.ok(launch, commands, kernel, *shape, *one.arguments(first), 0, None, *launched)
    ur.ok(append, commands, second, first, SIZE, 1, added, 0, None, None, None, None)
    ur.ok("urCommandBufferFinalizeExp", commands)
    for _ in range(2):
        ur.ok("urEnqueueCommandBufferExp", one.queue, commands)
    ur.ok("urQueueFinish", one.queue)
    assert two.numbers(second) == _THREES
    ur.ok("urCommandBufferReleaseExp", commands)


def test_memory_of_another_process_is_closed_on_the_device_that_opened_it(
    pair: Pair, ur: Calls, adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [adapted.module(name) for name in ("core", "devices", "allocations", "interprocess")]
    core, devices, allocations, interprocess = modules
    context = core.adapter.objects.list_owned("ur_context_handle_t")[pair.one.context]
    second, address, closed = context.devices[1], 1 << 12, list[object]()
    request = allocations.CuRequest(context, "device", second, SIZE)
    context.allocations.add(allocations.CuAllocation(address, request, imported=True))
    interprocess._this[0].opened[context, address] = 2, address  # as if it was opened twice

    def note_call(self: object, name: str, *_: object) -> None:
        closed.extend([self] if name == "IpcCloseMemHandle" else [])

    monkeypatch.setattr(devices.CuDevice, "call", note_call)
    for _ in range(2):
        ur.ok("urIPCCloseMemHandleExp", pair.one.context, address)
    assert closed == [second] * 2
