"""The adapter for CUDA, in this process: on a GPU if there is one, else on the driver of the tests.

Kernels are OpenCL C. On a GPU NVIDIA's OpenCL driver compiles them. The driver of the tests lets
PoCL compile and run them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
from helpers.cuda import FakeCuda
from helpers.ur_calls import Calls, array

from fairlead import plugins
from fairlead.api import nested_environment
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda import driver as cuda_driver
from fairlead.loader.cuda.driver import CudaDriver
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin

SOURCE: Final = b"""
kernel void store(global int *out, int value) { out[get_global_id(0)] = value; }
kernel void add_one(global int *a) { a[get_global_id(0)] += 1; }
kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }
kernel void axpy(global int *out, global const int *x, int a) {
    out[get_global_id(0)] += a * x[get_global_id(0)];
}
kernel void local_sum(global int *out, local int *first, char gap, local int *second) {
    size_t l = get_local_id(0), n = get_local_size(0);
    first[l] = (int)l;
    second[l] = gap;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += first[k] + second[k];
    out[get_global_id(0)] = sum;
}
"""
COUNT: Final = 64
SIZE: Final = 4 * COUNT


@pytest.fixture(scope="session")
def real_driver() -> CudaDriver | None:
    """The driver of a GPU, None without one."""
    return cuda_driver.SEARCH.find()[0]


@pytest.fixture(scope="session")
def cuda_plugin(real_driver: CudaDriver | None, request: pytest.FixtureRequest) -> Plugin:
    """The adapter. It stays open until the process ends, as in every program that uses one.

    A machine with a GPU needs neither a compiler nor PoCL.
    """
    driver = real_driver
    if driver is None:
        pocl: Candidate = request.getfixturevalue("pocl_wheel")
        os.environ["FAKE_CUDA_OPENCL"] = locate(pocl)[0]
        driver = request.getfixturevalue("fake_cuda_driver")
    before, cuda_driver.SEARCH.found = cuda_driver.SEARCH.found, driver
    try:
        candidate = PluginCandidate(plugins.cuda_adapter(), "test", backend="cuda")
        return load(candidate, environment=nested_environment())
    finally:
        cuda_driver.SEARCH.found = before


@pytest.fixture
def fake(real_driver: CudaDriver | None, request: pytest.FixtureRequest) -> FakeCuda:
    """The knobs of the driver of the tests. A test that needs them is skipped on a GPU."""
    if real_driver is not None:
        pytest.skip("needs the driver of the tests, but there is a GPU")
    return request.getfixturevalue("fake_cuda")


@pytest.fixture(scope="session")
def ur(cuda_plugin: Plugin) -> Calls:
    """Its functions."""
    return Calls(cuda_plugin.table)


@pytest.fixture(scope="session")
def device(cuda_plugin: Plugin) -> PluginDevice:
    """Its first device."""
    return cuda_plugin.devices[0]


@pytest.fixture
def context(device: PluginDevice, ur: Calls) -> Iterator[int]:
    """A context of the device."""
    made = ur.made("urContextCreate", 1, array(device.handle), None)
    yield made.value or 0
    ur.ok("urContextRelease", made)


class Work:
    """Objects on the adapter, and short ways to use them.

    Args:
        ur: the adapter's functions.
        device: the device's handle.
        context: the context.
        flags: those of the queue.
    """

    def __init__(self, ur: Calls, device: int, context: int, flags: str = "") -> None:
        self.ur, self.device, self.context = ur, device, context
        self.queue = self.new_queue(flags)
        self._program = 0

    def new_queue(self, flags: str = "") -> int:
        """Return a queue. `flags` are names without their prefix."""
        bits = sum(UR[f"UR_QUEUE_FLAG_{name}"] for name in flags.split())
        how = UR.struct("ur_queue_properties_t")(
            UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, bits
        )
        given = self.context, self.device, ctypes.byref(how)
        return self.ur.made("urQueueCreate", *given).value or 0

    def kernel(self, name: str, source: bytes = SOURCE) -> int:
        """Return a kernel."""
        if not self._program or source is not SOURCE:
            given = self.context, source, len(source), None
            self._program = self.ur.made("urProgramCreateWithIL", *given).value or 0
            self.ur.ok("urProgramBuild", self.context, self._program, None)
        return self.ur.made("urKernelCreate", self._program, name.encode()).value or 0

    def memory(self, kind: str = "Device", size: int = SIZE) -> int:
        """Return USM."""
        device = () if kind == "Host" else (self.device,)
        given = self.context, *device, None, None, size
        return self.ur.made(f"urUSM{kind}Alloc", *given).value or 0

    def put(self, address: int, data: bytes) -> None:
        """Write bytes."""
        given = self.queue, True, address, data, len(data), 0, None, None
        self.ur.ok("urEnqueueUSMMemcpy", *given)

    def get(self, address: int, size: int = SIZE) -> bytes:
        """Read bytes."""
        made = ctypes.create_string_buffer(size)
        given = self.queue, True, made, address, size, 0, None, None
        self.ur.ok("urEnqueueUSMMemcpy", *given)
        return made.raw

    def numbers(self, address: int, count: int = COUNT) -> list[int]:
        """Read int32 numbers."""
        return list((ctypes.c_int32 * count).from_buffer_copy(self.get(address, 4 * count)))

    def arguments(self, *values: Any) -> tuple[int, Any]:
        """Return number and array of a launch's arguments: an int is an address, bytes a value."""
        rows = (UR.struct("ur_exp_kernel_arg_properties_t") * max(len(values), 1))()
        rows.keep = values
        for index, value in enumerate(values):
            row = rows[index]
            row.stype, row.index = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"], index
            if isinstance(value, int):
                row.type, row.value.pointer = UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"], value
            elif isinstance(value, LocalBytes):
                row.type, row.size = UR["UR_EXP_KERNEL_ARG_TYPE_LOCAL"], value.size
            else:
                row.type, row.size = UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"], ctypes.sizeof(value)
                row.value.value = ctypes.addressof(value)
        return len(values), rows

    def launch(self, kernel: int, *values: Any, size: int = COUNT, local: int = 0) -> None:
        """Launch a kernel of one dimension."""
        whole, part = (ctypes.c_size_t * 1)(size), (ctypes.c_size_t * 1)(local)
        shape = 1, (ctypes.c_size_t * 1)(0), whole, part if local else None
        given = self.queue, kernel, *shape, *self.arguments(*values), None, 0, None, None
        self.ur.ok("urEnqueueKernelLaunchWithArgsExp", *given)


class LocalBytes:
    """Bytes of local memory as an argument."""

    def __init__(self, size: int) -> None:
        self.size = size


@pytest.fixture
def work(ur: Calls, device: PluginDevice, context: int) -> Work:
    """An in-order queue and kernels."""
    return Work(ur, device.handle, context)
