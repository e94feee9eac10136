"""Declares the types of an API in C, with handles and `void *` as plain numbers.

Entry points that Python answers have these types, in C and in cffi.
"""

from __future__ import annotations

import runpy
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[2] / "loader" / "base" / "native"
building = SimpleNamespace(**runpy.run_path(str(LOADER / "building.py")))

#: The C type of handles, callbacks and raw memory. Python sees a number.
NUMBER = "uintptr_t"


def read_ur() -> Any:
    """Return the ABI data of Unified Runtime."""
    return building.read_api("ur")


def list_functions() -> list[Any]:
    """Return the entry points that an adapter may have: the newest form of each."""
    return [function for function in read_ur().slots if not function.name.endswith("_2025_3")]


def _get_type(api: Any, type_name: str, stars: int, const: bool) -> str:
    """Return the type of a parameter or a field."""
    base = api.resolve(type_name) if type_name != "callback" else "callback"
    if base in ("handle", "callback"):
        type_name = NUMBER
    elif type_name == "void":
        type_name, stars = NUMBER, stars - 1
    type_name = type_name.replace("unsigned_char", "unsigned char")
    return f"{'const ' if const and stars else ''}{type_name} {'*' * stars}"


def get_return_type(function: Any) -> str:
    """Return the type that an entry point returns: a code, or a handle as a number."""
    return NUMBER if function.api.resolve(function.returns) == "handle" else "int32_t"


def declare_parameters(function: Any) -> list[str]:
    api = function.api
    return [f"{_get_type(api, p.type, p.stars, p.const)}{p.name}" for p in function.parameters]


def _declare_field(api: Any, f: Any) -> str:
    count = f.length if f.length.isdecimal() or not f.length else api[f.length]
    length = f"[{count}]" if f.length and not f.stars else ""
    return f" {_get_type(api, f.type, f.stars, f.const)}{f.name}{length};"


def declare_types(api: Any) -> Iterator[str]:
    """Yield the declarations of an API's types, for C and for cffi."""
    done = set()

    def declare(name: str) -> Iterator[str]:
        base = api.types.get(name)
        if name in done or base is None or base in ("handle", "callback"):
            return
        done.add(name)
        if base != "struct":
            yield from declare(base)
            yield f"typedef {base} {name};"
        elif name in api.structs:
            struct = api.structs[name]
            yield f"typedef {struct.kind} {name} {name};"
            for field in struct.fields:
                yield from declare(field.type)
            fields = "".join(_declare_field(api, field) for field in struct.fields)
            yield f"{struct.kind} {name} {{{fields} }};"
        else:
            yield f"typedef struct {name} {name};"

    for name in api.types:
        yield from declare(name)


def declare_kinds(api: Any) -> str:
    """Return a number for each type of handle: kind_ur_queue_handle_t."""
    found = (name for name in api.types if api.types[name] == "handle")
    numbers = (f"kind_{name} = {number}" for number, name in enumerate(found, 1))
    return f"enum {{ {', '.join(numbers)} }};"


def declare_callbacks(found: Iterable[Any]) -> str:
    """Return the `extern "Python"` declarations of entry points, for cffi."""
    lines = [
        f"{get_return_type(f)} py_{f.name}(uint32_t adapter, {', '.join(declare_parameters(f))});"
        for f in found
    ]
    return 'extern "Python" {\n' + "\n".join(lines) + "\n}\n"


def compute_version(api: Any, found: Iterable[Any]) -> int:
    """Return a number for what a shell and a fairlead have to agree on, because ages may differ."""
    cdef = (HERE / "shell.cdef.h").read_text(encoding="utf-8")
    return zlib.crc32((cdef + "\n".join(declare_types(api)) + declare_callbacks(found)).encode())


def emit_ur_types() -> str:
    """Return the text of ur_types.h: types, constants, codes, and the kinds of handles."""
    api = read_ur()
    constants = [(name, code) for code, (name, _) in api.errors.items()] + [
        (c.name, c.value) for c in api.constants.values()
    ]
    lines = [
        building.emit_first_line("plugins/sdk/native/c_types.py", api),
        "#pragma once",
        "#include <stdbool.h>",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>", *declare_types(api), declare_kinds(api)]
    return "\n".join([*lines, *(f"#define {name} ({value})" for name, value in constants), ""])
