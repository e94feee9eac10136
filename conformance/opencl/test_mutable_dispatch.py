"""Updates of kernels in command-buffers: what changes, what does not, and what queries say."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import sizes
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.opencl.commands import SIMULTANEOUS, CommandBuffers, expect_code
from fairlead.conformance.opencl.mutable import UPDATE, Mutable, args
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL, INFO = "clCommandNDRangeKernelKHR", "clGetMutableCommandInfoKHR"
NO_MORE_GROUPS = OPENCL["CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR"]
int32 = ctypes.c_int32


# Arguments


@rule(UPDATE, "gives a kernel another buffer")
def test_buffer(mutable: Mutable, objects: CLObjects) -> None:
    one, two = objects.buffer([0] * 8), objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("increment", one), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.run()
    mutable.update(args(command, (0, two)))
    mutable.run()
    mutable.run()
    equal(mutable.read(one, two), [[1] * 8, [2] * 8], "the buffers")


@rule(UPDATE, "gives a kernel another value, which may change after the call")
def test_value(mutable: Mutable, objects: CLObjects) -> None:
    buffer, value = objects.buffer([0] * 8), int32(100)
    command = mutable.launch(objects.kernel("add", buffer, int32(1)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.update(args(command, (1, value)))
    value.value = 5
    mutable.run()
    equal(mutable.read(buffer), [[100] * 8], "the buffer")


@rule(UPDATE, "gives a kernel local memory of another size")
def test_local_memory(mutable: Mutable, objects: CLObjects) -> None:
    buffer, kernel = objects.buffer([0] * 4), objects.kernel("local_sum", objects.buffer([0] * 4))
    objects.set_argument(kernel, 0, buffer)
    objects.call("clSetKernelArg", kernel, 1, 8 * 4, None)
    objects.set_argument(kernel, 2, int32(8))
    command = mutable.launch(kernel, 4, "ARGUMENTS", local_work_size=sizes(4))
    mutable.recorder.finalize()
    config = args(command, (1, int32(0)), (2, int32(512)))
    config["arg_list"][0].arg_size, config["arg_list"][0].arg_value = 512 * 4, None
    mutable.update(config)
    mutable.run()
    equal(mutable.read(buffer), [[sum(range(512))] * 4], "the sums")


@rule(UPDATE, "gives a kernel NULL in place of a buffer")
def test_null(mutable: Mutable, objects: CLObjects) -> None:
    buffer, other = objects.buffer([7] * 4), objects.buffer([0] * 4)
    command = mutable.launch(objects.kernel("is_null", buffer, other), 4, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.run()
    before = mutable.read(buffer)
    mutable.update(args(command, (1, ctypes.c_void_p(None))))
    mutable.run()
    equal([*before, *mutable.read(buffer)], [[0] * 4, [1] * 4], "what the kernel found")


@rule(UPDATE, "gives a kernel another SVM pointer")
def test_svm(mutable: Mutable, objects: CLObjects) -> None:
    one, two, out = objects.svm(32), objects.svm(32), objects.buffer([0] * 8)
    for pointer, value in ((one, 1), (two, 2)):
        objects.call(
            "clEnqueueSVMMemFill",
            mutable.recorder.queue,
            pointer,
            ctypes.byref(int32(value)),
            4,
            32,
        )
    kernel = objects.kernel("copy")
    objects.call("clSetKernelArgSVMPointer", kernel, 0, one)
    objects.set_argument(kernel, 1, out)
    command = mutable.launch(kernel, 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.run()
    before = mutable.read(out)
    config = args(command, (0, two))
    config["arg_svm_list"] = config.pop("arg_list")
    config["arg_svm_list"][0].arg_value = two
    mutable.update(config)
    mutable.run()
    equal([*before, *mutable.read(out)], [[1] * 8, [2] * 8], "what the kernel read")


@rule(UPDATE, "gives a kernel another image")
def test_image(mutable: Mutable, objects: CLObjects) -> None:
    mutable.recorder.argument("image")
    source = """kernel void pixel(read_only image2d_t image, global uint *a) {
        const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;
        a[get_global_id(0)] = read_imageui(image, s, (int2)(1, 1)).x;
    }"""
    out = objects.buffer([0] * 2)
    kernel = objects.kernel("pixel", objects.image(8, 8, 3), out, program=objects.build(source))
    command = mutable.launch(kernel, 2, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.run()
    before = mutable.read(out)
    mutable.update(args(command, (0, objects.image(8, 8, 4))))
    mutable.run()
    equal([*before, *mutable.read(out)], [[3] * 2, [4] * 2], "what the kernel read")


@rule(UPDATE, "arguments that are not named stay as they are")
def test_other_arguments(mutable: Mutable, objects: CLObjects) -> None:
    one, two = objects.buffer([0] * 8), objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add", one, int32(7)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.update(args(command, (0, two)))
    mutable.run()
    equal(mutable.read(one, two), [[0] * 8, [7] * 8], "the buffers")


@rule(UPDATE, "has no effect on the kernel object, nor has that on the command")
def test_kernel_object(mutable: Mutable, objects: CLObjects) -> None:
    one, two, three = (objects.buffer([0] * 8) for _ in range(3))
    kernel = objects.kernel("add", one, int32(1))
    command = mutable.launch(kernel, 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.update(args(command, (0, two), (1, int32(20))))
    objects.launch(mutable.recorder.queue, kernel, 8)
    objects.set_argument(kernel, 0, three)
    mutable.run()
    equal(mutable.read(one, two, three), [[1] * 8, [20] * 8, [0] * 8], "the buffers")


@rule(UPDATE, "the last of several updates holds")
def test_overwrite(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add", buffer, int32(1)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    for value in (10, 100, 1000):
        mutable.update(args(command, (1, int32(value))))
    mutable.run()
    equal(mutable.read(buffer), [[1000] * 8], "the buffer")


@rule(UPDATE, "an update between every two submissions")
def test_iterative(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add", buffer, int32(0)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    for value in range(50):
        mutable.update(args(command, (1, int32(value))))
        mutable.run()
    equal(mutable.read(buffer), [[sum(range(50))] * 8], "the buffer")


@rule(UPDATE, "submissions that are under way keep what they were enqueued with")
def test_under_way(
    commands: CommandBuffers, mutable_version: tuple[int, ...], objects: CLObjects, queue: int
) -> None:
    if not commands.can("SIMULTANEOUS_USE"):
        unsupported("the device has no simultaneous use")
    mutable, buffer = Mutable(commands, objects, queue, SIMULTANEOUS), objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("twice_plus", buffer, int32(0)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    gate = objects.user_event()
    for number, value in enumerate((1, 2, 3)):
        mutable.update(args(command, (1, int32(value))))
        mutable.recorder.enqueue(waits=[gate] if not number else [])
    objects.call("clSetUserEventStatus", gate, OPENCL["CL_COMPLETE"])
    objects.finish(queue)
    equal(mutable.read(buffer), [[(1 * 2 + 2) * 2 + 3] * 8], "the buffer")


@rule(UPDATE, "one call updates several commands")
def test_several(mutable: Mutable, objects: CLObjects) -> None:
    buffers = [objects.buffer([0] * 8) for _ in range(3)]
    commands = [
        mutable.launch(objects.kernel("add", buffer, int32(1)), 8, "ARGUMENTS")
        for buffer in buffers
    ]
    mutable.recorder.finalize()
    mutable.update(
        *(args(command, (1, int32(10 * number))) for number, command in enumerate(commands))
    )
    mutable.run()
    equal(mutable.read(*buffers), [[0] * 8, [10] * 8, [20] * 8], "the buffers")


@rule(UPDATE, "commands that are not named stay as they are")
def test_other_commands(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    kernel = objects.kernel("add", buffer, int32(1))
    commands = []
    for value in (1, 10, 100):
        objects.set_argument(kernel, 1, int32(value))
        commands.append(mutable.launch(kernel, 8, "ARGUMENTS"))
    mutable.recorder.finalize()
    mutable.update(args(commands[1], (1, int32(50))))
    mutable.run()
    equal(mutable.read(buffer), [[151] * 8], "the buffer")


@rule(UPDATE, "updates the second command-buffer of a kernel alone")
def test_two_command_buffers(
    commands: CommandBuffers, mutable: Mutable, objects: CLObjects
) -> None:
    buffer = objects.buffer([0] * 8)
    kernel = objects.kernel("add", buffer, int32(1))
    other = Mutable(commands, objects, mutable.recorder.queue)
    mutable.launch(kernel, 8, "ARGUMENTS")
    command = other.launch(kernel, 8, "ARGUMENTS")
    for one in (mutable, other):
        one.recorder.finalize()
    other.update(args(command, (1, int32(100))))
    for one in (mutable, other):
        one.run()
    equal(mutable.read(buffer), [[101] * 8], "the buffer")


@rule(UPDATE, "none of the updates is kept if one of them fails")
@pytest.mark.parametrize("first", [True, False], ids=["good-first", "bad-first"])
def test_all_or_none(mutable: Mutable, objects: CLObjects, first: bool) -> None:
    one, two = objects.buffer([0] * 8), objects.buffer([0] * 8)
    good, bad = (
        mutable.launch(objects.kernel("add", buffer, int32(1)), 8, "ARGUMENTS")
        for buffer in (one, two)
    )
    mutable.recorder.finalize()
    configs = [args(good, (1, int32(50))), args(bad, (99, int32(60)))]
    expect_code(mutable.answer(*(configs if first else configs[::-1])), "CL_INVALID_ARG_INDEX")
    mutable.run()
    equal(mutable.read(one, two), [[1] * 8, [1] * 8], "the buffers")


@rule(UPDATE, "none of a command's own changes is kept if one of them fails")
def test_all_or_none_of_a_command(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add", buffer, int32(1)), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    expect_code(
        mutable.answer(args(command, (1, int32(50)), (99, int32(60)))), "CL_INVALID_ARG_INDEX"
    )
    mutable.run()
    equal(mutable.read(buffer), [[1] * 8], "the buffer")


@rule(UPDATE, "without configurations nothing is updated")
def test_nothing(mutable: Mutable, objects: CLObjects) -> None:
    mutable.launch(objects.kernel("increment", objects.buffer([0])), 1)
    mutable.recorder.finalize()
    expect_code(mutable.answer_arrays(0, None, None), "CL_SUCCESS")


@rule(
    KERNEL,
    "without CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR all that the device can change can be "
    "changed",
)
def test_default_fields(mutable: Mutable, objects: CLObjects) -> None:
    mutable.needs("ARGUMENTS", "GLOBAL_SIZE")
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add", buffer, int32(1)), 4)
    mutable.recorder.finalize()
    mutable.update({**args(command, (1, int32(9))), "global_work_size": sizes(8)})
    mutable.run()
    equal(mutable.read(buffer), [[9] * 8], "the buffer")


@rule(KERNEL, "arguments that were not set can be given by an update, since 0.9.5")
def test_deferred_arguments(mutable: Mutable, objects: CLObjects) -> None:
    if mutable.commands.mutable_version < (0, 9, 5):
        unsupported("all arguments must be set before 0.9.5")
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("add"), 8, "ARGUMENTS")
    mutable.recorder.finalize()
    mutable.update(args(command, (0, buffer), (1, int32(3))))
    mutable.run()
    equal(mutable.read(buffer), [[3] * 8], "the buffer")
