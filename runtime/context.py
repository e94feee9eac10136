"""Contexts: the devices that share memory objects, events and programs, and what has to wait for
their commands."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.ends import call_at_end
from ..loader.base.forks import call_in_child, make_lock
from ..loader.ur.abi import UR
from .checks import as_list
from .deferred_actions import DeferredActions
from .errors import make_invalid_error
from .event import Event, Unfinished
from .handles import RuntimeAdapter, URObject, make_handle_array, make_struct
from .platform import Device, devices
from .workers import stop_starting, wait_for_adapter_calls

if TYPE_CHECKING:
    from .queue import Queue

_OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
_EMPTY: Final = UR["UR_QUEUE_INFO_EMPTY"]


class Context(URObject):
    """A context of one or several devices of one platform.

    Args:
        of: a device, or several; by default the first device that the environment selects.
        handle: the adapter's context, if it exists already. The reference is taken over.
        keep: what the handle was made of.

    Raises:
        SYCLError: invalid, for no devices or those of several platforms.
    """

    _release, _native = "urContextRelease", "urContextGetNativeHandle"

    def __init__(
        self, of: Device | Iterable[Device] | None = None, *, handle: int = 0, keep: Any = None
    ) -> None:
        chosen = (
            [devices()[0]]
            if of is None
            else as_list(of, Device, "Context", "Context(devices()[0])")
        )
        if not chosen:
            raise make_invalid_error(
                "a context needs a device", routine="Context", remedy="Context(device)"
            )
        if any(device.platform is not chosen[0].platform for device in chosen):
            raise make_invalid_error(
                "the devices are of several platforms",
                routine="Context",
                remedy="make a context for each platform",
            )
        self.devices = tuple(chosen)
        self.platform = chosen[0].platform
        adapter = self.platform.adapter
        adapter.check_open("Context")
        # `__del__` needs all of it, and Ctrl-C may come as soon as there is a handle.
        self._lock = make_lock()
        self._releasing = make_lock()  # held while queues are waited for and released
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        #: Handles of queues that are gone, but perhaps not what was submitted to them.
        self._released: list[int] = []
        #: The events of commands that use host memory.
        self._held = Unfinished()
        self._transfers = 0
        self._deferred = DeferredActions()
        made = handle or adapter.obtain(
            "urContextCreate",
            len(chosen),
            make_handle_array([device.handle for device in chosen]),
            None,
        )
        super().__init__(adapter, made)
        self.keep = keep  # what its handle was made of
        with _lock:
            _contexts.add(self)
        _get_last_thread()

    # queues

    def add_queue(self, queue: Queue) -> None:
        """Register a new queue."""
        with self._lock:
            self._queues.add(queue)

    def queues(self) -> list[Queue]:
        """Return the context's queues."""
        with self._lock:
            return [queue for queue in self._queues if queue.handle]

    def release_later(self, handle: int) -> None:
        """Release a queue, given by its handle, when its commands have ended. They may use memory
        of the context."""
        with self._lock:
            self._released.append(handle)
            if len(self._released) % _MOST_LEFT == 0:
                self._deferred.add(self.finish)

    def call_when_idle(self, action: Callable[[], object]) -> None:
        """Call `action` when everything that was submitted in the context has ended: now, or later
        in another thread. For finalizers.

        Args:
            action: raises nothing.
        """
        if not self._released and all(queue.is_empty for queue in self.queues()):
            action()
        else:
            self._deferred.add(lambda: (self.finish(), action()))

    def finish(self) -> None:
        """Wait for everything that was submitted in the context."""
        for queue in self.queues():
            self.adapter.ur.urQueueFinish(queue.handle)
        with self._lock:
            transfers = self._transfers
        if transfers:
            self.adapter.ur.urQueueFinish(transfers)
        with self._releasing:
            # A queue stays in the list until its commands have ended. Without it, the context would
            # look idle to finalizers, which then wait in a thread that the commands may wait for.
            while self._released:
                handle = self._released[0]
                self.adapter.ur.urQueueFinish(handle)
                with self._lock:
                    if handle in self._released:  # a signal's handler may have finished, too
                        self._released.remove(handle)
                        self.adapter.ur.urQueueRelease(handle)

    def is_idle(self) -> bool:
        """Whether nothing runs in it, as far as that is known without a wait."""
        with self._lock:  # so that no queue is released while it is asked
            handles = [*self._released, *([self._transfers] if self._transfers else ())]
            gone = all(is_empty(self.adapter, handle) for handle in handles)
        return gone and all(queue.is_empty for queue in self.queues())

    def keep_until_done(self, event: Event, memory: Any) -> None:
        """Keep host memory until an event is complete. An adapter only knows its address."""
        event.held = memory
        with self._lock:
            self._held.drop_first_done()
            self._held.add(event)

    def drop_ended(self) -> None:
        """Drop the host memory of all commands that have ended."""
        with self._lock:
            self._held.drop_done()

    def transfer_queue(self) -> int:
        """Return the handle of the context's own queue, which moves the contents of buffers."""
        with self._lock:
            if not self._transfers:
                properties = ctypes.byref(make_struct("ur_queue_properties_t", flags=_OUT_OF_ORDER))
                self._transfers = self.adapter.obtain(
                    "urQueueCreate", self.handle, self.devices[0].handle, properties
                )
            return self._transfers

    # its end

    def __del__(self) -> None:
        if getattr(self, "handle", 0) and self.adapter.open:
            left = [*self._released, self._transfers] if self._transfers else self._released
            if all(is_empty(self.adapter, handle) for handle in left):
                _release_queues(self.adapter, left)
            else:
                self._deferred.add(partial(_release_queues, self.adapter, left))
        super().__del__()

    def __contains__(self, device: object) -> bool:
        """Whether a device is one of its own, or a part of one. PoCL's contexts of sub-devices name
        the whole device."""
        return device in self.devices or (
            isinstance(device, Device) and device.parent is not None and device.parent in self
        )

    def __repr__(self) -> str:
        return f"<Context of {', '.join(device.name for device in self.devices)}>"


