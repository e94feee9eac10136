"""What makes the objects of a case for OpenCL and PI, whose functions have no such thing in common as those of adapters
(ur/objects.py): one call each, checked, and a release when the case is over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fairlead.conformance.checks import expect
from fairlead.loader.base.abi import Api
from fairlead.loader.base.query import query
from fairlead.loader.base.table import DispatchTable


class Maker:
    """Makes objects in one context on one device, and releases them in reverse order: `close`.

    `api` is the interface, `success` its code for what has succeeded, `releases` the functions that release, by type of handle.
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
        """Release everything, the last one first."""
        while self._releases:
            self._releases.pop()()

    def later(self, release: Callable[[], object]) -> None:
        """Have something done by `close`."""
        self._releases.append(release)

    def owned(self, handle: int, kind: str) -> int:
        """Have `close` release a handle of a type, such as "cl_event"."""
        release = getattr(self.table, self.releases[kind])
        self.later(lambda: release(handle))
        return handle

    @classmethod
    def check(cls, code: int, routine: str, detail: str = "") -> None:
        """A call that a case only prepares with must succeed."""
        expect(cls.api, code, cls.success, what=f"{routine}{detail}")

    def call(self, routine: str, *arguments: Any) -> None:
        """Call a function that returns its code; it must succeed."""
        self.check(getattr(self.table, routine)(*arguments), routine)

    def info(self, routine: str, *handles_and_name: Any) -> bytes:
        """The answer of a query: `info("clGetMemObjectInfo", buffer, "CL_MEM_SIZE")`."""
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
        """The answer as a number."""
        return int.from_bytes(self.info(routine, *handles_and_name), sys.byteorder, signed=signed)

    def new_context(self) -> int:
        """Another context on the device."""
        raise NotImplementedError

    def queue(self) -> int:
        """A queue in order."""
        raise NotImplementedError
