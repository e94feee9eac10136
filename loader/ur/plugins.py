"""Finds, probes and opens every adapter and plugin of this machine.

    >>> from fairlead.loader.ur.plugins import open_plugins
    >>> with open_plugins("UR") as adapters:
    ...     for device in adapters.select():            # by ONEAPI_DEVICE_SELECTOR and its like
    ...         print(device.name)

`discovery` finds a plugin, unless the device selector excludes its backend. `probe_verdicts`
probes it in a child process if it is not known yet. `adapters.load` opens it. A plugin that fails
one of these steps becomes a Refusal with its reason. UR_LOG_LOADER="level:info" and
SYCL_PI_TRACE=1 or -1 print each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType

from ..base.errors import FairleadError, NotFoundError, explain_error
from ..base.log import Logger, get_logger, print_pi_trace, read_trace_bits
from ..base.probe_verdicts import judge
from ..base.search import Candidate, Place, Refusal, SearchResult, filter_environ, find_exclusions
from .discovery import FIND, PluginCandidate
from .plugin_config import PluginEntry, find_shipped_config, map_sycl_be_names, read_config
from .selector import SYCL_BE_NAMES, Selector, from_environment, make_selector_strings

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without a candidate does without them
    from typing import Final

    from .devices import PluginDevice, PluginPlatform
    from .plugin import Plugin
    from .plugin_probe import PluginReport

_NOUN: Final = {"UR": "adapter", "PI": "plugin"}


class Plugins:
    """The open plugins of one interface. As a context manager, it closes them at the end.

    Attributes:
        interface: "UR" or "PI".
        plugins: the plugins in search order, including those without a platform.
        selector: the device selector of the environment, None if there is none.
        closed: whether they were closed.
    """

    def __init__(
        self,
        interface: str,
        plugins: Sequence[Plugin],
        refusals: Sequence[Refusal],
        search: SearchResult,
        selector: Selector | None,
    ) -> None:
        self.interface = interface
        self.plugins: tuple[Plugin, ...] = tuple(plugins)
        self.refusals = tuple(refusals)
        self.search = search
        self.selector = selector
        self.closed = False

    @property
    def platforms(self) -> tuple[PluginPlatform, ...]:
        """The platforms of all plugins."""
        return tuple(platform for plugin in self.plugins for platform in plugin.platforms)

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The root devices of all platforms, in the order in which device selectors count them.

        A platform that cannot list its devices is skipped; `failures` says why.
        """
        return self._find_devices_and_failures()[0]

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for every platform that failed to list its devices."""
        return self._find_devices_and_failures()[1]

    def _find_devices_and_failures(self) -> tuple[tuple[PluginDevice, ...], tuple[str, ...]]:
        """Return the devices that report their type, which selectors need, and the failures."""
        devices: list[PluginDevice] = []
        failures: list[str] = []
        for number, platform in enumerate(self.platforms):
            try:
                devices += [device for device in platform.devices if device.type]
            except FairleadError as error:
                where = f"platform {number} ({platform.plugin.path})"
                failures.append(f"the {self.interface} {where} failed to list its devices: {error}")
        return tuple(devices), tuple(failures)

    @property
    def reasons(self) -> tuple[str, ...]:
        """A sentence for each file that was not used, each searched place, and each idle plugin."""
        refused = (
            f"{r.what}: {r.reason}" + (f" ({r.remedy})" if r.remedy else "") for r in self.refusals
        )
        idle = (
            f"{p.path}: {p.idle}" + (f" ({p.remedy})" if p.remedy else "")
            for p in self.plugins
            if p.idle
        )
        return (
            *refused,
            *idle,
            *self.failures,
            *(f"{place.path}: {place.state}" for place in self.search.places),
        )

    def select(self, selector: Selector | None = None) -> tuple[PluginDevice, ...]:
        """Return the devices that a selector selects.

        Args:
            selector: the selector, by default that of the environment. Without one, all devices are
                selected.

        Raises:
            NotFoundError: no device is selected (…DEVICE_NOT_FOUND). It contains every reason.
        """
        if self.closed:
            raise FairleadError(
                f"these {_NOUN[self.interface]}s are closed", remedy="open them again"
            )
        selector = selector or self.selector
        devices = self.devices
        chosen = tuple(selector.select(devices)) if selector else devices
        if read_trace_bits("SYCL_PI_TRACE") & 1:
            for device in chosen:
                print_pi_trace(
                    "basic",
                    f"Selected device:\n  platform: {device.platform.name}\n  device: "
                    f"{device.name}",
                )
        if not chosen:
            there = (
                f"{name} is {device.name}"
                for name, device in zip(make_selector_strings(devices), devices, strict=True)
            )
            asked = (
                [f"{selector.variable}={selector.text} selects none of the devices"]
                if selector and devices
                else []
            )
            raise NotFoundError(
                "no device can be used" if not devices else "the device selector leaves no device",
                (*asked, *there, *self.reasons),
                code="UR_RESULT_ERROR_DEVICE_NOT_FOUND"
                if self.interface == "UR"
                else "PI_ERROR_DEVICE_NOT_FOUND",
                remedy="correct the selector, `fairlead devices` shows what picks each device"
                if devices
                else "run `fairlead doctor`",
            )
        return chosen

    def unload_unused(self, used: Sequence[PluginDevice] = ()) -> tuple[Plugin, ...]:
        """Close the plugins that have no device in `used`, and return them.

        Args:
            used: the devices in use, by default those that the environment selects.
        """
        if not used:
            used = tuple(self.selector.select(self.devices)) if self.selector else self.devices
        keep = {device.platform.plugin for device in used}
        closed = tuple(plugin for plugin in self.plugins if plugin not in keep)
        self.plugins = tuple(plugin for plugin in self.plugins if plugin in keep)
        for plugin in closed:
            _log().info(f"unloading {plugin.path}: none of its devices is used")
        _close(closed)
        return closed

    def close(self) -> None:
        """Close all plugins in reverse order."""
        plugins, self.plugins, self.closed = self.plugins, (), True
        _close(plugins)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self.plugins)

    def __len__(self) -> int:
        return len(self.plugins)

    def __enter__(self) -> Plugins:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_plugins(
    interface: str,
    environ: Mapping[str, str] | None = None,
    *,
    environment: Callable[[], Mapping[str, str]] = dict,
    selector: Selector | None = None,
) -> Plugins:
    """Find and open every usable adapter ("UR") or plugin ("PI").

    Args:
        interface: "UR" or "PI".
        environ: where the variables are read, `os.environ` by default.
        environment: makes the variables that are set while a plugin loads (`adapters.load`).
        selector: the device selector, by default that of the environment.

    Returns:
        The open plugins. A plugin that failed is a Refusal in `refusals`.

    Raises:
        SelectorError: the device selector is malformed.
    """
    wanted = selector or read_selector(environ)
    found = FIND[interface](environ, accepts_backend=wanted.accepts_backend if wanted else None)
    _log_search(interface, found)
    excluded = find_exclusions(found.candidates)
    refusals = [*found.refusals, *excluded.values()]
    candidates = [
        candidate
        for candidate in found.candidates
        if isinstance(candidate, PluginCandidate) and candidate not in excluded
    ]
    plugins: dict[int, Plugin] = {}
    waiting = dict(enumerate(candidates))
    while waiting:  # a refused file is replaced by the file of its name in the next place
        refused: dict[int, Refusal] = {}
        for number, result in _open_all(waiting, interface, environment()):
            if isinstance(result, Refusal):
                refused[number] = result
                _refuse(refusals, result)
            else:
                plugins[number] = result
        waiting = {
            number: candidate.copy_with(library=candidate.others[0], others=candidate.others[1:])
            for number, candidate in waiting.items()
            if number in refused and candidate.others
        }
    opened = Plugins(
        interface, [plugins[number] for number in sorted(plugins)], refusals, found, wanted
    )
    _log_devices(opened)
    return opened


def _open_all(
    candidates: Mapping[int, PluginCandidate], interface: str, environment: Mapping[str, str]
) -> Iterator[tuple[int, Plugin | Refusal]]:
    """Yield each candidate's number, and the open plugin or the reason why it is none."""
    from .adapters import load

    unprobed: set[Candidate] = set()
    refused_by_probe = judge(
        list(candidates.values()),
        partial(_probe, unprobed=unprobed, environment=environment),
        interface.lower(),
    )
    probed = (
        set(candidates.values()) - unprobed
        if filter_environ().get("FAIRLEAD_PROBE") != "0"
        else set[Candidate]()
    )
    for number, candidate in candidates.items():
        if candidate in refused_by_probe:
            yield number, refused_by_probe[candidate]
            continue
        try:
            plugin = load(candidate, environment=environment, previewed=candidate in probed)
        except FairleadError as error:
            yield (
                number,
                Refusal(candidate.library, explain_error(error), error.remedy, candidate.found_via),
            )
            continue
        _log_loaded(plugin)
        yield number, plugin


