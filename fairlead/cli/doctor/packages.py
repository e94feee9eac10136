"""Commands that other packages register, in `fairlead doctor`: can they be imported?

Adapters that packages register are among the adapters (plugins.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...loader.base.children import Request, run_all
from ...loader.base.errors import FairleadError
from ...loader.base.registered import Registered
from ..registered_commands import list_commands, load_command


@dataclass(frozen=True)
class PackageCommand:
    """A command that a package registers.

    Attributes:
        name: the command's name.
        package: the package's name and version.
        reason: why it cannot be used, "" if it can; `remedy` says what to do.
    """

    name: str
    package: str
    reason: str = ""
    remedy: str = ""


def survey(timeout: float | None = None) -> tuple[PackageCommand, ...]:
    """Import each command in a child process.

    Args:
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    found = list_commands()
    outcomes = run_all([Request(__name__, asdict(one)) for one in found], timeout)
    answers = (one.report or {"reason": one.reason, "remedy": one.remedy} for one in outcomes)
    return tuple(
        PackageCommand(one.name, one.package, **answer)
        for one, answer in zip(found, answers, strict=True)
    )


def main(data: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, str]:
    """Import a command in a child process. Returns why it cannot be used, if so."""
    progress("importing the command")
    try:
        load_command(Registered(**data))
    except FairleadError as error:
        return {"reason": error.message, "remedy": error.remedy}
    return {"reason": ""}


def format_lines(
    commands: tuple[PackageCommand, ...], painted: Callable[[str], str]
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        painted: returns a state in its colour.
    """
    for one in commands:
        state = painted("refused" if one.reason else "usable")
        yield f"{state}: fairlead {one.name}, of the package {one.package}"
        if one.reason:
            yield f"  why: {one.reason}"
            yield f"  next: {one.remedy}"
