"""Opens UR adapters and PI plugins.

    >>> from fairlead.loader.ur.adapters import load
    >>> adapter = load(candidate)                       # one of discovery.find_adapters()
    >>> [device.name for device in adapter.devices]
    ['Intel(R) Xeon(R) …']
    >>> adapter.table.urAdapterGetInfo(...)             # every function, by its name

`load` opens a library, binds its functions (`binding`), and lists its platforms (`devices`). The
result is a `Plugin` (plugin.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from ..base.elf import check_file
from ..base.environment import add_variables
from ..base.errors import CodeError, FairleadError, LibraryError
from ..base.library import Library, dlopen, find_remedy, open_library, open_with_siblings
from ..base.linker import find_library
from ..base.log import read_trace_bits
from ..base.query import query_handles
from ..base.search import find_python_libraries
from ..pi.abi import check as check_pi
from .abi import VERSION as UR_VERSION
from .abi import check as check_ur
from .binding import BindError, PluginBinding, bind_adapter, bind_plugin
from .devices import PluginPlatform
from .discovery import PluginCandidate
from .plugin import Plugin, open_plugins
from .preview import examine_file
from .validation import Validation, parse_layer_names

#: Backend to the library that its adapters open to list platforms, and how to install it.
_LIBRARIES: Final = {
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
#: The remedy if that library exists. An OpenCL loader does not find drivers that pip installed.
_NO_DRIVER: Final = {
    "level_zero": "install the device's Level Zero driver (intel-level-zero-gpu), or check that "
    "this user may use the device",
    "opencl": "install a driver where its OpenCL loader looks, or name one in OCL_ICD_FILENAMES; "
    "or open it by fairlead.adapters(), which tells it the drivers that fairlead finds",
}

#: Interface to the name of its plugins, and where a user names one.
_NAMES: Final = {
    "UR": ("a Unified Runtime adapter", "UR_ADAPTERS_FORCE_LOAD or plugins.conf"),
    "PI": ("a PI plugin", "SYCL_PI_CONFIG's file or plugins.conf"),
}


def load(
    candidate: PluginCandidate,
    *,
    layout: str | None = None,
    environment: Mapping[str, str] | None = None,
    previewed: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> Plugin:
    """Open a plugin in this process, without a probe, and list its platforms.

    Args:
        candidate: what `discovery` found.
        layout: refuse an adapter whose tables do not have this layout of `UR.layouts`.
        environment: variables that are set while it loads and lists its platforms. A plugin
            searches for its drivers then.
        previewed: whether the file was examined already (`preview`).
        progress: called with a description of each step before it.

    Raises:
        LibraryError: the library cannot be opened.
        BindError: it is not a plugin.
    """
    with add_variables({**(environment or {}), **_make_numeric_pi_trace()}):
        library, binding = open_and_bind(
            candidate, layout=layout, previewed=previewed, progress=progress
        )
        plugin = Plugin(candidate, library, binding, binding.notes)
        _validate(plugin)
        progress("listing its platforms")
        try:
            _list_platforms(plugin)
        except FairleadError:  # its answers about itself are invalid
            plugin.close()
            raise
    open_plugins.append(plugin)
    return plugin


def open_and_bind(
    candidate: PluginCandidate,
    *,
    layout: str | None = None,
    previewed: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Library, PluginBinding]:
    """Open a plugin's library and bind its functions. None of them has been called then.

    The arguments and errors are those of `load`.
    """
    if "/" in candidate.library:
        check_file(candidate.library)
        if not previewed:
            progress("reading what it exports")
            _check_preview(candidate)
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
    """Attach the validation layers that the environment asks for.

    If they cannot be attached, the plugin works without them.
    """
    names = parse_layer_names() if plugin.interface == "UR" else frozenset[str]()
    if not names:
        return
    plugin.validation = Validation(names)
    try:
        plugin.validation.attach(plugin.table)
    except FairleadError as error:
        plugin.warnings += (f"its calls are not validated: {error.message}",)


def _make_numeric_pi_trace() -> dict[str, str]:
    """Return SYCL_PI_TRACE as a number. DPC++'s own plugins end the process if it is none."""
    text = os.environ.get("SYCL_PI_TRACE")
    return {} if text is None else {"SYCL_PI_TRACE": str(read_trace_bits("SYCL_PI_TRACE"))}


