"""What the measures of the reference adapter need: its C functions, objects and command-buffers.

The adapter is the drop-in library, in this process, with the process's one driver. The objects are
those of a PyOpenCL program.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.abi import Api
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins import reference_adapter

from .work import WORK_ITEMS, Launches

_HERE: Final = Path(__file__).parent
_FUNCTIONS: Final = {
    UR: (
        "urAdapterGet",
        "urPlatformGet",
        "urDeviceGet",
        "urQueueFinish",
        "urEventRelease",
        "urEnqueueMemBufferRead",
        "urEnqueueCommandBufferExp",
        "urCommandBufferUpdateKernelLaunchExp",
    ),
    OPENCL: ("clFinish", "clEnqueueCommandBufferKHR"),
}
_STRUCTS: Final = ("ur_exp_command_buffer_update_kernel_launch_desc_t",)
_CONSTANTS: Final = ("UR_API_VERSION_CURRENT", "UR_DEVICE_TYPE_ALL")

Argument: Final = UR.get_struct("ur_exp_kernel_arg_properties_t")
Update: Final = UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")
ValueUpdate: Final = UR.get_struct("ur_exp_command_buffer_update_value_arg_desc_t")
MemoryUpdate: Final = UR.get_struct("ur_exp_command_buffer_update_memobj_arg_desc_t")


# C


def _abi() -> Iterator[str]:
    """Return the text of adapter_abi.h."""
    building = runpy.run_path(str(_HERE.parent / "loader/base/native/building.py"))
    apis: tuple[Api, ...] = (UR, OPENCL)
    for api in apis:
        yield from building["emit_declarations"](api)
        yield from (
            f"typedef {api.functions[name].format_c_declaration(f'fn_{name}')};"
            for name in _FUNCTIONS[api]
        )
    yield from (UR.structs[name].c_definition for name in _STRUCTS)
    yield from (f"#define {name} {UR[name]}" for name in _CONSTANTS)


def build(output: Path, *flags: str) -> Path:
    """Compile adapter.c to `output`: a program, or with "-shared" a library."""
    (output.parent / "adapter_abi.h").write_text("\n".join([*_abi(), ""]), encoding="utf-8")
    compiler = os.environ.get("CC", "cc").split()
    warnings = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{output.parent}"]
    subprocess.run(
        [
            *compiler,
            *warnings,
            *flags,
            str(_HERE / "adapter.c"),
            "-o",
            str(output),
            "-pthread",
            "-ldl",
        ],
        check=True,
    )
    return output


@cache
def c_functions() -> ctypes.CDLL:
    """Return adapter.c as a library."""
    with TemporaryDirectory() as folder:
        return ctypes.CDLL(str(build(Path(folder, "adapter.so"), "-shared", "-fPIC")))


# The adapter


@cache
def adapter() -> Plugin:
    """Return the reference adapter. It has one device, because the process has one driver."""
    return load(PluginCandidate(reference_adapter(), "bench", backend="opencl"))


def function(name: str) -> ctypes.c_void_p:
    """Return a function of the adapter, for C to call."""
    slot = UR.functions[name].slot
    assert slot is not None
    return ctypes.c_void_p(adapter().table.get_pointer(slot))


def ok(routine: str, *arguments: Any) -> None:
    """Call a function that must succeed."""
    check(getattr(adapter().table, routine)(*arguments), routine)


def check(code: int, what: str = "C's calls") -> None:
    """Stop if a call has failed."""
    if code:
        raise SystemExit(f"{what} failed: {UR.errors.get(code, (code, ''))[0]}")


def make(routine: str, *arguments: Any) -> int:
    """Call a function and return what it writes to its last parameter."""
    handle = ctypes.c_void_p()
    ok(routine, *arguments, ctypes.byref(handle))
    return handle.value or 0


class Objects:
    """The objects of a PyOpenCL program as the adapter's, by their native handles."""

    def __init__(self, launches: Launches) -> None:
        self.device = adapter().devices[0].handle
        self.context = make(
            "urContextCreateWithNativeHandle",
            launches.queue.context.int_ptr,
            adapter().handles[0],
            1,
            (ctypes.c_void_p * 1)(self.device),
            None,
        )
        self.queue = make(
            "urQueueCreateWithNativeHandle", launches.queue.int_ptr, self.context, self.device, None
        )
        self.kernel = make(
            "urKernelCreateWithNativeHandle", launches.kernel.int_ptr, self.context, None, None
        )
        self.memory: dict[int, int] = {}

    def buffer(self, native: int) -> int:
        """Return a memory object."""
        if native not in self.memory:
            self.memory[native] = make(
                "urMemBufferCreateWithNativeHandle", native, self.context, None
            )
        return self.memory[native]

    def arguments(self, values: Sequence[Any]) -> Any:
        """Return the arguments of a launch, from PyOpenCL's buffers and numbers."""
        rows = (Argument * len(values))()
        rows.kept = []
        for index, (row, value) in enumerate(zip(rows, values, strict=True)):
            row.stype, row.index = UR["UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES"], index
            if hasattr(value, "int_ptr"):
                row.type, row.size = UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"], 8
                row.value.memObjTuple.hMem = self.buffer(value.int_ptr)
            else:
                rows.kept.append(ctypes.c_float(value))
                row.type, row.size, row.value.value = (
                    UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"],
                    4,
                    ctypes.addressof(rows.kept[-1]),
                )
        return rows


