"""The scheduler: gives a command to the adapter when everything is there that the adapter itself cannot wait for.

An adapter orders commands by its own events. What it knows nothing of, the scheduler waits for: host tasks, open host accessors, and
events of other contexts. `submit` is the one way in. A command with no such dependency is handed over at once, in the caller's
thread, and the scheduler is a list of handles and nothing else. Any other becomes a `Deferred`, which counts what it still waits
for; whoever takes that to zero hands the command over. Host tasks run in worker threads, which first wait for the device's events.

A command that comes after one that failed is not run: it fails with the same error, which `wait` raises. What has not begun when
the process ends is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import in_child, new_lock
from .errors import invalid
from .event import Event
from .handles import handle_array

if TYPE_CHECKING:
    from .context import Context

#: Enqueues a command after `count` events, and gives its own event's handle: `enqueue(count, handles)`.
Enqueue = Callable[[int, Any], int]

_lock: Final = new_lock()  # of all Deferred: what they wait for, and who waits for them
_USUAL_WORKERS: Final = 64  # more host tasks than that at the same time take their turns, unless nothing goes on any more
_PATIENCE: Final = 0.05  # seconds without a turn after which there are more


class _Workers:
    """Threads that come when there is work and none of them is idle. The end of the process waits for none: a host task may never end."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = new_lock()
        self._idle = self._count = self._taken = 0
        self._watched = False

    def add(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._work.put(work)
            if self._idle:
                self._idle -= 1
            elif self._count < _USUAL_WORKERS:
                self._count += self._begin(self._run, self._count + 1)
                if not self._count:
                    raise RuntimeError("no thread can be started for host tasks")
            elif not self._watched:
                self._watched = self._begin(self._watch, 0)

    @staticmethod
    def _begin(what: Callable[[], object], number: int) -> bool:
        """Whether a thread could be started: else there are too many, or the process is ending, and those that there are will do it."""
        try:
            threading.Thread(target=what, name=f"fairlead-{number}", daemon=True).start()
        except RuntimeError:
            return False
        return True

    def _watch(self) -> None:
        """Twice as many threads whenever none takes any of the work that there is: what they are doing may be waiting for it."""
        taken = -1
        while True:
            time.sleep(_PATIENCE)
            with self._lock:
                if self._work.empty() or _ended:
                    self._watched = False
                    return
                if taken == self._taken:
                    for _ in range(min(self._work.qsize(), self._count)):
                        self._count += self._begin(self._run, self._count + 1)
                taken = self._taken

    def _run(self) -> None:
        while True:
            work = self._work.get()
            self._taken += 1
            if _ended:
                return
            work()
            del work  # and what it holds
            with self._lock:
                if self._work.empty():
                    self._idle += 1


_workers = _Workers()


@in_child
def _forget() -> None:
    """The threads are the parent's."""
    global _workers, _changed, _in_adapters
    _workers, _changed, _in_adapters = _Workers(), threading.Condition(), 0
    _own.clear()


_ended = False
_in_adapters = 0  # threads that call an adapter for a deferred command
_changed = threading.Condition()


@contextmanager
def adapter_call() -> Iterator[bool]:
    """Go to an adapter, unless the process is ending."""
    global _in_adapters
    with _changed:
        go = not _ended
        _in_adapters += go
    try:
        yield go
    finally:
        with _changed:
            _in_adapters -= go
            _changed.notify_all()


def stop_starting() -> None:
    """The process ends: nothing begins any more."""
    global _ended
    with _changed:
        _ended = True


def wait_for_adapter_calls() -> None:
    """Wait until no thread is in an adapter on the scheduler's behalf: after that, adapters can be closed."""
    with _changed:
        _changed.wait_for(lambda: not _in_adapters)


def run_in_worker(work: Callable[[], object]) -> None:
    """Run `work`, which raises nothing, in a thread of the scheduler's."""
    _workers.add(work)


class Deferred:
    """What is known of a command that the adapter does not have yet: `action` is called when none of its dependencies is deferred any
    more, and then has to `resolve` it. One that is `always` called is called after an error too."""

    __slots__ = (
        "_done",
        "_waiting",
        "action",
        "always",
        "dependencies",
        "event",
        "followers",
        "running",
    )

    def __init__(
        self,
        event: Event,
        dependencies: Sequence[Event],
        action: Callable[[Deferred], None],
        *,
        always: bool = False,
    ) -> None:
        self.event = event
        self._done = threading.Event()
        self._waiting = 1  # one for `start`, so that nobody is faster
        self.dependencies: Sequence[Event] = dependencies
        self.followers: list[Deferred] = []
        self.action = action
        self.always = always
        self.running = False

    @property
    def status(self) -> str:
        """ "submitted" or "running", as an event's status."""
        return "running" if self.running else "submitted"

    def wait(self) -> None:
        """Wait until the command is with the adapter, a host task until it has ended. Raises SYCLError (invalid) if it waits for this
        thread."""
        check_no_deadlock((self.event,), "wait")
        self._done.wait()

    def start(self) -> None:
        """Begin to wait for the dependencies; the action follows, perhaps at once."""
        with _lock:
            for event in self.dependencies:
                if event.deferred is not None:
                    event.deferred.followers.append(self)
                    self._waiting += 1
        self.dependency_ended()

    def dependency_ended(self) -> None:
        """One thing less to wait for."""
        with _lock:
            self._waiting -= 1
            ready = self._waiting == 0
        if not ready or _ended:
            return
        error = (
            None
            if self.always
            else next((event.error for event in self.dependencies if event.error is not None), None)
        )
        if error is not None:
            self.resolve(error=error)
        else:
            self.action(self)

    def resolve(self, handle: int = 0, error: BaseException | None = None) -> None:
        """The command is with the adapter, has run, or has failed: who waited for that goes on."""
        event = self.event
        _own.pop(self, None)
        with _lock:
            event.handle, event.error = handle, error
            event.deferred = None
            followers, self.followers = self.followers, []
        self.dependencies = ()
        self._done.set()
        _notify(followers)


#: What waits for a thread: open host accessors, and the host tasks that run.
_own: Final[dict[Deferred, int]] = {}


def check_no_deadlock(events: Iterable[Event], routine: str) -> None:
    """Raise SYCLError (invalid) if events come after what this thread itself has to end: who waited for them would wait for ever."""
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
                raise invalid(
                    "this thread would wait for itself: for a host accessor that it has open, or for the host task that it runs",
                    routine=routine,
                    remedy="wait after the block of buffer.host_access(), and not in host tasks",
                )
            seen.add(deferred)
            waiting += [event.deferred for event in deferred.dependencies]


class _ThreadAgenda(threading.local):
    agenda: deque[Deferred] | None = None


_here: Final = _ThreadAgenda()


def _notify(followers: Iterable[Deferred]) -> None:
    """They have one thing less to wait for; one after the other, and not one within the other: chains of commands can be long."""
    agenda = _here.agenda
    if agenda is not None:
        agenda.extend(followers)
        return
    agenda = _here.agenda = deque(followers)
    try:
        while agenda:
            agenda.popleft().dependency_ended()
    finally:
        _here.agenda = None


def submit(context: Context, dependencies: Sequence[Event], enqueue: Enqueue) -> Event:
    """Have `enqueue` called when all dependencies can be waited for by the adapter; at once if they can be now."""
    handles = []
    for event in dependencies:
        if (
            event.others
            or event.deferred is not None
            or event.error is not None
            or event.context is not context
        ):
            return _submit_parts(context, dependencies, enqueue)
        if event.handle:
            handles.append(event.handle)
    return Event(context, enqueue(len(handles), handle_array(handles)))


def _submit_parts(context: Context, dependencies: Iterable[Event], enqueue: Enqueue) -> Event:
    """As `submit`, for whatever events."""
    event = Event(context)
    all_parts = [part for dependency in dependencies for part in dependency.parts()]
    if not any(
        part.deferred is not None
        or part.error is not None
        or (part.handle and part.context is not context)
        for part in all_parts
    ):
        handles = [part.handle for part in all_parts if part.handle]
        event.handle = enqueue(len(handles), handle_array(handles))
        return event

    def hand_over(deferred: Deferred) -> None:
        elsewhere = [part for part in all_parts if part.handle and part.context is not context]
        if elsewhere:
            run_in_worker(lambda: _after_waiting(deferred, elsewhere, give))
        else:
            give(deferred)

    def give(deferred: Deferred) -> None:
        here = [part.handle for part in all_parts if part.handle and part.context is context]
        with adapter_call() as go:
            if go:
                _resolve_with(
                    deferred, lambda: enqueue(len(here), handle_array(here)), gives_handle=True
                )

    return _defer(Deferred(event, all_parts, hand_over))


def run_on_host(
    context: Context | None,
    dependencies: Iterable[Event],
    work: Callable[[], object],
    *,
    always: bool = False,
) -> Event:
    """Have `work` called in a worker thread after all dependencies are complete; `always`, also after those that have failed."""
    all_parts = [part for dependency in dependencies for part in dependency.parts()]

    def call(deferred: Deferred) -> None:
        run_in_worker(lambda: _after_waiting(deferred, all_parts, run))

    def run(deferred: Deferred) -> None:
        deferred.running = True
        _own[deferred] = threading.get_ident()
        _resolve_with(deferred, work)

    return _defer(Deferred(Event(context), all_parts, call, always=always))


def open_event(context: Context | None) -> tuple[Event, Callable[[BaseException | None], None]]:
    """An event that completes when the function is called, or fails if that is given an error: of a host accessor, which commands on its
    buffer have to wait for."""
    event = Event(context)
    deferred = event.deferred = Deferred(event, (), lambda deferred: None)
    _own[deferred] = threading.get_ident()
    return event, lambda error: deferred.resolve(error=error)


def _defer(deferred: Deferred) -> Event:
    event = deferred.event
    event.deferred = deferred
    deferred.start()
    return event


def _after_waiting(
    deferred: Deferred, events: Iterable[Event], action: Callable[[Deferred], None]
) -> None:
    """In a worker: wait for events of the device, then act; an error goes to whoever waits for the command."""
    failed = _wait_for(events)
    if failed is not None and not deferred.always:
        deferred.resolve(error=failed)
    elif not _ended:
        action(deferred)


def _wait_for(events: Iterable[Event]) -> BaseException | None:
    """Wait for all events; the answer is the first error."""
    failed = None
    with adapter_call() as go:
        for event in events if go else ():
            try:
                event.wait()
            except BaseException as error:
                failed = failed or error
    return failed


def _resolve_with(
    deferred: Deferred, work: Callable[[], Any], *, gives_handle: bool = False
) -> None:
    try:
        result = work()
    except (
        BaseException
    ) as error:  # also a SystemExit of a host task: it must not leave those who wait hanging
        deferred.resolve(error=error)
    else:
        deferred.resolve(result if gives_handle else 0)
