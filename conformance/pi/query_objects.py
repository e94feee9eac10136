"""The objects that the info queries of PI are about, for cases of all kinds of objects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from fairlead.conformance.pi.objects import PIObjects
from fairlead.loader.pi.abi import PI


def _make_event(objects: PIObjects) -> int:
    return objects.make("piEnqueueEventsWait", objects.queue(), 0, None, ...)


def _make_sampler(objects: PIObjects) -> int:
    names = ("NORMALIZED_COORDS", "ADDRESSING_MODE", "FILTER_MODE")
    values = (1, PI["PI_SAMPLER_ADDRESSING_MODE_CLAMP"], PI["PI_SAMPLER_FILTER_MODE_NEAREST"])
    pairs = [
        number
        for name, value in zip(names, values, strict=True)
        for number in (PI[f"PI_SAMPLER_PROPERTIES_{name}"], value)
    ]
    return objects.make("piSamplerCreate", objects.context, (ctypes.c_uint64 * 7)(*pairs, 0), ...)


#: Function, the group of its queries, and the arguments before the query.
QUERIES: Final[dict[str, tuple[str, Callable[[PIObjects], tuple[int, ...]]]]] = {
    "piPlatformGetInfo": (
        "pi_platform_info",
        lambda o: (o.number("piDeviceGetInfo", o.device, "PI_DEVICE_INFO_PLATFORM"),),
    ),
    "piDeviceGetInfo": ("pi_device_info", lambda o: (o.device,)),
    "piContextGetInfo": ("pi_context_info", lambda o: (o.context,)),
    "piQueueGetInfo": ("pi_queue_info", lambda o: (o.queue(),)),
    "piMemGetInfo": ("pi_mem_info", lambda o: (o.buffer([0] * 4),)),
    "piEventGetInfo": ("pi_event_info", lambda o: (_make_event(o),)),
    "piSamplerGetInfo": ("pi_sampler_info", lambda o: (_make_sampler(o),)),
    "piProgramGetInfo": ("pi_program_info", lambda o: (o.program,)),
    "piProgramGetBuildInfo": ("pi_program_build_info", lambda o: (o.program, o.device)),
    "piKernelGetInfo": ("pi_kernel_info", lambda o: (o.kernel("increment"),)),
    "piKernelGetGroupInfo": ("pi_kernel_group_info", lambda o: (o.kernel("increment"), o.device)),
    "piextUSMGetMemAllocInfo": (
        "pi_mem_alloc_info",
        lambda o: (o.context, o.usm("shared", [0] * 4)),
    ),
}
#: The functions that need the program.
PROGRAM_QUERIES: Final = (
    "piProgramGetInfo",
    "piProgramGetBuildInfo",
    "piKernelGetInfo",
    "piKernelGetGroupInfo",
)
