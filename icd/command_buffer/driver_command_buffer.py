"""cl_khr_command_buffer: the driver's own command-buffers, for commands that were recorded as ours.

`find_support(device)` says what a driver can do, and in which version. Versions matter. 0.9.5 gave
every function except clCommandNDRangeKernelKHR one more parameter. 0.9.2 of mutable dispatch
changed how an update is written. PoCL 3.1 is older than both. `why_not` says which commands a
driver's command-buffer cannot hold, and `DriverCommandBuffer` is one. The engine `native`
(engines/native.py) decides whether it is used. (api/cl_khr_command_buffer.asciidoc,
api/cl_khr_command_buffer_mutable_dispatch.asciidoc)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from ...loader.base.frozen_value import Value
from ...loader.base.memory import read_word
from ...loader.base.operations import OPERATIONS, Operation
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import call, get_address, is_in_order, make_queue
from ..driver_profiles import find_profile
from ..drivers import drivers
from ..errors import check, error
from ..objects import Device, Platform
from .commands import NAMES, ORDER_ONLY, CommandList, get_operand
from .edits import describe_content
from .queue_release import release_queue

_WITH_PROPERTIES: Final = (0, 9, 5)
_QUEUE_PROPERTIES: Final = (0, 9, 6)
_WITH_ARRAYS: Final = (0, 9, 2)  # of mutable dispatch
_SVM: Final = (0, 9, 4)

#: CL_COMMAND_BUFFER_CAPABILITY_OUT_OF_ORDER_KHR, which today's headers lack.
_OUT_OF_ORDER: Final = 1 << 3

_INVALID_VALUE: Final = -30
_OUT_OF_RESOURCES: Final = -5

#: Everything that a launch's update can change: CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR …
#: CL_MUTABLE_DISPATCH_EXEC_INFO_KHR.
_ALL_FIELDS: Final = 0x1F


class Support(Value):
    """A device's cl_khr_command_buffer: its version, that of mutable dispatch (or None),
    capabilities."""

    platform: Platform
    version: tuple[int, int, int]
    mutable: tuple[int, int, int] | None
    simultaneous: bool
    out_of_order: bool

    @property
    def defect(self) -> str:
        """Why the driver's command-buffers are used only on request; "" if they are faultless."""
        return find_profile(self.platform).native_command_buffer_defect

    def function(self, name: str) -> Any:
        """Return a function of the extension, with the parameters of this version."""
        return _find_function(self.platform, name, self.version < _WITH_PROPERTIES)


@cache
def _find_function(platform: Platform, name: str, old: bool) -> Any:
    found = platform.extension_function(name)
    if not found:
        return None
    function = OPENCL.functions[name]
    if not old or not name.startswith("clCommand") or name == "clCommandNDRangeKernelKHR":
        return function.prototype(found)
    parameters = [
        OPENCL.make_ctype(p.type, p.stars, p.const)
        for p in function.parameters
        if p.name != "properties"
    ]
    return ctypes.CFUNCTYPE(OPENCL.make_ctype(function.returns), *parameters)(found)


@cache
def find_support(device: int) -> Support | None:
    """Return what the device (a handle) can do; None if it has no command-buffers in a known
    version."""
    if not _is_mentioned(device):  # then other drivers need not be opened
        return None
    table = read_word(device)
    for platform in drivers().platforms:
        for known in platform.devices if read_word(platform.handle) == table else ():
            if known.handle == device:
                return _query_support(known)
    return None


def _is_mentioned(device: int) -> bool:
    """Whether a device's list of extensions has the extension's name in it."""
    size, name = ffi.new("size_t *"), OPENCL["CL_DEVICE_EXTENSIONS"]
    if call(device, "clGetDeviceInfo", name, 0, None, get_address(size)):
        return False
    text = ffi.new("char[]", size[0] + 1)
    call(device, "clGetDeviceInfo", name, size[0], get_address(text), None)
    return b"cl_khr_command_buffer" in bytes(ffi.buffer(text))


