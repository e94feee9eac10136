"""What is read from kernels is true of them: they run on the drivers, also random ones.

`test_mutants.py` shows that the same kernels find what is wrong in an analysis.
"""

from __future__ import annotations

import random
from typing import Any

import pyopencl as cl
import pytest
from helpers.kernel_access import find_violation
from helpers.programs import build_once

from fairlead.icd.kernel_source import reading
from fairlead.icd.kernel_source.reading import LaunchValues, read_kernel

ITEMS = 24
NUMBERS = {"n": ITEMS, "zero": 0, "three": 3, "four": 4}
VALUES = LaunchValues((ITEMS, 1, 1), (8, 1, 1), arguments=NUMBERS)
#: Ranges and their groups. In the second one, each thread does several turns of a loop over items.
RANGES = (((ITEMS, 1, 1), (8, 1, 1)), ((8, 1, 1), (8, 1, 1)))
HEAD = "kernel void {}(global int *x, global int *y, int n, int zero, int three, int four)"
HELPERS = """
int twice(int a) { return 2 * a; }
int chosen(int a, int b) { if (a > 3) return a; return b; }
void bump(int *a) { *a += 1; }
void put(global int *p, int a) { p[a] = 7; }
"""
#: Bodies that claim too much if a step of the analysis is wrong.
TRICKY = {
    "postfix": "int k = i; x[k++] = 1; x[k] = 2;",
    "prefix": "int k = i; y[i] = x[++k];",
    "loop": "int k = i; for (int j = 0; j < 2; j++) { y[k] = 3; k = k + 1; }",
    "turns": "int k = i; while (k < i + 2) { y[k] = 3; k++; }",
    "do": "int k = i, j = 0; do { if (j == 1) { k = 5; continue; } k = i; } while (x[k] + j++ < 0);"
    " y[i] = k;",
    "branch": "int k = i; if (y[i] > 0) k = i + 1; y[i] = x[k];",
    "ternary": "y[i] = x[y[i] > 0 ? i : i + 1];",
    "lazy": "int k = i; int c = y[i] > 0 && (k = k + 1); y[i] = x[k] + c;",
    "choice": "int k = i; switch (y[i] & 3) { case 1: k = i + 2; break; case 2: k++; default: ; }"
    " y[i] = x[k];",
    "fall": "int k = i; switch (y[i] & 1) { case 0: k = i; case 1: y[i] = x[k]; } "
    "k = i + 1; y[i] += zero;",
    "case": "int k = i + 1; switch (y[i] & 1) { case 0: k = i; case 1: y[i] = x[k]; }",
    "narrow": "uchar k = (uchar)(i * 32); x[k] = y[i];",
    "stride": "x[i * zero] = i;",
    "overlap": "x[i * three + (i & 0)] = 1; ((global int4 *)(x + i * three))[0] = (int4)(i);",
    "wide": "((global int4 *)(x + 4 * i))[0] = (int4)(y[i]); x[4 * i + three] = 5;",
    "modulo": "y[i] = x[i % 4];",
    "shift": "y[i >> 1] = x[i];",
    "whole": "int row = i / four, column = i % four; y[row * four + column] = x[i];",
    "clamp": "y[i] = x[min(i, three)];",
    "free clamp": "y[i] = x[min(i, n - 1)];",
    "address": "int k = i; int *p = &k; *p = i + 1; y[i] = x[k];",
    "helper": "int k = i; bump(&k); y[i] = x[k];",
    "returns": "y[i] = x[chosen(i, i + 1)];",
    "inlined": "put(y, i); put(x, twice(i)); x[2 * i] += 1;",
    "pointer": "global int *p = x; if (y[i] > 0) p = p + 1; y[i] = p[i];",
    "moved": "global int *p = x + i; for (int j = 0; j < 2; j++) { y[i] += *p; p++; }",
    "other": "global int *p = x; for (int j = 0; j < 2; j++) { p[i + j] = 3; p = y; }",
    "member": "struct { int k; } s; s.k = i + 1; y[i] = x[s.k];",
    "union": "union { int k; char c[4]; } u; u.k = i; u.c[0] += 1; y[i] = x[u.k];",
    "vector": "int2 v = (int2)(i, i + 1); v.x = v.y; y[i] = x[v.x];",
    "short": "((global short *)x)[i] = (short)y[i];",
    "mixed": "((global short *)x)[i] = 1; x[i] += 1;",
    "component": "((global int2 *)x)[i].y = y[i];",
    "vload": "int2 v = vload2(i, x); vstore2(v + 1, i, y);",
    "atomic": "atomic_add(x + i % 4, 1); y[i] = 1;",
    "shadow": "int k = i; { int k = i + 1; y[i] = k; } y[i] += x[k];",
    "shadowed": "int k = i; { k = i + 1; int k = i; y[i] = k; } y[i] += x[k];",
    "early": "if (i > 5) return; y[i] = x[i];",
    "group": "int k = get_group_id(0) * 8 + get_local_id(0); y[k] = x[i];",
    "sixteen": "y[get_group_id(0) * 16 + get_local_id(0)] = x[i];",
    "local": "y[get_local_id(0)] = x[i];",
    "stripes": "for (int k = i; k < n; k += get_global_size(0)) y[k] = x[k];",
    "behind": "for (int k = i; k < n; k += get_global_size(0)) y[k] = 1; y[i] = x[i];",
    "nested": "for (int k = i; k < n; k += get_global_size(0)) for (int j = 0; j < 2; j++)"
    " y[k] += x[k] + j;",
    "shifted": "for (int k = three + i; k <= n; k += get_global_size(0)) { int j = k; y[j] = 1; }",
    "stepped": "for (int k = i; k < n; k += 2 * get_global_size(0)) y[k] = x[k];",
    "turned": "int l = i; for (int k = i; k < n; k += get_global_size(0)) { y[l] = x[k]; l = k; }",
    "minus": "y[i] = i > 0 ? x[i - 1] : 3;",
    "compound": "int k = i; k += 1; y[i] = x[k];",
    "padded": "struct S { char a; int b; }; ((global struct S *)x)[i].b = y[i];",
    "carried": "int s = 0; for (int k = i; k < n; k += get_global_size(0)) { s++; y[k] = x[s]; }",
}


