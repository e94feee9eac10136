"""Which inner loops let a signed integer grow again and again."""

from __future__ import annotations

import pytest

from fairlead.icd.command_buffer.rewrites.overflow import find_overflow
from fairlead.icd.kernel_source.reading import LaunchValues, read_kernel

HELPERS = """
int triple(int a) { return a * 3; }
int add(int a, int b) { a += b; return a; }
void more(int *a) { int t = *a * 5; *a = t + 1; }
"""
#: What a loop does with k, that follows from the item, and with v = k and n = 3; and whether v or
#: another one grows.
LOOPS = {
    "v *= 3": True,
    "v = (v << 1) + k": True,
    "v <<= 1": False,
    "v = v << 1 | k": False,
    "v += v": True,
    "v += k": True,
    "v -= k": True,
    "v += 100": True,
    "v += 2": False,
    "v += n": False,
    "v += k * n": False,
    "v += y[i]": False,
    "v += y[i] * j": False,
    "v = v * y[i]": True,
    "v = k * 3": False,
    "v = 5 - v": False,
    "v = max(v, k)": False,
    "v = min(v + k, 9)": True,
    "v = mad24(v, 3, k)": True,
    "v = v > k": False,
    "v = (v + k) / 2": False,
    "v = (v * 3 + k) / 2": True,
    "v = v >> 1": False,
    "v = -v": False,
    "v = v++ + v": True,
    "v = triple(v)": True,
    "v = triple(k)": False,
    "v = add(v, k)": True,
    "v = add(v, y[j])": False,
    "more(&k)": True,
    "int t = v * 3; v = t": True,
    "int t = v; t += k; v = t": True,
    "w = v + k; v = w": True,
    "v = w; w = v + k": True,
    "w = v + k": False,
    "v = w; w = y[j]; v += w": False,
    "v += w; w = y[j]": False,
    "v += w; w = j": True,
    "if (y[i]) v += k": True,
    "v = y[i] ? v + k : v": True,
    "if (y[i]) w = k; else w = v; v = w + 1": False,
    "if (y[i]) w = k; else w = v; v = w + k": True,
    "switch (y[i]) { case 0: v += k; }": True,
    "for (int l = 0; l < 5; l++) v += k": True,
    "for (int l = 0; l < 5; l++) ; v += k": True,
    "int t = 0; for (int l = 0; l < 5; l++) t += y[l]; v += t": False,
    "int t = v + (w - v) / 2; if (y[t]) w = t; else v = t + 1": False,
    "int t = (v + w) / 2; if (y[t]) w = t; else v = t + 1": False,
    "int t = (v + w + k * 9) / 2; if (y[t]) w = t; else v = t + 1": True,
    "uint t = v; v = t * 3": False,
    "v = (int)((uint)v * 3u) + 1": True,
    "v = (int)((uint)v * 3u + 1u)": False,
    "float t = v; v = t * 3 + k": False,
    "r += v * r": False,
    "r += v + j; v = r": False,
    "u.x = u.y * 3; u.y = u.x": True,
    "u += k": True,
    "u += y[i]": False,
    "a[1] = a[0] * 3; a[0] = a[1]": True,
    "a[j] += 1": False,
    "b[0] = a[1] + k; v = b[0]": False,
    "int *p = a; *p = a[0] * 3": True,
    "int *p = y[i] ? a : b; *p = *p * 3": True,
    "v += w; fract(r, &w)": True,
    "s.a[0] = s.b * 3; s.b = s.a[1]": True,
    "y[i] = y[i] * 3": True,
    "y[i] += k": False,
    "l[0] = l[0] * 3": True,
    "v += t[j]": True,
    "v += e": True,
}
HEAD = """
enum { e = 3000 };
constant int t[4] = {1, 2, 3, 4};
kernel void f(global int *y, local int *l, int n) {
    size_t i = get_global_id(0);
    int k = i, v = k, w = k, a[4] = {k}, b[4] = {k};
    int2 u = k;
    float r = k;
    struct { int a[2], b; } s;
    for (int j = 0; j < 4; j++) { """


@pytest.mark.parametrize("loop", LOOPS)
def test_what_loops_let_grow(loop: str) -> None:
    found = read_kernel(f"{HELPERS}{HEAD}\n {loop}; }} }}", "", "f", {})
    assert {one.line for one in found.signed if "grow" in one.refusal} <= {3, 4, 5, 15}
    assert any("grow" in one.refusal for one in found.signed) == LOOPS[loop]


def test_numbers_of_counters_are_known() -> None:
    """So what follows from them is calculated with a launch's values."""
    for loop in (
        "for (int j = 5; j <= n; j += 1000) v = 900 * j + k; }",
        "for (int j = n; 5 < j; j = j - 1000) v = 900 * j + k; }",
        "for (int j = n; j >= 5; --j) v = 900 * j + k; }",
    ):
        read = read_kernel(f"{HEAD} }} {loop}", "", "f", {})
        for n, fits in (5, True), (2_000_000, True), (2_400_000, False), (1 << 31, False):
            found = find_overflow(read, LaunchValues((1000, 1, 1), arguments={"n": n}))
            assert found[0] != fits
    body = f"{HEAD} }} for (int j = 0; j < 100; j++) y[j] = j; }}"
    reason = read_kernel(body, "", "f", {}).arguments["y"].reason
    assert reason and "turn of a loop" in reason.text


def test_loops_apart_are_no_loop() -> None:
    text = f"{HEAD} w = v + k; }} for (int j = 0; j < 4; j++) {{ v = w; }} }}"
    assert not any(one.refusal for one in read_kernel(text, "", "f", {}).signed)
