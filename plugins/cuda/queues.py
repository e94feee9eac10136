"""Queues of CUDA and HIP: one stream if they are in order, else up to `SPREAD`. Streams are shared
if need be.

An out-of-order queue gives a command the stream of the last event that it waits for, if that is the
stream's last command. Other commands go to the streams in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.ur.abi import UR
from ..sdk._native import ffi, lib
from ..sdk.conversions import is_owned
from ..sdk.queues import declare_queues
from .captures import CuCapture, QueuePart, join_captures, refuse_capture
from .clocks import make_event
from .contexts import CuContext
from .core import API, NOT_READY, DriverError, Object, adapter, check, failure, find_routine
from .devices import CuDevice, CuStream
from .events import CuEvent

_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
_LOW, _HIGH = UR["UR_QUEUE_FLAG_PRIORITY_LOW"], UR["UR_QUEUE_FLAG_PRIORITY_HIGH"]

#: Streams of an out-of-order queue.
SPREAD: Final = 3


@adapter.kind
class CuQueue(Object):
    """A queue.

    Args:
        flags: what it was created with, ur_queue_flags_t.
        native: the program's CUstream, 0 for a stream of ours.
        owned: whether the program has given us its stream.

    Attributes:
        lock: what a thread holds while it enqueues.
        streams: its streams. The first one is its native handle.
        part: its part in a capture, or None.
    """

    type = "ur_queue_handle_t"

    def __init__(
        self,
        context: CuContext,
        device: CuDevice,
        flags: int,
        native: int = 0,
        *,
        owned: bool = False,
    ) -> None:
        self.context, self.device, self.flags, self.owned = context, device, flags, owned
        self._native = CuStream(native, 0) if native else None
        low, high = device.priorities if flags & (_LOW | _HIGH) else (0, 0)
        self._priority = low if flags & _LOW else high if flags & _HIGH else 0
        count = SPREAD if flags & _OUT_OF_ORDER and not native else 1
        self.streams = [self._native or device.take_stream(self._priority) for _ in range(count)]
        self.lock = make_lock()
        self.part: QueuePart | None = None
        self._usual = self.streams[0]
        self._turn = 0
        self._tails: dict[CuStream, int] = {}  # the CUevent behind the last command, by the stream
        self._in_c = ffi.new(
            "fl_gpu_queue *",
            {
                "device": device.in_c,
                "synchronize": device.find_slot("StreamSynchronize"),
                "owner": id(context),
            },
        )
        self._allow_stream_in_c(True)
        context.queues.add(self)

    @property
    def capture(self) -> CuCapture | None:
        """Return the capture that the queue records into, or None."""
        return self.part.capture if self.part is not None else None

    def get_native(self) -> int:
        return self.streams[0].handle

    def close(self) -> None:
        for stream in self.streams:
            if stream is not self._native:
                self.device.give_stream(stream)
            elif self.owned:  # the driver destroys it when its commands have ended
                self.device.ask("StreamDestroy", stream.handle)

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return the numbers by which C knows the queue (native/calls.h)."""
        return 0, 0, int(ffi.cast("uintptr_t", self._in_c)), 0

    def _allow_stream_in_c(self, lets: bool) -> None:
        """Let C enqueue on the queue's stream, if that is the only one. Waits for calls in C."""
        lock = ffi.addressof(self._in_c, "lock")
        lib.fl_enter_recording(lock)
        self._in_c.stream = self.streams[0].handle if lets and len(self.streams) == 1 else 0
        lib.fl_leave_recording(lock)

    @property
    def in_order(self) -> bool:
        """Return whether the queue's commands run in the order in which they are enqueued."""
        return not self.flags & _OUT_OF_ORDER

    @property
    def profiles(self) -> bool:
        """Return whether the queue's events have times."""
        return bool(self.flags & _PROFILING)

    def choose(self, waits: Sequence[CuEvent]) -> CuStream:
        """Return the stream of the next command. The lock is held."""
        if self.in_order or self._native is not None or self.part is not None:
            return self.streams[0]
        for event in reversed(waits):
            stream = event.stream
            if stream is not None and self._tails.get(stream) == event.end:
                return stream
        self._turn = (self._turn + 1) % SPREAD
        return self.streams[self._turn]

    def note_tail(self, stream: CuStream, event: int) -> None:
        """Note the CUevent behind the last command of a stream, 0 if it has none."""
        self._tails[stream] = event

    def join(self, stream: CuStream, others: Sequence[CuStream]) -> None:
        """Let a stream wait for what is in other streams now. The device's context is current."""
        device = self.device
        for other in others:
            if other is stream:
                continue
            event = make_event(device, False)
            try:
                device.call_here("EventRecord", event, other.handle)
                device.call_here("StreamWaitEvent", stream.handle, event, 0)
            finally:
                device.call_here("EventDestroy", event)

    def take_stream_alone(self) -> CuStream:
        """Return the queue's first stream, for it alone until given back. The lock is held."""
        self._allow_stream_in_c(False)
        self._usual = self.streams[0]
        if self._usual is not self._native:
            self.streams[0] = self.device.take_alone(self._usual)
        return self.streams[0]

    def give_stream_back(self) -> None:
        """Let other queues have the stream again."""
        if self._usual is not self._native:
            self.device.share(self.streams[0])
        self.streams[0] = self._usual
        self._allow_stream_in_c(True)

    def check_waits(self, waits: Sequence[CuEvent]) -> None:
        """Check the events that a command waits for. The lock is held.

        Raises:
            URError: INVALID_CONTEXT for an event of a context of other devices, as
                `join_captures`.
        """
        self.context.check_shared("an event of the wait list", *waits)
        join_captures(self, waits)

    def drain(self) -> None:
        """Wait until all that is enqueued is complete.

        Raises:
            URError: GRAPH_CAPTURE_UNSUPPORTED while it is captured.
        """
        with self.lock:
            refuse_capture(self, "be waited for")
            streams = list(self.streams)
        for stream in streams:
            self.device.call("StreamSynchronize", stream.handle)

    @property
    def is_empty(self) -> bool:
        """Return whether everything that was enqueued is complete. Raises DriverError."""
        for stream in list(self.streams)[self.part is not None :]:
            code = self.device.ask("StreamQuery", stream.handle)
            if code == NOT_READY:
                return False
            check(code, find_routine("StreamQuery"))
        return True


adapter.in_c.add("urQueueFinish")


def _take_native(
    native: int, context: CuContext, device: CuDevice | None, properties: Any
) -> CuQueue:
    device = device or context.device
    try:
        is_ours = API.is_stream_of(native, device)
    except DriverError as error:
        raise failure("INVALID_QUEUE", str(error)) from error
    if not is_ours:
        raise failure("INVALID_CONTEXT", "the native queue is of another context")
    known = (one for one in list(context.queues) if not one.is_closed)
    same = (one.flags for one in known if one.streams[0].handle == native)
    owned = is_owned(properties) and not device.has_stream(native)
    return CuQueue(context, device, next(same, 0), native, owned=owned)


declare_queues(
    adapter,
    create=CuQueue,
    take_native=_take_native,
    finish=CuQueue.drain,
    flush=lambda queue: None,  # the driver starts what is enqueued by itself
    drain_device=CuDevice.drain,
)
