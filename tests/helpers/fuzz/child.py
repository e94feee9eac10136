"""The program that test_fuzz.py runs: drives the adapter, prints the shortest failing sequence.

    python -m helpers.fuzz.child VERSION TRAIL SEQUENCES STEPS SECONDS

VERSION is that of the driver's platform. TRAIL is a file to which every call is written before it
is made: after a crash its last line is the call that crashed. SEQUENCES of so many STEPS are run,
always the same ones. If SECONDS is not 0, other sequences are run until they are over.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import run_state_machine_as_test

from fairlead import plugins
from fairlead.loader.ur.abi import API_VERSION
from helpers.fuzz.library import Failure, Library
from helpers.fuzz.machine import Fuzz
from helpers.fuzz.session import Session

LIBRARY: Final = Path(plugins.__file__).with_name("libur_adapter_fairlead.so.0")

#: A sequence that takes longer hangs.
_HANG: Final = 100.0  # seconds


def start(path: Path, trail: int) -> Library:
    """The library, in which Python is at work: a loader's first call does that."""
    table = (ctypes.c_void_p * 64)()
    if code := ctypes.CDLL(str(path)).urGetAdapterProcAddrTable(API_VERSION, table):
        raise Failure(f"urGetAdapterProcAddrTable answers {code}")
    return Library(path, trail)


class Watched(Fuzz):
    """The machine, with an end to every sequence."""

    def __init__(self) -> None:
        faulthandler.dump_traceback_later(_HANG, exit=True)
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        faulthandler.cancel_dump_traceback_later()


def run(sequences: int, steps: int, seed: int | None) -> None:
    """Run sequences from a seed, or always the same ones.

    Raises what the shortest failing one raises.
    """
    profile = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        derandomize=seed is None,
        deadline=None,
        database=None,
        print_blob=False,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=[*HealthCheck],  # pyright: ignore  (its metaclass)
        phases=(Phase.generate, Phase.shrink),
    )
    machine = Watched if seed is None else hypothesis.seed(seed)(Watched)
    run_state_machine_as_test(machine, settings=profile)


def main(version: str, trail: str, sequences: int, steps: int, seconds: float) -> int:
    faulthandler.enable()
    engine.MAX_SHRINKING_SECONDS = 60 if seconds else 30  # there is no setting for it
    library = start(LIBRARY, os.open(trail, os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
    session = Fuzz.session = Session(library, version, check_all=seconds > 0)
    session.open()
    begun = time.monotonic()
    seed, rounds = (
        (None, 0) if not seconds else (int(os.environ.get("FAIRLEAD_FUZZ_SEED") or time.time()), 0)
    )
    try:
        while not rounds or time.monotonic() - begun < seconds:
            run(sequences, steps, None if seed is None else seed + rounds)
            rounds += 1
    except Exception as error:
        if seed is not None:
            print(f"FAIRLEAD_FUZZ_SEED={seed + rounds} leads to it")
        for line, times in itertools.groupby(session.failing):
            print(line, f"({count} times)" if (count := len(list(times))) > 1 else "")
        for one in getattr(
            error, "exceptions", ()
        ):  # of what fails now and then Hypothesis only says that it does
            print("".join(traceback.format_exception(one)))
        raise SystemExit(f"{type(error).__name__}: {error}") from error
    calls, kinds = sum(library.codes.values()), len({name for name, _ in library.codes})
    failed = sum(count for (_, code), count in library.codes.items() if code != "SUCCESS")
    print(
        f"{calls} calls of {kinds} entry points, {failed} of them refused, in "
        f"{time.monotonic() - begun:.1f} s"
    )
    if "--codes" in sys.argv:
        for (name, code), count in sorted(library.codes.items()):
            print(f"{count:7} {name} {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
