"""What adapters are given with an allocation of USM: chains of descriptors, and their checks."""

from __future__ import annotations

from typing import Any, Final

from ...loader.ur.abi import UR
from ._native import ffi
from .conversions import failure
from .rules import check_flags

#: Bytes. ur_api.h allows no more than the device's largest data type, 128 bytes. But SYCL programs
#: ask for pages, and Intel's adapters allow it.
_LARGEST_ALIGNMENT: Final = 1 << 21


def find_chained(descriptor: Any, stype: str, struct: str) -> Any:
    """Find a struct in the chain of a descriptor.

    Args:
        descriptor: a pointer to the descriptor, or None.
        stype: the name of the struct's ur_structure_type_t.
        struct: the name of its type.

    Returns:
        A pointer to it, None if the chain has none.
    """
    seen: set[int] = set()
    address = descriptor.pNext if descriptor else 0
    while address:
        base = ffi.cast("ur_base_desc_t *", address)
        if base.stype == UR[stype]:
            return ffi.cast(f"{struct} *", address)
        if base.stype in seen:  # no struct may come twice, but a chain may be a ring
            return None
        seen.add(base.stype)
        address = base.pNext
    return None


def find_memory_descriptor(descriptor: Any, kind: str) -> Any:
    """Find a struct in the chain of a ur_usm_desc_t.

    Args:
        descriptor: a pointer to it, or None.
        kind: "host", "device" or "alloc_location".
    """
    stype = f"UR_STRUCTURE_TYPE_USM_{kind.upper()}_DESC"
    return find_chained(descriptor, stype, f"ur_usm_{kind}_desc_t")


def check_alignment(align: int) -> None:
    """Raise URError (INVALID_VALUE) for an alignment that USM cannot have."""
    if align & (align - 1) or align > _LARGEST_ALIGNMENT:
        raise failure(
            "INVALID_VALUE",
            f"an alignment of {align} bytes: it is a power of two up to {_LARGEST_ALIGNMENT}",
        )


def check_descriptor(descriptor: Any) -> None:
    """Check a ur_usm_desc_t and the structs in its chain.

    Raises:
        URError: INVALID_ENUMERATION, INVALID_VALUE.
    """
    check_flags(descriptor.hints, "ur_usm_advice_flags_t")
    for kind in ("host", "device"):
        chained = find_memory_descriptor(descriptor, kind)
        if chained is not None:
            check_flags(chained.flags, f"ur_usm_{kind}_mem_flags_t")
    check_alignment(descriptor.align)