#: So many queues that are gone are waited for at once.
_MOST_LEFT: Final = 16


def is_empty(adapter: RuntimeAdapter, queue: int) -> bool:
    """Whether nothing runs in a queue, given by its handle, as far as that is known without a wait.
    (UR_QUEUE_INFO_EMPTY)"""
    value = ctypes.c_bool()
    code = adapter.ur.urQueueGetInfo(queue, _EMPTY, 1, ctypes.byref(value), None)
    return code == 0 and value.value


def _release_queues(adapter: RuntimeAdapter, queues: Iterable[int]) -> None:
    """Release queues, given by their handles, when their commands have ended."""
    for handle in queues:
        adapter.ur.urQueueFinish(handle)
        adapter.ur.urQueueRelease(handle)


_contexts: Final[weakref.WeakSet[Context]] = weakref.WeakSet()
_lock: Final = make_lock()


def list_contexts() -> list[Context]:
    """Return all contexts."""
    with _lock:
        return list(_contexts)


_defaults: Final[dict[Device, Context]] = {}


def get_default_context(device: Device) -> Context:
    """Return the context of queues that are made for a device alone. It is of all devices of the
    platform, or of the device alone if that is a sub-device."""
    with _lock:
        if device not in _defaults:
            context = (
                Context([device]) if device.parent is not None else Context(device.platform.devices)
            )
            for member in context.devices:
                _defaults[member] = context
        return _defaults[device]


def find_context(of: Any, routine: str) -> Context:
    """Return the context that a user means.

    Args:
        of: a context, a queue or something else that has one; or a device, or several, for their
            default context.
        routine: named in errors.

    Raises:
        SYCLError: invalid.
    """
    context = getattr(of, "context", of)
    if isinstance(context, Context):
        return context
    members = as_list(of, Device, routine, f"{routine}(queue, …)", "Context, Queue or Device")
    if not members or any(
        get_default_context(device) != get_default_context(members[0]) for device in members
    ):
        raise make_invalid_error(
            "the devices have no context in common",
            routine=routine,
            remedy="Context([…]) makes one",
        )
    return get_default_context(members[0])


_LONGEST_END: Final = 10.0  # seconds
_POLL: Final = 0.001  # seconds


class _LastThread:
    """A thread that waits for one function and calls it. A process that has begun to end cannot
    start a thread (Python 3.12)."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._thread = threading.Thread(
            target=lambda: self._work.get()(), name="fairlead end", daemon=True
        )
        self._thread.start()

    def call(self, work: Callable[[], object], seconds: float) -> None:
        """Let the thread call `work`, and wait for that, but no longer than `seconds`."""
        self._work.put(work)
        self._thread.join(seconds)


_last: _LastThread | None = None


@call_in_child
def _forget() -> None:
    """Forget the thread, which is the parent's."""
    global _last
    _last = None


def _get_last_thread() -> _LastThread | None:
    """Return the thread for the end of the process. Start it if there is none. None if no thread
    can be started."""
    global _last
    with _lock:
        if _last is None:
            with suppress(RuntimeError):
                _last = _LastThread()
        return _last


@call_at_end("submissions")
def _end() -> None:
    """Wait for commands at the end of the process, because drivers may crash that still run some.
    It does not wait for ever: a command may wait for an event that nobody completes. The memory of
    the commands is never freed."""
    stop_starting()
    alive = [context for context in list_contexts() if context.adapter.open]
    for context in alive:
        context.adapter.open = False  # it releases what is left itself, all at once
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(context._held))

    def finish() -> None:
        for context in alive:
            context.finish()
        wait_for_adapter_calls()

    last = _get_last_thread()
    if last is not None:
        last.call(finish, _LONGEST_END)
        return
    until = time.monotonic() + _LONGEST_END
    while time.monotonic() < until and not all(context.is_idle() for context in alive):
        time.sleep(_POLL)
