"""An open UR adapter or PI plugin, and how it is closed.

`adapters.load` opens one. `Plugin.close` calls the registered callbacks, releases the adapter (PI:
piTearDown), reports leaks if validation is on, empties the table, and closes the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..base.ends import call_at_end
from ..base.errors import FairleadError
from ..base.forks import call_in_child
from ..base.library import Library
from ..base.query import query
from ..base.table import DispatchTable
from .binding import PluginBinding, unbind
from .devices import DIALECTS, Dialect, PluginDevice, PluginPlatform, decode
from .discovery import PluginCandidate

if TYPE_CHECKING:
    from .validation import Validation


@dataclass(eq=False)
class Plugin:
    """An open UR adapter or PI plugin.

    Attributes:
        warnings: what went wrong although it works.
        idle: why it has no platform, "" if it has one.
        remedy: what to do about that.
        handles: the handles from urAdapterGet; none for PI.
        validation: the validation layers, None if there are none.
        device_handles: the listed devices, which `close` releases.
        closed: whether `close` was called.
        released: whether its objects were released.
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
    device_handles: list[int] = field(default_factory=list, repr=False)
    _callbacks: list[Callable[[Plugin], object]] = field(default_factory=list)
    closed: bool = False
    released: bool = False

    @property
    def interface(self) -> str:
        """ "UR" or "PI"."""
        return self.candidate.interface

    @property
    def dialect(self) -> Dialect:
        """The names that its interface uses."""
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
        """The version of the interface, such as "0.12". For PI it includes its own, "15.47.1"."""
        return self.binding.version

    @property
    def backend(self) -> str:
        """The backend of its first platform in device selectors, else the one in its file name."""
        return self.platforms[0].backend if self.platforms else self.candidate.backend

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The root devices of all its platforms."""
        return tuple(device for platform in self.platforms for device in platform.devices)

    def has(self, function: str) -> bool:
        """Return whether the plugin implements a function. Others return UNSUPPORTED_FEATURE."""
        return function in self.dialect.api.functions and function not in self.binding.missing

    def extension(self, name: str) -> int | None:
        """Return the address of another function that the library exports, None if it does not."""
        return self.library.find_own_symbol(name)

    def info(self, routine: str, handle: int, name: str, prefix: str = "") -> Any:
        """Call one of the …GetInfo functions.

        Args:
            name: the constant, with or without `prefix`.
            prefix: the beginning of the constant's name.

        Returns:
            The answer with the Python type that the ABI data gives: str, bool, int (enums and
            handles, too), a tuple for an array, bytes if the type is unknown.

        Raises:
            FairleadError: the API has no such constant.
            CodeError: the plugin refuses the query (URError or PIError).
        """
        api = self.dialect.api
        constant = api.constants.get(name) or api.constants.get(f"{prefix}{name}")
        if constant is None:
            raise FairleadError(
                f"{name!r} is not a constant of {api.name}",
                routine=routine,
                remedy=f"look at {api.name}.abi",
            )
        call = getattr(self.table, routine)
        value = query(
            call, routine, self.dialect.check, handle, constant.value, detail=f"({constant.name})"
        )
        return decode(api, constant.answer, value)

    def on_close(self, callback: Callable[[Plugin], object]) -> None:
        """Call `callback` when the plugin is about to be closed, while it still works.

        The callbacks run in reverse order.
        """
        self._callbacks.append(callback)

    def close(self) -> None:
        """Close the plugin: call the callbacks, release the adapter, report leaks, empty the table.

        Nothing of it may be used afterwards. Its table returns UNINITIALIZED. Errors of the plugin
        are appended to `warnings`. A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        if self in open_plugins:
            open_plugins.remove(self)
        with ExitStack() as last_first:
            last_first.callback(self._unload)
            last_first.callback(self.finish)

    def finish(self) -> None:
        """Call the callbacks, release the adapter and report leaks, whatever fails."""
        callbacks, self._callbacks = self._callbacks, []
        with ExitStack() as last_first:
            last_first.callback(self._release)
            for callback in callbacks:
                last_first.callback(callback, self)

    def _release(self) -> None:
        self.warnings += tuple(_release_objects(self))

    def _unload(self) -> None:
        self.platforms = ()
        unbind(self.binding)
        self.library.close()

    def __repr__(self) -> str:
        count = len(self.platforms)
        what = "closed" if self.closed else f"{count} platform{'' if count == 1 else 's'}"
        return f"<{self.interface} plugin {self.path}: {what}>"


def _release_objects(plugin: Plugin) -> Iterator[str]:
    """Release the listed devices and the adapter, once. Yield what went wrong."""
    if plugin.released:
        return
    plugin.released = True
    table, release = plugin.table, getattr(plugin.table, plugin.dialect.release_device)
    for handle in reversed(plugin.device_handles):
        release(handle)
    plugin.device_handles.clear()
    if plugin.interface == "UR":
        codes = [("urAdapterRelease", table.urAdapterRelease(handle)) for handle in plugin.handles]
    else:
        written = (
            ctypes.c_uint64()
        )  # DPC++'s own plugins write a bool there, without a check for NULL
        codes = [("piTearDown", table.piTearDown(ctypes.byref(written)))]
    for routine, code in codes:
        if code:
            yield str(plugin.dialect.error.from_code(code, routine))
    if plugin.validation:
        plugin.validation.close()


open_plugins: Final[list[Plugin]] = []
call_in_child(open_plugins.clear)  # they belong to its parent


@call_at_end("loaders")
def _finish_all() -> None:
    """Release what is still open before the destructors of libraries run. Unload nothing."""
    with ExitStack() as last_first:
        for plugin in open_plugins:
            last_first.callback(plugin.finish)
