"""PyOpenCL's own programs: what is read from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as array
import pyopencl.clmath as clmath
import pyopencl.clrandom as clrandom
import pytest
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.scan import InclusiveScanKernel

from fairlead.icd.kernel_source.parsing import write_opencl
from fairlead.icd.kernel_source.reading import KernelAccess, read_kernel

HEADERS = Path(cl.__file__).parent / "cl"
DEVICE = {
    "__OPENCL_VERSION__": "120",
    "__OPENCL_C_VERSION__": "120",
    "cl_khr_fp64": "1",
    "M_PI": "M_PI",
    "M_PI_F": "M_PI_F",
    "__powerpc__": None,
    "__powerpc64__": None,
}
pytestmark = [pytest.mark.one_driver]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources of the programs that PyOpenCL makes."""
    found: list[str] = []
    make = cl.Program.__init__

    def note(self: cl.Program, *args: object, **names: object) -> None:
        found.extend(one for one in args if isinstance(one, str))
        make(self, *args, **names)  # pyright: ignore

    monkeypatch.setattr(cl.Program, "__init__", note)
    return found


def read(source: str, name: str) -> KernelAccess:
    return read_kernel(source, f"-I {HEADERS}", name, DEVICE)


def kernels(source: str) -> list[KernelAccess]:
    from fairlead.icd.kernel_source.parsing import parse_program

    program = parse_program(source, f"-I {HEADERS}", frozenset(DEVICE.items()))
    names = [name for name, one in program.functions.items() if "_Noreturn" in one.decl.funcspec]
    return [read(source, name) for name in names]


Make = Callable[[cl.CommandQueue], object]


def _array(queue: cl.CommandQueue, of: type = np.float32) -> array.Array:
    return array.to_device(queue, np.arange(1, 65).astype(of))


OWN: dict[str, Make] = {
    "sum of arrays": lambda q: _array(q) + _array(q),
    "complex": lambda q: _array(q, np.complex64) * _array(q, np.complex64) + 1,
    "power": lambda q: _array(q, np.float64) ** 2,
    "in place": lambda q: _array(q).__iadd__(_array(q)),
    "fill": lambda q: _array(q).fill(3),
    "sine": lambda q: clmath.sin(_array(q)),
    "comparison": lambda q: _array(q, np.int32) < _array(q, np.int32),
    "frexp": lambda q: clmath.frexp(_array(q)),
    "elementwise": lambda q: ElementwiseKernel(
        q.context, "float *x, int n0", "if (i > n0) PYOPENCL_ELWISE_CONTINUE; x[i] = 2"
    )(_array(q), 3),
}


@pytest.mark.parametrize("name", OWN)
def test_elementwise_kernels_are_own(context: cl.Context, sources: list[str], name: str) -> None:
    OWN[name](cl.CommandQueue(context))
    assert sources
    for source in sources:
        for access in kernels(source):
            assert access.all_own and access.loop and str(access.loop.behind) == "n"
            assert not access.loop.carried and not access.loop.uses_ids
            assert str(access.loop.first) == "0" and not access.uses and not access.returns


@pytest.mark.parametrize("generator", ["PhiloxGenerator", "ThreefryGenerator"])
def test_random_numbers(context: cl.Context, sources: list[str], generator: str) -> None:
    queue = cl.CommandQueue(context)
    getattr(clrandom, generator)(context).uniform(queue, 64, np.float32)
    assert [access.name for access in kernels(sources[-1])]


def test_reductions_and_scans_are_read(context: cl.Context, sources: list[str]) -> None:
    queue = cl.CommandQueue(context)
    array.sum(_array(queue))
    InclusiveScanKernel(context, np.dtype(np.int32), "a+b", neutral="0")(_array(queue, np.int32))
    uses = {access.name: access for source in sources for access in kernels(source)}
    reduction, scan = uses["reduce_kernel_stage1"], uses["scan_lev1"]
    assert {"barrier", "local memory"} <= reduction.uses & scan.uses
    assert not reduction.all_own and not reduction.loop
    read = (one for one in reduction.arguments.values() if one.reads)
    written = [one for one in reduction.arguments.values() if one.writes]
    assert all(one.reason for one in read) and len(written) == 1


def test_gathers_are_not_own(context: cl.Context, sources: list[str]) -> None:
    queue = cl.CommandQueue(context)
    array.take(_array(queue), array.zeros(queue, 8, np.int32))
    (take,) = (one for source in sources for one in kernels(source) if one.name == "take")
    assert [name for name, one in take.arguments.items() if not one.own] == ["src0__base"]


def test_written_again_it_is_read_the_same(context: cl.Context, sources: list[str]) -> None:
    """The tree gives OpenCL C back, which the driver builds, and which reads the same."""
    _ = _array(cl.CommandQueue(context), np.complex64) * 2
    access = kernels(sources[-1])[0]
    source = "".join(write_opencl(one) + ";\n" for one in access.program.declarations)
    cl.Program(context, source).build()
    again = read(source, access.name)
    assert [str(one.own and one.own.offset) for one in again.arguments.values()] == [
        str(one.own and one.own.offset) for one in access.arguments.values()
    ]
