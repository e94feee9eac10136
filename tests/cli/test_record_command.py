"""`fairlead record`: programs that know nothing of fairlead become graph files.

recorded_program.c prints a sum of the numbers that it read last. A file that replays to the same
sum, on every driver, holds what the program did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from helpers.drivers import Driver
from helpers.support import CHILD_TIMEOUT, ROOT, Output, RunPython, once

import fairlead
from fairlead.graph_files.archive import GraphArchive
from fairlead.graph_files.document import Document
from fairlead.icd import libopencl, record_layer
from fairlead.icd.drivers import platforms

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"
ONE_ENGINE = (
    f"from fairlead.cli import compare; compare.list_engines = lambda: ('replay',); {COMMAND}"
)
ROUNDS = 3
#: The program's exit code where the driver has no SVM of the kind that it wants.
_NO_SVM = 4
#: Two launches in each round, behind a write.
LAST = 2 * ROUNDS
PYTHON = """
import sys
import numpy as np
import pyopencl as cl
import pyopencl.array

context = cl.Context([cl.get_platforms()[int(sys.argv[1])].get_devices()[0]])
queue = cl.CommandQueue(context)
x = cl.array.to_device(queue, np.arange(100, dtype=np.float32))
y = cl.array.zeros(queue, 100, np.float32)
program = cl.Program(context, '''
    kernel void saxpy(global float *x, global const float *y, float a) {
        x[get_global_id(0)] = x[get_global_id(0)] * a + y[get_global_id(0)];
    }''').build()
saxpy = program.saxpy
for step in range(4):
    y += 1
    saxpy(queue, (100,), None, x.data, y.data, np.float32(step))
print(x.get().tobytes().hex())
"""

pytestmark = pytest.mark.slow
#: The recorded program compiles its kernels each time, and PoCL keeps them. What is recorded on
#: each driver: test_what_a_file_has and test_equal_contents_are_written_once.
on_one_driver = pytest.mark.one_driver("pocl_wheel")

Record = Callable[..., tuple[Output, Path]]


@cache
def list_versions() -> list[str]:
    """The versions of the platforms that a program finds, in its order."""
    code = "import pyopencl; print(*(p.version for p in pyopencl.get_platforms()), sep='\\n')"
    environ = os.environ | libopencl.make_environment(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environ, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()


def number_of(driver: Driver) -> str:
    """The number of a driver's platform, as programs count them."""
    return str(list_versions().index(driver.version))


def selector_of(driver: Driver) -> str:
    """A driver's first device, as fairlead counts them."""
    return f"{next(i for i, one in enumerate(platforms()) if driver.has(one))}:0"


