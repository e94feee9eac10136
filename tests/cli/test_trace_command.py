"""`fairlead trace`: what it runs, what it writes, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import FakePlugin, Output, RunPython
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.trace import NOTHING, gather, make_environment, summarize_events
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"

#: Lists the devices of the adapters in the environment; UR calls through fairlead.
LIST = """
import sys, fairlead
names = [device.name for device in fairlead.adapters().devices]
print(*names)
sys.exit(int(sys.argv[1]))
"""

#: A program that knows nothing of fairlead.
COPY = """
import sys
import numpy, pyopencl
context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
queue = pyopencl.CommandQueue(context)
data = numpy.arange(16, dtype=numpy.int32)
result = numpy.zeros_like(data)
buffer = pyopencl.Buffer(context, 0, data.nbytes)
pyopencl.enqueue_copy(queue, buffer, data)
pyopencl.enqueue_copy(queue, result, buffer)
print(result.sum())
"""


def traced(run_python: RunPython, env: dict[str, str], *arguments: str) -> Output:
    return run_python(COMMAND, "trace", *arguments, env={"FAIRLEAD_PROBE": "0", **env}, check=False)


def python(code: str, *arguments: str) -> list[str]:
    return ["--", sys.executable, "-c", code, *arguments]


def events(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


@pytest.fixture
def adapter(fake_plugin: FakePlugin) -> dict[str, str]:
    """The environment that leads to an adapter with two devices."""
    return {"UR_ADAPTERS_FORCE_LOAD": str(fake_plugin(devices=2))}


def test_unified_runtime_calls_of_a_program_that_uses_fairlead(
    run_python: RunPython, adapter: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "calls.json"
    done = traced(run_python, adapter, "-o", str(output), "--apis", "ur", *python(LIST, "7"))
    assert (done.code, done.out) == (7, "Fake device 0 Fake device 1\n")
    assert f"fairlead: 1 process traced, see {output} in ui.perfetto.dev" in done.err
    calls = events(output)
    assert {call["cat"] for call in calls} == {"ur"}
    assert calls[0]["name"] == "urAdapterGet" and calls[0]["args"]["result"] == "UR_RESULT_SUCCESS"
    rows = {
        line.split()[0]: line.split()[1:] for line in done.err.splitlines() if line.startswith("ur")
    }
    assert rows["urAdapterGet"][:2] == ["2", "0"] and rows["urDeviceGet"][:2] == ["2", "0"]


def test_opencl_calls_of_a_program_that_knows_nothing_of_fairlead(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    output, vendors = tmp_path / "calls.json", tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "pocl.icd").write_text(f"{pocl_wheel.library}\n")
    done = traced(run_python, {"OCL_ICD_VENDORS": str(vendors)}, "-o", str(output), *python(COPY))
    assert (done.code, done.out) == (0, "120\n")
    calls = {call["name"]: call for call in events(output)}
    assert calls["clEnqueueWriteBuffer"]["cat"] == "cl"
    assert calls["clEnqueueWriteBuffer"]["args"]["result"] == "CL_SUCCESS"
    assert "clEnqueueReadBuffer  " in done.err


def test_the_processes_of_a_command_are_merged(
    run_python: RunPython, adapter: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "list.py"
    program.write_text(LIST)
    output = tmp_path / "calls.json"
    twice = f"{sys.executable} {program} 0 && {sys.executable} {program} 3"
    done = traced(run_python, adapter, "-o", str(output), "--apis", "ur", "--", "sh", "-c", twice)
    assert done.code == 3 and "2 processes traced" in done.err
    pids = [call["pid"] for call in events(output)]
    first, second = dict.fromkeys(pids)
    assert pids.count(first) == pids.count(second)


def test_print_shows_calls_as_they_happen_and_writes_nothing(
    run_python: RunPython, adapter: dict[str, str], tmp_path: Path
) -> None:
    done = traced(
        run_python,
        adapter,
        "-o",
        str(tmp_path / "no"),
        "--print",
        "--times",
        "--apis",
        "ur",
        *python(LIST, "7"),
    )
    assert (done.code, done.out) == (7, "Fake device 0 Fake device 1\n")
    lines = done.err.splitlines()
    assert lines[0] == "---> urAdapterGet" and lines[1].startswith(
        "<--- urAdapterGet(.NumEntries = 0, "
    )
    assert lines[1].endswith((" ns", " us", " ms")) and not (tmp_path / "no").exists()
    assert "function" not in done.err


def test_print_shows_what_only_the_layer_saw_in_the_end(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    (tmp_path / "pocl.icd").write_text(f"{pocl_wheel.library}\n")
    done = traced(run_python, {"OCL_ICD_VENDORS": str(tmp_path)}, "--print", *python(COPY))
    assert done.code == 0
    (line,) = (line for line in done.err.splitlines() if line.startswith("clEnqueueReadBuffer("))
    assert ".blocking_read = CL_TRUE" in line and line.endswith("-> CL_SUCCESS;")


#: Kernels on two queues, and a call that fails.
LAUNCHES = """
import numpy, pyopencl
context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
queues = pyopencl.CommandQueue(context), pyopencl.CommandQueue(context)
source = "kernel void add(global float *a, float b) { a[get_global_id(0)] += b; }"
program = pyopencl.Program(context, source).build()
data = numpy.zeros(16, numpy.float32)
buffer = pyopencl.Buffer(context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=data)

