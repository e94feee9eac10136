"""Capture: records the commands that queues are given inside a block. None of them runs.

`Recording(queues, context, observer)` exchanges the dispatch pointer of each queue
(native/recording.c). From then on the native recorder appends commands to a flat array. `end()`
restores every pointer. Afterwards the recording is read-only: its commands, their dependencies, and
the memory that it keeps alive. It knows OpenCL handles and nothing of PyOpenCL. An `Observer` finds
the Python owners of host memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, Protocol

from ...loader.base.errors import FairleadError
from ...loader.base.frozen_value import Value
from ...loader.base.interrupts import mark_uninterrupted
from .._native import ffi, lib
from ..abi import OPENCL, count_slots
from ..errors import error

#: Why a call was refused (enum fl_reason), and the remedy.
_REASONS: Final[dict[int, tuple[str, str]]] = {
    lib.FL_CANNOT_CAPTURE: (
        "it cannot be captured: its effect is needed at once, or belongs to the host",
        "move it out of the block",
    ),
    lib.FL_BLOCKING: (
        "it is a blocking transfer, and nothing runs inside the block",
        "pass is_blocking=False (arrays: get_async, or set with async_=True); if PyOpenCL waits "
        "all the same, do that step before or after the block",
    ),
    lib.FL_WAITS: (
        "it waits for commands that have only been recorded, and nothing runs inside the block",
        "wait after a replay instead",
    ),
    lib.FL_OTHER_THREAD: (
        "another thread used the queue while it was being captured",
        "use the queue from the capturing thread only, or another queue",
    ),
    lib.FL_FOREIGN_EVENT: (
        "an event in its wait list belongs to another context or to another capture",
        "wait only for events of this block or of the queue's own context",
    ),
    lib.FL_FAILED_EVENT: (
        "an event in its wait list belongs to a command that failed",
        "find the failed command first: the event's status is its code",
    ),
    lib.FL_UNSEEN_ARGUMENT: (
        "an argument of the kernel was set before the block, or never, and it may be memory that "
        "the graph could not keep alive",
        "set all arguments inside the block (kernel(queue, …) does), or name the buffers, images "
        "and samplers: capture(queue, keep=[…])",
    ),
    lib.FL_NO_CLONE: (
        "the kernel cannot be frozen: the driver has no clCloneKernel and not all arguments were "
        "set inside the block",
        "set all arguments of the kernel inside the block",
    ),
    lib.FL_HOST_MEMORY: (
        "the host memory that it uses has no owner that the graph could keep alive",
        "bind the array to a name in the calling function, or name it: capture(queue, "
        "keep=[array])",
    ),
    lib.FL_NO_MEMORY: ("there is not enough memory", ""),
    lib.FL_CALLBACK: (
        "it asks for a callback at completion, and nothing completes inside the block",
        "set the callback on the replay's event",
    ),
    lib.FL_PARAMETER: (
        "it takes a Parameter, and only kernels follow one",
        "give a kernel the Parameter, or give this the number: parameter.value",
    ),
}


class CaptureError(FairleadError):
    """A block could not be captured.

    `call` is the OpenCL function that was refused, `where` the caller's file and line.
    """

    def __init__(self, message: str, *, call: str = "", where: str = "", **parts: str) -> None:
        super().__init__(message, routine=call, **parts)
        self.call, self.where = call, where


class RefusedCall(Value):
    """A call inside the block that was refused."""

    call: str
    reason: str
    remedy: str
    where: str

    def make_error(self) -> CaptureError:
        """Return the refusal as an exception."""
        at = f" (at {self.where})" if self.where else ""
        return CaptureError(
            f"inside a capture block: {self.reason}{at}.",
            call=self.call,
            where=self.where,
            code="CL_INVALID_OPERATION",
            remedy=self.remedy,
        )


class Observer(Protocol):
    """Answers a recording's questions about the client.

    `caller` is the frame that calls OpenCL, None if no Python function does.
    """

    def note_command(self, caller: FrameType | None, new_objects: bool) -> None:
        """Note that a command was recorded.

        `new_objects` says that it is the first to use some object.
        """

    def hold_pooled_buffers(self, caller: FrameType | None) -> None:
        """Keep the client's pooled buffers: a kernel argument was set to a memory object that the
        recording does not keep yet."""

    def keep_host(self, caller: FrameType | None, address: int, size: int) -> bool:
        """Keep the owner of host memory alive as long as the recording.

        Returns False if none is found.
        """
        ...

    def keep_parameter(self, number: int) -> None:
        """Keep a Parameter, which became a kernel's argument."""

    def note_uncaptured_call(self, caller: FrameType | None, function: str) -> None:
        """Note that a command went to a queue of the context that is not captured.

        `function` is the OpenCL function.
        """

    def note_contents(self, caller: FrameType | None, memory: int) -> None:
        """Note that a memory object (a handle) was made with contents of the host's memory."""

    def is_housekeeping(self, caller: FrameType | None) -> bool:
        """Return whether the present wait is the client's own housekeeping, not the program's."""
        ...

    def describe_caller(self, caller: FrameType | None) -> str:
        """Return file and line of the program's present call."""
        ...


