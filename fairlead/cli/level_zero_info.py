"""What a Level Zero device says of itself, as `fairlead info` shows it.

Level Zero answers structs. Each field becomes an answer, whose name begins with a word for its
struct: `memoryTotalSize`. If a device has several of a kind, they have numbers: `memory1TotalSize`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

from ..loader.base.query import decode_text
from ..loader.trace.values import format_word
from ..loader.ze.abi import ZE
from ..loader.ze.driver import ZEDevice

#: The function that fills a struct, the struct between ze_ and _t, and the word for it.
_STRUCTS: Final = (
    ("zeDeviceGetProperties", "device_properties", ""),
    ("zeDeviceGetComputeProperties", "device_compute_properties", ""),
    ("zeDeviceGetModuleProperties", "device_module_properties", "module"),
    ("zeDeviceGetMemoryAccessProperties", "device_memory_access_properties", "usm"),
    ("zeDeviceGetImageProperties", "device_image_properties", ""),
    ("zeDeviceGetExternalMemoryProperties", "device_external_memory_properties", "external"),
)
#: The same of functions that list structs.
_LISTS: Final = (
    ("zeDeviceGetMemoryProperties", "device_memory_properties", "memory"),
    ("zeDeviceGetCacheProperties", "device_cache_properties", "cache"),
    ("zeDeviceGetCommandQueueGroupProperties", "command_queue_group_properties", "queueGroup"),
)
#: Fields that say nothing of the device, or what its row says.
_LEFT_OUT: Final = frozenset({"stype", "pNext", "name", "numSubGroupSizes"})
_MOST: Final = 64  # structs of a kind


def query_level_zero(device: ZEDevice) -> dict[str, Any]:
    """Return what a device answers: the fields of its structs, and the driver's extensions.

    What the driver refuses is left out.
    """
    table, found = device.driver.table, dict[str, Any]()
    for routine, struct, word in _STRUCTS:
        (row,) = _make_rows(struct, 1)
        if not getattr(table, routine)(device.handle, ctypes.byref(row)):
            found.update(_read_fields(struct, row, word))
    for routine, struct, word in _LISTS:
        count, function = ctypes.c_uint32(), getattr(table, routine)
        if function(device.handle, ctypes.byref(count), None) or not count.value:
            continue
        count.value = min(count.value, _MOST)
        rows = _make_rows(struct, count.value)
        if function(device.handle, ctypes.byref(count), rows):
            continue
        for number, row in enumerate(list(rows)[: count.value]):
            found.update(_read_fields(struct, row, word, str(number) if len(rows) > 1 else ""))
    found["extensions"] = tuple(
        (name, tuple(version.split(".")))
        for name, version in device.driver.query_extensions(device.driver_handle).items()
    )
    return found


def _make_rows(struct: str, count: int) -> Any:
    rows = (ZE.get_struct(f"ze_{struct}_t") * count)()
    for row in rows:
        row.stype = ZE[f"ZE_STRUCTURE_TYPE_{struct.upper()}"]
    return rows


def _read_fields(struct: str, row: Any, word: str, number: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the answer of each field of a struct."""
    for field in ZE.structs[f"ze_{struct}_t"].fields:
        if field.name in _LEFT_OUT:
            continue
        end = field.name.removeprefix(word)  # cacheSize has its word
        name = word + number + end[:1].upper() + end[1:] if word else end
        yield name, _convert_answer(field, getattr(row, field.name))


def _convert_answer(field: Any, value: Any) -> Any:
    if isinstance(value, ctypes.Structure):  # an identifier
        return bytes(value)
    if isinstance(value, bytes):
        return decode_text(value)
    if isinstance(value, ctypes.Array):
        return tuple(filter(None, value))
    if field.name == "spirvVersionSupported":
        return f"{value >> 16}.{value >> 8 & 0xFF}"
    is_named = field.type in ZE.groups or ZE.is_bitfield(field.type)
    return format_word(ZE, field.type, value) if is_named else value
