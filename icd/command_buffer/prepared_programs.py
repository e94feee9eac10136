"""Programs for whose binary PoCL compiles long: a child process compiles them first.

PoCL compiles each kernel of a program for any local size when it is asked for the program's binary.
A kernel without barriers takes 50 to 200 ms. A scan takes seconds, or minutes, and its first launch
less than a tenth of that. Meanwhile nothing else is compiled in the process, and it cannot end.

So a child process makes the same program and asks for its binary. PoCL's cache keeps what was
compiled. After that, PoCL answers this process at once. One such child runs at a time. A file in
PoCL's cache says that a program was compiled so, and later processes start no child for it. Who
empties the cache deletes that file, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...loader.base.children import Request, run_all
from ...loader.base.fact_cache import identify_library
from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.log import warn
from ...loader.base.search import Candidate, filter_environ
from ..calls import (
    find_driver_file,
    identify_device,
    query_bytes,
    query_kernel_count,
)
from ..pocl_kernels import find_cache
from .background import Background

#: What takes long: PoCL makes a loop over the work-items between any two barriers of a kernel.
_LONG: Final = re.compile(rb"barrier|(?:work|sub)_group_\w+\s*\(|#\s*include")

_INCLUDE: Final = re.compile(r"#\s*include")

#: So many kernels without any of that are compiled within half a second.
_FEW_KERNELS: Final = 4

#: What scans need under load. The driver runs what needs longer.
_SECONDS: Final = 900.0

#: The module whose `main` is what the child does.
_COMPILER: Final = "fairlead.icd.command_buffer.program_compiler"

_UNTIL_THEN: Final = "PoCL still compiles its function for any local size, in a child process"
_FAILED: Final = "PoCL did not compile its function for any local size, in a child process"


@dataclass(eq=False)
class Preparation:
    """A program that a child compiles.

    Attributes:
        has_ended: whether the child has ended.
        why_not: why PoCL is not asked for the program's binary, None if it is.
    """

    request: dict[str, Any]
    has_ended: bool = False
    why_not: str | None = _UNTIL_THEN


_known: Final[dict[tuple[Any, ...], Preparation]] = {}
_background: Final = Background("fairlead-prepares", daemon=True)
_lock: Final = make_lock()


def prepare(program: int, device: int) -> Preparation | None:
    """Let a child compile a program (a handle) for a device, once in a process.

    Returns:
        None if PoCL can be asked for the program's binary at once: it does not take long, or no
        child can make the same program.

    Raises:
        OpenCLError: the driver does not describe the program.
    """
    source = query_bytes(program, "clGetProgramInfo", "CL_PROGRAM_SOURCE")
    build, name = "clGetProgramBuildInfo", "CL_PROGRAM_BUILD_OPTIONS"
    options = query_bytes(program, build, name, device)
    if not source or not source.strip(b"\0 \n") or options is None:
        return None
    if filter_environ().get("POCL_KERNEL_CACHE") == "0":
        return None
    if not _LONG.search(source) and query_kernel_count(program) <= _FEW_KERNELS:
        return None
    driver = Candidate(find_driver_file(device), "the driver of a device", None)
    request = {
        "driver": asdict(driver),
        "device": identify_device(device),
        "options": os.fsdecode(options.rstrip(b"\0")),
        "source": source.rstrip(b"\0").decode("latin-1"),  # any bytes; no file could be left
    }
    key = request["source"], *request["device"], request["options"]
    with _lock:
        found = _known.get(key)
        if found is None:
            if (file := _find_file(request)) is not None and file.exists():
                return None
            found = _known[key] = Preparation(request)
            _background.add(partial(_work, found))
        return found


def _work(one: Preparation) -> None:
    why_not: str | None = None
    try:
        with say_if_long("in a child process. It runs the graphs itself until then"):
            why_not = _compile(one)
    except Exception as error:  # no process can be made: the driver runs the graphs
        why_not = f"{type(error).__name__}: {error}"
    one.why_not = why_not and f"{_FAILED}: {why_not}"
    one.has_ended = True


def _compile(one: Preparation) -> str | None:
    """Run the child, and return why it did not do its work; None if it did."""
    (outcome,) = run_all([Request(_COMPILER, one.request)], _SECONDS)
    if outcome.report is not None:
        if (file := _find_file(one.request)) is not None:
            with suppress(OSError):
                file.parent.mkdir(exist_ok=True)
                file.touch()
        return None
    return outcome.reason or "; ".join(outcome.notes)


def _find_file(request: dict[str, Any]) -> Path | None:
    """Return the file that says that a child has compiled a program; None if there can be none.

    Headers may change, and PoCL's variables change what it compiles.
    """
    identity, folder = identify_library("cl", request["driver"]["library"]), find_cache()
    if identity is None or not folder or _INCLUDE.search(request["source"]):
        return None
    variables = sorted(one for one in filter_environ().items() if one[0].startswith("POCL_"))
    told = json.dumps([identity, request, variables])
    return Path(folder, "fairlead", hashlib.sha256(told.encode()).hexdigest())


@call_in_child
def _begin_in_child() -> None:
    """What the thread had to do is begun again in a fork."""
    for key, one in list(_known.items()):
        if not one.has_ended:
            one.has_ended = True
            del _known[key]


# the line

_SAID_AFTER: Final = 1.0  # seconds
_said: Final[set[str]] = set()


@contextmanager
def say_if_long(where: str) -> Iterator[None]:
    """Say that PoCL compiles if the block takes longer than a second, once in a process."""
    timer = threading.Timer(_SAID_AFTER, _say, (where,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(where: str) -> None:
    if where not in _said:
        _said.add(where)
        warn(f"PoCL compiles a graph's kernels for any local size, {where}")
