"""Quirks: repairs of particular broken drivers, as data.

`QUIRKS` lists them; `fairlead doctor` prints the list and each driver records which were applied. FAIRLEAD_QUIRKS=0 switches all
of them off. A quirk hooks into opening a driver at one of three points: `locate` (before it is opened: another path), `repair_open`
(after dlopen failed) and `repair_platform` (after a platform was bound).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from ..loader.base.library import Library, open_with_siblings
from ..loader.base.memory import read_text, read_word
from ..loader.base.search import Candidate, secure_environ
from .objects import Platform


@dataclass(frozen=True)
class Quirk:
    """One repair: when it applies and what it does in words, what it answers, and its hook."""

    id: str
    when: str
    does: str
    answers: str
    locate: Callable[[Candidate], str | None] | None = None
    repair_open: Callable[[str], Library | None] | None = None
    repair_platform: Callable[[Platform], bool] | None = None


def active() -> tuple[Quirk, ...]:
    """The quirks that are switched on."""
    return () if secure_environ().get("FAIRLEAD_QUIRKS") == "0" else QUIRKS


def locate(candidate: Candidate) -> tuple[str, tuple[str, ...]]:
    """The path or soname to open for a candidate, and the quirks that changed it."""
    for quirk in active():
        path = quirk.locate and quirk.locate(candidate)
        if path:
            return path, (quirk.id,)
    return candidate.library, ()


def _inside_prefix(candidate: Candidate) -> str | None:
    """`<prefix>/lib/<base name>` for a manifest `<prefix>/etc/OpenCL/vendors/x.icd` of a Python environment."""
    if (
        candidate.manifest is None
        or not os.path.isabs(candidate.library)
        or os.path.exists(candidate.library)
    ):
        return None
    manifest = candidate.manifest.absolute()
    if manifest.parts[-4:-1] != ("etc", "OpenCL", "vendors"):
        return None
    prefix = manifest.parents[3]
    found = prefix / "lib" / os.path.basename(candidate.library)
    is_python = any(prefix.glob("lib/python3*/site-packages"))
    return str(found) if is_python and found.is_file() else None


# What the wheel's cl_device_id holds (x86-64, pocl-binary-distribution 3.0): `const char *llvm_target_triplet, *llvm_cpu`.
_POCL_VERSION: Final = "PoCL 3.0-rc2"
_POCL_TRIPLE_OFFSET: Final = 632
_POCL_CPU_OFFSET: Final = 640

#: LLVM's names for what a CPU can do, the best first, and the flags that Linux must list for it (x86-64 psABI).
CPU_LEVELS: Final = (
    (
        "x86-64-v4",
        "avx512f avx512bw avx512cd avx512dq avx512vl avx2 bmi1 bmi2 fma f16c abm movbe cx16 popcnt sse4_2 ssse3",
    ),
    ("x86-64-v3", "avx2 bmi1 bmi2 fma f16c abm movbe cx16 popcnt sse4_2 ssse3"),
    ("x86-64-v2", "cx16 popcnt sse4_1 sse4_2 ssse3"),
    ("x86-64", ""),
)


def cpu_level(flags: frozenset[str] | None = None) -> str:
    """The best of CPU_LEVELS that this machine's CPU reaches; `flags` are the ones of /proc/cpuinfo."""
    has = _cpu_flags() if flags is None else flags
    return next(level for level, needs in CPU_LEVELS if has.issuperset(needs.split()))


@cache
def _cpu_flags() -> frozenset[str]:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        line = next((line for line in file if line.startswith("flags")), ":")
    return frozenset(line.split(":", 1)[1].split())


@cache
def _immortal(text: str) -> int:
    """The address of a C string that is never freed: the driver may read it until the process is gone."""
    strdup = ctypes.CDLL(None).strdup
    strdup.argtypes, strdup.restype = [ctypes.c_char_p], ctypes.c_void_p
    return strdup(text.encode())


def _name_the_cpu(platform: Platform) -> bool:
    if _POCL_VERSION not in platform.version:
        return False
    changed = False
    for device in platform.devices:
        triple = read_text(read_word(device.handle + _POCL_TRIPLE_OFFSET) or 0)
        cpu = read_text(read_word(device.handle + _POCL_CPU_OFFSET) or 0)
        if cpu == b"generic" and triple.startswith(b"x86_64-") and triple.endswith(b"linux-gnu"):
            ctypes.c_void_p.from_address(device.handle + _POCL_CPU_OFFSET).value = _immortal(
                cpu_level()
            )
            changed = True
    return changed


QUIRKS: Final = (
    Quirk(
        id="pip-icd-prefix",
        when="a manifest in a Python environment names an absolute path that does not exist",
        does="opens the library of that name in the lib directory of the same environment",
        answers="Intel's intel-opencl-rt wheel installs .icd files that name the prefix it was built in",
        locate=_inside_prefix,
    ),
    Quirk(
        id="sibling-libraries",
        when="dlopen does not find a library that the driver needs, and it lies beside the driver",
        does="opens the libraries beside the driver first, by their paths",
        answers="Intel's CPU driver from PyPI needs libsvml.so, libimf.so and others of its own directory",
        repair_open=open_with_siblings,
    ),
    Quirk(
        id="pocl-generic-cpu",
        when=f"the platform's version says {_POCL_VERSION!r} and its device names the LLVM CPU 'generic' and an x86-64 Linux triple",
        does="gives the device an LLVM CPU name that its compiler knows: x86-64, x86-64-v2, -v3 or -v4, as the CPU's flags allow",
        answers="PyPI's pocl-binary-distribution 3.0 fails every build on CPUs newer than its LLVM: unknown target CPU 'generic'",
        repair_platform=_name_the_cpu,
    ),
)