@pytest.fixture(scope="module")
def program(headers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """recorded_program.c, linked with our loader."""

    def build(path: Path) -> None:
        source = ROOT / "tests/cli/recorded_program.c"
        library = libopencl.find_library()
        command = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{headers}", source, "-o", path]
        command += [library, f"-Wl,-rpath,{os.path.dirname(library)}", "-lpthread"]
        subprocess.run(command, check=True)

    return once(tmp_path_factory, "recorded_program", build)


class Run(Protocol):
    """Runs the command `fairlead`: `run("record", "-o", file, "--", program)`."""

    def __call__(self, *arguments: object) -> Output: ...


@pytest.fixture
def run(run_python: RunPython) -> Run:
    """See Run."""
    return lambda *arguments: run_python(COMMAND, *map(str, arguments), check=False)


@pytest.fixture
def record(run: Run, program: Path, each_driver: Driver, tmp_path: Path) -> Record:
    """`record("plain", "--to", 3)`: what it printed, and the file."""

    def record(what: str, *options: object) -> tuple[Output, Path]:
        file = tmp_path / "recorded.flg"
        command = program, number_of(each_driver), what, ROUNDS
        return run("record", "-o", file, *options, "--", *command), file

    return record


def sum_of(numbers: np.ndarray) -> int:
    """What the program prints of the numbers that it has read."""
    total = 0
    for number in numbers.view(np.int32).tolist():
        total = (total * 31 + number) & 0xFFFFFFFF
    return total - (1 << 32) if total >> 31 else total


def document(file: Path) -> Document:
    """What a file says."""
    with GraphArchive(file) as archive:
        return archive.document


def last_read(file: Path, device: str) -> np.ndarray:
    """What the last read of a file gives on a device."""
    graph = fairlead.load(file, device)
    target = [one for one in graph.document.commands if one["op"] == "read"][-1]["target"]
    outputs = graph.finalize()()
    return outputs[next(name for name, one in graph.document.outputs.items() if one == target)]


def replayed(file: Path, drivers: tuple[Driver, ...]) -> set[int]:
    """The sums that a file gives on all drivers."""
    return {sum_of(last_read(file, selector_of(one))) for one in drivers}


@on_one_driver
@pytest.mark.parametrize(
    "what", ["plain", "image", "map", "rect", "two", "unordered", "svm", "fine", "refused"]
)
def test_a_recorded_program_replays_to_what_it_read(
    record: Record, present_drivers: tuple[Driver, ...], what: str
) -> None:
    output, file = record(what)
    if output.code == _NO_SVM:
        pytest.skip("the driver has no such SVM")
    assert output.code == 0, output.err
    assert "commands of process" in output.err
    recorded = document(file).device
    found = f"recorded on {recorded['device'].strip()} ({recorded['platform'].strip()})"
    assert found in output.err
    assert recorded["type"] == "CPU"
    assert replayed(file, present_drivers) == {int(output.out)}


def test_what_a_file_has(record: Record) -> None:
    _, file = record("plain")
    found = document(file)
    operations = [one["op"] for one in found.commands]
    assert operations == ["write", *["kernel"] * LAST, "read"]
    assert [one["after"] for one in found.commands] == [[], *[[one] for one in range(LAST + 1)]]
    assert [one["name"] for one in found.kernels] == ["add", "scale"]
    assert found.programs[0]["options"] == "-DUNUSED=(1+2);{3}"
    _, y, scratch = found.commands[2]["args"]
    assert scratch == {"local": 32}
    assert found.memory[y["memory"]]["flags"] == ["read_only"]
    assert [one["args"][1]["value"] for one in found.commands[1:-1:2]] == [
        number.to_bytes(4, "little").hex() for number in range(ROUNDS)
    ]


@pytest.mark.parametrize("kernel", ["", "scale"])
def test_equal_contents_are_written_once(
    program: Path, each_driver: Driver, tmp_path: Path, kernel: str
) -> None:
    environ = os.environ | libopencl.make_environment(os.environ)
    environ |= record_layer.make_environment(os.environ, tmp_path, kernel=kernel)
    command = program, number_of(each_driver), "again", "64"
    subprocess.run(command, check=True, env=environ, timeout=CHILD_TIMEOUT)
    (found,), (log,) = record_layer.read_recordings(tmp_path), tmp_path.iterdir()
    data = [bytes(one) for one in found.data.values()]
    assert len(data) == len(set(data))
    if kernel:  # x and y are read before each launch, and only x is another one
        assert [one.kind for one in found.records].count(record_layer.CONTENTS) == 2 * 64
        assert len(data) == 65
    else:  # of two megabytes each is written 16 times
        assert [len(one) for one in data].count(1 << 20) == 2
        assert log.stat().st_size < 6 << 20


def test_each_command_of_two_threads_has_a_number_of_its_own(
    program: Path, each_driver: Driver, tmp_path: Path
) -> None:
    environ = os.environ | libopencl.make_environment(os.environ)
    environ |= record_layer.make_environment(os.environ, tmp_path)
    command = program, number_of(each_driver), "threads", "50"
    subprocess.run(command, check=True, env=environ, timeout=CHILD_TIMEOUT)
    (found,) = record_layer.read_recordings(tmp_path)
    numbers = [one.words[0] for one in found.records if one.kind == record_layer.COMMAND]
    assert sorted(numbers) == [*range(2 + 2 * 50 + 2 * 50)]


@on_one_driver
def test_a_folder_that_is_full_of_recordings_of_one_process_is_named(
    program: Path, each_driver: Driver, tmp_path: Path
) -> None:
    environ = os.environ | libopencl.make_environment(os.environ)
    environ |= record_layer.make_environment(os.environ, tmp_path)
    fill = 'cd "$0"; for n in $(seq 0 999); do : > $$.$n.record; done; exec "$@"'
    command = ["sh", "-c", fill, tmp_path, program, number_of(each_driver), "plain", "1"]
    done = subprocess.run(
        command, check=True, env=environ, timeout=CHILD_TIMEOUT, capture_output=True, text=True
    )
    assert f", {tmp_path} cannot be written: File exists" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        [4],  # a chunk of no whole word
        [80, 1 << 32 | 1],  # a chunk that is longer than the file
        [24, record_layer.SYNC << 32, 0],  # a record without a size
        [24, record_layer.SYNC << 32 | 9, 0],  # a record that is longer than its chunk
        [24, record_layer.DATA << 32 | 2, 0],  # a record without its head
        [24, 99 << 32 | 2, 0],  # a record of an unknown kind
    ],
)
def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path, words: list[int]) -> None:
    file = tmp_path / "7.0.record"
    file.write_bytes(b"".join(word.to_bytes(8, "little") for word in words) + b"cut")
    with pytest.raises(ValueError, match=r"7\.0\.record is not a recording: "):
        record_layer.read_recordings(tmp_path)


