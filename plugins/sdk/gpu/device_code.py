"""What a program is on one device apart from the driver's module: `DeviceCode`.

cuda/device_code.py and hip/device_code.py derive from it. Each has these functions:

- `build_code(device, data, options)` compiles a program if need be.
- `compile_object(device, data, options)` compiles a program that is linked later.
- `link_code(device, objects, options)` links such programs.
- `make_foreign_code(device, module)` is for a module that the program brings.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Final

Sizes = tuple[int, int, int]

_WITH_OFFSET: Final = "_with_offset"


class DeviceCodeError(Exception):
    """A program cannot be built. The text is the compiler's log."""


class DeviceCodeLinkError(Exception):
    """Programs cannot be linked. The text is the linker's log."""


def name_variant(name: str) -> str:
    """Return how DPC++ calls the variant of a kernel whose last parameter is the global offset."""
    return name + _WITH_OFFSET


def pack_offset(offset: Sequence[int]) -> bytes:
    """Return that parameter: three uint32_t."""
    return struct.pack("3I", *(*offset, 0, 0, 0)[:3])


def leave_variants_out(names: Collection[str]) -> list[str]:
    """Return the names of kernels without those variants."""
    variants = set(map(name_variant, names))
    return [name for name in names if name not in variants]


class DeviceCode(ABC):
    """A program on a device.

    Args:
        data: what the driver loads for launches of one dimension without an offset.

    Attributes:
        waits: not 0 if its kernels wait for the launch before them, and so may start early.
    """

    waits = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    @abstractmethod
    def list_kernel_names(self, module: int) -> list[str]:
        """Return the names of its kernels. `module` is the driver's. Raises DriverError."""

    @abstractmethod
    def list_parameter_sizes(self, name: str, function: int) -> tuple[int, ...]:
        """Return the bytes of the parameters that the program sets."""

    def find_function_name(self, name: str, offset: Sizes) -> str:
        """Return the name of the driver's function for launches of a kernel with an offset."""
        return name

    def find_refusal(self, name: str) -> str:
        """Return why the driver has no kernel that the program has, "" if there is no reason."""
        return ""

    def find_required_size(self, name: str) -> Sizes | None:
        """Return the size of work-groups that a kernel is compiled for, None for any size."""
        return None

    def find_sub_group_size(self, name: str) -> int:
        """Return the work-items of a sub-group, 0 if it is the device's number."""
        return 0

    def choose_part(self, variant: Any, first: Sizes, groups: Sizes, local: Sizes) -> Any:
        """Return what the module of a part of a launch depends on, None if no launch has parts.

        Args:
            local: the work-items of a work-group.
        """
        return None

    def find_variant(self, dimensions: int, offset: Sizes) -> Any:
        """Return what a launch's module depends on. Launches with equal answers share one.

        Raises:
            URError: UNSUPPORTED_FEATURE for an offset that the program cannot have.
        """
        return None

    def make_data(self, variant: Any) -> bytes:
        """Return what the driver loads for a variant."""
        return self.data

    def find_first_local(self, name: str) -> int:
        """Return the place in local memory at which a kernel's `__local` arguments begin."""
        return 0

    def list_offsets(self, name: str, offset: Sequence[int]) -> list[bytes]:
        """Return the values of parameters that take the global offset, behind the others.

        Args:
            offset: the global offset, with fewer than three numbers if the others are 0.
        """
        return []
