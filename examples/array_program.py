"""A program of pyopencl.array, captured as it is: an epidemic in many countries at once, each with a rate of infection of its own.

`day` is written for arrays and nothing else: here it computes with PyOpenCL's, is captured with these, and computes with NumPy's
for comparison. Its temporary arrays are captured too.
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

RECOVERY, TOLERANCE = (
    0.1,
    1e-4,
)  # who recovers in a day; how far from NumPy, in parts of the largest value


def day(susceptible: Any, infected: Any, recovered: Any, rate: Any) -> None:
    """What happens in a day, in place. (Kermack and McKendrick)"""
    caught = rate * susceptible * infected
    healed = RECOVERY * infected
    susceptible -= caught
    infected += caught - healed
    recovered += healed


def begin(countries: int) -> tuple[np.ndarray, ...]:
    """One in a thousand is infected; how many others each infects in a day."""
    infected = np.full(countries, 0.001, np.float32)
    return (
        1 - infected,
        infected,
        np.zeros_like(infected),
        np.linspace(0.05, 0.6, countries, dtype=np.float32),
    )


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

    expected = begin(chosen.countries)
    for _ in range(chosen.days):
        day(*expected)
    what = f"{chosen.countries} countries, {chosen.days} days; the graph of a day has {len(graph)} commands"
    ways = {"direct": direct, "replayed": replayed}
    return compare(
        device,
        what,
        "day",
        reset,
        ways,
        lambda: np.array([array.get() for array in arrays]),
        np.array(expected),
        TOLERANCE,
    )


if __name__ == "__main__":
    sys.exit(main())
