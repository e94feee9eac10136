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


@pytest.fixture
def binary(program: cl.Program) -> bytes:
    found = program.binaries[0]
    if not found.startswith(b"poclbin"):
        assert find_struct_sizes(found) == {}
        pytest.skip("only PoCL's binaries have the sizes, and other drivers refuse wrong ones")
    return found


def test_sizes_are_those_of_the_device(program: cl.Program, binary: bytes) -> None:
    queue, told = cl.CommandQueue(program.context), np.empty(len(TYPES), np.int32)
    out = cl.Buffer(program.context, cl.mem_flags.WRITE_ONLY, told.nbytes)
    cl.Kernel(program, "tell")(queue, (1,), (1,), out)
    cl.enqueue_copy(queue, told, out)
    sizes = dict(enumerate(told.tolist(), 1))
    joined = sizes[1 + list(TYPES).index("joined")]
    found = {name: dict(rows) for name, rows in find_struct_sizes(binary).items()}
    assert found == {"take": sizes, "other": {1: joined}, "nothing": {}, "tell": {}}


def test_damaged_binaries_have_sizes_or_none(binary: bytes) -> None:
    lot = Random(1)
    for _ in range(40):
        damaged = bytearray(binary[: lot.randrange(len(binary))] if lot.random() < 0.3 else binary)
        for _ in range(lot.randint(1, 20)):
            damaged[lot.randrange(len(damaged))] = lot.randrange(256)
        for rows in find_struct_sizes(bytes(damaged)).values():
            assert all(size >= 0 for size in rows.values())
