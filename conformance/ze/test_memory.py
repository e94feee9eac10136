"""Memory by address: allocated, described, freed."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

import pytest

from fairlead.conformance.checks import each, equal, rule
from fairlead.conformance.ze.calls import ZECalls, new
from fairlead.conformance.ze.objects import ZEObjects
from fairlead.loader.ze.abi import ZE

KINDS = ("Host", "Device", "Shared")


def allocate(ze: ZECalls, make: ZEObjects, kind: str, size: int, alignment: int = 0) -> int:
    """Allocate memory of a kind. Returns its address; sizes are in bytes."""
    host, device = new("ze_host_mem_alloc_desc_t"), new("ze_device_mem_alloc_desc_t")
    descs: dict[str, tuple[Any, ...]] = {
        "Host": (byref(host),),
        "Device": (byref(device),),
        "Shared": (byref(device), byref(host)),
    }
    after = () if kind == "Host" else (make.device,)
    address = ze.create(f"zeMemAlloc{kind}", make.context, *descs[kind], size, alignment, *after)
    make.defer(lambda: ze.number("zeMemFree", make.context, address))
    return address


@pytest.mark.parametrize("kind", each(KINDS, "zeMemAlloc{}", "memory has its alignment"))
def test_alignment(kind: str, ze: ZECalls, make: ZEObjects) -> None:
    for alignment in (1, 8, 64, 4096):
        equal(allocate(ze, make, kind, 100, alignment) % alignment, 0, f"modulo {alignment}")


@pytest.mark.parametrize("kind", each(KINDS, "zeMemGetAllocProperties", "knows {} memory"))
def test_properties(kind: str, ze: ZECalls, make: ZEObjects) -> None:
    address, row = allocate(ze, make, kind, 100), new("ze_memory_allocation_properties_t")
    ze.ok("zeMemGetAllocProperties", make.context, address + 99, row)
    equal(row.type, ZE[f"ZE_MEMORY_TYPE_{kind.upper()}"], "the type")


@rule("zeMemGetAllocProperties", "says of other memory that it is unknown")
def test_unknown(ze: ZECalls, make: ZEObjects) -> None:
    own, row = ctypes.create_string_buffer(64), new("ze_memory_allocation_properties_t")
    ze.ok("zeMemGetAllocProperties", make.context, ctypes.addressof(own), row)
    equal(row.type, ZE["ZE_MEMORY_TYPE_UNKNOWN"], "the type")


@rule("zeMemGetAddressRange", "gives the whole allocation")
def test_range(ze: ZECalls, make: ZEObjects) -> None:
    address = allocate(ze, make, "Device", 256)
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    ze.ok("zeMemGetAddressRange", make.context, address + 100, base, size)
    equal(base.value, address, "the base")
    equal(size.value >= 256, True, "whether it has the size")


@rule("zeMemAllocDevice", "refuses a size of 0")
def test_refused(ze: ZECalls, make: ZEObjects) -> None:
    desc, out = new("ze_device_mem_alloc_desc_t"), ctypes.c_void_p()
    ask, end = ("zeMemAllocDevice", make.context, byref(desc)), (make.device, byref(out))
    ze.refuses("UNSUPPORTED_SIZE", *ask, 0, 8, *end)


@rule("zeMemFree", "refuses NULL")
def test_free_null(ze: ZECalls, make: ZEObjects) -> None:
    ze.refuses("INVALID_NULL_POINTER", "zeMemFree", make.context, None)
    ze.refuses("INVALID_NULL_HANDLE", "zeMemFree", None, 64)
