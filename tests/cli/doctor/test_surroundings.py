"""What is around drivers in `fairlead doctor`: loaders, device nodes, caches, and the verdict."""

from __future__ import annotations

import dataclasses
import grp
import json
import os
import pwd
import shutil
import types
from pathlib import Path
from typing import Any

import pytest
from helpers.doctor import COMMAND, KEYS, Machine, judge, of
from helpers.support import FakeDriver, RunPython

from fairlead.cli.doctor import diagnosis as doctor
from fairlead.cli.doctor import loaders, problems
from fairlead.cli.doctor import machine as nodes
from fairlead.cli.doctor.clients import Client
from fairlead.cli.doctor.diagnosis import Diagnosis, DriverReport
from fairlead.cli.doctor.report import render
from fairlead.icd import libopencl
from fairlead.icd.probe import PlatformReport
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow


def test_the_copy_inside_pyopencls_wheel_is_found_and_is_the_one_it_uses(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    import pyopencl

    bundled = sorted((Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*"))
    assert bundled, "the wheel of PyOpenCL brings a loader of its own"
    machine.register("good", fake_driver())
    facts = machine.examine()
    assert facts["pyopencl"]["version"] == pyopencl.VERSION_TEXT
    assert facts["pyopencl"]["loader"] == str(bundled[0].resolve())
    assert facts["pyopencl"]["reads"][0] == f"{machine.vendors}/good.icd"
    (copy,) = [copy for copy in facts["loaders"] if copy["path"] == facts["pyopencl"]["loader"]]
    assert copy["kind"] == "ocl-icd" and copy["symbols"] == "3.0"
    line = next(line for line in machine.text.splitlines() if line.strip().startswith(copy["path"]))
    assert line.endswith("ocl-icd, symbols up to OPENCL_3.0, the one PyOpenCL uses")


def test_the_loader_that_pyopencl_has_in_memory_is_the_one_named(run_python: RunPython) -> None:
    code = """
import pyopencl
from fairlead.cli.doctor import loaders, problems
used = loaders.find_pyopencl().loader
print(used in {line.split()[-1] for line in open("/proc/self/maps")}, used)
"""
    assert run_python(code).out.startswith("True /")


def test_a_driver_that_pyopencl_does_not_see_is_named(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    """ocl-icd does not know OCL_ICD_FILENAMES."""
    seen, unseen = fake_driver(name='"Seen"'), fake_driver(name='"Unseen"')
    machine.register("seen", seen)
    machine.env["OCL_ICD_FILENAMES"] = str(unseen)
    facts, text = machine.examine(), machine.text
    kind = next(
        copy["kind"] for copy in facts["loaders"] if copy["path"] == facts["pyopencl"]["loader"]
    )
    assert (f"it does not find {unseen}" in text) == (kind == "ocl-icd")
    assert f"it does not find {seen}" not in text


@pytest.mark.parametrize("vendors", [None, "/nowhere"], ids=["default", "missing"])
def test_doctor_and_pyopencl_agree_on_the_driver_of_the_wheel(
    run_python: RunPython, pocl_wheel: Candidate, vendors: str | None
) -> None:
    """A missing default directory does not stop PyOpenCL's loader; a missing OCL_ICD_VENDORS
    does."""
    code = "import pyopencl; print([p.version for p in pyopencl.get_platforms()])"
    env = {"OCL_ICD_VENDORS": vendors}
    listed = "PoCL 3.0-rc2" in run_python(code, env=env, check=False).out
    done = run_python(COMMAND, "doctor", "--json", env=env, check=False)
    reads = json.loads(done.out)["pyopencl"]["reads"]
    assert listed == any(str(pocl_wheel.manifest) == file for file in reads)


@pytest.mark.parametrize(
    ("content", "kind", "symbols"),
    [
        (
            b"\x7fELF OCL_ICD_PLATFORM_SORT\0/etc/OpenCL/vendors\0OPENCL_1.0\0OPENCL_3.0\0",
            "ocl-icd",
            "3.0",
        ),
        (
            b"\x7fELF Khronos OpenCL ICD Loader\0/build/ocl-icd-src/\0OPENCL_3.1\0OPENCL_2.0\0",
            "Khronos",
            "3.1",
        ),
        (b"\x7fELF KHR ICD trace\0", "Khronos", ""),
        (b"\x7fELF /etc/OpenCL/vendors\0", "another loader", ""),
        (b"\x7fELF clGetPlatformIDs\0", "no loader: a vendor's own library", ""),
        (b"", "not readable", ""),
    ],
)
def test_whose_loader_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, kind: str, symbols: str
) -> None:
    path = tmp_path / "libOpenCL.so.1"
    path.write_bytes(content)
    (tmp_path / "libOpenCL.so").symlink_to(path)
    (tmp_path / "libOpenCL_adreno.so").write_bytes(content)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (copy,) = [copy for copy in loaders.find_copies() if copy.path.startswith(str(tmp_path))]
    assert (copy.kind, copy.symbols) == (kind, symbols)
    assert set(copy.names) == {str(path), str(tmp_path / "libOpenCL.so")}


def test_our_own_loader_is_known() -> None:
    ours = os.path.realpath(libopencl.find_library())
    (copy,) = [copy for copy in loaders.find_copies(ours) if copy.path == ours]
    assert (copy.kind, copy.symbols) == ("fairlead", "3.1")


def test_loaders_in_wheels_and_in_a_conda_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    places = (
        site / "pyopencl.libs/libOpenCL-5519dec5.so.1.0.0",
        site / "other/lib/libOpenCL.so",
        tmp_path / "conda/lib/libOpenCL.so.1",
    )
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_bytes(b"\x7fELF")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert {str(place) for place in places} <= {copy.path for copy in loaders.find_copies()}


# Device nodes and caches


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with a render node."""
    node = tmp_path / "dev/dri/renderD128"
    node.parent.mkdir(parents=True)
    node.touch()
    node.chmod(0o660)
    return tmp_path / "dev"


def close(
    monkeypatch: pytest.MonkeyPatch, group: str | None, members: tuple[str, ...] = ()
) -> None:
    """Makes every file inaccessible to this process and owned by `group`, which may have no
    name."""

    def getgrgid(number: int) -> types.SimpleNamespace:
        if group is None:
            raise KeyError(number)
        return types.SimpleNamespace(gr_name=group, gr_mem=list(members))

    monkeypatch.setattr(nodes.os, "access", lambda path, mode: False)
    monkeypatch.setattr(grp, "getgrgid", getgrgid)


def test_a_node_that_is_open(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.os, "access", lambda path, mode: True)
    (node,) = nodes.find_device_nodes(dev)
    assert node.accessible and node.remedy == "" and node.mode == "-rw-rw----"


def test_a_node_that_is_closed_names_its_group_and_the_command(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, "render")
    (node,) = nodes.find_device_nodes(dev)
    assert (node.path, node.group, node.accessible) == (f"{dev}/dri/renderD128", "render", False)
    assert node.remedy == "sudo usermod -aG render $USER, then log in again"


def test_a_group_joined_after_login(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(monkeypatch, "video", (pwd.getpwuid(os.geteuid()).pw_name,))
    found = nodes.find_device_nodes(dev)[0].remedy
    assert found == "you joined the group video after this session began: log in again"


def test_a_group_without_a_name_as_in_a_container(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, None)
    number = os.stat(dev / "dri/renderD128").st_gid
    assert nodes.find_device_nodes(dev)[0].remedy.endswith(
        f"start the container with --group-add {number}"
    )


def test_a_node_that_gives_its_group_nothing(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(monkeypatch, "render")
    (dev / "dri/renderD128").chmod(0o600)
    assert "udev rule" in nodes.find_device_nodes(dev)[0].remedy


def test_no_nodes(tmp_path: Path) -> None:
    assert nodes.find_device_nodes(tmp_path) == ()


def test_the_cache_that_pocl_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache matters only where PoCL was found.

    A directory that can be made is as good as an existing one.
    """
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "not/yet/there"))
    (cache,) = nodes.find_cache_directories(["/usr/lib/libpocl.so.2.10.0"])
    assert cache == nodes.CacheDirectory(
        f"{tmp_path}/not/yet/there", "POCL_CACHE_DIR", writable=True, essential=True
    )
    (tmp_path / "not").write_text("a file\n")
    assert not nodes.find_cache_directories(["/usr/lib/libpocl.so.2.10.0"])[0].writable
    monkeypatch.delenv("POCL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert nodes.find_cache_directories(["libpocl-21062cec.so"])[0].path == f"{tmp_path}/pocl"
    assert nodes.find_cache_directories(["libintelocl.so"]) == ()


def test_pocl_without_its_cache_is_an_error(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    """It then has no device, and says nothing about it."""
    (tmp_path / "file").touch()
    machine = Machine(run_python, tmp_path)
    machine.env |= {
        "POCL_CACHE_DIR": str(tmp_path / "file/cache"),
        "OCL_ICD_VENDORS": pocl_wheel.library,
    }
    errors = of(machine.examine(), "error")
    reason, remedy = errors.pop(os.path.basename(pocl_wheel.library))
    assert f"it has no device: it keeps compiled kernels in {tmp_path}/file/cache" in reason
    assert remedy.startswith("export POCL_CACHE_DIR=")
    assert not [remedy for _, remedy in errors.values() if "install" in remedy]


# The verdict, on facts that this machine may not have


USABLE = DriverReport(
    "/lib/libgood.so", "/etc/OpenCL/vendors", "/etc/OpenCL/vendors/good.icd", "usable"
)


NVIDIA = nodes.DeviceNode("/dev/nvidiactl", "root", "crw-rw-rw-", accessible=True)


CLOSED = nodes.DeviceNode(
    "/dev/kfd", "render", "crw-rw----", accessible=False, remedy="sudo usermod -aG render $USER"
)


def judged(**changes: Any) -> Diagnosis:
    return judge(USABLE, **changes)


def test_an_idle_driver_is_an_error_when_a_device_node_is_closed() -> None:
    idle = dataclasses.replace(
        USABLE, library="/lib/libamdocl64.so", state="idle", reason="it has no platform"
    )
    facts = judged(drivers=(idle, USABLE), nodes=(CLOSED,))
    assert not facts.ok
    assert [(p.severity, p.what, p.remedy) for p in facts.problems] == [
        ("error", "/lib/libamdocl64.so", CLOSED.remedy),
        ("warning", "/dev/kfd", CLOSED.remedy),
    ]
    assert judged(drivers=(USABLE,), nodes=(CLOSED,)).ok


def test_a_gpu_without_its_driver_is_a_warning() -> None:
    """As in containers whose runtime does not pass the .icd file on."""
    facts = judged(nodes=(NVIDIA,))
    assert facts.ok and "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in facts.problems[0].remedy
    registered = dataclasses.replace(USABLE, library="libnvidia-opencl.so.1")
    assert judged(nodes=(NVIDIA,), drivers=(registered,)).problems == ()


@pytest.mark.parametrize(
    ("found_via", "answers", "severity"),
    [
        ("Python prefix", True, "warning"),
        ("Python prefix", False, "error"),
        ("/etc/OpenCL/vendors", True, "error"),
    ],
)
def test_a_healthy_pip_installation_has_no_error(
    found_via: str, answers: bool, severity: str
) -> None:
    """`pip install fairlead[pyopencl,intel]`: PyOpenCL's loader does not look in Intel's places."""
    client = Client("PyOpenCL 2026.1", "/lib/libOpenCL.so.1", reason="none", answers=answers)
    driver = dataclasses.replace(USABLE, found_via=found_via)
    (problem,) = judged(drivers=(driver,), clients=(client,)).problems
    assert (problem.severity, problem.remedy) == (severity, 'eval "$(fairlead env)"')


def test_pyopencl_without_its_loader_is_an_error() -> None:
    facts = judged(pyopencl=loaders.PyOpenCL("2026.1", "libOpenCL.so.1", "", ()))
    assert (
        not facts.ok and facts.problems[0].reason == "it needs libOpenCL.so.1, which is not found"
    )
    assert "PyOpenCL 2026.1 uses libOpenCL.so.1, which is not found" in render(facts)


def test_a_machine_without_a_loader_is_told_where_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no problem: PyOpenCL has a loader of its own."""
    monkeypatch.setattr(loaders, "find_library", lambda name: None)
    facts = judged(default_loader=loaders.find_default_copy())
    line = (
        "  programs that load libOpenCL.so.1: there is none (fairlead's own: `fairlead run -- "
        "PROGRAM`; Debian's: apt-get install ocl-icd-libopencl1)"
    )
    assert facts.ok and line in render(facts).splitlines() and line in render(facts, short=True)
    monkeypatch.setattr(loaders, "find_library", lambda name: f"/usr/lib/{name}")
    there = judged(default_loader=loaders.find_default_copy())
    assert there.default_loader == os.path.realpath("/usr/lib/libOpenCL.so.1")
    assert "there is none" not in render(there)


def test_the_text_of_a_machine_with_nothing() -> None:
    text = render(judged(drivers=()))
    assert (
        "no GPU device nodes here" in text
        and "0 drivers usable, 1 problem (1 error, 0 warnings)" in text
    )
    assert text.isascii()


def test_a_report_is_json() -> None:
    facts = doctor.examine()
    assert json.loads(json.dumps(facts.as_dict()))["ok"] == facts.ok
    assert list(facts.as_dict()) == KEYS


def test_pocl_without_ld_is_a_problem(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """PoCL links kernels by `ld`. Without it the first launch may end the process."""
    library = fake_driver(
        name='"Portable Computing Language"', version='"OpenCL 3.0 PoCL 7.1"', numbered=0
    )
    machine.register("pocl", library)
    (tmp_path / "ld").touch(0o755)
    machine.env["PATH"] = str(tmp_path)
    assert library.name not in of(machine.examine(), "error")
    (tmp_path / "ld").unlink()
    reason, remedy = of(machine.examine(), "error")[library.name]
    assert "it links kernels by the program ld, which is not on PATH" in reason
    assert "apt-get install binutils" in remedy
    machine.env["FAIRLEAD_QUIRKS"] = "-kernels-need-ld"
    assert library.name not in of(machine.examine(), "error")


def use_pocl(version: str) -> DriverReport:
    """Return a usable PoCL."""
    platform = PlatformReport(
        "Portable Computing Language",
        "The pocl project",
        f"OpenCL 3.0 PoCL {version}",
        "",
        1,
        (),
        (),
    )
    return dataclasses.replace(USABLE, platforms=(platform,))


@pytest.mark.parametrize("missing", ["libgcc.a", "libc.so"])
def test_pocl_without_libgcc_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """PyPI's PoCL links kernels with a compiler's libraries, which systems without one lack."""
    places = {name: (str(tmp_path / "*" / name),) for name in problems.COMPILER_LIBRARIES}
    monkeypatch.setattr(problems, "COMPILER_LIBRARIES", places)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    (tmp_path / "14").mkdir()
    for name in places:
        (tmp_path / "14" / name).touch()
    pocl = use_pocl("3.0-rc2")
    assert judged(drivers=(pocl,)).ok
    (tmp_path / "14" / missing).unlink()
    (problem,) = judged(drivers=(pocl,)).problems
    assert (problem.severity, problem.what) == ("error", pocl.library)
    assert (
        f"it links kernels with {missing}, which is not in {places[missing][0]}" in problem.reason
    )
    assert "apt-get install gcc libc6-dev" in problem.remedy
    assert judged(drivers=(use_pocl("6.0+debian"),)).ok
    monkeypatch.setenv("FAIRLEAD_QUIRKS", "-kernels-need-libgcc")
    assert judged(drivers=(pocl,)).ok