def _close(plugins: Sequence[Plugin]) -> None:
    """Close plugins in reverse order, even if one of them fails."""
    with ExitStack() as last_first:
        for plugin in plugins:
            last_first.callback(plugin.close)


def read_selector(environ: Mapping[str, str] | None = None) -> Selector | None:
    """Return the device selector of the environment, None if there is none.

    plugins.conf defines the values of SYCL_BE.
    """
    entries = [
        entry
        for entry in read_config(find_shipped_config(), "plugins.conf")
        if isinstance(entry, PluginEntry)
    ]
    return from_environment(environ, sycl_be={**SYCL_BE_NAMES, **map_sycl_be_names(entries)})


def _probe(
    candidates: Sequence[Candidate], unprobed: set[Candidate], environment: Mapping[str, str]
) -> list[PluginReport]:
    """Probe candidates. Those whose child could not be started are added to `unprobed`."""
    from .plugin_probe import probe_all  # not needed if all plugins are known

    reports = probe_all(
        [c for c in candidates if isinstance(c, PluginCandidate)], environment=environment
    )
    unprobed.update(report.candidate for report in reports if not report.probed)
    return reports


def _refuse(refusals: list[Refusal], refusal: Refusal) -> None:
    _log().info(f"failed to load {refusal.what}: {refusal.reason}")
    if refusal.remedy:
        _log().debug(f"remedy: {refusal.remedy}")
    print_pi_trace("all", f"Check if plugin is present. Failed to load plugin: {refusal.what}")
    print_pi_trace("-1", f"{refusal.what}: {refusal.reason}")
    refusals.append(refusal)


