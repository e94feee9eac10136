"""What other packages register, in `fairlead doctor`: can it be imported, and what does it say?

Adapters and drivers that packages register are among the adapters and drivers. A package can have a
section of this report, too, in the group `fairlead.doctor`. Its entry point names a function that
yields lines, and a `Problem` (problems.py) for what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from typing import Any, Final

from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.errors import FairleadError
from ...loader.base.query import escape_text
from ...loader.base.registered import Registered, list_registered
from ..layers import find_layer
from ..registered_commands import load_command
from .problems import Problem
from .states import format_reason

_MOST: Final = 1000  # lines of a section


@dataclass(frozen=True)
class PackageEntry:
    """What a package registers.

    Attributes:
        group: its group, such as "fairlead.commands".
        what: the name that a report calls it.
        package: the package's name and version.
        reason: why it cannot be used, "" if it can; `remedy` says what to do.
        lines: what a section of this report says.
        problems: what is wrong with it, and what a section calls a problem.
    """

    name: str
    group: str
    what: str
    package: str
    reason: str
    remedy: str
    lines: tuple[str, ...]
    problems: tuple[Problem, ...]


def _load_engine(registered: Registered) -> None:
    from ...icd.command_buffer.choice import load_engine

    load_engine(registered)


def _read_section(registered: Registered) -> dict[str, Any]:
    """Return the lines of a section, and its problems.

    Raises:
        FairleadError: it cannot be imported, fails, or yields something else.
    """
    try:
        said = list(islice(registered.call(), _MOST))
    except FairleadError:
        raise
    except (Exception, SystemExit) as error:  # the function is a generator, or returns no list
        raise registered.refuse(f"fails: {type(error).__name__}: {error}") from error
    problems = [one for one in said if isinstance(one, Problem)]
    lines = [one for one in said if isinstance(one, str)]
    if len(problems) + len(lines) < len(said) or any(
        one.severity not in ("error", "warning") for one in problems
    ):
        remedy = "yield texts and fairlead.cli.doctor.problems.Problem, an error or a warning"
        raise registered.refuse("says something that is not a line or a problem", remedy)
    return {"lines": lines, "problems": list(map(astuple, problems))}


#: What is looked at here, by its group: what a report calls it, and what imports it.
_KINDS: Final[Mapping[str, tuple[str, Callable[[Registered], Any]]]] = {
    "fairlead.commands": ("fairlead", load_command),
    "fairlead.layers": ("layer", find_layer),
    "fairlead.engines": ("engine", _load_engine),
    "fairlead.suites": ("conformance suite", Registered.load),
    "fairlead.doctor": ("section", _read_section),
}


def survey(timeout: float | None = None) -> tuple[PackageEntry, ...]:
    """Import what other packages register, each in a child process.

    Args:
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    found = [(group, one) for group in _KINDS for one in list_registered(group) if not one.is_own]
    requests = [Request(__name__, {"group": group, "entry": asdict(one)}) for group, one in found]
    outcomes = run_all(requests, timeout)
    return tuple(
        _make_entry(group, one, outcome)
        for (group, one), outcome in zip(found, outcomes, strict=True)
    )


def _make_entry(group: str, one: Registered, outcome: Outcome) -> PackageEntry:
    why = {"reason": outcome.reason or "; ".join(outcome.notes), "remedy": outcome.remedy}
    said = escape_text(outcome.report or why)
    reason, remedy, what = said["reason"], said["remedy"], f"{_KINDS[group][0]} {one.name}"
    problems = [Problem(*problem) for problem in said.get("problems", ())]
    problems += [Problem("warning", what, reason, remedy)] if reason else []
    lines = tuple(said.get("lines", ()))
    return PackageEntry(one.name, group, what, one.package, reason, remedy, lines, tuple(problems))


def main(data: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Import what is registered, in a child process.

    Returns:
        Why it cannot be used, and what a section says.
    """
    progress("importing the package")
    _, load = _KINDS[data["group"]]
    try:
        said: Any = load(Registered(**data["entry"]))
    except FairleadError as error:
        return {"reason": error.message, "remedy": error.remedy}
    said = said if load is _read_section else {}
    return {"reason": "", "remedy": "", **said}


def format_lines(entries: Iterable[PackageEntry], painted: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        painted: returns a state in its colour.
    """
    for one in entries:
        state = painted("refused" if one.reason else "usable")
        yield f"{state}: {one.what}, of the package {one.package}"
        yield from format_reason(one)
        yield from (f"  {line}" for line in one.lines)
