"""A driver's library as a loader meets it: the functions that cl_khr_icd names, platform handles, their tables. Nothing is bound."""

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
from fairlead.loader.base.query import query, text

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
        """Open it; libraries that it needs may lie beside it."""
        return cls(open_with_siblings(path) or open_library(path))

    def extension_function(self, name: str) -> int:
        """What the library's clGetExtensionFunctionAddress answers, 0 for NULL."""
        entry = self.library.own_symbol("clGetExtensionFunctionAddress")
        if not entry:
            failed("the library exports clGetExtensionFunctionAddress", "it does not")
        return _GetAddress(entry)(name.encode()) or 0

    def function(self, name: str) -> Any:
        """One of the functions of the protocol, ready to be called."""
        address = self.extension_function(name)
        if not address:
            failed(f"clGetExtensionFunctionAddress gives {name}", "NULL")
        return OPENCL.functions[name].prototype(address)

    @cached_property
    def platforms(self) -> list[int]:
        """The platform handles that the driver gives, by the rules."""
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
        """The words of the dispatch table that a platform leads to; None for each that cannot be read."""
        table = read_word(platform)
        if not table:
            failed(
                "a platform begins with the address of a dispatch table",
                "NULL" if table == 0 else "memory that cannot be read",
            )
        return read_words(table, SLOT_COUNT)

    def tags(self, platform: int) -> tuple[bool, bool]:
        """Whether slots 0 and 31 hold the tag of ICD 2."""
        first, second = (self.entries(platform)[slot] == ICD2_TAG for slot in TAG_SLOTS)
        return first, second

    def is_icd2(self, platform: int) -> bool:
        """Whether a platform says that it speaks ICD 2."""
        return all(self.tags(platform))

    def address(self, platform: int, function: Function) -> int:
        """Where a platform has a function: by its table, for ICD 2 by asking for it. 0 if it has none."""
        if self.is_icd2(platform):
            return self.function(GET_FUNCTION)(platform, function.name.encode()) or 0
        return self.entries(platform)[function.slot or 0] or 0

    def get_info(self, platform: int) -> Any:
        """The platform's clGetPlatformInfo."""
        function = OPENCL.functions["clGetPlatformInfo"]
        address = self.address(platform, function)
        if not address:
            failed("the platform has clGetPlatformInfo", "NULL")
        return function.prototype(address)

    def info(self, platform: int, name: str) -> bytes:
        """What a platform answers to a query that it must know."""

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

    def text(self, platform: int, name: str) -> str:
        """The same as text."""
        return text(self.info(platform, name))

    def version(self, platform: int) -> tuple[int, int]:
        """The OpenCL version of a platform."""
        return parse_version(self.text(platform, "CL_PLATFORM_VERSION"))

    def core_functions(self, platform: int) -> Iterator[Function]:
        """The core functions of the platform's OpenCL version. Extensions may be missing, and clSetCommandQueueProperty is gone
        since OpenCL 1.1."""
        version = self.version(platform)
        for function in OPENCL.slots:
            is_extension = function.name.endswith(("KHR", "EXT")) or "GL" in function.name
            if (
                function.since <= version
                and not is_extension
                and function.slot not in (*TAG_SLOTS, 13)
            ):
                yield function
