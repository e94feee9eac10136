"""The adapter's entry points as the library exports them, called by the names of their parameters.

Every call is written to the trail before it is made, so that the last line says what crashed. It is
kept with its code in `lines`.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fairlead.loader.base.abi import Function
from fairlead.loader.ur.abi import UR

_NAMES: Final = {
    value: name.removeprefix("UR_RESULT_").removeprefix("ERROR_")
    for name, value in UR.codes.items()
}

#: The entry points that a shell exports: all except those of 2025.3 whose parameters newer releases
#: changed.
ENTRY_POINTS: Final = tuple(name for name in UR.functions if not name.endswith("_2025_3"))

#: No entry point answers these. The first is an unexpected exception, the second a library that has
#: not started.
_NEVER: Final = ("UNKNOWN", "UNINITIALIZED")


class Failure(AssertionError):
    """The adapter did what it must not do."""


class Library:
    """The functions of a library.

    `library("urQueueFinish", hQueue=queue)` is the name of the code, "SUCCESS". Missing arguments
    are NULL or 0. `trail` is a file that the calls are written to.
    """

    def __init__(self, path: Path, trail: int) -> None:
        self._library = ctypes.CDLL(str(path))
        self._trail = trail
        self._functions: dict[str, Any] = {}
        self.lines: list[str] = []
        self.codes: Counter[tuple[str, str]] = Counter()  # how often each function gave each code
        self.labels: dict[int, str] = {}  # handles and addresses as they are called in the lines

    def begin(self) -> None:
        """Forget the calls so far: another sequence begins."""
        self.lines.clear()
        self.labels.clear()
        os.ftruncate(self._trail, 0)
        os.lseek(self._trail, 0, os.SEEK_SET)

    def __call__(self, routine: str, **given: Any) -> str:
        function = UR.functions[routine]
        values = [
            given.pop(p.name, None if p.stars or _is_pointer(p.type) else 0)
            for p in function.parameters
        ]
        assert not given, f"{routine} has no parameter {', '.join(given)}"
        self.lines.append(self._line(function, values))
        os.write(self._trail, self.lines[-1].encode() + b"\n")
        passed = [
            ctypes.byref(v) if p.stars and _is_struct(v) else v
            for p, v in zip(function.parameters, values, strict=True)
        ]
        number = self._function(function)(*passed)
        code = _NAMES.get(number, "")
        self.lines[-1] += f" -> {code or number}"
        self.codes[routine, code] += 1
        if not code:
            raise Failure(f"{routine} answers {number}, which is not a ur_result_t")
        if code in _NEVER:
            raise Failure(f"{routine} answers {code}: {self._last_error()}")
        return code

    def fitting(self, routine: str, given: Mapping[str, Any]) -> str:
        """Call it with those of the arguments that it has."""
        return self(
            routine,
            **{p.name: given[p.name] for p in UR.functions[routine].parameters if p.name in given},
        )

    def ok(self, routine: str, **given: Any) -> None:
        """Call what has to succeed."""
        self.expect(self(routine, **given), "SUCCESS")

    def expect(self, code: str, *codes: str) -> None:
        """The last call has to give one of these codes."""
        if code not in codes:
            raise Failure(
                f"{' or '.join(codes)} was expected of this call, not {code}: "
                f"{self._last_error()}\n{self.lines[-1]}"
            )

    def make(self, routine: str, out: str, **given: Any) -> int:
        """The handle, or the address, that a function gives through its parameter `out`."""
        made = ctypes.c_void_p()
        self.ok(routine, **given, **{out: ctypes.byref(made)})
        if not made.value:
            raise Failure(f"{routine} gives NULL")
        return made.value

    def number(self, routine: str, name: str, **given: Any) -> int:
        """The answer of a query that is a number or a handle."""
        value = ctypes.create_string_buffer(8)
        self.ok(routine, **given, propName=UR[name], propSize=8, pPropValue=value)
        return int.from_bytes(value.raw, "little")

    def _function(self, function: Function) -> Any:
        found = self._functions.get(function.name)
        if found is None:
            found = self._functions[function.name] = function.prototype(
                (function.name, self._library)
            )
        return found

    def _last_error(self) -> str:
        adapter, text, code = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_int32()
        get = self._function(UR.functions["urAdapterGet"])
        tell = self._function(UR.functions["urAdapterGetLastError"])
        if get(1, ctypes.byref(adapter), None) or tell(
            adapter, ctypes.byref(text), ctypes.byref(code)
        ):
            return "the adapter does not tell why"
        self._function(UR.functions["urAdapterRelease"])(adapter)
        return f"{(text.value or b'').decode('utf-8', 'replace')} ({code.value})"

    def _line(self, function: Function, values: list[Any]) -> str:
        shown = (
            f"{p.name}={self._shown(value)}"
            for p, value in zip(function.parameters, values, strict=True)
        )
        return f"{function.name}({', '.join(shown)})"

    def _shown(self, value: Any) -> str:
        """An argument as the lines have it."""
        if value is None or isinstance(value, bool):
            return "NULL" if value is None else str(value).lower()
        if isinstance(value, int):
            return self.labels.get(value) or (str(value) if abs(value) < 1 << 16 else hex(value))
        if isinstance(value, ctypes.Array) and value._type_ is not ctypes.c_char:
            items = ", ".join(self._shown(item) for item in value[:8])
            return f"[{items}{', …' if len(value) > 8 else ''}]"
        if _is_struct(value):
            fields = ((name, getattr(value, name)) for name, *_ in getattr(value, "_fields_"))  # noqa: B009  (pyright takes it for an array)
            shown = (f"{name}={self._shown(field)}" for name, field in fields if field is not None)
            return f"{{{', '.join(shown)}}}"
        return repr(value) if isinstance(value, bytes) else "&"


def _is_pointer(type_name: str) -> bool:
    return UR.resolve(type_name) in ("handle", "callback")


def _is_struct(value: Any) -> bool:
    return isinstance(value, (ctypes.Structure, ctypes.Union))


def array(*handles: int) -> Any:
    """Handles, or addresses, as a C array; None for none."""
    return (ctypes.c_void_p * len(handles))(*handles) if handles else None


def array_of(rows: Any) -> Any:
    """Structs of one type as a C array."""
    kind: Any = type(rows[0])
    return (kind * len(rows))(*rows)


def sizes(*numbers: int) -> Any:
    """Numbers as an array of size_t."""
    return (ctypes.c_size_t * len(numbers))(*numbers)
