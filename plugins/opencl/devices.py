"""Devices: the root devices of a platform, which live as long as it does, and sub-devices, which are counted."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import new_lock
from ...loader.base.query import handles as ask_handles
from ...loader.ur.abi import UR
from ..sdk._native import ffi
from .core import CLObject, adapter, check, check_count, failure, icd, query, retain_unless_owned
from .platforms import URPlatform, driver_of, platform_of, platforms

_lock = new_lock()
_roots: Final[dict[URPlatform, tuple[URDevice, ...]]] = {}
_parts: Final[weakref.WeakValueDictionary[int, URDevice]] = (
    weakref.WeakValueDictionary()
)  # sub-devices that are alive


@adapter.kind
class URDevice(CLObject):
    """A cl_device_id. `parent` is the device that a sub-device is a part of; only sub-devices are counted, in OpenCL too."""

    type = "ur_device_handle_t"
    release, retain_function = "clReleaseDevice", "clRetainDevice"

    def __init__(self, cl: int, platform: URPlatform, parent: URDevice | None = None) -> None:
        super().__init__(cl, platform.table, owned=parent is not None)
        self.platform, self.parent, self.counted = platform, parent, parent is not None
        self.icd = icd.Device(cl, platform.icd)
        if parent is not None:
            _parts[cl] = self

    def close(self) -> None:
        if self.parent is not None:
            _parts.pop(self.cl, None)  # before the driver can give the handle to another
        super().close()

    def is_part_of(self, device: URDevice) -> bool:
        """Whether it is that device, or a sub-device of it, however deep."""
        part: URDevice | None = self
        while part is not None and part is not device:
            part = part.parent
        return part is not None

    def has(self, version: tuple[int, int], extension: str = "") -> bool:
        """Whether it has what came with a version of OpenCL, or with an extension before that."""
        return self.icd.version_number >= version or (
            bool(extension) and extension in self.icd.extensions
        )


def devices_of(platform: URPlatform) -> tuple[URDevice, ...]:
    """The root devices of a platform, always the same objects. Custom devices, which OpenCL leaves out of "all", come last."""
    with _lock:
        if platform not in _roots:
            found = [device.handle for device in platform.icd.devices]
            found += [
                handle
                for handle in _asked(platform, "CL_DEVICE_TYPE_CUSTOM")
                if handle not in found
            ]
            _roots[platform] = tuple(URDevice(handle, platform) for handle in found)
        return _roots[platform]


def _asked(platform: URPlatform, kind: str) -> list[int]:
    """The driver's devices of one type; a driver that knows no such type has none of it."""

    def check_found(code: int, routine: str, detail: str) -> None:
        if code not in (
            OPENCL.codes["CL_DEVICE_NOT_FOUND"],
            OPENCL.codes["CL_INVALID_DEVICE_TYPE"],
        ):
            check(code, routine, detail)

    return ask_handles(
        platform.table.clGetDeviceIDs, "clGetDeviceIDs", check_found, platform.cl, OPENCL[kind]
    )


def device_of(native: int) -> URDevice:
    """The device of a cl_device_id: a root device, or a sub-device that is alive. Raises URError (INVALID_DEVICE)."""
    device = _known(native)
    if device is None:
        raise failure(
            "INVALID_DEVICE", "the handle is no device of a driver that fairlead has found"
        )
    return device


def _known(native: int) -> URDevice | None:
    roots = (
        device for platform in platforms() for device in devices_of(platform) if device.cl == native
    )
    return _parts.get(native) or next(roots, None)


#: The bits of CL_DEVICE_TYPE for a ur_device_type_t. OpenCL calls every accelerator by one name.
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


@adapter.entry
def urDeviceGet(hPlatform: URPlatform, DeviceType: int) -> list[URDevice]:
    devices = list(devices_of(hPlatform))
    if DeviceType == UR["UR_DEVICE_TYPE_ALL"]:
        return devices
    found = _asked(hPlatform, _ASKED[DeviceType])
    return [device for device in devices if device.cl in found]


@adapter.entry
def urDeviceGetNativeHandle(hDevice: URDevice) -> int:
    return hDevice.cl


@adapter.entry
def urDeviceCreateWithNativeHandle(hNativeDevice: int, pProperties: Any) -> URDevice:
    if not hNativeDevice:
        raise failure("INVALID_NULL_HANDLE")
    with _lock:
        return _known_or_new(hNativeDevice, bool(pProperties and pProperties.isNativeHandleOwned))


def _known_or_new(native: int, owned: bool) -> URDevice:
    """The device of a cl_device_id, which may be a sub-device that the program has made in OpenCL itself."""
    device = _known(native)
    if device is None:
        return _from_native(native, owned)
    if owned and device.parent is not None:
        check(
            device.table.clReleaseDevice(native), "clReleaseDevice"
        )  # we have a reference of our own already
    return device


