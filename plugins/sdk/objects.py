"""The handles that an adapter returns, and the registry that knows which of them are alive.

A handle is the address of a few numbers (`fl_handle` in native/counts.cdef.h). The first is the
address of the adapter's table, by which a loader calls. Then follow a number and the count of
references. An entry point never reads the memory behind a handle. It looks the address up, so a
handle that is NULL, stale, foreign or of another type is not found.

The memory of handles comes from blocks that are never freed. A loader may read the first number of
a stale handle, and finds the table there. An address is used again only after many others.

References are counted in C (native/counts.c), so that a program retains and releases without the
GIL. After the last release in C the object is in the registry until `close_released` removes it.
Every entry point calls `close_released` first.

C also makes handles, of events for example. Python makes the object of one when it first needs it
(`Registry.adopt`). Most of these handles end before that.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from weakref import ref

from ...loader.base.forks import make_lock
from ._native import ffi, lib

_QUARANTINE: Final = 1 << 16  # how many other handles end before an address is used again
_SIZE: Final = ffi.sizeof("fl_handle")
_NO_ADAPTER: Final = 0xFFFF
#: The objects that commands need, although their queue is closed. A driver may delete a device
#: that has commands.
_BASES: Final = ("_context_handle_t", "_device_handle_t")
_QUEUES: Final = ("_queue_handle_t", "_command_list_handle_t")
_PATIENCE: Final = 1.0  # seconds; commands may wait for something that never comes
_KINDS: Final = {
    name.removeprefix("kind_"): getattr(lib, name) for name in dir(lib) if name.startswith("kind_")
}

#: `gone[0]` is not 0 if `close_released` has something to do.
gone: Final = lib.fl_gone()
_registries: Final[dict[int, Registry]] = {}  # by the adapter's number


def close_released() -> None:
    """Remove the objects from the registry whose last reference was released in C, in order."""
    thing = lib.fl_take()
    while thing:
        handle, adapter, thing = int(ffi.cast("uintptr_t", thing)), thing.adapter, thing.next
        _registries[adapter].remove_released(handle)


class Object:
    """The base of everything that an adapter returns a handle of.

    The registry keeps the object alive from the first reference to the last release. Others may
    hold it longer. `close` is called when nobody holds it any more.

    Attributes:
        type: the type of its handle, "ur_queue_handle_t".
        counted: False for what lives as long as the adapter, such as platforms. Then retain and
            release change nothing.
        handle: 0 before the first reference and after the last release.
        owned: whether `close` releases its native handle.
        given: whether the program gave it the native handle (`isNativeHandleOwned`).
    """

    type: ClassVar[str]
    counted: bool = True
    handle: int = 0
    owned: bool = True
    given: bool = False
    _closed: bool = False

    @property
    def references(self) -> int:
        """Return how many references the program has."""
        return max(lib.fl_references(self.handle), 0)

    @property
    def is_closed(self) -> bool:
        """Return whether `close` was called, or is running."""
        return self._closed

    def describe_to_c(self) -> tuple[int, int, int, int] | None:
        """Return four numbers by which C knows the object, None if C does not know it.

        native/calls.h, ze_calls.h and level_zero.c say what they mean for each kind of object. They
        are asked for when the handle begins.
        """
        return None

    def leave_native(self) -> None:
        """Let `close` leave the native handle to the program, which gave it."""
        self.owned = False

    def handle_ends(self) -> None:
        """Prepare for the end of its handle, while the handle is still valid."""

    def close(self) -> None:
        """Release what the object holds. It is called once."""

    def finish(self) -> None:
        """Call `close`, unless it was called."""
        if not self._closed:
            self._closed = True
            self.close()

    def __del__(self) -> None:
        try:
            self.finish()
        except AttributeError as error:
            if self.handle or error.obj is not self:
                raise  # else its `__init__` has raised, and there is nothing to release


class Registry:
    """The objects of an adapter by type and handle.

    An object is *owned* while the program has references to it. It is *lent* if a query showed it
    to the program. The handle of a lent object is valid while something else holds the object. A
    retain makes it owned.

    Args:
        table: the address that every handle begins with.
        number: the adapter's number. C counts references if there is one.
        kinds: the types of handles that there are, with C's numbers for them.
    """

    def __init__(
        self, table: int, number: int = _NO_ADAPTER, *, kinds: Mapping[str, int] = _KINDS
    ) -> None:
        self._table, self.number, self._kinds = table, number, kinds
        _registries[number] = self
        self._lock = make_lock()
        self._free: deque[int] = deque()
        self._quarantined: deque[int] = deque()
        self._numbers = 0
        self._owned: dict[str, dict[int, Any]] = {
            kind: {} for kind in kinds
        }  # its keys never change
        self._lent: dict[int, ref[Object]] = {}
        #: Whether contexts know their devices, so that entry points check those of a call.
        self.checks_devices = False
        #: What makes the object of a handle that C has made, of its four numbers, by its type.
        self.adopters: dict[str, Callable[[Any], Object]] = {}
        if number != _NO_ADAPTER:
            lib.fl_make_handles(number, table)

    def list_owned(self, type_name: str) -> dict[int, Any]:
        """Return the owned objects of a type of handle, by their handles."""
        return self._owned[type_name]

    def find_lent(self, type_name: str, handle: int) -> Object | None:
        """Return the object of a handle that no object owns: a lent one, or one of C's.

        Returns:
            The object, None if there is no such handle of the type.
        """
        found = self._lent.get(handle)
        if found is None and type_name in self.adopters:
            return self.adopt(type_name, handle)
        thing = found() if found is not None else None
        is_right = thing is not None and thing.type == type_name and not thing._closed
        return thing if is_right else None

    def adopt(self, type_name: str, handle: int) -> Object | None:
        """Return the object of a handle that C has made, which is Python's from now on.

        Returns:
            The object, None if there is no such handle of the type.

        Raises:
            Exception: what the adopter raises. The handle stays C's.
        """
        words = lib.fl_hold_made(self.number, handle, self._kinds[type_name])
        with self._lock:
            owned = self.list_owned(type_name)
            if not words:  # another thread may have been quicker
                return owned.get(handle)
            if handle not in owned:
                try:
                    thing = self.adopters[type_name](words)
                except BaseException:
                    lib.fl_let_go_made(handle)
                    raise
                thing.handle, owned[handle] = handle, thing
                lib.fl_adopt(handle)
            thing = owned[handle]
            self.release(thing)
        return thing

    def list_made_in_c(self, type_name: str, word: int = 0) -> Iterator[int]:
        """Yield the handles that C has made of a type.

        Args:
            word: their third number, 0 for all.
        """
        after = ffi.new("uintptr_t *")
        while handle := lib.fl_find_made(self.number, self._kinds[type_name], word, after):
            yield handle

    def give(self, thing: Object) -> int:
        """Return the handle of an object to a caller that gets a reference."""
        self.retain(thing)
        return thing.handle

    def show(self, thing: Object) -> int:
        """Return the handle of an object to a caller that gets no reference, such as a query's."""
        with self._lock:
            if not thing.handle or lib.fl_references(thing.handle) == lib.FL_GONE:
                self._lend(thing) if thing.counted else self._add(thing)
            return thing.handle

    def retain(self, thing: Object) -> None:
        """Add a reference."""
        with self._lock:
            if not (thing.handle and lib.fl_retain(thing.handle)):
                self._add(thing)

    def release(self, thing: Object) -> bool:
        """Remove a reference.

        Returns:
            Whether it was the last one. Then the handle is not valid any more.
        """
        if not thing.counted:
            return False
        with self._lock:
            if lib.fl_release(thing.handle) != 1:  # others remain, or the caller had none
                return False
            self._remove(thing)
            return True

    def remove_released(self, handle: int) -> None:
        """Remove the object whose last reference was released in C."""
        with self._lock:
            thing = next((table[handle] for table in self._owned.values() if handle in table), None)
            if thing is not None:
                self._remove(thing)
            self._quarantined.append(handle)

    def forget(self, thing: Object) -> None:
        """End a handle although there are references, because its object cannot live on."""
        with self._lock:
            self._remove(thing)

    def close(
        self, failed: Callable[[Exception], None], after_queues: Sequence[Callable[[], object]] = ()
    ) -> None:
        """Forget every object and close it: queues first, contexts and devices last.

        Before the next of these three kinds, what closed queues have left has to end. After a
        second nobody waits any more: what the commands may use is left as it is, for good. Of a
        kind, the youngest is closed first.

        The native handles that the program gave to them are not released. It may have given a
        reference that another object releases, too. Unified Runtime's own suite does.

        Args:
            failed: is called with what an object's `close` raises, or a function.
            after_queues: functions that give back what released queues have left, and return
                whether commands still run. They are called, the last one first, until none does.
        """
        for kind in self.adopters:
            for handle in self.list_made_in_c(kind):
                self.adopt(kind, handle)
        with self._lock:
            things = [thing for table in self._owned.values() for thing in list(table.values())]
            lent = (found() for found in list(self._lent.values()))
            things += (thing for thing in lent if thing is not None)
            things.sort(key=_read_number)
            for thing in things[::-1]:
                self._remove(thing)
                if thing.given:
                    thing.leave_native()
                del thing
        deadline = time.monotonic() + _PATIENCE
        things.sort(key=_find_turn, reverse=True)  # the last one is closed first
        for turn in range(3):
            running = list(reversed(after_queues)) if turn else []
            while (running := _call_each(running, failed)) and time.monotonic() < deadline:
                time.sleep(0.001)
            if running:
                break
            while things and _find_turn(things[-1]) == turn:
                _call_each([things.pop().finish], failed)
        for thing in things:
            thing._closed = True
        if things:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))

    def _add(self, thing: Object) -> None:
        if not (thing.handle and lib.fl_own(thing.handle)):  # otherwise it was lent until now
            self._remove(thing)
            thing.handle = self._make_handle(thing, 1 if thing.counted else lib.FL_FIXED)
        self._lent.pop(thing.handle, None)
        self.list_owned(thing.type)[thing.handle] = thing

    def _lend(self, thing: Object) -> None:
        """Give an object a handle without a reference: it ends with the object in Python."""
        self._remove(thing)
        handle = thing.handle = self._make_handle(thing, 0)

        def drop_lent(reference: ref[Object]) -> None:
            if self._lent.pop(handle, None) is not None:
                self._end_handle(handle)

        self._lent[handle] = ref(thing, drop_lent)

    def _remove(self, thing: Object) -> None:
        if thing.handle:
            thing.handle_ends()
        handle, thing.handle = thing.handle, 0
        owned, lent = self.list_owned(thing.type).pop(handle, None), self._lent.pop(handle, None)
        # If it was neither, it ended with the last reference in Python.
        if owned is not None or lent is not None:
            self._end_handle(handle)

    def _end_handle(self, handle: int) -> None:
        if lib.fl_end(handle):  # otherwise `remove_released` does it
            self._quarantined.append(handle)

    def _make_handle(self, thing: Object, references: int) -> int:
        """Return a new handle for an object."""
        if len(self._quarantined) > _QUARANTINE:
            self._free.append(self._quarantined.popleft())
        if not self._free:
            self._free.extend(self._make_block())
        address = self._free.popleft()
        self._numbers += 1
        if (numbers := thing.describe_to_c()) is not None:
            lib.fl_describe(address, numbers)
        lib.fl_begin(address, self._numbers, self.number, self._kinds[thing.type], references)
        return address

    def _make_block(self) -> range:
        first = lib.fl_block(self._table)
        if not first:
            raise MemoryError("no memory for handles")
        return range(first, first + lib.FL_BLOCK * _SIZE, _SIZE)


def _call_each(
    functions: Sequence[Callable[[], object]], failed: Callable[[Exception], None]
) -> list[Callable[[], object]]:
    """Call functions. Returns those that have returned something true."""
    true: list[Callable[[], object]] = []
    for function in functions:
        try:
            if function():
                true.append(function)
        except Exception as error:
            failed(error)
    return true


def _find_turn(thing: Object) -> int:
    """Return when an object is closed at the end: 0 for queues, 2 for what all others need."""
    return 2 if thing.type.endswith(_BASES) else 0 if thing.type.endswith(_QUEUES) else 1


def _read_number(thing: Object) -> int:
    return ffi.cast("fl_handle *", thing.handle).number
