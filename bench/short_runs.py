"""When a capture pays: a program's steps as calls, beside a capture and as many replays.

`python -m bench.short_runs 3` runs each program three times on every driver, in a process of its
own. The first step of a captured program is the capture with `finalize` and a replay. Both need the
context, the arrays and `clBuildProgram`; these do not count. fairlead's import does.

Time is what processors do for the process, its threads and its children: other load of the machine
counts little, and compilers in the background count. What fairlead finds out once about a driver is
in a line of its own. Then each program runs twice: with cold caches, where no kernel is compiled,
and with warm ones, as the first run has left them.

A figure is the time of the captured program ÷ that of the calls after so many steps, the median of
the turns. "End" is the whole rest of the process, with what it waits for at its end.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from . import machine
from .__main__ import list_drivers

#: Steps after which both are compared. Programs with steps of many milliseconds have fewer.
_STEPS: Final = (1, 10, 50, 100, 200, 400, 1000)
_SLOW_STEPS: Final = 100
_STATES: Final = ("cold", "warm")
_CACHES: Final = ("XDG_CACHE_HOME", "POCL_CACHE_DIR")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_ROOT: Final = Path(__file__).resolve().parents[1]

_LATTICE: Final = """
constant int dx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
constant float weight[9] = {4/9.f, 1/9.f, 1/9.f, 1/9.f, 1/9.f, 1/36.f, 1/36.f, 1/36.f, 1/36.f};
kernel void collide(global float *f, global float *rho, global float *ux, global float *uy,
                    float omega) {
    int i = get_global_id(0), n = get_global_size(0);
    float r = 0, x = 0, y = 0;
    for (int q = 0; q < 9; q++) {
        float v = f[q * n + i];
        r += v, x += dx[q] * v, y += dy[q] * v;
    }
    x /= r, y /= r, rho[i] = r, ux[i] = x, uy[i] = y;
    for (int q = 0; q < 9; q++) {
        float c = 3 * (dx[q] * x + dy[q] * y);
        float e = weight[q] * r * (1 + c + 0.5f * c * c - 1.5f * (x * x + y * y));
        f[q * n + i] += omega * (e - f[q * n + i]);
    }
}
kernel void stream(global const float *f, global float *g) {
    int x = get_global_id(0), y = get_global_id(1), w = get_global_size(0), h = get_global_size(1);
    for (int q = 0; q < 9; q++)
        g[(q * h + y) * w + x] = f[(q * h + (y - dy[q] + h) % h) * w + (x - dx[q] + w) % w];
}"""

_FORCES: Final = """
kernel void forces(global const float *x, global const float *y, global float *ax,
                   global float *ay) {
    int i = get_global_id(0), n = get_global_size(0);
    float fx = 0, fy = 0;
    for (int j = 0; j < n; j++) {
        float dx = x[i] - x[j], dy = y[i] - y[j], r = dx * dx + dy * dy + 0.01f;
        float s = 1 / (r * r);
        fx += j == i ? 0 : (s - 0.5f / r) * dx, fy += j == i ? 0 : (s - 0.5f / r) * dy;
    }
    ax[i] = fx, ay[i] = fy;
}"""

_NET: Final = """
kernel void layer(global const float *w, global const float *in, global float *out, int many) {
    int row = get_global_id(0), one = get_global_id(1), rows = get_global_size(0);
    float sum = 0;
    for (int k = 0; k < many; k++) sum += w[row * many + k] * in[one * many + k];
    out[one * rows + row] = tanh(sum);
}
kernel void gradient(global const float *error, global const float *in, global float *change,
                     int batch) {
    int row = get_global_id(0), k = get_global_id(1), rows = get_global_size(0);
    int many = get_global_size(1);
    float sum = 0;
    for (int one = 0; one < batch; one++) sum += error[one * rows + row] * in[one * many + k];
    change[row * many + k] = sum / batch;
}"""


class _Operations:
    """Ten operations of `pyopencl.array`."""

    def __init__(self, queue: Any, size: int) -> None:
        import pyopencl.array as cl_array

        host = np.random.default_rng(1).random((3, size), np.float32)
        self.x, self.y, self.z = (cl_array.to_device(queue, one) for one in host)

    def step(self) -> None:
        x, y, z = self.x, self.y, self.z
        a = x * y + z
        b = a * x - y
        c = b * z + a
        d = c - x * b
        self.out = d * y + c


class _Lattice:
    """A fluid in two dimensions: lattice Boltzmann. Two steps, which exchange two arrays."""

    def __init__(self, queue: Any, side: int) -> None:
        import pyopencl as cl
        import pyopencl.array as cl_array

        self.queue, self.side = queue, side
        program = cl.Program(queue.context, _LATTICE).build()
        self.collide, self.stream = program.collide, program.stream
        f = 1 + 0.1 * np.random.default_rng(1).random((9, side, side), np.float32)
        self.f: Any = cl_array.to_device(queue, f)
        self.g: Any = cl_array.zeros_like(self.f)
        self.rho: Any = cl_array.zeros(queue, (side, side), np.float32)
        self.ux, self.uy, self.energy = (self.rho.copy() for _ in range(3))

    def step(self) -> None:
        grid, moments = (self.side, self.side), (self.rho.data, self.ux.data, self.uy.data)
        for _ in range(2):
            count = (self.side * self.side,)
            self.collide(self.queue, count, None, self.f.data, *moments, np.float32(1.7))
            self.stream(self.queue, grid, None, self.f.data, self.g.data)
            self.f, self.g = self.g, self.f
        self.energy[:] = self.rho * (self.ux * self.ux + self.uy * self.uy)


class _Molecules:
    """Particles, whose next time step follows from a reduction of this one."""

    def __init__(self, queue: Any, count: int) -> None:
        import pyopencl as cl
        import pyopencl.array as cl_array

        self.queue, self.dt, self.count = queue, np.float32(1e-3), count
        self.forces = cl.Program(queue.context, _FORCES).build().forces
        random = np.random.default_rng(1).random((2, count), np.float32) * 30
        nothing: Any = cl_array.zeros(queue, count, np.float32)
        self.x, self.y = (cl_array.to_device(queue, one) for one in random)
        self.vx, self.vy, self.ax, self.ay = (nothing.copy() for _ in range(4))

    def step(self) -> None:
        import pyopencl.array as cl_array

        dt = self.dt
        arrays: Any = (self.x, self.y, self.ax, self.ay)
        data = (one.data for one in arrays)
        self.forces(self.queue, (self.count,), None, *data)
        self.vx += self.ax * dt
        self.vy += self.ay * dt
        self.x += self.vx * dt
        self.y += self.vy * dt
        self.fastest: Any = cl_array.max(self.vx * self.vx + self.vy * self.vy)

    def end_step(self) -> dict[str, Any]:
        """Return what the next step begins with."""
        speed = float(self.fastest.get()) ** 0.5
        return {"dt": np.float32(min(1e-3, 1e-2 / (speed + 1e-6)))}


class _Net:
    """A small neural net, trained by gradients."""

    def __init__(self, queue: Any, batch: int) -> None:
        import pyopencl as cl
        import pyopencl.array as cl_array

        self.queue, self.batch = queue, batch
        program = cl.Program(queue.context, _NET).build()
        self.first, self.second = program.layer, cl.Kernel(program, "layer")
        self.gradient = program.gradient
        random = np.random.default_rng(1).standard_normal
        shapes = {"w": (32, 8), "v": (1, 32), "in_": (batch, 8), "truth": (batch, 1)}
        for name, shape in shapes.items():
            array = cl_array.to_device(queue, random(shape, np.float32) / 4)
            setattr(self, name, array)
        made = {"hidden": (batch, 32), "out": (batch, 1), "change": (1, 32)}
        for name, shape in made.items():
            setattr(self, name, cl_array.zeros(queue, shape, np.float32))

    def step(self) -> None:
        q, batch, me = self.queue, np.int32(self.batch), vars(self)
        w, v, in_, hidden, out, change = (
            me[name].data for name in ("w", "v", "in_", "hidden", "out", "change")
        )
        self.first(q, (32, self.batch), None, w, in_, hidden, np.int32(8))
        self.second(q, (1, self.batch), None, v, hidden, out, np.int32(32))
        error: Any = (me["out"] - me["truth"]) * (1 - me["out"] * me["out"])
        self.gradient(q, (1, 32), None, error.data, hidden, change, batch)
        me["v"] -= np.float32(0.1) * me["change"]


class _Epidemic:
    """examples/array_program.py."""

    def __init__(self, queue: Any, countries: int) -> None:
        import pyopencl.array as cl_array
        from array_program import begin, day

        self.day, self.arrays = day, [cl_array.to_device(queue, one) for one in begin(countries)]

    def step(self) -> None:
        self.day(*self.arrays)


class _Wave:
    """examples/wave.py, a step of five commands."""

    def __init__(self, queue: Any, _: int) -> None:
        from wave import Wave  # pyright: ignore[reportAttributeAccessIssue]

        self.queue, self.wave = queue, Wave(queue)

    def step(self) -> None:
        self.wave.step(self.queue)


#: What each line of the table is called, and the class with its argument.
_PROGRAMS: Final[dict[str, tuple[Callable[[Any, int], Any], int]]] = {
    "ten operations, 1 Ki": (_Operations, 1 << 10),
    "ten operations, 64 Ki": (_Operations, 1 << 16),
    "ten operations, 1 Mi": (_Operations, 1 << 20),
    "lattice Boltzmann, 64²": (_Lattice, 64),
    "molecular dynamics, 256": (_Molecules, 256),
    "neural net, 64 samples": (_Net, 64),
    "epidemic, 1,024": (_Epidemic, 1024),
    "wave, 64²": (_Wave, 64),
}
_SLOW: Final = ("ten operations, 1 Mi",)


# a run


def _find_spent() -> float:
    """Return the processors' seconds of this process and its children, ended or not."""
    total, waiting = sum(os.times()[:4]), [os.getpid()]
    while waiting:
        for listed in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                for child in map(int, listed.read_text().split()):
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    total += sum(map(int, fields[11:15])) / _TICK
                    waiting.append(child)
            except OSError:  # it has ended
                continue
    return total


