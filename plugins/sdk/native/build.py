"""Builds the C between a caller and an adapter written in Python.

Two things are generated from loader/ur/ur.abi. Their prototypes are the same: handles and `void *`
are plain numbers.

- `fairlead.plugins.sdk._native` is a cffi module. Its `extern "Python"` functions are the entry
  points: `py_urQueueFinish` gets the adapter's number and the arguments (`callbacks`). Some entry
  points begin in C (`in_c`, `c_urQueueRetain`): counts of references (counts.c), updates of
  launches (launches.c), and what programs call all the time (calls.h). They call Python only for
  what C cannot do.
- `ur_entries.h` is for shell.c (`entries`). It has a C function for each entry point, which calls
  what Python has put in its place. It also has the `ur_dditable_t` of these functions, and the 26
  functions that return it. A shell finds a Python at run time, so one file serves every version of
  Python (`shells`). `pi_entries.h` is the same for the shell of a PI plugin, from loader/pi/pi.abi
  (`pi_entries`). Its bodies are C functions with PI's prototypes.

setup.py calls `ffibuilder()` and `shells()`. `python plugins/sdk/native/build.py DIRECTORY` only
writes the generated C there.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[2] / "loader" / "base" / "native"
ICD = HERE.parents[2] / "icd" / "native"
building = SimpleNamespace(**runpy.run_path(str(LOADER / "building.py")))

#: The layouts of the tables that a shell can return, the usual one first.
LAYOUTS = ("2026.2", "2026.1", "2026.0", "2025.3")
#: The entries of tables that no adapter here has: the API names one of them no more.
_ABSENT = dict.fromkeys((None, "urBindlessImagesImageCopyExp_2025_3"), "fl_absent")
PI_VERSION = "15.47"  # of loader/pi/pi.abi

#: The C that Python sees, and the Python that C calls besides entry points.
_CDEF = (
    *("shell.cdef.h", "counts.cdef.h", "interrupts.cdef.h", "launches.cdef.h"),
    *("calls.cdef.h", "level_zero.cdef.h"),
)
_OTHER_CALLBACKS = (
    "void py_teardown(uint32_t number); void py_reap(void);"
    " uintptr_t py_part(void *context, uintptr_t address);"
)
_UPDATE = "urCommandBufferUpdateKernelLaunchExp"

#: The entry points that have a function in C (calls.h), by their file.
_CALLS = {
    "queues.c": (
        *("urQueueFinish", "urQueueFlush", "urEventWait"),
        *("urEventGetInfo", "urEventGetProfilingInfo", "urEnqueueEventsWait"),
        *("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"),
    ),
    "kernels.c": (
        *("urKernelSetArgValue", "urKernelSetArgLocal", "urKernelSetArgPointer"),
        *("urKernelSetArgMemObj", "urEnqueueKernelLaunch", "urEnqueueKernelLaunchWithArgsExp"),
    ),
    "allocations.c": (
        *("urUSMHostAlloc", "urUSMDeviceAlloc", "urUSMSharedAlloc", "urUSMFree"),
        "urUSMGetMemAllocInfo",
    ),
    "contexts.c": ("urContextCreate",),
    "appends.c": ("urCommandBufferAppendKernelLaunchWithArgsExp",),
    "gpu_launches.c": ("urEnqueueCommandBufferExp",),
    "transfers.c": (
        *("urEnqueueUSMMemcpy", "urEnqueueUSMFill", "urEnqueueMemBufferRead"),
        *("urEnqueueMemBufferWrite", "urEnqueueMemBufferCopy", "urEnqueueMemBufferFill"),
    ),
}
#: The entry points of the adapter on Level Zero that have a function in C (level_zero.c), and what
#: that calls of Level Zero.
_LEVEL_ZERO = ("urEnqueueCommandBufferExp", "urEventWait", "urQueueFinish")
_ZE_FUNCTIONS = (
    *("zeCommandListImmediateAppendCommandListsExp", "zeCommandListHostSynchronize"),
    *("zeEventQueryStatus", "zeEventHostReset", "zeEventHostSynchronize"),
)
#: Queries whose answers C keeps (answers.c), with its number for them.
_KEPT = {
    "urPlatformGetInfo": "FL_OF_PLATFORM",
    "urDeviceGetInfo": "FL_OF_DEVICE",
    "urContextGetInfo": "FL_OF_CONTEXT",
    "urKernelGetInfo": "FL_OF_KERNEL",
    "urKernelGetGroupInfo": "FL_OF_GROUP",
    "urKernelGetSubGroupInfo": "FL_OF_SUB_GROUP",
    "urCommandBufferGetInfoExp": "FL_OF_COMMAND_BUFFER",
}

#: The C type of handles, callbacks and raw memory. Python sees a number.
_NUMBER = "uintptr_t"

_EXPORTED = '__attribute__((visibility("default")))'


def ur() -> Any:
    """Return the ABI data of Unified Runtime."""
    return building.api("ur")


def pi() -> Any:
    """Return the ABI data of DPC++'s plugin interface."""
    return building.api("pi")


