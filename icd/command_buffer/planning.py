"""Which engine runs which commands: a division of a command list into runs, and its reasons.

Engines are asked in order of preference. The last one runs what no other takes. An engine that
divides takes maximal runs of commands; the others take all or nothing. With `auto` an engine also
has to be free of known defects, and clearly cheaper than the last one. If engines do not know their
costs, there are several plans, and the first replays find the fastest (trial.py).
execution_plans.py lets engines build the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ..errors import OpenCLError
from . import cost
from .choice import Choice
from .commands import CommandList
from .engine import BuiltCommands, Engine, QueueKind, Use
from .trial import Trial

if TYPE_CHECKING:
    from .rewrites.checking import FusionCheck

_T = TypeVar("_T")

_IN_TURNS: Final = "its cost is not known: it takes turns with others in the first replays"


class Awaited(Protocol):
    """What is prepared in the background: `has_ended` says whether it is there."""

    @property
    def has_ended(self) -> bool: ...


@dataclass(eq=False)
class Part:
    """The commands from `first` up to `end`, which one engine runs after those before them.

    Attributes:
        built: what the engine built of them (`ExecutionPlan.build`).
    """

    engine: Engine
    first: int
    end: int
    built: BuiltCommands = field(init=False)

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.name


@dataclass(eq=False)
class ExecutionPlan:
    """A way to run a command list on a kind of queue.

    Attributes:
        commands: what is run: the list, or what a rewrite has made of it.
        parts: in order; at least one.
        why: for each engine by name why it was chosen, or why not.
        undecided: the engines whose costs are not known, by name, in order of preference.
        tried: what is different from another plan of the same engines, "" if nothing is.
        has_variants: whether there are such plans, which were not asked for.
        awaits: what is prepared in the background. After it there may be a better plan.
        numbers: of a rewrite, for each of its commands the first one of the list that it stands
            for; None for the list itself.
        trial: measures it and the others, None if there are none.
        check: compares what each replay of it has written; None if nothing does.
        is_closed: whether nothing of it can run any more.
    """

    commands: CommandList
    parts: Sequence[Part]
    why: dict[str, str]
    undecided: Sequence[str] = ()
    tried: str = ""
    has_variants: bool = False
    awaits: Sequence[Awaited] = ()
    numbers: Sequence[int] | None = None
    trial: Trial | None = None
    check: FusionCheck | None = None
    is_closed: bool = False

    @property
    def is_temporary(self) -> bool:
        """Whether the next enqueue may be one of another plan."""
        return self.trial is not None or self.check is not None

    @property
    def name(self) -> str:
        """The names of its engines, and what is tried."""
        names = "+".join(dict.fromkeys(part.name for part in self.parts))
        return f"{names} ({self.tried})" if self.tried else names

    def build(self, kind: QueueKind) -> tuple[Part, OpenCLError] | None:
        """Let the engines build the parts.

        Returns:
            The part that a driver refused, and why: nothing is built then. None if all are built.
        """
        with ExitStack() as made:  # closes them if one cannot be built
            for part in self.parts:
                try:
                    part.built = part.engine.build(self.commands.part(part.first, part.end), kind)
                except OpenCLError as refusal:
                    return part, refusal
                made.callback(part.built.close)
                part.built.native.first = part.first
            made.pop_all()
        return None

    def close(self) -> None:
        """Close what engines built."""
        self.is_closed = True
        for part in self.parts:
            part.built.close()


#: Engines with their costs and those of the last engine, for each use.
CostsByUse = Sequence[tuple[Engine, Sequence[tuple[cost.Cost, cost.Cost]]]]


def compare_costs(choice: Choice, target: QueueKind) -> CostsByUse:
    """Return the engines whose costs are known and compared, with these."""
    *others, last = choice.engines if choice.is_auto else choice.engines[-1:]
    kinds = [replace(target, use=use) for use in Use]
    found = {
        engine: [
            (mine, other)
            for kind in kinds
            if (mine := engine.cost(kind)) and (other := last.cost(kind))
        ]
        for engine in others
    }
    return [(engine, pairs) for engine, pairs in found.items() if pairs]


def differ_by_use(commands: CommandList, target: QueueKind, costs: CostsByUse) -> bool:
    """Return whether an engine is the cheaper one for some uses of such replays only.

    The list of commands keeps the answer: asking an engine takes long.
    """
    key = "differs by use", target.device
    if costs and key not in commands.notes:
        commands.notes[key] = any(
            len({cost.is_cheaper(mine, last, commands.count) for mine, last in pairs}) > 1
            and engine.why_not(commands, target) is None
            for engine, pairs in costs
        )
    return bool(costs) and commands.notes[key]


def make_plans(
    commands: CommandList,
    target: QueueKind,
    choice: Choice,
    refused: Mapping[str, str],
    left: Mapping[str, Mapping[int, str]],
    *,
    with_variants: bool = False,
) -> list[ExecutionPlan]:
    """Return the plans that may be the fastest, not built yet. See `make_plan`.

    Each does without one more of the engines whose costs are unknown. With variants there are also
    plans in which the last engine has other settings, and one that leaves out what was
    learned.
    """
    asked = [engine for engine in choice.engines if choice.is_auto and engine.name not in refused]
    awaits = [one for engine in asked for one in engine.prepare(commands, target)]
    found = [make_plan(commands, target, choice, refused, left)]
    while found[-1].undecided:
        refused = {**refused, found[-1].undecided[0]: _IN_TURNS}
        found.append(make_plan(commands, target, choice, refused, left))
    for plan in found:
        plan.awaits = awaits
    *others, best = found
    variants = _make_variants(best, commands, target, choice, refused)
    if not with_variants:
        best.has_variants = bool(variants)
        return found
    if variants and any(left.values()):
        variants.insert(0, replace(make_plan(commands, target, choice, refused), tried="all of it"))
    return [*others, *variants, best]


def _make_variants(
    plan: ExecutionPlan,
    commands: CommandList,
    target: QueueKind,
    choice: Choice,
    refused: Mapping[str, str],
) -> list[ExecutionPlan]:
    """Return a plan with other settings of its last engine."""
    last, found = choice.engines[-1], dict[str, Engine]()
    for part in plan.parts if choice.is_auto else ():
        if part.engine is last:
            found.update(last.list_variants(commands.part(part.first, part.end), target))
    return [
        replace(
            plan,
            parts=[
                Part(variant if part.engine is last else part.engine, part.first, part.end)
                for part in plan.parts
            ],
            why=dict(plan.why),
            tried=name,
        )
        for name, variant in found.items()
        if name not in refused
    ]


def make_plan(
    commands: CommandList,
    target: QueueKind,
    choice: Choice,
    refused: Mapping[str, str],
    left: Mapping[str, Mapping[int, str]] = MappingProxyType({}),
) -> ExecutionPlan:
    """Divide commands among engines.

    Args:
        choice: the engines, and whether their costs decide.
        refused: why the driver has refused what an engine built, by the engine's name.
        left: the commands that an engine has learned to leave to others and why, by its name.
    """
    *preferred, last = choice.engines
    owners: list[Engine | None] = [None] * len(commands)
    why: dict[str, str] = {}
    undecided: list[str] = []
    for engine in preferred:
        reason = refused.get(engine.name) or engine.why_not(commands, target)
        if reason is None and choice.is_auto:
            reason = engine.defect(target)
        if reason is None:
            mine = left.get(engine.name, {})
            reason = _take(engine, last, commands, target, owners, choice, mine)
            if reason == _IN_TURNS:
                undecided.append(engine.name)
        why[engine.name] = reason
    why[last.name] = (
        "it runs whatever no other engine takes" if preferred or choice.of_others else choice.why
    )
    parts = [
        Part(engine, first, end)
        for engine, first, end in _find_runs([owner or last for owner in owners])
    ]
    return ExecutionPlan(commands, parts or [Part(last, 0, 0)], why, undecided)


def _take(
    engine: Engine,
    last: Engine,
    commands: CommandList,
    target: QueueKind,
    owners: list[Engine | None],
    choice: Choice,
    left: Mapping[int, str],
) -> str:
    """Give an engine the commands that it takes of those without an owner.

    Returns why, or why none.
    """
    order_only, refusals = commands.order.order_only, dict[int, str]()
    if engine.divides:
        refusals.update(engine.list_refusals(commands, target))
        refusals.update(left)
    refusals.update(
        (number, "another engine takes it")
        for number, owner in enumerate(owners)
        if owner is not None
    )
    if left and not engine.divides:  # it has learned to leave all of them
        return next(iter(left.values()))
    if refusals and not engine.divides:
        return "another engine takes some of the commands"
    first_refusal = min(refusals, default=None)
    why = "" if first_refusal is None else f"command {first_refusal}: {refusals[first_refusal]}"
    always = engine.always_faster if choice.is_auto else None
    costs = (engine.cost(target), last.cost(target)) if choice.is_auto and not always else None
    taken = False
    for takes, first, end in _find_runs([number not in refusals for number in range(len(owners))]):
        count = end - first - sum(order_only[first:end])
        if not takes or not count:
            continue
        if costs and costs[0] and costs[1]:
            is_cheaper = cost.is_cheaper(costs[0], costs[1], count)
            figures = f"{engine.name} {costs[0]}; {last.name} {costs[1]}"
            why = why or f"{'' if is_cheaper else 'not '}clearly faster: {figures}"
            if not is_cheaper:
                continue
        owners[first:end] = [engine] * (end - first)
        taken = True
    if taken and costs and not (costs[0] and costs[1]):
        return _IN_TURNS
    return why or (always or choice.why if taken else "there is no command for it")


def _find_runs(owners: Sequence[_T]) -> Iterator[tuple[_T, int, int]]:
    """Yield maximal runs of equal members: the member, the first place, the place after the
    last."""
    first = 0
    for member, run in groupby(owners):
        end = first + len(list(run))
        yield member, first, end
        first = end
