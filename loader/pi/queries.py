"""Info queries of PI that Unified Runtime answers elsewhere. The others are in `pi_from_ur.map`.

A function of `ANSWERS` takes the `Service` and the arguments of the PI call as words. It returns
the bytes of the answer, or raises URError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Final

from ..ur.abi import UR, URError
from .mapping import ENUMS
from .translation import read_word

if TYPE_CHECKING:
    from .serve import Service


def query_context_devices(service: Service, context: int) -> list[int]:
    """Return the devices of a context.

    Raises:
        URError: the adapter refuses the query.
    """
    data = service.query("urContextGetInfo", context, UR["UR_CONTEXT_INFO_DEVICES"])
    return [read_word(data[at : at + 8]) for at in range(0, len(data), 8)]


def _query_context_platform(service: Service, context: int, *rest: int) -> bytes:
    return service.query(
        "urDeviceGetInfo", query_context_devices(service, context)[0], UR["UR_DEVICE_INFO_PLATFORM"]
    )


def _make_common_query(enum: str, asked: str) -> Callable[..., bytes]:
    """Return a function that answers with the capabilities that all devices of a context have."""

    def answer(service: Service, context: int, *rest: int) -> bytes:
        found = (
            service.query("urDeviceGetInfo", device, UR[asked])
            for device in query_context_devices(service, context)
        )
        common = reduce(lambda one, other: one & other, map(read_word, found))
        return ENUMS[enum].convert_to_pi(common).to_bytes(8, "little")

    return answer


def _query_number_of_registers(service: Service, kernel: int, *rest: int) -> bytes:
    return service.query("urKernelGetInfo", kernel, UR["UR_KERNEL_INFO_NUM_REGS"])


def _query_extensions(service: Service, device: int, *rest: int) -> bytes:
    """PI reports command-buffers as an extension, UR as a property."""
    names = service.query("urDeviceGetInfo", device, UR["UR_DEVICE_INFO_EXTENSIONS"]).rstrip(b"\0")
    try:
        supported = read_word(
            service.query(
                "urDeviceGetInfo", device, UR["UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP"]
            )
        )
    except URError:
        supported = 0
    more = [b"ur_exp_command_buffer"] if supported and b"ur_exp_command_buffer" not in names else []
    return b" ".join([*names.split(), *more]) + b"\0"


def _query_source(service: Service, program: int, *rest: int) -> bytes:
    """UR answers with IL or nothing, PI with a C string."""
    return service.query("urProgramGetInfo", program, UR["UR_PROGRAM_INFO_IL"]) or b"\0"


#: PI info constant to the function that returns its answer.
ANSWERS: Final[dict[str, Callable[..., bytes]]] = {
    "PI_CONTEXT_INFO_PLATFORM": _query_context_platform,
    "PI_DEVICE_INFO_EXTENSIONS": _query_extensions,
    "PI_KERNEL_GROUP_INFO_NUM_REGS": _query_number_of_registers,
    "PI_PROGRAM_INFO_SOURCE": _query_source,
    **{
        f"PI_EXT_CONTEXT_INFO_{what}_{kind.upper()}_CAPABILITIES": _make_common_query(
            f"pi_memory_{kind}_capabilities", f"UR_DEVICE_INFO_{what}_{kind.upper()}_CAPABILITIES"
        )
        for what in ("ATOMIC_MEMORY", "ATOMIC_FENCE")
        for kind in ("order", "scope")
    },
}