def launch():
    kernel = program.add
    for queue in queues:
        for number in range(5):
            kernel(queue, (16,), None, buffer, numpy.float32(2.5))
        queue.finish()

launch()
pyopencl.enqueue_copy(queues[1], data, buffer)
try:
    program.nothing
except Exception:
    pass
print(data[0])
"""


@pytest.fixture
def vendors(intel_cpu: Candidate, tmp_path: Path) -> dict[str, str]:
    """The environment in which an OpenCL loader finds a driver that builds everywhere."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors/cpu.icd").write_text(f"{locate(intel_cpu)[0]}\n")
    return {"OCL_ICD_VENDORS": str(tmp_path / "vendors"), "PYOPENCL_COMPILER_OUTPUT": "0"}


def test_a_trace_names_kernels_queues_and_threads_and_shows_arguments(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "calls.json"
    done = traced(run_python, vendors, "-o", str(output), *python(LAUNCHES))
    assert (done.code, done.out) == (0, "25.0\n"), done.err
    calls = [one for one in events(output) if one["name"] == "clEnqueueNDRangeKernel"]
    assert len(calls) == 10
    assert all(one["args"]["kernel"].endswith(" (add)") for one in calls)
    queues = [one["args"]["command_queue"].split(" ", 1)[1] for one in calls]
    assert queues == ["(queue 1)"] * 5 + ["(queue 2)"] * 5
    values = [
        one["args"]["arg_value"]
        for one in events(output)
        if one["name"] == "clSetKernelArg" and one["args"]["arg_index"] == "1"
    ]
    assert values and all(value.endswith("(1075838976 or 2.5f)") for value in values)
    named = [
        one["args"]["name"]
        for one in json.loads(output.read_text())["traceEvents"]
        if one["name"] == "thread_name"
    ]
    assert len(named) == 1 and named[0].startswith("python")
    assert not [one for one in events(output) if one["cat"] == "device"]


def test_device_says_what_devices_did(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    """The program's queues do not profile, and it wants no events."""
    output = tmp_path / "calls.json"
    done = traced(run_python, vendors, "--device", "-o", str(output), *python(LAUNCHES))
    assert (done.code, done.out) == (0, "25.0\n"), done.err
    everything = events(output)
    commands = [one for one in everything if one["cat"] == "device"]
    assert [one["name"] for one in commands].count("add") == 10
    calls = [one for one in everything if one["cat"] == "cl"]
    assert all("PROFILING" not in str(one["args"]) for one in calls), "it shows what was asked for"
    for one in commands:
        times = [one["args"][name] for name in ("queued", "submitted", "started", "ended")]
        assert times == sorted(times) and one["ts"] == times[2]
        assert one["dur"] == pytest.approx(times[3] - times[2], abs=1e-3)
    assert len({one["tid"] for one in commands if one["name"] == "add"}) == 2
    row = next(line.split() for line in done.err.splitlines() if line.startswith("add "))
    total, mean, least, most = map(float, row[2:])
    assert row[1] == "10" and least <= mean <= most <= total


#: What each kind of event has in the trace-event format, beside "ph", "pid" and "tid".
FORMAT: dict[str, dict[str, tuple[type, ...]]] = {
    "X": {"name": (str,), "cat": (str,), "ts": (float, int), "dur": (float, int), "args": (dict,)},
    "M": {"name": (str,), "args": (dict,)},
    "C": {"name": (str,), "ts": (float, int), "args": (dict,)},
    "s": {"name": (str,), "cat": (str,), "ts": (float, int), "id": (str, int)},
    "f": {"name": (str,), "cat": (str,), "ts": (float, int), "id": (str, int), "bp": (str,)},
}


def test_perfetto_gets_arrows_from_calls_to_what_they_enqueued(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "perfetto.json"
    done = traced(run_python, vendors, "--perfetto", str(output), *python(LAUNCHES))
    assert (done.code, done.out) == (0, "25.0\n"), done.err
    document = json.loads(output.read_text())
    assert document["displayTimeUnit"] in ("ms", "ns")
    found: list[dict[str, Any]] = document["traceEvents"]
    for event in found:
        fields = {"ph": (str,), "pid": (int,), "tid": (int,), **FORMAT[event["ph"]]}
        assert event.keys() == fields.keys(), event
        assert all(isinstance(event[name], types) for name, types in fields.items()), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        assert 0 <= event["tid"] < 1 << 31
    spans = [one for one in found if one["ph"] == "X"]

    def enclosing(event: dict[str, Any]) -> dict[str, Any]:
        """The span that a viewer ties an end of an arrow to: the innermost one around it."""
        around = [
            one
            for one in spans
            if (one["pid"], one["tid"]) == (event["pid"], event["tid"])
            and one["ts"] <= event["ts"] <= one["ts"] + one["dur"]
        ]
        return max(around, key=lambda one: (one["ts"], -one["dur"]))

    starts = {one["id"]: one for one in found if one["ph"] == "s"}
    ends = {one["id"]: one for one in found if one["ph"] == "f"}
    commands = [one for one in spans if one["cat"] == "device"]
    assert starts.keys() == ends.keys() and len(ends) == len(commands) >= 10
    for key, start in starts.items():
        call, command = enclosing(start), enclosing(ends[key])
        assert command["cat"] == "device" and ends[key]["bp"] == "e"
        assert call["cat"] == "cl" and call["name"] == command["args"]["function"]
        assert start["ts"] <= ends[key]["ts"]
    counters: dict[str, list[dict[str, int]]] = {}
    for one in found:
        if one["ph"] == "C":
            counters.setdefault(one["name"], []).append(one["args"])
    flights = [f"queue {number}: commands in flight" for number in (1, 2)]
    assert counters.keys() == {*flights, "queue 2: bytes moved"}
    assert all(counters[name][-1] == {"commands": 0} for name in flights)
    assert counters["queue 2: bytes moved"] == [{"bytes": 64}]


def test_device_says_what_the_reference_adapter_did(
    run_python: RunPython, wheel_drivers: dict[str, str], tmp_path: Path
) -> None:
    code = """
import numpy
from fairlead.runtime import Program, Queue, malloc_shared
queue = Queue()
program = Program(queue, "kernel void add(global float *a, float b) { a[get_global_id(0)] += b; }")
memory = malloc_shared(16, "float32", queue)
for _ in range(4):
    queue.parallel_for(16, program.add, memory, numpy.float32(2.5)).wait()
"""
    output = tmp_path / "calls.json"
    done = traced(run_python, wheel_drivers, "--device", "-o", str(output), *python(code))
    assert done.code == 0, done.err
    assert [one["name"] for one in events(output) if one["cat"] == "device"].count("add") == 4
    (row,) = (line.split() for line in done.err.splitlines() if line.startswith("add "))
    assert row[1] == "4"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--only", "clEnqueue*,clCreateKernel"], {"clEnqueueNDRangeKernel", "clCreateKernel"}),
        (["--errors"], {"clCreateKernel"}),
        (["--errors", "--only", "clFinish"], set()),
    ],
)
def test_filters(
    run_python: RunPython,
    vendors: dict[str, str],
    tmp_path: Path,
    options: list[str],
    expected: set[str],
) -> None:
    output = tmp_path / "calls.json"
    done = traced(run_python, vendors, *options, "-o", str(output), *python(LAUNCHES))
    assert done.code == 0
    found = {one["name"] for one in events(output)} - {"clEnqueueReadBuffer"}
    ignored = {"clGetDeviceInfo", "clGetKernelArgInfo"} if "--errors" in options else set()
    assert found - ignored == expected
    done = traced(run_python, vendors, *options, "--print", *python(LAUNCHES))
    printed = {line.split("(")[0] for line in done.err.splitlines() if line.startswith("cl")}
    assert printed - ignored - {"clEnqueueReadBuffer"} == expected


def test_filters_of_calls_through_fairlead(run_python: RunPython, adapter: dict[str, str]) -> None:
    options = ["--print", "--apis", "ur", "--only", "urAdapter*"]
    done = traced(run_python, adapter, *options, *python(LIST, "0"))
    names = {line.split(" ", 1)[1].split("(")[0] for line in done.err.splitlines() if "---" in line}
    assert names and all(name.startswith("urAdapter") for name in names)


BROKEN = """
import pyopencl
context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
for source in ("kernel void good() {}", "kernel void bad() { nonsense; }"):
    try:
        pyopencl.Program(context, source).build(cache_dir=False)
    except pyopencl.RuntimeError:
        print("failed")
"""


def test_dump_writes_sources_and_build_logs(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "new/programs"
    options = ["--dump", str(folder), "-o", os.devnull]
    done = traced(run_python, vendors | {"PYOPENCL_NO_CACHE": "1"}, *options, *python(BROKEN))
    assert (done.code, done.out) == (0, "failed\n"), done.err
    files = {path.name.split("-")[1]: path.read_text() for path in folder.iterdir()}
    sources = {name: text for name, text in files.items() if name.endswith(".cl")}
    assert {"kernel void good() {}", "kernel void bad() { nonsense; }"} <= set(sources.values())
    bad = next(name for name, text in sources.items() if "bad" in text)
    assert "nonsense" in files[bad.replace(".cl", ".log")]


def test_dump_of_programs_of_the_reference_adapter(
    run_python: RunPython, wheel_drivers: dict[str, str], tmp_path: Path
) -> None:
    code = """
from fairlead.runtime import Program, Queue
Program(Queue(), "kernel void of_the_adapter() {}")
"""
    options = ["--dump", str(tmp_path / "programs"), "-o", os.devnull]
    done = traced(run_python, wheel_drivers, *options, *python(code))
    assert done.code == 0, done.err
    texts = [path.read_text() for path in (tmp_path / "programs").glob("*.cl")]
    assert "kernel void of_the_adapter() {}" in [text.strip() for text in texts]


def test_the_table_says_nothing_of_devices_that_did_nothing(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    code = "import pyopencl; pyopencl.get_platforms()"
    done = traced(run_python, vendors, "--device", "-o", str(tmp_path / "one"), *python(code))
    assert "clGetPlatformIDs" in done.err and "on the device" not in done.err


def test_a_process_whose_calls_are_left_out_counts(
    run_python: RunPython, vendors: dict[str, str], tmp_path: Path
) -> None:
    code = "import pyopencl; pyopencl.get_platforms()"
    options = ["--only", "clFinish", "-o", str(tmp_path / "one")]
    done = traced(run_python, vendors, *options, *python(code))
    assert "fairlead: 1 process traced" in done.err and "clGetPlatformIDs" not in done.err


def test_device_needs_a_file(run_python: RunPython) -> None:
    done = traced(run_python, {}, "--device", "--print", "true")
    assert done.code == 2 and "--perfetto, --html and --dump write files" in done.err


def test_a_command_without_calls(run_python: RunPython, tmp_path: Path) -> None:
    output = tmp_path / "calls.json"
    done = traced(
        run_python,
        {},
        "-o",
        str(output),
        *python("import sys; print(sys.stdin.read()); sys.exit(4)"),
    )
    assert (done.code, done.out, done.err) == (4, "\n", f"fairlead: {NOTHING}\n")
    assert not output.exists()


def test_without_calls_it_says_how_a_program_gets_our_loader(run_python: RunPython) -> None:
    done = traced(run_python, {}, *python(""))
    assert "fairlead trace -- fairlead run -- PROGRAM" in done.err


def test_a_trace_of_before_stays_where_there_is_no_new_one(
    run_python: RunPython, tmp_path: Path
) -> None:
    output = tmp_path / "calls.json"
    output.write_text("old")
    traced(run_python, {}, "-o", str(output), *python(""))
    assert output.read_text() == "old"


def test_options_after_the_command_are_the_commands(run_python: RunPython) -> None:
    done = traced(
        run_python,
        {},
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1:])",
        "-o",
        "x",
        "--print",
        "--",
    )
    assert done.out == "['-o', 'x', '--print', '--']\n"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("no-such-program", 127, "correct its name, or PATH"),
        ("/etc/passwd", 126, "name an executable program"),
    ],
)
def test_a_command_that_cannot_be_run(
    run_python: RunPython, command: str, code: int, words: str
) -> None:
    done = traced(run_python, {}, "--", command)
    assert (
        done.code == code
        and done.err.startswith(f"Error: {command} cannot be run: ")
        and words in done.err
    )


