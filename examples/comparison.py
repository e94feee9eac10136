"""What the examples share: something is computed directly and by replays, in turns, and both are compared with NumPy and each other."""

import argparse
import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from fairlead.runtime import Device

ROUNDS = 6  # of each way; the first one is not timed, since kernels are compiled in it


def options(description: str | None, **defaults: int) -> argparse.Namespace:
    """The numbers of the command line: `--size 64 --steps 100` for options(…, size=64, steps=100), which are the defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="a number")
    return parser.parse_args()


def compare(
    device: Device,
    what: str,
    unit: str,
    reset: Callable[[], object],
    ways: Mapping[str, Callable[[], int]],
    result: Callable[[], np.ndarray],
    expected: np.ndarray,
    tolerance: float,
) -> bool:
    """Time `ways`, which give the number of `unit`s that they did, and print what they take. The answer is whether something is wrong.

    Each begins with what `reset` leaves, and `result` has what it computed, which may be off `expected` by `tolerance` times its
    largest value.
    """
    results, micros = {}, {way: [] for way in ways}
    for way in [*ways] * ROUNDS:  # in turns, so that both meet whatever else the machine does
        reset()
        start = time.perf_counter()
        count = ways[way]()
        micros[way].append((time.perf_counter() - start) * 1e6 / count)
        results[way] = result().copy()

    print(f"{device.platform.version.strip()}: {device.name}\n  {what}")
    medians = {way: median(values[1:]) for way, values in micros.items()}
    errors = {
        way: np.abs(found - expected).max() / np.abs(expected).max()
        for way, found in results.items()
    }
    for way in ways:
        print(
            f"  {way:9}{medians[way]:9.2f} µs per {unit}; off NumPy by {errors[way]:.1e} (allowed: {tolerance:g})"
        )
    print(f"  replaying is {medians['direct'] / medians['replayed']:.1f} times as fast")
    same = results["direct"].tobytes() == results["replayed"].tobytes()
    print(
        "  direct and replayed results agree: bit for bit"
        if same
        else "  direct and replayed results DIFFER"
    )
    return not (same and max(errors.values()) <= tolerance)
