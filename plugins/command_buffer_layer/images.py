"""Command-buffer layer: copies and fills of images, with the errors of clEnqueueCopyImage and its
like.
"""

from __future__ import annotations

from typing import Final

from .buffers import LayerCommand
from .entries import copy_bytes, make_error
from .memory import LayerMemory, check_image, check_range, get_memory, read_region, read_three
from .recording import CommandRecording, declare_recording

_COLOR_SIZE: Final = 16  # bytes, of four numbers


def _get_image(recording: CommandRecording, handle: int | None) -> LayerMemory:
    if not recording.buffer.get_device(recording.queue.device).has_images:
        raise make_error("CL_INVALID_OPERATION", "the device has no images")
    return get_memory(recording.buffer, handle, image=True)


@declare_recording()
def clCommandCopyImageKHR(
    recording: CommandRecording,
    source: int | None,
    target: int | None,
    source_origin: int | None,
    target_origin: int | None,
    region: int | None,
) -> LayerCommand:
    first, second = _get_image(recording, source), _get_image(recording, target)
    if first.format != second.format:
        raise make_error("CL_IMAGE_FORMAT_MISMATCH", "the images have different formats")
    start, to = read_three(source_origin, "origin"), read_three(target_origin, "origin")
    size = read_region(region)
    check_image(first, start, size)
    check_image(second, to, size)
    apart = any(abs(a - b) >= length for a, b, length in zip(start, to, size, strict=True))
    if source == target and not apart:
        raise make_error("CL_MEM_COPY_OVERLAP", "the source and the target overlap")
    places = {"source_origin": start, "target_origin": to, "region": size}
    return recording.add("copy_image", "COPY_IMAGE", source=source, target=target, **places)


def _count_bytes(image: LayerMemory, region: tuple[int, int, int]) -> int:
    return image.pixel_size * region[0] * region[1] * region[2]


@declare_recording()
def clCommandCopyBufferToImageKHR(
    recording: CommandRecording,
    source: int | None,
    target: int | None,
    source_offset: int,
    target_origin: int | None,
    region: int | None,
) -> LayerCommand:
    image = _get_image(recording, target)
    buffer = get_memory(recording.buffer, source, device=recording.queue.device)
    to, size = read_three(target_origin, "origin"), read_region(region)
    check_image(image, to, size)
    check_range(buffer, source_offset, _count_bytes(image, size))
    places = {"source_offset": source_offset, "target_origin": to, "region": size}
    sides = {"source": source, "target": target}
    return recording.add("copy_buffer_to_image", "COPY_BUFFER_TO_IMAGE", **sides, **places)


@declare_recording()
def clCommandCopyImageToBufferKHR(
    recording: CommandRecording,
    source: int | None,
    target: int | None,
    source_origin: int | None,
    region: int | None,
    target_offset: int,
) -> LayerCommand:
    image = _get_image(recording, source)
    buffer = get_memory(recording.buffer, target, device=recording.queue.device)
    start, size = read_three(source_origin, "origin"), read_region(region)
    check_image(image, start, size)
    check_range(buffer, target_offset, _count_bytes(image, size))
    places = {"source_origin": start, "target_offset": target_offset, "region": size}
    sides = {"source": source, "target": target}
    return recording.add("copy_image_to_buffer", "COPY_IMAGE_TO_BUFFER", **sides, **places)


@declare_recording()
def clCommandFillImageKHR(
    recording: CommandRecording,
    target: int | None,
    color: int | None,
    origin: int | None,
    region: int | None,
) -> LayerCommand:
    image = _get_image(recording, target)
    if not color:
        raise make_error("CL_INVALID_VALUE", "the color is NULL")
    start, size = read_three(origin, "origin"), read_region(region)
    check_image(image, start, size)
    data = recording.buffer.commands.copy_pattern(copy_bytes(color, _COLOR_SIZE))
    pattern = {"pattern": data, "pattern_size": _COLOR_SIZE}
    area = {"origin": start, "region": size}
    return recording.add("fill_image", "FILL_IMAGE", target=target, **pattern, **area)