def functions() -> list[Any]:
    """Return the entry points that an adapter may have: the newest form of each."""
    return [function for function in ur().slots if not function.name.endswith("_2025_3")]


def _type(api: Any, type_name: str, stars: int, const: bool) -> str:
    """Return the type of a parameter or a field."""
    base = api.resolve(type_name) if type_name != "callback" else "callback"
    if base in ("handle", "callback"):
        type_name = _NUMBER
    elif type_name == "void":
        type_name, stars = _NUMBER, stars - 1
    type_name = type_name.replace("unsigned_char", "unsigned char")
    return f"{'const ' if const and stars else ''}{type_name} {'*' * stars}"


def result(function: Any) -> str:
    """Return the type that an entry point returns: a code, or a handle as a number."""
    return _NUMBER if function.api.resolve(function.returns) == "handle" else "int32_t"


def parameters(function: Any) -> list[str]:
    api = function.api
    return [f"{_type(api, p.type, p.stars, p.const)}{p.name}" for p in function.parameters]


def _field(api: Any, f: Any) -> str:
    count = f.length if f.length.isdecimal() or not f.length else api[f.length]
    length = f"[{count}]" if f.length and not f.stars else ""
    return f" {_type(api, f.type, f.stars, f.const)}{f.name}{length};"


def types(api: Any) -> Iterator[str]:
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
            fields = "".join(_field(api, field) for field in struct.fields)
            yield f"{struct.kind} {name} {{{fields} }};"
        else:
            yield f"typedef struct {name} {name};"

    for name in api.types:
        yield from declare(name)


def callbacks(found: Iterable[Any]) -> str:
    """Return the `extern "Python"` declarations of entry points, for cffi."""
    lines = [
        f"{result(f)} py_{f.name}(uint32_t adapter, {', '.join(parameters(f))});" for f in found
    ]
    return 'extern "Python" {\n' + "\n".join(lines) + "\n}\n"


def in_c() -> dict[str, str]:
    """Return the entry points that begin in C, with the C expression that answers them.

    They count references (counts.h), or update launches (launches.h, gpu_launches.h).
    """
    found = {}
    for f in functions():
        first = f.parameters[0]
        for word in ("retain", "release"):
            if len(f.parameters) == 1 and word in first.words:
                arguments = f"adapter, {first.name}, kind_{first.type}, py_{f.name}"
                found[f.name] = f"fl_entry_{word}({arguments})"
    names = ", ".join(p.name for p in ur().functions[_UPDATE].parameters)
    others = f"fl_entry_update(adapter, {names}, py_{_UPDATE}, py_urCommandBufferReleaseExp)"
    return {**found, _UPDATE: f"fl_update_gpu_graph(adapter, {names}) ? 0 : {others}"}


def calls() -> list[str]:
    """Return the entry points of the reference adapter that begin in C."""
    return [name for names in _CALLS.values() for name in names] + list(_KEPT)


def _call_in_c(name: str, prefix: str = "fl_") -> str:
    """Return the body of an entry point that Python makes if C does not.

    Args:
        name: its name.
        prefix: the beginning of the C function's name.
    """
    names = ", ".join(p.name for p in ur().functions[name].parameters)
    return (
        "    void *gil = fl_let_gil_go();\n"
        f"    int32_t code = {prefix}{name}(adapter, {names});\n"
        "    fl_take_gil(gil);\n"
        f"    return code == FL_TO_PYTHON ? py_{name}(adapter, {names}) : code;"
    )


