"""Global offsets and large ranges of launches in graphs of the engine `cuda`.

NVIDIA's compiler is PoCL here: a program stays OpenCL C, and its translation has the offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda import FakeCuda, TranslatedOpenCL
from helpers.programs import build_once

import fairlead
from fairlead.icd.command_buffer import cuda_functions
from fairlead.icd.driver_profiles import locate
from fairlead.icd.drivers import platforms
from fairlead.icd.nvidia_ptx import PtxKernel, PtxParameter
from fairlead.loader.base.search import Candidate
from fairlead.runtime import NDRange

_SOURCE = "kernel void put(global int *out, int value) { out[get_global_id(0)] = value; }"
_COUNT = 64
_PARAMETERS = PtxParameter("out", "memory", 8, 4), PtxParameter("value", "value", 4, 4)


class _Program(TranslatedOpenCL):
    """The kernel of `_SOURCE`, as NVIDIA's compiler describes it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kernels = {"put": PtxKernel("put", _PARAMETERS, None, None)}


class Put:
    """The kernel on PoCL, and a buffer that is shared."""

    def __init__(self) -> None:
        (found,) = next(one for one in platforms() if "Portable" in one.name).devices
        self.context = cl.Context([found.to_pyopencl()])
        self.queue = cl.CommandQueue(self.context)
        self.kernel = build_once(self.context, _SOURCE).put
        zeros = np.zeros(_COUNT, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.out = cl.Buffer(self.context, flags, hostbuf=zeros)

    def launch(self, size: Any, value: int, local: Any = None, **how: Any) -> None:
        """Launch it."""
        self.kernel(self.queue, size, local, self.out, np.int32(value), **how)

    def values(self) -> list[int]:
        """Read the buffer."""
        host = np.empty(_COUNT, np.int32)
        cl.enqueue_copy(self.queue, host, self.out)
        return host.tolist()


@pytest.fixture
def put(cuda_on_pocl: FakeCuda, pocl_wheel: Candidate, monkeypatch: pytest.MonkeyPatch) -> Put:
    monkeypatch.setenv("FAKE_CUDA_OPENCL", locate(pocl_wheel)[0])
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda *_: _SOURCE)
    monkeypatch.setattr(cuda_functions, "PtxProgram", _Program)
    return Put()


def test_launches_have_their_offsets(put: Put, cuda_on_pocl: FakeCuda) -> None:
    with fairlead.capture(put.queue) as graph:
        put.launch((8,), 1)
        put.launch((8,), 2, global_offset=(16,))
        put.launch((8,), 3, global_offset=(40,))
    loop, before = graph.finalize(), cuda_on_pocl.calls("cuGraphLaunch")
    loop.replay(put.queue, wait=True)
    assert cuda_on_pocl.calls("cuGraphLaunch") - before == 1
    assert put.values() == [1] * 8 + [0] * 8 + [2] * 8 + [0] * 16 + [3] * 8 + [0] * 16


def test_an_update_changes_the_offset(put: Put, cuda_on_pocl: FakeCuda) -> None:
    """It is no Parameter: a new offset is another translation, and so an update of the node."""
    with fairlead.capture(put.queue) as graph:
        put.launch((8,), 1, (8,), global_offset=(0,))
    loop = graph.finalize(updatable=True)
    expected = [0] * _COUNT
    for offset in (0, 8, 32, 8):
        graph[0].update_nd_range(NDRange(8, 8, offset))
        loop.update(graph[0])
        loop.set(graph[0], 1, np.int32(offset + 1))
        before = cuda_on_pocl.calls("cuGraphLaunch")
        loop.replay(put.queue, wait=True)
        assert cuda_on_pocl.calls("cuGraphLaunch") - before == 1
        expected[offset : offset + 8] = [offset + 1] * 8
        assert put.values() == expected


@pytest.mark.parametrize("where", ["global_size", "global_offset"])
@pytest.mark.parametrize("typed", [False, True])
def test_a_parameter_is_neither_a_size_nor_an_offset(put: Put, where: str, typed: bool) -> None:
    """The graph would keep the number. PyOpenCL's own error does not say so."""
    if typed:
        put.kernel.set_scalar_arg_dtypes([None, np.int32])
    sizes = {"global_size": (8,), "global_offset": (0,)}
    sizes[where] = (fairlead.Parameter(np.int32(8)),)  # pyright: ignore
    refused = pytest.raises(TypeError, match="a size or an offset of a launch")
    with refused, fairlead.capture(put.queue):
        put.launch(sizes["global_size"], 1, global_offset=sizes["global_offset"])


