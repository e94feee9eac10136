"""Kernels of the reference adapter: what they are asked, their arguments, settings and suggested
sizes."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from helpers.launching import (
    LOCAL,
    MEM,
    POINTER,
    SAMPLER,
    VALUE,
    Numbers,
    Row,
    has_usm_extension,
    is_intel,
    launch,
    native,
    opencl,
    program_of,
    references,
    rows,
    sizes,
)
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR, URError
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as own
from fairlead.plugins.opencl.kernel_info import declare_memory, suggest_local_size
from fairlead.plugins.opencl.kernels import URKernel, URKernelArgument
from fairlead.plugins.sdk._native import lib as own_lib

pytestmark = pytest.mark.usefixtures("begins_in")


@pytest.fixture
def kernel(ur: Calls, program: int) -> int:
    """`store`, which takes memory and a number."""
    return ur.make("urKernelCreate", program, b"store").value or 0


def object_of(handle: int) -> URKernel:
    """The adapter's own object."""
    return own.objects.list_owned("ur_kernel_handle_t")[handle]


# native handles


@pytest.mark.parametrize("with_program", [False, True])
@pytest.mark.parametrize("owned", [False, True])
def test_native_handles_both_ways(
    ur: Calls, context: int, queue: int, program: int, kernel: int, owned: bool, with_program: bool
) -> None:
    cl = native(ur, "urKernelGetNativeHandle", kernel)
    table, count = opencl(cl), ("clGetKernelInfo", cl, "CL_KERNEL_REFERENCE_COUNT")
    before = references(table, *count)
    if owned:
        assert table.clRetainKernel(cl) == 0
    properties = UR.get_struct("ur_kernel_native_properties_t")(isNativeHandleOwned=owned)
    given = program if with_program else None
    arguments = "urKernelCreateWithNativeHandle", cl, context, given, ctypes.byref(properties)
    again = ur.make(*arguments).value or 0
    assert references(table, *count) == before + 1
    its_program = ur.number("urKernelGetInfo", again, "UR_KERNEL_INFO_PROGRAM")
    assert (its_program == program) is with_program
    assert native(ur, "urProgramGetNativeHandle", its_program) == native(
        ur, "urProgramGetNativeHandle", program
    )
    ur.ok("urProgramRetain", its_program)  # what a query shows may be kept
    numbers = Numbers(ur, context, 2)
    assert launch(ur, queue, again, (2,), numbers.argument, 8) == "SUCCESS" and numbers.read(
        queue
    ) == [8, 9]
    ur.ok("urKernelRelease", again)
    assert ur.info("urProgramGetInfo", its_program, "UR_PROGRAM_INFO_KERNEL_NAMES")
    ur.ok("urProgramRelease", its_program)
    ur.ok("urMemRelease", numbers.handle)
    assert references(table, *count) == before


def test_kernels_of_one_native_handle_share_a_lock(
    ur: Calls, context: int, program: int, kernel: int
) -> None:
    again = (
        ur.make(
            "urKernelCreateWithNativeHandle",
            native(ur, "urKernelGetNativeHandle", kernel),
            context,
            program,
        ).value
        or 0
    )
    other = ur.make("urKernelCreate", program, b"store").value or 0
    locks = [object_of(one).native_lock for one in (again, kernel, other)]
    assert locks[0] is locks[1] is not locks[2]
    first, second = object_of(again), object_of(kernel)
    with first.lock, second.lock:  # one thread may have both
        assert locks[0].holders == 2
        assert own_lib.fl_exported_by_sdk().try_kernel(second.struct) is False
    assert own_lib.fl_exported_by_sdk().try_kernel(second.struct) is True
    own_lib.fl_leave_kernel(second.struct)


def test_native_handles_that_are_no_kernels_of_the_context(
    ur: Calls, context: int, program: int, kernel: int, device: PluginDevice
) -> None:
    given = "urContextCreate", 1, array(device.handle), None
    other, made, junk = ur.make(*given), ctypes.c_void_p(), ctypes.create_string_buffer(64)
    cl, fresh = native(ur, "urKernelGetNativeHandle", kernel), program_of(ur, context)
    for handle, where, its, code in (
        (0, context, None, "INVALID_NULL_HANDLE"),
        (ctypes.addressof(junk), context, None, "INVALID_VALUE"),
        (cl, other, None, "INVALID_CONTEXT"),
        (cl, context, fresh, "INVALID_PROGRAM"),
    ):
        given = "urKernelCreateWithNativeHandle", handle, where, its, None, ctypes.byref(made)
        assert ur(*given) == code


