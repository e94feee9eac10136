"""libOpenCL.so.1 beside other OpenCL loaders: the cost of a call, and of the first one.

It is measured once for the machine. The driver is the fake one of the tests, which does almost
nothing. Each sample is a fresh C process (loader.c). The other loaders are those that are there:
Debian's ocl-icd, and Khronos' in Intel's wheel. The verdict file is there before the first sample,
but for what is measured without one. What layers cost is measured under our loader alone.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from fairlead.icd import libopencl, trace_layer

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
    """Take the measures."""
    loaders = {_OURS: Path(libopencl.find_library())}
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
            *_layers(folder, program, calls, environ, quick),
            _without_verdict(program, loaders, environ, quick),
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


def _layers(
    folder: Path, program: Path, calls: list[str], environ: Mapping[str, str], quick: bool
) -> list[Row]:
    """What a call costs more with a layer in its way: the least with it, less the least without."""
    traces = folder / "traces"
    traces.mkdir()
    layer = folder / "liblayer.so"
    compiler, source = os.environ.get("CC", "cc").split(), _HERE / "passing_layer.c"
    options = ["-O2", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*compiler, *options, source, "-o", layer], check=True)
    few = ["calls", "10000" if quick else "200000"]  # the log of a trace has an end
    kinds = {
        "a layer that passes a call on": (calls, {"OPENCL_LAYERS": str(layer)}, 1.0),
        "a traced call": (few, trace_layer.make_environment({}, traces), 150.0),
    }
    rows = []
    for what, (arguments, added, bound) in kinds.items():
        series: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(2 if quick else 7):
            for name, variables in (("without", {}), ("with", added)):
                given = {**environ, **variables}
                series[name].append(_run(program, Path(libopencl.find_library()), arguments, given))
        more = min(series["with"]) - min(series["without"])
        summaries = {name: summary(values) for name, values in series.items()}
        rows.append(Row(f"{what}: more", more, "ns", Target("≤", bound), summaries, "ns"))
    return rows


def _without_verdict(
    program: Path, loaders: Mapping[str, Path], environ: Mapping[str, str], quick: bool
) -> Row:
    """The processor's time of a process and its children, ours less the best of the others."""
    samples: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(2 if quick else 10):
        cache = {**environ, "XDG_CACHE_HOME": f"{environ['XDG_CACHE_HOME']}/fresh{number}"}
        for name, path in loaders.items():
            before = _children_s_time()
            _run(program, path, ["first"], cache)
            samples[name].append(1e3 * (_children_s_time() - before))
    least = {name: min(values) for name, values in samples.items()}
    more = least.pop(_OURS) - min(least.values(), default=0.0)
    series = {name: summary(values) for name, values in samples.items()}
    what = "the first call without a verdict: more processor time"
    return Row(what, more, "ms", Target("≤", 60.0), series, "ms")


def _children_s_time() -> float:
    """Seconds of the processor that ended children have taken, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _manifests(program: Path, environ: Mapping[str, str], quick: bool) -> Row:
    """The first call with many manifests of one library, without a verdict."""
    samples = []
    for number in range(1 if quick else 5):
        cache = {**environ, "XDG_CACHE_HOME": f"{environ['XDG_CACHE_HOME']}/{number}"}
        samples.append(_run(program, Path(libopencl.find_library()), ["first"], cache) / 1e9)
    series = {_OURS: summary(samples)}
    what = f"the first call with {_MANIFESTS} manifests, without a verdict"
    return Row(what, median(samples), "s", Target("≤", 1.0), series, "s")
