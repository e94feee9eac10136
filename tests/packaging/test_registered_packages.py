"""Packages that register adapters and commands, installed by pip.

One is the package of docs/write_an_adapter.md, with a command. The other one cannot be imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import CHILD_TIMEOUT, ROOT, Output, RunPython, once

from fairlead import plugins

PAGE = (ROOT / "docs/write_an_adapter.md").read_text(encoding="utf-8")
(PROJECT,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)
(LISTED,) = re.findall(r"^```text\n(device.*?)^```", PAGE, re.S | re.M)
COMMAND = """
import click

@click.command()
@click.argument("name")
def hello(name):
    click.echo(f"hello, {name}!")

number = 5
"""
HELLO = """
[project.entry-points."fairlead.commands"]
hello = "toy_command:hello"
run = "toy_command:hello"
"""
BROKEN = """
[project.entry-points."fairlead.adapters"]
broken = "broken:adapter"
unclear = "broken:other"

[project.entry-points."fairlead.commands"]
break = "broken:command"
number = "toy_command:number"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip has installed both packages in."""

    def install(target: Path) -> None:
        toy, broken = tmp_path_factory.mktemp("toy"), tmp_path_factory.mktemp("broken")
        shutil.copy(ROOT / "examples/toy_adapter.py", toy)
        (toy / "toy_command.py").write_text(COMMAND)
        modules = PROJECT.replace('["toy_adapter"]', '["toy_adapter", "toy_command"]')
        (toy / "pyproject.toml").write_text(modules + HELLO)
        (broken / "broken.py").write_text("raise RuntimeError('it is broken')")
        empty = re.sub(r"\[project\.entry-points.*?\n\n", "", PROJECT, flags=re.S)
        renamed = empty.replace("toy-adapter", "broken").replace("toy_adapter", "broken")
        (broken / "pyproject.toml").write_text(renamed + BROKEN)
        # without what this user has configured, and without a network
        options = ("--isolated", "--no-index", "--no-deps", "--no-build-isolation")
        command = [sys.executable, "-m", "pip", "install", "--quiet", *options]
        command += ["--target", str(target), str(toy), str(broken)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "site", install)


@pytest.fixture(scope="module")
def environment(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a Python that has both packages."""
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(cache)}


def run(environment: dict[str, str], *arguments: str) -> Output:
    """Run `fairlead`."""
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    return Output(done.returncode, done.stdout, done.stderr)


pytestmark = pytest.mark.slow


def test_an_installed_adapter_is_listed(environment: dict[str, str]) -> None:
    done = run(environment, "devices", "--interface", "ur")
    assert (done.code, done.out) == (0, LISTED)
    warnings = [line for line in done.err.splitlines() if line.startswith("warning")]
    broken, unclear = sorted(warnings, key=lambda line: "unclear" in line)
    assert "libur_adapter_broken.so.0" in broken and "RuntimeError: it is broken" in broken
    assert "unclear: broken 1.0 registers unclear=broken:other" in unclear


def test_its_library_is_made_once(environment: dict[str, str]) -> None:
    """Another process gives the same file. A damaged one is made again."""
    path = Path(run(environment, "adapter", "--toy").out.strip())
    assert path.name == "libur_adapter_toy.so.0"
    assert path.is_relative_to(environment["XDG_CACHE_HOME"])
    before, state = path.read_bytes(), path.stat()
    assert run(environment, "adapter", "--toy").out == f"{path}\n"
    assert path.stat() == state
    path.write_bytes(b"damaged")
    assert run(environment, "adapter", "--toy").out == f"{path}\n"
    assert path.read_bytes() == before


def test_ours_have_options_as_others_have(environment: dict[str, str]) -> None:
    assert run(environment, "adapter", "--cuda").out == f"{plugins.cuda_adapter()}\n"
    refused = run(environment, "adapter", "--cuda", "--toy")
    assert refused.code == 2 and "give one of the options" in refused.err
    shown = " ".join(run(environment, "adapter", "--help").out.split())
    assert (
        "--toy Print the path of the adapter toy_adapter, of the package toy_adapter 1.0" in shown
    )
    assert "--hip Print the path of the adapter fairlead.plugins.hip" in shown
    wrong = run(environment, "adapter", "--unclear")
    assert wrong.code == 1 and "register NAME=MODULE:adapter" in wrong.err


def test_without_a_cache_a_sentence_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(environment | {"XDG_CACHE_HOME": str(tmp_path / "file")}, "adapter", "--toy")
    assert done.code == 1 and "the library of toy_adapter cannot be made" in done.err
    assert "XDG_CACHE_HOME" in done.err and "Traceback" not in done.err


def test_python_finds_it(environment: dict[str, str], run_python: RunPython) -> None:
    code = "import fairlead; print([one.name for one in fairlead.adapters().devices])"
    assert "'Toy device'" in run_python(code, env=environment, fresh=True).out
    forced = {"UR_ADAPTERS_FORCE_LOAD": plugins.reference_adapter()}
    assert "Toy" not in run_python(code, env=environment | forced, fresh=True).out


def test_a_command_runs_like_ours(environment: dict[str, str]) -> None:
    assert run(environment, "hello", "you") == Output(0, "hello, you!\n", "")
    assert "libOpenCL.so.1" in run(environment, "run", "--help").out  # ours, not theirs
    listed = re.sub(r" +", " ", run(environment, "--help").out)
    assert "\n hello Of the package toy_adapter 1.0." in listed
    assert "\n break Of the package broken 1.0." in listed


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("break", "cannot be imported: RuntimeError: it is broken\n  remedy: update the package"),
        ("number", "toy_command:number of the package broken 1.0 is not a click.Command"),
        ("gone", "No such command"),
    ],
)
def test_a_command_that_cannot_be_used_is_an_error(
    environment: dict[str, str], name: str, why: str
) -> None:
    done = run(environment, name)
    assert done.code and why in done.err and "Traceback" not in done.err


def test_doctor_has_a_line_for_each(environment: dict[str, str]) -> None:
    facts: dict[str, Any] = json.loads(run(environment, "doctor", "--json").out)
    commands = {one["name"]: one["reason"] for one in facts["packages"]}
    assert set(commands) == {"hello", "run", "break", "number"}
    assert not commands["hello"] and "it is broken" in commands["break"]
    states = {Path(one["library"]).name: one for one in facts["plugins"]["plugins"]}
    toy, broken = (states[f"libur_adapter_{name}.so.0"] for name in ("toy", "broken"))
    assert (toy["state"], toy["found_via"]) == ("usable", "the package toy_adapter 1.0")
    assert broken["state"] == "refused" and "it is broken" in broken["reason"]
    problems = [f"{one['what']}: {one['reason']}" for one in facts["problems"]]
    for said in ("broken.so.0", "unclear", "fairlead break", "fairlead number"):
        assert any(said in one for one in problems), problems
