"""The errors that the specification lists for wrong arguments.

Most follow from the ABI data (`loader/base/argument_rules.py`): NULL for a parameter that is not
optional, and a value that an enumeration lacks. Info queries and wait lists have rules of their
own, below. errors.txt has the others. It also says which entry points may answer
UNSUPPORTED_FEATURE only if the device answers a query with 0.

>>> LISTED["urQueueFinish"].errors
(ListedError(code='UR_RESULT_ERROR_INVALID_NULL_HANDLE', change='hQueue'),)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead.loader.base.argument_rules import list_rules
from fairlead.loader.ur.abi import UR

_PREFIX: Final = "UR_RESULT_ERROR_"

#: What functions with a parameter list: lines as in errors.txt, and the functions that do not.
_SHARED: Final = {
    "pPropSizeRet": (
        (
            "INVALID_ENUMERATION: propName=?",
            "INVALID_SIZE: propSize propSize=1",
            "INVALID_NULL_POINTER: pPropValue propSize,pPropValue,pPropSizeRet",
        ),
        {
            *("urEventGetProfilingInfo", "urProgramGetBuildInfo", "urPhysicalMemGetInfo"),
            *("urKernelGetGroupInfo", "urKernelGetSubGroupInfo", "urUSMGetMemAllocInfo"),
            *("urUSMPoolGetInfoExp", "urBindlessImagesImageGetInfoExp", "urVirtualMemGetInfo"),
        },
    ),
    "numEventsInWaitList": (
        (
            "INVALID_EVENT_WAIT_LIST: numEventsInWaitList=1 phEventWaitList=events "
            "numEventsInWaitList=1,phEventWaitList=nulls",
        ),
        {
            *("urEnqueueTimestampRecordingExp", "urEnqueueNativeCommandExp"),
            "urBindlessImagesWaitExternalSemaphoreExp",
            "urBindlessImagesSignalExternalSemaphoreExp",
        },
    ),
    "numSyncPointsInWaitList": (
        (
            "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP: numSyncPointsInWaitList=1 "
            "pSyncPointWaitList=points",
        ),
        set[str](),
    ),
}
#: The codes of rules that the specification lists for each parameter.
_FOLLOW: Final = ("INVALID_NULL_HANDLE", "INVALID_NULL_POINTER", "INVALID_ENUMERATION")
#: The conditions of such rules: `not NAME`, and the values or the bits that a NAME has not.
_CONDITION: Final = re.compile(r"not (\w+)|(?:\w+ and )?([\w.]+) (?:& ~\S+|not in \{.*\})")


@dataclass(frozen=True, order=True)
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


def _list_shared(name: str) -> Iterator[str]:
    """Yield lines as in errors.txt that follow from a function's parameters."""
    function = UR.functions[name]
    for rule in list_rules(function):
        found = _CONDITION.fullmatch(rule.condition)
        if found and rule.code in _FOLLOW:
            yield f"{rule.code}: {found[1] or f'{found[2]}=?'}"
    for p in function.parameters:
        lines, without = _SHARED.get(p.name, ((), ()))
        if name not in without:
            yield from lines


def _read() -> Iterator[EntryErrors]:
    own: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in Path(__file__).with_name("errors.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            lines.append(line.strip())
        elif line and not line.startswith("#"):
            name, _, condition = line.partition("?")
            own[name] = condition, (lines := [])
    newest = next(iter(UR.layouts.values()))
    for name in (name for table in newest.values() for name in table if name):
        condition, lines = own.get(name, ("", []))
        rules = (line.partition(": ") for line in (*_list_shared(name), *lines))
        errors = {
            ListedError(_PREFIX + code, one) for code, _, rest in rules for one in rest.split()
        }
        yield EntryErrors(name, condition, tuple(sorted(errors)))


LISTED: Final = {listed.function: listed for listed in _read()}
