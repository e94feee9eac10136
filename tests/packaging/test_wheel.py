"""The wheel installs `fairlead` and nothing else, and works without the repository."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

from helpers.installing import environment, install, run
from helpers.support import ROOT

from fairlead.loader.base.elf import read_dynamic_section
from fairlead.loader.base.search import Candidate

#: How the files that are compared end.
SUFFIXES = (".py", ".c", ".h", ".abi", ".map")


def test_the_wheel_holds_fairlead_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fairlead"}
    for needed in (
        "fairlead/py.typed",
        "fairlead/icd/opencl.abi",
        "fairlead/loader/ze/ze.abi",
        "fairlead/cli/trace_page.html",
        "fairlead/vendors_d/pocl-binary-distribution.icd",
        "fairlead/conformance/opencl/errors.txt",
        "fairlead/conformance/ur/errors.txt",
    ):
        assert needed in names
    for library in ("trace", "record"):
        assert f"fairlead/icd/libfairlead_{library}.so" in names, (
            "a library for OpenCL loaders, of any version of Python"
        )
    assert "fairlead/icd/libopencl/libOpenCL.so.1" in names
    assert "fairlead/loader/ze/libze_loader/libze_loader.so.1" in names
    assert any(name.startswith("fairlead/icd/_native") and name.endswith(".so") for name in names)
    for library in (
        *("sdk/libfairlead_shell.so", "sdk/libfairlead_ze_shell.so"),
        *(
            "libur_adapter_fairlead.so.0",
            "libur_adapter_fairlead_level_zero.so.0",
            "libpi_fairlead.so",
            "libze_fairlead.so.1",
        ),
        "libfairlead_command_buffer.so",
        "libur_adapter_fairlead_cuda.so.0",
        "libur_adapter_fairlead_hip.so.0",
    ):
        assert f"fairlead/plugins/{library}" in names
    # The suites' cases are a part of the product, and called test_….py.
    own = [name for name in names if not name.startswith("fairlead/conformance/")]
    assert not [name for name in own if "/tests/" in name or "/test_" in name]
    assert not [name for name in names if name.endswith(".c")]


def test_every_module_needs_the_c_library(wheel: Path, tmp_path: Path) -> None:
    """auditwheel, which names a wheel's platform, refuses one with a module that needs none."""
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".abi3.so")]
        for name in modules:
            archive.extract(name, tmp_path)
    assert len(modules) >= 5
    free = [
        name for name in modules if "libc.so.6" not in read_dynamic_section(str(tmp_path / name))[0]
    ]
    assert not free


#: Prints what setup.py builds, as on CPython 3.15, which has the platform in names of modules.
_OUTPUTS = """
import sysconfig
sysconfig.get_config_vars()["SOABI_PLATFORM"] = "x86_64-linux-gnu"
import setuptools
from distutils.core import run_setup
build = run_setup("setup.py", stop_after="commandline").get_command_obj("build_ext")
build.ensure_finalized()
print(*build.get_outputs(), sep="\\n")
"""


def test_modules_have_names_that_every_python_looks_for() -> None:
    names = run(sys.executable, "-c", _OUTPUTS, cwd=ROOT).split()
    modules = [name for name in names if not Path(name).name.startswith("lib")]
    assert len(modules) >= 4
    assert all(name.endswith(("/_native.abi3.so", "/_native_ze.abi3.so")) for name in modules)


def test_the_wheel_of_the_source_distribution_holds_every_module_of_the_tree(wheel: Path) -> None:
    """The links in fairlead/ are folders there, and the C sources come along."""
    modules, sources = set(), set()
    for folder, _, files in os.walk(ROOT / "fairlead", followlinks=True):
        kept = modules if "__init__.py" in files else sources
        names = (os.path.relpath(os.path.join(folder, file), ROOT) for file in files)
        kept.update(name for name in names if name.endswith(SUFFIXES))
    assert len(modules) > 150 and len(sources) > 30
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if name.endswith(SUFFIXES)} == modules
    with tarfile.open(next(wheel.parent.glob("fairlead-*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert modules | sources | {"LICENSE", "README.md", "docs/capture.md"} <= inside


def test_what_is_written_by_hand_is_optimized_alike_in_the_tree_and_behind_its_links() -> None:
    """A source distribution has folders where the tree has links: fairlead/icd for icd."""
    building = runpy.run_path(str(ROOT / "loader/base/native/building.py"))
    for folder in ("icd", "loader/base", "plugins/sdk"):
        for source in (ROOT / folder / "native").glob("*.c"):
            name = str(source.relative_to(ROOT))
            assert [building["get_level"](way + name) for way in ("", "fairlead/")] == [(), ()]
    assert building["get_level"]("fairlead/captured_graphs/native/replay_method.c") == ()
    assert building["get_level"]("build/native/thunks_cl.c") != ()


def test_the_installed_wheel_finds_drivers(wheel: Path, tmp_path: Path) -> None:
    install(wheel, tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fairlead; "
        f"assert fairlead.__file__.startswith({str(tmp_path)!r}); "
        "print([p.version for p in fairlead.platforms()])"
    )
    assert "PoCL 3.0-rc2" in run(sys.executable, "-c", code, cwd=tmp_path)


def test_a_user_needs_no_compiler(wheel: Path, pocl_wheel: Candidate, tmp_path: Path) -> None:
    """PATH has no program but the linker, which PoCL itself runs."""
    install(wheel, environment(tmp_path / "env"))
    linker = shutil.which("ld")
    assert linker
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ld").symlink_to(linker)
    program, script = tmp_path / "env/bin/python3", ROOT / "tests/helpers/as_user.py"
    env = {**os.environ, "PATH": str(tmp_path / "bin")}
    lines = run(str(program), str(script), cwd=tmp_path, env=env).splitlines()
    assert {line.partition(":")[0] for line in lines} >= {"example", "replay", "doctor", "adapter"}
    assert any(re.match(r"doctor: [1-9]\d* drivers? usable", line) for line in lines), lines


def test_the_release_workflow_builds_what_setup_cfg_promises() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    limit = config["bdist_wheel"]["py_limited_api"]
    assert f"CIBW_BUILD: {limit}-manylinux_${{{{ matrix.machine }}}}" in text
    assert set(re.findall(r"machine: (x86_64|aarch64),", text)) == {"x86_64", "aarch64"}
    assert set(re.findall(r"IMAGE: (\S+)", text)) == {"manylinux_2_28"}
    named = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    assert re.findall(r'"python:(3\.\d+)-slim"', text) == named
    (script,) = re.findall(r"/env/bin/python (\S+)", text)
    assert (ROOT / script).exists()
