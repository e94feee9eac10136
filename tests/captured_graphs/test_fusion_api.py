"""`finalize(fuse=…)`: what is compared, printed, explained and built."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from click.testing import CliRunner

from fairlead import FusionError, Parameter
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.captured_graphs.graph import CapturedGraph
from fairlead.cli.main import main
from fairlead.icd.command_buffer.rewrites import (
    fused_runs,
    fusion,
    launches,
    rewriting,
    runs,
    uses,
)
from fairlead.icd.command_buffer.rewrites.checking import find_difference
from fairlead.icd.errors import OpenCLError

SOURCE = """
kernel void twice(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = x[i] * 2.0f;
}
kernel void more(global float *x, float a) {
    size_t i = get_global_id(0);
    x[i] += a;
}
kernel void next_of(global const float *x, global float *out, int n) {
    int i = get_global_id(0);
    out[i] = x[i + 1 < n ? i + 1 : 0];
}
"""
STRANGE = "kernel void ids(global float *x) { x[get_global_id(0)] = get_local_id(0); }"
SIZE = 1000


class Chain:
    """`out = x * 2 + 1`, by two launches.

    Args:
        queue: of the capture.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.kernels = cl.Program(queue.context, SOURCE).build()
        self.host = np.random.default_rng(1).random(SIZE, np.float32)
        flags = cl.mem_flags.READ_WRITE
        self.x = cl.Buffer(queue.context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=self.host)
        self.out = cl.Buffer(queue.context, flags, self.host.nbytes)

    def capture(self) -> CapturedGraph:
        """Return the graph."""
        with capture(self.queue) as graph:
            self.kernels.twice(self.queue, (SIZE,), None, self.x, self.out)
            self.kernels.more(self.queue, (SIZE,), None, self.out, np.float32(1))
        return graph

    def read(self) -> np.ndarray:
        """Return what `out` has."""
        found = np.empty_like(self.host)
        cl.enqueue_copy(self.queue, found, self.out)
        return found

    def check(self, loop: Executable) -> None:
        """Replay it, and look at the result."""
        cl.enqueue_fill_buffer(self.queue, self.out, b"\0", 0, self.host.nbytes)
        loop.replay(self.queue)
        assert (self.read() == self.host * 2 + 1).all()


def begin(loop: Executable, queue: cl.CommandQueue) -> None:
    """Replay it until its commands are being rewritten."""
    for _ in range(9):
        loop.replay(queue)
    queue.finish()


