"""Buffers and accessors: memory that the scheduler keeps coherent between the host and the contexts that use it.

A buffer's contents are valid in some places: on the host, in contexts. A command that needs them elsewhere has them moved first. Memory
in a context is allocated when a command there first needs it, and filled at once if the host's contents are valid. Who wrote last and who
has read since is kept as events, from which `dependencies` follow: a reader comes after the last writer, a writer after the readers too.
(SYCL 2020, sections 4.7.2 and 4.7.6.)

    data = numpy.arange(1024, dtype=numpy.float32)
    with Buffer(data) as buffer:                    # written back to `data` when the block ends
        queue.submit(lambda h: h.parallel_for(1024, kernel, h.access(buffer, "read_write")))
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy

from ..loader.ur import UR
from .arguments import MAKERS, MEMORY, Argument
from .errors import Errc, SYCLError, invalid
from .event import Event
from .handles import struct
from .scheduler import held_open, run_on_host

if TYPE_CHECKING:
    from typing_extensions import Self

    from .context import Context

#: Access modes: whether a command with one reads, whether it writes, whether it needs what was there before, and the adapter's flag.
MODES: Final = {
    "read": (True, False, True, UR["UR_MEM_FLAG_READ_ONLY"]),
    "write": (False, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "read_write": (True, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "discard": (False, True, False, UR["UR_MEM_FLAG_WRITE_ONLY"]),
}

#: Held while a submission looks at buffers and is entered into them: one at a time.
lock: Final = RLock()

_HOST: Final = None  # in `_valid`: the host's copy


class Buffer:
    """A buffer of elements of `dtype` in `shape`, from a NumPy array (its contents are the first ones) or from a shape.

    Args:
        data: an array, or the shape: a number or a tuple of numbers of elements.
        dtype: of the elements, if `data` is a shape.
        write_back: whether `close` writes the contents to the array; by default it does if the array can be written to.
    """

    def __init__(self, data: Any, dtype: Any = None, *, write_back: bool | None = None) -> None:
        array = data if isinstance(data, numpy.ndarray) else None
        self.shape: tuple[int, ...] = array.shape if array is not None else (data,) if isinstance(data, int) else tuple(data)
        if array is None and dtype is None:
            raise invalid("a buffer of a shape needs a dtype", routine="Buffer", remedy="Buffer(1024, numpy.float32)")
        self.dtype = array.dtype if array is not None else numpy.dtype(dtype)
        self.size = int(numpy.prod(self.shape, dtype=numpy.int64))
        self.nbytes = self.size * self.dtype.itemsize
        if self.nbytes <= 0 or not 1 <= len(self.shape) <= 3:
            raise invalid("a buffer has one to three dimensions and at least one element", routine="Buffer")
        self.final_data = array if array is not None and array.flags.writeable else None
        self.write_back = self.final_data is not None if write_back is None else write_back
        self._host = numpy.ascontiguousarray(array) if array is not None else None
        self._memories: dict[Context, int] = {}
        self._valid: set[Context | None] = {_HOST} if array is not None else set()
        self._writer: Event | None = None
        self._readers: list[Event] = []
        self.recorded_by: list[Any] = []  # graphs that are being recorded and have it in a node

    # SYCL's properties of the destructor

    def set_write_back(self, write_back: bool) -> None:
        """Whether `close` writes the contents back (SYCL: set_write_back)."""
        self.write_back = write_back and self.final_data is not None

    def set_final_data(self, array: Any) -> None:
        """Where `close` writes the contents: a NumPy array, or None for nowhere (SYCL: set_final_data)."""
        self.final_data, self.write_back = array, array is not None

    # what submissions ask (with `lock` held)

    def memory(self, context: Context) -> int:
        """The handle of its memory in a context; allocated, with the host's contents, if there is none."""
        handle = self._memories.get(context)
        if handle is None:
            filled = _HOST in self._valid and self._host is not None
            flags, properties = UR["UR_MEM_FLAG_READ_WRITE"], None
            if filled:
                assert self._host is not None
                flags |= UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
                properties = ctypes.byref(struct("ur_buffer_properties_t", pHost=self._host.ctypes.data))
            handle = context.adapter.made("urMemBufferCreate", context.handle, flags, self.nbytes, properties)
            self._memories[context] = handle
            if filled:
                self._valid.add(context)
        return handle

    def dependencies(self, mode: str) -> list[Event]:
        """The events that a command with this access comes after."""
        found = [self._writer] if self._writer is not None else []
        return found + self._readers if MODES[mode][1] else found

    def prepare(self, context: Context, mode: str) -> None:
        """Have its contents valid in a context for a command with this access; moving them is a command that it depends on."""
        first = context not in self._memories
        if first and self._writer is not None and _HOST in self._valid and self._writer.deferred is not None:
            # an open host accessor: the array is being written to
            self._allocate_empty(context)
        else:
            self.memory(context)
        if MODES[mode][2] and self._valid and context not in self._valid:
            self._move(context)

    def _allocate_empty(self, context: Context) -> None:
        self._memories[context] = context.adapter.made(
            "urMemBufferCreate", context.handle, UR["UR_MEM_FLAG_READ_WRITE"], self.nbytes, None
        )

    def used(self, context: Context, mode: str, event: Event) -> None:
        """A command with this access was submitted."""
        if MODES[mode][1]:
            self._writer, self._readers = event, []
            self._valid = {context}
        else:
            self._readers = [reader for reader in self._readers if reader.deferred is not None or reader.handle]
            self._readers.append(event)

    def _move(self, context: Context) -> None:
        """Bring the contents into a context where there is memory already, by way of the host."""
        source = None if _HOST in self._valid else next(iter(self._valid))
        host = self._host_array()

        def copy() -> None:
            if source is not None:
                self._transfer("Read", source, host)
            self._transfer("Write", context, host)

        self._writer = run_on_host(None, self.dependencies("read_write"), copy)
        self._readers = []
        self._valid |= {_HOST, context}

    def _host_array(self) -> numpy.ndarray[Any, Any]:
        if self._host is None:
            self._host = numpy.empty(self.shape, self.dtype)
        return self._host

    def _transfer(self, direction: str, context: Context, host: numpy.ndarray[Any, Any]) -> None:
        """Read or write all of it, and wait for that."""
        context.adapter.call(
            f"urEnqueueMemBuffer{direction}",
            context.transfers(),
            self._memories[context],
            True,
            0,
            self.nbytes,
            host.ctypes.data,
            0,
            None,
            None,
        )

    # the host's access

    @contextmanager
    def host_access(self, mode: str = "read_write") -> Iterator[numpy.ndarray[Any, Any]]:
        """The contents as a NumPy array, for the length of the block; commands that use the buffer wait until it ends.

        Args:
            mode: "read", "write", "read_write", or "discard" if what was there before is not needed. With "read" the array cannot be
                written to.

        Raises SYCLError (invalid) if a graph that is being recorded uses the buffer; what a command that wrote to it raised.
        (SYCL: host_accessor)
        """
        if mode not in MODES:
            raise invalid(f"there is no access mode {mode!r}", routine="host_access", remedy=f"one of {', '.join(MODES)}")
        if self.recorded_by:
            raise invalid(
                "host_accessor cannot be used on a buffer that a graph uses which is being recorded", routine="host_access",
                remedy="end the recording first",
            )  # fmt: skip
        event, close = held_open(None)
        with lock:
            before = self.dependencies(mode)
            source = next(iter(self._valid), _HOST) if _HOST not in self._valid else _HOST
            fetch = MODES[mode][2] and source is not None
            host = self._host_array()
            if MODES[mode][1]:
                self._writer, self._readers, self._valid = event, [], {_HOST}
            else:
                self._readers.append(event)
                self._valid.add(_HOST)
        try:
            Event.wait_all(before)
            if fetch:
                assert source is not None
                self._transfer("Read", source, host)
            view = host.view()
            view.flags.writeable = MODES[mode][1]
            yield view
        finally:
            close()

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy of the contents, after everything that writes to it."""
        with self.host_access("read") as array:
            return array.copy()

    # its end

    def close(self) -> None:
        """Wait for the commands that use it, write it back if it is to be, and free its memory. A second call does nothing.

        Raises what the commands that wrote to it raised.
        """
        final = self.final_data if self.write_back else None
        self.write_back = False
        try:
            if final is not None:
                with self.host_access("read") as array:
                    if not numpy.may_share_memory(array, final):
                        final[...] = array.reshape(final.shape)
            elif self._writer is not None:
                self._writer.wait()
        finally:
            self._writer, self._readers = None, []
            for context, handle in self._memories.items():
                if context.adapter.open:
                    context.adapter.ur.urMemRelease(handle)
            self._memories.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        """As SYCL's destructor does: nobody is left who could be told of an error."""
        if not sys.is_finalizing() and hasattr(self, "_readers"):
            with suppress(Exception):
                self.close()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Buffer {'×'.join(map(str, self.shape))} {self.dtype}>"


