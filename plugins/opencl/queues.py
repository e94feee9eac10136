"""Queues of the OpenCL adapter: created, waited for, and closed while their commands may still run.

The commands of a queue continue after the program has released it. `drain_queues` waits for them,
too. So a queue that is closed while commands may run enqueues a marker behind them
(`UnfinishedCommands`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from ...icd.abi import OPENCL
from ...icd.command_buffer.queue_release import release_ended, release_queue
from ...icd.command_buffer.waiting import finish
from ...loader.ur.abi import UR
from ..sdk._native import ffi, lib
from ..sdk.queues import declare_queues
from .contexts import URContext, check_native
from .core import (
    CLObject,
    adapter,
    check,
    create,
    failure,
    get_address,
    make_handle_array,
    query_number,
    retain_unless_owned,
)
from .devices import URDevice, get_device
from .events import UREvent, waits_itself
from .unfinished import UnfinishedCommands, unfinished

BARRIER: Final = "clEnqueueBarrierWithWaitList"
_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
_PROPERTIES: Final = (
    (_OUT_OF_ORDER, OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]),
    (UR["UR_QUEUE_FLAG_PROFILING_ENABLE"], OPENCL["CL_QUEUE_PROFILING_ENABLE"]),
)


@adapter.kind
class URQueue(CLObject):
    """A cl_command_queue.

    Args:
        flags: what it was created with, ur_queue_flags_t.
        owned: whether it has a reference to `cl`, which it releases at the end.

    Attributes:
        borrowed: whether it is the program's own queue, which only an event led to.
    """

    type = "ur_queue_handle_t"
    release, retain_function = "clReleaseCommandQueue", "clRetainCommandQueue"

    def __init__(
        self, cl: int, context: URContext, device: URDevice, flags: int, owned: bool = True
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.device, self.flags = context, device, flags
        self.borrowed = False
        self.struct = ffi.new(
            "fl_queue *",
            {"cl": cl, "context": context.struct, "device": device.cl, "in_order": self.in_order},
        )
        lib.fl_add_queue(self.struct)
        _end_late_writes(context.cl)
        _queues[id(self)] = _by_struct[get_address(self.struct)] = self

    def get_native(self) -> int:
        self.shared = True
        return self.cl

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return self.cl, get_address(self.struct), 0, 0

    def handle_ends(self) -> None:
        """Take over the events that C has made, because they keep the queue."""
        registry = adapter.registry
        if registry is not None:
            for handle in registry.list_made_in_c(UREvent.type, get_address(self.struct)):
                registry.adopt(UREvent.type, handle)

    @property
    def enqueued(self) -> int:
        """Return how many commands were enqueued.

        Each is counted after it was enqueued, because another thread may finish the queue
        meanwhile.
        """
        return self.struct.enqueued

    def count(self) -> None:
        """Count a command that was enqueued."""
        lib.fl_count(self.struct)

    @property
    def shared(self) -> bool:
        """Return whether the program has its native handle, by which it may enqueue, too."""
        return bool(self.struct.shared)

    @shared.setter
    def shared(self, value: bool) -> None:
        self.struct.shared = value

    @property
    def has_late_write(self) -> bool:
        """Return whether the driver may not have ended a blocking write, which only commands of
        this queue may use so far."""
        return self.struct.late > self.struct.finished

    @property
    def in_order(self) -> bool:
        """Return whether the queue's commands run in the order in which they are enqueued."""
        return not self.flags & _OUT_OF_ORDER

    def close(self) -> None:
        profile = self.context.platform.profile
        if self.has_late_write:
            self.drain()
        may_run = self.enqueued != self.struct.finished or (self.shared and self.owned)
        may_run = may_run and not self.borrowed
        commands = UnfinishedCommands.from_queue(self) if may_run else None
        lib.fl_remove_queue(self.struct)
        used = may_run or (self.enqueued and profile.final_release_delay is not None)
        if self.owned and not self.in_order and used:
            marker = 0
            if commands is not None and not self.shared:  # nobody enqueues after it
                marker = commands.cl
                check(self.table.clRetainEvent(marker), "clRetainEvent")
            release_queue(self.cl, profile, marker=marker, device=self.device)
        else:
            super().close()

    def split_blocking(self) -> tuple[bool, bool]:
        """Say how a command blocks.

        Returns:
            Whether it blocks in the driver, and whether we wait for its event afterwards.
        """
        by_event = waits_itself(self.context.platform)
        early = self.context.platform.profile.blocking_write_returns_early
        return not by_event, by_event or early

    def flush(self) -> None:
        """Submit what is enqueued to the device. Raises OpenCLError."""
        check(self.table.clFlush(self.cl), "clFlush")

    def drain(self) -> None:
        """Wait until all that is enqueued is complete. Raises OpenCLError."""
        enqueued = self.enqueued
        if waits_itself(self.context.platform):
            finish(self.cl, self.in_order, self.context.platform.profile.waits_one_at_a_time)
        else:
            check(self.table.clFinish(self.cl), "clFinish")
        self.struct.finished = max(enqueued, self.struct.finished)

    @property
    def _splits_barriers(self) -> bool:
        return not self.in_order and self.context.platform.profile.splits_barriers

    @property
    def is_empty(self) -> bool:
        """Return whether everything that was enqueued is complete.

        A driver does not tell. A marker tells, as soon as it has run.
        """
        if self.enqueued == self.struct.finished and not self.shared:
            return True
        enqueued, marker = self.enqueued, self.mark()
        self.flush()
        return marker.status <= 0 and self.enqueued == enqueued + 1

    def check_waits(self, waits: Sequence[UREvent]) -> None:
        """Check that a command of the queue can wait for events.

        Raises:
            URError: INVALID_CONTEXT for an event of another context, with which Intel's driver
                crashes, and what `UREvent.check_usable` raises.
        """
        self.context.check_shared("an event of the wait list", *waits)
        for event in waits:
            event.check_usable()

    def mark(self, waits: Sequence[UREvent] = (), command: str = "EVENTS_WAIT") -> UREvent:
        """Enqueue a marker, and return its event. Arguments and errors are those of `enqueue`."""
        marker = self.enqueue("clEnqueueMarkerWithWaitList", command, (), waits, True)
        assert marker is not None
        return marker

    def enqueue(
        self,
        routine: str,
        command: str,
        arguments: tuple[Any, ...],
        waits: Sequence[UREvent],
        wanted: bool,
        function: Any = None,
    ) -> UREvent | None:
        """Call one of OpenCL's clEnqueue… functions. Return the event, None if it is not wanted.

        Args:
            command: the name of a ur_command_t after UR_COMMAND_.
            arguments: what it takes between the queue and the wait list.
            wanted: whether an event is made.
            function: the function, if it is not in the dispatch table.

        Raises:
            URError: an event of the wait list cannot be waited for.
        """
        if waits:
            self.check_waits(waits)
        if waits and routine == BARRIER and self._splits_barriers:
            self.enqueue("clEnqueueMarkerWithWaitList", command, (), waits, False)
            waits = ()
        function = function or getattr(self.table, routine)
        listed = len(waits), make_handle_array(waits)
        if not wanted:
            check(function(self.cl, *arguments, *listed, None), routine)
            self.count()
            return None
        before = self.enqueued
        alone = not waits and not self.shared and before == self.struct.finished
        made = ctypes.c_void_p()
        check(function(self.cl, *arguments, *listed, ctypes.byref(made)), routine)
        self.count()
        event = UREvent(made.value or 0, self.context, self, UR[f"UR_COMMAND_{command}"])
        if alone and self.enqueued == before + 1:
            event.place = before + 1
        return event


