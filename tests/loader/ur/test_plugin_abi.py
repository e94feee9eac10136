"""The ABI data of Unified Runtime against its headers, of PI against a real plugin, and
consistency.

The headers are those of the intel-sycl-rt wheel. `make test` fetches both.
"""

from __future__ import annotations

import ctypes
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, RunPython

from fairlead.loader.base.abi import Api, Parameter
from fairlead.loader.pi.abi import API_VERSION as PI_VERSION
from fairlead.loader.pi.abi import PI, TABLE_OFFSET, VERSION_SIZE, PIError
from fairlead.loader.ur.abi import API_VERSION, UR, URError, name_getter
from fairlead.loader.ur.preview import examine_file
from fairlead.loader.ze.abi import ZE

NEWEST = next(iter(UR.layouts))
APIS = {"UR": UR, "PI": PI, "ZE": ZE}
#: What the loader serves by itself: no adapter has it.
OF_THE_LOADER = re.compile(r"urLoader\w+|urDeviceGetSelected")

#: The functions that the newest layout does not have.
RETIRED = set(UR.functions).difference(
    name for names in UR.layouts[NEWEST].values() for name in names if name
)

every_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS)


@pytest.fixture(scope="session")
def declarations() -> Any:
    """Return what declares an API's types in C for the native builds."""
    return runpy.run_path(str(ROOT / "loader/base/native/building.py"))["emit_declarations"]


def text_of(headers: Path, name: str) -> str:
    """A header without its comments and attributes."""
    text = (headers / "unified-runtime" / name).read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|//[^\n]*|\[\[.*?\]\]", "", text, flags=re.S)


