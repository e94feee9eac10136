"""AMD's code objects without a GPU: compiled by AMD's own libraries, read, and changed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from helpers.hip import bundle
from helpers.support import RunPython

from fairlead.loader.ur.abi import URError
from fairlead.plugins.hip.code_objects import (
    CodeObject,
    CodeObjectError,
    CodeObjectKernel,
    CodeObjectParameter,
    find_processor,
    prepare,
    read_messagepack,
)
from fairlead.plugins.hip.device_code import HipCode

SOURCE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef struct { int count; double scale; char name; } pair;
size_t place(void) { return get_global_id(0); }
kernel void mixed(global int *out, char c, local float *one, pair p, local int *two, float3 v) {
    local int fixed[7];
    fixed[get_local_id(0) % 7] = c;
    one[get_local_id(0)] = v.x * sin(p.scale);
    two[get_local_id(0)] = p.count;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[place()] = fixed[1] + one[2] + two[3];
}
kernel __attribute__((reqd_work_group_size(8, 4, 1))) void square(global int *out) {
    out[get_local_id(0)] = N;
}
"""
#: Compiles its first argument for the second one with the third one's options, into the fourth.
COMPILE = """
import sys
from fairlead.plugins.hip.comgr import open_comgr
from fairlead.plugins.sdk.gpu.runtime_compilers import RuntimeCompilerError
source, processor, options, path = sys.argv[1:]
try:
    target = f"amdgcn-amd-amdhsa--{processor}"
    data = open_comgr().compile_opencl(source.encode(), target, options)
except RuntimeCompilerError as error:
    print(error)
else:
    open(path, "wb").write(data)
"""
#: Compiles texts to bitcode, and links them into the first argument.
LINK = """
import sys
from fairlead.plugins.hip.comgr import BITCODE, ComgrError, open_comgr
path, *sources = sys.argv[1:]
target, comgr = "amdgcn-amd-amdhsa--gfx90a", open_comgr()
try:
    parts = [comgr.compile_bitcode(one.encode(), target, "-DN=3") for one in sources]
    assert all(part.startswith(BITCODE) for part in parts)
    data = comgr.link(parts, target, "-cl-fast-relaxed-math")
except ComgrError as error:
    print(error)
else:
    open(path, "wb").write(data)
"""
#: What comgr itself says of the kernel in a code object: kind, offset and size of each argument.
DESCRIBE = """
import ctypes, sys

comgr = ctypes.CDLL("libamd_comgr.so.2")


class Handle(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64)]


def look_up(node, name):
    found = Handle()
    assert not comgr.amd_comgr_metadata_lookup(node, name.encode(), ctypes.byref(found)), name
    return found


def at(node, index):
    found = Handle()
    assert not comgr.amd_comgr_index_list_metadata(
        node, ctypes.c_size_t(index), ctypes.byref(found)
    )
    return found


def text(node):
    size = ctypes.c_size_t()
    assert not comgr.amd_comgr_get_metadata_string(node, ctypes.byref(size), None)
    room = ctypes.create_string_buffer(size.value)
    comgr.amd_comgr_get_metadata_string(node, ctypes.byref(size), room)
    return room.value.decode()


data, image = Handle(), open(sys.argv[1], "rb").read()
assert not comgr.amd_comgr_create_data(8, ctypes.byref(data))
assert not comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(image)), image)
root = Handle()
assert not comgr.amd_comgr_get_data_metadata(data, ctypes.byref(root))
kernel = at(look_up(root, "amdhsa.kernels"), 0)
arguments, count = look_up(kernel, ".args"), ctypes.c_size_t()
assert not comgr.amd_comgr_get_metadata_list_size(arguments, ctypes.byref(count))
for index in range(count.value):
    one = at(arguments, index)
    print(*(text(look_up(one, name)) for name in (".value_kind", ".offset", ".size")))
"""


class _Compiler:
    def __init__(self, run: RunPython, environment: dict[str, str], folder: Path) -> None:
        self.run, self.environment, self.folder = run, environment, folder

    def __call__(
        self, source: str, processor: str = "gfx90a", options: str = "-DN=1"
    ) -> tuple[Path, str]:
        """Return the path of the code object, and what the compiler says."""
        path = self.folder / "kernel.co"
        path.unlink(missing_ok=True)
        done = self.run(COMPILE, source, processor, options, str(path), env=self.environment)
        return path, done.out


@pytest.fixture
def compiler(run_python: RunPython, amd: dict[str, str], tmp_path: Path) -> _Compiler:
    """AMD's compiler, in a process of its own."""
    return _Compiler(run_python, amd, tmp_path)


