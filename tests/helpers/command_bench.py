"""What tests of command-buffers share.

`Bench` is a device with kernels and memory that the host sees, and functions that update commands.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from fairlead.conformance.ur.values import (
    BufferValue,
    LocalValue,
    PointerValue,
    make_arguments,
)
from fairlead.loader.ur.abi import UR
from fairlead.plugins.opencl.core import adapter as reference
from helpers.ur_calls import Calls, array

SOURCE = b"""
kernel void bump(global int *cell, int add) {
    cell[get_global_id(0)] = 3 * cell[get_global_id(0)] + add;
}
kernel void many(global int *cell, int a, int b, int c, int d, int e) {
    cell[get_global_id(0)] += a + b + c + d + e;
}
kernel void scale(global int *cell, int by) { cell[get_global_id(0)] *= by; }
kernel void sum(global int *cell, local int *scratch) {
    size_t i = get_local_id(0);
    scratch[i] = cell[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i == 0) {
        int total = 0;
        for (size_t k = 0; k < get_local_size(0); k++) total += scratch[k];
        cell[get_global_id(0)] = total;
    }
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fours(global int *out) {
    out[get_global_id(0)] = get_local_size(0);
}
kernel void where(global int *out) {
    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
    size_t i = x + get_global_size(0) * y;
    out[i] = (int)(100 * get_global_id(1) + get_global_id(0));
}
"""
COUNT = 16
Update = UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")
ValueUpdate = UR.get_struct("ur_exp_command_buffer_update_value_arg_desc_t")
MemoryUpdate = UR.get_struct("ur_exp_command_buffer_update_memobj_arg_desc_t")
PointerUpdate = UR.get_struct("ur_exp_command_buffer_update_pointer_arg_desc_t")
Offset, Region = UR.get_struct("ur_rect_offset_t"), UR.get_struct("ur_rect_region_t")


def sizes(*values: int) -> Any:
    return (ctypes.c_size_t * len(values))(*values)


#: Arguments of launches.
value, pointer, local = ctypes.c_int, PointerValue, LocalValue


def memory(handle: Any) -> BufferValue:
    """A buffer as an argument."""
    return BufferValue(getattr(handle, "value", handle))


@dataclass
class Bench:
    """A device with a context, kernels, and memory of `COUNT` integers that the host sees."""

    ur: Calls
    device: int
    context: int
    queue: int
    kernels: dict[str, int]

    def __post_init__(self) -> None:
        made = ctypes.c_void_p()
        self.ur.ok("urUSMSharedAlloc", self.context, self.device, None, None, 4 * COUNT, made)
        self.address = made.value or 0
        self.cells = (ctypes.c_int * COUNT).from_address(self.address)
        self.reset()

    def reset(self) -> None:
        self.cells[:] = range(COUNT)

    def buffer(
        self, updatable: bool = False, in_order: bool = True, profiling: bool = False
    ) -> int:
        desc = UR.get_struct("ur_exp_command_buffer_desc_t")(
            0x1000, None, updatable, in_order, profiling
        )
        given = "urCommandBufferCreateExp", self.context, self.device, ctypes.byref(desc)
        return self.ur.make(*given).value or 0

    def launch(
        self,
        buffer: int,
        kernel: str,
        *given: Any,
        after: tuple[int, ...] = (),
        others: tuple[str, ...] = (),
        handle: bool = False,
        waits: tuple[int, ...] = (),
        event: Any = None,
        size: Any = None,
        offset: Any = None,
        local_size: Any = None,
    ) -> tuple[int, int]:
        """Append a launch: its sync-point, and its command handle if wanted."""
        point, command = ctypes.c_uint32(), ctypes.c_void_p()
        rows, size = make_arguments(*given), size or sizes(COUNT)
        alternatives = array(*(self.kernels[name] for name in others)) if others else None
        self.ur.ok(
            "urCommandBufferAppendKernelLaunchWithArgsExp",
            buffer,
            self.kernels[kernel],
            len(size),
            offset,
            size,
            local_size,
            len(rows),
            rows,
            len(others),
            alternatives,
            len(after),
            (ctypes.c_uint32 * len(after))(*after) if after else None,
            len(waits),
            array(*waits) if waits else None,
            point,
            event,
            ctypes.byref(command) if handle else None,
        )
        return point.value, command.value or 0

    def advise(
        self, buffer: int, points: int, listed: Any, events: int, command: Any = None
    ) -> str:
        """The code of a command that does nothing."""
        given = buffer, self.address, 4, 1, points, listed, events, None, None, None, command
        return self.ur("urCommandBufferAppendUSMAdviseExp", *given)

    def finalize(self, buffer: int) -> int:
        self.ur.ok("urCommandBufferFinalizeExp", buffer)
        return buffer

    def run(self, buffer: int, times: int = 1, queue: int = 0) -> list[int]:
        for _ in range(times):
            self.ur.ok("urEnqueueCommandBufferExp", queue or self.queue, buffer)
        self.ur.ok("urQueueFinish", queue or self.queue)
        return list(self.cells)

    def update(self, buffer: int, *descs: Any) -> str:
        rows = (Update * len(descs))(*descs)
        return self.ur("urCommandBufferUpdateKernelLaunchExp", buffer, len(rows), rows)


def update(command: int, **fields: Any) -> Any:
    """Return an update.

    `values`, `memory` and `pointers` are dictionaries by index; the rest are fields of the struct.
    """
    arguments = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"], None, command
    made = Update(*arguments, newWorkDim=1)
    made.keep = []

    def rows(struct: Any, entries: list[Any]) -> int:
        table = (struct * len(entries))(*entries)
        made.keep.append(table)
        return ctypes.addressof(table)

    def where(thing: Any) -> int:
        made.keep.append(thing)
        return ctypes.addressof(thing)

    if given := fields.pop("values", {}):
        made.numNewValueArgs = len(given)
        made.pNewValueArgList = rows(
            ValueUpdate,
            [
                ValueUpdate(0x1004, None, i, ctypes.sizeof(v), None, where(v))
                for i, v in given.items()
            ],
        )
    if given := fields.pop("locals", {}):
        made.numNewValueArgs = len(given)
        made.pNewValueArgList = rows(
            ValueUpdate,
            [ValueUpdate(0x1004, None, i, size, None, None) for i, size in given.items()],
        )
    if given := fields.pop("memory", {}):
        made.numNewMemObjArgs = len(given)
        made.pNewMemObjArgList = rows(
            MemoryUpdate, [MemoryUpdate(0x1002, None, i, None, v) for i, v in given.items()]
        )
    if given := fields.pop("pointers", {}):
        made.numNewPointerArgs = len(given)
        made.pNewPointerArgList = rows(
            PointerUpdate,
            [
                PointerUpdate(0x1003, None, i, None, where(ctypes.c_void_p(v)))
                for i, v in given.items()
            ],
        )
    for name, given in fields.items():
        setattr(made, name, given if isinstance(given, int) else where(given))
    return made


def explain(buffer: int, queue: int) -> str:
    """How it runs, as the adapter in this process knows it."""
    found = reference.objects.list_owned("ur_exp_command_buffer_handle_t")[buffer]
    return found.explain(reference.objects.list_owned("ur_queue_handle_t")[queue])


def bumped(cells: list[int], *adds: int) -> list[int]:
    for add in adds:
        cells = [(3 * cell + add + 2**31) % 2**32 - 2**31 for cell in cells]
    return cells
