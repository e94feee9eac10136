"""libOpenCL.so.1: what it exports, how it answers, and which platforms it takes."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from helpers.support import ROOT, CompileC, FakeDriver, once
from helpers.tables import table

from fairlead.icd import libopencl
from fairlead.icd.abi import OPENCL, count_slots

from .conftest import Client, link_text, run_client

#: Debian's ocl-icd, and Khronos' loader in Intel's wheel.
LOADERS = {
    "ocl-icd": Path("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
    "Khronos": Path(sys.prefix, "lib/libOpenCL.so.1"),
}

#: What each version node has first, and one that ocl-icd puts elsewhere than its slot's version.
NODES = {
    "OPENCL_1.0": ("clGetPlatformIDs", "clGetGLContextInfoKHR", "clCreateFromEGLImageKHR"),
    "OPENCL_1.1": ("clCreateSubBuffer", "clCreateSubDevicesEXT", "clCreateEventFromGLsyncKHR"),
    "OPENCL_1.2": ("clCreateImage", "clGetExtensionFunctionAddressForPlatform"),
    "OPENCL_2.0": ("clSVMAlloc", "clGetKernelSubGroupInfoKHR"),
    "OPENCL_2.1": ("clCloneKernel",),
    "OPENCL_2.2": ("clSetProgramReleaseCallback",),
    "OPENCL_3.0": ("clCreateBufferWithProperties",),
    "OPENCL_3.1": ("clGetKernelSuggestedLocalWorkSize",),
}


def section(name: str) -> Any:
    """A section of the library."""
    with open(libopencl.find_library(), "rb") as file:
        return ELFFile(io.BytesIO(file.read())).get_section_by_name(name)


def exports() -> dict[str, str]:
    """Each exported function and its version node."""
    versions, found = section(".gnu.version"), {}
    nodes = {
        definition["vd_ndx"]: next(iter(auxiliaries)).name
        for definition, auxiliaries in section(".gnu.version_d").iter_versions()
    }
    for index, symbol in enumerate(section(".dynsym").iter_symbols()):
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF":
            found[symbol.name] = nodes[versions.get_symbol(index)["ndx"] & 0x7FFF]
    return found


def test_it_exports_what_the_khronos_loader_and_ocl_icd_export() -> None:
    found = exports()
    assert len(found) == 134
    assert set(found) == {
        f.name for f in OPENCL.slots if "D3D" not in f.name and "DX9" not in f.name
    }
    for node, functions in NODES.items():
        assert {name: found[name] for name in functions} == dict.fromkeys(functions, node)
    assert set(found.values()) == set(NODES)


def test_its_soname_is_that_of_every_loader_and_it_needs_no_python() -> None:
    tags = list(section(".dynamic").iter_tags())
    assert [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"] == ["libOpenCL.so.1"]
    assert not [tag for tag in tags if tag.entry.d_tag == "DT_NEEDED" and "python" in tag.needed]


# NULL handles

CODES = {
    "cl_platform_id": -32,
    "cl_device_id": -33,
    "cl_context": -34,
    "cl_command_queue": -36,
    "cl_mem": -38,
    "cl_sampler": -41,
    "cl_program": -44,
    "cl_kernel": -48,
    "cl_event": -58,
}
#: Those that have no handle to go by.
OTHERS = {
    "clGetPlatformIDs": -30,
    "clCreateContext": -30,
    "clCreateContextFromType": -32,
    "clUnloadCompiler": 0,
    "clWaitForEvents": -30,
    "clGetExtensionFunctionAddress": 0,
    "clGetExtensionFunctionAddressForPlatform": 0,
    "clGetGLContextInfoKHR": -32,
    "clSVMAlloc": 0,
    "clSVMFree": 0,
}


@pytest.mark.slow
def test_every_function_answers_a_null_handle(
    native_headers: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A C program calls each with nothing but zeros, and has it write the code."""
    functions = [f for f in OPENCL.slots if f.name in exports()]
    lines = ["#include <stdio.h>", '#include "opencl_abi.h"']
    lines += [f"fn_{f.name} {f.name};" for f in functions]
    lines.append("int main(void) { cl_int code; void *made;")
    for f in functions:
        zeros = ", ".join("&code" if p.name == "errcode_ret" else "0" for p in f.parameters)
        call = {"errcode_ret": "made = {}", "return": "code = {}", "null": "{}"}[f.error_channel]
        lines.append(f"code = 0, made = NULL; {call.format(f'{f.name}({zeros})')};")
        lines.append(f'printf("{f.name} %d %d\\n", code, made != NULL);')
    lines.append("return 0; }")
    text = "\n".join(lines)
    program = once(
        tmp_path_factory, "null-handles", lambda path: link_text(text, path, native_headers)
    )
    env = {"FAIRLEAD_PYTHON": "0", "OCL_ICD_VENDORS": "/nowhere"}
    found = dict(line.split(" ", 1) for line in run_client([program], env).out.splitlines())
    for f in functions:
        handle = f.parameters[0].type if f.parameters else ""
        code = OTHERS[f.name] if f.name in OTHERS else CODES[handle]
        assert found[f.name] == f"{code} 0", f.name


