"""What the adapter on Level Zero says of launches."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import pytest

from fairlead.conformance.arrays import NO_EVENTS
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import Update, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero.devices import LZDevice


def test_local_memory_limits_how_many_groups_run_at_the_same_time(
    make: URObjects, program: int, calls: URCalls, behind: LZDevice
) -> None:
    """Level Zero does not ask for the bytes that a launch adds."""
    count, local = ctypes.c_uint32(), (ctypes.c_size_t * 3)(1, 1, 1)
    kernel, room = make.kernel(program=program), behind.compute.maxSharedLocalMemory

    def ask(dynamic: int) -> int:
        routine = "urKernelSuggestMaxCooperativeGroupCount"
        calls.ok(routine, kernel, make.device, 1, local, dynamic, ctypes.byref(count))
        return count.value

    assert ask(0) >= 1
    assert 1 <= ask(room // 2) <= ask(0)
    assert ask(room + 1) == 0


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("local", [(), (2,)])
def test_updates_make_a_launch_empty_and_launch_it_again(
    make: URObjects, program: int, queue: int, in_order: bool, local: tuple[int, ...]
) -> None:
    """An empty launch can be appended, too."""
    buffer = make.buffer()
    make.write(queue, buffer, [0] * COUNT)
    recording = URRecording(make, isUpdatable=True, isInOrder=in_order)
    kernel = make.kernel("add_one", program=program)
    step = recording.launch(kernel, BufferValue(buffer), size=(0,), local=local, command=True)
    recording.launch(kernel, BufferValue(buffer), size=(1,), after=(step.point,))
    recording.finalize()
    expected = [0] * COUNT
    for size in (0, 4, 0, 8):
        recording.update(Update(step.command, size=(size,), local=local or None))
        recording.run(queue)
        expected = [value + (place < size) + (place < 1) for place, value in enumerate(expected)]
        assert make.read(queue, buffer) == expected


def test_work_groups_that_run_at_the_same_time(
    calls: URCalls,
    make: URObjects,
    program: int,
    queue: int,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as the driver says. On OpenCL that is one."""
    routine, launches = "zeCommandListAppendLaunchCooperativeKernel", list[Any]()
    append: Any = getattr(behind.table, routine)
    monkeypatch.setattr(
        behind.table, routine, lambda *given: launches.append(given) or append(*given)
    )
    together = UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"]
    can = "UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES"
    assert calls.info("urDeviceGetInfo", make.device, can) == together
    buffer, kernel = make.buffer(), make.kernel("add_one", program=program)
    make.write(queue, buffer, [0] * COUNT)
    how = calls.struct(
        "ur_kernel_launch_ext_properties_t", flags=UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
    )
    size = (ctypes.c_size_t * 1)(COUNT)
    arguments = make.arguments(BufferValue(buffer))
    routine = "urEnqueueKernelLaunchWithArgsExp"
    tail = *arguments, ctypes.byref(how), *NO_EVENTS
    calls.ok(routine, queue, kernel, 1, None, size, size, *tail)
    assert make.read(queue, buffer) == [1] * COUNT and len(launches) == 1
    single = (ctypes.c_size_t * 1)(1)
    calls.fails(routine, "UNSUPPORTED_FEATURE", queue, kernel, 1, None, size, single, *tail)
    alone = dataclasses.replace(behind.compute_group, is_cooperative=False)
    monkeypatch.setitem(vars(behind), "compute_group", alone)
    assert not calls.info("urDeviceGetInfo", make.device, can)
    calls.fails(routine, "INVALID_OPERATION", queue, kernel, 1, None, size, size, *tail)
