"""Signed integers that do not fit in their types: fused kernels give what those of calls give."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from pyopencl.elementwise import ElementwiseKernel

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer.rewrites import fusion, overflow
from fairlead.icd.kernel_source import evaluation
from fairlead.icd.kernel_source.reading import LaunchValues, read_kernel

from .test_fusion_mutants import exchange

SIGNED = """
kernel void add(global T *y, global const T *x, T n) { int i = get_global_id(0); y[i] = x[i] + n; }
kernel void above(global T *z, global const T *y, global const T *x) {
    int i = get_global_id(0);
    z[i] = y[i] > x[i];
}
kernel void product(global T *z, global const T *y, global const T *x) {
    int i = get_global_id(0);
    z[i] = y[i] * x[i];
}
kernel void below(global T *z, global const T *y) { int i = get_global_id(0); z[i] = y[i] < 0; }
kernel void halve(global T *z, global const T *y) {
    int i = get_global_id(0);
    z[i] += z[i];
    z[i] += y[i] / 2;
}
kernel void wide(global float *z, global const T *y) { int i = get_global_id(0); z[i] = y[i]; }
"""


def replay_and_compare(
    queue: cl.CommandQueue, run: Callable[[], list[cl_array.Array]]
) -> list[int]:
    """Check that replays write the arrays as calls do. Return how many commands each run fuses.

    Args:
        run: makes arrays by calls, and returns those that are compared.
    """
    called = [one.get() for one in run()]
    with capture(queue) as graph:
        kept = run()
    loop = graph.finalize(fuse="check")
    for _ in range(3):
        loop.replay(queue)
    for one, other in zip(called, kept, strict=True):
        np.testing.assert_array_equal(one, other.get())
    return list(map(len, loop.fused))


@pytest.fixture(params=[False, True], ids=["for CPUs", "for GPUs"])
def as_on_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fused kernels as the device needs them, or as for GPUs."""
    if request.param:
        monkeypatch.setattr(fusion, "needs_isolation", lambda commands: True)


@pytest.mark.usefixtures("as_on_gpus")
@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint32])
def test_signed_integers_wrap_around(queue: cl.CommandQueue, kind: Any) -> None:
    """C leaves that undefined. Compilers of one kernel see what those of several do not."""
    kinds = {np.int16: "short", np.int32: "int", np.int64: "long", np.uint32: "uint"}
    source = SIGNED.replace("T", kinds[kind])
    program = cl.Program(queue.context, source).build()
    of = {one.function_name: one for one in program.all_kernels()}
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.random.default_rng(1).integers(least, most, 1200, dtype=kind, endpoint=True)
    values[::7] = most
    x = cl_array.to_device(queue, values)

    def run() -> list[cl_array.Array]:
        y, z, w, sign, half = (cl_array.zeros(queue, len(values), kind) for _ in range(5))
        real = cl_array.zeros(queue, len(values), np.float32)

        def launch(name: str, *arguments: Any) -> None:
            of[name](queue, (len(values),), None, *(getattr(a, "data", a) for a in arguments))

        half[:] = x
        launch("add", y, x, kind(1))
        launch("above", z, y, x)
        launch("product", w, x, x)
        launch("below", sign, w)
        launch("wide", real, w)
        launch("halve", half, y)
        return [y, z, w, sign, half, real]

    assert max(replay_and_compare(queue, run)) >= 6


