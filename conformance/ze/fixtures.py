"""The objects that cases for Level Zero drivers use. Handles are ints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from fairlead.conformance.checks import unsupported
from fairlead.conformance.child import Target
from fairlead.conformance.device import choose
from fairlead.conformance.ur.spirv import store
from fairlead.conformance.ze.calls import Calls, new
from fairlead.conformance.ze.kernels import IMAGE_SOURCE, SOURCE
from fairlead.conformance.ze.objects import Objects
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.search import Candidate
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice, ZEDriver, load

_MUTABLE = "ZE_experimental_mutable_command_list"


def open_library(target: Target) -> ZEDriver:
    """Open and initialize the library.

    Raises:
        FairleadError: it has no device.
    """
    driver = load(Candidate(target.library, "conformance"))
    if driver.idle:
        raise FairleadError(driver.idle, remedy=driver.remedy)
    if target.device:
        _choose(driver, target.device)
    return driver


@dataclass(frozen=True, eq=False)
class Listed:
    """A device as device selectors see it."""

    device: ZEDevice
    backend: str = "level_zero"

    @property
    def name(self) -> str:
        """The device's name."""
        return self.device.name

    @property
    def type(self) -> str:
        """ "cpu", "gpu", or another name, which no selector matches."""
        return self.device.type.lower()

    def sub_devices(self) -> Sequence[Listed]:
        """Always empty: the suite does not divide a device to test its parts."""
        return ()


def _choose(driver: ZEDriver, text: str) -> ZEDevice:
    return choose([Listed(device) for device in driver.devices], text).device


@pytest.fixture(scope="session")
def chosen(target: Target) -> ZEDevice:
    """The device under test."""
    found = _choose(target.opened, target.device)
    target.about(driver=f"Level Zero {target.opened.api_version}", device=found.name)
    return found


@pytest.fixture(scope="session")
def ze(chosen: ZEDevice, target: Target) -> Calls:
    """The driver's functions."""
    calls, version = Calls(chosen.driver.table), ctypes.c_uint32()
    ask = "zeDriverGetApiVersion", chosen.driver_handle, byref(version)
    target.answer = lambda: calls.number(*ask)
    return calls


@pytest.fixture(scope="session")
def device(chosen: ZEDevice) -> int:
    """The handle of the device under test."""
    return chosen.handle


@pytest.fixture(scope="session")
def context(target: Target, ze: Calls, chosen: ZEDevice) -> int:
    """The session's context."""
    made = ze.made("zeContextCreate", chosen.driver_handle, byref(new("ze_context_desc_t")))
    target.at_end(lambda: ze.number("zeContextDestroy", made))
    return made


@pytest.fixture(scope="session")
def build(ze: Calls, context: int, device: int) -> Callable[[int, bytes], int]:
    """Builds a module of a ze_module_format_t. It returns 0 if the driver refuses."""

    def module(kind: int, data: bytes) -> int:
        given, made = ctypes.create_string_buffer(data, len(data)), ctypes.c_void_p()
        desc = new("ze_module_desc_t", format=kind, inputSize=len(data), pInputModule=given)
        code = ze.number("zeModuleCreate", context, device, byref(desc), byref(made), None)
        return 0 if code else made.value or 0

    return module


@pytest.fixture(scope="session")
def module(build: Callable[[int, bytes], int]) -> Callable[[str], int]:
    """Returns the module that has a kernel."""

    @cache
    def all_kernels(source: bytes) -> int:
        return build(ZE["ZE_MODULE_FORMAT_NATIVE"], source)

    @cache
    def one_kernel() -> int:
        return build(ZE["ZE_MODULE_FORMAT_IL_SPIRV"], store())

    def find(name: str) -> int:
        source = IMAGE_SOURCE if f"void {name}(".encode() in IMAGE_SOURCE else SOURCE
        found = all_kernels(source) or (one_kernel() if name == "store" else 0)
        return found or unsupported(f"the driver takes no module that has the kernel {name}")

    return find


@pytest.fixture
def make(ze: Calls, context: int, device: int, module: Callable[[str], int]) -> Iterator[Objects]:
    """Makes a case's objects."""
    objects = Objects(ze, context, device, module)
    yield objects
    objects.close()


@pytest.fixture
def queue(make: Objects) -> int:
    """A command queue."""
    return make.queue()


@pytest.fixture(scope="session")
def mutable(chosen: ZEDevice, ze: Calls) -> int:
    """What of commands the device can change, ze_mutable_command_exp_flags_t."""
    if _MUTABLE not in chosen.driver.extensions:
        unsupported(f"the driver has no {_MUTABLE}")
    row: Any = new("ze_mutable_command_list_exp_properties_t")
    properties = new("ze_device_properties_t", pNext=row)
    ze.ok("zeDeviceGetProperties", chosen.handle, byref(properties))
    return row.mutableCommandFlags