def spoil(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Change the sources of fused kernels."""
    write = runs.write_source

    def write_wrongly(*given: Any) -> str:
        return change(write(*given))

    monkeypatch.setattr(runs, "write_source", write_wrongly)


# "check"


def test_replays_are_compared(queue: cl.CommandQueue) -> None:
    chain = Chain(queue)
    loop = chain.capture().finalize(fuse="check")
    assert loop.fuse == "check" and len(loop.fused) == 1
    assert "the next 2 replays run both ways" in loop.explain(queue)
    for _ in range(2):
        chain.check(loop)
    assert "2 replays ran both ways, and wrote the same bits" in loop.explain(queue)
    for _ in range(20):  # both forms take turns
        chain.check(loop)


@pytest.mark.parametrize("way", ["enqueued", "waited for", "many", "until"])
def test_a_wrong_kernel_is_found(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    spoil(monkeypatch, lambda source: source.replace("* 2.0f", "* 2.5f"))
    chain = Chain(queue)
    loop = chain.capture().finalize(fuse="check")
    arguments: dict[str, Any] = {
        "enqueued": {},
        "waited for": {"wait": True},
        "many": {"times": 5},
        "until": {"times": 5, "until": chain.out},
    }[way]
    with pytest.raises(FusionError) as caught:
        loop.replay(queue, **arguments)
    assert caught.value.code == "CL_INVALID_OPERATION"
    text = str(caught.value)
    assert "the commands 0–1" in text
    assert "of x of more (command 1) differs" in text
    assert "fuse=False" in text
    assert (chain.read() == chain.host * 2 + 1).all(), "the replay did what was captured"
    assert "not fused any more: The fused kernel of the commands 0–1" in loop.explain(queue)
    for _ in range(3):
        chain.check(loop)


def test_the_bits_of_nans_are_the_compilers(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler orders operands, and the result of two NaNs has the sign of the first one."""
    turned = "as_float(as_uint(x[i] * 2.0f) ^ (isnan(x[i]) ? 0x80000000u : 0u))"
    spoil(monkeypatch, lambda source: source.replace("x[i] * 2.0f", turned))
    chain = Chain(queue)
    chain.host[::7] = np.nan
    cl.enqueue_copy(queue, chain.x, chain.host)
    loop = chain.capture().finalize(fuse="check")
    assert turned in loop.fused[0, 1]
    loop.replay(queue, times=2)
    assert "2 replays ran both ways, and wrote the same bits" in loop.explain(queue)
    assert np.array_equal(chain.read(), chain.host * 2 + 1, equal_nan=True)


@pytest.mark.parametrize(
    "kind, one, other, place",
    [
        ("float", "0000c07f", "0000c0ff", None),
        ("float4", "0000803f0000c07f", "0000803f0100c0ff", None),
        ("float", "0000c07f", "0000807f", 0),  # an infinity
        ("float", "0000c07f00000000", "0000c0ff00000080", 4),  # the sign of a zero
        ("half", "007e0001", "00fe0002", 2),
        ("double", "000000000000f87f", "000000000000f8ff", None),
        ("float", "0000c07f0001", "0000c0ff0002", 4),  # less than an element is left
        ("uint", "0000c07f", "0000c0ff", 3),
        ("", "0000c07f", "0000c0ff", 3),
    ],
)
def test_where_memory_differs(kind: str, one: str, other: str, place: int | None) -> None:
    assert find_difference(bytes.fromhex(one), bytes.fromhex(other), kind) == place


def test_what_an_earlier_replay_wrote_looks_wrong(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that writes nothing leaves what is right already."""
    chain = Chain(queue)
    captured = chain.capture()
    chain.check(captured.finalize(fuse=False))
    spoil(monkeypatch, lambda source: source.replace("  {\n", "  if (get_global_id(0) < 0) {\n"))
    loop = captured.finalize(fuse="check")
    assert "if (get_global_id(0) < 0)" in next(iter(loop.fused.values()))
    with pytest.raises(FusionError):
        loop.replay(queue)


def test_the_variable_asks_for_it(queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_FUSE", "check")
    spoil(monkeypatch, lambda source: source.replace("+= a", "-= a"))
    chain = Chain(queue)  # what nobody holds is not written
    loop = chain.capture().finalize()
    with pytest.raises(FusionError):
        loop.replay(queue)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nobody_has_to_ask_for_it(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("FAIRLEAD_FUSE", raising=False)
    if value is not None:
        monkeypatch.setenv("FAIRLEAD_FUSE", value)
    chain = Chain(queue)
    loop = chain.capture().finalize()
    begin(loop, queue)
    segment: Any = loop._whole
    rewriting_of = segment._buffer.plans.rewriting
    assert (rewriting_of is None) == (value == "0")
    assert value == "0" or rewriting_of.wait().sources
    chain.check(loop)


def test_finalize_only_counts(queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first replays of a graph pay for nothing that only many are worth."""
    for name in ("find_users", "list_sources"):
        monkeypatch.setattr(uses, name, lambda *_, name=name: pytest.fail(name))
    chain = Chain(queue)
    loop = chain.capture().finalize(fuse="auto")
    for _ in range(7):
        chain.check(loop)


def test_a_kernel_with_many_arguments(queue: cl.CommandQueue) -> None:
    """The list is longer than the room that most lists need."""
    names = [f"a{number}" for number in range(40)]
    source = f"""kernel void add(global int *x, {", ".join(f"int {name}" for name in names)}) {{
        x[get_global_id(0)] += {" + ".join(names)};
    }}"""
    add = cl.Program(queue.context, source).build().add
    memory = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * SIZE)
    cl.enqueue_fill_buffer(queue, memory, np.ones(1, np.int32), 0, 4 * SIZE)
    with capture(queue) as graph:
        for first in (0, 1):
            numbers: Any = np.arange(first, first + 40, dtype=np.int32)
            add(queue, (SIZE,), None, memory, *numbers)
    loop, found = graph.finalize(fuse="wait"), np.empty(SIZE, np.int32)
    assert loop.fused
    loop.replay(queue)
    cl.enqueue_copy(queue, found, memory)
    assert (found == 1 + 780 + 820).all()


@pytest.mark.parametrize("change", ["a number", "a buffer", "an update", "a swap"])
@pytest.mark.parametrize("is_wrong", [False, True])
def test_graphs_that_change_are_compared(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, change: str, is_wrong: bool
) -> None:
    """Each replay is compared with what it has then."""
    if is_wrong:
        spoil(monkeypatch, lambda source: source.replace("+= a", "-= a"))
    chain, flags = Chain(queue), cl.mem_flags.READ_WRITE
    outs = [chain.out, cl.Buffer(queue.context, flags, chain.host.nbytes)]
    number: Any = Parameter(np.float32(1), name="number") if change == "a number" else np.float32(1)
    out: Any = Parameter(chain.out, name="out") if change == "a buffer" else chain.out
    with capture(queue, swap=(chain.x, out) if change == "a swap" else ()) as graph:
        chain.kernels.twice(queue, (SIZE,), None, chain.x, out)
        chain.kernels.more(queue, (SIZE,), None, out, number)
    loop = graph.finalize(updatable=change == "an update", fuse="check")
    expected = chain.host
    for turn in range(1, 5):
        more, settings, found = np.float32(1), dict[str, Any](), chain.out
        if change in ("a number", "an update"):
            more = np.float32(turn)
        if change == "a number":
            settings["number"] = more
        elif change == "an update":
            graph[1].set_arg(1, more)
            loop.update(graph[1])
        elif change == "a buffer":
            settings["out"] = found = outs[turn % 2]
        elif turn % 2 == 0:
            found = chain.x
        if is_wrong and turn == 1:
            with pytest.raises(FusionError):
                loop.replay(queue, **settings)
        else:
            loop.replay(queue, **settings)
        expected = (expected if change == "a swap" else chain.host) * 2 + more
        host = np.empty_like(chain.host)
        cl.enqueue_copy(queue, host, found)
        assert (host == expected).all()
    assert ("2 replays ran both ways" in loop.explain(queue)) == (not is_wrong)


def test_parts_of_buffers_are_compared(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sub-buffers are copied with the buffer that they belong to."""
    chain = Chain(queue)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1 << 16)
    first, second = (whole.get_sub_region(1 << place, 4 * SIZE) for place in (13, 14))
    cl.enqueue_copy(queue, first, chain.x)
    with capture(queue) as graph:
        chain.kernels.twice(queue, (SIZE,), None, first, second)
        chain.kernels.more(queue, (SIZE,), None, second, np.float32(1))
        chain.kernels.twice(queue, (SIZE,), None, second, chain.out)
    del first, second
    for change, error in ((str, False), (lambda s: s.replace("+= a", "-= a"), True)):
        spoil(monkeypatch, change)
        loop = graph.finalize(fuse="check")
        assert len(loop.fused) == 1
        if error:
            with pytest.raises(FusionError):
                loop.replay(queue)
        else:
            loop.replay(queue, times=2)
            assert "wrote the same bits" in loop.explain(queue)
        assert (chain.read() == (chain.host * 2 + 1) * 2).all()


def test_what_a_parent_shows_is_written(queue: cl.CommandQueue) -> None:
    """Only the graph has a reference to the sub-buffer, and the program sees its bytes."""
    chain = Chain(queue)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1 << 14)
    part = whole.get_sub_region(1 << 13, 4 * SIZE)
    with capture(queue) as graph:
        chain.kernels.twice(queue, (SIZE,), None, chain.x, part)
        chain.kernels.twice(queue, (SIZE,), None, part, chain.out)
    del part
    loop = graph.finalize(fuse="wait")
    assert len(loop.fused) == 1
    loop.replay(queue)
    for _ in range(20):
        loop.replay(queue, wait=True)
    found = np.empty_like(chain.host)
    cl.enqueue_fill_buffer(queue, whole, b"\0", 0, whole.size)
    loop.replay(queue, wait=True)
    cl.enqueue_copy(queue, found, whole, src_offset=1 << 13)
    assert (found == chain.host * 2).all()


# what is shown


def test_sources_are_printed(queue: cl.CommandQueue) -> None:
    chain = Chain(queue)
    loop = chain.capture().finalize(fuse="wait")
    assert list(loop.fused) == [(0, 1)]
    text = io.StringIO()
    loop.print_fused(text)
    assert text.getvalue().startswith("// 0–1: one fused kernel: twice(1000), more(1000)\n")
    assert "kernel void fairlead_fused" in text.getvalue()
    saved = "one fused kernel, which saves: launches 1, bytes of memory traffic 8,000"
    assert saved in loop.explain(queue)


def test_pictures_have_a_box(queue: cl.CommandQueue) -> None:
    chain = Chain(queue)
    graph = chain.capture()
    loop = graph.finalize(fuse="wait")
    box = 'subgraph "cluster_0" { label="0–1: one fused kernel"; style=rounded; "0"; "1"; }'
    assert box in loop.to_dot() and "cluster" not in graph.to_dot()
    page = loop._repr_html_()
    assert "0–1: one fused kernel: twice(1000) + more(1000)</title>" in page
    assert "<details><summary>0–1: one fused kernel</summary><pre>" in page
    assert "fl_item &lt; 1000UL" in page, "text of a kernel is no HTML"
    assert "one fused kernel" not in graph.finalize()._repr_html_()


def test_files_show_boxes(queue: cl.CommandQueue, tmp_path: Path) -> None:
    chain = Chain(queue)
    chain.capture().save(tmp_path / "chain.flg", contents="inputs")
    done = CliRunner().invoke(main, ["show", "--fused", str(tmp_path / "chain.flg")])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    box = lines.index("  0–1: one fused kernel")
    assert lines[box + 1 : box + 3] == ["    0: twice(1000)", "    1: more(1000), after 0"]
    assert any("one fused kernel, which saves: launches 1" in line for line in lines)
    done = CliRunner().invoke(main, ["show", "--fused", "--dot", str(tmp_path / "chain.flg")])
    assert 'subgraph "cluster_0"' in done.stdout


def test_each_border_has_a_reason(queue: cl.CommandQueue) -> None:
    chain = Chain(queue)
    kernels, size = chain.kernels, np.int32(SIZE)
    strange = cl.Program(queue.context, STRANGE).build()
    with capture(queue) as graph:
        kernels.twice(queue, (SIZE,), None, chain.x, chain.out)
        kernels.next_of(queue, (SIZE,), None, chain.out, chain.x, size)
        kernels.twice(queue, (10,), None, chain.x, chain.out)
        strange.ids(queue, (10,), None, chain.out)
    loop = graph.finalize(fuse="wait")
    lines = loop.explain(queue).splitlines()
    neighbour, range_, ids = (
        next(one for one in lines if f"command {n} " in one) for n in (1, 2, 3)
    )
    assert "its x, out of command 0" in neighbour and "(line 12)" in neighbour, neighbour
    assert "it has 10 items, those before it 1000" in range_
    assert "command 3 is not fused: its kernel is not understood: it asks for get_local_id" in ids


# the compiler


def test_many_graphs_have_one_compiler(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, at_once, most = runs.FusedKernel, list[str](), list[int]()

    def count(*given: Any) -> Any:
        at_once.append(threading.current_thread().name)
        most.append(len(at_once))
        try:
            return build(*given)
        finally:
            at_once.pop()

    monkeypatch.setattr(runs, "FusedKernel", count)
    chain = Chain(queue)
    loops = [chain.capture().finalize(fuse="auto") for _ in range(64)]
    for loop in loops:
        begin(loop, queue)
        chain.check(loop)
    waited: list[Any] = [loop._whole for loop in loops]
    for segment in waited:
        assert len(segment._buffer.plans.rewriting.wait().sources) == 1
    assert len(most) == 64 and max(most) == 1


def test_a_graph_that_is_gone_is_not_compiled(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    fuse, seen = fusion.fuse, list[int]()

    def wait(commands: Any, *given: Any, **more: Any) -> Any:
        begun.set()
        may_go_on.wait()
        seen.append(len(commands))
        return fuse(commands, *given, **more)

    monkeypatch.setattr(fusion, "fuse", wait)
    graph = Chain(queue).capture()
    first, second = graph.finalize(fuse="auto"), graph.finalize(fuse="auto")
    begin(first, queue)
    begun.wait()
    begin(second, queue)
    del second
    last = graph.finalize(fuse="auto")
    begin(last, queue)
    may_go_on.set()
    for loop in (first, last):
        segment: Any = loop._whole
        segment._buffer.plans.rewriting.wait()
    assert len(seen) == 2


class Patience:
    """The clock of a graph's rewrite, and the rewrites that have begun.

    Attributes:
        looks: what each look was told: the replays so far.
        now: the seconds of the processors.
        waited: those of the clock.
    """

    def __init__(self, queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.looks = list[Any](), list[int]()
        self.now = self.waited = 0.0
        monkeypatch.setattr(rewriting, "_WORTH_SECONDS", 1.0)
        monkeypatch.setattr(rewriting, "process_time", lambda: self.now)
        monkeypatch.setattr(rewriting, "monotonic", lambda: self.waited)
        monkeypatch.setattr(rewriting._background, "add", lambda work: [self.begun.append(work)])
        look = rewriting.Rewriting.look

        def note(one: rewriting.Rewriting, ran: int) -> int:
            self.looks.append(ran)
            return look(one, ran)

        monkeypatch.setattr(rewriting.Rewriting, "look", note)
        self._chain = Chain(queue)
        self.loop = self._chain.capture().finalize(fuse="auto")

    def replay(self, times: int, seconds: float) -> None:
        """Replay it so often, each for so long."""
        for _ in range(times):
            self._chain.check(self.loop)
            self.now += seconds


def test_a_graph_that_is_replayed_a_few_times_is_not_compiled(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if the first replay takes long, in which a driver compiles."""
    one = Patience(queue, monkeypatch)
    one.replay(1, 10)
    one.replay(7, 0.5)
    text = one.loop.explain(queue)
    assert "it may not be replayed often; looked at again after replay 8" in text or one.begun
    one.replay(2, 0.5)
    assert len(one.begun) == 1 and one.looks == [0, 1, 8]


def test_a_graph_that_is_replayed_for_a_short_time_is_not_compiled(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks are few."""
    one = Patience(queue, monkeypatch)
    one.replay(90, 0.01)
    assert not one.begun and one.looks == [0, 1, 8, 16, 32, 64]
    one.replay(30, 0.01)
    assert len(one.begun) == 1 and one.looks[6:] == [102]


def test_a_program_that_waits_for_a_device_is_worth_a_compiler(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a busy machine's clock goes on while the program does nothing."""
    one = Patience(queue, monkeypatch)
    one.replay(8, 0)
    one.waited = 3.9
    one.replay(1, 0)
    assert not one.begun
    one.waited = 4.1
    one.replay(2, 0)
    assert len(one.begun) == 1


def test_replays_that_come_at_once_count_with_the_first(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Patience(queue, monkeypatch)
    one.loop.replay(queue, times=100)
    one.now = 2.0
    one.replay(1, 0)
    assert len(one.begun) == 1 and one.looks[-1] == 100


def test_no_kernel_is_built_when_the_program_ends(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for each that is begun."""
    chain, built = Chain(queue), list[Any]()
    build = runs.FusedKernel

    def count(*given: Any) -> Any:
        built.append(given)
        monkeypatch.setattr(threading, "main_thread", lambda: ended)
        return build(*given)

    ended = threading.Thread()
    monkeypatch.setattr(runs, "FusedKernel", count)
    with capture(queue) as graph:
        for number in range(2):
            chain.kernels.twice(queue, (SIZE - number,), None, chain.x, chain.out)
            chain.kernels.more(queue, (SIZE - number,), None, chain.out, np.float32(1))
    loop = graph.finalize(fuse="wait")
    assert len(built) == 1 and not loop.fused
    assert "the program ends" in loop.explain(queue)


def test_what_the_program_drops_before_the_thread_begins(queue: cl.CommandQueue) -> None:
    """Nobody else has its buffer, and the source of its kernels is known."""
    chain = Chain(queue)
    held, flags = chain.out, cl.mem_flags.READ_WRITE
    chain.out = cl.Buffer(queue.context, flags, chain.host.nbytes)
    with capture(queue) as graph:
        chain.kernels.twice(queue, (SIZE,), None, chain.x, chain.out)
        chain.kernels.twice(queue, (SIZE,), None, chain.out, held)
        chain.kernels.more(queue, (SIZE,), None, held, np.float32(1))
    del chain.out
    loop = graph.finalize(fuse="auto")
    chain.out = held
    del chain.kernels
    loop.replay(queue)
    begin(loop, queue)
    segment: Any = loop._whole
    made = segment._buffer.plans.rewriting.wait()
    assert [len(one) for one in made.sources] == [3] and len(made.hidden) == 1
    for _ in range(40):
        loop.replay(queue)
    assert (chain.read() == chain.host * 4 + 1).all()


def test_memory_of_the_host_is_written(queue: cl.CommandQueue) -> None:
    """A CPU's program sees it without the buffer."""
    chain, flags = Chain(queue), cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    chain.out = cl.Buffer(queue.context, flags, hostbuf=np.zeros_like(chain.host))
    graph = chain.capture()
    del chain.out
    segment: Any = graph.finalize(fuse="wait")._whole
    made = segment._buffer.plans.rewriting.wait()
    assert made.sources and not made.hidden


@pytest.mark.parametrize("what", ["a launch", "copies", "launches apart"])
def test_no_thread_where_nothing_can_be_fused(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(rewriting._background, "add", lambda work: pytest.fail("a thread"))
    chain = Chain(queue)
    with capture(queue) as graph:
        for _ in range(2):
            if what == "copies":
                cl.enqueue_copy(queue, chain.out, chain.x)
            else:
                chain.kernels.more(queue, (SIZE,), None, chain.out, np.float32(1))
            if what == "a launch":
                break
            if what == "launches apart":
                cl.enqueue_barrier(queue)
    loop = graph.finalize(fuse="auto")
    begin(loop, queue)
    assert "not fused: " in loop.explain(queue) and not loop.fused


def test_launches_that_are_alike_are_read_once(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So planning is linear: also where each has a number that no access depends on."""
    found, find = list[Any](), launches.find_places

    def count(*given: Any) -> Any:
        found.append(given)
        return find(*given)

    monkeypatch.setattr(launches, "find_places", count)
    chain = Chain(queue)
    with capture(queue) as graph:
        for number in range(200):
            chain.kernels.more(queue, (SIZE,), None, chain.out, np.float32(number))
            chain.kernels.more(queue, (SIZE,), None, chain.x, np.float32(1))
    assert len(graph.finalize(fuse="wait").fused) >= 2
    assert len(found) == 1


def test_runs_of_the_same_launches_are_planned_once(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own numbers, where these may change."""
    written, write = list[Any](), runs.write_source

    def count(*given: Any) -> str:
        written.append(given)
        return write(*given)

    monkeypatch.setattr(runs, "write_source", count)
    chain = Chain(queue)
    with capture(queue) as graph:
        for number in range(400):
            chain.kernels.more(queue, (SIZE,), None, chain.out, np.float32(number))
    loop = graph.finalize(updatable=True, fuse="wait")
    assert len(loop.fused) > 3 and len(written) == 2  # the last run is shorter
    for _ in range(20):  # both forms take turns
        cl.enqueue_fill_buffer(queue, chain.out, b"\0", 0, chain.host.nbytes)
        loop.replay(queue)
        assert (chain.read() == sum(range(400))).all()


def test_a_kernel_that_is_not_built_is_a_line(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other runs of the graph are fused."""
    chain = Chain(queue)
    with capture(queue) as graph:
        chain.kernels.twice(queue, (SIZE,), None, chain.x, chain.out)
        chain.kernels.more(queue, (SIZE,), None, chain.out, np.float32(1))
        cl.enqueue_copy(queue, chain.x, chain.out, byte_count=4 * (SIZE - 1))  # not of all items
        chain.kernels.more(queue, (SIZE,), None, chain.x, np.float32(2))
        chain.kernels.more(queue, (SIZE,), None, chain.x, np.float32(3))
    spoil(monkeypatch, lambda source: source.replace("* 2.0f", "* two"))
    loop = graph.finalize(fuse="wait")
    text = loop.explain(queue)
    assert "commands 0–1 are not fused: " in text and "CL_BUILD_PROGRAM_FAILURE" in text
    assert list(loop.fused) == [(3, 4)]
    loop.replay(queue)
    assert (chain.read() == chain.host * 2 + 1).all()


def test_a_driver_that_fails_is_a_line(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OpenCLError("no", routine="clBuildProgram", code="CL_OUT_OF_HOST_MEMORY", value=-6)

    monkeypatch.setattr(fusion, "fuse", fail)
    chain = Chain(queue)
    loop = chain.capture().finalize(fuse="check")
    assert "not rewritten: OpenCLError" in loop.explain(queue)
    chain.check(loop)


def test_python_may_end_meanwhile(run_python: Any) -> None:
    """It waits for the kernel that is compiled, and for none of those behind it."""
    code = """
import threading
import numpy as np, pyopencl as cl
from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer.rewrites import fusion, rewriting
rewriting._WORTH_SECONDS = 0
SOURCE = "kernel void more(global float *x) { x[get_global_id(0)] += 1; }"
context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
queue = cl.CommandQueue(context)
kernel = cl.Program(context, SOURCE).build().more
x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
began, fuse = threading.Event(), fusion.fuse
def count(*given, **more):
    print("rewritten")
    began.set()
    threading.main_thread().join()
    return fuse(*given, **more)
fusion.fuse = count
loops = []
for _ in range(20):
    with capture(queue) as graph:
        for _ in range(3):
            kernel(queue, (64,), None, x)
    loops.append(graph.finalize(fuse="auto"))
    for _ in range(9):
        loops[-1].replay(queue)
began.wait()
loops[0].replay(queue)
queue.finish()
"""
    assert run_python(code, fresh=True).out.count("rewritten") == 1


@pytest.mark.parametrize("what", ["a sum", "a chain"])
def test_the_thread_lets_pocl_compile_for_any_local_size(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A replay would wait for it, and a program that ends for kernels with barriers."""
    asked, query = list[int](), fused_runs.query_sizes
    monkeypatch.setattr(fused_runs, "query_sizes", lambda one: asked.append(one) or query(one))
    chain = Chain(queue)
    graph = chain.capture()
    if what == "a sum":
        x: Any = cl_array.to_device(queue, chain.host)
        with capture(queue) as graph:
            cl_array.sum(x * x)
    sources = graph.finalize(fuse="wait").fused.values()
    is_pocl = "Portable" in queue.device.platform.name
    assert len(asked) == len(sources) * is_pocl
    for source in sources if is_pocl else ():
        assert "barrier" not in source.rpartition("kernel void ")[2]


@pytest.mark.one_driver("pocl_wheel")
def test_the_next_process_has_the_program(
    run_python: Any, tmp_path: Path, each_driver: Any
) -> None:
    """PoCL compiles nothing that an earlier process has built."""
    code = f"""
import numpy as np, pyopencl as cl
from fairlead.captured_graphs.context import capture
from fairlead.icd.drivers import platforms
chosen = next(one for one in cl.get_platforms() if "Portable" in one.name)
context = cl.Context([chosen.get_devices()[0]])
queue = cl.CommandQueue(context)
kernel = cl.Program(context, {SOURCE!r}).build().more
x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
with capture(queue) as graph:
    for _ in range(2):
        kernel(queue, (64,), None, x, np.float32(1))
print(len(graph.finalize(fuse="wait").fused))
"""
    folder, found = tmp_path / "cache", list[set[str]]()
    folder.mkdir()
    for _ in range(2):
        out = run_python(code, env={"POCL_CACHE_DIR": str(folder)}, fresh=True).out
        assert out.strip() == "1"
        found.append({str(file) for file in folder.glob("**/program.bc")})
    assert len(found[0]) >= 2 and found[0] == found[1], "the program, and the fused one"
