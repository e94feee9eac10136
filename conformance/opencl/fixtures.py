"""The objects that cases for OpenCL drivers use. Handles are ints.

Building takes time, so the context and the program belong to the session. Queues, buffers and
kernels belong to a case, which makes them with `objects`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from fairlead.conformance.checks import unsupported
from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.device import choose_root
from fairlead.conformance.opencl.commands import EXTENSION, MUTABLE, CLRecorder, CommandBuffers
from fairlead.conformance.opencl.mutable import Mutable
from fairlead.conformance.opencl.objects import OUT_OF_ORDER, SOURCE, CLObjects
from fairlead.conformance.opencl.protocol import Protocol
from fairlead.icd.abi import OPENCL
from fairlead.icd.drivers import Driver, load
from fairlead.icd.objects import CLDevice, CLPlatform
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.search import Candidate
from fairlead.loader.base.table import DispatchTable


def open_library(target: LibraryUnderTest) -> Protocol:
    """Open the library. A case binds it at first use, or this function if a device is asked for.

    Raises:
        FairleadError: the library is a loader that its symbols did not reveal. Every case would
            fail.
    """
    protocol = Protocol.open(target.library)
    if protocol.library.find_own_symbol(
        "clGetExtensionFunctionAddress"
    ) and protocol.extension_function("clGetICDLoaderInfoOCLICD"):
        raise FairleadError(
            "it is an OpenCL loader, not a driver", remedy="name a driver that it leads to"
        )
    if target.device:
        choose_of(load(Candidate(target.library, "conformance")), target.device)
    return protocol


def choose_of(driver: Driver, text: str) -> CLDevice:
    """Return the device that `--device` names, of the devices of all platforms."""
    devices = [device for platform in driver.platforms for device in platform.devices]
    return choose_root(devices, "opencl", text)


@pytest.fixture(scope="session")
def protocol(target: LibraryUnderTest) -> Protocol:
    """The library as a loader meets it, before anything is bound."""
    return target.opened


@pytest.fixture(scope="session")
def driver(target: LibraryUnderTest) -> Driver:
    """The open driver."""
    return load(Candidate(target.library, "conformance"))


@pytest.fixture(scope="session")
def chosen(target: LibraryUnderTest, driver: Driver) -> CLDevice:
    """The device under test."""
    device = choose_of(driver, target.device)
    ask, platform = device.table.clGetPlatformInfo, device.platform.handle
    target.answer = lambda: ask(
        platform, OPENCL["CL_PLATFORM_NAME"], 0, None, ctypes.byref(ctypes.c_size_t())
    )
    target.report_facts(platform=device.platform.version, device=device.name)
    return device


@pytest.fixture(scope="session")
def platform(chosen: CLDevice) -> CLPlatform:
    """The platform of the device under test, an `icd.objects.CLPlatform`."""
    return chosen.platform


@pytest.fixture(scope="session")
def cl(chosen: CLDevice) -> DispatchTable:
    """The platform's table."""
    return chosen.table


@pytest.fixture(scope="session")
def make_objects(cl: DispatchTable, device: int) -> Callable[..., CLObjects]:
    """Returns a maker of objects: `make_objects(context)`."""
    return partial(CLObjects, cl, device)


@pytest.fixture(scope="session")
def device(chosen: CLDevice) -> int:
    """The handle of the device under test."""
    return chosen.handle


@pytest.fixture(scope="session")
def shared(target: LibraryUnderTest, make_objects: Callable[..., CLObjects]) -> CLObjects:
    """Makes the session's objects, and has the session's context."""
    objects = make_objects()
    target.at_end(objects.close)
    objects.context = objects.new_context()
    return objects


@pytest.fixture(scope="session")
def context(shared: CLObjects) -> int:
    """The session's context."""
    return shared.context


@pytest.fixture
def bare_objects(make_objects: Callable[..., CLObjects], context: int) -> Iterator[CLObjects]:
    """Makes a case's objects, without a program."""
    objects = make_objects(context)
    yield objects
    objects.close()


@pytest.fixture
def objects(bare_objects: CLObjects, program: int) -> CLObjects:
    """Makes a case's objects, with the program."""
    bare_objects.program = program
    return bare_objects


@pytest.fixture
def queue(bare_objects: CLObjects) -> int:
    """An in-order queue."""
    return bare_objects.queue()


@pytest.fixture(scope="session")
def program(shared: CLObjects) -> int:
    """The program with the kernels of objects.SOURCE, built."""
    shared.program = shared.build(SOURCE)
    return shared.program


@pytest.fixture(scope="session")
def commands(chosen: CLDevice) -> CommandBuffers:
    """cl_khr_command_buffer of the device."""
    if EXTENSION not in chosen.extensions:
        unsupported(f"the device has no {EXTENSION}")
    return CommandBuffers(chosen)


@pytest.fixture
def out_of_order(chosen: CLDevice, bare_objects: CLObjects) -> int:
    """An out-of-order queue."""
    if not chosen.info("CL_DEVICE_QUEUE_ON_HOST_PROPERTIES") & OUT_OF_ORDER:
        unsupported("the device has no queues out of order (CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)")
    return bare_objects.queue(OUT_OF_ORDER)


@pytest.fixture
def recorder(commands: CommandBuffers, objects: CLObjects, queue: int) -> CLRecorder:
    """A command-buffer on the in-order queue, being recorded."""
    return CLRecorder(commands, objects, queue)


@pytest.fixture(scope="session")
def mutable_version(commands: CommandBuffers) -> tuple[int, int, int]:
    """The version of cl_khr_command_buffer_mutable_dispatch."""
    if not any(commands.mutable_version):
        unsupported(f"the device has no {MUTABLE}")
    return commands.mutable_version


@pytest.fixture
def mutable(
    commands: CommandBuffers, mutable_version: tuple[int, int, int], objects: CLObjects, queue: int
) -> Mutable:
    """An updatable command-buffer on the in-order queue, being recorded."""
    return Mutable(commands, objects, queue)
