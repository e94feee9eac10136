"""Transfers of all adapters, on queues and in command-buffers: copies and fills of memory, hints.

The table of operations (loader/base/operations.ini) names the entry points and what they take. What
a program gives becomes a `TransferCommand`, checked. An adapter finds memory and runs commands:

    transfers = Transfers(enqueues, find, run)
    transfers.declare_rows(copy_rows, fill_rows)
    transfers.declare_hints(prefetch)

Most transfers are one call of the driver's. An adapter gives the sources of these calls, so that no
command is made (`COPIES`, plugins/opencl/transfers.py).

The operands of a command are those of the table, with these values: a buffer is the adapter's
object, memory by address a `Location`, host memory an address. Origins and regions are three
numbers, pitches are never 0, and a pattern is bytes. Without a region, an offset is a number.
The adapter may change the operands.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...loader.base.operations import BUFFER, IMAGE, OPERATIONS, SVM, Operation, TransferCommand
from ...loader.ur.abi import UR
from .buffers import BufferObject, check_buffers
from .conversions import failure
from .families import AppendFamily, EnqueueFamily
from .images import check_images, check_region, find_transfer_pitches, overlap
from .rectangles import Rect, check_pitches, check_range, check_rect, read_offset, read_region
from .usm import check_rows_in
from .wrap import compile_function

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
    get = transfer.operands.get
    memory: Any = get(side)
    address = memory
    if isinstance(memory, Location):
        address = memory.address
    elif isinstance(memory, BufferObject):
        offset = get("offset", 0) or get(f"{side}_offset", 0)
        address = memory.address + offset  # type: ignore[attr-defined]
    if "region" not in transfer.operands:
        return _new(MemoryPlace, (memory, address, _START, 0, 0))
    pitches = get(f"{side}_row_pitch", 0), get(f"{side}_slice_pitch", 0)
    return _new(MemoryPlace, (memory, address, get(f"{side}_origin", _START), *pitches))


def list_sides(operation: Operation, kind: str) -> list[str]:
    """Return which of "target" and "source" of an operation are memory of a kind."""
    return [side for side in ("target", "source") if getattr(operation, side) == kind]


#: The `calls` of an adapter whose buffers have an `address`, for transfers that are plain copies.
#: Its `copy` gets the call, the two addresses, bytes, and what is used.
COPIES: Final = {
    "read": "copy(call, target, source.address + offset, size, keep)",
    "write": "copy(call, target.address + offset, source, size, keep)",
    "copy": (
        "copy(call, target.address + target_offset, source.address + source_offset, size, keep)"
    ),
    "svm_copy": "copy(call, target, source, size, keep)",
}
#: What the entry points of operations use.
_NAMES: Final = {
    "new": _new,
    "TransferCommand": TransferCommand,
    "Location": Location,
    **{
        one.__name__: one
        for one in (
            *(check_buffers, check_range, check_pitches, check_rect),
            *(read_offset, read_region, ctypes.string_at),
        )
    },
}


class Transfers:
    """The entry points for transfers of an adapter, on queues or in command-buffers.

    Args:
        family: what declares them. Their calls have a `context`, and `mark` for what does nothing.
        find: finds the allocation of some bytes, given a context, the first address, and how many.
            It returns None for host memory, and raises URError (INVALID_MEM_OBJECT, INVALID_SIZE)
            if there is none.
        run: enqueues or appends. It gets the call, the command, and the name of its ur_command_t
            after UR_COMMAND_. It returns what the entry point does.
        calls: expressions that do what `run` does, by the names of operations. They use the
            operands by their names, `call`, and `keep`, the buffers. Memory by address is a number,
            and `found_target` and `found_source` are the allocations.
        names: what the expressions use besides.
    """

    def __init__(
        self,
        family: EnqueueFamily | AppendFamily,
        find: Callable[[Any, int, int], Any],
        run: Callable[[Any, TransferCommand, str], Any],
        calls: Mapping[str, str] = MappingProxyType({}),
        **names: Callable[..., Any],
    ) -> None:
        self._family, self._find, self._run = family, find, run
        self._calls, self._names = calls, names
        self._key = "ur" if isinstance(family, EnqueueFamily) else "ur_buffer"
        for name, command in _COMMANDS.items():
            self._declare_operation(OPERATIONS[name], command)

    def _declare(self, name: str, command: str, work: Callable[..., Any]) -> None:
        """Declare an entry point, whose work gets the call and all parameters of its own."""
        family = self._family
        own = family.list_own_parameters(UR.functions[name])
        if isinstance(family, EnqueueFamily):
            family.declare(name, command, work, *own)
        else:
            family.declare(name, work, *own)

    def _declare_operation(self, operation: Operation, command: str) -> None:
        function = operation.functions[self._key]
        names = [name for name in function.operands if name != "blocking"]
        scope = {"find": self._find, "run": self._run, "mark": self._mark, "command": command}
        scope = {**_NAMES, **scope, **self._names}
        lines = list(self._write_work(operation, names))
        own = self._family.list_own_parameters(UR.functions[function.name])
        parameters = dict(zip(own, names, strict=True))
        self._family.declare_lines(function.name, command, lines, scope, parameters)
        if operation.name == "svm_copy":
            self._copy = compile_function("work", ("call", *names), lines, dict(scope))

    def _write_work(self, operation: Operation, names: list[str]) -> Iterator[str]:
        """Write the work of an entry point. Loops over the operands would take microseconds."""
        buffers, addresses = list_sides(operation, BUFFER), list_sides(operation, SVM)
        yield f"context = call.{'queue' if self._key == 'ur' else 'buffer'}.context"
        if buffers:
            yield f"check_buffers(context, {', '.join(buffers)})"
        if "region" in names:
            yield "region = read_region(region)"
            for side in ("source", "target"):
                pitches = f"{side}_row_pitch, {side}_slice_pitch"
                yield f"{side}_origin = read_offset({side}_origin)"
                check = f"rect({side}.size, {side}_origin, " if side in buffers else "pitches("
                yield f"{pitches} = check_{check}region, {pitches})"
        else:
            for side in buffers:
                offset = "offset" if "offset" in names else f"{side}_offset"
                yield f"check_range({side}.size, {offset}, size)"
            if operation.name in _MAY_BE_EMPTY[self._key]:
                yield "if not size: return mark(call, command)"
        if "pattern" in names:
            yield "pattern = string_at(pattern, pattern_size)"
        call = self._calls.get(operation.name)
        for side in addresses:
            yield f"found_{side} = find(context, {side}, size)"
            if call is None:
                yield f"{side} = new(Location, ({side}, found_{side}))"
        yield f"keep = ({''.join([f'{side}, ' for side in buffers])})"
        operands = ", ".join([f"{name!r}: {name}" for name in names])
        made = f"new(TransferCommand, ({operation.name!r}, {{{operands}}}, keep))"
        yield f"return {call or f'run(call, {made}, command)'}"

    def _mark(self, call: Any, command: str) -> Any:
        return call.mark() if self._key == "ur" else call.mark(command)

    def copy(self, call: Any, target: int, source: int, size: int) -> Any:
        """Do what urEnqueueUSMMemcpy does. Returns what `run` returns."""
        return self._copy(call, target, source, size)

    # rows of memory by address

    def declare_rows(
        self,
        copy: Callable[[Any, Location, int, Location, int, int, int], Any],
        fill: Callable[[Any, Location, int, bytes, int, int], Any],
    ) -> None:
        """Declare copies and fills of rows.

        Args:
            copy: copies rows. It gets the call, where the first row of the target begins, and
                its pitch; then the same of the source. The bytes of a row and the number of rows
                come last.
            fill: fills rows that do not follow each other. It gets the call, where the first row
                begins, the pitch, the pattern, the bytes of a row, and how many rows.
        """

        def copy_rows(
            call: Any, to: int, to_pitch: int, at: int, at_pitch: int, width: int, height: int
        ) -> Any:
            target = self._locate_rows(call, to, to_pitch, width, height)
            source = self._locate_rows(call, at, at_pitch, width, height)
            if not width:
                return call.mark()
            return copy(call, target, to_pitch, source, at_pitch, width, height)

        def fill_rows(
            call: Any, to: int, pitch: int, length: int, address: int, width: int, height: int
        ) -> Any:
            pattern = ctypes.string_at(address, length)
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
                of it, without the last pitch in what follows the address. Else as `find`.
        """
        context = call.queue.context
        found = self._find(context, address, 1)
        if found is None:
            self._find(context, address, pitch * (height - 1) + max(width, 1))
        else:
            check_rows_in(found, address, pitch, width, height)
        return _new(Location, (address, found))

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
                place = Location(address, self._find(call.context, address, size))
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


