"""An API's ABI as data: one text file a C API, read lazily, from which everything else is made.

The files (`icd/opencl.abi`, `loader/ur/ur.abi`, `loader/pi/pi.abi`) have the sections `[types]`, `[structs]`, `[functions]`, `[errors]`,
`[constants]` and, where a table's layout changed between versions, one `[tables VERSION]` each; their own comments say how a line
reads. From them come the ctypes prototypes (`Function.prototype`), the generated C (`Function.c_declaration`), the readable codes
(`Api.errors`), and all that the printing of a call needs: directions, lengths, the names of constants.

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
    "bool": ctypes.c_bool,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "intptr_t": ctypes.c_ssize_t,
    "uintptr_t": ctypes.c_size_t,
    "handle": ctypes.c_void_p,
    "callback": ctypes.c_void_p,
    "void*": ctypes.c_void_p,
}
_PROTOTYPE = re.compile(
    r"\s*(?P<slot>\d+|-) (?P<since>\S+) (?P<returns>\S+) (?P<name>\w+)\((?P<parameters>.*)\)"
)
_PARAMETER = re.compile(
    r"(?P<const>const )?(?P<type>\w+) (?P<stars>\**)(?P<name>\w+)(?:\[(?P<length>\w+)\])?(?P<words>(?: \w+)*)"
)
_STRUCT = re.compile(r"(?P<name>\w+): (?P<kind>struct|union): (?P<fields>.*)")


@dataclass(frozen=True)
class Parameter:
    """One parameter, or one field of a struct: `const type *...name[length] words`.

    `stars` counts the levels of pointer. `length` is the parameter (or the constant, or the number) that says how many elements it
    leads to, bytes for a `void *`; "" means one. `words` are `out`, `inout`, `optional` (may be NULL), `alloc`, `release`, `retain`
    (what becomes of the object), and `of NAME` (its type is that which the constant in the parameter NAME stands for).
    """

    name: str
    type: str
    stars: int
    const: bool
    length: str = ""
    words: tuple[str, ...] = ()

    @property
    def c_type(self) -> str:
        """The parameter's type as C writes it, `cl_uint *`."""
        base = "void *" if self.type == "callback" else self.type.replace("_char", " char") + " "
        return ("const " if self.const else "") + base + "*" * self.stars

    @property
    def is_out(self) -> bool:
        """Whether the function writes where it points. Without a word for it: a pointer to what is neither const nor raw memory."""
        if "out" in self.words or "inout" in self.words:
            return True
        return not self.words and bool(self.stars) and not self.const and self.type != "void"

    @property
    def type_from(self) -> str:
        """The parameter whose constant says what this one leads to, "" if its own type does."""
        return self.words[self.words.index("of") + 1] if "of" in self.words else ""


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
            self.api.ctype(self.returns),
            *(self.api.ctype(p.type, p.stars, p.const) for p in self.parameters),
        )

    @cached_property
    def error_channel(self) -> str:
        """How the function says that it failed: "errcode_ret" (and NULL), "return" (the code itself), or "null" (NULL, or nothing)."""
        if self.parameters and self.parameters[-1].name == "errcode_ret":
            return "errcode_ret"
        return "return" if self.api.resolve(self.returns) == "int32_t" else "null"

    @property
    def c_parameters(self) -> str:
        """The parameter list as C writes it."""
        return ", ".join(f"{p.c_type}{p.name}" for p in self.parameters) or "void"

    def c_declaration(self, name: str) -> str:
        """The function's prototype in C, under another name."""
        return f"{self.returns} {name}({self.c_parameters})"


@dataclass(frozen=True)
class Constant:
    """A constant and the type (group) that it belongs to, such as `cl_device_info`. `answer` is the type that a query for it gives,
    "char[]"; "" if the data does not say."""

    name: str
    value: int
    group: str
    answer: str = ""


