"""`finalize(fuse="check")`: fused runs and what was captured run both, and are compared.

In the first replays each run has its memory copied twice. The captured launches use one of the
copies, the fused one the other, and then the captured launches do what the program asked for. So a
replay is right whatever the comparison finds.

What changes between replays, such as Parameters and numbers, is taken as it is before each of them:
from the graph's commands, and from those that they were rewritten to.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import finalize

from ..._native import ffi, lib
from ...abi import CL_INVALID_OPERATION, OPENCL
from ...calls import call, get_address
from ...errors import OpenCLError, check
from ..commands import CommandArray, CommandList
from ..edits import MEMORY
from .arguments import make_arguments
from .fused_runs import FusedRun, put_together
from .launches import RecordedLaunch
from .used_bytes import UsedBytes, find_root
from .uses import pack_arguments, unpack_arguments

#: Replays that are compared. What differs with some numbers only may differ later.
REPLAYS: Final = 2
#: Bytes that are compared at once.
_PIECE: Final = 1 << 24
#: The formats of the types that have NaNs.
_FLOATS: Final = {"half": "<e", "float": "<f", "double": "<d"}
_WAYS: Final = 2
_CREATE: Final = "clCreateSubBuffer"


class FusionError(OpenCLError):
    """A fused kernel did something else than the launches that it stands for.

    The memory of the graph has what the launches wrote, and the graph runs as captured from now on.
    """


class Copies:
    """The memory of a run, twice: for the captured launches and for the fused one.

    Args:
        context: a handle.
        memory: the memory objects (handles).

    Attributes:
        roots: the copies of whole memory objects, and their bytes, by handle.
        instead: for each way, what memory is exchanged for, by handle.

    Raises:
        OpenCLError: there is no memory for them.
    """

    def __init__(self, context: int, memory: Iterable[int]) -> None:
        self.roots: dict[int, tuple[list[int], int]] = {}
        self.instead: list[dict[int, int]] = [{} for _ in range(_WAYS)]
        for one in memory:
            root = find_root(one, {}).root
            if root not in self.roots:
                size = find_root(root, {}).size
                self.roots[root] = [self._make(context, size) for _ in range(_WAYS)], size
            for copy, instead in zip(self.roots[root][0], self.instead, strict=True):
                if one not in instead:
                    instead[one] = copy if one == root else self._make_part(copy, one)

    def _make(self, context: int, size: int) -> int:
        code = ffi.new("int32_t *")
        made = call(context, "clCreateBuffer", 0, size, None, get_address(code))
        return self._keep(made, code[0], "clCreateBuffer")

    def _make_part(self, copy: int, part: int) -> int:
        code, place = ffi.new("int32_t *"), ffi.new("size_t[]", find_root(part, {})[1:3])
        region = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
        made = call(copy, _CREATE, 0, region, get_address(place), get_address(code))
        return self._keep(made, code[0], _CREATE)

    def _keep(self, made: int, code: int, routine: str) -> int:
        check(code, routine)
        finalize(self, call, made, "clReleaseMemObject").atexit = False
        return made


class FusionCheck:
    """The comparison of fused runs with what was captured. The lock of its command-buffer is held.

    Args:
        recorded: the graph's commands.
        cells: of their Parameters, by the addresses of their bytes.
        fused: what the commands were rewritten to.
        places: of each command in it.
        runs: by the numbers of their commands.

    Attributes:
        left: how many replays are still compared.
        failure: what differed, "" if nothing did.
    """

    def __init__(
        self,
        recorded: CommandList,
        cells: Collection[int],
        fused: CommandList,
        places: Sequence[int],
        runs: Mapping[int, FusedRun],
    ) -> None:
        self.left, self.failure = REPLAYS, ""
        self._recorded, self._cells, self._fused = recorded, cells, fused
        self._places, self._runs = places, runs
        self._copies: list[tuple[FusedRun, Copies]] = []

    def make_commands(self) -> tuple[CommandList, Sequence[int]] | None:
        """Return commands that run both ways, as the graph is now; and for each of them the command
        of the graph that it stands for. None: nothing is compared any more."""
        self._copies.clear()
        if not self.left or self.failure:
            return None
        try:
            made, numbers, _ = put_together(self._recorded, self._runs, self._add)
        except OpenCLError as error:
            self.give_up(f"there is no memory to run both ways, {error}")
            return None
        return made, numbers

    def _find(self, run: FusedRun, memory: UsedBytes) -> int:
        """Return the memory object that a launch uses now."""
        if memory.handle not in self._cells:
            return run.handles[memory.handle]
        return int(ffi.cast("uintptr_t *", memory.handle)[0])

    def _find_root(self, run: FusedRun, memory: UsedBytes) -> int:
        """Return the memory object that has the bytes."""
        return find_root(self._find(run, memory), {}).root

    def _add(
        self, run: FusedRun, array: CommandArray, commands: CommandList, before: Sequence[int]
    ) -> int:
        """Append a run to an array, both ways on copies and then as captured.

        Returns the place of the last command.
        """
        memory = (one for launch in run.plan.launches for one in launch.memory[0])
        copies = Copies(commands.context, (self._find(run, one) for one in memory))
        self._copies.append((run, copies))
        zero = array.copy_pattern(bytes(1))
        for root, (ways, size) in copies.roots.items():
            uses = self._list_uses(run, root)
            is_read = any(one.reads for number, _, one in uses if number == uses[0][0])
            for copy in ways:
                if is_read:
                    before = [array.add("copy", before, source=root, target=copy, size=size)]
                else:  # what an earlier replay left there would look as if it was written now
                    fill: dict[str, Any] = {"target": copy, "pattern": zero, "pattern_size": 1}
                    before = [array.add("fill", before, **fill, size=size)]
        captured, fused = copies.instead
        place = self._places[run.numbers[0]]
        for list_, number, instead in [
            *((commands, number, captured) for number in run.numbers),
            (self._fused, place, fused),
            *((commands, number, None) for number in run.numbers),
        ]:
            row = list_.array[number]
            before = [array.add_copy(ffi.addressof(row), before, row.queue)]
            if instead is not None:
                _exchange(array.array[before[0]], instead)
        return before[0]

    def compare(self, queue: int) -> None:
        """Compare what a replay has written. It has ended.

        Raises:
            FusionError: there is a difference.
            OpenCLError: the driver does not let us read.
        """
        for run, copies in self._copies:
            for root, (ways, size) in copies.roots.items():
                if root in run.hidden:
                    continue
                for first in range(0, size, _PIECE):
                    room = min(_PIECE, size - first)
                    one, other = (_read(queue, copy, first, room) for copy in ways)
                    place = find_difference(one, other, self._find_kind(run, root))
                    if place is not None:
                        raise self._fail(run, root, first + place)
        self.left -= 1

    def _list_uses(self, run: FusedRun, root: int) -> list[tuple[int, RecordedLaunch, UsedBytes]]:
        """Return the commands of a run that use memory, and what each of them uses of it."""
        return [
            (number, launch, one)
            for number, launch in zip(run.numbers, run.plan.launches, strict=True)
            for one in launch.memory[0]
            if self._find_root(run, one) == root
        ]

    def _find_kind(self, run: FusedRun, root: int) -> str:
        """Return the type of the elements of memory, "" if there are several."""
        kinds = {use.kind for *_, use in self._list_uses(run, root)}
        return kinds.pop() if len(kinds) == 1 else ""

    def _fail(self, run: FusedRun, root: int, place: int) -> FusionError:
        number, launch, use = max(
            self._list_uses(run, root), key=lambda found: (found[2].writes, found[0])
        )
        first, last = run.numbers[0], run.numbers[-1]
        self.failure = (
            f"The fused kernel of the commands {first}–{last} wrote something else than they do: "
            f"byte {place} of {use.argument} of {launch.kernel.access.name} (command "
            f"{number}) differs."
        )
        return FusionError(
            self.failure,
            routine="replay",
            code="CL_INVALID_OPERATION",
            value=CL_INVALID_OPERATION,
            remedy="print_fused() shows the kernel; finalize(fuse=False) fuses nothing. The memory "
            "has what the commands wrote",
        )

    def give_up(self, reason: str) -> None:
        """Compare nothing any more, and let the graph run as captured."""
        self.failure = reason

    def describe(self) -> str:
        """Return what `explain()` says of it."""
        if self.failure:
            return f"not fused any more: {self.failure}"
        if self.left:
            return f"the next {self.left} replays run both ways, and are compared"
        return f"{REPLAYS} replays ran both ways, and wrote the same bits"


def find_difference(one: bytes, other: bytes, kind: str) -> int | None:
    """Return where memory differs, but for the bits of NaNs; None if it does not.

    Where two NaNs meet, a processor takes the sign and the payload of the first operand. A compiler
    orders the operands of sums and products as it likes.

    Args:
        kind: the type of the elements, "" if it is not known.
    """
    if one == other:
        return None
    format_ = _FLOATS.get(kind.rstrip("0123456789"), "")
    size = struct.calcsize(format_) or 1
    for n in range(0, len(one), size):
        words = one[n : n + size], other[n : n + size]
        if words[0] != words[1] and not (
            format_
            and len(words[0]) == size
            and all(math.isnan(*struct.unpack(format_, word)) for word in words)
        ):
            return n
    return None


def _exchange(row: Any, instead: Mapping[int, int]) -> None:
    """Let a copy of a command use other memory, by handle."""
    for name in ("source", "target"):
        handle = get_address(getattr(row, name))
        setattr(row, name, ffi.cast("void *", instead.get(handle, handle)))
    if not row.arguments:
        return
    values: list[int | bytes] = []
    for kind, _, data in unpack_arguments(pack_arguments(row.arguments)):
        handle = int.from_bytes(data, "little")
        values.append(instead.get(handle, handle) if kind == MEMORY else data)
    lib.fl_release_arguments(row.arguments)
    row.arguments = make_arguments(values)


def _read(queue: int, memory: int, first: int, size: int) -> bytes:
    room = ffi.new("unsigned char[]", size)
    routine = "clEnqueueReadBuffer"
    check(
        call(queue, routine, memory, True, first, size, get_address(room), 0, None, None), routine
    )
    return bytes(ffi.buffer(room))
