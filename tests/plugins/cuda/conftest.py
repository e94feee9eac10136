"""The adapters for CUDA and HIP, in this process: on the drivers of the tests, CUDA also on a GPU.

Every test that takes one of these fixtures runs on CUDA and on both profiles of HIP. Kernels are
OpenCL C. On a GPU NVIDIA's OpenCL driver compiles them. The drivers of the tests let PoCL compile
and run them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from helpers.cuda import FakeGpu, build_fake_cuda
from helpers.drivers import chosen_drivers
from helpers.entries import asked_of_python
from helpers.hip import PROFILES, build_fake_hip
from helpers.ur_calls import Calls, array

from fairlead import plugins
from fairlead.api import make_nested_environment
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.conformance.ur.values import PointerValue
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda.driver import SEARCH as cuda_search
from fairlead.loader.cuda.driver import CudaDriver
from fairlead.loader.hip.driver import SEARCH as hip_search
from fairlead.loader.hip.driver import HipDriver
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
def real_driver(pytestconfig: pytest.Config) -> CudaDriver | None:
    """The driver of a GPU. None if there is no GPU, or no OpenCL driver that compiles for it."""
    chosen = {driver.name for driver in chosen_drivers(pytestconfig)}
    return cuda_search.find()[0] if "nvidia" in chosen else None


class Adapted(NamedTuple):
    """An adapter, and the driver of the tests below it.

    Attributes:
        plugin: the adapter.
        package: the package of its modules.
        driver: the driver.
    """

    plugin: Plugin
    package: str
    driver: Any

    def module(self, name: str) -> Any:
        """Return one of its modules."""
        return import_module(f"{self.package}.{name}")


#: The file of an adapter whose package has the modules of fairlead.plugins.hip once more, because a
#: process opens one driver for each package.
_PACKAGE: Final = """
import sys, types
from importlib import import_module
from fairlead.plugins import hip
from fairlead.plugins.sdk.gpu.shared_modules import load_shared_modules
package = types.ModuleType({name!r})
package.__path__ = hip.__path__
sys.modules[{name!r}] = package
load_shared_modules({name!r})
adapter = import_module("{name}.core").adapter
"""


def _load(search: Any, driver: Any, library: str, backend: str) -> Plugin:
    """Load an adapter, which opens its driver now. It stays open until the process ends."""
    before, search.found = search.found, driver
    try:
        candidate = PluginCandidate(library, "test", backend=backend)
        loaded = load(candidate, environment=make_nested_environment())
        assert loaded.devices
        return loaded
    finally:
        search.found = before


_CUDA_ALONE: Final = "there is a GPU of NVIDIA: only CUDA is tested"
#: Marks tests that are about CUDA alone.
only_cuda: Final = pytest.mark.parametrize("adapted", ["cuda"], indirect=True)
#: Marks tests that are about HIP alone.
only_hip: Final = pytest.mark.parametrize("adapted", ["hip-5.2", "hip-6.4"], indirect=True)


@pytest.fixture(scope="session", params=["cuda", *(f"hip-{profile}" for profile in PROFILES)])
def adapted(
    real_driver: CudaDriver | None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Adapted:
    """The adapter for CUDA, and that for HIP in both profiles of its driver.

    A machine with a GPU of NVIDIA needs neither a compiler nor PoCL.
    """
    api, _, profile = request.param.partition("-")
    driver = real_driver
    if driver is not None and api == "hip":
        pytest.skip(_CUDA_ALONE)
    if driver is None:
        pocl: Candidate = request.getfixturevalue("pocl_wheel")
        os.environ["FAKE_CUDA_OPENCL"] = locate(pocl)[0]
    if api == "cuda":
        driver = driver or request.getfixturevalue("fake_cuda_driver")
        plugin = _load(cuda_search, driver, plugins.cuda_adapter(), "cuda")
        return Adapted(plugin, "fairlead.plugins.cuda", driver)
    folder = tmp_path_factory.mktemp("hip")
    path = build_fake_hip(folder, profile)
    FakeGpu(path).set_device_count(2)
    hip_driver = HipDriver.open(str(path))
    name = f"fairlead.plugins.hip_{profile[0]}"
    file = folder / f"hip_{profile[0]}_adapter.py"
    file.write_text(_PACKAGE.format(name=name))
    plugin = _load(hip_search, hip_driver, str(plugins.build_adapter(file, folder)), "hip")
    made = Adapted(plugin, name, hip_driver)
    comgr = made.module("comgr").Comgr(str(folder / "libamd_comgr.so.2"))
    made.module("compilers").COMPILERS["OpenCL C"] = (lambda: comgr,)
    return made


class Knobs:
    """The knobs of the driver of the tests.

    Args:
        adapted: the adapter.

    Attributes:
        library: the driver, with its further functions.
        hold, let_go: let nothing begin on the device, and go on.
    """

    def __init__(self, adapted: Adapted) -> None:
        self._names = adapted.module("core").NAMES
        self._driver = FakeGpu(Path(adapted.driver.path))
        self.library = self._driver.library
        self.hold, self.let_go = self._driver.hold, self._driver.let_go

    def fail(self, name: str, code: int) -> None:
        """Let a function, by its neutral name, return a code from now on; 0: it works again."""
        self._driver.fail(self._names[name], code)

    def fail_exported(self, name: str, code: int) -> None:
        """Let a function, by its exported name, return a code from now on; 0: it works again."""
        self._driver.fail(name, code)

    def calls(self, name: str) -> int:
        """Return how often a function, by its neutral name, was called."""
        return self._driver.calls(self._names[name])

    def heal(self) -> None:
        """Let all functions and the device work again."""
        self.let_go()
        for name in self._names:
            self.fail(name, 0)


@pytest.fixture
def fake(real_driver: CudaDriver | None, adapted: Adapted) -> Iterator[Knobs]:
    """The knobs of the driver of the tests. A test that needs them is skipped on a GPU."""
    if real_driver is not None:
        pytest.skip("needs the driver of the tests, but there is a GPU")
    knobs = Knobs(adapted)
    yield knobs
    knobs.heal()


@pytest.fixture(scope="session")
def gpu_plugin(adapted: Adapted) -> Plugin:
    """The adapter."""
    return adapted.plugin


@pytest.fixture(scope="session")
def ur(gpu_plugin: Plugin) -> Calls:
    """Its functions."""
    calls = Calls(gpu_plugin.table)
    calls.plugin = gpu_plugin
    return calls


@pytest.fixture(scope="session")
def device(gpu_plugin: Plugin) -> PluginDevice:
    """Its first device."""
    return gpu_plugin.devices[0]


@pytest.fixture
def context(device: PluginDevice, ur: Calls) -> Iterator[int]:
    """A context of the device."""
    made = ur.make("urContextCreate", 1, array(device.handle))
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
        self.make = URObjects(URCalls(ur.plugin, device), 0, 0, device)
        self.make.the_context = context
        self.queue = self.new_queue(flags)
        self._program = 0

    def new_queue(self, flags: str = "") -> int:
        """Return a queue. `flags` are names without their prefix."""
        return self.make.queue(flags)

    def kernel(self, name: str, source: bytes = SOURCE) -> int:
        """Return a kernel."""
        if not self._program or source is not SOURCE:
            given = self.context, source, len(source), None
            self._program = self.ur.make("urProgramCreateWithIL", *given).value or 0
            self.ur.ok("urProgramBuild", self.context, self._program)
        return self.ur.make("urKernelCreate", self._program, name.encode()).value or 0

    def memory(self, kind: str = "Device", size: int = SIZE) -> int:
        """Return USM."""
        device = () if kind == "Host" else (self.device,)
        return self.ur.make(f"urUSM{kind}Alloc", self.context, *device, None, None, size).value or 0

    def put(self, address: int, data: bytes) -> None:
        """Write bytes."""
        self.ur.ok("urEnqueueUSMMemcpy", self.queue, True, address, data, len(data))

    def get(self, address: int, size: int = SIZE) -> bytes:
        """Read bytes."""
        made = ctypes.create_string_buffer(size)
        self.ur.ok("urEnqueueUSMMemcpy", self.queue, True, made, address, size)
        return made.raw

    def numbers(self, address: int, count: int = COUNT) -> list[int]:
        """Read int32 numbers."""
        return list((ctypes.c_int32 * count).from_buffer_copy(self.get(address, 4 * count)))

    def arguments(self, *values: Any) -> tuple[int, Any]:
        """Return number and array of a launch's arguments: see `argument_of`."""
        return self.make.arguments(*map(argument_of, values))

    def launch(self, kernel: int, *values: Any, size: int = COUNT, local: int = 0) -> None:
        """Launch a kernel of one dimension."""
        whole, part = (ctypes.c_size_t * 1)(size), (ctypes.c_size_t * 1)(local)
        shape = 1, (ctypes.c_size_t * 1)(0), whole, part if local else None
        given = self.queue, kernel, *shape, *self.arguments(*values), None, 0, None, None
        self.ur.ok("urEnqueueKernelLaunchWithArgsExp", *given)


