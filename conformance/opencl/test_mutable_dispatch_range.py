"""Updates of a kernel's ND-range in command-buffers."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import sizes
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.opencl.mutable import (
    FIELDS,
    UPDATABLE,
    UPDATE,
    ExecInfo,
    Mutable,
    args,
    field,
    ndrange,
)
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL, INFO = "clCommandNDRangeKernelKHR", "clGetMutableCommandInfoKHR"
NO_MORE_GROUPS = OPENCL["CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR"]
int32 = ctypes.c_int32


# The ND-range


@rule(UPDATE, "gives a kernel another global size, smaller and larger")
@pytest.mark.parametrize("size", [3, 8])
def test_global_size(mutable: Mutable, objects: CLObjects, size: int) -> None:
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("increment", buffer), 4, "GLOBAL_SIZE")
    mutable.recorder.finalize()
    mutable.update(ndrange(command, global_work_size=[size]))
    mutable.run()
    equal(mutable.read(buffer), [[1] * size + [0] * (8 - size)], "the buffer")


@rule(UPDATE, "gives a kernel another global offset")
def test_global_offset(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 8)
    command = mutable.launch(objects.kernel("increment", buffer), 4, "GLOBAL_OFFSET")
    mutable.recorder.finalize()
    mutable.update(ndrange(command, global_work_offset=[3]))
    mutable.run()
    equal(mutable.read(buffer), [[0] * 3 + [1] * 4 + [0]], "the buffer")


@rule(UPDATE, "gives a kernel another local size")
def test_local_size(mutable: Mutable, objects: CLObjects) -> None:
    buffer = objects.buffer([0] * 16)
    command = mutable.launch(
        objects.kernel("local_sizes", buffer), 16, "LOCAL_SIZE", local_work_size=sizes(4)
    )
    mutable.recorder.finalize()
    mutable.update(ndrange(command, local_work_size=[8]))
    mutable.run()
    equal(mutable.read(buffer), [[8] * 16], "the local sizes")


@rule(UPDATE, "changes the whole range and the arguments at once, in two dimensions")
def test_everything(mutable: Mutable, objects: CLObjects) -> None:
    one, two = objects.buffer([0] * 8), objects.buffer([0] * 8)
    first = {"work_dim": 2, "global_work_size": sizes(2, 2), "local_work_size": sizes(1, 1)}
    command = mutable.launch(objects.kernel("ids", one), 4, *FIELDS[:4], **first)
    mutable.recorder.finalize()
    mutable.update(
        {
            **args(command, (0, two)),
            **ndrange(
                command, global_work_offset=[3, 5], global_work_size=[4, 2], local_work_size=[2, 1]
            ),
        }
    )
    mutable.run()
    ids = [i + 100 * j for j in (5, 6) for i in range(3, 7)]
    equal(mutable.read(one, two), [[0] * 8, ids], "the buffers")


@rule(UPDATE, "what is NULL in a configuration stays as it is")
def test_unchanged_range(mutable: Mutable, objects: CLObjects) -> None:
    buffer, other = objects.buffer([0] * 16), objects.buffer([0] * 16)
    range_ = {"local_work_size": sizes(4), "global_work_offset": sizes(2)}
    command = mutable.launch(objects.kernel("local_sizes", buffer), 8, *FIELDS[:4], **range_)
    mutable.recorder.finalize()
    mutable.update(args(command, (0, other)))
    mutable.run()
    mutable.update(ndrange(command, global_work_size=[12]))
    mutable.run()
    equal(mutable.read(buffer, other), [[0] * 16, [0, 0] + [4] * 12 + [0, 0]], "the buffers")


@rule(
    UPDATE,
    "with CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR the number of groups may shrink",
)
@pytest.mark.parametrize("of", ["command-buffer", "command"])
def test_fewer_groups(mutable: Mutable, objects: CLObjects, of: str) -> None:
    if mutable.commands.mutable_version < (0, 9, 1):
        unsupported("there are no asserts before 0.9.1")
    mutable.needs("GLOBAL_SIZE")
    buffer, changes = objects.buffer([0] * 16), {}
    if of == "command-buffer":
        mutable.create_with(
            OPENCL["CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR"], NO_MORE_GROUPS
        )
    else:
        pairs = (
            UPDATABLE,
            field("GLOBAL_SIZE"),
            OPENCL["CL_MUTABLE_DISPATCH_ASSERTS_KHR"],
            NO_MORE_GROUPS,
        )
        changes["properties"] = (ctypes.c_uint64 * 5)(*pairs, 0)
    command = mutable.launch(
        objects.kernel("increment", buffer), 16, "GLOBAL_SIZE", local_work_size=sizes(4), **changes
    )
    mutable.recorder.finalize()
    mutable.update(ndrange(command, global_work_size=[8]))
    mutable.run()
    equal(mutable.read(buffer), [[1] * 8 + [0] * 8], "the buffer")


@rule(UPDATE, "gives a kernel other SVM pointers that it may follow (CL_KERNEL_EXEC_INFO_SVM_PTRS)")
def test_exec_info(mutable: Mutable, objects: CLObjects) -> None:
    pointers = (ctypes.c_void_p * 1)(objects.svm(64))
    buffer = objects.buffer([0] * 4)
    command = mutable.launch(objects.kernel("increment", buffer), 4, "EXEC_INFO")
    mutable.recorder.finalize()
    infos = (ExecInfo * 1)(
        ExecInfo(
            OPENCL["CL_KERNEL_EXEC_INFO_SVM_PTRS"],
            ctypes.sizeof(pointers),
            ctypes.addressof(pointers),
        )
    )
    mutable.update({"command": command, "exec_info_list": infos})
    mutable.run()
    equal(mutable.read(buffer), [[1] * 4], "the buffer")
