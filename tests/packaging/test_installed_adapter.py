"""The reference adapter out of a wheel: it finds the Python of the environment that it was
installed in, in programs of C and of Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers import installing
from helpers.hosts import Host, compile_host
from helpers.installing import install, run
from helpers.support import ROOT, FakeDriver

from fairlead.loader.base import shell_copies

#: Says which environment Python runs in, when a program starts it: not in the child processes of
#: fairlead.
SPEAKS = """import sys
if sys.orig_argv[1:2] != ["-c"] or "urGetAdapterProcAddrTable" in sys.orig_argv[2]:
    print('environment', sys.prefix, flush=True)
"""
USES = ("table", "adapter", "urAdapterRelease")
WORKS = ["open: ok", "table: 0", "adapter: 0 count 1 first word ok", "urAdapterRelease: 0"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return compile_host(tmp_path_factory.mktemp("host"))


def environment(path: Path) -> Path:
    """The site-packages of a new environment, whose Python says so when it starts."""
    site = installing.environment(path)
    # Debian's Python has a sitecustomize of its own, and reads a .pth twice
    (site / "speaks.pth").write_text("import speaks\n")
    (site / "speaks.py").write_text(SPEAKS)
    return site


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel."""
    path = tmp_path_factory.mktemp("installed") / "env"
    site = environment(path)
    install(wheel, site)
    return path


def adapter_in(path: Path) -> Path:
    return next(path.rglob("fairlead/plugins/libur_adapter_fairlead.so.0"))


def test_the_libraries_of_a_wheel_know_nothing_of_where_they_were_built(installed: Path) -> None:
    for library in ("libur_adapter_fairlead.so.0", "libpi_fairlead.so"):
        data = adapter_in(installed).with_name(library).read_bytes()
        text = data[data.index(shell_copies.MARK) :][: shell_copies.ROOM].rstrip(b"\0").decode()
        assert list(shell_copies.parse_configuration(text)) == ["module"]


def test_a_c_program_gets_the_environment_of_the_adapter(host: Host, installed: Path) -> None:
    done = host("open", adapter_in(installed), *USES)
    assert done.out.splitlines() == [WORKS[0], f"environment {installed}", *WORKS[1:]] and (
        done.code,
        done.err,
    ) == (0, "")


def test_a_link_to_the_adapter_does_as_well(host: Host, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "libur_adapter_opencl.so.0").symlink_to(adapter_in(installed))
    given = "open", tmp_path / "libur_adapter_opencl.so.0", *USES
    assert f"environment {installed}" in host(*given).out


def test_another_environment_is_named_by_a_variable(
    host: Host, installed: Path, tmp_path: Path
) -> None:
    """It has no fairlead, and gets that of the adapter."""
    environment(tmp_path / "other")
    given = "open", adapter_in(installed), *USES
    done = host(*given, env={"FAIRLEAD_PYTHON": str(tmp_path / "other/bin/python3")})
    assert (
        done.out.splitlines() == [WORKS[0], f"environment {tmp_path / 'other'}", *WORKS[1:]]
        and done.err == ""
    )


def test_a_python_program_without_fairlead_gets_that_of_the_adapter(
    installed: Path, tmp_path: Path
) -> None:
    environment(tmp_path / "other")
    code = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); table = (ctypes.c_void_p * "
        "300)(); print(library.urGetAdapterProcAddrTable(12, table)); import fairlead; "
        "print(fairlead.__file__)"
    )
    out = run(
        str(tmp_path / "other/bin/python3"), "-c", code, str(adapter_in(installed)), cwd=tmp_path
    )
    assert out.splitlines() == [
        f"environment {tmp_path / 'other'}",
        "0",
        str(adapter_in(installed).parents[1] / "__init__.py"),
    ]


def test_an_adapter_built_in_the_environment_stays_with_it(
    host: Host, installed: Path, tmp_path: Path
) -> None:
    command = (
        "from fairlead.plugins import build_adapter; "
        "build_adapter('fairlead.plugins.opencl', 'own.so')"
    )
    run(str(installed / "bin/python3"), "-c", command, cwd=tmp_path)
    assert f"environment {installed}" in host("open", tmp_path / "own.so", *USES).out


def test_a_wheel_in_a_folder_that_is_no_environment_says_what_to_do(
    host: Host, wheel: Path, tmp_path: Path
) -> None:
    install(wheel, tmp_path / "folder")
    library = adapter_in(tmp_path / "folder")
    assert host("open", library, "table").err == (
        f"fairlead: {library} cannot start: no Python was found; FAIRLEAD_PYTHON may name one in "
        "whose environment fairlead is installed\n"
    )
    environment(tmp_path / "env")
    done = host("open", library, *USES, env={"FAIRLEAD_PYTHON": str(tmp_path / "env/bin/python3")})
    assert [
        line for line in done.out.splitlines() if "environment" not in line
    ] == WORKS and done.err == ""


def test_the_opencl_loader_finds_that_python_too(
    installed: Path, native_headers: Path, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """The program is C. What that Python prints at its start does no harm."""
    library = next(installed.rglob("fairlead/icd/libopencl/libOpenCL.so.1"))
    source, program = ROOT / "tests/icd/libopencl/client.c", tmp_path / "client"
    links = [str(library), f"-Wl,-rpath,{library.parent}", "-lpthread", "-ldl"]
    run("cc", f"-I{native_headers}", str(source), "-o", str(program), *links)
    env = {**os.environ, "OCL_ICD_VENDORS": str(fake_driver()), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([program, "names"], env=env, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Fake 0\n", "")
    assert list(tmp_path.glob("fairlead/drivers/*")), "Python wrote a verdict"
