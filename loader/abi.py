"""An API's ABI as data: one text file a C API, read lazily, from which everything else is made.

The file (`icd/opencl.abi` is the first) has the sections `[types]`, `[functions]`, `[errors]` and `[constants]`; its own
comments say how a line reads. From it come the ctypes prototypes (`Function.prototype`), the generated C (`Function.c_declaration`),
the readable codes (`Api.errors`) and, for printing, the names of the constants (`Api.constants`).

    >>> from fairlead.icd.abi import OPENCL
    >>> OPENCL.functions["clGetPlatformInfo"].slot
    1

Nothing here knows OpenCL, and nothing here loads a library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_SCALARS: dict[str, Any] = {
    "void": None,
    "char": ctypes.c_char,
    "unsigned_char": ctypes.c_ubyte,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "intptr_t": ctypes.c_ssize_t,
    "handle": ctypes.c_void_p,
    "callback": ctypes.c_void_p,
    "void*": ctypes.c_void_p,
}
_PROTOTYPE = re.compile(r"\s*(?P<slot>\d+|-) (?P<since>\S+) (?P<returns>\S+) (?P<name>\w+)\((?P<parameters>.*)\)")
_PARAMETER = re.compile(r"(?P<const>const )?(?P<type>\w+) (?P<stars>\**)(?P<name>\w+)")


@dataclass(frozen=True)
class Parameter:
    """One parameter: `const type *...name`. `stars` counts the levels of pointer."""

    name: str
    type: str
    stars: int
    const: bool

    @property
    def c_type(self) -> str:
        """The parameter's type as C writes it, `cl_uint *`."""
        base = "void *" if self.type == "callback" else self.type.replace("_char", " char") + " "
        return ("const " if self.const else "") + base + "*" * self.stars


@dataclass(frozen=True)
class Function:
    """One function: `slot` in the dispatch table (None if it has none), and `since`, the API version that a table must have."""

    api: Api
    slot: int | None
    since: tuple[int, int]
    returns: str
    name: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def prototype(self) -> Any:
        """The ctypes function type: call it with an address to get a callable. Pointers travel as `c_void_p`, except `char *`."""
        return ctypes.CFUNCTYPE(
            self.api.ctype(self.returns), *(self.api.ctype(p.type, p.stars, p.const) for p in self.parameters)
        )

    @cached_property
    def error_channel(self) -> str:
        """How the function says that it failed: "errcode_ret" (and NULL), "return" (the code itself), or "null" (NULL, or nothing)."""
        if self.parameters and self.parameters[-1].name == "errcode_ret":
            return "errcode_ret"
        return "return" if self.returns == "cl_int" else "null"

    @property
    def c_parameters(self) -> str:
        """The parameter list as C writes it."""
        return ", ".join(f"{p.c_type}{p.name}" for p in self.parameters) or "void"

    def c_declaration(self, name: str) -> str:
        """The function's prototype in C, under another name."""
        return f"{self.returns} {name}({self.c_parameters})"


@dataclass(frozen=True)
class Constant:
    """A constant and the type (group) that it belongs to, such as `cl_device_info`."""

    name: str
    value: int
    group: str


class Api:
    """The contents of one ABI file; each section is parsed when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _sections(self) -> dict[str, list[str]]:
        sections: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                lines = sections.setdefault(line.strip("[]"), [])
            else:
                lines.append(line)
        return sections

    @cached_property
    def types(self) -> dict[str, str]:
        """Type name → "handle", "struct", a C scalar, or another name of this dictionary."""
        return dict(line.split(" = ") for line in self._sections["types"])

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Function name → Function: first the table's slots in order, then the functions that have no slot."""
        return {function.name: function for function in map(self._function, self._sections["functions"])}

    @cached_property
    def slots(self) -> tuple[Function, ...]:
        """The functions that have a slot, in slot order."""
        return tuple(function for function in self.functions.values() if function.slot is not None)

    @cached_property
    def errors(self) -> dict[int, tuple[str, str]]:
        """Code → (symbolic name, sentence in plain words)."""
        fields = (line.split(" ", 2) for line in self._sections["errors"])
        return {int(code): (name, sentence) for code, name, sentence in fields}

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """Constant name → Constant."""
        return {constant.name: constant for constant in self._constants()}

    def __getitem__(self, name: str) -> int:
        """The value of a constant: `OPENCL["CL_DEVICE_NAME"]`."""
        return self.constants[name].value

    def resolve(self, type_name: str) -> str:
        """What a type is in the end: "handle", "struct" or a C scalar."""
        while type_name in self.types:
            type_name = self.types[type_name]
        return type_name

    def ctype(self, type_name: str, stars: int = 0, const: bool = False) -> Any:
        """The ctypes type of `type_name` behind `stars` levels of pointer."""
        if type_name.endswith("*"):
            type_name, stars = type_name.rstrip("*"), stars + 1
        if stars:
            return ctypes.c_char_p if type_name == "char" and stars == 1 and const else ctypes.c_void_p
        return _SCALARS[self.resolve(type_name)]

    def _function(self, line: str) -> Function:
        match = _PROTOTYPE.fullmatch(line)
        if match is None:
            raise ValueError(f"{self.path}: not a prototype: {line}")
        parameters = []
        for text in match["parameters"].split(", ") if match["parameters"] not in ("", "void") else []:
            part = _PARAMETER.fullmatch(text)
            if part is None:
                raise ValueError(f"{self.path}: not a parameter: {text}")
            parameters.append(Parameter(part["name"], part["type"], len(part["stars"]), bool(part["const"])))
        slot = None if match["slot"] == "-" else int(match["slot"])
        major, minor = match["since"].split(".")
        return Function(self, slot, (int(major), int(minor)), match["returns"], match["name"], tuple(parameters))

    def _constants(self) -> Iterator[Constant]:
        group = ""
        for line in self._sections["constants"]:
            if line.endswith(":"):
                group = line[:-1]
            else:
                name, value = line.split(" ")
                yield Constant(name, int(value, 0), group)