# arguments one by one


def test_arguments_that_do_not_fit(ur: Calls, old: Calls, context: int, kernel: int) -> None:
    numbers, value = Numbers(ur, context, 4), ctypes.c_int64(1)
    for routine, given, code in (
        ("urKernelSetArgValue", (1, 4, None, ctypes.byref(value)), "SUCCESS"),
        ("urKernelSetArgValue", (2, 4, None, ctypes.byref(value)), "INVALID_KERNEL_ARGUMENT_INDEX"),
        ("urKernelSetArgValue", (1, 8, None, ctypes.byref(value)), "INVALID_KERNEL_ARGUMENT_SIZE"),
        (
            "urKernelSetArgValue",
            (1, 1 << 40, None, ctypes.byref(value)),
            "INVALID_KERNEL_ARGUMENT_SIZE",
        ),
        ("urKernelSetArgValue", (1, 4, None, None), "INVALID_NULL_POINTER"),
        ("urKernelSetArgMemObj", (0, None, numbers.handle), "SUCCESS"),
        ("urKernelSetArgMemObj", (0, None, None), "SUCCESS"),
        ("urKernelSetArgMemObj", (7, None, numbers.handle), "INVALID_KERNEL_ARGUMENT_INDEX"),
        ("urKernelSetArgMemObj", (0, None, kernel), "INVALID_MEM_OBJECT"),
        ("urKernelSetArgPointer", (0, None, None), "SUCCESS"),
        ("urKernelSetArgPointer", (7, None, None), "INVALID_KERNEL_ARGUMENT_INDEX"),
        ("urKernelSetArgLocal", (7, 4, None), "INVALID_KERNEL_ARGUMENT_INDEX"),
        ("urKernelSetArgSampler", (0, None, None), "INVALID_NULL_HANDLE"),
    ):
        assert old(routine, kernel, *given) == code, (routine, given)


def test_a_kernel_keeps_the_arguments_last_set(
    ur: Calls, old: Calls, context: int, queue: int, kernel: int
) -> None:
    numbers, value = Numbers(ur, context, 4), ctypes.c_int32(40)
    old.ok("urKernelSetArgMemObj", kernel, 0, None, numbers.handle)
    old.ok("urKernelSetArgValue", kernel, 1, 4, None, value)
    kept = object_of(kernel).arguments
    given = URKernelArgument.VALUE, 4, bytes(value)
    assert kept[1] == URKernelArgument(*given) and kept[0].kind == URKernelArgument.MEM
    assert kept[0].value.handle == numbers.handle
    assert launch(ur, queue, kernel, (2,)) == "SUCCESS" and numbers.read(queue)[:2] == [40, 41]
    assert launch(ur, queue, kernel, (1,), numbers.argument, 7) == "SUCCESS"
    assert object_of(kernel).arguments[1].value == struct.pack("@i", 7)
    del kept
    ur.ok("urMemRelease", numbers.handle)
    assert list(object_of(kernel).arguments) == [1]
    assert launch(ur, queue, kernel, (1,)) == "INVALID_KERNEL_ARGS"


def test_rows_of_arguments_are_checked(ur: Calls, context: int, queue: int, kernel: int) -> None:
    numbers = Numbers(ur, context, 2)
    for given, code in (
        (rows(numbers.argument, (9, 1)), "INVALID_ENUMERATION"),
        (rows((MEM, kernel), 1), "INVALID_MEM_OBJECT"),
        (rows((SAMPLER, 0), 1), "INVALID_SAMPLER"),
        (rows(numbers.argument, 1, 2), "INVALID_KERNEL_ARGUMENT_INDEX"),
        (rows(numbers.argument, (LOCAL, 4)), "INVALID_VALUE"),
    ):
        size, suggested = sizes((2,)), sizes((0,))
        launched = queue, kernel, 1, None, size, None, len(given), given, None, 0, None, None
        assert ur("urEnqueueKernelLaunchWithArgsExp", *launched) == code
        asked = kernel, queue, 1, sizes((0,)), size, len(given), given, suggested
        assert ur("urKernelGetSuggestedLocalWorkSizeWithArgs", *asked) == code
    wide = rows(1)
    wide[0].size = 1 << 40
    arguments = queue, kernel, 1, None, sizes((2,)), None, 1, wide, None, 0, None
    assert ur("urEnqueueKernelLaunchWithArgsExp", *arguments) == "INVALID_KERNEL_ARGUMENT_SIZE"


