"""The interface of engines. An engine runs recorded commands on a kind of queue.

An engine is one small class in one file (engines/native.py, engines/replay.py). It says what it
cannot run and why, and what it costs. It builds what runs a list of commands: `BuiltCommands`. That
is a row of C functions (`fl_built`), so that an enqueue is one native call whatever the engines
are. planning.py divides the commands among the engines. command_buffer.py enqueues what they built.

A new engine is a new file in engines/ and a line of the table ENGINES in choice.py. Another package
registers its own (docs/write_an_adapter.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ...loader.base.frozen_value import Value
from ..calls import identify_device, is_in_order, query_device, query_properties
from .commands import CommandList

if TYPE_CHECKING:
    from .prepared_programs import Preparation


class Use(Enum):
    """How a program replays. On a GPU another engine may be the faster one then."""

    ONCE = "once"  # a replay is enqueued, and the program goes on
    WAITED = "waited for"  # in the caller's thread, where the engine can do that
    SEVERAL = "several times"

    @classmethod
    def of_replays(cls, times: int, *, waited: bool) -> Use:
        """Return the use that so many replays at once are."""
        return cls.SEVERAL if times > 1 else cls.WAITED if waited else cls.ONCE


@dataclass(frozen=True)
class QueueKind:
    """A kind of queue, and of replays on it.

    Attributes:
        context, device: handles.
        use: how replays are used, None where all of them run in the same way.
    """

    context: int
    device: int
    properties: int
    use: Use | None = None

    @classmethod
    def of_queue(cls, context: int, queue: int) -> QueueKind:
        """Return the kind of a queue of a context (handles)."""
        return cls(context, query_device(queue), query_properties(queue))

    @property
    def in_order(self) -> bool:
        """Whether such queues are in order."""
        return is_in_order(self.properties)

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """What identifies its device in any context and process (calls.identify_device)."""
        return identify_device(self.device)


class Cost(Value):
    """What an engine costs on a device: `fixed` seconds for an enqueue, and `each` for a command.

    `how` says where that is known from.
    """

    fixed: float
    each: float
    how: str

    def estimate(self, count: int) -> float:
        """Return the seconds for an enqueue of `count` commands."""
        return self.fixed + count * self.each

    def __str__(self) -> str:
        fixed = f"{self.fixed * 1e6:.1f} µs an enqueue and " if self.fixed else ""
        return f"{fixed}{self.each * 1e6:.1f} µs a command, {self.how}"


class BuiltCommands(ABC):
    """What an engine built of a list of commands for a kind of queue.

    Attributes:
        native: what C calls, an `fl_built *`. The code that makes the list a part of a longer one
            sets its `first`.
        own_queues: queues (handles) that it needs besides the caller's.
        may_refuse: whether the driver may refuse an enqueue as a whole. Another engine can then do
            it.
        updates_wait: whether it must not be updated while it is executed. Only for what C cannot
            update.
        learns: whether it measures its first runs. After that it may leave commands to other
            engines.
        joins: whether an enqueue may end with the event of the one before it, which nobody else
            has.
    """

    native: Any
    own_queues: Sequence[int] = ()
    may_refuse = False
    updates_wait = False
    learns = False
    joins = False

    def give_externals(self, events: Sequence[int]) -> None:
        """Take the outside events (handles) that the next enqueue waits for."""
        raise NotImplementedError

    def take_events(self) -> list[int]:
        """Return the events of the last enqueue that the list asks for, a reference each.

        They are those of CommandList.wanted_events.
        """
        return []

    def update(self, commands: Sequence[int]) -> int:
        """Take over changed commands, by their numbers. Only if C cannot (`fl_built.update` is
        NULL).

        Returns:
            OpenCL's code. After a failure nothing has changed.
        """
        raise NotImplementedError

    def explain_loss(self) -> str | None:
        """Return why a failure leaves nothing that can run, None if all can run."""
        return None

    def find_slower_commands(self) -> Mapping[int, str] | None:
        """Return the commands, by their numbers, that another engine should run, and why.

        None means that this is not known yet.
        """
        return {}

    def measure_again(self) -> None:
        """Forget the measured runs, in which the device changed from other engines for a trial."""
        return

    def recover(self, code: int, queue: int, waits: Sequence[int]) -> tuple[int, int] | None:
        """Enqueue the commands in another way after the driver refused them with `code`.

        Returns:
            OpenCL's code and the event of the end, a reference for the caller; None if there is no
                other way.
        """
        return None

    @abstractmethod
    def explain(self) -> str:
        """Return in a few words how it runs the commands."""

    @abstractmethod
    def close(self) -> None:
        """Release everything of the driver's.

        What was enqueued runs to its end. Further calls do nothing.
        """


class Engine(ABC):
    """A way to run commands. It has no state of its own.

    Attributes:
        name: its name in FAIRLEAD_COMMAND_BUFFER.
        divides: whether it takes runs of commands and leaves others to another engine. If not, it
            runs all of them or none.
        always_faster: why it needs no comparison with others by cost, None if it does.
        changes_device: whether the device takes long to change to it from other engines.
    """

    name: ClassVar[str]
    divides: ClassVar[bool] = False
    always_faster: ClassVar[str | None] = None
    changes_device: ClassVar[bool] = False

    @abstractmethod
    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        """Return why the engine cannot run any of these commands on such a queue, None if it can.

        One that does not divide checks each command.
        """

    def prepare(self, commands: CommandList, target: QueueKind) -> Sequence[Preparation]:
        """Begin to prepare, in the background, what the engine needs to run some commands.

        Only called where the engine was not asked for by name.

        Returns:
            What has not ended yet. After that the commands are planned again.
        """
        return ()

    def why_not_command(self, commands: CommandList, number: int, target: QueueKind) -> str | None:
        """Return why the engine leaves this command to another engine, None if it takes it.

        It is only called for an engine that divides.
        """
        return None

    def list_refusals(self, commands: CommandList, target: QueueKind) -> Mapping[int, str]:
        """Return why commands are left to another engine, by the commands' numbers.

        It is only called for an engine that divides.
        """
        order_only = commands.order.order_only
        reasons = (
            (number, self.why_not_command(commands, number, target))
            for number in range(len(commands))
            if not order_only[number]
        )
        return {number: reason for number, reason in reasons if reason is not None}

    def suggest_speedup(self, commands: CommandList, device: int) -> str | None:
        """Return what the program could do so that it runs these commands faster than others do.

        Args:
            device: a handle.

        Returns:
            A sentence, None if there is nothing to do.
        """
        return None

    def defect(self, target: QueueKind) -> str | None:
        """Return the engine's fault on this device. Only a request by name then chooses it."""
        return None

    def cost(self, target: QueueKind) -> Cost | None:
        """Return an enqueue's cost on this device; None if unknown, so that first replays decide
        (trial.py)."""
        return None

    def list_variants(self, commands: CommandList, target: QueueKind) -> Mapping[str, Engine]:
        """Return this engine with other settings, by their names, that may run commands faster.

        The first replays decide (trial.py).
        """
        return {}

    @abstractmethod
    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        """Make what runs these commands on such queues.

        Raises OpenCLError if the driver refuses.
        """
