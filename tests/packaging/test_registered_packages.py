"""Packages that register what fairlead has, installed by pip.

One is the package of docs/write_an_adapter.md, with one of each other kind. The other one cannot be
imported.
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
from helpers.support import ROOT, Output, RunPython, once, run_program

from fairlead import plugins
from fairlead.icd import trace_layer

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
#: What the first package has besides its adapter: a module's text by its path.
MODULES = {
    "toy_command.py": COMMAND,
    "toy_driver.py": "from fairlead.plugins.level_zero import driver",
    "toy_layer.py": "from fairlead.icd.trace_layer import find_library",
    "toy_engine.py": """
from fairlead.icd.command_buffer.engines.replay import Replay

class Toy(Replay):
    name = "toy"
""",
    "toy_doctor.py": """
from fairlead.cli.doctor.problems import Problem

def examine():
    yield "a toy on the shelf"
    yield Problem("warning", "the toy", "its battery is low", "charge it")
""",
    "toy_suite/__init__.py": "",
    "toy_suite/fixtures.py": "from fairlead.conformance.ur.fixtures import *",
    "toy_suite/test_names.py": """
from fairlead.conformance.checks import equal, rule

@rule("urPlatformGet", "the platform is the toy's")
def test_name(opened):
    equal(opened.plugin.platforms[0].name, "Toy platform")
""",
}
REGISTERED = """
[project.entry-points."fairlead.commands"]
hello = "toy_command:hello"
run = "toy_command:hello"

[project.entry-points."fairlead.drivers"]
toy = "toy_driver:driver"

[project.entry-points."fairlead.layers"]
toy = "toy_layer:find_library"

[project.entry-points."fairlead.engines"]
toy = "toy_engine:Toy"

[project.entry-points."fairlead.doctor"]
shelf = "toy_doctor:examine"

[project.entry-points."fairlead.suites"]
names = "toy_suite"
"""
BROKEN = """
[project.entry-points."fairlead.adapters"]
broken = "broken:adapter"
unclear = "broken:other"

[project.entry-points."fairlead.commands"]
break = "broken:command"
number = "toy_command:number"

[project.entry-points."fairlead.drivers"]
broken = "broken:driver"

[project.entry-points."fairlead.layers"]
broken = "broken:find_library"
trace = "toy_command:number"
unclear = "toy_command:number"

[project.entry-points."fairlead.engines"]
broken = "broken:Engine"
replay = "toy_engine:Toy"
unclear = "toy_engine:Toy"

[project.entry-points."fairlead.doctor"]
broken = "broken:examine"
unclear = "builtins:list"
wrong = "toy_command:hello"

[project.entry-points."fairlead.suites"]
broken = "broken"
empty = "toy_command"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip has installed both packages in."""

    def install(target: Path) -> None:
        toy, broken = tmp_path_factory.mktemp("toy"), tmp_path_factory.mktemp("broken")
        shutil.copy(ROOT / "examples/toy_adapter.py", toy)
        (toy / "toy_suite").mkdir()
        for path, text in MODULES.items():
            (toy / path).write_text(text)
        names = ["toy_adapter", *(Path(path).stem for path in MODULES if "/" not in path)]
        modules = f'{json.dumps(names)}\npackages = ["toy_suite"]'
        project = PROJECT.replace('["toy_adapter"]', modules)
        (toy / "pyproject.toml").write_text(project + REGISTERED)
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
    return run_program(sys.executable, "-m", "fairlead", *arguments, env=environment)


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
    found = "--toy Print the path of the adapter toy_adapter, of the package toy_adapter 1.0"
    assert found in shown
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


def test_a_driver_is_found_before_ours(environment: dict[str, str], run_python: RunPython) -> None:
    code = """
from fairlead.loader.ze.discovery import OWN, find_drivers
found = find_drivers()
print([one.library for one in found.candidates[-3:]], found.candidates[-1].library == str(OWN))
print({one.found_via for one in found.candidates[-3:-1]}, found.refusals)
"""
    paths, via = run_python(code, env=environment, fresh=True).out.splitlines()
    assert "libze_broken.so.1" in paths and "libze_toy.so.1" in paths and paths.endswith("True")
    assert "the package toy_adapter 1.0" in via and via.endswith("()")


def test_a_layer_has_a_name(environment: dict[str, str]) -> None:
    done = run(environment, "layers", "--own")
    rows = {line.split(" | ")[0]: line for line in done.out.splitlines()}
    assert list(rows) == ["command-buffer", "toy", "trace"]  # no other package replaces ours
    assert rows["toy"].partition(" | ")[2] == rows["trace"].partition(" | ")[2]
    broken, unclear = done.err.splitlines()
    assert "broken: broken:find_library of the package broken 1.0 cannot be imported" in broken
    assert "unclear: toy_command:number of the package broken 1.0 fails: TypeError" in unclear
    code = "import os; print(os.environ['OPENCL_LAYERS'])"
    named = run(environment, "run", "--layers", "toy:/x", "--", sys.executable, "-c", code)
    assert named.out == f"{trace_layer.find_library()}:/x\n"
    wrong = run(environment, "run", "--layers", "broken", "--", sys.executable, "-c", code)
    assert wrong.code == 1 and "it is broken" in wrong.err and "Traceback" not in wrong.err


def test_an_engine_runs_commands(environment: dict[str, str], run_python: RunPython) -> None:
    code = """
