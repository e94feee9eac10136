"""A program of pyopencl.array, captured as it is: an epidemic in many countries at once.

Each country has an infection rate of its own. The function `day` is written for arrays of any kind.
PyOpenCL's arrays run it directly and by replays, NumPy's for comparison. The graph also captures
the temporary arrays.
"""

import sys
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
from comparison import compare, options

import fairlead
from fairlead.runtime import devices
from fairlead.runtime.interop import to_pyopencl

RECOVERY = 0.1  # the part of the infected that recovers in a day
TOLERANCE = 1e-4  # relative to the largest value


def day(susceptible: Any, infected: Any, recovered: Any, rate: Any) -> None:
    """Compute a day, in place (Kermack and McKendrick)."""
    caught = rate * susceptible * infected
    healed = RECOVERY * infected
    susceptible -= caught
    infected += caught - healed
    recovered += healed


def begin(countries: int) -> tuple[np.ndarray, ...]:
    """Return the first day: susceptible, infected, recovered, and the infection rates."""
    infected = np.full(countries, 0.001, np.float32)
    rate = np.linspace(0.05, 0.6, countries, dtype=np.float32)
    return 1 - infected, infected, np.zeros_like(infected), rate


def main() -> bool:
    chosen = options(__doc__, countries=1024, days=200)
    device = devices()[0]  # the first that ONEAPI_DEVICE_SELECTOR selects
    context = cl.Context([to_pyopencl(device)])
    queue = cl.CommandQueue(context)
    arrays = [pyopencl.array.to_device(queue, values) for values in begin(chosen.countries)]

    with fairlead.capture(queue) as graph:  # nothing runs in here
        day(*arrays)
    one_day = graph.finalize()

    def reset() -> None:
        for array, values in zip(arrays, begin(chosen.countries), strict=True):
            array.set(values)

    def direct() -> int:
        for _ in range(chosen.days):
            day(*arrays)
        queue.finish()
        return chosen.days

    def replayed() -> int:
        one_day.replay(queue, times=chosen.days).wait()  # one native call
        return chosen.days

    def result() -> np.ndarray:
        return np.array([array.get() for array in arrays])

    expected = begin(chosen.countries)
    for _ in range(chosen.days):
        day(*expected)
    problem = f"{chosen.countries} countries, {chosen.days} days"
    right = np.array(expected), TOLERANCE
    return compare(device, problem, graph, "day", reset, direct, replayed, result, *right)


if __name__ == "__main__":
    sys.exit(not main())
