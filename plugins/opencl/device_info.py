"""urDeviceGetInfo of the OpenCL adapter: answers by the tables of device_tables.py, and by
`FUNCTIONS`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.query import decode_text
from ...loader.ur.abi import UR
from ..sdk.capability_properties import CAPABILITY_PROPERTIES
from .core import adapter
from .device_tables import BITS, FIXED, LATER, PLAIN, VALUES
from .devices import TYPES, URDevice, can_take_specialization_constants


def translate_flags(value: int, kind: str) -> int:
    """Return OpenCL's flags as those of Unified Runtime's type `kind`."""
    result = 0
    for name, names in BITS[kind].items():
        if value & OPENCL[name]:
            for flag in names:
                result |= UR[flag]
    return result


def _ask(device: URDevice, name: str) -> bytes | None:
    """Return the driver's answer, None if it does not know the property.

    Not every driver knows all properties of its version.
    """
    try:
        return device.query(f"CL_DEVICE_{name}")
    except OpenCLError as error:
        if error.code == "CL_INVALID_VALUE":
            return None
        raise


def _query_number(device: URDevice, name: str) -> int:
    return int.from_bytes(_ask(device, name) or b"", "little")


def _decode_numbers(data: bytes | None, size: str = "N") -> list[int]:
    return [number for (number,) in struct.iter_unpack(f"@{size}", data or b"")]


def _find_converter(answer: str) -> Callable[[bytes], Any]:
    """Return the function that makes a value of OpenCL's bytes for a type of Unified Runtime."""
    if answer == "char[]":
        return decode_text
    if answer == "uint8_t[]":
        return bytes
    if answer == "size_t[]":
        return _decode_numbers
    if answer == "ur_bool_t":
        return any
    if answer in BITS:
        return lambda data: translate_flags(int.from_bytes(data, "little"), answer)
    if answer in VALUES:
        values = {OPENCL[name]: UR[value] for name, value in VALUES[answer].items()}
        return lambda data: values.get(int.from_bytes(data, "little"))
    return lambda data: int.from_bytes(data, "little")


def _query(name: str, opencl: str) -> Callable[[URDevice], Any]:
    convert = _find_converter(UR.constants[f"UR_DEVICE_INFO_{name}"].answer)

    def answer(device: URDevice) -> Any:
        data = _ask(device, opencl)
        return None if data is None else convert(data)

    return answer


def _make_later_query(
    name: str, opencl: str, version: tuple[int, int], extension: str, otherwise: Any
) -> Callable[[URDevice], Any]:
    ask = _query(name, opencl)

    def answer(device: URDevice) -> Any:
        value = ask(device) if device.has(version, extension) else None
        return otherwise if value is None else value

    return answer


# properties that need more than a table


def _query_type(device: URDevice) -> int:
    kind = device.icd.info("CL_DEVICE_TYPE")
    return next(
        (UR[name] for name, opencl in TYPES.items() if kind & OPENCL[opencl]),
        UR["UR_DEVICE_TYPE_CUSTOM"],
    )


def _is_gpu(device: URDevice) -> bool:
    return _query_type(device) == UR["UR_DEVICE_TYPE_GPU"]


#: The partition types that both interfaces have. Their numbers are the same.
_PARTITIONS: Final = tuple(
    UR[f"UR_DEVICE_PARTITION_{name}"] for name in ("EQUALLY", "BY_COUNTS", "BY_AFFINITY_DOMAIN")
)


def _query_partitions(device: URDevice) -> list[int]:
    return [
        kind
        for kind in _decode_numbers(_ask(device, "PARTITION_PROPERTIES"))
        if kind in _PARTITIONS
    ]


def _query_partition(device: URDevice) -> bytes:
    """Return how a sub-device was made: an array of ur_device_partition_property_t.

    Each of them is two 32-bit numbers.
    """
    kind, *values = _decode_numbers(_ask(device, "PARTITION_TYPE")) or [0]
    if kind not in _PARTITIONS:
        return b""
    ends = values.index(0) if 0 in values else len(values)
    return b"".join(struct.pack("@II", kind, value) for value in values[:ends])


def _query_sub_group_sizes(device: URDevice) -> list[int]:
    if "cl_intel_required_subgroup_size" not in device.icd.extensions:
        return [1]
    return _decode_numbers(_ask(device, "SUB_GROUP_SIZES_INTEL")) or [1]


