"""The objects that cases for Level Zero drivers use. Handles are ints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref
from functools import cache, partial
from typing import Any, Final

import pytest

from fairlead.conformance.checks import unsupported
from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.device import choose_root
from fairlead.conformance.ur.spirv import make_store
from fairlead.conformance.ze.calls import ZECalls, new
from fairlead.conformance.ze.objects import ZEObjects
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.search import Candidate
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice, ZEDriver, load

#: A driver that takes SPIR-V gets a module with `store` alone (ur/spirv.py). One that takes OpenCL
#: C as its native format gets all of these. Those of images are a module of their own, because a
#: device may have no images.
SOURCE: Final = b"""
kernel void store(global int *out, int value) { out[get_global_id(0)] = value; }
kernel void twice(global int *out) { out[get_global_id(0)] *= 2; }
kernel void sizes(global int *out) { out[get_global_id(0)] = get_local_size(0); }
kernel void sums(global int *out, local int *scratch) {
    scratch[get_local_id(0)] = get_local_id(0) + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int i = 0; i < get_local_size(0); i++) sum += scratch[i];
    out[get_global_id(0)] = sum;
}
"""
IMAGE_SOURCE: Final = b"""
kernel void flip(read_only image2d_t from, write_only image2d_t to, sampler_t sampler) {
    int x = get_global_id(0), last = get_image_width(from) - 1;
    write_imageui(to, (int2)(last - x, 0), read_imageui(from, sampler, (int2)(x, 0)));
}
kernel void reds(read_only image1d_buffer_t from, global int *out) {
    out[get_global_id(0)] = read_imageui(from, (int)get_global_id(0)).x;
}
"""


_MUTABLE = "ZE_experimental_mutable_command_list"


def open_library(target: LibraryUnderTest) -> ZEDriver:
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


def _choose(driver: ZEDriver, text: str) -> ZEDevice:
    return choose_root(driver.devices, "level_zero", text)


@pytest.fixture(scope="session")
def chosen(target: LibraryUnderTest) -> ZEDevice:
    """The device under test."""
    found = _choose(target.opened, target.device)
    target.report_facts(driver=f"Level Zero {target.opened.api_version}", device=found.name)
    return found


@pytest.fixture(scope="session")
def ze(chosen: ZEDevice, target: LibraryUnderTest) -> ZECalls:
    """The driver's functions."""
    calls, version = ZECalls(chosen.driver.table), ctypes.c_uint32()
    ask = "zeDriverGetApiVersion", chosen.driver_handle, byref(version)
    target.answer = lambda: calls.number(*ask)
    return calls


@pytest.fixture(scope="session")
def device(chosen: ZEDevice) -> int:
    """The handle of the device under test."""
    return chosen.handle


@pytest.fixture(scope="session")
def context(target: LibraryUnderTest, ze: ZECalls, chosen: ZEDevice) -> int:
    """The session's context."""
    made = ze.create("zeContextCreate", chosen.driver_handle, new("ze_context_desc_t"))
    target.at_end(lambda: ze.number("zeContextDestroy", made))
    return made


def _build(ze: ZECalls, context: int, device: int, kind: int, data: bytes) -> int:
    given, made = ctypes.create_string_buffer(data, len(data)), ctypes.c_void_p()
    desc = new("ze_module_desc_t", format=kind, inputSize=len(data), pInputModule=given)
    code = ze.number("zeModuleCreate", context, device, desc, made)
    return 0 if code else made.value or 0


@pytest.fixture(scope="session")
def build(ze: ZECalls, context: int, device: int) -> Callable[[int, bytes], int]:
    """Builds a module of a ze_module_format_t. It returns 0 if the driver refuses."""
    return partial(_build, ze, context, device)


@pytest.fixture(scope="session")
def module_of(ze: ZECalls) -> Callable[[int, int, str], int]:
    """Returns the module of a context and a device that has a kernel."""

    @cache
    def find(context: int, device: int, name: str) -> int:
        source = IMAGE_SOURCE if f"void {name}(".encode() in IMAGE_SOURCE else SOURCE
        found = build_source(context, device, source)
        if not found and name == "store":
            found = _build(ze, context, device, ZE["ZE_MODULE_FORMAT_IL_SPIRV"], make_store())
        return found or unsupported(f"the driver takes no module that has the kernel {name}")

    @cache
    def build_source(context: int, device: int, source: bytes) -> int:
        return _build(ze, context, device, ZE["ZE_MODULE_FORMAT_NATIVE"], source)

    return find


@pytest.fixture(scope="session")
def module(
    context: int, device: int, module_of: Callable[[int, int, str], int]
) -> Callable[[str], int]:
    """Returns the module that has a kernel."""
    return partial(module_of, context, device)


@pytest.fixture
def make(
    ze: ZECalls, context: int, device: int, module: Callable[[str], int]
) -> Iterator[ZEObjects]:
    """Makes a case's objects."""
    objects = ZEObjects(ze, context, device, module)
    yield objects
    objects.close()


@pytest.fixture
def queue(make: ZEObjects) -> int:
    """A command queue."""
    return make.queue()


@pytest.fixture(scope="session")
def mutable(chosen: ZEDevice, ze: ZECalls) -> int:
    """The parts of a command that the device can change: ze_mutable_command_exp_flags_t."""
    if _MUTABLE not in chosen.driver.extensions:
        unsupported(f"the driver has no {_MUTABLE}")
    row: Any = new("ze_mutable_command_list_exp_properties_t")
    properties = new("ze_device_properties_t", pNext=row)
    ze.ok("zeDeviceGetProperties", chosen.handle, properties)
    return row.mutableCommandFlags
