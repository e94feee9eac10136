"""The scheduler: gives a command to the adapter when everything is there that the adapter itself cannot wait for.

An adapter orders commands by its own events. What it knows nothing of, the scheduler waits for: host tasks, open host accessors, and
events of other contexts. `submit` is the one way in. A command with no such dependency is handed over at once, in the caller's
thread, and the scheduler is a list of handles and nothing else. Any other becomes a `Deferred`, which counts what it still waits
for; whoever takes that to zero hands the command over. Host tasks run in worker threads, which first wait for the device's events.

A command that comes after one that failed is not run: it fails with the same error, which `wait` raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from ..loader.forks import in_child, new_lock
from .event import Event
from .handles import array

if TYPE_CHECKING:
    from .context import Context

#: Enqueues a command after `count` events, and gives its own event's handle: `enqueue(count, handles)`.
Enqueue = Callable[[int, Any], int]

_lock: Final = new_lock()  # of all Deferred: what they wait for, and who waits for them
_MOST_WORKERS: Final = 64  # more host tasks than that at the same time take their turns
_workers: ThreadPoolExecutor | None = None


def _forget() -> None:
    global _workers
    _workers = None


in_child(_forget)  # its threads are its parent's


def in_worker(work: Callable[[], object]) -> None:
    """Run `work` in a thread of the scheduler's."""
    global _workers
    if _workers is None:
        with _lock:
            _workers = _workers or ThreadPoolExecutor(_MOST_WORKERS, "fairlead")
    _workers.submit(work)


class Deferred:
    """What is known of a command that the adapter does not have yet."""

    __slots__ = ("_done", "_event", "_waiting", "action", "dependencies", "followers", "running")

    def __init__(self, event: Event, dependencies: Sequence[Event], action: Callable[[Deferred], None]) -> None:
        self._event = event
        self._done = threading.Event()
        self._waiting = 1  # one for `start`, so that nobody is faster
        self.dependencies: Sequence[Event] = dependencies
        self.followers: list[Deferred] = []
        self.action = action
        self.running = False

    @property
    def status(self) -> str:
        """ "submitted" or "running", as an event's status."""
        return "running" if self.running else "submitted"

    def wait(self) -> None:
        """Wait until the command is with the adapter, a host task until it has ended."""
        self._done.wait()

    def start(self) -> None:
        """Begin to wait for the dependencies; the action follows, perhaps at once."""
        with _lock:
            for event in self.dependencies:
                if event.deferred is not None:
                    event.deferred.followers.append(self)
                    self._waiting += 1
        self.one_less()

    def one_less(self) -> None:
        """One thing less to wait for."""
        with _lock:
            self._waiting -= 1
            ready = self._waiting == 0
        if not ready:
            return
        error = next((event.error for event in self.dependencies if event.error is not None), None)
        if error is not None:
            self.resolve(error=error)
        else:
            self.action(self)

    def resolve(self, handle: int = 0, error: BaseException | None = None) -> None:
        """The command is with the adapter, has run, or has failed: who waited for that goes on."""
        event = self._event
        with _lock:
            event.handle, event.error = handle, error
            event.deferred = None
            followers, self.followers = self.followers, []
        self.dependencies = ()
        self._done.set()
        for follower in followers:
            follower.one_less()


def submit(context: Context, dependencies: Iterable[Event], enqueue: Enqueue, event: Event | None = None) -> Event:
    """Have `enqueue` called when all dependencies can be waited for by the adapter; at once if they can be now."""
    event = event or Event(context)
    handles = []
    wait = False
    all_parts = [part for dependency in dependencies for part in (dependency.parts() if dependency.others else (dependency,))]
    for part in all_parts:
        if part.deferred is not None or part.error is not None or (part.handle and part.context is not context):
            wait = True
        elif part.handle:
            handles.append(part.handle)
    if not wait:
        event.handle = enqueue(len(handles), array(handles))
        return event

    def hand_over(deferred: Deferred) -> None:
        here = [part for part in all_parts if part.handle and part.context is context]
        if any(part.handle and part.context is not context for part in all_parts):
            in_worker(lambda: _after_waiting(deferred, [part for part in all_parts if part not in here], give))
        else:
            give(deferred)

    def give(deferred: Deferred) -> None:
        here = [part.handle for part in all_parts if part.handle and part.context is context]
        _resolve_with(deferred, lambda: enqueue(len(here), array(here)))

    deferred = event.deferred = Deferred(event, all_parts, hand_over)
    deferred.start()
    return event


def run_on_host(
    context: Context | None, dependencies: Iterable[Event], work: Callable[[], object], event: Event | None = None
) -> Event:
    """Have `work` called in a worker thread after all dependencies are complete."""
    event = event or Event(context)
    all_parts = [part for dependency in dependencies for part in dependency.parts()]

    def call(deferred: Deferred) -> None:
        in_worker(lambda: _after_waiting(deferred, all_parts, run))

    def run(deferred: Deferred) -> None:
        deferred.running = True

        def done() -> int:
            work()
            return 0

        _resolve_with(deferred, done)

    event.deferred = Deferred(event, all_parts, call)
    event.deferred.start()
    return event


def held_open(context: Context | None) -> tuple[Event, Callable[[], None]]:
    """An event that completes when the function is called: of a host accessor, which commands on its buffer have to wait for."""
    event = Event(context)
    deferred = event.deferred = Deferred(event, (), lambda deferred: None)
    return event, lambda: deferred.resolve()


def _after_waiting(deferred: Deferred, events: Iterable[Event], action: Callable[[Deferred], None]) -> None:
    """In a worker: wait for events of the device, then act; an error goes to whoever waits for the command."""
    try:
        for event in events:
            event.wait()
    except Exception as error:
        deferred.resolve(error=error)
    else:
        action(deferred)


def _resolve_with(deferred: Deferred, work: Callable[[], int]) -> None:
    try:
        handle = work()
    except BaseException as error:  # also a SystemExit of a host task: it must not leave those who wait hanging
        deferred.resolve(error=error)
    else:
        deferred.resolve(handle)