def _make_atomics_query(
    question: str, kind: str, in_2_x: tuple[str, ...]
) -> Callable[[URDevice], int]:
    """Return a function for the capabilities of atomics (OpenCL 3.0, "Atomic capabilities").

    Args:
        question: the property of OpenCL 3.0.
        in_2_x: the capabilities of OpenCL 2.0 to 2.2. Older versions have the first one.
    """

    def answer(device: URDevice) -> int:
        if device.has((3, 0)):
            return translate_flags(_query_number(device, question), kind)
        names = in_2_x if device.has((2, 0)) else in_2_x[:1]
        return translate_flags(sum(OPENCL[f"CL_DEVICE_ATOMIC_{name}"] for name in names), kind)

    return answer


_ORDERS: Final = (
    "ur_memory_order_capability_flags_t",
    ("ORDER_RELAXED", "ORDER_ACQ_REL", "ORDER_SEQ_CST"),
)
_SCOPES: Final = "ur_memory_scope_capability_flags_t", ("SCOPE_WORK_GROUP", "SCOPE_DEVICE")


def query_pci_numbers(device: URDevice) -> Sequence[int]:
    """Return domain, bus, device and function (cl_khr_pci_bus_info), nothing without them."""
    if "cl_khr_pci_bus_info" not in device.icd.extensions:
        return ()
    return _decode_numbers(_ask(device, "PCI_BUS_INFO_KHR"), "I")


def _query_pci_address(device: URDevice) -> str | None:
    numbers = query_pci_numbers(device)
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers) if numbers else None


def _make_windows_query(name: str) -> Callable[[URDevice], Any]:
    """Return a function for the LUID or the node mask, None without a valid LUID."""
    ask, extension = _query(name, name), "cl_khr_device_uuid"
    return lambda device: (
        ask(device)
        if extension in device.icd.extensions and _query_number(device, "LUID_VALID")
        else None
    )


def _make_clock_query(scope: str) -> Callable[[URDevice], bool]:
    bit = OPENCL[f"CL_DEVICE_KERNEL_CLOCK_SCOPE_{scope}_KHR"]
    has = _make_extension_query("cl_khr_kernel_clock")
    return lambda device: (
        has(device) and bool(_query_number(device, "KERNEL_CLOCK_CAPABILITIES_KHR") & bit)
    )


def _make_extension_query(*names: str) -> Callable[[URDevice], bool]:
    return lambda device: device.icd.extensions.issuperset(names)


def _query_eu_count(device: URDevice) -> int | None:
    if not (_is_gpu(device) and "cl_intel_device_attribute_query" in device.icd.extensions):
        return None
    names = ("NUM_SLICES_INTEL", "NUM_SUB_SLICES_PER_SLICE_INTEL", "NUM_EUS_PER_SUB_SLICE_INTEL")
    return math.prod(_query_number(device, name) for name in names)


def _make_usm_query(name: str) -> Callable[[URDevice], int]:
    def answer(device: URDevice) -> int:
        from .usm.strategies import query_support

        return query_support(device)[f"UR_DEVICE_INFO_{name}"]

    return answer


def _find_launch_capabilities(device: URDevice) -> int:
    from .launches import find_launch_capabilities

    return find_launch_capabilities(device)


def _query_images(device: URDevice) -> bool:
    return _has_declared("urMemImageCreate") and bool(_query_number(device, "IMAGE_SUPPORT"))


def _query_updates(device: URDevice) -> int:
    """Return what updates of command-buffers can change: everything that there is a flag for."""
    flags = UR.groups["ur_device_command_buffer_update_capability_flags_t"]
    return sum(flags) if _has_declared("urCommandBufferUpdateKernelLaunchExp") else 0


def _has_declared(*entries: str) -> bool:
    return adapter.declared.issuperset(entries)


_LARGEST: Final = (1 << 8 * struct.calcsize("@N")) - 1

