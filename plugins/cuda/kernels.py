"""Kernels of CUDA and HIP, and what is set on them. launches.py has the launches.

A kernel has a function of the driver's on each device of its program. It may have several: the
module of OpenCL C on CUDA depends on the global offset. Arguments are kept here, because the driver
takes all of them with a launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ...loader.base.forks import make_lock
from ..sdk.gpu.device_code import DeviceCode, Sizes
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument, declare_arguments
from ..sdk.kernels import check_group_size, declare_kernels, declare_suggestions
from .contexts import CuContext
from .core import API, INVALID_VALUE, NOT_FOUND, DriverError, Object, adapter, failure, get_constant
from .devices import CuDevice
from .programs import CuModule, CuProgram, make_program
from .queues import CuQueue

_VALUE, _POINTER, _MEM = URKernelArgument.VALUE, URKernelArgument.POINTER, URKernelArgument.MEM
_LOCAL: Final = URKernelArgument.LOCAL


class CuArguments(NamedTuple):
    """Arguments as the driver takes them.

    Attributes:
        pointers: an array of addresses, one for each parameter.
        shared: bytes of dynamic local memory.
        keep: what the addresses lead to, and the memory objects.
    """

    pointers: Any
    shared: int
    keep: Any


@adapter.kind
class CuKernel(Object):
    """A kernel.

    Attributes:
        lock: what a thread holds while it sets or reads arguments.
        shapes: function, grid and block of each part of launches, by the module and the sizes.
    """

    type = "ur_kernel_handle_t"

    def __init__(self, program: CuProgram, name: str) -> None:
        self.program, self.context, self.name = program, program.context, name
        self.lock = make_lock()
        self._arguments: dict[int, URKernelArgument] = {}
        self.shapes: dict[Any, Sequence[tuple[int, Sizes, Sizes]]] = {}
        self._functions: dict[tuple[CuModule, str], int] = {}
        self._attributes: dict[tuple[CuDevice, str], int] = {}
        self.parameter_sizes: tuple[int, ...] = self._read_parameters()

    def _read_parameters(self) -> tuple[int, ...]:
        """Return the bytes of its parameters.

        Raises:
            URError: INVALID_KERNEL_NAME; UNSUPPORTED_FEATURE for OpenCL C with images.
        """
        module = self.program.any_module
        code = self.program.built[module.device]
        try:
            function = self._find_function(module)
        except DriverError as error:
            if error.value not in (NOT_FOUND, INVALID_VALUE):  # the second one: an empty name
                raise
            reason = code.find_refusal(self.name)
            if reason:
                raise failure("UNSUPPORTED_FEATURE", f"{self.name}: {reason}") from error
            raise failure("INVALID_KERNEL_NAME", f"the program has no {self.name}") from error
        return code.list_parameter_sizes(self.name, function)

    def _find_function(self, module: CuModule, offset: Sizes = (0, 0, 0)) -> int:
        name = self.program.built[module.device].find_function_name(self.name, offset)
        if (module, name) not in self._functions:
            self._functions[module, name] = module.find_function(name)
        return self._functions[module, name]

    def get_native(self) -> int:
        """Return the driver's function on the first device of its program."""
        return self.get_function(self.program.any_module.device)

    def get_function(
        self,
        device: CuDevice,
        dimensions: int = 1,
        offset: Sequence[int] | None = None,
        part: Sequence[Sizes] = (),
    ) -> int:
        """Return the driver's function for a launch.

        Args:
            offset: the global offset, None for none.
            part: for a part of a launch, what `DeviceCode.choose_part` takes.

        Raises:
            URError: INVALID_PROGRAM_EXECUTABLE; UNSUPPORTED_FEATURE for an offset that the kernel
                cannot have.
        """
        x, y, z = (*(offset or ()), 0, 0, 0)[:3]
        module = self.program.get_module(device, dimensions, (x, y, z), part)
        try:
            return self._find_function(module, (x, y, z))
        except DriverError as error:
            if error.value != NOT_FOUND or not any((x, y, z)):
                raise
            why = "only OpenCL C and kernels of DPC++ have global offsets"
            raise failure("UNSUPPORTED_FEATURE", f"{self.name}: {why}") from error

    def query_attribute(self, device: CuDevice, name: str) -> int:
        """Return an attribute of its function (CU_FUNC_ATTRIBUTE_…). Raises DriverError."""
        key = device, name
        if key not in self._attributes:
            value = ctypes.c_int()
            number = get_constant(f"CU_FUNC_ATTRIBUTE_{name}")
            function = self._find_function(self.program.get_plain_module(device))
            device.call("FuncGetAttribute", ctypes.byref(value), number, function)
            self._attributes[key] = value.value
        return self._attributes[key]

    def query_group_size(self, device: CuDevice) -> int:
        """Return how many work-items a work-group of the kernel may have."""
        return self.query_attribute(device, "MAX_THREADS_PER_BLOCK")

    def find_required_size(self, device: CuDevice) -> Sizes | None:
        """Return the work-group size that the kernel requires, None for any size."""
        found = self.program.built.get(device)
        return found.find_required_size(self.name) if found is not None else None

    def find_sub_group_size(self, device: CuDevice) -> int:
        """Return how many work-items a sub-group of the kernel has."""
        found = self.program.built.get(device)
        size = found.find_sub_group_size(self.name) if found is not None else 0
        return size or device.query_attribute("WARP_SIZE")

    # arguments

    @property
    def arguments(self) -> dict[int, URKernelArgument]:
        """Return the arguments that were last set, by index."""
        with self.lock:
            return dict(self._arguments)

    def check(self, arguments: Iterable[tuple[int, URKernelArgument]]) -> None:
        """Check arguments before they are set.

        Raises:
            URError: INVALID_KERNEL_ARGUMENT_INDEX, INVALID_KERNEL_ARGUMENT_SIZE, INVALID_CONTEXT,
                UNSUPPORTED_FEATURE.
        """
        sizes = self.parameter_sizes
        for index, (kind, size, value) in arguments:
            if index >= len(sizes):
                raise failure(
                    "INVALID_KERNEL_ARGUMENT_INDEX",
                    f"{self.name} has {len(sizes)} parameters, not {index + 1}",
                )
            given = size if kind == _VALUE else sizes[index] if kind == _LOCAL else HANDLE_SIZE
            if given != sizes[index] or (kind == _LOCAL and not size):
                raise failure(
                    "INVALID_KERNEL_ARGUMENT_SIZE",
                    f"parameter {index} of {self.name} has {sizes[index]} bytes, not {given}",
                )
            if kind == _MEM and value is not None:
                self.context.check_shared(f"the memory of argument {index}", value)
            if kind not in (_VALUE, _POINTER, _MEM, _LOCAL):
                raise failure("UNSUPPORTED_FEATURE", f"{API.name}'s kernels take no samplers")

    def set(self, arguments: list[tuple[int, URKernelArgument]]) -> None:
        """Set arguments. If one is wrong, nothing changes. Raises URError as `check`."""
        self.check(arguments)
        with self.lock:
            self._arguments.update(arguments)

    def pack(
        self,
        arguments: dict[int, URKernelArgument],
        code: DeviceCode,
        offset: Sequence[int] | None = None,
    ) -> CuArguments:
        """Return arguments as the driver takes them.

        Args:
            code: the program on the device of the launch.
            offset: the global offset, None for none.

        Raises:
            URError: INVALID_KERNEL_ARGS if one is missing, or its memory was released.
        """
        count = len(self.parameter_sizes)
        if len(arguments) != count:
            raise failure(
                "INVALID_KERNEL_ARGS", f"{len(arguments)} of {count} arguments of {self.name}"
            )
        more = code.list_offsets(self.name, offset or ())
        pointers, keep = (ctypes.c_void_p * max(count + len(more), 1))(), list[Any]()
        first = place = code.find_first_local(self.name)
        for index, parameter_size in enumerate(self.parameter_sizes):
            kind, size, value = arguments[index]
            if kind == _VALUE:
                data = ctypes.create_string_buffer(value, size)
            elif kind == _LOCAL:
                align = 128 if size >= 128 else 16
                start = (place + align - 1) // align * align
                place = start + size
                data = ctypes.create_string_buffer(start.to_bytes(parameter_size, "little"))
            elif kind == _MEM:
                if value is not None and value.is_closed:
                    raise failure("INVALID_KERNEL_ARGS", f"the memory of argument {index} is gone")
                data = ctypes.c_uint64(value.address if value is not None else 0)
                keep.append(value)
            else:
                data = ctypes.c_uint64(value)
            keep.append(data)
            pointers[index] = ctypes.addressof(data)
        for index, number in enumerate(more, count):
            data = ctypes.create_string_buffer(number, len(number))
            keep.append(data)
            pointers[index] = ctypes.addressof(data)
        return CuArguments(pointers, place - first, keep)

    # sizes

    def check_group(self, device: CuDevice, local: Sequence[int]) -> None:
        """Check that the kernel can be launched with a local size.

        Raises:
            URError: INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE.
        """
        limits = [device.query_attribute(f"MAX_BLOCK_DIM_{axis}") for axis in "XYZ"]
        required = self.find_required_size(device)
        check_group_size(local, limits, self.query_group_size(device), required)

    def count_local(self, device: CuDevice, dynamic: int) -> int:
        """Return the bytes of local memory of a work-group, whose arguments have `dynamic`."""
        return dynamic + self.query_attribute(device, "SHARED_SIZE_BYTES")

    def allow_local(self, device: CuDevice, function: int, dynamic: int) -> None:
        """Let launches of a function of the kernel have so many bytes of dynamic local memory.

        Raises:
            URError: OUT_OF_RESOURCES if the device does not have so much.
        """
        whole, most = self.count_local(device, dynamic), device.local_memory
        if whole > most:
            raise failure("OUT_OF_RESOURCES", f"{whole} bytes of local memory")
        if whole > API.asks_for_local > 0:
            # All that there is: another thread's launch with less must not take it back.
            name = get_constant("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
            device.call("FuncSetAttribute", function, name, most - whole + dynamic)

    def suggest(self, device: CuDevice, sizes: Sequence[int]) -> list[int]:
        """Choose a local size: the largest divisor of x up to 256, and 1 in other dimensions.

        That is what NVIDIA's OpenCL does. Without such a divisor x has a group of 1.
        """
        required = self.find_required_size(device)
        if required:
            return list(required[: len(sizes)])
        most = min(256, self.query_group_size(device))
        best = next(one for one in range(min(sizes[0], most), 0, -1) if not sizes[0] % one)
        return [best, *[1] * (len(sizes) - 1)]


def take_native_kernel(
    native: int, context: CuContext, program: CuProgram | None, properties: Any
) -> CuKernel:
    """Return a kernel of the driver's function, by its name in its module.

    Raises:
        URError: INVALID_PROGRAM.
    """
    name, device = ctypes.c_char_p(), context.device
    module = device.make("FuncGetModule", native)
    device.call("FuncGetName", ctypes.byref(name), native)
    if program is not None and module not in [one.handle for one in program.modules.values()]:
        raise failure("INVALID_PROGRAM", "the native kernel is of another program")
    return CuKernel(program or make_program(module, context, None), (name.value or b"").decode())


declare_arguments(adapter, CuKernel.set, samplers=False)


# queries, settings other than arguments, and the local size that suits a launch


def _make_attribute_query(name: str) -> Any:
    return lambda kernel: kernel.query_attribute(kernel.program.any_module.device, name)


adapter.info(
    "urKernelGetInfo",
    {
        "UR_KERNEL_INFO_FUNCTION_NAME": lambda kernel: kernel.name,
        "UR_KERNEL_INFO_NUM_ARGS": lambda kernel: len(kernel.parameter_sizes),
        "UR_KERNEL_INFO_REFERENCE_COUNT": lambda kernel: kernel.references,
        "UR_KERNEL_INFO_CONTEXT": lambda kernel: kernel.context,
        "UR_KERNEL_INFO_PROGRAM": lambda kernel: kernel.program,
        "UR_KERNEL_INFO_ATTRIBUTES": "",
        "UR_KERNEL_INFO_NUM_REGS": _make_attribute_query("NUM_REGS"),
        "UR_KERNEL_INFO_SPILL_MEM_SIZE": lambda kernel: [
            kernel.query_attribute(device, "LOCAL_SIZE_BYTES") for device in kernel.program.modules
        ],
    },
)


def _query_most_items(device: CuDevice) -> bytes:
    """Return the most work-items in each dimension, as three size_t."""
    most = (
        device.query_attribute(f"MAX_GRID_DIM_{axis}")
        * device.query_attribute(f"MAX_BLOCK_DIM_{axis}")
        for axis in "XYZ"
    )
    return struct.pack("@3N", *most)


adapter.info(
    "urKernelGetGroupInfo",
    {
        "GLOBAL_WORK_SIZE": lambda kernel, device: _query_most_items(device),
        "WORK_GROUP_SIZE": CuKernel.query_group_size,
        "COMPILE_WORK_GROUP_SIZE": lambda kernel, device: struct.pack(
            "@3N", *(kernel.find_required_size(device) or (0, 0, 0))
        ),
        "LOCAL_MEM_SIZE": lambda kernel, device: kernel.query_attribute(
            device, "SHARED_SIZE_BYTES"
        ),
        "PREFERRED_WORK_GROUP_SIZE_MULTIPLE": CuKernel.find_sub_group_size,
        "PRIVATE_MEM_SIZE": lambda kernel, device: kernel.query_attribute(
            device, "LOCAL_SIZE_BYTES"
        ),
    },
    "UR_KERNEL_GROUP_INFO_",
)
adapter.info(
    "urKernelGetSubGroupInfo",
    {
        "MAX_SUB_GROUP_SIZE": CuKernel.find_sub_group_size,
        "MAX_NUM_SUB_GROUPS": lambda kernel, device: (
            -(-kernel.query_group_size(device) // kernel.find_sub_group_size(device))
        ),
        "COMPILE_NUM_SUB_GROUPS": 0,
        "SUB_GROUP_SIZE_INTEL": 0,
    },
    "UR_KERNEL_SUB_GROUP_INFO_",
)


def _suggest(
    kernel: CuKernel, queue: CuQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> Sequence[int]:
    kernel.check(arguments)
    return kernel.suggest(queue.device, sizes)


declare_suggestions(adapter, _suggest)


def _count_groups(kernel: CuKernel, device: CuDevice, local: list[int], dynamic: int) -> int:
    kernel.check_group(device, local)
    count, function = ctypes.c_int(), kernel.get_function(device)
    if kernel.count_local(device, dynamic) > device.local_memory:
        return 0  # no work-group fits
    kernel.allow_local(device, function, dynamic)
    name = "OccupancyMaxActiveBlocksPerMultiprocessor"
    device.call(name, ctypes.byref(count), function, math.prod(local), dynamic)
    return count.value * device.query_attribute("MULTIPROCESSOR_COUNT")


declare_kernels(
    adapter,
    create=CuKernel,
    take_native=take_native_kernel,
    set_execution=lambda kernel, info: None,  # kernels may use all memory
    count_groups=_count_groups,
)
