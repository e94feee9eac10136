"""Builds what stands between a C caller and an adapter written in Python.

Two things are generated from loader/ur/ur.abi, with the same prototypes, in which a handle and a `void *` are plain words:

- `fairlead.plugins.sdk._native`, a cffi module whose `extern "Python"` functions are the entry points as Python
  sees them: `py_urQueueFinish` is called with the number of the adapter and the arguments (`callbacks`).
  Some of them have C in front (`in_c`, `c_urQueueRetain`), which needs Python only for what C cannot do: counts of
  references (counts.c) and updates of launches (launches.c).
- `ur_entries.h`, for shell.c: a C function for each entry point, which leads to the body that Python has put in its place, the whole
  `ur_dditable_t` of them, and the 26 functions that hand it out (`entries`). A shell knows no Python at build time: it finds
  one at run time, so that the same file serves every version of Python (`shells`). `pi_entries.h` is the same for a shell that
  is a PI plugin, from loader/pi/pi.abi (`pi_entries`); its bodies are C functions, and have the prototypes of PI.

setup.py calls `ffibuilder()` and `shells()`; `python plugins/sdk/native/build.py DIRECTORY` only writes the generated C there.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[2] / "loader" / "base" / "native"
ICD = HERE.parents[2] / "icd" / "native"
building = SimpleNamespace(**runpy.run_path(str(LOADER / "building.py")))

#: Of the tables that a shell can hand out, the usual one first.
LAYOUTS = ("2026.2", "2026.1", "2026.0")
PI_VERSION = "15.47"  # of loader/pi/pi.abi

#: What Python sees of the C, and what else C calls in Python.
_CDEF = ("shell.cdef.h", "counts.cdef.h", "interrupts.cdef.h", "launches.cdef.h")
_OTHER_CALLBACKS = (
    "void py_teardown(uint32_t number); void py_reap(void);"
    " uintptr_t py_part(void *context, uintptr_t address);"
)
_UPDATE = "urCommandBufferUpdateKernelLaunchExp"

#: The C type that stands for handles, callbacks and raw memory: Python sees a number.
_WORD = "uintptr_t"


def ur() -> Any:
    """The Unified Runtime ABI."""
    return building.api("ur")


def pi() -> Any:
    """The ABI of DPC++'s plugin interface."""
    return building.api("pi")


def functions() -> list[Any]:
    """The entry points that an adapter may have: the newest form of each."""
    return [function for function in ur().slots if not function.name.endswith("_2025_3")]


def _type(type_name: str, stars: int, const: bool) -> str:
    """A parameter's or a field's type, in which handles, callbacks and raw memory are words."""
    base = ur().resolve(type_name) if type_name != "callback" else "callback"
    if base in ("handle", "callback"):
        type_name = _WORD
    elif type_name == "void":
        type_name, stars = _WORD, stars - 1
    return f"{'const ' if const and stars else ''}{type_name.replace('unsigned_char', 'unsigned char')} {'*' * stars}"


def _parameters(function: Any) -> list[str]:
    return [f"{_type(p.type, p.stars, p.const)}{p.name}" for p in function.parameters]


def types() -> Iterator[str]:
    """The types of the API, for C and for cffi alike."""
    api, done = ur(), set()

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
            fields = "".join(
                f" {_type(f.type, f.stars, f.const)}{f.name}{f'[{f.length}]' if f.length and not f.stars else ''};"
                for f in struct.fields
            )
            yield f"{struct.kind} {name} {{{fields} }};"
        else:
            yield f"typedef struct {name} {name};"

    for name in api.types:
        yield from declare(name)


def callbacks() -> str:
    """The `extern "Python"` declarations, for cffi."""
    lines = [
        f"int32_t py_{f.name}(uint32_t adapter, {', '.join(_parameters(f))});" for f in functions()
    ]
    return 'extern "Python" {\n' + "\n".join(lines) + "\n}\n"


def in_c() -> dict[str, str]:
    """The entry points that C answers as far as it can, and how: those that do nothing but count references (counts.h), and the updates
    of launches (launches.h)."""
    found = {
        f.name: f"fl_entry_{word}(adapter, {f.parameters[0].name}, kind_{f.parameters[0].type}, py_{f.name})"
        for f in functions()
        if len(f.parameters) == 1
        for word in ("retain", "release")
        if word in f.parameters[0].words
    }
    names = ", ".join(p.name for p in ur().functions[_UPDATE].parameters)
    return {
        **found,
        _UPDATE: f"fl_entry_update(adapter, {names}, py_{_UPDATE}, py_urCommandBufferReleaseExp)",
    }


