"""Runs the measures: `python -m bench [--only NAME …] [--quick] [--output
bench/results/NAME.json]`.

Every measure is a module with `measure(quick) -> Iterable[Row]`. Those of `MEASURES` run once for
every driver. Each runs in a process of its own that has only this driver, so that the drivers'
threads do not disturb each other. It prints each row as it is measured. All caches are the run's
own.

Those of `TABLES` are programs that print a table. Each runs where what it needs is there, and the
result says why one was left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import machine, report
from .measuring import Row

MEASURES = (
    "replay",
    "arrays",
    "fusion",
    "command_buffer",
    "command_buffer_layer",
    "ze_lists",
    "direct",
    "schedules",
    "overlap",
    "branches",
    "parameters",
    "capture_cost",
    "files",
    "saved",
    "imports",
    "table_call",
    "adapter",
    "graphs",
    "soak",
    "leak",
)
ONCE = (  # they need no choice of driver
    "plugins",
    "entry_call",
    "partitioning",
    "loader",
    "ze_loader",
)


class Table(NamedTuple):
    """A module that prints a table in Markdown. Its argument is how many turns it takes.

    Attributes:
        driver: a part of the driver's name on which it runs; "" runs it on each.
        needs: the variables that say where downloads of `make bench` are.
    """

    driver: str = ""
    needs: tuple[str, ...] = ()


TABLES = {
    "calls": Table("Intel", ("UR_PLUGINS",)),
    "dpctl_calls": Table("Intel", ("SYCL_CLIENTS",)),
    "examples": Table(),
    "short_runs": Table(),
    "ze_calls": Table(),
    "ze_events": Table(),
    "sycl_graph": Table("", ("SYCL_CLIENTS",)),
}
ALL = (*MEASURES, *ONCE, *TABLES)
_ROOT = Path(__file__).resolve().parent.parent
_LIMIT = 1800.0  # seconds for one measure on one driver


def list_drivers() -> list[dict[str, str]]:
    """Return every driver that has a device: its file and its name.

    This is for a child process, because it opens all of them.
    """
    from fairlead.icd.drivers import drivers

    found = []
    for driver in drivers().drivers:
        platform = driver.platforms[0]
        if platform.devices:
            name = f"{platform.name} {platform.devices[0].driver_version}"
            found.append(
                {
                    "name": name,
                    "path": driver.path,
                    "platform": platform.version,
                    "device": platform.devices[0].name,
                }
            )
    return found


def child(name: str, result: Path, quick: bool) -> None:
    """Run in a child process: take one measure, or list the drivers, and write the answer as JSON:
    after each row, so that those before a failure are kept."""
    if name == "drivers":
        result.write_text(json.dumps(list_drivers()), encoding="utf-8")
        return
    if name not in ONCE:
        check_driver()
    rows: list[dict[str, Any]] = []
    for row in importlib.import_module(f".{name}", __package__).measure(quick):
        rows.append(row.to_json())
        result.write_text(json.dumps(rows), encoding="utf-8")
        print("  " + report.line(rows[-1]), flush=True)


def check_driver() -> None:
    """Raise SystemExit if this process would measure another driver than the one it was started
    for."""
    from fairlead.icd.drivers import drivers

    wanted = os.environ.get("OCL_ICD_VENDORS", "")
    found = [driver.path for driver in drivers().drivers if driver.platforms]
    if os.path.isfile(wanted) and found != [wanted]:
        raise SystemExit(
            f"this process was to measure {wanted}, but it has {', '.join(found) or 'no driver'}"
        )


def in_child(name: str, quick: bool, environ: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Run a child process, which prints its rows as it measures them. Returns its answer, and why
    it is not whole."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rows.json")
        command = [
            sys.executable,
            "-m",
            "bench",
            "--child",
            name,
            "--output",
            str(result),
            *(["--quick"] if quick else []),
        ]
        output = {"stdout": sys.stderr, "stderr": subprocess.PIPE, "text": True}
        problem = ""
        try:
            done = subprocess.run(
                command, env=environ, cwd=_ROOT, timeout=_LIMIT, check=False, **output
            )
            if done.returncode:
                sys.stderr.write(done.stderr)
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                problem = f"exit code {done.returncode}: {last}"
        except subprocess.TimeoutExpired:
            problem = f"did not end within {_LIMIT:.0f} s"
        rows = json.loads(result.read_text(encoding="utf-8")) if result.exists() else []
    return rows, problem


def why_not(table: Table, driver: str, environ: Mapping[str, str]) -> str:
    """Why a table cannot be measured on a driver, "" if it can."""
    if table.driver not in driver:
        return f"it is for {table.driver}'s driver"
    missing = [name for name in table.needs if not os.path.isdir(environ.get(name, ""))]
    return f"{' and '.join(missing)} names no folder: run `make bench`" if missing else ""


def print_table(name: str, quick: bool, environ: dict[str, str]) -> tuple[str, str]:
    """Run a module of `TABLES` in a child process. Returns its table, and why there is none."""
    command = [sys.executable, "-m", f"bench.{name}", *(["1"] if quick else [])]
    try:
        done = subprocess.run(
            command, env=environ, cwd=_ROOT, timeout=_LIMIT, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return "", f"failed: it did not end within {_LIMIT:.0f} s"
    if done.returncode == 0:
        return done.stdout, ""
    sys.stderr.write(done.stderr)
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return "", f"failed: exit code {done.returncode}: {last}"


def measure_tables(
    names: Sequence[str], drivers: Sequence[Mapping[str, str]], quick: bool, environ: dict[str, str]
) -> Iterator[dict[str, str]]:
    """Yield the tables of the modules of `TABLES` among `names`, and those that are left out."""
    for name in (name for name in names if name in TABLES):
        for driver in drivers:
            one = {"measure": name, "driver": driver["name"], "table": ""}
            if reason := why_not(TABLES[name], driver["name"], environ):
                print(f"{name}: {driver['name']}: left out: {reason}", file=sys.stderr)
                yield {**one, "why_not": f"left out: {reason}"}
                continue
            print(f"{name}: {driver['name']}", file=sys.stderr)
            # OpenCL's loaders of others know one of the two variables
            chosen = {"OCL_ICD_VENDORS": driver["path"], "OCL_ICD_FILENAMES": driver["path"]}
            table, why = print_table(name, quick, {**environ, **chosen})
            yield {**one, "table": table, "why_not": why}


def private_caches(folder: str) -> dict[str, str]:
    """Return the environment with caches of its own. `run` narrows the choice of drivers."""
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("PYOPENCL_")
    }
    places = {
        "XDG_CACHE_HOME": os.path.join(folder, "cache"),
        "POCL_CACHE_DIR": os.path.join(folder, "pocl"),
    }
    for place in places.values():
        os.makedirs(place)
    return {**environ, **places}


def run(names: Sequence[str], quick: bool) -> dict[str, Any]:
    """Take the measures and return the results as plain data.

    A measure that fails is a row that says so.
    """
    data: dict[str, Any] = {
        "machine": machine.facts(),
        "quick": quick,
        "drivers": [],
        "rows": [],
        "failures": 0,
    }
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        environ = private_caches(folder)
        data["drivers"], problem = in_child("drivers", quick, environ)
        if problem or not data["drivers"]:
            raise SystemExit(f"no driver to measure: {problem or 'none was found'}")
        for name in (name for name in names if name not in TABLES):
            for driver in [{"name": "all", "path": ""}] if name in ONCE else data["drivers"]:
                print(f"{name}: {driver['name']}", file=sys.stderr)
                chosen = (
                    {"OCL_ICD_VENDORS": driver["path"], "OCL_ICD_FILENAMES": ""}
                    if driver["path"]
                    else {}
                )
                rows, problem = in_child(name, quick, {**environ, **chosen})
                if problem:
                    data["failures"] += 1
                    rows.append(Row(name, None, "", note=f"failed: {problem}").to_json())
                data["rows"] += [{"measure": name, "driver": driver["name"], **row} for row in rows]
        data["tables"] = list(measure_tables(names, data["drivers"], quick, environ))
        data["failures"] += sum(one["why_not"].startswith("failed") for one in data["tables"])
    data["machine"]["load_after"] = machine.load()
    for driver in data["drivers"]:
        del driver["path"]  # no reader needs it
    return data


def main() -> None:
    """Parse the command line, run, print the table, and write both files if requested."""
    parser = argparse.ArgumentParser(description="Measure fairlead against its targets.")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ALL,
        default=ALL,
        metavar="NAME",
        help=", ".join(ALL),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a smoke test: few rounds, small sizes, meaningless figures",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="NAME.json",
        help="where the results go; the table goes into NAME.md",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.output, options.quick)
        return
    data = run(options.only, options.quick)
    table = report.markdown(data)
    output = options.output
    if not output and options.only == ALL and not options.quick:
        output = _ROOT / "bench" / "results" / f"{data['machine']['date'][:10]}.json"
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        output.with_suffix(".md").write_text(table, encoding="utf-8")
    print(table, end="")
    sys.exit(1 if data["failures"] else 0)


if __name__ == "__main__":
    main()
