"""From nothing to the list of platforms: fairlead's `platforms()` against PyOpenCL's
`get_platforms()`.

Each runs in a fresh Python, on the same driver: OCL_ICD_VENDORS is a folder with one manifest. It
is measured for the driver in the PoCL wheel only. PyOpenCL's own loader opens that one in any case,
so with another driver it would have more to do than fairlead. The time is taken inside the process,
without Python's own start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .measuring import Row, Target, ratio
from .work import device

_TIMED = """
import time
start = time.perf_counter()
{lines}
taken = time.perf_counter() - start
import json
print(json.dumps([taken * 1000, [platform.version for platform in found]]))
"""
_FAIRLEAD = _TIMED.format(lines="import fairlead\nfound = fairlead.platforms()")
_PYOPENCL = _TIMED.format(lines="import pyopencl\nfound = pyopencl.get_platforms()")


def _milliseconds(code: str, environ: Mapping[str, str], folder: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    taken, versions = json.loads(done.stdout)
    if set(versions) != {device().platform.version}:
        raise SystemExit(
            f"the platforms {versions} were found instead of {device().platform.version}"
        )
    return taken


def measure(quick: bool) -> list[Row]:
    """Measure fresh processes in turns, first those of a user who runs fairlead for the first
    time."""
    what = "import fairlead, platforms() ÷ the same in PyOpenCL"
    driver = device().platform.driver
    if Path(driver.path).parent.parent.name != "pyopencl":
        return [Row(what, None, "×", note="measured with the PoCL wheel only")]
    runs = 3 if quick else 25
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "driver.icd").write_text(driver.path + "\n", encoding="utf-8")
        # Unsorted, because PyOpenCL's loader would otherwise start the devices to count them.
        environ = {**os.environ, "OCL_ICD_VENDORS": folder, "OCL_ICD_PLATFORM_SORT": "none"}
        samples: dict[str, list[float]] = {
            "fairlead": [],
            "PyOpenCL": [],
            "fairlead, the first time": [],
        }
        for turn in range(-1, runs):
            cold = {**environ, "XDG_CACHE_HOME": os.path.join(folder, f"cache{turn}")}
            taken = {
                "fairlead": _milliseconds(_FAIRLEAD, environ, folder),
                "PyOpenCL": _milliseconds(_PYOPENCL, environ, folder),
                "fairlead, the first time": _milliseconds(_FAIRLEAD, cold, folder),
            }
            for name, value in taken.items():
                if (
                    turn >= 0
                ):  # the first round remembers the probe's verdict and fills the disk's cache
                    samples[name].append(value)
    first = "the same, probing the driver for the first time"
    return [
        ratio(what, samples, "fairlead", "PyOpenCL", Target("≤", 1.5), unit="ms"),
        ratio(first, samples, "fairlead, the first time", "PyOpenCL", unit="ms"),
    ]
