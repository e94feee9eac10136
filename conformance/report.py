"""The results of a run: the outcome of each case, a table of the areas, and a line for each
failure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Final

from fairlead.loader.base.drawing import format_table

OUTCOMES: Final = ("passed", "failed", "unsupported")

#: Why a case is unsupported, if a function says so; also `checks.expect`.
_NOT_IMPLEMENTED: Final = re.compile(r"(\w+) answers \w+_(?:UNSUPPORTED_FEATURE|UNINITIALIZED)")

_NAMED: Final = 20  # of these functions

#: The row of the cases whose outcome the specification leaves undefined.
BEYOND: Final = "beyond the specification"


@dataclass(frozen=True)
class Case:
    """The outcome of a case.

    `expected` and `got` say why it failed; `got` also why it is unsupported. `alternatives` are
    codes that it answered and the case takes, but not as the best ones.
    """

    name: str
    area: str
    entry_point: str
    rule: str
    beyond: bool = False
    outcome: str = ""
    expected: str = ""
    got: str = ""
    seconds: float = 0.0
    alternatives: Sequence[str] = ()

    @property
    def line(self) -> str:
        """Return the failure in a line: entry point, rule, expected, got."""
        expected = f"expected {self.expected}, " if self.expected else ""
        return f"{self.entry_point}: {self.rule}: {expected}got {self.got}"


@dataclass
class SuiteReport:
    """The results of a run.

    `facts` is what the library says about itself. `left` counts the cases that were not run, and
    `trouble` says why.
    """

    library: str
    interface: str
    facts: dict[str, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    seconds: float = 0.0
    left: int = 0
    trouble: str = ""

    @property
    def ok(self) -> bool:
        """Whether every case was run and none failed."""
        return (
            not self.left
            and not self.trouble
            and not any(case.outcome == "failed" for case in self.cases)
        )

    def rows(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each area with the numbers of its cases by outcome.

        The areas come in the order of their names. The row `BEYOND` is the last one.
        """
        for area in sorted({case.area for case in self.cases if not case.beyond}):
            yield (
                area,
                _count_outcomes(
                    [case for case in self.cases if case.area == area and not case.beyond]
                ),
            )
        if beyond := [case for case in self.cases if case.beyond]:
            yield BEYOND, _count_outcomes(beyond)

    def failures(self) -> list[Case]:
        """Return the failed cases; those beyond the specification come last."""
        return sorted(
            (case for case in self.cases if case.outcome == "failed"),
            key=lambda case: (case.beyond, case.area),
        )

    def not_implemented(self) -> dict[str, int]:
        """Return each function that the library says it does not implement.

        With it comes the number of cases that need it. The largest number is first.
        """
        found = [
            match[1]
            for case in self.cases
            if case.outcome == "unsupported"
            and (match := _NOT_IMPLEMENTED.fullmatch(case.got)) is not None
        ]
        return dict(Counter(found).most_common())

    def _repr_html_(self) -> str:
        """Return the table for a notebook, and the failures."""
        rows = ((area, *counts) for area, counts in self.table())
        failures = "\n".join(case.line for case in self.failures())
        return "\n".join(
            [
                f"<p>{escape(f'{self.library} ({self.interface})')}</p>",
                format_table(("area", *OUTCOMES), rows),
                *([f"<pre>{escape(failures)}</pre>"] if failures else []),
                *([f"<p>{escape(self.trouble)}</p>"] if self.trouble else []),
            ]
        )

    def table(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the rows, and the total."""
        yield from self.rows()
        yield "total", _count_outcomes(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        areas = {area: dict(zip(OUTCOMES, counts, strict=True)) for area, counts in self.rows()}
        return {**asdict(self), "areas": areas, "ok": self.ok}


def render(report: SuiteReport) -> str:
    """Return the table, and a line for each failure."""
    head = [
        *_explain(report),
        "",
        f"{report.library} ({report.interface})",
        *(f"{name}: {text}" for name, text in report.facts.items()),
    ]
    rows = [("area", OUTCOMES), *report.table()]
    width = max(len(area) for area, _ in rows)
    table = [f"{area:{width}}" + "".join(f"  {cell:>11}" for cell in cells) for area, cells in rows]
    parts = ["\n".join(head), "\n".join(table)]
    if absent := report.not_implemented():
        names = ", ".join(f"{name} ({count})" for name, count in tuple(absent.items())[:_NAMED])
        rest = f", and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        parts.append(
            "\n".join(
                textwrap.wrap(
                    f"not implemented, with the cases that need it: {names}{rest}",
                    100,
                    subsequent_indent="  ",
                )
            )
        )
    if failures := report.failures():
        lines = (
            f"  {case.line}" + (" [beyond the specification]" if case.beyond else "")
            for case in failures
        )
        parts.append("\n".join(["failed:", *lines]))
    if report.trouble:
        left = (
            f", {report.left} case{'s were' if report.left != 1 else ' was'} not run"
            if report.left
            else ""
        )
        parts.append(f"not complete{left}: {report.trouble}")
    return "\n\n".join(
        [
            *parts,
            f"{len(report.cases)} case{'s' * (len(report.cases) != 1)} in {report.seconds:.0f} s",
        ]
    )


def _explain(report: SuiteReport) -> list[str]:
    """Return the first lines: the result, and how to read the table."""
    failed = len(report.failures())
    result = (
        f"{failed} of {len(report.cases)} cases failed." if report.cases else "No case was run."
    )
    lines = [
        f"{result} A failed case is a rule that the library breaks: a line under the table.",
        "An unsupported case tests what the library does not implement, and is not a failure.",
    ]
    if any(case.beyond for case in report.cases):
        lines.append(f'Rules that are "{BEYOND}" are good practice, and break no standard.')
    return lines


def _count_outcomes(cases: Sequence[Case]) -> tuple[int, ...]:
    """Return the numbers of cases by outcome, in the order of OUTCOMES."""
    return tuple(sum(case.outcome == outcome for case in cases) for outcome in OUTCOMES)
