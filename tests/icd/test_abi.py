"""The ABI data against the vendors' headers (those of the intel-sycl-rt wheel, which `make test`
fetches)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from helpers.abi_header import (
    compile_lines,
    find_prototypes,
    list_prototypes,
    read_header,
    struct_lines,
    type_lines,
    value_lines,
)
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.abi import ICD2_TAG, OPENCL, SLOT_COUNT, TAG_SLOTS, count_slots


def _compile(headers: Path, folder: Path, lines: Iterable[str]) -> None:
    names = "icd", "ext", "gl", "egl"
    defines = "-DCL_TARGET_OPENCL_VERSION=310", "-DCL_ENABLE_BETA_EXTENSIONS"
    compile_lines(lines, folder, [f"CL/cl_{name}.h" for name in names], f"-I{headers}", *defines)


def test_every_prototype_is_that_of_the_headers(headers: Path) -> None:
    text = "".join(map(read_header, (headers / "CL").glob("*.h")))
    callback = r"void\s*\(\s*CL_CALLBACK\s*\*\s*(\w+)\s*\)\s*\([^()]*\)"
    pattern = r"typedef\s+([\w\s*]+?)\s*CL_API_CALL\s+(\w+?)_t\s*\((.*?)\)\s*(?:CL_API\w+)?\s*;"
    theirs = find_prototypes(re.sub(callback, r"callback \1", text), pattern)
    ours = list_prototypes(OPENCL.functions.values())
    assert ours == {name: theirs[name] for name in ours}


def test_the_slots_are_those_of_cl_icd_h(headers: Path, tmp_path: Path) -> None:
    lines = [
        f'_Static_assert(offsetof(cl_icd_dispatch, {f.name}) == {f.slot} * 8, "{f.name}");'
        for f in OPENCL.slots
    ]
    values = {"sizeof(cl_icd_dispatch)": 8 * SLOT_COUNT, "CL_ICD2_TAG_KHR": ICD2_TAG}
    _compile(headers, tmp_path, [*lines, *value_lines(values)])


def test_every_constant_and_error_code_is_that_of_the_headers(
    headers: Path, tmp_path: Path
) -> None:
    values = {name: constant.value for name, constant in OPENCL.constants.items()} | OPENCL.codes
    lines = list[str]()
    for name, value in values.items():  # some are in headers of Windows alone
        lines += [f"#ifdef {name}", *value_lines({name: value}), "#endif"]
    _compile(headers, tmp_path, lines)
    text = "\n".join(path.read_text(encoding="utf-8") for path in (headers / "CL").glob("*.h"))
    assert [name for name in values if not re.search(rf"#define\s+{name}\b", text)] == []


def test_every_error_code_of_cl_h_has_a_sentence(headers: Path) -> None:
    text = (headers / "CL" / "cl.h").read_text(encoding="utf-8")
    block = text[text.index("/* Error Codes */") : text.index("/* cl_bool */")]
    codes = {int(code): name for name, code in re.findall(r"#define (CL_\w+)\s+(-?\d+)", block)}
    assert len(codes) > 60
    assert codes == {code: OPENCL.errors[code][0] for code in codes}


def test_every_type_and_struct_is_that_of_the_headers(headers: Path, tmp_path: Path) -> None:
    windows_only = re.compile("d3d|dx9|D3D|UINT")
    types = [name for name in OPENCL.types if not windows_only.search(name)]
    _compile(headers, tmp_path, [*type_lines(OPENCL, types), *struct_lines(OPENCL, OPENCL.structs)])


def test_the_tag_slots_are_those_of_the_two_functions_that_no_loader_dispatches() -> None:
    assert [OPENCL.slots[slot].name for slot in TAG_SLOTS] == [
        "clGetPlatformIDs",
        "clUnloadCompiler",
    ]


def test_slots_of_version_are_a_prefix_of_the_table() -> None:
    for version, last in (
        ((1, 0), "clEnqueueReleaseD3D10ObjectsKHR"),
        ((1, 2), "clCreateEventFromEGLSyncKHR"),
        ((3, 0), "clSetContextDestructorCallback"),
    ):
        count = count_slots(version)
        assert OPENCL.slots[count - 1].name == last
        assert all(function.since <= version for function in OPENCL.slots[:count])


@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_a_later_version_never_has_fewer_slots(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    low, high = sorted((one, other))
    assert count_slots(low) <= count_slots(high) <= SLOT_COUNT
