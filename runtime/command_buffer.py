"""Command-buffers of an adapter: commands are appended, it is finalized, and then enqueued any number of times."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .context import Context
from .errors import unsupported
from .handles import URObject, make_struct
from .launch_updates import Block, Change, describe
from .platform import Device


class AdapterCommandBuffer(URObject):
    """A command-buffer for one device (ur_exp_command_buffer_handle_t).

    One thread appends to it, and there are many launches, so that some things are made once: `append_launch` is the adapter's function,
    `point` and `command` are where it writes a sync-point and a command's handle to, at `point_at` and `command_at`, which is None if
    there are to be no handles.
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
            raise unsupported(
                f"{device.backend} backend is not supported by SYCL Graph extension",
                routine="CommandBuffer",
            )
        made = context.adapter.obtain(
            "urCommandBufferCreateExp", context.handle, device.handle, ctypes.byref(description)
        )
        super().__init__(context.adapter, made)
        self.append_launch = context.adapter.ur.urCommandBufferAppendKernelLaunchWithArgsExp
        self.point, self.command = ctypes.c_uint32(), ctypes.c_void_p()
        self.point_at, self.command_at = (
            ctypes.byref(self.point),
            ctypes.byref(self.command) if updatable else None,
        )
        self._block = Block()

    def finalize(self) -> None:
        """No more commands: it can be enqueued."""
        self.adapter.call("urCommandBufferFinalizeExp", self.handle)

    def enqueue(self, queue: int, count: int, waits: Any) -> int:
        """Run it on a queue's handle after `count` events; the handle of its event."""
        event = ctypes.c_void_p()
        code = self.adapter.ur.urEnqueueCommandBufferExp(
            queue, self.handle, count, waits, ctypes.byref(event)
        )
        if code:
            self.adapter.check(code, "urEnqueueCommandBufferExp")
        return event.value or 0

    def update(self, changes: Sequence[Change]) -> None:
        """Put launches in the place of others: all of them or, if the adapter refuses one, none."""
        count = describe(self._block, changes, self.context)
        if count:
            code = self.adapter.ur.urCommandBufferUpdateKernelLaunchExp(
                self.handle, count, self._block.memory
            )
            if code:
                self.adapter.check(code, "urCommandBufferUpdateKernelLaunchExp")
