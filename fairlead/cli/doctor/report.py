"""Makes text of a `Diagnosis`, the verdict first. It is ASCII except for what others wrote."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ...loader.base.search import Refusal
from ..output import count_things
from . import gpus, level_zero, packages
from .clients import PROGRAMS
from .diagnosis import Diagnosis, DriverReport
from .plugins import PluginState, PluginSurvey
from .states import format_reason

_COLOURS: Final = {
    "usable": "green",
    "refused": "red",
    "unprobed": "red",
    "idle": "yellow",
    "absent": "yellow",
    "error": "red",
    "warning": "yellow",
}
_INTERFACES: Final = {"UR": "UR adapter", "PI": "PI plugin"}
_NOWHERE: Final = "not found in any of these places"  # a name in `survey.places`


def render(
    facts: Diagnosis,
    paint: Callable[[str, str], str] = lambda text, colour: text,
    *,
    short: bool = False,
    width: int = 0,
) -> str:
    """Return the report as text.

    Args:
        paint: colours a headline or keyword; it gets the text and the colour, "" for none.
        short: whether the verdict is all.
        width: columns at which lines are wrapped, 0 for none.
    """
    versions = facts.versions
    python = f"Python {versions['python']} ({versions['executable']})"
    lines = [f"fairlead {versions['fairlead']}, {python}, {versions['system']}"]
    for title, content in (
        ("Verdict", _format_verdict(facts, paint)),
        *(() if short else _format_facts(facts, paint)),
    ):
        body = [f"  {line}" for part in content for line in part.split("\n")]
        lines += ["", paint(title, ""), *(body or ["  none"])]
    return "\n".join(_wrap(line, width) if width else line for line in lines)


def _wrap(line: str, width: int) -> str:
    """Return a line in several, which are indented by four more. A path is never cut."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return "\n".join(textwrap.wrap(line, width, **options)) or line


_Section = tuple[str, Iterable[str]]


def _format_facts(facts: Diagnosis, paint: Callable[[str, str], str]) -> tuple[_Section, ...]:
    """Return the sections behind the verdict: title and content."""

    def paint_state(state: str) -> str:
        return paint(state, _COLOURS.get(state, ""))

    return (
        ("Environment variables", _format_variables(facts)),
        (
            "Places",
            (
                f"{place.path}: {place.state}" + _format_step(place.path, place.found_via)
                for place in facts.places
            ),
        ),
        ("Drivers", (line for driver in facts.drivers for line in _format_driver(driver, paint))),
        ("Passed over", _format_refusals(facts.refusals)),
        ("Adapters and plugins", _format_plugins(facts.plugins, paint)),
        ("Level Zero", level_zero.format_lines(facts.level_zero, paint_state)),
        ("CUDA and HIP", gpus.format_lines(facts.gpus, paint_state)),
        ("What other packages register", packages.format_lines(facts.packages, paint_state)),
        (
            "Repairs and habits of drivers (docs/driver_profiles.md)",
            (
                f"{row.id}: {row.state}\n  {row.does}"
                for row in facts.quirks
                if row.state != "not needed"
            ),
        ),
        ("Copies of libOpenCL", _format_loaders(facts)),
        ("PyOpenCL", _format_pyopencl(facts)),
        ("Device nodes", _format_nodes(facts)),
        (
            "Kernel caches",
            (f"{c.path}: {'writable' if c.writable else 'NOT writable'}" for c in facts.caches),
        ),
    )


def _format_step(path: str, found_via: str) -> str:
    return f" ({found_via})" if found_via != path else ""


def _format_variables(facts: Diagnosis) -> Iterator[str]:
    for variable in facts.variables:
        yield f"{variable.name}={variable.value}\n  {variable.outcome}"


def _format_driver(driver: DriverReport, paint: Callable[[str, str], str]) -> Iterator[str]:
    version = (
        f" (ICD {driver.icd_version}, probed in {driver.seconds:.2f} s)"
        if driver.icd_version
        else ""
    )
    state = paint(driver.state, _COLOURS.get(driver.state, ""))
    yield f"{state}: {driver.real_path or driver.library}{version}"
    if driver.real_path and driver.real_path != driver.library:
        yield f"  registered as: {driver.library}"
    yield f"  found via: {driver.found_via}" + (f", {driver.manifest}" if driver.manifest else "")
    yield from format_reason(driver)
    for platform in driver.platforms:
        yield f"  platform: {platform.name}, {platform.version} (ICD {platform.icd_version})"
        yield from (f"    note: {note}" for note in platform.notes)
        for device in platform.devices:
            size = f"{device.compute_units} compute units, {device.global_mem / 2**30:.1f} GiB"
            yield f"    {device.type}: {device.name}, driver {device.driver_version}, {size}"
    if driver.quirks:
        yield f"  repairs applied: {', '.join(driver.quirks)}"
    if driver.habits:
        yield f"  habits: {', '.join(driver.habits)}"
    if driver.direct:
        yield f"  engine direct: {driver.direct}"
    if driver.cuda:
        yield f"  engine cuda: {driver.cuda}"
    if driver.handlers:
        yield f"  it changes the signal handlers of the process: {', '.join(driver.handlers)}"
    yield from (f"  note: {note}" for note in driver.notes)