def _in_c() -> Iterator[str]:
    """A function for each of them, for C."""
    for name, answer in in_c().items():
        declared = ", ".join(_parameters(ur().functions[name]))
        yield f"static int32_t py_{name}(uint32_t, {declared});"
        yield f"static int32_t c_{name}(uint32_t adapter, {declared}) {{\n    return {answer};\n}}"


def kinds() -> str:
    """A number for each type of handle: kind_ur_queue_handle_t."""
    found = (name for name in ur().types if ur().types[name] == "handle")
    return f"enum {{ {', '.join(f'kind_{name} = {number}' for number, name in enumerate(found, 1))} }};"


def ur_types() -> str:
    """The text of ur_types.h: the API's types, constants and codes, and the kinds of handles."""
    api = ur()
    constants = [(name, code) for code, (name, _) in api.errors.items()] + [
        (c.name, c.value) for c in api.constants.values()
    ]
    lines = [
        building.generated_by("plugins/sdk/native/build.py", api),
        "#pragma once",
        "#include <stdbool.h>",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>", *types(), kinds()]
    return "\n".join([*lines, *(f"#define {name} ({value})" for name, value in constants), ""])


def version() -> int:
    """A number that differs if a shell and fairlead, which may be of different ages, would misunderstand each other."""
    return zlib.crc32(
        (
            (HERE / "shell.cdef.h").read_text(encoding="utf-8") + "\n".join(types()) + callbacks()
        ).encode()
    )


def _releases(function: Any) -> bool:
    """Whether a function gives something back, or waits, so that it may say that it did when there is nothing any more."""
    return any("release" in p.words for p in function.parameters) or bool(
        re.search(
            r"(Release|Free|Destroy|TearDown|^..QueueFinish|^..Events?Wait)(Exp)?$", function.name
        )
    )


def _entry(function: Any, index: int) -> str:
    names = ", ".join(p.name for p in function.parameters)
    declared = ", ".join(_parameters(function))
    return (
        f"typedef int32_t body_{function.name}(uint32_t, {declared});\n"
        f'__attribute__((visibility("default"))) int32_t {function.name}({declared}) {{\n'
        f"    body_{function.name} *body = (body_{function.name} *)fl_body({index});\n"
        f"    return body ? fl_leave(body(fl_shell_state.number, {names})) : fl_no_body({index});\n}}"
    )


def _row(tables: dict[str, tuple[str, ...]], table: str) -> str:
    first = 0
    for name, names in tables.items():
        if name == table:
            return f"{{{first}, {len(names)}}}"
        first += len(names)
    return "{0, 0}"


def _head(api: Any, found: list[Any], module: str, **codes: int | str) -> Iterator[str]:
    """What shell.c takes from both headers: constants, the module that has `start`, the entry points. A code is an error's name."""
    yield building.generated_by("plugins/sdk/native/build.py", api)
    yield f'#define FL_ENTRIES {len(found)}\n#define FL_MODULE "{module}"\n#define FL_SHELL_VERSION {version()}u'
    values = (
        f"{name} = {api.codes[code] if isinstance(code, str) else code}"
        for name, code in codes.items()
    )
    yield f"enum {{ SUCCESS = 0, {', '.join(values)} }};"
    yield "static const char *const fl_names[] = {"
    yield from (f'    "{function.name}",' for function in found)
    yield "};"
    yield f"static const bool fl_releases[] = {{{', '.join(str(int(_releases(function))) for function in found)}}};"


def pi_entries() -> str:
    """The text of pi_entries.h."""
    api, found = pi(), list(pi().slots)
    lines = list(
        _head(
            api,
            found,
            "fairlead.plugins.sdk.pi",
            UNINITIALIZED="PI_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="PI_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="PI_ERROR_INVALID_OPERATION",
            NULL_POINTER="PI_ERROR_INVALID_VALUE",
        )
    )
    lines.append(f'#define FL_VERSION "{PI_VERSION}"')
    lines += building.declarations(api)
    for number, function in enumerate(found):
        names = ", ".join(p.name for p in function.parameters)
        counts = re.fullmatch(r"pi[A-Z][a-z]+(Retain|Release)", function.name)
        direct = f"    if ({names} && fl_is_direct({number}))\n        return fl_call({number}, (uintptr_t){names});\n"
        lines.append(
            f"typedef {function.c_declaration(f'body_{function.name}')};\n"
            f'__attribute__((visibility("default"))) {function.c_declaration(function.name)} {{\n{direct if counts else ""}'
            f"    body_{function.name} *body = (body_{function.name} *)fl_body({number});\n"
            f"    return body ? body({names}) : fl_no_body({number});\n}}"
        )
    lines.append(
        f"static void *const table_0[] = {{{', '.join(f'(void *){function.name}' for function in found)}}};"
    )
    lines.append("static void *const *const fl_tables[] = {table_0};")
    return "\n".join([*lines, ""])


def entries() -> str:
    """The text of ur_entries.h."""
    api = ur()
    found = functions()
    lines = list(
        _head(
            api,
            found,
            "fairlead.plugins.sdk.start",
            API_VERSION=api["UR_API_VERSION_CURRENT"],
            UNINITIALIZED="UR_RESULT_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="UR_RESULT_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="UR_RESULT_ERROR_UNSUPPORTED_VERSION",
            NULL_POINTER="UR_RESULT_ERROR_INVALID_NULL_POINTER",
        )
    )
    lines += types()
    lines += (_entry(function, number) for number, function in enumerate(found))
    layouts = {name: api.layouts[name] for name in LAYOUTS}
    for number, tables in enumerate(layouts.values()):
        lines.append(f"static void *const table_{number}[] = {{")
        lines += (f"    (void *){name}," for names in tables.values() for name in names)
        lines.append("};")
    lines.append(
        f"static void *const *const fl_tables[] = {{{', '.join(f'table_{n}' for n in range(len(layouts)))}}};"
    )
    names = "".join(f'"{name}", ' for name in layouts)
    lines.append(f"static const char *const fl_layouts[] = {{{names}NULL}};")
    for table in next(iter(layouts.values())):
        rows = ", ".join(_row(tables, table) for tables in layouts.values())
        lines.append(
            f'__attribute__((visibility("default"))) int32_t urGet{table}ProcAddrTable(uint32_t version, void **table) {{\n'
            f"    static const uint16_t rows[][2] = {{{rows}}};   /* by layout: first slot, and how many */\n"
            f"    return fl_fill(version, table, rows);\n}}"
        )
    return "\n".join([*lines, ""])


def write_headers(directory: Path) -> None:
    """Write ur_types.h, ur_entries.h and pi_entries.h into `directory`."""
    building.write_if_new(directory / "ur_types.h", ur_types())
    building.write_if_new(directory / "ur_entries.h", entries())
    building.write_if_new(directory / "pi_entries.h", pi_entries())


def ffibuilder() -> Any:
    """The cffi builder of `fairlead.plugins.sdk._native`."""
    from cffi import FFI

    write_headers(building.GENERATED)
    ffi = FFI()
    ffi.cdef("\n".join(types()) + kinds())
    for header in _CDEF:
        ffi.cdef((HERE / header).read_text(encoding="utf-8"))
    ffi.cdef(callbacks() + f'extern "Python" {{ {_OTHER_CALLBACKS} }}')
    declared = {name: ", ".join(_parameters(ur().functions[name])) for name in in_c()}
    ffi.cdef(
        "\n".join(
            f"int32_t c_{name}(uint32_t, {parameters});" for name, parameters in declared.items()
        )
    )
    ffi.cdef("#define FL_SHELL_VERSION ...")
    headers = (
        "ur_types.h",
        "shell.cdef.h",
        "counts.cdef.h",
        "interrupts.cdef.h",
        "launches.h",
        "launches.cdef.h",
    )
    lines = [
        *(f'#include "{header}"' for header in headers),
        f"#define FL_SHELL_VERSION {version()}u",
        *_in_c(),
    ]
    sources = [HERE / "counts.c", HERE / "interrupts.c", HERE / "launches.c"]
    options = building.extension(sources, [HERE, building.GENERATED], "-Wno-unused-function")
    options["depends"] += [os.path.relpath(ICD / name) for name in ("native.cdef.h", "busy.h")]
    ffi.set_source("fairlead.plugins.sdk._native", "\n".join(lines), **options)
    return ffi


def shells() -> list[Any]:
    """The setuptools extensions that become libfairlead_shell.so and libfairlead_pi_shell.so. setup.py gives the files their names."""
    from setuptools import Extension

    write_headers(building.GENERATED)
    found = []
    for name, source in {
        "libfairlead_shell": "shell.c",
        "libfairlead_pi_shell": "pi_shell.c",
    }.items():
        options = building.extension(
            [HERE / source, HERE / "python.c"],
            [HERE, building.GENERATED],
            # Never through the PLT: the loader exports the same names. Never unloaded: Python keeps pointers into it.
            extra_link_args=["-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"],
            libraries=["pthread", "dl"],
        )
        options["depends"].append(os.path.relpath(HERE / "shell.c"))  # pi_shell.c includes it
        found.append(Extension(f"fairlead.plugins.sdk.{name}", **options))
    return found


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
