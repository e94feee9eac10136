"""What the examples share: results computed by calls and by replays are compared and timed."""

import argparse
import os
import time
from collections.abc import Callable, Sized
from statistics import median
from typing import Any

import numpy as np

import fairlead
import fairlead.runtime

ROUNDS = 6  # the first round of each function compiles the kernels, and is not timed


def options(description: str | None, **defaults: int) -> argparse.Namespace:
    """Read numbers from the command line.

    Args:
        description: What `--help` says of the program.
        **defaults: The options. `size=64` stands for `--size`, whose default is 64.
    """
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=formatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="a number")
    return parser.parse_args()


def finalize_for(graph: Any, engine: str) -> Any:
    """Finalize a graph for an engine that `FAIRLEAD_COMMAND_BUFFER` can name."""
    variable = "FAIRLEAD_COMMAND_BUFFER"
    before = os.environ.get(variable)
    os.environ[variable] = engine
    try:
        return graph.finalize()
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def compare(
    device: fairlead.Device | fairlead.runtime.Device,
    problem: str,
    graph: Sized,
    unit: str,
    reset: Callable[[], object],
    called: Callable[[], int],
    replayed: Callable[[], int],
    result: Callable[[], np.ndarray],
    expected: np.ndarray,
    tolerance: float,
    **more: Callable[[], int],
) -> bool:
    """Time functions that compute the same, compare their results, and print all of it.

    Args:
        device: The device that computes.
        problem: What is computed, in one line.
        graph: What is replayed.
        unit: What the functions count: each returns how many units it has computed.
        reset: Prepares the initial state, before each run.
        called: Computes by ordinary calls.
        replayed: Computes by replays.
        result: Returns what the last run computed.
        expected: The right result.
        tolerance: The allowed error, relative to the largest expected value.
        **more: Further functions that compute by replays, by the names that are printed.

    Returns:
        True if all results are the same, and within the tolerance.
    """
    variants = {"called": called, "replayed": replayed, **more}
    results, micros = {}, {name: [] for name in variants}
    for name in [*variants] * ROUNDS:  # alternately, so that all meet the same load of the machine
        reset()
        start = time.perf_counter()
        count = variants[name]()
        micros[name].append((time.perf_counter() - start) * 1e6 / count)
        results[name] = result().copy()

    print(f"{device.platform.version.strip()}: {device.name}")
    print(f"  {problem}; the graph has {len(graph)} nodes")
    medians = {name: median(values[1:]) for name, values in micros.items()}
    errors = []
    for name, found in results.items():
        error = np.abs(found - expected).max() / np.abs(expected).max()
        off = f"off NumPy by {error:.1e} (allowed: {tolerance:g})"
        print(f"  {name.replace('_', ' '):9}{medians[name]:9.2f} µs per {unit}; {off}")
        errors.append(error)
    for name in more:
        gained = medians["called"] / medians[name]
        print(f"  replaying {name.replace('_', ' ')} is {gained:.1f} times as fast")
    print(f"  replaying is {medians['called'] / medians['replayed']:.1f} times as fast")
    same = len({found.tobytes() for found in results.values()}) == 1
    print("  called and replayed results", "agree: bit for bit" if same else "DIFFER")
    return same and bool(max(errors) <= tolerance)
