"""Which devices and sub-devices a program sees, by three variables of the environment.

FAIRLEAD_ZE_SUB_DEVICES is how many sub-devices a device has. ZE_FLAT_DEVICE_HIERARCHY says whether
programs get devices or their sub-devices. ZE_AFFINITY_MASK names those that are visible.

(Level Zero 1.13, Core Programming Guide: Device Hierarchy, Affinity Mask.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.search import filter_environ
from ..opencl.devices import URDevice, divide
from .core import driver

COMPOSITE, FLAT, COMBINED = "COMPOSITE", "FLAT", "COMBINED"
_HIERARCHIES: Final = COMPOSITE, FLAT, COMBINED


class Visible(NamedTuple):
    """What a program sees of a device.

    Attributes:
        parts: the numbers of its sub-devices that are visible.
        by_parts: whether the program gets these sub-devices in its place.
    """

    device: int
    parts: tuple[int, ...]
    by_parts: bool = False


def read_hierarchy() -> str:
    """Return ZE_FLAT_DEVICE_HIERARCHY, COMPOSITE if it is not set."""
    found = filter_environ().get("ZE_FLAT_DEVICE_HIERARCHY", "").strip().upper()
    if found in ("", *_HIERARCHIES):
        return found or COMPOSITE
    driver.log("warning", f"ZE_FLAT_DEVICE_HIERARCHY={found} is ignored: {', '.join(_HIERARCHIES)}")
    return COMPOSITE


def read_affinity_mask() -> frozenset[str] | None:
    """Return the ordinals of ZE_AFFINITY_MASK, None if it is not set."""
    found = filter_environ().get("ZE_AFFINITY_MASK", "")
    return frozenset(word.strip() for word in found.split(",")) if found.strip() else None


def find_visible(counts: Sequence[int], order: str, mask: frozenset[str] | None) -> list[Visible]:
    """Return what a program sees of a driver's devices.

    Args:
        counts: how many sub-devices each device has.
        order: COMPOSITE, FLAT or COMBINED.
        mask: the ordinals that are visible, such as "1" and "0.2"; None for all.
    """
    found, first = [], 0
    for device, count in enumerate(counts):
        parts = tuple(range(count))
        if order == COMPOSITE:
            whole = mask is None or str(device) in mask
            parts = tuple(one for one in parts if whole or f"{device}.{one}" in (mask or ()))
            by_parts = not whole and len(parts) == 1
        else:
            names = range(first, first + max(count, 1))
            first = names.stop
            leaves = [name - names.start for name in names if mask is None or str(name) in mask]
            whole, by_parts = bool(leaves) and not count, bool(count)
            parts = tuple(leaves) if count else ()
        if whole or parts:
            found.append(Visible(device, parts, by_parts))
    return found


def make_sub_devices(device: URDevice) -> tuple[URDevice, ...]:
    """Return as many sub-devices of a device as FAIRLEAD_ZE_SUB_DEVICES asks for, or none.

    They have the same number of compute units: CPU drivers divide devices in no other way.
    """
    asked = filter_environ().get("FAIRLEAD_ZE_SUB_DEVICES", "").strip()
    if asked in ("", "0"):
        return ()
    units = device.icd.info("CL_DEVICE_MAX_COMPUTE_UNITS")
    if not asked.isdecimal() or not 1 < int(asked) <= units:
        why = f"{device.icd.name} has {units} compute units: 0 or 2 to {units} sub-devices"
        driver.log("warning", f"FAIRLEAD_ZE_SUB_DEVICES={asked} is ignored: {why}")
        return ()
    try:
        found = divide(device, (OPENCL["CL_DEVICE_PARTITION_EQUALLY"], units // int(asked), 0))
    except OpenCLError as error:
        driver.log("warning", f"{device.icd.name} cannot be divided: {error}")
        return ()
    return tuple(found[: int(asked)])