def test_the_struct_is_read_as_it_lies_in_memory() -> None:
    assert ctypes.sizeof(Row) == 48 and [
        Row.type.offset,
        Row.index.offset,
        Row.size.offset,
        Row.value.offset,
    ] == [16, 20, 24, 32]
    assert (VALUE, POINTER, MEM, LOCAL, SAMPLER) == (
        URKernelArgument.VALUE,
        URKernelArgument.POINTER,
        URKernelArgument.MEM,
        URKernelArgument.LOCAL,
        URKernelArgument.SAMPLER,
    )


# settings


def set_info(ur: Calls, kernel: int, name: str, value: Any) -> str:
    size = 0 if value is None else ctypes.sizeof(value)
    given = kernel, UR[f"UR_KERNEL_EXEC_INFO_{name}"], size, None
    return ur("urKernelSetExecInfo", *given, None if value is None else ctypes.byref(value))


def test_settings(ur: Calls, kernel: int, device: PluginDevice) -> None:
    before = object_of(kernel).identity
    for allowed in (True, False, True):
        assert set_info(ur, kernel, "USM_INDIRECT_ACCESS", ctypes.c_bool(allowed)) == "SUCCESS"
    assert (object_of(kernel).identity != before) is has_usm_extension(ur, device)
    assert set_info(ur, kernel, "USM_INDIRECT_ACCESS", ctypes.c_uint32(1)) == "INVALID_SIZE"
    assert set_info(ur, kernel, "USM_INDIRECT_ACCESS", None) == "INVALID_NULL_POINTER"
    for value in ("DEFAULT", "LARGE_SLM", "LARGE_DATA"):
        given = ur, kernel, "CACHE_CONFIG", ctypes.c_uint32(UR[f"UR_KERNEL_CACHE_CONFIG_{value}"])
        assert set_info(*given) == "SUCCESS"
    assert set_info(ur, kernel, "CACHE_CONFIG", ctypes.c_uint32(9)) == "INVALID_VALUE"
    assert set_info(ur, kernel, "CACHE_CONFIG", ctypes.c_uint64(0)) == "INVALID_SIZE"


def test_pointers_besides_the_arguments(
    ur: Calls, context: int, queue: int, kernel: int, device: PluginDevice
) -> None:
    memory = ur.make("urUSMSharedAlloc", context, device.handle, None, None, 64)
    before = object_of(kernel).identity
    assert set_info(ur, kernel, "USM_PTRS", array(memory)) == "SUCCESS"
    assert object_of(kernel).identity != before
    for allowed in (None, False, True):
        if allowed is not None:
            assert set_info(ur, kernel, "USM_INDIRECT_ACCESS", ctypes.c_bool(allowed)) == "SUCCESS"
        assert launch(ur, queue, kernel, (4,), (POINTER, memory.value), 1) == "SUCCESS"
    ur.ok("urQueueFinish", queue)
    assert set_info(ur, kernel, "USM_PTRS", ctypes.c_uint32(1)) == "INVALID_SIZE"
    known = object_of(kernel)
    if not is_intel(
        device
    ):  # what a device needs that is not a CPU, has SVM, and no word for all of it
        known.declared_memory = []
        declare_memory(known)
        assert known.declared_memory == [memory.value]
        again = known.identity
        declare_memory(known)
        assert known.identity == again
    ur.ok("urUSMFree", context, memory)


# sizes that suit


def suggested(
    ur: Calls,
    queue: int,
    kernel: int,
    size: tuple[int, ...],
    *arguments: Any,
    dimensions: int | None = None,
) -> tuple[str, list[int]]:
    found = sizes([0] * len(size))
    count = len(size) if dimensions is None else dimensions
    asked = kernel, queue, count, sizes([0] * len(size)), sizes(size)
    if arguments:
        code = ur(
            "urKernelGetSuggestedLocalWorkSizeWithArgs",
            *asked,
            len(arguments),
            rows(*arguments),
            found,
        )
    else:
        code = ur("urKernelGetSuggestedLocalWorkSize", *asked, found)
    return code, list(found)


