"""Clang beside libamd_comgr and hipRTC: what they make is looked at, and which one is taken."""

from __future__ import annotations

import json
import struct
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from elftools.elf.elffile import ELFFile
from helpers.hip import bundle
from helpers.support import RunPython

from fairlead.plugins.hip.clang import Clang, ClangError
from fairlead.plugins.hip.code_objects import CodeObjectError, prepare

from .test_code_objects import HIP_C, SOURCE

#: Compiles its third argument by a compiler of the second one's language, into the fourth.
COMPILE: Final = """
import sys
import tempfile
from fairlead.plugins.hip.compilers import *
from fairlead.plugins.sdk.gpu.runtime_compilers import RuntimeCompilerError
number, language, source, path, options = sys.argv[1:]
compiler = COMPILERS[language][int(number)]()
print(compiler.name)
try:
    if language == HIP_C:
        data = compiler.compile_hip(source.encode(), "gfx90a", options)
    else:
        data = compiler.compile_opencl(source.encode(), "amdgcn-amd-amdhsa--gfx90a", options)
except RuntimeCompilerError as error:
    print(error)
else:
    open(path, "wb").write(data)
"""
COMPILERS: Final = {"comgr": "libamd_comgr.so.2", "clang": "clang ("}
_KERNEL_DESCRIPTOR: Final = 64  # bytes


