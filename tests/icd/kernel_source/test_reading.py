"""What is read from kernels: PyOpenCL's own templates, and plain kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.icd.kernel_source.reading import (
    KernelAccess,
    LaunchValues,
    UnreadableKernel,
    read_kernel,
)

DEVICE = {"__OPENCL_VERSION__": "300", "__OPENCL_C_VERSION__": "120", "__FAST_RELAXED_MATH__": None}
ELEMENTWISE = """//CL//
#define PYOPENCL_ELWISE_CONTINUE continue
__kernel void axpbyz(__global float *z__base, long z__offset, float a,
    __global float *x__base, long x__offset, long n)
{
  int lid = get_local_id(0);
  int gsize = get_global_size(0);
  int work_group_start = get_local_size(0)*get_group_id(0);
  long i;
  __global float *z = (__global float *) ((__global char *) z__base + z__offset);
  __global float *x = (__global float *) ((__global char *) x__base + x__offset);
  //CL//
  for (i = work_group_start + lid; i < n; i += gsize)
  {
    BODY;
  }
}
"""


def read(source: str, name: str = "k", options: str = "") -> KernelAccess:
    return read_kernel(source, options, name, DEVICE)


def elementwise(body: str) -> KernelAccess:
    return read(ELEMENTWISE.replace("BODY", body), "axpbyz")


def test_template_is_own() -> None:
    access = elementwise("z[i] = a*x[i]")
    z, x = access.arguments["z__base"], access.arguments["x__base"]
    assert (z.reads, z.writes, z.written_first) == (False, True, True)
    assert (x.reads, x.writes, x.written_first) == (True, False, False)
    assert z.own and x.own and str(z.own.offset) == "4 * i + z__offset" and z.own.width == 4
    assert access.loop and (str(access.loop.first), str(access.loop.behind)) == ("0", "n")
    assert not access.loop.carried and not access.loop.uses_ids and not access.returns
    values = LaunchValues((8192, 1, 1), (128, 1, 1), arguments={"n": 1 << 20, "z__offset": 0})
    assert z.own.holds(values)
    assert not z.own.holds(LaunchValues((64, 2, 1), (64, 1, 1), arguments=values.arguments))


def test_loop_that_uses_ids_says_so() -> None:
    loop = elementwise("z[i] = lid").loop
    assert loop and loop.uses_ids
    loop = elementwise("a += x[i]; z[i] = a").loop
    assert loop and loop.carried == {"a"}


def test_plain_kernel() -> None:
    access = read(
        "kernel void k(global float *x, global float *y, int n) {"
        "int i = get_global_id(0); if (i < n) y[i] = x[i] + x[i + 1]; }"
    )
    x, y = access.arguments["x"], access.arguments["y"]
    assert y.own and str(y.own.offset) == "4 * id0 + 4 * offset0" and not y.written_first
    assert x.own is None and x.reason and "neighbours" in x.reason.text and x.reason.line == 1


def test_what_is_not_understood_is_said_with_its_line() -> None:
    with pytest.raises(UnreadableKernel) as caught:
        read('kernel void k(global int *x) {\n  asm("nop");\n}')
    assert caught.value.line == 2 and "asm" in caught.value.reason


def test_includes_come_from_the_options(tmp_path: Path) -> None:
    (tmp_path / "twice.h").write_text("#define TWICE(x) ((x) * 2)\n")
    source = '#include "twice.h"\nkernel void k(global int *x) { x[TWICE(get_global_id(0))] = 1; }'
    own = read(source, options=f"-I {tmp_path}").arguments["x"].own
    assert own and str(own.offset) == "8 * id0 + 8 * offset0"
    with pytest.raises(UnreadableKernel, match=r"twice\.h"):
        read(source)
