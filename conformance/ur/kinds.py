"""The kinds of objects that have reference counts, and their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .objects import Objects
from .world import World


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    `make` makes one in the world's context. `stem` is the common beginning of its functions' names.
    """

    name: str
    stem: str
    make: Callable[[Objects, World], int]
    query: str
    end: str = ""

    @property
    def retain(self) -> str:
        """The function that retains one."""
        return f"{self.stem}Retain{self.end}"

    @property
    def release(self) -> str:
        """The function that releases one."""
        return f"{self.stem}Release{self.end}"

    @property
    def info(self) -> str:
        """The function that answers queries about one."""
        return f"{self.stem}GetInfo{self.end}"


KINDS: Final = (
    Kind(
        "context",
        "urContext",
        lambda make, world: make.context(),
        "UR_CONTEXT_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "queue",
        "urQueue",
        lambda make, world: make.queue(world.the_context),
        "UR_QUEUE_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "event",
        "urEvent",
        lambda make, world: make.finished_event(make.queue(world.the_context)),
        "UR_EVENT_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "buffer",
        "urMem",
        lambda make, world: make.buffer(world.the_context),
        "UR_MEM_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "image",
        "urMem",
        lambda make, world: make.image(world.the_context),
        "UR_MEM_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "sampler",
        "urSampler",
        lambda make, world: make.sampler(world.the_context),
        "UR_SAMPLER_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "program",
        "urProgram",
        lambda make, world: make.program(world.the_context),
        "UR_PROGRAM_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "kernel",
        "urKernel",
        lambda make, world: make.kernel(world.the_program),
        "UR_KERNEL_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "pool",
        "urUSMPool",
        lambda make, world: make.pool(world.the_context),
        "UR_USM_POOL_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "physical-memory",
        "urPhysicalMem",
        lambda make, world: make.physical(world.the_context),
        "UR_PHYSICAL_MEM_INFO_REFERENCE_COUNT",
    ),
    Kind(
        "command-buffer",
        "urCommandBuffer",
        lambda make, world: make.command_buffer(world.the_context),
        "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT",
        "Exp",
    ),
)
