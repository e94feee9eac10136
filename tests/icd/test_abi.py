"""The ABI data against the vendors' headers (those of the intel-sycl-rt wheel, which `make test`
fetches)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd.abi import ICD2_TAG, OPENCL, SLOT_COUNT, TAG_SLOTS, count_slots


def _prototypes(headers: Path) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Name → (return type, [(type, name)]) of every `typedef … clName_t(…)`, spaces folded and
    callbacks named `callback`."""
    found = {}
    for path in sorted((headers / "CL").glob("*.h")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.S)
        for match in re.finditer(
            r"typedef\s+([\w\s*]+?)\s*CL_API_CALL\s+(\w+?)_t\s*\((.*?)\)\s*(?:CL_API\w+)?\s*;",
            text,
            re.S,
        ):
            returns, name, parameters = match.groups()
            parameters = re.sub(
                r"void\s*\(\s*CL_CALLBACK\s*\*\s*(\w+)\s*\)\s*\([^()]*\)",
                r"callback \1",
                parameters,
            )
            found[name] = (
                returns.replace(" ", ""),
                [_parameter(text) for text in parameters.split(",") if text.strip() != "void"],
            )
    return found


def _parameter(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*(.*?)(\w+)\s*(\[\])?\s*", text, re.S)
    assert match
    return re.sub(r"\s", "", match[1]) + ("*" if match[3] else ""), match[2]


def test_every_prototype_is_that_of_the_headers(headers: Path) -> None:
    theirs = _prototypes(headers)
    for function in OPENCL.functions.values():
        returns, parameters = theirs[function.name]
        assert function.returns == returns, function.name
        ours = [
            (p.c_type.replace(" ", "") if p.type != "callback" else "callback", p.name)
            for p in function.parameters
        ]
        assert ours == parameters, function.name


def test_the_slots_are_those_of_cl_icd_h(headers: Path, tmp_path: Path) -> None:
    lines = ["#include <stddef.h>", "#include <CL/cl_icd.h>"]
    lines += [
        (
            f"_Static_assert(offsetof(cl_icd_dispatch, {f.name}) == {f.slot} * sizeof(void "
            f'*), "{f.name}");'
        )
        for f in OPENCL.slots
    ]
    lines.append(
        f'_Static_assert(sizeof(cl_icd_dispatch) == {SLOT_COUNT} * sizeof(void *), "size");'
    )
    lines.append(f'_Static_assert(CL_ICD2_TAG_KHR == {ICD2_TAG:#x}, "tag");')
    _compile(headers, tmp_path, lines)


def test_every_constant_and_error_code_is_that_of_the_headers(
    headers: Path, tmp_path: Path
) -> None:
    values = {name: constant.value for name, constant in OPENCL.constants.items()}
    values |= {name: code for code, (name, _) in OPENCL.errors.items()}
    lines = [
        "#define CL_ENABLE_BETA_EXTENSIONS",
        "#include <CL/cl_icd.h>",
        "#include <CL/cl_ext.h>",
        "#include <CL/cl_gl.h>",
        "#include <CL/cl_egl.h>",
    ]
    for name, value in values.items():
        lines += [
            f"#ifdef {name}",
            f"_Static_assert((unsigned long long)({name}) == (unsigned long long)({value}), "
            f'"{name}");',
            "#endif",
        ]
    _compile(headers, tmp_path, lines)
    text = "\n".join(path.read_text(encoding="utf-8") for path in (headers / "CL").glob("*.h"))
    assert [name for name in values if not re.search(rf"#define\s+{name}\b", text)] == []


def test_every_error_code_of_cl_h_has_a_sentence(headers: Path) -> None:
    text = (headers / "CL" / "cl.h").read_text(encoding="utf-8")
    block = text[text.index("/* Error Codes */") : text.index("/* cl_bool */")]
    codes = {int(code): name for name, code in re.findall(r"#define (CL_\w+)\s+(-?\d+)", block)}
    assert len(codes) > 60
    for code, name in codes.items():
        assert OPENCL.errors[code][0] == name
    for name, sentence in OPENCL.errors.values():
        assert name.startswith("CL_") and sentence.endswith(".") and sentence[0].isupper()


def test_every_scalar_type_has_the_size_of_the_headers(headers: Path, tmp_path: Path) -> None:
    lines = [
        "#define CL_ENABLE_BETA_EXTENSIONS",
        "#include <CL/cl_icd.h>",
        "#include <CL/cl_gl.h>",
        "#include <CL/cl_egl.h>",
        "#include <CL/cl_ext.h>",
    ]
    windows_only = re.compile("d3d|dx9|D3D|UINT")
    for name in OPENCL.types:
        if OPENCL.resolve(name) != "struct" and not windows_only.search(name):
            size = ctypes.sizeof(OPENCL.make_ctype(name))
            lines.append(f'_Static_assert(sizeof({name}) == {size}, "{name}");')
    _compile(headers, tmp_path, lines)


def test_every_struct_is_that_of_the_headers(headers: Path, tmp_path: Path) -> None:
    lines = [
        "#include <stddef.h>",
        "#define CL_ENABLE_BETA_EXTENSIONS",
        "#include <CL/cl_icd.h>",
        "#include <CL/cl_ext.h>",
    ]
    for name in OPENCL.structs:
        struct = OPENCL.get_struct(name)
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, _ in struct._fields_:
            offset = getattr(struct, field).offset
            lines.append(
                f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");'
            )
    _compile(headers, tmp_path, lines)


def _compile(headers: Path, tmp_path: Path, lines: list[str]) -> None:
    source = tmp_path / "check.c"
    source.write_text(
        "\n".join(["#define CL_TARGET_OPENCL_VERSION 310", *lines, ""]), encoding="utf-8"
    )
    done = subprocess.run(
        ["cc", "-std=gnu11", "-fsyntax-only", f"-I{headers}", str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:4000]


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


def test_errors_say_routine_code_sentence_and_remedy() -> None:
    from fairlead.icd.errors import OpenCLError, check

    with pytest.raises(OpenCLError) as caught:
        check(-52, "clEnqueueNDRangeKernel")
    assert caught.value.code == "CL_INVALID_KERNEL_ARGS" and caught.value.value == -52
    assert str(caught.value).startswith(
        "clEnqueueNDRangeKernel [CL_INVALID_KERNEL_ARGS]: Not all arguments"
    )
    assert "remedy: set every argument" in str(caught.value)
    with pytest.raises(OpenCLError, match="a code that OpenCL does not define"):
        check(-12345, "clFinish")