def prototypes(headers: Path) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Name → (return type, [(type, name)]), spaces left out."""
    found = {}
    for match in re.finditer(
        r"UR_APIEXPORT\s+(\w+)\s+UR_APICALL\s+(\w+)\s*\((.*?)\)\s*;",
        text_of(headers, "ur_api.h"),
        re.S,
    ):
        returns, name, parameters = match.groups()
        texts = [text for text in parameters.split(",") if text.strip() not in ("", "void")]
        pairs = (re.fullmatch(r"\s*(.*?)(\w+)\s*", text, re.S) for text in texts)
        found[name] = (returns, [(re.sub(r"\s", "", pair[1]), pair[2]) for pair in pairs if pair])
    return found


def enumerators(headers: Path) -> dict[str, str]:
    """Name → its enum, without those that only set the size."""
    found = {}
    for match in re.finditer(
        r"typedef enum \w+\s*\{(.*?)\}\s*(\w+)\s*;", text_of(headers, "ur_api.h"), re.S
    ):
        names = re.findall(r"(?:^|,)\s*(UR_\w+)\s*(?==|,|$)", match[1])
        found.update({name: match[2] for name in names if not name.endswith("_FORCE_UINT32")})
    return found


def compile_c(directory: Path, lines: list[str], *flags: str) -> None:
    source = directory / "check.c"
    source.write_text("\n".join([*lines, ""]), encoding="utf-8")
    done = subprocess.run(
        ["cc", "-std=gnu11", "-fsyntax-only", *flags, str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:4000]


def compile_ur(headers: Path, directory: Path, lines: list[str]) -> None:
    start = [
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <unified-runtime/ur_api.h>",
        "#include <unified-runtime/ur_ddi.h>",
    ]
    compile_c(directory, [*start, *lines], f"-I{headers}", "-Wno-deprecated-declarations")


def opaque(api: Api) -> set[str]:
    """The structs whose fields are not known."""
    return {name for name in api.types if api.resolve(name) == "struct" and name not in api.structs}


def layout_checks(api: Api) -> Iterator[str]:
    """Assertions in C that every struct is laid out as ctypes lays it out."""
    for struct in api.structs.values():
        ours = api.get_struct(struct.name)
        yield f'_Static_assert(sizeof({struct.name}) == {ctypes.sizeof(ours)}, "{struct.name}");'
        for field in struct.fields:
            place = getattr(ours, field.name)
            yield (
                f"_Static_assert(offsetof({struct.name}, {field.name}) == {place.offset}, "
                f'"{struct.name}.{field.name}");'
            )
            yield (
                f"_Static_assert(sizeof((({struct.name} *)0)->{field.name}) == {place.size}, "
                f'"{struct.name}.{field.name}");'
            )


# Unified Runtime against its headers


def test_every_prototype_is_that_of_the_header(headers: Path) -> None:
    theirs = prototypes(headers)
    for name in (name for names in UR.layouts[NEWEST].values() for name in names if name):
        function = UR.functions[name]
        ours = [(p.c_type.replace(" ", ""), p.name) for p in function.parameters]
        assert (function.returns, ours) == theirs[name], name


def test_the_newest_layout_is_all_of_the_header_but_the_loader_s_own(headers: Path) -> None:
    names = {name for names in UR.layouts[NEWEST].values() for name in names}
    assert names == {name for name in prototypes(headers) if not OF_THE_LOADER.fullmatch(name)}


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
    values = {constant.name: constant.value for constant in UR.constants.values()}
    values |= {name: code for code, (name, _) in UR.errors.items()}
    own = {name for name in values if name.endswith("_FAIRLEAD")}
    assert own == {"UR_EXP_COMMAND_BUFFER_INFO_EXPLANATION_FAIRLEAD"}
    values = {name: value for name, value in values.items() if name not in own}
    assert set(values) == set(enumerators(headers))
    check = (
        '_Static_assert((unsigned long long)({name}) == (unsigned long long)({value}), "{name}");'
    )
    compile_ur(
        headers, tmp_path, [check.format(name=name, value=value) for name, value in values.items()]
    )


def test_constants_stand_under_the_type_that_parameters_have(headers: Path) -> None:
    """Bits belong to the type of the bits together: `ur_queue_flags_t`, not `ur_queue_flag_t`."""
    enums = enumerators(headers)
    for constant in UR.constants.values():
        if constant.name.endswith("_FAIRLEAD"):
            continue
        enum = enums[constant.name]
        flags = re.sub(r"_flag_t$", "_flags_t", enum)
        assert constant.group == (flags if flags in UR.types else enum), constant.name
        assert UR.is_bitfield(constant.group) == enum.endswith("_flag_t"), constant.name


def test_every_error_code_is_one_of_ur_result_t(headers: Path) -> None:
    assert {name for name, _ in UR.errors.values()} == {
        n for n, enum in enumerators(headers).items() if enum == "ur_result_t"
    }


def test_every_struct_is_laid_out_as_in_the_header(headers: Path, tmp_path: Path) -> None:
    compile_ur(headers, tmp_path, list(layout_checks(UR)))
    theirs = re.findall(r"typedef (?:struct|union) (\w+)\s*\{", text_of(headers, "ur_api.h"))
    assert set(UR.structs) == {name for name in theirs if not name.endswith("_params_t")}


def test_every_type_has_the_size_of_the_header(headers: Path, tmp_path: Path) -> None:
    named = [name for name in UR.types if name != "ur_bitfield" and name not in opaque(UR)]
    compile_ur(
        headers,
        tmp_path,
        [
            f'_Static_assert(sizeof({n}) == {ctypes.sizeof(UR.make_ctype(n))}, "{n}");'
            for n in named
        ],
    )


def test_the_version_is_the_header_s(headers: Path, tmp_path: Path) -> None:
    compile_ur(
        headers, tmp_path, [f'_Static_assert(UR_API_VERSION_CURRENT == {API_VERSION}, "version");']
    )


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


# All against themselves


@every_api
def test_slots_are_numbered_without_a_gap(api: Api) -> None:
    assert [function.slot for function in api.slots] == list(range(len(api.slots)))


@every_api
def test_the_types_and_structs_compile_and_are_as_ctypes_lays_them_out(
    api: Api, declarations: Any, tmp_path: Path
) -> None:
    lines = [
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <stdint.h>",
        *declarations(api),
    ]
    defined = {line.split()[1] for line in lines if re.match(r"(struct|union) \w+ \{", line)}
    waiting = [struct for struct in api.structs.values() if struct.name not in defined]
    while waiting:  # a struct comes after those that are fields of it
        ready = [
            s
            for s in waiting
            if not {f.type for f in s.fields if not f.stars} & {other.name for other in waiting}
        ]
        assert ready, [struct.name for struct in waiting]
        lines += [struct.c_definition for struct in ready]
        waiting = [struct for struct in waiting if struct not in ready]
    lines += [
        f"{function.format_c_declaration(function.name)};" for function in api.functions.values()
    ]
    compile_c(tmp_path, [*lines, *layout_checks(api)])


def _everywhere(api: Api) -> Iterator[tuple[str, tuple[Parameter, ...]]]:
    yield from ((function.name, function.parameters) for function in api.functions.values())
    yield from ((struct.name, struct.fields) for struct in api.structs.values())


@every_api
def test_every_type_resolves(api: Api) -> None:
    for name in set(api.types) - opaque(api):
        assert api.make_ctype(name) is not None, name
    for where, parameters in _everywhere(api):
        assert where in RETIRED or not opaque(api) & {parameter.type for parameter in parameters}, (
            where
        )
        for parameter in parameters:
            api.make_ctype(parameter.type, parameter.stars, parameter.const)
            assert parameter.stars or parameter.type != "void", where


@every_api
def test_every_length_and_every_word_leads_somewhere(api: Api) -> None:
    words = {"in", "out", "inout", "optional", "alloc", "release", "retain", "of"}
    for where, parameters in _everywhere(api):
        names = [parameter.name for parameter in parameters]
        assert len(set(names)) == len(names), where
        for parameter in parameters:
            length, place = parameter.length.lstrip("*"), f"{where}({parameter.name})"
            assert not length or length in names or length in api.constants or length.isdecimal(), (
                place
            )
            of = parameter.type_from
            assert set(parameter.words) - {of} <= words, place
            if of:
                chooser = next(other for other in parameters if other.name == of)
                assert chooser.type in api.groups, place


@every_api
def test_every_answer_of_a_query_has_a_type(api: Api) -> None:
    for constant in api.constants.values():
        name = constant.answer.removesuffix("[]").removeprefix("const ").rstrip(" *")
        if constant.answer:
            assert (
                name == "unsigned char"
                or api.make_ctype(name.replace(" ", "_")) is not None
                or "*" in constant.answer
            ), constant
    for group in api.groups:
        assert group in api.types or group == "limits", group


@every_api
def test_every_error_has_a_sentence(api: Api) -> None:
    assert len({name for name, _ in api.errors.values()}) == len(api.errors)
    for code, (name, sentence) in api.errors.items():
        assert re.fullmatch(r"(UR_RESULT|PI|ZE_RESULT)_\w+", name), code
        assert sentence[0].isupper() and sentence.endswith("."), name


def test_errors_say_routine_code_and_sentence() -> None:
    error = URError.from_code(
        next(c for c, (n, _) in UR.errors.items() if n == "UR_RESULT_ERROR_DEVICE_LOST"),
        "urQueueFinish",
    )
    assert str(error).startswith("urQueueFinish [UR_RESULT_ERROR_DEVICE_LOST]: ")
    assert PIError.from_code(-98765, "piQueueFinish").code == "PI_ERROR_-98765"
