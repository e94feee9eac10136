"""Level Zero driver: what command lists are given: launches, transfers, barriers, and events."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...loader.base.operations import TransferCommand
from ..opencl.usm.addresses import make_copy_operation, make_fill_operation
from ..sdk._native_ze import ffi
from .contexts import ZeContext
from .core import ZE, driver, make_failure, walk_chain
from .devices import ZeDevice
from .events import ZeEvent
from .group_counts import CountsInMemory
from .immediate import launch_at_once, order_at_once, transfer_at_once
from .kernels import LaunchShape, ZeKernel
from .lists import ZeCommandList
from .recording import ListLaunch, ListRecording

_COOPERATIVE: Final = ZE["ZE_STRUCTURE_TYPE_COMMAND_LIST_APPEND_PARAM_COOPERATIVE_DESC"]


def _read_counts(pLaunchFuncArgs: Any) -> tuple[int, int, int]:
    row = pLaunchFuncArgs
    return row.groupCountX, row.groupCountY, row.groupCountZ


@driver.entry
def zeCommandListAppendLaunchKernel(
    hCommandList: ZeCommandList,
    hKernel: ZeKernel,
    pLaunchFuncArgs: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    shape = LaunchShape(_read_counts(pLaunchFuncArgs), hKernel.sizes, hKernel.offsets)
    append_launch(hCommandList, hKernel, shape, hSignalEvent, phWaitEvents)


def append_launch(
    made: ZeCommandList,
    kernel: ZeKernel,
    shape: LaunchShape,
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
) -> None:
    """Append a launch with the arguments that are set on the kernel.

    Raises:
        LevelZeroError: INVALID_ARGUMENT, INVALID_KERNEL_HANDLE, INVALID_SYNCHRONIZATION_OBJECT.
    """
    launch = _make_launch(made, kernel, shape)
    recording = made.begin_append(signal, waits)
    if shape.is_empty and made.next_id is None:
        made.end_append(recording, recording.add("barrier", waits, signal))
        return
    _check_arguments(made, launch)
    if made.is_immediate and launch_at_once(made, kernel, shape, signal, waits):
        return
    made.end_append(recording, recording.add_launch(launch, waits, signal))


def _make_launch(made: ZeCommandList, kernel: ZeKernel, shape: LaunchShape) -> ListLaunch:
    """Return a launch with the arguments that are set on a kernel.

    Raises:
        LevelZeroError: INVALID_ARGUMENT, INVALID_KERNEL_HANDLE.
    """
    if not kernel.runs_on(made.context, made.device):
        raise make_failure("INVALID_ARGUMENT", "the kernel is of another context or device")
    if made.next_id is not None:
        made.next_id.check_kernel(kernel)
    return ListLaunch(kernel, kernel.ur.arguments, shape)


def _check_arguments(made: ZeCommandList, launch: ListLaunch) -> None:
    """Raise LevelZeroError (INVALID_ARGUMENT) if arguments of a launch are not set."""
    if not launch.is_complete and (made.next_id is None or not made.next_id.takes_arguments):
        raise make_failure("INVALID_ARGUMENT", f"not all arguments of {launch.kernel.name} are set")


def _append_indirect(
    made: ZeCommandList,
    kernels: Sequence[ZeKernel],
    rows: Any,
    number: Any,
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
) -> None:
    """Append launches whose group counts are in memory.

    Args:
        rows: where the group counts are.
        number: where it is said how many of the kernels are launched; None: all are.
        signal: the event that is signaled after all of them, or None.

    Raises:
        LevelZeroError: INVALID_ARGUMENT, INVALID_KERNEL_HANDLE, INVALID_SYNCHRONIZATION_OBJECT.
        URError: there is no memory where the group counts are.
    """
    places = (int(ffi.cast("uintptr_t", place or ffi.NULL)) for place in (rows, number))
    row, count = places
    counts = CountsInMemory(made.context, row, len(kernels), count)
    counts.check()
    shapes = [LaunchShape((0, 0, 0), kernel.sizes, kernel.offsets) for kernel in kernels]
    launches = [_make_launch(made, *pair) for pair in zip(kernels, shapes, strict=True)]
    recording = made.begin_append(signal, waits)
    for launch in launches:
        _check_arguments(made, launch)
    is_one = len(launches) == 1
    own = signal if is_one else None
    commands = [recording.add_launch(launch, waits, own) for launch in launches]
    if not is_one and signal is not None:
        commands.append(recording.add("barrier", (), signal))
    for command in commands:
        command.counts = counts
    made.end_append(recording, *commands)


@driver.entry
def zeCommandListAppendLaunchKernelIndirect(
    hCommandList: ZeCommandList,
    hKernel: ZeKernel,
    pLaunchArgumentsBuffer: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    _append_indirect(
        hCommandList, [hKernel], pLaunchArgumentsBuffer, None, hSignalEvent, phWaitEvents
    )


@driver.entry
def zeCommandListAppendLaunchMultipleKernelsIndirect(
    hCommandList: ZeCommandList,
    numKernels: int,
    phKernels: list[ZeKernel],
    pCountBuffer: Any,
    pLaunchArgumentsBuffer: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    if hCommandList.next_id is not None:
        detail = "launches of several kernels by one command cannot be changed"
        raise make_failure("UNSUPPORTED_FEATURE", detail)
    _append_indirect(
        hCommandList, phKernels, pLaunchArgumentsBuffer, pCountBuffer, hSignalEvent, phWaitEvents
    )


@driver.entry
def zeCommandListAppendLaunchCooperativeKernel(
    hCommandList: ZeCommandList,
    hKernel: ZeKernel,
    pLaunchFuncArgs: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    counts = _read_counts(pLaunchFuncArgs)
    if counts not in ((1, 1, 1), (0, 0, 0)):
        raise make_failure("UNSUPPORTED_FEATURE", "groups of OpenCL do not wait for each other")
    shape = LaunchShape(counts, hKernel.sizes, hKernel.offsets)
    append_launch(hCommandList, hKernel, shape, hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendLaunchKernelWithParameters(
    hCommandList: ZeCommandList,
    hKernel: ZeKernel,
    pGroupCounts: Any,
    pNext: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    """Append a launch with a chain of structs that say how it runs.

    Raises:
        LevelZeroError: what `append_launch` raises; UNSUPPORTED_FEATURE for another struct.
    """
    append = zeCommandListAppendLaunchKernel
    for stype, at in walk_chain(pNext):
        if stype != _COOPERATIVE:
            raise make_failure("UNSUPPORTED_FEATURE", f"{stype:#x} is not an extension of launches")
        row = ffi.cast("ze_command_list_append_launch_kernel_param_cooperative_desc_t *", at)
        if row.isCooperative:
            append = zeCommandListAppendLaunchCooperativeKernel
    append(hCommandList, hKernel, pGroupCounts, hSignalEvent, phWaitEvents)


# transfers


def append_operations(
    made: ZeCommandList,
    operations: Sequence[TransferCommand],
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
    keep: Any = None,
) -> None:
    """Append transfers that are one command to the program."""
    recording = made.begin_append(signal, waits)
    recording.kept.append(keep)
    if not operations:
        made.end_append(recording, recording.add("barrier", waits, signal))
        return
    if len(operations) == 1:
        (operation,) = operations
        if made.is_immediate and transfer_at_once(made, operation, signal, waits, keep):
            return
        made.end_append(recording, recording.add_operation(operations[0], waits, signal))
        return
    commands = [recording.add_operation(operation, waits) for operation in operations]
    if signal is not None:
        commands.append(recording.add("barrier", (), signal))
    made.end_append(recording, *commands)


@driver.entry
def zeCommandListAppendMemoryCopy(
    hCommandList: ZeCommandList,
    dstptr: int,
    srcptr: int,
    size: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    context = hCommandList.context.ur
    operations = [make_copy_operation(context, dstptr, srcptr, size)] if size else []
    append_operations(hCommandList, operations, hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendMemoryCopyFromContext(
    hCommandList: ZeCommandList,
    dstptr: int,
    hContextSrc: ZeContext,
    srcptr: int,
    size: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    if not hContextSrc.shares(hCommandList.context):
        raise make_failure("UNSUPPORTED_FEATURE", "a copy from another context")
    zeCommandListAppendMemoryCopy(hCommandList, dstptr, srcptr, size, hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendMemoryFill(
    hCommandList: ZeCommandList,
    ptr: int,
    pattern: int,
    pattern_size: int,
    size: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    if not size:
        append_operations(hCommandList, [], hSignalEvent, phWaitEvents)
        return
    kept = list[Any]()

    def keep(data: bytes) -> Any:
        kept.append(icd_ffi.new("unsigned char[]", data))
        return kept[-1]

    data = ctypes.string_at(pattern, pattern_size)
    operation = make_fill_operation(hCommandList.context.ur, ptr, data, size, keep)
    append_operations(hCommandList, [operation], hSignalEvent, phWaitEvents, kept)


def _list_rows(region: Any, pitch: int, slice_pitch: int, base: int) -> Iterator[int]:
    """Yield the address of each row of a region. A pitch of 0 means that there is no gap."""
    slice_pitch = slice_pitch or pitch * (region.originY + region.height)
    start = base + region.originX + region.originY * pitch + region.originZ * slice_pitch
    for z in range(max(region.depth, 1)):
        for y in range(region.height):
            yield start + y * pitch + z * slice_pitch


@driver.entry
def zeCommandListAppendMemoryCopyRegion(
    hCommandList: ZeCommandList,
    dstptr: int,
    dstRegion: Any,
    dstPitch: int,
    dstSlicePitch: int,
    srcptr: int,
    srcRegion: Any,
    srcPitch: int,
    srcSlicePitch: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    """Append a copy of a box of bytes, row by row."""
    shapes = [(one.width, one.height, max(one.depth, 1)) for one in (dstRegion, srcRegion)]
    if shapes[0] != shapes[1]:
        raise make_failure("INVALID_SIZE", "the regions differ in size")
    width, height, depth = shapes[0]
    dstPitch = dstPitch or dstRegion.originX + width
    srcPitch = srcPitch or srcRegion.originX + width
    if height > 1 and min(dstPitch, srcPitch) < width:
        raise make_failure("INVALID_SIZE", f"a row of {width} bytes is longer than its pitch")
    targets = _list_rows(dstRegion, dstPitch, dstSlicePitch, dstptr)
    sources = _list_rows(srcRegion, srcPitch, srcSlicePitch, srcptr)
    context = hCommandList.context.ur
    operations = []
    if width and height:
        is_flat = depth == 1 and dstPitch == srcPitch == width
        pairs = list(zip(targets, sources, strict=True))
        if is_flat:
            pairs, width = pairs[:1], width * height
        operations = [make_copy_operation(context, to, at, width) for to, at in pairs]
    append_operations(hCommandList, operations, hSignalEvent, phWaitEvents)


# hints


@driver.entry
def zeCommandListAppendMemoryPrefetch(hCommandList: ZeCommandList, ptr: int, size: int) -> None:
    """Do nothing: it is a hint, and drivers of OpenCL move memory by themselves."""
    hCommandList.begin_append()


@driver.entry
def zeCommandListAppendMemAdvise(
    hCommandList: ZeCommandList, hDevice: ZeDevice, ptr: int, size: int, advice: int
) -> None:
    """Do nothing: it is a hint."""
    hCommandList.begin_append()


# order and events


def _append(
    made: ZeCommandList, role: str, signal: ZeEvent | None = None, waits: Sequence[ZeEvent] = ()
) -> None:
    recording: ListRecording = made.begin_append(signal, waits)
    if made.is_immediate and order_at_once(made, role, signal, waits):
        return
    made.end_append(recording, recording.add(role, waits, signal))


@driver.entry
def zeCommandListAppendBarrier(
    hCommandList: ZeCommandList, hSignalEvent: ZeEvent | None, phWaitEvents: list[ZeEvent]
) -> None:
    _append(hCommandList, "barrier", hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendSignalEvent(hCommandList: ZeCommandList, hEvent: ZeEvent) -> None:
    _append(hCommandList, "signal", hEvent)


@driver.entry
def zeCommandListAppendWaitOnEvents(hCommandList: ZeCommandList, phEvents: list[ZeEvent]) -> None:
    _append(hCommandList, "wait", None, phEvents)


@driver.entry
def zeCommandListAppendEventReset(hCommandList: ZeCommandList, hEvent: ZeEvent) -> None:
    if hEvent.is_counter_based:
        raise make_failure("INVALID_ARGUMENT", "nobody resets a counter-based event")
    _append(hCommandList, "reset", hEvent)


driver.declare(
    zeCommandListAppendMemoryCopyWithParameters=zeCommandListAppendMemoryCopy,
    zeCommandListAppendMemoryFillWithParameters=zeCommandListAppendMemoryFill,
    zeCommandListAppendMemoryRangesBarrier=zeCommandListAppendBarrier,
)
