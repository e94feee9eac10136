"""OpenCL objects for a case: made with one checked call each, and released when the case is over.

>>> numbers = objects.buffer([1, 2, 3])
>>> objects.launch(queue, objects.kernel("increment", numbers), 3)
>>> objects.read(queue, numbers)
[2, 3, 4]

All buffers hold 32-bit integers, so that a case expects a list of numbers. Calls may leave out
arguments at the end: see `complete`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

from fairlead.conformance.arrays import complete, handles, ints, sizes
from fairlead.conformance.checks import expect, failed, unsupported
from fairlead.icd.abi import OPENCL
from fairlead.icd.tables import parse_version
from fairlead.loader.base.query import decode_text, query
from fairlead.loader.base.table import DispatchTable

#: The kernels of all cases. They are one program, because building takes the time.
SOURCE: Final = """
kernel void increment(global int *a) { a[get_global_id(0)] += 1; }
kernel void add(global int *a, int value) { a[get_global_id(0)] += value; }
kernel void twice_plus(global int *a, int value) {
    size_t i = get_global_id(0);
    a[i] = 2 * a[i] + value;
}
kernel void copy(global const int *from, global int *to) {
    size_t i = get_global_id(0);
    to[i] = from[i];
}
kernel void ids(global int *a) {
    size_t i = get_global_id(0) - get_global_offset(0);
    size_t j = get_global_id(1) - get_global_offset(1);
    size_t k = get_global_id(2) - get_global_offset(2);
    size_t at = (k * get_global_size(1) + j) * get_global_size(0) + i;
    a[at] = get_global_id(0) + 100 * get_global_id(1) + 10000 * get_global_id(2);
}
kernel void local_sizes(global int *a) { a[get_global_id(0)] = get_local_size(0); }
kernel void local_sum(global int *a, local int *room, int count) {
    size_t i = get_local_id(0);
    for (int k = i; k < count; k += get_local_size(0)) room[k] = k;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int k = 0; k < count; k++) sum += room[k];
    a[get_global_id(0)] = sum;
}
kernel void is_null(global int *a, global int *maybe) { a[get_global_id(0)] = maybe ? 0 : 1; }
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void groups_of_four(global int *a) {
    a[get_global_id(0)] = get_local_size(0);
}
"""

_RELEASE: Final = {
    "cl_context": "clReleaseContext",
    "cl_command_queue": "clReleaseCommandQueue",
    "cl_mem": "clReleaseMemObject",
    "cl_sampler": "clReleaseSampler",
    "cl_program": "clReleaseProgram",
    "cl_kernel": "clReleaseKernel",
    "cl_event": "clReleaseEvent",
    "cl_device_id": "clReleaseDevice",
}

IN_ORDER: Final = 0
OUT_OF_ORDER: Final = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
PROFILING: Final = OPENCL["CL_QUEUE_PROFILING_ENABLE"]
READ_WRITE: Final = OPENCL["CL_MEM_READ_WRITE"]


class CLObjects:
    """Makes objects in one context on one device. `close` releases them in reverse order."""

    def __init__(
        self, table: DispatchTable, device: int, context: int = 0, program: int = 0
    ) -> None:
        self.table = table
        self.device = device
        self.context = context
        self.program = program
        self._releases: list[Callable[[], object]] = []

    def close(self) -> None:
        """Release everything, the last object first."""
        while self._releases:
            self._releases.pop()()

    def new_maker(self) -> CLObjects:
        """Return a maker for the same context and program."""
        return CLObjects(self.table, self.device, self.context, self.program)

    def defer(self, release: Callable[[], object]) -> None:
        """Register a callback for `close`."""
        self._releases.append(release)

    def owned(self, handle: int, kind: str) -> int:
        """Register a handle of a type, such as "cl_event", to be released by `close`."""
        release = getattr(self.table, _RELEASE[kind])
        self.defer(lambda: release(handle))
        return handle

    @staticmethod
    def check(code: int, routine: str, detail: str = "") -> None:
        """Check that a call succeeded which only prepares a case."""
        expect(OPENCL, code, "CL_SUCCESS", what=f"{routine}{detail}")

    def call(self, routine: str, *arguments: Any) -> None:
        """Call a function that returns its code. The call must succeed."""
        given = complete(OPENCL.functions[routine], arguments)
        self.check(getattr(self.table, routine)(*given), routine)

    def info(self, routine: str, *handles_and_name: Any) -> bytes:
        """Return the answer to a query: `info("clGetMemObjectInfo", buffer, "CL_MEM_SIZE")`."""
        *arguments, name = handles_and_name
        return query(
            getattr(self.table, routine),
            routine,
            self.check,
            *arguments,
            OPENCL[name],
            detail=f" ({name})",
        )

    def number(self, routine: str, *handles_and_name: Any, signed: bool = False) -> int:
        """Return the answer to a query as a number."""
        return int.from_bytes(self.info(routine, *handles_and_name), sys.byteorder, signed=signed)

    @property
    def cl(self) -> DispatchTable:
        """The OpenCL functions."""
        return self.table

    def make(self, routine: str, *arguments: Any) -> int:
        """Call a function that creates an object and has `errcode_ret`. It must succeed."""
        code = ctypes.c_int32(1)
        given = complete(OPENCL.functions[routine], arguments, ctypes.byref(code))
        handle = getattr(self.cl, routine)(*given)
        check(code.value, routine)
        if not handle:
            failed(f"{routine} gives an object", "NULL, and CL_SUCCESS")
        return self.owned(handle, OPENCL.functions[routine].returns)

    @cached_property
    def version(self) -> tuple[int, int]:
        """The OpenCL version of the device."""
        return parse_version(
            decode_text(self.info("clGetDeviceInfo", self.device, "CL_DEVICE_VERSION"))
        )

    def new_context(self) -> int:
        """Make another context on the device."""
        return self.make("clCreateContext", None, 1, handles(self.device), None, None)

    def queue(self, properties: int = IN_ORDER, context: int = 0) -> int:
        """Make a queue on the device. `close` waits for it before its release."""
        queue = self.make("clCreateCommandQueue", context or self.context, self.device, properties)
        self.defer(lambda: self.cl.clFinish(queue))
        return queue

    def buffer(self, values: Sequence[int], flags: int = READ_WRITE, context: int = 0) -> int:
        """Make a buffer that begins with these numbers."""
        data = ints(values)
        flags |= OPENCL["CL_MEM_COPY_HOST_PTR"]
        return self.make(
            "clCreateBuffer", context or self.context, flags, ctypes.sizeof(data), data
        )

    def image(self, width: int, height: int, value: int = 0, context: int = 0) -> int:
        """Make a 2D image of four 32-bit unsigned integers a pixel, all of one value."""
        pixels = (ctypes.c_uint32 * (4 * width * height))(*[value] * (4 * width * height))
        form = OPENCL.get_struct("cl_image_format")(OPENCL["CL_RGBA"], OPENCL["CL_UNSIGNED_INT32"])
        shape = OPENCL.get_struct("cl_image_desc")(OPENCL["CL_MEM_OBJECT_IMAGE2D"], width, height)
        flags = READ_WRITE | OPENCL["CL_MEM_COPY_HOST_PTR"]
        return self.make(
            "clCreateImage",
            context or self.context,
            flags,
            ctypes.byref(form),
            ctypes.byref(shape),
            pixels,
        )

    def kernel(self, name: str, *arguments: int | Any, program: int = 0) -> int:
        """Make a kernel of the program and set its arguments, as `set_argument` does."""
        kernel = self.make("clCreateKernel", program or self.program, name.encode())
        for index, value in enumerate(arguments):
            self.set_argument(kernel, index, value)
        return kernel

    def set_argument(self, kernel: int, index: int, value: int | Any) -> None:
        """Set an argument of a kernel.

        An int is a memory object; a ctypes value is passed by its bytes.
        """
        data = ctypes.c_void_p(value) if isinstance(value, int) else value
        self.call("clSetKernelArg", kernel, index, ctypes.sizeof(data), ctypes.byref(data))

    def svm(self, size: int) -> int:
        """Allocate SVM of at least the coarse-grained kind, or end the case as unsupported."""
        if self.version < (2, 0) or not self.number(
            "clGetDeviceInfo", self.device, "CL_DEVICE_SVM_CAPABILITIES"
        ):
            unsupported("the device has no shared virtual memory (CL_DEVICE_SVM_CAPABILITIES)")
        pointer = self.cl.clSVMAlloc(self.context, READ_WRITE, size, 0)
        if not pointer:
            failed("clSVMAlloc gives memory", "NULL")
        self.defer(lambda: self.cl.clSVMFree(self.context, pointer))
        return pointer

    def user_event(self) -> int:
        """Make a user event. `close` completes it, if the case did not."""
        event = self.make("clCreateUserEvent", self.context)
        self.defer(lambda: self.cl.clSetUserEventStatus(event, OPENCL["CL_COMPLETE"]))
        return event

    def build(self, source: str, context: int = 0) -> int:
        """Build a program from source for the device."""
        strings = (ctypes.c_char_p * 1)(source.encode())
        program = self.make("clCreateProgramWithSource", context or self.context, 1, strings, None)
        self.call("clBuildProgram", program, 1, handles(self.device), b"", None, None)
        return program

    def launch(
        self, queue: int, kernel: int, size: int, waits: Sequence[int] = (), event: Any = None
    ) -> None:
        """Enqueue a kernel in one dimension."""
        wait_list = handles(*waits) if waits else None
        self.call(
            "clEnqueueNDRangeKernel",
            queue,
            kernel,
            1,
            None,
            sizes(size),
            None,
            len(waits),
            wait_list,
            event,
        )

    def read(self, queue: int, buffer: int, count: int = 0) -> list[int]:
        """Return the numbers in a buffer, after everything in the queue.

        The queue must be in order, or finished.
        """
        count = count or self.number("clGetMemObjectInfo", buffer, "CL_MEM_SIZE") // 4
        into = (ctypes.c_int32 * count)()
        self.call("clEnqueueReadBuffer", queue, buffer, True, 0, ctypes.sizeof(into), into)
        return list(into)

    def finish(self, queue: int) -> None:
        """Wait for everything in a queue."""
        self.call("clFinish", queue)

    def status(self, event: int) -> int:
        """Return CL_EVENT_COMMAND_EXECUTION_STATUS."""
        return self.number(
            "clGetEventInfo", event, "CL_EVENT_COMMAND_EXECUTION_STATUS", signed=True
        )


#: Checks calls that are made without `CLObjects`.
check: Final = CLObjects.check
