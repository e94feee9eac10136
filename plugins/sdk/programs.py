"""Builds, compilations and links of programs of all adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from .adapter import Adapter
from .rules import check_build_devices
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
        adapter: the adapter.
        build: builds or compiles a program.
        link: gets a context, devices, programs, options, and where it stores the handle of what it
            makes. It chooses the devices if they are empty.
    """

    def build_all(only_compiles: bool, context: Any, program: Any, options: str | None) -> None:
        context.check_same("the program", program)
        build(program, (), options, 0, only_compiles=only_compiles)

    def build_some(
        only_compiles: bool, program: Any, devices: list[Any], flags: int, options: str | None
    ) -> None:
        check_build_devices(program.context, devices)
        build(program, devices, options, flags, only_compiles=only_compiles)

    def link_all(hContext: Any, phPrograms: list[Any], pOptions: Any, phProgram: Any) -> None:
        link(hContext, (), phPrograms, pOptions, phProgram)

    def link_some(
        hContext: Any, phDevices: list[Any], phPrograms: list[Any], pOptions: Any, phProgram: Any
    ) -> None:
        check_build_devices(hContext, phDevices)
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
