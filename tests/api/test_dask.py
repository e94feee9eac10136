"""`fairlead.dask`, on real workers."""

from __future__ import annotations

import os
import pickle
import signal
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from dask.base import compute
from distributed import Client, LocalCluster, as_completed, wait
from helpers.drivers import Driver
from helpers.support import RunPython

import fairlead
import fairlead.dask
from fairlead.dask import BatchError
from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.icd.drivers import platforms
from fairlead.runtime import Program, Queue, malloc_device
from fairlead.runtime.interop import device_of

pytestmark = [pytest.mark.slow, pytest.mark.one_driver]

COUNT = 64


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="") as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def workers_in_threads(count: int) -> Iterator[Any]:
    """A client of workers that are threads of this process. Tests can change what they use."""
    with (
        LocalCluster(
            n_workers=count, threads_per_worker=1, processes=False, dashboard_address=""
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def device(each_driver: Driver) -> cl.Device:
    platform = next(platform for platform in platforms() if each_driver.has(platform))
    return platform.devices[0].to_pyopencl()


@pytest.fixture
def graph(device: cl.Device) -> Iterator[fairlead.CapturedGraph]:
    """x = (x + s) * 2, of names x and s. Its program lives: some drivers tell no source."""
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    source = (
        "kernel void shift(global float *x, float s) { x[get_global_id(0)] += s; "
        "x[get_global_id(0)] *= 2; }"
    )
    program = cl.Program(context, source).build()
    x: Any = cl_array.to_device(queue, np.arange(COUNT, dtype=np.float32))
    s = fairlead.Parameter(np.float32(1))
    with fairlead.capture(queue) as graph:
        program.shift(queue, (COUNT,), None, x.data, s)
    graph.known_names = {"x": x}
    yield graph
    del program


def batches(count: int) -> list[dict[str, Any]]:
    x = np.arange(COUNT, dtype=np.float32)
    return [{"x": x, "s": number} for number in range(count)]


def expected(number: int) -> np.ndarray:
    return (np.arange(COUNT, dtype=np.float32) + number) * 2


def part_of(device: cl.Device) -> str:
    return device.platform.name


def test_each_batch_gives_its_outputs_in_order(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    futures = fairlead.dask.map(graph, batches(20), client=client, device=part_of(device))
    for number, found in enumerate(client.gather(futures)):
        assert np.array_equal(found["x"], expected(number))
    twice = fairlead.dask.map(
        graph.finalize(), batches(1), client=client, device=part_of(device), times=2
    )
    assert np.array_equal(twice[0].result()["x"], expected(0) * 2)


def test_a_command_graph_and_its_executable_travel(client: Any, device: cl.Device) -> None:
    queue = Queue(device_of(device))
    source = "kernel void shift(global float *x, float s) { x[get_global_id(0)] += s; }"
    program, x = Program(queue, source), malloc_device(COUNT, np.float32, queue)
    graph = CommandGraph(queue)
    s = DynamicParameter(graph, np.float32(1))
    stored = graph.add(lambda h: h.fill(x, np.float32(2)))
    graph.add(lambda h: h.parallel_for(COUNT, program.shift, x, s), depends_on=stored)
    for one, given in ((graph, {"s": 5}), (graph.finalize(), {})):
        (future,) = fairlead.dask.map(one, [given], client=client, device=part_of(device))
        assert set(future.result()["x"]) == {given.get("s", 1) + 2}


def test_a_batch_does_not_see_another(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    given = [{}, {"s": 5}, {}, {"x": np.zeros(COUNT, np.float32)}, {}]
    futures = fairlead.dask.map(graph, given, client=client, device=part_of(device))
    found = client.gather(futures)
    for number in (0, 2, 4):
        assert np.array_equal(found[number]["x"], expected(1))
    assert np.array_equal(found[1]["x"], expected(5)) and set(found[3]["x"]) == {2}


def test_a_worker_that_dies_loses_nothing(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    pids = client.run(os.getpid)
    futures = fairlead.dask.map(graph, batches(100), client=client, device=part_of(device))
    next(iter(as_completed(futures)))
    victim = next(iter(pids.values()))
    os.kill(victim, signal.SIGKILL)
    for number, found in enumerate(client.gather(futures)):
        assert np.array_equal(found["x"], expected(number))
    pids = client.run(os.getpid, on_error="ignore")
    while len(pids) < 2:  # the scheduler may not know yet that one is dead
        client.wait_for_workers(2)
        pids = client.run(os.getpid, on_error="ignore")
    assert victim not in pids.values()


def test_values_may_be_on_the_workers_already(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    x = client.submit(np.zeros, COUNT, np.float32)
    (first,) = fairlead.dask.map(graph, [{"x": x}], client=client, device=part_of(device))
    total = client.submit(lambda found: float(found["x"].sum()), first)
    assert total.result() == 2 * COUNT


def test_a_failure_says_which_batch_and_where(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    wrong = [*batches(1), {"nothing": 1}]
    futures = fairlead.dask.map(graph, wrong, client=client, device=part_of(device))
    wait(futures)
    assert np.array_equal(futures[0].result()["x"], expected(0))
    with pytest.raises(BatchError) as caught:
        futures[1].result()
    said = str(caught.value)
    assert "batch 1 of graph failed on worker tcp://" in said and device.name.strip() in said
    assert "nothing that is called nothing" in said and "remedy: it has: x, s" in said
    (lost,) = fairlead.dask.map(graph, batches(1), client=client, device="no such device")
    with pytest.raises(BatchError, match="no device that is meant by 'no such device'"):
        lost.result()


def test_a_device_runs_one_batch_at_a_time(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device
) -> None:
    futures = fairlead.dask.map(graph, batches(1), client=client, device=part_of(device))
    wait(futures)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    assert [one["resources"] for one in workers] == [{"fairlead": 1}] * 2


def test_a_graph_runs_on_the_device_that_it_was_captured_on(
    present_drivers: tuple[Driver, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first platform is; and who shares a device is told."""
    monkeypatch.setattr(fairlead.dask, "_slot", {1000: None})
    monkeypatch.setattr(fairlead.dask, "_executables", OrderedDict())
    with workers_in_threads(1) as client:
        for driver in present_drivers:
            platform = next(platform for platform in platforms() if driver.has(platform))
            context = cl.Context([platform.devices[0].to_pyopencl()])
            queue = cl.CommandQueue(context)
            x: Any = cl_array.to_device(queue, np.arange(COUNT, dtype=np.float32))
            with fairlead.capture(queue) as graph:
                cl.enqueue_fill_buffer(queue, x.data, bytes(4), 0, x.nbytes)
            right, wrong = fairlead.dask.map(graph, [{}, {"nothing": 1}], client=client)
            assert not right.result()["x"].any()
            with pytest.raises(BatchError) as caught:
                wrong.result()
            assert f"({platform.name})" in str(caught.value)
            told = [str(text) for _, text in client.get_events("warn")]
            assert any(f"several workers share {platform.devices[0].name}" in one for one in told)


def test_without_a_cluster_it_warns_of_another_kind_of_device() -> None:
    saved = {"device": "board", "platform": "FPGA", "type": "ACCELERATOR"}
    with pytest.warns(UserWarning, match="saved on board"):
        fairlead.dask._choose_device("", saved)


def test_a_worker_loads_a_graph_once(
    graph: fairlead.CapturedGraph, device: cl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = list[Any](), fairlead.dask.load
    monkeypatch.setattr(fairlead.dask, "_executables", OrderedDict())
    monkeypatch.setattr(
        fairlead.dask, "load", lambda *args, **more: loaded.append(args) or load(*args, **more)
    )
    with workers_in_threads(1) as client:
        for _ in range(2):  # two files of equal bytes
            client.gather(
                fairlead.dask.map(graph, batches(3), client=client, device=part_of(device))
            )
    assert len(loaded) == 1


def test_all_workers_are_given_batches(graph: fairlead.CapturedGraph, device: cl.Device) -> None:
    """Not only those that have the file, from which the others would have to steal batches."""
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        workers_in_threads(2) as client,
    ):
        client.wait_for_workers(2)
        futures = fairlead.dask.map(graph, batches(12), client=client, device=part_of(device))
        client.gather(futures)
        places = {place for (place,) in client.who_has(futures).values()}
        assert len(places) == 2
        first = min(places)
        (alone,) = fairlead.dask.map(
            graph, batches(1), client=client, device=part_of(device), workers=first
        )
        client.gather(alone)
        assert [tuple(where) for where in client.who_has([alone]).values()] == [(first,)]


def test_a_map_without_workers_returns(graph: fairlead.CapturedGraph) -> None:
    with workers_in_threads(0) as client:
        assert len(fairlead.dask.map(graph, batches(2), client=client)) == 2


def test_workers_take_different_devices(client: Any) -> None:
    numbers = client.run(fairlead.dask._number_process)
    assert len(set(numbers.values())) == 2


NUMBERS = """
import os
from fairlead.dask import _number_process
number = _number_process()
if os.fork() == 0:
    print(_number_process() != number, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_child_has_a_number_of_its_own(run_python: RunPython) -> None:
    assert run_python(NUMBERS).out == "True\n"


def test_a_file_is_a_graph(
    client: Any, graph: fairlead.CapturedGraph, device: cl.Device, tmp_path: Path
) -> None:
    graph.save(tmp_path / "step.flg", contents="inputs")
    futures = fairlead.dask.map(
        tmp_path / "step.flg", batches(2), client=client, device=part_of(device)
    )
    assert np.array_equal(futures[1].result()["x"], expected(1))


def test_a_file_that_is_no_graph_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(fairlead.GraphFileError, match="cannot be read"):
        fairlead.dask.map(tmp_path / "nowhere.flg", [{}])
    (tmp_path / "text.flg").write_text("no graph", encoding="utf-8")
    with pytest.raises(fairlead.GraphFileError, match="not a graph of fairlead"):
        fairlead.dask.map(str(tmp_path / "text.flg"), [{}])


def test_without_a_client_the_batches_are_delayed(
    graph: fairlead.CapturedGraph, device: cl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairlead.dask, "_find_client", lambda: None)
    found = fairlead.dask.map(graph, batches(3), device=part_of(device))
    results = compute(*found, scheduler="threads")
    assert all(np.array_equal(one["x"], expected(number)) for number, one in enumerate(results))


@pytest.mark.parametrize("ran", [0, 1])
def test_each_batch_begins_with_the_same_turn(
    device: cl.Device, monkeypatch: pytest.MonkeyPatch, ran: int
) -> None:
    """A batch that leaves buffers exchanged does not let the next one read the other buffer."""
    monkeypatch.setattr(fairlead.dask, "_find_client", lambda: None)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    u: Any = cl_array.to_device(queue, np.ones(8, np.float32))
    v: Any = cl_array.zeros(queue, 8, np.float32)
    s = fairlead.Parameter(np.float32(1))
    with fairlead.capture(queue, swap=(u, v)) as graph:
        cl.enqueue_copy(queue, v.data, u.data)
        v += s
    loop = graph.finalize()
    if ran:
        loop.replay(queue, ran).wait()
    found = compute(
        *fairlead.dask.map(loop, [{"s": 1}, {"s": 2}, {"s": 3}], names={"u": u, "v": v})
    )
    name = "u" if ran else "v"
    assert [one[name][0] for one in found] == [ran + 1 + one for one in (1, 2, 3)]
    start = np.arange(8, dtype=np.float32)
    given = [{"s": one, "u": start} for one in (1, 2)]  # such a batch begins as it was captured
    found = compute(*fairlead.dask.map(loop, given, names={"u": u, "v": v}))
    assert all(np.array_equal(one["v"], start + by) for one, by in zip(found, (1, 2), strict=True))


def test_errors_travel() -> None:
    error = BatchError("batch 1 failed", routine="map", code="X", remedy="another")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.remedy) == (str(error), "another")


def test_without_dask_the_rest_works(run_python: RunPython) -> None:
    code = "import sys; sys.modules['dask'] = None\nimport fairlead; print(fairlead.load.__name__)"
    assert run_python(code, fresh=True).out == "load\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, [{}]), "the graph is of type int"),
        (("step.flg", 3), "the batches are of type int"),
        (("step.flg", {"x": 1}), "the batches are of type dict"),
        (("step.flg", [{}, 3]), "batch 1 is of type int"),
    ],
)
def test_arguments_of_a_wrong_type(arguments: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        fairlead.dask.map(*arguments)
    assert "remedy: map(graph, [" in str(caught.value)
    with pytest.raises(TypeError, match="times must be a whole number"):
        fairlead.dask.map("step.flg", [{}], times=0)
