"""A driver's library as a loader meets it: cl_khr_icd's functions, platform handles, tables.

Nothing is bound here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from fairlead.conformance.checks import expect, failed
from fairlead.icd.abi import ICD2_TAG, OPENCL, SLOT_COUNT, TAG_SLOTS
from fairlead.icd.tables import parse_version
from fairlead.loader.base.abi import Function
from fairlead.loader.base.library import Library, open_library, open_with_siblings
from fairlead.loader.base.memory import read_word, read_words
from fairlead.loader.base.query import decode_text, query

LIST: Final = "clIcdGetPlatformIDsKHR"
GET_FUNCTION: Final = "clIcdGetFunctionAddressForPlatformKHR"
SET_DATA: Final = "clIcdSetPlatformDispatchDataKHR"
_GetAddress = OPENCL.functions["clGetExtensionFunctionAddress"].prototype


@dataclass(frozen=True)
class Protocol:
    """An open library."""

    library: Library

    @classmethod
    def open(cls, path: str) -> Protocol:
        """Open a library. Libraries that it needs may lie beside it."""
        return cls(open_with_siblings(path) or open_library(path))

    def extension_function(self, name: str) -> int:
        """Return the answer of the library's clGetExtensionFunctionAddress, 0 for NULL."""
        entry = self.library.find_own_symbol("clGetExtensionFunctionAddress")
        if not entry:
            failed("the library exports clGetExtensionFunctionAddress", "it does not")
        return _GetAddress(entry)(name.encode()) or 0

    def function(self, name: str) -> Any:
        """Return one of the functions of the protocol, ready to be called."""
        address = self.extension_function(name)
        if not address:
            failed(f"clGetExtensionFunctionAddress gives {name}", "NULL")
        return OPENCL.functions[name].prototype(address)

    @cached_property
    def platforms(self) -> list[int]:
        """The platform handles of the driver."""
        call, count = self.function(LIST), ctypes.c_uint32()
        expect(OPENCL, call(0, None, ctypes.byref(count)), "CL_SUCCESS", what=LIST)
        if not 0 < count.value < 1024:
            failed("the number of platforms is sensible", count.value)
        handles = (ctypes.c_void_p * count.value)()
        expect(OPENCL, call(count.value, handles, None), "CL_SUCCESS", what=LIST)
        if None in handles:
            failed("every platform handle is given", "a NULL among them")
        return [handle for handle in handles if handle]

    def entries(self, platform: int) -> list[int | None]:
        """Return the slots of a platform's dispatch table; None for each that cannot be read."""
        table = read_word(platform)
        if not table:
            failed(
                "a platform begins with the address of a dispatch table",
                "NULL" if table == 0 else "memory that cannot be read",
            )
        return read_words(table, SLOT_COUNT)

    def tags(self, platform: int) -> tuple[bool, bool]:
        """Return whether slots 0 and 31 hold the tag of ICD 2."""
        first, second = (self.entries(platform)[slot] == ICD2_TAG for slot in TAG_SLOTS)
        return first, second

    def is_icd2(self, platform: int) -> bool:
        """Return whether a platform says that it speaks ICD 2."""
        return all(self.tags(platform))

    def address(self, platform: int, function: Function) -> int:
        """Return the address of a platform's function, 0 if it has none.

        It comes from the table; an ICD 2 driver is asked for it.
        """
        if self.is_icd2(platform):
            return self.function(GET_FUNCTION)(platform, function.name.encode()) or 0
        return self.entries(platform)[function.slot or 0] or 0

    def get_info(self, platform: int) -> Any:
        """Return the platform's clGetPlatformInfo."""
        function = OPENCL.functions["clGetPlatformInfo"]
        address = self.address(platform, function)
        if not address:
            failed("the platform has clGetPlatformInfo", "NULL")
        return function.prototype(address)

    def info(self, platform: int, name: str) -> bytes:
        """Return a platform's answer to a query that it must know."""

        def check(code: int, routine: str, detail: str) -> None:
            expect(OPENCL, code, "CL_SUCCESS", what=routine + detail)

        return query(
            self.get_info(platform),
            "clGetPlatformInfo",
            check,
            platform,
            OPENCL[name],
            detail=f" ({name})",
        )

    def ask_text(self, platform: int, name: str) -> str:
        """Return the same as text."""
        return decode_text(self.info(platform, name))

    def version(self, platform: int) -> tuple[int, int]:
        """Return the OpenCL version of a platform."""
        return parse_version(self.ask_text(platform, "CL_PLATFORM_VERSION"))

    def core_functions(self, platform: int) -> Iterator[Function]:
        """Yield the core functions of the platform's OpenCL version.

        Extensions may be missing. OpenCL 1.1 removed clSetCommandQueueProperty.
        """
        version = self.version(platform)
        for function in OPENCL.slots:
            is_extension = function.name.endswith(("KHR", "EXT")) or "GL" in function.name
            if (
                function.since <= version
                and not is_extension
                and function.slot not in (*TAG_SLOTS, 13)
            ):
                yield function
