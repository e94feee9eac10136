"""Builds libze_loader.so.1: its exported functions are generated from the ABI data.

Every function gets up to five forms. The *exported* one jumps to the entry of `fl_current`. With
one driver that is the driver's own function. `several_…` looks up which driver made the first
handle, calls that one, and learns the handles that it writes. Before the first init, an entry
answers UNINITIALIZED. `valid_…` checks the arguments, and stands in `fl_current` if
ZE_ENABLE_PARAMETER_VALIDATION is 1. `traced_…` calls callbacks, and stands there if the tracing
layer is enabled.

setup.py calls `describe_libze_loader()`. `python loader/ze/libze_loader/native/build.py DIRECTORY`
only writes the generated C there, for tests in C.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[2] / "base" / "native"
building = SimpleNamespace(**runpy.run_path(str(LOADER / "building.py")))
rules = SimpleNamespace(**runpy.run_path(str(LOADER.parent / "argument_rules.py")))

#: In entries.c: they concern all drivers.
WRITTEN = {"zeInit": "fl_init", "zeDriverGet": "fl_driver_get", "zeInitDrivers": "fl_init_drivers"}
#: The functions of entries.c and runtime.c whose names do not say that they are exported.
_OWN = ("zeLoader*", "zel*", "zerGetGlobalProcAddrTable")
#: The tables whose functions of version 1.0 have callbacks in a zel_core_callbacks_t, in its order.
#: The callbacks of later functions are registered one by one.
CALLBACK_TABLES = (
    *("Global", "Driver", "Device", "Context", "CommandQueue", "CommandList", "Fence"),
    *("EventPool", "Event", "Image", "Module", "ModuleBuildLog", "Kernel", "Sampler"),
    *("PhysicalMem", "Mem", "VirtualMem"),
)


def _get_tables(api: Any) -> dict[str, tuple[str, ...]]:
    return next(iter(api.layouts.values()))


def list_callbacks(api: Any) -> list[Any]:
    """The functions whose callbacks a zel_core_callbacks_t has, in its order."""
    names = [name for table in CALLBACK_TABLES for name in _get_tables(api)[table]]
    functions = [api.functions[name] for name in names]
    return [function for function in functions if function.since == (1, 0)]


def emit_header() -> str:
    """Return the text of ze_abi.h: types, structs that are needed, codes and slots."""
    api = building.read_api("ze")
    minor = max(function.since[1] for function in api.slots)
    lines = [building.emit_first_line("loader/ze/libze_loader/native/build.py", api)]
    lines += ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    lines += building.emit_declarations(api)
    lines.append(api.structs["ze_init_driver_type_desc_t"].c_definition)
    lines += [f"typedef {f.format_c_declaration(f'fn_{f.name}')};" for f in api.slots]
    lines += [f"#define {name} ({code})" for code, (name, _) in api.errors.items()]
    stype = api["ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC"]
    slots = ", ".join(f"SLOT_{f.name} = {f.slot}" for f in api.slots)
    lines.append(f"enum {{ {slots}, FL_SLOTS = {len(api.slots)}, FL_MINOR = {minor} }};")
    lines.append(f"enum {{ FL_CALLBACKS = {len(list_callbacks(api))} }};")
    tools = [f"TOOL_{name}" for functions in read_tools().values() for name in functions]
    lines.append(f"enum {{ {', '.join(tools)}, FL_TOOLS }};")
    lines.append(
        f"enum {{ FL_VERSION = 1 << 16 | FL_MINOR, FL_STYPE_INIT_DRIVER_TYPE_DESC = {stype} }};"
    )
    return "\n".join([*lines, ""])


def _list_arguments(function: Any) -> str:
    return ", ".join(parameter.name for parameter in function.parameters)


def _emit_call(function: Any, pointer: str) -> str:
    return f"((fn_{function.name} *){pointer})({_list_arguments(function)})"


#: What fails, in the form of functions that return a code, and of those that return a handle. A
#: caller removes the arguments that it gave, so a function without parameters serves all calls.
_FAILING = """\
static ze_result_t missing_return(void) { return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; }
static ze_result_t early_return(void) { return ZE_RESULT_ERROR_UNINITIALIZED; }
static void *missing_null(void) { return NULL; }
static void *early_null(void) { return NULL; }"""


def _is_handle(api: Any, parameter: Any) -> bool:
    return api.resolve(parameter.type) == "handle" and parameter.type != "callback"


def _is_list(api: Any, parameter: Any) -> bool:
    """Whether a function lists handles there."""
    return _is_handle(api, parameter) and parameter.is_out and parameter.length.startswith("*")


def _find_handle(api: Any, function: Any) -> tuple[str, str]:
    """The handle that says which driver is called, and what must be true to read it."""
    for p in function.parameters:
        if _is_handle(api, p) and not p.stars:
            return p.name, p.name
    lists = [p for p in function.parameters if _is_handle(api, p) and not p.is_out]
    name, count = lists[0].name, lists[0].length
    return f"{name}[0]", f"{name} && {count} && {name}[0]"


def _emit_learning(api: Any, function: Any) -> Iterator[str]:
    """What learns the handles that a call wrote."""
    for p in function.parameters:
        if not (_is_handle(api, p) and p.stars == 1 and p.is_out):
            continue
        if _is_list(api, p):
            there = f"{p.name} && i < room && i < *{p.length[1:]}"
            yield f"for (uint32_t i = 0; {there}; i++) fl_learn(driver, {p.name}[i]);"
        else:
            yield f"if ({p.name}) fl_learn(driver, *{p.name});"


def _emit_dispatch(api: Any, function: Any) -> str:
    handle, readable = _find_handle(api, function)
    ended = [p.name for p in function.parameters if "release" in p.words and _is_handle(api, p)]
    is_code = function.error_channel == "return"
    lines = [f"static {function.format_c_declaration(f'several_{function.name}')} {{"]
    null = "ZE_RESULT_ERROR_INVALID_NULL_HANDLE" if is_code else "NULL"
    unknown = "ZE_RESULT_ERROR_INVALID_ARGUMENT" if is_code else "NULL"
    lines.append(f"    if (!({readable})) return {null};")
    lines.append(f"    fl_driver *driver = fl_driver_of({handle});")
    lines.append(f"    if (!driver) return {unknown};")
    lines += [f"    fl_forget({name});" for name in ended]
    counts = [p.length[1:] for p in function.parameters if _is_list(api, p)]
    lines += [f"    uint32_t room = {count} ? *{count} : 0;" for count in counts]
    call = _emit_call(function, f"driver->table[{function.slot}]")
    lines.append(f"    {function.returns} result = {call};")
    if is_code:
        learned = list(_emit_learning(api, function))
        if learned:
            lines.append(f"    if (result == ZE_RESULT_SUCCESS) {{ {' '.join(learned)} }}")
        lines += [f"    if (result) fl_learn(driver, {name});" for name in ended]
    else:
        lines.append("    fl_learn(driver, result);")
    return "\n".join([*lines, "    return result;\n}"])


def _emit_validation(function: Any) -> str:
    """The function that checks arguments before it calls the next one."""
    lines = [f"static {function.format_c_declaration(f'valid_{function.name}')} {{"]
    for rule in rules.list_rules(function):
        if "." not in rule.condition:  # not what structs contain
            broken = rules.format_c_condition(rule)
            lines.append(f"    if ({broken}) return ZE_RESULT_ERROR_{rule.code};")
    lines.append(f"    return {_emit_call(function, f'fl_bottom[{function.slot}]')};")
    return "\n".join([*lines, "}"])


def _emit_tracing(function: Any) -> str:
    """The function that calls callbacks before and after the next one, and what registers them.

    They get pointers to the parameters, and what the function returns.
    """
    call = _emit_call(function, f"fl_untraced[{function.slot}]")
    begin = f"static {function.format_c_declaration(f'traced_{function.name}')} {{"
    places = ", ".join(f"(void *)&{p.name}" for p in function.parameters)
    return "\n".join(
        [
            begin,
            f"    void *params[] = {{{places}}};",
            "    fl_traced_call call;",
            f"    bool is_seen = fl_begin_call(&call, {function.slot}, params);",
            f"    {function.returns} result = {call};",
            "    if (is_seen) fl_end_call(&call, params, (uintptr_t)result);",
            "    return result;\n}",
            f"FL_EXPORT ze_result_t zelTracer{function.name[2:]}RegisterCallback("
            "void *tracer, uint32_t place, void *callback) {",
            f"    return fl_register(tracer, place, {function.slot}, callback);\n}}",
        ]
    )


def _emit_array(api: Any, declaration: str, name_of: Callable[[Any], str]) -> Iterator[str]:
    """An array of functions, one for each slot."""
    yield f"{declaration}[FL_SLOTS] = {{"
    yield from (f"    (void *){name_of(function)}, /* {function.slot} */" for function in api.slots)
    yield "};"


def _name_form(form: str, function: Any) -> str:
    return WRITTEN.get(function.name, f"{form}{function.name}")


def _name_failure(form: str, function: Any) -> str:
    return f"{form}{function.error_channel}"


def _name_early_failure(function: Any) -> str:
    return WRITTEN.get(function.name, _name_failure("early_", function))


def _emit_getters(api: Any) -> Iterator[str]:
    slot = 0
    firsts = []
    for table, names in _get_tables(api).items():
        firsts.append(slot)
        yield f"FL_EXPORT ze_result_t zeGet{table}ProcAddrTable(uint32_t version, void **table) {{"
        yield f"    return fl_give(version, table, {slot}, {len(names)});\n}}"
        slot += len(names)
    getters = ", ".join(f'"zeGet{table}ProcAddrTable"' for table in _get_tables(api))
    yield f"const char *const fl_getter_names[] = {{{getters}}};"
    yield f"const uint16_t fl_first_slots[] = {{{', '.join(map(str, [*firsts, slot]))}}};"
    others = [
        f"{prefix}Get{table}ProcAddrTable"
        for prefix, tables in api.other_tables.items()
        for table in tables
    ]
    for name in others:
        yield f"FL_EXPORT ze_result_t {name}(uint32_t version, void *table) {{"
        yield f'    return fl_pass_on("{name}", version, table);\n}}'


#: An exported function begins at a line of the cache: its jump then costs as little as any jump.
_IN_A_LINE = "__attribute__((aligned(64)))"


def emit_thunks() -> str:
    """Return the text of thunks_libze.c."""
    api = building.read_api("ze")
    lines = [building.emit_first_line("loader/ze/libze_loader/native/build.py", api)]
    lines.append('#include "loader.h"')
    lines += ["void *fl_bottom[FL_SLOTS];", _FAILING]
    for function in api.slots:
        name = function.name
        if name not in WRITTEN:
            lines.append(_emit_dispatch(api, function))
            lines.append(_emit_validation(function))
        lines.append(_emit_tracing(function))
        call = _emit_call(function, f"fl_current[{function.slot}]")
        declared = function.format_c_declaration(name)
        lines.append(f"FL_EXPORT {_IN_A_LINE} {declared} {{ return {call}; }}")
    tables = {
        "void *fl_current": _name_early_failure,
        "void *fl_untraced": _name_early_failure,
        "void *const fl_start": _name_early_failure,
        "void *const fl_several": partial(_name_form, "several_"),
        "void *const fl_valid": partial(_name_form, "valid_"),
        "void *const fl_unsupported": partial(_name_failure, "missing_"),
    }
    for declaration, name_of in tables.items():
        lines += _emit_array(api, declaration, name_of)
    lines += _emit_array(api, "void *const fl_traced", lambda f: f"traced_{f.name}")
    lines += _emit_array(api, "static void *const exported", lambda f: f.name)
    traced = ", ".join(str(function.slot) for function in list_callbacks(api))
    lines.append(f"const uint16_t fl_callback_slots[FL_CALLBACKS] = {{{traced}}};")
    since = ", ".join(str(function.since[1]) for function in api.slots)
    lines.append(f"const uint8_t fl_since[FL_SLOTS] = {{{since}}};")
    lines += _emit_getters(api)
    lines.append(_GIVE)
    return "\n".join([*lines, ""])


_GIVE = """\
ze_result_t fl_give(uint32_t version, void **table, unsigned first, unsigned count) {
    if (!table)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (version >> 16 != 1 || version > FL_VERSION)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    for (unsigned i = 0; i < count; i++) /* a client of an older version has a smaller table */
        if (fl_since[first + i] <= (version & 0xFFFF))
            table[i] = exported[first + i];
    return ZE_RESULT_SUCCESS;
}"""


#: What the letters of tools.abi are in C.
_KINDS = {"i": "uintptr_t", "d": "double", "t": "fl_words"}
#: In tools.c and runtime.c: they concern all drivers, or the default one.
_WRITTEN_TOOLS = (
    *("zesInit", "zesDriverGet", "zerGetLastErrorDescription", "zerGetDefaultContext"),
    *("zerTranslateDeviceHandleToIdentifier", "zerTranslateIdentifierToDeviceHandle"),
)


def read_tools() -> dict[str, dict[str, str]]:
    """Return the tables of tools.abi: a getter's name → its functions → letters of parameters."""
    tables = {}
    for line in (HERE.parents[1] / "tools.abi").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            head, _, rest = line.partition(": ")
            getter = "{}Get{}ProcAddrTable".format(*head.split())
            pairs = (pair.partition(" ") for pair in rest.split(", "))
            tables[getter] = {name: letters for name, _, letters in pairs}
    return tables


