"""The adapters that the runtime uses: the reference adapter, and those of other backends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..loader.base.forks import make_lock
from ..loader.base.search import filter_environ
from ..loader.ur.adapters import load
from ..loader.ur.discovery import PluginCandidate
from ..loader.ur.plugin import Plugin
from ..loader.ur.plugins import open_plugins
from .checks import as_list

#: The reference adapter, as it lies in the package.
REFERENCE: Final = str(Path(__file__).parents[1] / "plugins" / "libur_adapter_fairlead.so.0")

_lock: Final = make_lock()
_opened: Final[list[tuple[str, tuple[Plugin, ...]]]] = []


def find_plugins(plugins: Iterable[Plugin] | Plugin | None, routine: str) -> tuple[Plugin, ...]:
    """Return the adapters that a caller means: those given, else those of the environment."""
    remedy = "give what fairlead.adapters() gives; ONEAPI_DEVICE_SELECTOR chooses devices"
    if plugins is not None:
        return tuple(as_list(plugins, Plugin, routine, remedy, "adapter"))
    with _lock:
        return _find_default_plugins()


def _find_default_plugins() -> tuple[Plugin, ...]:
    """Return the adapters for the present environment: the reference adapter and those of other
    backends, or those that are forced."""
    forced = filter_environ().get("UR_ADAPTERS_FORCE_LOAD", "")
    for key, opened in _opened:
        if key == forced and not any(plugin.closed for plugin in opened):
            return opened
    found = tuple(open_plugins("UR"))
    if not forced:
        candidate = PluginCandidate(
            REFERENCE, "it ships with fairlead", interface="UR", backend="opencl"
        )
        found = (load(candidate), *(plugin for plugin in found if plugin.backend != "opencl"))
    _opened.append((forced, found))
    return found
