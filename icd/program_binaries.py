"""What drivers have made of programs: CL_PROGRAM_BINARY_SIZES and CL_PROGRAM_BINARIES.

One thread asks at a time. When PoCL 3.0 is asked for a size, the program leads to 256 MiB that are
freed afterwards. A second thread that asked for the binary meanwhile copied them, or crashed.
"""

from __future__ import annotations

from typing import Any, Final

from ..loader.base.forks import make_lock
from ._native import ffi
from .abi import OPENCL
from .calls import call, get_address
from .errors import OpenCLError, check

_ROUTINE: Final = "clGetProgramInfo"
_lock: Final = make_lock()


def _ask(program: int, name: str, size: int, into: Any) -> None:
    check(call(program, _ROUTINE, OPENCL[name], size, get_address(into), None), _ROUTINE)


def _query_sizes(program: int) -> list[int]:
    count = ffi.new("uint32_t *")
    _ask(program, "CL_PROGRAM_NUM_DEVICES", 4, count)
    sizes = ffi.new("size_t[]", count[0])
    try:
        _ask(program, "CL_PROGRAM_BINARY_SIZES", ffi.sizeof(sizes), sizes)
    except OpenCLError as error:
        if error.code != "CL_INVALID_PROGRAM":  # PoCL's answer without binaries
            raise
    return list(sizes)


def query_sizes(program: int) -> list[int]:
    """Return the bytes of a program's binary for each of its devices, 0 where it has none.

    Args:
        program: a handle.

    Raises:
        OpenCLError: the driver does not tell.
    """
    with _lock:
        return _query_sizes(program)


def query_binaries(program: int) -> list[bytes]:
    """Return a program's binary for each of its devices, b"" where it has none.

    Args:
        program: a handle.

    Raises:
        OpenCLError: the driver does not tell.
    """
    with _lock:
        sizes = _query_sizes(program)
        rooms = [ffi.new("unsigned char[]", max(1, size)) for size in sizes]
        if any(sizes):
            pointers = ffi.new("unsigned char *[]", rooms)
            _ask(program, "CL_PROGRAM_BINARIES", ffi.sizeof(pointers), pointers)
    return [bytes(ffi.buffer(room, size)) for room, size in zip(rooms, sizes, strict=True)]


def query_device_binary(program: int, device: int) -> bytes:
    """Return a program's binary for one of its devices, b"" where it has none.

    Args:
        program, device: handles.

    Raises:
        OpenCLError: the driver does not tell.
    """
    binaries = query_binaries(program)
    devices = ffi.new("intptr_t[]", len(binaries))
    _ask(program, "CL_PROGRAM_DEVICES", ffi.sizeof(devices), devices)
    return dict(zip(devices, binaries, strict=True)).get(device, b"")
