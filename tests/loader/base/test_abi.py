"""The ABI data of all APIs: their consistency. Other tests compare them with headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.abi_header import compile_lines, define_types, struct_lines

from fairlead.icd.abi import OPENCL
from fairlead.icd.errors import check as check_opencl
from fairlead.loader.base.abi import Api, Parameter
from fairlead.loader.base.errors import CodeError
from fairlead.loader.cuda.abi import CUDA, CudaError
from fairlead.loader.hip.abi import HIP, HipError
from fairlead.loader.pi.abi import PI, PIError
from fairlead.loader.ur.abi import UR, URError
from fairlead.loader.ze.abi import ZE, LevelZeroError

APIS = {"CL": OPENCL, "UR": UR, "PI": PI, "ZE": ZE, "CUDA": CUDA, "HIP": HIP}
LOST = "UR_RESULT_ERROR_DEVICE_LOST"
_NAME = r"(CL|UR_RESULT|PI|ZE_RESULT|CUDA)_\w+|hip(Success|Error\w+)"
#: The functions that the newest layout of Unified Runtime does not have.
RETIRED = set(UR.functions).difference(*next(iter(UR.layouts.values())).values())

every_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS)
#: Those whose data say what parameters are for, and which type each query answers.
described = pytest.mark.parametrize("api", [UR, PI, ZE], ids=["UR", "PI", "ZE"])


@every_api
def test_slots_are_numbered_without_a_gap(api: Api) -> None:
    assert [function.slot for function in api.slots] == list(range(len(api.slots)))


@every_api
def test_the_types_and_structs_compile_and_are_as_ctypes_lays_them_out(
    api: Api, tmp_path: Path
) -> None:
    functions = [f"{one.format_c_declaration(one.name)};" for one in api.functions.values()]
    lines = [*define_types(api), *functions, *struct_lines(api, api.structs)]
    compile_lines(lines, tmp_path, [])


def _everywhere(api: Api) -> Iterator[tuple[str, tuple[Parameter, ...]]]:
    yield from ((function.name, function.parameters) for function in api.functions.values())
    yield from ((struct.name, struct.fields) for struct in api.structs.values())


@described
def test_every_type_resolves(api: Api) -> None:
    opaque = {name for name in api.types if api.resolve(name) == "struct"} - set(api.structs)
    for name in set(api.types) - opaque:
        assert api.make_ctype(name) is not None, name
    for where, parameters in _everywhere(api):
        assert where in RETIRED or not opaque & {parameter.type for parameter in parameters}, where
        for parameter in parameters:
            api.make_ctype(parameter.type, parameter.stars, parameter.const)
            assert parameter.stars or parameter.type != "void", where


@described
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


@described
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
        assert re.fullmatch(_NAME, name), code
        assert sentence[0].isupper() and sentence.endswith("."), name
        assert len(sentence.split()) < 25, name


@pytest.mark.parametrize(
    ("check", "code", "text"),
    [
        (check_opencl, -52, r"f \[CL_INVALID_KERNEL_ARGS\]: .*\n.*remedy: set every argument"),
        (check_opencl, -12345, r"f \[.*\]: .* a code that OpenCL does not define"),
        (URError.check, UR.codes[LOST], rf"f \[{LOST}\]: "),
        (PIError.check, -98765, r"f \[PI_ERROR_-98765\]: "),
        (LevelZeroError.check, 0x78000001, r"f \[ZE_RESULT_ERROR_UNINITIALIZED\]: "),
        (LevelZeroError.check, 0x12345, r"f \[ZE_RESULT_0x12345\]: "),
        (CudaError.check, 100, r"f \[CUDA_ERROR_NO_DEVICE\].*\n.*nvidia-smi"),
        (CudaError.check, 12345, r"f \[CUDA_12345\]: "),
        (HipError.check, 100, r"f \[hipErrorNoDevice\].*\n.*/dev/kfd"),
        (HipError.check, 101, r"f \[hipErrorInvalidDevice\].*\n.*/dev/kfd"),
        (HipError.check, 12345, r"f \[HIP_12345\]: "),
    ],
)
def test_errors_say_routine_code_sentence_and_remedy(
    check: Callable[[int, str], None], code: int, text: str
) -> None:
    check(0, "f")
    with pytest.raises(CodeError) as caught:
        check(code, "f")
    assert caught.value.value == code
    assert re.match(text, str(caught.value))
