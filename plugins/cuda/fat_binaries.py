"""Fat binaries: what NVIDIA's tool `fatbinary` writes, and nvcc, which calls it.

A fat binary is a head and parts, each with a head of its own. A part is a cubin or PTX. The driver
takes the one for the device. It believes the sizes in the heads, so they are checked before.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..sdk.gpu.device_code import DeviceCodeError

#: How fat binaries begin.
MAGIC: Final = b"\x50\xed\x55\xba"
#: The magic, a version, bytes of this head, bytes of all parts.
_HEAD: Final = struct.Struct("<4sHHQ")
#: Kind, a version, bytes of this head, bytes of the contents, compressed bytes or 0, place
#: of the options in this head; behind 4 bytes 90 for sm_90.
_PART: Final = struct.Struct("<HHIQII4xI28x")
#: Where the text of PTX's options is in the head, and its bytes.
_OPTIONS: Final = struct.Struct("<II")
_PTX, _CUBIN = 1, 2
_NAMES: Final = {_PTX: "compute", _CUBIN: "sm"}


class FatBinaryPart(NamedTuple):
    """A part of a fat binary.

    Attributes:
        kind: 1 is PTX, 2 a cubin. There are others.
        architecture: what it is for: 90 is sm_90.
    """

    kind: int
    architecture: int

    def may_fit(self, device: int) -> bool:
        """Return whether a driver may take it for a device, such as 90."""
        if self.kind not in _NAMES:
            return True
        same_major = self.architecture // 10 == device // 10
        return self.architecture <= device and (self.kind == _PTX or same_major)

    def __str__(self) -> str:
        return f"{_NAMES.get(self.kind, f'kind {self.kind}')}_{self.architecture}"


def split_fat_binary(data: bytes) -> list[FatBinaryPart]:
    """Return the parts of a fat binary. Raises DeviceCodeError if they are not all there."""
    try:
        _, _, at, size = _HEAD.unpack_from(data)
        parts, end = list[FatBinaryPart](), at + size
        while at < end:
            kind, _, head, size, packed, options, architecture = _PART.unpack_from(data, at)
            if head < _PART.size or at + head + size > min(end, len(data)):
                raise DeviceCodeError("the fat binary is damaged: a part has a wrong size")
            if kind == _PTX:
                _check_options(data[at : at + head], options)
                if not packed and data[at + head + size - 1]:
                    raise DeviceCodeError("the fat binary is damaged: a part's PTX has no end")
            parts.append(FatBinaryPart(kind, architecture))
            at += head + size
    except struct.error as error:
        raise DeviceCodeError("the fat binary is damaged: it is too short") from error
    return parts


def _check_options(head: bytes, at: int) -> None:
    """Check the options of PTX, which the driver reads wherever their place says that they are.

    Raises:
        DeviceCodeError: they are not in the head of their part.
        struct.error: their place is not in it.
    """
    text, size = _OPTIONS.unpack_from(head, at)
    if at < _PART.size or text + size > len(head):
        raise DeviceCodeError("the fat binary is damaged: a part has no options")


def check_fat_binary(data: bytes, device: int) -> None:
    """Check a fat binary before a driver reads it.

    Args:
        device: what it is for: 90 is sm_90.

    Raises:
        DeviceCodeError: it is damaged, or has nothing for the device.
    """
    parts = split_fat_binary(data)
    if not any(one.may_fit(device) for one in parts):
        names = ", ".join(map(str, parts)) or "nothing"
        raise DeviceCodeError(
            f"the fat binary has {names}, and the device needs code for sm_{device}"
        )
