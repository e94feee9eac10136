"""What buffers and images have in common: the scheduler keeps their contents coherent between the
host and the contexts that use them.

The contents are valid in some places: on the host, in contexts. When a command needs them
elsewhere, they are transferred first. Memory in a context is allocated when a command there first
needs it. If the host's contents are valid, it is filled at once. The last writer and the readers
since then are kept as events. A reader comes after the last writer, a writer also after the
readers. (SYCL 2020, sections 4.7.2 and 4.7.6.)
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy

from ..loader.base.forks import call_in_child
from ..loader.ur.abi import UR
from .arguments import IS_MEMORY
from .checks import as_integer, as_shape, check_element_type, expect
from .deferred_actions import DeferredActions, is_collecting
from .errors import make_invalid_error
from .event import Event, Unfinished
from .memory import MODES, Memory, check_mode, lock
from .scheduler import check_no_deadlock, open_event, submit

if TYPE_CHECKING:
    from typing_extensions import Self

    from .context import Context

#: Closes buffers that were collected, or dropped in a submission.
_closing = DeferredActions()


@call_in_child
def _forget() -> None:
    """Forget the thread, which is the parent's."""
    global _closing
    _closing = DeferredActions()


_HOST: Final = None  # in `_valid`: the host's copy


class CoherentMemory(Memory):
    """A Buffer or an Image.

    Args:
        data: the first contents, which belong to it until it is closed: a NumPy array; a list of
            elements, which are copied; or a shape.
        dtype: the type of the elements, None for that of the array.
        write_back: whether `close` writes the contents to the array. By default it does if the
            array can be written to.

    Attributes:
        shape: how many elements it has in each dimension; of an image, how many pixels.
        dtype: the type of the elements, or of a pixel's channels.
        itemsize: the size of an element or a pixel, in bytes.
        size: how many elements of `dtype` it has.
        final_data, write_back: where `close` writes the contents, and whether it does.
        graphs: those that have it in a node.
    """

    #: What it is called in messages, with its article and without; and how one is made.
    kind: ClassVar[str]
    noun: ClassVar[str]
    #: What kernels declare for it (kernel_types.py).
    declared: Any = IS_MEMORY
    made_of: ClassVar[str]

    shape: tuple[int, ...]

    def __init__(self, data: Any, dtype: Any = None, *, write_back: bool | None = None) -> None:
        self._closed = True  # until it is complete
        name = type(self).__name__
        given = data if isinstance(data, numpy.ndarray) else None
        if given is None and dtype is None:
            kinds = int, numpy.integer, tuple, list
            expect(data, kinds, name, self.made_of, "array, list or shape")
            raise make_invalid_error(
                f"{self.kind} of a shape or a list needs a dtype",
                routine=name,
                remedy=f"{name}(1024, numpy.float32)",
            )
        self.dtype = check_element_type(
            given.dtype if given is not None and dtype is None else dtype, name
        )
        if given is not None and given.dtype != self.dtype:
            raise make_invalid_error(
                f"the array's elements are {given.dtype}, not {self.dtype}",
                routine=name,
                remedy=f'convert them first: array.astype("{self.dtype}")',
            )
        array = _make_array(data, self.dtype, name) if isinstance(data, list) else given
        self._array_shape = self._set_shape(
            array.shape if array is not None else None,
            () if array is not None else as_shape(data, name, self.made_of),
        )
        self.size = math.prod(self._array_shape)
        self.nbytes = as_integer(self.size * self.dtype.itemsize, "number of bytes", name)
        self.itemsize = self.nbytes // math.prod(self.shape)
        self.final_data = given if given is not None and given.flags.writeable else None
        if write_back and self.final_data is None:
            raise make_invalid_error(
                "there is no array that could be written to",
                routine=name,
                remedy="set_final_data(array)",
            )
        self.write_back = self.final_data is not None if write_back is None else write_back
        # whether a result would be lost silently: the array that should get it is read-only
        self._loses = given is not None and self.final_data is None and write_back is None
        self._host = numpy.ascontiguousarray(array) if array is not None else None
        self._borrowed = array is not None and numpy.may_share_memory(array, self._host)
        self._memories: dict[Context, int] = {}
        self._valid: set[Context | None] = {_HOST} if array is not None else set()
        self._writer: Event | None = None
        self._readers = Unfinished()
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._array = array
        self._closed = False

    # what buffers and images do differently

    def _set_shape(self, array: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, ...]:
        """Set `shape`, and return that of the host's array.

        Args:
            array: the shape of the array with the first contents, None if there is none.
            given: the shape if there is no array.
        """
        raise NotImplementedError

    def _create(self, context: Context, flags: int, host: int) -> int:
        """Create a memory object in a context and return its handle.

        Args:
            flags: ur_mem_flags_t.
            host: the address of its first contents, 0 for none.
        """
        raise NotImplementedError

    def transfer(
        self, direction: str, context: Context, queue: int, host: int, count: int, waits: Any
    ) -> int:
        """Enqueue a transfer of all contents between a context and host memory. Return its event.

        Args:
            direction: "Read" or "Write".
            context: the context of the memory object.
            queue: the handle of a queue.
            host: an address.
        """
        event = ctypes.c_void_p()
        routine, area = self._transfer_by(direction)
        call = getattr(context.adapter.ur, routine)
        memory, ends = self._memories[context], (host, count, waits, ctypes.byref(event))
        code = call(queue, memory, False, *area, *ends)
        context.adapter.check(code, routine, f"({self!r})")
        return event.value or 0

    def _transfer_by(self, direction: str) -> tuple[str, tuple[Any, ...]]:
        """Return the adapter's function that moves all contents, and its arguments between
        `blocking` and the address."""
        raise NotImplementedError

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
            raise make_invalid_error(
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
        self.check_open(type(self).__name__)
        flags, host = UR["UR_MEM_FLAG_READ_WRITE"], 0
        filled = (
            _HOST in self._valid
            and self._host is not None
            and (self._writer is None or self._writer.done)
        )
        if filled:
            assert self._host is not None
            flags |= UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
            host = self._host.ctypes.data
        made = self._memories[context] = self._create(context, flags, host)
        if filled:
            self._valid.add(context)
        return made

    def check_access(self, mode: str, routine: str) -> None:
        """Raise SYCLError (invalid) for an unknown mode, closed memory, or a result that would be
        lost silently."""
        check_mode(mode, routine)
        self.check_open(routine)
        if self._loses and MODES[mode][1]:
            name = type(self).__name__
            raise make_invalid_error(
                f"the array that the {self.noun} was made of is read-only, so it would not get the "
                "result",
                routine=routine,
                remedy=f"{name}(array.copy()); {self.noun}.set_final_data(array) for another one; "
                f"or {name}(array, write_back=False), whose result numpy() and host_access() give",
            )

    def check_open(self, routine: str) -> None:
        """Raise SYCLError (invalid) if it is closed."""
        if self._closed:
            raise make_invalid_error(
                f"the {self.noun} is closed",
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
            routine: named in errors.
        """
        self.check_open(routine)
        if where is not None:
            self.memory(where)
        else:  # now, not when the host task runs: later commands are told where the copy is
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
            self._host = numpy.empty(self._array_shape, self.dtype)
        elif (
            writable and self._borrowed and not (self.write_back and self.final_data is self._array)
        ):
            self._host, self._borrowed = self._host.copy(), False
        return self._host

    def _transfer(self, direction: str, context: Context, host: numpy.ndarray[Any, Any]) -> None:
        """Read all contents from a context to the host's copy, or write that to a context, by a
        command like any other."""

        def enqueue(count: int, waits: Any) -> int:
            queue, address = context.transfer_queue(), host.ctypes.data
            return self.transfer(direction, context, queue, address, count, waits)

        self._writer = submit(context, enqueue, [self._writer] if self._writer is not None else [])
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
            SYCLError: invalid, if a graph that is being recorded uses the buffer. Also if this one
                would wait for another such block of this thread.
            BaseException: what a command that wrote to the buffer raised.
        """
        self.check_access(mode, "host_access")
        if any(graph.is_recording for graph in self.graphs):
            raise make_invalid_error(
                f"host_accessor cannot be used on {self.kind} that a graph uses which is being "
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
            check_no_deadlock(self.dependencies("write"), f"{type(self).__name__}.close")
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
        that this thread has yet to do. Another thread closes a buffer that is dropped inside a
        submission, or collected: the garbage collector runs while its thread holds any lock.
        """
        if sys is None or sys.is_finalizing() or getattr(self, "_closed", True):
            return
        if lock._is_owned() or is_collecting():
            _closing.add(self._close_quietly)
        else:
            self._close_quietly()

    def _close_quietly(self) -> None:
        with suppress(BaseException):  # a host task may have raised SystemExit
            self.close()

    def __len__(self) -> int:
        return self.shape[0]


def _make_array(given: list[Any], dtype: numpy.dtype[Any], routine: str) -> numpy.ndarray[Any, Any]:
    """Return a list as an array. Raises SYCLError (invalid)."""
    try:
        return numpy.array(given, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise make_invalid_error(
            f"the list cannot be an array of {dtype}: {error}",
            routine=routine,
            remedy="give elements of that type",
        ) from error
