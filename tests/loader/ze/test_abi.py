"""The ABI data of Level Zero against the headers of Debian's libze-dev, and consistency.

The headers may be of any version. What came after them, or after the data, is left out. More tests
of consistency are in tests/loader/base/test_abi.py, for all APIs.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest
from helpers.abi_header import (
    check_groups,
    compile_lines,
    find_enumerators,
    find_prototypes,
    list_prototypes,
    read_header,
    struct_lines,
    value_lines,
)
from helpers.support import ROOT

from fairlead.loader.ze.abi import API_VERSION, TABLES, VERSION, ZE, count_entries, name_getter

#: The functions of tools.abi, by getters, and the letters of what is no integer or pointer.
TOOLS = runpy.run_path(str(ROOT / "loader/ze/libze_loader/native/build.py"))["read_tools"]()
LETTERS = {"double": "d", "ze_device_thread_t": "t", "zes_uuid_t": "t"}
#: Names of older headers that newer ones replaced.
RENAMED = {"ZE_PHYSICAL_MEM_FLAG_TBD", "ZE_FABRIC_VERTEX_EXP_TYPE_SUBEVICE"}


def text_of(headers: Path, name: str) -> str:
    return read_header(headers / "level_zero" / name)


def numbers(version: int) -> tuple[int, int]:
    return version >> 16, version & 0xFFFF


@pytest.fixture(scope="session")
def version(ze_headers: Path) -> int:
    """The version of the headers, as API_VERSION has it."""
    found = re.search(
        r"ZE_API_VERSION_CURRENT = ZE_MAKE_VERSION\( (\d+), (\d+) \)",
        text_of(ze_headers, "ze_api.h"),
    )
    assert found
    return int(found[1]) << 16 | int(found[2])


def compile_ze(headers: Path, folder: Path, lines: Iterable[str]) -> None:
    compile_lines(lines, folder, ["level_zero/ze_api.h"], f"-I{headers}")


# Against the headers


def test_the_functions_of_tools_are_those_of_the_headers(ze_headers: Path, version: int) -> None:
    """An older version's table is the beginning of ours, and each parameter has its letter."""
    for prefix in ("zet", "zes"):
        text = text_of(ze_headers, f"{prefix}_ddi.h")
        pattern = rf"typedef ze_result_t \(ZE_APICALL \*{prefix}_pfn(\w+)_t\)\(\s*(.*?)\s*\);"
        letters = {
            f"{prefix}{name}": "".join(LETTERS.get(one.strip(), "i") for one in types.split(","))
            for name, types in re.findall(pattern, text, re.S)
            if "ProcAddrTable" not in name
        }
        bodies = re.findall(rf"typedef struct _{prefix}_(\w+)_dditable_t\s*\{{(.*?)\}}", text, re.S)
        theirs = {
            name.replace("_", ""): re.findall(rf"{prefix}_pfn(\w+)_t", body)
            for name, body in bodies
            if f"{prefix}_pfn" in body
        }
        ours = {
            getter[len(prefix) + 3 :].removesuffix("ProcAddrTable").lower(): functions
            for getter, functions in TOOLS.items()
            if getter.startswith(prefix)
        }
        assert len(theirs) > 10
        for table, names in theirs.items():
            known = list(ours[table].items())
            assert known[: len(names)] == [(f"{prefix}{n}", letters[f"{prefix}{n}"]) for n in names]


def test_every_prototype_is_that_of_the_header(ze_headers: Path, version: int) -> None:
    # versions of the headers differ in the name of this type
    text = text_of(ze_headers, "ze_api.h").replace("unsigned int ", "uint32_t ")
    pattern = r"ZE_APIEXPORT\s+(\w+)\s+ZE_APICALL\s+(ze\w+)\s*\((.*?)\)\s*;"
    theirs = find_prototypes(text, pattern)
    ours = list_prototypes(one for one in ZE.slots if one.since <= numbers(version))
    assert {name: theirs.get(name) for name in ours} == ours
    if version <= API_VERSION:
        assert set(theirs) == set(ours)


def test_the_tables_are_those_of_the_header(ze_headers: Path, version: int) -> None:
    """An older version's table is the beginning of ours, and its getters are among ours."""
    text = text_of(ze_headers, "ze_ddi.h")
    bodies = dict(re.findall(r"typedef struct _(ze_\w+_dditable_t)\s*\{(.*?)\}", text, re.S))
    tables = dict(
        re.findall(
            r"\bzeGet(\w+)ProcAddrTable\(\s*ze_api_version_t\s+\w+\s*,\s*(\w+_dditable_t)\s*\*",
            text,
        )
    )
    assert tables and len(tables) == len(bodies)
    known = min(version, API_VERSION)
    for table, names in TABLES.items():
        count = count_entries(table, known)
        theirs = re.findall(r"ze_pfn(\w+)_t\s+\w+\s*;", bodies.get(tables.get(table, ""), ""))
        assert [f"ze{name}" for name in theirs[:count]] == list(names[:count]), table
        assert len(theirs) == count or version > API_VERSION, table
    assert set(tables) <= set(TABLES) or version > API_VERSION