def _emit_tool(name: str, letters: str) -> str:
    """The exported function of tools that calls the driver's."""
    kinds = [_KINDS[letter] for letter in letters]
    declared = ", ".join(f"{kind} p{place}" for place, kind in enumerate(kinds))
    given = ", ".join(f"p{place}" for place in range(len(kinds)))
    return (
        f"FL_EXPORT ze_result_t {name}({declared}) {{\n"
        f"    typedef ze_result_t call({', '.join(kinds)});\n"
        f"    return ((call *)fl_find_tool(TOOL_{name}, p0))({given});\n}}"
    )


def emit_tools() -> str:
    """The text of thunks_libze_tools.c."""
    api, tables = building.read_api("ze"), read_tools()
    lines = [building.emit_first_line("loader/ze/libze_loader/native/build.py", api)]
    lines.append('#include "loader.h"')
    lines.append("typedef struct fl_words { uint64_t words[2]; } fl_words;")
    firsts = [0]
    for functions in tables.values():
        firsts.append(firsts[-1] + len(functions))
        written = (pair for pair in functions.items() if pair[0] not in _WRITTEN_TOOLS)
        lines += [_emit_tool(name, letters) for name, letters in written]
    names = ", ".join(f'"{getter}"' for getter in tables)
    lines.append(f"const char *const fl_tool_getters[] = {{{names}}};")
    lines.append(f"const uint16_t fl_first_tools[] = {{{', '.join(map(str, firsts))}}};")
    return "\n".join([*lines, ""])


