"""The kinds of USM that the tests' drivers can have, each forced by FAIRLEAD_USM, and its
functions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.sdk._native import lib
from fairlead.plugins.sdk.answers import make_answers
from helpers.launching import has_usm_extension
from helpers.memory_calls import new_queue, struct
from helpers.ur_calls import Calls

#: The ways that a driver can have it; other drivers are tested in the way that is chosen for them.
WAYS: Final = {
    "intel_cpu": ("auto", "intel", "svm", "buffer"),
    "pocl_wheel": ("auto", "svm", "buffer"),
}
KINDS: Final = ("host", "device", "shared")


def forget_answers() -> None:
    """Let C forget what devices have answered, because tests change FAIRLEAD_USM in a process."""
    if reference.registry is not None:
        for handle, device in list(reference.objects.list_owned("ur_device_handle_t").items()):
            old, device.answers = device.answers, make_answers()
            device.memory.usm = lib.FL_USM_OTHER
            lib.fl_describe(handle, device.describe_to_c())
            del old


@dataclass
class Way:
    """USM on one device by one way: a context, and a queue in order."""

    ur: Calls
    device: PluginDevice
    name: str
    context: int
    queue: int

    @property
    def by_extension(self) -> bool:
        """Whether it is that of cl_intel_unified_shared_memory."""
        return self.name == "intel" or (
            self.name == "auto" and has_usm_extension(self.ur, self.device)
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of memory that there are."""
        return ("device",) if self.name == "buffer" else KINDS

    def try_alloc(
        self, kind: str, size: int, *, descriptor: Any = None, pool: Any = None, device: Any = ...
    ) -> tuple[str, int]:
        """The code of an allocation, and the address."""
        made = ctypes.c_void_p()
        where = () if kind == "host" else (self.device.handle if device is ... else device,)
        pointer = ctypes.byref(descriptor) if descriptor is not None else None
        code = self.ur(
            f"urUSM{kind.title()}Alloc",
            self.context,
            *where,
            pointer,
            pool,
            size,
            ctypes.byref(made),
        )
        return code, made.value or 0

    def alloc(self, kind: str, size: int, **more: Any) -> int:
        """An address of new memory."""
        code, address = self.try_alloc(kind, size, **more)
        assert code == "SUCCESS" and address
        return address

    def free(self, *addresses: int) -> None:
        for address in addresses:
            self.ur.ok("urUSMFree", self.context, address)

    def copy(
        self, target: Any, source: Any, size: int, *, queue: int = 0, blocking: bool = True
    ) -> None:
        """A copy that is complete when it returns."""
        self.ur.ok("urEnqueueUSMMemcpy", queue or self.queue, blocking, target, source, size)
        if not blocking:
            self.ur.ok("urQueueFinish", queue or self.queue)

    def content(self, address: int, size: int) -> bytes:
        """What is there, through a copy."""
        into = ctypes.create_string_buffer(size)
        self.copy(into, address, size)
        return into.raw

    def info(self, address: Any, name: str) -> int:
        """urUSMGetMemAllocInfo as a number; `name` is what comes after UR_USM_ALLOC_INFO_."""
        value = ctypes.c_uint64()
        given = self.context, address, UR[f"UR_USM_ALLOC_INFO_{name}"], 8, ctypes.byref(value), None
        assert self.ur("urUSMGetMemAllocInfo", *given) == "SUCCESS"
        return value.value

    def queues(self) -> list[int]:
        """A queue in order and one out of order, with profiling."""
        flags = ((), ("OUT_OF_ORDER_EXEC_MODE_ENABLE",))
        return [
            new_queue(self.ur, self.context, self.device.handle, "PROFILING_ENABLE", *more).value
            or 0
            for more in flags
        ]


def aligned(align: int, **fields: Any) -> Any:
    """A ur_usm_desc_t."""
    return struct("ur_usm_desc_t", "USM_DESC", align=align, **fields)
