"""What the driver's compiler and linker say: `JitLog`."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.cuda.abi import CUDA
from .core import API, check, find_routine, get_constant

_ROOM: Final = 1 << 16  # bytes for a log
_NAMES: Final = (
    *("INFO_LOG_BUFFER", "INFO_LOG_BUFFER_SIZE_BYTES"),
    *("ERROR_LOG_BUFFER", "ERROR_LOG_BUFFER_SIZE_BYTES"),
)
#: The codes that say that the driver does not take a program.
_REFUSALS: Final = frozenset(
    CUDA.codes[f"CUDA_ERROR_{name}"]
    for name in (
        *("INVALID_IMAGE", "INVALID_PTX", "INVALID_SOURCE", "NO_BINARY_FOR_GPU"),
        *("UNSUPPORTED_PTX_VERSION", "INVALID_VALUE"),
    )
)


class JitLog:
    """Room for the logs of the driver's compiler. HIP has none.

    Attributes:
        options: number, names and values of the options that give the room to the driver.
    """

    def __init__(self) -> None:
        info, errors = (ctypes.create_string_buffer(_ROOM) for _ in range(2))
        rows = (ctypes.addressof(info), _ROOM, ctypes.addressof(errors), _ROOM)
        count = len(rows) if API.logs else 0
        names = (ctypes.c_uint32 * count)(
            *(get_constant(f"CU_JIT_{name}") for name in _NAMES[:count])
        )
        self._logs = info, errors
        self.options: tuple[int, Any, Any] = (
            count,
            names,
            (ctypes.c_void_p * count)(*rows[:count]),
        )

    @property
    def text(self) -> str:
        """Return what the driver has said."""
        logs = (log.value.decode(errors="replace") for log in self._logs)
        return "\n".join(filter(None, logs))

    def check(self, code: int, name: str, refused: Any) -> None:
        """Check the code of a function.

        Args:
            refused: is called with code, routine and log, and returns the exception, if the driver
                does not take a program.
        """
        if code in _REFUSALS or (code and self._logs[1].value):
            raise refused(code, find_routine(name), self.text)
        check(code, find_routine(name))