def emit_version_script(api: Any) -> str:
    """Return the text of the linker's version script. No function has a version."""
    names = [f.name for f in api.slots] + [
        f"zeGet{table}ProcAddrTable" for table in _get_tables(api)
    ]
    patterns = [
        *(f"{prefix}Get*ProcAddrTable" for prefix in api.other_tables),
        *_OWN,
        *(name for functions in read_tools().values() for name in functions),
    ]
    return f"{{ global: {'; '.join([*names, *patterns])}; local: *; }};\n"


def write_sources(directory: Path) -> list[Path]:
    """Write the generated C into a directory, and return what is to be linked."""
    api = building.read_api("ze")
    building.write_if_new(directory / "ze_abi.h", emit_header())
    building.write_if_new(directory / "libze_loader.map", emit_version_script(api))
    generated = building.write_if_new(directory / "thunks_libze.c", emit_thunks())
    tools = building.write_if_new(directory / "thunks_libze_tools.c", emit_tools())
    return [*sorted(HERE.glob("*.c")), LOADER / "memory.c", generated, tools]


def describe_libze_loader() -> Any:
    """Return the setuptools extension that becomes libze_loader.so.1, beside this package's code.

    setup.py gives the file its name.
    """
    from setuptools import Extension

    options = building.describe_extension(
        write_sources(building.GENERATED),
        [HERE, LOADER, building.GENERATED],
        libraries=["pthread", "dl"],
        extra_link_args=[
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",  # clients keep our tables
            "-Wl,-Bsymbolic",
            "-Wl,-soname,libze_loader.so.1",
            f"-Wl,--version-script={building.GENERATED / 'libze_loader.map'}",
        ],
    )
    return Extension("fairlead.loader.ze.libze_loader.libze_loader", **options)


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]))