#: The queues that exist, by their `id`. A released queue exists while an event of a command of it
#: does.
_queues: Final[WeakValueDictionary[int, URQueue]] = WeakValueDictionary()
#: The same by the addresses of their structs.
_by_struct: Final[WeakValueDictionary[int, URQueue]] = WeakValueDictionary()


def _adopt_event(words: Any) -> UREvent:
    """Return the object of an event that C has made. Its queue's handle is valid."""
    queue = _by_struct[words[2]]
    return UREvent(words[0], queue.context, queue, words[3] & lib.FL_COMMAND)


adapter.adopters[UREvent.type] = _adopt_event


def _end_late_writes(context: int | None = None) -> None:
    """Wait for the late writes of a cl_context, or of all (`URQueue.has_late_write`)."""
    for reference in _queues.valuerefs():
        queue = reference()
        if queue is None or queue.is_closed or not queue.has_late_write:
            continue
        if context in (None, queue.context.cl):
            queue.drain()


def share_memory() -> None:
    """Note that the program has a cl_mem. From now on a blocking write is complete at its end."""
    lib.fl_note_shared_memory()
    _end_late_writes()


def drain_queues(*, context: URContext | None = None, device: URDevice | None = None) -> None:
    """Wait for the commands of all queues of a context, or of a device and its sub-devices.

    The queues that the program has released are among them.

    Args:
        context: the context, None for all.
        device: the device, None for all.
    """

    def is_meant(context_cl: int, of: URDevice) -> bool:
        return (context is None or context_cl == context.cl) and (
            device is None or of.is_part_of(device)
        )

    for reference in _queues.valuerefs():
        queue = reference()
        # A weak reference leads to an object until its finalizer has returned.
        if queue is None or queue.is_closed:
            continue
        if is_meant(queue.context.cl, queue.device):
            queue.drain()
    for one in list(unfinished.values()):  # second: a queue that was closed meanwhile is here
        if is_meant(one.context_cl, one.device):
            one.wait()
    UnfinishedCommands.forget_ended()


