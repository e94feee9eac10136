"""Which engine runs which commands: the division of a command list into runs, and the reasons for it.

Engines are asked in order of preference; the last one runs what no other takes. An engine that divides takes maximal runs of commands,
the others all or nothing. With `auto` an engine also has to be clearly cheaper than the last one (cost.py), and free of known defects.
Nothing is built here: command_buffer.py does that, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from . import cost
from .commands import CommandList
from .engine import Engine, QueueKind
from .engines import Choice

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """The commands from `first` up to `end`, run by one engine. It comes after the part before it."""

    engine: Engine
    first: int
    end: int


@dataclass(frozen=True)
class Plan:
    """How a command list is run on a kind of queue.

    Attributes:
        parts: in order; at least one.
        why: for each engine by name why it was chosen, or why not.
    """

    parts: Sequence[Part]
    why: Mapping[str, str]


def make_plan(
    commands: CommandList,
    target: QueueKind,
    choice: Choice,
    refused: Mapping[str, str],
    left: Mapping[str, Mapping[int, str]] = MappingProxyType({}),
) -> Plan:
    """Divide commands among engines.

    Args:
        commands: all of them.
        target: the kind of queue.
        choice: the engines, and whether their costs decide.
        refused: why the driver has refused what an engine built, by the engine's name.
        left: the commands that an engine has learned to leave to others and why, by its name.
    """
    *preferred, last = choice.engines
    owners: list[Engine | None] = [None] * len(commands)
    why: dict[str, str] = {}
    for engine in preferred:
        reason = refused.get(engine.name) or engine.why_not(commands, target)
        if reason is None and choice.is_auto:
            reason = engine.defect(target)
        if reason is None:
            reason = _take(
                engine, last, commands, target, owners, choice, left.get(engine.name, {})
            )
        why[engine.name] = reason
    why[last.name] = "it runs whatever no other engine takes" if preferred else choice.why
    parts = [
        Part(engine, first, end)
        for engine, first, end in _runs([owner or last for owner in owners])
    ]
    return Plan(parts or [Part(last, 0, 0)], why)


def _take(
    engine: Engine,
    last: Engine,
    commands: CommandList,
    target: QueueKind,
    owners: list[Engine | None],
    choice: Choice,
    left: Mapping[int, str],
) -> str:
    """Give an engine what it takes of the commands that have no owner. Returns why it takes them, or why none."""
    order_only, refusals = commands.order.order_only, dict[int, str]()
    if engine.divides:
        refusals.update(engine.refusals(commands, target))
        refusals.update(left)
    refusals.update(
        (number, "another engine takes it")
        for number, owner in enumerate(owners)
        if owner is not None
    )
    if refusals and not engine.divides:
        return "another engine takes some of the commands"
    first_refusal = min(refusals, default=None)
    why = "" if first_refusal is None else f"command {first_refusal}: {refusals[first_refusal]}"
    taken = False
    for takes, first, end in _runs([number not in refusals for number in range(len(owners))]):
        count = end - first - sum(order_only[first:end])
        if not takes or not count:
            continue
        if choice.is_auto:
            known = engine.is_worth(count)
            is_cheaper, figures = known or cost.is_cheaper(engine, last, target, count)
            why = why or f"{'' if is_cheaper else 'not '}clearly faster: {figures}"
            if not is_cheaper:
                continue
        owners[first:end] = [engine] * (end - first)
        taken = True
    return why or (choice.why if taken else "there is no command for it")


def _runs(owners: Sequence[_T]) -> Iterator[tuple[_T, int, int]]:
    """Maximal runs of equal members: the member, the first place, and the place after the last."""
    first = 0
    for place in range(1, len(owners) + 1):
        if place == len(owners) or owners[place] != owners[first]:
            yield owners[first], first, place
            first = place
