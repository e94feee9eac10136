"""Where the drivers of GPUs may be. Whether one is there is known without the ABI of its API."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..base.library import explain
from ..base.linker import can_find_library
from ..base.search import Candidate, Refusal, find_excluding_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: The places by the API's folder, each with what it is.
PLACES: Final[Mapping[str, tuple[Candidate, ...]]] = {
    "cuda": (
        Candidate("libcuda.so.1", "the dynamic linker's search"),
        Candidate("/usr/lib/wsl/lib/libcuda.so.1", "the driver of Windows, under WSL"),
        Candidate("/usr/local/nvidia/lib64/libcuda.so.1", "a folder that containers mount"),
    ),
    "hip": (
        *(
            Candidate(f"libamdhip64.so.{version}", "the dynamic linker's search")
            for version in (7, 6, 5)
        ),
        Candidate("/opt/rocm/lib/libamdhip64.so", "the folder of AMD's packages"),
    ),
}


def is_there(candidate: Candidate) -> bool:
    """Return whether there is a library to try."""
    name = candidate.library
    return os.path.exists(name) if "/" in name else can_find_library(name)


def find_refusal(candidate: Candidate) -> Refusal | None:
    """Return why a candidate is not even tried, None if it is worth it."""
    if pattern := find_excluding_pattern(candidate.library):
        return make_refusal(candidate, f"FAIRLEAD_EXCLUDE has {pattern}")
    if is_there(candidate):
        return None
    if "/" in candidate.library:
        return make_refusal(candidate, "there is no such file")
    absent = explain(candidate.library, "")
    return make_refusal(candidate, absent.message, absent.remedy)


def make_refusal(candidate: Candidate, reason: str, remedy: str = "") -> Refusal:
    """Return a refusal of a candidate."""
    return Refusal(candidate.library, reason, remedy, candidate.found_via)
