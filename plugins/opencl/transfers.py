"""OpenCL adapter: transfers of buffers as OpenCL runs them, maps, device global variables.

A transfer of no bytes has its place in the queue's order like any other command.

OpenCL fills with patterns of up to 128 bytes. A longer pattern is copied into the buffer. Copies
then double the filled part until it has the whole size.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.operations import BUFFER, OPERATIONS, Operation, TransferCommand
from ..sdk.buffers import check_map
from ..sdk.programs import declare_variable_transfers
from ..sdk.rectangles import Rect
from ..sdk.rules import is_power_of_two
from ..sdk.transfers import list_sides
from .buffers import URBuffer, URMemory
from .contexts import URContext
from .core import CLObject, convert_flags, create
from .enqueue import Call, Enqueue, enqueues
from .events import UREvent
from .platforms import find_extension

LARGEST_PATTERN: Final = 128  # bytes (SPEC clEnqueueFillBuffer: 1, 2, 4 … 128)
_BLOCK: Final = 1 << 16  # bytes of a pattern that are written before doubling begins


# rectangles


def find_in_parent(buffer: URBuffer, origin: Rect) -> tuple[int, Rect]:
    """Return the cl_mem to copy a rectangle in, and the origin there.

    Some drivers copy rectangles of sub-buffers wrongly. Then it is the parent's cl_mem.
    """
    if not buffer.context.platform.profile.copies_rects_of_parents:
        return buffer.cl, origin
    cl, offset = buffer.whole
    return cl, (origin[0] + offset, *origin[1:])


def convert_sizes(value: Rect) -> Any:
    """Return three numbers as C takes them."""
    return (ctypes.c_size_t * 3)(*value)


def name_memory(transfer: TransferCommand) -> dict[str, Any]:
    """Put OpenCL's handles of buffers into the operands of a transfer, and return these."""
    operation, operands, _ = transfer
    for side in list_sides(OPERATIONS[operation], BUFFER):
        operands[side] = operands[side].cl
    return operands


def _write_call(operation: Operation) -> str:
    routine, names = operation.functions["cl"]
    sources = {"blocking": "call.blocks", "region": "sizes(region)"}
    for side in ("source", "target"):
        sources[f"{side}_origin"] = f"sizes({side}_origin)"
    sources |= {side: f"{side}.cl" for side in list_sides(operation, BUFFER)}
    return f"call.call({routine!r}, {', '.join([sources.get(one, one) for one in names])})"


def copy_rect(
    enqueue: Enqueue,
    source: URBuffer,
    target: URBuffer,
    source_origin: Rect,
    target_origin: Rect,
    region: Rect,
    *pitches: int,
) -> UREvent | None:
    """Enqueue a copy of a rectangle between buffers. Raises as `Enqueue.call`."""
    here, start = find_in_parent(source, source_origin)
    there, to = find_in_parent(target, target_origin)
    sizes = convert_sizes(start), convert_sizes(to), convert_sizes(region)
    return enqueue.call("clEnqueueCopyBufferRect", here, there, *sizes, *pitches)


#: How transfers of buffers are called (`Transfers`).
BUFFER_CALLS: Final = {
    **{
        name: _write_call(OPERATIONS[name])
        for name in ("read", "write", "copy", "read_rect", "write_rect")
    },
    "copy_rect": f"copy_rect(call, {', '.join(OPERATIONS['copy_rect'].functions['cl'].operands)})",
    "fill": "fill_memory(call, target, pattern, offset, size)",
}


# fills


def is_opencl_pattern(size: int, offset: int) -> bool:
    """Return whether OpenCL fills with a pattern of `size` bytes from `offset` on."""
    return size <= LARGEST_PATTERN and is_power_of_two(size) and offset % size == 0


