"""What an adapter hands out: handles, and the registry that knows which of them are alive.

A handle is the address of a few words (native/counts.cdef.h): the adapter's table of functions, by which a loader calls (the first
word, for every kind of handle), a number, and how many references there are. An entry point never looks at the memory behind a
handle that it is given: it looks the address up, so that a NULL, stale or foreign handle, or one of another kind, is simply not
there.

The words come from blocks that are never given back, and an address that was freed is not used again for a long time: a loader may
read the first word of a stale handle, and finds our table there.

References are counted in C (native/counts.c), where a program retains and releases without a wait for the GIL. What it released for
the last time there is in the registry until `reap` takes it out: every entry point calls that before it does anything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final
from weakref import ref

from ...loader.base.forks import new_lock
from ._native import ffi, lib

_QUARANTINE: Final = 1 << 16  # so many others are freed before an address comes again
_SIZE: Final = ffi.sizeof("fl_handle")
_NO_ADAPTER: Final = 0xFFFF
_KINDS: Final = {
    name.removeprefix("kind_"): getattr(lib, name) for name in dir(lib) if name.startswith("kind_")
}

#: `gone[0]` is not 0 if there is something to reap.
gone: Final = lib.fl_gone()
_registries: Final[dict[int, Registry]] = {}  # by the adapter's number


def reap() -> None:
    """Take the objects out of the registry whose last reference was released in C, and have them closed, the first of them first."""
    thing = lib.fl_take()
    while thing:
        handle, adapter, thing = int(ffi.cast("uintptr_t", thing)), thing.adapter, thing.next
        _registries[adapter].remove_released(handle)


class Object:
    """Base of everything that an adapter hands out. `type` is the handle's type, "ur_queue_handle_t".

    `handle` is 0 until it is handed out and after its last reference was released. The registry keeps the object alive in between, and
    whatever uses it may hold it longer: `close`, which gives up what it holds of the driver, is called when nothing holds it any more.
    `counted` is False for what lives as long as the adapter, such as platforms: retaining and releasing change nothing.
    `words` are four numbers by which C knows the object, if it has to: those of the moment in which it is handed out.
    """

    type: ClassVar[str]
    counted: bool = True
    words: tuple[int, int, int, int] | None = None
    handle: int = 0
    _closed: bool = False

    @property
    def references(self) -> int:
        """How many references the program has."""
        return max(lib.fl_references(self.handle), 0)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or is being called."""
        return self._closed

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
    """The objects of an adapter by type and handle. `table` is the address that every handle begins with, `number` the adapter's: C
    counts references to the handles of an adapter that has one.

    An object is *owned* while the program has references to it. One that the program was only shown, in the answer to a query,
    is *lent*: its handle is good for as long as something else holds the object, and retaining it makes it owned.
    """

    def __init__(self, table: int, number: int = _NO_ADAPTER) -> None:
        self._table, self.number = table, number
        _registries[number] = self
        self._lock = new_lock()
        self._free: deque[int] = deque()
        self._quarantined: deque[int] = deque()
        self._numbers = 0
        self._owned: dict[str, dict[int, Any]] = {kind: {} for kind in _KINDS}  # never changes
        self._lent: dict[int, ref[Object]] = {}

    def of(self, type_name: str) -> dict[int, Any]:
        """Handle → object, for one type of handle: those that are owned."""
        return self._owned[type_name]

    def find_lent(self, type_name: str, handle: int) -> Object | None:
        """The object of a handle that is lent; None if there is no such handle."""
        found = self._lent.get(handle)
        thing = found() if found is not None else None
        return (
            thing if thing is not None and thing.type == type_name and not thing._closed else None
        )

    def give(self, thing: Object) -> int:
        """The handle of an object for a caller that has one more reference from now on."""
        self.retain(thing)
        return thing.handle

    def show(self, thing: Object) -> int:
        """The handle of an object for a caller that gets no reference, as in the answer to a query."""
        with self._lock:
            if not thing.handle or lib.fl_references(thing.handle) == lib.FL_GONE:
                self._lend(thing) if thing.counted else self._own(thing)
            return thing.handle

    def retain(self, thing: Object) -> None:
        """One more reference."""
        with self._lock:
            if not (thing.handle and lib.fl_retain(thing.handle)):
                self._own(thing)

    def release(self, thing: Object) -> bool:
        """One reference less; True if it was the last one, so that its handle means nothing from now on."""
        if not thing.counted:
            return False
        with self._lock:
            if (
                lib.fl_release(thing.handle) != 1
            ):  # less: it is lent, or gone, and the caller has none to give back
                return False
            self._remove(thing)
            return True

    def remove_released(self, handle: int) -> None:
        """The last reference to a handle was released in C."""
        with self._lock:
            thing = next((table[handle] for table in self._owned.values() if handle in table), None)
            if thing is not None:
                self._remove(thing)
            self._quarantined.append(handle)

    def forget(self, thing: Object) -> None:
        """End a handle's life, whoever has references: for what cannot outlive something else."""
        with self._lock:
            self._remove(thing)

    def close(self, failed: Callable[[Exception], None]) -> None:
        """Forget every object and close it, the youngest first. `failed` is told what an object's `close` raises."""
        with self._lock:
            things = [thing for table in self._owned.values() for thing in table.values()]
            lent = (found() for found in list(self._lent.values()))
            things += (thing for thing in lent if thing is not None)
            things.sort(key=_number, reverse=True)
            for thing in things:
                self._remove(thing)
        for thing in things:
            try:
                thing.finish()
            except Exception as error:
                failed(error)

    def _own(self, thing: Object) -> None:
        if not (thing.handle and lib.fl_own(thing.handle)):  # else it was lent until now
            self._remove(thing)
            thing.handle = self._address(thing, 1 if thing.counted else lib.FL_FIXED)
        self._lent.pop(thing.handle, None)
        self.of(thing.type)[thing.handle] = thing

    def _lend(self, thing: Object) -> None:
        self._remove(thing)
        handle = thing.handle = self._address(thing, 0)

        def ended(reference: ref[Object]) -> None:
            if self._lent.pop(handle, None) is not None:
                self._end_handle(handle)

        self._lent[handle] = ref(thing, ended)

    def _remove(self, thing: Object) -> None:
        handle, thing.handle = thing.handle, 0
        owned, lent = self.of(thing.type).pop(handle, None), self._lent.pop(handle, None)
        if (
            owned is not None or lent is not None
        ):  # else it has ended with the last reference in Python
            self._end_handle(handle)

    def _end_handle(self, handle: int) -> None:
        if lib.fl_end(handle):  # else it comes to `bury`
            self._quarantined.append(handle)

    def _address(self, thing: Object, references: int) -> int:
        """An address that no handle has, with its words."""
        if len(self._quarantined) > _QUARANTINE:
            self._free.append(self._quarantined.popleft())
        if not self._free:
            self._free.extend(self._block())
        address = self._free.popleft()
        self._numbers += 1
        if (words := thing.words) is not None:
            lib.fl_describe(address, words)
        lib.fl_begin(address, self._numbers, self.number, _KINDS.get(thing.type, 0), references)
        return address

    def _block(self) -> range:
        first = lib.fl_block(self._table)
        if not first:
            raise MemoryError("no memory for handles")
        return range(first, first + lib.FL_BLOCK * _SIZE, _SIZE)


def _number(thing: Object) -> int:
    return ffi.cast("fl_handle *", thing.handle).number
