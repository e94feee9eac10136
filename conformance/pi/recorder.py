"""A PI command-buffer that is being recorded, with legal arguments for every function that
records."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from fairlead.conformance.arrays import ints, sizes
from fairlead.conformance.checks import expect, failed, name_of
from fairlead.conformance.pi.objects import ABSENT, PIObjects, PIPointer, absent, check, waits
from fairlead.loader.pi.abi import PI

PREFIX: Final = "piextCommandBuffer"
#: The functions that record a command.
RECORDING: Final = tuple(
    name
    for name, function in PI.functions.items()
    if name.startswith(PREFIX) and any(p.name == "sync_point" for p in function.parameters)
)
_OFFSET, _REGION = (
    PI.get_struct("pi_buff_rect_offset_struct"),
    PI.get_struct("pi_buff_rect_region_struct"),
)


def offset(x: int, y: int = 0, z: int = 0) -> Any:
    """Return an offset in a buffer: bytes, rows, slices."""
    return ctypes.byref(_OFFSET(x, y, z))


def region(width: int, height: int = 1, depth: int = 1) -> Any:
    """Return the size of a box in a buffer: bytes, rows, slices."""
    return ctypes.byref(_REGION(width, height, depth))


class PIRecorder:
    """A command-buffer.

    >>> recorder.record("MemcpyUSM", dst_ptr=mine, src_ptr=other, size=64)  # returns a sync-point
    >>> recorder.answer("MemcpyUSM", dst_ptr=None)  # returns the code of the call
    """

    def __init__(self, objects: PIObjects) -> None:
        self.objects = objects
        desc, handle = PI.get_struct("pi_ext_command_buffer_desc")(), ctypes.c_void_p()
        code = objects.pi.piextCommandBufferCreate(
            objects.context, objects.device, ctypes.byref(desc), ctypes.byref(handle)
        )
        if name_of(PI, code) in ABSENT:
            absent("piextCommandBufferCreate")
        check(code, "piextCommandBufferCreate")
        if not handle.value:
            failed("piextCommandBufferCreate gives an object", "NULL, and PI_SUCCESS")
        self.handle = objects.owned(handle.value or 0, "pi_ext_command_buffer")
        self._arguments: dict[str, Any] = {}

    def answer(self, name: str, after: Sequence[int] = (), **changes: Any) -> int:
        """Call a function with legal arguments, except for the `changes`. Returns its code."""
        routine = name if name.startswith(PREFIX) else PREFIX + name
        if after:
            changes["num_sync_points_in_wait_list"] = len(after)
            changes["sync_point_wait_list"] = (ctypes.c_uint32 * len(after))(*after)
        parameters = PI.functions[routine].parameters
        arguments = [
            changes[p.name] if p.name in changes else self.argument(p.name, routine)
            for p in parameters
        ]
        code = getattr(self.objects.pi, routine)(*arguments)
        if name_of(PI, code) in ABSENT:
            absent(routine)
        return code

    def record(self, name: str, after: Sequence[int] = (), **changes: Any) -> int:
        """Record a command. Returns its sync-point."""
        point = ctypes.c_uint32()
        expect(
            PI,
            self.answer(name, after, sync_point=ctypes.byref(point), **changes),
            "PI_SUCCESS",
            what=name,
        )
        return point.value

    def launch(self, kernel: int, size: int, after: Sequence[int] = ()) -> int:
        """Record a kernel in one dimension. Returns its sync-point."""
        return self.record("NDRangeKernel", after, kernel=kernel, global_work_size=sizes(size))

    def copy(self, source: int, target: int, size: int, after: Sequence[int] = ()) -> int:
        """Record a copy between USM. Returns its sync-point."""
        return self.record("MemcpyUSM", after, src_ptr=source, dst_ptr=target, size=size)

    def fill(self, memory: int, value: int, size: int, after: Sequence[int] = ()) -> int:
        """Record a fill of USM with an integer. Returns its sync-point."""
        pattern = ctypes.byref(ctypes.c_int32(value))
        return self.record("FillUSM", after, ptr=memory, pattern=pattern, pattern_size=4, size=size)

    def finalize(self) -> None:
        """Finalize the command-buffer."""
        check(self.objects.pi.piextCommandBufferFinalize(self.handle), "piextCommandBufferFinalize")

    def enqueue(self, queue: int, *after: int) -> None:
        """Enqueue the command-buffer."""
        check(
            self.objects.pi.piextEnqueueCommandBuffer(self.handle, queue, *waits(*after), None),
            "piextEnqueueCommandBuffer",
        )

    def enqueue_with_event(self, queue: int, *after: int) -> int:
        """Enqueue the command-buffer. Returns the event."""
        return self.objects.make(
            "piextEnqueueCommandBuffer", self.handle, queue, *waits(*after), ...
        )

    def run(self, queue: int, times: int = 1) -> None:
        """Finalize the command-buffer, then enqueue it and wait, so many times."""
        self.finalize()
        for _ in range(times):
            self.enqueue(queue)
            self.objects.finish(queue)

    def argument(self, name: str, routine: str) -> Any:
        """Return a legal value for a parameter. It is made at the first request."""
        if name in _CONSTANT:
            return _CONSTANT[name]
        key = f"{name} of USM" if "USM" in routine else name
        if key not in self._arguments:
            self._arguments[key] = self._make_legal(name, "USM" in routine)
        return self._arguments[key]

    def _make_legal(self, name: str, of_usm: bool) -> Any:
        if name == "command_buffer":
            return self.handle
        if name == "kernel":
            return self.objects.kernel("increment", PIPointer(self.objects.allocate("shared", 256)))
        if name.endswith("buffer"):
            return self.objects.buffer([0] * 64)
        if name in ("ptr", "dst", "dst_ptr", "src_ptr"):
            return self.objects.allocate("shared", 256) if of_usm else ints([0] * 64)
        raise KeyError(name)


_CONSTANT: Final[dict[str, Any]] = {
    **dict.fromkeys(("sync_point_wait_list", "sync_point", "local_work_size")),
    **dict.fromkeys(
        ("num_sync_points_in_wait_list", "src_offset", "dst_offset", "offset", "flags", "advice"), 0
    ),
    **dict.fromkeys(("src_row_pitch", "dst_row_pitch", "buffer_row_pitch", "host_row_pitch"), 16),
    **dict.fromkeys(
        ("src_slice_pitch", "dst_slice_pitch", "buffer_slice_pitch", "host_slice_pitch"), 64
    ),
    **dict.fromkeys(("src_origin", "dst_origin", "buffer_offset", "host_offset"), offset(0)),
    "region": region(4),
    "size": 16,
    "length": 16,
    "pattern": ctypes.byref(ctypes.c_int32(7)),
    "pattern_size": 4,
    "work_dim": 1,
    "global_work_offset": sizes(0),
    "global_work_size": sizes(8),
}


def chain(recorder: PIRecorder, memory: int) -> None:
    """Record kernels on 1024 numbers that give CHAINED only if they run one after another.

    Sync-points order them.
    """
    after: list[int] = []
    for value in (7, 3, 7, 5):
        kernel = recorder.objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(value))
        after = [recorder.launch(kernel, 1024, after)]


CHAINED: Final = [((7 * 2 + 3) * 2 + 7) * 2 + 5] * 1024
