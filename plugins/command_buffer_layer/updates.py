"""Command-buffer layer: changes of recorded launches (cl_khr_command_buffer_mutable_dispatch
0.9.5), and their queries.

An update makes all of its changes or none. What is enqueued runs as it was enqueued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ...icd._native import ffi, lib
from ...icd.abi import OPENCL
from ...icd.calls import call, get_address
from ...icd.command_buffer.edits import MEMORY, POINTER, VALUE, get_object
from ...icd.errors import check
from .buffers import (
    HeldObject,
    LayerCommand,
    LayerCommandBuffer,
    get_buffer,
    get_command,
    unfinished,
)
from .entries import answer, copy_bytes, entry, make_error, pack, read_numbers
from .launches import LayerRange, check_on_copy, check_sizes, find_kind
from .memory import keep_part

_CONFIG_TYPE: Final = OPENCL["CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR"]
_Config: Final = OPENCL.get_struct("cl_mutable_dispatch_config_khr")
_Argument: Final = OPENCL.get_struct("cl_mutable_dispatch_arg_khr")
_ExecInfo: Final = OPENCL.get_struct("cl_mutable_dispatch_exec_info_khr")
_LAUNCH_TYPE: Final = OPENCL["CL_COMMAND_NDRANGE_KERNEL"]
_CALL: Final = "clUpdateMutableCommandsKHR"


class LaunchUpdate:
    """What an update asks of one launch. It is checked before anything changes.

    Args:
        config: the cl_mutable_dispatch_config_khr.
        before: the sizes that earlier updates of this call give to launches.

    Raises:
        OpenCLError: what is wrong.
    """

    def __init__(
        self, buffer: LayerCommandBuffer, config: Any, before: dict[LayerCommand, LayerRange]
    ) -> None:
        command = get_command(config.command)
        if command.buffer is not buffer:
            raise make_error(
                "CL_INVALID_MUTABLE_COMMAND_KHR",
                "the command is not a launch of this command-buffer",
            )
        self.command, self._buffer = command, buffer
        self._device = buffer.queues[command.queue].device
        self.arguments: list[tuple[int, int, int, Any]] = []
        self.exec_infos: list[tuple[int, bytes]] = []
        self.launch = self._read_sizes(config, before.get(command) or get_range(command))
        if self.launch is not None:
            before[command] = self.launch
        for field, name in (("ARGUMENTS", "arg"), ("ARGUMENTS", "arg_svm")):
            self._allow(field, bool(_count(config, name)))
        self._allow("EXEC_INFO", bool(_count(config, "exec_info")))
        self._read_arguments(config)
        for info in _read_array(config, "exec_info", _ExecInfo):
            if not info.param_value:
                raise make_error("CL_INVALID_VALUE", "the value of an exec info is NULL")
            data = copy_bytes(info.param_value, info.param_value_size)
            self.exec_infos.append((info.param_name, data))

    def _allow(self, field: str, wanted: bool) -> None:
        bit = OPENCL[f"CL_MUTABLE_DISPATCH_{field}_KHR"]
        if wanted and not self.command.fields & bit:
            raise make_error(
                "CL_INVALID_OPERATION",
                f"the launch was recorded without CL_MUTABLE_DISPATCH_{field}_KHR",
            )

    def _read_sizes(self, config: Any, present: LayerRange) -> LayerRange | None:
        """The sizes that the launch gets, None if they stay."""
        given = {
            "GLOBAL_OFFSET": config.global_work_offset,
            "GLOBAL_SIZE": config.global_work_size,
            "LOCAL_SIZE": config.local_work_size,
        }
        for field, where in given.items():
            self._allow(field, bool(where))
        dim = len(present.size)
        if config.work_dim not in (0, dim):
            raise make_error(
                "CL_INVALID_OPERATION", f"the launch was recorded with {dim} dimensions"
            )
        if not any(given.values()):
            return None
        offset, size, local = (
            read_numbers(where, "size_t", dim if where else 0) for where in given.values()
        )
        launch = replace(
            present,
            offset=offset or present.offset,
            size=size or present.size,
            local=local or present.local,
        )
        kernel = self._buffer.get_kernel(self.command.kernel, self._device)
        check_sizes(kernel, self._buffer.get_device(self._device), launch)
        if None not in (was := present.is_uniform, is_ := launch.is_uniform) and was != is_:
            raise make_error(
                "CL_INVALID_OPERATION",
                "work-groups of one size become groups of several sizes, or the reverse",
            )
        limit, groups = self.command.groups, launch.groups
        if self.command.asserts and limit is not None and (groups is None or groups > limit):
            raise make_error(
                "CL_INVALID_OPERATION",
                f"{groups} work-groups, where the launch promised no more than {limit}",
            )
        return launch

    def _read_arguments(self, config: Any) -> None:
        copy = get_address(self.command.native.kernel)
        count = lib.fl_argument_count(self.command.native.arguments)
        for argument in _read_array(config, "arg", _Argument):
            index, size, value = argument.arg_index, argument.arg_size, argument.arg_value
            if index >= count:
                raise make_error("CL_INVALID_ARG_INDEX", f"argument {index} of {count}")
            data = copy_bytes(value, size) if value and size else None
            kind = find_kind(copy, index, data)
            check_on_copy(copy, index, VALUE, size, value)
            if kind == MEMORY and data:
                keep_part(self._buffer, int.from_bytes(data, "little"), self._device)
            self.arguments.append((index, kind, size, data))
        for argument in _read_array(config, "arg_svm", _Argument):
            index, value = argument.arg_index, argument.arg_value
            if index >= count:
                raise make_error("CL_INVALID_ARG_INDEX", f"argument {index} of {count}")
            check_on_copy(copy, index, POINTER, 0, value)
            self.arguments.append((index, POINTER, 0, value))

    def list_replaced(self) -> list[HeldObject]:
        """The memory objects that the launch has until the change, with a reference to each.

        The engine `direct` uses them in what is enqueued, and the driver does not know.
        """
        found = []
        for index, *_ in self.arguments:
            kind, handle = get_object(self.command.native, index)
            if kind == MEMORY and handle:
                call(handle, "clRetainMemObject")
                found.append(HeldObject("MemObject", handle))
        return found

    def commit(self) -> bool:
        """Make the change in the array. Returns whether the launch has another kernel now."""
        native = self._buffer.commands.array + self.command.number
        for index, kind, size, data in self.arguments:
            if kind == POINTER:
                value: Any = ffi.cast("void *", data or 0)
            else:
                value = ffi.NULL if data is None else ffi.from_buffer(data)
            check(lib.fl_set_argument(native, index, kind, size, value), _CALL)
        launch = self.launch
        if launch is not None:
            native.n[0:9] = launch.numbers
            native.has_offset = launch.offset is not None
            native.has_local = launch.local is not None
        if not self.exec_infos:
            return False
        native.kernel = self._make_kernel()
        return True

    def _make_kernel(self) -> Any:
        """A kernel of this launch alone, with the new exec infos. Raises OpenCLError."""
        made = lib.fl_clone_kernel(self.command.native.kernel)
        if not made:
            raise make_error("CL_OUT_OF_RESOURCES", "the driver cannot copy the kernel")
        self._buffer.copies[object()] = made
        for name, value in self.exec_infos:
            data = ffi.from_buffer(value)
            code = call(
                get_address(made), "clSetKernelExecInfo", name, len(value), get_address(data)
            )
            check(code, "clSetKernelExecInfo")
        return made


def get_range(command: LayerCommand) -> LayerRange:
    """Return the sizes that a launch has now."""
    native = command.native
    dim = native.work_dim
    return LayerRange(
        list(native.n[0:dim]) if native.has_offset else None,
        list(native.n[3 : 3 + dim]),
        list(native.n[6 : 6 + dim]) if native.has_local else None,
    )


def _count(config: Any, name: str) -> int:
    """How long a list of a config is.

    Raises:
        OpenCLError: CL_INVALID_VALUE if it is NULL or empty, and not both.
    """
    number = {"arg": "num_args", "arg_svm": "num_svm_args", "exec_info": "num_exec_infos"}[name]
    count = getattr(config, number)
    if bool(count) != bool(getattr(config, f"{name}_list")):
        raise make_error("CL_INVALID_VALUE", f"{name}_list is NULL or empty, and not both")
    return count


def _read_array(config: Any, name: str, kind: Any) -> Any:
    count = _count(config, name)
    return (kind * count).from_address(getattr(config, f"{name}_list")) if count else ()


@entry
def clUpdateMutableCommandsKHR(
    handle: int | None, count: int, types: int | None, configs: int | None
) -> None:
    buffer = get_buffer(handle)
    with buffer.lock:
        if buffer.runner is None:
            raise make_error("CL_INVALID_OPERATION", "the command-buffer is not finalized")
        if not buffer.mutable:
            raise make_error(
                "CL_INVALID_OPERATION",
                "the command-buffer was made without CL_COMMAND_BUFFER_MUTABLE_KHR",
            )
        if bool(count) != bool(types) or bool(count) != bool(configs):
            raise make_error("CL_INVALID_VALUE", "a list is NULL or empty, and not all are")
        if any(one != _CONFIG_TYPE for one in read_numbers(types, "uint32_t", count)):
            raise make_error("CL_INVALID_VALUE", "a config is of an unknown type")
        wheres = read_numbers(configs, "uintptr_t", count)
        if not all(wheres):
            raise make_error("CL_INVALID_VALUE", "a config is NULL")
        sizes: dict[LayerCommand, LayerRange] = {}
        updates = [LaunchUpdate(buffer, _Config.from_address(where), sizes) for where in wheres]
        _commit(buffer, updates)


def _commit(buffer: LayerCommandBuffer, updates: list[LaunchUpdate]) -> None:
    """Make changes that were checked: all, or none. Raises OpenCLError."""
    relaunched: list[bool] = []

    def change() -> dict[int, bool]:
        relaunched[:] = [update.commit() for update in updates]
        return {update.command.number: False for update in updates}

    runner = buffer.runner
    assert runner is not None
    replaced = [held for update in updates for held in update.list_replaced()]
    runner.plans.change(list({update.command.number for update in updates}), change, _CALL)
    if replaced:
        runner.keep(unfinished, replaced)
    if any(relaunched):
        buffer.run_anew()


def _pack_sizes(command: LayerCommand, first: int) -> bytes:
    native = command.native
    return pack("size_t", *native.n[first : first + native.work_dim])


_INFO: Final[dict[str, Callable[[LayerCommand], bytes]]] = {
    "CL_MUTABLE_COMMAND_COMMAND_QUEUE_KHR": lambda one: pack(
        "uintptr_t", one.buffer.queues[one.queue].handle
    ),
    "CL_MUTABLE_COMMAND_COMMAND_BUFFER_KHR": lambda one: pack("uintptr_t", one.buffer.handle),
    "CL_MUTABLE_COMMAND_COMMAND_TYPE_KHR": lambda _: pack("uint32_t", _LAUNCH_TYPE),
    "CL_MUTABLE_COMMAND_PROPERTIES_ARRAY_KHR": lambda one: pack(
        "uint64_t", *(one.properties or ())
    ),
    "CL_MUTABLE_DISPATCH_KERNEL_KHR": lambda one: pack("uintptr_t", one.kernel),
    "CL_MUTABLE_DISPATCH_DIMENSIONS_KHR": lambda one: pack("uint32_t", one.native.work_dim),
    "CL_MUTABLE_DISPATCH_GLOBAL_WORK_OFFSET_KHR": lambda one: _pack_sizes(one, 0),
    "CL_MUTABLE_DISPATCH_GLOBAL_WORK_SIZE_KHR": lambda one: _pack_sizes(one, 3),
    "CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR": lambda one: _pack_sizes(one, 6),
}
_ANSWERS: Final = {OPENCL[name]: made for name, made in _INFO.items()}


@entry
def clGetMutableCommandInfoKHR(
    handle: int | None, name: int, room: int | None, into: int | None, size_ret: int | None
) -> None:
    command = get_command(handle)
    made = _ANSWERS.get(name)
    if made is None:
        raise make_error("CL_INVALID_VALUE", f"{name:#x} is not a query of commands")
    answer(made(command), room, into, size_ret)
