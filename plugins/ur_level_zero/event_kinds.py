"""Which events of Level Zero the commands of in-order lists signal.

A regular event is a flag. Somebody resets it before it is used again. A counter-based event stands
for the last call that signals it, and nobody resets it. Only in-order lists signal such events, and
the host does not. Command-buffers and queues that profile have regular ones, which have times.

FAIRLEAD_ZE_EVENTS chooses: auto, counter-based or regular. By default they are counter-based where
the driver has them: by zeEventCounterBasedCreate of Level Zero 1.15, or before that in pools of
ZE_experimental_event_pool_counter_based.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from ...loader.base.search import filter_environ
from .core import ZE, failure
from .platforms import LZPlatform

VARIABLE: Final = "FAIRLEAD_ZE_EVENTS"
_POOLS: Final = ZE.strings["ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME"]
_CREATE: Final = "zeEventCounterBasedCreate"
_SINCE: Final = 1, 15  # the version of Level Zero that has it


class EventSource(enum.Enum):
    """How the events are made."""

    REGULAR = "regular"
    COUNTER_POOLS = "counter-based, of pools"
    COUNTERS = "counter-based"


class EventUse(enum.IntFlag):
    """Which lists signal an event: ze_event_counter_based_flags_t, 0 for a regular event."""

    ANY = 0
    IMMEDIATE = ZE["ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE"]
    REGULAR_LIST = ZE["ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE"]


class EventChoice(NamedTuple):
    """The events of in-order lists.

    Attributes:
        source: how they are made.
        why: why they were chosen, for `explain`.
    """

    source: EventSource
    why: str

    @property
    def counts(self) -> bool:
        """Return whether they are counter-based."""
        return self.source is not EventSource.REGULAR

    def __str__(self) -> str:
        kind = "counter-based" if self.counts else "regular"
        return f"{kind} events, because {self.why}"


def choose_events(platform: LZPlatform, devices: int) -> EventChoice:
    """Return the events of in-order lists.

    Raises:
        URError: INVALID_VALUE for an unknown value of `VARIABLE`, UNSUPPORTED_FEATURE for events
            that the driver does not have.
    """
    wanted = filter_environ().get(VARIABLE, "").strip().lower()
    if wanted not in ("", "auto", "counter-based", "regular"):
        detail = f"{VARIABLE}={wanted}: it may be auto, counter-based, regular"
        raise failure("INVALID_VALUE", detail)
    if wanted == "regular":
        return EventChoice(EventSource.REGULAR, f"{VARIABLE} says so")
    version = tuple(map(int, platform.api_version.split(".")))
    if version >= _SINCE and platform.has(_CREATE) and devices == 1:
        return EventChoice(EventSource.COUNTERS, f"the driver has {_CREATE}")
    if _POOLS in platform.extensions:
        return EventChoice(EventSource.COUNTER_POOLS, f"the driver has {_POOLS}")
    if wanted == "counter-based":
        raise failure("UNSUPPORTED_FEATURE", "the driver has no counter-based events here")
    return EventChoice(EventSource.REGULAR, "the driver has no counter-based ones here")
