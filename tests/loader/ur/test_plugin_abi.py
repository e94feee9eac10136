"""The ABI data of Unified Runtime against its headers, and of PI against a real plugin.

The headers are those of the intel-sycl-rt wheel. `make test` fetches both.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path

from helpers.abi_header import (
    Prototypes,
    check_groups,
    compile_lines,
    find_enumerators,
    find_prototypes,
    list_prototypes,
    read_header,
    struct_lines,
    type_lines,
    value_lines,
)
from helpers.support import RunPython

from fairlead.loader.pi.abi import API_VERSION as PI_VERSION
from fairlead.loader.pi.abi import PI, TABLE_OFFSET, VERSION_SIZE
from fairlead.loader.ur.abi import API_VERSION, UR, name_getter
from fairlead.loader.ur.preview import examine_file

NEWEST = next(iter(UR.layouts))
#: What the loader serves by itself: no adapter has it.
OF_THE_LOADER = re.compile(r"urLoader\w+|urDeviceGetSelected")

#: The functions that the newest layout does not have.
RETIRED = set(UR.functions).difference(
    name for names in UR.layouts[NEWEST].values() for name in names if name
)


def text_of(headers: Path, name: str) -> str:
    return read_header(headers / "unified-runtime" / name)


def prototypes(headers: Path) -> Prototypes:
    pattern = r"UR_APIEXPORT\s+(\w+)\s+UR_APICALL\s+(\w+)\s*\((.*?)\)\s*;"
    return find_prototypes(text_of(headers, "ur_api.h"), pattern)


def compile_ur(headers: Path, folder: Path, lines: Iterable[str]) -> None:
    includes = "unified-runtime/ur_api.h", "unified-runtime/ur_ddi.h"
    compile_lines(lines, folder, includes, f"-I{headers}", "-Wno-deprecated-declarations")


# Unified Runtime against its headers


def test_every_prototype_is_that_of_the_header(headers: Path) -> None:
    """The newest layout is all of the header but what is the loader's own."""
    theirs = prototypes(headers)
    newest = [UR.functions[name] for names in UR.layouts[NEWEST].values() for name in names if name]
    assert list_prototypes(newest) == {
        name: theirs[name] for name in theirs if not OF_THE_LOADER.fullmatch(name)
    }


def test_the_types_are_those_that_the_compiler_sees(headers: Path, tmp_path: Path) -> None:
    newest = [UR.functions[name] for names in UR.layouts[NEWEST].values() for name in names if name]
    lines = [f"{function.format_c_declaration(function.name)};" for function in newest]
    compile_ur(headers, tmp_path, lines)


def test_the_tables_are_those_of_the_header(headers: Path) -> None:
    text = text_of(headers, "ur_ddi.h")
    bodies = dict(re.findall(r"typedef struct (\w+_dditable_t)\s*\{(.*?)\}", text, re.S))
    found = {}
    for table, struct in re.findall(
        r"\burGet(\w+)ProcAddrTable\(\s*ur_api_version_t\s+\w+\s*,\s*(\w+_dditable_t)\s*\*", text
    ):
        found[table] = tuple(
            f"ur{name}" for name in re.findall(r"ur_pfn(\w+)_t\s+\w+\s*;", bodies[struct])
        )
    assert found == UR.layouts[NEWEST]
    assert [name_getter(table) for table in found] == re.findall(
        r"UR_APICALL\s+(urGet\w+ProcAddrTable)\(", text
    )


def test_the_slots_are_those_of_the_whole_table_in_the_header(
    headers: Path, tmp_path: Path
) -> None:
    """`ur_dditable_t` is what the first word of a handle leads to."""
    members = dict(re.findall(r"\b(ur_\w+_dditable_t)\s+(\w+)\s*;", text_of(headers, "ur_ddi.h")))
    lines = []
    for table, names in UR.layouts[NEWEST].items():
        struct = next(
            name
            for name in members
            if name.replace("_", "").lower() == f"ur{table}dditablet".lower()
        )
        for name in names:
            assert name
            slot, field = UR.functions[name].slot, f"pfn{_field(name, table)}"
            lines.append(
                f"_Static_assert(offsetof(ur_dditable_t, {members[struct]}.{field}) == {slot} * "
                f'8, "{name}");'
            )
    count = sum(map(len, UR.layouts[NEWEST].values()))
    lines.append(f'_Static_assert(sizeof(ur_dditable_t) == {count} * 8, "size");')
    compile_ur(headers, tmp_path, lines)


def _field(name: str, table: str) -> str:
    """Return the field of a function: urKernelCreate in the table Kernel is pfnCreate.

    In a table …Exp it is the name without the table's words.
    """
    prefix = "ur" + table.removesuffix("Exp")
    return name.removeprefix(prefix)


