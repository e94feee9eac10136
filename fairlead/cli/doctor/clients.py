"""What each client of OpenCL on this machine sees: PyOpenCL, and programs that load libOpenCL.so.1.

A client has the drivers that its own loader finds. `survey` asks each loader in a child process
(client_probe.py) and compares its platforms with those of fairlead's drivers. `misread` names the
manifests that other loaders read as another path than is meant.
"""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...icd.errors import describe
from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.manifests import MAX_MANIFEST_BYTES
from . import loaders

if TYPE_CHECKING:
    from .diagnosis import DriverReport

#: What makes another loader see the drivers that fairlead finds.
ENV: Final = 'eval "$(fairlead env)"'
PROGRAMS: Final = "programs that load libOpenCL.so.1"
_SHOWN: Final = 80  # bytes of a manifest


@dataclass(frozen=True)
class Client:
    """A client of OpenCL, and what its loader shows it.

    Attributes:
        name: what it is, "PyOpenCL 2026.1.4".
        loader: the real path of its libOpenCL.
        sees: the names of its platforms.
        misses: the drivers (real paths) that fairlead has and its loader does not find.
        reason: why it has no platform, "" if it has one.
        notes: what is odd although it answers: it crashes at its end.
        answers: whether its loader answers, be it that there is no platform.
    """

    name: str
    loader: str
    sees: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    answers: bool = True


@dataclass(frozen=True)
class MisreadManifest:
    """A manifest that fairlead understands and other loaders do not.

    Attributes:
        why: what is in it that they do not know.
        content: its first bytes, as Python writes them.
        remedy: the command that writes it as they want it.
    """

    path: str
    why: str
    content: str
    remedy: str


def survey(
    pyopencl: loaders.PyOpenCL | None,
    default_loader: str,
    drivers: Iterable[DriverReport],
    timeout: float | None = None,
) -> tuple[Client, ...]:
    """Ask the loaders of this machine's clients for their platforms.

    Args:
        default_loader: the libOpenCL.so.1 that programs get, "" if there is none.
        drivers: what fairlead found.
        timeout: seconds for each loader; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    asked: list[tuple[str, str, str]] = []
    if pyopencl and pyopencl.loader:
        asked.append((f"PyOpenCL {pyopencl.version}", pyopencl.loader, pyopencl.extension))
    if default_loader:
        asked.append((PROGRAMS, default_loader, ""))
    requests = [
        Request("fairlead.cli.doctor.client_probe", {"loader": loader, "extension": extension})
        for _, loader, extension in asked
    ]
    usable = [driver for driver in drivers if driver.state == "usable"]
    return tuple(
        _make_client(name, loader, outcome, usable)
        for (name, loader, _), outcome in zip(asked, run_all(requests, timeout), strict=True)
    )


def _make_client(
    name: str, loader: str, outcome: Outcome, usable: Sequence[DriverReport]
) -> Client:
    report = outcome.report or {"code": 0, "platforms": []}
    # Versions end in a blank where a driver has nothing of its own to say.
    seen = {tuple(text.strip() for text in platform) for platform in report["platforms"]}
    misses = tuple(
        driver.real_path
        for driver in usable
        if not seen.intersection(
            (one.name.strip(), one.version.strip()) for one in driver.platforms
        )
    )
    reason = ""
    if outcome.report is None:
        reason = "; ".join(filter(None, (outcome.reason, *outcome.notes)))
    elif report["code"]:
        reason = f"clGetPlatformIDs answers {describe(report['code'])[0]}"
    elif not seen:
        reason = "clGetPlatformIDs gives no platform"
    names = tuple(platform[0] for platform in report["platforms"])
    notes = outcome.notes if outcome.report else ()
    return Client(name, loader, names, misses, reason, notes, outcome.report is not None)


def find_misread_manifests(drivers: Iterable[DriverReport]) -> Iterator[MisreadManifest]:
    """Yield the manifests of usable drivers that other loaders read as another path than is
    meant."""
    for driver in drivers:
        if driver.manifest and driver.state == "usable" and driver.found_via != "vendors.d":
            content = _read(driver.manifest)
            why = _find_oddity(content)
            if why:
                yield MisreadManifest(
                    driver.manifest,
                    why,
                    repr(content[:_SHOWN]) + ("…" if len(content) > _SHOWN else ""),
                    f"printf '%s\\n' {shlex.quote(driver.library)} > "
                    f"{shlex.quote(driver.manifest)}",
                )


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_MANIFEST_BYTES)
    except OSError:
        return b""


def _find_oddity(content: bytes) -> str:
    """Return what other loaders take for a part of the path; "" if nothing.

    They take all of the file for the path, but for the newline at its end.
    """
    path = content.rstrip(b"\n")
    oddities = (
        (content.startswith(codecs.BOM_UTF8), "begins with a byte order mark"),
        (b"\r" in content, "has the line ends of Windows"),
        (b"#" in {line.strip()[:1] for line in content.split(b"\n")}, "has a comment"),
        (b"\n" in path, "has several lines"),
        (path != path.strip(), "has blanks around the path"),
    )
    return next((why for applies, why in oddities if applies), "")
