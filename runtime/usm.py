"""Unified shared memory: device, host and shared allocations, with NumPy views where the host can
reach them.

    memory = malloc_shared(1024, numpy.float32, queue)
    memory.array[:] = 1
    queue.memcpy(other, memory)

An allocation is freed when no object uses it any more, also no node of a graph, and everything in
its context has ended. `memory + n` points to its element n. Other packages see it by DLPack, by
`__sycl_usm_array_interface__`, and on CUDA by `__cuda_array_interface__`. Memory of theirs is
accepted with one of the interfaces, and by `from_dlpack`. (SYCL 2020, section 4.8.)
"""

from __future__ import annotations

import ctypes
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

import numpy

from ..loader.base.never_copied import NeverCopied
from ..loader.ur.abi import UR
from . import dlpack
from .accessor import Accessor
from .arguments import MAKERS, MAKERS_ALONE, Argument, make_pointer_argument
from .checks import MOST, as_integer, check_element_type, make_type_error
from .coherent_memory import CoherentMemory
from .context import Context, get_default_context
from .errors import SYCLError, make_invalid_error, make_unsupported_error
from .foreign_arrays import find_foreign_array
from .interop import find_memory
from .platform import Device

if TYPE_CHECKING:
    from .queue import Queue

#: What memory can be allocated for.
Place: TypeAlias = Union["Queue", Device, tuple[Context, Device]]

KINDS: Final = ("device", "host", "shared")

_TYPE: Final = UR["UR_USM_ALLOC_INFO_TYPE"]
_KIND_OF: Final = {UR[f"UR_USM_TYPE_{kind.upper()}"]: kind for kind in KINDS}


class _Allocation:
    """An allocation. It is freed after everything that runs in its context, because nothing tells
    which commands use it."""

    def __init__(self, context: Context, address: int) -> None:
        self.context, self.address = context, address

    def __del__(self) -> None:
        context = getattr(self, "context", None)
        if context is not None and context.adapter.open:
            context.call_when_idle(
                partial(context.adapter.ur.urUSMFree, context.handle, self.address)
            )


class _Foreign:
    """Memory of another package, which is told after everything that runs in the context."""

    def __init__(self, context: Context, taken: dlpack.Taken) -> None:
        self.context, self.taken = context, taken

    def __del__(self) -> None:
        context = getattr(self, "context", None)
        if context is None:
            return
        if context.adapter.open:
            context.call_when_idle(self.taken.release)
        else:
            self.taken.release()