def test_every_constant_and_error_code_is_that_of_the_header(headers: Path, tmp_path: Path) -> None:
    enums = find_enumerators(text_of(headers, "ur_api.h"))
    values = {name: one.value for name, one in UR.constants.items()} | UR.codes
    assert set(values) - set(enums) == {"UR_EXP_COMMAND_BUFFER_INFO_EXPLANATION_FAIRLEAD"}
    values = {name: values[name] for name in enums}
    compile_ur(headers, tmp_path, value_lines(values))
    check_groups(UR, enums)
    assert set(UR.codes) == {name for name, enum in enums.items() if enum == "ur_result_t"}


def test_every_struct_is_laid_out_as_in_the_header(headers: Path, tmp_path: Path) -> None:
    compile_ur(headers, tmp_path, struct_lines(UR, UR.structs))
    theirs = re.findall(r"typedef (?:struct|union) (\w+)\s*\{", text_of(headers, "ur_api.h"))
    assert set(UR.structs) == {name for name in theirs if not name.endswith("_params_t")}


def test_every_type_has_the_size_of_the_header(headers: Path, tmp_path: Path) -> None:
    compile_ur(headers, tmp_path, type_lines(UR, set(UR.types) - {"ur_bitfield"}))


def test_the_version_is_the_header_s(headers: Path, tmp_path: Path) -> None:
    compile_ur(headers, tmp_path, value_lines({"UR_API_VERSION_CURRENT": API_VERSION}))


# Unified Runtime's layouts against each other


def test_every_function_of_every_layout_is_known() -> None:
    for name, tables in UR.layouts.items():
        functions = [
            function for functions in tables.values() for function in functions if function
        ]
        assert set(functions) <= set(UR.functions), name
        assert len(set(functions)) == len(functions), f"{name}: a function in two places"


def test_the_slots_are_the_newest_layout_followed_by_what_was_retired() -> None:
    names = [name for functions in UR.layouts[NEWEST].values() for name in functions]
    assert [function.name for function in UR.slots[: len(names)]] == names
    retired = {function.name for function in UR.slots[len(names) :]}
    older = {
        name
        for tables in UR.layouts.values()
        for functions in tables.values()
        for name in functions
        if name
    }
    assert retired == older - set(names) == RETIRED


def test_since_is_the_first_layout_that_has_the_function() -> None:
    for function in UR.slots:
        having = [
            name
            for name, tables in UR.layouts.items()
            if any(function.name in names for names in tables.values())
        ]
        oldest = min(having, key=lambda name: tuple(map(int, name.split("."))))
        assert function.since <= tuple(map(int, oldest.split("."))), function.name


# PI against a real plugin


def test_the_names_of_pi_are_those_that_the_real_plugin_exports(real_plugins: Path) -> None:
    exported = {
        name
        for name in examine_file(str(real_plugins / "pi/libpi_opencl.so")).exports
        if name.startswith("pi")
    }
    in_table_only = {
        "piextEnqueueDeviceGlobalVariableRead",
        "piextEnqueueDeviceGlobalVariableWrite",
    }
    assert exported == set(PI.functions) - in_table_only
    assert len(exported) == 158


def test_the_order_of_pi_is_that_of_the_real_plugin_s_table(
    real_plugins: Path, run_python: RunPython
) -> None:
    code = """
import ctypes, sys
from fairlead.loader.base.library import open_with_siblings
from fairlead.loader.pi.abi import PI

library = open_with_siblings(sys.argv[1], [sys.argv[2], sys.prefix + "/lib"])
plugin = PI.get_struct("pi_plugin")(PiVersion=b"15.47")
assert (
    ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.find_symbol("piPluginInit"))(
        ctypes.addressof(plugin)
    )
    == 0
)
print(plugin.PluginVersion.decode())
for slot, function in enumerate(PI.slots):
    address = library.find_symbol(function.name)
    assert plugin.PiFunctionTable[slot] and address in (None, plugin.PiFunctionTable[slot]), (
        function.name
    )
"""
    given = code, str(real_plugins / "pi/libpi_opencl.so"), str(real_plugins / "umf")
    assert run_python(*given).out == f"{PI_VERSION}.1\n"


def test_the_plugin_struct_is_what_binding_takes_it_for() -> None:
    plugin = PI.get_struct("pi_plugin")
    assert (
        plugin.PluginVersion.offset == VERSION_SIZE
        and plugin.PiFunctionTable.offset == TABLE_OFFSET
    )
    assert plugin.PiFunctionTable.size == len(PI.slots) * ctypes.sizeof(ctypes.c_void_p)
