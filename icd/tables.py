"""Binds a platform: makes a complete dispatch table, safe to call, for a driver's platform handle.

`bind` reads the driver's own table without trusting it (cl_khr_icd, "ICD 2 detection"):

- ICD 1: our table is a copy of the driver's. It has as many slots as a table of that OpenCL
  version has at least. A NULL slot becomes a stub that answers CL_INVALID_OPERATION. The driver's
  objects still point to the driver's table; only fairlead calls through the copy.
- ICD 2 (slots 0 and 31 have the tag): our table is filled by
  clIcdGetFunctionAddressForPlatformKHR and given to the driver as `dispatch_data`. It begins with
  a full `cl_icd_dispatch`, as other loaders expect.

The process has one table for each platform. Tables are never freed, because a driver or another
loader may keep them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ..loader.base import layers
from ..loader.base.errors import FairleadError
from ..loader.base.forks import make_lock
from ..loader.base.frozen_value import Value
from ..loader.base.memory import read_word, read_words
from ..loader.base.query import decode_text, read_version
from ..loader.base.query import query as ask
from ..loader.base.table import POINTER_SIZE, DispatchTable
from ._native import ffi, lib
from .abi import CL_SUCCESS, ICD2_TAG, OPENCL, SLOT_COUNT, TAG_SLOTS, count_slots
from .errors import check, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_PLATFORM_INFO_SLOT: Final = 1

# void *clIcdGetFunctionAddressForPlatformKHR(cl_platform_id, const char *name)
GetFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
# cl_int clIcdSetPlatformDispatchDataKHR(cl_platform_id, void *data)
SetDispatchData = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class DriverError(FairleadError):
    """A driver, or a platform of it, was refused: it breaks the ICD protocol (cl_khr_icd)."""


class Binding(Value):
    """How a platform was bound.

    Attributes:
        icd_version: 1 or 2.
        foreign_dispatch_data: for ICD 2 the `dispatch_data` of another loader, 0 if there was none.
    """

    table: DispatchTable
    icd_version: int
    notes: tuple[str, ...] = ()
    foreign_dispatch_data: int = 0


layers.enable_api(OPENCL, int(ffi.cast("uintptr_t", lib.fl_cl_thunks())))

_bound: dict[int, Binding] = {}
_lock: Final = make_lock()


def bind(platform: int, resolve: Callable[[str], int | None]) -> Binding:
    """Bind a platform. The same handle gives the same Binding as long as the process lives.

    Args:
        platform: the platform's handle.
        resolve: gives the address of a clIcd… function of the driver, or None.

    Raises:
        DriverError: the platform must be refused.
    """
    with _lock:
        if platform not in _bound:
            own = read_word(platform)
            if own is None:
                raise DriverError(f"its handle {platform:#x} leads to memory that cannot be read")
            if own == 0:
                raise DriverError("its dispatch table is NULL")
            head = read_words(own, TAG_SLOTS[-1] + 1)
            if None in head:
                raise DriverError(
                    f"its dispatch table at {own:#x} leads to memory that cannot be read"
                )
            second_tag = head[TAG_SLOTS[1]] == ICD2_TAG
            is_icd2 = head[TAG_SLOTS[0]] == ICD2_TAG
            _bound[platform] = (
                _bind_icd2(platform, resolve, second_tag)
                if is_icd2
                else _bind_icd1(platform, own, second_tag)
            )
        return _bound[platform]


def forget(platform: int) -> None:
    """Forget a platform of an unloaded driver: its handle may be another platform's next time."""
    with _lock:
        _bound.pop(platform, None)


def query(table: DispatchTable, routine: str, *arguments: Any, detail: str = "") -> bytes:
    """Ask one of the clGet…Info functions for a value of unknown size.

    Args:
        arguments: what comes before the size.
        detail: a sentence to add to an error's.

    Raises:
        OpenCLError: the driver answered with a code.
        FairleadError: the size cannot be.
    """
    return ask(getattr(table, routine), routine, check, *arguments, detail=detail)


def parse_version(version: str) -> tuple[int, int]:
    """(major, minor) of "OpenCL 3.0 …" or "OpenCL C 1.2 …"; (1, 0) for any other text."""
    words = "OpenCL C " if version.startswith("OpenCL C ") else "OpenCL "
    found = read_version(version, words) if version.startswith(words) else None
    return found or (1, 0)


def _make_table() -> tuple[int, Any]:
    """The address of a new table of stubs, and an array over its slots that owns nothing."""
    address = int(ffi.cast("uintptr_t", lib.fl_new_table()))
    if not address:
        raise MemoryError("no memory for a dispatch table")
    return address, (ctypes.c_void_p * SLOT_COUNT).from_address(address)


def _bind_icd1(platform: int, own: int, second_tag: bool) -> Binding:
    get_info = read_word(own + _PLATFORM_INFO_SLOT * POINTER_SIZE)
    if not get_info:
        raise DriverError("clGetPlatformInfo is NULL in its dispatch table")
    name = "clGetPlatformInfo"
    call = OPENCL.functions[name].prototype(get_info)
    answer = ask(
        call, name, check, platform, OPENCL["CL_PLATFORM_VERSION"], detail="(CL_PLATFORM_VERSION)"
    )
    version = parse_version(decode_text(answer))
    words = read_words(own, count_slots(version))
    notes = []
    if second_tag:  # cl_khr_icd: it means nothing without the tag in slot 0, and is not a function
        words[TAG_SLOTS[1]] = 0
        notes.append("the ICD 2 tag is in slot 31 alone, so the driver is taken for ICD 1")
    if None in words:
        slots = f"{words.index(None)} of the {len(words)} slots of OpenCL {version[0]}.{version[1]}"
        notes.append(f"its dispatch table ends after {slots}")
    address, slots = _make_table()
    for slot, word in enumerate(words):
        if word:
            slots[slot] = word
    return Binding(DispatchTable(OPENCL, address), 1, tuple(notes))


def _bind_icd2(platform: int, resolve: Callable[[str], int | None], second_tag: bool) -> Binding:
    if not second_tag:
        raise DriverError("its dispatch table has the ICD 2 tag in slot 0 but not in slot 31")
    functions = []
    for name in ("clIcdGetFunctionAddressForPlatformKHR", "clIcdSetPlatformDispatchDataKHR"):
        function = resolve(name)
        if not function:
            raise DriverError(
                f"its dispatch table has the ICD 2 tags, but the driver has no {name}"
            )
        functions.append(function)
    get_function, set_data = functions
    address = _fill_table(platform, GetFunction(get_function))
    foreign = read_word(platform + POINTER_SIZE) or 0
    code = SetDispatchData(set_data)(platform, address)
    if code != CL_SUCCESS:
        name, sentence = describe(code)
        raise DriverError(sentence, routine="clIcdSetPlatformDispatchDataKHR", code=name)
    if read_word(platform + POINTER_SIZE) != address:
        raise DriverError(
            "it took the dispatch data but did not store it",
            routine="clIcdSetPlatformDispatchDataKHR",
        )
    notes = ("another OpenCL loader in this process had bound it before",) if foreign else ()
    return Binding(DispatchTable(OPENCL, address), 2, notes, foreign)


def _fill_table(platform: int, get_function: Any) -> int:
    """A new table with every function that the driver has for this platform."""
    address, slots = _make_table()
    for slot, function in enumerate(OPENCL.slots):
        pointer = get_function(platform, function.name.encode())
        if pointer:
            slots[slot] = pointer
    return address
