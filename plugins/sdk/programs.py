"""Programs of all adapters: how they are made, built, compiled and linked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from .adapter import Adapter
from .conversions import failure
from .rules import check_metadata, read_binaries
from .wrap import name_parameters


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


def declare_builds(adapter: Adapter, build: BuildProgram, link: Callable[..., None]) -> None:
    """Declare builds, compilations and links, with devices and without.

    Args:
        build: builds or compiles a program.
        link: gets a context, devices, programs, options, and where it stores the handle of what it
            makes. It chooses the devices if they are empty.
    """

    def check_devices(devices: list[Any]) -> None:
        if not devices:
            raise failure("INVALID_VALUE", "a program is built for one device at least")

    def build_all(only_compiles: bool, context: Any, program: Any, options: str | None) -> None:
        context.check_same("the program", program)
        build(program, (), options, 0, only_compiles=only_compiles)

    def build_some(
        only_compiles: bool, program: Any, devices: list[Any], flags: int, options: str | None
    ) -> None:
        check_devices(devices)
        build(program, devices, options, flags, only_compiles=only_compiles)

    def link_all(hContext: Any, phPrograms: list[Any], pOptions: Any, phProgram: Any) -> None:
        link(hContext, (), phPrograms, pOptions, phProgram)

    def link_some(
        hContext: Any, phDevices: list[Any], phPrograms: list[Any], pOptions: Any, phProgram: Any
    ) -> None:
        check_devices(phDevices)
        link(hContext, phDevices, phPrograms, pOptions, phProgram)

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


def declare_creation(
    adapter: Adapter,
    from_il: Callable[[Any, bytes], Any],
    from_binaries: Callable[[Any, list[Any], list[bytes]], Any],
) -> None:
    """Declare how programs are made of intermediate language or text, and of binaries.

    Args:
        from_il: gets a context and the bytes.
        from_binaries: gets a context, devices, and the binary of each.
    """

    def create_from_il(hContext: Any, pIL: int, length: int, pProperties: Any) -> Any:
        check_metadata(pProperties)
        if not length:
            raise failure("INVALID_SIZE", "the IL is empty")
        return from_il(hContext, ctypes.string_at(pIL, length))

    def create_from_binaries(
        hContext: Any, phDevices: list[Any], pLengths: list[int], ppBinaries: Any, pProperties: Any
    ) -> Any:
        check_metadata(pProperties)
        binaries = read_binaries(phDevices, pLengths, ppBinaries)
        return from_binaries(hContext, phDevices, binaries)

    adapter.declare(
        urProgramCreateWithIL=create_from_il, urProgramCreateWithBinary=create_from_binaries
    )


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
