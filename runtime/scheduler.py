"""The scheduler: gives a command to the adapter once the adapter can wait for what it comes after.

An adapter orders commands by its own events. The scheduler waits for what the adapter does not
know: host tasks, open host accessors, and events of other contexts. `submit` is its entry. A
command without such a dependency goes to the adapter at once, in the caller's thread. Any other
becomes a `Deferred`, which counts what it waits for. The thread that brings the count to zero hands
the command over. Host tasks run in worker threads, which first wait for the device's events.

A command that depends on a failed one is not run. It fails with the same error, which `wait`
raises. One that only comes after its end is run. At the end of the process, commands that have not
begun are dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import call_in_child, make_lock
from .errors import SYCLError, make_invalid_error
from .event import Event
from .handles import make_handle_array
from .workers import has_ended, mark_adapter_call, run_in_worker

if TYPE_CHECKING:
    from .context import Context

#: Enqueues a command after `count` events, and gives its own event's handle: `enqueue(count,
#: handles)`.
Enqueue = Callable[[int, Any], int]

_lock: Final = make_lock()  # of all Deferred: what they wait for, and who waits for them


class Deferred:
    """A command that the adapter does not have yet.

    Args:
        event: the event of the command's end.
        dependencies: the events that it depends on: if one fails, the action is not called.
        action: is called when none of all events is deferred any more. It has to call `resolve`.
        ends: further events that it comes after, whether they fail or not.
    """

    __slots__ = (
        "_done",
        "_waiting",
        "action",
        "dependencies",
        "ends",
        "event",
        "followers",
        "running",
    )

    def __init__(
        self,
        event: Event,
        dependencies: Sequence[Event],
        action: Callable[[Deferred], None],
        ends: Sequence[Event] = (),
    ) -> None:
        self.event = event
        self._done = threading.Event()
        self._waiting = 1  # one for `start`, so that nobody is faster
        self.dependencies, self.ends = dependencies, ends
        self.followers: list[Deferred] = []
        self.action = action
        self.running = False

    @property
    def status(self) -> str:
        """ "submitted" or "running", as an event's status."""
        return "running" if self.running else "submitted"

    def wait(self) -> None:
        """Wait until the adapter has the command, or until the host task has ended. Raises
        SYCLError (invalid) if that waits for this thread."""
        check_no_deadlock((self.event,), "wait")
        self._done.wait()

    def start(self) -> None:
        """Begin to wait for the dependencies. The action may be called at once."""
        with _lock:
            for event in (*self.dependencies, *self.ends):
                if event.deferred is not None:
                    event.deferred.followers.append(self)
                    self._waiting += 1
        self.note_ended_dependency()

    def note_ended_dependency(self) -> None:
        """Count one dependency less."""
        with _lock:
            self._waiting -= 1
            ready = self._waiting == 0
        if not ready or has_ended():
            return
        error = next((event.error for event in self.dependencies if event.error is not None), None)
        if error is not None:
            self.resolve(error=error)
        else:
            try:
                self.action(self)
            except SYCLError as failure:  # no thread could be started for it
                self.resolve(error=failure)

    def resolve(self, handle: int = 0, error: BaseException | None = None) -> None:
        """Record that the adapter has the command, that it has run, or that it failed. Those that
        waited for it go on."""
        event = self.event
        _own.pop(self, None)
        with _lock:
            event.handle, event.error = handle, error
            event.deferred = None
            followers, self.followers = self.followers, []
        self.dependencies = self.ends = ()
        self._done.set()
        _notify(followers)


#: What waits for a thread: open host accessors, and the host tasks that run.
_own: Final[dict[Deferred, int]] = {}


@call_in_child
def _forget() -> None:
    """Forget what the parent's threads have open."""
    _own.clear()


def check_no_deadlock(events: Iterable[Event], routine: str) -> None:
    """Raise SYCLError (invalid) if events come after something that this thread has to end. A wait
    for them would never end."""
    me = threading.get_ident()
    if me not in _own.values():
        return
    with _lock:
        waiting = [part.deferred for event in events for part in event.parts()]
        seen: set[Deferred] = set()
        while waiting:
            deferred = waiting.pop()
            if deferred is None or deferred in seen:
                continue
            if _own.get(deferred) == me:
                raise make_invalid_error(
                    "this thread would wait for itself: for a host accessor that it has open, or "
                    "for the host task that it runs",
                    routine=routine,
                    remedy="wait after the block of buffer.host_access(), and not in host tasks",
                )
            seen.add(deferred)
            waiting += [event.deferred for event in (*deferred.dependencies, *deferred.ends)]


class _ThreadAgenda(threading.local):
    agenda: deque[Deferred] | None = None


_here: Final = _ThreadAgenda()


