"""Which wrong arguments Unified Runtime refuses with which code, besides what ur.abi says.

The entry points of our adapters (plugins/sdk/wrap.py) and the validation layer read the same rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..base.abi import Function

#: The code for a handle that is not alive, by its type. See `find_invalid_code`.
_INVALID: Final = {
    "ur_adapter_handle_t": "INVALID_ARGUMENT",
    "ur_platform_handle_t": "INVALID_PLATFORM",
    "ur_device_handle_t": "INVALID_DEVICE",
    "ur_context_handle_t": "INVALID_CONTEXT",
    "ur_queue_handle_t": "INVALID_QUEUE",
    "ur_event_handle_t": "INVALID_EVENT",
    "ur_program_handle_t": "INVALID_PROGRAM",
    "ur_kernel_handle_t": "INVALID_KERNEL",
    "ur_mem_handle_t": "INVALID_MEM_OBJECT",
    "ur_sampler_handle_t": "INVALID_SAMPLER",
    "ur_exp_command_buffer_handle_t": "INVALID_COMMAND_BUFFER_EXP",
    "ur_exp_command_buffer_command_handle_t": "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP",
    "ur_exp_graph_handle_t": "INVALID_GRAPH",
    "ur_exp_executable_graph_handle_t": "INVALID_GRAPH",
}

#: The native handles that may be 0: CUDA's first device, and an event that is complete.
_MAY_BE_ZERO: Final = frozenset({"hNativeDevice", "hNativeEvent"})


class Range(NamedTuple):
    """The values that a number may have, and the code for others."""

    values: range
    code: str


#: Numbers that say how much of other arguments is read.
RANGES: Final = {
    name: Range(range(1, 4), "UR_RESULT_ERROR_INVALID_WORK_DIMENSION")
    for name in ("workDim", "numWorkDim")
}


def find_invalid_code(type_name: str, other: str = "INVALID_VALUE") -> str:
    """Return the code for a handle of a type that is not alive, `other` for types without one."""
    return _INVALID.get(type_name, other)


def may_be_zero(parameter: str) -> bool:
    """Return whether a native handle may be 0, by the name of its parameter."""
    return parameter in _MAY_BE_ZERO


def find_context(function: Function) -> str:
    """Return whose devices the devices of a call must be, "" if they may be any.

    Another device is refused with INVALID_DEVICE.

    Returns:
        The context: a parameter or, of one that belongs to a context, "hKernel.context".
    """
    names = [parameter.name for parameter in function.parameters]
    if "hDevice" not in names and "phDevices" not in names:
        return ""
    owners = {"hContext": "", **dict.fromkeys(("hProgram", "hKernel", "hMem"), ".context")}
    return next((f"{name}{owners[name]}" for name in owners if name in names), "")
