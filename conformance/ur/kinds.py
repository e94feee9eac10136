"""The kinds of objects that have reference counts, and their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from fairlead.conformance.checks import rule

from .objects import URObjects
from .world import World

USM_KINDS: Final = ("Host", "Device", "Shared")


def select_kinds(function: str, text: str) -> list:
    """Return a case for each kind of USM; `{}` in the function's name is the kind."""
    return [
        pytest.param(
            kind, id=kind, marks=rule(function.format(kind), f"{kind.lower()} memory: {text}")
        )
        for kind in USM_KINDS
    ]


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    `stem` and `suffix` are the beginning and the end of its functions' names, `prefix` the
    beginning of its queries' names. `make` makes one in the world's context.
    """

    name: str
    stem: str
    prefix: str
    make: Callable[[URObjects, World], int]
    suffix: str = ""

    @property
    def query(self) -> str:
        """The query for its reference count."""
        return f"UR_{self.prefix}_INFO_REFERENCE_COUNT"

    @property
    def retain(self) -> str:
        """The function that retains an object of the kind."""
        return f"{self.stem}Retain{self.suffix}"

    @property
    def release(self) -> str:
        """The function that releases an object of the kind."""
        return f"{self.stem}Release{self.suffix}"

    @property
    def info(self) -> str:
        """The function that answers queries about an object of the kind."""
        return f"{self.stem}GetInfo{self.suffix}"


KINDS: Final = (
    Kind("context", "urContext", "CONTEXT", lambda make, w: make.context()),
    Kind("queue", "urQueue", "QUEUE", lambda make, w: make.queue()),
    Kind("event", "urEvent", "EVENT", lambda make, w: make.finished_event(make.queue())),
    Kind("buffer", "urMem", "MEM", lambda make, w: make.buffer()),
    Kind("image", "urMem", "MEM", lambda make, w: make.image()),
    Kind("sampler", "urSampler", "SAMPLER", lambda make, w: make.sampler()),
    Kind("program", "urProgram", "PROGRAM", lambda make, w: make.program()),
    Kind("kernel", "urKernel", "KERNEL", lambda make, w: make.kernel()),
    Kind("pool", "urUSMPool", "USM_POOL", lambda make, w: make.pool()),
    Kind("physical-memory", "urPhysicalMem", "PHYSICAL_MEM", lambda make, w: make.physical()),
    Kind(
        "command-buffer",
        "urCommandBuffer",
        "EXP_COMMAND_BUFFER",
        lambda make, w: make.command_buffer(),
        "Exp",
    ),
)