def repeat_pattern(pattern: bytes, size: int) -> bytes:
    """Repeat a pattern up to `size` bytes and up to a block, but at least once."""
    return pattern * max(1, min(size, _BLOCK) // len(pattern))


def plan_doubling(have: int, size: int) -> list[tuple[int, int]]:
    """Return the copies that make `have` filled bytes `size` filled bytes.

    Returns:
        Pairs: the offset of a copy's target, and how many of the first bytes it copies.
    """
    steps = []
    while have < size:
        steps.append((have, min(have, size - have)))
        have += steps[-1][1]
    return steps


def create_temporary_buffer(context: URContext, data: bytes | int) -> URBuffer:
    """Create a buffer with a copy of some bytes, or of so many bytes.

    It may be dropped as soon as the commands that use it are enqueued (SPEC clReleaseMemObject).
    """
    size, host = (data, None) if isinstance(data, int) else (len(data), data)
    bits = OPENCL["CL_MEM_READ_WRITE"] | (OPENCL["CL_MEM_COPY_HOST_PTR"] if host else 0)
    cl = create(context.table, "clCreateBuffer", context.cl, bits, size, host)
    return URBuffer(cl, context, size)


def fill_memory(
    enqueue: Enqueue, memory: CLObject, pattern: bytes, offset: int, size: int
) -> UREvent | None:
    """Fill bytes of a cl_mem, and return the event, if one is wanted.

    Args:
        memory: the cl_mem.
        offset: the first byte.
        size: how many bytes, a multiple of the pattern's size.

    Raises:
        URError: as `Enqueue.call`.
        OpenCLError: as `Enqueue.call`.
    """
    if is_opencl_pattern(len(pattern), offset):
        return enqueue.call("clEnqueueFillBuffer", memory.cl, pattern, len(pattern), offset, size)
    block = create_temporary_buffer(enqueue.queue.context, repeat_pattern(pattern, size))
    calls: list[Call] = [("clEnqueueCopyBuffer", (block.cl, memory.cl, 0, offset, block.size))]
    calls += [
        ("clEnqueueCopyBuffer", (memory.cl, memory.cl, offset, offset + at, count))
        for at, count in plan_doubling(block.size, size)
    ]
    return enqueue.call_in_sequence(calls)


# maps

_MAP_FLAGS: Final = {
    "UR_MAP_FLAG_READ": "CL_MAP_READ",
    "UR_MAP_FLAG_WRITE": "CL_MAP_WRITE",
    "UR_MAP_FLAG_WRITE_INVALIDATE_REGION": "CL_MAP_WRITE_INVALIDATE_REGION",
}


@enqueues("MEM_BUFFER_MAP")
def urEnqueueMemBufferMap(
    enqueue: Enqueue, hBuffer: URBuffer, mapFlags: int, offset: int, size: int
) -> tuple[UREvent | None, int]:
    check_map(enqueue.queue.context, hBuffer, offset, size)
    mapped: list[int] = []

    def map_buffer(*arguments: Any) -> int:  # unlike other commands it returns the address
        code = ctypes.c_int32()
        mapped.append(queue.table.clEnqueueMapBuffer(*arguments, ctypes.byref(code)))
        return code.value

    queue, bits = enqueue.queue, convert_flags(mapFlags, _MAP_FLAGS)
    arguments = hBuffer.cl, enqueue.blocks, bits, offset, size
    event = enqueue.call("clEnqueueMapBuffer", *arguments, function=map_buffer)
    return event, mapped[0]


@enqueues("MEM_UNMAP")
def urEnqueueMemUnmap(enqueue: Enqueue, hMem: URMemory, pMappedPtr: int) -> UREvent | None:
    enqueue.check_context("the memory", hMem)
    return enqueue.call("clEnqueueUnmapMemObject", hMem.cl, pMappedPtr)


# device global variables

#: Intel's drivers have these functions, which are in no public header.
# cl_int (cl_command_queue, cl_program, const char *name, cl_bool blocking, size_t size,
#     size_t offset, void *host, cl_uint waits, const cl_event *, cl_event *)
_GlobalVariable: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32),
    *(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p),
    *(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p),
)


def _transfer_variable(
    reads: bool, enqueue: Enqueue, program: CLObject, name: str, count: int, offset: int, host: int
) -> UREvent | None:
    routine = f"clEnqueue{'Read' if reads else 'Write'}GlobalVariableINTEL"
    function = find_extension(enqueue.queue.context.platform, routine, _GlobalVariable)
    arguments = program.cl, name.encode(), enqueue.blocks, count, offset, host
    return enqueue.call(routine, *arguments, function=function)


declare_variable_transfers(enqueues, _transfer_variable)
