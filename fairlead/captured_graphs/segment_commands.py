"""The commands of a segment: the array that a command-buffer runs, and how others take their
places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..icd.command_buffer.cells import Cells, copy_commands
from ..icd.command_buffer.commands import CommandList, has_barrier
from ..icd.command_buffer.edits import has_all_arguments, have_same_function, put
from .block import CapturedBlock
from .commands import Captured, as_captured
from .random_numbers import PlacedDraw, place_draws
from .settings import ParameterSettings

if TYPE_CHECKING:
    from ..runtime.commands import Command


def _make_settings(
    listed: CommandList, blocks: Iterable[CapturedBlock], drawn: Mapping[int, PlacedDraw]
) -> ParameterSettings | None:
    """Return the settings of what changes in commands, None if nothing does. They have their own
    array."""
    parameters, memory, names, swaps = dict[int, Any](drawn), {}, {}, []
    for block in blocks:
        swaps += block.swaps
        parameters |= block.parameters
        memory |= block.memory
        names |= block.names
    if not parameters:
        return None
    cells = Cells(listed.array, len(listed), memory)
    return ParameterSettings(cells, parameters, names, listed.context, swaps)


class SegmentCommands:
    """Captured commands of one or more blocks, in one array.

    Args:
        command_at: returns the command of an index in the graph.
        nodes: the indices of the commands in the graph, by place.

    Attributes:
        listed, blocks, nodes: see above.
        settings: the settings of the Parameters in them, None if there are none.
    """

    def __init__(
        self,
        listed: CommandList,
        blocks: Sequence[CapturedBlock],
        command_at: Callable[[int], Command],
        nodes: Sequence[int],
    ) -> None:
        self.listed, self.blocks = listed, blocks
        self._command_at, self.nodes = command_at, nodes
        drawn: dict[int, PlacedDraw] = {}
        if any(block.draws for block in blocks):
            drawn = place_draws(self._list_captured(), nodes, listed.array)
        self.settings = _make_settings(listed, blocks, drawn)
        self._new: Mapping[int, Captured] = {}

    @classmethod
    def from_block(
        cls,
        block: CapturedBlock,
        command_at: Callable[[int], Command],
        schedule: str,
        *,
        profiled: bool = False,
    ) -> SegmentCommands:
        """Return all commands of a block, as they lie in its recording.

        Args:
            command_at: returns the command of a number.
            schedule: how commands that branch run.
            profiled: whether the first command's event is wanted.
        """
        array, owner = block.recording.commands, block
        if block.has_cells:  # they change in commands of its own
            copied = copy_commands(array, len(block))
            array, owner = copied.commands, (block, copied)
        listed = CommandList(
            block.recording.context,
            block.devices,
            array,
            block.order,
            owner,
            schedule=schedule,
            updatable=block.has_cells,
            fenced=has_barrier(array, block.order),
            first=block.order.first if profiled else None,
            title=block.title,
        )
        return cls(listed, (block,), command_at, range(len(block)))

    @cached_property
    def place(self) -> dict[int, int]:
        """The place in the array of a command, by its index in the graph."""
        return {node: number for number, node in enumerate(self.nodes)}

    def _list_captured(self) -> dict[int, Captured]:
        """Return the captured commands by their places."""
        commands = map(self._command_at, self.nodes)
        return {place: one for place, one in enumerate(commands) if isinstance(one, Captured)}

    def get_cells(self) -> Cells | None:
        """Return the cells of the Parameters in them, None if there are none."""
        return self.settings.cells if self.settings is not None else None

    def get_command(self, node: int) -> Captured:
        """Return the command of a node."""
        return as_captured(self._command_at(node))

    def name_command(self, number: int) -> tuple[int, str]:
        """Return the index in the graph of a command in a place, and a name for messages."""
        node = self.nodes[number]
        command = self.get_command(node)
        recorded = f", recorded at {command.where}" if command.where else ""
        return node, f"node {node}, {command.label}{recorded}"

    def list_host_memory(self) -> list[Any]:
        """Return the owners of what they use and drivers do not keep: see `CapturedBlock`."""
        changed = () if isinstance(self.nodes, range) else map(self._command_at, self.nodes)
        commands = [one for one in changed if isinstance(one, Captured)]
        blocks = dict.fromkeys([*self.blocks, *(one.block for one in commands)])
        kept = [one for one in commands if one.keeps_memory]
        return [*kept, *(owner for block in blocks for owner in block.host_memory)]

    # others take their places

    def map_to_places(self, commands: Mapping[int, Command]) -> dict[int, Any]:
        """Return commands as the array will have them, by place.

        Their Parameters belong to the settings from now on.

        Args:
            commands: the commands by their index in the graph.
        """
        self._new = {self.place[node]: as_captured(one) for node, one in commands.items()}
        self._learn(one.block for one in self._new.values())
        return {place: one.native for place, one in self._new.items()}

    def keep_kernels(self, new: Mapping[int, Any]) -> bool:
        """Whether each command can use the kernel of the command that it replaces."""
        return all(self._keep_kernels(new))

    def put(self, new: Mapping[int, Any]) -> dict[int, bool]:
        """Change the array; commands keep their kernels and their queues.

        Returns:
            What `CommandBuffer.change` wants to know: none of them launches another kernel.
        """
        self._put(new, dict.fromkeys(new, True))
        return dict.fromkeys(new, False)

    def put_other_kernels(self, new: Mapping[int, Any]) -> None:
        """Change the array, for another command-buffer: kernels change, too."""
        self._put(new, dict(zip(new, self._keep_kernels(new), strict=True)))

    def _learn(self, blocks: Iterable[CapturedBlock]) -> None:
        """Add the Parameters of blocks whose commands are put into the array."""
        for block in dict.fromkeys(blocks):
            if not block.has_cells:
                continue
            if self.settings is None:
                cells = Cells(self.listed.array, len(self.listed), {})
                self.settings = ParameterSettings(cells, {}, {}, self.listed.context)
            self.settings.learn(block.parameters, block.memory, block.names, block.swaps)

    def _keep_kernels(self, new: Mapping[int, Any]) -> Iterator[bool]:
        """Yield of each command whether it can use the kernel of the one that it replaces: the same
        function."""
        same: dict[tuple[Any, Any], bool] = {}
        for number, native in new.items():
            kernels = self.listed.array[number].kernel, native.kernel
            if kernels not in same:
                same[kernels] = have_same_function(*kernels)
            yield kernels[0] == kernels[1] or (same[kernels] and has_all_arguments(native))

    def _put(self, new: Mapping[int, Any], keeps_kernel: Mapping[int, bool]) -> None:
        for number, native in new.items():
            row = self.listed.array + number
            kernel = row.kernel
            put(row, native, row.queue)
            if keeps_kernel[number]:
                row.kernel = kernel
        if self.settings is not None:
            put_now = {place: self._new[place] for place in new}
            self.settings.learn(place_draws(put_now, self.nodes, self.listed.array), {}, {})
            self.settings.take(list(new))