class InCTable(NamedTuple):
    """The C of a struct with the addresses of functions in C.

    Python only needs the addresses. cffi would make a wrapper for each function that it declares,
    which takes long to compile.
    """

    declaration: str
    definition: str


def in_c_table(names: list[str]) -> InCTable:
    """Return the struct `fl_in_c` with the addresses of these functions, by their names."""
    fields = " ".join(f"void *{name};" for name in names)
    values = ", ".join(f"(void *){name}" for name in names)
    return InCTable(
        f"typedef struct {{ {fields} }} fl_in_c_table;",
        f"static const fl_in_c_table fl_in_c = {{{values}}};",
    )


def _kept_in_c(name: str) -> str:
    """Return the body of a query whose answers are kept."""
    given = ur().functions[name].parameters
    handles = [p for p in given if ur().resolve(p.type) == "handle"]
    second = handles[1].name if len(handles) > 1 else "0"
    objects = ", ".join(p.name for p in handles)
    asked = f"adapter, {_KEPT[name]}, kind_{handles[0].type}, {handles[0].name}, {second}, propName"
    return (
        "    size_t size = 0;\n"
        f"    int32_t code = fl_kept({asked}, propSize, pPropValue, pPropSizeRet);\n"
        "    if (code != FL_TO_PYTHON)\n"
        "        return code;\n"
        f"    code = py_{name}(adapter, {objects}, propName, propSize, pPropValue,"
        " pPropValue ? &size : pPropSizeRet);\n"
        "    if (pPropValue && !code)\n"
        f"        fl_keep({asked}, pPropValue, size);\n"
        "    if (pPropValue && pPropSizeRet && !code)\n"
        "        *pPropSizeRet = size;\n"
        "    return code;"
    )


def _in_c() -> Iterator[str]:
    """Yield a C function for each of them, and what tells C of Python's."""
    bodies = {name: f"    return {answer};" for name, answer in in_c().items()}
    bodies |= {name: _kept_in_c(name) if name in _KEPT else _call_in_c(name) for name in calls()}
    for name, body in bodies.items():
        declared = ", ".join(parameters(ur().functions[name]))
        yield f"static int32_t py_{name}(uint32_t, {declared});"
        yield f"static int32_t c_{name}(uint32_t adapter, {declared}) {{\n{body}\n}}"
    for name in _LEVEL_ZERO:
        declared = ", ".join(parameters(ur().functions[name]))
        body = _call_in_c(name, "fl_lz_")
        yield f"static int32_t py_{name}(uint32_t, {declared});"
        yield f"static int32_t lz_{name}(uint32_t adapter, {declared}) {{\n{body}\n}}"
    yield "__attribute__((constructor)) static void tell_python(void) {"
    for name, answer in in_c().items():
        if answer.startswith("fl_entry_release"):
            kind = ur().functions[name].parameters[0].type
            yield f"    fl_in_python.release[kind_{kind}] = py_{name};"
    yield "    fl_in_python.wait = py_urEventWait;\n}"


def ur_calls() -> str:
    """Return the text of ur_calls.h: the prototypes of the functions in C."""
    lines = [
        building.generated_by("plugins/sdk/native/build.py", ur()),
        '#pragma once\n#include "ur_types.h"',
    ]
    for name in calls():
        if name not in _KEPT:
            declared = ", ".join(parameters(ur().functions[name]))
            lines.append(f"int32_t fl_{name}(uint32_t adapter, {declared});")
    for name in _LEVEL_ZERO:
        declared = ", ".join(parameters(ur().functions[name]))
        lines.append(f"int32_t fl_lz_{name}(uint32_t adapter, {declared});")
    return "\n".join([*lines, ""])


def ze_slots() -> str:
    """Return the text of ze_slots.h: where functions of Level Zero are in fairlead's tables."""
    api = building.api("ze")
    lines = [building.generated_by("plugins/sdk/native/build.py", api), "#pragma once"]
    lines += (f"#define SLOT_{name} {api.functions[name].slot}" for name in _ZE_FUNCTIONS)
    return "\n".join([*lines, ""])


