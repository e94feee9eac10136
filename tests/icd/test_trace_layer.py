"""The OpenCL layer: programs that know nothing of fairlead leave their calls, and work as without
it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from helpers.support import FakeDriver, Output, RunPython
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd import trace_layer
from fairlead.icd.drivers import load
from fairlead.icd.trace_layer import Process, make_environment, read_processes
from fairlead.loader.base.search import Candidate
from fairlead.loader.trace.printing import TracedCall

#: Runs code in a child under the layer, with a driver and a loader. The result is what it printed,
#: and the files of its processes.
Traced: TypeAlias = Callable[..., tuple[Output, list[Process]]]

#: A program of PyOpenCL, which has its own loader. fairlead repairs the driver first, because PoCL
#: 3.0 builds nothing on a new CPU otherwise.
PYOPENCL = """
from fairlead.icd.drivers import platforms

platforms()
import numpy, pyopencl, warnings

warnings.simplefilter("ignore")
(device,) = pyopencl.get_platforms()[0].get_devices()
context = pyopencl.Context([device])
queue = pyopencl.CommandQueue(context)
program = pyopencl.Program(
    context, "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }"
).build()
buffer = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(5, dtype=numpy.int32)
)
program.twice(queue, (5,), None, buffer)
result = numpy.empty(5, numpy.int32)
pyopencl.enqueue_copy(queue, result, buffer)
print(device.name, result.tolist())
"""

#: A program that calls OpenCL through the loader that is its first argument.
PLAIN = """
import ctypes, os, subprocess, sys
opencl = ctypes.CDLL(sys.argv[1])
def name_of_platform():
    platform, text = ctypes.c_void_p(), ctypes.create_string_buffer(100)
    assert opencl.clGetPlatformIDs(1, ctypes.byref(platform), None) == 0
    assert opencl.clGetPlatformInfo(platform, 0x0902, ctypes.c_size_t(100), text, None) == 0
    return text.value.decode()
print(name_of_platform())
"""
PLAIN_CALLS = ["clGetPlatformIDs", "clGetPlatformInfo"]


@pytest.fixture(
    params=["lib/libOpenCL.so.1", "pyopencl/.libs/libOpenCL-*"], ids=["Khronos", "ocl-icd"]
)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The OpenCL loaders of the test extra: Khronos' loader in Intel's wheel, and ocl-icd in
    PyOpenCL's."""
    (path,) = (
        path for folder in (sys.prefix, *sys.path) for path in Path(folder).glob(request.param)
    )
    monkeypatch.setenv(
        "LD_LIBRARY_PATH", f"{sys.prefix}/lib"
    )  # the one needs libraries that lie beside it
    monkeypatch.setenv("PYOPENCL_HOME", str(path.parent.parent))  # the other crashes without it…
    monkeypatch.setenv(
        "OCL_ICD_ASSUME_ICD_EXTENSION", "1"
    )  # … and refuses the fake driver, which does not export enough
    return path


@pytest.fixture
def traced(run_python: RunPython, tmp_path: Path) -> Traced:
    """`traced(code, library, *arguments, env, check)`: see Traced."""

    def run(
        code: str,
        library: str | Path,
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        check: bool = True,
    ) -> tuple[Output, list[Process]]:
        vendors, folder = tmp_path / "vendors", tmp_path / "traces"
        vendors.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        (vendors / "one.icd").write_text(f"{library}\n", encoding="utf-8")
        environ = {"OCL_ICD_VENDORS": str(vendors), **make_environment({}, folder), **(env or {})}
        return run_python(code, *map(str, arguments), env=environ, check=check), read_processes(
            folder
        )

    return run


def names(calls: list[TracedCall]) -> list[str]:
    return [call.name for call in calls]


def argument(calls: list[TracedCall], function: str, parameter: str) -> str:
    """What the first call of a function was given for a parameter."""
    return dict(next(call for call in calls if call.name == function).format_arguments())[parameter]


