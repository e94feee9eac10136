"""The contents of errors.txt: the errors that the specification lists for wrong arguments.

The file also says which entry points may answer UNSUPPORTED_FEATURE.

>>> LISTED["urQueueFinish"].errors
(ListedError(code='UR_RESULT_ERROR_INVALID_NULL_HANDLE', change='hQueue'),)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead.loader.ur.abi import UR

_PREFIX: Final = "UR_RESULT_ERROR_"

#: Rules that many functions share: the lines that a name with `@` stands for.
_SETS: Final = {
    "@query": (
        "INVALID_ENUMERATION: propName=?",
        "INVALID_SIZE: propSize propSize=1",
        "INVALID_NULL_POINTER: pPropValue propSize,pPropValue,pPropSizeRet",
    ),
    "@wait_list": (
        "INVALID_EVENT_WAIT_LIST: numEventsInWaitList=1 phEventWaitList=events "
        "numEventsInWaitList=1,phEventWaitList=nulls",
    ),
    "@sync_points": (
        "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP: numSyncPointsInWaitList=1 "
        "pSyncPointWaitList=points",
    ),
    "@failed_event": ("IN_EVENT_LIST_EXEC_STATUS: numEventsInWaitList=1,phEventWaitList=failed",),
}


@dataclass(frozen=True)
class ListedError:
    """A wrong call of a function, and the code that answers it.

    A change reads `name=word,name.field`.
    """

    code: str
    change: str

    def changes(self) -> Iterator[tuple[str, str, str]]:
        """Yield argument, field and word of each part of the change.

        The field is "" for the argument itself. The word is "" for 0.
        """
        for part in self.change.split(","):
            path, _, word = part.partition("=")
            name, _, field = path.partition(".")
            yield name, field, word

    def describe(self, function: str) -> str:
        """Return the change in words: "hQueue is NULL"."""
        parts = []
        for name, member, word in self.changes():
            parameter = next(p for p in UR.functions[function].parameters if p.name == name)
            if member:
                parameter = next(
                    field for field in UR.structs[parameter.type].fields if field.name == member
                )
            nothing = (
                "NULL"
                if parameter.stars or UR.resolve(parameter.type) in ("handle", "callback")
                else "0"
            )
            parts.append(
                f"{name}{f'.{member}' if member else ''} is "
                f"{_WORDS.get(word, word) if word else nothing}"
            )
        return " and ".join(parts)


_WORDS: Final = {
    "?": "no value of its type",
    "events": "a list of an event",
    "nulls": "a list of NULL",
    "failed": "a list of an event that has failed",
    "points": "a list of a sync-point",
    "kernels": "a list of a kernel",
    "same_kernel": "a list of that kernel",
    "block": "memory with something else in it",
    "zeros": "an array of 0",
    "no_name": "no name that there is",
    "largest": "more than the device has",
    "huge": "the largest number of 64 bits",
}


@dataclass(frozen=True)
class EntryErrors:
    """What the specification lists for an entry point.

    `condition` is "", or a query; it may answer UNSUPPORTED_FEATURE only if the device answers the
    query with 0.
    """

    function: str
    condition: str
    errors: tuple[ListedError, ...]


def _read() -> Iterator[EntryErrors]:
    heads: list[tuple[str, list[str]]] = []
    for line in Path(__file__).with_name("errors.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            heads[-1][1].append(line.strip())
        elif line and not line.startswith("#"):
            head, *sets = line.split()
            heads.append((head, [rule for name in sets for rule in _SETS[name]]))
    for head, rules in heads:
        name, _, condition = head.partition("?")
        experimental = name.endswith("Exp")
        errors = tuple(
            ListedError(_PREFIX + code, change)
            for code, _, rest in (rule.partition(": ") for rule in rules)
            for change in rest.split()
        )
        yield EntryErrors(name, "" if experimental else condition, errors)


LISTED: Final = {listed.function: listed for listed in _read()}
