"""Adapter on Level Zero: what C does for this adapter without Python
(plugins/sdk/native/level_zero.c).

C enqueues a command-buffer that is one append, again, and waits for what it has enqueued. It leaves
everything else to Python, with nothing changed. With FAIRLEAD_CALLS=python it does nothing.
"""

from __future__ import annotations

from typing import Any, Final

from ...loader.base.forks import make_lock
from ..sdk._native import ffi, lib
from .core import adapter, get_address

_PREFIX: Final = "lz_"

adapter.prefix_in_c = _PREFIX
_OWN: Final = [name for name in dir(lib.fl_in_c) if name.startswith(f"{_PREFIX}ur")]
adapter.in_c |= {name.removeprefix(_PREFIX) for name in _OWN}


class LockInC:
    """A re-entrant lock of Python's threads, and a lock that C tries to take.

    Args:
        lock: an `fl_lz_lock *`, which lives as long.
    """

    __slots__ = ("_lock", "_taken", "_threads")

    def __init__(self, lock: Any) -> None:
        self._lock, self._threads = lock, make_lock()
        self._taken: list[bool] = []

    def __enter__(self) -> None:
        self._threads.acquire()
        self._taken.append(lib.fl_lz_enter(self._lock))

    def __exit__(self, *_: object) -> None:
        if self._taken.pop():
            lib.fl_lz_leave(self._lock)
        self._threads.release()


class LZEventsInC:
    """The events that C may use in a context: an `fl_lz_context`.

    Args:
        counts: whether they are counter-based.

    Raises:
        MemoryError: there is no room for it.
    """

    def __init__(self, table: Any, counts: bool) -> None:
        made = lib.fl_lz_new_context(table.address_of_top, counts)
        if not made:
            raise MemoryError("no memory for a context")
        self.struct = ffi.gc(made, lib.fl_lz_free_context)
        self._given = 0

    @property
    def are_short(self) -> bool:
        """Return whether C lacks events."""
        return bool(self.struct.wants)

    @property
    def returned(self) -> LZEventsInC:
        """Return where a cell returns its event to, when nobody needs it any more."""
        return self

    def append(self, ze: int) -> None:
        """Give an event back to C that is signaled, or will be."""
        lib.fl_lz_give_event(self.struct, ze, True)

    def add(self, cells: list[Any]) -> None:
        """Give C the events of cells, which nobody else uses.

        Raises:
            MemoryError: there is no room for them. C gets none.
        """
        given = self._given + len(cells)
        if given > self.struct.room and not lib.fl_lz_make_room(self.struct, 2 * given):
            raise MemoryError("no memory for events")
        self._given = given
        for cell in cells:
            cell.supply = None
            lib.fl_lz_give_event(self.struct, cell.ze, False)
        self.struct.wants = 0


class LZQueueInC:
    """What C knows of a queue: an `fl_lz_queue`.

    Args:
        context: an `fl_lz_context *`.

    Attributes:
        lock: see `LZQueue.lock`.
    """

    def __init__(self, context: Any, ze: int) -> None:
        self.struct = ffi.new("fl_lz_queue *", {"context": context, "list": ze})
        self.lock = LockInC(ffi.addressof(self.struct, "lock"))

    @property
    def number(self) -> int:
        """Return the address of the struct."""
        return get_address(self.struct)

    def run_on(self, around: LZQueueInC) -> None:
        """Let C enqueue command-buffers, on a queue that is in order."""
        self.struct.around = around.struct


class LZBufferInC:
    """What C knows of a command-buffer: an `fl_lz_buffer`.

    Attributes:
        lock: see `LZCommandBuffer.lock`.
    """

    def __init__(self) -> None:
        self.struct = ffi.new("fl_lz_buffer *")
        self.lock = LockInC(ffi.addressof(self.struct, "lock"))

    @property
    def number(self) -> int:
        """Return the address of the struct."""
        return get_address(self.struct)