def _make_steps(name: str, *, is_captured: bool) -> tuple[Callable[[], Any], Any]:
    """Return what a step of a program is, and its queue. The capture is part of the first one."""
    import fairlead

    from .work import make_queue

    kind, size = _PROGRAMS[name]
    queue = make_queue()
    program = kind(queue, size)
    end: Callable[[], dict[str, Any]] = getattr(program, "end_step", dict)
    queue.finish()
    if not is_captured:

        def call() -> None:
            program.step()
            vars(program).update(end())

        return call, queue
    loops, values = list[Any](), dict[str, Any]()

    def replay() -> None:
        if not loops:
            for one in values:
                setattr(program, one, fairlead.Parameter(values[one], name=one))
            with fairlead.capture(queue) as graph:
                program.step()
            loops.append(graph.finalize())
        loops[0].replay(queue, **values)
        values.update(end())

    values.update({"dt": program.dt} if hasattr(program, "dt") else {})
    return replay, queue


def run(name: str, *, is_captured: bool) -> None:
    """Run a program in this process, and print what it had taken before its steps, and after each
    number of `_STEPS`."""
    step, queue = _make_steps(name, is_captured=is_captured)
    before, taken = _find_spent(), list[float]()
    for number in range(1, (_SLOW_STEPS if name in _SLOW else _STEPS[-1]) + 1):
        step()
        if number in _STEPS:
            queue.finish()
            taken.append(_find_spent() - before)
    print(json.dumps([before, *taken]))


