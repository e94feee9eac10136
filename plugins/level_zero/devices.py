"""Level Zero driver: drivers and devices: each OpenCL platform is a driver, and each of its devices
is a device. Three variables of the environment say which of them a program sees.

FAIRLEAD_ZE_SUB_DEVICES is how many sub-devices a device has. ZE_FLAT_DEVICE_HIERARCHY says whether
programs get devices or their sub-devices. ZE_AFFINITY_MASK names those that are visible.

(Level Zero 1.13, Core Programming Guide: Device Hierarchy, Affinity Mask.)
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.forks import make_lock
from ...loader.base.search import filter_environ
from ...loader.ze.abi import PLATFORM_EXTENSION
from ..opencl.clocks import urDeviceGetGlobalTimestamps
from ..opencl.device_info import query_pci_numbers
from ..opencl.devices import URDevice, divide
from ..opencl.images import has_images
from ..opencl.platforms import URPlatform, platforms
from ..sdk.objects import Object
from .core import ZE, driver, make_failure, walk_chain

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


#: The largest number of 32 bits.
LARGEST: Final = 0xFFFFFFFF
_API_VERSION: Final = ZE["ZE_API_VERSION_1_13"]
#: What a mutable command can change: everything but the arguments of graphs.
MUTABLE: Final = 0x7F

#: The extensions, and their versions.
EXTENSIONS: Final = {
    "ZE_MUTABLE_COMMAND_LIST_EXP_NAME": "ZE_MUTABLE_COMMAND_LIST_EXP_VERSION_1_1",
    "ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME": (
        "ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_VERSION_1_0"
    ),
    "ZE_COMMAND_LIST_CLONE_EXP_NAME": "ZE_COMMAND_LIST_CLONE_EXP_VERSION_1_0",
    "ZE_GLOBAL_OFFSET_EXP_NAME": "ZE_GLOBAL_OFFSET_EXP_VERSION_1_0",
    "ZE_MODULE_PROGRAM_EXP_NAME": "ZE_MODULE_PROGRAM_EXP_VERSION_1_0",
    "ZE_LINKAGE_INSPECTION_EXT_NAME": "ZE_LINKAGE_INSPECTION_EXT_VERSION_1_0",
    "ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME": "ZE_EVENT_POOL_COUNTER_BASED_EXP_VERSION_1_0",
    "ZE_DEVICE_VECTOR_SIZES_EXT_NAME": "ZE_DEVICE_VECTOR_SIZES_EXT_VERSION_1_0",
    "ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME": (
        "ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_VERSION_1_0"
    ),
    "ZE_IMAGE_COPY_EXT_NAME": "ZE_IMAGE_COPY_EXT_VERSION_1_0",
    "ZE_IMAGE_FORMAT_SUPPORT_EXT_NAME": "ZE_IMAGE_FORMAT_SUPPORT_EXT_VERSION_1_0",
    "ZE_IMAGE_MEMORY_PROPERTIES_EXP_NAME": "ZE_IMAGE_MEMORY_PROPERTIES_EXP_VERSION_1_0",
    "ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_NAME": ("ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_VERSION_1_0"),
    "ZE_MEMORY_FREE_POLICIES_EXT_NAME": "ZE_MEMORY_FREE_POLICIES_EXT_VERSION_1_0",
    "ZE_RECORD_REPLAY_GRAPH_EXT_NAME": "ZE_RECORD_REPLAY_GRAPH_EXT_VERSION_1_0",
}
#: Those of drivers whose images can have views.
VIEWS: Final = {
    f"ZE_IMAGE_VIEW_{end}_NAME": f"ZE_IMAGE_VIEW_{end}_VERSION_1_0" for end in ("EXT", "EXP")
}
#: Those of drivers that tell a device's PCI address.
PCI: Final = {"ZE_PCI_PROPERTIES_EXT_NAME": "ZE_PCI_PROPERTIES_EXT_VERSION_1_0"}
#: The extension of fairlead that says that OpenCL C text is a native format of modules.
OPENCL_C_MODULES: Final = "ZE_fairlead_opencl_c_modules"


@driver.kind
class ZePlatform(Object):
    """A driver of Level Zero: an OpenCL platform. It lives as long as the process."""

    type, counted = "ze_driver_handle_t", False

    def __init__(self, platform: URPlatform) -> None:
        self.ur = platform
        self.devices = tuple(self._list_visible_devices())
        self.default_context: Any = None

    def _list_visible_devices(self) -> Iterator[ZeDevice]:
        """Yield the devices that zeDeviceGet lists."""
        divided, order = [(one, make_sub_devices(one)) for one in self.ur.devices], read_hierarchy()
        counts = [len(parts) for _, parts in divided]
        for number, shown, by_parts in find_visible(counts, order, read_affinity_mask()):
            device, parts = divided[number]
            whole = ZeDevice(device, self, (number,), parts)
            root = None if by_parts and order != COMBINED else whole
            whole.parts = tuple(
                ZeDevice(parts[part], self, (number, part), parts, root) for part in shown
            )
            yield from whole.parts if by_parts else (whole,)

    @property
    def all_devices(self) -> tuple[ZeDevice, ...]:
        """Return the devices, their sub-devices, and the devices that they are parts of."""
        parts = (part for device in self.devices for part in device.parts)
        roots = (device.root for device in self.devices if device.root is not None)
        return tuple(dict.fromkeys((*self.devices, *parts, *roots)))


@driver.kind
class ZeDevice(Object):
    """A device or a sub-device. It lives as long as its driver.

    Args:
        device: the device of the reference adapter.
        place: its number in the driver. A sub-device also has its number in the device.
        siblings: all that the device, or the device that it is a part of, is divided into.
        root: the device that it is a part of, if programs may know that.

    Attributes:
        parts: its sub-devices that programs see.
    """

    type, counted = "ze_device_handle_t", False

    def __init__(
        self,
        device: URDevice,
        platform: ZePlatform,
        place: tuple[int, ...],
        siblings: tuple[URDevice, ...] = (),
        root: ZeDevice | None = None,
    ) -> None:
        self.ur, self.platform, self.place, self.root = device, platform, place, root
        self.family = (device.root, *siblings)
        self.parts: tuple[ZeDevice, ...] = ()

    def is_part_of(self, other: ZeDevice) -> bool:
        """Return whether the device is another device or a part of that."""
        return self.ur.is_part_of(other.ur)

    @property
    def has_images(self) -> bool:
        """Return whether the device has images, and its queues can move them."""
        profile = self.platform.ur.profile
        crashes = profile.transfers_images_on_whole_devices and self.ur.parent is not None
        return has_images(self.ur) and not crashes

    @property
    def has_images_of_buffers(self) -> bool:
        """Return whether the device's images may be of buffers."""
        return self.has_images and not self.platform.ur.profile.images_of_buffers_crash

    @cached_property
    def pitch_alignment(self) -> int:
        """Return the number of pixels of which a 2D image of a buffer has a multiple in a row.

        It is 0 for a device without such images.
        """
        return self.query_number("CL_DEVICE_IMAGE_PITCH_ALIGNMENT") if self.has_images else 0

    @property
    def has_image_views(self) -> bool:
        """Return whether some of its images can have views: those that are of buffers."""
        return bool(self.pitch_alignment) or self.has_images_of_buffers

    def query_number(self, name: str, otherwise: int = 0) -> int:
        """Return the answer to a query of OpenCL, `otherwise` if the driver has none."""
        try:
            value = self.ur.icd.info(name)
        except OpenCLError:
            return otherwise
        return int(value) if isinstance(value, int) else otherwise

    @cached_property
    def group_limits(self) -> tuple[int, ...]:
        """Return the most work-items of a work-group in each of the three dimensions."""
        return tuple(self.ur.icd.info("CL_DEVICE_MAX_WORK_ITEM_SIZES"))[:3]

    @cached_property
    def sub_group_sizes(self) -> tuple[int, ...]:
        """Return the sizes of sub-groups, at least one."""
        if "cl_intel_required_subgroup_size" in self.ur.icd.extensions:
            try:
                sizes = self.ur.icd.info("CL_DEVICE_SUB_GROUP_SIZES_INTEL")
            except OpenCLError:
                sizes = ()
            if isinstance(sizes, bytes):
                sizes = tuple(
                    int.from_bytes(sizes[i : i + 8], "little") for i in range(0, len(sizes), 8)
                )
            if isinstance(sizes, tuple) and sizes:
                return tuple(map(int, sizes))[:8]
        return (1,)

    @property
    def uuid(self) -> bytes:
        """Return 16 bytes that are the same in every process, and differ between devices."""
        icd = self.ur.icd
        place = ".".join(map(str, self.place))
        text = f"{icd.platform.name}\n{icd.platform.version}\n{icd.name}\n{place}"
        return hashlib.sha256(text.encode()).digest()[:16]


