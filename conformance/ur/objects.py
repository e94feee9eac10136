"""Makes the objects that cases need, on one device, and releases them.

>>> make = URObjects(ur, adapter, platform, device)
>>> queue = make.queue()
>>> make.close()
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from fairlead.conformance.arrays import complete, handles, ints, sizes
from fairlead.conformance.checks import failed, unsupported
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR

from . import kernels, spirv
from .calls import URCalls
from .values import make_arguments

#: How many int32 numbers the buffers and allocations of cases have, and their size in bytes.
COUNT: Final = 64
SIZE: Final = 4 * COUNT

_USM: Final = {
    "Host": "UR_DEVICE_INFO_USM_HOST_SUPPORT",
    "Device": "UR_DEVICE_INFO_USM_DEVICE_SUPPORT",
    "Shared": "UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT",
}
_COMPLETE: Final = 0


@dataclass(frozen=True)
class UserEvent:
    """An event that completes when the case says so: an OpenCL user event behind a UR handle."""

    handle: int
    set_status: Callable[[int], int]

    def complete(self) -> None:
        """Complete the event, so that what waits for it continues."""
        self.set_status(_COMPLETE)

    def fail(self) -> None:
        """Set the event to failed, so that what waits for it fails."""
        self.set_status(-1)


class URObjects:
    """Makes objects, by default in `the_context`. `close` releases them, the last one first.

    Args:
        shared: has the context and the program. By default they are made at their first use.
    """

    def __init__(
        self, ur: URCalls, adapter: int, platform: int, device: int, shared: URObjects | None = None
    ) -> None:
        self.ur, self.adapter, self.platform, self.device = ur, adapter, platform, device
        self._shared = shared
        self._made: list[tuple[str, tuple[int, ...]]] = []
        self._kept: list[Any] = []

    def close(self) -> None:
        """Release what was made. Afterwards raise the first exception of a release."""
        made, self._made = self._made, []
        problem: Exception | None = None
        for routine, arguments in reversed(made):
            try:
                self.ur.ok(routine, *arguments)
            except Exception as error:
                problem = problem or error
        if problem:
            raise problem

    def release(self, handle: int) -> None:
        """Release an object now."""
        entry = next(entry for entry in reversed(self._made) if entry[1][-1] == handle)
        self._made.remove(entry)
        self.ur.ok(entry[0], *entry[1])

    def forget(self, handle: int) -> None:
        """Do not release an object: the case has done it."""
        self._made.remove(next(entry for entry in reversed(self._made) if entry[1][-1] == handle))

    def own(self, routine: str, *arguments: int) -> int:
        """Register a release by `routine`. The last argument is the handle."""
        self._made.append((routine, arguments))
        return arguments[-1]

    def keep(self, thing: Any) -> Any:
        """Keep memory alive as long as the objects."""
        self._kept.append(thing)
        return thing

    @cached_property
    def the_context(self) -> int:
        """The context of all cases that do not need one of their own."""
        return self._shared.the_context if self._shared else self.context()

    @cached_property
    def the_program(self) -> int:
        """The built program of `kernels.py`."""
        return self._shared.the_program if self._shared else self.program()

    # Contexts, queues, events

    def context(self, *devices: int) -> int:
        """Make a context of some devices; by default of the device under test."""
        chosen = devices or (self.device,)
        return self.own(
            "urContextRelease", self.ur.new("urContextCreate", len(chosen), handles(*chosen))
        )

    def queue(self, flags: str = "", *, device: int = 0, context: int = 0) -> int:
        """Make a queue.

        `flags` are names without their prefix: "OUT_OF_ORDER_EXEC_MODE_ENABLE PROFILING_ENABLE".
        """
        bits = sum(UR[f"UR_QUEUE_FLAG_{name}"] for name in flags.split())
        how = ctypes.byref(self.ur.struct("ur_queue_properties_t", flags=bits)) if flags else None
        return self.own(
            "urQueueRelease",
            self.ur.new("urQueueCreate", context or self.the_context, device or self.device, how),
        )

    def event(self, queue: int) -> int:
        """Enqueue a barrier. Returns its event, which may be complete already."""
        return self.barrier(queue)

    def finished_event(self, queue: int) -> int:
        """Enqueue a barrier and wait for it. Returns its event."""
        event = self.event(queue)
        self.ur.ok("urQueueFinish", queue)
        return event

    def barrier(self, queue: int, *after: int) -> int:
        """Enqueue a barrier that waits for events."""
        return self.enqueue("urEnqueueEventsWaitWithBarrier", queue, after=after)

    def enqueue(self, routine: str, *arguments: Any, after: Sequence[int] = ()) -> int:
        """Enqueue a command. Returns its event.

        Args:
            routine: a function that ends with a wait list and an event.
            arguments: those before them; at the end they may be left out.
            after: the events of the wait list.
        """
        waits = len(after), handles(*after) if after else None
        given = complete(UR.functions[routine], arguments, *waits, None)[:-1]
        return self.own("urEventRelease", self.ur.new(routine, *given))

    def wait(self, *events: int) -> None:
        """Wait for events."""
        self.ur.ok("urEventWait", len(events), handles(*events))

    def events(self, *made: int) -> None:
        """Register events that functions returned, to be released in the end."""
        for event in made:
            self.own("urEventRelease", event)

    def user_event(self) -> UserEvent:
        """Make an event that the case completes. Only adapters on OpenCL can have one."""
        cl, native = self.cl(), self.native("urContextGetNativeHandle", self.the_context)
        code = ctypes.c_int32()
        event = cl.clCreateUserEvent(native, ctypes.byref(code))
        if code.value:
            failed("an OpenCL user event", f"clCreateUserEvent answers {code.value}")
        how = self.ur.struct("ur_event_native_properties_t", isNativeHandleOwned=True)
        handle = self.ur.new("urEventCreateWithNativeHandle", event, self.the_context, how)
        self.own("urEventRelease", handle)
        return UserEvent(handle, lambda status: cl.clSetUserEventStatus(event, status))

    # Memory

    def buffer(
        self, size: int = SIZE, flags: str = "READ_WRITE", host: Any = None, *, context: int = 0
    ) -> int:
        """Make a buffer."""
        bits = sum(UR[f"UR_MEM_FLAG_{name}"] for name in flags.split())
        how = None
        if host is not None:
            how = ctypes.byref(
                self.ur.struct("ur_buffer_properties_t", pHost=ctypes.addressof(self.keep(host)))
            )
        return self.own(
            "urMemRelease",
            self.ur.new("urMemBufferCreate", context or self.the_context, bits, size, how),
        )

    def usm(self, kind: str = "Device", size: int = SIZE, pool: int | None = None) -> int:
        """Allocate USM of a kind: "Host", "Device", "Shared"."""
        self.ur.require(_USM[kind])
        where = () if kind == "Host" else (self.device,)
        pointer = self.ur.new(f"urUSM{kind}Alloc", self.the_context, *where, None, pool, size)
        return self.own("urUSMFree", self.the_context, pointer)

    def pool(self) -> int:
        """Make a pool of USM allocations."""
        self.ur.require("UR_DEVICE_INFO_USM_POOL_SUPPORT")
        how = self.ur.struct("ur_usm_pool_desc_t")
        return self.own("urUSMPoolRelease", self.ur.new("urUSMPoolCreate", self.the_context, how))

    def image(self, width: int = 8, height: int = 8, *, context: int = 0) -> int:
        """Make a 2D image of a float channel."""
        self.ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
        form, shape = self.image_format(), self.image_shape(width, height)
        given = UR["UR_MEM_FLAG_READ_WRITE"], ctypes.byref(form), ctypes.byref(shape), None
        return self.own(
            "urMemRelease", self.ur.new("urMemImageCreate", context or self.the_context, *given)
        )

    def image_format(self) -> Any:
        """Return the format RGBA of floats."""
        order, kind = UR["UR_IMAGE_CHANNEL_ORDER_RGBA"], UR["UR_IMAGE_CHANNEL_TYPE_FLOAT"]
        return self.ur.struct("ur_image_format_t", channelOrder=order, channelType=kind)

    def image_shape(self, width: int = 8, height: int = 8) -> Any:
        """Return the description of a 2D image."""
        return self.ur.struct(
            "ur_image_desc_t",
            type=UR["UR_MEM_TYPE_IMAGE2D"],
            width=width,
            height=height,
            depth=1,
            arraySize=1,
        )

    def sampler(self) -> int:
        """Make a sampler: nearest neighbour, clamped to the edge."""
        self.ur.require("UR_DEVICE_INFO_IMAGE_SUPPORT")
        how = self.ur.struct(
            "ur_sampler_desc_t", addressingMode=UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE"]
        )
        return self.own("urSamplerRelease", self.ur.new("urSamplerCreate", self.the_context, how))

    def physical(self, size: int = 0) -> int:
        """Make physical memory, by default of the smallest size that the device has."""
        self.ur.require("UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT")
        made = self.ur.new(
            "urPhysicalMemCreate", self.the_context, self.device, size or self.granularity()
        )
        return self.own("urPhysicalMemRelease", made)

    def granularity(self) -> int:
        """Return the unit of sizes of virtual memory, in bytes."""
        self.ur.require("UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT")
        query = "UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM"
        return self.ur.info(
            "urVirtualMemGranularityGetInfo", self.the_context, query, self.device, 1
        )

    # Programs and kernels

    def cl(self) -> DispatchTable:
        """Return the OpenCL functions of the driver behind a context."""
        self.require_opencl()
        return DispatchTable(
            OPENCL,
            read_word(self.native("urContextGetNativeHandle", self.the_context)) or 0,
            label="driver",
        )

    def require_opencl(self) -> None:
        """End the case as unsupported unless the adapter is on OpenCL."""
        backend = self.ur.info("urPlatformGetInfo", self.platform, "UR_PLATFORM_INFO_BACKEND")
        if backend != UR["UR_BACKEND_OPENCL"]:
            unsupported("the suite has this only for adapters over OpenCL")

    def native(self, routine: str, handle: int) -> int:
        """Return the native handle of an object."""
        return self.ur.new(routine, handle)

    def source_program(self, source: bytes, *, build: bool = True, context: int = 0) -> int:
        """Make a program from OpenCL C.

        The driver creates it, and the adapter gets its native handle. Or the adapter takes the
        text itself, where the device has the extension fairlead_opencl_c.
        """
        context = context or self.the_context
        if self.takes_text:
            return self._make_text_program(context, source, build)
        cl, code = self.cl(), ctypes.c_int32()
        native = self.native("urContextGetNativeHandle", context)
        device = handles(self.native("urDeviceGetNativeHandle", self.device))
        program = cl.clCreateProgramWithSource(
            native, 1, (ctypes.c_char_p * 1)(source), None, ctypes.byref(code)
        )
        answer = code.value or (
            cl.clBuildProgram(program, 1, device, None, None, None) if build else 0
        )
        if answer:
            failed("a program from OpenCL C", f"the driver answers {answer} to clBuildProgram")
        how = self.ur.struct("ur_program_native_properties_t", isNativeHandleOwned=True)
        return self.own(
            "urProgramRelease",
            self.ur.new("urProgramCreateWithNativeHandle", program, context, how),
        )

    @cached_property
    def takes_text(self) -> bool:
        """Whether urProgramCreateWithIL takes OpenCL C on an adapter that is not on OpenCL."""
        names = self.ur.plugin.info("urDeviceGetInfo", self.device, "UR_DEVICE_INFO_EXTENSIONS")
        return "fairlead_opencl_c" in names.split()

    def _make_text_program(self, context: int, source: bytes, build: bool) -> int:
        """Make a program from OpenCL C that the adapter takes as it is."""
        given = context, source, len(source), None
        program = self.own("urProgramRelease", self.ur.new("urProgramCreateWithIL", *given))
        if build:
            self.ur.ok("urProgramBuild", context, program)
        return program

    def il_program(self, words: bytes = b"") -> int:
        """Make a program from SPIR-V with the kernel `store`. It is not built."""
        versions = self.ur.plugin.info("urDeviceGetInfo", self.device, "UR_DEVICE_INFO_IL_VERSION")
        if "SPIR-V" not in versions:
            unsupported("the device takes no SPIR-V")
        module = words or spirv.make_store()
        return self.own(
            "urProgramRelease",
            self.ur.new("urProgramCreateWithIL", self.the_context, module, len(module)),
        )

    def program(self) -> int:
        """Make and build a program with the kernels of `kernels.py`.

        On adapters that neither are on OpenCL nor take its text it has only `store`.
        """
        if self.takes_text or (
            self.ur.info("urPlatformGetInfo", self.platform, "UR_PLATFORM_INFO_BACKEND")
            == UR["UR_BACKEND_OPENCL"]
        ):
            return self.source_program(kernels.SOURCE)
        program = self.il_program()
        self.ur.ok("urProgramBuild", self.the_context, program)
        return program

    def kernel(self, name: str = "store", *, program: int = 0) -> int:
        """Make a kernel of a program."""
        return self.own(
            "urKernelRelease",
            self.ur.new("urKernelCreate", program or self.the_program, name.encode()),
        )

    def arguments(self, *values: Any) -> tuple[int, Any]:
        """Return number and array of a launch's arguments: see `make_arguments`."""
        return len(values), self.keep(make_arguments(*values))

    def launch(
        self,
        queue: int,
        kernel: int,
        *values: Any,
        size: Sequence[int] = (COUNT,),
        local: Sequence[int] = (),
        offset: Sequence[int] = (),
        after: Sequence[int] = (),
    ) -> int:
        """Launch a kernel. Returns its event."""
        shape = (
            len(size),
            sizes(*(offset or [0] * len(size))),
            sizes(*size),
            sizes(*local) if local else None,
        )
        given = queue, kernel, *shape, *self.arguments(*values)
        return self.enqueue("urEnqueueKernelLaunchWithArgsExp", *given, after=after)

    def command_buffer(self, *, context: int = 0, **fields: bool) -> int:
        """Make a command-buffer. `flags` are `isUpdatable`, `isInOrder` and `enableProfiling`."""
        how = ctypes.byref(self.ur.struct("ur_exp_command_buffer_desc_t", **fields))
        made = self.ur.new(
            "urCommandBufferCreateExp", context or self.the_context, self.device, how
        )
        return self.own("urCommandBufferReleaseExp", made)

    # Moving numbers

    def write(self, queue: int, buffer: int, numbers: Iterable[int]) -> None:
        """Write int32 numbers to a buffer, and wait for everything in the queue."""
        data = ints(numbers)
        self.ur.ok("urEnqueueMemBufferWrite", queue, buffer, True, 0, ctypes.sizeof(data), data)
        self.ur.ok("urQueueFinish", queue)

    def read(self, queue: int, buffer: int, count: int = COUNT) -> list[int]:
        """Return the first int32 numbers of a buffer, after everything in an in-order queue."""
        data = (ctypes.c_int32 * count)()
        self.ur.ok("urEnqueueMemBufferRead", queue, buffer, True, 0, ctypes.sizeof(data), data)
        return list(data)

    def put(self, queue: int, pointer: int, numbers: Iterable[int]) -> None:
        """Write int32 numbers to USM, and wait for everything in the queue."""
        data = ints(numbers)
        self.ur.ok("urEnqueueUSMMemcpy", queue, True, pointer, data, ctypes.sizeof(data))
        self.ur.ok("urQueueFinish", queue)

    def get(self, queue: int, pointer: int, count: int = COUNT) -> list[int]:
        """Return the first int32 numbers of USM."""
        data = (ctypes.c_int32 * count)()
        self.ur.ok("urEnqueueUSMMemcpy", queue, True, data, pointer, ctypes.sizeof(data))
        return list(data)