def _run(name: str, kind: str, driver: str, caches: str) -> list[float]:
    """Run it in a process. Returns the seconds after each number of steps, and at the end."""
    for key in _CACHES:
        Path(caches, key).mkdir(exist_ok=True)
    environ = {
        **os.environ,
        **{key: f"{caches}/{key}" for key in _CACHES},
        "OCL_ICD_VENDORS": driver,
        "PYTHONPATH": str(_ROOT / "examples"),
        "PYTHONDONTWRITEBYTECODE": "",  # Python's modules are compiled by the first of all runs
    }
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "bench.short_runs", "run", name, kind],
        cwd=_ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    before, *taken = json.loads(done.stdout.splitlines()[-1])
    return [*taken, spent - before]


def _find_out(driver: str, known: str) -> float:
    """Fill a folder with what fairlead keeps of a driver. Returns the seconds that it took."""
    name, taken = next(iter(_PROGRAMS)), list[float]()
    with TemporaryDirectory() as caches:
        for _ in range(2):
            taken.append(_run(name, "captured", driver, caches)[0])
            for key in _CACHES[1:]:
                shutil.rmtree(Path(caches, key))
        shutil.copytree(Path(caches, _CACHES[0], "fairlead"), known, dirs_exist_ok=True)
    return taken[0] - taken[1]


def measure_program(
    name: str, driver: str, known: str, turns: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the medians of the seconds, called and captured, by the state of the caches.

    Args:
        known: the folder with what fairlead keeps of the driver.
    """
    found: dict[str, list[list[list[float]]]] = {state: [] for state in _STATES}
    for _ in range(turns):
        with TemporaryDirectory() as called, TemporaryDirectory() as captured:
            pairs = (("called", called), ("captured", captured))
            for _, caches in pairs:
                shutil.copytree(known, Path(caches, _CACHES[0], "fairlead"))
            for runs in found.values():
                runs.append([_run(name, kind, driver, caches) for kind, caches in pairs])
    return {
        state: [
            (median(called), median(captured))
            for called, captured in zip(
                *(zip(*(one[side] for one in runs), strict=True) for side in (0, 1)), strict=True
            )
        ]
        for state, runs in found.items()
    }


def _print_table(driver: str, known: str, turns: int) -> None:
    head = ("program", "caches", *map(str, _STEPS), "end", "s called; captured")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|", flush=True)
    for name in _PROGRAMS:
        for state, pairs in measure_program(name, driver, known, turns).items():
            cells = [f"{captured / max(called, 1 / _TICK):.2f}" for called, captured in pairs]
            cells[-1:-1] = ["–"] * (len(_STEPS) + 1 - len(cells))
            called, captured = pairs[-1]
            cells.append(f"{called:.2f}; {captured:.2f}")
            print(f"| {name} | {state} | {' | '.join(cells)} |", flush=True)


def main(turns: int) -> None:
    """Print a table for each driver.

    Args:
        turns: how often each program runs.
    """
    facts = machine.facts()
    print(f"{facts['cores']} cores of {facts['cpu']}; load before {facts['load_before']}")
    for driver in list_drivers():
        with TemporaryDirectory() as known:
            seconds = _find_out(driver["path"], known)
            print(f"\n{driver['name']}; found out once: {seconds:.1f} s\n")
            _print_table(driver["path"], known, turns)
    print(f"\nload after {machine.load()}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], is_captured=sys.argv[3] == "captured")
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 3)
