"""Makes the objects of a case for OpenCL and PI: one checked call each, and a release at the end.

Cases for UR adapters use `URObjects` (ur/objects.py): the functions of UR follow one pattern.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from fairlead.conformance.checks import expect
from fairlead.loader.base.abi import Api
from fairlead.loader.base.query import query
from fairlead.loader.base.table import DispatchTable

M = TypeVar("M", bound="Maker")


class Maker:
    """Makes objects in one context on one device. `close` releases them in reverse order.

    `api` is the interface, and `success` its code for success. `releases` has the function that
    releases a handle, by the handle's type.
    """

    api: ClassVar[Api]
    success: ClassVar[str]
    releases: ClassVar[Mapping[str, str]]

    def __init__(
        self, table: DispatchTable, device: int, context: int = 0, program: int = 0
    ) -> None:
        self.table = table
        self.device = device
        self.context = context
        self.program = program
        self._releases: list[Callable[[], object]] = []

    def close(self) -> None:
        """Release everything, the last object first."""
        while self._releases:
            self._releases.pop()()

    def new_maker(self: M) -> M:
        """Return a maker for the same context and program."""
        return type(self)(self.table, self.device, self.context, self.program)

    def defer(self, release: Callable[[], object]) -> None:
        """Register a callback for `close`."""
        self._releases.append(release)

    def owned(self, handle: int, kind: str) -> int:
        """Register a handle of a type, such as "cl_event", to be released by `close`."""
        release = getattr(self.table, self.releases[kind])
        self.defer(lambda: release(handle))
        return handle

    @classmethod
    def check(cls, code: int, routine: str, detail: str = "") -> None:
        """Check that a call succeeded which only prepares a case."""
        expect(cls.api, code, cls.success, what=f"{routine}{detail}")

    def call(self, routine: str, *arguments: Any) -> None:
        """Call a function that returns its code. The call must succeed."""
        self.check(getattr(self.table, routine)(*arguments), routine)

    def info(self, routine: str, *handles_and_name: Any) -> bytes:
        """Return the answer to a query: `info("clGetMemObjectInfo", buffer, "CL_MEM_SIZE")`."""
        *arguments, name = handles_and_name
        return query(
            getattr(self.table, routine),
            routine,
            self.check,
            *arguments,
            self.api[name],
            detail=f" ({name})",
        )

    def number(self, routine: str, *handles_and_name: Any, signed: bool = False) -> int:
        """Return the answer to a query as a number."""
        return int.from_bytes(self.info(routine, *handles_and_name), sys.byteorder, signed=signed)

    def new_context(self) -> int:
        """Make another context on the device."""
        raise NotImplementedError

    def queue(self) -> int:
        """Make an in-order queue."""
        raise NotImplementedError
