"""The ABI of a C API as data: one text file for each API, parsed lazily.

The files are `icd/opencl.abi`, `loader/ur/ur.abi`, `loader/pi/pi.abi` and `loader/ze/ze.abi`.
Their sections are `[types]`, `[structs]`, `[functions]`, `[errors]` and `[constants]`. An API whose
tables differ between versions has one section `[tables VERSION]` for each. argument_rules.py reads
what calls are refused for. Comments in the files explain the lines.

From this data come ctypes prototypes (`Function.prototype`), generated C
(`Function.format_c_declaration`), names of codes (`Api.errors`), and the text of traced calls.

    >>> from fairlead.icd.abi import OPENCL
    >>> OPENCL.functions["clGetPlatformInfo"].slot
    1

This module knows nothing of OpenCL and loads no library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cached_property

# `fairlead devices` waits for no import of typing, and the native build finds no other module.
TYPE_CHECKING = False
if TYPE_CHECKING:
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


class Parameter:
    """One parameter, or one field of a struct: `const type *...name[length] words`.

    Attributes:
        type: the name of its C type, without pointers.
        stars: the number of pointer levels.
        const: whether the memory behind the pointer is const.
        length: the parameter, constant or number that gives the number of elements behind the
            pointer. For a `void *` it counts bytes. "" means one element. `*NAME` is the number
            that the parameter NAME points to.
        words: `in`, `out`, `inout`, `optional` (may be NULL), `alloc`, `release`, `retain` (what
            happens to the object), and `of NAME` (the constant in the parameter NAME determines the
            type).
    """

    def __init__(
        self, name: str, type: str, stars: int, const: bool, length: str, words: tuple[str, ...]
    ) -> None:
        self.name, self.type, self.stars, self.const = name, type, stars, const
        self.length, self.words = length, words

    @property
    def c_type(self) -> str:
        """The type as C writes it, such as `cl_uint *`."""
        base = "void *" if self.type == "callback" else self.type.replace("_char", " char") + " "
        return ("const " if self.const else "") + base + "*" * self.stars

    @property
    def is_out(self) -> bool:
        """Whether the function writes to the memory behind the pointer.

        Without `words`, every pointer counts that is neither const nor `void *`.
        """
        if "out" in self.words or "inout" in self.words:
            return True
        return not self.words and bool(self.stars) and not self.const and self.type != "void"

    @property
    def type_from(self) -> str:
        """The parameter whose constant determines this one's type, "" if there is none."""
        return self.words[self.words.index("of") + 1] if "of" in self.words else ""


class Function:
    """One function of an API.

    Attributes:
        slot: its index in the dispatch table, None if it has none.
        since: the API version that introduced it (major, minor).
        returns: the name of the C type that it returns.
        declared: its parameters as the ABI file writes them.
    """

    def __init__(
        self,
        api: Api,
        slot: int | None,
        since: tuple[int, int],
        returns: str,
        name: str,
        declared: str,
    ) -> None:
        self.api, self.slot, self.since = api, slot, since
        self.returns, self.name, self.declared = returns, name, declared

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters in order. Most processes use few functions, so they are parsed late."""
        if self.declared in ("", "void"):
            return ()
        return tuple(map(self.api.parse_parameter, self.declared.split(", ")))

    @cached_property
    def prototype(self) -> Any:
        """The ctypes function type. Called with an address, it returns a callable.

        Pointers are `c_void_p`, except `const char *`, which is `c_char_p`.
        """
        return ctypes.CFUNCTYPE(
            self.api.make_ctype(self.returns),
            *(self.api.make_ctype(p.type, p.stars, p.const) for p in self.parameters),
        )

    @cached_property
    def error_channel(self) -> str:
        """How the function reports an error.

        "errcode_ret": it writes the code there and returns NULL. "return": it returns the code.
        "null": it returns NULL, or nothing.
        """
        if self.parameters and self.parameters[-1].name == "errcode_ret":
            return "errcode_ret"
        return "return" if self.api.resolve(self.returns) == "int32_t" else "null"

    @property
    def c_parameters(self) -> str:
        """The parameter list as C writes it."""
        return ", ".join(f"{p.c_type}{p.name}" for p in self.parameters) or "void"

    def format_c_declaration(self, name: str) -> str:
        """Return the function's prototype in C under another name."""
        return f"{self.returns} {name}({self.c_parameters})"