def _from_native(native: int, owned: bool) -> URDevice:
    table = driver_of(native).table

    def ask(name: str) -> int:
        return int.from_bytes(query(table, "clGetDeviceInfo", native, OPENCL[name]), "little")

    parent = ask("CL_DEVICE_PARENT_DEVICE")
    if not parent:
        raise failure(
            "INVALID_DEVICE", "the handle is a root device, but none that its platform names"
        )
    whole = _known_or_new(parent, owned=False)
    retain_unless_owned(URDevice, native, table, owned)
    return URDevice(native, platform_of(ask("CL_DEVICE_PLATFORM")), whole)


# sub-devices

_PARTITIONS: Final = {
    UR["UR_DEVICE_PARTITION_EQUALLY"]: ("CL_DEVICE_PARTITION_EQUALLY", "equally"),
    UR["UR_DEVICE_PARTITION_BY_COUNTS"]: ("CL_DEVICE_PARTITION_BY_COUNTS", "count"),
    UR["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"]: (
        "CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN",
        "affinity_domain",
    ),
}

#: The sub-devices that are alive, by the device and how it was divided: the same request has the same answer.
_divided: Final[weakref.WeakValueDictionary[tuple[int, tuple[int, ...], int], URDevice]] = (
    weakref.WeakValueDictionary()
)


@adapter.entry
def urDevicePartition(hDevice: URDevice, pProperties: Any, NumDevices: int) -> Sequence[Any]:
    wanted = _partition(pProperties)
    properties = (ctypes.c_ssize_t * len(wanted))(*wanted)
    count = ctypes.c_uint32()
    divide = hDevice.table.clCreateSubDevices
    check(divide(hDevice.cl, properties, 0, None, ctypes.byref(count)), "clCreateSubDevices")
    if not NumDevices:
        return range(count.value)  # only their number is asked for
    keys = [(hDevice.cl, wanted, index) for index in range(count.value)]
    parts = [_divided.get(key) for key in keys]
    if None in parts:
        made = (ctypes.c_void_p * count.value)()
        check(divide(hDevice.cl, properties, count.value, made, None), "clCreateSubDevices")
        parts = [URDevice(cl or 0, hDevice.platform, hDevice) for cl in made]
        _divided.update(zip(keys, parts, strict=True))
    return parts


def _partition(properties: Any) -> tuple[int, ...]:
    """A ur_device_partition_properties_t as the list that OpenCL takes. Raises URError."""
    if not properties.pProperties:
        raise failure("INVALID_NULL_POINTER", "pProperties->pProperties")
    check_count(properties.PropCount, "INVALID_VALUE", "properties")
    asked = [properties.pProperties[index] for index in range(properties.PropCount)]
    if not asked or len({item.type for item in asked}) > 1:
        raise failure("INVALID_VALUE", "a device is divided in one way at a time")
    kind = asked[0].type
    if kind not in _PARTITIONS:
        raise failure("INVALID_VALUE", "OpenCL does not divide devices in this way")
    name, field = _PARTITIONS[kind]
    by_counts = name == "CL_DEVICE_PARTITION_BY_COUNTS"
    if len(asked) > 1 and not by_counts:
        raise failure("INVALID_VALUE", "only a partition by counts has several properties")
    values = [getattr(item.value, field) for item in asked]
    if 0 in values:  # it would end OpenCL's list of counts, and drivers divide by the other one
        raise failure("INVALID_DEVICE_PARTITION_COUNT", "no sub-device has no compute units")
    return (OPENCL[name], *values, *([0] if by_counts else []), 0)


# binaries

_SPIRV: Final = {64: "spir64", 32: "spir"}


def takes_spirv(device: URDevice) -> bool:
    """Whether programs for it can be made of SPIR-V."""
    return device.has((2, 1), "cl_khr_il_program") and "SPIR-V" in device.icd.info(
        "CL_DEVICE_IL_VERSION"
    )


def takes_specialization_constants(device: URDevice) -> bool:
    """Whether programs of SPIR-V for it can be given values of specialization constants."""
    return takes_spirv(device) and device.has((2, 2))


def targets(device: URDevice) -> list[str]:
    """What a program's binary for the device may have been made for, the best first."""
    compiled = device.platform.profile.binary_targets.get(device.icd.type)
    found = [compiled] if compiled else []
    if takes_spirv(device):
        found.append(_SPIRV[device.icd.info("CL_DEVICE_ADDRESS_BITS")])
    return found


@adapter.entry
def urDeviceSelectBinary(hDevice: URDevice, pBinaries: Any, NumBinaries: int) -> int:
    if not NumBinaries:
        raise failure("INVALID_SIZE", "there is no binary to select from")
    check_count(NumBinaries, "INVALID_SIZE", "binaries")
    specs = [_text(pBinaries[index].pDeviceTargetSpec) for index in range(NumBinaries)]
    for target in targets(hDevice):
        if target in specs:
            return specs.index(target)
    raise failure(
        "INVALID_BINARY",
        f"the device takes {' and '.join(targets(hDevice)) or 'none'}, not {', '.join(specs)}",
    )


def _text(pointer: Any) -> str:
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


from . import device_info  # noqa: E402, F401  # urDeviceGetInfo
