"""Builds shells: the libraries that a loader opens and that find a Python (shell.c).

`ur_entries.h` is for shell.c (`emit_ur_entries`). It has a C function for each entry point, which
calls what Python has put in its place. It also has the `ur_dditable_t` of these functions, and the
26 functions that return it. `pi_entries.h` is the same for the shell of a PI plugin
(`emit_pi_entries`). Its bodies are C functions with PI's prototypes.

setup.py calls `describe_shells()`. `python plugins/sdk/native/shells.py DIRECTORY` only writes the
generated C there.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
c_types = SimpleNamespace(**runpy.run_path(str(HERE / "c_types.py")))
building = c_types.building

#: The layouts of the tables that a shell can return, the usual one first.
LAYOUTS = ("2026.2", "2026.1", "2026.0", "2025.3")
#: The entries of tables that no adapter here has: the API names one of them no more.
_ABSENT = dict.fromkeys((None, "urBindlessImagesImageCopyExp_2025_3"), "fl_absent")
PI_VERSION = "15.47"  # of loader/pi/pi.abi
_EXPORTED = '__attribute__((visibility("default")))'


def _is_release(function: Any) -> bool:
    """Return whether a function releases something or waits, so that it may succeed at the end."""
    return any("release" in p.words for p in function.parameters) or bool(
        re.search(
            r"(Release|Free|Destroy|TearDown|Synchronize|^..QueueFinish|^..Events?Wait)(Exp|Ext)?$",
            function.name,
        )
    )


def emit_entry(function: Any, index: int) -> str:
    names = ", ".join(p.name for p in function.parameters)
    declared = ", ".join(c_types.declare_parameters(function))
    call, nothing = f"body(fl_shell_state.number, {names})", "0"  # of a handle
    if c_types.get_return_type(function) != c_types.NUMBER:
        call, nothing = f"fl_leave({call})", f"fl_no_body({index})"
    return (
        f"typedef {c_types.get_return_type(function)} body_{function.name}(uint32_t, {declared});\n"
        f"{_EXPORTED} {c_types.get_return_type(function)} {function.name}({declared}) {{\n"
        f"    body_{function.name} *body = (body_{function.name} *)fl_body({index});\n"
        f"    return body ? {call} : {nothing};\n}}"
    )


def _emit_row(tables: dict[str, tuple[str, ...]], table: str) -> str:
    first = 0
    for name, names in tables.items():
        if name == table:
            return f"{{{first}, {len(names)}}}"
        first += len(names)
    return "{0, 0}"


def emit_head(
    api: Any, found: list[Any], module: str, agreed: int, **codes: int | str
) -> Iterator[str]:
    """Yield what shell.c takes from each header.

    Args:
        module: the module that has `start`.
        agreed: see `compute_version` of c_types.py.
        codes: constants, which are numbers or the names of errors.
    """
    yield building.emit_first_line("plugins/sdk/native/shells.py", api)
    yield f"#define FL_ENTRIES {len(found)}"
    yield f'#define FL_MODULE "{module}"'
    yield f"#define FL_SHELL_VERSION {agreed}u"
    values = (
        f"{name} = {api.codes[code] if isinstance(code, str) else code}"
        for name, code in codes.items()
    )
    yield f"enum {{ SUCCESS = 0, {', '.join(values)} }};"
    yield "static const char *const fl_names[] = {"
    yield from (f'    "{function.name}",' for function in found)
    yield "};"
    releases = ", ".join(str(int(_is_release(function))) for function in found)
    yield f"static const bool fl_releases[] = {{{releases}}};"


def emit_pi_entries() -> str:
    """Return the text of pi_entries.h."""
    api, found = building.read_api("pi"), list(building.read_api("pi").slots)
    lines = list(
        emit_head(
            api,
            found,
            "fairlead.plugins.sdk.pi",
            c_types.compute_version(c_types.read_ur(), c_types.list_functions()),
            UNINITIALIZED="PI_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="PI_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="PI_ERROR_INVALID_OPERATION",
            NULL_POINTER="PI_ERROR_INVALID_VALUE",
        )
    )
    lines.append(f'#define FL_VERSION "{PI_VERSION}"')
    lines += building.emit_declarations(api)
    for number, function in enumerate(found):
        names = ", ".join(p.name for p in function.parameters)
        counts = re.fullmatch(r"pi[A-Z][a-z]+(Retain|Release)", function.name)
        direct = (
            f"    if ({names} && fl_is_direct({number}))\n"
            f"        return fl_call({number}, (uintptr_t){names});\n"
        )
        declare = function.format_c_declaration
        lines.append(
            f"typedef {declare(f'body_{function.name}')};\n"
            f"{_EXPORTED} {declare(function.name)} {{\n{direct if counts else ''}"
            f"    body_{function.name} *body = (body_{function.name} *)fl_body({number});\n"
            f"    return body ? body({names}) : fl_no_body({number});\n}}"
        )
    slots = ", ".join(f"(void *){function.name}" for function in found)
    lines.append(f"static void *const table_0[] = {{{slots}}};")
    lines.append("static void *const *const fl_tables[] = {table_0};")
    return "\n".join([*lines, ""])


def emit_ur_entries() -> str:
    """Return the text of ur_entries.h."""
    api = c_types.read_ur()
    found = c_types.list_functions()
    lines = list(
        emit_head(
            api,
            found,
            "fairlead.plugins.sdk.start",
            c_types.compute_version(api, found),
            API_VERSION=api["UR_API_VERSION_CURRENT"],
            UNINITIALIZED="UR_RESULT_ERROR_UNINITIALIZED",
            UNSUPPORTED_FEATURE="UR_RESULT_ERROR_UNSUPPORTED_FEATURE",
            UNSUPPORTED_VERSION="UR_RESULT_ERROR_UNSUPPORTED_VERSION",
            NULL_POINTER="UR_RESULT_ERROR_INVALID_NULL_POINTER",
            INVALID_ENUMERATION="UR_RESULT_ERROR_INVALID_ENUMERATION",
            STYPE_LAUNCH=api["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_EXT_PROPERTIES"],
            STYPE_CLUSTER=api["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY"],
            STYPE_MEMORY=api["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY"],
            FLAG_COOPERATIVE=api["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"],
            FLAG_SERIALIZED=api["UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE"],
        )
    )
    lines += c_types.declare_types(api)
    lines += (emit_entry(function, number) for number, function in enumerate(found))
    lines.append('#include "ur_2025_3.h"')
    layouts = {name: api.layouts[name] for name in LAYOUTS}
    for number, tables in enumerate(layouts.values()):
        names = [name for names in tables.values() for name in names]
        lines.append(f"static void *const table_{number}[] = {{")
        lines += (f"    (void *){_ABSENT.get(name, name)}," for name in names)
        lines.append("};")
        lines.append(f"static const char *const names_{number}[] = {{")
        lines += (f'    "{name.removesuffix("_2025_3")}",' for name in names if name)
        lines.append("    NULL};")
    listed = ", ".join(f"table_{number}" for number in range(len(layouts)))
    lines.append(f"static void *const *const fl_tables[] = {{{listed}}};")
    listed = ", ".join(f"names_{number}" for number in range(len(layouts)))
    lines.append(f"static const char *const *const fl_functions[] = {{{listed}}};")
    names = "".join(f'"{name}", ' for name in layouts)
    lines.append(f"static const char *const fl_layouts[] = {{{names}NULL}};")
    for table in next(iter(layouts.values())):
        rows = ", ".join(_emit_row(tables, table) for tables in layouts.values())
        lines.append(
            f"{_EXPORTED} int32_t urGet{table}ProcAddrTable(uint32_t version, void **table) {{\n"
            "    /* By layout: the first slot, and how many. */\n"
            f"    static const uint16_t rows[][2] = {{{rows}}};\n"
            "    return fl_fill(version, table, rows, __builtin_return_address(0));\n}"
        )
    return "\n".join([*lines, ""])


def write_headers(directory: Path) -> None:
    """Write ur_entries.h and pi_entries.h there."""
    building.write_if_new(directory / "ur_entries.h", emit_ur_entries())
    building.write_if_new(directory / "pi_entries.h", emit_pi_entries())


def describe_shells() -> list[Any]:
    """Return the setuptools extensions of libfairlead_shell.so and libfairlead_pi_shell.so.

    setup.py gives the files these names.
    """
    write_headers(building.GENERATED)
    return [
        describe_shell(name, source)
        for name, source in {
            "libfairlead_shell": "shell.c",
            "libfairlead_pi_shell": "pi_shell.c",
        }.items()
    ]


def describe_shell(name: str, source: str) -> Any:
    """Return the setuptools extension of a shell."""
    from setuptools import Extension

    options = building.describe_extension(
        [HERE / source, HERE / "python.c", HERE / "runtime_waits.c"],
        [HERE, HERE.parents[2] / "loader/base/native", building.GENERATED],
        *building.LIGHTLY,
        "-fexceptions",  # what a runtime waits for may throw
        # Calls avoid the PLT, because the loader exports the same names. The library is never
        # unloaded, because Python keeps pointers to it.
        extra_link_args=["-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"],
        libraries=["pthread", "dl"],
    )
    options["depends"].append(os.path.relpath(HERE / "shell.c"))  # the others include it
    return Extension(f"fairlead.plugins.sdk.{name}", **options)


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
