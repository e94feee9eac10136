"""Command-buffer layer: copies and fills of buffers and of SVM, with the errors of
clEnqueueCopyBuffer and its like.
"""

from __future__ import annotations

from typing import Any

from .buffers import LayerCommand
from .entries import copy_bytes, make_error
from .memory import check_range, check_rect, do_rects_overlap, get_memory, read_region, read_three
from .recording import CommandRecording, declare_recording

_LARGEST_PATTERN = 128  # bytes


def _make_overlap_error() -> Exception:
    return make_error("CL_MEM_COPY_OVERLAP", "the source and the target overlap")


@declare_recording()
def clCommandCopyBufferKHR(
    recording: CommandRecording,
    source: int | None,
    target: int | None,
    source_offset: int,
    target_offset: int,
    size: int,
) -> LayerCommand:
    device = recording.queue.device
    first = get_memory(recording.buffer, source, device=device)
    second = get_memory(recording.buffer, target, device=device)
    check_range(first, source_offset, size)
    check_range(second, target_offset, size)
    if first.overlaps(source_offset, size, second, target_offset):
        raise _make_overlap_error()
    places = {"source_offset": source_offset, "target_offset": target_offset, "size": size}
    return recording.add("copy", "COPY_BUFFER", source=source, target=target, **places)


@declare_recording()
def clCommandCopyBufferRectKHR(
    recording: CommandRecording,
    source: int | None,
    target: int | None,
    source_origin: int | None,
    target_origin: int | None,
    region: int | None,
    *pitches: int,
) -> LayerCommand:
    device = recording.queue.device
    first = get_memory(recording.buffer, source, device=device)
    second = get_memory(recording.buffer, target, device=device)
    start, to = read_three(source_origin, "origin"), read_three(target_origin, "origin")
    size = read_region(region)
    of_source = check_rect(first, start, size, pitches[0], pitches[1])
    of_target = check_rect(second, to, size, pitches[2], pitches[3])
    if source == target and of_source != of_target:
        raise make_error("CL_INVALID_VALUE", "a copy inside a buffer has one pair of pitches")
    same = (first.parent or source) == (second.parent or target)
    offsets = first.offset, second.offset
    if same and of_source == of_target and do_rects_overlap((start, to), size, of_source, offsets):
        raise _make_overlap_error()
    return recording.add(
        "copy_rect",
        "COPY_BUFFER_RECT",
        source=source,
        target=target,
        source_origin=start,
        target_origin=to,
        region=size,
        source_row_pitch=pitches[0],
        source_slice_pitch=pitches[1],
        target_row_pitch=pitches[2],
        target_slice_pitch=pitches[3],
    )


def _copy_pattern(
    recording: CommandRecording, where: int | None, pattern_size: int, *sizes: int
) -> Any:
    """Return a copy of a fill's pattern, which has to divide `sizes`.

    Raises:
        OpenCLError: CL_INVALID_VALUE.
    """
    is_power = pattern_size and not pattern_size & (pattern_size - 1)
    if not where or not is_power or pattern_size > _LARGEST_PATTERN:
        raise make_error("CL_INVALID_VALUE", f"a pattern of {pattern_size} bytes")
    if any(size % pattern_size for size in sizes):
        raise make_error("CL_INVALID_VALUE", "the pattern does not divide the offset and the size")
    return recording.buffer.commands.copy_pattern(copy_bytes(where, pattern_size))


@declare_recording()
def clCommandFillBufferKHR(
    recording: CommandRecording,
    target: int | None,
    pattern: int | None,
    pattern_size: int,
    offset: int,
    size: int,
) -> LayerCommand:
    memory = get_memory(recording.buffer, target, device=recording.queue.device)
    check_range(memory, offset, size)
    data = _copy_pattern(recording, pattern, pattern_size, offset, size)
    pattern_operands = {"pattern": data, "pattern_size": pattern_size}
    span = {"offset": offset, "size": size}
    return recording.add("fill", "FILL_BUFFER", target=target, **pattern_operands, **span)


def _check_svm(recording: CommandRecording, size: int, *pointers: int | None) -> None:
    if not recording.buffer.get_device(recording.queue.device).has_svm:
        raise make_error("CL_INVALID_OPERATION", "the device has no SVM")
    if not all(pointers) or not size:
        raise make_error("CL_INVALID_VALUE", "a pointer is NULL, or there is nothing to do")


@declare_recording()
def clCommandSVMMemcpyKHR(
    recording: CommandRecording, target: int | None, source: int | None, size: int
) -> LayerCommand:
    _check_svm(recording, size, target, source)
    if abs((target or 0) - (source or 0)) < size:
        raise _make_overlap_error()
    return recording.add("svm_copy", "SVM_MEMCPY", source=source, target=target, size=size)


@declare_recording()
def clCommandSVMMemFillKHR(
    recording: CommandRecording,
    target: int | None,
    pattern: int | None,
    pattern_size: int,
    size: int,
) -> LayerCommand:
    _check_svm(recording, size, target)
    data = _copy_pattern(recording, pattern, pattern_size, target or 0, size)
    pattern_operands = {"pattern": data, "pattern_size": pattern_size}
    return recording.add("svm_fill", "SVM_MEMFILL", target=target, size=size, **pattern_operands)