_lock = make_lock()
_found: list[ZePlatform] = []


def list_platforms() -> Sequence[ZePlatform]:
    """Return all drivers. The first call opens the OpenCL drivers."""
    with _lock:
        if not _found:
            found = [ZePlatform(one) for one in platforms() if one.devices]
            _found.extend(one for one in found if one.devices)
            driver.at_exit()
        return tuple(_found)


@driver.entry
def zeInit(flags: int) -> None:
    if not list_platforms():
        raise make_failure(
            "UNINITIALIZED",
            "no OpenCL driver can be used, or ZE_AFFINITY_MASK hides all devices; "
            "`fairlead doctor` says why",
        )


@driver.entry
def zeInitDrivers(desc: Any) -> Sequence[ZePlatform]:
    if not desc.flags & ZE["ZE_INIT_DRIVER_TYPE_FLAG_GPU"]:
        raise make_failure("UNINITIALIZED", "there are no drivers but of GPUs")
    zeInit(0)
    return list_platforms()


@driver.entry
def zeDriverGetProperties(hDriver: ZePlatform, pDriverProperties: Any) -> None:
    identity = f"fairlead\n{hDriver.ur.icd.name}\n{hDriver.ur.icd.version}"
    pDriverProperties.uuid.id = hashlib.sha256(identity.encode()).digest()[:16]
    pDriverProperties.driverVersion = 1
    for _, address in walk_chain(pDriverProperties.pNext):
        del address  # no extension of these properties is known


