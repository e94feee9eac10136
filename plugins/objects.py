"""What an adapter hands out: handles, and the registry that knows which of them are alive.

A handle is the address of two words: the adapter's table of functions, by which a loader calls (its first word, for every kind
of handle), and a number. An entry point never looks at the memory behind a handle that it is given: it looks the address up, so
that a NULL, stale or foreign handle, or one of another kind, is simply not there.

The words come from blocks that are never given back, and an address that was freed is not used again for a long time: a loader may
read the first word of a stale handle, and finds our table there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final
from weakref import ref

from ..loader.forks import new_lock
from ._native import ffi, lib

_BLOCK: Final = 1024  # handles
_QUARANTINE: Final = 1 << 16  # so many others are freed before an address comes again
_SIZE: Final = 2 * ffi.sizeof("uintptr_t")


class Object:
    """Base of everything that an adapter hands out. `type` is the handle's type, "ur_queue_handle_t".

    `handle` is 0 until it is handed out and after its last reference was released. The registry keeps the object alive in between, and
    whatever uses it may hold it longer: `close`, which gives up what it holds of the driver, is called when nothing holds it any more.
    `counted` is False for what lives as long as the adapter, such as platforms: retaining and releasing change nothing.
    """

    type: ClassVar[str]
    counted: bool = True
    handle: int = 0
    references: int = 0
    _closed: bool = False

    def close(self) -> None:
        """Give up what it holds; called once."""

    def finish(self) -> None:
        """Call `close`, unless that was done."""
        if not self._closed:
            self._closed = True
            self.close()

    def __del__(self) -> None:
        self.finish()


class Registry:
    """The objects of an adapter by type and handle. `table` is the address that every handle begins with.

    An object is *owned* while the program has references to it. One that the program was only shown, in the answer to a query,
    is *lent*: its handle is good for as long as something else holds the object, and retaining it makes it owned.
    """

    def __init__(self, table: int) -> None:
        self._table = table
        self._lock = new_lock()
        self._free: deque[int] = deque()
        self._quarantined: deque[int] = deque()
        self._numbers = 0
        self._owned: dict[str, dict[int, Any]] = {}
        self._lent: dict[int, ref[Object]] = {}

    def of(self, type_name: str) -> dict[int, Any]:
        """Handle → object, for one type of handle: those that are owned."""
        return self._owned.setdefault(type_name, {})

    def find_lent(self, type_name: str, handle: int) -> Object | None:
        """The object of a handle that is lent; None if there is no such handle."""
        found = self._lent.get(handle)
        thing = found() if found is not None else None
        return thing if thing is not None and thing.type == type_name else None

    def give(self, thing: Object) -> int:
        """The handle of an object for a caller that has one more reference from now on."""
        self.retain(thing)
        return thing.handle

    def show(self, thing: Object) -> int:
        """The handle of an object for a caller that gets no reference, as in the answer to a query."""
        with self._lock:
            if not thing.handle and thing.counted:
                self._lend(thing)
            elif not thing.handle:
                self._own(thing)
            return thing.handle

    def retain(self, thing: Object) -> None:
        """One more reference."""
        with self._lock:
            if not thing.references:
                self._own(thing)
            elif thing.counted:
                thing.references += 1

    def release(self, thing: Object) -> bool:
        """One reference less; True if it was the last one, so that its handle means nothing from now on."""
        if not thing.counted:
            return False
        with self._lock:
            if thing.references != 1:  # 0: it is lent, or gone, and the caller has none to give back
                thing.references = max(thing.references - 1, 0)
                return False
            self._leave(thing)
            return True

    def forget(self, thing: Object) -> None:
        """End a handle's life, whoever has references: for what cannot outlive something else."""
        with self._lock:
            self._leave(thing)

    def close(self, failed: Callable[[Exception], None]) -> None:
        """Forget every object and close it, the youngest first. `failed` is told what an object's `close` raises."""
        with self._lock:
            things = [thing for table in self._owned.values() for thing in table.values()]
            lent = (found() for found in list(self._lent.values()))
            things += (thing for thing in lent if thing is not None)
            things.sort(key=_number, reverse=True)
            for thing in things:
                self._leave(thing)
        for thing in things:
            try:
                thing.finish()
            except Exception as error:
                failed(error)

    def _own(self, thing: Object) -> None:
        if not thing.handle:
            thing.handle = self._address()
        self._lent.pop(thing.handle, None)
        thing.references = 1
        self.of(thing.type)[thing.handle] = thing

    def _lend(self, thing: Object) -> None:
        handle = thing.handle = self._address()

        def gone(reference: ref[Object]) -> None:
            if self._lent.pop(handle, None) is not None:
                self._quarantined.append(handle)

        self._lent[handle] = ref(thing, gone)

    def _leave(self, thing: Object) -> None:
        handle, thing.handle, thing.references = thing.handle, 0, 0
        if handle:
            self.of(thing.type).pop(handle, None)
            self._lent.pop(handle, None)
            self._quarantined.append(handle)

    def _address(self) -> int:
        """An address that no handle has, with its two words."""
        if len(self._quarantined) > _QUARANTINE:
            self._free.append(self._quarantined.popleft())
        if not self._free:
            self._free.extend(self._block())
        address = self._free.popleft()
        self._numbers += 1
        ffi.cast("uintptr_t *", address)[1] = self._numbers
        return address

    def _block(self) -> range:
        block = ffi.cast("uintptr_t *", lib.malloc(_BLOCK * _SIZE))
        if not block:
            raise MemoryError("no memory for handles")
        for index in range(0, 2 * _BLOCK, 2):
            block[index] = self._table
        first = int(ffi.cast("uintptr_t", block))
        return range(first, first + _BLOCK * _SIZE, _SIZE)


def _number(thing: Object) -> int:
    return ffi.cast("uintptr_t *", thing.handle)[1]
