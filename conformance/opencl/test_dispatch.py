"""Dispatch pointers: every object begins with its platform's table; in ICD 2 it has the loader's
data."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import (
    beyond_specification,
    equal,
    expect,
    failed,
    forked,
    rule,
    unsupported,
)
from fairlead.conformance.opencl.commands import CommandBuffers
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.conformance.opencl.protocol import GET_FUNCTION, SET_DATA, Protocol
from fairlead.icd.abi import OPENCL
from fairlead.icd.objects import CLDevice, CLPlatform
from fairlead.loader.base.memory import POINTER_SIZE, read_word

#: The kinds of objects that every device has, and how one is made.
MADE: dict[str, tuple[str, Callable[[CLObjects], int]]] = {
    "context": ("clCreateContext", lambda objects: objects.new_context()),
    "context-from-type": (
        "clCreateContextFromType",
        lambda objects: _make_context_from_type(objects),
    ),
    "queue": ("clCreateCommandQueue", lambda objects: objects.queue()),
    "queue-with-properties": (
        "clCreateCommandQueueWithProperties",
        lambda objects: _make_queue_with_properties(objects),
    ),
    "buffer": ("clCreateBuffer", lambda objects: objects.buffer([1])),
    "sub-buffer": ("clCreateSubBuffer", lambda objects: _make_sub_buffer(objects)),
    "sampler": ("clCreateSampler", lambda objects: _make_sampler(objects)),
    "image": ("clCreateImage", lambda objects: _make_image(objects)),
    "pipe": ("clCreatePipe", lambda objects: _make_pipe(objects)),
    "program": ("clCreateProgramWithSource", lambda objects: objects.program),
    "program-from-binary": (
        "clCreateProgramWithBinary",
        lambda objects: _make_program_from_binary(objects),
    ),
    "kernel": ("clCreateKernel", lambda objects: objects.kernel("increment")),
    "kernel-in-program": (
        "clCreateKernelsInProgram",
        lambda objects: _make_kernels_in_program(objects),
    ),
    "cloned-kernel": ("clCloneKernel", lambda objects: _clone_kernel(objects)),
    "event": ("clEnqueueMarkerWithWaitList", lambda objects: _make_event(objects)),
    "user-event": ("clCreateUserEvent", lambda objects: objects.user_event()),
    "sub-device": ("clCreateSubDevices", lambda objects: _make_sub_device(objects)),
}


@rule(
    "clGetDeviceIDs",
    "a device's first word is its platform's table; with ICD 2 the second is the platform's "
    "dispatch data",
)
def test_devices(platform: CLPlatform) -> None:
    for device in platform.devices:
        _check_words(platform, device.handle)


#: The kinds that need the program.
OF_PROGRAM = ("program", "program-from-binary", "kernel", "kernel-in-program", "cloned-kernel")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind, marks=rule(name, "the object has its platform's words"))
        for kind, (name, _) in MADE.items()
    ],
)
def test_objects(
    kind: str, bare_objects: CLObjects, platform: CLPlatform, request: pytest.FixtureRequest
) -> None:
    if kind in OF_PROGRAM:
        bare_objects.program = request.getfixturevalue("program")
    _, make = MADE[kind]
    _check_words(platform, make(bare_objects))


@rule(
    "clCreateCommandBufferKHR",
    "the object has its platform's words, as all objects that are created from ICD compatible ones",
)
def test_command_buffer(
    bare_objects: CLObjects, queue: int, commands: CommandBuffers, platform: CLPlatform
) -> None:
    _check_words(platform, commands.create(bare_objects, queue))


@rule("clGetContextInfo", "the devices of a context are those it was made for")
def test_devices_of_a_context(bare_objects: CLObjects, device: int) -> None:
    equal(
        bare_objects.number("clGetContextInfo", bare_objects.context, "CL_CONTEXT_DEVICES"),
        device,
        "CL_CONTEXT_DEVICES",
    )


def _check_words(platform: CLPlatform, handle: int) -> None:
    equal(read_word(handle), read_word(platform.handle), "the first word")
    if platform.icd_version == 2:
        equal(
            read_word(handle + POINTER_SIZE),
            read_word(platform.handle + POINTER_SIZE),
            "the second word",
        )


def _make_context_from_type(objects: CLObjects) -> int:
    platform = objects.number("clGetDeviceInfo", objects.device, "CL_DEVICE_PLATFORM")
    properties = (ctypes.c_ssize_t * 3)(OPENCL["CL_CONTEXT_PLATFORM"], platform, 0)
    return objects.make(
        "clCreateContextFromType", properties, OPENCL["CL_DEVICE_TYPE_ALL"], None, None
    )


def _make_queue_with_properties(objects: CLObjects) -> int:
    _require_version(objects, (2, 0))
    return objects.make("clCreateCommandQueueWithProperties", objects.context, objects.device, None)


def _make_sub_buffer(objects: CLObjects) -> int:
    region = OPENCL.get_struct("cl_buffer_region")(0, 16)
    arguments = (0, OPENCL["CL_BUFFER_CREATE_TYPE_REGION"], ctypes.byref(region))
    return objects.make("clCreateSubBuffer", objects.buffer(range(64)), *arguments)


def _make_sampler(objects: CLObjects) -> int:
    _require_images(objects)
    arguments = (False, OPENCL["CL_ADDRESS_CLAMP"], OPENCL["CL_FILTER_NEAREST"])
    return objects.make("clCreateSampler", objects.context, *arguments)


def _make_image(objects: CLObjects) -> int:
    _require_images(objects)
    return objects.image(4, 4)


def _make_pipe(objects: CLObjects) -> int:
    _require_version(objects, (2, 0))
    if not objects.number("clGetDeviceInfo", objects.device, "CL_DEVICE_MAX_PIPE_ARGS"):
        unsupported("the device has no pipes (CL_DEVICE_MAX_PIPE_ARGS)")
    flags = OPENCL["CL_MEM_READ_WRITE"] | OPENCL["CL_MEM_HOST_NO_ACCESS"]
    return objects.make("clCreatePipe", objects.context, flags, 4, 16, None)


def _make_program_from_binary(objects: CLObjects) -> int:
    length = objects.number("clGetProgramInfo", objects.program, "CL_PROGRAM_BINARY_SIZES")
    binary = (ctypes.c_ubyte * length)()
    pointer = handles(ctypes.addressof(binary))
    objects.call(
        "clGetProgramInfo",
        objects.program,
        OPENCL["CL_PROGRAM_BINARIES"],
        ctypes.sizeof(pointer),
        pointer,
        None,
    )
    device = handles(objects.device)
    return objects.make(
        "clCreateProgramWithBinary", objects.context, 1, device, sizes(length), pointer, None
    )


def _make_kernels_in_program(objects: CLObjects) -> int:
    count = ctypes.c_uint32()
    objects.call("clCreateKernelsInProgram", objects.program, 0, None, count)
    kernels = (ctypes.c_void_p * count.value)()
    objects.call("clCreateKernelsInProgram", objects.program, len(kernels), kernels, None)
    return [objects.owned(kernel or 0, "cl_kernel") for kernel in kernels][-1]


def _clone_kernel(objects: CLObjects) -> int:
    _require_version(objects, (2, 1))
    return objects.make("clCloneKernel", objects.kernel("increment"))


def _make_event(objects: CLObjects) -> int:
    event = ctypes.c_void_p()
    objects.call("clEnqueueMarkerWithWaitList", objects.queue(), 0, None, ctypes.byref(event))
    return objects.owned(event.value or 0, "cl_event")


def _make_sub_device(objects: CLObjects) -> int:
    if objects.number("clGetDeviceInfo", objects.device, "CL_DEVICE_PARTITION_MAX_SUB_DEVICES") < 2:
        unsupported("the device cannot be partitioned (CL_DEVICE_PARTITION_MAX_SUB_DEVICES)")
    properties = (ctypes.c_ssize_t * 3)(OPENCL["CL_DEVICE_PARTITION_EQUALLY"], 1, 0)
    count = ctypes.c_uint32()
    objects.call("clCreateSubDevices", objects.device, properties, 0, None, count)
    devices = (ctypes.c_void_p * count.value)()
    objects.call("clCreateSubDevices", objects.device, properties, len(devices), devices, None)
    for device in devices:
        objects.owned(device or 0, "cl_device_id")
    return devices[0] or 0


def _require_version(objects: CLObjects, version: tuple[int, int]) -> None:
    if objects.version < version:
        unsupported(f"the device is of OpenCL {objects.version[0]}.{objects.version[1]}")


def _require_images(objects: CLObjects) -> None:
    if not objects.number("clGetDeviceInfo", objects.device, "CL_DEVICE_IMAGE_SUPPORT"):
        unsupported("the device has no images (CL_DEVICE_IMAGE_SUPPORT)")


# Extension functions

#: The functions of extensions that have no slot in the table.
EXTENSIONS = {
    "cl_khr_subgroups": "clGetKernelSubGroupInfoKHR",
    "cl_khr_il_program": "clCreateProgramWithILKHR",
    "cl_khr_create_command_queue": "clCreateCommandQueueWithPropertiesKHR",
    "cl_khr_suggested_local_work_size": "clGetKernelSuggestedLocalWorkSizeKHR",
    "cl_ext_device_fission": "clCreateSubDevicesEXT clRetainDeviceEXT clReleaseDeviceEXT",
    "cl_khr_command_buffer_mutable_dispatch": (
        "clUpdateMutableCommandsKHR clGetMutableCommandInfoKHR"
    ),
    "cl_khr_command_buffer_multi_device": "clRemapCommandBufferKHR",
    "cl_intel_unified_shared_memory": (
        "clHostMemAllocINTEL clDeviceMemAllocINTEL clSharedMemAllocINTEL clMemFreeINTEL "
        "clMemBlockingFreeINTEL clGetMemAllocInfoINTEL clSetKernelArgMemPointerINTEL "
        "clEnqueueMemFillINTEL clEnqueueMemcpyINTEL "
        "clEnqueueMigrateMemINTEL clEnqueueMemAdviseINTEL"
    ),
}
ADDRESS = "clGetExtensionFunctionAddressForPlatform"


@rule(ADDRESS, "gives every function of an extension that the device lists")
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_extension_functions(chosen: CLDevice, extension: str) -> None:
    if extension not in chosen.extensions:
        unsupported(f"the device has no {extension}")
    missing = [
        name
        for name in EXTENSIONS[extension].split()
        if not chosen.platform.extension_function(name)
    ]
    equal(missing, [], "functions that are NULL")


@rule(ADDRESS, "gives every function of cl_khr_command_buffer that the extension's version has")
def test_command_buffer_functions(commands: CommandBuffers) -> None:
    equal(commands.missing(), [], "functions that are NULL")


@forked
@rule(ADDRESS, "gives NULL for an unknown function")
@pytest.mark.parametrize("name", ["clNoSuchFunctionXYZ", ""])
def test_unknown_extension_function(cl: Any, platform: CLPlatform, name: str) -> None:
    if platform.version_number < (1, 2):
        unsupported("the platform is older than OpenCL 1.2")
    equal(
        cl.clGetExtensionFunctionAddressForPlatform(platform.handle, name.encode()),
        None,
        f"the address of {name!r}",
    )


# ICD 2


@pytest.fixture
def icd2(protocol: Protocol, platform: CLPlatform) -> Protocol:
    """The protocol of a driver that speaks ICD 2."""
    if platform.icd_version != 2:
        unsupported("the driver speaks ICD 1")
    return protocol


@rule(GET_FUNCTION, "gives NULL for an unknown function")
def test_unknown_function(icd2: Protocol, platform: CLPlatform) -> None:
    equal(icd2.function(GET_FUNCTION)(platform.handle, b"clNoSuchFunction"), None, "the address")


@forked
@rule(GET_FUNCTION, "gives NULL if platform is not valid")
def test_function_of_no_platform(icd2: Protocol) -> None:
    equal(icd2.function(GET_FUNCTION)(None, b"clGetPlatformInfo"), None, "the address")


@forked
@rule(SET_DATA, "CL_INVALID_PLATFORM if platform is not valid")
def test_data_of_no_platform(icd2: Protocol, platform: CLPlatform) -> None:
    expect(OPENCL, icd2.function(SET_DATA)(None, platform.table.address), "CL_INVALID_PLATFORM")


@rule(SET_DATA, "the data is stored in the platform's second word")
def test_data_is_stored(platform: CLPlatform, icd2: Protocol) -> None:
    equal(read_word(platform.handle + POINTER_SIZE), platform.table.address, "the second word")


@beyond_specification
@rule(SET_DATA, "another loader's data replaces that of the first one, in the devices too")
def test_data_again(icd2: Protocol, platform: CLPlatform) -> None:
    call, ours = icd2.function(SET_DATA), platform.table.address
    words = (ctypes.c_void_p * len(OPENCL.slots)).from_address(ours)
    theirs = (ctypes.c_void_p * len(OPENCL.slots))(*words)
    try:
        expect(OPENCL, call(platform.handle, ctypes.addressof(theirs)), "CL_SUCCESS")
        for handle in (platform.handle, *(device.handle for device in platform.devices)):
            if read_word(handle + POINTER_SIZE) != ctypes.addressof(theirs):
                failed("the second word is the new data", "the old data")
    finally:
        call(platform.handle, ours)