@on_one_driver
@pytest.mark.parametrize(("what", "code"), [("abort", None), ("exit", 5), ("segfault", None)])
def test_what_was_recorded_outlives_the_program(
    record: Record, present_drivers: tuple[Driver, ...], what: str, code: int | None
) -> None:
    output, file = record(what)
    assert code is None or output.code == code
    assert replayed(file, present_drivers) == {int(output.out)}


@on_one_driver
def test_a_part_of_a_program_begins_with_what_its_memory_held(
    record: Record, present_drivers: tuple[Driver, ...]
) -> None:
    output, file = record("plain", "--from", 3)
    assert len(document(file).commands) == LAST + 2 - 3
    assert replayed(file, present_drivers) == {int(output.out)}
    output, file = record("plain", "--from", 1, "--to", 2)
    assert [one["op"] for one in document(file).commands] == ["kernel", "kernel"]
    outputs = fairlead.load(file).finalize()()
    expected = np.arange(64) * 3 + 7 * np.arange(64) - 5
    assert any(np.array_equal(one.view(np.int32), expected) for one in outputs.values())


@on_one_driver
def test_launches_of_one_kernel_see_what_others_have_written(
    record: Record, present_drivers: tuple[Driver, ...]
) -> None:
    _, file = record("plain", "--kernel", "scale")
    names = [one["op"] for one in document(file).commands]
    assert names.count("kernel") == ROUNDS and names.count("write") == 2 * (ROUNDS - 1)
    x = np.arange(64)
    for number in range(ROUNDS):
        x = (x + number) * 3 + 7 * np.arange(64) - 5
    for driver in present_drivers:
        outputs = fairlead.load(file, selector_of(driver)).finalize()()
        assert any(np.array_equal(one.view(np.int32), x) for one in outputs.values())
    _, file = record("plain", "--kernel", "scale", "--from", 1, "--to", 1)
    assert [one["op"] for one in document(file).commands] == ["kernel"]


@on_one_driver
def test_contents(record: Record) -> None:
    _, file = record("plain", "--contents", "none")
    assert not [one for one in document(file).memory if "contents" in one]
    _, file = record("plain", "--contents", "all", "--from", 1)
    kept = [one for one in document(file).memory if one["kind"] == "buffer"]
    assert len(kept) == 2 and all("contents" in one for one in kept)