# Platforms and objects


@pytest.mark.slow
@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_drivers_of_both_kinds_in_any_order(
    client: Client, fake_driver: FakeDriver, tmp_path: Path, by: str
) -> None:
    kinds = [{"icd": 1, "name": '"One"'}, {"icd": 2, "name": '"Two"'}, {"icd": 2, "platforms": 2}]
    built = [
        Path(shutil.copy(fake_driver(**k), tmp_path / f"d{i}.so")) for i, k in enumerate(kinds)
    ]
    assert client("names", drivers=built, by=by).out == "One 0, Two 0, Fake 0, Fake 1\n"
    assert client("names", drivers=built[::-1], by=by).out == "Fake 0, Fake 1, Two 0, One 0\n"
    assert client("use", drivers=built, by=by).out == 4 * "0 -59 -59 1 -59 0 0\n"


@pytest.mark.parametrize("version", [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0)])
def test_a_short_table_is_not_read_past_its_end(
    client: Client, fake_driver: FakeDriver, version: tuple[int, int]
) -> None:
    """Behind the table lies a page that nobody may read."""
    text = f'"OpenCL {version[0]}.{version[1]} fake"'
    driver = fake_driver(slots=count_slots(version), version=text)
    assert client("use", drivers=[driver]).out == "0 -59 -59 1 -59 0 0\n"
    assert client("extension", "clFakeFunctionFAKE", drivers=[driver]).out == "1 1\n"


def test_a_table_that_is_shorter_than_its_version_promises(
    client: Client, fake_driver: FakeDriver
) -> None:
    assert client("use", drivers=[fake_driver(slots=100)]).out == "0 -59 -59 1 -59 0 0\n"


def test_a_function_that_one_driver_has_and_another_lacks(
    client: Client, fake_driver: FakeDriver
) -> None:
    drivers = [fake_driver(null_slot="SLOT_clFinish"), fake_driver(name='"Whole"')]
    lines = ["-59 -59 -59 1 -59 0 0\n", "0 -59 -59 1 -59 0 0\n"]
    assert client("use", drivers=drivers).out == "".join(lines)
    assert client("use", drivers=drivers[::-1]).out == "".join(lines[::-1])


#: What lies in memory behind the table of a driver of OpenCL 1.2.
BEHIND = {
    "numbers": "(void *)(intptr_t)(i + 1)",
    "one function again and again": "(void *)crash",
    "functions of the table": "table[i - 123 + SLOT_clGetPlatformInfo]",
    "a few functions, and then none": "i < 125 ? (void *)((char *)crash + i) : NOWHERE",
    "functions of another library": "(void *)((char *)abort + i)",
}


