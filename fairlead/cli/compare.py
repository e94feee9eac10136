"""`fairlead compare FILE`: the same graph on every device and engine, and whether outputs agree.

Each run is a child process, so a driver that crashes or hangs is a row of the table.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..api import devices
from ..graph_files.archive import GraphArchive
from ..graph_files.devices import find_similar_devices
from ..graph_files.errors import CANNOT_READ, GraphFileError
from ..icd.command_buffer.choice import list_engines
from ..loader.base.children import Request, run_all
from ..loader.base.progress import follow
from ..loader.base.query import escape_text

_CHILD: Final = "fairlead.graph_files.run_child"
#: States of a run that make the exit code 1.
_BAD: Final = frozenset(("different", "failed"))
_HEAD: Final = ("device", "engine", "outputs", "load ms", "run ms", "detail")


@dataclass(frozen=True)
class ComparedRun:
    """A graph on one device by one engine.

    Attributes:
        state: "same", "different", "failed", "not possible", or "reference" for what the others
            are compared with.
        detail: what differs, or why it failed or is not possible.
        load_ms, run_ms: milliseconds; None if it did not run.
    """

    device: str
    platform: str
    engine: str
    state: str
    detail: str = ""
    load_ms: float | None = None
    run_ms: float | None = None


def compare(
    file: Path,
    *,
    times: int,
    values: Mapping[str, Any],
    tolerance: float,
    reference: Path | None,
    timeout: float,
) -> list[ComparedRun]:
    """Run a file everywhere: first on devices like the one that it was saved on.

    Args:
        times: how many runs are timed, after the first one, whose outputs are compared.
        values: the values of Parameters, by name.
        tolerance: as of `find_difference`.
        reference: an archive of outputs to compare with. None: those of the first run, or those
            that the file has.
        timeout: seconds for each device and engine.

    Raises:
        GraphFileError: the file or the reference cannot be read.
        NotFoundError: there is no device.
    """
    with GraphArchive(file) as archive:  # what is wrong with the file is said once
        results = archive.read_results() if reference is None and not values else {}
        similar, _ = find_similar_devices(archive.document.device)
    wanted = None if reference is None else _read_outputs(reference)
    rows: list[ComparedRun] = []
    numbered = sorted(enumerate(devices()), key=lambda pair: (*similar, pair[1]).index(pair[1]))
    with tempfile.TemporaryDirectory(prefix="fairlead-compare-") as folder:
        runs = [  # the last engine runs everything
            (*one, engine) for one in numbered for engine in reversed(list_engines())
        ]
        for number, device, engine in follow(runs, "compare", "runs", len(runs)):
            place = Path(folder) / f"{number}-{engine}.npz"
            data = {
                "file": str(file.absolute()),
                "device": number,
                "engine": engine,
                "times": times,
                "values": dict(values),
                "outputs": str(place),
            }
            names = escape_text(device.name), escape_text(device.platform.name), engine
            (outcome,) = run_all([Request(_CHILD, data)], timeout)
            report = outcome.report
            if report is None:
                rows.append(ComparedRun(*names, "failed", escape_text(outcome.reason)))
                continue
            why = _explain_missing_engine(engine, report["explain"])
            if why:
                rows.append(ComparedRun(*names, "not possible", why))
                continue
            outputs = _read_outputs(place)
            state, detail = "reference", ""
            is_first = wanted is None
            wanted = {**outputs, **results} if wanted is None else wanted
            if results or not is_first:
                detail = find_difference(wanted, outputs, tolerance)
                state = "different" if detail else "same"
            rows.append(ComparedRun(*names, state, detail, report["load_ms"], report["run_ms"]))
    return rows


def _read_outputs(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an archive of NumPy's. Raises GraphFileError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy raises many kinds for what is damaged
        raise GraphFileError(
            f"{path} is not an archive of outputs: {error}",
            routine="compare",
            code=CANNOT_READ,
            remedy="name what `fairlead replay --save-outputs` has written",
        ) from None


def _explain_missing_engine(engine: str, explained: str) -> str:
    """Return why an engine that was asked for runs nothing, "" if it runs something."""
    lines = re.findall(rf"^(?:partition \d+: )?\s*{engine}\s+(.*)$", explained, re.M)
    reasons = [line.removeprefix("not chosen: ") for line in lines if line.startswith("not chosen")]
    return reasons[0] if lines and len(reasons) == len(lines) else ""


def find_difference(
    wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], tolerance: float
) -> str:
    """Return what differs first between two sets of outputs, "" if nothing does.

    Args:
        tolerance: the relative and absolute difference that numbers may have; 0: bit for bit.
    """
    for name in dict.fromkeys((*wanted, *got)):
        if name not in wanted or name not in got:
            return f"{name} is there only once"
        one, other = wanted[name], got[name]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{name} is {other.dtype} {other.shape}, not {one.dtype} {one.shape}"
        if one.tobytes() == other.tobytes():
            continue
        is_number = one.dtype.kind in "iufc"
        with np.errstate(all="ignore"):
            close = (
                np.isclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
                if tolerance and is_number
                else _compare_bits(one, other)
            )
        if not close.all():
            at = np.unravel_index(int(np.argmin(close)), close.shape)
            place = ", ".join(map(str, at))
            count = int(np.count_nonzero(~close))
            return f"{name}[{place}] is {other[at]}, not {one[at]}; {count} of {close.size} differ"
    return ""


def _compare_bits(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    shape = (*one.shape, one.dtype.itemsize)
    parts = (np.frombuffer(each.tobytes(), np.uint8).reshape(shape) for each in (one, other))
    return np.asarray(np.equal(*parts).all(axis=-1))


def is_good(rows: list[ComparedRun]) -> bool:
    """Whether something ran, and all that ran agrees."""
    states = {row.state for row in rows}
    return not states & _BAD and bool(states & {"same", "reference"})


def format_rows(rows: list[ComparedRun]) -> Iterator[str]:
    """Yield the rows for people, in columns."""
    texts = [_HEAD, *(_format_row(row) for row in rows)]
    widths = [max(len(text[column]) for text in texts) for column in range(len(_HEAD))]
    for text in texts:
        yield "  ".join(f"{one:{wide}}" for one, wide in zip(text, widths, strict=True)).rstrip()


def _format_row(row: ComparedRun) -> tuple[str, ...]:
    times = ("–" if one is None else f"{one:.3f}" for one in (row.load_ms, row.run_ms))
    detail = " ".join(row.detail.split())
    return f"{row.device} ({row.platform})", row.engine, row.state, *times, detail


def as_json(rows: list[ComparedRun]) -> dict[str, Any]:
    """Return the rows for programs."""
    return {"ok": is_good(rows), "runs": [asdict(row) for row in rows]}