def _query_support(device: Device) -> Support | None:
    if device.platform.version_number < (3, 0) or "cl_khr_command_buffer" not in device.extensions:
        return None
    versions = dict(device.info("CL_DEVICE_EXTENSIONS_WITH_VERSION"))
    version = versions.get("cl_khr_command_buffer")
    if version is None:
        return None
    capabilities = device.info("CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR")
    if version >= _QUEUE_PROPERTIES:
        queues = device.info("CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR")
        out_of_order = bool(queues & OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"])
    else:
        out_of_order = bool(capabilities & _OUT_OF_ORDER)
    simultaneous = bool(capabilities & OPENCL["CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR"])
    mutable = versions.get("cl_khr_command_buffer_mutable_dispatch")
    return Support(device.platform, version, mutable, simultaneous, out_of_order)


def why_not(support: Support | None, commands: CommandList, in_order: bool) -> str | None:
    """Return why the driver's command-buffers cannot hold these commands; None if they can."""
    if support is None:
        return "the driver has no cl_khr_command_buffer"
    if not in_order and not support.out_of_order:
        return "its command-buffers cannot be enqueued on out-of-order queues"
    if commands.updatable and (support.mutable is None or support.mutable < _WITH_ARRAYS):
        return "it has no mutable dispatch, or an older one than 0.9.2"
    for number in range(len(commands)):
        operation = commands.name_operation(number)
        if operation in ORDER_ONLY:
            continue
        if operation == "kernel" and commands.is_empty_launch(number):
            return f"command {number} launches no work-item, and drivers divide by its sizes"
        too_new = operation.startswith("svm") and support.version < _SVM
        function = OPERATIONS[operation].functions.get("cl_buffer")
        if function is None or too_new or not support.function(function.name):
            version = ".".join(map(str, support.version))
            return (
                f"command {number} is a {operation}, "
                f"which cl_khr_command_buffer {version} does not have"
            )
    return None


class DriverCommandBuffer:
    """A command-buffer of the driver, for queues of the device with these properties.

    `record` and `finalize` fill it, once each or step by step. `cl` is the driver's handle. All
    methods raise OpenCLError if the driver refuses something.
    """

    def __init__(
        self, support: Support, context: int, device: int, properties: int, *, updatable: bool
    ) -> None:
        self._support, self._updatable = support, updatable
        self.in_order = is_in_order(properties)
        self._kernels: list[int] = []
        self._points: list[list[int]] = []  # the sync-points of each command
        self._array: Any = None
        self.mutable: dict[int, int] = {}
        self._shapes: dict[
            int, tuple[int, bool]
        ] = {}  # of launches: dimensions, whether a local size was given
        self._contents: dict[int, tuple[Any, ...]] = {}  # of transfers, which cannot be changed
        self.cl = self.queue = 0
        self.queue = make_queue(context, device, properties)
        self.cl = self._create()

    @property
    def simultaneous(self) -> bool:
        """Whether the command-buffer can be enqueued and updated while it is executed."""
        return self._support.simultaneous

    def record(self, commands: CommandList) -> None:
        """Record the commands that are not recorded yet."""
        self._array = commands.array
        for index in range(len(self._points), len(commands)):
            self._record(index, commands.order.dependencies[index])

    def barrier(self) -> None:
        """Make everything later come after everything that is recorded."""
        head = [None] if self._support.version >= _WITH_PROPERTIES else []
        name = "clCommandBarrierWithWaitListKHR"
        check(self._support.function(name)(self.cl, None, *head, 0, None, None, None), name)

    def finalize(self) -> None:
        """Finalize the command-buffer."""
        check(
            self._support.function("clFinalizeCommandBufferKHR")(self.cl),
            "clFinalizeCommandBufferKHR",
        )

    def _create(self) -> int:
        flags = (
            OPENCL["CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR"] if self._support.simultaneous else 0
        )
        flags |= OPENCL["CL_COMMAND_BUFFER_MUTABLE_KHR"] if self._updatable else 0
        properties = (
            (ctypes.c_uint64 * 3)(OPENCL["CL_COMMAND_BUFFER_FLAGS_KHR"], flags, 0)
            if flags
            else None
        )
        code, queues = ctypes.c_int32(), (ctypes.c_void_p * 1)(self.queue)
        made = self._support.function("clCreateCommandBufferKHR")(
            1, queues, properties, ctypes.byref(code)
        )
        check(code.value, "clCreateCommandBufferKHR")
        return made

    def _record(self, index: int, dependencies: Sequence[int]) -> None:
        command = self._array[index]
        operation = OPERATIONS[NAMES[command.op]]
        waits = sorted({point for before in dependencies for point in self._points[before]})
        if operation.only_orders:
            self._points.append(waits)
            return
        if self.in_order:  # the queue that it is recorded for keeps the order
            waits = []
        point, handle = ctypes.c_uint32(), ctypes.c_void_p()
        listed = (ctypes.c_uint32 * len(waits))(*waits) if waits else None
        is_kernel = operation.name == "kernel"
        # only launches can be mutable, and in a command-buffer that is
        out = ctypes.byref(handle) if is_kernel and self._updatable else None
        head: list[Any] = [self.cl, None]
        if is_kernel:
            fields = (ctypes.c_uint64 * 3)(
                OPENCL["CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR"], _ALL_FIELDS, 0
            )
            head.append(fields if self._updatable else None)
        elif self._support.version >= _WITH_PROPERTIES:
            head.append(None)
        name = operation.functions["cl_buffer"].name
        arguments = self._list_launch(command) if is_kernel else _list_arguments(command, operation)
        check(
            self._support.function(name)(
                *head, *arguments, len(waits), listed, ctypes.byref(point), out
            ),
            name,
        )
        self._points.append([point.value])
        if out is not None:
            self.mutable[index] = handle.value or 0
            self._shapes[index] = command.work_dim, bool(command.has_local)
        if not is_kernel and self._updatable:
            self._contents[index] = describe_content(command)

    def _list_launch(self, command: Any) -> tuple[Any, ...]:
        """Return what clCommandNDRangeKernelKHR takes, with a copy of the kernel."""
        kernel = get_address(lib.fl_clone_kernel(command.kernel))
        if not kernel:
            raise error(_OUT_OF_RESOURCES, "clCloneKernel", "The driver made no copy of a kernel.")
        self._kernels.append(kernel)
        argument = ffi.new("fl_change *")
        for index in range(lib.fl_argument_count(command.arguments)):
            lib.fl_get_argument(command.arguments, index, argument)
            if argument.kind == lib.FL_ARG_SVM:
                check(
                    call(kernel, "clSetKernelArgSVMPointer", index, get_address(argument.value)),
                    "clSetKernelArgSVMPointer",
                )
            elif argument.kind:
                check(
                    call(
                        kernel, "clSetKernelArg", index, argument.size, get_address(argument.value)
                    ),
                    "clSetKernelArg",
                )
        n, dim = command.n, command.work_dim
        sizes = [(ctypes.c_size_t * dim)(*n[at : at + dim]) for at in (0, 3, 6)]
        return (
            kernel,
            dim,
            sizes[0] if command.has_offset else None,
            sizes[1],
            sizes[2] if command.has_local else None,
        )

    # running

    @property
    def enqueue_function(self) -> int:
        """The address of the driver's clEnqueueCommandBufferKHR."""
        return self._support.platform.extension_function("clEnqueueCommandBufferKHR") or 0

    def update(self, commands: Sequence[int]) -> int:
        """Give the driver the arguments and sizes of launches that changed in the array.

        Returns:
            OpenCL's code. It is CL_INVALID_VALUE for what the extension cannot express: another
                number of dimensions, a local size that the driver chooses from now on, and another
                transfer.
        """
        transfers = [index for index in commands if index in self._contents]
        if any(
            self._contents[index] != describe_content(self._array[index]) for index in transfers
        ):
            return _INVALID_VALUE
        commands = [index for index in commands if index in self._shapes]
        if not commands:
            return 0
        shapes = {
            index: (self._array[index].work_dim, bool(self._array[index].has_local))
            for index in commands
        }
        for index, (dim, local) in shapes.items():
            had_dim, had_local = self._shapes[index]
            if dim != had_dim or (had_local and not local):
                return _INVALID_VALUE
        keep: list[Any] = []
        configs = [self._make_config(index, keep) for index in commands]
        kinds = (ctypes.c_uint32 * len(configs))(
            *[OPENCL["CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR"]] * len(configs)
        )
        pointers = (ctypes.c_void_p * len(configs))(*map(ctypes.addressof, configs))
        code = self._support.function("clUpdateMutableCommandsKHR")(
            self.cl, len(configs), kinds, pointers
        )
        if not code:
            self._shapes |= shapes
        return code

    def _make_config(self, index: int, keep: list[Any]) -> Any:
        """Return a cl_mutable_dispatch_config_khr of a whole launch; `keep` holds what it points
        to."""
        command, row = self._array[index], OPENCL.get_struct("cl_mutable_dispatch_arg_khr")
        values, pointers = list[Any](), list[Any]()
        for number in range(lib.fl_argument_count(command.arguments)):
            argument = ffi.new("fl_change *")
            lib.fl_get_argument(command.arguments, number, argument)
            where = get_address(argument.value) or None
            if argument.kind == lib.FL_ARG_SVM:
                pointers.append(row(number, 0, where))
            elif argument.kind:
                values.append(row(number, argument.size, where))
        dim = command.work_dim
        sizes = [(ctypes.c_size_t * dim)(*command.n[at : at + dim]) for at in (0, 3, 6)]
        lists = [(row * len(rows))(*rows) for rows in (values, pointers)]
        keep += [*sizes, *lists]
        config = OPENCL.get_struct("cl_mutable_dispatch_config_khr")()
        config.command, config.num_args = self.mutable[index], len(values)
        config.num_svm_args, config.work_dim = len(pointers), dim
        config.arg_list, config.arg_svm_list = (
            ctypes.addressof(rows) if len(rows) else None for rows in lists
        )
        config.global_work_offset, config.global_work_size = map(ctypes.addressof, sizes[:2])
        config.local_work_size = ctypes.addressof(sizes[2]) if command.has_local else None
        return config

    def close(self) -> None:
        """Release the driver's command-buffer."""
        if self.cl:
            self._support.function("clReleaseCommandBufferKHR")(self.cl)
        for kernel in self._kernels:
            call(kernel, "clReleaseKernel")
        if self.queue:
            release_queue(self.queue)
        self.cl = self.queue = 0
        self._kernels.clear()

    def __del__(self) -> None:
        if "_kernels" in self.__dict__:  # it was made to its end
            self.close()


def _list_arguments(command: Any, operation: Operation) -> list[Any]:
    """Return what the function of a transfer takes between the properties and the wait list."""
    arguments: list[Any] = []
    for name in operation.functions["cl_buffer"].operands:
        if name in operation.numbers:
            value = get_operand(command, operation, name)
            arguments.append((ctypes.c_size_t * 3)(*value) if isinstance(value, list) else value)
        elif name == "pattern_size":
            arguments.append(command.pattern_size)
        else:
            field = "pattern" if name == operation.pattern else name
            arguments.append(get_address(getattr(command, field)))
    return arguments
