"""Tables of the queries that objects of all adapters answer alike.

adapter.info("urQueueGetInfo", QUEUE_INFO)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Answers = Mapping[str, Any]

CONTEXT_INFO: Final[Answers] = {
    "UR_CONTEXT_INFO_NUM_DEVICES": lambda context: len(context.devices),
    "UR_CONTEXT_INFO_DEVICES": lambda context: context.devices,
    "UR_CONTEXT_INFO_REFERENCE_COUNT": lambda context: context.references,
    "UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT": True,
    # urEnqueueUSMFill2D exists. But libsycl gives it pitch and width in elements. Without support
    # libsycl fills by a kernel.
    "UR_CONTEXT_INFO_USM_FILL2D_SUPPORT": False,
}

QUEUE_INFO: Final[Answers] = {
    "UR_QUEUE_INFO_CONTEXT": lambda queue: queue.context,
    "UR_QUEUE_INFO_DEVICE": lambda queue: queue.device,
    "UR_QUEUE_INFO_FLAGS": lambda queue: queue.flags,
    "UR_QUEUE_INFO_REFERENCE_COUNT": lambda queue: queue.references,
    "UR_QUEUE_INFO_EMPTY": lambda queue: queue.is_empty,
}

EVENT_INFO: Final[Answers] = {
    "UR_EVENT_INFO_COMMAND_QUEUE": lambda event: event.queue,
    "UR_EVENT_INFO_CONTEXT": lambda event: event.context,
    "UR_EVENT_INFO_COMMAND_TYPE": lambda event: event.command,
    "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS": lambda event: event.status,
    "UR_EVENT_INFO_REFERENCE_COUNT": lambda event: event.references,
}

MEMORY_INFO: Final[Answers] = {
    "UR_MEM_INFO_SIZE": lambda memory: memory.size,
    "UR_MEM_INFO_CONTEXT": lambda memory: memory.context,
    "UR_MEM_INFO_REFERENCE_COUNT": lambda memory: memory.references,
}

SAMPLER_INFO: Final[Answers] = {
    "UR_SAMPLER_INFO_REFERENCE_COUNT": lambda sampler: sampler.references,
    "UR_SAMPLER_INFO_CONTEXT": lambda sampler: sampler.context,
    "UR_SAMPLER_INFO_NORMALIZED_COORDS": lambda sampler: sampler.normalized,
    "UR_SAMPLER_INFO_ADDRESSING_MODE": lambda sampler: sampler.addressing,
    "UR_SAMPLER_INFO_FILTER_MODE": lambda sampler: sampler.filtering,
}


def make_program_info(
    il: Callable[[Any], bytes],
    binaries: Callable[[Any], list[bytes]],
    kernel_names: Callable[[Any], list[str]],
) -> Answers:
    """Return the table of a program's queries.

    Args:
        il: returns a program's intermediate language.
        binaries: returns its binary for each device.
        kernel_names: returns the names of its kernels.
    """
    return {
        "UR_PROGRAM_INFO_REFERENCE_COUNT": lambda program: program.references,
        "UR_PROGRAM_INFO_CONTEXT": lambda program: program.context,
        "UR_PROGRAM_INFO_NUM_DEVICES": lambda program: len(program.devices),
        "UR_PROGRAM_INFO_DEVICES": lambda program: program.devices,
        "UR_PROGRAM_INFO_IL": il,
        "UR_PROGRAM_INFO_BINARY_SIZES": lambda program: list(map(len, binaries(program))),
        "UR_PROGRAM_INFO_BINARIES": binaries,
        "UR_PROGRAM_INFO_NUM_KERNELS": lambda program: len(kernel_names(program)),
        "UR_PROGRAM_INFO_KERNEL_NAMES": lambda program: ";".join(kernel_names(program)),
    }
