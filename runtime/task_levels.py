"""Task levels: a model of how a command stream receiver aggregates the commands of several queues.

One device has one command stream receiver. It gets the commands of all queues, one after the other,
in the order of the enqueue calls. A level tells which of them may run at the same time:

    model = TaskLevels()
    first, second = model.queue("first"), model.queue("second")
    one = first.enqueue("one")
    two = second.enqueue("two", returns="e1")
    three = second.enqueue("three", waits_for=[one])
    print(model)

The receiver, each queue and each command have a level. This is the rule for a command:

- Its level is at least that of its queue. In an in-order queue that has a command it is greater.
- It is greater than the level of each command that it waits for.
- It is at least that of the receiver, because the receiver only appends.

The receiver's level and the queue's then become that of the command. Commands of one level are a
*batch*, unless something separates them: a flush, or a reason in `ModelCommand.why_alone`.

It is a model, and it runs nothing. docs/task_levels.md is the guide. (Intel's compute sample
commands_aggregation.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from . import task_levels_picture
from .errors import make_invalid_error


@dataclass(eq=False)
class ModelUserEvent:
    """An event that the program completes itself. `TaskLevels.user_event` makes it.

    Attributes:
        name: for tables and pictures.
        is_complete: whether commands no longer wait for it.
    """

    model: TaskLevels = field(repr=False)
    name: str
    is_complete: bool = False

    def complete(self) -> None:
        """Complete the event: the receiver gets the commands that only it has blocked.

        Raises:
            SYCLError: invalid, if it is complete.
        """
        if self.is_complete:
            raise make_invalid_error(
                f"the user event {self.name} is complete already",
                routine="ModelUserEvent.complete",
                remedy="complete each event once",
            )
        self.is_complete = True
        self.model._receive_unblocked()


@dataclass(eq=False)
class ModelCommand:
    """A command of the model. `ModelQueue.enqueue` makes it.

    Attributes:
        name: for tables and pictures.
        queue: where it was enqueued.
        waits_for: the commands and user events of its wait list.
        returns: the name of the event that it returns, "" if it returns none.
        previous: the command before it in an in-order queue, None if there is none.
        level: its task level; None while a user event blocks it.
        queue_levels: the level of each queue, in the order of the model's, once the receiver had
            the command. The receiver's own level was then that of the command.
        why_alone: why it shares no batch with other commands, "" if it may.
        buffer: the number of the command buffer that the receiver put it into.
    """

    name: str
    queue: ModelQueue = field(repr=False)
    waits_for: Sequence[ModelCommand | ModelUserEvent] = field(default=(), repr=False)
    returns: str = ""
    previous: ModelCommand | None = field(default=None, repr=False)
    level: int | None = None
    queue_levels: tuple[int, ...] = ()
    why_alone: str = ""
    buffer: int = 0

    @property
    def is_blocked(self) -> bool:
        """Whether the command comes after an incomplete user event, directly or not."""
        return self.level is None and not all(
            event.is_complete if isinstance(event, ModelUserEvent) else event.level is not None
            for event in (*self.waits_for, *([self.previous] if self.previous else ()))
        )

    @property
    def predecessors(self) -> list[ModelCommand]:
        """The commands that it comes directly after: by its queue's order and by events."""
        before = [event for event in self.waits_for if isinstance(event, ModelCommand)]
        return [*([self.previous] if self.previous else ()), *before]


@dataclass(eq=False)
class ModelQueue:
    """A command queue of the model. `TaskLevels.queue` makes it.

    Attributes:
        name: for tables and pictures.
        in_order: whether each command comes after the one before it.
        profiling: whether its commands are profiled. They then share no batch.
        last: the command that was enqueued last, None if there is none.
    """

    model: TaskLevels = field(repr=False)
    name: str
    in_order: bool = True
    profiling: bool = False
    level: int = 0
    last: ModelCommand | None = field(default=None, repr=False)

    def enqueue(
        self,
        name: str = "",
        *,
        waits_for: Iterable[ModelCommand | ModelUserEvent] = (),
        returns: str = "",
    ) -> ModelCommand:
        """Enqueue a command. The receiver gets it at once, unless a user event blocks it.

        Args:
            name: by default its number in the order of the calls, from "1".
            waits_for: the commands and user events of its wait list.
            returns: the name of the event that it returns. Only then others can wait for it.

        Raises:
            SYCLError: invalid, if it waits for a command that returns no event, or for something of
                another model.
        """
        events = tuple(waits_for)
        for event in events:
            self._check(event)
        model, previous = self.model, self.last if self.in_order else None
        number = len(model.passed) + len(model.blocked) + 1
        made = ModelCommand(name or str(number), self, events, returns, previous)
        self.last = made
        model.blocked.append(made)
        if not made.is_blocked:
            model.blocked.remove(made)
            model._receive(made)
        return made

    def flush(self) -> None:
        """Submit what the receiver has. All queues share its command buffer, so it is all of it.

        Later commands go into another command buffer, and so into other batches.
        """
        self.model._flush()

    def _check(self, event: Any) -> None:
        """Raise SYCLError unless a command can wait for `event`."""
        if not isinstance(event, (ModelCommand, ModelUserEvent)):
            raise make_invalid_error(
                f"a command cannot wait for {event!r}",
                routine="ModelQueue.enqueue",
                remedy="give what `enqueue` or `user_event` returned: waits_for=[command]",
            )
        of = event.queue.model if isinstance(event, ModelCommand) else event.model
        if of is not self.model:
            raise make_invalid_error(
                f"{event.name} is of another model",
                routine="ModelQueue.enqueue",
                remedy="make all queues and events with one TaskLevels",
            )
        if isinstance(event, ModelCommand) and not event.returns:
            raise make_invalid_error(
                f"{event.name} returns no event, so no command can wait for it",
                routine="ModelQueue.enqueue",
                remedy=f'name its event: enqueue("{event.name}", returns="e1")',
            )