# Messages


def _log() -> Logger:
    """Return the logger of UR_LOG_LOADER, which SYCL_UR_TRACE=1 also switches on."""
    return get_logger("LOADER", default="info" if read_trace_bits("SYCL_UR_TRACE") & 1 else "quiet")


def _log_search(interface: str, found: SearchResult) -> None:
    """Log which places were searched and what was not used."""
    log = _log()
    for place in found.places:
        log.debug(f"{_NOUN[interface]}s: {_format_place(place)}")
    for refusal in found.refusals:
        log.info(f"{refusal.what}: {refusal.reason}")


def _format_place(place: Place) -> str:
    return f"{place.path}: {place.state} ({place.found_via})"


def _log_loaded(plugin: Plugin) -> None:
    name = plugin.path.rsplit("/", 1)[-1]
    _log().info(
        f"loaded {_NOUN[plugin.interface]} 0x{plugin.library.handle:x} ({plugin.path}), "
        f"{plugin.version}"
    )
    for note in plugin.notes:
        _log().info(f"{name}: {note}")
    print_pi_trace(
        "basic", f"Plugin found and successfully loaded: {name} [ PluginVersion: {plugin.version} ]"
    )


def _log_devices(opened: Plugins) -> None:
    """Print all devices if SYCL_PI_TRACE is -1."""
    if read_trace_bits("SYCL_PI_TRACE") != -1:
        return
    with suppress(FairleadError):
        devices = opened.devices
        for name, device in zip(make_selector_strings(devices), devices, strict=True):
            print_pi_trace(
                "all", f"Device [{name}]: {device.type}, {device.name}, {device.platform.name}"
            )