@pytest.mark.usefixtures("as_on_gpus")
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("are_same", [False, True])
@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("ushort", "y[i] * x[i]"),
        ("int", "y[i] * x[i]"),
        ("int", "(y[i] & 0x7fffffff) + (x[i] & 0x7fffffff)"),
        ("int", "(y[i] * x[i]) < 0"),
    ],
)
def test_signs_are_not_taken_for_known(
    queue: cl.CommandQueue, kind: str, expression: str, is_kept: bool, are_same: bool
) -> None:
    """A compiler takes the product of two 16-bit numbers for positive, and each square."""
    source = f"""
    kernel void copy(global {kind} *z, global const {kind} *y) {{
        size_t i = get_global_id(0);
        z[i] = y[i];
    }}
    kernel void first(global int *z, global const {kind} *y, global const {kind} *x) {{
        size_t i = get_global_id(0);
        z[i] = {expression};
    }}
    kernel void last(global int *z, global const int *y) {{
        size_t i = get_global_id(0);
        z[i] = y[i] < 0;
    }}"""
    built: Any = cl.Program(queue.context, source).build()
    type_ = {"int": np.int32, "ushort": np.uint16}[kind]
    made, (least, most) = np.random.default_rng(1), (np.iinfo(type_).min, np.iinfo(type_).max)
    x, y = (
        cl_array.to_device(queue, made.integers(least, most, 1200, type_, endpoint=True))
        for _ in range(2)
    )

    def run() -> list[cl_array.Array]:
        copy = cl_array.empty(queue, 1200, type_)
        z, sign = (cl_array.empty(queue, 1200, np.int32) for _ in range(2))
        for kernel, *arrays in (
            (built.copy, copy, x),
            (built.first, z, copy, copy if are_same else y),
            (built.last, sign, z),
        ):
            kernel(queue, (1200,), None, *(one.data for one in arrays))
        return [copy, z, sign] if is_kept else [sign]

    assert replay_and_compare(queue, run)


#: Kernels of an integer that may not fit or be no number, and how many commands are fused.
UNDEFINED = {
    "a short of a float": ("float", "short", "y[i]", 3),
    "a ushort of a float": ("float", "ushort", "convert_ushort(y[i] * 2.0f)", 3),
    "a uint of a float": ("float", "uint", "(uint)y[i]", 3),
    "an int of a double": ("double", "int", "(int)y[i]", 3),
    "a short of a double": ("double", "short", "y[i]", 2),
    "a uint of a double": ("double", "uint", "(uint)y[i]", 2),
    "a short of a double that is limited": ("double", "short", "convert_short_sat(y[i])", 2),
    "a quotient": ("int", "int", "100 / y[i]", 2),
    "a remainder": ("long", "long", "-100 % y[i]", 2),
    "a quotient by a number": ("int", "int", "y[i] / 7", 3),
}


@pytest.mark.usefixtures("as_on_gpus")
@pytest.mark.parametrize("name", UNDEFINED)
def test_nobody_concludes_from_undefined_integers(queue: cl.CommandQueue, name: str) -> None:
    """Kernels behind see what memory has."""
    of, to, expression, fused = UNDEFINED[name]
    source = f"""
    kernel void first(global {to} *z, global const {of} *y) {{
        size_t i = get_global_id(0);
        z[i] = {expression};
    }}
    kernel void wide(global float *z, global const {to} *y) {{
        size_t i = get_global_id(0);
        z[i] = y[i];
    }}
    kernel void zero(global int *z, global const {of} *y) {{
        size_t i = get_global_id(0);
        z[i] = y[i] == 0;
    }}"""
    built: Any = cl.Program(queue.context, source).build()
    kinds = {"float": np.float32, "double": np.float64, "uint": np.uint32, "int": np.int32}
    kinds |= {"short": np.int16, "ushort": np.uint16, "long": np.int64}
    values = [-1, 7, 300, -300, 40000] if "uotient" in name or "remain" in name else [
        *(np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 5e9, -3e9, 65536.5, -129.5, 0)
    ]  # fmt: skip
    y = cl_array.to_device(queue, np.resize(np.array(values), 1200).astype(kinds[of]))
    z = cl_array.zeros(queue, 1200, kinds[to])
    real, zero = (cl_array.zeros(queue, 1200, one) for one in (np.float32, np.int32))

    def run() -> None:
        for kernel, *arrays in (built.first, z, y), (built.wide, real, z), (built.zero, zero, y):
            kernel(queue, (1200,), None, *(one.data for one in arrays))

    run()
    called = z.get()
    with capture(queue) as graph:
        run()
    loop = graph.finalize(fuse="check")
    for _ in range(3):
        loop.replay(queue)
    assert [len(one) for one in loop.fused] == [fused]
    made = z.get()
    assert (zero.get() == (y.get() == 0)).all()
    assert (real.get() == made.astype(np.float32)).all()
    assert (made == called).all()


