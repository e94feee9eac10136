"""Global offsets and large ranges of launches in graphs of the engine `cuda`.

NVIDIA's compiler is PoCL here: a program stays OpenCL C, and its translation has the offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.cuda import FakeCuda, TranslatedOpenCL

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
        self.kernel = cl.Program(self.context, _SOURCE).build().put
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
    monkeypatch.setattr(cuda_functions, "ptx_of", lambda program: _SOURCE)
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
    sizes[where] = (fairlead.Parameter(np.int32(8)),)
    with (
        fairlead.capture(put.queue) as graph,
        pytest.warns(RuntimeWarning, match="a size or an offset of a launch") as said,
        pytest.raises((TypeError, RuntimeError)),
    ):
        put.launch(sizes["global_size"], 1, global_offset=sizes["global_offset"])
    assert {one.filename for one in said} == {__file__}
    assert len(graph.nodes) == 0


def test_more_work_groups_in_y_than_cuda_takes_go_to_another_engine(
    put: Put, cuda_on_pocl: FakeCuda
) -> None:
    """There a launch has no parts. 65,535 are not too many."""
    for groups, runs in ((65_535, 1), (65_536, 0)):
        with fairlead.capture(put.queue) as graph:
            put.launch((1, groups), groups, (1, 1))
        loop, before = graph.finalize(), cuda_on_pocl.calls("cuGraphLaunch")
        loop.replay(put.queue, wait=True)
        assert cuda_on_pocl.calls("cuGraphLaunch") - before == runs
        assert put.values()[0] == groups
        lines = loop.explain(put.queue).splitlines()
        refused = any("command 0 (kernel): it has more than 65,535" in line for line in lines)
        assert refused == (not runs)
