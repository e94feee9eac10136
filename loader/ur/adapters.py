"""Plugins that are open: UR adapters and PI plugins with their platforms and devices.

    >>> from fairlead.loader.ur.adapters import load
    >>> adapter = load(candidate)                       # one of discovery.find_adapters()
    >>> [device.name for device in adapter.devices]
    ['Intel(R) Xeon(R) …']
    >>> adapter.table.urAdapterGetInfo(...)             # every function, by its name

`load` opens a library, binds it (`binding`), and lists its platforms (`devices`). `Plugin.close` takes all that down again, in order: who
asked to be told is told, the adapter is released (PI: piTearDown), what it leaked is reported if validation is on, its table is emptied,
the library is closed.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ..base.elf import check_file
from ..base.errors import CodeError, FairleadError, LibraryError
from ..base.forks import in_child, new_lock
from ..base.library import (
    Library,
    dlopen,
    open_library,
    open_with_siblings,
    remedy_for,
)
from ..base.linker import find_library
from ..base.log import trace_bits
from ..base.query import handles, query
from ..base.search import python_libraries
from ..base.table import DispatchTable
from ..pi.abi import check as check_pi
from .abi import VERSION as UR_VERSION
from .abi import check as check_ur
from .binding import BindError, PluginBinding, bind_adapter, bind_plugin, unbind
from .devices import DIALECTS, Dialect, PluginDevice, PluginPlatform, decode
from .discovery import PluginCandidate
from .preview import preview
from .validation import Validation, layer_names

#: The library that an adapter of a backend opens when it is asked for platforms, and what brings it.
_NEEDS: Final = {
    "level_zero": (
        "libze_loader.so.1",
        "install the Level Zero loader and the driver of the GPU (libze1, intel-level-zero-gpu)",
    ),
    "opencl": (
        "libOpenCL.so.1",
        "install an OpenCL loader (ocl-icd-libopencl1, or pip install intel-opencl-rt)",
    ),
    "cuda": ("libcuda.so.1", "install the NVIDIA driver"),
    "hip": ("libamdhip64.so", "install ROCm's HIP runtime"),
}


_NO_DEVICE: Final = "check that its device is in this machine and that this user may use it"
#: What is missing where that library is there. An OpenCL loader does not find the drivers that pip installed.
_NO_DRIVER: Final = {
    "opencl": "install a driver where its OpenCL loader looks, name one in OCL_ICD_FILENAMES, or open it by "
    "fairlead.adapters(), which tells it the drivers that fairlead finds",
}

#: What a plugin of each interface is called, and where one is named.
_CALLED: Final = {
    "UR": ("a Unified Runtime adapter", "UR_ADAPTERS_FORCE_LOAD or plugins.conf"),
    "PI": ("a PI plugin", "SYCL_PI_CONFIG's file or plugins.conf"),
}


@dataclass(eq=False)
class Plugin:
    """An open UR adapter or PI plugin.

    `interface` is "UR" or "PI", `table` its dispatch table, `handles` what urAdapterGet gave (PI has no such object), `held` the devices
    that were listed, which `close` releases. `idle` says in plain words why it has no platform, "" if it has one; `notes` are remarks
    about it, `warnings` what went wrong although it works.
    """

    candidate: PluginCandidate
    library: Library
    binding: PluginBinding
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    idle: str = ""
    remedy: str = ""
    handles: tuple[int, ...] = ()
    platforms: tuple[PluginPlatform, ...] = ()
    validation: Validation | None = None
    held: list[int] = field(default_factory=list, repr=False)
    _callbacks: list[Callable[[Plugin], object]] = field(default_factory=list)
    closed: bool = False
    released: bool = False

    @property
    def interface(self) -> str:
        """ "UR" or "PI"."""
        return self.candidate.interface

    @property
    def dialect(self) -> Dialect:
        """The names of its interface."""
        return DIALECTS[self.interface]

    @property
    def table(self) -> DispatchTable:
        """Its functions by name: `table.urContextCreate(...)`."""
        return self.binding.table

    @property
    def path(self) -> str:
        """The real path of the library."""
        return self.library.path

    @property
    def version(self) -> str:
        """The interface's version that it speaks: "0.12"; for PI its own too, "15.47.1"."""
        return self.binding.version

    @property
    def backend(self) -> str:
        """What device selectors call the backend of its first platform, else what its name tells."""
        return self.platforms[0].backend if self.platforms else self.candidate.backend

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The root devices of all its platforms."""
        return tuple(device for platform in self.platforms for device in platform.devices)

    def has(self, function: str) -> bool:
        """Whether it implements a function of its interface; one that it lacks answers UNSUPPORTED_FEATURE."""
        return function in self.dialect.api.functions and function not in self.binding.missing

    def extension(self, name: str) -> int | None:
        """The address of a function beyond its interface's table: whatever else the library itself exports, None if it does not."""
        return self.library.own_symbol(name)

    def info(self, routine: str, handle: int, name: str, prefix: str = "") -> Any:
        """Ask one of the …GetInfo functions. `name` is the constant, its beginning (`prefix`) may be left out.

        The answer has the Python type that the ABI data tells: str, bool, int (enums and handles too), a tuple for an array, bytes where
        the type is not known. Raises URError or PIError, FairleadError for a constant that the API does not have.
        """
        api = self.dialect.api
        constant = api.constants.get(name) or api.constants.get(f"{prefix}{name}")
        if constant is None:
            raise FairleadError(
                f"{name!r} is no constant of {api.path.stem}",
                routine=routine,
                remedy=f"look at {api.path.name}",
            )
        call = getattr(self.table, routine)
        value = query(
            call, routine, self.dialect.check, handle, constant.value, detail=f"({constant.name})"
        )
        return decode(api, constant.answer, value)

    def on_close(self, callback: Callable[[Plugin], object]) -> None:
        """Have `callback` called when the plugin is about to be closed, while everything of it still works: the last one first."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Take it down: tell who asked, release the adapter (piTearDown for PI), report leaks, empty the table, close the library.

        Afterwards nothing of it may be used; its table answers UNINITIALIZED. An error of the plugin's own is put into `warnings` and
        does not stop the rest. A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        if self in _open_plugins:
            _open_plugins.remove(self)
        with ExitStack() as last_first:
            last_first.callback(self._unload)
            last_first.callback(self._finish)

    def _finish(self) -> None:
        """Tell who asked, release the adapter, report leaks; a callback that fails does not stop the rest."""
        callbacks, self._callbacks = self._callbacks, []
        with ExitStack() as last_first:
            last_first.callback(self._release)
            for callback in callbacks:
                last_first.callback(callback, self)

    def _release(self) -> None:
        self.warnings += tuple(_teardown(self))

    def _unload(self) -> None:
        self.platforms = ()
        unbind(self.binding)
        self.library.close()

    def __repr__(self) -> str:
        count = len(self.platforms)
        what = "closed" if self.closed else f"{count} platform{'' if count == 1 else 's'}"
        return f"<{self.interface} plugin {self.path}: {what}>"


def load(
    candidate: PluginCandidate,
    *,
    layout: str | None = None,
    environment: Mapping[str, str] | None = None,
    judged: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> Plugin:
    """Open a plugin in this process, without a probe, and list its platforms.

    Args:
        candidate: what `discovery` found.
        layout: refuse an adapter whose tables have another layout than this one of `UR.layouts`.
        environment: variables that are set while it loads and lists its platforms. Plugins search for drivers of their own at that
            time, and this is how they are told where.
        judged: do not look into the file before it is opened (`preview`), because that has been done.
        progress: is told each step before it is taken.

    Raises LibraryError if the library cannot be opened, BindError if it is no plugin.
    """
    with _environment({**(environment or {}), **_harmless()}):
        library, binding = open_and_bind(candidate, layout=layout, judged=judged, progress=progress)
        plugin = Plugin(candidate, library, binding, binding.notes)
        _validate(plugin)
        progress("listing its platforms")
        try:
            _begin(plugin)
        except FairleadError:  # what it says about itself makes no sense
            plugin.close()
            raise
    _open_plugins.append(plugin)
    return plugin


def open_and_bind(
    candidate: PluginCandidate,
    *,
    layout: str | None = None,
    judged: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Library, PluginBinding]:
    """Open a plugin's library and bind its functions; none of them has been called then. See `load`."""
    if "/" in candidate.library:
        check_file(candidate.library)
        if not judged:
            progress("reading what it exports")
            _judge(candidate)
    progress("opening the library")
    library = _open(candidate)
    progress("binding its functions")
    try:
        return library, bind_adapter(
            library, layout=layout
        ) if candidate.interface == "UR" else bind_plugin(library)
    except FairleadError:
        library.close()
        raise


