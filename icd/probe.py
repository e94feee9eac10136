"""Tries a driver in a child process, so that one which crashes, hangs or ends the process does not take the caller along.

`probe_all` starts a child for each candidate, all at once. The child loads the driver through the very `drivers.load`, lists its
platforms and devices, makes a context and writes what it is doing, then its report, as lines of JSON to a pipe of its own; what the
driver prints goes elsewhere. The parent reads until the child ends or its time (FAIRLEAD_PROBE_TIMEOUT, 20 s) is over.

Nothing is remembered here: `fairlead doctor` asks this module, `drivers()` asks `verdicts`, which remembers.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..loader.errors import FairleadError, LibraryError
from ..loader.search import Candidate, secure_environ
from .drivers import load, reason_of
from .errors import check
from .objects import Device, Platform

DEFAULT_TIMEOUT: Final = 20.0
_TAIL: Final = 4096  # bytes of what the driver prints that are kept
_PIPE_SIZE: Final = 1 << 16
# The path of the modules is given, not inherited: `-m` would put the working directory first, and anyone's json.py with it.
_CHILD: Final = (
    "import sys; sys.path[:] = sys.argv[3:]; from fairlead.icd.probe import main; main(int(sys.argv[1]), sys.argv[2])"
)


@dataclass(frozen=True)
class DeviceReport:
    """A device as the child saw it; `global_mem` in bytes."""

    name: str
    type: str
    version: str
    driver_version: str
    compute_units: int
    global_mem: int


@dataclass(frozen=True)
class PlatformReport:
    """A platform as the child saw it."""

    name: str
    vendor: str
    version: str
    suffix: str
    icd_version: int
    notes: tuple[str, ...]
    devices: tuple[DeviceReport, ...]


@dataclass(frozen=True)
class ProbeReport:
    """What became of one candidate: `ok`, else the reason and the remedy in plain words.

    `seconds` is how long the child took to load and question the driver. `icd_version` is the highest of its platforms,
    `quirks` are the ids of the quirks that were applied, `missing` the libraries that it needs and that were not found, and
    `notes` what is odd about it although it works, refused platforms among them. `probed` is False if no child could be started:
    then nothing is known, and `ok` is True.
    """

    candidate: Candidate
    ok: bool
    reason: str = ""
    remedy: str = ""
    seconds: float = 0.0
    real_path: str = ""
    icd_version: int = 0
    platforms: tuple[PlatformReport, ...] = ()
    quirks: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    probed: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The report as what JSON knows."""
        return json.loads(json.dumps(asdict(self), default=str))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ProbeReport:
        """The report that `as_dict` gave."""
        lists = {name: tuple(data[name]) for name in ("quirks", "missing", "notes")}
        platforms = tuple(map(_platform_from_dict, data["platforms"]))
        return ProbeReport(**{**data, **lists, "candidate": _candidate(data["candidate"]), "platforms": platforms})


def probe(candidate: Candidate, timeout: float | None = None) -> ProbeReport:
    """Probe one candidate."""
    return probe_all((candidate,), timeout)[0]


def probe_all(candidates: Sequence[Candidate], timeout: float | None = None) -> list[ProbeReport]:
    """Probe candidates in child processes, all at once; the reports are in the order of `candidates`.

    `timeout` is in seconds for each, FAIRLEAD_PROBE_TIMEOUT if None.
    """
    limit = _timeout() if timeout is None else timeout
    children: list[_Child | ProbeReport] = []
    with selectors.DefaultSelector() as selector:
        try:
            for candidate in candidates:
                try:
                    children.append(_Child(candidate, limit, selector))
                except OSError as error:
                    note = f"it was not probed, because no child process could be started: {error}"
                    children.append(ProbeReport(candidate, True, notes=(note,), probed=False))
            running = [child for child in children if isinstance(child, _Child)]
            while running:
                for key, _ in selector.select(0.02):
                    key.data()
                running = [child for child in running if not child.ended()]
        finally:
            for child in children:
                if isinstance(child, _Child):
                    child.kill()
    return [child.report if isinstance(child, _Child) else child for child in children]


