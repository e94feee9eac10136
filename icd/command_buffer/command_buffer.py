"""A command-buffer on any OpenCL driver: commands that were recorded once, enqueued by one call, as often as wanted.

Captures of PyOpenCL code (fairlead/captured_graphs/segment.py) and the reference adapter's command-buffers (plugins/opencl) stand on it.
It knows no engine by name. plan.py says which engines run which commands on a kind of queue, the engines build that, and a `Route` enqueues
it. What is here is when to plan, what follows what, and updates: all of a change is made, or nothing.

What it promises:
- An enqueue comes after the one before it, on whatever queue, and is not waited for.
- An update changes nothing of what has been enqueued, since OpenCL takes a kernel's arguments when a launch is enqueued.
- `explain` tells how it runs and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...loader.base.forks import new_lock
from .._native import ffi, lib
from ..calls import address, call, device_of, properties_of, wait_for
from ..errors import OpenCLError, error
from .commands import CommandList
from .edits import copy_of, put
from .engine import Built, Target
from .engines import Choice, choose
from .leaving import leave, release_ended
from .plan import Part, Plan, make_plan
from .route import Enqueued, Route


class CommandBuffer:
    """Commands that can be enqueued on queues of their context. Thread-safe.

    Args:
        commands: what is run.
        choice: the engines that may run it; by default those that FAIRLEAD_COMMAND_BUFFER names.
        given: what an engine has built of all the commands already, to be used on whatever queue; the choice then has this engine alone.

    Attributes:
        native: the command-buffer as C knows it, an `fl_buffer *`, for updates that are made in C.

    Raises:
        UnknownEngineError: FAIRLEAD_COMMAND_BUFFER names an engine that there is not.
    """

    def __init__(
        self, commands: CommandList, choice: Choice | None = None, given: Built | None = None
    ) -> None:
        self._commands, self._choice, self._given = commands, choice or choose(), given
        self._plans: dict[Target, tuple[Plan, list[Built]]] = {}
        self._refused: dict[
            Target, dict[str, str]
        ] = {}  # why a driver refused an engine, by its name
        self.native = ffi.new("fl_buffer *")
        self._listed: Any = None  # what `native` points to
        self._route: Route | None = None
        self._queue = 0  # of the last enqueue: a reference
        #: Held by threads of Python that enqueue or change it; C looks at `busy` (native/busy.h).
        self.lock = new_lock()
        self._is_changing = False
        if given is not None:
            self._list_built()
        release_ended()

    # enqueue

    def enqueue(
        self,
        queue: int,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
    ) -> Enqueued:
        """Enqueue it `times` times, after the events `waits` and after the enqueue before this one.

        Args:
            queue: a handle, of the commands' context.
            times: at least 1.
            waits: events, handles.
            externals: the outside events that commands wait for, in the order of CommandList.externals.
            wanted: whether the event of the end is given.

        Returns:
            OpenCL's code, the event of the end (a reference for the caller, 0 if it was not wanted), the number of the command that
            failed (-1: none of them), and the events of CommandList.wanted_events, a reference each.
        """
        with self.lock:
            route = self._route
            if route is None or queue != self._queue:
                route = self._find_route(queue)
            if route.may_refuse:
                done = self._enqueue_warily(route, times, waits, externals, wanted)
            else:
                done = route.enqueue(times, waits, externals, wanted)
                if not done[0]:
                    self._route = route
            if not done[0] and queue != self._queue:
                self._hold(queue)
            return done

    def _enqueue_warily(
        self,
        route: Route,
        times: int,
        waits: Sequence[int],
        externals: Sequence[int],
        wanted: bool,
    ) -> Enqueued:
        """Enqueue what the driver may refuse as a whole. Then another engine runs it from now on, if there is one."""
        done: Enqueued = 0, 0, -1, []
        for turn in range(times):
            before, is_last = () if turn else waits, turn == times - 1
            done = route.enqueue(1, before, externals, wanted and is_last)
            if done[0]:
                recovered = self._recover(route, done[0], before)
                if recovered is None and turn == 0 and len(self._choice.engines) > 1:
                    return self._enqueue_without(route, done[0], times, waits, externals, wanted)
                if recovered is None or recovered[0]:
                    return (recovered or done)[0], 0, -1, []
                if wanted and is_last:
                    call(recovered[1], "clRetainEvent")
                    done = 0, recovered[1], -1, []
        self._route = route
        return done

    def _recover(self, route: Route, code: int, waits: Sequence[int]) -> tuple[int, int] | None:
        """Enqueue it in another way of the engine's. The event stays the last one of this command-buffer."""
        last = [self.last_event] if self.last_event else []
        done = route.parts[0].recover(code, route.queue, [*waits, *last])
        if done is not None and not done[0]:
            lib.fl_remember(
                self.native, ffi.cast("void *", route.queue), ffi.cast("void *", done[1])
            )
        return done

    def _enqueue_without(
        self,
        route: Route,
        code: int,
        times: int,
        waits: Sequence[int],
        externals: Sequence[int],
        wanted: bool,
    ) -> Enqueued:
        """Have other engines run it, after the driver has refused an enqueue."""
        target = self._target(route.queue)
        reason = f"the driver refused it, {error(code, 'the enqueue')}"
        self._drop(target, {part.engine.name: reason for part in self._plans[target][0].parts})
        again = self._find_route(route.queue)
        done = again.enqueue(times, waits, externals, wanted)
        if not done[0]:
            self._route = again
        return done

    def _hold(self, queue: int) -> None:
        """Keep the queue of the last enqueue, so that its handle is no other queue's; give up the one before it. 0 is none."""
        before, self._queue = self._queue, queue
        if queue:
            call(queue, "clRetainCommandQueue")
            release_ended()
        if before:
            leave(before)

    @property
    def last_event(self) -> int:
        """The event of the last enqueue, 0 if there was none; the reference stays here."""
        return address(self.native.last_event)

    # plans

    def _target(self, queue: int) -> Target:
        return Target(self._commands.context, device_of(queue), properties_of(queue))

    def _find_route(self, queue: int) -> Route:
        target = self._target(queue)
        plan, built = self._built(target)
        places = [(part.first, part.end) for part in plan.parts]
        externals: list[int] = []  # the command that each outside event is for
        for number, count in self._commands.externals.items():
            externals += [number] * count
        return Route(
            self.native,
            queue,
            target.in_order,
            built,
            _places(externals, places),
            _places(self._commands.wanted_events, places),
        )

    def _built(self, target: Target) -> tuple[Plan, list[Built]]:
        """The plan for a kind of queue and what the engines have built for it, made when it is first needed."""
        found = self._plans.get(target)
        if found is None and self._given is not None:
            (engine,) = self._choice.engines
            parts = [Part(engine, 0, len(self._commands))]
            found = self._plans[target] = (
                Plan(parts, {engine.name: self._choice.why}),
                [self._given],
            )
        while found is None:
            plan = make_plan(
                self._commands, target, self._choice, self._refused.setdefault(target, {})
            )
            built = self._build(plan, target)
            if built is not None:
                found = self._plans[target] = plan, built
                self._list_built()
        return found

    def _build(self, plan: Plan, target: Target) -> list[Built] | None:
        """Have the engines build a plan; None if one failed: then it is to be planned without that one."""
        built: list[Built] = []
        for part in plan.parts:
            try:
                made = part.engine.build(self._commands.part(part.first, part.end), target)
            except OpenCLError as refusal:
                for one in built:
                    one.close()
                if part.engine is self._choice.engines[-1]:
                    raise
                self._refused[target][part.engine.name] = f"the driver refused it, {refusal}"
                return None
            made.native.first = part.first
            built.append(made)
        return built

    def _list_built(self) -> None:
        """Tell C what was built, for updates."""
        if self._commands.updatable:
            built = [self._given] if self._given else self._all_built()
            everything = [one.native for one in built]
            rows = ffi.new("fl_built *[]", everything)
            with self.changing():
                self._listed, self.native.built = (everything, rows), rows
                self.native.built_count = len(everything)
                self.native.python_updates = any(not one.update for one in everything)

    def _all_built(self) -> list[Built]:
        return [one for _, built in self._plans.values() for one in built]

    def _drop(self, target: Target, refused: Mapping[str, str]) -> None:
        """Forget the plan for a kind of queue: the driver has refused what engines have built."""
        self._refused.setdefault(target, {}).update(refused)
        _, built = self._plans.pop(target)
        self._route = None
        self._list_built()
        for one in built:
            one.close()

    def explain(self, queue: int) -> str:
        """How an enqueue on this queue is run and why so: a line for each engine."""
        with self.lock:
            plan, built = self._built(self._target(queue))
        why = {**self._choice.explain_others(), **plan.why}
        wide = max(map(len, why))
        lines = [f"{self._commands.count} commands"]
        for name, reason in why.items():
            ran = [
                (part, one)
                for part, one in zip(plan.parts, built, strict=True)
                if part.engine.name == name
            ]
            for part, one in ran:
                which = f"{part.first}–{part.end - 1}: " if len(plan.parts) > 1 else ""
                lines.append(f"  {name:{wide}}  {which}{one.explain()}; {reason}")
            if not ran:
                lines.append(f"  {name:{wide}}  not chosen: {reason}")
        return "\n".join(lines)

    # changes

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep updates in C and other threads away for the length of a block, in which nothing is enqueued."""
        with self.lock:
            if self._is_changing:
                yield
                return
            self._is_changing = True
            lib.fl_begin_changes(self.native)
            try:
                yield
            finally:
                self._is_changing = False
                lib.fl_end_changes(self.native)

    def change(
        self, numbers: Sequence[int], change: Callable[[], Mapping[int, bool]], routine: str
    ) -> None:
        """Change commands: all of them or, if anything fails, none. What has been enqueued keeps what it was enqueued with.

        Args:
            numbers: the commands that may change.
            change: changes them in the array. Returns those that it has changed, and whether each launches another kernel now.
            routine: what an error is said to come from.

        Raises:
            OpenCLError: an engine refuses it, and nothing has changed.
        """
        with self.changing():
            before = {number: copy_of(self._commands.array + number) for number in numbers}
            changed: Mapping[int, bool] = dict.fromkeys(before, True)
            try:
                changed = change()
                code = self._tell(changed)
                if code:
                    raise error(code, routine, "Nothing has changed.")
            except BaseException:
                for number, command in before.items():
                    put(self._commands.array + number, command)
                self._tell(changed)
                raise

    def _tell(self, changes: Mapping[int, bool]) -> int:
        """Tell everything that was built of changed commands. Returns OpenCL's code."""
        code = 0
        if len(changes) > 1:  # kernels first: by them launches follow each other
            changes = dict(sorted(changes.items(), key=lambda change: not change[1]))
        for command, relaunched in changes.items():
            code = lib.fl_update_buffer(self.native, command, relaunched) or code
        if self.native.python_updates:
            code = code or self._tell_python(list(changes))
        return code

    def _tell_python(self, commands: Sequence[int]) -> int:
        """Update what C cannot update. Where other engines can run it, a refusal is none."""
        if self._given is not None:
            return self._tell_one(self._given, 0, commands)
        for target, (plan, built) in list(self._plans.items()):
            for part, one in zip(plan.parts, built, strict=True):
                inside = [number for number in commands if part.first <= number < part.end]
                if self._tell_one(one, part.first, inside):
                    self._drop(target, {part.engine.name: "the driver refused an update"})
                    break
        return 0

    def _tell_one(self, built: Built, first: int, commands: Sequence[int]) -> int:
        if built.native.update or not commands:
            return 0
        if built.updates_wait and self.last_event:
            wait_for(self.last_event)
        return built.update([number - first for number in commands])

    def close(self) -> None:
        """Give up what it holds of the driver; what was enqueued runs to its end."""
        self._route = None
        self.native.built_count = 0
        for one in self._all_built():
            one.close()
        self._plans.clear()
        lib.fl_remember(self.native, ffi.NULL, ffi.NULL)
        self._hold(0)

    def __del__(self) -> None:
        if lib is not None and hasattr(self, "native"):  # Python is not taking modules down
            self.close()


def _places(commands: Sequence[int], parts: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Of each part, the places in `commands` whose command is in it."""
    return [
        [place for place, number in enumerate(commands) if first <= number < end]
        for first, end in parts
    ]