@driver.entry
def zeDriverGetIpcProperties(hDriver: ZePlatform, pIpcProperties: Any) -> None:
    pIpcProperties.flags = 0


def list_structs(pCount: Any, rows: Any, fills: Sequence[Callable[[Any], None]]) -> None:
    """Fill as many structs as there is room for, and say how many there are.

    Args:
        pCount: the room; where the number is written.
        rows: the structs, None to ask for their number.
        fills: what fills each of them.
    """
    room = pCount[0]
    if rows is None or not room or room > len(fills):
        pCount[0] = len(fills)
    if rows is not None:
        for index, fill in enumerate(fills[:room]):
            fill(rows[index])


@driver.entry
def zeDriverGetExtensionProperties(
    hDriver: ZePlatform, pCount: Any, pExtensionProperties: Any
) -> None:
    def make_filler(name: str, version: int) -> Callable[[Any], None]:
        def fill(row: Any) -> None:
            row.name = name.encode()[: ZE["ZE_MAX_EXTENSION_NAME"] - 1]
            row.version = version

        return fill

    has_views = any(device.has_image_views for device in hDriver.devices)
    has_pci = any(query_pci_numbers(device.ur) for device in hDriver.devices)
    listed = {**EXTENSIONS, **(VIEWS if has_views else {}), **(PCI if has_pci else {})}
    found = {ZE.strings[name]: ZE[version] for name, version in listed.items()}
    own = dict.fromkeys((OPENCL_C_MODULES, PLATFORM_EXTENSION + hDriver.ur.icd.name), 1 << 16)
    list_structs(
        pCount, pExtensionProperties, [make_filler(*pair) for pair in {**found, **own}.items()]
    )


@driver.entry
def zeDriverGetExtensionFunctionAddress(hDriver: ZePlatform, name: str) -> int:
    from ..sdk.ze.start import find_entry

    found = find_entry(driver, name)
    if not found:
        raise make_failure("UNSUPPORTED_FEATURE", f"there is no function {name}")
    return found


@driver.entry
def zeDriverGetLastErrorDescription(hDriver: ZePlatform, ppString: Any) -> None:
    ppString[0] = driver.last_message


# devices


@driver.entry
def zeDeviceGet(hDriver: ZePlatform) -> Sequence[ZeDevice]:
    return hDriver.devices


@driver.entry
def zeDeviceGetRootDevice(hDevice: ZeDevice, phRootDevice: Any) -> None:
    root = hDevice.root
    phRootDevice[0] = driver.objects.show(root) if root is not None else 0


@driver.entry
def zeDeviceGetP2PProperties(hDevice: ZeDevice, hPeerDevice: ZeDevice, pP2PProperties: Any) -> None:
    pP2PProperties.flags = 0


@driver.entry
def zeDeviceGetStatus(hDevice: ZeDevice) -> None:
    pass


def read_clocks(device: ZeDevice) -> tuple[int, int]:
    """Return the host's time (time.monotonic_ns) and the OpenCL driver's, which events have."""
    own, _ = urDeviceGetGlobalTimestamps(device.ur)
    return time.monotonic_ns(), own


driver.declare(
    zeDriverGet=lambda: list_platforms(),
    zeDriverGetApiVersion=lambda hDriver: _API_VERSION,
    zeDeviceGetSubDevices=lambda hDevice: hDevice.parts,
    zeDeviceCanAccessPeer=lambda hDevice, hPeerDevice: hDevice.ur.root is hPeerDevice.ur.root,
    zeDeviceGetGlobalTimestamps=lambda hDevice: read_clocks(hDevice),
)