class Accessor:
    """A command's access to a buffer, or to a part of it: `shape` elements from `offset` on, in each dimension.

    A kernel gets the buffer's memory from its beginning, whatever the part; copies and fills keep to the part.
    """

    __slots__ = ("buffer", "mode", "offset", "shape")

    def __init__(self, buffer: Buffer, mode: str = "read_write", shape: Any = None, offset: Any = None) -> None:
        if not isinstance(buffer, Buffer):
            raise invalid("an accessor is of a Buffer", routine="Accessor", remedy="make a Buffer of the array first")
        if mode not in MODES:
            raise invalid(f"there is no access mode {mode!r}", routine="Accessor", remedy=f"one of {', '.join(MODES)}")
        self.buffer, self.mode = buffer, mode
        self.offset: Sequence[int] = _extents(offset, (0,) * len(buffer.shape))
        whole = tuple(size - start for size, start in zip(buffer.shape, self.offset, strict=True))
        self.shape: Sequence[int] = _extents(shape, whole)
        if any(not 0 < size <= rest for size, rest in zip(self.shape, whole, strict=True)):
            raise SYCLError(
                Errc.invalid, f"the part {self.shape} from {self.offset} on is not within {buffer!r}", routine="Accessor",
                remedy="stay within the buffer's shape",
            )  # fmt: skip

    @property
    def writes(self) -> bool:
        """Whether its command may write."""
        return MODES[self.mode][1]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def nbytes(self) -> int:
        """How many bytes that is."""
        return self.size * self.buffer.dtype.itemsize

    def __repr__(self) -> str:
        return f"<Accessor {self.mode} of {self.buffer!r}>"


def _extents(given: Any, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    if given is None:
        return otherwise
    extents = (given,) if isinstance(given, int) else tuple(given)
    if len(extents) != len(otherwise):
        raise invalid(f"the buffer has {len(otherwise)} dimensions, not {len(extents)}", routine="Accessor")
    return extents


def _argument(accessor: Accessor) -> Argument:
    return Argument(MEMORY, ctypes.sizeof(ctypes.c_void_p), 0, MODES[accessor.mode][3], accessor, accessor.buffer)


MAKERS[Accessor] = _argument
