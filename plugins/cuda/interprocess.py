"""Memory and events of other processes, by handles: bytes that one process sends to another.

A handle contains the driver's handle, and what this adapter adds. A driver does not open a handle
in the process that made it. There this adapter returns the memory or the event itself.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Final

from ...loader.base.forks import call_in_child, make_lock
from .allocations import CuAllocation, CuRequest
from .contexts import CuContext
from .core import API, adapter, failure
from .devices import CuDevice
from .events import CuEvent, CuReusableEvent

_DRIVERS: Final = 64  # bytes of the driver's handles
_REMEDY: Final = "allocate by urUSMDeviceAlloc without a pool"


class _Handle(ctypes.Structure):
    """A handle: the process that made it, the driver's handle, and the memory or event.

    `place` is the address of the memory, or the CUevent, in that process. The driver's handle is
    for a whole allocation. The memory begins `offset` bytes after the beginning of it.
    """

    _fields_ = (
        ("process", ctypes.c_char * 16),
        ("native", ctypes.c_ubyte * _DRIVERS),
        ("place", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class _KnownHandles:
    """What this process knows of handles.

    Attributes:
        name: random bytes.
        given: the handles that were given out, by their addresses.
        opened: how often memory was opened, and the driver's address (0: it is of this process), by
            its context and its address.
        events: the events that handles were made of, by their CUevents.
    """

    def __init__(self) -> None:
        self.name = os.urandom(16).replace(b"\0", b"\1")
        self.given: dict[int, Any] = {}
        self.opened: dict[tuple[CuContext, int], tuple[int, int]] = {}
        self.events: weakref.WeakValueDictionary[int, CuEvent] = weakref.WeakValueDictionary()


_this: list[_KnownHandles] = [_KnownHandles()]
_lock = make_lock()


@call_in_child
def _forget() -> None:
    _this[0] = _KnownHandles()


def _give(made: _Handle, place: Any) -> int:
    """Store the address of a handle in `place`, and return its size."""
    made.process = _this[0].name
    with _lock:
        _this[0].given[ctypes.addressof(made)] = made
    place[0] = ctypes.addressof(made)
    return ctypes.sizeof(made)


def _read(address: int, size: int) -> tuple[_Handle, bool]:
    """Return a copy of a handle, and whether it is of this process. Raises URError."""
    if size != ctypes.sizeof(_Handle):
        raise failure("INVALID_VALUE", f"a handle has {ctypes.sizeof(_Handle)} bytes, not {size}")
    made = _Handle.from_buffer_copy(ctypes.string_at(address, size))
    return made, made.process == _this[0].name


def _forget_handle(address: int) -> None:
    """Forget a handle. Raises URError (INVALID_VALUE) if none is there."""
    with _lock:
        if _this[0].given.pop(address, None) is None:
            raise failure("INVALID_VALUE", "no handle is there")


# memory


@adapter.entry
def urIPCGetMemHandleExp(
    hContext: CuContext, pMem: int, ppIPCMemHandleData: Any, pIPCMemHandleDataSizeRet: Any
) -> None:
    found = hContext.allocations.find(pMem)
    if found is None or found.kind != "device" or found.imported:
        raise failure(
            "INVALID_VALUE", "other processes can have device memory of this one", remedy=_REMEDY
        )
    if found.in_driver_pool:
        is_default = found.pool.driver_pool.is_default
        which = "the device's default pool, from which queues allocate" if is_default else "a pool"
        raise failure(
            "INVALID_VALUE", f"other processes cannot have memory of {which}", remedy=_REMEDY
        )
    native, driver_base = API.shared_memory(), found.base - found.padding
    found.owner.call("IpcGetMemHandle", ctypes.byref(native), driver_base)
    offset, size = pMem - driver_base, found.end - pMem
    made = _Handle(place=pMem, offset=offset, size=size)
    made.native[:] = bytes(native)
    pIPCMemHandleDataSizeRet[0] = _give(made, ppIPCMemHandleData)


@adapter.entry
def urIPCPutMemHandleExp(hContext: CuContext, pIPCMemHandleData: int) -> None:
    _forget_handle(pIPCMemHandleData)


@adapter.entry
def urIPCOpenMemHandleExp(
    hContext: CuContext, hDevice: CuDevice, pIPCMemHandleData: int, ipcMemHandleDataSize: int
) -> int:
    handle, is_ours = _read(pIPCMemHandleData, ipcMemHandleDataSize)
    if is_ours and hContext.allocations.find(handle.place) is None:
        raise failure("INVALID_VALUE", "the memory was freed, or is of another context")
    native = 0
    if not is_ours:
        given = API.shared_memory.from_buffer_copy(handle, _Handle.native.offset)
        native = hDevice.make("IpcOpenMemHandle", given, API.find_opening_flags(hDevice))
    address = native + handle.offset if native else handle.place
    with _lock:
        opened = _this[0].opened
        count = opened.get((hContext, address), (0, 0))[0]
        opened[hContext, address] = count + 1, native
    if native and not count:
        request = CuRequest(hContext, "device", hDevice, handle.size)
        hContext.allocations.add(CuAllocation(address, request, imported=True))
    return address


@adapter.entry
def urIPCCloseMemHandleExp(hContext: CuContext, pMem: int) -> None:
    """Close memory as often as it was opened. The last time waits for the context's commands."""
    with _lock:
        opened = _this[0].opened
        count, native = opened.pop((hContext, pMem), (0, 0))
        if count > 1:
            opened[hContext, pMem] = count - 1, native
    if not count:
        raise failure("INVALID_VALUE", "no memory of another process was opened there")
    if not native:
        return
    if count == 1:
        hContext.drain()
        found = hContext.allocations.remove(pMem)
    else:
        found = hContext.allocations.find(pMem)
    device = found.owner if found is not None else hContext.device
    device.call("IpcCloseMemHandle", native)