@on_one_driver
@pytest.mark.parametrize("what", ["plain", "image", "map", "unordered", "svm"])
def test_what_the_program_has_read_is_the_reference(record: Record, what: str) -> None:
    output, file = record(what, "--contents", "all")
    with GraphArchive(file) as archive:
        (*_, last) = archive.read_results().values()
        rows = archive.document.memory
    assert sum_of(last) == int(output.out)
    assert [one["kind"] for one in rows if "result" in one] == ["host"] * (
        1 + (what in ("map", "svm"))
    )


@on_one_driver
def test_a_recorded_file_is_compared_with_what_the_program_has_read(
    record: Record, run_python: RunPython
) -> None:
    """On one engine. test_an_unmodified_python_program compares a recorded file on all of them."""
    _, file = record("plain", "--contents", "all")
    done = run_python(ONE_ENGINE, "compare", "--times", "1", "--json", str(file), check=False)
    runs = json.loads(done.out)["runs"]
    assert done.code == 0 and {one["state"] for one in runs} <= {"same", "not possible"}
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in parts if name.startswith("result/"))
    parts[name] = parts[name][:-1] + b"\xff"
    with zipfile.ZipFile(file, "w") as archive:
        for title, data in parts.items():
            archive.writestr(title, data)
    done = run_python(ONE_ENGINE, "compare", "--json", str(file), check=False)
    states = {one["state"] for one in json.loads(done.out)["runs"]}
    assert done.code == 1 and "different" in states and "same" not in states


@on_one_driver
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("native", "clEnqueueNativeKernel has no place in a graph file"),
        ("user", "clEnqueueNDRangeKernel waits for a user event that the program has not set yet"),
        ("atomics", "clEnqueueNDRangeKernel uses SVM with atomics, or memory of the system"),
    ],
)
def test_what_cannot_be_recorded_is_named(record: Record, what: str, why: str) -> None:
    output, file = record(what)
    if output.code == _NO_SVM:
        pytest.skip("the driver has no such SVM")
    assert output.code == 1 and output.out  # the program itself went on
    assert f"the recording ends before command {LAST + 1}: {why}" in output.err
    assert len(document(file).commands) == LAST + 1


@on_one_driver
def test_an_unmodified_python_program(
    run: Run, each_driver: Driver, present_drivers: tuple[Driver, ...], tmp_path: Path
) -> None:
    file = tmp_path / "python.flg"
    (tmp_path / "program.py").write_text(PYTHON, encoding="utf-8")
    command = sys.executable, tmp_path / "program.py", number_of(each_driver)
    output = run("record", "-o", file, "--", *command)
    assert output.code == 0, output.err
    expected = np.frombuffer(bytes.fromhex(output.out), np.float32)
    for driver in present_drivers:
        assert np.array_equal(last_read(file, selector_of(driver)).view(np.float32), expected)
    compared = run("compare", "--times", 1, file)
    assert compared.code == 0, compared.out
    chain = [one["after"] for one in document(file).commands]
    assert all(len(before) <= 1 for before in chain)  # its long wait lists say nothing new


@on_one_driver
def test_the_processes_of_a_program_have_files_of_their_own(
    run: Run, program: Path, each_driver: Driver, tmp_path: Path
) -> None:
    once = f"{program} {number_of(each_driver)} plain 1"
    output = run("record", "-o", tmp_path / "a.flg", "--", "sh", "-c", f"{once}; {once}")
    assert output.code == 0, output.err
    assert sorted(one.name for one in tmp_path.glob("*.flg")) == ["a-2.flg", "a.flg"]
    counts = [len(document(tmp_path / name).commands) for name in ("a.flg", "a-2.flg")]
    assert counts == [4, 4]


def test_a_program_that_enqueues_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.flg"
    output = run("record", "-o", file, "--", "true")
    assert output.code == 1 and "nothing was recorded" in output.err
    assert not file.exists()
    output = run("record", "-o", file, "--", "sh", "-c", "exit 7")
    assert output.code == 7
    output = run("record", "-o", tmp_path, "--", "true")
    assert output.code == 1 and "cannot be written to" in output.err
