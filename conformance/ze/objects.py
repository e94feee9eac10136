"""Makes the objects of a case, and destroys them at its end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref
from functools import cached_property
from typing import Any, Final

from fairlead.conformance.checks import equal, unsupported
from fairlead.conformance.ze.calls import FOREVER, ZECalls, handles, new
from fairlead.loader.ze.abi import ZE

#: Nanoseconds that the end of a case waits for each queue, which may wait for what never comes.
_LONG: Final = 10**10
#: Pixels along x, y and z of the images of each type.
IMAGE_SIZES: Final = {
    "1D": (6, 1, 1),
    "1DARRAY": (6, 4, 1),
    "2D": (6, 4, 1),
    "2DARRAY": (6, 4, 3),
    "3D": (6, 4, 3),
}


class Ints:
    """Memory of a device, as 32-bit numbers that the host reads and writes.

    Args:
        count: how many numbers it has.
        copy: copies so many bytes from an address to another one, for memory that the host cannot
            use itself.
    """

    def __init__(
        self, address: int, count: int, copy: Callable[[int, int, int], None] | None
    ) -> None:
        self.address, self._copy = address, copy
        kind = ctypes.c_int32 * count
        self._numbers = kind() if copy else kind.from_address(address)
        self._here = ctypes.addressof(self._numbers)

    def fill(self, *values: int) -> None:
        """Set all numbers: to one value, or to these."""
        self._numbers[:] = values if len(values) > 1 else values * len(self._numbers)
        if self._copy:
            self._copy(self.address, self._here, ctypes.sizeof(self._numbers))

    @property
    def all(self) -> list[int]:
        """Its numbers."""
        if self._copy:
            self._copy(self._here, self.address, ctypes.sizeof(self._numbers))
        return list(self._numbers)

    @property
    def pointer(self) -> ctypes.c_void_p:
        """Its address as an argument."""
        return ctypes.c_void_p(self.address)


class ZEObjects:
    """Makes objects in one context on one device. `close` destroys them in reverse order.

    Args:
        module: makes the module with the kernels of fixtures.py.
    """

    def __init__(
        self, ze: ZECalls, context: int, device: int, module: Callable[[str], int]
    ) -> None:
        self.ze, self.context, self.device = ze, context, device
        self._module = module
        self._ends: list[Callable[[], object]] = []
        self._finishes: dict[int, str] = {}  # queues and immediate lists: the function that waits
        self._events: list[int] = []

    def close(self) -> None:
        """Destroy everything, the last object first, when nothing runs any more.

        A driver may run what a case expects it to refuse. That would use memory that is freed. A
        case that has failed may leave commands that wait for an event.
        """
        for event in self._events:
            self.ze.number("zeEventHostSignal", event)
        for handle, routine in self._finishes.items():
            self.ze.number(routine, handle, _LONG)
        while self._ends:
            self._ends.pop()()

    def defer(self, end: Callable[[], object]) -> None:
        """Register a callback for `close`."""
        self._ends.append(end)

    def _create(self, destroy: str, name: str, *arguments: Any) -> int:
        handle = self.ze.create(name, *arguments)
        self.defer(lambda: self.ze.number(destroy, handle))
        return handle

    @cached_property
    def _shares(self) -> bool:
        """Whether the device has memory that the host uses, too."""
        row = new("ze_device_memory_access_properties_t")
        self.ze.ok("zeDeviceGetMemoryAccessProperties", self.device, row)
        return bool(row.sharedSingleDeviceAllocCapabilities & ZE["ZE_MEMORY_ACCESS_CAP_FLAG_RW"])

    @cached_property
    def _copies(self) -> int:
        """A list that copies before its calls return."""
        return self.immediate(mode=ZE["ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS"])

    def _copy(self, target: int, source: int, size: int) -> None:
        given = target, source, size, None, 0, None
        self.ze.ok("zeCommandListAppendMemoryCopy", self._copies, *given)

    def ints(self, *values: int, count: int = 0) -> Ints:
        """Return memory with these values, or with so many zeros.

        It is shared memory, or the device's if the device shares none.
        """
        count, kind = count or len(values), "Shared" if self._shares else "Device"
        device, host = new("ze_device_mem_alloc_desc_t"), new("ze_host_mem_alloc_desc_t")
        descs = (byref(device), byref(host)) if self._shares else (byref(device),)
        given = self.context, *descs, 4 * count, 4, self.device
        address = self.ze.create(f"zeMemAlloc{kind}", *given)
        self.defer(lambda: self.ze.number("zeMemFree", self.context, address))
        made = Ints(address, count, None if self._shares else self._copy)
        made.fill(*(values or (0,)))
        return made

    def queue(self, **fields: Any) -> int:
        """Return a command queue."""
        desc, routine = new("ze_command_queue_desc_t", **fields), "zeCommandQueueCreate"
        made = self._create(
            "zeCommandQueueDestroy", routine, self.context, self.device, byref(desc)
        )
        self._finishes[made] = "zeCommandQueueSynchronize"
        return made

    def list(self, *, mutable: bool = False, in_order: bool = False, flags: int = 0) -> int:
        """Return a regular command list."""
        chained = new("ze_mutable_command_list_exp_desc_t") if mutable else None
        flags |= ZE["ZE_COMMAND_LIST_FLAG_IN_ORDER"] if in_order else 0
        desc = new("ze_command_list_desc_t", pNext=chained, flags=flags)
        given = self.context, self.device, byref(desc)
        return self._create("zeCommandListDestroy", "zeCommandListCreate", *given)

    def immediate(self, **fields: Any) -> int:
        """Return an immediate command list."""
        desc = new("ze_command_queue_desc_t", **fields)
        given = self.context, self.device, byref(desc)
        made = self._create("zeCommandListDestroy", "zeCommandListCreateImmediate", *given)
        self._finishes[made] = "zeCommandListHostSynchronize"
        return made

    def events(self, count: int = 1, flags: int = 1) -> list[int]:
        """Return events of a new pool, host-visible by default."""
        desc = new("ze_event_pool_desc_t", flags=flags, count=count)
        given = self.context, byref(desc), 0, None
        pool = self._create("zeEventPoolDestroy", "zeEventPoolCreate", *given)
        scope = ZE["ZE_EVENT_SCOPE_FLAG_HOST"]
        made = [
            self._create(
                "zeEventDestroy",
                "zeEventCreate",
                pool,
                byref(new("ze_event_desc_t", index=index, signal=scope, wait=scope)),
            )
            for index in range(count)
        ]
        self._events += made
        return made

    def fence(self, queue: int) -> int:
        """Return a fence of a queue."""
        desc = new("ze_fence_desc_t")
        return self._create("zeFenceDestroy", "zeFenceCreate", queue, byref(desc))

    def kernel(self, name: str, *arguments: Any, size: int = 1) -> int:
        """Return a kernel with arguments: a ctypes value, or the bytes of local memory."""
        text = ctypes.create_string_buffer(name.encode())
        desc = new("ze_kernel_desc_t", pKernelName=text)
        kernel = self._create("zeKernelDestroy", "zeKernelCreate", self._module(name), byref(desc))
        self.ze.ok("zeKernelSetGroupSize", kernel, size, 1, 1)
        for index, argument in enumerate(arguments):
            self.set(kernel, index, argument)
        return kernel

    def image(self, desc: Any) -> int:
        """Return an image of a ze_image_desc_t."""
        given = self.context, self.device, byref(desc)
        return self._create("zeImageDestroy", "zeImageCreate", *given)

    def sampler(self) -> int:
        """Return a sampler of whole coordinates, which clamps to the edge."""
        mode = ZE["ZE_SAMPLER_ADDRESS_MODE_CLAMP"]
        desc = new("ze_sampler_desc_t", addressMode=mode)
        given = self.context, self.device, byref(desc)
        return self._create("zeSamplerDestroy", "zeSamplerCreate", *given)

    def set(self, kernel: int, index: int, argument: Any) -> None:
        """Set an argument of a kernel."""
        if isinstance(argument, int):
            self.ze.ok("zeKernelSetArgumentValue", kernel, index, argument)
        else:
            size = ctypes.sizeof(argument)
            self.ze.ok("zeKernelSetArgumentValue", kernel, index, size, byref(argument))

    def launch(self, made: int, kernel: int, groups: int = 1, signal: int = 0, *waits: int) -> None:
        """Append a launch of so many groups."""
        count = new("ze_group_count_t", groupCountX=groups, groupCountY=1, groupCountZ=1)
        waiting = len(waits), handles(*waits) if waits else None
        self.ze.ok("zeCommandListAppendLaunchKernel", made, kernel, count, signal, *waiting)

    def barrier(self, made: int, signal: int = 0, *waits: int) -> None:
        """Append a barrier."""
        waiting = len(waits), handles(*waits) if waits else None
        self.ze.ok("zeCommandListAppendBarrier", made, signal, *waiting)

    def close_list(self, made: int) -> None:
        """Close a list."""
        self.ze.ok("zeCommandListClose", made)

    def run(self, queue: int, *lists: int, wait: bool = True) -> None:
        """Execute lists, and wait for their end."""
        routine = "zeCommandQueueExecuteCommandLists"
        self.ze.ok(routine, queue, len(lists), handles(*lists), None)
        if wait:
            self.finish(queue)

    def finish(self, queue: int, *events: int) -> None:
        """Wait for a queue or an immediate list, whose commands have signaled these events then.

        A case that waits for an event hangs if a driver forgets to signal it.
        """
        self.ze.ok(self._finishes[queue], queue, FOREVER)
        for event in events:
            self.ze.ok("zeEventQueryStatus", event)

    # mutable lists

    def next_id(self, made: int, flags: int = 0, *kernels: int) -> int:
        """Return the identifier of the next command of a mutable list."""
        number, desc = ctypes.c_uint64(), new("ze_mutable_command_id_exp_desc_t", flags=flags)
        given = (len(kernels), handles(*kernels)) if kernels else ()
        middle = "WithKernels" if kernels else ""
        routine = f"zeCommandListGetNextCommandId{middle}Exp"
        self.ze.ok(routine, made, byref(desc), *given, byref(number))
        return number.value

    def closed(
        self,
        kernel: int,
        groups: int = 1,
        flags: int = 0,
        *kernels: int,
        signal: int = 0,
        waits: Sequence[int] = (),
    ) -> tuple[int, int]:
        """Return a closed mutable list with one launch, and the launch's identifier.

        Args:
            flags: see `next_id`, also for `kernels`.
        """
        made = self.list(mutable=True)
        number = self.next_id(made, flags, *kernels)
        self.launch(made, kernel, groups, signal, *waits)
        self.close_list(made)
        return made, number

    def change(self, made: int, *changes: Any) -> None:
        """Change commands of a list, and close it again."""
        self.ze.ok("zeCommandListUpdateMutableCommandsExp", made, chained(*changes))
        self.close_list(made)

    def check_result(self, queue: int, made: int, out: Ints, *expected: int) -> None:
        """Execute a list, and check what it has written."""
        self.run(queue, made)
        equal(out.all, list(expected), "what the list has written")


def chained(*changes: Any) -> Any:
    """Return the ze_mutable_commands_exp_desc_t of a chain of changes."""
    after = None
    for change in reversed(changes):
        change.pNext = ctypes.addressof(after) if after is not None else None
        change.after = after
        after = change
    return new("ze_mutable_commands_exp_desc_t", pNext=after)


def argument(command: int, index: int, value: Any) -> Any:
    """Return a change of an argument: a ctypes value, or the bytes of local memory."""
    given: dict[str, Any] = (
        {"argSize": value}
        if isinstance(value, int)
        else {"argSize": ctypes.sizeof(value), "pArgValue": value}
    )
    return new("ze_mutable_kernel_argument_exp_desc_t", commandId=command, argIndex=index, **given)


def group_count(command: int, x: int, y: int = 1, z: int = 1) -> Any:
    """Return a change of the number of groups."""
    count = new("ze_group_count_t", groupCountX=x, groupCountY=y, groupCountZ=z)
    return new("ze_mutable_group_count_exp_desc_t", commandId=command, pGroupCount=count)


def group_size(command: int, x: int) -> Any:
    """Return a change of the size of groups."""
    sizes = {"groupSizeX": x, "groupSizeY": 1, "groupSizeZ": 1}
    return new("ze_mutable_group_size_exp_desc_t", commandId=command, **sizes)


def global_offset(command: int, x: int) -> Any:
    """Return a change of the first work-item."""
    return new("ze_mutable_global_offset_exp_desc_t", commandId=command, offsetX=x)


def needs(found: int, *flags: str) -> None:
    """End a case as unsupported if the device cannot change something of a command.

    Args:
        found: ze_mutable_command_exp_flags_t of the device.
        flags: the names of flags, such as "GROUP_SIZE".
    """
    for flag in flags:
        if not found & ZE[f"ZE_MUTABLE_COMMAND_EXP_FLAG_{flag}"]:
            unsupported(f"the device cannot change {flag} (mutableCommandFlags)")
