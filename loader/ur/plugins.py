"""Every adapter and plugin of this machine: searched for, judged, opened, selected from, closed.

    >>> from fairlead.loader.ur.plugins import open_plugins
    >>> with open_plugins("UR") as adapters:
    ...     for device in adapters.select():            # by ONEAPI_DEVICE_SELECTOR and its like
    ...         print(device.name)

The way of a plugin: `discovery` finds it, unless the device selector accepts nothing of its backend; `verdicts` has it tried in a
child process if nothing is known about it; `adapters.load` opens it. Whatever falls by the wayside is a Refusal with its reason.
Each of these steps can be followed: UR_LOG_LOADER="level:info" and SYCL_PI_TRACE=1 or -1 print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ..base.errors import FairleadError, NotFoundError, reason_of
from ..base.log import Logger, logger, pi_trace, trace_bits
from ..base.search import Candidate, Place, Refusal, SearchResult, excluding_pattern, secure_environ
from ..base.verdicts import judge
from .adapters import Plugin, load
from .devices import PluginDevice, PluginPlatform
from .discovery import FIND, PluginCandidate
from .plugin_config import PluginEntry, read_config, shipped_config, sycl_be_names
from .selector import SYCL_BE_NAMES, Selector, from_environment, selector_strings

if TYPE_CHECKING:
    from .plugin_probe import PluginReport

_NOUN: Final = {"UR": "adapter", "PI": "plugin"}


class Plugins:
    """The open plugins of one interface, and everything that was passed over and why.

    `plugins` are in the order of the search, those without a platform among them; `selector` is what the environment asks for, None if
    it asks for nothing. It is a context manager that closes them all.
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

        A platform that cannot list them has none here; `failures` says why.
        """
        return self._listed()[0]

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for every platform that failed to list its devices."""
        return self._listed()[1]

    def _listed(self) -> tuple[tuple[PluginDevice, ...], tuple[str, ...]]:
        """The devices that tell their type, without which none can be selected, and the failures."""
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
        """A sentence for everything that was passed over, looked at in vain, or has no platform."""
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
        """The devices that `selector` picks, or the environment's; all of them if neither says anything.

        Raises NotFoundError (…DEVICE_NOT_FOUND) with every reason if that leaves none.
        """
        if self.closed:
            raise FairleadError(
                f"these {_NOUN[self.interface]}s are closed", remedy="open them again"
            )
        selector = selector or self.selector
        devices = self.devices
        chosen = tuple(selector.select(devices)) if selector else devices
        if trace_bits("SYCL_PI_TRACE") & 1:
            for device in chosen:
                pi_trace(
                    "basic",
                    f"Selected device:\n  platform: {device.platform.name}\n  device: {device.name}",
                )
        if not chosen:
            there = (
                f"{name} is {device.name}"
                for name, device in zip(selector_strings(devices), devices, strict=True)
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
        """Close the plugins none of whose devices are in `used`, or selected by the environment if `used` is empty; the answer is which
        ones."""
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
        """Close them all, the last one first."""
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
    environment: Mapping[str, str] | None = None,
    selector: Selector | None = None,
) -> Plugins:
    """Find and open every usable adapter ("UR") or plugin ("PI").

    Args:
        interface: "UR" or "PI".
        environ: where the variables are read, `os.environ` by default.
        environment: variables that plugins are to see while they look for their own drivers (`adapters.load`).
        selector: what to select by, in place of the environment's.

    Raises SelectorError for a device selector that cannot be understood; a plugin that fails is a Refusal.
    """
    wanted = selector or environment_selector(environ)
    found = FIND[interface](environ, accepts_backend=wanted.accepts_backend if wanted else None)
    _tell_search(interface, found)
    refusals = list(found.refusals)
    candidates = list(
        _wanted([c for c in found.candidates if isinstance(c, PluginCandidate)], refusals)
    )
    plugins: dict[int, Plugin] = {}
    waiting = dict(enumerate(candidates))
    while (
        waiting
    ):  # for each that is refused, the file of its name in the next place takes its turn
        refused: dict[int, Refusal] = {}
        for number, result in _open_all(waiting, interface, environment):
            if isinstance(result, Plugin):
                plugins[number] = result
            else:
                refused[number] = result
                _refuse(refusals, result)
        waiting = {
            number: replace(candidate, library=candidate.others[0], others=candidate.others[1:])
            for number, candidate in waiting.items()
            if number in refused and candidate.others
        }
    opened = Plugins(
        interface, [plugins[number] for number in sorted(plugins)], refusals, found, wanted
    )
    _tell_devices(opened)
    return opened


