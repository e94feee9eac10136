"""Sizes of structs that PoCL's binaries have, beside those that the device computes."""

from __future__ import annotations

from random import Random

import numpy as np
import pyopencl as cl
import pytest
from helpers.drivers import Driver

from fairlead.icd.drivers import platforms
from fairlead.icd.pocl_structs import find_struct_sizes

TYPES = {
    "one": "typedef struct { char c; } one;",
    "padded": "typedef struct { char c; double d; int numbers[11]; } padded;",
    "packed": "typedef struct __attribute__((packed)) { char c; double d; short s; } packed;",
    "aligned": "typedef struct __attribute__((aligned(32))) { int i; } aligned;",
    "vectors": "typedef struct { float3 f; short3 s; char2 c; ulong8 u; } vectors;",
    "nested": "typedef struct { padded p[3]; packed q; one o; } nested;",
    "joined": "typedef union { char c[5]; int i; short s[7]; } joined;",
    "large": "typedef struct { nested n[9]; uchar last; } large;",
}
LISTED = ", ".join(f"{name} {name}_" for name in TYPES)
SOURCE = "\n".join(
    (
        *TYPES.values(),
        "kernel void nothing(void) {}",
        f"kernel void take(global int *out, {LISTED}, int last) {{",
        "    out[0] = one_.c + padded_.numbers[3] + last;",
        "}",
        "kernel void other(local int *out, joined by) { out[0] = by.i; }",
        "kernel void tell(global int *out) {",
        *(f"    out[{place}] = sizeof({name});" for place, name in enumerate(TYPES)),
        "}",
    )
)


@pytest.fixture
def program(each_driver: Driver) -> cl.Program:
    platform = next(one for one in platforms() if each_driver.has(one))
    context = cl.Context([platform.devices[0].to_pyopencl()])
    return cl.Program(context, SOURCE).build()


def test_sizes_are_those_of_the_device(program: cl.Program) -> None:
    """Those of other drivers are unknown: these refuse a struct of another size."""
    queue, told = cl.CommandQueue(program.context), np.empty(len(TYPES), np.int32)
    out = cl.Buffer(program.context, cl.mem_flags.WRITE_ONLY, told.nbytes)
    cl.Kernel(program, "tell")(queue, (1,), (1,), out)
    cl.enqueue_copy(queue, told, out)
    sizes = dict(enumerate(told.tolist(), 1))
    joined = sizes[1 + list(TYPES).index("joined")]
    expected = {"take": sizes, "other": {1: joined}, "nothing": {}, "tell": {}}
    binary = program.binaries[0]
    assert find_struct_sizes(binary) == (expected if binary.startswith(b"poclbin") else {})


def test_damaged_binaries_have_sizes_or_none(program: cl.Program) -> None:
    lot, binary = Random(1), program.binaries[0]
    for _ in range(40):
        damaged = bytearray(binary[: lot.randrange(len(binary))] if lot.random() < 0.3 else binary)
        for _ in range(lot.randint(1, 20)):
            damaged[lot.randrange(len(damaged))] = lot.randrange(256)
        for rows in find_struct_sizes(bytes(damaged)).values():
            assert all(size >= 0 for size in rows.values())
