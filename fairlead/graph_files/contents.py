"""The contents of memory, as bytes: read from a device, and written to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..icd.calls import call
from ..icd.errors import check

#: Flags of memory that the host may not read; a copy of it can be read.
_UNREADABLE: Final = {"host_write_only", "host_no_access"}


def read_memory(queue: Any, record: Mapping[str, Any], memory: Any) -> np.ndarray:
    """Return the bytes of a memory, after everything that is in the queue.

    Args:
        queue: a pyopencl.CommandQueue.
        memory: a pyopencl.Buffer, an Image, the address of SVM, or bytes of the host.
    """
    import pyopencl as cl

    made = np.empty(record["size"], np.uint8)
    if _UNREADABLE.intersection(record.get("flags", ())) and record["kind"] != "image":
        copied = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, record["size"])
        cl.enqueue_copy(queue, copied, memory, byte_count=record["size"])
        memory = copied
    event = start_read(queue, record, memory, made)
    queue.finish()
    del event
    return made


def start_read(queue: Any, record: Mapping[str, Any], memory: Any, into: np.ndarray) -> Any:
    """Begin to read a memory into bytes, which are there when the queue has finished.

    Args:
        queue, record, memory: as of `read_memory`.

    Returns:
        What has to be kept until then. An event of PyOpenCL's waits when it is dropped, and lets no
            thread of Python run. So a host task that the queue waits for would never end.
    """
    import pyopencl as cl

    if isinstance(memory, np.ndarray):
        queue.finish()
        into[:] = memory
    elif isinstance(memory, int):
        _copy_svm(queue, into.ctypes.data, memory, into.nbytes)
    else:
        return cl.enqueue_copy(queue, into, memory, is_blocking=False, **_describe_extent(record))
    return None


def write_memory(queue: Any, record: Mapping[str, Any], memory: Any, data: np.ndarray) -> None:
    """Give a memory other bytes. `data` has as many; see `read_memory`."""
    data = np.ascontiguousarray(data)
    event = start_write(queue, record, memory, data)
    queue.finish()
    del event


def start_write(queue: Any, record: Mapping[str, Any], memory: Any, data: np.ndarray) -> Any:
    """Begin to write a memory. The contiguous `data` is used until the queue has finished.

    Args:
        queue, record, memory: as of `read_memory`.
        data: the new bytes.

    Returns:
        What has to be kept until then, as for `start_read`.
    """
    import pyopencl as cl

    if isinstance(memory, np.ndarray):
        queue.finish()
        memory[:] = data
    elif isinstance(memory, int):
        _copy_svm(queue, memory, data.ctypes.data, data.nbytes)
    else:
        return cl.enqueue_copy(queue, memory, data, is_blocking=False, **_describe_extent(record))
    return None


def _describe_extent(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a transfer of all of a memory has to be told."""
    if record["kind"] != "image":
        return {}
    return {"origin": (0, 0, 0), "region": tuple(record["extent"])}


def _copy_svm(queue: Any, target: int, source: int, size: int) -> None:
    arguments = 1, target, source, size, 0, None, None
    check(call(queue.int_ptr, "clEnqueueSVMMemcpy", *arguments), "clEnqueueSVMMemcpy")


def view_as_array(record: Mapping[str, Any], data: np.ndarray) -> np.ndarray:
    """Bytes in the type and shape that the memory has, if they are known."""
    if "dtype" not in record or data.nbytes % np.dtype(record["dtype"]).itemsize:
        return data
    data = data.view(record["dtype"])
    shape = record.get("shape")
    if shape is not None and int(np.prod(shape, dtype=object)) == data.size:
        data = data.reshape(shape)
    return data