def _validate(plugin: Plugin) -> None:
    """Attach the validation layers that the environment asks for. A plugin that cannot have them works without."""
    names = layer_names() if plugin.interface == "UR" else frozenset[str]()
    if not names:
        return
    plugin.validation = Validation(names)
    try:
        plugin.validation.attach(plugin.table)
    except FairleadError as error:
        plugin.warnings += (f"its calls are not validated: {error.message}",)


def _harmless() -> dict[str, str]:
    """SYCL_PI_TRACE as a number: DPC++'s own plugins read it, and end the process if it is none."""
    text = os.environ.get("SYCL_PI_TRACE")
    return {} if text is None else {"SYCL_PI_TRACE": str(trace_bits("SYCL_PI_TRACE"))}


def _judge(candidate: PluginCandidate) -> None:
    """Refuse what its file alone shows to be no plugin, to be of the other interface, or to be too old: none of its code has run."""
    seen = preview(candidate.library)
    if seen.reason:
        raise BindError(seen.reason, remedy=seen.remedy)
    if seen.interface == "UR" and seen.version not in ("", UR_VERSION):
        raise BindError(
            f"it is an adapter of Unified Runtime {seen.version}, whose tables differ from those of {UR_VERSION}",
            code="UR_RESULT_ERROR_UNSUPPORTED_VERSION",
            remedy=f"install an adapter of Unified Runtime {UR_VERSION} (DPC++ 2025.3 or 2026)",
        )
    if seen.interface != candidate.interface:
        (is_what, place), (wanted, _) = (
            _CALLED[name] for name in (seen.interface, candidate.interface)
        )
        raise BindError(
            f"it is {is_what}, not {wanted}", remedy=f"name it in {place}, as {is_what}"
        )


