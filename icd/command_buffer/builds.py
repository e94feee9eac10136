"""What engines built of a command list, for each kind of queue, and how changes reach it.

A kind of queue is planned (plan.py) and built at its first use. If a driver refuses what an engine
built, it is planned again without that engine. If the fastest of several plans is unknown, all of
them are built, and the first replays decide (trial.py). C knows all builds (`fl_buffer`), because
it makes updates, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from .._native import ffi, lib
from ..calls import find_device_profile
from ..errors import OpenCLError
from .choice import Choice
from .commands import CommandList
from .cost import recall, remember
from .engine import Built, QueueKind
from .plan import Part, Plan, make_plans
from .trial import TURNS, TURNS_OF_SCHEDULES, Trial, choose_fastest

#: Schedules take turns in a graph that was enqueued so often: others are not worth building it
#: several times.
_WORTH_VARIANTS: Final = 8


@dataclass(eq=False)
class Build:
    """A plan for a kind of queue, and what its engines built: one for each part.

    Attributes:
        plan: what is built.
        parts: what its engines built.
        trial: measures it and the other candidates, if there are any.
        is_closed: whether nothing of it can run any more.
    """

    plan: Plan
    parts: Sequence[Built]
    trial: Trial | None = None
    is_closed: bool = False

    def close(self) -> None:
        """Close what engines built."""
        self.is_closed = True
        for one in self.parts:
            one.close()


class _Changing(AbstractContextManager[None]):
    """A block in which one Python thread changes a command-buffer. Blocks may be nested."""

    def __init__(self, native: Any, lock: Any) -> None:
        self._native, self._lock, self._depth = native, lock, 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            lib.fl_begin_changes(self._native)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            lib.fl_end_changes(self._native)
        self._lock.release()


class Builds:
    """The builds of a command list. The caller holds `lock` for all methods.

    Args:
        commands: what is built.
        choice: the engines.
        given: what an engine has built already, to be used on whatever queue, or None.
        lock: guards it against other threads of Python.

    Attributes:
        native: the command-buffer as C knows it, an `fl_buffer *`.
    """

    def __init__(
        self, commands: CommandList, choice: Choice, given: Built | None, lock: Any
    ) -> None:
        self.native = ffi.new("fl_buffer *")
        self.native.holds_events = find_device_profile(commands.devices[0]).holds_events
        self._commands, self._choice, self._given = commands, choice, given
        self._builds: dict[QueueKind, Sequence[Build]] = {}  # several: candidates
        self._refused: dict[QueueKind, dict[str, str]] = {}  # why a driver refused an engine
        self._left: dict[QueueKind, dict[str, dict[int, str]]] = {}  # what engines learned to leave
        self._with_variants: set[QueueKind] = set()  # where schedules take turns
        self._listed: Any = None  # what `native` points to
        self._changing = _Changing(self.native, lock)
        if given is not None:
            self._list()

    def get_build(self, kind: QueueKind) -> Build:
        """Return the build that is enqueued next on a kind of queue.

        Raises OpenCLError if the last engine cannot build its part.
        """
        if self.native.stale:  # an engine cannot run a changed command
            with self.block_updates():
                self.native.stale = 0
            for other in list(self._builds):
                self._drop(other, {})
        found = self._builds.get(kind)
        while found is None:
            found = self._make(kind)
            if found is not None:
                self._builds[kind] = found
                self._list()
        trial = found[0].trial
        seconds = trial.find_medians() if trial is not None else None
        if seconds is not None:
            if not any(one.plan.tried for one in found):  # that depends on arguments, and on load
                remember(self._commands, kind, seconds)
            found = self._keep_fastest(kind, seconds)
        return found[trial.choose_next()] if trial is not None and seconds is None else found[0]

    def _make(self, kind: QueueKind) -> Sequence[Build] | None:
        """Plan and build. Returns None if an engine failed; the next plan does without it."""
        if self._given is not None:
            (engine,) = self._choice.engines
            plan = Plan([Part(engine, 0, len(self._commands))], {engine.name: self._choice.why})
            return [Build(plan, [self._given])]
        refused, left = self._refused.setdefault(kind, {}), self._left.get(kind, {})
        with_variants = kind in self._with_variants
        plans = make_plans(
            self._commands, kind, self._choice, refused, left, with_variants=with_variants
        )
        names = [plan.name for plan in plans]
        tries_schedules = any(plan.tried for plan in plans)
        is_new = len(plans) == 1 or tries_schedules
        known = None if is_new else recall(self._commands, kind, names)
        if known:
            plans = [
                _explain_choice(plan, plans, known)
                for plan in plans
                if plan.name == choose_fastest(known)
            ]
        turns = TURNS_OF_SCHEDULES if tries_schedules else TURNS
        trial = Trial(names, turns, repeats=tries_schedules) if len(plans) > 1 else None
        builds: list[Build] = []
        with ExitStack() as made:  # closes them if one cannot be built
            for plan in plans:
                parts = self._build(plan, kind)
                if parts is None:
                    return None
                builds.append(Build(plan, parts, trial))
                made.callback(builds[-1].close)
            made.pop_all()
        return builds

    def _build(self, plan: Plan, kind: QueueKind) -> list[Built] | None:
        """Return the parts of a plan.

        None means that an engine failed, which is refused from now on.
        """
        built: list[Built] = []
        with ExitStack() as made:  # closes them if one cannot be built
            for part in plan.parts:
                try:
                    one = part.engine.build(self._commands.part(part.first, part.end), kind)
                except OpenCLError as refusal:
                    is_last = part.engine.name == self._choice.engines[-1].name
                    if is_last and not plan.tried:
                        raise
                    refused = plan.tried if is_last else part.engine.name
                    self._refused[kind][refused] = f"the driver refused it, {refusal}"
                    return None
                made.callback(one.close)
                one.native.first = part.first
                built.append(one)
            made.pop_all()
        return built

    def _keep_fastest(self, kind: QueueKind, seconds: Mapping[str, float]) -> Sequence[Build]:
        """End a trial: keep only the fastest build."""
        candidates = self._builds[kind]
        plans = [one.plan for one in candidates]
        best = choose_fastest(seconds, of_schedules=any(plan.tried for plan in plans))
        winner = next(one for one in candidates if one.plan.name == best)
        self._builds[kind] = kept = [
            Build(_explain_choice(winner.plan, plans, seconds), winner.parts)
        ]
        self._list()
        for one in candidates:
            if one is not winner:
                one.close()
        return kept

    def refuse(self, kind: QueueKind, build: Build, reason: str) -> None:
        """Forget a build that the driver refused to enqueue, and the other candidates.

        Its engines are not asked again.
        """
        self._drop(kind, {part.engine.name: reason for part in build.plan.parts})

    def is_learning(self, kind: QueueKind, build: Build) -> bool:
        """Whether a part of a build measures its runs, and nothing was learned from that yet; or
        whether its variants are still to come."""
        if not self._choice.is_auto or build.trial is not None:
            return False
        may_leave = kind not in self._left and any(one.learns for one in build.parts)
        return may_leave or build.plan.has_variants

    def learn(self, kind: QueueKind) -> bool:
        """Ask a build what its first runs have taught. Forget it if an engine leaves commands to
        others, or if its variants shall take turns.

        Returns:
            Whether everything is known. Nothing more is learned then.
        """
        if self._builds[kind][0].plan.has_variants:
            if self.native.enqueued < _WORTH_VARIANTS:
                return False
            with self.block_updates():
                self._with_variants.add(kind)
                self._drop(kind, {})
            return True
        (build,), left = self._builds[kind], dict[str, dict[int, str]]()
        with self.block_updates():
            for part, one in zip(build.plan.parts, build.parts, strict=True):
                learned = one.find_slower_commands()
                if learned is None:
                    return False
                longer = {part.first + number: why for number, why in learned.items()}
                left.setdefault(part.engine.name, {}).update(longer)
        self._left[kind] = left
        if any(left.values()):
            self._drop(kind, {})
        return True

    def _drop(self, kind: QueueKind, refused: Mapping[str, str]) -> None:
        self._refused.setdefault(kind, {}).update(refused)
        builds = self._builds.pop(kind)
        self._list()
        for one in builds:
            one.close()

    def _list_built(self) -> list[Built]:
        rows = (build for builds in self._builds.values() for build in builds)
        return [one for build in rows for one in build.parts]

    def _list(self) -> None:
        """Tell C what was built, for updates."""
        if not self._commands.updatable:
            return
        built = self._list_built() if self._given is None else [self._given]
        rows = ffi.new("fl_built *[]", [one.native for one in built])
        with self.block_updates():
            self._listed, self.native.built = (built, rows), rows
            self.native.built_count = len(built)
            self.native.python_updates = any(not one.native.update for one in built)

    # changes

    def block_updates(self) -> AbstractContextManager[None]:
        """Block updates in C and in other threads for the length of a block.

        Nothing is enqueued in it.
        """
        return self._changing

    @property
    def updates_wait(self) -> bool:
        """Whether something must not be updated while it is executed."""
        built = self._list_built() if self._given is None else [self._given]
        return any(one.updates_wait for one in built)

    def tell(self, changes: Mapping[int, bool]) -> int:
        """Pass changed commands to everything that was built of them.

        Args:
            changes: the numbers of the commands, and whether each launches another kernel now.

        Returns:
            OpenCL's code.
        """
        code = 0
        if len(changes) > 1:  # kernels first: by them launches follow each other
            changes = dict(sorted(changes.items(), key=lambda change: not change[1]))
        for command, relaunched in changes.items():
            code = lib.fl_update_buffer(self.native, command, relaunched) or code
        if self.native.python_updates:
            code = code or self._tell_python(list(changes))
        return code

    def _tell_python(self, commands: Sequence[int]) -> int:
        """Update what C cannot update. A refusal is not a failure if other engines can run it."""
        if self._given is not None:
            return _tell_one(self._given, 0, commands)
        for kind, builds in list(self._builds.items()):
            refused: dict[str, str] = {}
            for build in builds:
                for part, one in zip(build.plan.parts, build.parts, strict=True):
                    inside = [number for number in commands if part.first <= number < part.end]
                    if _tell_one(one, part.first, inside):
                        refused[part.engine.name] = "the driver refused an update"
            if refused:
                self._drop(kind, refused)
        return 0

    # explain, close

    def explain(self, kind: QueueKind) -> str:
        """Return how commands run on such a queue, and why: a line for each engine."""
        build = self.get_build(kind)
        why = {**self._choice.explain_others(), **build.plan.why}
        wide = max(map(len, why))
        lines = [f"{self._commands.count} commands"]
        for name, reason in why.items():
            parts = zip(build.plan.parts, build.parts, strict=True)
            ran = [(part, one) for part, one in parts if part.engine.name == name]
            for part, one in ran:
                which = f"{part.first}–{part.end - 1}: " if len(build.parts) > 1 else ""
                lines.append(f"  {name:{wide}}  {which}{one.explain()}; {reason}")
            if not ran:
                lines.append(f"  {name:{wide}}  not chosen: {reason}")
        return "\n".join(lines)

    def close(self) -> None:
        """Close what engines built. What was enqueued runs to its end."""
        closed = self._list_built()
        with self.block_updates():
            self.native.built_count = 0
            self._builds.clear()
        for one in closed:
            one.close()


def _explain_choice(plan: Plan, candidates: Sequence[Plan], seconds: Mapping[str, float]) -> Plan:
    """Return a plan that says why it was chosen among the candidates."""
    figures = ", ".join(f"{name} {time * 1e6:.1f} µs" for name, time in seconds.items())
    used = {part.engine.name for part in plan.parts}
    why = {
        name: f"{'' if name in used else 'not '}clearly faster, a replay takes: {figures}"
        for one in candidates
        for name in one.undecided
    }
    if any(one.tried for one in candidates):
        why[list(plan.why)[-1]] = f"the first replays took: {figures}"
    return replace(plan, why={**plan.why, **why}, undecided=())


def _tell_one(built: Built, first: int, commands: Sequence[int]) -> int:
    if built.native.update or not commands:
        return 0
    return built.update([number - first for number in commands])