def _notify(followers: Iterable[Deferred]) -> None:
    """Tell deferred commands that a dependency has ended. It is done one after the other, without
    recursion: chains of commands can be long."""
    agenda = _here.agenda
    if agenda is not None:
        agenda.extend(followers)
        return
    agenda = _here.agenda = deque(followers)
    try:
        while agenda:
            agenda.popleft().note_ended_dependency()
    finally:
        _here.agenda = None


def submit(
    context: Context, enqueue: Enqueue, dependencies: Sequence[Event], ends: Sequence[Event] = ()
) -> Event:
    """Call `enqueue` as soon as the adapter can wait for all events: now, if it can.

    Args:
        context: where the command runs.
        enqueue: gives it to the adapter.
        dependencies: the events that it depends on.
        ends: further events that it comes after, also if they fail.

    Returns:
        The event of its end.
    """
    handles = []
    for event in (*dependencies, *ends):
        if (
            event.others
            or event.deferred is not None
            or event.error is not None
            or event.context is not context
        ):
            return _submit_parts(context, enqueue, dependencies, ends)
        if event.handle:
            handles.append(event.handle)
    return Event(context, enqueue(len(handles), make_handle_array(handles)))


def _list_parts(events: Iterable[Event]) -> list[Event]:
    return [part for event in events for part in event.parts()]


def _submit_parts(
    context: Context, enqueue: Enqueue, dependencies: Iterable[Event], ends: Iterable[Event]
) -> Event:
    """Do what `submit` does, for events of every kind."""
    event = Event(context)
    parts, ended = _list_parts(dependencies), _list_parts(ends)
    all_parts = [*parts, *ended]
    if not any(
        part.deferred is not None or (part.handle and part.context is not context)
        for part in all_parts
    ) and not any(part.error is not None for part in parts):
        handles = [part.handle for part in all_parts if part.handle]
        event.handle = enqueue(len(handles), make_handle_array(handles))
        return event

    def hand_over(deferred: Deferred) -> None:
        elsewhere = [part for part in all_parts if part.handle and part.context is not context]
        if elsewhere:
            run_in_worker(lambda: _act_after_waiting(deferred, elsewhere, give))
        else:
            give(deferred)

    def give(deferred: Deferred) -> None:
        here = [part.handle for part in all_parts if part.handle and part.context is context]
        with mark_adapter_call() as go:
            if go:
                _resolve_with(
                    deferred, lambda: enqueue(len(here), make_handle_array(here)), gives_handle=True
                )

    return _defer(Deferred(event, parts, hand_over, ended))


def run_on_host(
    context: Context | None,
    work: Callable[[], object],
    dependencies: Iterable[Event],
    ends: Iterable[Event] = (),
) -> Event:
    """Call `work` in a worker thread when all events are complete.

    Args:
        dependencies: the events that it depends on.
        ends: further events that it comes after, also if they fail.

    Returns:
        The event of its end.
    """
    parts, ended = _list_parts(dependencies), _list_parts(ends)
    all_parts = [*parts, *ended]

    def call(deferred: Deferred) -> None:
        run_in_worker(lambda: _act_after_waiting(deferred, all_parts, run))

    def run(deferred: Deferred) -> None:
        deferred.running = True
        _own[deferred] = threading.get_ident()
        _resolve_with(deferred, work)

    return _defer(Deferred(Event(context), parts, call, ended))


def open_event(context: Context | None) -> tuple[Event, Callable[[BaseException | None], None]]:
    """Return an event, and the function that completes it. With an error, the function lets it
    fail. For host accessors, which commands wait for."""
    event = Event(context)
    deferred = event.deferred = Deferred(event, (), lambda deferred: None)
    _own[deferred] = threading.get_ident()
    return event, lambda error: deferred.resolve(error=error)


def _defer(deferred: Deferred) -> Event:
    event = deferred.event
    event.deferred = deferred
    deferred.start()
    return event


def _act_after_waiting(
    deferred: Deferred, events: Iterable[Event], action: Callable[[Deferred], None]
) -> None:
    """Wait for events of the device in a worker, then act. Whoever waits for the command gets an
    error."""
    failed = _wait_for(events, deferred.dependencies)
    if failed is not None:
        deferred.resolve(error=failed)
    elif not has_ended():
        action(deferred)


def _wait_for(events: Iterable[Event], dependencies: Container[Event]) -> BaseException | None:
    """Wait for all events. Returns the first error of those that are dependencies."""
    failed = None
    with mark_adapter_call() as go:
        for event in events if go else ():
            try:
                event.wait()
            except BaseException as error:
                if event in dependencies:
                    failed = failed or error
    return failed


def _resolve_with(
    deferred: Deferred, work: Callable[[], Any], *, gives_handle: bool = False
) -> None:
    try:
        result = work()
    except BaseException as error:  # SystemExit of a host task, too: nobody must wait for ever
        deferred.resolve(error=error)
    else:
        deferred.resolve(result if gives_handle else 0)