@pytest.mark.parametrize(
    "driver",
    [pytest.param(name, marks=pytest.mark.driver(name)) for name in ("pocl_wheel", "intel_cpu")],
)
def test_a_pyopencl_program_leaves_its_calls(
    request: pytest.FixtureRequest, traced: Traced, driver: str
) -> None:
    candidate: Candidate = request.getfixturevalue(driver)
    loaded = load(candidate)
    if "pocl-generic-cpu" in loaded.quirks:
        pytest.skip(
            "this CPU is newer than the PoCL wheel's compiler: unrepaired, it builds nothing"
        )
    library = loaded.path
    without, left = traced(PYOPENCL, library, env={"OPENCL_LAYERS": ""})
    assert without.out.endswith("[0, 2, 4, 6, 8]\n") and not left
    output, (process,) = traced(PYOPENCL, library)
    calls = process.calls
    assert output.out == without.out and process.name.startswith("python") and process.lost == 0
    wanted = [
        "clGetPlatformIDs",
        "clCreateContext",
        "clBuildProgram",
        "clEnqueueNDRangeKernel",
        "clEnqueueReadBuffer",
    ]
    assert [name for name in dict.fromkeys(names(calls)) if name in wanted] == wanted
    assert argument(calls, "clCreateKernel", "kernel_name") == '"twice"'
    assert argument(calls, "clCreateBuffer", "size") == "20"
    assert argument(calls, "clCreateBuffer", "flags") == "CL_MEM_COPY_HOST_PTR"
    assert argument(calls, "clEnqueueNDRangeKernel", "global_work_size").endswith("{5}")
    assert {call.result_text for call in calls if call.name.startswith("clEnqueue")} == {
        "CL_SUCCESS"
    }
    (kernel,) = {call.result for call in calls if call.name == "clCreateKernel"}
    assert argument(calls, "clEnqueueNDRangeKernel", "kernel") == f"{kernel:#x}"
    assert {call.thread for call in calls} == {process.pid}, (
        "Linux numbers the first thread of a process like the process"
    )
    assert process.begin <= calls[0].begin and all(call.begin <= call.end for call in calls)
    assert [call.begin for call in calls] == sorted(call.begin for call in calls)


def test_every_loader(traced: Traced, fake_driver: FakeDriver, loader: Path) -> None:
    output, (process,) = traced(PLAIN, fake_driver(), loader)
    assert names(process.calls) == PLAIN_CALLS
    assert argument(process.calls, "clGetPlatformInfo", "param_value").endswith(
        f'("{output.out.strip()}")'
    )
    assert process.time > process.begin > 0


def test_each_process_leaves_its_own(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    again = (
        "\nif len(sys.argv) == 2: subprocess.run([sys.executable, '-c', sys.argv[0], "
        "*sys.argv[1:], 'child'], check=True)"
    )
    code = PLAIN + again.replace("sys.argv[0]", repr(PLAIN))
    _, (parent, child) = traced(code, fake_driver(), loader)
    assert child.parent == parent.pid != child.pid
    assert names(parent.calls) == names(child.calls) == PLAIN_CALLS
    assert parent.calls[-1].end < child.begin, "they have one clock"


def test_a_forked_child_leaves_its_own(
    traced: Traced, fake_driver: FakeDriver, loader: Path
) -> None:
    code = f"""{PLAIN}
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
name_of_platform()
if not child:
    name_of_platform()
"""
    _, (parent, child) = traced(code, fake_driver(), loader)
    assert child.parent == parent.pid
    assert names(parent.calls) == 2 * PLAIN_CALLS and names(child.calls) == 2 * PLAIN_CALLS
    assert {call.thread for call in parent.calls} == {parent.pid} and {
        call.thread for call in child.calls
    } == {child.pid}
    assert parent.calls[1].end <= child.begin <= child.calls[0].begin


def test_a_forked_child_that_calls_nothing_leaves_nothing(
    traced: Traced, fake_driver: FakeDriver, loader: Path
) -> None:
    code = f"{PLAIN}\nif child := os.fork(): assert os.waitpid(child, 0)[1] == 0"
    _, (process,) = traced(code, fake_driver(), loader)
    assert names(process.calls) == PLAIN_CALLS


def test_without_the_variable_nothing_is_written(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    code = PLAIN + "\nprint('libfairlead_trace' in open('/proc/self/maps').read())"
    output, left = traced(code, fake_driver(), loader, env={"FAIRLEAD_TRACE_LOG": ""})
    assert output.out.endswith("True\n"), "the layer was loaded all the same"
    assert not left and not list((tmp_path / "traces").iterdir())


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 9)", -9),
        ("ctypes.string_at(8)", -11),
        ("os.execv('/bin/true', ['true'])", 0),
    ],
    ids=["_exit", "SIGKILL", "SIGSEGV", "exec"],
)
def test_a_process_that_ends_early_has_written_its_calls(
    traced: Traced, fake_driver: FakeDriver, loader: Path, end: str, code: int
) -> None:
    program = f"{PLAIN}\nfor _ in range(2000): name_of_platform()\nsys.stdout.flush(); {end}"
    output, (process,) = traced(program, fake_driver(), loader, check=False)
    assert output.code == code
    assert names(process.calls) == 2001 * PLAIN_CALLS  # more than one chunk


