"""The engine `direct` on PoCL: what it takes and leaves, updates, waits, and what it keeps
alive."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers
from helpers.drivers import Driver
from helpers.images import sampler
from helpers.programs import build_once
from helpers.support import RunPython

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.captured_graphs.segment import ReplayError
from fairlead.icd.command_buffer import direct_device, direct_trust
from fairlead.icd.drivers import platforms
from fairlead.icd.pocl_kernels import PoclBinaryError, PoclKernel, is_whole, parse

_OTHERS = """
constant int table[4] = {1, 2, 3, 4};
kernel void prints(global int *a) {
    if (a[0] == -1) printf("%d\\n", a[0]); a[get_global_id(0)] += 1;
}
kernel void looks_up(global int *a) { a[get_global_id(0)] += table[get_global_id(0) % 4]; }
kernel void slow(global int *a, int turns) {
    int x = a[get_global_id(0)];
    for (int i = 0; i < turns; i++) x = x * 1664525 + 1013904223;
    a[get_global_id(0)] = x;
}
kernel void slow_alone(global int *a, int turns, local int *own) {
    own[get_local_id(0)] = a[get_global_id(0)];
    for (int i = 0; i < turns; i++)
        own[get_local_id(0)] = own[get_local_id(0)] * 1664525 + 1013904223;
    a[get_global_id(0)] = own[get_local_id(0)];
}
kernel void looks_at(read_only image2d_t from, sampler_t near, global int *a) {
    a[get_global_id(0)] = read_imagei(from, near, (int2)(get_global_id(0), 0)).x;
}
kernel void sizes(global int *a) {
    a[get_global_id(0)] = get_local_size(0) * 1000 + get_num_groups(0);
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fours(global int *a) {
    a[get_global_id(0)] = get_local_size(0);
}
"""


@pytest.fixture
def device(direct_pocl: Driver) -> cl.Device:
    platform = next(one for one in platforms() if direct_pocl.has(one))
    return platform.devices[0].to_pyopencl()


@pytest.fixture
def others(context: cl.Context) -> cl.Program:
    return build_once(context, _OTHERS)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")


def image(numbers: Numbers) -> cl.Image:
    """An image of 64 numbers. Skips the test where no device of the context has images.

    PoCL 7.1's device says that it has them, and clCreateImage says that it has none.
    """
    try:
        return cl.image_from_array(numbers.queue.context, np.ones((1, 64), np.int32), 1)
    except cl.LogicError as error:
        if error.code != cl.status_code.INVALID_OPERATION:
            raise
        pytest.skip("the device has no images")


def local(size: int) -> Any:
    """Local memory of so many bytes."""
    return cl.LocalMemory(size)


def parts_of(loop: Executable, queue: cl.CommandQueue) -> dict[str, str]:
    """What explain says of each engine; the first line of each."""
    found: dict[str, str] = {}
    for line in loop.explain(queue).splitlines()[1:]:
        name, text = line.split(maxsplit=1)
        found.setdefault(name, text)
    return found


# --- what it takes, and what it leaves ---


@pytest.mark.usefixtures("direct")
def test_it_runs_everything_that_it_can(numbers: Numbers) -> None:
    queue = numbers.queue
    with capture(queue) as graph:
        numbers.add(1)
        numbers.mul(3)
        cl.enqueue_barrier(queue)
        numbers.shared_add(queue, (64,), (16,), numbers.buffer, np.int32(5), local(64))
        numbers.read()
    loop = graph.finalize()
    loop.replay(queue, times=2).wait()
    assert numbers.value() == 3 * (3 + 5 + 1) + 5 and (numbers.host == numbers.value()).all()
    assert parts_of(loop, queue)["direct"].startswith("one native kernel")
    assert parts_of(loop, queue)["replay"].startswith("not chosen")


@pytest.mark.slow
@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda n, p: p.prints(n.queue, (64,), None, n.buffer), "it calls printf"),
        (
            lambda n, p: p.looks_at(
                n.queue, (64,), None, image(n), sampler(n.queue.context), n.buffer
            ),
            "it uses an image or a sampler",
        ),
        (
            lambda n, p: cl.enqueue_fill_image(
                n.queue, image(n), np.ones(4, np.int32), (0, 0), (64, 1)
            ),
            "it uses an image or a sampler",
        ),
        (
            lambda n, p: n.program.add(n.queue, (0,), None, n.buffer, np.int32(1)),
            "the driver may refuse its range or sizes",
        ),
        (
            lambda n, p: cl.enqueue_copy(n.queue, n.buffer, n.buffer, byte_count=8, dst_offset=4),
            "the driver may refuse its range or sizes",
        ),
        (
            lambda n, p: p.fours(n.queue, (64,), None, n.buffer),
            "the driver may refuse its range or sizes",
        ),
    ],
    ids=["printf", "image", "fill of an image", "no items", "overlap", "required local size"],
)
def test_what_it_leaves_to_the_driver(
    numbers: Numbers, others: cl.Program, make: Callable[..., Any], reason: str
) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        make(numbers, others)
    said = graph.finalize().explain(numbers.queue)
    assert "command 1: " in said and reason in said
    assert "direct  0–0: one native kernel" in said and "replay  1–1: " in said


@pytest.mark.parametrize("engine", ["direct", "replay"])
def test_a_required_local_size_has_to_be_given(
    numbers: Numbers, others: cl.Program, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """As the driver has it in a call."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
    with pytest.raises(cl.LogicError, match="INVALID_WORK_GROUP_SIZE"):
        others.fours(numbers.queue, (64,), None, numbers.buffer)
    with capture(numbers.queue) as graph:
        others.fours(numbers.queue, (64,), None, numbers.buffer)
    with pytest.raises(ReplayError, match="INVALID_WORK_GROUP_SIZE"):
        graph.finalize().replay(numbers.queue).wait()
    with capture(numbers.queue) as graph:
        others.fours(numbers.queue, (64,), (4,), numbers.buffer)
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 4
    assert not parts_of(loop, numbers.queue)[engine].startswith("not chosen")


@pytest.mark.usefixtures("direct")
def test_whole_graphs_that_it_leaves_to_the_driver(numbers: Numbers) -> None:
    profiled = cl.CommandQueue(
        numbers.queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE
    )
    with capture(profiled) as graph:
        numbers.add(1, queue=profiled)
    timed = graph.finalize(enable_profiling=True)
    assert "not chosen: the times or events" in parts_of(timed, profiled)["direct"]
    laid_out = graph.finalize(schedule="events")
    assert parts_of(laid_out, profiled)["direct"] == "not chosen: a schedule was asked for"


#: The argument is the driver. Prints what is said of the engine with a context of all devices.
_SEVERAL_DEVICES = """
import sys
import numpy as np
import pyopencl as cl
import fairlead

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
devices = [device.to_pyopencl() for device in platform.devices]
context = cl.Context(devices)
queue, found = cl.CommandQueue(context, devices[0]), np.zeros(1, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
with fairlead.capture(queue) as graph:
    cl.enqueue_fill_buffer(queue, buffer, np.int32(7), 0, 4)
loop = graph.finalize()
loop.replay(queue, wait=True)
cl.enqueue_copy(queue, found, buffer)
print(len(devices), found[0], loop.explain(queue))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("pthread", "direct  one native kernel"),
        ("pthread basic", "direct  not chosen: the context has several devices"),
    ],
    ids=["one", "two"],
)
def test_contexts_with_several_devices_are_the_drivers(
    run_python: RunPython, direct_pocl: Driver, devices: str, said: str
) -> None:
    env = {"FAIRLEAD_COMMAND_BUFFER": "direct", "POCL_DEVICES": devices}
    done = run_python(_SEVERAL_DEVICES, direct_pocl.library, env=env).out
    assert done.startswith(f"{len(devices.split())} 7 ") and said in done


@pytest.mark.usefixtures("direct")
def test_constants_of_a_program_are_the_drivers(numbers: Numbers, others: cl.Program) -> None:
    with capture(numbers.queue) as graph:
        others.looks_up(numbers.queue, (64,), None, numbers.buffer)
    loop = graph.finalize()
    loop.replay(numbers.queue, wait=True)
    found = np.empty(64, np.int32)
    cl.enqueue_copy(numbers.queue, found, numbers.buffer)
    assert (found == np.tile([1, 2, 3, 4], 16)).all()
    assert parts_of(loop, numbers.queue)["direct"].startswith("one native kernel")


@pytest.mark.slow
@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize("size", [64, 60, 61, 7, 1])
def test_a_launch_without_local_size_has_the_drivers(
    numbers: Numbers, others: cl.Program, size: int
) -> None:
    with capture(numbers.queue) as graph:
        others.sizes(numbers.queue, (size,), None, numbers.buffer)
    results = []
    loop = graph.finalize()
    for run in (
        lambda: loop.replay(numbers.queue, wait=True),
        lambda: others.sizes(numbers.queue, (size,), None, numbers.buffer),
    ):
        run()
        found = np.empty(64, np.int32)
        cl.enqueue_copy(numbers.queue, found, numbers.buffer)
        results.append(found[:size].tolist())
    assert results[0] == results[1]
    assert parts_of(loop, numbers.queue)["direct"].startswith("one native kernel")


@pytest.mark.usefixtures("direct")
def test_a_launch_has_the_function_that_the_driver_made_for_its_local_size(
    numbers: Numbers, others: cl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where PoCL's cache has none, as before the first launch of that size, it has the generic
    one."""
    found: dict[tuple[int, ...], int] = {}
    special = PoclKernel.find_specialized

    def note(kernel: PoclKernel, local: list[int], **traits: bool) -> int:
        found[tuple(local)] = special(kernel, local, **traits)
        return found[tuple(local)]

    monkeypatch.setattr(PoclKernel, "find_specialized", note)
    queue, size = numbers.queue, 7  # no other test has it
    others.sizes(queue, (size,), (size,), numbers.buffer).wait()
    with capture(queue) as graph:
        others.sizes(queue, (size,), (size,), numbers.buffer)
        others.sizes(queue, (3 * size,), (3,), numbers.buffer)
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    assert parts_of(loop, queue)["direct"].startswith("one native kernel")
    assert found[7, 1, 1] and not found[3, 1, 1]
    values = np.empty(64, np.int32)
    cl.enqueue_copy(queue, values, numbers.buffer)
    assert (values[: 3 * size] == 3 * 1000 + size).all()


def test_long_launches_go_to_the_drivers_threads(
    numbers: Numbers, others: cl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of many groups is left to the driver once its time is known. One of a single group
    is not, nor one that the engine's own threads have tried: they are as many as the driver's."""
    from fairlead.icd.command_buffer.engines import direct as engine

    monkeypatch.setattr(engine, "query_compute_units", lambda device: 4)
    monkeypatch.setattr(engine, "measure_launch", lambda *_: 1e-6)
    monkeypatch.setattr(direct_device, "count_cores", lambda: 2)  # more are tried for longer
    with capture(numbers.queue) as graph:
        numbers.add(1)
        others.slow(numbers.queue, (64,), (64,), numbers.buffer, np.int32(30_000))
        others.slow_alone(numbers.queue, (64,), (1,), numbers.buffer, np.int32(3_000), local(4))
        others.slow(numbers.queue, (64,), (1,), numbers.buffer, np.int32(30_000))
        numbers.mul(1)
    loop = graph.finalize(fuse=False)
    for _ in range(2):
        loop.replay(numbers.queue).wait()
    said = [loop.explain(numbers.queue)]
    for _ in range(8):  # meanwhile several threads of the engine try it
        loop.replay(numbers.queue).wait()
    said.append(loop.explain(numbers.queue))
    assert "replay  not chosen" in said[0]
    assert "command 2: it took" in said[1] and "4 threads" in said[1]
    assert "0–1: one native kernel" in said[1] and "replay  2–2:" in said[1]
    before = numbers.value()
    loop.replay(numbers.queue, wait=True)
    expected = before + 1
    for _ in range(2 * 30_000 + 3_000):
        expected = (expected * 1664525 + 1013904223) & 0xFFFFFFFF
    assert numbers.value() & 0xFFFFFFFF == expected


# --- waits ---


@pytest.mark.usefixtures("direct")
def test_a_replay_that_is_waited_for_comes_after_the_queue_and_events(
    numbers: Numbers, out_of_order: cl.CommandQueue
) -> None:
    with capture(numbers.queue) as graph:
        numbers.mul(2)
    loop = graph.finalize()
    numbers.add(5)
    assert loop.replay(numbers.queue, wait=True).command_execution_status == 0
    assert numbers.value() == 10
    event = numbers.add(1)
    loop.replay(numbers.queue, times=3, wait_for=[event], wait=True)
    assert numbers.value() == 88
    loop.replay(out_of_order, wait=True)
    assert numbers.value() == 176
    loop.replay(numbers.queue, times=2, wait=True)
    assert numbers.value() == 704


@pytest.mark.usefixtures("direct")
def test_replays_on_several_queues_follow_each_other(numbers: Numbers) -> None:
    another = cl.CommandQueue(numbers.queue.context)
    with capture(numbers.queue) as graph:
        numbers.mul(3)
        numbers.add(1)
    loop, expected = graph.finalize(), 0
    for turn in range(12):
        loop.replay((numbers.queue, another)[turn % 2], wait=turn % 3 == 0)
        expected = expected * 3 + 1
    another.finish()
    assert numbers.value() == expected


@pytest.mark.usefixtures("direct")
def test_a_replay_whose_wait_list_failed_does_not_run(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    failed, another = cl.UserEvent(numbers.queue.context), cl.CommandQueue(numbers.queue.context)
    event = loop.replay(another, wait_for=[failed])
    failed.set_status(-5)
    with pytest.raises(cl.Error):
        event.wait()
    assert numbers.value() == 0


# --- updates ---


@pytest.mark.usefixtures("direct")
def test_an_update_never_reaches_what_is_in_flight(numbers: Numbers) -> None:
    """Replays wait for an event; an update in between is for the later ones alone. Buffers are kept
    meanwhile."""
    gate = cl.UserEvent(numbers.queue.context)
    with capture(numbers.queue) as graph:
        for _ in range(20):
            numbers.add(1)
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue, wait=True)
    second = numbers.new()
    references = second.reference_count
    loop.replay(numbers.queue, wait_for=[gate])
    for number in range(1, 6):
        graph[3].set_arg(1, np.int32(number * 100))
        graph[4].set_arg(0, second)
        loop.update([graph[3], graph[4]])
        loop.replay(numbers.queue)
    assert second.reference_count > references
    gate.set_status(cl.command_execution_status.COMPLETE)
    numbers.queue.finish()
    assert numbers.value() == 20 + 20 + sum(18 + 100 * number for number in range(1, 6))
    assert numbers.value(second) == 5


@pytest.mark.usefixtures("direct")
def test_buffers_that_updates_replaced_are_let_go(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize(updatable=True)
    first = numbers.new()
    for _ in range(50):
        graph[0].set_arg(0, first)
        loop.update(graph[0])
        loop.replay(numbers.queue, wait=True)
        graph[0].set_arg(0, numbers.new())
        loop.update(graph[0])
        loop.replay(numbers.queue)
        numbers.queue.finish()
    assert numbers.value(first) == 50
    before = first.reference_count
    for _ in range(20):
        graph[0].set_arg(0, numbers.new())
        loop.update(graph[0])
    assert first.reference_count < before


@pytest.mark.usefixtures("direct")
def test_ranges_and_local_memory_can_change(numbers: Numbers, others: cl.Program) -> None:
    with capture(numbers.queue) as graph:
        numbers.shared_add(numbers.queue, (64,), (4,), numbers.buffer, np.int32(5), local(16))
    with capture(numbers.queue) as larger:
        numbers.shared_add(numbers.queue, (64,), (64,), numbers.buffer, np.int32(7), local(256))
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue, wait=True)
    loop.update(larger)
    loop.replay(numbers.queue)
    assert numbers.value() == 12
    loop.update(graph)
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 17


@pytest.mark.usefixtures("direct")
def test_what_it_cannot_run_after_an_update_is_the_drivers(numbers: Numbers) -> None:
    queue, hidden = numbers.queue, cl.mem_flags.HOST_NO_ACCESS | cl.mem_flags.READ_WRITE
    with capture(queue) as graph:
        numbers.add(1)
        numbers.add(2)
    loop = graph.finalize(updatable=True)
    loop.replay(queue, wait=True)
    graph[1].set_arg(0, cl.Buffer(queue.context, hidden, 256))
    loop.update(graph[1])
    loop.replay(queue, wait=True)
    assert numbers.value() == 4
    said = loop.explain(queue)
    assert "direct  0–0: " in said and "replay  1–1: " in said
    assert "the host may not map a buffer of it" in said


# --- memory ---


@pytest.mark.usefixtures("direct")
def test_a_dropped_graph_runs_to_its_end(numbers: Numbers) -> None:
    gate, queue = cl.UserEvent(numbers.queue.context), numbers.queue
    with capture(queue) as graph:
        for number in range(10):
            numbers.add(number)
        numbers.read()
    loop = graph.finalize()
    event = loop.replay(queue, wait_for=[gate])
    del loop, graph
    gc.collect()
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert numbers.value() == 45 and (numbers.host == 45).all()


@pytest.mark.usefixtures("direct")
def test_sub_buffers_and_memory_of_the_host(numbers: Numbers) -> None:
    context, queue, flags = numbers.queue.context, numbers.queue, cl.mem_flags
    host = np.zeros(512, np.uint8)[4:260]
    inside = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, 256, hostbuf=host)
    parent = cl.Buffer(context, flags.READ_WRITE, 1024)
    cl.enqueue_fill_buffer(queue, parent, np.zeros(1, np.int32), 0, 1024)
    low, high = parent.get_sub_region(256, 256), parent.get_sub_region(512, 256)
    with capture(queue, keep=[host]) as graph:
        numbers.add(1, low)
        numbers.add(2, high)
        numbers.add(3, inside)
        cl.enqueue_copy(queue, low, inside, byte_count=64, dst_offset=64)
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    found = np.empty(256, np.int32)
    cl.enqueue_copy(queue, found, parent)
    expected = np.repeat([0, 1, 2, 0], 64)
    expected[64 + 16 : 64 + 32] = 3
    assert (found == expected).all() and numbers.value(inside) == 3
    assert parts_of(loop, queue)["direct"].startswith("one native kernel")


@pytest.mark.usefixtures("direct")
def test_svm_is_passed_as_it_is(numbers: Numbers, context: cl.Context) -> None:
    memory = cl.csvm_empty(context, 64, np.dtype(np.int32))
    with cl.SVM(memory).map_rw(numbers.queue) as mapped:
        mapped[:] = 4
    with capture(numbers.queue) as graph:
        numbers.add(6, cl.SVM(memory))  # type: ignore[arg-type]
    loop = graph.finalize()
    loop.replay(numbers.queue, wait=True)
    with cl.SVM(memory).map_ro(numbers.queue) as mapped:
        assert (mapped == 10).all()
    assert parts_of(loop, numbers.queue)["direct"].startswith("one native kernel")


# --- trust ---


@pytest.fixture
def untested(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[str], None]:
    """Nothing is known of any driver, and the self-test is the `main` of a text."""
    monkeypatch.setattr(direct_trust, "_known", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def choose(text: str) -> None:
        (tmp_path / "hostile_self_test.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(direct_trust, "SELF_TEST", "hostile_self_test")

    return choose


@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def main(data, progress): return {'difference': 'results differ'}", "results differ"),
        ("import os\ndef main(data, progress): progress('calling'); os.abort()", "SIGABRT"),
        (
            "def main(data, progress): progress('calling'); raise ValueError('no layout')",
            "no layout",
        ),
    ],
    ids=["differs", "crashes", "raises"],
)
def test_a_driver_that_fails_the_self_test_is_not_called(
    numbers: Numbers, untested: Callable[[str], None], text: str, reason: str
) -> None:
    untested(text)
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    loop.replay(numbers.queue, wait=True)
    assert numbers.value() == 1
    said = parts_of(loop, numbers.queue)["direct"]
    assert said.startswith("not chosen: its self-test: ") and reason in said


@pytest.mark.usefixtures("direct")
def test_it_is_off_where_probes_are_forbidden(
    numbers: Numbers, untested: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    with capture(numbers.queue) as graph:
        numbers.add(1)
    said = parts_of(graph.finalize(), numbers.queue)["direct"]
    assert said == "not chosen: FAIRLEAD_PROBE=0 forbids its self-test"


@pytest.mark.usefixtures("direct")
def test_without_its_row_it_is_off(
    numbers: Numbers, untested: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    untested("raise AssertionError('the self-test runs')")
    monkeypatch.setenv("FAIRLEAD_QUIRKS", "-kernels-in-process")
    with capture(numbers.queue) as graph:
        numbers.add(1)
    said = parts_of(graph.finalize(), numbers.queue)["direct"]
    assert said.startswith("not chosen: the driver is not PoCL")


def test_binaries_of_another_layout_are_refused(numbers: Numbers) -> None:
    binaries: Any = numbers.program.get_info(cl.program_info.BINARIES)
    binary = bytes(binaries[0])
    kernels = parse(binary)
    assert set(kernels) == {"add", "mul", "shared_add"}
    assert kernels["shared_add"].spaces == ("memory", "value", "local")
    damaged = [binary[:size] for size in (0, 4, 20, 30, 90, len(binary) // 2, len(binary) - 1)]
    damaged += [b"x" + binary[1:], binary + b"\0"]
    damaged += [binary[:16] + bytes([layout]) + binary[17:] for layout in (7, 10, 13)]
    for one in damaged:
        with pytest.raises(PoclBinaryError):
            parse(one)
    head = 8 + 8 + 4 + 4 + 8
    assert is_whole(binary) and not is_whole(binary[:head] + b"\xff" + binary[head + 1 :])
