"""What tests of the Level Zero driver share: a context, kernels, lists, events, memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref
from functools import cached_property
from typing import Any, Final

from fairlead.conformance.ze.calls import FOREVER
from fairlead.conformance.ze.objects import Ints as DeviceInts
from fairlead.conformance.ze.objects import (
    ZEObjects,
    argument,
    chained,
    global_offset,
    group_count,
    group_size,
)
from helpers.ze_calls import ZeCalls, array, new

__all__ = "FOREVER", "argument", "global_offset", "group_count", "group_size"

#: PoCL 7.1 cannot link a kernel that asks get_global_offset for a dimension that varies.
SOURCE: Final = b"""
kernel void add(global int *out, int value) { out[get_global_id(0)] += value; }
kernel void mul(global int *out, int value) { out[get_global_id(0)] *= value; }
kernel void copy(global int *out, global const int *in) {
    out[get_global_id(0)] = in[get_global_id(0)];
}
kernel void sums(global int *out, local int *scratch) {
    scratch[get_local_id(0)] = get_local_id(0) + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int i = 0; i < get_local_size(0); i++) sum += scratch[i];
    out[get_global_id(0)] = sum;
}
kernel void shape(global int *out) {
    if (get_local_id(0) == 0)
        for (int i = 0; i < 3; i++) {
            out[i] = get_global_size(i); out[3 + i] = get_local_size(i);
            out[6 + i] = i == 0 ? get_global_offset(0)
                       : i == 1 ? get_global_offset(1) : get_global_offset(2);
        }
}
kernel void where(global int *out) { out[get_global_id(0)] = get_global_id(0); }
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fours(global int *out) {
    out[get_global_id(0)] = get_local_size(0);
}
"""
#: What a device's compiler made of a source. A module of it takes 2 ms instead of 100.
_NATIVE: Final[dict[tuple[int, bytes], bytes]] = {}


class Kept(ZEObjects):
    """Makes objects that stay until a test destroys them, or the context."""

    def _create(self, destroy: str, name: str, *arguments: Any) -> int:
        return self.ze.create(name, *arguments)


class ZeBench:
    """A context of a driver with a device, a queue, and kernels.

    Args:
        ze: the driver's functions.
        driver: the handle of the driver.
        device: the device, by default the first one.
        devices: the devices of the context, by default all.
        context: a context to use, which stays. By default it makes one.
    """

    def __init__(
        self,
        ze: ZeCalls,
        driver: int,
        device: int = 0,
        devices: Sequence[int] = (),
        context: int = 0,
    ) -> None:
        self.ze, self.driver = ze, driver
        self.device = device or ze.listed("zeDeviceGet", driver)[0]
        given = byref(new("ze_context_desc_t")), len(devices), array(*devices) if devices else None
        self.owns_context = not context
        self.context = context or ze.make("zeContextCreateEx", driver, *given)
        made = self._make(lambda _: self.module())
        self.list, self.immediate, self.new_queue = made.list, made.immediate, made.queue
        self.launch, self.next_id, self.set = made.launch, made.next_id, made.set
        self.close_list, self.closed = made.close_list, made.closed
        self.queue = self.new_queue()
        self.compiles = False  # also what was compiled before
        self._modules: dict[bytes, int] = {}

    def _make(self, module: Callable[[str], int]) -> Kept:
        return Kept(self.ze, self.context, self.device, module)

    def close(self) -> None:
        """Destroy the context, with all that is allocated in it."""
        self.ze.ok("zeCommandQueueDestroy", self.queue)
        if self.owns_context:
            self.ze.ok("zeContextDestroy", self.context)

    def module(self, source: bytes = SOURCE) -> int:
        """Return the module of OpenCL C, which is compiled once in a process for a device."""
        if source not in self._modules:
            native = None if self.compiles else _NATIVE.get((self.device, source))
            self._modules[source] = self.build(native or source)
            if native is None:
                _NATIVE[self.device, source] = self.native(self._modules[source])
        return self._modules[source]

    def build(self, data: bytes) -> int:
        """Return a new module of OpenCL C, or of what was made of it."""
        text = ctypes.create_string_buffer(data, len(data))
        desc = new("ze_module_desc_t", format=1, inputSize=len(text), pInputModule=text)
        made, log = ctypes.c_void_p(), ctypes.c_void_p()
        given = self.context, self.device, byref(desc), byref(made), byref(log)
        code = self.ze.code("zeModuleCreate", *given)
        assert code == "SUCCESS", f"zeModuleCreate: {code}: {self.read_log(log)}"
        self.ze.ok("zeModuleBuildLogDestroy", log)
        return made.value or 0

    def read_log(self, log: ctypes.c_void_p) -> str:
        """Return the text of a build log, "" if there is none."""
        size, routine = ctypes.c_size_t(), "zeModuleBuildLogGetString"
        if not log:
            return ""
        self.ze.ok(routine, log, byref(size), None)
        text = ctypes.create_string_buffer(size.value)
        self.ze.ok(routine, log, byref(size), text)
        return text.value.decode()

    def native(self, module: int) -> bytes:
        """Return the native binary of a module."""
        size = ctypes.c_size_t()
        self.ze.ok("zeModuleGetNativeBinary", module, size)
        binary = ctypes.create_string_buffer(size.value)
        self.ze.ok("zeModuleGetNativeBinary", module, size, binary)
        return binary.raw

    def kernel_names(self, module: int) -> list[bytes]:
        """Return the names of the kernels of a module."""
        count, routine = ctypes.c_uint32(), "zeModuleGetKernelNames"
        self.ze.ok(routine, module, byref(count), None)
        found = (ctypes.c_char_p * count.value)()
        self.ze.ok(routine, module, byref(count), found)
        return [name or b"" for name in found]

    def kernel(self, name: str, *arguments: Any, size: int = 1, module: int = 0) -> int:
        """Return a new kernel with arguments: a ctypes value, or the bytes of local memory."""
        made = self._make(lambda _: module or self.module())
        return made.kernel(name, *arguments, size=size)

    @cached_property
    def shares(self) -> bool:
        """Whether the device has memory that the host uses, too."""
        struct = "ze_device_memory_access_properties_t"
        routine = "zeDeviceGetMemoryAccessProperties"
        row = self.ze.properties(routine, struct, self.device)
        return bool(row.sharedSingleDeviceAllocCapabilities & 1)

    @cached_property
    def _copies(self) -> int:
        """A list that copies before its calls return."""
        return self.immediate(mode=1)

    def copy_now(self, target: int, source: int, size: int) -> None:
        """Copy so many bytes, on a list of its own."""
        self.copy(self._copies, target, source, size)

    def ints(self, *values: int, count: int = 0) -> Ints:
        """Return memory with these values, or with so many zeros.

        It is shared memory, or the device's if the device shares none.
        """
        values = values or (0,) * count
        device, host = new("ze_device_mem_alloc_desc_t"), new("ze_host_mem_alloc_desc_t")
        kind = "Shared" if self.shares else "Device"
        descs = (byref(device), byref(host)) if self.shares else (byref(device),)
        given = self.context, *descs, 4 * len(values), 0, self.device
        copy = None if self.shares else self.copy_now
        made = Ints(self.ze.make(f"zeMemAlloc{kind}", *given), len(values), copy)
        made.fill(*values)
        return made

    def events(self, count: int, flags: int = 1, **fields: Any) -> list[int]:
        """Return the events of a new pool, host-visible by default."""
        desc = new("ze_event_pool_desc_t", flags=flags, count=count, **fields)
        pool = self.ze.make("zeEventPoolCreate", self.context, desc)
        return [
            self.ze.make("zeEventCreate", pool, new("ze_event_desc_t", index=index))
            for index in range(count)
        ]

    def copy(
        self, made: int, target: int, source: int, size: int, signal: int = 0, *waits: int
    ) -> None:
        """Append a copy of so many bytes."""
        waiting = len(waits), array(*waits) if waits else None
        self.ze.ok("zeCommandListAppendMemoryCopy", made, target, source, size, signal, *waiting)

    def finish(self, made: int) -> None:
        """Run a new list of any kind, wait for its end, and destroy it."""
        if self.ze.code("zeCommandListHostSynchronize", made, FOREVER) != "SUCCESS":
            self.close_list(made)
            self.run(made)
        self.ze.ok("zeCommandListDestroy", made)

    def run(self, *lists: int, queue: int = 0, wait: bool = True) -> None:
        """Execute lists, and wait for their end."""
        queue = queue or self.queue
        routine = "zeCommandQueueExecuteCommandLists"
        self.ze.ok(routine, queue, len(lists), array(*lists), None)
        if wait:
            self.ze.ok("zeCommandQueueSynchronize", queue, FOREVER)

    def update(self, made: int, *changes: Any) -> str:
        """Change commands by a chain of structs, and return the code."""
        routine = "zeCommandListUpdateMutableCommandsExp"
        return self.ze.code(routine, made, byref(chained(*changes)))


class Ints(DeviceInts):
    """Memory of a device, as numbers that the host reads and writes one by one, too."""

    def __getitem__(self, index: int) -> int:
        return self.all[index]

    def __setitem__(self, index: int, value: int) -> None:
        numbers = self.all
        numbers[index] = value
        self.fill(*numbers)

    @property
    def raw(self) -> bytes:
        """Its bytes."""
        numbers = self.all
        return bytes((ctypes.c_int * len(numbers))(*numbers))
