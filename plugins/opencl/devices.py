"""Devices of the OpenCL adapter. Root devices live as long as their platform. Sub-devices are
counted.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import make_lock
from ...loader.base.query import query_handles
from ...loader.ur.abi import UR
from ..sdk._native import ffi
from ..sdk.answers import make_answers
from ..sdk.conversions import is_owned
from ..sdk.platforms import declare_devices
from .core import (
    CLObject,
    adapter,
    check,
    failure,
    get_address,
    icd,
    query_number,
    retain_unless_owned,
)
from .platforms import URPlatform, get_driver, get_platform, platforms

_lock = make_lock()
_roots: Final[dict[URPlatform, tuple[URDevice, ...]]] = {}
#: The sub-devices that are alive, by their handles.
_parts: Final[weakref.WeakValueDictionary[int, URDevice]] = weakref.WeakValueDictionary()


@adapter.kind
class URDevice(CLObject):
    """A cl_device_id.

    Args:
        parent: the device that a sub-device is a part of. Only sub-devices are counted, as in
            OpenCL.
    """

    type = "ur_device_handle_t"
    release, retain_function = "clReleaseDevice", "clRetainDevice"

    def __init__(self, cl: int, platform: URPlatform, parent: URDevice | None = None) -> None:
        super().__init__(cl, platform.table, owned=parent is not None)
        self.platform, self.parent, self.counted = platform, parent, parent is not None
        self.icd = icd.Device(cl, platform.icd)
        self.answers = make_answers()
        self.memory = ffi.new("fl_device_memory *")  # what C knows of it
        if parent is not None:
            _parts[cl] = self

    def describe_to_c(self) -> tuple[int, int, int, int]:
        memory = get_address(self.memory) if self.parent is None else 0
        return self.cl, get_address(self.platform.struct), memory, get_address(self.answers)

    def close(self) -> None:
        if self.parent is not None:
            _parts.pop(self.cl, None)  # before the driver can use the handle again
        super().close()

    @property
    def root(self) -> URDevice:
        """Return the root device that the device is a part of, or itself."""
        return self if self.parent is None else self.parent.root

    def is_part_of(self, device: URDevice) -> bool:
        """Return whether the device is another one, or a sub-device of that at any depth."""
        part: URDevice | None = self
        while part is not None and part is not device:
            part = part.parent
        return part is not None

    def has(self, version: tuple[int, int], extension: str = "") -> bool:
        """Return whether the device has a feature.

        Args:
            version: the version of OpenCL that has the feature.
            extension: the extension that had it before.
        """
        return self.icd.version_number >= version or (
            bool(extension) and extension in self.icd.extensions
        )


def list_devices(platform: URPlatform) -> tuple[URDevice, ...]:
    """Return the root devices of a platform, always the same objects.

    Custom devices come last, because OpenCL's "all" does not have them.
    """
    with _lock:
        if platform not in _roots:
            found = [device.handle for device in platform.icd.devices]
            custom = _find_devices(platform, "CL_DEVICE_TYPE_CUSTOM")
            found += [handle for handle in custom if handle not in found]
            _roots[platform] = tuple(URDevice(handle, platform) for handle in found)
        return _roots[platform]


_NO_DEVICE: Final = {OPENCL.codes[f"CL_{n}"] for n in ("DEVICE_NOT_FOUND", "INVALID_DEVICE_TYPE")}


def _find_devices(platform: URPlatform, kind: str) -> list[int]:
    """Ask the driver for its devices of a type. A driver may not know the type."""

    def check_found(code: int, routine: str, detail: str) -> None:
        if code not in _NO_DEVICE:
            check(code, routine, detail)

    return query_handles(
        platform.table.clGetDeviceIDs, "clGetDeviceIDs", check_found, platform.cl, OPENCL[kind]
    )


def get_device(native: int) -> URDevice:
    """Return the device of a cl_device_id: a root device, or a sub-device that is alive.

    Raises:
        URError: INVALID_DEVICE if there is no such device.
    """
    device = _find_known(native)
    if device is None:
        raise failure(
            "INVALID_DEVICE", "the handle is not a device of a driver that fairlead has found"
        )
    return device


def _find_known(native: int) -> URDevice | None:
    roots = (device for platform in platforms() for device in list_devices(platform))
    part = _parts.get(native)
    if part is not None and not part.is_closed:  # a finalizer may be running
        return part
    return next((root for root in roots if root.cl == native), None)


#: The bits of CL_DEVICE_TYPE for a ur_device_type_t. OpenCL has one name for all accelerators.
TYPES: Final = {
    "UR_DEVICE_TYPE_GPU": "CL_DEVICE_TYPE_GPU",
    "UR_DEVICE_TYPE_CPU": "CL_DEVICE_TYPE_CPU",
    "UR_DEVICE_TYPE_FPGA": "CL_DEVICE_TYPE_ACCELERATOR",
    "UR_DEVICE_TYPE_MCA": "CL_DEVICE_TYPE_ACCELERATOR",
    "UR_DEVICE_TYPE_VPU": "CL_DEVICE_TYPE_ACCELERATOR",
    "UR_DEVICE_TYPE_CUSTOM": "CL_DEVICE_TYPE_CUSTOM",
}
_ASKED: Final = {
    UR[name]: opencl
    for name, opencl in {**TYPES, "UR_DEVICE_TYPE_DEFAULT": "CL_DEVICE_TYPE_DEFAULT"}.items()
}


def _find_of_type(platform: URPlatform, kind: int) -> Sequence[URDevice]:
    devices = list_devices(platform)
    if kind == UR["UR_DEVICE_TYPE_ALL"]:
        return devices
    found = _find_devices(platform, _ASKED[kind])
    return [device for device in devices if device.cl in found]


def _take_native(native: int, properties: Any) -> URDevice | None:
    with _lock:
        return _get_or_make(native, properties) if native else None


def _get_or_make(native: int, properties: Any) -> URDevice:
    """Return the device of a cl_device_id, which may be a sub-device that the program has made."""
    device = _find_known(native)
    if device is None:
        return _make_from_native(native, properties)
    # We have a reference already, so one that is given to us is released.
    if device.parent is not None and is_owned(properties):
        check(device.table.clReleaseDevice(native), "clReleaseDevice")
    return device


def _make_from_native(native: int, properties: Any) -> URDevice:
    table = get_driver(native).table
    ask = partial(query_number, table, "clGetDeviceInfo", native)
    parent = ask("CL_DEVICE_PARENT_DEVICE")
    if not parent:
        raise failure(
            "INVALID_DEVICE", "the handle is a root device that its platform does not name"
        )
    whole = _get_or_make(parent, None)
    retain_unless_owned(URDevice, native, table, properties)
    return URDevice(native, get_platform(ask("CL_DEVICE_PLATFORM")), whole)


# sub-devices

_PARTITIONS: Final = {
    UR["UR_DEVICE_PARTITION_EQUALLY"]: ("CL_DEVICE_PARTITION_EQUALLY", "equally"),
    UR["UR_DEVICE_PARTITION_BY_COUNTS"]: ("CL_DEVICE_PARTITION_BY_COUNTS", "count"),
    UR["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"]: (
        "CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN",
        "affinity_domain",
    ),
}

#: The sub-devices that are alive, by the device and how it was divided. So the same request has the
#: same answer.
_divided: Final[weakref.WeakValueDictionary[tuple[int, tuple[int, ...], int], URDevice]] = (
    weakref.WeakValueDictionary()
)


def _divide(device: URDevice, asked: list[Any], room: int) -> Sequence[Any]:
    wanted = _convert_partition(asked)
    return divide(device, wanted) if room else range(_count_parts(device, wanted))


def _count_parts(device: URDevice, wanted: tuple[int, ...]) -> int:
    count, properties = ctypes.c_uint32(), (ctypes.c_ssize_t * len(wanted))(*wanted)
    code = device.table.clCreateSubDevices(device.cl, properties, 0, None, ctypes.byref(count))
    check(code, "clCreateSubDevices")
    return count.value


def divide(device: URDevice, wanted: tuple[int, ...]) -> list[URDevice]:
    """Divide a device. While its sub-devices live, the same request has the same answer.

    Args:
        wanted: the properties of clCreateSubDevices, with the 0 at their end.
    """
    keys = [(device.cl, wanted, index) for index in range(_count_parts(device, wanted))]
    with _lock:
        known = map(_divided.get, keys)
        parts = [part for part in known if part is not None and not part.is_closed]
        if len(parts) < len(keys):
            properties = (ctypes.c_ssize_t * len(wanted))(*wanted)
            made = (ctypes.c_void_p * len(keys))()
            code = device.table.clCreateSubDevices(device.cl, properties, len(keys), made, None)
            check(code, "clCreateSubDevices")
            parts = [URDevice(cl or 0, device.platform, device) for cl in made]
            _divided.update(zip(keys, parts, strict=True))
    return parts


def _convert_partition(asked: list[Any]) -> tuple[int, ...]:
    """Return ur_device_partition_property_t as the list that OpenCL takes. Raises URError."""
    kind = asked[0].type
    if kind not in _PARTITIONS:
        raise failure("INVALID_VALUE", "OpenCL does not divide devices by this type")
    name, field = _PARTITIONS[kind]
    by_counts = name == "CL_DEVICE_PARTITION_BY_COUNTS"
    if len(asked) > 1 and not by_counts:
        raise failure("INVALID_VALUE", "only a partition by counts has several properties")
    values = [getattr(item.value, field) for item in asked]
    if 0 in values:  # it would end OpenCL's list of counts, and drivers would use those before it
        raise failure("INVALID_DEVICE_PARTITION_COUNT", "a sub-device has 1 compute unit at least")
    return (OPENCL[name], *values, *([0] if by_counts else []), 0)


# binaries

_SPIRV: Final = {64: "spir64", 32: "spir"}


def can_take_spirv(device: URDevice) -> bool:
    """Return whether programs for a device can be made of SPIR-V."""
    return device.has((2, 1), "cl_khr_il_program") and "SPIR-V" in device.icd.info(
        "CL_DEVICE_IL_VERSION"
    )


def can_take_specialization_constants(device: URDevice) -> bool:
    """Return whether programs of SPIR-V for a device take specialization constants."""
    return can_take_spirv(device) and device.has((2, 2))


def list_binary_targets(device: URDevice) -> list[str]:
    """Return the targets of binaries that a device takes, the best first."""
    compiled = device.platform.profile.binary_targets.get(device.icd.type)
    found = [compiled] if compiled else []
    if can_take_spirv(device):
        found.append(_SPIRV[device.icd.info("CL_DEVICE_ADDRESS_BITS")])
    return found


declare_devices(
    adapter,
    find=_find_of_type,
    take_native=_take_native,
    divide=_divide,
    list_targets=list_binary_targets,
)
