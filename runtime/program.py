"""Programs and kernels: from OpenCL C, SPIR-V, binaries or native handles."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..loader.base.spirv import is_spirv
from ..loader.ur.abi import UR
from .checks import expect
from .context import Context, find_context
from .errors import Errc, SYCLError, make_invalid_error, make_unsupported_error
from .handles import URObject, make_handle_array, make_struct
from .kernel_types import Declared, query_declared_types

if TYPE_CHECKING:
    from .platform import Device
    from .queue import Queue


class Kernel(URObject):
    """A kernel of a built program. It has no arguments: they are given with each launch."""

    _release, _native = "urKernelRelease", "urKernelGetNativeHandle"

    def __init__(
        self, context: Context, handle: int, program: Program | None = None, *, keep: Any = None
    ) -> None:
        super().__init__(context.adapter, handle)
        self.context, self.program = context, program
        self.keep = keep  # what its handle was made of
        self.name: str = self.adapter.info(
            "urKernelGetInfo", handle, "UR_KERNEL_INFO_FUNCTION_NAME"
        )
        self.num_args: int = self.adapter.info("urKernelGetInfo", handle, "UR_KERNEL_INFO_NUM_ARGS")

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        """What the kernel declares for each argument, as far as the driver tells."""
        if self.context.platform.backend != "opencl" or not self.num_args:
            return (None,) * self.num_args
        asked = self.make_queryable()  # which lives until it has answered
        return query_declared_types(asked.native(), self.num_args)

    @cached_property
    def declares_nothing(self) -> bool:
        """Whether the driver tells nothing of any argument."""
        return all(one is None for one in self.declared)

    def make_queryable(self) -> URObject:
        """Return a kernel of the same function that queries may use by its native handle.

        It is a second kernel. An adapter must expect that others use a kernel whose native handle
        it has given away.
        """
        if self.program is None or self.keep is not None:
            return self
        made = self.adapter.obtain("urKernelCreate", self.program.handle, self.name.encode())
        return _QueriedKernel(self.adapter, made)

    def __repr__(self) -> str:
        return f"<Kernel {self.name}>"


class _QueriedKernel(URObject):
    """A kernel that is only asked for its native handle."""

    _release, _native = Kernel._release, Kernel._native


class Program(URObject):
    """A program that was built for the devices of a context: `program.kernel("name")`, or
    `program.name`.

    Args:
        context: a context, something that has one such as a queue, or a device, for its default
            context.
        code: OpenCL C (str), or SPIR-V (bytes) where the device takes it.
        options: the options of the build, "-cl-fast-relaxed-math".
        handle: the adapter's program, if it exists already. The reference is taken over.

    Raises:
        SYCLError: build, with the compiler's log.
    """

    _release, _native = "urProgramRelease", "urProgramGetNativeHandle"

    def __init__(
        self,
        context: Context | Queue | Device | Iterable[Device],
        code: str | bytes,
        options: str = "",
        *,
        handle: int = 0,
        built: bool = False,
    ) -> None:
        expect(
            code,
            (str, bytes),
            "Program",
            "give OpenCL C as a str, SPIR-V as bytes",
            "source text or SPIR-V",
        )
        expect(options, str, "Program", 'give the options as one str, "-DN=4 -cl-mad-enable"')
        self.context = find_context(context, "Program")
        super().__init__(self.context.adapter, handle or _create(self.context, code))
        self._kernels: dict[str, Kernel] = {}
        if not built:
            self._build(options)

    @classmethod
    def from_binary(
        cls, context: Context | Queue | Device, binary: bytes, options: str = ""
    ) -> Program:
        """Make a program of what `binary` returned, for the context's one device.

        Args:
            context: as of Program.
            binary: what `binary` returned.
        """
        expect(binary, bytes, "Program.from_binary", "give what program.binary() gave")
        context = find_context(context, "Program.from_binary")
        kept = ctypes.create_string_buffer(binary, len(binary))
        lengths = (ctypes.c_size_t * 1)(len(binary))
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(kept))
        made = context.adapter.obtain(
            "urProgramCreateWithBinary",
            context.handle,
            1,
            make_handle_array((context.devices[0].handle,)),
            lengths,
            addresses,
            None,
        )
        return cls(context, b"", options, handle=made)

    def binary(self) -> bytes:
        """Return the program as its first device's driver has compiled it. (urProgramGetInfo,
        UR_PROGRAM_INFO_BINARIES)"""
        sizes = self.adapter.info("urProgramGetInfo", self.handle, "UR_PROGRAM_INFO_BINARY_SIZES")
        blocks = [ctypes.create_string_buffer(max(size, 1)) for size in sizes]
        pointers = make_handle_array([ctypes.addressof(block) for block in blocks])
        self.adapter.call(
            "urProgramGetInfo",
            self.handle,
            UR["UR_PROGRAM_INFO_BINARIES"],
            ctypes.sizeof(pointers),
            pointers,
            None,
        )
        return blocks[0].raw[: sizes[0]]

    def _build(self, options: str) -> None:
        devices = self.context.devices
        try:
            build = options.encode()
            self.adapter.wait(
                "urProgramBuild", self.context.handle, self.handle, build, holder=self
            )
        except SYCLError as error:
            logs = "\n".join(filter(None, (self._read_log(device.handle) for device in devices)))
            raise SYCLError(
                Errc.build,
                f"the program could not be built. {error.message}\n{logs}".rstrip(),
                routine="Program",
                code=error.code,
                remedy="correct what the compiler names",
            ) from error

    def _read_log(self, device: int) -> str:
        try:
            return self.adapter.info(
                "urProgramGetBuildInfo", self.handle, "UR_PROGRAM_BUILD_INFO_LOG", device
            )
        except SYCLError:
            return ""

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of a name, the same object each time. Raises SYCLError (invalid)."""
        expect(name, str, "Program.kernel", 'program.kernel("name")')
        if name not in self._kernels:
            try:
                handle = self.adapter.obtain("urKernelCreate", self.handle, name.encode())
            except SYCLError as error:
                names = self.kernel_names
                raise make_invalid_error(
                    f"the program has no kernel {name!r}" if name not in names else error.message,
                    routine="Program.kernel",
                    remedy=f"it has {', '.join(names)}" if names else "write a kernel function",
                ) from error
            self._kernels.setdefault(name, Kernel(self.context, handle, self))
        return self._kernels[name]

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The names of its kernels. (urProgramGetInfo, UR_PROGRAM_INFO_KERNEL_NAMES)"""
        try:
            names = self.adapter.info(
                "urProgramGetInfo", self.handle, "UR_PROGRAM_INFO_KERNEL_NAMES"
            )
        except SYCLError:  # Intel's driver, of a program without kernels
            return ()
        return tuple(filter(None, names.split(";")))

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.kernel(name)
        except SYCLError as error:
            raise AttributeError(str(error)) from error

    def __repr__(self) -> str:
        return f"<Program of {', '.join(self.kernel_names) or 'no kernel'}>"


def _create(context: Context, code: str | bytes) -> int:
    if isinstance(code, bytes) and not is_spirv(code):
        raise make_invalid_error(
            "the bytes are not a SPIR-V module",
            routine="Program",
            remedy="give OpenCL C as a str, a binary to Program.from_binary",
        )
    data = code.encode() if isinstance(code, str) else code
    kept = ctypes.create_string_buffer(data, len(data))
    try:
        return context.adapter.obtain(
            "urProgramCreateWithIL", context.handle, ctypes.addressof(kept), len(data), None
        )
    except SYCLError:
        if isinstance(code, bytes):
            raise
    return _create_natively(context, data)


def _create_natively(context: Context, source: bytes) -> int:
    """Create the native program by OpenCL's loader.

    Unified Runtime has no function for source text. Only the reference adapter takes it where
    SPIR-V is expected.
    """
    if context.platform.backend != "opencl":
        raise make_unsupported_error(
            f"no program can be made from OpenCL C on the backend {context.platform.backend}",
            routine="Program",
            remedy="give SPIR-V",
        )
    create = _find_opencl_function("clCreateProgramWithSource")
    create.restype = ctypes.c_void_p
    code = ctypes.c_int32()
    text = (ctypes.c_char_p * 1)(source)
    native = create(
        ctypes.c_void_p(context.native()),
        1,
        text,
        (ctypes.c_size_t * 1)(len(source)),
        ctypes.byref(code),
    )
    if not native:
        raise SYCLError(
            Errc.build, f"OpenCL error {code.value}", routine="clCreateProgramWithSource"
        )
    owned = make_struct("ur_program_native_properties_t", isNativeHandleOwned=True)
    return context.adapter.obtain(
        "urProgramCreateWithNativeHandle", native, context.handle, ctypes.byref(owned)
    )


def _find_opencl_function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL("libOpenCL.so.1"), name)
    except (OSError, AttributeError) as error:
        raise make_unsupported_error(
            "no OpenCL loader is found", routine="Program", remedy="install libOpenCL.so.1"
        ) from error
