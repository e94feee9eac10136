"""libOpenCL.so.1 beside other OpenCL loaders: the cost of a call, and of the first one.

It is measured once for the machine. The driver is the fake one of the tests, which does almost
nothing. Each sample is a fresh C process (loader.c). The other loaders are those that are there:
Debian's ocl-icd, and Khronos' in Intel's wheel. The verdict file is there before the first sample.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from fairlead.icd import libopencl

from .measuring import Row, Target, summary

_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_OURS = "fairlead"
_OTHERS = {
    "ocl-icd": Path("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
    "Khronos": Path(sys.prefix, "lib/libOpenCL.so.1"),
}
_MANIFESTS = 1000


def measure(quick: bool) -> list[Row]:
    """Take the three measures."""
    loaders = {_OURS: libopencl.path()}
    loaders |= {name: path for name, path in _OTHERS.items() if path.exists()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, driver = _build(folder)
        (folder / "vendors").mkdir()
        (folder / "vendors/one.icd").write_text(f"{driver}\n", encoding="utf-8")
        environ = {
            **os.environ,
            "OCL_ICD_VENDORS": str(folder / "vendors"),
            "XDG_CACHE_HOME": name,
            "LD_LIBRARY_PATH": str(Path(sys.prefix, "lib")),  # Intel's copy needs libsvml.so
        }
        calls = ["calls", "100000" if quick else "5000000"]
        rows = [
            _compare("a call through a loader", "ns", program, loaders, calls, environ, quick, 1.1),
            _compare("the first call", "ns", program, loaders, ["first"], environ, quick, 1.2),
        ]
        for number in range(_MANIFESTS):
            (folder / f"vendors/{number}.icd").write_text(f"{driver}\n", encoding="utf-8")
        return [*rows, _manifests(program, environ, quick)]


def _build(folder: Path) -> tuple[Path, Path]:
    program, driver = folder / "loader", folder / "driver.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-O2", _HERE / "loader.c", "-o", program, "-ldl"], check=True)
    subprocess.run([sys.executable, _ROOT / "icd/native/build.py", folder], check=True)
    options = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{folder}", "-lpthread"]
    fake = _ROOT / "tests/fake/driver.c"
    subprocess.run([*compiler, fake, *options, "-o", driver], check=True)
    return program, driver


def _run(program: Path, loader: Path, what: list[str], environ: Mapping[str, str]) -> float:
    command = [program, loader, *what]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _compare(
    what: str,
    unit: str,
    program: Path,
    loaders: Mapping[str, Path],
    arguments: list[str],
    environ: Mapping[str, str],
    quick: bool,
    bound: float,
) -> Row:
    """Ours beside the best of the others, by the least sample of each.

    A sample that another process disturbs is longer, and never shorter.
    """
    samples: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(2 if quick else 15):
        for name, path in loaders.items():
            samples[name].append(_run(program, path, arguments, environ))
    least = {name: min(values) for name, values in samples.items()}
    ours = least.pop(_OURS)
    series = {name: summary(values) for name, values in samples.items()}
    note = ", ".join(f"{name} {value:.3g}" for name, value in {_OURS: ours, **least}.items())
    if not least:
        return Row(
            what, None, "×", Target("≤", bound), series, unit, note="no other loader is here"
        )
    return Row(
        what,
        ours / min(least.values()),
        "×",
        Target("≤", bound),
        series,
        unit,
        note=f"least: {note}",
    )


def _manifests(program: Path, environ: Mapping[str, str], quick: bool) -> Row:
    """The first call with many manifests of one library, without a verdict."""
    samples = []
    for number in range(1 if quick else 5):
        cache = {**environ, "XDG_CACHE_HOME": f"{environ['XDG_CACHE_HOME']}/{number}"}
        samples.append(_run(program, libopencl.path(), ["first"], cache) / 1e9)
    series = {_OURS: summary(samples)}
    what = f"the first call with {_MANIFESTS} manifests, without a verdict"
    return Row(what, median(samples), "s", Target("≤", 1.0), series, "s")
