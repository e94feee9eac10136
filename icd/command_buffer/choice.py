"""The engines, and which of them FAIRLEAD_COMMAND_BUFFER chooses.

An engine for some drivers only is imported when a command-buffer is made in a context of such a
driver. Its row of `ENGINES` says which these are. So a first capture does not import all engines.

Other packages register engines in the group `fairlead.engines`. They are imported when a program
records its first commands. One that cannot be imported is a line of `explain()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from ...loader.base.errors import FairleadError
from ...loader.base.frozen_value import Value
from ...loader.base.registered import Registered, list_registered
from ...loader.base.search import filter_environ
from ..calls import find_context_profile
from ..driver_profiles import DriverProfile
from ..errors import OpenCLError
from .engine import Engine
from .engines.native import Native
from .engines.replay import Replay


class EngineOfDrivers(Value):
    """An engine for some drivers, which is not imported on others.

    Attributes:
        module: its module beside this one.
        class_name: its class there.
        runs_on: whether it may run commands on drivers with this profile.
        why_not: why it runs none on the others.
    """

    module: str
    class_name: str
    runs_on: Callable[[DriverProfile], bool]
    why_not: str


def _may_have_cuda(profile: DriverProfile) -> bool:
    """Return whether a driver is NVIDIA's, or the program has imported what shares its memory."""
    return profile.compiles_to_ptx or "fairlead.icd.cuda_sharing" in sys.modules


#: fairlead's own by name, the preferred first. The last one runs every command on every driver.
ENGINES: Final[dict[str, Engine | EngineOfDrivers]] = {
    "direct": EngineOfDrivers(
        ".engines.direct",
        "Direct",
        lambda profile: profile.has_kernels_in_process,
        "the driver is not PoCL, or a row of driver_profiles.py forbids its version",
    ),
    "native": Native(),
    "cuda": EngineOfDrivers(
        ".engines.cuda",
        "Cuda",
        _may_have_cuda,
        "the driver is not NVIDIA's, whose compiler gives PTX",
    ),
    "replay": Replay(),
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


def list_engines() -> dict[str, Engine | EngineOfDrivers]:
    """Return all engines by name, the preferred first.

    Those of other packages come before the last one of ours.
    """
    *first, last = ENGINES.items()
    others, _ = _load_registered()
    return dict([*first, *others.items(), last])


class UnknownEngineError(FairleadError, ValueError):
    """FAIRLEAD_COMMAND_BUFFER names an unknown engine."""


class Choice(Value):
    """Engines in order of preference. The last one takes what the others leave.

    Attributes:
        engines: at least one.
        is_auto: whether an engine has to be clearly cheaper than the last one, and free of known
            defects.
        why: why one of them is taken if its cost does not decide, and why no other engine is.
        of_others: why engines that may be chosen are not for the context's driver, by name.
    """

    engines: Sequence[Engine]
    is_auto: bool = False
    why: str = "it was asked for"
    of_others: Mapping[str, str] = MappingProxyType({})

    def explain(self, asked: Mapping[str, str]) -> Mapping[str, str]:
        """Return a sentence for each engine, by name: why it runs the commands, or why not.

        Engines that were not asked come first.

        Args:
            asked: the sentences of the engines that were asked.
        """
        mine, names = {**self.of_others, **asked}, list_engines()
        others = {name: self.why for name in names if name not in mine}
        order = [name for name in names if name in mine] if self.is_auto else []
        mine = {name: mine[name] for name in dict.fromkeys([*order, *mine])}
        return {**_load_registered()[1], **others, **mine}


def choose(context: int, name: str = "") -> Choice:
    """Return the engines that may run commands in a context.

    Args:
        context: a handle.
        name: see `choose_names`.

    Raises:
        UnknownEngineError: there is no such engine. The message lists the engines.
    """
    names, why = choose_names(name)
    engines, of_others, rows = list[Engine](), dict[str, str](), list_engines()
    for one in names:
        row = rows[one]
        if isinstance(row, Engine):
            engines.append(row)
        elif (why_not := _why_not_driver(row, context)) is None:
            engines.append(_load_own(row))
        else:
            of_others[one] = why_not
    return Choice(engines, not why, why or Choice.why, of_others)


def _why_not_driver(row: EngineOfDrivers, context: int) -> str | None:
    try:
        return None if row.runs_on(find_context_profile(context)) else row.why_not
    except OpenCLError as error:
        return f"the driver does not describe the device, {error}"


@cache
def _load_own(row: EngineOfDrivers) -> Engine:
    return getattr(import_module(row.module, __package__), row.class_name)()


def choose_names(name: str = "") -> tuple[list[str], str]:
    """Return the engines that a program asks for by name, and why; "" if it asks for none.

    Args:
        name: "auto", or engines in order of preference, separated by commas. "" stands for the
            environment variable FAIRLEAD_COMMAND_BUFFER, by default "auto".

    Raises:
        UnknownEngineError: there is no such engine. The message lists the engines.
    """
    given = name or filter_environ().get(_VARIABLE, "")
    names = [part.strip().lower() for part in given.split(",") if part.strip()] or ["auto"]
    engines = list_engines()
    if names == ["auto"]:
        return list(engines), ""
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
    return list(chosen), f"{_VARIABLE}={given}"
