"""Command queues and fences of the Level Zero driver."""

from __future__ import annotations

from typing import Any, Final

from ..sdk.objects import Object
from .contexts import ZeContext
from .core import ZE, driver, make_failure
from .devices import ZeDevice
from .in_c import get_address
from .streams import Signal, Stream

SYNCHRONOUS: Final = ZE["ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS"]


def check_group(ordinal: int, index: int = 0) -> None:
    """Raise LevelZeroError (INVALID_ARGUMENT) for a queue that no device has.

    Args:
        ordinal: the number of its group.
        index: its number in the group.
    """
    if ordinal or index:
        raise make_failure(
            "INVALID_ARGUMENT", "a device has one group of command queues, and one queue in it"
        )


@driver.kind
class ZeQueue(Object):
    """A command queue: a stream, and how it was made."""

    type = "ze_command_queue_handle_t"

    def __init__(self, context: ZeContext, device: ZeDevice, desc: Any) -> None:
        self.context, self.device = context, device
        self.flags, self.mode, self.priority = desc.flags, desc.mode, desc.priority
        self.stream = Stream(context, device, desc.mode == SYNCHRONOUS)

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return get_address(self.stream.in_c.struct), 0, 0, 0

    def close(self) -> None:
        self.stream.close()


@driver.kind
class ZeFence(Signal):
    """A fence, which a queue signals after lists."""

    type = "ze_fence_handle_t"

    def __init__(self, queue: ZeQueue, signaled: bool) -> None:
        super().__init__()
        self.queue, self._signaled = queue, signaled


@driver.entry
def zeCommandQueueCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeQueue:
    hContext.check(hDevice)
    check_group(desc.ordinal, desc.index)
    return ZeQueue(hContext, hDevice, desc)


@driver.entry
def zeFenceCreate(hCommandQueue: ZeQueue, desc: Any) -> ZeFence:
    return ZeFence(hCommandQueue, bool(desc.flags & ZE["ZE_FENCE_FLAG_SIGNALED"]))


driver.declare(
    zeCommandQueueSynchronize=lambda hCommandQueue, timeout: hCommandQueue.stream.wait(timeout),
    zeCommandQueueGetOrdinal=lambda hCommandQueue: 0,
    zeCommandQueueGetIndex=lambda hCommandQueue: 0,
    zeCommandQueueGetFlags=lambda hCmdQueue: hCmdQueue.flags,
    zeCommandQueueGetMode=lambda hCmdQueue: hCmdQueue.mode,
    zeCommandQueueGetPriority=lambda hCmdQueue: hCmdQueue.priority,
    zeFenceHostSynchronize=lambda hFence, timeout: hFence.wait(timeout),
    zeFenceQueryStatus=lambda hFence: hFence.query(),
)


@driver.entry
def zeFenceReset(hFence: ZeFence) -> None:
    hFence.reset_by_host()
