"""Whether what was read from a kernel is true of it, by running it.

Where each item has pieces of its own, what is in an item's pieces afterwards depends on what was
in them before, and on nothing else. So a second run has other bytes everywhere else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pyopencl as cl

from fairlead.icd.kernel_source.polynomials import Polynomial, Symbol
from fairlead.icd.kernel_source.reading import KernelAccess, LaunchValues, Own

SIZE, BASE = 1 << 15, 1 << 14


class Overlap(Exception):
    """Two items own the same byte."""


def calculate(polynomial: Polynomial, numbers: Mapping[str, int]) -> int:
    """The value of a polynomial. `numbers` has a number for the text of each symbol."""

    def value(symbol: Symbol) -> int:
        if symbol.kind == "quotient":
            return calculate(symbol.parts[0], numbers) // calculate(symbol.parts[1], numbers)
        return numbers[str(symbol)]

    return sum(
        factor * int(np.prod([value(one) for one in product], dtype=object))
        for product, factor in polynomial.terms
    )


def items_of(access: KernelAccess, values: LaunchValues) -> list[dict[str, int]]:
    """What symbols are for each item of a launch."""
    fixed = {**values.arguments, **{f"offset{d}": values.global_offset[d] for d in range(3)}}
    for dimension in range(3):
        fixed[f"global_size{dimension}"] = values.global_size[dimension]
    if access.loop:
        first = calculate(access.loop.first, fixed)
        behind = calculate(access.loop.behind, fixed)
        return [{**fixed, access.loop.variable: one} for one in range(first, behind)]
    places = itertools.product(*(range(size) for size in values.global_size))
    return [{**fixed, **{f"id{d}": place[d] for d in range(3)}} for place in places]


def pieces(own: Own, items: list[dict[str, int]]) -> np.ndarray:
    """For each byte of a buffer, the number of the item that owns it; -1 if none does."""
    owners = np.full(SIZE, -1)
    for number, item in enumerate(items):
        start = BASE + calculate(own.offset, item)
        if (owners[start : start + own.width] >= 0).any():
            raise Overlap
        owners[start : start + own.width] = number
    return owners


def find_violation(
    context: cl.Context, program: cl.Program, access: KernelAccess, values: LaunchValues, seed: int
) -> str:
    """Run a kernel that has own items only, twice. Say what is not as it was read.

    Its arguments are buffers, which begin BASE bytes before where the kernel is to start, and
    numbers by the names of `values`. Nothing is said where the kernel claims nothing.
    """
    owns = {name: one.own for name, one in access.arguments.items()}
    if not access.all_own or not all(own and own.holds(values) for own in owns.values()):
        return ""
    random = np.random.default_rng(seed)
    items = items_of(access, values)
    try:
        owners = {name: pieces(own, items) for name, own in owns.items() if own}
    except Overlap:
        return f"{access.name} has items that own the same byte"
    before = {name: random.integers(0, 256, SIZE, np.uint8) for name in owners}
    first = _run(context, program, access, values, before)
    for name, argument in access.arguments.items():
        outside = owners[name] < 0 if argument.writes else np.full(SIZE, True)
        if (first[name] != before[name])[outside].any():
            return f"{access.name} writes {name} where it owns nothing"
    for _ in range(4):
        kept = np.append(random.random(len(items)) < 0.5, False)  # the last: what nobody owns
        other = {
            name: np.where(kept[owners[name]], data, random.integers(0, 256, SIZE, np.uint8))
            for name, data in before.items()
        }
        second = _run(context, program, access, values, other)
        for name in owners:
            if (first[name] != second[name])[kept[owners[name]]].any():
                return f"{access.name}: what is in {name} depends on other items"
    return ""


def _run(
    context: cl.Context,
    program: cl.Program,
    access: KernelAccess,
    values: LaunchValues,
    data: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    queue = cl.CommandQueue(context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(context, flags, hostbuf=one) for name, one in data.items()}
    kernel = cl.Kernel(program, access.name)
    parts = {name: one.get_sub_region(BASE, SIZE - BASE) for name, one in buffers.items()}
    for one in access.parameters:
        if one.name in buffers:
            kernel.set_arg(one.index, parts[one.name])
        else:
            number = values.arguments[one.name]
            kernel.set_arg(one.index, number.to_bytes(one.type.size, "little", signed=number < 0))
    cl.enqueue_nd_range_kernel(queue, kernel, values.global_size, values.local_size)
    out = {name: np.empty(SIZE, np.uint8) for name in buffers}
    for name, buffer in buffers.items():
        cl.enqueue_copy(queue, out[name], buffer)
    return out
