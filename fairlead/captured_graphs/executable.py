"""A finalized capture: `replay(queue)` enqueues all of its commands on a pyopencl queue.

`runtime.Queue.graph` takes it, too. A graph that was not changed is a single command-buffer
(segment.py), which a replay enqueues by one native call. A graph that was changed has an executable
graph (graph/executable.py) with a segment for each partition. If several segments have captured
commands, a replay runs them on a queue of its own, between two barriers of the caller's queue. A
replay comes after the one before it, also on another queue, and nobody need wait in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, TextIO, overload

from numpy import ndarray

from ..graph.executable import ExecutableGraph
from ..graph.files import Pickles
from ..graph.picture import Drawable, describe_box, note_submission
from ..graph.snapshot import Snapshot
from ..icd._native import ffi, lib
from ..icd.calls import find_device_profile, get_address, read_word
from ..icd.capture.recording import CaptureError, is_captured
from ..icd.command_buffer.routes import Route, find_loss
from ..icd.command_buffer.waiting import wait as wait_for_event
from ..icd.errors import check
from ..loader.base.forks import make_lock
from ..loader.trace import pictures
from ..runtime.errors import Errc, SYCLError
from . import pyopencl_client as _client
from ._native import replace_replay
from .commands import CapturedLaunch, get_command
from .nodes import CapturedNode, make_nodes
from .own_queues import OwnQueues
from .parameter import OPTIONS
from .random_numbers import RandomLaunch
from .replay_arguments import (
    check_flag,
    check_queue,
    has_property,
    list_waits,
    read_fuse,
    read_times,
)
from .segment import CapturedSegment, Repeat, ReplayError
from .segment_commands import SegmentCommands

if TYPE_CHECKING:
    from pyopencl import CommandQueue, Event, MemoryObjectHolder
    from pyopencl.array import Array

    from ..graph.node import Node
    from ..graph.partition import Partitions
    from ..graph.update import HasCommandGraph
    from ..runtime.context import Context
    from ..runtime.platform import Device
    from .graph import CapturedGraph
    from .replay_end import EndedLoop

__all__ = ["SCHEDULES", "Executable", "ReplayError"]

_ONCE: Final = 1

_PAIR: Final = object(), 0
#: What getrefcount says of an object that a tuple alone has.
_ALONE: Final = getrefcount(_PAIR[0])

SCHEDULES: Final = ("auto", "in-order", "queues", "levels", "events")


_SERIES: Final = (list, tuple, ndarray)


def _is_series(value: Any) -> bool:
    """Whether a value is one for each replay: a list, or a NumPy array."""
    return isinstance(value, _SERIES) and getattr(value, "shape", None) != ()


class Executable(Drawable, Pickles):
    """The result of `graph.finalize()`.

    It keeps the graph alive, and with it all memory that the commands use. It is thread-safe:
    replays from several threads follow each other.

    Attributes:
        graph: what it was made of.
        schedule, updatable, profiling, policy, fuse: as they were given to `finalize`.
    """

    remedy_for_copies = "finalize the graph again"

    def __init__(
        self,
        graph: CapturedGraph,
        schedule: str,
        *,
        updatable: bool = False,
        profiling: bool = False,
        policy: str = "seed",
        fuse: str | bool | None = None,
    ) -> None:
        if schedule not in SCHEDULES:
            raise _client.ArgumentError(
                f"there is no schedule {schedule!r}.",
                routine="finalize",
                remedy=f"one of {', '.join(SCHEDULES)}",
            )
        self.graph, self.schedule, self.policy = graph, schedule, policy
        self.updatable, self.profiling = updatable, profiling
        self.fuse = read_fuse(fuse)
        self._block, self._lock = graph.block, make_lock()
        self._own_queues = OwnQueues(self._block, profiling)
        #: All commands, if the graph is as it was recorded.
        self._whole: CapturedSegment | None = None
        self._executable_graph: ExecutableGraph | None = None
        #: How the last simple replay is repeated. A replay like it looks at nothing else.
        self._repeat: Repeat | None = None
        self._parts_replayed = 0  # how often, where the graph has several parts
        self._ended: Event | None = None
        #: The event of the last simple replay, and its handle, where the next one may join it.
        self._last: tuple[Event, int] | None = None
        if graph.is_as_recorded and not updatable:
            commands = SegmentCommands.from_block(
                self._block, partial(get_command, self._block), schedule, profiled=profiling
            )
            self._whole = CapturedSegment(commands)
        else:
            self._executable_graph = graph.command_graph.make_executable(
                updatable, profiling, policy, schedule
            )
        for one in self._list_captured_segments():
            one.fuse(self.fuse)

    # Its executable graph. One that is as it was recorded needs it only to be drawn, to be a
    # sub-graph, or on a runtime queue.

    @property
    def executable_graph(self) -> ExecutableGraph:
        """The executable graph that command graphs and runtime queues use."""
        with self._lock:
            if self._executable_graph is None:
                self._executable_graph = ExecutableGraph(
                    self._block.context,
                    self.graph.devices,
                    Snapshot(make_nodes(self._block, lambda: None)),
                    updatable=False,
                    profiling=self.profiling,
                    policy=self.policy,
                    schedule=self.schedule,
                    whole=self._whole,
                )
            return self._executable_graph

    @property
    def context(self) -> Context:
        """The runtime's context for the one that was captured in."""
        return self._block.context

    @property
    def devices(self) -> tuple[Device, ...]:
        """The runtime's devices that it runs on."""
        return self.graph.devices

    @property
    def snapshot(self) -> Snapshot:
        """Its commands and edges."""
        return self.executable_graph.snapshot

    @property
    def partitions(self) -> Partitions:
        """How the executable is divided."""
        return self.executable_graph.partitions

    def find_executable(self, context: Context) -> ExecutableGraph:
        """Return its executable graph, for a submission.

        Raises SYCLError (invalid) for another context than its own.
        """
        return self.executable_graph.find_executable(context)

    def update(
        self, what: HasCommandGraph | Node | Iterable[Node], *, strict: bool = False
    ) -> None:
        """Take over changes of nodes, or a whole graph of the same topology:
        `ExecutableGraph.update`."""
        if type(what) is CapturedNode and self.updatable and self._take_over(what):
            return
        self.executable_graph.update(what, strict=strict)

    def _take_over(self, node: CapturedNode) -> bool:
        """Update a launch that has only other numbers and sizes. Returns whether it was one."""
        graph, new = self._executable_graph, node.command
        if graph is None or graph.is_waiting:
            return False
        number, only = graph.snapshot.index.get(node.id), graph.only
        if number is None or not isinstance(only, CapturedSegment):
            return False
        old = graph.snapshot.commands[number]
        return (
            isinstance(old, CapturedLaunch)
            and isinstance(new, CapturedLaunch)
            and only.take_over(number, old, new)
        )

    def required_memory(self) -> int:
        """Return how many bytes its own allocations (async_malloc) need. (get_required_mem_size)"""
        return self.executable_graph.required_memory()

    # its segments, and the Parameters of them

    def _list_captured_segments(self) -> list[CapturedSegment]:
        if self._executable_graph is None:
            return [self._whole] if self._whole is not None else []
        return [one for one in self._executable_graph.segments if isinstance(one, CapturedSegment)]

    def _get_only_segment(self) -> CapturedSegment | None:
        """Return the segment of all commands, None if it is not one of captured commands."""
        if self._executable_graph is None:
            return self._whole
        only = self._executable_graph.only
        return only if isinstance(only, CapturedSegment) else None

    def set(self, *argument: Any, **values: Any) -> None:
        """Set Parameters, by name, for the next replays. Earlier replays do not change.

        `set(node, index, value)` is `node.set_arg(index, value)` and `update(node)` in one.

        Args:
            argument: nothing, or a node, the index of an argument, and its value.
            values: a number that the Parameter's type can hold (floats are rounded to it), or
                memory of the context. `set(dt=0.5)`.

        Raises:
            SYCLError: invalid, for an unknown Parameter; kernel_argument, for a value that it
                cannot have. Nothing has changed then.
        """
        if argument:
            if len(argument) != 3:
                raise _client.ArgumentError(
                    f"{len(argument)} arguments were given.",
                    routine="set",
                    remedy="set(node, index, value), or a Parameter by its name: set(dt=0.5)",
                )
            node, index, value = argument
            if not isinstance(node, CapturedNode):
                raise _client.ArgumentError(
                    f"expected a node of captured commands, got {type(node).__name__}.",
                    routine="set",
                    remedy="give the node itself: set(graph[0], index, value)",
                )
            node.set_arg(index, value)
            self.update(node)
        if values:
            self._set_values(values, "set")

    def _set_values(self, values: Mapping[str, Any], routine: str) -> None:
        with self._lock:  # `replay` holds it until its values are used
            only = self._whole if self._executable_graph is None else self._get_only_segment()
            if only is None or only.settings is None:
                self._set_parts(values, routine)
                return
            try:
                only.set(values)
            except KeyError:
                raise self._make_name_error(values, routine) from None

    def _set_parts(
        self, values: Mapping[str, Any], routine: str, draws: Iterable[RandomLaunch] = ()
    ) -> None:
        """Set Parameters of several segments, and the next random numbers of launches."""
        parts = [
            (one, one.settings.writers) for one in self._list_captured_segments() if one.settings
        ]
        for name in values:
            if not any(name in writers for _, writers in parts):
                raise self._make_name_error(values, routine)
        # An earlier replay that begins meanwhile would stage its own values in the same rows.
        with ExitStack() as held:
            for segment, _ in parts:
                held.enter_context(segment.hold())
            try:
                for segment, writers in parts:
                    segment.stage({name: values[name] for name in values if name in writers})
                for launch in draws:
                    launch.stage()
            except BaseException:
                for segment, _ in parts:
                    segment.unstage()
                raise
            for segment, _ in parts:
                segment.commit()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its Parameters. One without a name is ""."""
        names: dict[str, None] = {}
        for segment in self._list_captured_segments():
            names |= dict.fromkeys(segment.settings.by_name if segment.settings else ())
        return tuple(names)

    @property
    def is_swapped(self) -> bool:
        """Whether the next replay exchanges the buffers of `capture(swap=(u, v))`.

        It does so after an odd number of replays.
        """
        settings = [one.settings for one in self._list_captured_segments() if one.settings]
        if self._get_only_segment() is None:  # its parts may wait for host tasks, each in its turn
            return any(one.alternations for one in settings) and self._parts_replayed % 2 == 1
        return any(one.alternations and one.turn % 2 for one in settings)

    def start_over(self, *, swapped: bool = False) -> None:
        """Let the next replay be the first one, or the second one, of those that exchange buffers.

        Args:
            swapped: what `is_swapped` is then.
        """
        with self._lock:
            self._parts_replayed = int(swapped)
            for one in self._list_captured_segments():
                if one.settings:
                    one.settings.turn = int(swapped)

    def _make_name_error(self, values: Mapping[str, Any], routine: str) -> SYCLError:
        names = self.parameters
        unknown = next((name for name in values if name not in names), "")
        known = [*filter(None, names), *(OPTIONS if routine == "replay" else ())]
        by_small_letters = {name.lower(): name for name in known}
        from difflib import get_close_matches

        close = get_close_matches(unknown.lower(), by_small_letters, 1)
        there = ", ".join(name or "one without a name" for name in names) or "none"
        also = f"replay has no argument {unknown}, and " if routine == "replay" else ""
        return SYCLError(
            Errc.invalid,
            f"{also}the graph has no Parameter {unknown}; it has: {there}",
            routine=routine,
            remedy=f"write {by_small_letters[close[0]]}"
            if close
            else "pass a Parameter itself to a kernel in the block; give it a name if no "
            "variable or several hold it: Parameter(value, name=…)",
        )

    def _set_for_replay(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set what is the same for all replays. Returns the others, which have a value for each."""
        for value in values.values():  # each replay comes here: no function is called for a number
            if isinstance(value, _SERIES) and _is_series(value):
                return self._begin_series(values)
        self._set_values(values, "replay")
        return {}

    def _begin_series(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set what is not a series. Returns the series."""
        series = {name: value for name, value in values.items() if _is_series(value)}
        if not series.keys() <= set(self.parameters):
            raise self._make_name_error(series, "replay")
        self._set_values(
            {name: value for name, value in values.items() if name not in series}, "replay"
        )
        return series

    # replays

    def suggest_speedup(self) -> str | None:
        """Return what the program could do so that a replay is much faster, None if nothing is
        known."""
        advice = (one.suggest_speedup() for one in self._list_captured_segments())
        return next(filter(None, advice), None)

    @property
    def costs_more_than_a_call(self) -> bool:
        """Whether it is a single command as the program has captured it: a call of that takes less
        than to set the Parameters of a replay."""
        return all(one.is_one_plain_launch for one in self._list_captured_segments())

    @overload
    def replay(
        self,
        queue: CommandQueue,
        times: int = 1,
        wait_for: Iterable[Event] | None = None,
        *,
        wait: bool = False,
        until: None = None,
        **values: Any,
    ) -> Event: ...
    @overload
    def replay(
        self,
        queue: CommandQueue,
        times: int = 1,
        wait_for: Iterable[Event] | None = None,
        *,
        wait: bool = False,
        until: MemoryObjectHolder | Array,
        every: int = 16,
        **values: Any,
    ) -> EndedLoop: ...
    def replay(
        self,
        queue: Any,
        times: int = 1,
        wait_for: Iterable[Any] | None = None,
        *,
        wait: bool = False,
        until: Any = None,
        every: int = 16,
        **values: Any,
    ) -> Event:
        """Enqueue the graph `times` times on a queue and return the event of its end.

        Each replay comes after the events in `wait_for` and after the last replay of this
        executable. If such an event fails, so does the end of the replay. An exception of a host
        task is raised by the event's `wait`. If both the graph and the queue profile,
        `event.profile.start` is when the first command of all replays began. `event.profile.end` is
        when the last one ended.

        Nothing is waited for, unless `wait` says so. With it, on an in-order queue, the engine
        `direct` runs the graph in the caller's thread, which is fastest on PoCL.

        With `until` the loop stops when the first word (32 bits) of that memory is not 0. Where the
        engine `direct` or `cuda` has it, the word is read after each replay. Elsewhere it is read
        after `every` replays, while the next ones already run. So up to twice `every` replays can
        follow the one that has set it. To continue, set it to 0 again. The loop has ended when this
        returns. The event's `replays` says how many there were, `has_stopped` whether the word was
        set.

        Args:
            queue: a pyopencl.CommandQueue of the graph's context, to a device that it was captured
                from.
            times: how often it is enqueued; with `until`, at most.
            wait_for: pyopencl events.
            wait: return when the replay has ended. The event is complete then.
            until: a pyopencl.Buffer or Array.
            every: after how many replays the word of `until` is read.
            values: Parameters, set first as by `set`. With `times`, an array of so many numbers
                gives each replay its own.

        Raises:
            ReplayError: a command cannot be enqueued.
            OpenCLError: the queue or an event is a wrong one, or an event has failed already.
            ArgumentError: an argument has a wrong type.
        """
        repeat = self._repeat
        if repeat and times is _ONCE and wait_for is None and until is None:
            queue_type, of_queue, enqueue, run, native, route, to_event, join, *_ = repeat
            if type(queue) is queue_type and queue.int_ptr == of_queue:
                here = run if wait else None
                last = self._last if here is None and join else None
                if values:
                    self._lock.acquire()  # another thread's values may not come between
                try:
                    if values and self._set_for_replay(values):
                        done = 0
                    elif last and join and getrefcount(last[0]) == _ALONE:
                        done = join(native, last[1])
                    else:
                        done = enqueue(native) if here is None else here(native)
                finally:
                    if values:
                        self._lock.release()
                if done > 0 and here is not None:
                    return self._ended or self._make_ended(queue)
                if done > 0:
                    if done == 1 and last:
                        event = last[0]
                    else:
                        event = to_event(done, False)
                        self._last = (event, done) if join else None
                    if wait:
                        event.wait()
                    return event
                if done:
                    self._fail(done, route, here is not None)
        handle = check_queue(queue, self._block, "replay")
        times = read_times(times)
        if pictures.is_wanted():
            note_submission(self, self.graph)
        waits = list_waits(wait_for, self._block.recording.context)
        if is_captured(handle):
            raise CaptureError(
                "the queue is being captured.",
                call="replay",
                remedy="replay on a queue that is not in a capture block",
            )
        profiled = self.profiling and has_property(queue, "PROFILING_ENABLE")
        if until is not None:
            return self._replay_until(queue, handle, times, waits, until, every, values)
        with self._lock if values else nullcontext():  # as above
            end = self._begin(queue, handle, times, waits, wait, profiled, values)
        if wait:
            end.wait()
        return end

    def _begin(
        self,
        queue: Any,
        handle: int,
        times: int,
        waits: list[int],
        wait: bool,
        profiled: bool,
        values: Mapping[str, Any],
    ) -> Any:
        """Set values, and enqueue the replays or run them here. Returns the event of their end."""
        from .replay_end import make_end

        series = self._set_for_replay(values) if values else None
        only = self._get_only_segment()
        if only is None:
            with self._lock:
                return self._replay_parts(queue, handle, times, waits, profiled, series or {})
        here = wait and not (waits or profiled or series)
        only.note_use(times, waited=here)
        if here:
            times = only.run_here(handle, times)
        if times:
            ends = only.run(handle, times, waits, series)
            # The runtime loads an adapter for its context: that is for who needs one.
            end = make_end(queue, ends, self.context if profiled else None)
        else:
            end = self._make_ended(queue)
        if not self.profiling:
            ended = self._make_ended(queue) if here else self._ended
            self._repeat = only.prepare_repeat(queue, handle, ended)
        return end

    def _make_ended(self, queue: Any) -> Event:
        """Return the event of replays that have ended in the caller's thread, always the same."""
        import pyopencl

        if self._ended is None:
            ended = pyopencl.UserEvent(queue.context)
            ended.set_status(pyopencl.command_execution_status.COMPLETE)
            self._ended = ended
        return self._ended

    def _fail(self, code: int, route: Route, runs: bool) -> None:
        """Raise the error of a repeated enqueue or run."""
        if runs:
            check(code, "replay", *find_loss(route))
        only = self._get_only_segment()
        assert only is not None
        raise only.make_error(code, route.find_command(route.native.failed))

    def _replay_until(
        self,
        queue: Any,
        handle: int,
        times: int,
        waits: list[int],
        until: Any,
        every: int,
        values: Mapping[str, Any],
    ) -> Any:
        from .replay_end import EndedLoop, make_end

        if any(map(_is_series, values.values())) or type(every) is not int or every < 1:
            raise _client.ArgumentError(
                "until goes with single values, and every is a whole number from 1.",
                routine="replay",
                remedy="replay(queue, times=10_000, until=flag, every=16)",
            )
        flag, only = check_flag(until, self._block.recording.context), self._get_only_segment()
        with self._lock:  # other threads may set others while the loop runs
            if values:
                self._set_for_replay(values)
            parts = [(one, one.read()) for one in self._list_captured_segments()]
        contents = parts[0][1] if only is not None else None
        ran, stopped = 0, False
        # Not by the queue: if one fails meanwhile, PoCL may never end the read of the flag.
        for event in waits:
            profile = find_device_profile(queue.device.int_ptr)
            wait_for_event(event, False, profile.waits_one_at_a_time)
        if only is not None:
            only.note_use(times, waited=True)
            ran, stopped = only.run_until_here(handle, times, flag, contents=contents)
        if stopped or ran == times:
            return EndedLoop(queue.context, ran, stopped)
        changes = only is not None and only.settings is not None and only.settings.changes
        if only is not None and not changes:
            more, stopped = only.run_until(handle, times - ran, every, flag, contents)
            return EndedLoop(queue.context, ran + more, stopped)
        while ran < times and not stopped:
            count = min(every, times - ran)
            with self._lock, ExitStack() as stack:
                for segment, its_contents in parts:
                    stack.enter_context(segment.having(its_contents))
                if only is not None:
                    end = make_end(queue, only.run(handle, count, []))
                else:
                    end = self._replay_parts(queue, handle, count, (), False, {})
            if only is None:
                end.wait()
            code, word = read_word(handle, *flag, [end.int_ptr])
            check(code, "replay")
            ran, stopped = ran + count, bool(word)
        return EndedLoop(queue.context, ran, stopped)

    def _replay_parts(
        self,
        queue: Any,
        handle: int,
        times: int,
        waits: Sequence[int],
        profiled: bool,
        series: Mapping[str, Any],
    ) -> Any:
        settings = [one.settings for one in self._list_captured_segments() if one.settings]
        draws = sorted(
            (launch for one in settings for launch in one.draws.launches), key=lambda one: one.node
        )

        def set_series(turn: int) -> None:
            if not (series or draws):
                return
            values = {name: value[turn] for name, value in series.items()}
            self._set_parts(values, "replay", draws)
            for one in settings:
                one.has_drawn = bool(draws)

        end = self._own_queues.replay(
            self.executable_graph, queue, handle, times, waits, profiled, set_series
        )
        self._parts_replayed += times
        return end

    def explain(self, queue: Any = None) -> str:
        """Return how a replay on this queue runs, and why; without a queue, how the graph is
        divided."""
        if queue is None:
            return self.executable_graph.explain()
        handle, only = check_queue(queue, self._block, "explain"), self._get_only_segment()
        if only is not None:
            return only.explain(handle)
        own = self._own_queues.get_runtime_queue(queue).native()
        lines = [self.executable_graph.explain()]
        for number, segment in enumerate(self.executable_graph.segments):
            if isinstance(segment, CapturedSegment):
                lines.append(f"partition {number}: {segment.explain(own)}")
        return "\n".join(lines)

    # looks

    @property
    def fused(self) -> Mapping[tuple[int, ...], str]:
        """The sources of its fused kernels, each by the numbers of the nodes that it stands for.

        Empty while they are not built yet.
        """
        found = (one.fused for one in self._list_captured_segments())
        return {numbers: source for fused in found for numbers, source in fused.items()}

    def print_fused(self, file: TextIO | None = None) -> None:
        """Print the sources of its fused kernels.

        Args:
            file: what is written to, by default the standard output.
        """
        for segment in self._list_captured_segments():
            for numbers, source in segment.fused.items():
                labels = ", ".join(map(segment.get_label, numbers))
                print(f"// {describe_box(numbers)}: {labels}\n{source}", file=file)

    def __len__(self) -> int:
        if self._executable_graph is None:
            return len(self._block)
        return len(self._executable_graph)

    def __repr__(self) -> str:
        return f"<Executable of {len(self)} nodes>"


#: The docstring of the method, after its signature as C functions have it.
_REPLAY: Final = (
    b"replay($self, /, queue, times=1, wait_for=None, *, wait=False, until=None, every=16, "
    b"**values)\n--\n\n" + (Executable.replay.__doc__ or "").encode()
)
replace_replay(
    Executable,
    _REPLAY,
    get_address(ffi.addressof(lib, "fl_run_again")),
    get_address(ffi.addressof(lib, "fl_enqueue_again")),
    get_address(ffi.addressof(lib, "fl_enqueue_waited")),
)