@pytest.mark.parametrize("prefix", ["zet", "zes"])
def test_the_other_getters_are_those_of_the_headers(
    ze_headers: Path, version: int, prefix: str
) -> None:
    text = text_of(ze_headers, f"{prefix}_ddi.h")
    theirs = set(re.findall(rf"ZE_APICALL\s+({prefix}Get\w+ProcAddrTable)\(", text))
    ours = {name_getter(table, prefix) for table in ZE.other_tables[prefix]}
    assert theirs and (theirs <= ours or version > API_VERSION)


def test_every_constant_and_error_code_is_that_of_the_header(
    ze_headers: Path, version: int, tmp_path: Path
) -> None:
    enums = find_enumerators(text_of(ze_headers, "ze_api.h"))
    values = {constant.name: constant.value for constant in ZE.constants.values()} | ZE.codes
    current = {name for name in enums if name.endswith("_VERSION_CURRENT")}  # of their version
    common = [name for name in values if name in enums and name not in current]
    assert version > API_VERSION or set(enums) - RENAMED <= set(values)
    # the sign of the highest bit is that of the compiler
    compile_ze(ze_headers, tmp_path, value_lines({n: values[n] for n in common}, "unsigned"))
    check_groups(ZE, enums)


def test_every_struct_is_laid_out_as_in_the_header(ze_headers: Path, tmp_path: Path) -> None:
    text = text_of(ze_headers, "ze_api.h")
    names = set(re.findall(r"typedef (?:struct|union) _(ze_\w+)\s*\{", text)) & set(ZE.structs)
    assert names
    compile_ze(ze_headers, tmp_path, struct_lines(ZE, sorted(names)))


def test_the_names_of_extensions_and_the_limits_are_those_of_the_header(ze_headers: Path) -> None:
    text = text_of(ze_headers, "ze_api.h")
    texts = dict(re.findall(r'#define\s+(ZE_\w+_NAME)\s+"(.*?)"', text))
    limits = dict(re.findall(r"#define\s+(ZE_\w+)\s+(\d+)\s", text))
    assert texts and texts == {name: ZE.strings.get(name) for name in texts}
    ours = ZE.groups["limits"].items()
    assert {name: value for value, name in ours if limits.get(name, str(value)) != str(value)} == {}


# Against itself


def test_a_table_grows_at_its_end_only() -> None:
    for table, names in TABLES.items():
        versions = [ZE.functions[name].since for name in names]
        assert versions == sorted(versions), table


def test_every_function_is_in_one_table_in_the_order_of_its_slot() -> None:
    names = [name for functions in TABLES.values() for name in functions]
    assert [function.name for function in ZE.slots] == names == list(ZE.functions)


def test_the_version_is_the_newest_of_any_function() -> None:
    assert max(function.since for function in ZE.slots) == numbers(API_VERSION)
    assert VERSION == "{}.{}".format(*numbers(API_VERSION)) == next(iter(ZE.layouts))


def test_a_table_has_the_size_of_the_version() -> None:
    assert count_entries("Global", 1 << 16 | 0) == count_entries("Global", 1 << 16 | 9) == 1
    assert count_entries("Global", 1 << 16 | 10) == count_entries("Global", 2 << 16) == 2
    assert count_entries("Graph", 1 << 16 | 16) == 0
    assert count_entries("Graph", API_VERSION) == len(TABLES["Graph"])
    assert count_entries("Driver", 0) == 0


def test_an_array_that_is_counted_by_a_number_in_memory_has_that_number() -> None:
    for function in ZE.slots:
        by_name = {parameter.name: parameter for parameter in function.parameters}
        for parameter in function.parameters:
            if parameter.length.startswith("*"):
                count = by_name[parameter.length[1:]]
                assert (count.type, count.stars, count.is_out) == ("uint32_t", 1, True)


def test_a_handle_that_ends_is_not_written() -> None:
    for function in ZE.slots:
        for parameter in function.parameters:
            assert not ("release" in parameter.words and parameter.is_out), function.name
    create, append = ZE.functions["zeEventCreate"], ZE.functions["zeCommandListAppendWaitOnEvents"]
    assert [p.name for p in create.parameters if p.is_out] == ["phEvent"]
    assert [p.name for p in append.parameters if p.is_out] == []
