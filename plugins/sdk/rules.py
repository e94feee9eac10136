"""Rules of the specification that adapters check themselves, because drivers do not."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any, Final

from ...loader.base.memory import is_readable
from ...loader.ur.abi import UR
from ._native import ffi
from .conversions import failure

#: Elements of a list of structs. A larger count cannot be a count, so the list is not read.
LONGEST: Final = 1 << 16

USE: Final = UR["UR_MEM_FLAG_USE_HOST_POINTER"]
ALLOC: Final = UR["UR_MEM_FLAG_ALLOC_HOST_POINTER"]
COPY: Final = UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
_ACCESS: Final = tuple(
    UR[name]
    for name in ("UR_MEM_FLAG_READ_WRITE", "UR_MEM_FLAG_WRITE_ONLY", "UR_MEM_FLAG_READ_ONLY")
)
#: Those that allow less than a buffer can do.
_LESS: Final = UR["UR_MEM_FLAG_WRITE_ONLY"] | UR["UR_MEM_FLAG_READ_ONLY"]

_WHITE: Final = frozenset("\t\n\v\f\r")
_PTX_VERSION: Final = re.compile(rb"^[ \t]*\.version[ \t]+[0-9]", re.MULTILINE)


def check_memory(address: int, size: int) -> None:
    """Raise URError (INVALID_MEM_OBJECT) without memory at the first or the last of the bytes."""
    if not is_readable(address, size):
        raise failure("INVALID_MEM_OBJECT", f"there is no memory at {address:#x}")


def check_count(count: int, code: str, what: str) -> None:
    """Raise URError (`code`) for a list of structs that is longer than any program's."""
    if count > LONGEST:
        raise failure(code, f"{count} {what}")


def select_binary(binaries: Any, count: int, targets: Sequence[str]) -> int:
    """Return the index of the binary that a device takes, for urDeviceSelectBinary.

    Args:
        targets: the texts of `UR_DEVICE_BINARY_TARGET_…` that the device takes, the best first.

    Raises:
        URError: INVALID_BINARY if it takes none of them.
    """
    pointers = [binaries[index].pDeviceTargetSpec for index in range(count)]
    given = [ffi.string(one).decode("utf-8", "replace") if one else "" for one in pointers]
    found = next((target for target in targets if target in given), None)
    if found is None:
        taken = " and ".join(targets) or "none"
        raise failure("INVALID_BINARY", f"the device takes {taken}, not {', '.join(given)}")
    return given.index(found)


def check_part(buffer: Any, flags: int, region: Any, known: int = 0) -> None:
    """Check what urMemBufferPartition is given.

    Args:
        buffer: the buffer, which has `size` and `parent`.
        flags: ur_mem_flags_t.
        region: a ur_buffer_region_t.
        known: the flags of the buffer, 0 if the driver checks them.

    Raises:
        URError: INVALID_MEM_OBJECT, INVALID_BUFFER_SIZE, INVALID_VALUE.
    """
    room = buffer.size
    if buffer.parent is not None:
        raise failure("INVALID_MEM_OBJECT", "a sub-buffer has no sub-buffers")
    if region.origin + region.size > room:
        reason = f"the region ends behind the {room} bytes of the buffer"
        raise failure("INVALID_BUFFER_SIZE", reason)
    own, access = known & _LESS, flags & sum(_ACCESS)
    if own and access and access != own:
        raise failure("INVALID_VALUE", "a sub-buffer has no access that its buffer lacks")


def read_binaries(devices: Sequence[Any], lengths: Sequence[int], pointers: Any) -> list[bytes]:
    """Read the binaries of a program.

    Every adapter answers INVALID_BINARY to rubbish, as Intel's for OpenCL does. The specification
    lists INVALID_NATIVE_BINARY, which the public conformance tests do not take.

    Args:
        lengths: the bytes of each binary.
        pointers: an array of their addresses.

    Raises:
        URError: INVALID_DEVICE, INVALID_BINARY.
    """
    if len(set(devices)) < len(devices):  # Intel's OpenCL driver would crash
        raise failure("INVALID_DEVICE", "a device is named twice")
    places = [int(ffi.cast("uintptr_t", pointers[index])) for index in range(len(devices))]
    if not all(lengths) or not all(places):  # PoCL would read behind the array
        raise failure("INVALID_BINARY", "there is no binary for one of the devices")
    return list(map(ctypes.string_at, places, lengths))


def decode_source(data: bytes) -> bytes | None:
    """Return the text in data, None if it is not text.

    Text is valid UTF-8 without control characters except white space. It may end with NULs.
    """
    text = data.rstrip(b"\0")
    try:
        readable = all(
            letter.isprintable() or letter in _WHITE or letter > "\x7f" for letter in text.decode()
        )
    except UnicodeDecodeError:
        return None
    return text if text and readable else None


def is_ptx(text: bytes) -> bool:
    """Return whether a text is PTX, which is what NVIDIA's OpenCL driver gives as a binary."""
    return bool(_PTX_VERSION.search(text))


def is_power_of_two(number: int) -> bool:
    """Return whether a number is 1, 2, 4, and so on."""
    return number > 0 and not number & (number - 1)