def _format_plugins(survey: PluginSurvey, paint: Callable[[str, str], str]) -> Iterator[str]:
    for plugin in survey.plugins:
        yield from _format_plugin(plugin, survey, paint)
    yield from _format_refusals(survey.refusals)
    if not survey.plugins:
        yield (
            "no Unified Runtime adapter or PI plugin here; they come with DPC++ "
            "(pip install intel-sycl-rt, or oneAPI)"
        )
    if survey.reference and not any(
        plugin.interface == "UR" and plugin.state == "usable" for plugin in survey.plugins
    ):
        yield (
            f"fairlead brings an adapter for OpenCL, {survey.reference}: "
            "UR_ADAPTERS_FORCE_LOAD=$(fairlead adapter) PROGRAM"
        )
    places = [place for place in survey.places if place.state != _NOWHERE]
    yield from dict.fromkeys(
        f"looked in {place.path}: {place.state}" + _format_step(place.path, place.found_via)
        for place in places
    )
    names = [place.path for place in survey.places if place.state == _NOWHERE]
    if names and survey.plugins:
        yield f"not found there: {', '.join(names)}"
    yield f"looked for what {survey.config} names"


def _format_plugin(
    plugin: PluginState, survey: PluginSurvey, paint: Callable[[str, str], str]
) -> Iterator[str]:
    """Yield an adapter or plugin, its OpenCL loader, and the drivers that are registered for it."""
    what = _INTERFACES[plugin.interface]
    version = (
        f" ({plugin.interface} {plugin.version}, probed in {plugin.seconds:.2f} s)"
        if plugin.version
        else ""
    )
    state = paint(plugin.state, _COLOURS.get(plugin.state, ""))
    yield f"{state}: {what} {plugin.real_path or plugin.library}{version}"
    if plugin.real_path and plugin.real_path != plugin.library:
        yield f"  found as: {plugin.library}"
    yield f"  found via: {plugin.found_via}, for {plugin.backend} devices"
    yield from format_reason(plugin)
    if plugin.layout:
        yield f"  layout of its tables: {plugin.layout}"
    if plugin.opened:
        told = (
            f", which is told of {', '.join(survey.drivers)}"
            if plugin.backend == "opencl" and survey.drivers
            else ""
        )
        yield f"  it opens {plugin.opened}{told}"
    for platform in plugin.platforms:
        yield f"  platform: {platform.name}, {platform.version} ({platform.backend})"
        for device in platform.devices:
            mark = "" if device.selected else ", not selected"
            what = f"{device.type}: {device.name}, driver {device.driver_version}"
            yield f"    [{device.selector}] {what}{mark}"
    yield from (f"  note: {note}" for note in (*plugin.notes, *plugin.warnings))


def _format_refusals(refusals: Iterable[Refusal]) -> Iterator[str]:
    for refusal in refusals:
        yield f"{refusal.what}: {refusal.reason}" + (
            f"\n  next: {refusal.remedy}" if refusal.remedy else ""
        )


def _format_loaders(facts: Diagnosis) -> Iterator[str]:
    used_by = facts.pyopencl.loader if facts.pyopencl else ""
    for copy in facts.loaders:
        marks = [f"symbols up to OPENCL_{copy.symbols}"] if copy.symbols else []
        marks += ["what programs get"] if copy.path == facts.default_loader else []
        marks += ["the one PyOpenCL uses"] if copy.path == used_by else []
        yield f"{copy.path}: {', '.join((copy.kind, *marks))}"


def _format_pyopencl(facts: Diagnosis) -> Iterator[str]:
    if facts.pyopencl is None:
        return
    loader = facts.pyopencl.loader or f"{facts.pyopencl.needs}, which is not found"
    yield f"PyOpenCL {facts.pyopencl.version} uses {loader}"
    for file in facts.pyopencl.reads:
        yield f"  it looks for drivers in {file}"
    missed = {path for client in facts.clients if client.loader == loader for path in client.misses}
    for path in sorted(missed):
        yield (
            f"  it does not find {path}; "
            "fairlead.devices()[...].to_pyopencl() gives its devices to PyOpenCL"
        )


def _format_nodes(facts: Diagnosis) -> Iterator[str]:
    for node in facts.nodes:
        state = (
            "readable and writable" if node.accessible else f"CLOSED to this user; {node.remedy}"
        )
        yield f"{node.path} ({node.mode}, group {node.group}): {state}"
    if not facts.nodes:
        yield "no GPU device nodes here"


def _format_verdict(facts: Diagnosis, paint: Callable[[str, str], str]) -> Iterator[str]:
    errors = sum(problem.severity == "error" for problem in facts.problems)
    warnings = len(facts.problems) - errors
    detail = f" ({count_things(errors, 'error')}, {count_things(warnings, 'warning')})"
    usable = [plugin.interface for plugin in facts.plugins.plugins if plugin.state == "usable"]
    counts = [count_things(len(facts.usable), "driver")]
    counts += [
        count_things(usable.count(name), what)
        for name, what in _INTERFACES.items()
        if name in usable
    ]
    problems = count_things(len(facts.problems), "problem") + (detail if facts.problems else "")
    yield f"{', '.join(counts)} usable, {problems}"
    platforms = [platform.name for driver in facts.usable for platform in driver.platforms]
    yield f"fairlead: {', '.join(platforms) or 'no platform'}"
    for client in facts.clients:
        yield f"{client.name}: {', '.join(client.sees) or f'no platform, {client.reason}'}"
    if not facts.default_loader:
        yield (
            f"{PROGRAMS}: there is none (fairlead's own: `fairlead run -- PROGRAM`; "
            "Debian's: apt-get install ocl-icd-libopencl1)"
        )
    for problem in facts.problems:
        severity = paint(problem.severity, _COLOURS[problem.severity])
        yield f"{severity}: {problem.what}: {problem.reason}\n  next: {problem.remedy}"