@pytest.mark.parametrize("option", ["-o", "--html", "--perfetto"])
def test_a_trace_that_cannot_be_written_is_said_before_the_command_runs(
    run_python: RunPython, tmp_path: Path, option: str
) -> None:
    place = str(tmp_path / "nowhere/calls")
    done = traced(run_python, {}, option, place, *python("print('ran')"))
    assert (done.code, done.out) == (1, "")
    assert f"the trace cannot be written to {place}" in done.err
    assert option in done.err.splitlines()[-1]


def test_wrong_options_are_exit_code_2(run_python: RunPython) -> None:
    for arguments in (
        ["--apis", "ur,opencl", "true"],
        ["--apis", ",", "true"],
        ["--perfetto", "a", "-o", "b", "true"],
        ["--perfetto", "a", "--print", "true"],
        [],
    ):
        assert traced(run_python, {}, *arguments).code == 2


@pytest.mark.parametrize(
    ("command", "option", "meant"), [("trace", "--prnt", "--print"), ("run", "--layer", "--layers")]
)
def test_an_option_with_a_wrong_name_is_no_command(
    run_python: RunPython, command: str, option: str, meant: str
) -> None:
    done = run_python(COMMAND, command, option, "--", "true", check=False)
    assert done.code == 2 and "No such option" in done.err and meant in done.err


