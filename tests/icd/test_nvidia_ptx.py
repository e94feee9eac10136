"""The translation of NVIDIA OpenCL's PTX, on texts that its compiler has given.

`ptx/` has the texts. The first lines of those that were written by hand say so. PTXAS may name
NVIDIA's assembler; without it, it is looked for on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.icd.nvidia_ptx import PtxError, PtxKernel, PtxProgram, Variant

_TEXTS = Path(__file__).parent / "ptx"
_NONE = Variant(0, (0, 0, 0))
_NAMES = sorted(path.stem for path in _TEXTS.glob("*.ptx"))


def _loadable(kernel: PtxKernel) -> int:
    return sum(1 << place for place, one in enumerate(kernel.parameters) if one.loadable)


def _program(name: str) -> PtxProgram:
    return PtxProgram((_TEXTS / f"{name}.ptx").read_text(encoding="utf-8"))


def _sizes(name: str, kernel: str) -> list[tuple[str, int, int]]:
    return [(one.kind, one.size, one.align) for one in _program(name).kernels[kernel].parameters]


def test_parameters() -> None:
    assert _sizes("structs", "st") == [
        ("memory", 8, 8),
        ("value", 32, 16),
        ("value", 4, 4),
        ("value", 16, 16),
    ]
    assert _sizes("local_argument", "rev") == [("memory", 8, 4), ("local", 8, 4), ("local", 8, 8)]
    assert _sizes("constant_argument", "look") == [("memory", 8, 4)] * 2
    assert {kind for kind, _, _ in _sizes("images", "im")} == {"image", "memory"}


def test_the_ids_of_work_items() -> None:
    program = _program("work_items")
    variant = program.variant(2, (5, 1 << 32, 7))
    assert variant == Variant(2, (5, 0, 7)) and program.asks == Variant(1, (1, 1, 1))
    text = program.translate(variant)
    assert "%envreg" not in text
    for register, value in ((1, 5), (7, 0), (13, 7), (17, 0), (24, 2), (27, 0)):
        assert f"mov.u32 \t%r{register}, {value};" in text
    for register, axis in ((5, "x"), (11, "y"), (21, "z")):
        assert f"mov.u32 \t%r{register}, %nctaid.{axis};" in text


def test_what_a_text_does_not_ask_makes_no_variant() -> None:
    assert _program("offset_only").variant(3, (9, 8, 7)) == Variant(0, (9, 0, 0))
    assert _program("functions").variant(3, (9, 8, 7)) == Variant(3, (9, 0, 0))


def test_functions_see_the_same_values_as_kernels() -> None:
    text = _program("functions").translate(Variant(3, (9, 0, 0)))
    assert text.count(", 9;") == 2 and "mov.u32 \t%r7, 3;" in text


def test_local_arguments_are_offsets_in_dynamic_memory() -> None:
    text = _program("local_argument").translate(_NONE)
    assert ".ptr .shared" not in text
    assert text.count(".extern .shared .align 128 .b8 __fl_shared[];") == 1
    assert re.search(
        r"ld\.param\.u64\s+%rd3, \[rev_param_2\];\s*\{.*?add\.s64 %?\s*%rd3", text, re.S
    )
    assert "__fl_shared" not in _program("local_variable").translate(_NONE)


def test_constant_arguments_move_all_constants_to_global_memory() -> None:
    text = _program("constant_argument").translate(_NONE)
    assert ".const" not in text.replace("ld.const", ".const")
    assert ".global .align 4 .b8 table_[16]" in text and text.count("ld.global.f32") == 2


def test_reqd_work_group_size() -> None:
    assert _program("required").kernels["rq"].required == (32, 2, 1)
    assert _program("structs").kernels["st"].required is None


def test_printing_is_declared_and_refused() -> None:
    program = _program("printing")
    assert program.kernels["pr"].why_not == "it prints"
    assert program.kernels["quiet"].why_not is None
    assert re.search(r"^\.extern \.func .*vprintf", program.translate(_NONE), re.M)


def test_kernels_with_images_are_left_out() -> None:
    program = _program("images")
    assert program.kernels["im"].why_not == "it uses an image or a sampler"
    text = program.translate(_NONE)
    assert ".entry im(" not in text and ".entry plain(" in text and "texref" not in text


def test_variables_of_the_program_are_refused_where_they_are_used() -> None:
    kernels = _program("program_variable").kernels
    assert kernels["count"].why_not == (
        "CUDA would have its own copy of the program's variable counter"
    )
    assert kernels["other"].why_not is None
    text = (_TEXTS / "program_variable.ptx").read_text(encoding="utf-8")
    table = PtxProgram(text.replace("counter", "__cudart_i2opi_f"))  # what sin looks up
    assert table.kernels["count"].why_not is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\x7fELF", "not PTX"),
        (".version 9.0\n.address_size 32\n", "not PTX"),
        (".version 9.0\n.address_size 64\nmov.b64 %rd1, %envreg3;", "%envreg3"),
        (".version 9.0\n.address_size 64\nmov.b32 %r1, %envreg12;", "%envreg12"),
    ],
)
def test_something_unknown_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=re.escape(message)):
        PtxProgram(text)


def test_an_unknown_parameter_and_an_open_block_are_refused() -> None:
    head = ".version 9.0\n.address_size 64\n.entry k(\n\t.param .u64 .ptr .warp .align 8 p\n)\n{"
    program = PtxProgram(head + "ret;\n}\n")
    assert program.kernels["k"].why_not == "it has a parameter of an unknown kind"
    with pytest.raises(PtxError, match="no end"):
        PtxProgram(head + "{ret;\n}\n").kernels  # noqa: B018


@pytest.mark.parametrize(
    ("name", "instructions"),
    [
        ("inner_blocks", {"reduce": "shfl.sync.idx", "count": "atom.shared.max"}),
        ("copies", {"fetch": "cp.async.wait_group", "halves": "fma.rn.f16"}),
    ],
)
def test_a_block_inside_does_not_end_a_kernel(name: str, instructions: dict[str, str]) -> None:
    """The brace that ends it is in column 0. What comes after it is translated, too."""
    program = _program(name)
    assert list(program.kernels) == list(instructions)
    assert all(kernel.why_not is None for kernel in program.kernels.values())
    loads = tuple((kernel, 1) for kernel in instructions)
    text = program.translate(replace(program.variant(1, (5, 0, 0)), loads=loads, waits=True))
    assert "%envreg" not in text and ".ptr .shared" not in text
    bodies = re.split(r"^\.entry (\w+)\(", text, flags=re.M)[1:]
    made = dict(zip(bodies[::2], bodies[1::2], strict=True))
    assert list(made) == [f"{kernel}{end}" for kernel in instructions for end in ("", "_fl_1")]
    for kernel, instruction in instructions.items():
        for body in (made[kernel], made[f"{kernel}_fl_1"]):
            assert body.count(instruction) == body.count("griddepcontrol.wait;") == 1
            assert body.count("{") == body.count("}") and body.count("\tret;") == 1
            offsets = re.findall(r"mov\.u32 \t%r\d+, 5;", body)
            assert len(offsets) == program.text.partition(f".entry {kernel}(")[2].partition(
                ".entry"
            )[0].count("%envreg3")


def test_parameters_that_are_only_loaded_may_lie_in_memory() -> None:
    program = _program("local_argument")
    kernel = program.kernels["rev"]
    assert [one.loadable for one in kernel.parameters] == [True, False, False]
    assert [one.loadable for one in _program("structs").kernels["st"].parameters] == [
        True,
        False,
        False,
        False,
    ]
    text = program.translate(replace(_NONE, loads=(("rev", 1),)))
    plain, other = text.split(".entry rev_fl_1(")
    assert ".entry rev(" in plain and "ld.global.nc" not in plain
    assert ".param .u64 rev_param_0," in other and other.count("ld.global.nc.u64") == 1


@pytest.mark.parametrize("lets_start", [True, False])
def test_kernels_that_may_start_early_wait_first(lets_start: bool) -> None:
    variant = replace(_NONE, waits=True, lets_start=lets_start)
    text = _program("functions").translate(variant)
    lets = r"griddepcontrol\.launch_dependents;\s+" if lets_start else ""
    begin = rf"\.entry f\([^)]*\)\s*{{\s*{lets}griddepcontrol\.wait;\s+\.reg"
    assert len(re.findall(begin, text)) == 1
    assert text.count("griddepcontrol") == 1 + lets_start  # and not in functions


@pytest.mark.parametrize("name", _NAMES)
def test_every_kernel_waits_once(name: str) -> None:
    program = _program(name)
    text = program.translate(replace(_NONE, waits=True))
    assert text.count("griddepcontrol.wait;") == text.count(".entry ") > 0
    assert "griddepcontrol" not in program.translate(_NONE)


def test_what_is_older_cannot_wait() -> None:
    plain = (_TEXTS / "functions.ptx").read_text(encoding="utf-8")
    for newer, older in ((".version 9.0", ".version 7.7"), ("sm_90", "sm_89")):
        assert not PtxProgram(plain.replace(newer, older)).can_wait


@pytest.mark.parametrize(
    ("code", "loadable"),
    [
        ("\tld.param.u32 %r1, [k_0];", True),
        ("\tld.param.f32 %f1, [k_0+0];\n\tld.param.u8 \t%rs1, [k_0];", True),
        ("", True),
        ("\tmov.b64 %rd1, k_0;", False),
        ("\tld.param.u16 %rs1, [k_0+2];", False),
        ("\tld.param.v2.u16 {%rs1, %rs2}, [k_0];", False),
        ("\t@%p1 ld.param.u32 %r1, [k_0];", False),
    ],
)
def test_a_parameter_that_is_used_in_another_way_stays_in_the_launch(
    code: str, loadable: bool
) -> None:
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    program = PtxProgram(f"{head}.entry k(\n\t.param .u32 k_0\n)\n{{\n{code}\n\tret;\n}}\n")
    assert program.kernels["k"].parameters[0].loadable == loadable


def test_a_part_of_a_launch_sees_its_place_in_the_whole() -> None:
    """The offset is that of the part's first work-item, as OpenCL's driver has it."""
    registers = "\n".join(f"\tmov.b32 \t%r{n}, %envreg{n};" for n in range(9))
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    program = PtxProgram(f"{head}.entry k()\n{{\n{registers}\n\tret;\n}}\n")
    whole = program.variant(3, (1, 2, 3))
    part = program.choose_part(whole, (0, 65535, 10), (5, 140000, 20), (8, 4, 2))
    text = program.translate(part)
    values = 0, 65535, 10, 1, 2 + 4 * 65535, 3 + 2 * 10, 5, 140000, 20
    for number, value in enumerate(values):
        assert f"mov.u32 \t%r{number}, {value};" in text
    assert "%nctaid.y" in program.translate(whole) and "%nctaid" not in text
    other = PtxProgram(f"{head}.entry k()\n{{\n\tmov.b32 \t%r1, %envreg4;\n\tret;\n}}\n")
    only_offset = other.choose_part(
        other.variant(2, (0, 0, 0)), (0, 65535, 0), (1, 140000, 1), (1, 1, 1)
    )
    assert (only_offset.first, only_offset.groups) == ((0, 0, 0), (0, 0, 0))
    assert only_offset.offset == (0, 65535, 0)


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("waits", [135168, 0])
def test_nvidias_assembler_takes_the_translated_text(name: str, waits: int, tmp_path: Path) -> None:
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc, or PTXAS=PATH")
    program = _program(name)
    source = tmp_path / "program.ptx"
    loads = tuple((one.name, _loadable(one)) for one in program.kernels.values() if _loadable(one))
    assert program.can_wait
    whole = replace(program.variant(2, (5, 6, 7)), loads=loads, waits=waits, lets_start=waits)
    variant = (
        program.choose_part(whole, (0, 65535, 0), (1, 70000, 1), (1, 1, 1)) if waits else whole
    )
    source.write_text(program.translate(variant), encoding="utf-8")
    command = [ptxas, "-arch=sm_90", "-c", str(source), "-o", str(tmp_path / "program.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
