"""The engines, and which of them FAIRLEAD_COMMAND_BUFFER chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...loader.base.errors import FairleadError
from ...loader.base.search import filter_environ
from .engine import Engine
from .engines.cuda import Cuda
from .engines.direct import Direct
from .engines.native import Native
from .engines.replay import Replay

#: By name, the preferred first. The last one runs every command on every driver.
ENGINES: Final[dict[str, Engine]] = {
    engine.name: engine for engine in (Direct(), Native(), Cuda(), Replay())
}

_VARIABLE: Final = "FAIRLEAD_COMMAND_BUFFER"


class UnknownEngineError(FairleadError, ValueError):
    """FAIRLEAD_COMMAND_BUFFER names an unknown engine."""


@dataclass(frozen=True)
class Choice:
    """Engines in order of preference. The last one takes what the others leave.

    Attributes:
        engines: at least one.
        is_auto: whether an engine has to be clearly cheaper than the last one, and free of known
            defects.
        why: why one of them is taken if its cost does not decide, and why no other engine is.
    """

    engines: Sequence[Engine]
    is_auto: bool = False
    why: str = "it was asked for"

    def explain_others(self) -> Mapping[str, str]:
        """Return why the engines that are not chosen are not, by name."""
        names = {engine.name for engine in self.engines}
        return {name: self.why for name in ENGINES if name not in names}


def choose(name: str = "") -> Choice:
    """Return the engines of a name: "auto", or engines in order of preference, separated by commas.

    Args:
        name: "" stands for the environment variable FAIRLEAD_COMMAND_BUFFER, by default "auto".

    Raises:
        UnknownEngineError: there is no such engine. The message lists the engines.
    """
    given = name or filter_environ().get(_VARIABLE, "")
    names = [part.strip().lower() for part in given.split(",") if part.strip()] or ["auto"]
    if names == ["auto"]:
        return Choice(tuple(ENGINES.values()), is_auto=True)
    unknown = [part for part in names if part not in ENGINES]
    if unknown:
        raise UnknownEngineError(
            f"{_VARIABLE}={given}: there is no engine {unknown[0]!r}.",
            routine=_VARIABLE,
            remedy=f"auto, or one or more of {', '.join(ENGINES)}",
        )
    fallback = list(ENGINES)[-1]
    chosen = dict.fromkeys([*names, fallback])
    if fallback in names:  # what is named after it is never asked
        chosen = dict.fromkeys(names[: names.index(fallback) + 1])
    return Choice([ENGINES[part] for part in chosen], why=f"{_VARIABLE}={given}")
