"""Programs and kernels: building, arguments, clones, ND-ranges."""

from __future__ import annotations

import ctypes
import sys

import pytest

from fairlead.conformance.arrays import handles, ints, sizes
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.opencl.commands import expect_code
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.conformance.opencl.shared_cases import global_ids
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.table import DispatchTable

LAUNCH = "clEnqueueNDRangeKernel"


@rule("clBuildProgram", "CL_BUILD_PROGRAM_FAILURE for a wrong program, whose log says why")
def test_build_failure(bare_objects: CLObjects) -> None:
    objects = bare_objects
    strings = (ctypes.c_char_p * 1)(b"kernel void broken(global int *a) { a[0] = no_such_name; }")
    program = objects.make("clCreateProgramWithSource", objects.context, 1, strings, None)
    expect_code(
        objects.cl.clBuildProgram(program, 1, handles(objects.device), b"", None, None),
        "CL_BUILD_PROGRAM_FAILURE",
    )
    log = objects.info("clGetProgramBuildInfo", program, objects.device, "CL_PROGRAM_BUILD_LOG")
    equal(b"no_such_name" in log, True, "the log names what is wrong")
    status = objects.info(
        "clGetProgramBuildInfo", program, objects.device, "CL_PROGRAM_BUILD_STATUS"
    )
    equal(
        int.from_bytes(status, sys.byteorder, signed=True), OPENCL["CL_BUILD_ERROR"], "the status"
    )


@rule("clCreateKernel", "CL_INVALID_KERNEL_NAME for a kernel that there is not")
def test_kernel_name(objects: CLObjects, cl: DispatchTable) -> None:
    code = ctypes.c_int32()
    equal(
        cl.clCreateKernel(objects.program, b"no_such_kernel", ctypes.byref(code)),
        None,
        "the kernel",
    )
    expect_code(code.value, "CL_INVALID_KERNEL_NAME")


@rule("clGetKernelInfo", "says name, arguments and program")
def test_kernel_info(objects: CLObjects) -> None:
    kernel = objects.kernel("add")
    name = objects.info("clGetKernelInfo", kernel, "CL_KERNEL_FUNCTION_NAME")
    numbers = [
        objects.number("clGetKernelInfo", kernel, f"CL_KERNEL_{what}")
        for what in ("NUM_ARGS", "PROGRAM", "CONTEXT")
    ]
    equal((name, numbers), (b"add\0", [2, objects.program, objects.context]), "the answers")


#: Index, size and value of an argument of `add(global int *, int)`, and the expected code.
ARGUMENTS = {
    "index": (2, 4, ints([0]), "CL_INVALID_ARG_INDEX"),
    "size-of-a-value": (1, 8, ints([0, 0]), "CL_INVALID_ARG_SIZE"),
    "size-of-a-buffer": (0, 4, ints([0]), "CL_INVALID_ARG_SIZE"),
    "no-value": (1, 4, None, "CL_INVALID_ARG_VALUE"),
}


@rule("clSetKernelArg", "refuses wrong indices, sizes and values")
@pytest.mark.parametrize("case", ARGUMENTS)
def test_argument_errors(objects: CLObjects, case: str) -> None:
    index, size, value, expected = ARGUMENTS[case]
    expect_code(objects.cl.clSetKernelArg(objects.kernel("add"), index, size, value), expected)


@rule("clCloneKernel", "a clone keeps the arguments of its time, and each has its own from then on")
def test_clone(objects: CLObjects, queue: int) -> None:
    if objects.version < (2, 1):
        unsupported("there is no clCloneKernel before OpenCL 2.1")
    buffer = objects.buffer([0] * 8)
    kernel = objects.kernel("add", buffer, ctypes.c_int32(1))
    clone = objects.make("clCloneKernel", kernel)
    objects.set_argument(kernel, 1, ctypes.c_int32(100))
    second = objects.make("clCloneKernel", kernel)
    objects.set_argument(second, 1, ctypes.c_int32(10000))
    for one in (clone, kernel, second):
        objects.launch(queue, one, 8)
    equal(objects.read(queue, buffer), [10101] * 8, "the buffer")


@rule("clCloneKernel", "a clone outlives its kernel")
def test_clone_outlives(objects: CLObjects, queue: int) -> None:
    if objects.version < (2, 1):
        unsupported("there is no clCloneKernel before OpenCL 2.1")
    buffer, inner = objects.buffer([0] * 8), objects.new_maker()
    clone = objects.make("clCloneKernel", inner.kernel("increment", buffer))
    inner.close()
    objects.launch(queue, clone, 8)
    equal(objects.read(queue, buffer), [1] * 8, "the buffer")


@rule(LAUNCH, "CL_INVALID_KERNEL_ARGS if an argument has not been set")
def test_arguments_not_set(objects: CLObjects, queue: int) -> None:
    code = objects.cl.clEnqueueNDRangeKernel(
        queue, objects.kernel("add"), 1, None, sizes(1), None, 0, None, None
    )
    expect_code(code, "CL_INVALID_KERNEL_ARGS")


@rule(LAUNCH, "uses offset, sizes and dimensions")
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_range(objects: CLObjects, queue: int, dimensions: int) -> None:
    size, offset, expected = global_ids(dimensions)
    buffer = objects.buffer([0] * len(expected))
    arguments = (dimensions, sizes(*offset), sizes(*size), None, 0, None, None)
    objects.call(LAUNCH, queue, objects.kernel("ids", buffer), *arguments)
    equal(objects.read(queue, buffer), expected, "the ids")


@rule(LAUNCH, "a kernel has the arguments of the time of the call")
def test_arguments_of_each(objects: CLObjects, queue: int) -> None:
    buffer = objects.buffer([0] * 8)
    kernel = objects.kernel("add", buffer)
    for value in (1, 20, 300):
        objects.set_argument(kernel, 1, ctypes.c_int32(value))
        objects.launch(queue, kernel, 8)
    equal(objects.read(queue, buffer), [321] * 8, "the buffer")