@dataclass(frozen=True)
class Batch:
    """Commands that may run at the same time.

    Attributes:
        commands: in the order in which the receiver got them.
        submitted: whether a flush has submitted them.
    """

    level: int
    commands: tuple[ModelCommand, ...]
    submitted: bool

    def __str__(self) -> str:
        return f"{{{', '.join(command.name for command in self.commands)}}}"


class TaskLevels:
    """The model: a command stream receiver, and the queues that give it commands.

    Attributes:
        level: the receiver's task level.
        queues: in the order of their creation.
        passed: the commands that the receiver has, in the order in which it got them.
        blocked: the commands that a user event blocks, in the order of the calls.
    """

    def __init__(self) -> None:
        self.level = 0
        self.queues: list[ModelQueue] = []
        self.passed: list[ModelCommand] = []
        self.blocked: list[ModelCommand] = []
        self._buffer = 0

    def queue(
        self, name: str = "", *, in_order: bool = True, profiling: bool = False
    ) -> ModelQueue:
        """Make a command queue.

        Args:
            name: by default its number, from "queue 1".
            in_order: whether each command comes after the one before it.
            profiling: whether its commands are profiled.
        """
        made = ModelQueue(self, name or f"queue {len(self.queues) + 1}", in_order, profiling)
        self.queues.append(made)
        return made

    def user_event(self, name: str = "user event") -> ModelUserEvent:
        """Make an event that the program completes itself."""
        return ModelUserEvent(self, name)

    @property
    def batches(self) -> list[Batch]:
        """The batches of the commands that the receiver has, in its order."""
        return [
            Batch(level, tuple(group), buffer < self._buffer)
            for (level, buffer, _), group in groupby(self.passed, _make_batch_key)
            if level is not None
        ]

    def _receive(self, command: ModelCommand, was_blocked: bool = False) -> None:
        """Give the receiver a command: the rule of task levels."""
        queue = command.queue
        level = max(queue.level, self.level)
        for before in command.predecessors:
            assert before.level is not None  # else it is blocked
            level = max(level, before.level + 1)
        command.level = queue.level = self.level = level
        command.queue_levels = tuple(one.level for one in self.queues)
        command.buffer = self._buffer
        command.why_alone = self._explain_alone(command, was_blocked)
        self.passed.append(command)

    def _explain_alone(self, command: ModelCommand, was_blocked: bool) -> str:
        """Return the limitations: why a command shares no batch, "" if it may."""
        if command.queue.profiling:
            return "its queue has profiling"
        if was_blocked:
            return "a user event blocked it"
        any_out_of_order = any(not queue.in_order for queue in self.queues)
        if command.returns and command.queue.in_order and not any_out_of_order:
            return "it returns an event in an in-order queue, and no queue is out of order"
        return ""

    def _receive_unblocked(self) -> None:
        """Give the receiver every command that nothing blocks any more."""
        for command in list(self.blocked):
            if not command.is_blocked:
                self.blocked.remove(command)
                self._receive(command, was_blocked=True)

    def _flush(self) -> None:
        if self.passed and self.passed[-1].buffer == self._buffer:
            self._buffer += 1

    def __str__(self) -> str:
        names = [queue.name for queue in self.queues]
        head = ["command", "queue", "waits for", "returns", "level", *names, "receiver"]
        rows = [head, *map(self._format_row, self.passed), *map(self._format_row, self.blocked)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.append(" ".join(["batches:", *map(str, self.batches)]))
        lines += [f"alone: {one.name}, {one.why_alone}" for one in self.passed if one.why_alone]
        return "\n".join(lines)

    def _format_row(self, command: ModelCommand) -> list[str]:
        waits = ",".join(
            event.name if isinstance(event, ModelUserEvent) else event.returns
            for event in command.waits_for
        )
        level = "blocked" if command.level is None else str(command.level)
        levels = [*map(str, command.queue_levels), level] if command.queue_levels else []
        levels += [""] * (len(self.queues) + 1 - len(levels))
        return [command.name, command.queue.name, waits, command.returns, level, *levels]

    def __repr__(self) -> str:
        commands, batches = len(self.passed) + len(self.blocked), len(self.batches)
        return f"<TaskLevels of {len(self.queues)} queues: {commands} commands, {batches} batches>"

    def to_dot(self) -> str:
        """Return the batches in Graphviz's language: a cluster for each, and arrows between
        commands."""
        return task_levels_picture.to_dot(self)

    def to_svg(self) -> str:
        """Return the batches as an SVG picture: a row for each, and a column for each queue."""
        return task_levels_picture.to_svg(self)

    _repr_svg_ = to_svg


def _make_batch_key(command: ModelCommand) -> tuple[int | None, int, int]:
    """Return what the commands of a batch have in common, as far as they follow each other."""
    return command.level, command.buffer, id(command) if command.why_alone else 0