#: Counts each group at its own place in y and z, and writes how many it sees in y.
_PLACES = """
kernel void put(global int *out, int value) {
    size_t y = get_global_id(1) - get_global_offset(1), height = get_global_size(1);
    out[y + height * get_global_id(2)] += value * (int)get_num_groups(1) + (int)get_group_id(1);
}
"""
_MOST = 65_535


class Places:
    """`_PLACES` on PoCL, and a shared buffer of zeros."""

    def __init__(self, count: int) -> None:
        (found,) = next(one for one in platforms() if "Portable" in one.name).devices
        self.context = cl.Context([found.to_pyopencl()])
        self.queue = cl.CommandQueue(self.context)
        self.kernel = cl.Program(self.context, _PLACES).build().put
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.out = cl.Buffer(self.context, flags, hostbuf=np.zeros(count, np.int32))
        self.count = count

    def captured(self, size: Any, value: int, **how: Any) -> Any:
        """Return a graph of a launch whose groups have one work-item."""
        with fairlead.capture(self.queue) as graph:
            self.kernel(self.queue, size, (1,) * len(size), self.out, np.int32(value), **how)
        return graph

    def values(self) -> np.ndarray:
        """Read the buffer, and clear it."""
        host = np.empty(self.count, np.int32)
        cl.enqueue_copy(self.queue, host, self.out)
        cl.enqueue_copy(self.queue, self.out, np.zeros(self.count, np.int32))
        return host


@pytest.fixture
def places(put: Put, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda *_: _PLACES)
    return Places(2 * (_MOST + 2))


@pytest.mark.parametrize(
    ("size", "offset", "parts"),
    [
        ((1, _MOST), (0, 0), 0),
        ((1, _MOST + 1), (0, 0), 2),
        ((1, 2 * _MOST + 1), (0, 9), 3),
        ((1, _MOST + 2, 2), (0, 3, 0), 2),
    ],
)
def test_a_launch_of_many_work_groups_has_parts(
    places: Places, cuda_on_pocl: FakeCuda, size: Any, offset: Any, parts: int
) -> None:
    """Each part sees itself as a part of the whole. They are one node."""
    calls = [f"cuGraph{name}" for name in ("AddKernelNode_v2", "AddChildGraphNode", "Launch")]
    before = [cuda_on_pocl.calls(name) for name in calls]
    loop = places.captured(size, 3, global_offset=offset).finalize()
    loop.replay(places.queue, wait=True)
    made = [cuda_on_pocl.calls(name) - was for name, was in zip(calls, before, strict=True)]
    assert made == [max(parts, 1), int(parts > 0), 1]
    y = np.tile(np.arange(size[1]), size[2] if len(size) > 2 else 1)
    assert (places.values()[: len(y)] == 3 * size[1] + y).all()


def test_updates_reach_all_parts_and_make_others(places: Places, cuda_on_pocl: FakeCuda) -> None:
    graph = places.captured((1, _MOST + 1), 1)
    loop, launches = graph.finalize(updatable=True), 0
    before = cuda_on_pocl.calls("cuGraphLaunch")
    sizes = _MOST + 1, _MOST + 1, 8, _MOST + 2, 2 * _MOST + 1
    for value, groups in enumerate(sizes, 1):
        graph[0].set_arg(1, np.int32(value))
        graph[0].update_nd_range(NDRange((1, groups), (1, 1)))
        loop.update(graph[0])
        loop.replay(places.queue, wait=True)
        launches += 1
        found = places.values()
        assert (found[:groups] == value * groups + np.arange(groups)).all()
        assert not found[groups:].any()
    assert cuda_on_pocl.calls("cuGraphLaunch") - before == launches


def test_more_parts_than_sixteen_go_to_another_engine(put: Put, cuda_on_pocl: FakeCuda) -> None:
    with fairlead.capture(put.queue) as graph:
        put.launch((1, 16 * _MOST + 1), 5, (1, 1))
    loop, before = graph.finalize(), cuda_on_pocl.calls("cuGraphLaunch")
    loop.replay(put.queue, wait=True)
    assert cuda_on_pocl.calls("cuGraphLaunch") == before
    assert put.values()[0] == 5
    assert "command 0 (kernel): it has so many work-groups" in loop.explain(put.queue)
