"""The hooks of the repairs in driver_profiles.py: what is done to a driver that is broken."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from ..loader.base.memory import read_text, read_word
from ..loader.base.search import Candidate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from .objects import CLPlatform


def find_path_inside_prefix(candidate: Candidate) -> str | None:
    """`<prefix>/lib/<base name>` if the manifest is `<prefix>/etc/OpenCL/vendors/x.icd`.

    The prefix must be a Python environment, and the path in the manifest must not exist.
    """
    library = candidate.library
    if candidate.manifest is None or not os.path.isabs(library) or os.path.exists(library):
        return None
    vendors = os.path.dirname(os.path.abspath(candidate.manifest))
    folder = os.path.join(vendors.removesuffix("/etc/OpenCL/vendors"), "lib")
    path = os.path.join(folder, os.path.basename(library))
    if not vendors.endswith("/etc/OpenCL/vendors") or not os.path.isfile(path):
        return None
    pythons = (name for name in os.listdir(folder) if name.startswith("python3"))
    has_python = any(os.path.exists(os.path.join(folder, one, "site-packages")) for one in pythons)
    return path if has_python else None


# The cl_device_id of pocl-binary-distribution 3.0 (x86-64) holds two strings at these offsets:
# `const char *llvm_target_triplet, *llvm_cpu`.
TRIPLE_OFFSET: Final = 632
CPU_OFFSET: Final = 640

#: LLVM's names for what a CPU can do, the best first, with the flags that /proc/cpuinfo must list
#: (x86-64 psABI).
CPU_LEVELS: Final = (
    (
        "x86-64-v4",
        "avx512f avx512bw avx512cd avx512dq avx512vl "
        "avx2 bmi1 bmi2 fma f16c abm movbe cx16 popcnt sse4_2 ssse3",
    ),
    ("x86-64-v3", "avx2 bmi1 bmi2 fma f16c abm movbe cx16 popcnt sse4_2 ssse3"),
    ("x86-64-v2", "cx16 popcnt sse4_1 sse4_2 ssse3"),
    ("x86-64", ""),
)


def find_cpu_level(flags: frozenset[str] | None = None) -> str:
    """The best of CPU_LEVELS that a CPU reaches.

    Args:
        flags: the CPU's flags as in /proc/cpuinfo; None reads those of this machine.
    """
    has = _read_cpu_flags() if flags is None else flags
    return next(level for level, needs in CPU_LEVELS if has.issuperset(needs.split()))


@cache
def _read_cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            line = next((line for line in file if line.startswith("flags")), ":")
    except OSError:  # without /proc the least level is safe
        line = ":"
    return frozenset(line.split(":", 1)[1].split())


@cache
def _copy_forever(text: str) -> int:
    """The address of a C string that is never freed; the driver may read it until the end."""
    # char *strdup(const char *)
    strdup = ctypes.CDLL(None).strdup
    strdup.argtypes, strdup.restype = [ctypes.c_char_p], ctypes.c_void_p
    return strdup(text.encode())


def name_the_cpu(platform: CLPlatform) -> bool:
    """Give devices that name the LLVM CPU "generic" one that their compiler knows.

    Returns:
        Whether a device was changed.
    """
    changed = False
    for device in platform.devices:
        place = device.handle + CPU_OFFSET
        triple = read_text(read_word(device.handle + TRIPLE_OFFSET) or 0)
        cpu = read_text(read_word(place) or 0)
        if cpu == b"generic" and triple.startswith(b"x86_64-") and triple.endswith(b"linux-gnu"):
            ctypes.c_void_p.from_address(place).value = _copy_forever(find_cpu_level())
            changed = True
    return changed