def argument_of(value: Any) -> Any:
    """Return an argument as the conformance suite has it. A number is an address."""
    return PointerValue(value) if isinstance(value, int) else value


@pytest.fixture
def work(ur: Calls, device: PluginDevice, context: int) -> Work:
    """An in-order queue and kernels."""
    return Work(ur, device.handle, context)


@pytest.fixture
def asked(adapted: Adapted) -> Iterator[list[str]]:
    """The entry points that Python is asked for, of those that begin in C."""
    with asked_of_python(adapted.module("core").adapter) as names:
        yield names


class Installed(NamedTuple):
    """An adapter for programs in processes of their own.

    Attributes:
        environment: the variables with which it finds its driver.
        library: the adapter's path.
        backend: what ONEAPI_DEVICE_SELECTOR calls it.
        opencl: the OpenCL driver of the same device.
    """

    environment: dict[str, str]
    library: str
    backend: str
    opencl: str


#: What `installed` has, one after the other.
LIBRARIES: Final = ("cuda", *(f"hip-{profile}" for profile in PROFILES))
#: Marks tests of whole programs. `make test` runs them on HIP's newer profile alone, because
#: test_runtime.py runs a program with graphs on both.
newer_hip: Final = pytest.mark.parametrize(
    "installed",
    [
        pytest.param(one, marks=pytest.mark.thorough) if one == "hip-5.2" else one
        for one in LIBRARIES
    ],
    indirect=True,
)


