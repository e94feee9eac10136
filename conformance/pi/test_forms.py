"""What PI has in another form than Unified Runtime, or alone.

Arguments of kernels are set one by one. There are user events, fills of images and of bytes, and
flags of queues as a number.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.arrays import NO_EVENTS, handles, ints, sizes
from fairlead.conformance.checks import each, equal, expect, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import URRecording
from fairlead.conformance.ur.values import PointerValue
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

SET, LAUNCH = "piKernelSetArg", "piEnqueueKernelLaunch"

#: Index, size and value of an argument of `store(global int *, int)`, and the expected codes.
WRONG: dict[str, tuple[int, int, Any, tuple[str, ...]]] = {
    "index": (2, 4, ctypes.byref(ctypes.c_int32()), ("INVALID_ARG_INDEX",)),
    "size": (1, 8, ctypes.byref(ctypes.c_int64()), ("INVALID_ARG_SIZE",)),
    "no-value": (1, 4, None, ("INVALID_ARG_VALUE", "INVALID_VALUE")),
}


@rule(SET, "refuses wrong indices, sizes and values")
@pytest.mark.parametrize("case", WRONG)
def test_argument_errors(pi: DispatchTable, make: URObjects, case: str) -> None:
    index, size, value, expected = WRONG[case]
    if value is None:
        make.require_opencl()  # Level Zero takes it
    code = pi.piKernelSetArg(make.kernel(), index, size, value)
    expect(PI, code, *(f"PI_ERROR_{name}" for name in expected))


@rule(LAUNCH, "PI_ERROR_INVALID_KERNEL_ARGS if an argument has not been set")
def test_arguments_not_set(pi: DispatchTable, make: URObjects, queue: int) -> None:
    shape = 1, sizes(0), sizes(1), None
    code = pi.piEnqueueKernelLaunch(queue, make.kernel(), *shape, *NO_EVENTS)
    expect(PI, code, "PI_ERROR_INVALID_KERNEL_ARGS")


@rule(SET, "an argument keeps its value for the launches that follow")
def test_arguments_are_kept(pi: DispatchTable, make: URObjects, queue: int) -> None:
    kernel, memory = make.kernel(), make.usm("Shared")
    make.launch(queue, kernel, PointerValue(memory), ints([4]), size=(2,))
    shape = 1, sizes(2), sizes(2), None
    expect(PI, pi.piEnqueueKernelLaunch(queue, kernel, *shape, *NO_EVENTS), "PI_SUCCESS")
    equal(make.get(queue, memory, 4), [4] * 4, "the memory")


@rule("piQueueCreate", "takes the flags themselves")
def test_flags(pi: DispatchTable, ur: URCalls, make: URObjects, context: int, device: int) -> None:
    queue, flag = ctypes.c_void_p(), PI["PI_QUEUE_FLAG_PROFILING_ENABLE"]
    expect(PI, pi.piQueueCreate(context, device, flag, ctypes.byref(queue)), "PI_SUCCESS")
    made = make.own("urQueueRelease", queue.value or 0)
    equal(ur.info("urQueueGetInfo", made, "UR_QUEUE_INFO_FLAGS") & flag, flag, "the flags")


@rule("piEventCreate", "gives an event that piEventSetStatus completes, or neither is supported")
def test_user_event(pi: DispatchTable, make: URObjects, context: int) -> None:
    event = ctypes.c_void_p()
    refusals = ("PI_ERROR_INVALID_EVENT", "PI_ERROR_INVALID_OPERATION")
    code = pi.piEventCreate(context, ctypes.byref(event))
    if expect(PI, code, "PI_SUCCESS", *refusals) == "PI_SUCCESS":
        make.events(event.value or 0)
        expect(PI, pi.piEventSetStatus(event, PI["PI_EVENT_COMPLETE"]), "PI_SUCCESS")
        make.wait(event.value or 0)


@pytest.mark.usefixtures("images")
@rule("piEnqueueMemImageFill", "fills a region, or is not supported")
def test_fill_image(pi: DispatchTable, make: URObjects, queue: int) -> None:
    image, colour = make.image(), (ctypes.c_float * 4)(7, 7, 7, 7)
    where = sizes(0, 0, 0), sizes(8, 1, 1)
    expect(PI, pi.piEnqueueMemImageFill(queue, image, colour, *where, *NO_EVENTS), "PI_SUCCESS")
    read, (offset, region) = (
        (ctypes.c_float * 32)(),
        (PI.get_struct(f"pi_image_{name}_struct") for name in ("offset", "region")),
    )
    where = ctypes.byref(offset(0, 0, 0)), ctypes.byref(region(8, 1, 1)), 0, 0
    code = pi.piEnqueueMemImageRead(queue, image, True, *where, read, *NO_EVENTS)
    expect(PI, code, "PI_SUCCESS")
    equal(list(read), [7.0] * 32, "the pixels")


#: A call that writes 7 to two rows of eight bytes, 16 apart, and the numbers in them.
FILLS: dict[str, tuple[tuple[Any, ...], int]] = {
    "piextUSMEnqueueFill2D": ((16, 4, ctypes.byref(ctypes.c_int32(7)), 8, 2), 7),
    "piextUSMEnqueueMemset2D": ((16, 7, 8, 2), 0x07070707),
}


@pytest.mark.parametrize("name", each(FILLS, "{}", "fills rows, or is not supported"))
def test_fill_2d(pi: DispatchTable, make: URObjects, queue: int, name: str) -> None:
    memory, (given, number) = make.usm("Shared"), FILLS[name]
    make.put(queue, memory, [0] * COUNT)
    expect(PI, getattr(pi, name)(queue, memory, *given, *NO_EVENTS), "PI_SUCCESS")
    equal(make.get(queue, memory, 8), [number, number, 0, 0] * 2, "the memory")


@rule("piextUSMEnqueueMemset", "sets every byte")
def test_set(pi: DispatchTable, make: URObjects, queue: int) -> None:
    memory = make.usm("Shared")
    make.put(queue, memory, [0] * COUNT)
    code = pi.piextUSMEnqueueMemset(queue, memory + 4, 0x21, SIZE - 8, *NO_EVENTS)
    expect(PI, code, "PI_SUCCESS")
    equal(make.get(queue, memory), [0] + [0x21212121] * (COUNT - 2) + [0], "the memory")


@rule("piProgramCreateWithBinary", "says of each binary whether it is one")
def test_binary_status(
    pi: DispatchTable, ur: URCalls, make: URObjects, context: int, device: int, program: int
) -> None:
    (size,) = ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_BINARY_SIZES")
    binary, status, made = (ctypes.c_ubyte * size)(), ctypes.c_int32(-99), ctypes.c_void_p()
    place, name = handles(ctypes.addressof(binary)), PI["PI_PROGRAM_INFO_BINARIES"]
    expect(PI, pi.piProgramGetInfo(program, name, 8, place, None), "PI_SUCCESS")
    given = context, 1, handles(device), sizes(size), place, 0, None, ctypes.byref(status)
    expect(PI, pi.piProgramCreateWithBinary(*given, ctypes.byref(made)), "PI_SUCCESS")
    make.own("urProgramRelease", made.value or 0)
    equal(status.value, 0, "the status")


@rule("piextCommandBufferRetain", "a second reference keeps it")
def test_retain(pi: DispatchTable, make: URObjects, queue: int) -> None:
    memory = make.usm("Shared")
    recording = URRecording(make)
    recording.launch(make.kernel(), PointerValue(memory), ints([3]))
    expect(PI, pi.piextCommandBufferRetain(recording.handle), "PI_SUCCESS")
    expect(PI, pi.piextCommandBufferRelease(recording.handle), "PI_SUCCESS")
    recording.finalize_and_run(queue)
    equal(make.get(queue, memory), [3] * COUNT, "the memory")
