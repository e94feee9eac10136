"""docs/write_an_adapter.md has all of the toy adapter, and its commands do what the page says.

They run on the real dpctl and libsycl.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from helpers.clients import PREFIX_LIB
from helpers.support import ROOT, Output, run_program

from fairlead.plugins import build_adapter, reference_adapter

PAGE = (ROOT / "docs/write_an_adapter.md").read_text(encoding="utf-8")
TOY = ROOT / "examples/toy_adapter.py"
*ADAPTER, HELLO = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M)[0].splitlines()


def run(command: str, directory: Path, home: Path, **variables: str) -> Output:
    """Run a command of the page as a user would who has dpctl installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # only for dpctl: with it, system tools would take Intel's libraries for their own
    dpctl = f"env LD_LIBRARY_PATH={home / 'lib'}:{PREFIX_LIB} PYTHONPATH={home} python"
    return run_program(
        "bash",
        "-c",
        re.sub(r"(?<![\w/])python(?![\w/])", dpctl, command),
        env={**os.environ, "PATH": path, **variables},
        cwd=directory,
    )


def test_the_page_has_all_of_the_adapter_and_it_is_short() -> None:
    lines = TOY.read_text(encoding="utf-8").splitlines()
    assert [line for block in ADAPTER for line in block.splitlines() if line] == [
        line for line in lines if line
    ]
    assert len(lines) < 80


def test_the_files_that_are_linked_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, now: Path) -> Path:
    """Where the first command has been given."""
    directory = tmp_path_factory.mktemp("toy")
    (directory / "examples").mkdir()
    shutil.copy(TOY, directory / "examples")
    (directory / "hello.py").write_text(HELLO)
    done = run(COMMANDS[0], directory, now)
    assert (done.code, done.out) == (0, f"{directory / 'libur_adapter_toy.so.0'}\n"), done.err
    return directory


def test_fairlead_lists_the_device(directory: Path, now: Path) -> None:
    done = run(COMMANDS[1], directory, now)
    assert done.out == (
        "device       type  name        platform      driver\n"
        "ur opencl:0  cpu   Toy device  Toy platform  1.0\n"
    )


def test_dpctl_lists_the_device(directory: Path, dpctl: Path) -> None:
    done = run(COMMANDS[2], directory, dpctl)
    assert (done.code, done.err) == (0, "")
    assert "Toy platform" in done.out and re.search(
        r"Name +Toy device\n +Version +1\.0\n +Filter string +opencl:cpu:0", done.out
    )


def test_dpctl_copies(directory: Path, dpctl: Path) -> None:
    done = run(COMMANDS[3], directory, dpctl)
    assert done == Output(0, "hello, toy!\n", "")
    assert COMMANDS[4:] == []


def test_the_log_says_what_was_refused(directory: Path, dpctl: Path) -> None:
    done = run(COMMANDS[3], directory, dpctl, UR_LOG_FAIRLEAD="level:info")
    assert done.out == "hello, toy!\n" and done.err == ""
    wrong = COMMANDS[3].replace(
        "hello.py", "-c 'import dpctl, dpctl.memory; dpctl.memory.MemoryUSMShared(8)'"
    )
    assert "UNSUPPORTED" in run(f"{wrong} 2>&1", directory, dpctl, SYCL_UR_TRACE="2").out


@pytest.mark.driver("intel_cpu")
def test_two_adapters_in_python_and_the_real_loader(directory: Path, dpctl: Path) -> None:
    """With two adapters the loader tells them apart by the first word of every handle."""
    second = build_adapter(TOY, directory / "libur_adapter_twin.so.0")
    both = (
        COMMANDS[3]
        .replace("=$PWD/", f"={reference_adapter()},{second},$PWD/")
        .replace(
            "python hello.py",
            "python -m dpctl -l && "
            "UR_ADAPTERS_FORCE_LOAD=$PWD/libur_adapter_toy.so.0 python hello.py",
        )
    )
    done = run(both, directory, dpctl)
    assert done.code == 0 and done.out.count("Toy") >= 1 and "Intel" in done.out, done.err
    assert done.out.endswith("hello, toy!\n")
