"""Commands with valid arguments: every form of transfer, and launches.

They are `Operation`s, which can be enqueued, or appended to a command-buffer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from fairlead.conformance.ur.values import (
    BufferValue,
    LocalValue,
    PointerValue,
    make_arguments,
)
from fairlead.loader.ur.abi import UR
from helpers.fuzz.end import Ending
from helpers.fuzz.library import array, sizes
from helpers.fuzz.model import (
    KERNELS,
    Buffer,
    Context,
    Event,
    Kernel,
    Launch,
    Operation,
    Queue,
    Span,
    Storage,
    Usm,
)

_Offset: Final = UR.get_struct("ur_rect_offset_t")
_Region: Final = UR.get_struct("ur_rect_region_t")
_ADVICE: Final = UR["UR_USM_ADVICE_FLAG_DEFAULT"]


class Operations(Ending):
    """Makes operations of what there is, and enqueues them."""

    # memory

    def buffers(self, context: Context) -> list[Buffer]:
        """Those that commands may use: none that the host has mapped."""
        mapped = [buffer.storage for buffer in self.of(Buffer) if buffer.mapped]
        return [buffer for buffer in self.of(Buffer, context) if buffer.storage not in mapped]

    def usm(self, context: Context) -> list[Usm]:
        """The allocations of a context."""
        return [one for one in self.allocations if one.context is context]

    def part(self, thing: Buffer | Usm, step: int = 1, size: int = 0) -> Span:
        """Return a part of some memory. Places and sizes are multiples of `step`.

        It has the given size, if there is a part that is large enough.
        """
        size = min(size, thing.size) or step * self.number(1, thing.size // step)
        offset = step * self.number(0, (thing.size - size) // step)
        return self.span(thing, offset, size)

    def span(self, thing: Buffer | Usm, offset: int, size: int) -> Span:
        """Bytes of a buffer or an allocation."""
        if isinstance(thing, Buffer):
            return Span(thing.storage, thing.origin + offset, size, thing, offset)
        return Span(thing.storage, offset, size, address=thing.address + offset)

    def host_span(self, size: int) -> Span:
        """New memory of the program's."""
        storage = self.new_host(size)
        return Span(storage, 0, size, address=storage.address)

    # operations

    def operation(self, context: Context) -> Operation | None:
        """Some command for what there is in a context; None if there is nothing for it."""
        makers: list[Callable[[], Operation | None]] = []
        if buffers := self.buffers(context):
            makers += [
                partial(make, buffers)
                for make in (
                    self._write,
                    self._read,
                    self._fill,
                    self._copy,
                    self._rect,
                    self._copy_rect,
                )
            ]
        if usm := self.usm(context):
            makers += [
                partial(make, usm)
                for make in (self._usm_copy, self._usm_fill, self._usm_hint, self._usm_rows)
            ]
        if kernels := [kernel for kernel in self.of(Kernel, context) if kernel.name]:
            makers += [partial(self._launch, kernels, [*buffers, *usm])] * 4
        return self.pick(makers)() if makers else None

    def _write(self, buffers: Sequence[Buffer]) -> Operation:
        to = self.part(self.pick(buffers))
        host, blocks = self.host_span(to.size), self.chance(20)
        given = {**_place(to), "pSrc": host.address, "blockingWrite": blocks}
        return self._moved(
            "urEnqueueMemBufferWrite",
            "urCommandBufferAppendMemBufferWriteExp",
            given,
            host,
            to,
            blocks,
        )

    def _read(self, buffers: Sequence[Buffer]) -> Operation:
        source = self.part(self.pick(buffers))
        host, blocks = self.host_span(source.size), self.chance(20)
        given = {**_place(source), "pDst": host.address, "blockingRead": blocks}
        return self._moved(
            "urEnqueueMemBufferRead",
            "urCommandBufferAppendMemBufferReadExp",
            given,
            source,
            host,
            blocks,
        )

    def _copy(self, buffers: Sequence[Buffer]) -> Operation | None:
        source = self.part(self.pick(buffers))
        to = self.part(self.pick(buffers), size=source.size)
        if to.storage is source.storage:
            return None
        source.size = to.size
        given = {
            **dict.fromkeys(("hBufferSrc", "hSrcMem"), _handle(source)),
            **dict.fromkeys(("hBufferDst", "hDstMem"), _handle(to)),
            "srcOffset": source.offset,
            "dstOffset": to.offset,
            "size": to.size,
        }
        return self._moved(
            "urEnqueueMemBufferCopy",
            "urCommandBufferAppendMemBufferCopyExp",
            given,
            source,
            to,
            False,
        )

    def _fill(self, buffers: Sequence[Buffer]) -> Operation | None:
        buffer = self.pick(buffers)
        pattern = self.pick([size for size in (1, 2, 4, 16, 128, 256) if size <= buffer.size])
        to, data = self.part(buffer, pattern), self._pattern(pattern)
        given = {**_place(to), "pPattern": data, "patternSize": pattern}
        apply = partial(_repeat, to, data.raw)
        return Operation(
            "urEnqueueMemBufferFill",
            "urCommandBufferAppendMemBufferFillExp",
            given,
            [to.storage],
            apply,
        )

    def _pattern(self, size: int) -> Any:
        """Some bytes, which need not live longer than the call."""
        return ctypes.create_string_buffer(
            bytes((self.number(1, 255) + index) & 255 for index in range(size)), size
        )

    def _moved(
        self, enqueue: str, append: str, given: dict[str, Any], source: Span, to: Span, blocks: bool
    ) -> Operation:
        return Operation(
            enqueue, append, given, _of(source, to), lambda: to.put(source.get()), blocks
        )

    # rectangles: rows of `width` bytes, with pitches

    def _rect(self, buffers: Sequence[Buffer]) -> Operation | None:
        buffer = self.pick(buffers)
        shape = self._shape(buffer.size)
        if shape is None:
            return None
        whole, host = self.span(buffer, 0, buffer.size), self.host_span(buffer.size)
        places, region, (row, piece) = shape
        blocks, zero = self.chance(20), _Offset(0, 0, 0)
        mine, reads = _Offset(*places), self.chance(50)
        pitches = {
            "bufferRowPitch": row,
            "bufferSlicePitch": piece,
            "hostRowPitch": row,
            "hostSlicePitch": piece,
        }
        given = {
            "hBuffer": buffer.handle,
            "bufferOrigin": mine,
            "bufferOffset": mine,
            "hostOrigin": zero,
            "hostOffset": zero,
            "region": _Region(*region),
            **pitches,
            "blockingRead": blocks,
            "blockingWrite": blocks,
            "pDst": host.address,
            "pSrc": host.address,
        }
        ends = (whole, places, host, (0, 0, 0)) if reads else (host, (0, 0, 0), whole, places)
        apply = partial(_move_rows, *ends, region, row, piece)
        word = "Read" if reads else "Write"
        names = f"urEnqueueMemBuffer{word}Rect", f"urCommandBufferAppendMemBuffer{word}RectExp"
        return Operation(*names, given, _of(whole, host), apply, blocks)

    def _copy_rect(self, buffers: Sequence[Buffer]) -> Operation | None:
        source, to = self.pick(buffers), self.pick(buffers)
        shape = self._shape(min(source.size, to.size))
        if shape is None or source.storage is to.storage:
            return None
        places, region, (row, piece) = shape
        zero = _Offset(0, 0, 0)
        pitches = {
            "srcRowPitch": row,
            "srcSlicePitch": piece,
            "dstRowPitch": row,
            "dstSlicePitch": piece,
        }
        given = {
            **dict.fromkeys(("hBufferSrc", "hSrcMem"), source.handle),
            **dict.fromkeys(("hBufferDst", "hDstMem"), to.handle),
            "srcOrigin": _Offset(*places),
            "dstOrigin": zero,
            "region": _Region(*region),
            **pitches,
        }
        ends = self.span(source, 0, source.size), self.span(to, 0, to.size)
        apply = partial(_move_rows, ends[0], places, ends[1], (0, 0, 0), region, row, piece)
        return Operation(
            "urEnqueueMemBufferCopyRect",
            "urCommandBufferAppendMemBufferCopyRectExp",
            given,
            _of(*ends),
            apply,
        )

    def _shape(
        self, size: int
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int]] | None:
        """Origin, region and pitches of a rectangle in so many bytes."""
        row, rows, slices = self.pick((4, 16, 32)), self.number(1, 3), self.number(1, 2)
        if row * rows * slices > size:
            return None
        region = self.number(1, row), self.number(1, rows), self.number(1, slices)
        origin = (
            self.number(0, row - region[0]),
            self.number(0, rows - region[1]),
            self.number(0, slices - region[2]),
        )
        return origin, region, (row, row * rows)

    # memory by address

    def _usm_copy(self, usm: Sequence[Usm]) -> Operation | None:
        one = self.part(self.pick(usm))
        other = (
            self.part(self.pick(usm), size=one.size)
            if self.chance(50)
            else self.host_span(one.size)
        )
        one.size = other.size
        if one.storage is other.storage:
            return None
        source, to = (one, other) if self.chance(50) else (other, one)
        blocks = self.chance(20)
        given = {"pDst": to.address, "pSrc": source.address, "size": to.size, "blocking": blocks}
        return self._moved(
            "urEnqueueUSMMemcpy", "urCommandBufferAppendUSMMemcpyExp", given, source, to, blocks
        )

    def _usm_fill(self, usm: Sequence[Usm]) -> Operation:
        one = self.pick(usm)
        pattern = self.pick([size for size in (1, 3, 4, 16, 128, 200) if size <= one.size])
        arguments = one, 1, pattern * self.number(1, one.size // pattern)
        to, data = self.part(*arguments), self._pattern(pattern)
        given = {
            "pMem": to.address,
            "pMemory": to.address,
            "pPattern": data,
            "patternSize": pattern,
            "size": to.size,
        }
        names = "urEnqueueUSMFill", "urCommandBufferAppendUSMFillExp"
        return Operation(*names, given, [to.storage], partial(_repeat, to, data.raw))

    def _usm_hint(self, usm: Sequence[Usm]) -> Operation:
        to = self.part(self.pick(usm))
        given = {"pMem": to.address, "pMemory": to.address, "size": to.size, "advice": _ADVICE}
        word = self.pick(("Prefetch", "Advise"))
        return Operation(
            f"urEnqueueUSM{word}",
            f"urCommandBufferAppendUSM{word}Exp",
            given,
            [to.storage],
            lambda: None,
        )

    def _usm_rows(self, usm: Sequence[Usm]) -> Operation | None:
        one = self.pick(usm)
        pitch, height = self.pick((4, 16, 32)), self.number(1, 3)
        width = self.number(1, pitch)
        if pitch * height > one.size:
            return None
        mine, host = self.span(one, 0, one.size), self.host_span(pitch * height)
        shape = {
            "width": width,
            "height": height,
            "pitch": pitch,
            "srcPitch": pitch,
            "dstPitch": pitch,
        }
        if self.chance(40):
            data = self._pattern(1)
            given = {**shape, "pMem": one.address, "pPattern": data, "patternSize": 1}
            fill = Span(Storage("host", bytearray(data.raw * pitch * height)), 0, pitch * height)
            apply = partial(
                _move_rows,
                fill,
                (0, 0, 0),
                mine,
                (0, 0, 0),
                (width, height, 1),
                pitch,
                pitch * height,
            )
            return Operation("urEnqueueUSMFill2D", "", given, [one.storage], apply)
        source, to = (mine, host) if self.chance(50) else (host, mine)
        blocks = self.chance(20)
        given = {**shape, "pDst": to.address, "pSrc": source.address, "blocking": blocks}
        apply = partial(
            _move_rows, source, (0, 0, 0), to, (0, 0, 0), (width, height, 1), pitch, pitch * height
        )
        return Operation("urEnqueueUSMMemcpy2D", "", given, _of(source, to), apply, blocks)

    # launches

    def _launch(
        self, kernels: Sequence[Kernel], memory: Sequence[Buffer | Usm]
    ) -> Operation | None:
        launch = self.launch(self.pick(kernels), memory)
        return self.launched(launch) if launch else None

    def launched(self, launch: Launch) -> Operation:
        """A launch as an operation."""
        names = "urEnqueueKernelLaunchWithArgsExp", "urCommandBufferAppendKernelLaunchWithArgsExp"
        touches = [argument.storage for argument in launch.arguments if isinstance(argument, Span)]
        return Operation(
            *names, given_of(launch), list(dict.fromkeys(touches)), launch.apply, launch=launch
        )

    def launch(self, kernel: Kernel, memory: Sequence[Buffer | Usm]) -> Launch | None:
        """A launch of a kernel on some memory."""
        arguments: list[Any] = []
        for kind in KERNELS[kernel.name]:
            if kind == "memory":
                left = [
                    one
                    for one in memory
                    if one.size >= 16 and one.storage not in [a.storage for a in arguments]
                ]
                if not left:
                    return None
                arguments.append(self.argument(self.pick(left)))
            else:
                arguments.append(self.number(0, 99))
        return self.sized(kernel, arguments)

    def argument(self, thing: Buffer | Usm) -> Span:
        """Memory as a kernel gets it: a whole buffer, or from an address on."""
        at = (
            16 * self.number(0, (thing.size - 16) // 16)
            if isinstance(thing, Usm) and self.way != "buffer"
            else 0
        )
        return self.span(thing, at, (thing.size - at) & ~3)

    def sized(self, kernel: Kernel, arguments: list[Any]) -> Launch:
        """A launch with sizes that fit to its arguments."""
        room = min(
            (argument.size // 4 for argument in arguments if isinstance(argument, Span)), default=16
        )
        count = self.pick([size for size in (1, 2, 4, 8, 16) if size <= room])
        size = (
            [count // 2, 2] if count >= 4 and self.chance(20) and kernel.name != "sums" else [count]
        )
        offset = (
            self.number(0, room - count)
            if len(size) == 1 and self.chance(30) and kernel.name != "sums"
            else 0
        )
        local = None
        if kernel.name == "sums":
            group = self.pick([group for group in (1, 4) if group <= count])
            arguments, local = [arguments[0], 4 * group], [group]
        elif self.chance(30):
            local = [1] * len(size)
        return Launch(kernel, [], arguments, offset, size, local)

    # enqueueing

    def enqueue(self, queue: Queue, operation: Operation) -> None:
        """Enqueue it, with whatever it has to wait for and some other events."""
        waits = [*self.before(queue, operation.touches), *self.some_events(queue)]
        if operation.blocks:
            self.unblock()
        made = ctypes.c_void_p() if self.chance(60) else None
        has_list = operation.enqueue != "urEnqueueUSMAdvise"
        given = {
            "hQueue": queue.handle,
            "numEventsInWaitList": len(waits),
            "phEventWaitList": array(*(event.handle for event in waits)),
            "phEvent": ctypes.byref(made) if made is not None else None,
        }
        if not has_list and waits:
            self.wait(waits)
        self.library.expect(
            self.library.fitting(operation.enqueue, {**operation.given, **given}), "SUCCESS"
        )
        operation.apply()
        if operation.launch:
            operation.launch.kernel.arguments = dict(enumerate(operation.launch.arguments))
        event = (
            self.add(Event(made.value or 0, queue.context, queue=queue))
            if made is not None
            else None
        )
        self.after(queue, operation.touches, event, operation.has_run)

    def some_events(self, queue: Queue) -> list[Event]:
        """Events that a command may wait for besides, sometimes one that is held back."""
        assert queue.context
        found = [event for event in self.of(Event, queue.context) if event.signals]
        chosen = [self.pick(found)] if found and self.chance(20) else []
        if self.chance(4) and queue.context.alive:
            chosen.append(self.hold(queue.context))
        return chosen


def given_of(launch: Launch) -> dict[str, Any]:
    """A launch as arguments of a call."""
    rows = rows_of(launch)
    return {
        "hKernel": launch.kernel.handle,
        "workDim": len(launch.size),
        "pGlobalWorkOffset": sizes(*[launch.offset, 0, 0][: len(launch.size)])
        if launch.offset
        else None,
        "pGlobalWorkSize": sizes(*launch.size),
        "pLocalWorkSize": sizes(*launch.local) if launch.local else None,
        "numArgs": len(launch.arguments),
        "pArgs": rows if launch.arguments else None,
        "numKernelAlternatives": len(launch.alternatives),
        "phKernelAlternatives": array(*(one.handle for one in launch.alternatives)),
    }


def rows_of(launch: Launch) -> Any:
    """The arguments of a launch as an array of ur_exp_kernel_arg_properties_t."""
    kinds = KERNELS[launch.kernel.name]
    return make_arguments(*map(_make_value, kinds, launch.arguments))


def _make_value(kind: str, argument: Any) -> Any:
    if kind in ("local", "value"):
        return LocalValue(argument) if kind == "local" else ctypes.c_uint32(argument)
    buffer = argument.buffer
    return PointerValue(argument.address) if buffer is None else BufferValue(buffer.handle)


def _handle(span: Span) -> int:
    return span.buffer.handle if span.buffer else 0


def _place(span: Span) -> dict[str, Any]:
    return {"hBuffer": _handle(span), "offset": span.offset, "size": span.size}


def _of(*spans: Span) -> list[Storage]:
    return list(dict.fromkeys(span.storage for span in spans))


def _repeat(span: Span, pattern: bytes) -> None:
    span.put(pattern * (span.size // len(pattern)))


def _move_rows(
    source: Span,
    at: Sequence[int],
    to: Span,
    into: Sequence[int],
    region: Sequence[int],
    row: int,
    piece: int,
) -> None:
    """What a transfer of a rectangle does, with the same pitches on both sides."""
    width, height, depth = region
    for z in range(depth):
        for y in range(height):
            begin = at[0] + (at[1] + y) * row + (at[2] + z) * piece
            target = into[0] + (into[1] + y) * row + (into[2] + z) * piece
            to.put(source.get()[begin : begin + width], target)