class _Cookie:
    """The native observer's data.

    It does not refer to the recording, which would then be freed only by a garbage collection.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.refusals: list[RefusedCall] = []
        self.raised: BaseException | None = None


@ffi.def_extern(name="fl_python_observer", error=1)
@mark_uninterrupted
def _observe(handle: Any, what: int, detail: int, address: Any, size: int) -> int:
    """Call the observer.

    Nothing can be raised through the client's C. An exception, say of the program's own signal
    handler, is kept for the end of the block.
    """
    cookie: _Cookie = ffi.from_handle(handle)
    try:
        return _answer(cookie, sys._getframe().f_back, what, detail, address, size)
    except BaseException as raised:
        cookie.raised = cookie.raised or raised
        return 1


def _answer(
    cookie: _Cookie, caller: FrameType | None, what: int, detail: int, address: Any, size: int
) -> int:
    observer = cookie.observer
    if what == lib.FL_ASK_ADDED:
        observer.note_command(caller, size > 0)
    elif what in (lib.FL_ASK_HOST, lib.FL_ASK_HOST_OF_MEMORY):
        return not observer.keep_host(caller, int(ffi.cast("uintptr_t", address)), size)
    elif what == lib.FL_ASK_PASSED:
        observer.hold_pooled_buffers(caller)
    elif what == lib.FL_ASK_SVM:
        observer.keep_host(caller, int(ffi.cast("uintptr_t", address)), size)
    elif what == lib.FL_ASK_PARAMETER:
        observer.keep_parameter(size)
    elif what == lib.FL_ASK_UNCAPTURED:
        observer.note_uncaptured_call(caller, OPENCL.slots[detail].name)
    elif what == lib.FL_ASK_CREATED:
        observer.note_contents(caller, int(ffi.cast("uintptr_t", address)))
    elif what == lib.FL_ASK_WAIT:
        return not observer.is_housekeeping(caller)
    elif what == lib.FL_ASK_REFUSED:
        text, remedy = _REASONS[size]
        where = observer.describe_caller(caller)
        refusal = RefusedCall(OPENCL.slots[detail].name, text, remedy, where)
        cookie.refusals.append(refusal)
    return 0


# PyOpenCL releases the GIL for every wait that the program asks for, and holds it where a
# destructor waits.
_holds_gil = ffi.cast(
    "int (*)(void)", ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
)


class Recording:
    """What is recorded from `queues` until `end()`. Not thread-safe: one thread records.

    Args:
        queues: handles, all of `context`.
        version: the platform's OpenCL version, which says how long the driver's table is at least.
        allow_unseen: accept kernels with memory arguments that were set before the block. The
            caller keeps those alive itself.

    Raises:
        OpenCLError: a queue is being captured already, or a driver refuses.
    """

    def __init__(
        self,
        queues: Sequence[int],
        context: int,
        observer: Observer,
        *,
        version: tuple[int, int],
        allow_unseen: bool = False,
    ) -> None:
        self.context = context
        self._cookie = _Cookie(observer)
        self._handle = ffi.new_handle(self._cookie)
        self._ended = False
        handles = [ffi.cast("void *", queue) for queue in queues]
        code = ffi.new("int *")
        lib.fl_set_length(ffi.cast("void ***", context)[0], count_slots(version))
        pointer = lib.fl_begin(
            handles,
            len(handles),
            ffi.cast("void *", context),
            allow_unseen,
            lib.fl_python_observer,
            self._handle,
            _holds_gil,
            code,
        )
        if not pointer:
            remedy = (
                "end other captures first: at most 512 queues are captured at once, 63 in one block"
            )
            if any(map(is_captured, queues)):
                remedy = "end the other capture of this queue first"
            raise error(code[0], "capture", "A queue could not be captured.", remedy)
        self.native = ffi.gc(pointer, lib.fl_drop)

    def end(self) -> None:
        """End the block and restore every dispatch pointer and table. Further calls do nothing."""
        if not self._ended:
            self._ended = True
            lib.fl_end(self.native)

    @property
    def refusals(self) -> list[RefusedCall]:
        """The calls that were refused, in order."""
        return self._cookie.refusals

    @property
    def raised(self) -> BaseException | None:
        """What the observer raised, if anything. The recording is invalid then."""
        return self._cookie.raised

    def drop(self) -> None:
        """End the block and release everything that was recorded and kept alive."""
        self._ended = True
        ffi.release(self.native)

    def __len__(self) -> int:
        count = ffi.new("uint32_t *")
        lib.fl_commands(self.native, count)
        return count[0]

    @property
    def commands(self) -> Any:
        """The array of `fl_command`, `len(self)` long, in the recording's own memory.

        Only after `end()`.
        """
        return lib.fl_commands(self.native, ffi.new("uint32_t *"))

    @property
    def dependencies(self) -> Any:
        """The predecessors of all commands: node numbers, unsigned 32-bit, as a memoryview.

        `first_dep` and `dep_count` of a command say which are its own.
        """
        count = ffi.new("uint32_t *")
        array = lib.fl_deps(self.native, count)
        return memoryview(ffi.buffer(array, count[0] * 4) if count[0] else b"").cast("I")

    @property
    def pending(self) -> list[int]:
        """Events from before the block that were incomplete when a command waited for them.

        Every replay waits for them.
        """
        count = ffi.new("uint32_t *")
        array = lib.fl_pending(self.native, count)
        return [int(ffi.cast("uintptr_t", array[i])) for i in range(count[0])]

    @property
    def kept(self) -> int:
        """The number of OpenCL objects that the recording keeps alive."""
        return lib.fl_kept(self.native)

    @property
    def has_parts(self) -> bool:
        """Whether the recording keeps memory objects that are parts of others, or made from others.

        Not every driver keeps those for a command in flight: PoCL 3.0 loses the buffer of an image.
        """
        return bool(lib.fl_has_parts(self.native))

    def share_samplers(self) -> Any:
        """Return references to the samplers that it keeps, None if there are none.

        Not every driver keeps those for a command in flight: PoCL 3.0 loses them.
        """
        found = lib.fl_share_samplers(self.native)
        return ffi.gc(found, lib.fl_release_samplers) if found else None

    @property
    def pinned(self) -> int:
        """The number of SVM pointers that the recording's commands use."""
        return lib.fl_pinned(self.native)


def is_captured(queue: int) -> bool:
    """Return whether a queue (handle) is being captured now."""
    return bool(lib.fl_is_captured(ffi.cast("void *", queue)))