def command_buffer(context: int, device: int, *, in_order: bool, updatable: bool = False) -> int:
    """Make a command-buffer that is not finalized."""
    stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
    desc = UR.get_struct("ur_exp_command_buffer_desc_t")(stype, None, updatable, in_order, False)
    return make("urCommandBufferCreateExp", context, device, ctypes.byref(desc))


def append(
    buffer: int,
    kernel: int,
    rows: Any,
    size: int,
    local: int,
    offset: int | None = None,
    updatable: bool = False,
) -> int:
    """Append a launch in one dimension.

    Returns the command's handle, 0 if it is not `updatable`.
    """
    command = ctypes.c_void_p()
    numbers = [
        None if number is None else ctypes.byref(ctypes.c_size_t(number))
        for number in (offset, size, local)
    ]
    ok(
        "urCommandBufferAppendKernelLaunchWithArgsExp",
        buffer,
        kernel,
        1,
        *numbers,
        len(rows),
        rows,
        0,
        None,
        0,
        None,
        0,
        None,
        None,
        None,
        ctypes.byref(command) if updatable else None,
    )
    return command.value or 0


class Buffer:
    """Launches as a finalized command-buffer, in order or unordered. `mode` is its engine."""

    def __init__(
        self,
        objects: Objects,
        launches: Launches,
        mode: str,
        *,
        in_order: bool,
        updatable: bool = False,
    ) -> None:
        os.environ["FAIRLEAD_COMMAND_BUFFER"] = mode
        handle = command_buffer(
            objects.context, objects.device, in_order=in_order, updatable=updatable
        )
        self.commands = [
            append(
                handle,
                objects.kernel,
                objects.arguments(row),
                WORK_ITEMS,
                WORK_ITEMS,
                updatable=updatable,
            )
            for row in launches.arguments
        ]
        ok("urCommandBufferFinalizeExp", handle)
        self._handle, self._queue = ctypes.c_void_p(handle), ctypes.c_void_p(objects.queue)
        self._functions = function("urEnqueueCommandBufferExp"), function("urQueueFinish")
        self._update = function("urCommandBufferUpdateKernelLaunchExp")

    def run(self) -> None:
        """Enqueue it, and wait for its end."""
        self.enqueue(1)

    def enqueue(self, times: int) -> None:
        """Enqueue it so many times, and wait for the end of the last."""
        check(c_functions().enqueues(*self._functions, self._queue, self._handle, times))

    def update(self, updates: Any) -> None:
        """Update it with each of an array of `Update`, one after the other."""
        check(c_functions().updates(self._update, self._handle, updates, len(updates)))