def kinds(api: Any) -> str:
    """Return a number for each type of handle: kind_ur_queue_handle_t."""
    found = (name for name in api.types if api.types[name] == "handle")
    numbers = (f"kind_{name} = {number}" for number, name in enumerate(found, 1))
    return f"enum {{ {', '.join(numbers)} }};"


def ur_types() -> str:
    """Return the text of ur_types.h: types, constants, codes, and the kinds of handles."""
    api = ur()
    constants = [(name, code) for code, (name, _) in api.errors.items()] + [
        (c.name, c.value) for c in api.constants.values()
    ]
    lines = [
        building.generated_by("plugins/sdk/native/build.py", api),
        "#pragma once",
        "#include <stdbool.h>",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>", *types(api), kinds(api)]
    return "\n".join([*lines, *(f"#define {name} ({value})" for name, value in constants), ""])


def version(api: Any, found: Iterable[Any]) -> int:
    """Return a number for what a shell and a fairlead have to agree on, because ages may differ.

    Args:
        api: the ABI data.
        found: the entry points.
    """
    cdef = (HERE / "shell.cdef.h").read_text(encoding="utf-8")
    return zlib.crc32((cdef + "\n".join(types(api)) + callbacks(found)).encode())


def _releases(function: Any) -> bool:
    """Return whether a function releases something or waits, so that it may succeed at the end."""
    return any("release" in p.words for p in function.parameters) or bool(
        re.search(
            r"(Release|Free|Destroy|TearDown|Synchronize|^..QueueFinish|^..Events?Wait)(Exp|Ext)?$",
            function.name,
        )
    )


def entry(function: Any, index: int) -> str:
    names = ", ".join(p.name for p in function.parameters)
    declared = ", ".join(parameters(function))
    call, nothing = f"body(fl_shell_state.number, {names})", "0"  # of a handle
    if result(function) != _NUMBER:
        call, nothing = f"fl_leave({call})", f"fl_no_body({index})"
    return (
        f"typedef {result(function)} body_{function.name}(uint32_t, {declared});\n"
        f"{_EXPORTED} {result(function)} {function.name}({declared}) {{\n"
        f"    body_{function.name} *body = (body_{function.name} *)fl_body({index});\n"
        f"    return body ? {call} : {nothing};\n}}"
    )


def _row(tables: dict[str, tuple[str, ...]], table: str) -> str:
    first = 0
    for name, names in tables.items():
        if name == table:
            return f"{{{first}, {len(names)}}}"
        first += len(names)
    return "{0, 0}"


def head(api: Any, found: list[Any], module: str, agreed: int, **codes: int | str) -> Iterator[str]:
    """Yield what shell.c takes from each header.

    Args:
        api: the ABI data.
        found: the entry points.
        module: the module that has `start`.
        agreed: see `version`.
        codes: constants, which are numbers or the names of errors.
    """
    yield building.generated_by("plugins/sdk/native/build.py", api)
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
    releases = ", ".join(str(int(_releases(function))) for function in found)
    yield f"static const bool fl_releases[] = {{{releases}}};"


def pi_entries() -> str:
    """Return the text of pi_entries.h."""
    api, found = pi(), list(pi().slots)
    lines = list(
        head(
            api,
            found,
            "fairlead.plugins.sdk.pi",
            version(ur(), functions()),
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
        direct = (
            f"    if ({names} && fl_is_direct({number}))\n"
            f"        return fl_call({number}, (uintptr_t){names});\n"
        )
        lines.append(
            f"typedef {function.c_declaration(f'body_{function.name}')};\n"
            f"{_EXPORTED} {function.c_declaration(function.name)} {{\n{direct if counts else ''}"
            f"    body_{function.name} *body = (body_{function.name} *)fl_body({number});\n"
            f"    return body ? body({names}) : fl_no_body({number});\n}}"
        )
    slots = ", ".join(f"(void *){function.name}" for function in found)
    lines.append(f"static void *const table_0[] = {{{slots}}};")
    lines.append("static void *const *const fl_tables[] = {table_0};")
    return "\n".join([*lines, ""])


def entries() -> str:
    """Return the text of ur_entries.h."""
    api = ur()
    found = functions()
    lines = list(
        head(
            api,
            found,
            "fairlead.plugins.sdk.start",
            version(api, found),
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
    lines += types(api)
    lines += (entry(function, number) for number, function in enumerate(found))
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
        rows = ", ".join(_row(tables, table) for tables in layouts.values())
        lines.append(
            f"{_EXPORTED} int32_t urGet{table}ProcAddrTable(uint32_t version, void **table) {{\n"
            "    /* By layout: the first slot, and how many. */\n"
            f"    static const uint16_t rows[][2] = {{{rows}}};\n"
            "    return fl_fill(version, table, rows, __builtin_return_address(0));\n}"
        )
    return "\n".join([*lines, ""])


def write_headers(directory: Path) -> None:
    """Write opencl_abi.h, ur_calls.h, ur_types.h, ze_slots.h and the entries of shells there."""
    icd = SimpleNamespace(**runpy.run_path(str(ICD / "build.py")))
    building.write_if_new(directory / "opencl_abi.h", icd.generated_header())
    building.write_if_new(directory / "ur_calls.h", ur_calls())
    building.write_if_new(directory / "ur_types.h", ur_types())
    building.write_if_new(directory / "ze_slots.h", ze_slots())
    building.write_if_new(directory / "ur_entries.h", entries())
    building.write_if_new(directory / "pi_entries.h", pi_entries())


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.plugins.sdk._native`."""
    from cffi import FFI

    write_headers(building.GENERATED)
    ffi = FFI()
    names = [*in_c(), *calls()]
    table = in_c_table([*(f"c_{name}" for name in names), *(f"lz_{name}" for name in _LEVEL_ZERO)])
    # one text: each call of cdef reads all types once more
    declared = [
        *(*types(ur()), kinds(ur())),
        *((HERE / header).read_text(encoding="utf-8") for header in _CDEF),
        callbacks(functions()),
        f'extern "Python" {{ {_OTHER_CALLBACKS} }}',
        f"{table.declaration} extern const fl_in_c_table fl_in_c;",
        "#define FL_SHELL_VERSION ...",
    ]
    ffi.cdef("\n".join(declared))
    headers = (
        "ur_types.h",
        "shell.cdef.h",
        "interrupts.cdef.h",
        "launches.h",
        "calls.h",
        "level_zero.cdef.h",
        "gpu_launches.h",
    )
    lines = [
        *(f'#include "{header}"' for header in headers),
        f"#define FL_SHELL_VERSION {version(ur(), functions())}u",
        *_in_c(),
        table.declaration,
        table.definition,
    ]
    names = ("counts.c", "interrupts.c", "launches.c", "answers.c", "progress.c", "gpu_appends.c")
    names += ("level_zero.c",)
    sources = [HERE / name for name in (*names, *_CALLS)]
    options = building.extension(sources, [HERE, building.GENERATED], "-Wno-unused-function")
    options["depends"] += [
        os.path.relpath(ICD / name) for name in ("native.cdef.h", "busy.h", "waits.h", "chains.h")
    ]
    ffi.set_source("fairlead.plugins.sdk._native", "\n".join(lines), **options)
    return ffi


def shells() -> list[Any]:
    """Return the setuptools extensions of libfairlead_shell.so and libfairlead_pi_shell.so.

    setup.py gives the files these names.
    """
    write_headers(building.GENERATED)
    return [
        shell(name, source)
        for name, source in {
            "libfairlead_shell": "shell.c",
            "libfairlead_pi_shell": "pi_shell.c",
        }.items()
    ]


def shell(name: str, source: str) -> Any:
    """Return the setuptools extension of a shell.

    Args:
        name: the name of the library.
        source: its C file.
    """
    from setuptools import Extension

    options = building.extension(
        [HERE / source, HERE / "python.c"],
        [HERE, building.GENERATED],
        *building.LIGHTLY,
        # Calls avoid the PLT, because the loader exports the same names. The library is never
        # unloaded, because Python keeps pointers to it.
        extra_link_args=["-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"],
        libraries=["pthread", "dl"],
    )
    options["depends"].append(os.path.relpath(HERE / "shell.c"))  # the others include it
    return Extension(f"fairlead.plugins.sdk.{name}", **options)


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
