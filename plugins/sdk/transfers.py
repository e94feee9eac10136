"""Transfers of all adapters, on queues and in command-buffers: copies and fills of memory, hints.

The table of operations (loader/base/operations.ini) names the entry points and what they take. What
a program gives becomes a `TransferCommand`, checked. An adapter finds memory and runs commands:

    transfers = Transfers(enqueues, locate, run)
    transfers.declare_rows(fill_rows)
    transfers.declare_hints(prefetch)

The operands of a command are those of the table, with these values: a buffer is the adapter's
object, memory by address a `Location`, host memory an address. Origins and regions are three
numbers, pitches are never 0, and a pattern is bytes. Without a region, an offset is a number.
The adapter may change the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ...loader.base.operations import (
    BUFFER,
    OPERATIONS,
    SVM,
    Operation,
    OperationFunction,
    TransferCommand,
)
from ...loader.ur.abi import UR
from .conversions import failure
from .families import AppendFamily, EnqueueFamily
from .patterns import read_buffer_pattern, read_pattern, read_row_pattern
from .rectangles import Rect, check_pitches, check_range, check_rect, read_offset, read_region
from .usm import check_copied_rows, check_rows_in

#: The ur_command_t of each operation, without UR_COMMAND_.
_COMMANDS: Final = {
    **{
        name: f"MEM_BUFFER_{name.upper()}"
        for name in ("read", "write", "copy", "read_rect", "write_rect", "copy_rect", "fill")
    },
    "svm_copy": "USM_MEMCPY",
    "svm_fill": "USM_FILL",
}
#: The operations that may move nothing. Then they only have their place in the order: as the
#: specification says for queues, and as libsycl does it for command-buffers.
_MAY_BE_EMPTY: Final = {
    "ur": frozenset({"read", "write", "copy"}),
    "ur_buffer": frozenset({"svm_copy", "svm_fill"}),
}
_START: Final = (0, 0, 0)
_new: Final = tuple.__new__  # the NamedTuple's takes three times as long


class Location(NamedTuple):
    """An address, and the allocation that it lies in: None for host memory."""

    address: int
    allocation: Any

    @property
    def offset(self) -> int:
        """Return the offset in the allocation in bytes, 0 in host memory."""
        return self.address - self.allocation.base if self.allocation is not None else 0


class BufferObject:
    """What a buffer of an adapter is, besides an `Object`.

    Attributes:
        context: its context.
        size: bytes.
    """

    context: Any
    size: int


def check_buffers(context: Any, *memory: Any) -> None:
    """Check that memory objects are buffers of a context.

    Raises:
        URError: INVALID_MEM_OBJECT for an image, INVALID_CONTEXT.
    """
    for one in memory:
        if not isinstance(one, BufferObject):
            raise failure("INVALID_MEM_OBJECT", "an image is not a buffer")
        if one.context is not context:
            context.check_same("a buffer", one)


class MemoryPlace(NamedTuple):
    """An operand of a transfer, for adapters whose buffers have an `address`.

    Attributes:
        memory: the operand: a buffer, a `Location` or the address of host memory.
        address: where the transfer begins, or where its rows are counted from.
        origin: the first byte, row and slice.
        row: bytes from a row to the next, 0 if there is one row.
        slice: bytes from a slice to the next, 0 if there is one slice.
    """

    memory: Any
    address: int
    origin: Rect
    row: int
    slice: int


def find_place(transfer: TransferCommand, side: str) -> MemoryPlace:
    """Return the "source" or the "target" of a transfer."""
    operands = transfer.operands
    memory = address = operands[side]
    if isinstance(memory, Location):
        address = memory.address
    elif isinstance(memory, BufferObject):
        offset = operands.get(f"{side}_offset", operands.get("offset", 0))
        address = memory.address + offset  # type: ignore[attr-defined]
    pitches = (operands.get(f"{side}_{name}_pitch", 0) for name in ("row", "slice"))
    return MemoryPlace(memory, address, operands.get(f"{side}_origin", _START), *pitches)


def list_sides(operation: Operation, kind: str) -> list[str]:
    """Return which of "target" and "source" of an operation are memory of a kind."""
    return [side for side in ("target", "source") if getattr(operation, side) == kind]


class Transfers:
    """The entry points for transfers of an adapter, on queues or in command-buffers.

    Args:
        family: what declares them. Their calls have a `context`, and `mark` for what does nothing.
        locate: finds some bytes, given a context, the first address, and how many. It returns a
            `Location`, and raises URError (INVALID_MEM_OBJECT, INVALID_SIZE) if there are none.
        run: enqueues or appends. It gets the call, the command, and the name of its ur_command_t
            after UR_COMMAND_. It returns what the entry point does.
    """

    def __init__(
        self,
        family: EnqueueFamily | AppendFamily,
        locate: Callable[[Any, int, int], Location],
        run: Callable[[Any, TransferCommand, str], Any],
    ) -> None:
        self._family, self._locate, self._run = family, locate, run
        self._key = "ur" if isinstance(family, EnqueueFamily) else "ur_buffer"
        for name, command in _COMMANDS.items():
            operation = OPERATIONS[name]
            self._declare_operation(operation, operation.functions[self._key], command)

    def _declare(self, name: str, command: str, work: Callable[..., Any]) -> None:
        """Declare an entry point, whose work gets the call and all parameters of its own."""
        family = self._family
        own = family.list_own_parameters(UR.functions[name])
        if isinstance(family, EnqueueFamily):
            family.declare(name, command, work, *own)
        else:
            family.declare(name, work, *own)

    def _declare_operation(
        self, operation: Operation, function: OperationFunction, command: str
    ) -> None:
        names = [name for name in function.operands if name != "blocking"]
        buffers, addresses = list_sides(operation, BUFFER), list_sides(operation, SVM)
        may_be_empty = operation.name in _MAY_BE_EMPTY[self._key]
        ranges = [(one, "offset" if "offset" in names else f"{one}_offset") for one in buffers]
        is_fill, is_rectangle = "pattern" in names, "region" in names
        run = self._run

        def work(call: Any, *values: Any) -> Any:
            operands: dict[str, Any] = dict(zip(names, values))  # noqa: B905  # which is slow
            context = call.context
            keep = tuple([operands[side] for side in buffers])
            check_buffers(context, *keep)
            if is_rectangle:
                _check_rectangles(operands, buffers)
            else:
                size = operands["size"]
                for side, offset in ranges:
                    check_range(operands[side].size, operands[offset], size)
                if not size:
                    if not may_be_empty or operands.get("pattern_size") == 0:
                        raise failure("INVALID_SIZE", "there is nothing to transfer")
                    return self._mark(call, command)
            if is_fill:
                self._read_pattern(operands)
            for side in addresses:
                operands[side] = self._locate(context, operands[side], operands["size"])
            return run(call, _new(TransferCommand, (operation.name, operands, keep)), command)

        self._declare(function.name, command, work)
        if operation.name == "svm_copy":
            self._copy = work

    def _mark(self, call: Any, command: str) -> Any:
        return call.mark() if self._key == "ur" else call.mark(command)

    def _read_pattern(self, operands: dict[str, Any]) -> None:
        address, length, size = (operands[one] for one in ("pattern", "pattern_size", "size"))
        if self._key == "ur" and "offset" in operands:
            room, offset = operands["target"].size, operands["offset"]
            operands["pattern"] = read_buffer_pattern(address, length, room, offset, size)
        else:
            operands["pattern"] = read_pattern(address, length, size)

    def copy(self, call: Any, target: int, source: int, size: int) -> Any:
        """Do what urEnqueueUSMMemcpy does. Returns what `run` returns."""
        return self._copy(call, target, source, size)

    # rows of memory by address

    def declare_rows(self, fill: Callable[[Any, Location, int, bytes, int, int], Any]) -> None:
        """Declare copies and fills of rows.

        Args:
            fill: fills rows that do not follow each other. It gets the call, where the first row
                begins, the pitch, the pattern, the bytes of a row, and how many rows.
        """

        def copy_rows(
            call: Any, to: int, to_pitch: int, at: int, at_pitch: int, width: int, height: int
        ) -> Any:
            check_copied_rows(width, height, at_pitch, to_pitch)
            operands: dict[str, Any] = {"region": (width, height, 1)}
            for side, address, pitch in (("target", to, to_pitch), ("source", at, at_pitch)):
                operands[side] = self._locate_rows(call, address, pitch, width, height)
                operands |= {f"{side}_origin": _START, f"{side}_row_pitch": pitch}
            if not width:
                return call.mark()
            return self._run(call, TransferCommand("copy_rect", operands), "USM_MEMCPY_2D")

        def fill_rows(
            call: Any, to: int, pitch: int, length: int, address: int, width: int, height: int
        ) -> Any:
            pattern = read_row_pattern(address, length, pitch, width, height)
            target = self._locate_rows(call, to, pitch, width, height)
            if pitch != width:
                return fill(call, target, pitch, pattern, width, height)
            operands = {"target": target, "pattern": pattern, "pattern_size": length}
            operands["size"] = width * height
            return self._run(call, TransferCommand("svm_fill", operands), "USM_FILL_2D")

        self._declare("urEnqueueUSMMemcpy2D", "USM_MEMCPY_2D", copy_rows)
        self._declare("urEnqueueUSMFill2D", "USM_FILL_2D", fill_rows)

    def _locate_rows(
        self, call: Any, address: int, pitch: int, width: int, height: int
    ) -> Location:
        """Find rows of `width` bytes.

        Raises:
            URError: INVALID_SIZE unless the rows lie in their allocation: with their pitch in all
                of it, without the last pitch in what follows the address. Else as `locate`.
        """
        place = self._locate(call.context, address, 1)
        if place.allocation is None:
            self._locate(call.context, address, pitch * (height - 1) + max(width, 1))
        else:
            check_rows_in(place.allocation, address, pitch, width, height)
        return place

    # hints

    def declare_hints(
        self,
        prefetch: Callable[[Any, Location, int, int], Any] | None = None,
        advise: Callable[[Any, Location, int, int], Any] | None = None,
    ) -> None:
        """Declare prefetches and advice.

        Args:
            prefetch: gets the call, where the memory begins, its bytes, and flags. None: a prefetch
                only has its place in the order.
            advise: the same for advice.
        """

        def make_work(command: str, work: Callable[..., Any] | None) -> Callable[..., Any]:
            def hint(call: Any, address: int, size: int, flags: int) -> Any:
                if not size:
                    raise failure("INVALID_SIZE")
                place = self._locate(call.context, address, size)
                return work(call, place, size, flags) if work else self._mark(call, command)

            return hint

        move, tell = make_work("USM_PREFETCH", prefetch), make_work("USM_ADVISE", advise)
        if isinstance(self._family, AppendFamily):
            self._declare("urCommandBufferAppendUSMPrefetchExp", "", move)
            self._declare("urCommandBufferAppendUSMAdviseExp", "", tell)
            return
        make = self._family.make
        self._declare("urEnqueueUSMPrefetch", "USM_PREFETCH", move)
        self._family.adapter.declare(  # it has no wait list
            urEnqueueUSMAdvise=lambda hQueue, pMem, size, advice, phEvent: tell(
                make(hQueue, "USM_ADVISE", (), phEvent), pMem, size, advice
            )
        )


def _check_rectangles(operands: dict[str, Any], buffers: list[str]) -> None:
    """Read and check what a transfer of rectangles says of them. Raises URError (INVALID_SIZE)."""
    region = operands["region"] = read_region(operands["region"])
    for side in ("source", "target"):
        names = f"{side}_row_pitch", f"{side}_slice_pitch"
        origin = operands[f"{side}_origin"] = read_offset(operands[f"{side}_origin"])
        pitches = operands[names[0]], operands[names[1]]
        if side in buffers:
            pitches = check_rect(operands[side].size, origin, region, *pitches)
        else:
            pitches = check_pitches(region, *pitches)
        operands.update(zip(names, pitches, strict=True))
