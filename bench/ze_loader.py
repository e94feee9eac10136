"""libze_loader.so.1: the cost of a call, beside a call by the driver's own table.

A direct jump to the driver's function is measured, too: an exported function cannot cost less.

It is measured once for the machine. The driver does nothing (ze_loader.c). Each sample is a fresh C
process, and the processes take turns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from platform import machine

from fairlead.loader.ze import libze_loader

from .measuring import Row, Target, summary

_HERE = Path(__file__).parent
_BUILD = _HERE.parent / "loader/ze/libze_loader/native/build.py"


def measure(quick: bool) -> list[Row]:
    """Measure zeEventQueryStatus with one driver, and with two."""
    calls = "200000" if quick else "20000000"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, driver = _build(folder)
        other = shutil.copy(driver, folder / "other.so")
        ways = {
            "table": (str(driver), "table", ""),
            **({"jump": (str(driver), "jump", "")} if machine() == "x86_64" else {}),
            "loader": (str(libze_loader.path()), "loader", str(driver)),
            "two drivers": (str(libze_loader.path()), "loader", f"{driver},{other}"),
        }
        samples: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(2 if quick else 15):
            for way, (library, how, drivers) in ways.items():
                command = [program, library, how, calls]
                environ = {**os.environ, "ZE_ENABLE_ALT_DRIVERS": drivers}
                done = subprocess.run(
                    command, env=environ, check=True, capture_output=True, text=True
                )
                samples[way].append(float(done.stdout))
    least = {way: min(values) for way, values in samples.items()}
    note = "least: " + ", ".join(f"{way} {value:.3g}" for way, value in least.items())
    series = {way: summary(values) for way, values in samples.items()}
    what = "a Level Zero call through libze_loader.so.1"
    floor = least.get("jump", least["table"]) / least["table"]
    return [
        Row(what, least["loader"] / least["table"], "×", Target("≤", 1.1), series, "ns", note=note),
        Row("the same by one direct jump: the least that is possible", floor, "×", note=note),
        Row(f"{what}, two drivers", least["two drivers"] - least["table"], "ns", note=note),
    ]


def _build(folder: Path) -> tuple[Path, Path]:
    program, driver = folder / "program", folder / "driver.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([sys.executable, _BUILD, folder], check=True)
    common = [*compiler, "-O2", f"-I{folder}", _HERE / "ze_loader.c"]
    subprocess.run([*common, "-o", program, "-ldl"], check=True)
    shared = ["-DDRIVER", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*common, *shared, "-o", driver], check=True)
    return program, driver
