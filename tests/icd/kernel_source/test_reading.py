"""What is read from kernels: PyOpenCL's own templates, and plain kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.icd.kernel_source.reading import (
    KernelAccess,
    LaunchValues,
    Own,
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


@pytest.mark.parametrize(
    ("before", "body", "carried"),
    [
        ("float t = 1;", "z[i] = t; float s = 2; s += x[i];", ""),
        ("float t = 1;", "t += x[i];", "t"),
        ("float t[2] = {1, 2};", "z[i] = t[i % 2];", ""),
        ("float t[2] = {1, 2};", "t[0] = x[i];", "t"),
        ("float t[2]; float *p = t;", "p[1] = x[i];", "t"),
        ("float t[2], u[2]; float *p = a > 0 ? t : u;", "*p = x[i];", "t u"),
        ("float t; float *p = &t;", "*p = x[i];", "t"),
        ("float t;", "z[i] = fract(x[i], &t);", "t"),
        ("float t;", "float s; z[i] = fract(x[i], &s);", ""),
        ("float2 t = 0;", "t.x = x[i];", "t"),
        ("struct { float s; } t;", "t.s = x[i];", "t"),
        ("int t = 0;", "int t = 1; t++;", ""),
        ("int t = 0;", "{ int t = 1; } t++;", "t"),
    ],
)
def test_what_one_item_leaves_for_the_next(before: str, body: str, carried: str) -> None:
    source = ELEMENTWISE.replace("//CL//\n  for", f"{before}\n  for").replace("BODY", body)
    loop = read(source, "axpbyz").loop
    assert loop and loop.carried == set(carried.split())


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


UNREADABLE = {
    "global int *p = x; global int **q = &p; **q = 1;": "kept in p",
    "struct { global int *p; } s; s.p = x; s.p[0] = 1;": "not followed",
    "global int *a[2]; a[0] = x;": "not followed",
    "long p = (long)x; *(global int *)p = 1;": "becomes a number",
    "global int *p = x; for (int j = 0; j < 2; j++) { p[j] = 3; p = y; }": "elsewhere",
    "event_t e = async_work_group_copy(l, x, 4, 0);": "async_work_group_copy",
    "global int *p = *(global int **)y; *p = 1;": "not known where",
    "global int *p; if (x[0]) p = x; *p = 1;": "not known where",
}


@pytest.mark.parametrize("body", UNREADABLE)
def test_pointers_that_are_not_followed_are_refused(body: str) -> None:
    with pytest.raises(UnreadableKernel, match=UNREADABLE[body]) as caught:
        read(f"kernel void k(global int *x, global int *y, local int *l) {{\n {body} }}")
    assert caught.value.line == 2


def test_variables_of_the_program_are_refused() -> None:
    with pytest.raises(UnreadableKernel, match="count"):
        read("global int count;\nkernel void k(global int *x) { count = 1; }")
    table = "constant int table[2] = {1, 2};\nkernel void k(global int *x) { x[0] = table[1]; }"
    assert read(table).arguments["x"].reason


def test_address_spaces_behind_typedefs() -> None:
    with pytest.raises(UnreadableKernel, match="address space of x"):
        read("typedef global int there;\nkernel void k(there *x) { x[0] = 1; }")


def test_constant_memory_is_read_anywhere() -> None:
    access = read("kernel void k(constant int *c, global int *x) { x[get_global_id(0)] = c[0]; }")
    one = access.arguments["c"]
    assert one.reads and not one.writes and not one.own and one.reason
    assert access.arguments["x"].own


def test_what_else_a_kernel_uses() -> None:
    body = 'l[0] = 1; barrier(CLK_LOCAL_MEM_FENCE); atomic_inc(x); printf("a"); if (l[0]) return;'
    access = read(f"kernel void k(global int *x, local int *l) {{ {body} }}")
    assert access.uses == {"local memory", "barrier", "atomics", "printf"} and access.returns
    access = read("kernel void k(global int *x) { x[get_sub_group_id()] = 1; }")
    assert access.ids == {"get_sub_group_id"}


def test_loops_that_a_thread_may_leave_are_no_loops_over_items() -> None:
    assert elementwise("if (x[i] > 0) continue; z[i] = 1").loop
    assert not elementwise("if (x[i] > 0) break; z[i] = 1").loop
    assert not elementwise("if (x[i] > 0) return; z[i] = 1").loop
    assert not elementwise("i += 1; z[i] = 1").loop


def test_structs_lie_as_in_c() -> None:
    source = """typedef struct { char a; float b[2]; struct { short c; long d; } e; } S;
    typedef union { struct { float x, y; } __attribute__((aligned(2 * sizeof(float)))); } U;
    kernel void k(global S *s, global U *u) {
        size_t i = get_global_id(0); s[i].e.d = 1; u[i].y = s[i].b[1]; }"""
    s, u = (read(source).arguments[name].own for name in "su")
    assert s and u and (s.width, u.width) == (24, 4)
    assert str(s.offset) == "8 + 32 * id0 + 32 * offset0"
    assert str(u.offset) == "4 + 8 * id0 + 8 * offset0"
    packed = read(source.replace("} S;", "} __attribute__((packed)) S;")).arguments["s"]
    assert packed.own is None and packed.reason


def test_a_store_to_a_component_keeps_the_others() -> None:
    access = read("kernel void k(global int2 *x) { x[get_global_id(0)].y = 1; }")
    assert access.arguments["x"].reads and not access.arguments["x"].written_first


@pytest.mark.parametrize(
    ("before", "first"),
    [
        ("", True),
        ("for (int j = 0; j < 3; j++) { if (j == a) break; a += 1; }", True),
        ("switch ((int)a) { case 1: a = 3; break; }", True),
        ("switch ((int)a) { case 1: continue; }", False),
        ("if (a > 1) continue;", False),
        ("if (a > 1) { z[i] = 1; }", False),
    ],
)
def test_what_is_written_first(before: str, first: bool) -> None:
    access = elementwise(f"{before} z[i] = x[i]")
    assert access.loop and access.arguments["z__base"].written_first is first


def test_conditions_are_checked_with_the_launch() -> None:
    source = """kernel void k(global int *x, int n, int w) {
        int i = get_global_id(0), j = get_global_id(1); x[j * w + i * n] = 1; }"""
    own = read(source).arguments["x"].own
    assert own

    def holds(size: tuple[int, int, int], n: int, w: int, own: Own = own) -> bool:
        return own.holds(LaunchValues(size, arguments={"n": n, "w": w}))

    assert holds((8, 4, 1), 1, 8) and holds((8, 4, 1), 1, 9) and holds((8, 4, 1), 4, 1)
    assert not holds((8, 4, 1), 1, 7) and not holds((8, 4, 1), 0, 8)
    assert not holds((8, 4, 2), 1, 8)  # a dimension that does not occur
    assert not holds((8, 4, 1), 1, 1 << 30)  # int wraps
    assert not own.holds(LaunchValues((8, 4, 1)))  # values that are not known
