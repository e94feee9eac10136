"""`fairlead show`, `replay` and `compare` on a graph file."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyopencl as cl
import pytest
from click.testing import CliRunner, Result
from helpers.drivers import Driver
from helpers.support import RunPython

import fairlead
from fairlead.cli.compare import ComparedRun, find_difference, is_good
from fairlead.cli.graph_files import format_size, write_outputs
from fairlead.cli.main import main
from fairlead.icd.drivers import platforms

SOURCE = "kernel void scale(global int *x, int by) { x[get_global_id(0)] *= by; }"


@pytest.fixture(scope="module")
def selector(each_driver: Driver) -> str:
    """The number of a driver's platform and device, as `--device` takes it."""
    return f"{next(i for i, one in enumerate(platforms()) if each_driver.has(one))}:0"


@pytest.fixture(scope="module")
def file(selector: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that adds 1 to 64 fives, and scales them by a Parameter."""
    platform = platforms()[int(selector.partition(":")[0])]
    context = cl.Context([platform.devices[0].to_pyopencl()])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SOURCE).build()
    scale, five = program.scale, np.full(64, 5, np.int32)
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
    by, host = fairlead.Parameter(np.int32(2)), np.zeros(64, np.int32)
    with fairlead.capture(queue) as graph:
        cl.enqueue_copy(queue, x, five, is_blocking=False)
        scale(queue, (64,), None, x, by)
        cl.enqueue_copy(queue, host, x, is_blocking=False)
    path = tmp_path_factory.mktemp("files") / "scale.flg"
    graph.save(path, contents="inputs", outputs=["host"])
    return path


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_show_says_what_is_in_a_file(file: Path) -> None:
    done = ran("show", file)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 commands, contents: inputs, saved on ")
    assert "  0: by: int32 2" in lines and "  1: scale(64), after 0" in lines
    assert any("five: host of 256 bytes, int32 (64,), input, with contents" in one for one in lines)
    dot = ran("show", "--dot", file).stdout
    assert dot.startswith("digraph") and '  1 [label="1: scale(64)"];' in dot and "0 -> 1" in dot
    assert ran("show", "--source", "scale", file).stdout.strip() == SOURCE
    missing = ran("show", "--source", "add", file)
    assert missing.exit_code == 1 and "it has: scale" in missing.stderr


def test_show_draws_a_file(file: Path) -> None:
    picture = ElementTree.fromstring(ran("show", "--svg", file).stdout)
    titles = [one.text for one in picture.iter() if one.tag.endswith("title")]
    assert "1: scale(64)\nafter 0" in titles and len(titles) == 3


def test_replay_runs_it_and_saves_the_outputs(file: Path, selector: str, tmp_path: Path) -> None:
    place = tmp_path / "out.npz"
    options = "--device", selector, "--times", 2, "--set", "by=3", "--save-outputs", place
    done = ran("replay", *options, file)
    assert done.exit_code == 0, done.output
    assert "  host: int32 (64,): 15, 15, 15, 15, …" in done.stdout.splitlines()
    with np.load(place) as outputs:
        assert list(outputs) == ["host"] and (outputs["host"] == 15).all()
    told = json.loads(ran("replay", "--json", "--device", selector, file).stdout)
    assert told["outputs"] == {"host": ["int32", [64]]} and told["commands"] == 3


def test_replay_takes_the_device_that_the_file_was_saved_on(file: Path, selector: str) -> None:
    platform = platforms()[int(selector.partition(":")[0])]
    told = json.loads(ran("replay", "--json", file).stdout)
    names = platform.devices[0].name.strip(), platform.name.strip()
    assert (told["device"], told["platform"]) == names
    first = ran("replay", file).stdout.splitlines()[0]
    assert first.startswith("{} ({}, driver ".format(*names))


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["--set", "by"], 2, "not NAME=NUMBER"),
        (["--set", "by=x"], 2, "not a number"),
        (["--set", "times=3"], 2, "--times says how often it runs"),
        (["--set", "with=1"], 1, "nothing that is called with"),
        (["--set", "by=0.5"], 1, "is int32"),
        (["--device", "no such device"], 1, "no device is meant by"),
    ],
)
def test_replay_refuses_with_a_sentence(
    file: Path, options: list[str], code: int, word: str
) -> None:
    done = ran("replay", *options, file)
    assert done.exit_code == code and word in done.stderr and "Traceback" not in done.output


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    for command in ("show", "replay", "compare"):
        done = ran(command, tmp_path / "x")
        assert done.exit_code == 1 and "[INVALID_GRAPH_FILE]" in done.stderr


@pytest.mark.slow
@pytest.mark.one_driver("pocl_wheel")
def test_compare_runs_it_everywhere(
    file: Path, selector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By two engines. test_an_unmodified_python_program of test_record_command.py takes all."""
    monkeypatch.setattr("fairlead.cli.compare.list_engines", lambda: ("direct", "replay"))
    done = ran("compare", "--json", "--times", 2, file)
    told = json.loads(done.stdout)
    states = {run["engine"]: run["state"] for run in told["runs"] if run["state"] != "not possible"}
    assert done.exit_code == 0 and told["ok"] and told["runs"][0]["state"] == "reference"
    assert told["runs"][0]["platform"] == platforms()[int(selector.partition(":")[0])].name
    assert set(states) >= {"replay"} and set(states.values()) <= {"same", "reference"}
    np.savez(tmp_path / "wrong.npz", host=np.zeros(64, np.int32))
    monkeypatch.setattr("fairlead.cli.compare.list_engines", lambda: ("replay",))
    done = ran("compare", "--reference", tmp_path / "wrong.npz", file)
    assert done.exit_code == 1
    assert "host[0] is 10, not 0; 64 of 64 differ" in done.stdout


def test_outputs_may_have_any_name(tmp_path: Path) -> None:
    """One that is called file, too, which numpy.savez has for itself."""
    outputs = {"file": np.arange(4, dtype=np.float32), "args": np.array(2.5)}
    write_outputs(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz") as archive:
        assert set(archive.files) == set(outputs)
        for name, array in outputs.items():
            assert archive[name].shape == array.shape and (archive[name] == array).all()


def test_sizes_are_short() -> None:
    sizes = {0: "0 bytes", 1: "1 bytes", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 52: "4096 TiB"}
    assert {size: format_size(size) for size in sizes} == sizes


def test_differences() -> None:
    one = {"x": np.array([1, 2, np.nan], np.float32)}
    other = {"x": np.array([1, 2.0001, np.nan], np.float32)}
    assert find_difference(one, one, 0) == "" == find_difference(one, other, 1e-3)
    assert find_difference(one, other, 0).startswith("x[1] is 2.0000998")
    assert "there only once" in find_difference(one, {}, 0)
    assert "not float32 (3,)" in find_difference(one, {"x": np.zeros(3)}, 0)
    assert find_difference(
        {"x": np.array([0.0], np.float32)}, {"x": np.array([-0.0], np.float32)}, 0
    )
    rows = [ComparedRun("d", "p", "replay", "not possible")]
    assert not is_good(rows)
    assert is_good([*rows, ComparedRun("d", "p", "native", "same")])
    assert not is_good([*rows, ComparedRun("d", "p", "native", "failed")])


@pytest.mark.parametrize("command", ["show", "replay", "compare"])
def test_a_bare_install_names_the_extra(
    command: str, run_python: RunPython, tmp_path: Path
) -> None:
    (tmp_path / "step.flg").touch()
    code = "import sys; sys.modules['numpy'] = None; from fairlead.cli.main import main; main()"
    done = run_python(code, command, str(tmp_path / "step.flg"), fresh=True, check=False)
    assert done.code == 1 and done.err == (
        f"Error: fairlead {command} needs numpy, which is not installed: "
        "pip install 'fairlead[pyopencl]'\n"
    )
