"""Command-buffers for cases: append, finalize, enqueue, update.

>>> recording = URRecording(make, isUpdatable=True)
>>> step = recording.launch(kernel, Buffer(buffer), ints([1]), command=True)
>>> recording.finalize()
>>> recording.enqueue(queue)
>>> recording.update(Update(step.command, values={1: ints([2])}))
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.conformance.arrays import handles, ints, sizes
from fairlead.loader.ur.abi import UR

from .calls import URCalls
from .objects import COUNT, SIZE, URObjects
from .values import BufferValue, LocalValue, PointerValue

LAUNCH: Final = "urCommandBufferAppendKernelLaunchWithArgsExp"
UPDATE: Final = "urCommandBufferUpdateKernelLaunchExp"
CAPABILITIES: Final = "UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP"
#: The capability bits, by the ends of their names.
BIT: Final = "UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_{}"
BITS: Final = (
    "KERNEL_ARGUMENTS",
    "LOCAL_WORK_SIZE",
    "GLOBAL_WORK_SIZE",
    "GLOBAL_WORK_OFFSET",
    "KERNEL_HANDLE",
)


@dataclass(frozen=True)
class AppendedCommand:
    """A command that was appended: its sync-point, and its event and handle if they were
    requested."""

    point: int
    event: int = 0
    command: int = 0


@dataclass
class Update:
    """New values for a launch. None changes nothing.

    `values` are by the argument's index, as `URObjects.arguments` takes them. The number of
    dimensions is mandatory; by default it is that of the sizes, or 1.
    """

    command: int
    values: Mapping[int, Any] = field(default_factory=dict)
    kernel: int = 0
    dimensions: int | None = None
    offset: Sequence[int] | None = None
    size: Sequence[int] | None = None
    local: Sequence[int] | None = None


class URRecording:
    """A command-buffer."""

    def __init__(self, make: URObjects, *, context: int = 0, **fields: bool) -> None:
        make.ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP")
        if fields.get("isUpdatable"):
            make.ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP")
        self.make, self.ur = make, make.ur
        self.handle = make.command_buffer(context=context, **fields)

    # Appending

    def append(
        self,
        routine: str,
        *arguments: Any,
        after: Sequence[int] = (),
        wait: Sequence[int] = (),
        event: bool = False,
        command: bool = False,
    ) -> AppendedCommand:
        """Append a command.

        The arguments are those between the command-buffer and the sync-points.
        """
        code, step = self.try_append(
            routine, *arguments, after=after, wait=wait, event=event, command=command
        )
        self.ur.check_supported(routine, code)
        self.ur.expect_ok(routine, code)
        if step.event:
            self.make.events(step.event)
        return step

    def try_append(
        self,
        routine: str,
        *arguments: Any,
        after: Sequence[int] = (),
        wait: Sequence[int] = (),
        event: bool = False,
        command: bool = False,
    ) -> tuple[int, AppendedCommand]:
        """Append a command as `append` does, but return the code."""
        point, made, handle = ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_void_p()
        points = len(after), (ctypes.c_uint32 * len(after))(*after) if after else None
        waits = len(wait), handles(*wait) if wait else None
        outs = ctypes.byref(made) if event else None, ctypes.byref(handle) if command else None
        call = getattr(self.ur.table, routine)
        if routine == "urCommandBufferAppendNativeCommandExp":
            code = call(self.handle, *arguments, *points, ctypes.byref(point))
        else:
            code = call(self.handle, *arguments, *points, *waits, ctypes.byref(point), *outs)
        return code, AppendedCommand(point.value, made.value or 0, handle.value or 0)

    def launch(
        self,
        kernel: int,
        *values: Any,
        size: Sequence[int] = (COUNT,),
        local: Sequence[int] = (),
        offset: Sequence[int] = (),
        alternatives: Sequence[int] = (),
        **how: Any,
    ) -> AppendedCommand:
        """Append a launch."""
        return self.append(
            LAUNCH, *self.launch_arguments(kernel, values, size, local, offset, alternatives), **how
        )

    def launch_arguments(
        self,
        kernel: int,
        values: Sequence[Any],
        size: Sequence[int] = (COUNT,),
        local: Sequence[int] = (),
        offset: Sequence[int] = (),
        alternatives: Sequence[int] = (),
    ) -> tuple[Any, ...]:
        """Return the arguments to append a launch with."""
        shape = (
            len(size),
            sizes(*(offset or [0] * len(size))),
            sizes(*size),
            sizes(*local) if local else None,
        )
        others = len(alternatives), handles(*alternatives) if alternatives else None
        return kernel, *shape, *self.make.arguments(*values), *others

    def fill(self, buffer: int, value: int, **how: Any) -> AppendedCommand:
        """Append a fill of a whole buffer with a number."""
        return self.append(
            "urCommandBufferAppendMemBufferFillExp", buffer, ints([value]), 4, 0, SIZE, **how
        )

    def copy(self, source: int, target: int, **how: Any) -> AppendedCommand:
        """Append a copy of a whole buffer."""
        return self.append(
            "urCommandBufferAppendMemBufferCopyExp", source, target, 0, 0, SIZE, **how
        )

    # Executing

    def finalize(self) -> None:
        """Finalize the command-buffer."""
        self.ur.ok("urCommandBufferFinalizeExp", self.handle)

    def enqueue(self, queue: int, *after: int) -> int:
        """Enqueue the command-buffer. Returns its event."""
        waits = len(after), handles(*after) if after else None
        return self.make.own(
            "urEventRelease", self.ur.new("urEnqueueCommandBufferExp", queue, self.handle, *waits)
        )

    def run(self, queue: int) -> None:
        """Enqueue the command-buffer and wait for it."""
        self.make.wait(self.enqueue(queue))

    def finalize_and_run(self, queue: int) -> None:
        """Finalize the command-buffer, enqueue it, and wait for it."""
        self.finalize()
        self.run(queue)

    # Updating

    def update(self, *updates: Update) -> None:
        """Update launches, all or none."""
        code = self.try_update(*updates)
        self.ur.check_supported("urCommandBufferUpdateKernelLaunchExp", code)
        self.ur.expect_ok("urCommandBufferUpdateKernelLaunchExp", code)

    def try_update(self, *updates: Update, handle: int = 0) -> int:
        """Update launches as `update` does, but return the code."""
        array = (
            UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")
            * max(len(updates), 1)
        )()
        for entry, update in zip(array, updates, strict=False):
            self._describe(entry, update)
        return self.ur.table.urCommandBufferUpdateKernelLaunchExp(
            handle or self.handle, len(updates), array
        )

    def _describe(self, entry: Any, update: Update) -> None:
        """Write an update into an element of the array that the function takes."""
        entry.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"]
        entry.hCommand, entry.hNewKernel = update.command, update.kernel or None
        given = update.size or update.offset or update.local or (1,)
        entry.newWorkDim = len(given) if update.dimensions is None else update.dimensions
        for name, numbers in (("Offset", update.offset), ("Size", update.size)):
            if numbers is not None:
                setattr(
                    entry,
                    f"pNewGlobalWork{name}",
                    ctypes.addressof(self.make.keep(sizes(*numbers))),
                )
        if update.local is not None:
            entry.pNewLocalWorkSize = ctypes.addressof(self.make.keep(sizes(*update.local)))
        for name, values in self._convert_by_kind(update.values).items():
            array = self._convert_arguments(name, values)
            setattr(entry, f"numNew{name}Args", len(values))
            setattr(entry, f"pNew{name}ArgList", ctypes.addressof(array))

    def _convert_by_kind(self, values: Mapping[int, Any]) -> dict[str, dict[int, Any]]:
        """Return the values by the names of the lists that take them."""
        kinds: dict[str, dict[int, Any]] = {}
        for index, value in values.items():
            name = (
                "MemObj"
                if isinstance(value, BufferValue)
                else "Pointer"
                if isinstance(value, PointerValue)
                else "Value"
            )
            kinds.setdefault(name, {})[index] = value
        return kinds

    def _convert_arguments(self, name: str, values: Mapping[int, Any]) -> Any:
        """Return the array of one of the lists."""
        kind = f"exp_command_buffer_update_{name.lower()}_arg_desc"
        array = self.make.keep((UR.get_struct(f"ur_{kind}_t") * len(values))())
        for entry, (index, value) in zip(array, values.items(), strict=True):
            entry.stype, entry.argIndex = UR[f"UR_STRUCTURE_TYPE_{kind.upper()}"], index
            if name == "MemObj":
                entry.hNewMemObjArg = value.what
            elif name == "Pointer":  # the address of the pointer
                entry.pNewPointerArg = ctypes.addressof(self.make.keep(ctypes.c_void_p(value.what)))
            elif isinstance(value, LocalValue):
                entry.argSize = value.what
            else:
                entry.argSize = ctypes.sizeof(value)
                entry.pNewValueArg = ctypes.addressof(self.make.keep(value))
        return array


def need(ur: URCalls, *bits: str) -> None:
    """End the case as unsupported unless the device can update these things."""
    ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP")
    ur.require(CAPABILITIES, sum(UR[BIT.format(bit)] for bit in bits))


def record_store(
    make: URObjects, buffer: int, value: int = 1, **how: Any
) -> tuple[URRecording, AppendedCommand]:
    """Make a finalized updatable command-buffer that stores a number.

    Returns it and the command.
    """
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([value]), command=True, **how)
    recording.finalize()
    return recording, step
