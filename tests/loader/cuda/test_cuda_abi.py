"""cuda.abi against cuda.h of NVIDIA's wheel (CUDA_HEADERS names its folder)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from helpers.abi_header import compile_lines, function_lines, struct_lines, type_lines, value_lines

from fairlead.loader.cuda.abi import CUDA, CudaError, check

_TYPES = {"uint32_t": "unsigned int", "uint64_t": "unsigned long long", "uint8_t": "unsigned char"}


@pytest.fixture(scope="module")
def cuda_h() -> Path:
    """The header."""
    folder = os.environ.get("CUDA_HEADERS", "")
    path = Path(folder, "cuda.h")
    if not folder or not path.exists():
        pytest.skip("needs CUDA_HEADERS, the folder of cuda.h (pip: nvidia-cuda-runtime)")
    return path


def test_every_function_is_that_of_the_header(cuda_h: Path, tmp_path: Path) -> None:
    lines = list(function_lines(CUDA.slots, _TYPES))
    compile_lines(lines, tmp_path, "cuda.h", header_folder=cuda_h.parent)


def test_every_struct_type_and_constant_is_that_of_the_header(cuda_h: Path, tmp_path: Path) -> None:
    values = {name: one.value for name, one in CUDA.constants.items()} | CUDA.codes
    lines = [*struct_lines(CUDA, list(CUDA.structs)), *type_lines(CUDA, {}), *value_lines(values)]
    compile_lines(lines, tmp_path, "cuda.h", header_folder=cuda_h.parent)


def test_slots_are_in_order_and_codes_have_sentences() -> None:
    assert [function.slot for function in CUDA.slots] == list(range(len(CUDA.functions)))
    for name, sentence in CUDA.errors.values():
        assert re.fullmatch(r"CUDA_(SUCCESS|ERROR_\w+)", name)
        assert sentence.endswith(".") and len(sentence.split()) < 25


def test_an_error_says_what_to_do() -> None:
    check(0, "cuInit")
    with pytest.raises(CudaError, match=r"cuInit \[CUDA_ERROR_NO_DEVICE\].*\n.*nvidia-smi") as one:
        check(100, "cuInit")
    assert one.value.value == 100
    with pytest.raises(CudaError, match="CUDA_12345"):
        check(12345, "cuInit")