def _check_preview(candidate: PluginCandidate) -> None:
    """Refuse a file that is not a plugin, has another interface, or is too old.

    None of its code has run.
    """
    seen = examine_file(candidate.library)
    if seen.reason:
        raise BindError(seen.reason, remedy=seen.remedy)
    if seen.interface == "UR" and seen.version not in ("", UR_VERSION):
        raise BindError(
            f"it is an adapter of Unified Runtime {seen.version}, whose tables differ from those "
            f"of {UR_VERSION}",
            code="UR_RESULT_ERROR_UNSUPPORTED_VERSION",
            remedy=f"install an adapter of Unified Runtime {UR_VERSION} (DPC++ 2025.3 or 2026)",
        )
    if seen.interface != candidate.interface:
        (is_what, place), (wanted, _) = (
            _NAMES[name] for name in (seen.interface, candidate.interface)
        )
        raise BindError(
            f"it is {is_what}, not {wanted}", remedy=f"name it in {place}, as {is_what}"
        )


def _open(candidate: PluginCandidate) -> Library:
    """Open the library, with dependencies beside it or in the Python environment.

    Wheels do not tell the dynamic linker where those are.
    """
    path, flags = candidate.library, os.RTLD_DEEPBIND if candidate.deep_bind else 0
    folders = find_python_libraries()
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
        remedy = find_remedy(tuple(absent))
        raise LibraryError(message, missing=absent, routine=error.routine, remedy=remedy) from None


def _list_platforms(plugin: Plugin) -> None:
    """Get the adapter's handles and the platforms. If there are none, find out why."""
    table, dialect = plugin.table, plugin.dialect
    found: list[int] = []
    failure = ""
    try:
        if plugin.interface == "UR":
            plugin.handles = tuple(query_handles(table.urAdapterGet, "urAdapterGet", check_ur))
            for handle in plugin.handles:
                found += query_handles(table.urPlatformGet, "urPlatformGet", check_ur, handle)
        else:
            found = query_handles(table.piPlatformsGet, "piPlatformsGet", check_pi)
    except CodeError as error:
        failure = f"{error.routine} [{error.code}]: {error.message}"
    plugin.platforms = tuple(PluginPlatform(handle, plugin) for handle in found)
    if found:
        plugin.warnings += (failure,) if failure else ()
        return
    library, remedy = _LIBRARIES.get(plugin.candidate.backend, ("", ""))
    absent = (
        library and not find_library(library) and not find_backend_library(plugin.candidate.backend)
    )
    if not plugin.has(dialect.list_platforms):
        plugin.idle = f"it has no platform: it does not implement {dialect.list_platforms}"
        plugin.remedy = "update or reinstall it"
        return
    own = (failure or f"{dialect.list_platforms} gives none").rstrip(".")
    plugin.idle = (
        f"it has no platform: {library} is not found ({own})"
        if absent
        else f"it has no platform: {own}"
    )
    plugin.remedy = remedy if absent else _NO_DRIVER.get(plugin.candidate.backend, _NO_DEVICE)


def find_backend_library(backend: str) -> str:
    """Return the real path of the library that plugins of a backend use to find their drivers.

    Args:
        backend: the backend's name in device selectors.

    Returns:
        The path, "" if this process has not opened it.
    """
    name, _ = _LIBRARIES.get(backend, ("", ""))
    try:
        library = dlopen(name, os.RTLD_NOLOAD) if name else None
    except OSError:
        return ""
    if library is None:
        return ""
    library.close()
    return library.path
