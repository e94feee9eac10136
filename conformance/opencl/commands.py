"""cl_khr_command_buffer for cases: prototypes of the device's version, and legal arguments.

The ABI changed at 0.9.5. Before it, only clCommandNDRangeKernelKHR had the parameter `properties`;
since then every function that records has it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import expect, failed, unsupported
from fairlead.conformance.opencl.objects import CLObjects, check
from fairlead.icd.abi import OPENCL
from fairlead.icd.objects import CLDevice
from fairlead.loader.base.abi import Function
from fairlead.loader.base.query import query

EXTENSION: Final = "cl_khr_command_buffer"
MUTABLE: Final = "cl_khr_command_buffer_mutable_dispatch"
MULTI_DEVICE: Final = "cl_khr_command_buffer_multi_device"

#: The functions that record a command.
RECORDING: Final = tuple(name for name in OPENCL.functions if name.startswith("clCommand"))
#: The other functions of the extension.
OTHERS: Final = (
    *(
        f"cl{name}CommandBufferKHR"
        for name in ("Create", "Finalize", "Retain", "Release", "Enqueue")
    ),
    "clGetCommandBufferInfoKHR",
)
_SINCE: Final = {"clCommandSVMMemcpyKHR": (0, 9, 4), "clCommandSVMMemFillKHR": (0, 9, 4)}
_PROPERTIES_SINCE: Final = (0, 9, 5)

CREATE: Final = "clCreateCommandBufferKHR"
FINALIZE: Final = "clFinalizeCommandBufferKHR"
ENQUEUE: Final = "clEnqueueCommandBufferKHR"
INFO: Final = "clGetCommandBufferInfoKHR"
INVALID: Final = "CL_INVALID_COMMAND_BUFFER_KHR"
STATE_RECORDING: Final = OPENCL["CL_COMMAND_BUFFER_STATE_RECORDING_KHR"]
STATE_EXECUTABLE: Final = OPENCL["CL_COMMAND_BUFFER_STATE_EXECUTABLE_KHR"]

FLAGS: Final = OPENCL["CL_COMMAND_BUFFER_FLAGS_KHR"]
SIMULTANEOUS: Final = OPENCL["CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR"]
#: A value of cl_command_buffer_state_khr up to 0.9.7. It has another meaning since.
PENDING: Final = 2


def properties(*pairs: int) -> Any:
    """Return a list of properties, terminated by 0."""
    return (ctypes.c_uint64 * (len(pairs) + 1))(*pairs, 0)


class CommandBuffers:
    """The extension on a device.

    `version` and `mutable_version` come from CL_DEVICE_EXTENSIONS_WITH_VERSION. They are (0, 0, 0)
    if the device lacks the extension.
    """

    def __init__(self, device: CLDevice) -> None:
        self.device = device
        versions = (
            dict(device.info("CL_DEVICE_EXTENSIONS_WITH_VERSION"))
            if device.version_number >= (3, 0)
            else {}
        )
        self.version: tuple[int, int, int] = versions.get(EXTENSION, (0, 0, 0))
        self.mutable_version: tuple[int, int, int] = versions.get(MUTABLE, (0, 0, 0))
        self.multi_device = MULTI_DEVICE in versions
        self._functions: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Return whether this version has the function, on a device of this OpenCL version."""
        function = OPENCL.functions[name]
        return (
            self.version >= _SINCE.get(name, (0, 9, 0))
            and self.device.version_number >= function.since
        )

    def missing(self) -> list[str]:
        """Return the functions that the version has and the driver lacks."""
        names = (name for name in (*OTHERS, *RECORDING) if self.has(name))
        return [name for name in names if not self.device.platform.extension_function(name)]

    def function(self, name: str) -> Function:
        """Return the function with the prototype of this version."""
        function = OPENCL.functions[name]
        if (
            name in RECORDING
            and name != "clCommandNDRangeKernelKHR"
            and self.version < _PROPERTIES_SINCE
        ):
            both = zip(function.declared.split(", "), function.parameters, strict=True)
            declared = ", ".join(t for t, p in both if p.name != "properties")
            one = function
            return Function(one.api, one.slot, one.since, one.returns, one.name, declared)
        return function

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cl"):
            raise AttributeError(name)
        if name not in self._functions:
            if not self.has(name) and name in RECORDING:
                unsupported(
                    f"{name} is not part of {EXTENSION} {'.'.join(map(str, self.version))} on "
                    "this device"
                )
            address = self.device.platform.extension_function(name)
            if not address:
                failed(f"clGetExtensionFunctionAddressForPlatform gives {name}", "NULL")
            self._functions[name] = self.function(name).prototype(address)
        return self._functions[name]

    @property
    def capabilities(self) -> int:
        """CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR."""
        return self.device.info("CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR")

    def can(self, capability: str) -> bool:
        """Return whether CL_COMMAND_BUFFER_CAPABILITY_…_KHR is among the capabilities."""
        return bool(self.capabilities & OPENCL[f"CL_COMMAND_BUFFER_CAPABILITY_{capability}_KHR"])

    @property
    def can_be_pipelined(self) -> bool:
        """Whether a command-buffer may be enqueued again before it has ended.

        The version 0.9.8 allows it if something else orders the submissions.
        """
        return self.version >= (0, 9, 8)

    def try_create(self, count: int, queues: Any, what: Any = None) -> tuple[int | None, int]:
        """Call clCreateCommandBufferKHR. Returns the handle and the code."""
        code = ctypes.c_int32(1)
        handle = self.clCreateCommandBufferKHR(count, queues, what, ctypes.byref(code))
        return handle, code.value

    def create(self, objects: CLObjects, *queues: int, flags: int = 0) -> int:
        """Make a command-buffer on queues. `objects` releases it."""
        what = properties(FLAGS, flags) if flags else None
        handle, code = self.try_create(len(queues), handles(*queues), what)
        check(code, "clCreateCommandBufferKHR")
        if not handle:
            failed("clCreateCommandBufferKHR gives an object", "NULL, and CL_SUCCESS")
        objects.defer(lambda: self.clReleaseCommandBufferKHR(handle))
        return handle

    def info(self, buffer: int, name: str) -> bytes:
        """Return the answer of clGetCommandBufferInfoKHR."""
        routine = "clGetCommandBufferInfoKHR"
        return query(
            self.clGetCommandBufferInfoKHR,
            routine,
            check,
            buffer,
            OPENCL[name],
            detail=f" ({name})",
        )

    def number(self, buffer: int, name: str) -> int:
        """Return the answer as an unsigned number."""
        return int.from_bytes(self.info(buffer, name), "little")