def test_kernels_of_opencl_c_are_described(compiler: _Compiler) -> None:
    found = prepare(compiler(SOURCE)[0].read_bytes(), "gfx90a")
    assert found.target == "amdgcn-amd-amdhsa--gfx90a"
    mixed, square = found.kernels["mixed"], found.kernels["square"]
    assert [(one.offset, one.size) for one in mixed.given] == [
        *((0, 8), (8, 1), (12, 4)),
        *((16, 24), (40, 4), (48, 16)),
    ]
    assert [one.axis for one in mixed.parameters[len(mixed.given) :]] == [0, 1, 2]
    assert (mixed.local_bytes, mixed.required, mixed.argument_bytes % 8) == (28, None, 0)
    assert (square.required, square.most_items, len(square.parameters)) == ((8, 4, 1), 32, 1)


def test_bitcode_is_linked(run_python: RunPython, amd: dict[str, str], tmp_path: Path) -> None:
    """Both parts use the library of the device, which is linked once."""
    parts = (
        "float more(float x); kernel void f(global float *out) { *out = more(*out) + cos(*out); }",
        "float more(float x) { return sin(x) * N; }",
    )
    path = tmp_path / "linked.co"
    assert run_python(LINK, str(path), *parts, env=amd).out == ""
    found = prepare(path.read_bytes(), "gfx90a")
    assert [(one.offset, one.size) for one in found.kernels["f"].given] == [(0, 8)]
    assert "more" in run_python(LINK, str(path), parts[1], parts[1], env=amd).out


@pytest.mark.parametrize("processor", ["gfx906", "gfx1030"])
def test_it_compiles_for_other_processors(compiler: _Compiler, processor: str) -> None:
    path, _ = compiler(SOURCE, processor, "-cl-std=CL1.2 -DN=2 -cl-fast-relaxed-math")
    found = prepare(path.read_bytes(), processor)
    assert find_processor(found.target) == processor
    assert found.kernels.keys() == {"mixed", "square"}


@pytest.mark.parametrize(
    ("processor", "option", "size"),
    [("gfx90a", "", 64), ("gfx1030", "", 32), ("gfx1030", "-mwavefrontsize64", 64)],
)
def test_the_compiler_chooses_the_size_of_sub_groups(
    compiler: _Compiler, processor: str, option: str, size: int
) -> None:
    path, _ = compiler(SOURCE, processor, f"-DN=1 {option}")
    found = prepare(path.read_bytes(), processor)
    assert {one.wavefront for one in found.kernels.values()} == {size}


def test_amds_library_reads_the_changed_metadata(
    compiler: _Compiler, run_python: RunPython, amd: dict[str, str]
) -> None:
    """Kinds change, and nothing else: neither places nor sizes, nor any other byte of the file."""
    path, _ = compiler(SOURCE)

    def rows() -> list[tuple[str, ...]]:
        done = run_python(DESCRIBE, str(path), env=amd)
        return [tuple(line.split()) for line in done.out.splitlines()]

    plain, before = path.read_bytes(), rows()
    changed = prepare(plain, "gfx90a")
    path.write_bytes(changed.image)
    after = rows()
    assert [row[1:] for row in after] == [row[1:] for row in before]
    kinds = [row[0] for row in before]
    assert kinds.count("dynamic_shared_pointer") == 2
    assert sum("global_offset" in kind for kind in kinds) == 3
    given = [
        "by_value" if "shared_pointer" in kind or "global_offset" in kind else kind
        for kind in kinds
    ]
    assert [row[0] for row in after] == given
    differ = [
        at for at, both in enumerate(zip(plain, changed.image, strict=True)) if both[0] != both[1]
    ]
    start = plain.index(b"amdhsa.kernels")
    assert differ and start - 2 <= min(differ) and max(differ) < start + 4096
    assert prepare(changed.image, "gfx90a").image == changed.image


def test_kernels_with_images_are_refused_by_name(compiler: _Compiler) -> None:
    """HIP's objects are not what a kernel of OpenCL C takes for an image."""
    source = """
    kernel void reads(global float4 *out, read_only image2d_t from, sampler_t how) {
        *out = read_imagef(from, how, (int2)(0));
    }
    kernel void plain(global int *out) { *out = 1; }
    """
    image = HipCode(prepare(compiler(source)[0].read_bytes(), "gfx90a"))
    assert image.list_parameter_sizes("plain", 0) == (8,)
    with pytest.raises(URError, match="reads: parameter 1 is of the kind image") as one:
        image.list_parameter_sizes("reads", 0)
    assert one.value.code == "UR_RESULT_ERROR_UNSUPPORTED_FEATURE"
    assert "HIP C++" in one.value.remedy