class USM(NeverCopied):
    """USM memory, or a part of an allocation from an element on.

    Attributes:
        allocation: what is freed when nobody uses it; parts share it.
        nbytes: how many bytes there are from there on.
        kind: "device", "host" or "shared".
        context, device: what it was allocated for; host memory has no device.
    """

    def __init__(
        self,
        allocation: Any,
        pointer: int,
        nbytes: int,
        dtype: Any,
        kind: str,
        context: Context,
        device: Device | None,
    ) -> None:
        self.allocation = allocation
        self.pointer, self.nbytes, self.dtype = pointer, nbytes, numpy.dtype(dtype)
        self.kind, self.context, self.device = kind, context, device

    @cached_property
    def argument(self) -> Argument:
        """It as an argument. That keeps another object of the same memory: one that kept this
        object, which has it, would never go."""
        others = self.dtype, self.kind, self.context, self.device
        same = USM(self.allocation, self.pointer, self.nbytes, *others)
        return make_pointer_argument(self.pointer, same)

    @property
    def size(self) -> int:
        """How many whole elements there are."""
        return self.nbytes // self.dtype.itemsize

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The memory as a NumPy array, which keeps it alive. Raises SYCLError (invalid) for device
        memory."""
        if self.kind == "device":
            raise make_invalid_error(
                "the host cannot reach device memory",
                routine="USM.array",
                remedy="copy it with queue.memcpy",
            )
        block: Any = (ctypes.c_byte * (self.size * self.dtype.itemsize)).from_address(self.pointer)
        block._memory = self
        return numpy.frombuffer(block, self.dtype)

    def __add__(self, elements: int) -> USM:
        step = as_integer(elements, "number of elements", "USM") * self.dtype.itemsize
        if not 0 <= step < self.nbytes:
            raise make_invalid_error(
                f"element {elements} is not within the {self.size} of it", routine="USM"
            )
        return USM(
            self.allocation,
            self.pointer + step,
            self.nbytes - step,
            self.dtype,
            self.kind,
            self.context,
            self.device,
        )

    @property
    def _sycl_device(self) -> str | None:
        """SYCL's name of the device, if all contexts of a device have its memory, as CUDA's do."""
        device = self.device or self.context.devices[0]
        backend = device.backend
        return f"{backend}:gpu:{device.native()}" if backend in ("cuda", "hip") else None

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.pointer, False),
            "shape": (self.size,),
            "strides": None,
            "typestr": self.dtype.str,
            "version": 1,
            "syclobj": self._sycl_device,
            "offset": 0,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        backend = self.context.devices[0].backend
        if backend != "cuda":
            raise AttributeError(f"memory of the backend {backend} has no CUDA array interface")
        data = self.pointer, False
        shape, typestr = (self.size,), self.dtype.str
        return {"data": data, "shape": shape, "strides": None, "typestr": typestr, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's type of the device and its number. Raises BufferError if it has none."""
        kind = dlpack.find_device_type(self.context.platform.backend, self.kind)
        device = self.device or self.context.devices[0]
        return kind, device.native() if kind in dlpack.NUMBERED else 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the memory as a capsule of DLPack's, after all that was submitted in the context.

        Args:
            stream: where the taker uses it; -1: the taker takes care of the order.
            max_version: the newest version of DLPack that the taker knows; None: before 1.0.
            dl_device: where the taker wants it. The host may be given for host and shared memory.
            copy: must not be True.

        Raises:
            BufferError: the taker wants a copy or another device, or DLPack has no such memory.
        """
        place = self.__dlpack_device__()
        reachable = {place} if self.kind == "device" else {place, (dlpack.CPU, 0)}
        if copy or (dl_device is not None and tuple(dl_device) not in reachable):
            raise BufferError("the memory is given as it is, without a copy")
        if stream != -1:
            self.context.finish()
        return dlpack.give(
            self,
            place if dl_device is None else (dl_device[0], dl_device[1]),
            self.dtype,
            is_versioned=max_version is not None and max_version[0] >= dlpack.VERSION[0],
        )

    def __repr__(self) -> str:
        return f"<USM {self.kind} {self.nbytes} bytes at {self.pointer:#x}>"


def _find_context_and_device(where: Any, kind: str, routine: str) -> tuple[Context, Device]:
    """Return the context and the device to allocate for. Raises SYCLError (invalid)."""
    if isinstance(where, Device):
        return get_default_context(where), where
    if isinstance(where, Context):
        if kind == "host":
            return where, where.devices[0]
        raise make_invalid_error(
            "a context alone does not say which device the memory is for",
            routine=routine,
            remedy=f"{routine}(count, dtype, queue), or (context, device) in the place of the "
            "queue",
        )
    context, device = (
        where
        if isinstance(where, tuple) and len(where) == 2
        else (getattr(where, n, None) for n in ("context", "device"))
    )
    if not isinstance(context, Context) or not isinstance(device, Device):
        raise make_type_error(
            where, "Queue, Device or (context, device)", routine, f"{routine}(count, dtype, queue)"
        )
    if device not in context:
        raise make_invalid_error(
            "the device is not one of the context's",
            routine=routine,
            remedy="give a device of the context",
        )
    return context, device


def count_bytes(count: int, dtype: Any, routine: str) -> int:
    """Return the size of an allocation of `count` elements, in bytes. Raises SYCLError (invalid)
    unless it is at least one byte, and fits into C's 64 bits.

    Args:
        count: the number of elements.
        routine: named in errors.
    """
    nbytes = (
        as_integer(count, "number of elements", routine)
        * check_element_type(dtype, routine).itemsize
    )
    if as_integer(nbytes, "number of bytes", routine) <= 0:
        raise make_invalid_error(
            "an allocation has at least one element",
            routine=routine,
            remedy=f"{routine}(1, dtype, …)",
        )
    return nbytes


def allocate(kind: str, count: int, dtype: Any, where: Place | Context, routine: str = "") -> USM:
    """Allocate memory.

    Args:
        kind: "device", "host" or "shared".
        count: the number of elements.
        where: a queue, a device, or (context, device); for host memory also a context.
        routine: named in errors.

    Raises:
        SYCLError: invalid, memory_allocation, or feature_not_supported.
    """
    routine = routine or f"malloc_{kind}"
    if kind not in KINDS:
        raise make_invalid_error(
            f"there is no {kind!r} memory", routine=routine, remedy=f"one of {', '.join(KINDS)}"
        )
    context, device = _find_context_and_device(where, kind, routine)
    nbytes = count_bytes(count, dtype, routine)
    context.adapter.check_open(routine)
    function, devices = f"urUSM{kind.capitalize()}Alloc", () if kind == "host" else (device.handle,)
    try:
        address = context.adapter.obtain(function, context.handle, *devices, None, None, nbytes)
    except SYCLError as error:
        if device.has(f"usm_{kind}_allocations"):
            raise
        raise make_unsupported_error(
            f"{device.name} has no {kind} memory",
            routine=routine,
            remedy="malloc_device and queue.memcpy, or a Buffer",
        ) from error
    return USM(
        _Allocation(context, address),
        address,
        nbytes,
        dtype,
        kind,
        context,
        None if kind == "host" else device,
    )


def malloc_device(count: int, dtype: Any, where: Place) -> USM:
    """Allocate `count` elements on a device. See `allocate`."""
    return allocate("device", count, dtype, where)


def malloc_host(count: int, dtype: Any, where: Place | Context) -> USM:
    """Allocate `count` elements on the host, for the devices of a context. See `allocate`."""
    return allocate("host", count, dtype, where)


def malloc_shared(count: int, dtype: Any, where: Place) -> USM:
    """Allocate `count` elements that move between host and device. See `allocate`."""
    return allocate("shared", count, dtype, where)


def from_dlpack(value: Any, queue: Queue) -> USM:
    """Return memory of another package as USM, without a copy.

    What the package has begun with it comes before what is submitted to the queue afterwards. The
    memory stays until the USM is gone and everything that runs in the queue's context has ended.

    Args:
        value: has `__dlpack__`, such as an array of CuPy or a tensor of torch.
        queue: where it is used.

    Raises:
        SYCLError: invalid for memory that is not contiguous, that may only be read, or that the
            queue's context does not have. So are elements that NumPy does not have.
    """
    place = tuple(getattr(value, "__dlpack_device__", tuple)())
    if not place:
        raise make_type_error(
            value, "object with __dlpack__", "from_dlpack", "malloc_shared makes USM"
        )
    stream = {"stream": queue.native()} if place[0] in dlpack.WITH_STREAMS else {}
    try:
        try:
            capsule = value.__dlpack__(max_version=dlpack.VERSION, **stream)
        except TypeError:  # of before DLPack 1.0
            capsule = value.__dlpack__(**stream)
        taken = dlpack.take(capsule)
    except BufferError as error:
        raise make_invalid_error(
            str(error), routine="from_dlpack", remedy="copy it: queue.memcpy"
        ) from error
    foreign = _Foreign(queue.context, taken)
    kind, device = _query_kind(taken.pointer, queue.context), queue.device
    if kind is None or (place[0] in dlpack.NUMBERED and place[1] != device.native()):
        raise make_invalid_error(
            f"the memory at {taken.pointer:#x} is not memory of {device.name}",
            routine="from_dlpack",
            remedy="copy it: queue.memcpy",
        )
    if stream and not queue.in_order:
        queue.barrier()
    nbytes = taken.size * taken.dtype.itemsize
    where = None if kind == "host" else device
    return USM(foreign, taken.pointer, nbytes, taken.dtype, kind, queue.context, where)


def _query_kind(address: int, context: Context) -> str | None:
    """Return the kind of the memory at an address, None if the context has no such memory."""
    found = ctypes.c_uint32()
    code = context.adapter.ur.urUSMGetMemAllocInfo(
        context.handle, address, _TYPE, ctypes.sizeof(found), ctypes.byref(found), None
    )
    return None if code else _KIND_OF.get(found.value)


MAKERS[USM] = MAKERS_ALONE[USM] = attrgetter("argument")


def find_pointer(
    value: Any, *, writable: bool = False, routine: str = "memcpy", objects: bool = False
) -> tuple[Any, int | None, Any]:
    """Return the address, the size in bytes (None if unknown) and the owner of memory that a copy
    is given.

    Args:
        value: USM, a NumPy array, an address, an object with `__sycl_usm_array_interface__` or
            `__cuda_array_interface__`, or PyOpenCL's memory.
        writable: whether the copy writes to it.
        routine: named in errors.
        objects: whether a Memory may stand in the place of the address.

    Raises:
        SYCLError: invalid.
    """
    if isinstance(value, USM):
        return value.pointer, value.nbytes, value
    if isinstance(value, numpy.ndarray):
        if not value.flags.c_contiguous or (writable and not value.flags.writeable):
            raise _make_layout_error(routine, "numpy.ascontiguousarray(…)")
        if value.dtype.hasobject:
            check_element_type(value.dtype, routine)
        return value.ctypes.data, value.nbytes, value
    foreign = find_foreign_array(value)
    if foreign is not None:
        if not foreign.is_contiguous or (writable and foreign.is_read_only):
            raise _make_layout_error(routine, "copy the array with its own package first")
        return foreign.pointer, foreign.nbytes, value
    if isinstance(value, (int, numpy.integer)) and not isinstance(value, bool):
        if not 0 <= value <= MOST:
            raise make_invalid_error(
                f"{value} is not an address",
                routine=routine,
                remedy="give USM memory, or its pointer",
            )
        return int(value), None, None
    found = find_memory(value)
    if found is not None and (objects or isinstance(found[0], int)):
        return *found, value
    remedy = "give USM memory, a NumPy array or an address"
    if isinstance(value, (Accessor, CoherentMemory)):
        remedy = "of a buffer: queue.submit(lambda h: h.copy(h.access(buffer), memory)), or h.fill"
    raise make_type_error(value, "memory for this", routine, remedy)


def find_host_memory(
    memory: Any, accessor: Accessor, *, writable: bool, routine: str = "copy"
) -> tuple[int, Any]:
    """Return the address and the owner of memory that is copied to an accessor's part or from it.

    Args:
        memory: USM, a NumPy array or an address.
        accessor: the part, for which the memory must have room.
        writable: whether the copy writes to the memory.
        routine: named in errors.

    Raises:
        SYCLError: invalid.
    """
    address, room, owner = find_pointer(memory, writable=writable, routine=routine)
    if room is not None and room < accessor.nbytes:
        raise make_invalid_error(
            f"the memory has {room} bytes, the accessor {accessor.nbytes}",
            routine=routine,
            remedy="give as much memory",
        )
    return address, owner


def _make_layout_error(routine: str, remedy: str) -> SYCLError:
    """Return the error for an array that a copy cannot use as it is."""
    return make_invalid_error(
        "the array is not contiguous, or cannot be written to", routine=routine, remedy=remedy
    )