#: A loop in which sums and products of an item's number soon do not fit.
_LOOP = "for (int j = 0; j < 12; j++)"


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(
    ("kind", "expression", "is_fused"),
    [
        ("int", "k * 1103515245", False),
        ("int", "k * -1103515245", False),
        ("int", "-(k * 1103515245)", False),
        ("int", "2147481000 + k", False),
        ("int", "-2147480000 - k * 3", False),
        ("int", "(k ^ 5) * 1103515245", False),
        ("int", "(k << 31) - 1", False),
        ("long", "k * 1103515245000000000L", False),
        ("long", "~k * 1103515245000000000L", False),
        ("int", "(k % 7) * 1103515245", False),
        ("int", "0; for (int j = 0; j < 3; j++) v = k = k * 1103515245 + j", False),
        ("int", f"k; {_LOOP} {{ int t = k * 1103515245; k = t + j; }} v = k", False),
        ("int", f"k; {_LOOP} {{ int t = k + j; k = -t; k *= 1103515245; }} v = k", False),
        ("int", f"k; {_LOOP} {{ v += k; k += v; }}", False),
        ("int", f"k; int u[2] = {{k}}; {_LOOP} u[1] = u[0] * 9999999, v = u[0] = u[1] + j", False),
        ("int", f"k; int2 u = k; {_LOOP} u.x = u.x * 1103515245 + j; v = u.x", False),
        ("int", f"k; int *p = &v; {_LOOP} {{ int t = v * 1103515245; *p = t + j; }}", False),
        ("int", f"k; k *= 700000; {_LOOP} v += k", False),
        ("int", f"0; {_LOOP} v += j * k * 50000", False),
        ("int", f"k; int u[1] = {{k * 70000}}; {_LOOP} v += u[0]", False),
        ("int", f"k; k = s[i] > 9 ? 3 : k; {_LOOP} v += k * 50000", False),
        ("int", "k; for (int j = 0; j < 3000; j++) v += 1000000", False),
        ("int", f"0; int t = s[i]; {_LOOP} v += t + 2; {_LOOP} v += 2", True),
        ("int", f"k; {_LOOP} v = s[i] + v", True),
        ("int", f"0; {_LOOP} {{ int t = s[i]; v += t * j; }}", True),
        ("int", "0; for (int j = 0; j < 4; j++) v += j > 1", True),
        ("int", "k << 25", True),
        ("int", "(k % 7) * 300000000", True),
        ("int", "(int)((uint)k * 1103515245u)", True),
        ("int", "k * 10 - 5000", True),
        ("long", "k * 1103515245", True),
    ],
)
def test_numbers_that_follow_from_the_item(
    queue: cl.CommandQueue, kind: str, expression: str, is_fused: bool, loops: bool
) -> None:
    """Neither the kernel itself nor the next one is told what a compiler concludes."""
    n, arguments = 3000, f"{kind} *h, {kind} *s"
    body = f"{kind} k = i, v = {expression}; h[i] = v; s[i] = v < 0;"
    memory = [cl_array.zeros(queue, n, np.int32 if kind == "int" else np.int64) for _ in range(3)]
    name = f"of_items_{abs(hash((kind, expression)))}"
    if loops:
        first = ElementwiseKernel(queue.context, arguments, body, name)
        last = ElementwiseKernel(queue.context, arguments, "s[i] = h[i] < 0", "signs")
    else:
        text = "kernel void {}(global {}) {{ size_t i = get_global_id(0); {} }}"
        given = arguments.replace(", ", ", global ")
        sources = text.format(name, given, body), text.format("signs", given, "s[i] = h[i] < 0;")
        program = cl.Program(queue.context, "\n".join(sources)).build()
        kernels = {one.function_name: one for one in program.all_kernels()}

        def launch(kernel: Any) -> Callable[..., Any]:
            return lambda *given: kernel(queue, (n,), None, *(one.data for one in given))

        first, last = launch(kernels[name]), launch(kernels["signs"])

    def run() -> list[Any]:
        h, s, t = memory
        first(h, s)
        last(h, t)
        return [one.get() for one in memory]

    called = run()
    with capture(queue) as graph:
        first(*memory[:2])
        last(memory[0], memory[2])
    loop = graph.finalize(fuse="check")
    for _ in range(3):
        loop.replay(queue)
    is_gpu = queue.device.type == cl.device_type.GPU
    stays = not is_fused or (is_gpu and "for" in expression)  # a GPU's have no inner loops
    assert [len(one) for one in loop.fused] == ([1] if loops and stays else [] if stays else [2])
    reason = "(does not fit in its type|grow again and again) \\(line"
    assert is_fused == (re.search(reason, loop.explain(queue)) is None)
    for one, other in zip(called, memory, strict=True):
        np.testing.assert_array_equal(one, other.get())