def test_suggestions_that_cannot_be_made(
    ur: Calls, context: int, queue: int, program: int, kernel: int, device: PluginDevice
) -> None:
    for dimensions in (0, 4):
        given = ur, queue, kernel, (8, 8, 8)
        assert suggested(*given, dimensions=dimensions)[0] == "INVALID_WORK_DIMENSION"
    assert suggested(ur, queue, kernel, (8, 0))[0] == "INVALID_WORK_DIMENSION"
    other = ur.make("urContextCreate", 1, array(device.handle))
    foreign = ur.make("urQueueCreate", other, device.handle)
    assert suggested(ur, foreign.value or 0, kernel, (8,))[0] == "INVALID_CONTEXT"
    ur.ok("urQueueRelease", foreign)
    ur.ok("urContextRelease", other)
    if is_intel(device):
        fours = ur.make("urKernelCreate", program, b"fours").value or 0
        assert suggested(ur, queue, fours, (8,))[0] == "INVALID_KERNEL_ARGS"
        ur.ok("urKernelRelease", fours)


def test_suggestions_of_our_own(ur: Calls, program: int, kernel: int) -> None:
    fours = ur.make("urKernelCreate", program, b"fours").value or 0
    own_kernel = object_of(kernel)
    device = own_kernel.context.devices[0]
    assert suggest_local_size(object_of(fours), device, (64,)) == [4]
    for size in ((1000,), (7,), (64, 48), (8, 6, 10), (1 << 20,), (8191,)):
        local = suggest_local_size(own_kernel, device, size)
        items = 1
        for most, part in zip(size, local, strict=True):
            assert most % part == 0
            items *= part
        assert items <= own_kernel.query_group_size(device)


# all groups at once


def test_how_many_groups_run_at_the_same_time(
    ur: Calls, program: int, kernel: int, device: PluginDevice
) -> None:
    count, local = ctypes.c_uint32(), sizes((64, 1, 1))

    def ask(dimensions: int, given: Any = local, dynamic: int = 0) -> str:
        arguments = kernel, device.handle, dimensions, given, dynamic, ctypes.byref(count)
        return ur("urKernelSuggestMaxCooperativeGroupCount", *arguments)

    assert ask(0) == ask(4) == "INVALID_WORK_DIMENSION"
    assert ask(1, None) == "INVALID_NULL_POINTER"
    if is_intel(device):
        assert ask(1) == ask(3) == "SUCCESS" and count.value > 0
        room = ur.number("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_LOCAL_MEM_SIZE")
        units = ur.number("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_MAX_COMPUTE_UNITS")
        assert ask(1, dynamic=room // 2) == "SUCCESS" and 0 < count.value <= 2 * units
        assert ask(1, dynamic=room + 1) == "SUCCESS" and count.value == 0
        assert ask(1, sizes((0,))) == "INVALID_WORK_GROUP_SIZE"
    else:
        assert ask(1) == "UNSUPPORTED_FEATURE"


def test_local_sizes_are_checked_for_command_buffers(
    ur: Calls, program: int, kernel: int, device: PluginDevice
) -> None:
    own_kernel, fours = object_of(kernel), ur.make("urKernelCreate", program, b"fours").value or 0
    its = own_kernel.context.devices[0]
    own_kernel.check_group(its, None)
    own_kernel.check_group(its, (8, 2))
    object_of(fours).check_group(its, (4, 1))
    for checked, local, code in (
        (own_kernel, (0,), "INVALID_WORK_GROUP_SIZE"),
        (own_kernel, (1 << 30,), "INVALID_WORK_ITEM_SIZE"),
        (own_kernel, (4096, 4096), "INVALID_WORK_GROUP_SIZE"),
        (object_of(fours), (8,), "INVALID_WORK_GROUP_SIZE"),
    ):
        with pytest.raises(URError) as caught:
            checked.check_group(its, local)
        assert caught.value.code == f"UR_RESULT_ERROR_{code}"
