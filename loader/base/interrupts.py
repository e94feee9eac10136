"""Ctrl-C in a Python program that captures or calls an adapter.

KeyboardInterrupt never cuts off an entry point or a finalizer, and is never lost in one.

Python calls its signal handlers between any two instructions, also inside an entry point. An
exception there would leave the work half done and become an error code. So our handler looks at the
frames of the main thread. If one of them is an entry point, it asks C to raise the interrupt again
when the outermost entry point has returned (plugins/sdk/native/interrupts.c).

Some entry points wait, and may be interrupted. They wait in a function that `mark_stoppable` has
marked. There the handler raises at once, the entry point returns an error code, and the caller sees
KeyboardInterrupt. The caller has to expect that (`mark_leaving_waits`), as the runtime does. Any
other caller, such as libsycl in a Python program, would take the command for ended: its wait goes
on to the end.

Python drops an exception that leaves a `__del__` or a function that C calls. C calls the callbacks
of weak references and of the garbage collector, too. Other functions must not end halfway, such as
those that begin and end a capture. All but `__del__` are marked (`mark_uninterrupted`). There the
handler raises the interrupt again a millisecond later.

A program keeps a handler of its own. A host without Python gets its signals itself.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

from ._native import lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])
    T = TypeVar("T")


#: The file name of a compiled entry point begins with this (plugins/sdk/wrap.py).
ENTRY: Final = "<entry point "

_stoppable: Final[set[CodeType]] = set()
_weak: Final[Any] = weakref  # its callbacks have no types
#: Python's own are there from the start. A thread that is interrupted while it starts another one
#: gets a RuntimeError of a lock.
_uninterrupted: Final[set[CodeType]] = {
    threading.Thread.start.__code__,
    _weak.finalize.__call__.__code__,
    *(
        kind()._remove.__code__
        for kind in (_weak.WeakSet, _weak.WeakKeyDictionary, _weak.WeakValueDictionary)
    ),
}
_leaves_waits: Final[set[CodeType]] = set()
#: The real paths of adapters whose waits are all `mark_stoppable`.
_stoppable_libraries: Final[set[str]] = set()
_put_off: Callable[[], None] | None = None
_is_put_off: Callable[[], bool] | None = None


def defer_interrupts(put_off: Callable[[], None], is_put_off: Callable[[], bool]) -> None:
    """Install the handler for a program that calls entry points.

    Args:
        put_off: has the interrupt raised again when the outermost entry point returns.
        is_put_off: whether that is still to happen.
    """
    global _put_off, _is_put_off
    _put_off, _is_put_off = put_off, is_put_off
    protect_finalizers()


def protect_finalizers() -> None:
    """Install the handler, if this is the main thread and Python's default handler is installed.

    A notebook installs Python's again for each cell. So this is called again, too.
    """
    if is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle_interrupt)


def is_main_thread() -> bool:
    """Whether signal handlers run in this thread."""
    return threading.get_ident() == threading.main_thread().ident


def _get_code(function: Any) -> CodeType:
    return function.__code__


def mark_stoppable(function: _Function) -> _Function:
    """Declare that KeyboardInterrupt may be raised in a function, even while an entry point runs
    it.

    It is a decorator. The function calls `stop_if_interrupted` first, because Ctrl-C may have come
    earlier in the entry point.
    """
    _stoppable.add(_get_code(function))
    return function


def mark_leaving_waits(function: _Function) -> _Function:
    """Declare that Ctrl-C may end early the entry points that a function calls. A decorator."""
    _leaves_waits.add(_get_code(function))
    return function


def mark_uninterrupted(function: _Function) -> _Function:
    """Declare that KeyboardInterrupt comes after a function, and never in it. A decorator."""
    _uninterrupted.add(_get_code(function))
    return function


def declare_stoppable(library: str) -> None:
    """Declare that all waits of an adapter, given by its real path, are stoppable."""
    _stoppable_libraries.add(library)


def is_stoppable(library: str) -> bool:
    """Whether Ctrl-C ends all waits of an adapter, given by its real path."""
    return library in _stoppable_libraries


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if one was put off and the caller of the entry point expects it.

    Only the main thread calls this.
    """
    if _is_put_off is not None and _is_put_off() and _StackPlace(sys._getframe(1)).may_stop:
        raise KeyboardInterrupt


def run_aside(work: Callable[[], T]) -> T:
    """Call `work`, and return what it returns. Ctrl-C ends the wait for it.

    In the main thread, another thread calls `work` and continues after an interrupt. `work` must
    keep alive what it uses.

    Raises:
        KeyboardInterrupt: The program was interrupted.
        BaseException: What `work` raised.
    """
    if not is_main_thread():
        return work()
    results: list[T] = []
    done, errors = threading.Event(), list[BaseException]()

    def call() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    try:
        threading.Thread(target=call, name="fairlead-aside", daemon=True).start()
    except RuntimeError:  # no more threads can be started, or the process is ending
        return work()
    _wait(done)
    if errors:
        raise errors[0]
    return results[0]


_SLICE: Final = 0.004  # seconds
_FASTEST_GROWTH: Final = 64


def split_repetitions(total: int) -> Iterator[int]:
    """Split many repetitions, which C makes, into parts of some milliseconds each.

    Python handles signals between the parts.

    Yields:
        How many to make next. The time until the next request counts as the time of this part.
    """
    count = 1
    while total:
        count = min(count, total)
        begin = time.perf_counter()
        yield count
        total -= count
        took = time.perf_counter() - begin
        count = max(1, int(count * min(_FASTEST_GROWTH, _SLICE / max(took, 1e-9))))


@mark_stoppable
def _wait(done: threading.Event) -> None:
    stop_if_interrupted()
    done.wait()


class _StackPlace:
    """Where the main thread is.

    Attributes:
        boundary: the innermost function that must not be cut off; None if there is none.
        in_entry: whether that is an entry point.
        in_finalizer: whether a `__del__` runs inside of it.
        may_stop: whether an exception may be raised here.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self.boundary: CodeType | None = None
        self.in_finalizer = stops = expected = False
        while frame is not None:
            code = frame.f_code
            if self.boundary is None:
                stops = stops or code in _stoppable
                self.in_finalizer = self.in_finalizer or code.co_name == "__del__"
            frame = frame.f_back
            if _is_entry(code) or code in _uninterrupted:
                self.boundary = self.boundary or code
                expected = frame is not None and frame.f_code in _leaves_waits  # of the outermost
        self.in_entry = self.boundary is not None and _is_entry(self.boundary)
        self.may_stop = not self.in_finalizer and (
            self.boundary is None or (self.in_entry and stops and expected)
        )


def _is_entry(code: CodeType) -> bool:
    return code.co_filename.startswith(ENTRY)


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    place = _StackPlace(frame)
    if place.in_entry:
        assert _put_off is not None  # it was given with the handler
        _put_off()
    # If it can't be deferred, Python says that it drops it.
    if place.may_stop or (not place.in_entry and lib.fl_interrupt_later()):
        signal.default_int_handler(number, frame)