class Constant:
    """A constant of an API.

    Attributes:
        group: the type that it belongs to, such as `cl_device_info`.
        answer: the type of the answer to a query for it, such as "char[]". "" if unknown.
    """

    def __init__(self, name: str, value: int, group: str, answer: str) -> None:
        self.name, self.value, self.group, self.answer = name, value, group, answer


class Struct:
    """A struct or a union. A field that has a number for its `length` is an array, or a pointer."""

    def __init__(self, name: str, kind: str, fields: tuple[Parameter, ...]) -> None:
        self.name, self.kind, self.fields = name, kind, fields

    @property
    def c_definition(self) -> str:
        """The definition in C. The name of the type must be declared already."""
        fields = (
            f"{f.c_type}{f.name}[{f.length}]; "
            if f.length and not f.stars
            else f"{f.c_type}{f.name}; "
            for f in self.fields
        )
        return f"{self.kind} {self.name} {{ {''.join(fields)}}};"


class Api:
    """The contents of one ABI file. Each section is parsed at its first use.

    Attributes:
        name: the name of the file, without ".abi".
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.name = os.path.basename(path).removesuffix(".abi")

    @cached_property
    def _sections(self) -> dict[str, list[str]]:
        sections: dict[str, list[str]] = {}
        with open(self.path, encoding="utf-8") as file:
            data = file.read()
        for section in data.split("\n[")[1:]:
            name, _, text = section.partition("]\n")
            lines = sections.setdefault(name, [])
            lines += (line for line in text.split("\n") if line and line[0] != "#")
        return sections

    def list_lines(self, section: str) -> list[str]:
        """Return the lines of a section, none if there is no such section."""
        return self._sections.get(section, [])

    @cached_property
    def types(self) -> dict[str, str]:
        """Type name to "handle", "struct", a C scalar, or another name of this dictionary."""
        return dict(line.split(" = ") for line in self._sections["types"])

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Function name to Function: the slots in order, then the functions without a slot."""
        return {
            function.name: function
            for function in map(self._parse_function, self._sections["functions"])
        }

    @cached_property
    def slots(self) -> tuple[Function, ...]:
        """The functions that have a slot, in slot order."""
        return tuple(function for function in self.functions.values() if function.slot is not None)

    @cached_property
    def structs(self) -> dict[str, Struct]:
        """Struct name to Struct."""
        return {
            struct.name: struct for struct in map(self._parse_struct, self.list_lines("structs"))
        }

    @cached_property
    def layouts(self) -> dict[str, dict[str, tuple[str | None, ...]]]:
        """Version to table name to the names of the table's functions in order.

        The newest version is first. None stands for an entry that is not known.
        """
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
    def other_tables(self) -> dict[str, tuple[str, ...]]:
        """Prefix of functions to the names of tables that drivers have and this data has not."""
        rows = (line.split(": ") for line in self.list_lines("other tables"))
        return {prefix: tuple(names.split(" ")) for prefix, names in rows}

    @cached_property
    def strings(self) -> dict[str, str]:
        """Constant name to text, such as the name of an extension."""
        return dict(line.split(" = ") for line in self.list_lines("strings"))

    @cached_property
    def errors(self) -> dict[int, tuple[str, str]]:
        """Code to symbolic name and sentence."""
        fields = (line.split(" ", 2) for line in self._sections["errors"])
        return {int(code): (name, sentence) for code, name, sentence in fields}

    @cached_property
    def codes(self) -> dict[str, int]:
        """Symbolic name to code."""
        return {name: code for code, (name, _) in self.errors.items()}

    @cached_property
    def constants(self) -> dict[str, Constant]:
        """Constant name to Constant."""
        return {constant.name: constant for constant in self._parse_constants()}

    @cached_property
    def groups(self) -> dict[str, dict[int, str]]:
        """Type name to value to the name of the constant, the first one if there are several."""
        groups: dict[str, dict[int, str]] = {}
        for constant in self.constants.values():
            groups.setdefault(constant.group, {}).setdefault(constant.value, constant.name)
        return groups

    def is_bitfield(self, type_name: str) -> bool:
        """Return whether values of the type are combined bits.

        Such a type resolves through a type whose name ends with `bitfield`.
        """
        while type_name in self.types and not type_name.endswith("bitfield"):
            type_name = self.types[type_name]
        return type_name.endswith("bitfield")

    def __getitem__(self, name: str) -> int:
        """Return the value of a constant: `OPENCL["CL_DEVICE_NAME"]`."""
        _, value, *_ = self._lines_of_constants[name].split(" ", 2)
        return int(value, 0)

    def find_answer(self, name: str) -> str | None:
        """Return the type of the answer to a query, None if there is no constant of this name.

        It is "" if the ABI data does not say it.
        """
        line = self._lines_of_constants.get(name)
        return None if line is None else "".join(line.split(" ", 2)[2:])

    @cached_property
    def _lines_of_constants(self) -> dict[str, str]:
        """Constant name to its line. Most processes ask for few constants."""
        return {line.partition(" ")[0]: line for line in self._sections["constants"]}

    def resolve(self, type_name: str) -> str:
        """Resolve a type name to "handle", "struct" or a C scalar."""
        while type_name in self.types:
            type_name = self.types[type_name]
        return type_name

    def make_ctype(self, type_name: str, stars: int = 0, const: bool = False) -> Any:
        """Return the ctypes type of `type_name` with `stars` pointer levels."""
        if type_name.endswith("*"):
            type_name, stars = type_name.rstrip("*"), stars + 1
        if stars:
            return (
                ctypes.c_char_p if type_name == "char" and stars == 1 and const else ctypes.c_void_p
            )
        base = self.resolve(type_name)
        return self._find_struct_type(type_name) if base == "struct" else _SCALARS[base]

    def get_struct(self, name: str) -> Any:
        """Return the ctypes class of a struct or union. Pointers in it are `c_void_p`."""
        return self._find_struct_type(name)

    @cached_property
    def _struct_types(self) -> dict[str, Any]:
        return {}

    def _find_struct_type(self, name: str) -> Any:
        if name not in self._struct_types:
            struct = self.structs[name]
            fields = []
            for field in struct.fields:
                ctype = ctypes.c_void_p if field.stars else self.make_ctype(field.type)
                fields.append(
                    (
                        field.name,
                        ctype * int(field.length) if field.length and not field.stars else ctype,
                    )
                )
            base = ctypes.Structure if struct.kind == "struct" else ctypes.Union
            self._struct_types[name] = type(name, (base,), {"_fields_": fields})
        return self._struct_types[name]

    def _parse_function(self, line: str) -> Function:
        try:
            number, since, returns, prototype = line.split(None, 3)
            slot = None if number == "-" else int(number)
            major, minor = map(int, since.split("."))
            name, parameters = prototype.removesuffix(")").split("(")
        except ValueError:
            raise ValueError(f"{self.path}: not a prototype: {line}") from None
        return Function(self, slot, (major, minor), returns, name, parameters)

    def parse_parameter(self, text: str) -> Parameter:
        """Parse what the file says of one parameter, or of one field of a struct.

        Raises:
            ValueError: it says something else.
        """
        bare = text.removeprefix("const ")
        kind, _, rest = bare.partition(" ")
        declared, *words = rest.split(" ")
        name, bracket, length = declared.removesuffix("]").partition("[")
        stars = len(name) - len(name.lstrip("*"))
        length_name = length.removeprefix("*") if bracket else "1"
        if not all(map(_is_word, (kind, name[stars:], length_name, *words))):
            raise ValueError(f"{self.path}: not a parameter: {text}")
        return Parameter(name[stars:], kind, stars, bare != text, length, tuple(words))

    def _parse_struct(self, line: str) -> Struct:
        name, kind, *fields = line.split(": ", 2)
        if kind not in ("struct", "union") or not fields:
            raise ValueError(f"{self.path}: not a struct: {line}")
        parsed = map(self.parse_parameter, fields[0].split("; "))
        return Struct(name, kind, tuple(map(self._resolve_length, parsed)))

    def _resolve_length(self, field: Parameter) -> Parameter:
        """Return a field whose array has its length as a number."""
        if not field.stars and field.length and not field.length.isdecimal():
            field.length = str(self[field.length])
        return field

    def _parse_constants(self) -> Iterator[Constant]:
        group = ""
        for line in self._sections["constants"]:
            if line.endswith(":"):
                group = line[:-1]
            else:
                name, value, *answer = line.split(" ", 2)
                yield Constant(name, int(value, 0), group, "".join(answer))


def _is_word(text: str) -> bool:
    """Whether a text is a name, or a number."""
    return text.isidentifier() or text.isdecimal()
