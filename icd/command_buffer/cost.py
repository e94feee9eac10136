"""The costs of engines: what engines say themselves, and what trials (trial.py) found on a driver.

A trial's result is kept for later processes, like the verdicts of probes. It holds for this
driver's file, device and version, for this kind of queue, and for graphs of this shape.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...loader.base.fact_cache import FactCache, identify_library
from ...loader.base.library import find_file
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import get_address, query_compute_units
from .commands import CommandList, describe
from .engine import Cost, QueueKind

#: A tie goes to the engine that runs everything, because it can do more. It allows for measuring
#: errors.
_CLEARLY: Final = 0.95

#: So many commands of a graph, evenly spaced, determine its shape.
_LOOKED_AT: Final = 64

_CACHE: Final = FactCache("engines.json")


def is_cheaper(cost: Cost, other: Cost, count: int) -> bool:
    """Return whether so many commands clearly cost less in one engine than in another one."""
    return cost.estimate(count) < _CLEARLY * other.estimate(count)


def recall(commands: CommandList, target: QueueKind, names: Sequence[str]) -> dict[str, float]:
    """Return the seconds of candidates for a replay of such commands, from a trial of any process.

    Returns:
        The seconds by name; empty if these candidates have not been tried.
    """
    key = _make_key(commands, target, names)
    found = _CACHE.read().get(key or "", {}).get("seconds")
    if not isinstance(found, dict) or list(found) != list(names):
        return {}
    return found if all(isinstance(seconds, float) for seconds in found.values()) else {}


def remember(commands: CommandList, target: QueueKind, seconds: Mapping[str, float]) -> None:
    """Keep the result of a trial: the seconds of each candidate by its name."""
    key = _make_key(commands, target, list(seconds))
    if key:
        _CACHE.add({key: {"seconds": dict(seconds), "at": time.time()}})


def _make_key(commands: CommandList, target: QueueKind, names: Sequence[str]) -> str | None:
    """Return what a trial is about; None if the driver's file is unknown."""
    identity = identify_library("cl", _find_driver_file(target.device))
    if identity is None:
        return None
    order = "in order" if target.in_order else "out of order"
    order += f", {target.use.value}" if target.use else ""
    shape = hashlib.sha256("\n".join(_describe_shape(commands)).encode()).hexdigest()[:32]
    facts = (*target.identity, query_compute_units(target.device), order, *names, shape)
    return "|".join(map(str, (identity, *facts)))


def _find_driver_file(device: int) -> str:
    """Return the library of a device's driver, found by one of its functions, or ""."""
    table = lib.fl_table_of(ffi.cast("void *", device))
    return find_file(get_address(table[OPENCL.functions["clGetDeviceInfo"].slot]))


def _describe_shape(commands: CommandList) -> Iterator[str]:
    """Return the number of commands, and the operations of some of them."""
    count = len(commands)
    yield f"{count} {commands.updatable} {commands.schedule}"
    for number in range(0, count, max(1, count // _LOOKED_AT)):
        yield describe(commands.array[number])[0]
