"""How changes of a graph's commands reach the commands that they were rewritten to.

A number that no proof depends on is an argument of its own, and flows (icd/native/rewritten.c). So
does a Parameter, whose cell the new launch shares. Another buffer in a Parameter's cell is accepted
if it shares memory with nothing else, as the one before, and is not smaller. Any other change ends
the rewrite. The graph then runs as captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..._native import ffi, lib
from ...calls import get_address
from ..cells import Cells
from ..commands import CommandList
from .arguments import NotFused, RecordedArgument
from .fused_runs import FIXED, FusedRun, find_flows
from .used_bytes import find_root
from .uses import ListSnapshot, Root


class Flow:
    """See above.

    Args:
        commands: the graph's, which change.
        snapshot: what was rewritten.
        rewritten: what became of it, None if nothing did.
        places: of each command in it.
        runs: by the numbers of their commands. The other commands are alone there.
        arguments: of the commands that are watched, besides those of runs.

    Attributes:
        native: what C calls, an `fl_built *`.
        watches_memory: whether a proof depends on the buffer that a Parameter is.
    """

    def __init__(
        self,
        commands: CommandList,
        snapshot: ListSnapshot,
        rewritten: CommandList | None,
        places: Sequence[int],
        runs: Mapping[int, FusedRun],
        arguments: Mapping[int, Sequence[RecordedArgument]],
    ) -> None:
        self._count, self._cells = len(commands), snapshot.cells
        plans = {run.plan for run in runs.values()}
        given = {id(one): one for one in arguments.values()}  # often the same
        given |= {id(one.arguments): one.arguments for plan in plans for one in plan.launches}
        listed = [one for row in given.values() for one in row]
        fixed = {one.address for one in listed if one.address and one.is_proven}
        self._watched = [at for at in fixed if len(snapshot.cells[at].turns) == 1]
        self.watches_memory = any(snapshot.cells[at].is_memory for at in self._watched)
        self._memory = _find_memory(listed, snapshot.roots)
        rows = {id(one): find_flows(one) for one in arguments.values()}
        watched = {number: rows[id(one)] for number, one in arguments.items()}
        for run in set(runs.values()):
            watched.update(zip(run.numbers, run.plan.flows, strict=True))
        # where the row of each command begins; commands that are alike share one
        firsts, flows, begins = [FIXED] * self._count, list[int](), dict[int, int]()
        for number, row in watched.items():
            if id(row) not in begins:
                begins[id(row)] = len(flows)
                flows += row
            firsts[number] = begins[id(row)]
        hidden = [one for run in set(runs.values()) for one in run.hidden]
        parts: list[Any] = [
            ffi.new("uint32_t[]", [*places] if places else [0]),
            ffi.new("uint32_t[]", firsts),
            ffi.new("uint32_t[]", flows or [0]),
            ffi.new("unsigned char[]", [number not in runs for number in range(self._count)]),
            ffi.new("void *[]", [ffi.cast("void *", one) for one in hidden] or [ffi.NULL]),
        ]
        array = rewritten.array if rewritten is not None else ffi.NULL
        self._self = ffi.new(
            "fl_rewritten *",
            (commands.array, snapshot.commands.array, array, *parts, ffi.NULL, len(hidden), 0),
        )
        self._kept = parts, snapshot, rewritten, commands.owner
        self.native = ffi.new("fl_built *")
        self.native.self, self.native.count = self._self, self._count
        self.native.update = ffi.cast("void *", lib.fl_update_rewritten)
        self.native.set_cell = ffi.cast("void *", lib.fl_set_cell_of_rewritten)

    def give(self, built: Sequence[Any]) -> None:
        """Take what was built of the rewritten commands: `fl_built *`s, which live until the next
        call."""
        self._built = ffi.new("fl_built *[]", built) if built else ffi.NULL
        self._self.built, self._self.built_count = self._built, len(built)

    def watch(self, *, on: bool) -> None:
        """Have changes of the Parameters that proofs depend on end the rewrite, or not any more."""
        for at in self._watched:
            lib.fl_watch_cell(self._cells[at].cell, on)

    def holds(self) -> bool:
        """Take all changes since the snapshot. Returns whether what was proven is still true."""
        if lib.fl_check_rewritten(self._self, self._count):
            return False
        changed: dict[int, bytes] = {}
        for at in self._watched:
            value = self._cells[at]
            now = bytes(ffi.buffer(ffi.cast("char *", at), len(value.turns[0])))
            if now != value.turns[0]:
                changed[at] = now
        return self._accept(changed)

    def accept(self, cells: Cells) -> list[Any]:
        """Accept memory that was staged for cells, if what was proven stays true.

        Returns:
            The cells that are not watched now: watch them again when they have it.
        """
        found, look, staged = list[Any](), ffi.new("fl_cell_look *"), dict[int, bytes]()
        for number, row in enumerate(cells.rows):
            if not row.pending:  # each replay with another number comes here
                continue
            lib.fl_look_at_cell(row.cell, look)
            at, value = get_address(look.bytes), bytes(cells.get_staging(number))
            if at in self._memory and at in self._watched:
                found.append(row.cell)
                if value != bytes(ffi.buffer(look.bytes, 8)):
                    staged[at] = value
        if staged and not self._accept(staged):
            return []
        for cell in found:
            lib.fl_watch_cell(cell, False)
        return found

    def _accept(self, changed: Mapping[int, bytes]) -> bool:
        """Return whether cells may hold other memory."""
        memory = dict(self._memory)
        for at, value in changed.items():
            if at not in memory or not self._cells[at].is_memory:
                return False
            try:
                root, _, size, _ = find_root(int.from_bytes(value, "little"), {})
            except NotFused:
                return False
            if size < memory[at].size:
                return False
            memory[at] = memory[at]._replace(roots=frozenset([root]))
        for at in changed:
            for known in (self._memory, memory):
                if any(known[at].roots & one.roots for key, one in known.items() if key != at):
                    return False
        self._memory = memory
        return True


class _Memory(NamedTuple):
    """What has the bytes of a memory argument, and how many it had when it was proven."""

    roots: frozenset[int]
    size: int


def _find_memory(
    arguments: Iterable[RecordedArgument], roots: dict[int, Root | None]
) -> dict[int, _Memory]:
    """Return the memory arguments, by their keys."""
    found: dict[int, _Memory] = {}
    for one in arguments:
        if isinstance(one.key, int) and one.key not in found:
            turns = [find_root(value, roots) for value in one.turns if isinstance(value, int)]
            size = min(turn.size for turn in turns)
            found[one.key] = _Memory(frozenset(turn.root for turn in turns), size)
    return found