# Signals


def test_a_signal_that_ends_the_command_is_its_exit_code(run_python: RunPython) -> None:
    done = traced(run_python, {}, "--", "sh", "-c", "kill -TERM $$")
    assert done.code == 128 + signal.SIGTERM and done.err.endswith(
        "The command was ended by SIGTERM.\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    """The command answers by its exit code; the pipe says when it is ready.

    No terminal is there to send an interrupt to both.
    """
    code = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [int(sys.argv[1])])
print("ready", flush=True)
os._exit(40 + signal.sigwait([int(sys.argv[1])]))
"""
    command = [sys.executable, "-c", COMMAND, "trace", *python(code, str(int(number)))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before = signal.signal(number, signal.SIG_DFL)  # nohup, for one, ignores SIGHUP
    try:
        child = subprocess.Popen(command, start_new_session=True, **pipes)
    finally:
        signal.signal(number, before)
    with child as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 40 + number, err


def test_an_interrupt_that_is_ignored_stays_ignored_for_the_command() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    command = [sys.executable, "-c", COMMAND, "trace", *python(code)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.stdout == "True\n"


def test_a_high_exit_code_is_no_signal(run_python: RunPython) -> None:
    done = traced(run_python, {}, "--", "sh", "-c", "exit 255")
    assert (done.code, done.err) == (255, f"fairlead: {NOTHING}\n")


# The parts


def test_the_variables_for_a_command(tmp_path: Path) -> None:
    given = {"OPENCL_LAYERS": "/lib/libtheirs.so"}
    added = make_environment(given, tmp_path, ("ur", "cl"), record=True, sycl=True)
    assert (added["FAIRLEAD_TRACE"], added["FAIRLEAD_TRACE_FILE"]) == (
        "ur,cl",
        f"{tmp_path}/%p.json",
    )
    assert (added["SYCL_UR_TRACE"], added["SYCL_PI_TRACE"]) == ("2", "2")
    assert added["OPENCL_LAYERS"].startswith("/lib/libtheirs.so:")
    live = make_environment(given, tmp_path, ("pi",), record=False, times=True)
    assert live == {"FAIRLEAD_TRACE": "pi,times", "FAIRLEAD_TRACE_FILE": ""}


@pytest.mark.parametrize("content", ["", "{", '{"traceEvents": ', "[]", "{}"])
def test_a_file_that_is_cut_off_is_left_out_with_a_warning(tmp_path: Path, content: str) -> None:
    event = {"ph": "X", "name": "urAdapterGet", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "args": {}}
    (tmp_path / "1.json").write_text(json.dumps({"traceEvents": [event]}))
    (tmp_path / "2.json").write_text(content)
    found = gather(tmp_path)
    assert (found.events, found.processes) == ([event], 1)
    assert found.warnings == ["the trace of process 2 is not complete, and left out"]


def call(
    name: str, start: int, end: int, result: str = "UR_RESULT_SUCCESS", pid: int = 1, tid: int = 1
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "ts": start,
        "dur": end - start,
        "pid": pid,
        "tid": tid,
        "args": {"result": result},
    }


def test_a_summary_counts_nested_calls_of_a_thread_once() -> None:
    calls = [
        call("piA", 0, 100, "PI_SUCCESS"),
        call("urB", 10, 40),
        call("clC", 20, 30, "CL_INVALID_VALUE"),
        call("urB", 50, 60, "UR_RESULT_ERROR_UNKNOWN"),
        call("clD", 5, 95, "nullptr", tid=2),
        call("clD", 5, 15, "0x1234", pid=2),
    ]
    rows = {row.name: tuple(row[1:]) for row in summarize_events(calls)}
    assert rows == {
        "piA": (1, 0, 100_000, 60_000),
        "clD": (2, 1, 100_000, 100_000),
        "urB": (2, 1, 40_000, 30_000),
        "clC": (1, 1, 10_000, 10_000),
    }


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.randoms(),
)
def test_a_summary_does_not_depend_on_the_order_of_the_files(
    spans: list[tuple[int, int, int]], random: Any
) -> None:
    calls = [call(f"f{start}", start, start + length, pid=pid) for pid, start, length in spans]
    shuffled = random.sample(calls, len(calls))
    assert sorted(row[:4] for row in summarize_events(calls)) == sorted(
        row[:4] for row in summarize_events(shuffled)
    )


def test_the_temporary_folder_is_gone_afterwards(
    run_python: RunPython, adapter: dict[str, str], tmp_path: Path
) -> None:
    done = traced(
        run_python, adapter | {"TMPDIR": str(tmp_path)}, "-o", os.devnull, *python(LIST, "0")
    )
    assert done.code == 0 and not list(tmp_path.glob("fairlead-trace-*"))