# images

_IMAGES: Final = {"read_image": "READ", "write_image": "WRITE", "copy_image": "COPY"}


def declare_image_transfers(
    enqueues: EnqueueFamily,
    run: Callable[[Any, TransferCommand], Any],
    are_same: Callable[[Any, Any], bool],
    check_device: Callable[[Any], None] = lambda device: None,
) -> None:
    """Declare reads, writes and copies of images.

    Args:
        enqueues: the family of the adapter's entry points.
        run: enqueues a transfer. It gets the call and the command. Origins and regions are in
            pixels, and the pitches of host memory are those of `find_transfer_pitches`.
        are_same: whether two images have the same pixels.
        check_device: raises URError (UNSUPPORTED_FEATURE) for a device without images.
    """

    def declare(operation: Operation, word: str) -> None:
        function, sides = operation.functions["ur"], list_sides(operation, IMAGE)
        names = [name for name in function.operands if name != "blocking"]
        origins = ["origin" if "origin" in names else f"{side}_origin" for side in sides]

        def work(call: Any, *values: Any) -> Any:
            operands = dict(zip(names, values, strict=True))
            check_device(call.queue.device)
            images = tuple([operands[side] for side in sides])
            check_images(call.context, *images)
            if len({image.format for image in images}) > 1:
                code = "INVALID_IMAGE_FORMAT_DESCRIPTOR"
                raise failure(code, "the images differ in their formats")
            region = operands["region"] = read_region(operands["region"])
            for image, name in zip(images, origins, strict=True):
                operands[name] = read_offset(operands[name])
                check_region(image.extent, operands[name], region)
            if len(images) == 1:
                image, pitches = images[0], (operands["row_pitch"], operands["slice_pitch"])
                found = find_transfer_pitches(image.kind, image.pixel, region, *pitches)
                operands["row_pitch"], operands["slice_pitch"] = found
            elif are_same(*images):
                start, to = (operands[name] for name in origins)
                if overlap(start, to, region):
                    raise failure("OVERLAPPING_REGIONS", "the regions of one image overlap")
            return run(call, TransferCommand(operation.name, operands, images))

        own = enqueues.list_own_parameters(UR.functions[function.name])
        enqueues.declare(function.name, f"MEM_IMAGE_{word}", work, *own)

    for name, word in _IMAGES.items():
        declare(OPERATIONS[name], word)
