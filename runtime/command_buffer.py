"""Command-buffers of an adapter: commands are appended, the buffer is finalized, and then enqueued
any number of times."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from .commands import Command
from .context import Context
from .errors import SYCLError, make_unsupported_error
from .handles import URObject, make_struct
from .launch_appends import Appends
from .launch_updates import Block, Change
from .launches import KernelLaunch
from .platform import Device


class AdapterCommandBuffer(URObject):
    """A command-buffer for one device (ur_exp_command_buffer_handle_t).

    Attributes:
        handles: the handle of each command, 0 if it cannot be updated; () if none can be.
    """

    _release, _native = "urCommandBufferReleaseExp", "urCommandBufferGetNativeHandleExp"

    def __init__(
        self,
        context: Context,
        device: Device,
        *,
        updatable: bool = False,
        in_order: bool = False,
        profiling: bool = False,
    ) -> None:
        self.context, self.device, self.updatable = context, device, updatable
        description = make_struct(
            "ur_exp_command_buffer_desc_t",
            isUpdatable=updatable,
            isInOrder=in_order,
            enableProfiling=profiling,
        )
        if not device.has("ext_oneapi_limited_graph"):
            raise make_unsupported_error(
                f"{device.backend} backend is not supported by SYCL Graph extension",
                routine="CommandBuffer",
            )
        made = context.adapter.obtain(
            "urCommandBufferCreateExp", context.handle, device.handle, ctypes.byref(description)
        )
        super().__init__(context.adapter, made)
        self.handles: Sequence[int] = ()
        self._block = Block()

    def append_all(
        self,
        commands: Sequence[Command],
        after: Sequence[Sequence[int]] | None,
        nodes: Sequence[int],
    ) -> None:
        """Append commands. Launches next to each other are appended by one call.

        Args:
            after: the numbers of the commands that each comes after; None if it comes after none,
                or the buffer is in order.
            nodes: what messages call the commands.

        Raises:
            SYCLError: a command is refused; the message names its node.
        """
        appends = Appends(self, len(commands))
        try:
            for kind, run in groupby(commands, type):
                part: Any = list(run)
                waits = None if after is None else after[appends.number :][: len(part)]
                if issubclass(kind, KernelLaunch):
                    appends.append_launches(part, waits)
                else:
                    appends.append_others(part, waits)
        except SYCLError as error:
            message = f"node {nodes[appends.number]}: {error.message}"
            raise error.with_message(message, error.routine) from error
        self.handles = appends.read_handles()

    def finalize(self) -> None:
        """Finish appending. The buffer can be enqueued from now on."""
        self.adapter.call("urCommandBufferFinalizeExp", self.handle)

    def enqueue(self, queue: int, count: int, waits: Any) -> int:
        """Enqueue the buffer on a queue (a handle) after `count` events. Returns the handle of its
        event."""
        event = ctypes.c_void_p()
        code = self.adapter.ur.urEnqueueCommandBufferExp(
            queue, self.handle, count, waits, ctypes.byref(event)
        )
        if code:
            self.adapter.check(code, "urEnqueueCommandBufferExp")
        return event.value or 0

    def explain(self) -> str | None:
        """Return how the adapter runs it, and why.

        None: the adapter does not say it. fairlead's adapters do, and those of others do not.
        """
        name = "UR_EXP_COMMAND_BUFFER_INFO_EXPLANATION_FAIRLEAD"
        try:
            return self.adapter.info("urCommandBufferGetInfoExp", self.handle, name)
        except SYCLError:
            return None

    def update(self, changes: Sequence[Change]) -> None:
        """Replace launches. If the adapter refuses one, none is replaced."""
        count = self._block.describe(changes, self.context)
        if count:
            code = self.adapter.ur.urCommandBufferUpdateKernelLaunchExp(
                self.handle, count, self._block.address
            )
            if code:
                self.adapter.check(code, "urCommandBufferUpdateKernelLaunchExp")