class _Child:
    """A running probe: its process, what it has written so far, and in the end its report."""

    def __init__(self, candidate: Candidate, timeout: float, selector: selectors.BaseSelector) -> None:
        self.candidate, self.timeout, self.selector = candidate, timeout, selector
        self.report = ProbeReport(candidate, False, "its probe was interrupted")
        self.answer, self.printed, self.killed = b"", b"", False
        self.started = time.monotonic()
        reader, writer = os.pipe()
        try:
            self.process = subprocess.Popen(
                [_python(), "-c", _CHILD, str(writer), json.dumps(asdict(candidate), default=str), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                start_new_session=True,
                env={**secure_environ(), "FAIRLEAD_PROBE": "0"},
            )
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        assert self.process.stdout is not None
        self.pipes = {"answer": reader, "printed": os.dup(self.process.stdout.fileno())}
        self.process.stdout.close()
        for name, pipe in self.pipes.items():
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ, lambda name=name: self._read(name))

    def ended(self) -> bool:
        """Whether it is over; then `report` is complete."""
        code = self.process.poll()
        if code is None and time.monotonic() - self.started < self.timeout:
            return False
        self.kill()
        self.report = self._report(code)
        return True

    def kill(self) -> None:
        """End the child and whatever it has started; read what is left in the pipes and close them."""
        if self.killed:
            return
        self.killed = True
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for name in tuple(self.pipes):
            self._read(name)  # a pipe holds no more than one read takes
            self._close(name)

    def _read(self, name: str) -> None:
        try:
            data = os.read(self.pipes[name], _PIPE_SIZE)
        except BlockingIOError:
            return
        if name == "answer":
            self.answer += data
        else:
            self.printed = (self.printed + data)[-_TAIL:]
        if not data:
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self.pipes:
            self.selector.unregister(self.pipes[name])
            os.close(self.pipes.pop(name))

    def _report(self, code: int | None) -> ProbeReport:
        """The child's own report if it wrote one and came to an end; `code` is its exit status, None if it had to be killed."""
        late = f"within {self.timeout:g} s"
        steps = self._lines()
        if not steps or "report" not in steps[-1]:
            ending = f"it did not answer {late}" if code is None else _ending(code)
            return self._failure(f"{ending} while {steps[-1]['step'] if steps else 'Python was starting'}")
        if code is None:
            return self._failure(f"it answers, but does not let the process end {late}")
        report = ProbeReport.from_dict(steps[-1]["report"])
        return replace(report, notes=(*report.notes, f"{_ending(code)} while the process was ending")) if code else report

    def _lines(self) -> list[dict[str, Any]]:
        """What the child wrote, a line each; without what was cut off or what a driver wrote to a descriptor that is not its own."""
        lines: list[dict[str, Any]] = []
        for line in self.answer.split(b"\n")[:-1]:
            with suppress(ValueError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict) and ("step" in line or "report" in line)]

    def _failure(self, reason: str) -> ProbeReport:
        lines = self.printed.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ProbeReport(
            self.candidate,
            False,
            f"{reason}; the last it printed was: {last[:300]}" if last else reason,
            "update or reinstall the driver; FAIRLEAD_EXCLUDE leaves it out, FAIRLEAD_PROBE=0 opens it all the same",
            time.monotonic() - self.started,
        )


def _ending(code: int) -> str:
    if code >= 0:
        return f"it ended the process with exit code {code}"
    try:
        return f"it crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"it crashed with signal {-code}"


def _python() -> str:
    """This interpreter; where Python is embedded in a program, sys.executable may be that program or nothing."""
    places = (sys.executable or "", os.path.join(sys.exec_prefix, "bin", "python3"))
    for path in places:
        if os.path.basename(path).startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("there is no Python interpreter to start")


def _timeout() -> float:
    try:
        seconds = float(secure_environ()["FAIRLEAD_PROBE_TIMEOUT"])
    except (KeyError, ValueError):
        return DEFAULT_TIMEOUT
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


# The child


def main(pipe: int, candidate: str) -> None:
    """What the child does: probe the candidate (JSON) and write steps and report to the file descriptor `pipe`."""
    os.set_inheritable(pipe, False)

    def say(**line: object) -> None:
        with suppress(OSError), open(pipe, "w", encoding="utf-8", closefd=False) as stream:
            stream.write(json.dumps(line) + "\n")

    report = describe(_candidate(json.loads(candidate)), lambda step: say(step=step))
    say(report=report.as_dict())


def describe(candidate: Candidate, progress: Callable[[str], None]) -> ProbeReport:
    """Load the candidate in this process and question it; `progress` is told what is going on, "opening the library"."""
    started = time.monotonic()
    try:
        driver = load(candidate, progress=progress)
    except FairleadError as error:
        missing = error.missing if isinstance(error, LibraryError) else ()
        return ProbeReport(candidate, False, reason_of(error), error.remedy, time.monotonic() - started, missing=missing)
    notes = [f"{refusal.what}: {refusal.reason}" for refusal in driver.refusals]
    platforms = tuple(_platform_report(platform, notes, progress) for platform in driver.platforms)
    return ProbeReport(
        candidate,
        True,
        seconds=time.monotonic() - started,
        real_path=driver.path,
        icd_version=max(platform.icd_version for platform in platforms),
        platforms=platforms,
        quirks=driver.quirks,
        notes=tuple(notes),
    )


def _platform_report(platform: Platform, notes: list[str], progress: Callable[[str], None]) -> PlatformReport:
    devices: tuple[DeviceReport, ...] = ()
    try:
        progress(f"asking the platform {platform.name!r} for its devices")
        devices = tuple(map(_device_report, platform.devices))
        for device in platform.devices:
            progress(f"making a context for the device {device.name!r}")
            _try_context(device)
    except FairleadError as error:
        notes.append(str(error))
    values = (platform.name, platform.vendor, platform.version, platform.suffix, platform.icd_version, platform.notes)
    return PlatformReport(*values, devices)


def _device_report(device: Device) -> DeviceReport:
    sizes = device.info("CL_DEVICE_MAX_COMPUTE_UNITS"), device.info("CL_DEVICE_GLOBAL_MEM_SIZE")
    return DeviceReport(device.name, device.type, device.version, device.driver_version, *sizes)


def _try_context(device: Device) -> None:
    code, devices = ctypes.c_int32(), (ctypes.c_void_p * 1)(device.handle)
    context = device.table.clCreateContext(None, 1, devices, None, None, ctypes.byref(code))
    check(code.value, "clCreateContext", f"(device {device.name!r})")
    check(device.table.clReleaseContext(context), "clReleaseContext")


def _platform_from_dict(data: dict[str, Any]) -> PlatformReport:
    devices = tuple(DeviceReport(**device) for device in data["devices"])
    return PlatformReport(**{**data, "notes": tuple(data["notes"]), "devices": devices})


def _candidate(data: dict[str, Any]) -> Candidate:
    return Candidate(data["library"], data["found_via"], Path(data["manifest"]) if data["manifest"] else None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
