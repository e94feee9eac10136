"""The errors of cl_khr_command_buffer_mutable_dispatch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import beyond_specification, each, forked, rule, unsupported
from fairlead.conformance.opencl.commands import CLRecorder, CommandBuffers, expect_code, properties
from fairlead.conformance.opencl.mutable import (
    FIELDS,
    UPDATABLE,
    UPDATE,
    Config,
    ExecInfo,
    Mutable,
    args,
    arguments,
    field,
    ndrange,
)
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL, INFO = "clCommandNDRangeKernelKHR", "clGetMutableCommandInfoKHR"
VALUE, OPERATION = "CL_INVALID_VALUE", "CL_INVALID_OPERATION"
int32 = ctypes.c_int32
DISPATCH = (ctypes.c_uint32 * 1)(OPENCL["CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR"])


@pytest.fixture
def command(mutable: Mutable, objects: CLObjects) -> int:
    """A command in a finalized command-buffer: 8 work-items in groups of 4.

    Every field of it that the device can change is updatable.
    """
    kernel = objects.kernel("add", objects.buffer([0] * 64), int32(1))
    handle = mutable.launch(kernel, 8, local_work_size=sizes(4))
    mutable.recorder.finalize()
    return handle


# The call


@forked
@rule(UPDATE, "CL_INVALID_COMMAND_BUFFER_KHR if command_buffer is not a valid command-buffer")
def test_no_command_buffer(mutable: Mutable, command: int) -> None:
    mutable.recorder.handle = 0
    expect_code(mutable.answer(args(command, (1, int32(2)))), "CL_INVALID_COMMAND_BUFFER_KHR")


@forked
@rule(UPDATE, "CL_INVALID_OPERATION if command_buffer has not been finalized")
def test_not_finalized(mutable: Mutable, objects: CLObjects) -> None:
    mutable.needs("ARGUMENTS")
    command = mutable.launch(objects.kernel("add", objects.buffer([0] * 8), int32(1)), 8)
    expect_code(mutable.answer(args(command, (1, int32(2)))), OPERATION)


@forked
@rule(
    UPDATE,
    "CL_INVALID_OPERATION if command_buffer was not created with CL_COMMAND_BUFFER_MUTABLE_KHR",
)
def test_not_mutable(mutable: Mutable, commands: CommandBuffers, objects: CLObjects) -> None:
    recorder, handle = CLRecorder(commands, objects, mutable.recorder.queue), ctypes.c_void_p()
    kernel = objects.kernel("add", objects.buffer([0] * 8), int32(1))
    code = recorder.answer(KERNEL, kernel=kernel, mutable_handle=ctypes.byref(handle))
    recorder.finalize()
    mutable.recorder.handle = recorder.handle
    if code:  # a driver may refuse the handle already
        expect_code(code, VALUE, OPERATION)
    else:
        expect_code(mutable.answer(args(handle.value or 0, (1, int32(2)))), OPERATION)


@forked
@rule(UPDATE, "CL_INVALID_VALUE if num_configs and the arrays disagree")
@pytest.mark.parametrize("case", ["null-types", "null-configs", "types-and-0", "configs-and-0"])
def test_arrays(mutable: Mutable, command: int, case: str) -> None:
    config = Config(command=command)
    configs = handles(ctypes.addressof(config))
    count, types, pointers = {
        "null-types": (1, None, configs),
        "null-configs": (1, DISPATCH, None),
        "types-and-0": (0, DISPATCH, None),
        "configs-and-0": (0, None, configs),
    }[case]
    expect_code(mutable.answer_arrays(count, types, pointers), VALUE)


@forked
@rule(UPDATE, "CL_INVALID_VALUE if a type is none that there is")
def test_type(mutable: Mutable, command: int) -> None:
    config = Config(command=command)
    expect_code(
        mutable.answer_arrays(1, (ctypes.c_uint32 * 1)(0xBAD), handles(ctypes.addressof(config))),
        VALUE,
    )


@forked
@rule(UPDATE, "CL_INVALID_VALUE if a configuration is NULL")
def test_null_config(mutable: Mutable, command: int) -> None:
    expect_code(mutable.answer_arrays(1, DISPATCH, handles(0)), VALUE)


# A configuration


@forked
@rule(UPDATE, "CL_INVALID_MUTABLE_COMMAND_KHR if command is NULL")
def test_no_command(mutable: Mutable, command: int) -> None:
    mutable.needs("ARGUMENTS")
    expect_code(mutable.answer(args(0, (1, int32(2)))), "CL_INVALID_MUTABLE_COMMAND_KHR")


@forked
@rule(UPDATE, "CL_INVALID_MUTABLE_COMMAND_KHR if command is of another command-buffer")
def test_foreign_command(
    mutable: Mutable, commands: CommandBuffers, objects: CLObjects, command: int
) -> None:
    mutable.needs("ARGUMENTS")
    other = Mutable(commands, objects, mutable.recorder.queue)
    foreign = other.launch(objects.kernel("add", objects.buffer([0] * 8), int32(1)), 8)
    other.recorder.finalize()
    expect_code(mutable.answer(args(foreign, (1, int32(2)))), "CL_INVALID_MUTABLE_COMMAND_KHR")


#: What may not be changed without its field: a configuration of a command.
CHANGES: dict[str, Any] = {
    "GLOBAL_OFFSET": lambda command: ndrange(command, global_work_offset=[4]),
    "GLOBAL_SIZE": lambda command: ndrange(command, global_work_size=[16]),
    "LOCAL_SIZE": lambda command: ndrange(command, local_work_size=[2]),
    "ARGUMENTS": lambda command: args(command, (1, int32(2))),
    "EXEC_INFO": lambda command: {"command": command, "exec_info_list": _make_exec_infos()},
}


def _make_exec_infos() -> Any:
    value = ctypes.c_uint32(0)
    array = (ExecInfo * 1)(
        ExecInfo(OPENCL["CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM"], 4, ctypes.addressof(value))
    )
    array.kept = value
    return array


@forked
@pytest.mark.parametrize(
    "name", each(FIELDS, UPDATE, "CL_INVALID_OPERATION if {} was not declared updatable")
)
def test_undeclared_field(mutable: Mutable, objects: CLObjects, name: str) -> None:
    declared = next(
        (other for other in FIELDS if other != name and mutable.capabilities & field(other)), None
    )
    if declared is None:
        unsupported("the device can change nothing else")
    kernel = objects.kernel("add", objects.buffer([0] * 64), int32(1))
    command = mutable.launch(kernel, 8, declared, local_work_size=sizes(4))
    mutable.recorder.finalize()
    expect_code(mutable.answer(CHANGES[name](command)), OPERATION)


@forked
@rule(UPDATE, "CL_INVALID_OPERATION if work_dim is not that of recording")
def test_work_dim(mutable: Mutable, command: int) -> None:
    mutable.needs("GLOBAL_SIZE")
    expect_code(
        mutable.answer({**ndrange(command, global_work_size=[8, 1]), "work_dim": 2}), OPERATION
    )


@forked
@rule(UPDATE, "CL_INVALID_OPERATION if the sizes change the uniformity of work-groups")
def test_uniformity(mutable: Mutable, command: int) -> None:
    mutable.needs("GLOBAL_SIZE")
    expect_code(
        mutable.answer(ndrange(command, global_work_size=[9])),
        OPERATION,
        "CL_INVALID_WORK_GROUP_SIZE",
    )


LISTS = [
    ("arg_list", "num_args", "ARGUMENTS"),
    ("arg_svm_list", "num_svm_args", "ARGUMENTS"),
    ("exec_info_list", "num_exec_infos", "EXEC_INFO"),
]


@forked
@rule(UPDATE, "CL_INVALID_VALUE if a list is NULL and its number is not 0, or the other way round")
@pytest.mark.parametrize("null", [True, False], ids=["null-list", "number-0"])
@pytest.mark.parametrize(("name", "number", "fields"), LISTS, ids=[name for name, _, _ in LISTS])
def test_lists(
    mutable: Mutable, command: int, name: str, number: str, fields: str, null: bool
) -> None:
    mutable.needs(fields)
    some = _make_exec_infos() if fields == "EXEC_INFO" else arguments((0, int32(2)))
    config = (
        {"command": command, name: None, number: 1}
        if null
        else {"command": command, name: some, number: 0}
    )
    expect_code(mutable.answer(config), VALUE)


@forked
@rule(UPDATE, "CL_INVALID_ARG_INDEX if an argument's index is not valid")
def test_argument_index(mutable: Mutable, command: int) -> None:
    mutable.needs("ARGUMENTS")
    expect_code(mutable.answer(args(command, (2, int32(2)))), "CL_INVALID_ARG_INDEX")


@forked
@rule(UPDATE, "CL_INVALID_ARG_SIZE if an argument's size is not that of its type")
@pytest.mark.parametrize("size", [0, 3, 8])
def test_argument_size(mutable: Mutable, command: int, size: int) -> None:
    mutable.needs("ARGUMENTS")
    config = args(command, (1, (ctypes.c_int32 * 2)(2, 2)))
    config["arg_list"][0].arg_size = size
    expect_code(mutable.answer(config), "CL_INVALID_ARG_SIZE")


@forked
@rule(UPDATE, "CL_INVALID_ARG_VALUE if the value of an argument is NULL that needs one")
def test_argument_value(mutable: Mutable, command: int) -> None:
    mutable.needs("ARGUMENTS")
    config = args(command, (1, int32(2)))
    config["arg_list"][0].arg_value = None
    expect_code(mutable.answer(config), "CL_INVALID_ARG_VALUE")


@forked
@rule(
    UPDATE,
    "CL_INVALID_WORK_GROUP_SIZE or CL_INVALID_WORK_ITEM_SIZE if local_work_size is too large",
)
def test_large_local_size(mutable: Mutable, command: int) -> None:
    mutable.needs("GLOBAL_SIZE", "LOCAL_SIZE")
    config = ndrange(command, global_work_size=[1 << 20], local_work_size=[1 << 20])
    expect_code(mutable.answer(config), "CL_INVALID_WORK_GROUP_SIZE", "CL_INVALID_WORK_ITEM_SIZE")


# Recording


@forked
@rule(KERNEL, "CL_INVALID_VALUE if a property is none that there is")
def test_unknown_property(mutable: Mutable) -> None:
    expect_code(mutable.recorder.answer(KERNEL, properties=properties(0x1234, 1)), VALUE)


@forked
@rule(
    KERNEL,
    "CL_INVALID_OPERATION or CL_INVALID_VALUE if a field is not among the device's capabilities",
)
def test_unsupported_field(mutable: Mutable) -> None:
    beyond = next(
        (field(name) for name in FIELDS if not mutable.capabilities & field(name)), 1 << 40
    )
    expect_code(
        mutable.recorder.answer(KERNEL, properties=properties(UPDATABLE, beyond)), OPERATION, VALUE
    )


@forked
@rule(
    KERNEL,
    "CL_INVALID_VALUE with CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR and no "
    "local_work_size",
)
@pytest.mark.parametrize("of", ["command-buffer", "command"])
def test_assert_without_local_size(mutable: Mutable, of: str) -> None:
    if mutable.commands.mutable_version < (0, 9, 1):
        unsupported("there are no asserts before 0.9.1")
    bit = OPENCL["CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR"]
    changes = {}
    if of == "command-buffer":
        mutable.create_with(OPENCL["CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR"], bit)
        changes["command_buffer"] = mutable.recorder.handle
    else:
        changes["properties"] = properties(OPENCL["CL_MUTABLE_DISPATCH_ASSERTS_KHR"], bit)
    expect_code(mutable.recorder.answer(KERNEL, **changes), VALUE)


# Queries

QUERIES = list(OPENCL.groups["cl_mutable_command_info_khr"].values())


@forked
@rule(INFO, "CL_INVALID_MUTABLE_COMMAND_KHR if command is not valid")
def test_query_of_nothing(mutable: Mutable) -> None:
    room = ctypes.create_string_buffer(64)
    code = mutable.commands.clGetMutableCommandInfoKHR(None, OPENCL[QUERIES[0]], 64, room, None)
    expect_code(code, "CL_INVALID_MUTABLE_COMMAND_KHR")


@forked
@rule(INFO, "CL_INVALID_VALUE if param_name is not a supported value")
def test_unknown_query(mutable: Mutable, command: int) -> None:
    expect_code(
        mutable.commands.clGetMutableCommandInfoKHR(command, 0x7FFFFFFF, 0, None, None), VALUE
    )


@forked
@pytest.mark.parametrize(
    "name", each(QUERIES, INFO, "CL_INVALID_VALUE if param_value_size is too small for {}")
)
def test_query_too_small(mutable: Mutable, objects: CLObjects, name: str) -> None:
    kernel = objects.kernel("add", objects.buffer([0] * 8), int32(1))
    can_change = [name for name in FIELDS if mutable.capabilities & field(name)]
    if not can_change:
        unsupported("the device can change nothing")
    command = mutable.launch(kernel, 8, can_change[0])
    room = ctypes.create_string_buffer(64)
    expect_code(
        mutable.commands.clGetMutableCommandInfoKHR(command, OPENCL[name], 3, room, None), VALUE
    )


@beyond_specification
@forked
@rule(UPDATE, "a command whose command-buffer was released is refused")
def test_stale_command(
    mutable: Mutable, commands: CommandBuffers, objects: CLObjects, command: int
) -> None:
    mutable.needs("ARGUMENTS")
    inner = objects.new_maker()
    other = Mutable(commands, inner, mutable.recorder.queue)
    stale = other.launch(inner.kernel("add", inner.buffer([0] * 8), int32(1)), 8)
    inner.close()
    expect_code(mutable.answer(args(stale, (1, int32(2)))), "CL_INVALID_MUTABLE_COMMAND_KHR")


@beyond_specification
@forked
@rule(
    "clFinalizeCommandBufferKHR",
    "CL_INVALID_COMMAND_BUFFER_KHR for a command-buffer that was released",
)
def test_stale_command_buffer(commands: CommandBuffers, objects: CLObjects, queue: int) -> None:
    inner = objects.new_maker()
    handle = commands.create(inner, queue)
    inner.close()
    expect_code(commands.clFinalizeCommandBufferKHR(handle), "CL_INVALID_COMMAND_BUFFER_KHR")


@beyond_specification
@forked
@rule("clFinalizeCommandBufferKHR", "CL_INVALID_COMMAND_BUFFER_KHR for an object of another kind")
def test_another_kind(commands: CommandBuffers, queue: int) -> None:
    expect_code(commands.clFinalizeCommandBufferKHR(queue), "CL_INVALID_COMMAND_BUFFER_KHR")
