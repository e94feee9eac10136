"""A thousand simulations on all devices of a Dask cluster: where the Gray–Scott model has patterns.

Two substances react and diffuse on a grid. Patterns grow where one is fed and the other removed at
the right speed. Two steps are captured once. A simulation is a batch: its two numbers, and the grid
that it begins with.

    python examples/parameter_sweep.py                        # a cluster on this machine
    python examples/parameter_sweep.py --scheduler tcp://host:8786 --picture sweep.svg
"""

import argparse
import sys
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from distributed import Client, LocalCluster, progress

import fairlead
import fairlead.dask

KERNEL = """
float spread(global const float *of, int x, int y, int n) {  // the neighbours, less the middle
    int left = (x + n - 1) % n, right = (x + 1) % n, up = (y + n - 1) % n, down = (y + 1) % n;
    return of[y * n + left] + of[y * n + right] + of[up * n + x] + of[down * n + x]
           - 4 * of[y * n + x];
}
kernel void react(global const float *u, global const float *v, global float *next_u,
                  global float *next_v, float feed, float remove) {
    int x = get_global_id(0), y = get_global_id(1), n = get_global_size(0), i = y * n + x;
    float eaten = u[i] * v[i] * v[i];
    next_u[i] = u[i] + 0.16f * spread(u, x, y, n) - eaten + feed * (1 - u[i]);
    next_v[i] = v[i] + 0.08f * spread(v, x, y, n) + eaten - (feed + remove) * v[i];
}"""


def simulate(client: Any, size: int, steps: int, points: list[tuple[float, float]]) -> list[float]:
    """How uneven the grid is at the end, for each point (feed, remove)."""
    found = fairlead.devices()
    device = next((one for one in found if one.type == "GPU"), found[0])
    context = cl.Context([device.to_pyopencl()])
    queue, react = cl.CommandQueue(context), cl.Program(context, KERNEL).build().react
    first = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)
    middle = slice(size // 2 - 3, size // 2 + 3)
    first[0][middle, middle], first[1][middle, middle] = 0.5, 0.25
    u, v, next_u, next_v = (cl_array.to_device(queue, one) for one in first + first)
    now: Any = u.data, v.data
    following: Any = next_u.data, next_v.data
    feed, remove = (fairlead.Parameter(np.float32(0)) for _ in range(2))
    with fairlead.capture(queue) as steps_of_two:
        react(queue, u.shape, None, *now, *following, feed, remove)
        react(queue, u.shape, None, *following, *now, feed, remove)
    batches: list[dict[str, Any]] = [
        {"u": first[0], "v": first[1], "feed": one, "remove": other} for one, other in points
    ]
    grids = fairlead.dask.map(steps_of_two, batches, client=client, times=(steps + 1) // 2)
    progress(grids)
    print()  # after the bar
    # what is asked of each grid is computed where the grid is
    return client.gather(client.map(lambda grid: float(grid["v"].std()), grids))


def picture(values: np.ndarray) -> str:
    """The map as SVG: a square for each simulation, brighter where there are patterns."""
    rows, columns = values.shape
    scale = 255 / (values.max() or 1)
    squares = [
        f'<rect x="{x}" y="{rows - 1 - y}" width="1" height="1" '
        f'fill="rgb({int(values[y, x] * scale)},{int(values[y, x] * scale * 0.7)},60)"/>'
        for y in range(rows)
        for x in range(columns)
    ]
    size = f'width="{columns * 16}" height="{rows * 16}" viewBox="0 0 {columns} {rows}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} shape-rendering="crispEdges">'
    return "\n".join([head, *squares, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scheduler", help="the address of a cluster; by default one is started")
    parser.add_argument("--size", type=int, default=48, help="grid points in a row")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--feeds", type=int, default=40, help="values of the feed rate")
    parser.add_argument("--removals", type=int, default=25, help="values of the removal rate")
    parser.add_argument("--picture", help="an SVG file for the map")
    given = parser.parse_args()
    feeds = np.linspace(0.01, 0.06, given.feeds)
    removals = np.linspace(0.045, 0.07, given.removals)
    points = [(float(feed), float(remove)) for remove in removals for feed in feeds]
    with ExitStack() as end:
        address = given.scheduler or end.enter_context(LocalCluster(threads_per_worker=1))
        client = end.enter_context(Client(address))
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        start = time.perf_counter()
        found = simulate(client, given.size, given.steps, points)
        seconds = time.perf_counter() - start
    values = np.array(found).reshape(given.removals, given.feeds)
    if given.picture:
        with open(given.picture, "w", encoding="utf-8") as file:
            file.write(picture(values))
    print(f"{len(points)} simulations of {given.steps} steps on {workers} workers: {seconds:.1f} s")
    share = (values > 0.05).mean()
    print(
        f"{share:.0%} of them end with patterns; feed {feeds[values.max(0).argmax()]:.3f} has most"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