@pytest.fixture
def clang(amd_tools: Path, amd: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Clang:
    """Clang in this process. Only its children need the variables."""
    monkeypatch.setenv("LD_LIBRARY_PATH", amd["LD_LIBRARY_PATH"])
    (libraries,) = Path(amd["ROCM_PATH"]).glob("lib/*/amdgcn/bitcode")
    headers = str(Path(amd["ROCM_PATH"], "include"))
    return Clang(str(amd_tools / "clang"), str(libraries), headers)


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.usefixtures("amd_tools")
def test_opencl_c_becomes_a_code_object(
    run_python: RunPython, amd: dict[str, str], tmp_path: Path, name: str
) -> None:
    """An ELF file for AMD's GPUs, with a descriptor of each kernel, and metadata."""
    path = tmp_path / "kernel.co"
    number = str([*COMPILERS].index(name))
    said = run_python(COMPILE, number, "OpenCL C", SOURCE, str(path), "-DN=1", env=amd).out
    assert said.startswith(COMPILERS[name])
    data = path.read_bytes()
    file = ELFFile(BytesIO(data))
    assert file["e_machine"] in ("EM_AMDGPU", 224)
    table: Any = file.get_section_by_name(".dynsym")
    symbols = {one.name: one for one in table.iter_symbols()}
    assert {"mixed", "square"} < symbols.keys()
    for kernel in ("mixed.kd", "square.kd"):
        assert symbols[kernel]["st_info"]["type"] == "STT_OBJECT"
        assert symbols[kernel]["st_size"] == _KERNEL_DESCRIPTOR
    found = prepare(data, "gfx90a")
    mixed, square = found.kernels["mixed"], found.kernels["square"]
    assert found.target == "amdgcn-amd-amdhsa--gfx90a"
    places = (0, 8), (8, 1), (12, 4), (16, 24), (40, 4), (48, 16)
    assert tuple((one.offset, one.size) for one in mixed.given) == places
    assert (mixed.local_bytes, square.required) == (28, (8, 4, 1))


@pytest.mark.parametrize("number", ["0", "1"], ids=["hiprtc", "clang"])
@pytest.mark.usefixtures("amd_tools")
def test_hip_c_becomes_a_code_object(
    run_python: RunPython, amd: dict[str, str], tmp_path: Path, number: str
) -> None:
    path = tmp_path / "kernel.co"
    source = HIP_C.replace("c + counter", "N * sin(c) + counter")
    done = run_python(COMPILE, number, "HIP C++", source, str(path), "-DN=2", env=amd)
    if "/include/c++/" in done.out and "error: " in done.out:
        pytest.skip("clang 15 does not understand the C++ library of this system")
    found = prepare(path.read_bytes(), "gfx90a").kernels["add"]
    assert [(one.offset, one.size) for one in found.given] == [(0, 8), (8, 1), (16, 8)]
    broken = HIP_C.replace("c + counter", "undeclared")
    got = "undeclared"
    assert got in run_python(COMPILE, number, "HIP C++", broken, str(path), "", env=amd).out


@pytest.mark.parametrize("processor", ["gfx906", "gfx1030", "gfx90a:sramecc+:xnack-"])
def test_clang_compiles_for_other_processors(clang: Clang, processor: str) -> None:
    options = "-cl-std=CL1.2 -DN=2 -cl-fast-relaxed-math"
    data = clang.compile_opencl(SOURCE.encode(), f"amdgcn-amd-amdhsa--{processor}", options)
    found = prepare(data, processor.split(":")[0])
    assert found.target == f"amdgcn-amd-amdhsa--{processor}"
    assert found.kernels.keys() == {"mixed", "square"}


def test_clang_links_bitcode(clang: Clang) -> None:
    target = "amdgcn-amd-amdhsa--gfx90a"
    first, second = (
        clang.compile_bitcode(text, target, "-DN=3")
        for text in (
            b"float more(float x); kernel void f(global float *a) { *a = more(*a) + cos(*a); }",
            b"float more(float x) { return sin(x) * N; }",
        )
    )
    linked = prepare(clang.link([first, second], target), "gfx90a")
    assert [(one.offset, one.size) for one in linked.kernels["f"].given] == [(0, 8)]
    for parts in ([first], [second, second]):
        with pytest.raises(ClangError, match="more"):
            clang.link(parts, target)


def test_what_clang_leaves_goes_with_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real ones leave a folder --XXXXXX in the folder for temporary files."""
    program, folder = tmp_path / "clang", tmp_path / "temporary"
    program.write_text(
        '#!/bin/sh\nmkdir "$TMPDIR/--0a1b2c"\nfor one; do last=$one; done\necho made > "$last"\n'
    )
    program.chmod(0o755)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    made = Clang(str(program), "", "").compile_opencl(b"", "amdgcn-amd-amdhsa--gfx90a")
    assert made == b"made\n"
    assert list(folder.iterdir()) == []


def test_what_clang_refuses_has_its_log(clang: Clang) -> None:
    target, source = "amdgcn-amd-amdhsa--gfx90a", b"kernel void f(global int *a) { *a = unknown; }"
    with pytest.raises(ClangError, match="use of undeclared identifier 'unknown'"):
        clang.compile_opencl(source, target)
    with pytest.raises(ClangError, match="gfx000"):
        clang.compile_opencl(b"", "amdgcn-amd-amdhsa--gfx000")
    with pytest.raises(ClangError, match="No such file"):
        Clang("/nowhere/clang", "", "").compile_opencl(source, target)


#: Builds its argument as the adapter does, for a GPU that is not there.
BUILD: Final = """
import json, sys
from types import SimpleNamespace
from fairlead.plugins.hip import compilers
from fairlead.plugins.hip.device_code import build_code
device = SimpleNamespace(found=SimpleNamespace(architecture="gfx90a:sramecc+:xnack-"))
image = build_code(device, sys.argv[1].encode(), "-DN=1")
print(json.dumps({**compilers.main({}, lambda step: None), "kernels": image.list_kernel_names(0)}))
"""


@pytest.mark.usefixtures("amd_tools")
@pytest.mark.parametrize("name", COMPILERS)
def test_the_first_compiler_that_is_there_is_taken(
    run_python: RunPython, amd: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Clang where the library is missing. The log of the adapter says which one compiled."""
    folder = Path(amd["LD_LIBRARY_PATH"])
    if name == "clang":
        for library in folder.glob("*.so*"):
            if "comgr" not in library.name and "hip" not in library.name:
                (tmp_path / library.name).symlink_to(library)
        folder = tmp_path
    env = {**amd, "LD_LIBRARY_PATH": str(folder), "UR_LOG_FAIRLEAD": "level:info;output:stderr"}
    done = run_python(BUILD, SOURCE, env=env)
    found = json.loads(done.out.splitlines()[-1])
    assert sorted(found["kernels"]) == ["mixed", "square"]
    taken = found["compilers"]
    assert taken["OpenCL C"].startswith(COMPILERS[name])
    assert taken["HIP C++"].startswith("hipRTC (" if name == "comgr" else COMPILERS[name])
    assert f"OpenCL C is compiled by {taken['OpenCL C']}" in done.err


def test_bundles_of_clangs_tool_are_read(clang: Clang, amd_tools: Path, tmp_path: Path) -> None:
    """Its parts begin at multiples of 4096. Those of a bundle by hand have no gaps."""
    parts: dict[str, bytes] = {"host-x86_64-unknown-linux": b""}
    for processor in ("gfx90a", "gfx1030"):
        name = f"amdgcn-amd-amdhsa--{processor}"
        parts[f"hipv4-{name}"] = clang.compile_opencl(SOURCE.encode(), name, "-DN=1")
    command = [str(amd_tools / "clang-offload-bundler"), "-type=o", "-bundle-align=4096"]
    for number, data in enumerate(parts.values()):
        path = tmp_path / f"part{number}"
        path.write_bytes(data)
        command.append(f"-input={path}")
    made = tmp_path / "all.hipfb"
    command += [f"-targets={','.join(parts)}", f"-output={made}"]
    subprocess.run(command, check=True)
    by_tool, by_hand = made.read_bytes(), bundle(**parts)
    assert struct.unpack_from("<Q", by_tool, 24) == (3,)
    for processor in ("gfx90a", "gfx1030"):
        found = prepare(by_tool, processor)
        assert found == prepare(by_hand, processor)
        assert found.target.endswith(processor)
    with pytest.raises(CodeObjectError, match="no code for gfx906"):
        prepare(by_tool, "gfx906")