def test_equal_numbers_stay_two(queue: cl.CommandQueue) -> None:
    """A compiler that sees one argument for both takes the product for a square."""
    text = """kernel void product(global int *z, int a, int b) {
        size_t i = get_global_id(0);
        z[i] = (a * b < 0) + z[i];
    }"""
    kernel: Any = cl.Program(queue.context, text).build().product
    z: Any = cl_array.zeros(queue, 99, np.int32)

    def run() -> None:
        for _ in range(2):
            kernel(queue, (99,), None, z.data, np.int32(46341), np.int32(46341))

    run()
    called = z.get()
    z.fill(0)
    with capture(queue) as graph:
        run()
    loop = graph.finalize(fuse="wait")
    loop.replay(queue)
    assert loop.fused
    assert (z.get() == called).all()


#: Expressions of 17 items that just do not fit in an int.
_TOO_LARGE = ("(k % 7) * 400000000", "(k ^ 5) * 130000000", "(k << 31) - 1", "-(k << 31)")
#: The types of the random expressions.
_BITS = {"int": 32, "long": 64}


class _Number:
    """A random expression of an item's number, in C, and its value as processors calculate it."""

    def __init__(self, made: random.Random, kind: str) -> None:
        self._made, self._bits = made, _BITS[kind]
        self.overflows = False
        self.text, self._value = self._make(made.randrange(1, 5))

    def _make(self, depth: int) -> tuple[str, Callable[[int], int]]:
        made = self._made
        if not depth or made.random() < 0.2:
            if made.random() < 0.6:
                return "k", lambda k: k
            number = made.choice([1, 3, 1000, 1 << 20, (1 << 28) - 1, (1 << 30) + 7])
            return str(number), lambda _: number
        left, of_left = self._make(depth - 1)
        if made.random() < 0.2:
            name = made.choice("-~")
            return f"{name}({left})", lambda k: self._fit(
                -of_left(k) if name == "-" else ~of_left(k)
            )
        right, of_right = self._make(depth - 1)
        if made.random() < 0.2:
            shift = made.choice([1, 8, self._bits - 2, self._bits - 1])
            return f"(({left}) << {shift})", lambda k: self._wrap(of_left(k) << shift)
        if made.random() < 0.2:
            name, divisor = made.choice("/%"), made.choice([2, 7, 10])
            return f"(({left}) {name} {divisor})", lambda k: _divide(name, of_left(k), divisor)
        name = made.choice("+-*+-*^&|")
        calculate: dict[str, Callable[[int, int], int]] = {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
            "^": lambda a, b: a ^ b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
        }  # fmt: skip
        return (
            f"(({left}) {name} ({right}))",
            lambda k: self._fit(calculate[name](of_left(k), of_right(k))),
        )

    def _wrap(self, value: int) -> int:
        half = 1 << self._bits - 1
        return (value + half) % (2 * half) - half

    def _fit(self, value: int) -> int:
        self.overflows |= self._wrap(value) != value
        return self._wrap(value)

    def run(self, values: range) -> bool:
        """Return whether a number does not fit somewhere."""
        for k in values:
            self._value(k)
        return self.overflows