class CLRecorder:
    """A command-buffer that is being recorded, with legal arguments for every function that
    records.

    >>> recorder.record("clCommandFillBufferKHR", buffer=mine, size=64)  # returns a sync-point
    >>> recorder.answer("clCommandFillBufferKHR", pattern=None)  # returns the code of the call
    """

    def __init__(
        self, commands: CommandBuffers, objects: CLObjects, queue: int, flags: int = 0
    ) -> None:
        self.commands, self.objects, self.queue = commands, objects, queue
        self.handle = commands.create(objects, queue, flags=flags)
        self._arguments: dict[str, Any] = {}

    def argument(self, name: str) -> Any:
        """Return a legal value for a parameter. It is made at the first request."""
        if name not in self._arguments:
            self._arguments[name] = self._make_legal(name)
        return self._arguments[name]

    def answer(self, name: str, waits: Sequence[int] = (), **changes: Any) -> int:
        """Call a function with legal arguments, except for the `changes`. Returns its code."""
        function = self.commands.function(name)
        if waits:
            changes["num_sync_points_in_wait_list"] = len(waits)
            changes["sync_point_wait_list"] = (ctypes.c_uint32 * len(waits))(*waits)
        call = getattr(self.commands, name)
        arguments = (
            changes[p.name] if p.name in changes else self.argument(p.name)
            for p in function.parameters
        )
        return call(*arguments)

    def record(self, name: str, waits: Sequence[int] = (), **changes: Any) -> int:
        """Record a command. Returns its sync-point."""
        point = ctypes.c_uint32()
        check(self.answer(name, waits, sync_point=ctypes.byref(point), **changes), name)
        return point.value

    def launch(self, kernel: int, size: int, waits: Sequence[int] = (), **changes: Any) -> int:
        """Record a kernel in one dimension. Returns its sync-point."""
        return self.record(
            "clCommandNDRangeKernelKHR",
            waits,
            **{"kernel": kernel, "global_work_size": sizes(size), **changes},
        )

    def copy(self, source: int, target: int, size: int, waits: Sequence[int] = ()) -> int:
        """Record a copy of the beginning of a buffer to another. Returns its sync-point."""
        return self.record(
            "clCommandCopyBufferKHR", waits, src_buffer=source, dst_buffer=target, size=size
        )

    def fill(self, buffer: int, value: int, size: int, waits: Sequence[int] = ()) -> int:
        """Record a fill of the beginning of a buffer with an integer. Returns its sync-point."""
        return self.record(
            "clCommandFillBufferKHR",
            waits,
            buffer=buffer,
            pattern=ctypes.byref(ctypes.c_int32(value)),
            size=size,
        )

    def finalize(self) -> None:
        """Finalize the command-buffer."""
        check(self.commands.clFinalizeCommandBufferKHR(self.handle), "clFinalizeCommandBufferKHR")

    def enqueue(self, queue: int = 0, waits: Sequence[int] = ()) -> None:
        """Enqueue the command-buffer on its own queue, or on another."""
        queues = (1, handles(queue)) if queue else (0, None)
        wait_list = (len(waits), handles(*waits) if waits else None)
        check(
            self.commands.clEnqueueCommandBufferKHR(*queues, self.handle, *wait_list, None),
            "clEnqueueCommandBufferKHR",
        )

    def enqueue_with_event(self, queue: int = 0, waits: Sequence[int] = ()) -> int:
        """Enqueue the command-buffer. Returns the command's event."""
        event = ctypes.c_void_p()
        queues = (1, handles(queue)) if queue else (0, None)
        wait_list = (len(waits), handles(*waits) if waits else None)
        code = self.commands.clEnqueueCommandBufferKHR(
            *queues, self.handle, *wait_list, ctypes.byref(event)
        )
        check(code, "clEnqueueCommandBufferKHR")
        if not event.value:
            failed("clEnqueueCommandBufferKHR gives an event", "NULL")
        return self.objects.owned(event.value or 0, "cl_event")

    def run(self, times: int = 1) -> None:
        """Finalize the command-buffer, then enqueue it and wait, so many times."""
        self.finalize()
        for _ in range(times):
            self.enqueue()
            self.objects.finish(self.queue)

    def _make_legal(self, name: str) -> Any:
        if name in _CONSTANT:
            return _CONSTANT[name]
        if name == "command_buffer":
            return self.handle
        if name == "kernel":
            return self.objects.kernel("increment", self.argument("buffer"))
        if name.endswith("image"):
            if not self.objects.number(
                "clGetDeviceInfo", self.objects.device, "CL_DEVICE_IMAGE_SUPPORT"
            ):
                unsupported("the device has no images (CL_DEVICE_IMAGE_SUPPORT)")
            return self.objects.image(8, 8)
        if name.endswith("ptr"):
            return self.objects.svm(256)
        if name.endswith("buffer"):
            return self.objects.buffer([0] * 64)
        raise KeyError(name)