def write_program(bodies: dict[str, str]) -> tuple[str, list[str]]:
    names = [f"k_{name.replace(' ', '_')}" for name in bodies]
    kernels = (
        f"{HEAD.format(name)} {{ int i = get_global_id(0); {body} }}\n"
        for name, body in zip(names, bodies.values(), strict=True)
    )
    return HELPERS + "".join(kernels), names


def find_violations(
    context: cl.Context, bodies: dict[str, str], only: str = "", by: Any = reading
) -> tuple[list[str], int]:
    """Return what is wrong of the kernels that claim something, and how many there are.

    Args:
        context: Where they run.
        bodies: Of the kernels, which are one program.
        only: The one to look at; "" for all.
        by: The module that reads them.
    """
    source, names = write_program(bodies)
    program = build_once(context, source)
    found: list[str] = []
    claims = 0
    for seed, (body, name) in enumerate(zip(bodies, names, strict=True)):
        if only not in ("", body):
            continue
        try:
            part = write_program({only: bodies[only]})[0] if only else source
            access = by.read_kernel(part, "", name, {})
        except by.UnreadableKernel:
            continue
        claims += access.all_own
        launches = [
            by.LaunchValues(size, local, arguments=NUMBERS)
            for size, local in RANGES[: 1 + bool(access.loop)]
        ]
        found += filter(
            None, [find_violation(context, program, access, one, seed) for one in launches]
        )
    return found, claims


def test_tricky_kernels(context: cl.Context) -> None:
    found, claims = find_violations(context, TRICKY)
    assert not found and claims >= 12


OWN = {"whole", "inlined", "wide", "free clamp", "component", "vload", "early", "shadow"}


@pytest.mark.parametrize("name", sorted(OWN))
def test_own_items_are_found(name: str) -> None:
    source, names = write_program({name: TRICKY[name]})
    access = read_kernel(source, "", names[0], {})
    own = {key: one.own for key, one in access.arguments.items()}
    if name == "inlined":
        assert own["x"] and own["y"] and own["x"].width == 4
    elif name == "wide":
        assert own["x"] is None  # `three` may be anything
    else:
        assert access.all_own and all(one and one.holds(VALUES) for one in own.values())


#: Indexes of random kernels, made of two others.
FORMS = """({0} + {1})|({0} - 1)|(2 * {0})|({0} % 5)|({0} / 2)|({0} & 7)|(uchar){0}|min((int){0}, n)
|max((int){0}, zero)|twice({0})|({0} << 1)|chosen({0}, {1})|(c ? {0} : {1})|(long){0}|(uint){0}
|({0} * zero)""".replace("\n", "").split("|")


class Writer:
    """Writes random bodies of kernels."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def index(self, depth: int = 2) -> str:
        """An index whose size stays below 1,000."""
        if depth == 0 or self.random.random() < 0.4:
            return self.random.choice(["i", "i", "i", "k", "n", "1", "three", "(n - 1 - i)"])
        one, other = self.index(depth - 1), self.index(depth - 1)
        form = self.random.choice(FORMS)
        return form.format(one, other)

    def statement(self, depth: int = 2) -> str:
        index = self.index()
        simple = [
            f"y[{index}] = x[{self.index()}] + 1;",
            "y[i] += x[i];",
            "x[i] = i;",
            f"k = {index};",
            "k = i;",
            "y[k] = 3;",
            "k++;",
            "x[k++] = c;",
            "bump(&l);",
            "{ global int *p = x + i; y[i] += *p; }",
            "put(y, i);",
        ]
        if depth == 0:
            return self.random.choice(simple)
        inner = " ".join(self.statement(depth - 1) for _ in range(self.random.randint(1, 3)))
        nested = [
            f"if (c > {index}) {{ {inner} }} else {{ {self.statement(depth - 1)} }}",
            f"for (int j = 0; j < 2; j++) {{ {inner} }}",
            f"{{ int k = i; {inner} }}",
            f"switch (c & 1) {{ case 0: {inner} break; case 1: {self.statement(depth - 1)} }}",
            f"for (int j = 0; j < 2; j++) {{ if (c > j) continue; {inner} }}",
        ]
        return self.random.choice([*simple, *simple, *nested])

    def body(self) -> str:
        count = self.random.randint(1, 3)
        text = " ".join(self.statement() for _ in range(count))
        if self.random.random() < 0.2:
            loop = "for (int j = i; j < n; j += get_global_size(0))"
            return f"int c = zero, l = 0; {loop} {{ int i = j, k = i; {text} }}"
        return f"int k = i, c = y[i] & 3, l = 0; {text}"


def _random_bodies(seed: int, count: int) -> dict[str, str]:
    writer = Writer(seed)
    return {str(number): writer.body() for number in range(count)}


@pytest.mark.parametrize("seed", range(2))
def test_random_kernels(context: cl.Context, seed: int) -> None:
    found, claims = find_violations(context, _random_bodies(seed, 25))
    assert not found and claims > 5


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2, 40))
def test_many_random_kernels(context: cl.Context, seed: int) -> None:
    assert not find_violations(context, _random_bodies(seed, 200))[0]