@pytest.mark.parametrize("case", BEHIND)
def test_what_lies_behind_a_table_is_not_called(
    client: Client, fake_driver: FakeDriver, case: str
) -> None:
    """A driver may have functions that its version does not promise, but these are none."""
    change = f"for (int i = 123; i < FL_SLOTS; i++) table[i] = {BEHIND[case]}"
    driver = fake_driver(version='"OpenCL 1.2 fake"', at_table=change)
    assert client("use", drivers=[driver]).out == "0 -59 -59 1 -59 0 0\n"


REFUSED = {
    "no driver": {"exports": 0},
    "a loader": {"is_loader": 1},
    "no platform": {"platforms": 0},
    "4294967295 platforms": {"count": 0xFFFFFFFF},
    "it fails to count": {"count_error": -6},
    "it counts and fails": {"fetch_error": -5},
    "no suffix": {"suffix_error": -30},
    "no suffix, ICD 2": {"suffix_error": -30, "icd": 2},
    "no extensions": {"extensions_error": -30},
    "an answer of 1 TB": {"suffix_size": "((size_t)1 << 40)"},
    "a NULL handle": {"handle": "NULL"},
    "a handle into nowhere": {"handle": "NOWHERE"},
    "a NULL table": {"table": "NULL"},
    "a table into nowhere": {"table": "NOWHERE"},
    "no clGetPlatformInfo": {"null_slot": "SLOT_clGetPlatformInfo"},
    "the tag in slot 0 alone": {"tag_in_slot_0": 1},
    "tags without functions": {"tag_in_slot_0": 1, "tag_in_slot_31": 1},
    "no way to give the data": {"icd": 2, "has_set_data": 0},
    "no way to ask for functions": {"icd": 2, "has_get_function": 0},
    "it refuses the data": {"icd": 2, "set_error": -6},
    "it does not store the data": {"icd": 2, "set_stores": 0},
    "text": {},
}


@pytest.fixture
def refused(fake_driver: FakeDriver, tmp_path: Path) -> dict[str, Path]:
    """A driver of each case of REFUSED."""
    text = tmp_path / "text.so"
    text.write_text("this is no library\n", encoding="utf-8")
    return {
        case: text if case == "text" else fake_driver(**knobs) for case, knobs in REFUSED.items()
    }


def check_refusal(client: Client, bad: list[Path], good: Path, by: str) -> None:
    """Drivers that are refused hide no other, and are no platforms."""
    assert client("names", drivers=[*bad, good], by=by).out == "Good 0\n"
    assert client("names", drivers=[good, *bad], by=by).out == "Good 0\n"
    assert client("names", drivers=bad, by=by).out == "clGetPlatformIDs -1001, 0 platforms\n\n"


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_does_no_harm(
    client: Client, fake_driver: FakeDriver, refused: dict[str, Path], case: str
) -> None:
    good = fake_driver(name='"Good"', icd=2)
    check_refusal(client, [refused[case]], good, "plain")


@pytest.mark.slow
def test_what_python_refuses_does_no_harm(
    client: Client, fake_driver: FakeDriver, refused: dict[str, Path]
) -> None:
    """All at once. If that fails, each by itself, which says which one it is."""
    good = fake_driver(name='"Good"', icd=2)
    try:
        check_refusal(client, list(refused.values()), good, "verdict")
    except AssertionError:
        check = table("case", REFUSED)
        check(lambda case: check_refusal(client, [refused[case]], good, "verdict"))()
        raise


def test_the_tag_in_slot_31_alone_means_icd_1(client: Client, fake_driver: FakeDriver) -> None:
    assert client("names", drivers=[fake_driver(tag_in_slot_31=1)]).out == "Fake 0\n"