def _divide(name: str, left: int, divisor: int) -> int:
    quotient = abs(left) // divisor * (-1 if left < 0 else 1)
    return quotient if name == "/" else left - divisor * quotient


def check_proofs(seeds: range) -> int:
    """Check that random expressions of an item's number, or of a loop's counter, have their proven
    values. Returns how many fit."""

    def find(kind: str, text: str, values: range, is_loop: bool) -> tuple[bool, str]:
        body = f"k = get_global_id(0); z[k] = {text};"
        if is_loop:
            test, step = f"k {'<>'[values.step < 0]} {values.stop}", f"k += {values.step}"
            body = f"k; for (k = {values.start}; {test}; {step}) z[get_global_id(0)] = {text};"
        access = read_kernel(f"kernel void f(global {kind} *z) {{ {kind} {body} }}", "", "f", {})
        return overflow.find_overflow(access, LaunchValues((len(values), 1, 1)))

    assert all(find("int", one, range(17), False)[0] for one in _TOO_LARGE)
    proven = 0
    for seed in seeds:
        made = random.Random(seed)
        kind, is_loop = made.choice([*_BITS]), made.random() < 0.5
        values = range(made.choice([1, 2, 17, 200]))
        if is_loop:
            values = range(made.choice([0, -9, 5]), len(values), made.choice([1, 3]))
            values = values if made.random() < 0.5 else range(len(values), values.start, -2)
        number = _Number(made, kind)
        may_overflow, reason = find(kind, number.text, values, is_loop)
        assert may_overflow or not number.run(values), number.text
        assert may_overflow or not reason
        proven += not may_overflow
    return proven


def test_what_is_proven_fits() -> None:
    assert check_proofs(range(1500)) > 300


@pytest.mark.thorough
def test_more_of_what_is_proven_fits() -> None:
    assert check_proofs(range(1500, 60_000)) > 10_000


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (overflow.find_overflow, "all(need.holds(values) for need in one.needs)", "True"),
        (evaluation.Evaluation._calculate, "for one in (left, right, made)", "for one in (made,)"),
        (evaluation.Evaluation._calculate, "(left, right, made)", "(left, right)"),
        (evaluation.Evaluation.visit_UnaryOp, 'name in ("-", "+", "~")', "False"),
        (LaunchValues.range, "-power if min(ends) < 0 else 0, power - 1", "0, power >> 1"),
        (LaunchValues._bound_remainder, "min(most - 1, first[1])", "min(most - 2, first[1])"),
        (LaunchValues.range, "last = max(0, size - 1)", "last = max(0, size - 2)"),
        (LaunchValues.range, "behind[1] - 1", "behind[1] - 2"),
    ],
)
def test_wrong_proofs_are_caught(
    monkeypatch: pytest.MonkeyPatch, function: Any, old: str, new: str
) -> None:
    monkeypatch.setattr(function, "__code__", exchange(function, old, new))
    read = inspect.unwrap(read_kernel)
    monkeypatch.setattr(
        "fairlead.icd.kernel_source.reading._read", read.__globals__["_read"].__wrapped__
    )
    with pytest.raises(AssertionError):
        check_proofs(range(1500))
