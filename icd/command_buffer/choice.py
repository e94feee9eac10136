"""The engines, and which of them FAIRLEAD_COMMAND_BUFFER chooses.

Other packages register engines in the group `fairlead.engines`. They are imported when a program
records its first commands. One that cannot be imported is a line of `explain()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from ...loader.base.errors import FairleadError
from ...loader.base.registered import Registered, list_registered
from ...loader.base.search import filter_environ
from .engine import Engine
from .engines.cuda import Cuda
from .engines.direct import Direct
from .engines.native import Native
from .engines.replay import Replay

#: fairlead's own by name, the preferred first. The last one runs every command on every driver.
ENGINES: Final[dict[str, Engine]] = {
    engine.name: engine for engine in (Direct(), Native(), Cuda(), Replay())
}

_VARIABLE: Final = "FAIRLEAD_COMMAND_BUFFER"


def load_engine(registered: Registered) -> Engine:
    """Import an engine.

    Raises:
        FairleadError: it cannot be imported, or is not an engine of the entry point's name.
    """
    engine = registered.call()
    if not isinstance(engine, Engine) or getattr(engine, "name", "") != registered.name:
        remedy = "register NAME=MODULE:CLASS, a class of engines whose `name` is NAME"
        raise registered.refuse(f"is not an engine called {registered.name}", remedy)
    return engine


@cache
def _load_registered() -> tuple[dict[str, Engine], dict[str, str]]:
    """Return the engines of other packages, and why others cannot be used, by their names.

    fairlead's own are not registered: a graph does not depend on the metadata of packages. They
    keep their names.
    """
    engines, refused = dict[str, Engine](), dict[str, str]()
    for one in (one for one in list_registered("fairlead.engines") if one.name not in ENGINES):
        try:
            engines[one.name] = load_engine(one)
        except FairleadError as error:
            refused[one.name] = error.message
    return engines, refused


def list_engines() -> dict[str, Engine]:
    """Return all engines by name, the preferred first.

    Those of other packages come before the last one of ours.
    """
    *first, last = ENGINES.items()
    others, _ = _load_registered()
    return dict([*first, *others.items(), last])


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
        others = {name: self.why for name in list_engines() if name not in names}
        return _load_registered()[1] | others


def choose(name: str = "") -> Choice:
    """Return the engines of a name: "auto", or engines in order of preference, separated by commas.

    Args:
        name: "" stands for the environment variable FAIRLEAD_COMMAND_BUFFER, by default "auto".

    Raises:
        UnknownEngineError: there is no such engine. The message lists the engines.
    """
    given = name or filter_environ().get(_VARIABLE, "")
    names = [part.strip().lower() for part in given.split(",") if part.strip()] or ["auto"]
    engines = list_engines()
    if names == ["auto"]:
        return Choice(tuple(engines.values()), is_auto=True)
    unknown = [part for part in names if part not in engines]
    if unknown:
        raise UnknownEngineError(
            f"{_VARIABLE}={given}: there is no engine {unknown[0]!r}.",
            routine=_VARIABLE,
            remedy=f"auto, or one or more of {', '.join(engines)}",
        )
    fallback = list(engines)[-1]
    chosen = dict.fromkeys([*names, fallback])
    if fallback in names:  # what is named after it is never asked
        chosen = dict.fromkeys(names[: names.index(fallback) + 1])
    return Choice([engines[part] for part in chosen], why=f"{_VARIABLE}={given}")