def test_a_driver_is_opened_once(client: Client, fake_driver: FakeDriver, tmp_path: Path) -> None:
    driver, link = fake_driver(), tmp_path / "link.so"
    link.symlink_to(driver)
    assert client("names", drivers=[driver, driver, link]).out == "Fake 0\n"


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["crash()", "hang()", "abort()", "exit(3)"])
def test_a_driver_that_ends_the_process_is_not_opened_in_it(
    client: Client, fake_driver: FakeDriver, statement: str
) -> None:
    """Python tries drivers in children first. Then C opens those that passed."""
    bad, good = fake_driver(at_list=statement), fake_driver(name='"Good"')
    env = {"FAIRLEAD_PROBE_TIMEOUT": "5"}
    assert client("names", drivers=[bad, good], by="verdict", env=env).out == "Good 0\n"


# The loader's own answers


def test_clgetplatformids(client: Client, fake_driver: FakeDriver) -> None:
    assert client("counts", drivers=[fake_driver()]).out == "-30 -30 0 1 0 1\n"
    assert client("counts").out == "-30 -30 -1001 0 1 0\n"


def test_a_null_platform(client: Client, fake_driver: FakeDriver, tmp_path: Path) -> None:
    second = Path(shutil.copy(fake_driver(name='"Second"'), tmp_path / "second.so"))
    drivers = [fake_driver(), second]
    by_default = "0 {}, 0, -59 -32 -32, -59 1\n"
    assert client("null", drivers=drivers).out == by_default.format("Fake 0")
    env = {"OCL_ICD_DEFAULT_PLATFORM": "1"}
    assert client("null", drivers=drivers, env=env).out == by_default.format("Second 0")
    error = "-32 , -32, -32 -32 -32, -32 0\n"
    for env in ({"FAIRLEAD_NULL_PLATFORM": "error"}, {"OCL_ICD_DEFAULT_PLATFORM": "2"}):
        assert client("null", drivers=drivers, env=env).out == error
    assert client("null").out == error, "there is no platform"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("clFakeFunctionFAKE", "1 1\n"),
        ("clOfTheLibraryFAKE", "1 0\n"),
        ("clNobodyHasThisFAKE", "0 0\n"),
        ("clNobodyHasThisKHR", "0 0\n"),
        ("clCreateFromGLBuffer", "1 1\n"),
        ("clGetKernelSubGroupInfoKHR", "1 1\n"),
        ("clIcdGetPlatformIDsKHR", "0 0\n"),
        ("clIcdSetPlatformDispatchDataKHR", "0 0\n"),
    ],
)
@pytest.mark.parametrize("icd", [1, 2])
def test_extension_functions(
    client: Client, fake_driver: FakeDriver, name: str, answer: str, icd: int
) -> None:
    assert client("extension", name, drivers=[fake_driver(icd=icd)]).out == answer


def test_it_says_which_loader_it_is(client: Client) -> None:
    out = client("info").out
    assert (
        out.startswith("0 OpenCL 3.1 11, 0 ") and ", 0 fairlead 9, 0 fairlead 9, -30 -30\n" in out
    )


# The process


@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_many_threads_at_once(client: Client, fake_driver: FakeDriver, by: str) -> None:
    assert client("threads", "64", drivers=[fake_driver()], by=by).out == 64 * "1 " + "\n"


@pytest.mark.parametrize("by", ["plain", "verdict"])
def test_forks(client: Client, fake_driver: FakeDriver, by: str) -> None:
    drivers = [fake_driver(icd=2)]
    assert client("fork-first", drivers=drivers, by=by).out == "Fake 0\nchild 0\nFake 0\n"
    assert client("fork-later", drivers=drivers, by=by).out == "Fake 0\nFake 0\nchild 0\n"


def test_a_fork_while_another_thread_finds_the_drivers(
    client: Client, fake_driver: FakeDriver
) -> None:
    """That thread waits for Python, and holds a lock, when the process forks."""
    out = client("fork-while-starting", drivers=[fake_driver()], by="verdict").out
    assert out == "Fake 0\n0 Fake 0\n"


USED = "0 -59 -59 1 -59 0 0\n"