def _open_all(
    candidates: Mapping[int, PluginCandidate], interface: str, environment: Mapping[str, str] | None
) -> Iterator[tuple[int, Plugin | Refusal]]:
    """Each candidate as an open plugin, or why it is none."""
    untried: set[Candidate] = set()
    unsound = judge(
        list(candidates.values()),
        partial(_probe, untried=untried, environment=environment),
        interface.lower(),
    )
    probed = (
        set(candidates.values()) - untried
        if secure_environ().get("FAIRLEAD_PROBE") != "0"
        else set[Candidate]()
    )
    for number, candidate in candidates.items():
        if candidate in unsound:
            yield number, unsound[candidate]
            continue
        try:
            plugin = load(candidate, environment=environment, judged=candidate in probed)
        except FairleadError as error:
            yield (
                number,
                Refusal(candidate.library, reason_of(error), error.remedy, candidate.found_via),
            )
            continue
        _tell_loaded(plugin)
        yield number, plugin


def _close(plugins: Sequence[Plugin]) -> None:
    """Close them, the last one first; one that fails does not stop the rest."""
    with ExitStack() as last_first:
        for plugin in plugins:
            last_first.callback(plugin.close)


def environment_selector(environ: Mapping[str, str] | None = None) -> Selector | None:
    """What ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER or SYCL_BE ask for; SYCL_BE's names are those of plugins.conf."""
    entries = [
        entry
        for entry in read_config(shipped_config(), "plugins.conf")
        if isinstance(entry, PluginEntry)
    ]
    return from_environment(environ, sycl_be={**SYCL_BE_NAMES, **sycl_be_names(entries)})


def _wanted(
    candidates: Sequence[PluginCandidate], refusals: list[Refusal]
) -> Iterator[PluginCandidate]:
    for candidate in candidates:
        if pattern := excluding_pattern(candidate.library):
            reason = f"excluded by FAIRLEAD_EXCLUDE ({pattern})"
            refusals.append(
                Refusal(candidate.library, reason, "change FAIRLEAD_EXCLUDE", candidate.found_via)
            )
        else:
            yield candidate


def _probe(
    candidates: Sequence[Candidate], untried: set[Candidate], environment: Mapping[str, str] | None
) -> list[PluginReport]:
    """The reports of all; the candidates for which no child could be started are put into `untried`."""
    from .plugin_probe import probe_all  # a process whose plugins are all known does without it

    reports = probe_all(
        [c for c in candidates if isinstance(c, PluginCandidate)], environment=environment
    )
    untried.update(report.candidate for report in reports if not report.probed)
    return reports


def _refuse(refusals: list[Refusal], refusal: Refusal) -> None:
    _log().info(f"failed to load {refusal.what}: {refusal.reason}")
    if refusal.remedy:
        _log().debug(f"remedy: {refusal.remedy}")
    pi_trace("all", f"Check if plugin is present. Failed to load plugin: {refusal.what}")
    pi_trace("-1", f"{refusal.what}: {refusal.reason}")
    refusals.append(refusal)


# What can be followed


def _log() -> Logger:
    """UR_LOG_LOADER's; SYCL_UR_TRACE=1 asks for it too."""
    return logger("LOADER", default="info" if trace_bits("SYCL_UR_TRACE") & 1 else "quiet")


def _tell_search(interface: str, found: SearchResult) -> None:
    """UR_LOG_LOADER: where was looked, what was passed over."""
    log = _log()
    for place in found.places:
        log.debug(f"{_NOUN[interface]}s: {_place(place)}")
    for refusal in found.refusals:
        log.info(f"{refusal.what}: {refusal.reason}")


def _place(place: Place) -> str:
    return f"{place.path}: {place.state} ({place.found_via})"


def _tell_loaded(plugin: Plugin) -> None:
    name = plugin.path.rsplit("/", 1)[-1]
    _log().info(
        f"loaded {_NOUN[plugin.interface]} 0x{plugin.library.handle:x} ({plugin.path}), {plugin.version}"
    )
    for note in plugin.notes:
        _log().info(f"{name}: {note}")
    pi_trace(
        "basic", f"Plugin found and successfully loaded: {name} [ PluginVersion: {plugin.version} ]"
    )


def _tell_devices(opened: Plugins) -> None:
    """All devices, once the plugins are bound (SYCL_PI_TRACE=-1)."""
    if trace_bits("SYCL_PI_TRACE") != -1:
        return
    with suppress(FairleadError):
        devices = opened.devices
        for name, device in zip(selector_strings(devices), devices, strict=True):
            pi_trace(
                "all", f"Device [{name}]: {device.type}, {device.name}, {device.platform.name}"
            )