#: Legal values that are the same for every function. A region of 4 × 1 × 1 counts bytes in a buffer
#: and pixels in an image.
_CONSTANT: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("command_queue", "properties", "sync_point_wait_list", "sync_point", "mutable_handle")
    ),
    **dict.fromkeys(("global_work_offset", "local_work_size")),
    **dict.fromkeys(("num_sync_points_in_wait_list", "src_offset", "dst_offset", "offset"), 0),
    **dict.fromkeys(("src_row_pitch", "src_slice_pitch", "dst_row_pitch", "dst_slice_pitch"), 0),
    **dict.fromkeys(("src_origin", "dst_origin", "origin"), sizes(0, 0, 0)),
    "region": sizes(4, 1, 1),
    "size": 16,
    "pattern": ctypes.byref(ctypes.c_int32(7)),
    "pattern_size": 4,
    "fill_color": ctypes.byref((ctypes.c_uint32 * 4)(7, 7, 7, 7)),
    "work_dim": 1,
    "global_work_size": sizes(8),
}


def chain(recorder: CLRecorder, buffer: int, ordered: bool) -> None:
    """Record kernels on 1024 numbers that give CHAINED only if they run one after another.

    Sync-points order them, unless `ordered` says that the queue does.
    """
    waits: list[int] = []
    for value in (7, 3, 7, 5):
        kernel = recorder.objects.kernel("twice_plus", buffer, ctypes.c_int32(value))
        waits = [recorder.launch(kernel, 1024, [] if ordered else waits)]


CHAINED: Final = [((7 * 2 + 3) * 2 + 7) * 2 + 5] * 1024


def expect_code(code: int, *names: str) -> None:
    """Check that an OpenCL call's code is one of the expected ones."""
    expect(OPENCL, code, *names)
