"""How everything here is measured: actions in turns, medians, quartiles, and rows with targets.

Actions are compared in turns in one process, so that other load on the machine meets all of them.
Each round has a random order, so that each action meets the caches of every other one equally
often.

The ratio of the two medians is judged. The row also has the median of the ratios within each round.
If the two differ much, the machine was busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from statistics import median, quantiles
from typing import Any, Final

#: Nanoseconds that a turn of a kernel's loop, `x = x * a + b`, can take: the least, the most.
_TURN: Final = 0.1, 100.0

#: Seconds, microseconds and so on, one a round, by the name of what was measured.
Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Target:
    """`Target("≤", 1.05)` is met by 1.05 and less."""

    relation: str
    bound: float

    def met(self, value: float) -> bool:
        """Return whether a value meets the target.

        It is judged as measured, not as rounded for print.
        """
        return value <= self.bound if self.relation == "≤" else value >= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the results. Without a target a row only informs.

    Attributes:
        value: what is judged; None if it could not be measured, then `note` says why.
        unit: "×" for a ratio.
        series: a summary of the samples, in `series_unit`.
        ratio_of_rounds: the median of the ratios of the rounds; None without rounds.
    """

    what: str
    value: float | None
    unit: str
    target: Target | None = None
    series: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    series_unit: str = ""
    ratio_of_rounds: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data, with `met`: True, False, or None where nothing is
        judged."""
        judged = self.target and self.value is not None
        data = asdict(self)
        data["target"] = f"{self.target.relation} {self.target.bound:g}" if self.target else None
        data["met"] = (
            self.target.met(self.value)
            if judged and self.target and self.value is not None
            else None
        )
        return data


def in_turns(
    actions: Mapping[str, Callable[[], object]],
    rounds: int,
    commands: int = 1,
    after: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Take every action once a round, in a random order.

    Every action is taken twice beforehand, so that a driver's preparations at first use do not
    count. `after` is called after each, and not measured.

    Returns:
        Microseconds, divided by `commands`.
    """
    for action in [*actions.values()] * 2:
        action()
        after()
    names, lot = list(actions), Random(1)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        lot.shuffle(names)
        for name in names:
            action = actions[name]
            start = time.perf_counter_ns()
            action()
            samples[name].append((time.perf_counter_ns() - start) / 1000 / commands)
            after()
    return samples


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and number of samples."""
    low, _, high = (
        quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else (samples[0],) * 3
    )
    return {"median": median(samples), "q1": low, "q3": high, "count": len(samples)}


def ratio(
    what: str,
    samples: Samples,
    over: str,
    under: str,
    target: Target | None = None,
    unit: str = "µs per command",
    note: str = "",
) -> Row:
    """Return the row that compares two of the samples: median of `over` by median of `under`."""
    rounds = median(a / b for a, b in zip(samples[over], samples[under], strict=True))
    series = {name: summary(samples[name]) for name in (over, under)}
    value = series[over]["median"] / series[under]["median"]
    return Row(what, value, "×", target, series, unit, rounds, note)


def turns_for(wanted: float, turns: int, taken: float) -> int:
    """Return how many turns of a kernel's loop take so long.

    Args:
        wanted: µs.
        turns: of a kernel that was measured.
        taken: µs by which it took longer than one without turns.

    Raises:
        SystemExit: No processor can have taken that time.
    """
    if not _TURN[0] <= taken / turns * 1000 <= _TURN[1]:
        raise SystemExit(
            f"{turns} turns of a kernel's loop seem to take {taken:.3g} µs, which is implausible: "
            "the machine is too busy to measure"
        )
    return max(1, round(turns * wanted / taken))