@pytest.mark.parametrize("icd", [1, 2])
@pytest.mark.parametrize("other", LOADERS)
def test_another_loader_in_the_process(
    client: Client, fake_driver: FakeDriver, other: str, icd: int
) -> None:
    """It is unloaded while objects live. Khronos' loader takes a platform of ICD 2 over."""
    library = LOADERS[other]
    if not library.exists():
        pytest.skip(f"there is no {library}")
    # Intel's wheel links its copy with the libsvml.so beside it
    env = {"LD_LIBRARY_PATH": f"{os.path.dirname(libopencl.find_library())}:{library.parent}"}
    drivers = [fake_driver(icd=icd, set_checks=0)]
    first = client("other-first", library, drivers=drivers, env=env).out
    assert first == f"0 1 0 0 0 0 0\n{USED}"
    second = client("other-second", library, drivers=drivers, env=env).out
    assert second == f"Fake 0\n0 1 0 0 0 0 0\n{USED}"
    passing = client("passing", library, drivers=drivers, env=env).out
    assert passing == f"Fake 0\n0 0\nFake 0\n{USED}"


def test_a_loader_that_takes_its_table_along(
    client: Client, fake_driver: FakeDriver, compile_c: CompileC, tmp_path: Path
) -> None:
    """What it gave a platform of ICD 2 leads nowhere once it is unloaded."""
    source = ROOT / "tests/icd/libopencl/neighbour.c"
    library = compile_c(
        source, tmp_path / "libOpenCL-0123abcd.so.1", "-ldl", "-Wno-unused-parameter"
    )
    driver = fake_driver(icd=2, set_checks=0)
    drivers, env = [driver], {"NEIGHBOUR_DRIVER": str(driver)}
    first = client("other-first", library, drivers=drivers, env=env).out
    assert first == f"0 1 0 0 0 0 0\n{USED}"
    second = client("other-second", library, drivers=drivers, env=env).out
    assert second == f"Fake 0\n0 1 0 0 0 0 0\n{USED}"
    passing = client("passing", library, drivers=drivers, env=env).out
    assert passing == f"Fake 0\n0 0\nFake 0\n{USED}"


def test_live_objects_at_the_end(client: Client, fake_driver: FakeDriver) -> None:
    assert client("live", drivers=[fake_driver(icd=2)]).out == "0 0\n0\n"


def test_opened_and_closed_ten_times(client: Client, fake_driver: FakeDriver) -> None:
    out = client("reopen", libopencl.find_library(), drivers=[fake_driver(icd=2)]).out
    assert out == 10 * "01 " + "\n"


CALLS_BACK = """{ fn_clGetPlatformIDs clGetPlatformIDs; fn_clGetPlatformInfo clGetPlatformInfo;
    cl_uint n = 7; cl_int code = clGetPlatformIDs(0, NULL, &n);
    fprintf(stderr, "%d %u %d|", code, n, clGetPlatformInfo(NULL, 0x902, 0, NULL, NULL)); }"""


@pytest.mark.parametrize("knob", ["at_load", "at_list"])
def test_a_driver_that_calls_opencl_while_it_is_opened(
    client: Client, fake_driver: FakeDriver, knob: str
) -> None:
    driver = fake_driver(**{knob: CALLS_BACK.replace("\n", " ")})
    output = client("names", drivers=[driver])
    assert output.out == "Fake 0\n" and output.err.startswith("-1001 0 -32|")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program of another user")
def test_a_set_uid_program_ignores_the_environment(
    client_path: Path, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    program = Path(shutil.copy(client_path, tmp_path / "program"))
    env = {"OCL_ICD_VENDORS": str(fake_driver()), "FAIRLEAD_PYTHON": "0"}
    assert run_client([program, "names"], env).out == "Fake 0\n"
    os.chown(program, 0, 12345)
    program.chmod(0o2755)
    assert "Fake" not in run_client([program, "names"], env).out
