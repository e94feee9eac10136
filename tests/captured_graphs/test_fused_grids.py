"""Launches over grids, whose items have several dimensions, fuse with others row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.fusion_programs import has_run_all

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable

#: Items in each dimension, and elements of a buffer, of which some are no item's.
COLUMNS, ROWS, SHEETS, SIZE = 24, 10, 2, 2048
_IDS = "int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);"
_FILL = (
    "kernel void write(global float *out, int n) {{ {ids} out[{at}] = x + 100 * y + 1000 * z; }}"
)
_TWICE = "kernel void twice(global float *out) { out[get_global_id(0)] *= 2; }"


@pytest.fixture(autouse=True)
def _no_gpu(queue: cl.CommandQueue) -> None:
    """On GPUs each function of a fused kernel is isolated, which needs ranges of one dimension."""
    if queue.device.type & cl.device_type.GPU:
        pytest.skip("grids are not fused on GPUs")


class Program:
    """`write` over a grid, then `twice` over as many items in a line.

    Args:
        queue: of the capture.
        at: the element that an item of the grid writes.
        grid: its range.
    """

    def __init__(self, queue: cl.CommandQueue, at: str, grid: tuple[int, ...]) -> None:
        self.queue, self.grid = queue, grid
        source = _FILL.format(ids=_IDS, at=at) + _TWICE
        self.program = cl.Program(queue.context, source).build()
        self.out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * SIZE)

    def run(self, n: int) -> None:
        """Enqueue it, or record it."""
        self.program.write(self.queue, self.grid, None, self.out, np.int32(n))
        self.program.twice(self.queue, (int(np.prod(self.grid)),), None, self.out)

    def read(self, act: Any) -> bytes:
        """Return what the buffer has after an action, with other numbers in it before."""
        host = np.arange(SIZE, dtype=np.float32)
        cl.enqueue_copy(self.queue, self.out, host)
        act()
        cl.enqueue_copy(self.queue, host, self.out)
        return host.tobytes()

    def check(self, n: int = 0) -> Executable:
        """Compare replays with calls, and return the graph."""
        expected = self.read(lambda: self.run(n))
        with capture(self.queue) as graph:
            self.run(n)
        loop = graph.finalize(fuse="wait")
        while not has_run_all(loop):
            assert self.read(lambda: loop.replay(self.queue)) == expected
        return loop


@pytest.mark.parametrize(
    ("at", "grid", "n", "is_one"),
    [
        ("y * n + x", (COLUMNS, ROWS), COLUMNS, True),
        ("y * (int)get_global_size(0) + x", (COLUMNS, ROWS), 0, True),
        ("y * n + x", (COLUMNS, ROWS, 1), COLUMNS, True),
        ("(z * (int)get_global_size(1) + y) * n + x", (COLUMNS, ROWS, SHEETS), COLUMNS, True),
        ("x + y", (COLUMNS,), 0, True),
        ("y", (1, ROWS), 0, True),
        ("z + x", (1, 1, SHEETS), 0, True),
        ("y * n + x", (COLUMNS, 1), 7, True),  # one row: nobody asks how long it is
        ("y * n + x", (COLUMNS, ROWS), COLUMNS + 1, False),
        ("y * n + x", (COLUMNS, ROWS), 2 * COLUMNS, False),
        ("y * n + x + 1", (COLUMNS, ROWS), COLUMNS, False),
        ("x * n + y", (COLUMNS, ROWS), ROWS, False),
        ("x * n + y", (ROWS, ROWS), ROWS, False),
        ("2 * (y * n + x)", (COLUMNS, ROWS), COLUMNS, False),
        ("(y * (int)get_global_size(2) + z) * n + x", (COLUMNS, ROWS, SHEETS), COLUMNS, False),
    ],
)
def test_rows_of_a_grid(
    queue: cl.CommandQueue, at: str, grid: tuple[int, ...], n: int, is_one: bool
) -> None:
    """They are a line if each is as long as the range, and begins where the one before ends."""
    loop = Program(queue, at, grid).check(n)
    assert [len(numbers) for numbers in loop.fused] == [2] * is_one
    border = "command 1 does not join those before it: an item may use what other items write"
    assert (border in loop.explain(queue)) != is_one


def test_grids_of_other_shapes(queue: cl.CommandQueue) -> None:
    """Two grids with as many items have no common rows, even where nobody asks for memory."""
    one = Program(queue, f"y * {COLUMNS} + x", (COLUMNS, ROWS))
    other = Program(queue, f"{SIZE // 2} + y * {ROWS} + x", (ROWS, COLUMNS))
    with capture(queue) as graph:
        one.run(0)
        other.program.write(queue, other.grid, None, other.out, np.int32(0))
        other.program.write(queue, other.grid, None, other.out, np.int32(0))
    loop = graph.finalize(fuse="wait")
    assert list(loop.fused) == [(0, 1), (2, 3)]
    assert "its items have other rows than those before it" in loop.explain(queue)


def test_a_row_that_gets_longer(queue: cl.CommandQueue) -> None:
    """An update to a number on which the proof depends ends the fusion."""
    program = Program(queue, "y * n + x", (COLUMNS, ROWS))
    with capture(queue) as graph:
        program.run(COLUMNS)
    loop = graph.finalize(updatable=True, fuse="wait")
    assert len(loop.fused) == 1
    for n in (COLUMNS, COLUMNS + 8, COLUMNS):
        loop.set(graph[0], 1, np.int32(n))
        expected = program.read(lambda n=n: program.run(n))
        for _ in range(3):
            assert program.read(lambda: loop.replay(queue)) == expected


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        ("constant int fl_x = 7;", "out[y * n + x] = x + fl_x;"),
        ("constant int fl_item = 7;", "out[y * n + x] = x + fl_item;"),
        ("", "{ float fl_x = 3; out[y * n + x] = get_global_id(0) + fl_x; }"),
        ("int fl_y(int a) { return a + 7; }", "out[y * n + x] = fl_y(x);"),
    ],
)
def test_names_of_fused_kernels_are_not_taken(
    queue: cl.CommandQueue, outside: str, inside: str
) -> None:
    program = Program(queue, "0", (COLUMNS, ROWS))
    source = f"{outside} kernel void write(global float *out, int n) {{ {_IDS} {inside} }}"
    program.program = cl.Program(queue.context, source + _TWICE).build()
    assert "which fused kernels have" in program.check(COLUMNS).explain(queue)