def _open(candidate: PluginCandidate) -> Library:
    """The library, with those that it needs and that lie beside it or in the Python environment: wheels tell ld.so nothing."""
    path, flags = candidate.library, os.RTLD_DEEPBIND if candidate.deep_bind else 0
    folders = [str(directory) for directory in python_libraries()]
    library = open_with_siblings(path, folders, flags)
    if library:
        return library
    try:
        return open_library(path)
    except LibraryError as error:
        beside = (os.path.dirname(path), *folders)
        absent = [
            name
            for name in error.missing
            if not any(os.path.exists(os.path.join(folder, name)) for folder in beside)
        ]
        if not absent or len(absent) == len(error.missing):
            raise
        message = (
            f"it needs {', '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not found"
        )
        remedy = remedy_for(tuple(absent))
        raise LibraryError(message, missing=absent, routine=error.routine, remedy=remedy) from None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while. The C library sees them too."""
    with _loading:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_loading: Final = new_lock()  # one plugin at a time: the variables are the process's


def _begin(plugin: Plugin) -> None:
    """Ask for the adapter's handle and the platforms. A plugin that has none is idle, and this finds out why."""
    table, dialect = plugin.table, plugin.dialect
    found: list[int] = []
    failure = ""
    try:
        if plugin.interface == "UR":
            plugin.handles = tuple(handles(table.urAdapterGet, "urAdapterGet", check_ur))
            for handle in plugin.handles:
                found += handles(table.urPlatformGet, "urPlatformGet", check_ur, handle)
        else:
            found = handles(table.piPlatformsGet, "piPlatformsGet", check_pi)
    except CodeError as error:
        failure = f"{error.routine} [{error.code}]: {error.message}"
    plugin.platforms = tuple(PluginPlatform(handle, plugin) for handle in found)
    if found:
        plugin.warnings += (failure,) if failure else ()
        return
    library, remedy = _NEEDS.get(plugin.candidate.backend, ("", ""))
    absent = library and not find_library(library) and not backend_library(plugin.candidate.backend)
    if not plugin.has(dialect.list_platforms):
        plugin.idle, plugin.remedy = (
            f"it has no platform: it does not implement {dialect.list_platforms}",
            "update or reinstall it",
        )
        return
    own = (failure or f"{dialect.list_platforms} gives none").rstrip(".")
    plugin.idle = (
        f"it has no platform: {library} is not found ({own})"
        if absent
        else f"it has no platform: {own}"
    )
    plugin.remedy = remedy if absent else _NO_DRIVER.get(plugin.candidate.backend, _NO_DEVICE)


def backend_library(backend: str) -> str:
    """The real path of the library through which a backend's plugins reach their drivers, "" unless this process has it open."""
    name, _ = _NEEDS.get(backend, ("", ""))
    try:
        library = dlopen(name, os.RTLD_NOLOAD) if name else None
    except OSError:
        return ""
    if library is None:
        return ""
    library.close()
    return library.path


def _teardown(plugin: Plugin) -> Iterator[str]:
    """Release the devices that were listed and what `_begin` took, once; yields what went wrong."""
    if plugin.released:
        return
    plugin.released = True
    table, release = plugin.table, getattr(plugin.table, plugin.dialect.release_device)
    for handle in reversed(plugin.held):
        release(handle)
    plugin.held.clear()
    if plugin.interface == "UR":
        codes = [("urAdapterRelease", table.urAdapterRelease(handle)) for handle in plugin.handles]
    else:
        told = (
            ctypes.c_uint64()
        )  # DPC++'s own plugins write a bool there without looking whether there is a place for it
        codes = [("piTearDown", table.piTearDown(ctypes.byref(told)))]
    for routine, code in codes:
        if code:
            yield str(plugin.dialect.error.of(code, routine))
    if plugin.validation:
        plugin.validation.close()


_open_plugins: list[Plugin] = []
in_child(_open_plugins.clear)  # they are its parent's


@atexit.register
def _finish_all() -> None:
    """The process ends: release what has not been closed by now, before the destructors of libraries run, but unload nothing."""
    with ExitStack() as last_first:
        for plugin in _open_plugins:
            last_first.callback(plugin._finish)