@dataclass(frozen=True)
class Struct:
    """A struct, or a union, and its fields. A field's `length` is the number of its elements if it is no pointer."""

    name: str
    kind: str
    fields: tuple[Parameter, ...]

    @property
    def c_definition(self) -> str:
        """The definition in C; the type's name must be declared already."""
        fields = (
            f"{f.c_type}{f.name}[{f.length}]; "
            if f.length and not f.stars
            else f"{f.c_type}{f.name}; "
            for f in self.fields
        )
        return f"{self.kind} {self.name} {{ {''.join(fields)}}};"


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
        return {
            function.name: function for function in map(self._function, self._sections["functions"])
        }

    @cached_property
    def slots(self) -> tuple[Function, ...]:
        """The functions that have a slot, in slot order."""
        return tuple(function for function in self.functions.values() if function.slot is not None)

    @cached_property
    def structs(self) -> dict[str, Struct]:
        """Struct name → Struct."""
        return {
            struct.name: struct for struct in map(self._struct, self._sections.get("structs", ()))
        }

    @cached_property
    def layouts(self) -> dict[str, dict[str, tuple[str | None, ...]]]:
        """Version → table name → the names of its functions in order; None for an entry that is not known. The newest is first."""
        layouts = {}
        for section, lines in self._sections.items():
            if section.startswith("tables "):
                rows = (line.split(": ") for line in lines)
                layouts[section.removeprefix("tables ")] = {
                    table: tuple(None if name == "-" else name for name in names.split(" "))
                    for table, names in rows
                }
        return layouts

    @cached_property
    def errors(self) -> dict[int, tuple[str, str]]:
        """Code → (symbolic name, sentence in plain words)."""
        fields = (line.split(" ", 2) for line in self._sections["errors"])
        return {int(code): (name, sentence) for code, name, sentence in fields}

    @cached_property
    def codes(self) -> dict[str, int]:
        """Symbolic name → code."""
        return {name: code for code, (name, _) in self.errors.items()}

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """Constant name → Constant."""
        return {constant.name: constant for constant in self._constants()}

    @cached_property
    def groups(self) -> dict[str, dict[int, str]]:
        """Type name → value → the name of the constant; of several names for a value the first."""
        groups: dict[str, dict[int, str]] = {}
        for constant in self.constants.values():
            groups.setdefault(constant.group, {}).setdefault(constant.value, constant.name)
        return groups

    def is_bitfield(self, type_name: str) -> bool:
        """Whether values of the type are bits that are or-ed together: it resolves through a type called `…bitfield`."""
        while type_name in self.types and not type_name.endswith("bitfield"):
            type_name = self.types[type_name]
        return type_name.endswith("bitfield")

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
            return (
                ctypes.c_char_p if type_name == "char" and stars == 1 and const else ctypes.c_void_p
            )
        base = self.resolve(type_name)
        return self._struct_type(type_name) if base == "struct" else _SCALARS[base]

    def struct(self, name: str) -> Any:
        """The ctypes class of a struct or union; pointers in it are `c_void_p`."""
        return self._struct_type(name)

    @cached_property
    def _struct_types(self) -> dict[str, Any]:
        return {}

    def _struct_type(self, name: str) -> Any:
        if name not in self._struct_types:
            struct = self.structs[name]
            fields = []
            for field in struct.fields:
                ctype = ctypes.c_void_p if field.stars else self.ctype(field.type)
                fields.append(
                    (
                        field.name,
                        ctype * self._count(field) if field.length and not field.stars else ctype,
                    )
                )
            base = ctypes.Structure if struct.kind == "struct" else ctypes.Union
            self._struct_types[name] = type(name, (base,), {"_fields_": fields})
        return self._struct_types[name]

    def _count(self, field: Parameter) -> int:
        return int(field.length) if field.length.isdecimal() else self[field.length]

    def _function(self, line: str) -> Function:
        match = _PROTOTYPE.fullmatch(line)
        if match is None:
            raise ValueError(f"{self.path}: not a prototype: {line}")
        text = match["parameters"]
        parameters = (
            tuple(map(self._parameter, text.split(", "))) if text not in ("", "void") else ()
        )
        slot = None if match["slot"] == "-" else int(match["slot"])
        major, minor = match["since"].split(".")
        return Function(
            self, slot, (int(major), int(minor)), match["returns"], match["name"], parameters
        )

    def _parameter(self, text: str) -> Parameter:
        part = _PARAMETER.fullmatch(text)
        if part is None:
            raise ValueError(f"{self.path}: not a parameter: {text}")
        words = tuple(part["words"].split())
        return Parameter(
            part["name"],
            part["type"],
            len(part["stars"]),
            bool(part["const"]),
            part["length"] or "",
            words,
        )

    def _struct(self, line: str) -> Struct:
        match = _STRUCT.fullmatch(line)
        if match is None:
            raise ValueError(f"{self.path}: not a struct: {line}")
        return Struct(
            match["name"], match["kind"], tuple(map(self._parameter, match["fields"].split("; ")))
        )

    def _constants(self) -> Iterator[Constant]:
        group = ""
        for line in self._sections["constants"]:
            if line.endswith(":"):
                group = line[:-1]
            else:
                name, value, *answer = line.split(" ", 2)
                yield Constant(name, int(value, 0), group, "".join(answer))
