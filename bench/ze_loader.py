"""libze_loader.so.1: the cost of a call, beside a call by the driver's own table.

The first part is a driver that does nothing (ze_loader.c). Jumps that begin at a line of the cache
are measured, too: a direct one, which is the least that an exported function can cost, and one by a
pointer, as the library has it. So are programs that are linked with the library: as compilers do
it, they jump once more, in their own procedure linkage table; with -fno-plt they do not. The second
part is calls of fairlead's own driver (ze_calls.c). It also has the loader that ZE_LOADER names,
another library of this kind, such as Debian's.

It is measured once for the machine. Each sample is a fresh C process, and the processes take turns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from platform import machine
from random import Random
from statistics import median
from typing import Final

from fairlead.loader.ze import libze_loader

from . import ze_calls
from .measuring import Row, Target, summary

_HERE: Final = Path(__file__).parent
_BUILD: Final = _HERE.parent / "loader/ze/libze_loader/native/build.py"
_TARGET: Final = Target("≤", 1.1)
#: Programs that are linked with the library, and the options of their compiler.
_LINKED: Final = {"linked": ["-fplt"], "linked with -fno-plt": ["-fno-plt"]}
#: The cheapest calls of the driver.
_CALLS: Final = (
    *("zeEventQueryStatus", "zeEventHostSignal-and-Reset", "zeKernelSetArgumentValue"),
    *("zeKernelSetGroupSize", "zeCommandListAppendLaunchKernel", "zeCommandListAppendBarrier"),
)


def measure(quick: bool) -> list[Row]:
    """Measure calls of an empty driver, with one driver and with two, and of fairlead's."""
    with tempfile.TemporaryDirectory() as name:
        return [*_of_an_empty_driver(Path(name), quick), *_of_our_driver(Path(name), quick)]


def _of_an_empty_driver(folder: Path, quick: bool) -> list[Row]:
    programs, driver = _build(folder)
    other = shutil.copy(driver, folder / "other.so")
    jumps = ("jump", "pointer") if machine() == "x86_64" else ()
    loader = str(libze_loader.find_library())
    ways = {way: (str(driver), way, "") for way in ("table", *jumps)}
    ways["loader"] = loader, "loader", str(driver)
    ways["two drivers"] = loader, "loader", f"{driver},{other}"
    ways |= dict.fromkeys(_LINKED, ways["loader"])

    def call(way: str) -> float:
        library, how, drivers = ways[way]
        command = [programs.get(way, programs[""]), library, how, "200000" if quick else "20000000"]
        environ = {**os.environ, "ZE_ENABLE_ALT_DRIVERS": drivers}
        done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
        return float(done.stdout)

    samples: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(2 if quick else 15):
        for way in ways:
            samples[way].append(call(way))
    least = {way: min(values) for way, values in samples.items()}
    note = "least: " + ", ".join(f"{way} {value:.3g}" for way, value in least.items())
    series = {way: summary(values) for way, values in samples.items()}
    what = "a Level Zero call through libze_loader.so.1"

    def row(what: str, way: str, target: Target | None = None, base: str = "table") -> Row:
        rounds = median(a / b for a, b in zip(samples[way], samples[base], strict=True))
        value, shown = least[way] / least[base], {one: series[one] for one in (way, base)}
        return Row(what, value, "×", target, shown, "ns", rounds, note)

    return [
        row(what, "loader", _TARGET),
        *(row(f"the same by one {way} at a line of the cache", way) for way in jumps),
        *(row(f"the same ÷ one {way}", "loader", _TARGET, way) for way in jumps),
        *(row(f"the same from a program that is {way}", way) for way in _LINKED),
        Row(f"{what}, two drivers", least["two drivers"] - least["table"], "ns", note=note),
    ]


def _of_our_driver(folder: Path, quick: bool) -> list[Row]:
    """Calls through loaders ÷ the same calls of the driver's own functions."""
    program = ze_calls.build(folder)
    loaders = {"libze_loader.so.1": str(libze_loader.find_library())}
    if os.environ.get("ZE_LOADER"):
        loaders["the other loader"] = os.environ["ZE_LOADER"]
    actions: dict[str, Callable[[], Mapping[str, float]]] = {
        "own": lambda: ze_calls.measure(program),
        **{
            name: lambda path=path: ze_calls.measure(program, loader=path)
            for name, path in loaders.items()
        },
    }
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in actions}
    lot, order = Random(1), list(actions)
    for _ in range(2 if quick else 15):
        lot.shuffle(order)
        for name in order:
            found[name].append(actions[name]())
    return [
        _compared(call, name, found, _TARGET if name == "libze_loader.so.1" else None)
        for name in loaders
        for call in _CALLS
    ]


def _compared(
    call: str, name: str, found: Mapping[str, list[Mapping[str, float]]], target: Target | None
) -> Row:
    samples = {one: [round[call] for round in found[one]] for one in (name, "own")}
    least = {one: min(values) for one, values in samples.items()}
    rounds = median(a / b for a, b in zip(samples[name], samples["own"], strict=True))
    series = {one: summary(values) for one, values in samples.items()}
    note = f"least: {least[name]:.4g} and {least['own']:.4g} ns"
    what = f"{call} of fairlead's driver through {name} ÷ its own function"
    return Row(what, least[name] / least["own"], "×", target, series, "ns", rounds, note)


def _build(folder: Path) -> tuple[dict[str, Path], Path]:
    """Return programs by the ways that need one of their own, "" for all others, and the driver."""
    driver, loader = folder / "driver.so", Path(libze_loader.find_library())
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([sys.executable, _BUILD, folder], check=True)
    common = [*compiler, "-O2", f"-I{folder}", _HERE / "ze_loader.c"]
    shared = ["-DDRIVER", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*common, *shared, "-o", driver], check=True)
    linked = ["-DLINKED", loader, f"-Wl,-rpath,{loader.parent}"]
    programs: dict[str, Path] = {}
    for way, options in {
        "": [],
        **{way: [*linked, *more] for way, more in _LINKED.items()},
    }.items():
        programs[way] = folder / (way.replace(" ", "-") or "program")
        subprocess.run([*common, "-o", programs[way], *options, "-ldl"], check=True)
    return programs, driver
