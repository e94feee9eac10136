"""cuda.abi against cuda.h of NVIDIA's wheel (CUDA_HEADERS names its folder)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fairlead.loader.cuda.abi import CUDA, CudaError, check

_NAMES = {"uint32_t": "unsigned int", "uint64_t": "unsigned long long", "uint8_t": "unsigned char"}


@pytest.fixture(scope="module")
def cuda_h() -> Path:
    """The header."""
    folder = os.environ.get("CUDA_HEADERS", "")
    path = Path(folder, "cuda.h")
    if not folder or not path.exists():
        pytest.skip("needs CUDA_HEADERS, the folder of cuda.h (pip: nvidia-cuda-runtime)")
    return path


def _compile(header: Path, tmp_path: Path, lines: list[str]) -> None:
    source = tmp_path / "check.c"
    source.write_text("\n".join(["#include <stddef.h>", "#include <cuda.h>", *lines, ""]))
    command = ["cc", "-std=gnu11", "-fsyntax-only", f"-I{header.parent}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def test_every_function_is_that_of_the_header(cuda_h: Path, tmp_path: Path) -> None:
    lines = []
    for function in CUDA.slots:
        parameters = ", ".join(
            f"{'const ' * p.const}{_NAMES.get(p.type, p.type)} {'*' * p.stars}"
            for p in function.parameters
        )
        pointer = f"{function.returns} (*)({parameters or 'void'})"
        lines.append(
            f"_Static_assert(__builtin_types_compatible_p(typeof(&{function.name}), {pointer}), "
            f'"{function.name}");'
        )
    _compile(cuda_h, tmp_path, lines)


def test_every_struct_type_and_constant_is_that_of_the_header(cuda_h: Path, tmp_path: Path) -> None:
    import ctypes

    lines = []
    for name in CUDA.structs:
        struct = CUDA.struct(name)
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        lines += [
            f"_Static_assert(offsetof({name}, {field}) == {getattr(struct, field).offset}, "
            f'"{name}.{field}");'
            for field, *_ in struct._fields_
        ]
    for name in CUDA.types:
        if CUDA.resolve(name) != "struct":
            size = ctypes.sizeof(CUDA.ctype(name))
            lines.append(f'_Static_assert(sizeof({name}) == {size}, "{name}");')
    values = {name: one.value for name, one in CUDA.constants.items()}
    values |= {name: code for code, (name, _) in CUDA.errors.items()}
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in values.items()]
    _compile(cuda_h, tmp_path, lines)


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