def test_each_program_of_a_process_leaves_its_own(
    traced: Traced, fake_driver: FakeDriver, loader: Path
) -> None:
    again = (
        "if len(sys.argv) == 2: os.execv(sys.executable, [sys.executable, '-c', "
        f"{PLAIN!r}, *sys.argv[1:], 'again'])"
    )
    _, (first, second) = traced(f"{PLAIN}\n{again}", fake_driver(), loader)
    assert first.pid == second.pid and first.calls[-1].end < second.begin
    assert names(first.calls) == names(second.calls) == PLAIN_CALLS


def test_a_name_without_the_process_is_that_of_the_last_program(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    """Another process has mapped the file that had the name before."""
    code = (
        f"{PLAIN}\nif child := os.fork(): assert os.waitpid(child, 0)[1] == 0\nname_of_platform()"
    )
    traced(code, fake_driver(), loader, env={"FAIRLEAD_TRACE_LOG": f"{tmp_path}/only.cllog"})
    (process,) = read_processes(tmp_path)
    assert names(process.calls) == PLAIN_CALLS  # those of the child


def test_a_later_program_s_file_is_left_alone(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    """The parent would write its next chunk where the child's is."""
    code = f"""{PLAIN}
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
for _ in range(2000 if child else 1000):
    name_of_platform()
"""
    output, _ = traced(
        code, fake_driver(), loader, env={"FAIRLEAD_TRACE_LOG": f"{tmp_path}/only.cllog"}
    )
    (process,) = read_processes(tmp_path)
    assert names(process.calls) == 1000 * PLAIN_CALLS and process.lost == 0
    assert {call.thread for call in process.calls} == {process.pid}, "they are all the child's"
    assert "are lost from now on" in output.err


def test_a_file_that_cannot_be_written_is_told_of(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    output, _ = traced(
        PLAIN, fake_driver(), loader, env={"FAIRLEAD_TRACE_LOG": f"{tmp_path}/none/x"}
    )
    assert f"{tmp_path}/none/x cannot be written: No such file or directory" in output.err


def test_the_file_is_named_where_the_program_began(
    traced: Traced, fake_driver: FakeDriver, loader: Path, tmp_path: Path
) -> None:
    code = f"import os, sys; os.chdir(sys.argv[2]); os.mkdir('later')\n{PLAIN}\nos.chdir('later')"
    traced(code, fake_driver(), loader, tmp_path, env={"FAIRLEAD_TRACE_LOG": "%p and %p.cllog"})
    (process,) = read_processes(tmp_path)
    assert (tmp_path / f"{process.pid} and {process.pid}.cllog").exists()


def test_fairlead_and_the_layer_in_one_process(
    traced: Traced, fake_driver: FakeDriver, loader: Path
) -> None:
    """They are made of the same thunks; each sees its own calls."""
    code = f"""{PLAIN}
from fairlead.icd.drivers import load
from fairlead.loader.base.search import Candidate
from fairlead.loader.trace.trace import trace
with trace(["cl"]) as ours:
    (platform,) = load(Candidate(sys.argv[2], "test")).platforms
    platform.info("CL_PLATFORM_VENDOR")
    before = len(ours.calls)
    name_of_platform()
print(before, len(ours.calls), before > 0)
"""
    library = fake_driver()
    output, (process,) = traced(code, library, loader, library)
    before, after, some = output.out.splitlines()[-1].split()
    assert before == after and some == "True"
    assert names(process.calls) == 2 * PLAIN_CALLS


#: Puts the layer in front of a table of its own, without a loader.
TABLE = """
import ctypes, sys, threading

layer = ctypes.CDLL(sys.argv[1])
Platforms = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
Devices = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
platforms = Platforms(lambda count, *rest: 100 + count)
devices = Devices(lambda *rest: at(0, Platforms)(8, None, None))  # a driver that calls back


def init(entries, call=layer.clInitLayer, *more):
    target = (ctypes.c_void_p * len(entries))(*entries)
    kept.append(target)
    count, table = ctypes.c_uint32(), ctypes.POINTER(ctypes.c_void_p)()
    code = call(len(entries), target, ctypes.byref(count), ctypes.byref(table), *more)
    return code, count.value, table


kept = []


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def at(slot, kind):
    return kind(table[slot])


code, count, table = init([address(platforms), None, address(devices)])
assert (code, count) == (0, 3)
"""


def test_a_table_with_fewer_entries(traced: Traced) -> None:
    code = f"""{TABLE}
assert at(0, Platforms)(7, None, None) == 107
Info = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
assert at(1, Info)(None, 1, 2, None, None) == -59  # NULL in the table
Finish = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
assert at(int(sys.argv[2]), Finish)(None) == -59  # behind its end
assert all(table[slot] for slot in range(150))
"""
    slot = trace_layer.OPENCL.functions["clFinish"].slot
    _, (process,) = traced(code, "none", trace_layer.find_library(), str(slot))
    assert names(process.calls) == ["clGetPlatformIDs", "clGetPlatformInfo", "clFinish"]
    assert [call.result_text for call in process.calls[1:]] == 2 * ["CL_INVALID_OPERATION"]


def test_a_driver_that_calls_back_and_many_threads(traced: Traced) -> None:
    code = f"""{TABLE}
def work():
    for _ in range(100):
        assert at(2, Devices)(None, 1, 2, None, None) == 108
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    _, (process,) = traced(code, "none", trace_layer.find_library())
    per_thread: dict[int, list[TracedCall]] = {}
    for call in process.calls:
        per_thread.setdefault(call.thread, []).append(call)
    assert sum(map(len, per_thread.values())) == 800 and process.pid not in per_thread
    for calls in per_thread.values():
        for outer, inner in zip(calls[::2], calls[1::2], strict=True):
            assert (outer.name, inner.name) == ("clGetDeviceIDs", "clGetPlatformIDs")
            assert (
                outer.begin <= inner.begin <= inner.end <= outer.end
                and outer.result == inner.result == 108
            )


def test_layers_for_several_loaders(traced: Traced) -> None:
    """16 at most; then the loader is told that there is none, and goes on without."""
    code = f"""{TABLE}
entries = [address(platforms)]
tables = [table, *(init(entries)[2] for _ in range(15))]
assert len({{table[0] for table in tables}}) == 16
assert init(entries)[0] == -6
for table in tables: at(0, Platforms)(1, None, None)
"""
    _, (process,) = traced(code, "none", trace_layer.find_library())
    assert names(process.calls) == 16 * ["clGetPlatformIDs"]


def test_two_layers_in_a_row_release_each_event_once(traced: Traced) -> None:
    """Also what each shows of a queue's properties is what it was given."""
    used = "clCreateCommandQueue", "clEnqueueNDRangeKernel", "clRetainEvent", "clReleaseEvent"
    code = f"""{TABLE}
P, U, S = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t
create, launch, retain, release = map(int, sys.argv[2:])
counts = []
Count = ctypes.CFUNCTYPE(ctypes.c_int32, P)
Create = ctypes.CFUNCTYPE(P, P, P, ctypes.c_uint64, P)
Launch = ctypes.CFUNCTYPE(ctypes.c_int32, P, P, U, P, P, P, U, P, P)

@Create
def new_queue(context, device, properties, code):
    assert properties == 2
    return 16

@Launch
def new_event(*arguments):
    ctypes.cast(arguments[-1], ctypes.POINTER(P))[0] = 32
    counts.append(1)
    return 0

@Count
def retained(event):
    counts.append(1)
    return 0

@Count
def released(event):
    counts.append(-1)
    return 0

functions = {{create: new_queue, launch: new_event, retain: retained, release: released}}
fails = Count(lambda event: -1)
entries = [address(functions.get(slot, fails)) for slot in range(150)]
inner = init(entries)[2]
table = init([inner[slot] for slot in range(150)])[2]
assert at(create, Create)(None, 1, 0, None) == 16
assert at(launch, Launch)(16, 1, 1, None, None, None, 0, None, None) == 0
assert sum(counts) == 0, counts
"""
    slots = (str(trace_layer.OPENCL.functions[name].slot) for name in used)
    _, (process,) = traced(
        code, "none", trace_layer.find_library(), *slots, env={"FAIRLEAD_TRACE_DEVICE": "1"}
    )
    properties = argument(process.calls, "clCreateCommandQueue", "properties")
    assert "PROFILING" not in properties


def test_how_it_answers_a_loader(traced: Traced) -> None:
    code = f"""{TABLE}
properties = (ctypes.c_uint64 * 3)(0)
assert init([address(platforms)], layer.clInitLayerWithProperties, None)[0] == 0
assert init([address(platforms)], layer.clInitLayerWithProperties, properties)[0] == 0
properties[0] = 1
assert init([address(platforms)], layer.clInitLayerWithProperties, properties)[0] == -64
assert init([])[0] == -30 and layer.clInitLayer(1, None, None, None) == -30
number, text, size = ctypes.c_uint32(), ctypes.create_string_buffer(50), ctypes.c_size_t()


def info(name, room, into):
    place = None if into is None else ctypes.byref(into)
    return layer.clGetLayerInfo(name, ctypes.c_size_t(room), place, ctypes.byref(size)), size.value


assert info(0x4240, 4, number) == (0, 4) and number.value == 100
assert (
    info(0x4241, 0, None) == (0, 15)
    and info(0x4241, 50, text) == (0, 15)
    and text.value == b"fairlead trace"
)
assert info(0x4241, 14, text)[0] == info(0x4242, 4, number)[0] == -30
at(0, Platforms)(1, None, None)
assert layer.clDeinitLayer() == 0
at(0, Platforms)(2, None, None)
"""
    _, (process,) = traced(code, "none", trace_layer.find_library())
    assert [call.result for call in process.calls] == [101, 102], (
        "also what came after the loader gave it up"
    )


def test_the_variables(tmp_path: Path) -> None:
    ours = str(trace_layer.find_library())
    log = {"FAIRLEAD_TRACE_LOG": f"{tmp_path.resolve()}/%p.cllog"}
    assert make_environment({}, tmp_path) == {"OPENCL_LAYERS": ours, **log}
    assert make_environment({"OPENCL_LAYERS": f"/one.so:{ours}::two.so"}, tmp_path) == {
        "OPENCL_LAYERS": f"/one.so:two.so:{ours}",
        **log,
    }


def test_the_library_needs_no_python_and_shows_four_functions() -> None:
    with trace_layer.find_library().open("rb") as file:
        elf = ELFFile(file)
        dynamic, symbols = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".dynsym")
        assert isinstance(dynamic, DynamicSection) and isinstance(symbols, SymbolTableSection)
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]  # pyright: ignore[reportAttributeAccessIssue]
        shown = {
            s.name
            for s in symbols.iter_symbols()
            if s["st_info"]["bind"] == "STB_GLOBAL" and s["st_shndx"] != "SHN_UNDEF"
        }
    assert not [name for name in needed if "python" in name]
    assert shown == {"clGetLayerInfo", "clInitLayer", "clInitLayerWithProperties", "clDeinitLayer"}


@pytest.fixture(scope="module")
def log_of_a_program(run_python: RunPython, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("log")
    code = f"{TABLE}\nfor _ in range(3): at(2, Devices)(None, 1, 0, None, None)"
    run_python(code, str(trace_layer.find_library()), env=make_environment({}, folder))
    (file,) = folder.iterdir()
    return file.read_bytes()


@given(data=st.data())
def test_a_damaged_file_does_no_harm(log_of_a_program: bytes, data: st.DataObject) -> None:
    damaged = bytearray(log_of_a_program)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(damaged) + 8))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "1.cllog").write_bytes(
            bytes(damaged[:end]) + bytes(max(end - len(damaged), 0))
        )
        for calls in (process.calls for process in read_processes(Path(folder))):
            assert all(str(call) for call in calls)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-8], "it is cut off"),
        (lambda data: data[:4000], "it is cut off"),
        (lambda data: data[:4096] + bytes([1]) + data[4097:], "word 0 begins no record"),
        (lambda data: data[:20], "it is not a log of OpenCL calls"),
        (lambda data: b"something else", "it is not a log of OpenCL calls"),
        (lambda data: data[:8] + b"\x63" + data[9:], "another version of fairlead"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_of(
    log_of_a_program: bytes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[bytes], bytes],
    reason: str,
) -> None:
    (tmp_path / "1.cllog").write_bytes(log_of_a_program)
    (tmp_path / "2.cllog").write_bytes(change(log_of_a_program))
    os.mkdir(tmp_path / "3.cllog")
    (process,) = read_processes(tmp_path)
    assert len(process.calls) == 6
    error = capsys.readouterr().err
    assert (
        f"{tmp_path}/2.cllog is left out of the trace: {reason}" in error
        and "3.cllog is left out" in error
    )
