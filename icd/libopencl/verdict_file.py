"""Writes for libOpenCL.so.1 which drivers are sound, and what is repaired.

The library starts a Python that runs `main` when it has no verdict, or what the last one depended
on has changed (native/verdict_file.c). A verdict is plain text:

    fairlead drivers 1          the form of the file
    host … python … variable …  the key: what the library says that the search depends on, and the
                                directory that relative paths are relative to
    file MTIME INODE SIZE PATH  a file or folder as it was; 0 0 0 if there was none
    until SECONDS               when a driver was refused: the time of the next try
    refused TEXT                what was refused and why
    driver PATH                 a library to open
    siblings PATH               the same, after the libraries beside it that it misses
    cpu TRIPLE CPU LEVEL        the repair pocl-generic-cpu of that driver: two offsets and a name
    end

The file is for its user alone (loader/base/own_files.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ...loader.base.fact_cache import describe_state
from ...loader.base.forked import fork_children
from ...loader.base.linker import list_places
from ...loader.base.probe_verdicts import find_duration, is_probing, list_surroundings
from ...loader.base.search import Candidate, Refusal, SearchResult, filter_environ
from .. import libopencl
from ..discovery import find
from ..driver_profiles import locate
from ..drivers import UNKNOWN, Drivers, find_excluding_pattern, find_unusable, rank
from ..probe import ProbeReport, describe, list_all, probe_all
from ..repairs import CPU_OFFSET, TRIPLE_OFFSET, find_cpu_level

_HERE: Final = Path(__file__).resolve()
#: Of fairlead itself: a verdict of another version is none.
_OURS: Final = (_HERE, _HERE.parents[1] / "drivers.py", _HERE.parents[1] / "driver_profiles.py")
#: Steps of the search that no other loader takes.
_FOUND_BY_NO_OTHER: Final = ("Python prefix", "vendors.d")
#: A driver that one of them names is wanted, as long as it lists its platforms.
_WISHES: Final = ("OCL_ICD_FILENAMES", "OCL_ICD_VENDORS")


def main(name: str, key: str) -> None:
    """Search, write the verdict into a file, and print it.

    Args:
        name: the name of the file; "" if this user has no cache.
        key: how it begins.
    """
    answer = os.dup(1)
    os.dup2(2, 1)  # drivers print to stdout
    fork_children()
    text = os.fsencode(key + "".join(f"{line}\n" for line in format_lines(find())))
    if name:
        with suppress(OSError):
            libopencl.FOLDER.replace(name, text)
    with os.fdopen(answer, "wb") as out:
        out.write(text)
        out.flush()
    sys.stdout.flush()
    os._exit(0)  # a driver may hang at the end of the process


def format_lines(search: SearchResult) -> Iterator[str]:
    """The lines of a verdict behind its key."""
    begun = time.monotonic()
    sound, refused = _look_at(search)
    for path in sorted(set(_list_paths(search, sound, refused))):
        if path.startswith("/") and "\n" not in path:
            yield f"file {describe_state(path)} {path}"
    if refused:
        yield f"until {int(time.time() + find_duration(time.monotonic() - begun))}"
    for reason in Drivers((), (*search.refusals, *refused), search).reasons:
        yield f"refused {' '.join(reason.split())}"
    for report in _sort_reports(sound):
        if "\n" not in _find_path(report):
            yield from _format_driver(report)
    yield "end"


def _look_at(search: SearchResult) -> tuple[list[ProbeReport], list[Refusal]]:
    """The drivers that are sound, and the others.

    None is opened in this process, unless FAIRLEAD_PROBE forbids children.
    """
    reports: dict[Candidate, ProbeReport] = {}

    def look(candidates: Sequence[Candidate]) -> Iterable[ProbeReport]:
        here = map(partial(describe, progress=lambda step: None), candidates)
        found = probe_all(candidates) if is_probing() else list(here)
        reports.update(zip(candidates, found, strict=True))
        return found

    refused = find_unusable(search.candidates, look)
    known = [one for one in search.candidates if one not in refused and one not in reports]
    look(known)  # they are known to be sound, but not which repairs they need
    refused |= {one: _make_refusal(reports[one]) for one in known if not reports[one].ok}
    for report in list_all([one for one in refused if _is_wished(one, reports.get(one))]):
        if report.ok:
            reports[report.candidate] = report.copy_with(listed=True)
            del refused[report.candidate]
    sound = [reports[one] for one in search.candidates if one not in refused]
    return sound, list(refused.values())


def _is_wished(candidate: Candidate, report: ProbeReport | None) -> bool:
    """Whether a refused driver is the user's wish, and may have failed behind its platforms."""
    may_list = report is None or report.listed
    return candidate.found_via in _WISHES and may_list and not find_excluding_pattern(candidate)


def _make_refusal(report: ProbeReport) -> Refusal:
    candidate = report.candidate
    return Refusal(candidate.library, report.reason, report.remedy, candidate.found_via)


def _find_path(report: ProbeReport) -> str:
    """What is to be opened: the driver's file, if its probe found it."""
    return report.real_path or locate(report.candidate)[0]


def _sort_reports(reports: Sequence[ProbeReport]) -> Sequence[ProbeReport]:
    """Return the drivers in the order of `Drivers.platforms`.

    Those that only fairlead finds are behind the others. So a program gets the first platform that
    its own loader would have given it.
    """
    return sorted(reports, key=_rank_driver, reverse=True)


def _rank_driver(report: ProbeReport) -> tuple[int, ...]:
    if report.listed and filter_environ().get("OCL_ICD_PLATFORM_SORT") not in ("none", "devices"):
        first, *more = UNKNOWN  # it failed when it was asked for its devices
    else:
        first, *more = max(map(rank, report.platforms), default=()) or (0,)
    return first, report.candidate.found_via not in _FOUND_BY_NO_OTHER, *more


def _format_driver(report: ProbeReport) -> Iterator[str]:
    kind = "siblings" if "sibling-libraries" in report.quirks else "driver"
    yield f"{kind} {_find_path(report)}"
    if "pocl-generic-cpu" in report.quirks:
        yield f"cpu {TRIPLE_OFFSET} {CPU_OFFSET} {find_cpu_level()}"


def _list_paths(
    search: SearchResult, sound: Sequence[ProbeReport], refused: Sequence[Refusal]
) -> Iterator[str]:
    """Every path that the verdict depends on."""
    yield from map(str, _OURS)
    yield "/etc/ld.so.cache"
    yield from (place.path for place in search.places)
    yield from (refusal.what for refusal in search.refusals)
    yield from map(_find_path, sound)
    for refusal in refused:
        yield from list_surroundings(refusal.what)
    for candidate in search.candidates:
        yield from map(str, filter(None, (candidate.manifest,)))
        yield candidate.library
        if "/" not in candidate.library:  # the first that is there is opened
            yield from map(os.path.abspath, list_places(candidate.library))