def test_kernels_of_dpcpp_have_a_variant_for_global_offsets() -> None:
    """It takes the offset as its last parameter. DPC++'s kernel itself ignores the hidden ones."""
    pointer = CodeObjectParameter(0, 8, "global_buffer")
    hidden = CodeObjectParameter(16, 8, "by_value", 1)
    kernels = {
        name: CodeObjectKernel(name, (pointer, *more, hidden), 24, 0, 256, None, 64)
        for name, *more in (
            ("f",),
            ("f_with_offset", CodeObjectParameter(8, 12, "by_value")),
            ("g",),
        )
    }
    image = HipCode(CodeObject(b"", "", kernels))
    assert image.list_kernel_names(0) == ["f", "g"]
    names = [image.find_function_name(name, at) for name in "fg" for at in ((0, 0, 0), (0, 7, 0))]
    assert names == ["f", "f_with_offset", "g", "g"]
    seven = (7).to_bytes(8, "little")
    assert image.list_offsets("f", (0, 7)) == [struct.pack("3I", 0, 7, 0), seven]
    assert image.list_offsets("g", (0, 7)) == [seven] and image.list_offsets("f", ()) == [bytes(8)]


def test_a_refused_program_has_the_compilers_log(compiler: _Compiler) -> None:
    path, said = compiler("kernel void f(global int *a) { *a = undeclared; }")
    assert "use of undeclared identifier 'undeclared'" in said
    path, said = compiler("kernel void f(global int *a) { *a = 1; }", "gfx000")
    assert "isa_name" in said
    path, said = compiler("kernel void f(global int *a) { *a = 1; }", options="-D'")
    assert "options" in said and not path.exists()


def test_a_bundle_has_code_for_several_processors(compiler: _Compiler) -> None:
    path, _ = compiler(SOURCE)
    image, name = path.read_bytes(), "hipv4-amdgcn-amd-amdhsa--gfx90a"
    whole = bundle(
        **{"host-x86_64-unknown-linux--": b"", f"{name}:xnack+": image, "hip-x--gfx906": b"?"}
    )
    assert prepare(whole, "gfx90a") == prepare(image, "gfx90a")
    with pytest.raises(CodeObjectError, match="no code for gfx1100, only host-x86"):
        prepare(whole, "gfx1100")
    for end in (30, 60, len(whole) - len(image)):
        with pytest.raises(CodeObjectError):
            prepare(whole[:end], "gfx90a")


def test_what_is_no_code_object_is_refused() -> None:
    own = Path("/proc/self/exe").read_bytes()
    with pytest.raises(CodeObjectError, match="not for AMD's GPUs"):
        prepare(own, "gfx90a")
    for data in (b"", b"\x7fELF", own[:100], b"kernel void f() {}"):
        with pytest.raises(CodeObjectError):
            prepare(data, "gfx90a")


HIP_C = """
__device__ int counter;
extern "C" __global__ void add(int *a, char b, double c) {
    extern __shared__ int shared[];
    shared[threadIdx.x] = b;
    __syncthreads();
    a[blockIdx.x * blockDim.x + threadIdx.x] += shared[0] + c + counter;
}
"""
#: Compiles its first argument by hipRTC.
HIPRTC = """
import sys
from fairlead.plugins.sdk.gpu.runtime_compilers import *
try:
    data = open_compiler(HIPRTC).compile(sys.argv[1].encode(), "--offload-arch=gfx90a")
except RuntimeCompilerError as error:
    print(error)
else:
    open(sys.argv[2], "wb").write(data)
"""


def test_hiprtc_compiles_hip_c(run_python: RunPython, amd: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "kernel.co"
    run_python(HIPRTC, HIP_C, str(path), env=amd)
    found: CodeObject = prepare(path.read_bytes(), "gfx90a")
    assert [(one.offset, one.size) for one in found.kernels["add"].given] == [
        *((0, 8), (8, 1), (16, 8))
    ]
    broken = HIP_C.replace("c + counter", "undeclared")
    assert "undeclared" in run_python(HIPRTC, broken, str(path), env=amd).out


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x05", 5),
        (b"\xff", -1),
        (b"\xcd\x01\x00", 256),
        (b"\xd1\xff\xfe", -2),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xcb" + struct.pack(">d", 1.5), 1.5),
        (b"\x93\xc0\xc2\xc3", [None, False, True]),
        (b"\xa2hi", "hi"),
        (b"\xd9\x02hi", "hi"),
        (b"\xc4\x02\x00\xff", b"\0\xff"),
        (b"\xdc\x00\x01\x01", [1]),
        (b"\xde\x00\x01\xa1a\x81\xa1b\x90", {"a": {"b": []}}),
        (b"\x01 and what follows", 1),
    ],
)
def test_messagepack_is_read(data: bytes, value: object) -> None:
    assert read_messagepack(data) == value


@pytest.mark.parametrize(
    "data", [b"", b"\xa5hi", b"\x92\x01", b"\xc1", b"\xc7\x00\x00", b"\x81\x90\x01", b"\x91" * 9999]
)
def test_damaged_messagepack_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends|unknown|unhashable|recursion"):
        read_messagepack(data)
