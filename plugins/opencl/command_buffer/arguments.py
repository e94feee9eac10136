"""OpenCL adapter: the arguments of launches in command-buffers, which C reads from the caller's
memory.

C is told of the command-buffer (`make_launches`). Its errors become exceptions
(`make_argument_error`). plugins/sdk/native/launches.c is the other side.
"""

from __future__ import annotations

from typing import Any, Final

from ....icd._native import lib as icd_lib
from ....icd.calls import get_address
from ....icd.command_buffer.commands import CommandArray
from ....loader.base.interrupts import mark_uninterrupted
from ....loader.ur.abi import UR, URError
from ...sdk._native import ffi, lib
from ..contexts import URContext
from ..core import adapter, failure
from ..devices import URDevice
from ..kernels import URKernel
from ..usm.addresses import make_pointer_argument
from ..usm.strategies import Buffers, Intel, find_strategy

lib.fl_use_icd(ffi.cast("void *", get_address(icd_lib.fl_exported())))

#: What is wrong with an argument, by the end of the code's name.
_WHY: Final = {
    "INVALID_KERNEL_ARGUMENT_INDEX": (
        "argument {index} of {count} does not exist, is missing, or is given twice"
    ),
    "INVALID_KERNEL_ARGUMENT_SIZE": "argument {index} does not have this size",
    "INVALID_ENUMERATION": "argument {index} is of an unknown kind",
    "INVALID_MEM_OBJECT": "the handle of argument {index} is not alive",
    "INVALID_SAMPLER": "the handle of argument {index} is not alive",
    "INVALID_CONTEXT": "the object of argument {index} is of another context",
    "INVALID_VALUE": "the address of argument {index} is in no USM memory of the context",
    "INVALID_OPERATION": "the devices of the context have no USM",
    "INVALID_NULL_POINTER": "there are to be new arguments, but their address is NULL",
}


def make_launches(
    context: URContext, device: URDevice, commands: CommandArray, updatable: bool, in_order: bool
) -> Any:
    """Return what C has to know of a command-buffer with launches: an `fl_launches *`."""
    strategy, registry = find_strategy(context), adapter.objects
    made = ffi.new(
        "fl_launches *",
        {
            "adapter": registry.number,
            "no_pointers": 0 if strategy else UR["UR_RESULT_ERROR_INVALID_OPERATION"],
            "null_is_pointer": strategy is Intel,  # NVIDIA's driver refuses NULL for SVM
            "cl_context": context.cl,
            "commands": ffi.cast("void *", get_address(commands.native)),
            "updatable": updatable,
            "in_order": in_order,
            "sticks": context.platform.profile.svm_arguments_stick,
            "device": device.cl,
        },
    )
    if strategy is Buffers:
        made.part, made.context = lib.py_part, context.cookie
    return ffi.gc(made, lib.fl_free_launches)


@ffi.def_extern(onerror=lambda *_: None)
@mark_uninterrupted
def py_part(cookie: Any, address: int) -> int:
    """Return the cl_mem for an address if drivers take no addresses, 0 if there is none."""
    try:
        return make_pointer_argument(ffi.from_handle(cookie), address)[1]
    except URError:
        return 0


def make_argument_error(code: int, index: int, kernel: URKernel) -> URError:
    """Return the exception for a code of C.

    Args:
        code: a ur_result_t.
    """
    name = UR.errors[code][0].removeprefix("UR_RESULT_ERROR_")
    return failure(name, _WHY.get(name, "").format(index=index, count=kernel.argument_count))
