"""The ways to run a command list, for each kind of queue, and how changes reach them.

A kind of queue is planned (planning.py) and built at its first use. If a driver refuses what an
engine built, it is planned again without that engine. If the fastest of several plans is
unknown, all of them are built, and the first replays decide (trial.py). Later replays decide again
(reviews.py). C knows everything that is built (`fl_buffer`), because it makes updates, too.

A change is made as a whole or not at all. It does not affect what was enqueued, because OpenCL
takes a kernel's arguments when a launch is enqueued. Where a driver's command-buffer must not be
changed before its end, the change waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .._native import ffi, lib
from ..calls import find_device_profile, get_address
from ..errors import OpenCLError, error
from .cells import Cells
from .choice import Choice
from .commands import CommandList
from .cost import recall, remember
from .edits import copy_command, put
from .engine import BuiltCommands, QueueKind, Use
from .planning import CostsByUse, ExecutionPlan, Part, compare_costs, differ_by_use, make_plans
from .reviews import Reviews
from .rewrites.rewriting import Rewriting
from .trial import TURNS, TURNS_OF_SCHEDULES, Trial, choose_fastest
from .waiting import wait

if TYPE_CHECKING:
    from .rewrites.flow import Flow  # it needs a parser

#: Schedules take turns in a graph that was enqueued so often: others are not worth building it
#: several times.
_WORTH_VARIANTS: Final = 8

#: What is different in a plan of rewritten commands, and in one that runs both ways.
_REWRITTEN: Final = "fused"
_BOTH_WAYS: Final = "both ways"


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


class ExecutionPlans:
    """The plans of a command list, by the kind of queue, and what changes the commands.

    Args:
        given: what an engine has built already, to be used on whatever queue, or None.
        lock: held by Python threads that enqueue or change it.

    Attributes:
        native: the command-buffer as C knows it, an `fl_buffer *`.
        rewriting: what rewrites the commands, None if nothing does.
    """

    def __init__(
        self,
        commands: CommandList,
        choice: Choice,
        given: BuiltCommands | None,
        lock: Any,
    ) -> None:
        self.native = ffi.new("fl_buffer *")
        self.native.holds_events = find_device_profile(commands.devices[0]).holds_events
        self._commands, self._choice, self._given = commands, choice, given
        self.rewriting: Rewriting | None = None
        self._flow: Flow | None = None  # to what was rewritten
        self._found: dict[QueueKind, Sequence[ExecutionPlan]] = {}  # several while they take turns
        self._costs: dict[int, CostsByUse] = {}
        self._refused: dict[QueueKind, dict[str, str]] = {}  # why a driver refused an engine
        # what engines learned to leave, also of rewritten commands
        self._left: dict[tuple[QueueKind, bool], dict[str, dict[int, str]]] = {}
        self._with_variants: set[QueueKind] = set()  # where schedules take turns
        self._reviews = Reviews()
        self._is_review = self._has_choice = False
        self._rewrite_at = self._review_at = 0  # after so many enqueues
        self._listed: Any = None  # what `native` points to
        self._changing = _Changing(self.native, lock)
        if given is not None:
            self._list()

    def find_kind(self, queue: int, use: Use) -> QueueKind:
        """Return the kind of a queue, and of replays on it."""
        kind = QueueKind.of_queue(self._commands.context, queue)
        if kind.device not in self._costs:
            self._costs[kind.device] = compare_costs(self._choice, kind)
        rewritten = self.rewriting.rewritten if self.rewriting is not None else None
        for commands in (self._commands, rewritten.commands if rewritten is not None else None):
            if commands is not None and differ_by_use(commands, kind, self._costs[kind.device]):
                return replace(kind, use=use)
        return kind

    def choose(self, kind: QueueKind) -> ExecutionPlan:
        """Return the plan that is enqueued next on a kind of queue. The lock is held.

        Raises OpenCLError if the last engine cannot build its part.
        """
        if self.native.stale:  # an engine cannot run a changed command
            with self.block_updates():
                self.native.stale = 0
                self._set_flow(None)
            for other in list(self._found):
                self._drop(other, {})
        if self.is_due:
            self._look(kind)
        unlike = replace(kind, use=None)
        if kind.use is not None and unlike in self._found:  # what was rewritten differs by use
            with self.block_updates():
                self._drop(unlike, {})
        found = self._found.get(kind)
        if found is not None and found[0].check is not None:  # what it compares has changed
            with self.block_updates():
                self._drop(kind, {})
            found = None
        while found is None:
            found = self._make(kind)
            if found is not None:
                self._found[kind] = found
                self._list()
        trial = found[0].trial
        if trial is None:
            return found[0]
        seconds = trial.find_medians()
        if seconds is None:
            return found[trial.choose_next()]
        if not any(one.tried for one in found):  # that depends on arguments, and on load
            remember(self._commands, kind, seconds)
        return self._keep_fastest(kind, seconds, trial)

    def _make(self, kind: QueueKind) -> Sequence[ExecutionPlan] | None:
        """Plan and build. Returns None if an engine failed; the next plan does without it."""
        if self._given is not None:
            (engine,) = self._choice.engines
            part = Part(engine, 0, len(self._commands))
            part.built = self._given
            return [ExecutionPlan(self._commands, [part], {engine.name: self._choice.why})]
        if not self._is_review:  # after what was prepared in the background: it is not again
            self._reviews.begin(kind, self.native.enqueued)
        refused, left = self._refused.setdefault(kind, {}), self._left.get((kind, False), {})
        with_variants = kind in self._with_variants
        rewritten = self._plan_rewritten(kind, refused)
        found = self._plan_check(kind, refused) or make_plans(
            self._commands, kind, self._choice, refused, left, with_variants=with_variants
        )
        found = [*found, *rewritten]  # a tie goes to the last
        if self.rewriting is not None and not self.rewriting.has_ended:
            for one in found:
                one.awaits = [*one.awaits, self.rewriting]
        names = [one.name for one in found]
        tries_schedules = any(one.tried for one in found)
        self._has_choice |= len(found) > 1
        is_new = len(found) == 1 or tries_schedules or self._is_review
        known = None if is_new else recall(self._commands, kind, names)
        if known:
            best = next(one for one in found if one.name == choose_fastest(known))
            _explain_choice(best, found, known)
            found = [best]
        turns = TURNS_OF_SCHEDULES if tries_schedules else TURNS
        changes = {any(part.engine.changes_device for part in one.parts) for one in found}
        trial = None
        if len(found) > 1:
            trial = Trial(names, turns, repeats=tries_schedules, in_pairs=len(changes) > 1)
        with ExitStack() as made:  # closes them if one cannot be built
            for one in found:
                one.trial, failure = trial, one.build(kind)
                if failure is not None:
                    self._note_refusal(kind, one, *failure)
                    return None
                made.callback(one.close)
            made.pop_all()
        return found

    def _plan_rewritten(
        self, kind: QueueKind, refused: Mapping[str, str]
    ) -> Sequence[ExecutionPlan]:
        """Return the plans of the rewritten commands, if there are any now."""
        rewriting = self.rewriting
        rewritten = rewriting.rewritten if rewriting is not None else None
        if rewriting is None or rewritten is None:
            return []
        flow = rewritten.flow if self._flow is None else None
        if rewriting.hides_revealed or (flow is not None and not flow.holds()):
            self.rewrite_later(rewriting)
            self._left = {key: left for key, left in self._left.items() if not key[1]}
            return []
        if flow is not None:
            self._set_flow(flow)
        if rewritten.commands is None or _REWRITTEN in refused:
            return []
        if rewritten.check is not None and (rewritten.check.left or rewritten.check.failure):
            return []
        left = self._left.get((kind, True), {})
        found = make_plans(rewritten.commands, kind, self._choice, refused, left)
        return [
            replace(one, tried=_REWRITTEN, numbers=rewritten.numbers, has_variants=False)
            for one in found
        ]

    def _plan_check(
        self, kind: QueueKind, refused: Mapping[str, str]
    ) -> Sequence[ExecutionPlan] | None:
        """Return the plan that runs fused kernels and what was captured; None if none is wanted."""
        rewritten = self.rewriting.rewritten if self.rewriting is not None else None
        check = rewritten.check if rewritten is not None else None
        made = check.make_commands() if check is not None else None
        if made is None:
            return None
        commands, numbers = made
        plan = make_plans(commands, kind, self._choice, refused, {})[-1]
        both = {"tried": _BOTH_WAYS, "numbers": numbers, "check": check}
        return [replace(plan, has_variants=False, awaits=(), **both)]

    def compare(self, kind: QueueKind, queue: int) -> None:
        """Wait for the last enqueue, and compare what its plan has written both ways.

        Raises:
            FusionError: there is a difference. The commands run as captured from now on.
            OpenCLError: it has failed.
        """
        plan = self._found[kind][0]
        check = plan.check
        assert check is not None
        self.wait_for_last()
        check.compare(queue)

    def _set_flow(self, flow: Flow | None) -> None:
        """Set what takes changes to the rewritten commands. None: they get no changes."""
        with self.block_updates():
            if self._flow is not None:
                self._flow.watch(on=False)
                self._flow.give([])  # what it was given will be gone
            if flow is not None:
                flow.watch(on=True)
            self._flow = flow

    def rewrite(self, rewriting: Rewriting, *, wait: bool) -> None:
        """Take what rewrites the commands: after some replays, or now.

        Args:
            wait: whether to wait until it has.
        """
        self.rewriting = rewriting
        if wait:
            rewriting.wait()
        else:
            self._look_at(rewrite=rewriting.look(self.native.enqueued))

    def rewrite_later(self, rewriting: Rewriting) -> None:
        """Take what rewrites the commands, and forget what it has made. After some replays it
        begins again."""
        self.rewriting = rewriting
        self._look_at(rewrite=rewriting.put_off(self.native.enqueued))

    def reveal(self, memory: Collection[int]) -> None:
        """Let the next enqueue write memory objects (handles) that a program can see now."""
        if self.rewriting is None:
            return
        with self.block_updates():
            self.rewriting.reveal(memory)
            if self.rewriting.hides_revealed:
                self.native.stale = 1

    @property
    def is_due(self) -> bool:
        """Whether the next enqueue has to `choose` again."""
        due = self.native.next_look
        return 0 < due <= self.native.enqueued

    def _look_at(self, *, rewrite: int | None = None, review: int | None = None) -> None:
        """Note after how many enqueues to look what is due: 0 is never, None is as it was."""
        self._rewrite_at = self._rewrite_at if rewrite is None else rewrite
        self._review_at = self._review_at if review is None else review
        self.native.next_look = min(filter(None, (self._rewrite_at, self._review_at)), default=0)

    def _look(self, kind: QueueKind) -> None:
        """Do what is due. Nobody is on a route."""
        ran = self.native.enqueued
        if self.rewriting is not None and 0 < self._rewrite_at <= ran:
            self._look_at(rewrite=self.rewriting.look(ran))
            if not self._rewrite_at:
                self._begin_rewrite(self.rewriting)
        if 0 < self._review_at <= ran:
            later = self._reviews.look(kind, ran)
            self._look_at(review=later and ran + later)
            if not later:
                self._review(kind)

    def _review(self, kind: QueueKind) -> None:
        """Let the next replays on a kind of queue choose anew, as the first ones did."""
        self._reviews.begin(kind, self.native.enqueued)
        self._is_review = True
        with self.block_updates():
            for is_rewritten in (False, True):
                self._left.pop((kind, is_rewritten), None)
            if kind in self._found:
                self._drop(kind, {})

    def settle(self, kind: QueueKind, plan: ExecutionPlan) -> None:
        """Note which plan is enqueued from now on, until that is reviewed. The lock is held."""
        reviews = self._reviews
        if reviews.kind != kind:
            return
        left = self._left.get((kind, plan.numbers is not None), {})
        has_left = {name: list(one) for name, one in left.items() if one}
        self._has_choice |= bool(has_left) or any(part.built.learns for part in plan.parts)
        later = reviews.end((plan.name, str(has_left)), self.native.enqueued)
        self._is_review = False
        if self._has_choice:
            self._look_at(review=self.native.enqueued + later)

    def _begin_rewrite(self, rewriting: Rewriting) -> None:
        """Begin a rewrite. Replays run as captured meanwhile."""
        rewriting.begin()
        for one in (one for plans in self._found.values() for one in plans):
            one.awaits = [*one.awaits, rewriting]

    def _note_refusal(
        self, kind: QueueKind, plan: ExecutionPlan, part: Part, refusal: OpenCLError
    ) -> None:
        """Note that an engine is not asked again. Raises the refusal if no engine is left."""
        is_last = part.name == self._choice.engines[-1].name
        if plan.check is not None:
            plan.check.give_up(f"the driver refused to run both ways, {refusal}")
            return
        if is_last and not plan.tried:
            raise refusal
        refused = plan.tried if is_last or plan.numbers is not None else part.name
        self._refused[kind][refused] = f"the driver refused it, {refusal}"

    def _keep_fastest(
        self, kind: QueueKind, seconds: Mapping[str, float], trial: Trial
    ) -> ExecutionPlan:
        """End a trial: keep only the fastest plan."""
        found = self._found[kind]
        launches = {one.name: len(one.commands) for one in found}
        are_schedules = any(one.tried for one in found)
        best = choose_fastest(
            seconds,
            of_schedules=are_schedules,
            launches=launches,
            scatter=trial.scatter,
            are_exact=trial.are_exact,
        )
        winner = next(one for one in found if one.name == best)
        _explain_choice(winner, found, seconds)
        winner.trial = None
        for part in winner.parts:
            part.built.measure_again()
        self._found[kind] = [winner]
        self._list()
        for one in found:
            if one is not winner:
                one.close()
        return winner

    def runs_all_here(self, kind: QueueKind) -> bool:
        """Whether the caller's thread can run each plan that takes turns. Its times are exact."""
        plans = self._found[kind]
        built = [part.built for one in plans for part in one.parts]
        return all(one.native.run for one in built) and not any(one.check for one in plans)

    def refuse(self, kind: QueueKind, plan: ExecutionPlan, reason: str) -> None:
        """Forget a plan that the driver refused to enqueue, and the others.

        Its engines are not asked again.
        """
        self._drop(kind, {part.name: reason for part in plan.parts})

    def is_learning(self, kind: QueueKind, plan: ExecutionPlan) -> bool:
        """Whether a part of a plan measures its runs, and nothing was learned from that yet;
        or whether its variants, or what it awaits, are still to come."""
        if plan.is_temporary:
            return False
        if not self._choice.is_auto:
            return bool(plan.awaits)
        is_known = (kind, plan.numbers is not None) in self._left
        may_leave = not is_known and any(part.built.learns for part in plan.parts)
        return may_leave or plan.has_variants or bool(plan.awaits)

    def learn(self, kind: QueueKind) -> bool:
        """Ask a plan what its first runs have taught. Forget it if an engine leaves commands
        to others, if its variants shall take turns, or if all is prepared that it awaits. Where
        nothing was rewritten, what was built stays.

        Returns:
            Whether everything is known. Nothing more is learned then.
        """
        awaits = self._found[kind][0].awaits
        if awaits:
            if not all(one.has_ended for one in awaits):
                return False
            with self.block_updates():
                rewriting = self.rewriting if all(one is self.rewriting for one in awaits) else None
                rewritten = rewriting.rewritten if rewriting is not None else None
                if rewritten is None or rewritten.commands is not None:
                    self._drop(kind, {})
                    return True
                self._plan_rewritten(kind, {})  # no plan, but a change may let some be rewritten
                for one in self._found[kind]:
                    one.awaits = ()
                self._list()
            return True
        if self._found[kind][0].has_variants:
            if self.native.enqueued < _WORTH_VARIANTS:
                return False
            with self.block_updates():
                self._with_variants.add(kind)
                self._drop(kind, {})
            return True
        (plan,), left = self._found[kind], dict[str, dict[int, str]]()
        with self.block_updates():
            for part in plan.parts:
                learned = part.built.find_slower_commands()
                if learned is None:
                    return False
                longer = {part.first + number: why for number, why in learned.items()}
                left.setdefault(part.name, {}).update(longer)
        self._left[kind, plan.numbers is not None] = left
        if any(left.values()):
            self._drop(kind, {})
        return True

    def _drop(self, kind: QueueKind, refused: Mapping[str, str]) -> None:
        self._refused.setdefault(kind, {}).update(refused)
        dropped = self._found.pop(kind)
        self._list()
        for one in dropped:
            one.close()

    def _list_built(self, *, of_rewrites: bool = False) -> list[BuiltCommands]:
        """Return what was built of the commands, or of what they were rewritten to."""
        if self._given is not None:
            return [] if of_rewrites else [self._given]
        found = (one for plans in self._found.values() for one in plans if one.check is None)
        wanted = (one for one in found if (one.numbers is not None) == of_rewrites)
        return [part.built for one in wanted for part in one.parts]

    def _list(self) -> None:
        """Tell C what was built, for updates."""
        if not self._commands.updatable:
            return
        built, flow = self._list_built(), self._flow
        rewritten = self._list_built(of_rewrites=True)
        natives = [*(one.native for one in built), *([flow.native] if flow is not None else [])]
        rows = ffi.new("fl_built *[]", natives)
        with self.block_updates():
            if flow is not None:
                flow.give([one.native for one in rewritten])
            self._listed, self.native.built = (built, rewritten, flow, rows), rows
            self.native.built_count = len(natives)
            self.native.python_updates = any(not one.native.update for one in built)

    # changes

    def block_updates(self) -> AbstractContextManager[None]:
        """Block updates in C and in other threads for the length of a block.

        Nothing is enqueued in it.
        """
        return self._changing

    def change(
        self, numbers: Sequence[int], change: Callable[[], Mapping[int, bool]], routine: str
    ) -> None:
        """Change commands: all of them or, if anything fails, none. What was enqueued does not
        change.

        Args:
            numbers: the commands that may change.
            change: changes them in the array. Returns those that it changed, and whether each
                launches another kernel now.

        Raises:
            OpenCLError: an engine refuses it, and nothing has changed.
        """
        with self.block_updates():
            self._wait_for_updates()
            before = {number: copy_command(self._commands.array + number) for number in numbers}
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

    def set_cells(self, cells: Cells) -> None:
        """Let cells take what was staged in their rows. What was enqueued does not change.

        No other Python thread may change or enqueue it meanwhile.

        Raises:
            OpenCLError: an engine refuses it.
        """
        flow = self._flow
        accepted = flow.accept(cells) if flow is not None and flow.watches_memory else ()
        code = lib.fl_set_cells(self.native, cells.rows, cells.count)
        if code == lib.FL_PYTHON_UPDATES:
            changed = cells.list_pending()
            self._wait_for_updates()
            code = lib.fl_store_cells(self.native, cells.rows, cells.count)
            code = code or self._tell(dict.fromkeys(changed, False))
        for one in accepted:
            lib.fl_watch_cell(one, True)
        if code:
            raise error(code, "set", "An engine refused the new values.")

    def _wait_for_updates(self) -> None:
        """Wait for the last enqueue if something must not be updated before its end."""
        native = self.native
        waits = native.python_updates and native.last_event
        if waits and any(one.updates_wait for one in self._list_built()):
            with self.block_updates():  # not by C, which would wait for the end of the changes
                native.again = ffi.NULL
            self.wait_for_last()

    def wait_for_last(self) -> None:
        """Wait for the last enqueue, of which there is one."""
        kind = QueueKind.of_queue(self._commands.context, get_address(self.native.last_queue))
        profile = find_device_profile(kind.device)
        with suppress(OpenCLError):  # whatever became of its commands
            wait(get_address(self.native.last_event), kind.in_order, profile.waits_one_at_a_time)

    def _tell(self, changes: Mapping[int, bool]) -> int:
        """Pass changed commands to everything that was built of them.

        Args:
            changes: the numbers of the commands, and whether each launches another kernel now.

        Returns:
            OpenCL's code.
        """
        code = 0
        if self.native.python_updates:
            with self.block_updates():
                self.native.again = ffi.NULL
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
        for kind, plans in list(self._found.items()):
            refused: dict[str, str] = {}
            recorded = (one for one in plans if one.numbers is None)
            for part in (part for one in recorded for part in one.parts):
                inside = [number for number in commands if part.first <= number < part.end]
                if _tell_one(part.built, part.first, inside):
                    refused[part.name] = "the driver refused an update"
            if refused:
                self._drop(kind, refused)
        return 0

    # explain, close

    def explain(self, kind: QueueKind) -> str:
        """Return how commands run on such a queue, and why: a line for each engine."""
        plan = self.choose(kind)
        why = self._choice.explain(plan.why)
        wide = max(map(len, why))
        lines = [f"{self._commands.count} commands"]
        if self.rewriting is not None:
            lines += self.rewriting.lines
            rewritten = self.rewriting.rewritten
            if rewritten is not None and rewritten.check is not None:
                lines.append(rewritten.check.describe())
        for name, reason in why.items():
            ran = [part for part in plan.parts if part.name == name]
            for part in ran:
                which = f"{part.first}–{part.end - 1}: " if len(plan.parts) > 1 else ""
                lines.append(f"  {name:{wide}}  {which}{part.built.explain()}; {reason}")
            if not ran:
                lines.append(f"  {name:{wide}}  not chosen: {reason}")
        return "\n".join(lines)

    def close(self) -> None:
        """Close what engines built. What was enqueued runs to its end."""
        closed = self._list_built() if self._found else []
        closed += self._list_built(of_rewrites=True)
        with self.block_updates():
            self.native.built_count = 0
            self._set_flow(None)
            self._found.clear()
        for one in closed:
            one.close()


def _explain_choice(
    best: ExecutionPlan, plans: Sequence[ExecutionPlan], seconds: Mapping[str, float]
) -> None:
    """Let a plan say why it was chosen among all."""
    figures = ", ".join(f"{name} {time * 1e6:.1f} µs" for name, time in seconds.items())
    used = {part.name for part in best.parts}
    why = {
        name: f"{'' if name in used else 'not '}clearly faster, a replay takes: {figures}"
        for one in plans
        for name in one.undecided
    }
    if any(one.tried for one in plans):
        why[list(best.why)[-1]] = f"the first replays took: {figures}"
    best.why = {**best.why, **why}
    best.undecided = ()


def _tell_one(built: BuiltCommands, first: int, commands: Sequence[int]) -> int:
    if built.native.update or not commands:
        return 0
    return built.update([number - first for number in commands])
