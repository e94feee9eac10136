"""A command-buffer on any OpenCL driver: commands, recorded once, enqueued by one call, many times.

Captures of PyOpenCL code (fairlead/captured_graphs/segment.py) and the reference adapter's
command-buffers (plugins/opencl) use it. It knows no engine by name: execution_plans.py has what
engines built for a kind of queue, and changes the commands. This file enqueues, and orders the
enqueues: one comes after the one before it, on any queue, and is not waited for. `explain` says how
they run, and why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.log import warn
from .._native import ffi, lib
from ..calls import call, find_function, get_address, read_word
from ..errors import check, error
from .cells import Cells
from .choice import Choice, choose
from .commands import CommandList
from .engine import BuiltCommands, Use
from .execution_plans import ExecutionPlans
from .lifetimes import Lifetimes
from .queue_release import release_ended, release_queue
from .routes import GOES_ON, Enqueued, Route, explain_lost_part, find_loss

#: So many replays in a row of another use change the way to run. Each gains some 4 µs, and a GPU
#: takes 280 µs to change between OpenCL and CUDA and back.
_WORTH_A_CHANGE: Final = 64

_said: set[str] = set()


def _say_once(text: str) -> None:
    """Print a warning line, once in a process."""
    if text not in _said:
        _said.add(text)
        warn(text)


class CommandBuffer:
    """Commands that can be enqueued on queues of their context. Thread-safe.

    Args:
        choice: the engines that may run it; by default those that FAIRLEAD_COMMAND_BUFFER names.
        given: what an engine has built of all the commands already, for any queue. Then the choice
            has only this engine.
        after: another command-buffer, whose last enqueue comes before the first one of this.

    Attributes:
        plans: the ways to run the commands, and what changes these.

    Raises:
        UnknownEngineError: FAIRLEAD_COMMAND_BUFFER names an unknown engine.
    """

    def __init__(
        self,
        commands: CommandList,
        choice: Choice | None = None,
        given: BuiltCommands | None = None,
        after: CommandBuffer | None = None,
    ) -> None:
        self._commands, self._choice = commands, choice or choose(commands.context)
        #: Held by Python threads that enqueue or change it. C looks at `busy` (native/busy.h).
        self.lock = make_lock()
        self.plans = ExecutionPlans(commands, self._choice, given, self.lock)
        #: The command-buffer as C knows it, an `fl_buffer *`, for updates in C.
        self.native = self.plans.native
        self._route: Route | None = None
        self._use = Use.ONCE  # of the replays
        self._unlike = self._expected = 0  # how many of another use came, and all after them
        self._queue = 0  # of the last enqueue: a reference
        if after is not None and after.last_event:
            self._follow(after)
        release_ended()

    def _follow(self, other: CommandBuffer) -> None:
        other._forbid_again()
        call(other.last_event, "clRetainEvent")
        queue = other.native.last_queue
        lib.fl_remember(self.native, queue, other.native.last_event)
        self.native.may_fail = other.native.may_fail
        self._hold(get_address(queue))

    @property
    def last_event(self) -> int:
        """The event of the last enqueue, 0 if there was none. The reference stays here, until the
        next enqueue."""
        return get_address(self.native.last_event)

    @property
    def enqueued(self) -> int:
        """How often it was enqueued or run.

        Ctrl-C may come before that returns, but not before this counts it."""
        return self.native.enqueued

    def keep(self, lifetimes: Lifetimes, things: Any) -> None:
        """Keep things until the last enqueue has ended, although another thread may make the
        next."""
        with self.plans.block_updates():
            event = self.last_event
            if event:
                call(event, "clRetainEvent")
        lifetimes.keep_until(event, things)
        if event:
            call(event, "clReleaseEvent")

    # enqueue

    def note_use(self, times: int, *, waited: bool) -> None:
        """Note what kind of replays come. Only many in a row are worth a change of the engine.

        Args:
            times: how many come at once.
            waited: whether their caller would `run` them.
        """
        use, ran = Use.of_replays(times, waited=waited), self.native.enqueued
        before = self._unlike if ran == self._expected else 0  # others came by the short way
        self._unlike, self._expected = 0 if use is self._use else before + times, ran + times
        if self._unlike >= _WORTH_A_CHANGE or not ran:
            self._use, self._unlike = use, 0

    def enqueue(
        self,
        queue: int,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
        series: Cells | None = None,
    ) -> Enqueued:
        """Enqueue the commands `times` times, after the events `waits` and the enqueue before this.

        Args:
            queue: a handle, of the commands' context.
            times: at least 1.
            waits: events, handles. Each of the times waits for them, and fails if one fails.
            externals: the outside events that commands wait for, in the order of
                CommandList.externals.
            wanted: whether to return the event of the end.
            series: cells with rows that have values for each of the times.

        Returns:
            OpenCL's code; the event of the end (a reference for the caller, 0 if not wanted); the
                number of the command that failed (-1: none); and the events of
                CommandList.wanted_events, a reference each.
        """
        with self.lock:
            route = self._get_route(queue)
            in_turns = route.may_refuse or route.plan.is_temporary
            if in_turns or (series is not None and self.native.python_updates):
                done = self._enqueue_in_turns(route, times, waits, externals, wanted, series)
            else:
                done = route.enqueue(times, waits, externals, wanted, series)
                if not done[0]:
                    self._take(route)
                elif done[0] == lib.FL_BUILD_ANEW and series is not None:
                    turn = done[2]  # an engine cannot run what a value has made of a command
                    series.skip(turn)
                    route = self._find_route(queue)
                    done = self._enqueue_in_turns(
                        route, times - turn, waits, externals, wanted, series
                    )
            if not done[0]:
                if queue != self._queue:
                    self._hold(queue)
                self._allow_again()
            return done

    def enqueue_until(
        self, queue: int, times: int, every: int, flag: tuple[int, int], waits: Sequence[int] = ()
    ) -> tuple[int, int, bool, int]:
        """Enqueue the command-buffer until a word is not 0, and wait for the end.

        Args:
            queue: a handle, of the commands' context.
            times: how often at most.
            every: after how many times the word is read, `times` at most. Meanwhile as many are
                enqueued again. What a driver may refuse, and a trial, run `every` times only.
            flag: a memory object (a handle), and the offset of the word in it, in bytes.
            waits: events, handles.

        Returns:
            OpenCL's code, how often it was enqueued, whether the word was set, and the number of
                the command that failed (-1: none).
        """
        with self.lock:
            route = self._get_route(queue)
            if route.may_refuse or route.plan.is_temporary:
                code, _, failed, _ = self.enqueue(queue, every, waits, wanted=False)
                word = 0
                if code == 0:
                    code, word = read_word(queue, *flag, [self.last_event])
                return code, every, bool(word), failed
            done = route.enqueue_until(times, every, flag, waits)
            if not done[0]:
                self._take(route)
                if queue != self._queue:
                    self._hold(queue)
                self._allow_again()
            return done

    def _get_route(self, queue: int) -> Route:
        """Return the route to a queue.

        After the first runs an engine may have learned to leave commands to others.
        """
        route = self._route
        if route is not None and route.may_be_lost and (why := explain_lost_part(route)):
            _say_once(f"{why} {GOES_ON}")
            self._build_anew()
        plans = self.plans
        if route is None or not route.leads_to(queue) or self.native.stale or plans.is_due:
            return self._find_route(queue)
        if not route.serves(self._use):
            return self._find_route(queue)
        if route.learns and plans.learn(route.kind):
            self._take(None)
            return self._find_route(queue)
        return route

    def run(self, queue: int, times: int) -> bool:
        """Run the commands in this thread, after everything in the queue, to their end.

        Args:
            queue: a handle, of the commands' context.
            times: at least 1.

        Returns:
            Whether that is possible. If not, nothing has happened: enqueue it, and wait.

        Raises:
            OpenCLError: a command has failed.
        """
        with self.lock:
            route = self._find_route_here(queue, in_turns=times == 1)
            if route is None:
                return False
            trial = route.plan.trial
            began = perf_counter() if trial is not None else 0.0
            code = lib.fl_run(route.native, times)
            if code == lib.FL_BUILD_ANEW:
                return False
            if code:
                check(code, "replay", *find_loss(route))
            if trial is not None:
                trial.note(perf_counter() - began)
            else:
                self._allow_again()
            return True

    def _build_anew(self) -> None:
        """Let the next enqueue plan and build, because an engine cannot run anything any more.

        Nothing of the last enqueue is left to wait for: it has failed.
        """
        self._forbid_again()
        lib.fl_remember(self.native, ffi.NULL, ffi.NULL)
        with self.plans.block_updates():
            self.native.stale = 1

    def run_until(
        self,
        queue: int,
        times: int,
        flag: tuple[int, int],
        *,
        is_set: bool = True,
        looks_first: bool = False,
        series: Cells | None = None,
    ) -> tuple[int, bool]:
        """Run the commands in this thread, after everything in the queue, until a word is not 0.

        Args:
            queue: a handle, of the commands' context.
            times: how often at most.
            flag: a memory object (a handle), and the offset of the word in it, in bytes.
            is_set: False to run it until the word is 0.
            looks_first: whether the word is read before the first run, too.
            series: cells with rows that have values for each of the times.

        Returns:
            How often it was run, and whether the word was as wanted. If neither, it cannot be run
                so: enqueue it.

        Raises:
            OpenCLError: a command has failed.
        """
        with self.lock:
            route = self._find_route_here(queue)
            if route is None or self.native.python_updates:
                return 0, False
            counts = ffi.new("uint32_t[2]")
            rows, count = (ffi.NULL, 0) if series is None else (series.rows, series.count)
            memory, offset = ffi.cast("void *", flag[0]), flag[1]
            code = lib.fl_run_until(
                route.native,
                times,
                rows,
                count,
                memory,
                offset,
                is_set,
                looks_first,
                counts,
                counts + 1,
            )
            check(0 if code == lib.FL_BUILD_ANEW else code, "replay", *find_loss(route))
            return counts[0], bool(counts[1])

    def addresses(self, queue: int, memory: Sequence[int]) -> list[int] | None:
        """Return where buffers lie in the host's memory. Only this queue may still run any of it.

        Args:
            queue: a handle, of the commands' context.
            memory: handles of memory objects.

        Returns:
            An address for each, None if an engine does not run everything in the host's memory.
        """
        with self.lock:
            route = self._find_route_here(queue)
            if route is None:
                return None
            found = [
                get_address(lib.fl_find_address(route.native, ffi.cast("void *", one)))
                for one in memory
            ]
        return found if all(found) else None

    def _find_route_here(self, queue: int, *, in_turns: bool = False) -> Route | None:
        """Return the route to a queue if this thread can run it, with nothing of it in another
        queue.

        Args:
            in_turns: whether it may be that of a turn, which the caller measures.
        """
        route = self._get_route(queue)
        if route.plan.is_temporary and not (in_turns and self.plans.runs_all_here(route.kind)):
            return None
        if not route.runs_here or lib.fl_stack_left() < lib.FL_STACK_NEEDED:
            return None
        if self.last_event and queue != get_address(self.native.last_queue):
            self._forbid_again()
            self.plans.wait_for_last()
            lib.fl_remember(self.native, ffi.NULL, ffi.NULL)
        if queue != self._queue:
            self._hold(queue)
        if not route.plan.is_temporary:
            self._take(route)
        return route

    @property
    def again(self) -> Route | None:
        """The route of the last enqueue or run, if `lib.fl_enqueue_again` and `lib.fl_run_again`
        may make another one like it: after that one and nothing else, and without a lock."""
        route = self._route
        return route if route is not None and self.native.again == route.native else None

    def _take(self, route: Route | None) -> None:
        """Take another route from now on. Nobody is on the one before."""
        if route is not self._route:
            self._forbid_again()
            self._route = route

    def _allow_again(self) -> None:
        """Allow repeated enqueues on the present route. Its queue is held."""
        route = self._route
        if route and route.is_plain and route.queue == self._queue and not self.again:
            lib.fl_allow_again(self.native, route.native)

    def _forbid_again(self) -> None:
        if self.native.again:
            lib.fl_allow_again(self.native, ffi.NULL)

    def _enqueue_in_turns(
        self,
        route: Route,
        times: int,
        waits: Sequence[int],
        externals: Sequence[int],
        wanted: bool,
        series: Cells | None,
    ) -> Enqueued:
        """Enqueue one by one what the driver may refuse as a whole, or what takes turns with other
        plans.

        After a refusal another engine runs it from now on, if there is one.
        """
        done: Enqueued = 0, 0, -1, []
        for turn in range(times):
            is_last = turn == times - 1
            for one in done[3]:  # of the turn before
                call(one, "clReleaseEvent")
            if series is not None:
                series.stage_series(turn)
                self.plans.set_cells(series)
            if (route.plan.is_temporary and turn) or series is not None:
                route = self._find_route(route.queue)
            done = self._enqueue_once(route, waits, externals, wanted and is_last)
            if done[0]:
                recovered = self._recover(route, done[0], waits) if route.may_refuse else None
                if recovered is None and route.may_refuse and len(self._choice.engines) > 1:
                    left = times - turn
                    if series is not None:
                        series.skip(turn)
                    return self._enqueue_without(
                        route, done[0], left, waits, externals, wanted, series
                    )
                if recovered is None or recovered[0]:
                    return done if recovered is None else (recovered[0], 0, -1, [])
                if wanted and is_last:
                    call(recovered[1], "clRetainEvent")
                    done = 0, recovered[1], -1, []
        if not route.plan.is_temporary:
            self._take(route)
        return done

    def _enqueue_once(
        self, route: Route, waits: Sequence[int], externals: Sequence[int], wanted: bool
    ) -> Enqueued:
        """Enqueue the command-buffer. In a turn of a trial, measure that."""
        trial, timing = route.plan.trial, None
        if trial is not None:
            after = self._list_before(waits)
            timing = trial.start(route.queue, after if after or route.in_order else None)
        if trial is None or timing is None:
            done = route.enqueue(1, waits, externals, wanted)
            if route.plan.check is not None and not done[0]:
                self._compare(route, done[1])
            return done
        code, event, failed, exported = route.enqueue(1, waits, externals)
        if not code:
            trial.end(timing, event)
            if not wanted:
                call(event, "clReleaseEvent")
        return code, event if wanted else 0, failed, exported

    def _compare(self, route: Route, event: int) -> None:
        """Compare what an enqueue has written in two ways.

        If that raises, nobody gets the event of its end.
        """
        try:
            self.plans.compare(route.kind, route.queue)
        except BaseException:
            if event:
                call(event, "clReleaseEvent")
            raise

    def _list_before(self, waits: Sequence[int]) -> Sequence[int]:
        """Return the events that the next enqueue waits for: `waits` and the last enqueue's."""
        check(lib.fl_pass_failure(self.native), "clEnqueueMarkerWithWaitList")
        return [*waits, self.last_event] if self.last_event else waits

    def _recover(self, route: Route, code: int, waits: Sequence[int]) -> tuple[int, int] | None:
        """Enqueue the command-buffer in the engine's other way.

        The event stays the last one of this command-buffer.
        """
        done = route.built[0].recover(code, route.queue, self._list_before(waits))
        if done is not None and not done[0]:
            lib.fl_remember(
                self.native, ffi.cast("void *", route.queue), ffi.cast("void *", done[1])
            )
            self.native.enqueued += 1
        return done

    def _enqueue_without(
        self,
        route: Route,
        code: int,
        times: int,
        waits: Sequence[int],
        externals: Sequence[int],
        wanted: bool,
        series: Cells | None,
    ) -> Enqueued:
        """Let other engines run it, after the driver refused an enqueue."""
        reason = f"the driver refused it, {error(code, 'the enqueue')}"
        self.plans.refuse(route.kind, route.plan, reason)
        again = self._find_route(route.queue)
        done = again.enqueue(times, waits, externals, wanted, series)
        if not done[0]:
            self._take(again)
        return done

    def _hold(self, queue: int) -> None:
        """Keep the queue of the last enqueue, so that no other queue gets its handle.

        The one before it is released. 0 means none. Ctrl-C may come between two instructions: then
        there is one reference too many, and never one too few.
        """
        if queue:
            call(queue, "clRetainCommandQueue")
            # `__del__` may release it when ctypes is gone, and Python makes no function any more
            find_function(queue, "clReleaseCommandQueue")
        if self._route is not None and self._route.queue != queue:
            self._take(None)  # its queue is released: another queue may get the same handle
        before, self._queue = self._queue, queue
        if queue:
            release_ended()
        if before:
            release_queue(before)

    def _find_route(self, queue: int) -> Route:
        kind = self.plans.find_kind(queue, self._use)
        self._forbid_again()
        plan = self.plans.choose(kind)
        if self._route is not None and self._route.plan.is_closed:
            self._route = None
        learns = self.plans.is_learning(kind, plan)
        if not (learns or plan.is_temporary):
            self.plans.settle(kind, plan)
        return Route(self.native, queue, kind, plan, learns)

    def explain(self, queue: int) -> str:
        """Return how an enqueue on this queue runs, and why: a line for each engine."""
        with self.lock:
            kind, route = self.plans.find_kind(queue, self._use), self._route
            is_other = route is not None and route.kind != kind
            if is_other or self.native.stale or self.plans.is_due:
                self._take(None)  # what it leads to may be gone
            return self.plans.explain(kind)

    def close(self) -> None:
        """Release the driver's objects. What was enqueued runs to its end."""
        self._take(None)
        self.plans.close()
        lib.fl_remember(self.native, ffi.NULL, ffi.NULL)
        self._hold(0)

    def __del__(self) -> None:
        # While Python takes modules down, those that engines need may be gone, even sys.
        if hasattr(self, "_queue") and sys is not None and not sys.is_finalizing():
            self.close()


call_in_child(lib.fl_begin_child)
