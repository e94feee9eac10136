"""What `make` says: what is missing, in one line, and what it does while it installs.

Libraries that ask for an executable stack, which new versions of glibc refuse.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import requires
from pathlib import Path

import pytest
from helpers.clear_stacks import main
from helpers.support import ROOT, run_program

from fairlead.icd import libopencl
from fairlead.icd.drivers import name_first_driver


def packages_of_readme() -> set[str]:
    (line,) = re.findall(r"^apt-get install (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return set(line.split())


def defined(name: str) -> str:
    """A program in Python that the Makefile defines."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (code,) = re.findall(rf"^define {name}\n(.*?)^endef$", makefile, re.MULTILINE | re.DOTALL)
    return code


def required(*arguments: str, commands: Path, before: str = "") -> str:
    """What the check in the Makefile says where only the commands of a folder are.

    `before` is code that changes the machine that it sees.
    """
    code = before + defined("REQUIRE")
    done = run_program(sys.executable, "-c", code, *arguments, env={"PATH": str(commands)})
    assert bool(done.code) == bool(done.err)
    return done.err


@pytest.mark.parametrize(
    ("commands", "arguments", "package"),
    [
        ({}, (), "gcc"),
        ({"cc": 1}, (), "libc6-dev"),  # it compiles nothing
        ({"gcc": 1}, (), "libc6-dev"),
        ({"cc": 0}, (), ""),
        ({"cc": 0}, ("test",), "g++"),
        ({"cc": 0, "c++": 0}, ("test",), ""),
        ({"gcc": 0, "g++": 0}, ("test",), ""),
    ],
)
def test_a_missing_package_is_named(
    commands: dict[str, int], arguments: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    for name, code in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    said = required(*arguments, commands=tmp_path)
    assert said.count("\n") == bool(package)
    assert re.findall(r"apt-get install ([^)]+)", said) == ([package] if package else [])
    assert not package or package in packages_of_readme()


_ARM = """import os, types, glob
os.uname = lambda: types.SimpleNamespace(machine="aarch64")
glob.glob = lambda path: {found}
"""


@pytest.mark.parametrize("found", [[], ["/etc/OpenCL/vendors/pocl.icd"]])
def test_where_pypi_has_no_driver_one_of_the_system_is_needed(
    found: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cc").symlink_to("/bin/true")
    said = required("driver", commands=tmp_path, before=_ARM.format(found=found))
    assert ("apt-get install pocl-opencl-icd" in said) == (not found)
    assert required("driver", commands=tmp_path) == ""  # on x86-64


def test_drivers_of_pypi_are_required_where_it_has_them() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    for extra in ("pocl", "intel"):
        own = config["options.extras_require"][extra].split("\n")[1:]
        assert own and all(one.endswith('; platform_machine == "x86_64"') for one in own)


@pytest.mark.parametrize(
    ("machine", "command"),
    [("x86_64", "pip install 'fairlead[pocl]'"), ("aarch64", "apt-get install pocl-opencl-icd")],
)
def test_the_first_driver_is_one_that_the_machine_can_have(machine: str, command: str) -> None:
    assert command in name_first_driver(machine)


_FREE_THREADED = "import sys, sysconfig\nsysconfig.get_config_vars()\nsys.abiflags = 't'\n"


@pytest.mark.parametrize(
    "code",
    [
        defined("REQUIRE"),
        "sys.argv = ['setup.py', '--version']; import runpy; runpy.run_path('setup.py')",
        "import fairlead",
    ],
    ids=["make", "setup.py", "import"],
)
def test_free_threaded_builds_are_refused_in_a_sentence(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FREE_THREADED + code], cwd=ROOT, capture_output=True, text=True
    )
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "free-threaded builds of CPython are not supported: " in said


@pytest.mark.parametrize("code", [0, 2])
def test_installing_shows_each_step_and_everything_if_it_fails(tmp_path: Path, code: int) -> None:
    said = [
        "Obtaining file:///somewhere",
        "  Downloading numpy-2.0.whl (18 MB)",
        "  Building editable for fairlead (pyproject.toml): started",
        "  Building editable for fairlead (pyproject.toml): finished with status 'done'",
        "SetuptoolsDeprecationWarning: something of setuptools",
    ]
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__init__.py").touch()
    program = f"import sys; print(sys.argv[1:]); print({chr(10).join(said)!r}); sys.exit({code})"
    (tmp_path / "pip/__main__.py").write_text(program)
    done = run_program(
        sys.executable,
        "-c",
        defined("INSTALL"),
        "--editable",
        ".",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.out.splitlines() == [f"  {line.strip()}" for line in said[1:3]]
    arguments = ["install", "--progress-bar", "off", "--editable", "."]
    everything = "\n".join([str(arguments), *said])
    assert (bool(done.code), done.err.strip()) == (bool(code), everything if code else "")


def test_the_extra_pyopencl_brings_what_reductions_need() -> None:
    """PyOpenCL does not require mako, which its reductions and scans import."""
    extra = [one for one in requires("fairlead") or [] if re.search("extra == .pyopencl.", one)]
    assert {re.split(r"[^\w-]", one)[0] for one in extra} == {"mako", "numpy", "pyopencl"}


def test_only_the_flag_is_cleared(tmp_path: Path) -> None:
    library = Path(libopencl.find_library()).read_bytes()
    (table,) = struct.unpack_from("<Q", library, 0x20)
    entry, count = struct.unpack_from("<HH", library, 0x36)
    places = (table + entry * number for number in range(count))
    stack = next(p for p in places if struct.unpack_from("<I", library, p)[0] == 0x6474E551)
    asks = library[: stack + 4] + struct.pack("<I", 7) + library[stack + 8 :]
    for name, data in (("liba.so.1", asks), ("libb.so.1", library), ("c.so.txt", b"text")):
        (tmp_path / name).write_bytes(data)
    main(tmp_path)
    assert library == asks[: stack + 4] + struct.pack("<I", 6) + asks[stack + 8 :]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "liba.so.1": library,
        "libb.so.1": library,
        "c.so.txt": b"text",
    }
