"""Compares ABI data with a C header: by its text, and by assertions that a C compiler checks."""

from __future__ import annotations

import ctypes
import re
import runpy
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.loader.base.abi import Api, Function

#: A function's name → its result, and the types and names of its parameters, without blanks.
Prototypes = dict[str, tuple[str, list[tuple[str, str]]]]


def read_header(path: Path) -> str:
    """Return a header without its comments and attributes."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|//[^\n]*|\[\[.*?\]\]", "", text, flags=re.S)


def find_prototypes(text: str, pattern: str) -> Prototypes:
    """Return the functions of a header.

    Args:
        text: see `read_header`.
        pattern: finds a function's result, name and parameters.
    """
    found: Prototypes = {}
    for returns, name, parameters in re.findall(pattern, text, re.S):
        texts = [one for one in parameters.split(",") if one.strip() not in ("", "void")]
        pairs = [re.fullmatch(r"\s*(.*?)(\w+)\s*(\[\])?\s*", one, re.S) for one in texts]
        found[name] = (
            re.sub(r"\s", "", returns),
            [(re.sub(r"\s", "", one[1]) + "*" * bool(one[3]), one[2]) for one in pairs if one],
        )
    return found


def list_prototypes(functions: Iterable[Function]) -> Prototypes:
    """Return functions of the data as `find_prototypes` returns the header's."""
    return {
        one.name: (
            one.returns,
            [
                ("callback" if p.type == "callback" else re.sub(r"\s", "", p.c_type), p.name)
                for p in one.parameters
            ],
        )
        for one in functions
    }


def find_enumerators(text: str) -> dict[str, str]:
    """Return the enum that each enumerator of a header belongs to.

    Enumerators such as UR_RESULT_FORCE_UINT32 are left out: they only make the enum 32 bits wide.
    """
    return {
        name: enum
        for body, enum in re.findall(r"typedef enum \w+\s*\{(.*?)\}\s*(\w+)\s*;", text, re.S)
        for name in re.findall(r"(?:^|,)\s*([A-Z]\w+)\s*(?==|,|$)", body)
        if not name.endswith("_FORCE_UINT32")
    }


def check_groups(api: Api, enums: Mapping[str, str]) -> None:
    """Check that constants stand under the type that parameters have.

    Bits belong to the type of the bits together: `ur_queue_flags_t`, not `ur_queue_flag_t`.
    """
    for name, enum in enums.items():
        if name in api.constants:
            flags = re.sub(r"_flag_t$", "_flags_t", enum)
            group = api.constants[name].group
            assert group == (flags if flags in api.types else enum), name
            assert api.is_bitfield(group) == enum.endswith("_flag_t"), name


def define_types(api: Api) -> Iterator[str]:
    """Yield the types and structs of an API in C, in an order that C accepts."""
    path = Path(__file__).parents[2] / "loader/base/native/building.py"
    defined = set[str]()
    for line in runpy.run_path(str(path))["emit_declarations"](api):
        yield line
        if match := re.match(r"(?:struct|union) (\w+) \{", line):
            defined.add(match[1])
    waiting = [struct for struct in api.structs.values() if struct.name not in defined]
    while waiting:  # a struct comes after those that are fields of it
        names = {struct.name for struct in waiting}
        ready = [one for one in waiting if not {f.type for f in one.fields if not f.stars} & names]
        assert ready, names
        yield from (struct.c_definition for struct in ready)
        waiting = [struct for struct in waiting if struct not in ready]


def same(name: str) -> str:
    """Return a name as it is."""
    return name


def compile_lines(
    lines: Iterable[str], folder: Path, includes: Sequence[str], *options: str
) -> None:
    """Compile assertions after headers.

    Args:
        lines: C.
        folder: where the source is written.
        includes: the headers, such as "cuda.h".
        options: of the compiler.
    """
    source = folder / "check.c"
    headers = [f"#include <{one}>" for one in ("stddef.h", "stdbool.h", "stdint.h", *includes)]
    source.write_text("\n".join([*headers, *lines, ""]), encoding="utf-8")
    command = ["cc", "-std=gnu11", "-fsyntax-only", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def function_lines(functions: Sequence[Function], types: Mapping[str, str]) -> Iterator[str]:
    """Yield an assertion for each function that is not a macro: its type is the header's.

    Args:
        functions: those that the header has.
        types: the header's names of types, where they differ from the data's.
    """
    for function in functions:
        parameters = ", ".join(
            f"{'const ' * p.const}{types.get(p.type, p.type)} {'*' * p.stars}"
            for p in function.parameters
        )
        pointer = f"{function.returns} (*)({parameters or 'void'})"
        yield f"#ifndef {function.name}"
        yield (
            f"_Static_assert(__builtin_types_compatible_p(typeof(&{function.name}), {pointer}), "
            f'"{function.name}");'
        )
        yield "#endif"


def struct_lines(
    api: Api, names: Iterable[str], header_name: Callable[[str], str] = same
) -> Iterator[str]:
    """Yield assertions for structs: the size, and the place and size of each field that has a name.

    Args:
        api: the data.
        names: the structs. Fields called `unused…` stand for several of the header's.
        header_name: the header's name of a struct.
    """
    for name in names:
        struct: Any = api.get_struct(name)
        c_name = header_name(name)
        yield f'_Static_assert(sizeof({c_name}) == {ctypes.sizeof(struct)}, "{name}");'
        for field, *_ in struct._fields_:
            if not field.startswith("unused"):
                place, what = getattr(struct, field), f'"{name}.{field}"'
                yield f"_Static_assert(offsetof({c_name}, {field}) == {place.offset}, {what});"
                yield f"_Static_assert(sizeof((({c_name} *)0)->{field}) == {place.size}, {what});"


def type_lines(api: Api, names: Iterable[str], types: Mapping[str, str] = {}) -> Iterator[str]:
    """Yield an assertion for each type that is not a struct: its size is the header's."""
    for name in names:
        if api.resolve(name) != "struct":
            size = ctypes.sizeof(api.make_ctype(name))
            yield f'_Static_assert(sizeof({types.get(name, name)}) == {size}, "{name}");'


def value_lines(values: Mapping[str, int], c_type: str = "unsigned long long") -> Iterator[str]:
    """Yield an assertion for each constant."""
    for name, value in values.items():
        yield f'_Static_assert(({c_type})({name}) == ({c_type})({value}), "{name}");'