FUNCTIONS: Final[dict[str, Callable[[URDevice], Any]]] = {
    "TYPE": _query_type,
    "PLATFORM": lambda device: device.platform,
    "PARENT_DEVICE": lambda device: device.parent or 0,
    "REFERENCE_COUNT": lambda device: device.references,
    "DRIVER_VERSION": lambda device: device.icd.driver_version,
    "BACKEND_RUNTIME_VERSION": lambda device: "{}.{}".format(*device.icd.version_number),
    "SUPPORTED_PARTITIONS": _query_partitions,
    "PARTITION_TYPE": _query_partition,
    # A work-group without sub-groups is one sub-group.
    "MAX_NUM_SUB_GROUPS": lambda device: max(1, _query_number(device, "MAX_NUM_SUB_GROUPS")),
    "SUB_GROUP_SIZES_INTEL": _query_sub_group_sizes,
    **{
        f"USM_{kind}_SUPPORT": _make_usm_query(f"USM_{kind}_SUPPORT")
        for kind in ("HOST", "DEVICE", "SINGLE_SHARED", "CROSS_SHARED", "SYSTEM_SHARED")
    },
    "PCI_ADDRESS": _query_pci_address,
    "LUID": _make_windows_query("LUID"),
    "NODE_MASK": _make_windows_query("NODE_MASK"),
    "GPU_EU_COUNT": _query_eu_count,
    "IS_INTEGRATED_GPU": lambda device: (
        _is_gpu(device) and bool(_query_number(device, "HOST_UNIFIED_MEMORY"))
    ),
    "IMAGE_SUPPORT": _query_images,
    # OpenCL 2.0, "Required image formats".
    "IMAGE_SRGB": lambda device: device.has((2, 0)) and _query_images(device),
    "BUILD_ON_SUBDEVICE": _is_gpu,
    "ATOMIC_64": _make_extension_query(
        "cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"
    ),
    "ATOMIC_MEMORY_ORDER_CAPABILITIES": _make_atomics_query("ATOMIC_MEMORY_CAPABILITIES", *_ORDERS),
    "ATOMIC_MEMORY_SCOPE_CAPABILITIES": _make_atomics_query("ATOMIC_MEMORY_CAPABILITIES", *_SCOPES),
    "ATOMIC_FENCE_ORDER_CAPABILITIES": _make_atomics_query("ATOMIC_FENCE_CAPABILITIES", *_ORDERS),
    "ATOMIC_FENCE_SCOPE_CAPABILITIES": _make_atomics_query("ATOMIC_FENCE_CAPABILITIES", *_SCOPES),
    "BFLOAT16_CONVERSIONS_NATIVE": _make_extension_query("cl_intel_bfloat16_conversions"),
    "USE_NATIVE_ASSERT": _make_extension_query("cl_intel_devicelib_assert"),
    "ESIMD_SUPPORT": lambda device: _is_gpu(device) and device.platform.profile.has_esimd,
    "PROGRAM_SET_SPECIALIZATION_CONSTANTS": can_take_specialization_constants,
    "GLOBAL_VARIABLE_SUPPORT": lambda device: (
        _has_declared("urEnqueueDeviceGlobalVariableWrite", "urEnqueueDeviceGlobalVariableRead")
        and device.platform.icd.extension_function("clEnqueueWriteGlobalVariableINTEL") is not None
    ),
    "KERNEL_LAUNCH_CAPABILITIES": _find_launch_capabilities,
    "MAX_WORK_GROUPS": lambda device: _LARGEST,
    "MAX_WORK_GROUPS_3D": lambda device: struct.pack("@3N", *[_LARGEST] * 3),
    "COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP": _query_updates,
    "CLOCK_SUB_GROUP_SUPPORT_EXP": _make_clock_query("SUB_GROUP"),
    "CLOCK_WORK_GROUP_SUPPORT_EXP": _make_clock_query("WORK_GROUP"),
    "CLOCK_DEVICE_SUPPORT_EXP": _make_clock_query("DEVICE"),
}


def _make_requirement(entries: tuple[str, ...]) -> Callable[[URDevice], bool]:
    return lambda device: _has_declared(*entries)


adapter.info(
    "urDeviceGetInfo",
    {
        **{name: _query(name, opencl) for name, opencl in PLAIN.items()},
        **{name: _make_later_query(name, *row) for name, row in LATER.items()},
        **{name: _make_requirement(entries) for name, entries in CAPABILITY_PROPERTIES.items()},
        **FIXED,
        **FUNCTIONS,
    },
    "UR_DEVICE_INFO_",
)
