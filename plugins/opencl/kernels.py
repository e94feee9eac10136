"""Kernels and their arguments. kernel_info.py answers what they are asked, launches.py enqueues them.

OpenCL keeps arguments in the cl_kernel, and setting them is the one thing that threads must not do at the same time (SPEC clSetKernelArg):
whoever sets arguments and uses them holds the kernel's lock from the one to the other.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from sys import byteorder
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary, ref

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.forks import new_lock
from ...loader.ur.abi import UR, URError
from ..sdk._native import ffi
from .contexts import URContext, check_native
from .core import CLObject, adapter, check, create, failure, query, retain_unless_owned
from .devices import URDevice
from .platforms import extension
from .programs import URProgram, program_of
from .usm.addresses import pointer_argument

_LARGEST_VALUE: Final = 1 << 16  # bytes; no device takes as many (CL_DEVICE_MAX_PARAMETER_SIZE)
_MOST_ARGUMENTS: Final = 1 << 16


class URKernelArgument(NamedTuple):
    """What an argument is set to: a kind, and by the kind

    | kind | size | value |
    |---|---|---|
    | VALUE | its bytes | bytes |
    | POINTER | 0 | the address |
    | MEM | of a cl_mem | the memory object, None for NULL |
    | LOCAL | of the local memory | None |
    | SAMPLER | of a cl_sampler | the sampler |
    """

    kind: int
    size: int
    value: Any

    VALUE = UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"]
    POINTER = UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"]
    MEM = UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"]
    LOCAL = UR["UR_EXP_KERNEL_ARG_TYPE_LOCAL"]
    SAMPLER = UR["UR_EXP_KERNEL_ARG_TYPE_SAMPLER"]


_VALUE, _POINTER, _MEM, _LOCAL, _SAMPLER = (
    URKernelArgument.VALUE,
    URKernelArgument.POINTER,
    URKernelArgument.MEM,
    URKernelArgument.LOCAL,
    URKernelArgument.SAMPLER,
)
_BYTES: Final = frozenset((_VALUE, _LOCAL))  # what clSetKernelArg is given as it is
_HANDLE: Final = ctypes.sizeof(ctypes.c_void_p)


def _nothing() -> None:
    """Stands for the reference to memory that is gone."""


#: The lock of each cl_kernel: several kernels may be made of one native handle.
_locks: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()


@adapter.kind
class URKernel(CLObject):
    """A cl_kernel with the program that it is of, and the arguments that were last set on it."""

    type = "ur_kernel_handle_t"
    release, retain_function = "clReleaseKernel", "clRetainKernel"

    def __init__(self, cl: int, program: URProgram) -> None:
        super().__init__(cl, program.table)
        self.program, self.context = program, program.context
        self.lock = _locks.setdefault(cl, new_lock())
        #: Of a memory object only a reference, which may lead to nothing by now.
        self._arguments: dict[int, URKernelArgument | Callable[[], Any]] = {}
        self._settings = 0  # how often something was set on it that is no argument
        self.has_indirect_access = (
            False  # whether a driver has to be told of all SVM (kernel_info.declare_memory)
        )
        self.declared_memory: list[int] = []  # what it was told
        self.had_pointers = False  # whether an argument was ever an address
        self.shared = False  # whether others may know the cl_kernel
        self.value_sizes: dict[int, int] = {}  # of arguments by value, as the driver took them
        self._constant: dict[tuple[int, str], bytes] = {}

    @cached_property
    def argument_count(self) -> int:
        """How many arguments it has."""
        return int.from_bytes(self.query("CL_KERNEL_NUM_ARGS"), "little")

    @property
    def identity(self) -> Any:
        """A key for the kernel as it is now, its arguments left aside: another one after a setting was changed."""
        return self, self._settings

    @property
    def is_plain(self) -> bool:
        """Whether nothing but arguments was ever set on it."""
        return not self._settings

    def create_copy(self) -> int:
        """A cl_kernel of the same function on which nothing is set."""
        name = self.query("CL_KERNEL_FUNCTION_NAME").rstrip(b"\0")
        return create(self.table, "clCreateKernel", self.program.cl, name)

    def note_setting(self) -> None:
        """Something was set that is no argument: the kernel is another one from now on."""
        self._settings += 1

    # arguments

    @property
    def arguments(self) -> dict[int, URKernelArgument]:
        """The arguments last set, by index. One whose memory object was released meanwhile is not set any more."""
        last = {}
        for index, kept in self._arguments.items():
            if isinstance(kept, URKernelArgument):
                last[index] = kept
            elif (memory := kept()) is not None:
                last[index] = URKernelArgument(_MEM, _HANDLE, memory)
        return last

    def remember(self, arguments: Iterable[tuple[int, URKernelArgument]]) -> None:
        """These arguments were set. As in OpenCL a kernel does not keep memory objects alive."""
        last = self._arguments
        for index, argument in arguments:
            kind = argument[0]
            if kind == _POINTER:
                self.had_pointers = True
            memory = argument[2] if kind == _MEM else None
            last[index] = argument if memory is None else ref(memory)

    def restore(self, indices: Iterable[int]) -> None:
        """After one of several arguments was refused the driver has those before it: set them to what they were. One that was nothing,
        or memory that is gone, is not set until it is set again, since nothing keeps alive what the driver has for it."""
        last = self.arguments
        for index in set(indices).intersection(range(self.argument_count)):
            try:
                set_arguments(self.cl, self.context, [(index, last[index])])
            except (KeyError, OpenCLError, URError):
                self._arguments[index] = _nothing

    def exchange(self, other: URKernel) -> None:
        """Give the cl_kernel away for that of another, of the same function and with the same arguments."""
        self.cl, other.cl = other.cl, self.cl
        self.owned, other.owned = other.owned, self.owned
        _locks[self.cl], _locks[other.cl] = self.lock, other.lock
        self.had_pointers, self.declared_memory = other.had_pointers, []

    def check_arguments(self) -> None:
        """Raise URError (INVALID_KERNEL_ARGS) if an argument is not there any more: a driver would use it."""
        if len(self.arguments) < len(self._arguments):
            raise failure(
                "INVALID_KERNEL_ARGS",
                "the memory object of an argument was released, or the argument was refused",
            )

    # what the device has to do with it

    def group_info(self, device: URDevice, name: str) -> bytes:
        """The raw answer of clGetKernelWorkGroupInfo to `name`."""
        return query(
            self.table,
            "clGetKernelWorkGroupInfo",
            self.cl,
            device.cl,
            OPENCL[name],
            detail=f"({name})",
        )

    def constant_info(self, device: URDevice, name: str) -> bytes:
        """`group_info`, asked once: for what does not change. libsycl asks before every launch."""
        key = device.cl, name
        if key not in self._constant:
            self._constant[key] = self.group_info(device, name)
        return self._constant[key]

    def group_size(self, device: URDevice) -> int:
        """How many work-items a work-group of it may have."""
        return int.from_bytes(self.constant_info(device, "CL_KERNEL_WORK_GROUP_SIZE"), "little")

    def required_size(self, device: URDevice) -> tuple[int, int, int] | None:
        """The size of work-groups that it is compiled for, None if that is left open."""
        sizes = struct.unpack(
            "@3N", self.constant_info(device, "CL_KERNEL_COMPILE_WORK_GROUP_SIZE")
        )
        return sizes if any(sizes) else None

    def check_group(self, device: URDevice, local: Sequence[int] | None) -> None:
        """Raise URError (INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE) for a local size that it cannot be launched with."""
        if local is None:
            return
        most = device.icd.info("CL_DEVICE_MAX_WORK_ITEM_SIZES")
        if any(size > limit for size, limit in zip(local, most, strict=False)):
            raise failure("INVALID_WORK_ITEM_SIZE", f"the device takes {most} work-items at most")
        items = 1
        for size in local:
            items *= size
        if not 1 <= items <= self.group_size(device):
            raise failure(
                "INVALID_WORK_GROUP_SIZE",
                f"a work-group has 1 to {self.group_size(device)} work-items",
            )
        required = self.required_size(device)
        if required and tuple(local) != required[: len(local)]:
            raise failure(
                "INVALID_WORK_GROUP_SIZE", f"the kernel is compiled for work-groups of {required}"
            )


@adapter.entry
def urKernelCreate(hProgram: URProgram, pKernelName: str) -> URKernel:
    return URKernel(
        create(hProgram.table, "clCreateKernel", hProgram.cl, pKernelName.encode()), hProgram
    )


@adapter.entry
def urKernelGetNativeHandle(hKernel: URKernel) -> int:
    hKernel.shared = True
    return hKernel.cl


@adapter.entry
def urKernelCreateWithNativeHandle(
    hNativeKernel: int, hContext: URContext, hProgram: URProgram | None, pProperties: Any
) -> URKernel:
    check_native(hNativeKernel, hContext, "clGetKernelInfo", "CL_KERNEL_CONTEXT")
    asked = query(hContext.table, "clGetKernelInfo", hNativeKernel, OPENCL["CL_KERNEL_PROGRAM"])
    native = int.from_bytes(asked, "little")
    if hProgram is not None and hProgram.cl != native:
        raise failure("INVALID_PROGRAM", "the native kernel is of another program")
    program = hProgram or program_of(native, hContext, owned=False)
    retain_unless_owned(
        URKernel,
        hNativeKernel,
        hContext.table,
        bool(pProperties and pProperties.isNativeHandleOwned),
    )
    kernel = URKernel(hNativeKernel, program)
    kernel.shared = True
    return kernel


# arguments: what urEnqueueKernelLaunchWithArgsExp and its like are given

#: A ur_exp_kernel_arg_properties_t: kind, index, size, and the first word of its value. Read at once, not field by field: launches
#: are many.
_ROW: Final = struct.Struct("@16xIINN8x")
_ROW_TYPE: Final = "ur_exp_kernel_arg_properties_t"
assert _ROW.size == ffi.sizeof(_ROW_TYPE)
assert [ffi.offsetof(_ROW_TYPE, name) for name in ("type", "index", "size", "value")] == [
    16,
    20,
    24,
    32,
]
_BYTES_AT: Final = ffi.typeof("char *")
_new: Final = tuple.__new__  # a NamedTuple's own takes three times as long


def argument_rows(rows: Any, count: int) -> Iterable[Any]:
    """Kind, index, size and value of each row of an array of ur_exp_kernel_arg_properties_t. Raises URError for more than any kernel
    has."""
    if not count:
        return ()
    if count > _MOST_ARGUMENTS:
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", f"no kernel has {count} arguments")
    return _ROW.iter_unpack(ffi.buffer(rows, count * _ROW.size))


def arguments_of(rows: Any, count: int) -> list[tuple[int, URKernelArgument]]:
    """Index and argument of each row of an array of ur_exp_kernel_arg_properties_t. Raises URError."""
    found = []
    for kind, index, size, value in argument_rows(rows, count):
        if kind == _VALUE:
            argument = _value(size, value)
        elif kind == _POINTER:
            argument = _POINTER, 0, value
        elif kind == _LOCAL:
            argument = _LOCAL, size, None
        else:
            argument = kind, _HANDLE, _object_of(kind, index, value)
        found.append((index, _new(URKernelArgument, argument)))
    return found


def value_argument(size: int, address: int) -> URKernelArgument:
    """The bytes of a value; of none, it is local memory, as in OpenCL. Raises URError (INVALID_KERNEL_ARGUMENT_SIZE) for more than any
    kernel can take."""
    return URKernelArgument(*_value(size, address))


def _value(size: int, address: int) -> tuple[int, int, Any]:
    if not address:
        return _LOCAL, size, None
    if size > _LARGEST_VALUE:
        raise failure("INVALID_KERNEL_ARGUMENT_SIZE", f"no argument has {size} bytes")
    return _VALUE, size, ffi.unpack(ffi.cast(_BYTES_AT, address), size)


def _object_of(kind: int, index: int, handle: int) -> Any:
    """The memory object (None for NULL) or the sampler of a handle. Raises URError for what is not alive, and for a kind of argument that
    there is not."""
    if kind == _MEM:
        return _object("ur_mem_handle_t", handle, "INVALID_MEM_OBJECT") if handle else None
    if kind == _SAMPLER:
        return _object("ur_sampler_handle_t", handle, "INVALID_SAMPLER")
    raise failure("INVALID_ENUMERATION", f"argument {index} is of no kind that there is")


def _object(type_name: str, handle: int, code: str) -> Any:
    found = adapter.registry.of(type_name).get(handle)  # pyright: ignore[reportOptionalMemberAccess]  # there is one when C calls
    if found is None:
        raise failure(code, "an argument's handle is not alive")
    return found


def set_arguments(
    kernel: int, context: URContext, arguments: Iterable[tuple[int, URKernelArgument]]
) -> None:
    """Set arguments on a cl_kernel of the context. Raises OpenCLError; URError for what the context cannot use."""
    set_argument = context.table.clSetKernelArg
    for index, (kind, size, value) in arguments:
        routine = "clSetKernelArg"
        if kind in _BYTES:
            code = set_argument(kernel, index, size, value)
        elif kind == _POINTER:
            routine, code = _set_pointer(kernel, context, index, value)
        else:
            if value is not None and value.context.cl != context.cl:
                raise failure(
                    "INVALID_CONTEXT", f"the object of argument {index} is of another context"
                )
            code = set_argument(
                kernel,
                index,
                size,
                value.cl.to_bytes(_HANDLE, byteorder) if value is not None else None,
            )
        if code:
            check(code, routine, f"It is argument {index}.")


def _set_pointer(kernel: int, context: URContext, index: int, address: int) -> tuple[str, int]:
    """The function that sets an address, and the code that it gave."""
    way, value = pointer_argument(context, address)
    if way == "svm":
        return "clSetKernelArgSVMPointer", context.table.clSetKernelArgSVMPointer(
            kernel, index, value
        )
    if way == "usm":
        routine = "clSetKernelArgMemPointerINTEL"
        return routine, extension(context.platform, routine)(kernel, index, value)
    handle = value.to_bytes(_HANDLE, byteorder) if value else None
    return "clSetKernelArg", context.table.clSetKernelArg(kernel, index, _HANDLE, handle)


def set_on(kernel: URKernel, arguments: list[tuple[int, URKernelArgument]]) -> None:
    """Set arguments on a kernel whose lock is held, and remember them: all of them, or after a refusal none."""
    try:
        set_arguments(kernel.cl, kernel.context, arguments)
    except (OpenCLError, URError):
        kernel.restore(index for index, _ in arguments)
        raise
    kernel.remember(arguments)


# the older functions, which set one argument; `hKernel` keeps it until it is launched


def _set_one(kernel: URKernel, index: int, argument: URKernelArgument) -> None:
    with kernel.lock:
        set_on(kernel, [(index, argument)])


@adapter.entry
def urKernelSetArgValue(hKernel: URKernel, argIndex: int, argSize: int, pArgValue: int) -> None:
    _set_one(hKernel, argIndex, value_argument(argSize, pArgValue))


@adapter.entry
def urKernelSetArgLocal(hKernel: URKernel, argIndex: int, argSize: int) -> None:
    _set_one(hKernel, argIndex, URKernelArgument(_LOCAL, argSize, None))


@adapter.entry
def urKernelSetArgPointer(hKernel: URKernel, argIndex: int, pArgValue: int) -> None:
    _set_one(hKernel, argIndex, URKernelArgument(_POINTER, 0, pArgValue))


@adapter.entry
def urKernelSetArgMemObj(hKernel: URKernel, argIndex: int, hArgValue: Any) -> None:
    _set_one(hKernel, argIndex, URKernelArgument(_MEM, _HANDLE, hArgValue))


@adapter.entry
def urKernelSetArgSampler(hKernel: URKernel, argIndex: int, hArgValue: Any) -> None:
    _set_one(hKernel, argIndex, URKernelArgument(_SAMPLER, _HANDLE, hArgValue))


from . import kernel_info  # noqa: E402, F401  # urKernelGetInfo and so on, which belong to this module