@pytest.fixture(scope="session", params=LIBRARIES)
def installed(
    real_driver: CudaDriver | None,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Installed:
    """The adapter for CUDA, and that for HIP in both profiles of its driver.

    On a machine with a GPU of NVIDIA it is CUDA's, on its own driver.
    """
    api, _, profile = request.param.partition("-")
    library = plugins.hip_adapter() if profile else plugins.cuda_adapter()
    if real_driver is not None:
        if profile:
            pytest.skip(_CUDA_ALONE)
        drivers = chosen_drivers(request.config)
        found = next((one.library for one in drivers if one.name == "nvidia"), None)
        return Installed({}, library, api, found or pytest.skip("needs NVIDIA's OpenCL driver"))
    opencl = locate(request.getfixturevalue("pocl_wheel"))[0]
    folder = tmp_path_factory.mktemp("installed")
    path = build_fake_hip(folder, profile) if profile else build_fake_cuda(folder)
    environment = {"LD_LIBRARY_PATH": str(path.parent), "FAKE_CUDA_OPENCL": opencl}
    return Installed(environment, library, api, opencl)


@pytest.fixture
def selected(installed: Installed) -> dict[str, str]:
    """The variables with which a program uses the adapter."""
    return {
        **installed.environment,
        "UR_ADAPTERS_FORCE_LOAD": installed.library,
        "ONEAPI_DEVICE_SELECTOR": f"{installed.backend}:*",
    }
