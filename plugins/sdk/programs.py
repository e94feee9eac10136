"""Programs of all adapters: how they are made, built, compiled and linked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ...loader.ur.abi import UR
from .adapter import Adapter
from .conversions import failure
from .families import EnqueueFamily
from .rules import read_binaries
from .wrap import name_parameters

_BUILD_INFO: Final[Mapping[str, Callable[[Any], Any]]] = {
    "STATUS": lambda build: UR[f"UR_PROGRAM_BUILD_STATUS_{build.status}"],
    "OPTIONS": lambda build: build.options,
    "LOG": lambda build: build.log,
    "BINARY_TYPE": lambda build: UR[f"UR_PROGRAM_BINARY_TYPE_{build.kind}"],
}


class ProgramBuild(NamedTuple):
    """What was built of a program for a device.

    Attributes:
        status: the end of the name UR_PROGRAM_BUILD_STATUS_….
        kind: the end of the name UR_PROGRAM_BINARY_TYPE_….
        options: those of the compiler.
    """

    status: str
    kind: str
    options: str
    log: str


class BuildProgram(Protocol):
    """Builds or compiles a program, for all its devices if `devices` is empty."""

    def __call__(
        self,
        program: Any,
        devices: Sequence[Any],
        options: str | None,
        flags: int,
        *,
        only_compiles: bool,
    ) -> None: ...


def declare_builds(
    adapter: Adapter,
    build: BuildProgram,
    link: Callable[..., tuple[Any, Exception | None]],
    find_build: Callable[[Any, Any], Any],
) -> None:
    """Declare builds, compilations and links, with devices and without, and queries about them.

    Args:
        build: builds or compiles a program.
        link: gets a context, devices, programs and options. It chooses the devices if they are
            empty. It returns the program that it makes and why that is not linked, or None for
            either. The log of a program that is not linked says why, too (ur_api.h, urProgramLink).
        find_build: gets a program and a device. It returns what has a `ProgramBuild`'s fields.
    """

    def make_query(answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda program, device: answer(find_build(program, device))

    def build_all(only_compiles: bool, context: Any, program: Any, options: str | None) -> None:
        context.check_same("the program", program)
        build(program, (), options, 0, only_compiles=only_compiles)

    def build_some(
        only_compiles: bool, program: Any, devices: list[Any], flags: int, options: str | None
    ) -> None:
        build(program, devices, options, flags, only_compiles=only_compiles)

    def link_any(context: Any, devices: Any, programs: Any, options: Any, into: Any) -> None:
        into[0] = 0
        context.check_same("a program", *programs)
        made, failed = link(context, devices, programs, options)
        if made is not None:
            into[0] = adapter.objects.give(made)
        if failed is not None:
            raise failed

    def link_all(hContext: Any, phPrograms: list[Any], pOptions: Any, phProgram: Any) -> None:
        link_any(hContext, (), phPrograms, pOptions, phProgram)

    def link_some(
        hContext: Any, phDevices: list[Any], phPrograms: list[Any], pOptions: Any, phProgram: Any
    ) -> None:
        link_any(hContext, phDevices, phPrograms, pOptions, phProgram)

    for name, only_compiles in (("urProgramBuild", False), ("urProgramCompile", True)):
        for_all, for_some = partial(build_all, only_compiles), partial(build_some, only_compiles)
        names = "hProgram", "phDevices", "flags", "pOptions"
        adapter.declare(
            **{
                name: name_parameters(for_all, "hContext", "hProgram", "pOptions"),
                f"{name}Exp": name_parameters(for_some, *names),
            }
        )
    adapter.declare(urProgramLink=link_all, urProgramLinkExp=link_some)
    answers = {name: make_query(answer) for name, answer in _BUILD_INFO.items()}
    adapter.info("urProgramGetBuildInfo", answers, "UR_PROGRAM_BUILD_INFO_")


def declare_creation(
    adapter: Adapter,
    from_il: Callable[[Any, bytes], Any],
    from_binaries: Callable[[Any, list[Any], list[bytes]], Any],
    take_native: Callable[[int, Any, Any], Any],
) -> None:
    """Declare how programs are made: of intermediate language or text, binaries, native handles.

    Args:
        from_il: gets a context and the bytes.
        from_binaries: gets a context, devices, and the binary of each.
        take_native: gets a native handle, a context and properties.
    """

    def create_from_il(hContext: Any, pIL: int, length: int) -> Any:
        return from_il(hContext, ctypes.string_at(pIL, length))

    def create_from_binaries(
        hContext: Any, phDevices: list[Any], pLengths: list[int], ppBinaries: Any
    ) -> Any:
        binaries = read_binaries(phDevices, pLengths, ppBinaries)
        return from_binaries(hContext, phDevices, binaries)

    adapter.declare(
        urProgramCreateWithIL=create_from_il,
        urProgramCreateWithBinary=create_from_binaries,
        urProgramCreateWithNativeHandle=lambda hNativeProgram, hContext, pProperties: take_native(
            hNativeProgram, hContext, pProperties
        ),
    )


def declare_specialization(
    adapter: Adapter,
    specialize: Callable[[Any, list[Any]], None],
    check_support: Callable[[Any], None] = lambda program: None,
) -> None:
    """Declare how specialization constants get values for the next build.

    Args:
        specialize: gets a program, and ur_specialization_constant_info_t that have values.
        check_support: raises an error for a program whose devices cannot take any.
    """

    def set_constants(hProgram: Any, count: int, pSpecConstants: Any) -> None:
        check_support(hProgram)
        if not hProgram.il:
            reason = "only a program made of SPIR-V has specialization constants"
            raise failure("INVALID_PROGRAM", reason)
        constants = [pSpecConstants[index] for index in range(count)]
        if not all(constant.pValue for constant in constants):
            raise failure("INVALID_VALUE", "a constant without a value")
        specialize(hProgram, constants)

    adapter.declare(urProgramSetSpecializationConstants=set_constants)


def declare_addresses(
    adapter: Adapter,
    find_function: Callable[[Any, Any, str], int],
    list_kernel_names: Callable[[Any, Any], Sequence[str]],
    find_variable: Callable[[Any, Any, str], tuple[int, int]],
) -> None:
    """Declare the queries for addresses of what is in a program.

    Args:
        find_function: gets a program, a device and a name. It returns the function's address, 0 if
            the driver knows no such function, or has no address of it.
        list_kernel_names: returns the names of the kernels of a program on a device.
        find_variable: gets what `find_function` does. It returns the size and the address of a
            global variable. It raises URError (INVALID_VALUE) if there is no such variable.
    """

    def get_function(hDevice: Any, hProgram: Any, pFunctionName: str) -> int:
        address = find_function(hProgram, hDevice, pFunctionName)
        if address:
            return address
        if pFunctionName in list_kernel_names(hProgram, hDevice):
            raise failure("FUNCTION_ADDRESS_NOT_AVAILABLE", "the driver has no address of it")
        reason = "the program has no function of that name, or none with an address"
        raise failure("INVALID_KERNEL_NAME", reason)

    adapter.declare(
        urProgramGetFunctionPointer=get_function,
        urProgramGetGlobalVariablePointer=lambda hDevice, hProgram, pGlobalVariableName: (
            find_variable(hProgram, hDevice, pGlobalVariableName)
        ),
    )


def declare_variable_transfers(enqueues: EnqueueFamily, transfer: Callable[..., Any]) -> None:
    """Declare reads and writes of global variables.

    Args:
        enqueues: the family of the adapter's entry points.
        transfer: gets whether it reads, the call, a program, the name of a variable, bytes, the
            first byte in the variable, and the host's address.
    """

    def run(reads: bool, call: Any, program: Any, *given: Any) -> Any:
        call.check_context("the program", program)
        return transfer(reads, call, program, *given)

    for word, host in (("Read", "pDst"), ("Write", "pSrc")):
        name, command = f"urEnqueueDeviceGlobalVariable{word}", word.upper()
        parameters = "hProgram", "name", "count", "offset", host
        work = partial(run, word == "Read")
        enqueues.declare(name, f"DEVICE_GLOBAL_VARIABLE_{command}", work, *parameters)


def declare_variable_copies(
    enqueues: EnqueueFamily,
    find_variable: Callable[[Any, Any, str], tuple[int, int]],
    copy: Callable[[Any, int, int, int, Any], Any],
) -> None:
    """Declare reads and writes of global variables that are copies between addresses.

    Args:
        enqueues: the family of the adapter's entry points.
        find_variable: see `declare_addresses`.
        copy: copies bytes. It gets the call, the two addresses, bytes, and what is used.
    """

    def transfer(
        reads: bool, call: Any, program: Any, name: str, count: int, offset: int, host: int
    ) -> Any:
        size, address = find_variable(program, call.queue.device, name)
        if offset + count > size:
            raise failure("INVALID_VALUE", f"{name} has {size} bytes, not {offset + count}")
        place = address + offset
        return copy(call, *((host, place) if reads else (place, host)), count, program)

    declare_variable_transfers(enqueues, transfer)


def make_program_info(
    il: Callable[[Any], bytes],
    binaries: Callable[[Any], list[bytes]],
    kernel_names: Callable[[Any], list[str]],
) -> Mapping[str, Any]:
    """Return the table of a program's queries.

    Args:
        il: returns a program's intermediate language.
        binaries: returns its binary for each device.
        kernel_names: returns the names of its kernels.
    """
    return {
        "UR_PROGRAM_INFO_REFERENCE_COUNT": lambda program: program.references,
        "UR_PROGRAM_INFO_CONTEXT": lambda program: program.context,
        "UR_PROGRAM_INFO_NUM_DEVICES": lambda program: len(program.devices),
        "UR_PROGRAM_INFO_DEVICES": lambda program: program.devices,
        "UR_PROGRAM_INFO_IL": il,
        "UR_PROGRAM_INFO_BINARY_SIZES": lambda program: list(map(len, binaries(program))),
        "UR_PROGRAM_INFO_BINARIES": binaries,
        "UR_PROGRAM_INFO_NUM_KERNELS": lambda program: len(kernel_names(program)),
        "UR_PROGRAM_INFO_KERNEL_NAMES": lambda program: ";".join(kernel_names(program)),
    }
