"""Buffers and accessors: memory that the scheduler keeps coherent between the host and the contexts
that use it.

A buffer's contents are valid in some places: on the host, in contexts. When a command needs them
elsewhere, they are transferred first. Memory in a context is allocated when a command there first
needs it. If the host's contents are valid, it is filled at once. The last writer and the readers
since then are kept as events. A reader comes after the last writer, a writer also after the
readers. (SYCL 2020, sections 4.7.2 and 4.7.6.)

    data = numpy.arange(1024, dtype=numpy.float32)
    with Buffer(data) as buffer:                    # written back to `data` when the block ends
        queue.submit(lambda h: h.parallel_for(1024, kernel, h.access(buffer, "read_write")))
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy

from ..loader.base.forks import new_lock
from ..loader.ur.abi import UR
from .afterwards import Afterwards
from .checks import as_integer, element_type, expect
from .errors import invalid
from .event import Event, Unfinished
from .handles import make_struct
from .scheduler import check_no_deadlock, open_event, submit

if TYPE_CHECKING:
    from typing_extensions import Self

    from .context import Context

#: Access modes: whether a command with one reads, whether it writes, whether it needs what was
#: there before, and the adapter's flag.
MODES: Final = {
    "read": (True, False, True, UR["UR_MEM_FLAG_READ_ONLY"]),
    "write": (False, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "read_write": (True, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "discard": (False, True, False, UR["UR_MEM_FLAG_WRITE_ONLY"]),
}

#: Held while a submission looks at buffers and is entered into them: one at a time.
lock: Final = new_lock()

#: Closes buffers that were collected while a submission held the lock.
_closing: Final = Afterwards()

_HOST: Final = None  # in `_valid`: the host's copy


class Memory:
    """Something that has a memory object in contexts: a Buffer, or memory of another package.

    Attributes:
        offset: where it begins in its memory object, in bytes.
        nbytes: its size in bytes.
    """

    offset: int = 0
    nbytes: int

    def memory(self, context: Context) -> int:
        """Return the handle of its memory object in a context."""
        raise NotImplementedError


class Buffer(Memory):
    """A buffer of elements of one dtype, with or without first contents.

    Args:
        data: a NumPy array, which belongs to the buffer until that is closed; a list of elements,
            which are copied; or the shape, a number or a tuple of one to three numbers of elements.
        dtype: of the elements. An array has its own. If both are given they must agree: nothing is
            converted.
        write_back: whether `close` writes the contents to the array. By default it does if the
            array can be written to. Commands may write to a buffer of a read-only array only if
            this is False, or after `set_final_data`.

    Raises:
        SYCLError: invalid.
    """

    def __init__(self, data: Any, dtype: Any = None, *, write_back: bool | None = None) -> None:
        self._closed = True  # until it is complete
        given = data if isinstance(data, numpy.ndarray) else None
        if given is None and dtype is None:
            expect(
                data, (int, numpy.integer, tuple, list), "Buffer", _MADE_OF, "array, list or shape"
            )
            raise invalid(
                "a buffer of a shape or a list needs a dtype",
                routine="Buffer",
                remedy="Buffer(1024, numpy.float32)",
            )
        self.dtype = element_type(
            given.dtype if given is not None and dtype is None else dtype, "Buffer"
        )
        if given is not None and given.dtype != self.dtype:
            raise invalid(
                f"the array's elements are {given.dtype}, not {self.dtype}",
                routine="Buffer",
                remedy=f'convert them first: array.astype("{self.dtype}")',
            )
        array = _elements(data, self.dtype) if isinstance(data, list) else given
        self.shape: tuple[int, ...] = (
            array.shape if array is not None else as_shape(data, "Buffer", _MADE_OF)
        )
        if not 1 <= len(self.shape) <= 3 or min(self.shape) <= 0:
            raise invalid(
                "a buffer has one to three dimensions and at least one element",
                routine="Buffer",
                remedy=_MADE_OF,
            )
        self.size = math.prod(self.shape)
        self.nbytes = as_integer(self.size * self.dtype.itemsize, "number of bytes", "Buffer")
        self.final_data = given if given is not None and given.flags.writeable else None
        if write_back and self.final_data is None:
            raise invalid(
                "there is no array that could be written to",
                routine="Buffer",
                remedy="set_final_data(array)",
            )
        self.write_back = self.final_data is not None if write_back is None else write_back
        # whether a result would be lost without a word: the array that should get it is read-only
        self._loses = given is not None and self.final_data is None and write_back is None
        self._host = numpy.ascontiguousarray(array) if array is not None else None
        self._borrowed = array is not None and numpy.may_share_memory(array, self._host)
        self._memories: dict[Context, int] = {}
        self._valid: set[Context | None] = {_HOST} if array is not None else set()
        self._writer: Event | None = None
        self._readers = Unfinished()
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # those that have it in a node
        self._array = array
        self._closed = False

    # SYCL's properties of the destructor

    def set_write_back(self, write_back: bool) -> None:
        """Set whether `close` writes the contents back. (SYCL: set_write_back)"""
        self._loses = False
        self.write_back = write_back and self.final_data is not None

    def set_final_data(self, array: Any) -> None:
        """Set where `close` writes the contents. (SYCL: set_final_data)

        Args:
            array: a NumPy array of as many elements, or None for nowhere.

        Raises:
            SYCLError: invalid.
        """
        if array is not None:
            expect(array, numpy.ndarray, "set_final_data", "give a NumPy array, or None")
        if array is not None and (array.size != self.size or not array.flags.writeable):
            raise invalid(
                f"the contents are {self.size} elements, and the array has {array.size} or cannot "
                "be written to",
                routine="set_final_data",
                remedy="give an array of that size",
            )
        self.final_data, self.write_back = array, array is not None
        self._loses = False

    # what submissions ask (with `lock` held)

    def memory(self, context: Context) -> int:
        """Return the handle of its memory in a context. Allocate it if there is none, with the
        host's contents if they are valid."""
        handle = self._memories.get(context)
        return self._allocate(context) if handle is None else handle

    def _allocate(self, context: Context) -> int:
        self.check_open("Buffer")
        flags, properties = UR["UR_MEM_FLAG_READ_WRITE"], None
        filled = (
            _HOST in self._valid
            and self._host is not None
            and (self._writer is None or self._writer.done)
        )
        if filled:
            assert self._host is not None
            flags |= UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
            properties = ctypes.byref(
                make_struct("ur_buffer_properties_t", pHost=self._host.ctypes.data)
            )
            self._valid.add(context)
        made = context.adapter.obtain(
            "urMemBufferCreate", context.handle, flags, self.nbytes, properties
        )
        self._memories[context] = made
        return made

    def check_access(self, mode: str, routine: str) -> None:
        """Raise SYCLError (invalid) for an unknown mode, a closed buffer, or a result that would be
        lost silently."""
        check_mode(mode, routine)
        self.check_open(routine)
        if self._loses and MODES[mode][1]:
            raise invalid(
                "the array that the buffer was made of is read-only, so it would not get the "
                "result",
                routine=routine,
                remedy="Buffer(array.copy()); buffer.set_final_data(array) for another array; or "
                "Buffer(array, write_back=False), whose result numpy() and host_access() give",
            )

    def check_open(self, routine: str) -> None:
        if self._closed:
            raise invalid(
                "the buffer is closed",
                routine=routine,
                remedy="close it when everything that uses it is submitted",
            )

    def dependencies(self, mode: str) -> list[Event]:
        """Return the events that a command with this access comes after. A command that discards
        the contents ignores failed ones."""
        found = [self._writer] if self._writer is not None else []
        if MODES[mode][1]:
            found += self._readers
        return found if MODES[mode][2] else [event for event in found if event.error is None]

    def prepare(self, where: Context | None, mode: str, routine: str = "submit") -> None:
        """Make the contents valid for a command with this access. The command depends on the
        transfers.

        Args:
            where: a context, or None for the host.
            mode: the access mode.
            routine: named in errors.
        """
        self.check_open(routine)
        if where is not None:
            self.memory(where)
        # a copy of its own is made now, not when the host task runs: later commands are told where
        # it is
        else:
            self.host_copy(writable=MODES[mode][1])
        if MODES[mode][2] and self._valid and where not in self._valid:
            if _HOST not in self._valid:
                self._transfer(
                    "Read", next(filter(None, self._valid)), self.host_copy(writable=True)
                )
            if where is not None:
                self._transfer("Write", where, self.host_copy())

    def record_use(self, where: Context | None, mode: str, event: Event) -> None:
        """Record that a command with this access was submitted. See `prepare`."""
        if MODES[mode][1]:
            self._writer, self._readers = event, Unfinished()
            self._valid = {where}
        else:
            self._readers.add(event)

    def host_copy(self, *, writable: bool = False) -> numpy.ndarray[Any, Any]:
        """Return the host's copy. For writing, it is the array that the buffer was made of only if
        that array gets the contents."""
        if self._host is None:
            self._host = numpy.empty(self.shape, self.dtype)
        elif (
            writable and self._borrowed and not (self.write_back and self.final_data is self._array)
        ):
            self._host, self._borrowed = self._host.copy(), False
        return self._host

    def _transfer(self, direction: str, context: Context, host: numpy.ndarray[Any, Any]) -> None:
        """Read the whole buffer from a context to the host's copy, or write that to a context, by a
        command like any other."""
        call, memory = (
            getattr(context.adapter.ur, f"urEnqueueMemBuffer{direction}"),
            self._memories[context],
        )

        def enqueue(count: int, waits: Any) -> int:
            event = ctypes.c_void_p()
            code = call(
                context.transfer_queue(),
                memory,
                False,
                0,
                self.nbytes,
                host.ctypes.data,
                count,
                waits,
                ctypes.byref(event),
            )
            context.adapter.check(code, f"urEnqueueMemBuffer{direction}", f"({self!r})")
            return event.value or 0

        self._writer = submit(context, [self._writer] if self._writer is not None else [], enqueue)
        context.keep_until_done(self._writer, host)
        self._valid.add(_HOST if direction == "Read" else context)

    # the host's access

    @contextmanager
    def host_access(self, mode: str = "read_write") -> Iterator[numpy.ndarray[Any, Any]]:
        """Give the contents as a NumPy array for the length of a block. Commands that use the
        buffer wait until it ends. (SYCL: host_accessor)

        Args:
            mode: "read", "write", "read_write", or "discard" if the old contents are not needed.
                With "read" the array is read-only.

        Raises:
            SYCLError: invalid, if a graph that is being recorded uses the buffer, or if this thread
                has another such block open that this one would wait for.
            BaseException: what a command that wrote to the buffer raised.
        """
        self.check_access(mode, "host_access")
        if any(graph.is_recording for graph in self.graphs):
            raise invalid(
                "host_accessor cannot be used on a buffer that a graph uses which is being "
                "recorded",
                routine="host_access",
                remedy="end the recording first",
            )
        with lock:
            check_no_deadlock(self.dependencies(mode), "host_access")
            self.prepare(_HOST, mode, "host_access")
            before = self.dependencies(mode)
            event, close = open_event(None)
            self.record_use(_HOST, mode, event)
        try:
            Event.wait_all(before)
        except BaseException as error:  # what was to be read or kept is not there
            close(error)
            raise
        try:
            yield self.view(mode)
        finally:
            close(None)

    def view(self, mode: str) -> numpy.ndarray[Any, Any]:
        """Return the host's copy, which must be valid, as an array that is writable if the mode
        says so."""
        writes = MODES[mode][1]
        view = self.host_copy(writable=writes).view()
        view.flags.writeable = writes
        return view

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Return a copy of the contents, after every command that writes to them."""
        with self.host_access("read") as array:
            return array.copy()

    # its end

    def close(self) -> None:
        """Wait for the commands that use the buffer, write it back if it is to be, and free its
        memory. A second call does nothing.

        Raises:
            BaseException: what the commands that wrote to it raised. Nothing is written back then.
        """
        with lock:
            if self._closed:
                return
            check_no_deadlock(self.dependencies("write"), "Buffer.close")
            if self.write_back:
                self.prepare(_HOST, "read")
            self._closed = True
            writer, readers = self._writer, self._readers
        try:
            for reader in readers:
                with suppress(Exception):
                    reader.wait()
            if writer is not None:
                writer.wait()
            if self.write_back and self.final_data is not None and self._valid:
                host = self.host_copy()
                if not numpy.may_share_memory(host, self.final_data):
                    self.final_data[...] = host.reshape(self.final_data.shape)
        finally:
            for context, handle in self._memories.items():
                if context.adapter.open:
                    context.adapter.ur.urMemRelease(handle)
            self._memories.clear()
            self._writer = self._host = self._array = self.final_data = None
            self._readers = Unfinished()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Close the buffer and wait for that, as SYCL's destructor does. Errors are dropped.

        A command that is not with an adapter yet holds its buffers. So nothing is waited for here
        that this thread has yet to do. Inside a submission another thread closes the buffer,
        because a host task that it waits for may need the lock.
        """
        if sys.is_finalizing() or self._closed:
            return
        if lock._is_owned():
            _closing.add(self._close_quietly)
        else:
            self._close_quietly()

    def _close_quietly(self) -> None:
        with suppress(Exception):
            self.close()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Buffer {'×'.join(map(str, self.shape))} {self.dtype}>"


def check_mode(mode: str, routine: str) -> None:
    """Raise SYCLError (invalid) unless `mode` is an access mode."""
    if not isinstance(mode, str) or mode not in MODES:
        raise invalid(
            f"there is no access mode {mode!r}",
            routine=routine,
            remedy=f"one of {', '.join(MODES)}",
        )


_MADE_OF: Final = (
    "Buffer(array), Buffer([1, 2, 3], numpy.int32) or Buffer((rows, columns), numpy.float32)"
)


def as_shape(
    given: Any, routine: str, remedy: str = "give a number, or a tuple of numbers"
) -> tuple[int, ...]:
    """Return one number, or several, as a tuple. Raises SYCLError (invalid)."""
    try:
        return tuple(map(index, given)) if isinstance(given, (tuple, list)) else (index(given),)
    except TypeError as error:
        raise invalid(f"{given!r} is no shape", routine=routine, remedy=remedy) from error


def _elements(given: list[Any], dtype: numpy.dtype[Any]) -> numpy.ndarray[Any, Any]:
    """Return a list as an array. Raises SYCLError (invalid)."""
    try:
        return numpy.array(given, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(
            f"the list is none of {dtype}: {error}",
            routine="Buffer",
            remedy="give elements of that type",
        ) from error
