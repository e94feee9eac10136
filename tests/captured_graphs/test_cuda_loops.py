"""Loops and choices of CUDA Graphs, on the fake CUDA driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyopencl as cl
import pytest
from helpers.cuda_program import Program, count_launches, make_countdown

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.graph import CommandGraph
from fairlead.icd._native import ffi, lib
from fairlead.loader.base import interrupts
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of


@pytest.fixture
def long_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's second part has several turns, however slow the first turn was."""
    monkeypatch.setattr(interrupts, "_SLICE", 1e9)


@pytest.mark.usefixtures("long_parts")
def test_a_loop_until_a_flag_ends_at_the_turn_that_sets_it(program: Program) -> None:
    y, a, b, c, flag = (program.buffer(value) for value in (0, 1, 0, 0, 0))
    with capture(program.queue) as graph:
        program.scale(y, 1, 1)
        for source, to in ((c, flag), (b, c), (a, b)):  # the flag is set in the third turn
            cl.enqueue_copy(program.queue, to, source, byte_count=to.size)
    loop = graph.finalize()
    before = program.fake.calls("cuGraphConditionalHandleCreate")
    end = loop.replay(program.queue, times=100, until=flag)
    assert (end.replays, end.has_stopped, program.values(y)) == (3, True, [3])
    assert program.fake.calls("cuGraphConditionalHandleCreate") - before == 1
    assert "a CUDA Graph of 4 nodes" in loop.explain(program.queue)


@pytest.mark.usefixtures("long_parts")
def test_a_while_loop_and_a_choice_run_in_cuda(program: Program) -> None:
    loop, y = make_countdown(program)
    assert program.values(y) == [6]
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    repeated = graph.while_loop(loop, y)
    chosen = graph.if_else(y, None, loop, depends_on=repeated)
    graph.if_else(y, loop, None, depends_on=chosen)
    before = program.fake.calls("cuGraphConditionalHandleCreate")
    Queue(context, context.devices[0]).graph(graph.finalize()).wait()
    assert program.values(y) == [-2]  # 0 after the loop, then one turn of each choice
    assert program.fake.calls("cuGraphConditionalHandleCreate") - before == 1


@pytest.mark.parametrize("value", [0, 5])
@pytest.mark.parametrize("when", ["then", "otherwise"])
def test_cuda_runs_a_choice_in_the_callers_thread(program: Program, when: str, value: int) -> None:
    loop, y = make_countdown(program)
    context, flag = context_of(program.context), program.buffer(value)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(flag, *((loop, None) if when == "then" else (None, loop)))
    made, queue = graph.finalize(), Queue(context, context.devices[0])
    reads = program.fake.calls("cuMemcpyAsync")
    runs = bool(value) == (when == "then")
    for turn in range(1, 4):
        assert count_launches(program, lambda: queue.graph(made).wait()) == runs
        assert program.values(y) == [6 - turn * runs]
    assert program.fake.calls("cuMemcpyAsync") - reads == 3 * (1 + runs)  # each looks at the word


def test_a_choice_of_two_graphs_runs_one_of_them(program: Program) -> None:
    (loop, y), (other, z) = make_countdown(program), make_countdown(program)
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(y, loop, other)
    made, queue = graph.finalize(), Queue(context, context.devices[0])
    for _ in range(8):
        queue.graph(made).wait()
    assert (program.values(y), program.values(z)) == ([0], [4])


def test_a_loop_takes_new_values_and_updates(program: Program) -> None:
    loop, y = make_countdown(program)  # 6
    flag = program.buffer(0)
    for by, turns in ((-1, 3), (2, 4)):
        end = loop.replay(program.queue, times=turns, until=flag, by=by)
        assert (end.replays, end.has_stopped) == (turns, False)
    assert program.values(y) == [6 - 3 + 8]


@pytest.mark.parametrize(
    "function", ["cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuModuleLoadDataEx"]
)
def test_without_loops_of_the_driver_the_host_looks(program: Program, function: str) -> None:
    loop, y = make_countdown(program)
    flag = program.buffer(0)
    program.fake.fail(function, 801)
    end = loop.replay(program.queue, times=5, until=flag, every=2)
    assert (end.replays, end.has_stopped, program.values(y)) == (5, False, [6 - 5])
    context = context_of(program.context)
    graph = CommandGraph(context, context.devices[0])
    graph.if_else(y, loop, None, depends_on=graph.if_else(flag, loop, None))
    Queue(context, context.devices[0]).graph(graph.finalize()).wait()
    assert program.values(y) == [0]  # the first choice ran nothing


def test_the_turn_of_a_loop_is_valid_ptx(tmp_path: Path) -> None:
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc, or PTXAS=PATH")
    source = tmp_path / "turn.ptx"
    source.write_bytes(ffi.string(lib.fl_turn_text()))
    command = [ptxas, "-arch=sm_90", "-c", str(source), "-o", str(tmp_path / "turn.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_loop_that_fails_names_its_graph(program: Program) -> None:
    loop, _ = make_countdown(program, name="countdown")
    flag = program.buffer(0)
    program.fake.fail("cuStreamSynchronize", 719)
    with pytest.raises(fairlead.OpenCLError, match='the graph "countdown" has ended CUDA'):
        loop.replay(program.queue, times=100, until=flag)
