"""Captured commands in executable graphs: their partitions are command-buffers of icd, on any
adapter.

A `CapturedSegment` runs on native queues: on that of a runtime queue, as part of a graph, or on a
pyopencl queue (`run`). Events cross over as native handles.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..graph.segments import Enqueue, Segment
from ..icd._native import ffi, lib
from ..icd.calls import (
    call,
    enqueue_marker,
    find_device_profile,
    get_address,
    is_in_order,
    query_device,
    query_properties,
    query_status,
)
from ..icd.command_buffer.cells import Cells
from ..icd.command_buffer.choice import choose
from ..icd.command_buffer.command_buffer import CommandBuffer, Route
from ..icd.command_buffer.engine import Use
from ..icd.command_buffer.lifetimes import Lifetimes
from ..icd.command_buffer.rewrites.rewriting import Rewriting
from ..icd.errors import OpenCLError, describe
from ..loader.base.ends import call_at_end
from ..loader.base.forks import call_in_child, make_lock
from ..loader.base.interrupts import split_repetitions
from ..runtime.event import Event
from ..runtime.handles import make_struct
from .commands import CapturedLaunch, as_captured
from .pyopencl_client import find_sources, find_wholes, keep_sources
from .segment_commands import SegmentCommands
from .settings import Contents, ParameterSettings

if TYPE_CHECKING:
    from ..runtime.commands import Command
    from ..runtime.context import Context
    from ..runtime.queue import Queue

_OWNED: Final = make_struct("ur_event_native_properties_t", isNativeHandleOwned=True)


class ReplayError(OpenCLError):
    """A command failed while it was enqueued. `node` is its index in the graph, -1 for a barrier.

    The commands before it run. The graph is unchanged and can be replayed again.
    """

    def __init__(self, message: str, *, node: int, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.node = node


#: How the last replay of a segment is repeated, once and after nothing else:
#:
#: - the class of the pyopencl queue, and its handle;
#: - `enqueue` is given `native`. It returns the event of the end, a reference for the caller; 0 if
#:   `CapturedSegment.run` has to do it; or OpenCL's code, which is negative;
#: - `run`, the same for `CapturedSegment.run_here`: it returns 1 when it has ended. None if no
#:   engine can do that;
#: - `native`, what both are given, and the route that it belongs to;
#: - `to_event` makes a pyopencl event of a handle, and takes its reference if told not to retain;
#: - `join`, the same as `enqueue`, given the last event's handle, too, if nobody else has that. It
#:   returns 1 if that is the event of the end. None if the engine has no such enqueues;
#: - the address of `native` where `run`, and where `enqueue` alone, is C's, for C
#:   (native/replay_method.c). 0 where Python has a part;
#: - the pyopencl queue itself: no other one has its address while it lives;
#: - what `run` returns to the program, None if there is none yet.
#:
#: It is one object, so that threads never see the queue of one replay with the route of another. It
#: is a plain tuple, because Python takes that apart faster than one with names.
Repeat = tuple[
    type,
    int,
    Callable[[Any], int],
    Callable[[Any], int] | None,
    Any,
    Route,
    Callable[[int, bool], Any],
    Callable[[Any, int], int] | None,
    int,
    int,
    Any,
    Any,
]


def _look_again(_: Any) -> int:
    """Let Python look whether another way to run suits such replays."""
    return 0


#: What dropped segments used.
_unfinished: Final = Lifetimes()
_living: Final[weakref.WeakSet[CapturedSegment]] = weakref.WeakSet()


class CapturedSegment(Segment):
    """Captured commands that are enqueued as one. Thread-safe: each enqueue comes after the one
    before.

    Attributes:
        settings: those of the commands' Parameters, None if there are none.
    """

    def __init__(self, commands: SegmentCommands) -> None:
        self._commands, self._listed = commands, commands.listed
        self.settings = commands.settings
        pending = (event for block in commands.blocks for event in block.recording.pending)
        self._pending = list(dict.fromkeys(pending))
        self._lock = make_lock()
        self._buffer = CommandBuffer(self._listed)
        _living.add(self)
        _unfinished.release_finished()

    def suggest_speedup(self) -> str | None:
        """Return what the program could do so that a replay is faster, None if nothing is known."""
        device, engines = self._listed.devices[0], choose(self._listed.context).engines
        advice = (engine.suggest_speedup(self._listed, device) for engine in engines)
        return next(filter(None, advice), None)

    @property
    def fused(self) -> Mapping[tuple[int, ...], str]:
        """The sources of the fused kernels, by the nodes that they stand for."""
        rewriting = self._buffer.plans.rewriting
        rewritten = rewriting.rewritten if rewriting is not None else None
        found = rewritten.sources if rewritten is not None else {}
        nodes = self._commands.nodes
        return {tuple(nodes[one] for one in numbers): text for numbers, text in found.items()}

    @property
    def is_one_plain_launch(self) -> bool:
        """Whether it is one command, which nothing has rewritten or is going to."""
        rewriting = self._buffer.plans.rewriting
        rewritten = rewriting.rewritten if rewriting is not None else None
        stays = rewriting is None or (rewritten is not None and rewritten.commands is None)
        return stays and len(self._commands.nodes) == 1

    def get_label(self, node: int) -> str:
        """Return a line about a node, for people."""
        return self._commands.get_command(node).label

    def fuse(self, how: str | bool) -> None:
        """Let launches become one kernel (icd/command_buffer/rewrites/), in a thread.

        All segments of the graph are there: what another one uses is not hidden.

        Args:
            how: as `CapturedGraph.finalize` takes it.
        """
        if not how:
            return
        listed, cells = self._listed, self._commands.get_cells
        with self._lock:
            checks = how == "check"
            ask = find_sources, keep_sources, find_wholes
            rewriting = Rewriting(listed, *ask, cells, checks=checks)
            self._buffer.plans.rewrite(rewriting, wait=how != "auto")

    def reveal(self, memory: Collection[int]) -> None:
        """See `reveal_memory`."""
        with self._lock:
            self._buffer.plans.reveal(memory)

    # running

    def hold(self) -> AbstractContextManager[Any]:
        """Return what keeps other threads from setting and enqueueing it, in a `with` block."""
        return self._lock

    def set(self, values: Mapping[str, Any]) -> None:
        """Set Parameters, by name, for the next `run`.

        Raises:
            SYCLError: kernel_argument, for what a Parameter cannot be.
        """
        with self._lock:  # no more calls than these: each replay may come here
            self.stage(values)
            self.commit()

    def stage(self, values: Mapping[str, Any]) -> None:
        """Check values of Parameters, by name, for `commit`. Raises what `set` raises, and then
        stages none."""
        settings: Any = self.settings
        with self._lock:
            writers = settings.writers
            try:
                for name in values:
                    writers[name](values[name])
            except BaseException:
                settings.clear()
                raise

    def unstage(self) -> None:
        """Forget what was staged."""
        settings: Any = self.settings
        with self._lock:
            settings.clear()

    def commit(self) -> None:
        """Set what was staged."""
        settings: Any = self.settings
        with self._lock:
            self._buffer.plans.set_cells(settings.cells)
            if settings.memory and (gone := settings.commit_staged()):
                self._buffer.keep(_unfinished, gone)

    def read(self) -> Contents | None:
        """Return what the Parameters are now, None if there are none."""
        with self._lock:
            return self.settings.read() if self.settings is not None else None

    @contextmanager
    def having(self, contents: Contents | None) -> Iterator[None]:
        """Let the Parameters be what they were once. After the block they are what they were before
        it. Only this thread uses the segment meanwhile."""
        with self._lock:
            settings = self.settings
            if settings is None or contents is None:
                yield
                return
            before, drawn = settings.read(), settings.has_drawn
            self._put(contents.rows, before.rows)
            settings.has_drawn = contents.has_drawn
            try:
                yield
            finally:
                settings.has_drawn = drawn
                self._put(before.rows, contents.rows)
                gone = [one for one in contents.memory if one not in before.memory]
                if gone:
                    self._buffer.keep(_unfinished, gone)

    def _put(self, rows: Mapping[int, bytes], over: Mapping[int, bytes]) -> None:
        """Let cells hold other bytes, by their rows, than they do."""
        changed = {number: data for number, data in rows.items() if over.get(number) != data}
        if changed:
            cells: Any = self.settings and self.settings.cells
            cells.stage(changed)
            self._buffer.plans.set_cells(cells)

    def take(self) -> Enqueue:
        """Return what enqueues the segment with the Parameters that it has now."""
        with self._lock:
            if self.settings is None:
                return self.enqueue
            contents = self.settings.read()
            self.settings.has_drawn = False  # these random numbers are taken

        def enqueue(queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
            with self.having(contents):
                return self.enqueue(queue, count, waits, times)

        return enqueue

    def run(
        self, queue: int, times: int, waits: list[int], series: Mapping[str, Any] | None = None
    ) -> tuple[int, int]:
        """Enqueue the segment `times` times on a native queue after events.

        Args:
            queue: a handle.
            times: at least 1.
            waits: events, handles.
            series: for Parameters by name, an array of a value for each time.

        Returns:
            The events of its end and, if it is profiled, of its first command. The second is 0 if
                the first has both times. The references are the caller's.

        Raises:
            ReplayError: a command could not be enqueued.
            OpenCLError: a command from before the capture has failed.
        """
        with self._lock:
            if self._pending:
                waits += self._list_pending()
            if series or (self.settings is not None and self.settings.changes):
                return self._run_series(queue, times, waits, series or {})
            if self._listed.first is None:
                return self._run(queue, times, waits)
            return self._run_profiled(queue, times, waits)

    def _run_profiled(self, queue: int, times: int, waits: Sequence[int]) -> tuple[int, int]:
        end, first = self._run(queue, 1, waits)
        if times > 1:
            last, again = self._run(queue, times - 1, waits)
            for event in (end, again) if first else ():
                call(event, "clReleaseEvent")
            end, first = last, first or end
        profile = find_device_profile(query_device(queue))
        if (
            first
            and profile.waiting_markers_have_no_times
            and not is_in_order(query_properties(queue))
        ):
            call(end, "clReleaseEvent")
            end = enqueue_marker(queue, ())
        return end, first

    def prepare_repeat(self, queue: Any, handle: int, ended: Any) -> Repeat | None:
        """Return how the last `run` or `run_here` is repeated; None if it cannot be.

        Args:
            queue: a pyopencl.CommandQueue.
            ended: the event of replays that have ended in the caller's thread, or None.
        """
        import pyopencl

        with self._lock:
            route = None if self._pending else self._buffer.again
            if route is None:
                return None
            changes = self.settings is not None and self.settings.changes
            enqueue = self._enqueue_next if changes else lib.fl_enqueue_again
            run = lib.fl_run_again if route.runs_here else None
            if changes and run is not None:
                run = None if self._alternates() else self._run_next
            if not route.serves(Use.WAITED):
                run = _look_again
            if not route.serves(Use.ONCE):
                enqueue = _look_again
            to_event = pyopencl.Event.from_int_ptr
            joins = enqueue is lib.fl_enqueue_again and route.joins
            join = lib.fl_enqueue_joined if joins else None
            address = get_address(route.native)
            runs = address if run is lib.fl_run_again else 0
            enqueues = address if enqueue is lib.fl_enqueue_again and not joins else 0
            repeated = type(queue), handle, enqueue, run, route.native, route, to_event, join
            return *repeated, runs, enqueues, queue, ended

    def _alternates(self) -> bool:
        return self.settings is not None and bool(self.settings.alternations)

    def _enqueue_next(self, route: Any) -> int:
        """Enqueue it again, with the buffers and random numbers of its turn."""
        return self._take_turn(
            lambda cells, turn: lib.fl_enqueue_turn(route, cells.rows, cells.count, turn)
        )

    def _run_next(self, route: Any) -> int:
        """Run it again in this thread, with the random numbers of its turn."""
        return self._take_turn(lambda cells, turn: lib.fl_run_again(route))

    def _take_turn(self, run: Callable[[Cells, int], int]) -> int:
        settings = self.settings
        assert settings is not None
        with self._lock:
            before = self._buffer.enqueued
            try:
                if settings.draws.launches:
                    settings.draws.stage()
                    self._buffer.plans.set_cells(settings.cells)
                return run(settings.cells, settings.turn % 2)
            finally:
                settings.end_series(self._buffer.enqueued - before)

    def note_use(self, times: int, *, waited: bool) -> None:
        """Note what kind of replays come: `CommandBuffer.note_use`."""
        self._buffer.note_use(times, waited=waited)

    def run_here(self, queue: int, times: int) -> int:
        """Run the segment `times` times in this thread, after all of a native queue, to the end.

        Returns:
            How many times are left to be enqueued: all of them if no engine can do that.

        Raises:
            OpenCLError: a command has failed, or one from before the capture.
        """
        with self._lock:
            settings = self.settings
            if settings is not None and (self._alternates() or (settings.changes and times > 1)):
                return times
            if self._listed.first is not None or (self._pending and self._list_pending()):
                return times
            if settings is not None and settings.changes:
                return 0 if self._take_turn(lambda *_: self._buffer.run(queue, 1)) else times
            for count in split_repetitions(times) if times > 1 else (1,):
                if not self._buffer.run(queue, count):
                    break
                times -= count
            return times

    def find_addresses(self, queue: int, memory: Sequence[int]) -> list[int] | None:
        """Return where buffers lie in the host's memory: `CommandBuffer.addresses`."""
        with self._lock:
            return self._buffer.addresses(queue, memory)

    def run_until_here(
        self,
        queue: int,
        times: int,
        flag: tuple[int, int],
        *,
        is_set: bool = True,
        looks_first: bool = False,
        contents: Contents | None = None,
    ) -> tuple[int, bool]:
        """Run the segment in this thread until a word is not 0, after everything in a native queue.

        Args:
            queue: a handle.
            times: how often at most.
            flag: a memory object (a handle), and the offset of the word in it, in bytes.
            is_set: False to run it until the word is 0.
            looks_first: whether it is not run at all if the word is as wanted already.
            contents: what the Parameters are meanwhile, by default what is set.

        Returns:
            How often it was run, and whether the word was as wanted. If it was not, the other
                runs have to be enqueued.

        Raises:
            OpenCLError: a command has failed, or one from before the capture.
        """
        ran, stopped = 0, False
        for count in split_repetitions(times):
            with self.having(contents):
                first = looks_first and not ran
                done, stopped = self._run_until_here(queue, count, flag, is_set, first)
            ran += done
            if stopped or done < count:
                break
        return ran, stopped

    def _run_until_here(
        self, queue: int, times: int, flag: tuple[int, int], is_set: bool, first: bool
    ) -> tuple[int, bool]:
        if self._listed.first is not None or (self._pending and self._list_pending()):
            return 0, False
        settings, run = self.settings, self._buffer.run_until
        if settings is None or not settings.changes:
            return run(queue, times, flag, is_set=is_set, looks_first=first)
        settings.begin_series({}, times)
        settings.advance(0, times)
        before = self._buffer.enqueued
        try:
            return run(queue, times, flag, is_set=is_set, looks_first=first, series=settings.cells)
        finally:
            settings.end_series(self._buffer.enqueued - before)

    def run_until(
        self,
        queue: int,
        times: int,
        every: int,
        flag: tuple[int, int],
        contents: Contents | None,
    ) -> tuple[int, bool]:
        """Enqueue the segment until a word is not 0, and wait (`CommandBuffer.enqueue_until`).

        Args:
            queue: a handle.
            times: how often at most.
            every: after how many enqueues the word is read.
            flag: a memory object (a handle), and the offset of the word in it, in bytes.
            contents: what the Parameters are meanwhile.

        Returns:
            How often it was enqueued, and whether the word was set.
        """
        ran, stopped = 0, False
        for count in split_repetitions(times):
            while count > 0 and not stopped:  # one that may be refused runs `every` at a time
                with self.having(contents):
                    after = self._list_pending() if self._pending else []
                    code, done, stopped, failed = self._buffer.enqueue_until(
                        queue, count, min(every, count), flag, after
                    )
                    if code:
                        raise self.make_error(code, failed)
                ran, count = ran + done, count - done
            if stopped:
                break
        return ran, stopped

    def _run_series(
        self, queue: int, times: int, waits: Sequence[int], series: Mapping[str, Any]
    ) -> tuple[int, int]:
        settings = self.settings
        assert settings is not None
        settings.begin_series(series, times)
        before = self._buffer.enqueued
        try:
            return self._run(queue, times, waits, settings)
        finally:
            settings.end_series(self._buffer.enqueued - before)

    def _run(
        self, queue: int, times: int, waits: Sequence[int], series: ParameterSettings | None = None
    ) -> tuple[int, int]:
        event, exported, done = 0, list[int](), 0
        for count in split_repetitions(times) if times > 1 else (1,):
            if series is not None:
                series.advance(done, count)
                done += count
            for one in exported:  # of the replays before these
                call(one, "clReleaseEvent")
            times -= count
            code, event, failed, exported = self._buffer.enqueue(
                queue, count, waits, wanted=not times, series=series and series.cells
            )
            if code:
                raise self.make_error(code, failed)
        return event, exported[0] if exported else 0

    def enqueue(self, queue: Queue, count: int, waits: Any, times: list[Event]) -> int:
        """Enqueue the segment on a runtime queue after `count` events. Returns its event's handle.

        Args:
            queue: a runtime.Queue.
            count, waits: how many events there are, and their handles.
            times: gets the events of its first command and of its end, if it profiles.
        """
        adapter, native = queue.adapter, queue.native()
        before = [
            adapter.obtain("urEventGetNativeHandle", waits[number]) for number in range(count)
        ]
        end, first = self.run(native, 1, before)
        call(native, "clFlush")  # SPEC clFlush: a queue whose events are waited for elsewhere
        made = make_event(end, queue.context)
        if first:
            call(end, "clRetainEvent")
            times += [Event(queue.context, make_event(one, queue.context)) for one in (first, end)]
        return made

    def _list_pending(self) -> list[int]:
        """Return the events from before the capture that are still incomplete."""
        waits = []
        for event in list(self._pending):
            status = query_status(event)
            if status < 0:
                name, sentence = describe(status)
                raise OpenCLError(
                    "A command from before the capture block, which the graph waits for, failed. "
                    f"{sentence}",
                    routine="replay",
                    code=name,
                    value=status,
                    remedy="capture again once the earlier command has succeeded",
                )
            if status == 0:
                self._pending.remove(event)
            else:
                waits.append(event)
        return waits

    def make_error(self, code: int, failed: int) -> ReplayError:
        """Return the error for OpenCL's code and the number of a command, -1 for a barrier."""
        name, sentence = describe(code)
        node, what = (-1, "a barrier") if failed < 0 else self._commands.name_command(failed)
        return ReplayError(
            f"{what}, could not be enqueued. {sentence}",
            routine="replay",
            code=name,
            value=code,
            node=node,
            remedy="the commands before it are enqueued: finish the queue, mend the cause and "
            "replay again",
        )

    # updating

    def update(self, changes: Mapping[int, tuple[Command, Command]]) -> None:
        """Replace commands: all of them or, if an engine refuses (OpenCLError), none.

        What was enqueued before does not change.
        """
        commands = self._commands
        with self._lock:
            new = commands.map_to_places({node: one for node, (_, one) in changes.items()})
            self.settings = commands.settings
            if self._take_over_all(new):
                pass
            elif commands.keep_kernels(new):
                self._buffer.plans.change(list(new), lambda: commands.put(new), "update")
            else:
                commands.put_other_kernels(new)
                rewriting = self._buffer.plans.rewriting
                self._buffer = CommandBuffer(self._listed, after=self._buffer)
                if rewriting is not None:
                    self._buffer.plans.rewrite_later(rewriting)
            olds = [as_captured(old) for old, _ in changes.values()]
            using = {block for block in {one.block for one in olds} if block.uses_host_memory}
            used = [one for one in olds if one.block in using or one.keeps_memory]
            if used:
                self._buffer.keep(_unfinished, used)

    def _take_over_all(self, new: Mapping[int, Any]) -> bool:
        """Let launches take over other ones, by one call of C. Returns whether that was possible.

        Args:
            new: what they have to be like, by their places in the array.
        """
        if self.settings is not None:
            return False
        numbers, others = ffi.new("uint32_t[]", list(new)), list(new.values())
        rows, others = self._listed.array, ffi.new("fl_command *[]", others)
        return not lib.fl_take_over_all(self._buffer.native, rows, numbers, others, len(new))

    def take_over(self, number: int, old: CapturedLaunch, new: CapturedLaunch) -> bool:
        """Let a launch take over the numbers and sizes of another one, by one call of C.

        Args:
            number: the number of the launch in the graph.
            old: what the graph has in that place.
            new: what it has to be like.

        Returns:
            Whether that was possible.
        """
        if (
            self.settings is not None
            or old.keeps_memory
            or new.keeps_memory
            or old.block is not new.block
        ):
            return False
        with self._lock:
            place = self._commands.place[number]
            row = self._listed.array + place
            if lib.fl_take_over(self._buffer.native, place, row, new.native):
                return False
            if old.native != row:
                old.move_to(row, self._listed)
            return True

    def explain(self, queue: int) -> str:
        """Return how the segment runs on a native queue, and why."""
        with self._lock:
            return self._buffer.explain(queue)

    def __del__(self) -> None:
        """Keep host memory and SVM, which go with the block, while a device may use them."""
        if hasattr(self, "_buffer") and sys is not None and not sys.is_finalizing():
            self.keep_host_memory()

    def keep_host_memory(self) -> None:
        """Keep what drivers do not keep until its last enqueue has ended, also if it is dropped."""
        event = self._buffer.last_event
        memory = self._commands.list_host_memory() if event else []
        if memory:
            _unfinished.keep_until(event, memory)


def reveal_memory(memory: Collection[int]) -> None:
    """Let the next replays of all graphs write memory objects (handles), which a program gets now.

    A fused kernel may keep in registers what nobody could see.
    """
    for segment in list(_living):
        segment.reveal(memory)


@call_at_end("memory")
def _keep_host_memory() -> None:
    """Keep what drivers do not keep at the end of Python, which frees everything."""
    for segment in list(_living):
        segment.keep_host_memory()


@call_in_child
def _forget() -> None:
    """Forget the segments of the parent: nothing of theirs runs in a child."""
    _living.clear()


def make_event(event: int, context: Context) -> int:
    """Make a runtime event of a native event. It takes over the reference."""
    made = context.adapter.obtain
    return made("urEventCreateWithNativeHandle", event, context.handle, ctypes.byref(_OWNED))
