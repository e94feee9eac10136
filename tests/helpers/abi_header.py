"""Compares ABI data with a C header, by assertions that a C compiler checks."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.loader.base.abi import Api, Function


def same(name: str) -> str:
    """Return a name as it is."""
    return name


def compile_lines(
    lines: Sequence[str], tmp_path: Path, include: str, *options: str, header_folder: Path
) -> None:
    """Compile assertions after a header.

    Args:
        lines: C.
        tmp_path: where the source is written.
        include: the header, such as "cuda.h".
        options: of the compiler.
        header_folder: where the header is.
    """
    source = tmp_path / "check.c"
    before = ["#include <stddef.h>", "#include <stdbool.h>", f"#include <{include}>"]
    source.write_text("\n".join([*before, *lines, ""]))
    command = ["cc", "-std=gnu11", "-fsyntax-only", *options, f"-I{header_folder}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


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
    api: Api, names: Sequence[str], header_name: Callable[[str], str] = same
) -> Iterator[str]:
    """Yield assertions for structs: the size, and the place of each field that has a name.

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
                place = getattr(struct, field).offset
                yield (f'_Static_assert(offsetof({c_name}, {field}) == {place}, "{name}.{field}");')


def type_lines(api: Api, types: Mapping[str, str]) -> Iterator[str]:
    """Yield an assertion for each type that is not a struct: its size is the header's."""
    for name in api.types:
        if api.resolve(name) != "struct":
            size = ctypes.sizeof(api.make_ctype(name))
            yield f'_Static_assert(sizeof({types.get(name, name)}) == {size}, "{name}");'


def value_lines(values: Mapping[str, int]) -> Iterator[str]:
    """Yield an assertion for each constant."""
    for name, value in values.items():
        yield f'_Static_assert((long){name} == {value}, "{name}");'
