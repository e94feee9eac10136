"""cl_khr_command_buffer_mutable_dispatch for cases, in the device's version.

The ABI changed at 0.9.2. Before it, clUpdateMutableCommandsKHR took one struct that led to a list
of configurations. Each of them had a type and a pointer to a next struct. Since then the function
takes arrays of types and of pointers to configurations. No header has the old structs any more, so
they are defined here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import failed, unsupported
from fairlead.conformance.opencl.commands import FLAGS, CLRecorder, CommandBuffers, properties
from fairlead.conformance.opencl.objects import CLObjects, check
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.query import query

UPDATE: Final = "clUpdateMutableCommandsKHR"
MUTABLE_FLAG: Final = OPENCL["CL_COMMAND_BUFFER_MUTABLE_KHR"]
UPDATABLE: Final = OPENCL["CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"]
FIELDS: Final = ("GLOBAL_OFFSET", "GLOBAL_SIZE", "LOCAL_SIZE", "ARGUMENTS", "EXEC_INFO")
Argument: Final = OPENCL.get_struct("cl_mutable_dispatch_arg_khr")
ExecInfo: Final = OPENCL.get_struct("cl_mutable_dispatch_exec_info_khr")
Config: Final = OPENCL.get_struct("cl_mutable_dispatch_config_khr")

_ARRAYS_SINCE: Final = (0, 9, 2)


class _OldConfig(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint32), ("next", ctypes.c_void_p), *Config._fields_)


class _OldBase(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("num_mutable_dispatch", ctypes.c_uint32),
        ("mutable_dispatch_list", ctypes.POINTER(_OldConfig)),
    )


_OLD_BASE, _OLD_DISPATCH = 0, 1
_OldUpdate = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def field(name: str) -> int:
    """Return the bit of one of FIELDS."""
    return OPENCL[f"CL_MUTABLE_DISPATCH_{name}_KHR"]


def arguments(*pairs: tuple[int, Any]) -> Any:
    """Return a list of kernel arguments.

    Args:
        pairs: an index and a value each. A value is a ctypes object, or an int for a memory object
            or an SVM pointer.
    """
    values = [ctypes.c_void_p(value) if isinstance(value, int) else value for _, value in pairs]
    entries = [
        Argument(index, ctypes.sizeof(value), ctypes.addressof(value))
        for (index, _), value in zip(pairs, values, strict=True)
    ]
    array = (Argument * len(entries))(*entries)
    array.kept = values  # what the entries point to
    return array


class Mutable:
    """A command-buffer that can be updated."""

    def __init__(
        self, commands: CommandBuffers, objects: CLObjects, queue: int, flags: int = 0
    ) -> None:
        self.commands, self.objects = commands, objects
        self.recorder = CLRecorder(commands, objects, queue, flags=MUTABLE_FLAG | flags)

    @property
    def capabilities(self) -> int:
        """CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR."""
        return self.commands.device.info("CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR")

    def needs(self, *fields: str) -> None:
        """End the case as unsupported unless the device can change these fields."""
        for name in fields:
            if not self.capabilities & field(name):
                unsupported(
                    f"the device cannot change {name} (CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR)"
                )

    def launch(self, kernel: int, size: int, *fields: str, **changes: Any) -> int:
        """Record a kernel and return the command's handle.

        These fields of it can be changed; by default all that the device can change.
        """
        self.needs(*fields)
        handle = ctypes.c_void_p()
        what = properties(UPDATABLE, sum(map(field, fields))) if fields else None
        self.recorder.launch(
            kernel, size, **{"properties": what, "mutable_handle": ctypes.byref(handle), **changes}
        )
        if not handle.value:
            failed("clCommandNDRangeKernelKHR gives a handle", "NULL")
        return handle.value or 0

    def run(self) -> None:
        """Enqueue the command-buffer and wait."""
        self.recorder.enqueue()
        self.objects.finish(self.recorder.queue)

    def read(self, *buffers: int) -> list[list[int]]:
        """Return the numbers in buffers, after everything in the queue."""
        return [self.objects.read(self.recorder.queue, buffer) for buffer in buffers]

    def answer(self, *configs: dict[str, Any]) -> int:
        """Update the command-buffer and return the code.

        Args:
            configs: fields of cl_mutable_dispatch_config_khr. The lengths follow from the arrays.
        """
        if self.commands.mutable_version < _ARRAYS_SINCE:
            filled = [_fill(_OldConfig(type=_OLD_DISPATCH), config) for config in configs]
            array = (_OldConfig * len(filled))(*filled)
            base = _OldBase(_OLD_BASE, None, len(filled), array)
            address = self.commands.device.platform.extension_function(UPDATE)
            return (
                _OldUpdate(address)(self.recorder.handle, ctypes.byref(base))
                if address
                else failed(f"{UPDATE} is there", "NULL")
            )
        filled = [_fill(Config(), config) for config in configs]
        types = (ctypes.c_uint32 * len(filled))(
            *[OPENCL["CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR"]] * len(filled)
        )
        return self.answer_arrays(len(filled), types, handles(*map(ctypes.addressof, filled)))

    def answer_arrays(self, count: int, types: Any, configs: Any) -> int:
        """Return the code of an update, with the parameters of version 0.9.2 and later."""
        if self.commands.mutable_version < _ARRAYS_SINCE:
            unsupported("configurations are given in arrays since 0.9.2")
        return self.commands.clUpdateMutableCommandsKHR(self.recorder.handle, count, types, configs)

    def update(self, *configs: dict[str, Any]) -> None:
        """Update the command-buffer. The call must succeed."""
        check(self.answer(*configs), UPDATE)

    def info(self, command: int, name: str) -> bytes:
        """Return the answer of clGetMutableCommandInfoKHR."""
        routine = "clGetMutableCommandInfoKHR"
        return query(
            self.commands.clGetMutableCommandInfoKHR,
            routine,
            check,
            command,
            OPENCL[name],
            detail=f" ({name})",
        )

    def create_with(self, *pairs: int) -> None:
        """Replace the command-buffer by one with more properties."""
        what = properties(FLAGS, MUTABLE_FLAG, *pairs)
        handle, code = self.commands.try_create(1, handles(self.recorder.queue), what)
        check(code, "clCreateCommandBufferKHR")
        self.objects.defer(lambda: self.commands.clReleaseCommandBufferKHR(handle))
        self.recorder.handle = handle or 0


def _fill(struct: Any, config: dict[str, Any]) -> Any:
    """Write a config into a struct; `work_dim` follows from the sizes."""
    counts = {
        "arg_list": "num_args",
        "arg_svm_list": "num_svm_args",
        "exec_info_list": "num_exec_infos",
    }
    struct.kept = config
    for name, value in config.items():
        if name in counts and value is not None and counts[name] not in config:
            setattr(struct, counts[name], len(value))
        if name.startswith(("global", "local")) and value is not None and "work_dim" not in config:
            struct.work_dim = len(value)
        setattr(struct, name, ctypes.addressof(value) if isinstance(value, ctypes.Array) else value)
    return struct


def args(command: int, *pairs: tuple[int, Any]) -> dict[str, Any]:
    """Return the config that gives a command new arguments."""
    return {"command": command, "arg_list": arguments(*pairs)}


def ndrange(command: int, **values: Sequence[int]) -> dict[str, Any]:
    """Return the config that gives a command another ND-range.

    Example: `ndrange(command, global_work_size=[4])`.
    """
    return {"command": command, **{name: sizes(*numbers) for name, numbers in values.items()}}