# events


@adapter.entry
def urIPCGetEventHandleExp(hEvent: CuEvent, ppIPCEventHandleData: Any) -> int:
    if not isinstance(hEvent, CuReusableEvent) or not hEvent.shared:
        raise failure("INVALID_EVENT", "UR_EXP_EVENT_FLAG_IPC_EXP makes events for other processes")
    native = API.shared_event()
    hEvent.device.call("IpcGetEventHandle", ctypes.byref(native), hEvent.end)
    made = _Handle(place=hEvent.end)
    made.native[:] = bytes(native)
    _this[0].events[hEvent.end] = hEvent
    return _give(made, ppIPCEventHandleData)


@adapter.entry
def urIPCPutEventHandleExp(hContext: CuContext, pIPCEventHandleData: int) -> None:
    _forget_handle(pIPCEventHandleData)


@adapter.entry
def urIPCOpenEventHandleExp(
    hContext: CuContext, pIPCEventHandleData: int, ipcEventHandleDataSize: int
) -> CuEvent:
    handle, is_ours = _read(pIPCEventHandleData, ipcEventHandleDataSize)
    device = hContext.device
    if is_ours:
        original = _this[0].events.get(handle.place)
        if original is None:
            raise failure("INVALID_VALUE", "the event is gone")
        return CuOpenedEvent(hContext, original.device, original.end, original)
    given = API.shared_event.from_buffer_copy(handle, _Handle.native.offset)
    return CuOpenedEvent(hContext, device, device.make("IpcOpenEventHandle", given))


class CuOpenedEvent(CuReusableEvent):
    """An event of a handle. It has no times, and no handle is made of it.

    Args:
        original: the event of this process that has the CUevent, None for another process's.
    """

    def __init__(
        self, context: CuContext, device: CuDevice, end: int, original: CuEvent | None = None
    ) -> None:
        CuEvent.__init__(self, context, device, end, owned=original is None)
        self.profiles, self.shared, self.original = False, False, original