adapter.after_queues.append(release_ended)


def create_queue(context: URContext, device: URDevice, flags: int) -> URQueue:
    """Create a queue.

    Args:
        flags: ur_queue_flags_t. Only order and profiling matter to OpenCL.
    """
    release_ended()
    UnfinishedCommands.forget_ended()
    bits = sum(opencl for flag, opencl in _PROPERTIES if flags & flag)
    if device.platform.icd.version_number >= (2, 0):
        properties = (ctypes.c_uint64 * 3)(OPENCL["CL_QUEUE_PROPERTIES"], bits, 0)
        cl = create(
            context.table, "clCreateCommandQueueWithProperties", context.cl, device.cl, properties
        )
    else:
        cl = create(context.table, "clCreateCommandQueue", context.cl, device.cl, bits)
    return URQueue(cl, context, device, flags)


def _take_native(
    native: int, context: URContext, device: URDevice | None, properties: Any
) -> URQueue:
    check_native(native, context, "clGetCommandQueueInfo", "CL_QUEUE_CONTEXT")
    cl = _ask_native(native, context, "CL_QUEUE_DEVICE")
    if device is not None and cl != device.cl:
        raise failure("INVALID_DEVICE", "the native queue is of another device")
    return _make_from_native(native, context, device or get_device(cl), properties)


declare_queues(
    adapter,
    create=create_queue,
    take_native=_take_native,
    finish=URQueue.drain,
    flush=URQueue.flush,
    drain_device=lambda device: drain_queues(device=device),
)


def _ask_native(native: int, context: URContext, name: str) -> int:
    return query_number(context.table, "clGetCommandQueueInfo", native, name)


def _make_from_native(
    native: int, context: URContext, device: URDevice, properties: Any
) -> URQueue:
    """Create an object for a cl_command_queue."""
    retain_unless_owned(URQueue, native, context.table, properties)
    bits = _ask_native(native, context, "CL_QUEUE_PROPERTIES")
    flags = sum(flag for flag, opencl in _PROPERTIES if bits & opencl)
    queue = URQueue(native, context, device, flags)
    queue.shared = True
    return queue


def get_queue(native: int, context: URContext) -> URQueue:
    """Return the object for a cl_command_queue: one that exists, or a new one.

    Args:
        native: the cl_command_queue.

    Raises:
        URError: the handle is NULL.
    """
    found = filter(None, (reference() for reference in _queues.valuerefs()))
    known = next((one for one in found if one.cl == native and not one.is_closed), None)
    if known is not None:
        return known
    device = get_device(_ask_native(native, context, "CL_QUEUE_DEVICE"))
    queue = _make_from_native(native, context, device, None)
    queue.borrowed = True
    return queue