from fairlead.icd.command_buffer.choice import Choice, choose_names
for name in ("", "toy"):
    print(choose_names(name)[0], *Choice(()).explain({}).items(), sep="|")
choose_names("unknown")
"""
    done = run_python(code, env=environment, fresh=True, check=False)
    auto, toy = (line.split("|") for line in done.out.splitlines())
    assert auto[0] == "['direct', 'native', 'cuda', 'toy', 'replay']"
    assert toy[0] == "['toy', 'replay']"
    broken, unclear = auto[1:3]
    assert "'broken'" in broken and "RuntimeError: it is broken" in broken
    assert "is not an engine called unclear" in unclear
    assert "direct, native, cuda, toy, replay" in done.err


def test_a_suite_is_run_by_its_name(environment: dict[str, str]) -> None:
    library = run(environment, "adapter", "--toy").out.strip()
    done = run(environment, "conformance", "--json", "--suite", "names", library)
    report: dict[str, Any] = json.loads(done.out)
    assert (report["interface"], report["ok"]) == ("names", True)
    assert "names::name" in [case["name"] for case in report["cases"]]
    for suite, why in (
        ("gone", "there is no conformance suite 'gone'"),
        ("broken", "RuntimeError: it is broken"),
        ("empty", "has no cases"),
    ):
        done = run(environment, "conformance", "--suite", suite, library)
        assert done.code == (2 if suite == "gone" else 1)
        assert why in done.err and "Traceback" not in done.err


def test_doctor_has_a_line_for_each(environment: dict[str, str]) -> None:
    facts: dict[str, Any] = json.loads(run(environment, "doctor", "--json").out)
    entries = {(one["group"], one["name"]): one for one in facts["packages"]}
    reasons = {
        f"{group.removeprefix('fairlead.')} {name}": one["reason"]
        for (group, name), one in entries.items()
    }
    right = {name for name, reason in reasons.items() if not reason}
    good = {"commands hello", "commands run", "layers toy", "engines toy", "suites names"}
    assert right == {*good, "suites empty", "doctor shelf", "doctor unclear"}
    broken = {"commands break", "layers broken", "engines broken", "suites broken", "doctor broken"}
    wrong = {"commands number", "layers unclear", "doctor wrong"}
    other_name = {"engines replay", "engines unclear"}
    assert set(reasons) - right == {*broken, *wrong, *other_name}
    assert all("it is broken" in reasons[name] for name in broken)
    assert entries["fairlead.doctor", "shelf"]["lines"] == ["a toy on the shelf"]
    for states in (facts["plugins"]["plugins"], facts["level_zero"]["drivers"]):
        found = {Path(one["library"]).name.split(".")[0].split("_")[-1]: one for one in states}
        assert (found["toy"]["state"], found["toy"]["found_via"]) == (
            "usable",
            "the package toy_adapter 1.0",
        )
        assert found["broken"]["state"] == "refused"
        assert "it is broken" in found["broken"]["reason"]
    problems = [f"{one['what']}: {one['reason']}" for one in facts["problems"]]
    for said in ("broken.so.0", "unclear", "fairlead break", "fairlead number", "layer unclear"):
        assert any(said in one for one in problems), problems
    assert "the toy: its battery is low" in problems
    shown = run(environment, "doctor").out
    assert "What other packages register" in shown and "    a toy on the shelf" in shown


HOSTILE = """
import os, time
open(os.environ["IMPORTED"], "w").close()
time.sleep(1e6)
"""


def test_what_hangs_does_not_hold_up_devices(environment: dict[str, str], tmp_path: Path) -> None:
    """Nothing of it is imported. Files of entry points that are none are passed over."""
    groups = ("commands", "layers", "engines", "doctor", "suites")
    rows = (f"[fairlead.{group}]\nhang = hostile:thing\n" for group in groups)
    for name, text in {"hostile": "".join(rows), "pipe": "", "folder": "", "long": "["}.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        file = folder / "entry_points.txt"
        file.write_text(text)
    (tmp_path / "hostile.py").write_text(HOSTILE)
    (tmp_path / "pipe-1.0.dist-info/entry_points.txt").unlink()
    os.mkfifo(tmp_path / "pipe-1.0.dist-info/entry_points.txt")
    (tmp_path / "folder-1.0.dist-info/entry_points.txt").unlink()
    (tmp_path / "folder-1.0.dist-info/entry_points.txt").mkdir()
    os.truncate(tmp_path / "long-1.0.dist-info/entry_points.txt", 1 << 40)
    path = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))
    mark = tmp_path / "imported"
    done = run({**environment, "PYTHONPATH": path, "IMPORTED": str(mark)}, "devices")
    assert "Toy device" in done.out and not mark.exists()
