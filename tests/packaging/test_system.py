"""The loaders of a whole machine: `make install-system`, and `make uninstall-system`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.installing import environment, run
from helpers.support import ROOT, FakeDriver, run_program


def python_of(prefix: Path) -> Path:
    """A Python that makes environments without pip, which takes long to install.

    They have that of the tests.
    """
    path = prefix.with_name("python")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --without-pip\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def make(target: str, prefix: Path, *, check: bool = True, **names: str) -> str:
    """Run a target of the Makefile, and return what it says."""
    command = ["make", "-C", str(ROOT), target, f"PREFIX={prefix}", f"PYTHON={python_of(prefix)}"]
    command += ["REFRESH=:", *(f"{name}={value}" for name, value in names.items())]
    done = run_program(*command, env={**os.environ, "PIP_NO_DEPS": "1", "PIP_NO_COMPILE": "1"})
    assert (done.code == 0) is check, f"{done.out}\n{done.err}"
    return done.out + done.err


def test_every_program_gets_the_loader_and_loses_it_again(
    wheel: Path, native_headers: Path, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    prefix, program = tmp_path / "usr", tmp_path / "client"
    environment(prefix / "lib/fairlead")  # its packages are there already
    (prefix / "lib/kept.so").touch()
    for _ in range(2):  # again over itself, as for a new version
        make("install-system", prefix, PACKAGE=str(wheel))
    loader = prefix / "lib/libOpenCL.so.1"
    source = ROOT / "tests/icd/libopencl/client.c"
    run(
        "cc",
        f"-I{native_headers}",
        str(source),
        "-o",
        str(program),
        str(loader),
        "-ldl",
        "-lpthread",
    )
    drivers = {"OCL_ICD_VENDORS": str(fake_driver()), "XDG_CACHE_HOME": str(tmp_path)}
    env = {**os.environ, **drivers, "LD_LIBRARY_PATH": str(loader.parent)}
    done = subprocess.run([program, "names"], env=env, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Fake 0\n", "")
    assert list(tmp_path.glob("fairlead/drivers/*")), "its own Python wrote a verdict"
    assert "Fake 0" in run(str(prefix / "bin/fairlead"), "devices", env=env)
    level_zero = ctypes.CDLL(str(prefix / "lib/libze_loader.so.1"))
    assert level_zero.zeInit(0xFFFFFFFF) != 0, "a flag that there is not"
    make("uninstall-system", prefix)
    assert [path.relative_to(prefix) for path in prefix.rglob("*") if path.is_file()] == [
        Path("lib/kept.so")
    ]


@pytest.mark.parametrize("name", ["libOpenCL.so.1", "libze_loader.so.1"])
def test_a_loader_of_others_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / name).write_text("theirs", encoding="utf-8")
    said = make("install-system", tmp_path, check=False)
    assert f"{name} is another program's: choose another PREFIX" in said
    make("uninstall-system", tmp_path)
    assert (tmp_path / "lib" / name).read_text(encoding="utf-8") == "theirs"
    assert not (tmp_path / "lib/fairlead").exists()
