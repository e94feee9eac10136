"""PI objects for a case: made with one checked call each, and released when the case is over.

>>> memory = objects.usm("shared", [1, 2, 3])
>>> objects.launch(queue, objects.kernel("increment", PIPointer(memory)), 3)
>>> objects.numbers(queue, memory, 3)
[2, 3, 4]

PI itself takes SPIR-V and binaries only. So the OpenCL driver under the plugin compiles the program
from OpenCL C, and PI gets its native handle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NoReturn

from fairlead.conformance.arrays import NO_EVENTS, handles, ints, sizes
from fairlead.conformance.checks import expect, failed, name_of, unsupported
from fairlead.conformance.maker import Maker
from fairlead.conformance.opencl.objects import SOURCE
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

_RELEASE: Final = {
    "pi_context": "piContextRelease",
    "pi_queue": "piQueueRelease",
    "pi_mem": "piMemRelease",
    "pi_sampler": "piSamplerRelease",
    "pi_program": "piProgramRelease",
    "pi_kernel": "piKernelRelease",
    "pi_event": "piEventRelease",
    "pi_ext_command_buffer": "piextCommandBufferRelease",
}
OUT_OF_ORDER: Final = PI["PI_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
PROFILING: Final = PI["PI_QUEUE_FLAG_PROFILING_ENABLE"]
ABSENT: Final = ("PI_ERROR_UNSUPPORTED_FEATURE",)


class PIPointer(int):
    """A kernel argument that is a USM pointer."""


def codes(code: int, *names: str) -> None:
    """Check that a PI call's code is one of the expected ones.

    `names` are without PI_ERROR_, except PI_SUCCESS.
    """
    expect(PI, code, *(name if name == "PI_SUCCESS" else f"PI_ERROR_{name}" for name in names))


def waits(*events: int) -> tuple[int, Any]:
    """Return the two arguments for a wait list."""
    return len(events), handles(*events) if events else None


class PIObjects(Maker):
    """Makes objects in one context on one device. `close` releases them in reverse order."""

    api, success, releases = PI, "PI_SUCCESS", _RELEASE

    @property
    def pi(self) -> DispatchTable:
        """The PI functions."""
        return self.table

    def make(self, routine: str, *arguments: Any) -> int:
        """Call a function that creates an object or another value. It must succeed.

        `...` among the arguments is where the function writes the value.
        """
        value = ctypes.c_uint64()
        self.call(
            routine,
            *(ctypes.byref(value) if argument is ... else argument for argument in arguments),
        )
        parameter = PI.functions[routine].parameters[arguments.index(...)]
        if "alloc" in parameter.words and not value.value:
            failed(f"{routine} gives an object", "NULL, and PI_SUCCESS")
        return (
            self.owned(value.value, parameter.type) if parameter.type in _RELEASE else value.value
        )

    def new_context(self) -> int:
        """Make another context on the device."""
        return self.make("piContextCreate", None, 1, handles(self.device), None, None, ...)

    def queue(self, flags: int = 0, context: int = 0) -> int:
        """Make a queue on the device. `close` waits for it before its release."""
        properties = (ctypes.c_uint64 * 3)(PI["PI_QUEUE_FLAGS"], flags, 0)
        queue = self.make("piextQueueCreate", context or self.context, self.device, properties, ...)
        self.defer(lambda: self.pi.piQueueFinish(queue))
        return queue

    def finish(self, queue: int) -> None:
        """Wait for everything in a queue."""
        self.call("piQueueFinish", queue)

    # Memory

    def buffer(self, values: Sequence[int], context: int = 0) -> int:
        """Make a buffer that begins with these numbers."""
        data = ints(values)
        flags, buffer = (
            PI["PI_MEM_FLAGS_ACCESS_RW"] | PI["PI_MEM_FLAGS_HOST_PTR_COPY"],
            ctypes.c_void_p(),
        )
        code = self.pi.piMemBufferCreate(
            context or self.context, flags, ctypes.sizeof(data), data, ctypes.byref(buffer), None
        )
        if name_of(PI, code) in ABSENT:
            absent("piMemBufferCreate")  # the area of memory has a case for this
        check(code, "piMemBufferCreate")
        return self.owned(buffer.value or 0, "pi_mem")

    def read(self, queue: int, buffer: int, count: int = 0) -> list[int]:
        """Return the numbers in a buffer, after everything in the queue."""
        count = count or self.number("piMemGetInfo", buffer, "PI_MEM_SIZE") // 4
        into = (ctypes.c_int32 * count)()
        self.finish(queue)
        self.call(
            "piEnqueueMemBufferRead", queue, buffer, True, 0, ctypes.sizeof(into), into, *NO_EVENTS
        )
        return list(into)

    def usm(self, kind: str, values: Sequence[int], alignment: int = 0) -> int:
        """Allocate USM of a kind, "host", "device" or "shared", that begins with these numbers.

        The case ends as unsupported if the device has no such USM.
        """
        pointer = self.allocate(kind, 4 * len(values), alignment)
        self._write(pointer, values)
        return pointer

    def allocate(self, kind: str, size: int, alignment: int = 0) -> int:
        """Allocate USM and leave its contents undefined.

        Unlike `usm` it enqueues no command, so a forked case may use it.
        """
        if not self.has_usm(kind):
            unsupported(f"the device has no {kind} USM")
        where = (self.context,) if kind == "host" else (self.context, self.device)
        pointer = self.make(f"piextUSM{kind.capitalize()}Alloc", ..., *where, None, size, alignment)
        if not pointer:
            failed(f"piextUSM{kind.capitalize()}Alloc gives memory", "NULL, and PI_SUCCESS")
        self.defer(lambda: self.pi.piextUSMFree(self.context, pointer))
        return pointer

    def has_usm(self, kind: str) -> bool:
        """Return whether the device says that it has USM of a kind.

        A plugin without USM may not know the query.
        """
        support = {"host": "HOST", "device": "DEVICE", "shared": "SINGLE_SHARED"}[kind]
        value = ctypes.c_uint64()
        code = self.pi.piDeviceGetInfo(
            self.device, PI[f"PI_DEVICE_INFO_USM_{support}_SUPPORT"], 8, ctypes.byref(value), None
        )
        return not code and bool(value.value)

    def _write(self, pointer: int, values: Sequence[int]) -> None:
        queue, data = self._own_queue, ints(values)
        self.call(
            "piextUSMEnqueueMemcpy", queue, True, pointer, data, ctypes.sizeof(data), 0, None, None
        )

    @cached_property
    def _own_queue(self) -> int:
        return self.queue()

    def numbers(self, queue: int, pointer: int, count: int) -> list[int]:
        """Return the numbers in USM, after everything in the queue."""
        into = (ctypes.c_int32 * count)()
        self.finish(queue)
        self.call(
            "piextUSMEnqueueMemcpy", queue, True, into, pointer, ctypes.sizeof(into), 0, None, None
        )
        return list(into)

    # Programs and kernels

    def native_program(self, source: str) -> int:
        """Make a cl_program in the context. The caller owns its only reference."""
        native = self.make("piextContextGetNativeHandle", self.context, ...)
        cl = DispatchTable(OPENCL, read_word(native) or 0)
        code, text = ctypes.c_int32(), (ctypes.c_char_p * 1)(source.encode())
        program = cl.clCreateProgramWithSource(native, 1, text, None, ctypes.byref(code))
        expect(
            OPENCL,
            code.value,
            "CL_SUCCESS",
            what="clCreateProgramWithSource of the driver under the plugin",
        )
        return program

    def unbuilt(self, source: str = SOURCE) -> int:
        """Make a program that is not built."""
        native = self.native_program(source)
        return self.make("piextProgramCreateWithNativeHandle", native, self.context, True, ...)

    def build(self, source: str = SOURCE) -> int:
        """Make a program and build it."""
        program = self.unbuilt(source)
        self.call("piProgramBuild", program, 1, handles(self.device), b"", None, None)
        return program

    def kernel(self, name: str, *arguments: int | Any) -> int:
        """Make a kernel of the program and set its arguments, as `set_argument` does."""
        kernel = self.make("piKernelCreate", self.program, name.encode(), ...)
        for index, value in enumerate(arguments):
            self.set_argument(kernel, index, value)
        return kernel

    def set_argument(self, kernel: int, index: int, value: int | Any) -> None:
        """Set an argument of a kernel.

        An int is a memory object, a `PIPointer` is USM, and a ctypes value is passed by its bytes.
        """
        if isinstance(value, PIPointer):
            self.call(
                "piextKernelSetArgPointer", kernel, index, 8, ctypes.byref(ctypes.c_uint64(value))
            )
        elif isinstance(value, int):
            self.call("piextKernelSetArgMemObj", kernel, index, None, handles(value))
        else:
            self.call("piKernelSetArg", kernel, index, ctypes.sizeof(value), ctypes.byref(value))

    def launch(
        self, queue: int, kernel: int, size: int, after: Sequence[int] = (), event: Any = None
    ) -> None:
        """Enqueue a kernel in one dimension."""
        self.call(
            "piEnqueueKernelLaunch",
            queue,
            kernel,
            1,
            sizes(0),
            sizes(size),
            None,
            *waits(*after),
            event,
        )

    def event(self, routine: str, *arguments: Any) -> int:
        """Enqueue a command; `...` among the arguments stands for its event. Returns the event."""
        return self.make(routine, *arguments)

    def status(self, event: int) -> int:
        """Return PI_EVENT_INFO_COMMAND_EXECUTION_STATUS."""
        return self.number(
            "piEventGetInfo", event, "PI_EVENT_INFO_COMMAND_EXECUTION_STATUS", signed=True
        )


#: Checks calls that are made without `PIObjects`.
check: Final = PIObjects.check


def absent(routine: str) -> NoReturn:
    """End the case as unsupported, because the plugin does not support a function."""
    unsupported(f"the plugin does not support {routine} (PI_ERROR_UNSUPPORTED_FEATURE)")
