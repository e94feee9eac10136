"""Every function of the table with NULL and 0 for every argument.

It must answer an error that the specification lists, and not crash. The specification does not say
which of several errors comes first. So any error for a NULL handle is right, and CL_INVALID_VALUE
and its like for the other arguments.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import expect, failed, forked, rule, unsupported
from fairlead.icd.abi import OPENCL, TAG_SLOTS
from fairlead.icd.objects import CLPlatform
from fairlead.loader.base.abi import Function
from fairlead.loader.base.table import DispatchTable

INVALID = {
    "cl_device_id": "CL_INVALID_DEVICE",
    "cl_context": "CL_INVALID_CONTEXT",
    "cl_command_queue": "CL_INVALID_COMMAND_QUEUE",
    "cl_mem": "CL_INVALID_MEM_OBJECT",
    "cl_sampler": "CL_INVALID_SAMPLER",
    "cl_program": "CL_INVALID_PROGRAM",
    "cl_kernel": "CL_INVALID_KERNEL",
    "cl_event": "CL_INVALID_EVENT",
}
#: Further errors that zeros may cause, by the names of parameters.
BESIDES = {
    "size": "CL_INVALID_BUFFER_SIZE",
    "work_dim": "CL_INVALID_WORK_DIMENSION",
    "global_work_size": "CL_INVALID_GLOBAL_WORK_SIZE",
    "image_format": "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "image_desc": "CL_INVALID_IMAGE_DESCRIPTOR",
    "image_width": "CL_INVALID_IMAGE_SIZE",
    "arg_index": "CL_INVALID_ARG_INDEX",
    "device_type": "CL_INVALID_DEVICE_TYPE",
    "pipe_packet_size": "CL_INVALID_PIPE_SIZE",
    "spec_id": "CL_INVALID_SPEC_ID",
}
#: A function may answer that the device does not support it.
OPTIONAL = (
    *("clCreatePipe", "clGetPipeInfo", "clSetDefaultDeviceCommandQueue", "clCreateProgramWithIL"),
    *(
        "clSetProgramSpecializationConstant",
        "clSetProgramReleaseCallback",
        "clGetDeviceAndHostTimer",
        "clGetHostTimer",
    ),
)
#: These functions have nothing to refuse: NULL is the default platform, or there is nothing to free
#: or to find.
_NOTHING = (
    *("clUnloadPlatformCompiler", "clSVMFree"),
    *("clGetExtensionFunctionAddress", "clGetExtensionFunctionAddressForPlatform"),
)


def list_functions() -> list[Function]:
    """Return the core functions that have something to refuse.

    What a NULL platform means is up to the implementation.
    """
    found = []
    for function in OPENCL.slots:
        is_extension = function.name.endswith(("KHR", "EXT")) or "GL" in function.name
        of_platform = any(parameter.type == "cl_platform_id" for parameter in function.parameters)
        if not (
            is_extension
            or of_platform
            or function.name in _NOTHING
            or function.slot in (*TAG_SLOTS, 13)
        ):
            found.append(function)
    return found


def list_errors(function: Function) -> set[str]:
    """Return the errors that zeros may cause."""
    codes = {INVALID[p.type] for p in function.parameters if p.type in INVALID}
    codes |= {BESIDES[p.name] for p in function.parameters if p.name in BESIDES}
    if len(function.parameters) > 1 + (function.error_channel == "errcode_ret"):
        codes.add("CL_INVALID_VALUE")
    return codes | ({"CL_INVALID_OPERATION"} if function.name in OPTIONAL else set())


@forked
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(f, id=f.name, marks=rule(f.name, "an error if everything is NULL or 0"))
        for f in list_functions()
    ],
)
def test_null(cl: DispatchTable, platform: CLPlatform, function: Function) -> None:
    if function.since > platform.version_number:
        unsupported(f"it came with OpenCL {function.since[0]}.{function.since[1]}")
    code = ctypes.c_int32(0)
    scalars = [
        None if p.stars or p.type == "callback" or function.api.resolve(p.type) == "handle" else 0
        for p in function.parameters
    ]
    if function.error_channel == "errcode_ret":
        result = getattr(cl, function.name)(*scalars[:-1], ctypes.byref(code))
        if result:
            failed("NULL", "an object")
        expect(OPENCL, code.value, *sorted(list_errors(function)))
    elif function.error_channel == "return":
        expect(OPENCL, getattr(cl, function.name)(*scalars), *sorted(list_errors(function)))
    elif getattr(cl, function.name)(*scalars):
        failed("NULL", "something else")
