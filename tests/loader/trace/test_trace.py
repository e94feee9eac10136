"""Traces: every call is seen, none is changed, and afterwards the tables are as they were.

A process has 16 layers of an API for good, so each test traces in a child process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.support import Output, RunPython

pytestmark = pytest.mark.slow

#: An adapter of a few functions; all its other slots answer UNSUPPORTED_FEATURE.
SOURCE = r"""
#include <stdint.h>
#include <string.h>
#define FAKE __attribute__((visibility("default")))

FAKE int32_t urAdapterGet(uint32_t entries, uint64_t *adapters, uint32_t *count) {
    if (adapters && entries)
        adapters[0] = 0xAD;
    if (count)
        *count = 1;
    return 0;
}

FAKE int32_t urDeviceGetInfo(uint64_t device, uint32_t name, uint64_t size, char *value, uint64_t
    *size_ret) {
    if (value && size > 4)
        memcpy(value, "Fake", 5);
    if (size_ret)
        *size_ret = 5;
    return device ? 0 : 4;
}

/* Answers with its arguments, and follows none of them. */
FAKE int32_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    uint64_t sum = a * 3 + b * 5 + c * 7 + d * 11 + e * 13;
    return (int32_t)(sum ^ sum >> 32);
}
"""

#: The beginning of every child: `ur`, `pi` and `cl` are tables, `out` an unsigned int and `name`
#: room for text.
PRELUDE = """
import ctypes, json, sys, threading
from fairlead.icd import tables
from fairlead.icd.abi import OPENCL
from fairlead.loader.base import layers
from fairlead.loader.pi.abi import PI
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR

fake = ctypes.CDLL(sys.argv[1])
kept = []

def table(api, label="", **functions):
    slots = layers.make_stubs(api, "unsupported")
    for function, body in functions.items():
        slots[api.functions[function].slot] = ctypes.cast(body, ctypes.c_void_p).value
    kept.append(((ctypes.c_void_p * len(slots))(*slots), functions))
    return DispatchTable(api, ctypes.addressof(kept[-1][0]), label)

def adapter(label="fake"):
    return table(UR, label, urAdapterGet=fake.urAdapterGet, urDeviceGetInfo=fake.urDeviceGetInfo)

ur, pi, cl = adapter(), table(PI, "plugin"), table(OPENCL, "driver")
out, name = ctypes.c_uint32(), ctypes.create_string_buffer(64)
from fairlead.loader.trace.trace import trace
"""

Child = Callable[..., Output]


@pytest.fixture(scope="module")
def library(compile_c: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    (folder / "adapter.c").write_text(SOURCE)
    return compile_c(folder / "adapter.c", folder / "libadapter.so", "-Wno-unused-parameter")


@pytest.fixture
def child(library: Path, run_python: RunPython) -> Child:
    """Runs the prelude and some code: `child(code, NAME="value")` with variables of the
    environment."""

    def run(code: str, *arguments: str, **environ: str) -> Output:
        return run_python(PRELUDE + code, str(library), *arguments, env=environ)

    return run


def test_a_block_keeps_the_calls_of_all_apis_in_their_order(child: Child) -> None:
    done = child("""
with trace() as found:
    assert ur.urAdapterGet(0, None, ctypes.byref(out)) == 0
    assert pi.piContextRetain(1) != 0
    cl.clFinish(0x10)
    assert len(found.calls) == 3, "readable inside the block"
    assert ur.urDeviceGetInfo(1, UR["UR_DEVICE_INFO_NAME"], 64, name, None) == 0
ur.urAdapterGet(0, None, None)
for call in found.calls:
    print(call.label, call)
assert found.lost == 0 and [c.thread for c in found.calls] == [threading.get_native_id()] * 4
assert all(a.end <= b.begin for a, b in zip(found.calls, found.calls[1:]))
""")
    lines = re.sub("0x[0-9a-f]{3,}", "0x..", done.out).splitlines()
    assert lines == [
        "fake urAdapterGet(.NumEntries = 0, .phAdapters = nullptr, .pNumAdapters = 0x.. (1)) -> "
        "UR_RESULT_SUCCESS;",
        "plugin piContextRetain(.context = 0x1) -> PI_ERROR_UNSUPPORTED_FEATURE;",
        "driver clFinish(.command_queue = 0x10) -> CL_INVALID_OPERATION;",
        "fake urDeviceGetInfo(.hDevice = 0x1, .propName = UR_DEVICE_INFO_NAME, "
        '.propSize = 64, .pPropValue = 0x.. ("Fake"), '
        ".pPropSizeRet = nullptr) -> UR_RESULT_SUCCESS;",
    ]


def test_after_the_block_the_tables_are_as_before(child: Child) -> None:
    child("""
def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value
own = address(ur.urAdapterGet)
try:
    with trace():
        assert len(ur.layers) == 1 and address(ur.urAdapterGet) != own
        raise KeyError
except KeyError:
    pass
assert ur.layers == () and pi.layers == () and cl.layers == ()
assert address(ur.urAdapterGet) == own == ur.get_pointer(UR.functions["urAdapterGet"].slot)
""")


def test_a_table_made_in_the_block_is_traced_too(child: Child) -> None:
    child("""
with trace(("ur",)) as found:
    late = adapter("late")
    late.urAdapterGet(0, None, None)
    assert pi.layers == (), "only what was asked for"
assert [(c.name, c.label) for c in found.calls] == [("urAdapterGet", "late")] and late.layers == ()
assert adapter().layers == ()
""")


def test_blocks_nest_and_repeat_without_using_up_the_layers(child: Child) -> None:
    child("""
for _ in range(40):
    with trace() as outer:
        ur.urAdapterRetain(1)
        with trace(("ur",)) as inner:
            ur.urAdapterGet(0, None, None)
        ur.urAdapterRelease(1)
    assert [c.name for c in outer.calls] == ["urAdapterRetain", "urAdapterGet", "urAdapterRelease"]
    assert [c.name for c in inner.calls] == ["urAdapterGet"] and ur.layers == ()
""")


def test_an_outer_block_may_end_first(child: Child) -> None:
    child("""
outer, inner = trace(), trace()
first, second = outer.__enter__(), inner.__enter__()
outer.__exit__(None, None, None)
ur.urAdapterGet(0, None, None)
inner.__exit__(None, None, None)
ur.urAdapterRetain(1)
assert first.calls == [] and [c.name for c in second.calls] == ["urAdapterGet"] and ur.layers == ()
""")


def test_a_function_kept_from_the_block_still_works_afterwards(child: Child) -> None:
    child("""
with trace() as found:
    kept_function = ur.urAdapterGet
assert kept_function(0, None, ctypes.byref(out)) == 0 and out.value == 1 and found.calls == []
""")


def test_calls_of_several_threads_are_all_kept(child: Child) -> None:
    child("""
def work():
    for number in range(500):
        ur.urDeviceGetInfo(1, UR["UR_DEVICE_INFO_NAME"], 64, name, None)
        if number % 100 == 0:
            found.calls
with trace(("ur",)) as found:
    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert len(found.calls) == 2000 and len({c.thread for c in found.calls}) == 4 and found.lost == 0
assert {dict(c.format_arguments())["pPropValue"].split()[1] for c in found.calls} == {'("Fake")'}
""")


def test_threads_may_call_while_blocks_begin_and_end(child: Child) -> None:
    child("""
stop = threading.Event()
wrong = []
def work():
    while not stop.is_set():
        if ur.urAdapterGet(0, None, None) or ur.urDeviceGetInfo(0, 0, 0, None, None) != 4:
            wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
seen = 0
for _ in range(200):
    with trace(("ur",)) as found:
        ur.urAdapterRetain(1)
    seen += "urAdapterRetain" in [c.name for c in found.calls]
stop.set()
for thread in threads: thread.join()
assert seen == 200 and not wrong and ur.layers == ()
with trace(("ur",)) as found:
    ur.urAdapterGet(0, None, None)
assert [c.name for c in found.calls] == ["urAdapterGet"]
""")


def test_what_does_not_fit_is_counted(child: Child) -> None:
    child("""
with trace(limit=1000) as found:
    for _ in range(100):
        ur.urAdapterGet(0, None, None)
assert 0 < len(found.calls) < 100 and found.lost == 100 - len(found.calls)
""")


def test_the_summary_tells_total_and_self_times(child: Child) -> None:
    done = child("""
outer = UR.functions["urQueueFinish"].prototype(
    lambda queue: ur.urAdapterGet(0, None, None) or ur.urAdapterRetain(1)
)
ur = table(UR, urAdapterGet=fake.urAdapterGet, urQueueFinish=outer)
with trace() as found:
    ur.urQueueFinish(1)
    ur.urAdapterGet(0, None, None)
calls = {c.name: c for c in found.calls}
assert [c.name for c in found.calls] == [
    "urQueueFinish",
    "urAdapterGet",
    "urAdapterRetain",
    "urAdapterGet",
]
rows = {row.name: row for row in found.summary()}
gets = [c for c in found.calls if c.name == "urAdapterGet"]
assert rows["urAdapterGet"][1:] == (
    2,
    0,
    sum(c.duration for c in gets),
    sum(c.duration for c in gets),
)
assert rows["urAdapterRetain"][1:3] == (1, 1)
finish = rows["urQueueFinish"]
assert finish.failed == 1 and finish.total_ns == calls["urQueueFinish"].duration
assert finish.self_ns == finish.total_ns - gets[0].duration - calls["urAdapterRetain"].duration
assert list(found.summary()) == sorted(found.summary(), key=lambda row: -row.total_ns)
print(found.summary())
""")
    lines = done.out.splitlines()
    assert lines[0].split() == ["function", "calls", "failed", "total", "us", "self", "us"]
    assert (
        len(lines) == 4
        and len({len(text) for text in lines}) == 1
        and lines[1].startswith("urQueueFinish")
    )


def test_a_notebook_shows_the_functions(child: Child) -> None:
    code = """
with trace() as found:
    ur.urDeviceGetInfo(1, UR["UR_DEVICE_INFO_NAME"], 64, name, None)
    cl.clFinish(0x10)
print(found._repr_html_())
"""
    page = child(code).out
    assert "<td>clFinish</td><td>1</td><td>1</td>" in page and "<th>total µs</th>" in page
    assert "on the devices" not in page  # which did nothing


def test_a_notebook_says_that_a_trace_has_no_calls(child: Child) -> None:
    code = "with trace() as found: pass\nprint(found._repr_html_())"
    assert "<p>No call was traced." in child(code).out


def test_a_saved_trace_is_chrome_json(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    code = """
with trace() as found:
    ur.urDeviceGetInfo(1, UR["UR_DEVICE_INFO_NAME"], 64, name, None)
    cl.clFinish(0x10)
    thread = threading.Thread(
        target=lambda: (pi.piContextRetain(1), found._name_threads()), name="worker"
    )
    thread.start()
    thread.join()
found.save(sys.argv[2])
print(threading.get_native_id(), found.calls[0].begin, found.calls[0].duration)
"""
    tid, begin, length = map(int, child(code, str(path)).out.split())
    events = json.loads(path.read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X"]
    assert [(event["name"], event["cat"]) for event in calls] == [
        ("urDeviceGetInfo", "ur"),
        ("clFinish", "cl"),
        ("piContextRetain", "pi"),
    ]
    first = calls[0]
    assert (first["tid"], first["ts"], first["dur"]) == (tid, begin / 1000, length / 1000)
    assert first["args"]["propName"] == "UR_DEVICE_INFO_NAME" and first["args"][
        "pPropValue"
    ].endswith('("Fake")')
    assert first["args"]["result"] == "UR_RESULT_SUCCESS" and first["args"]["table"] == "fake"
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert names[tid] == "MainThread" and "worker" in names.values()
    assert [event["pid"] for event in events if event["name"] == "process_name"] == [first["pid"]]


def test_the_only_thread_of_a_forked_process_has_its_name(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    child(
        """
import os
if os.fork() == 0:
    with trace() as found:
        ur.urDeviceGetInfo(1, UR["UR_DEVICE_INFO_NAME"], 64, name, None)
    found.save(sys.argv[2])
    os._exit(0)
os.wait()
""",
        str(path),
    )
    events = json.loads(path.read_text())["traceEvents"]
    (call,) = [event for event in events if event["ph"] == "X"]
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert names[call["tid"]] == "MainThread"


def test_an_unknown_api_is_an_error_with_a_remedy(child: Child) -> None:
    done = child("""
from fairlead.loader.base.errors import FairleadError
try:
    with trace(("ur", "sycl")): pass
except FairleadError as error:
    print(error)
""")
    assert "'sycl'" in done.out and "choose from ur, pi, cl" in done.out


@pytest.mark.parametrize("wrong", ["True", "None", "3", "[1]", "[[]]"])
def test_what_is_no_list_of_apis_is_the_same_error(child: Child, wrong: str) -> None:
    done = child(f"""
from fairlead.loader.base.errors import FairleadError
try:
    with trace({wrong}): pass
except FairleadError as error:
    print(error)
""")
    assert "is not an API that can be traced" in done.out and "choose from ur, pi, cl" in done.out


def test_more_tables_than_layers_is_an_error_that_leaves_nothing_behind(child: Child) -> None:
    done = child("""
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.trace.pictures import is_wanted
with trace(("ur",)) as found:
    adapters = [adapter(f"adapter {n}") for n in range(16)]
    assert [a.urAdapterGet(0, None, None) for a in adapters] == [0] * 16
assert len(found.calls) == 15
try:
    with trace(("ur",)): pass
except FairleadError as error:
    print(error.message)
assert not any(a.layers for a in [ur, *adapters])
assert not is_wanted()
""")
    assert done.err.count("\n") == 1 and "adapter 15" in done.err and "not traced" in done.err
    assert "16" in done.out


def test_two_table_objects_at_one_address_share_a_layer(child: Child) -> None:
    child("""
others = [DispatchTable(UR, ur.address, "fake") for _ in range(40)]
with trace(("ur",)) as found:
    for other in others:
        other.urAdapterGet(0, None, None)
assert len(found.calls) == 40
""")


def test_a_string_at_the_end_of_memory_is_read_whole(child: Child) -> None:
    child("""
import mmap

libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long],
)
page = mmap.PAGESIZE
here = libc.mmap(None, 2 * page, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
assert libc.mprotect(ctypes.c_void_p(here + page), page, 0) == 0
ctypes.memmove(here + page - 3, b"ab", 3)
call = UR.functions["urProgramBuild"].prototype
with trace(("ur",)) as found:
    fn = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(
        ctypes.cast(ur.urProgramBuild, ctypes.c_void_p).value
    )
    fn(1, 2, here + page - 3)
    fn(1, 2, here + page)
assert [dict(c.format_arguments())["pOptions"] for c in found.calls] == ['"ab"', hex(here + page)]
""")


def test_tracing_never_changes_a_result_and_survives_every_pointer(child: Child) -> None:
    child("""
from hypothesis import HealthCheck, given, settings, strategies as st

words = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 300),
    st.integers(-64, 64).map(lambda n: n + ctypes.addressof(name)),
)
shapes = [
    "urDeviceGetInfo",
    "urProgramGetGlobalVariablePointer",
    "urKernelGetGroupInfo",
    "urEventCreateWithNativeHandle",
    "urProgramCreateWithIL",
    "urContextCreate",
]
mixed = table(UR, **{function: fake.mix for function in shapes})


def raw(function):
    pointer = ctypes.cast(getattr(mixed, function), ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(
        ctypes.c_int32, *[ctypes.c_uint64] * len(UR.functions[function].parameters)
    )(pointer)


def widened(function, given):
    return [
        g & 0xFFFFFFFF if UR.make_ctype(p.type, p.stars) is ctypes.c_uint32 else g
        for g, p in zip(given, UR.functions[function].parameters)
    ]


@settings(
    max_examples=400,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.sampled_from(shapes), st.lists(words, min_size=6, max_size=6))
def check(function, given):
    given = widened(function, given)[: len(UR.functions[function].parameters)]
    plain = raw(function)(*given)
    before = len(found.calls)
    with trace(("ur",)) as inner:
        assert raw(function)(*given) == plain
    assert [c.arguments for c in inner.calls] == [tuple(given)], inner.calls
    assert inner.calls[0].result & 0xFFFFFFFF == plain & 0xFFFFFFFF and function in str(
        inner.calls[0]
    )


with trace(("ur",)) as found:
    check()
""")


def test_errno_is_not_touched(child: Child) -> None:
    child("""
prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * 3, use_errno=True)
with trace(("ur",)) as found:
    build = prototype(ctypes.cast(ur.urProgramBuild, ctypes.c_void_p).value)
    ctypes.set_errno(77)
    build(1, 2, 0x10)
    assert ctypes.get_errno() == 77
assert found.calls[0].pieces == {2: b""}
""")


# --- what the environment asks for ---

CALL = """
ur.urAdapterGet(0, None, ctypes.byref(out))
"""
UR_LINES = (
    "{0}---> urAdapterGet\n"
    "{0}<--- urAdapterGet(.NumEntries = 0, .phAdapters = nullptr, .pNumAdapters = 0x.. (1)) -> "
    "UR_RESULT_SUCCESS;\n"
)


def plain(text: str) -> str:
    """A text without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]{3,}", "0x..", re.sub(r"\d+(\.\d)? (ns|us|ms)", "TIME", text))


@pytest.mark.parametrize("name", ["SYCL_UR_TRACE", "SYCL_PI_TRACE"])
@pytest.mark.parametrize(
    ("value", "printed"), [("2", True), ("-1", True), ("0x3", True), ("1", False), ("", False)]
)
def test_sycl_variables_print_ur_calls_to_stdout(
    name: str, value: str, printed: bool, child: Child
) -> None:
    done = child(CALL, **{name: value})
    assert plain(done.out) == (UR_LINES.format("   ") if printed else "") and done.err == ""


def test_sycl_pi_trace_prints_pi_calls_as_blocks(child: Child) -> None:
    code = "pi.piPlatformsGet(0, None, ctypes.byref(out))\n"
    assert plain(child(code, SYCL_PI_TRACE="2").out) == (
        "---> piPlatformsGet(\n"
        "\tpi_uint32 num_entries : 0\n"
        "\tpi_platform * platforms : <nullptr>\n"
        "\tpi_uint32 * num_platforms : 0x..\n"
        ") ---> \tpi_result : PI_ERROR_UNSUPPORTED_FEATURE\n"
        "\t[out]pi_uint32 * num_platforms : 0x..[ 0 ]\n"
        "\n"
    )
    assert child(code, SYCL_UR_TRACE="2").out == ""


def test_the_tracing_layer_prints_where_its_logger_says(child: Child, tmp_path: Path) -> None:
    layers = "UR_LAYER_FULL_VALIDATION, UR_LAYER_TRACING"
    lines = UR_LINES.format("   ")
    assert plain(child(CALL, UR_ENABLE_LAYERS=layers).err) == lines
    assert (
        plain(child(CALL, UR_ENABLE_LAYERS=layers, UR_LOG_TRACING="level:info;output:stdout").out)
        == lines
    )
    child(CALL, UR_ENABLE_LAYERS=layers, UR_LOG_TRACING=f"level:info;output:file,{tmp_path}/t.log")
    assert plain((tmp_path / "t.log").read_text()) == lines
    quiet = child(CALL, UR_ENABLE_LAYERS=layers, UR_LOG_TRACING="level:error")
    assert quiet.err == quiet.out == ""
    assert child(CALL, UR_ENABLE_LAYERS="UR_LAYER_LEAK_CHECKING").err == ""


def test_fairlead_trace_prints_to_stderr(child: Child) -> None:
    code = CALL + "cl.clFinish(0x10)\n"
    assert plain(child(code, FAIRLEAD_TRACE="ur").err) == UR_LINES.format("")
    done = child(code, FAIRLEAD_TRACE="cl, times")
    finish = "clFinish(.command_queue = 0x10) -> CL_INVALID_OPERATION"
    assert plain(done.err) == f"---> clFinish\n<--- {finish}; TIME\n"
    assert done.out == ""


def test_several_variables_each_get_their_lines(child: Child) -> None:
    done = child(
        CALL,
        FAIRLEAD_TRACE="ur",
        SYCL_UR_TRACE="2",
        UR_ENABLE_LAYERS="UR_LAYER_TRACING",
        UR_LOG_TRACING="level:quiet",
    )
    assert plain(done.out) == UR_LINES.format("   ") and plain(done.err) == UR_LINES.format("")


def test_an_unknown_element_is_a_warning_and_no_exception(child: Child) -> None:
    done = child(CALL, FAIRLEAD_TRACE="sycl,ur")
    first, rest = done.err.split("\n", 1)
    assert (
        "FAIRLEAD_TRACE" in first
        and "'sycl'" in first
        and "cl, ze, cuda, hip, times and errors" in first
    )
    assert plain(rest) == UR_LINES.format("")


def test_a_trace_file_is_written_at_the_end(child: Child, tmp_path: Path) -> None:
    done = child(
        CALL + "import os; print(os.getpid())",
        FAIRLEAD_TRACE="ur,pi,cl",
        FAIRLEAD_TRACE_FILE=f"{tmp_path}/calls-%p.json",
    )
    assert done.err == ""
    events = json.loads((tmp_path / f"calls-{done.out.strip()}.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["urAdapterGet"]
    child(
        CALL + "pi.piContextRetain(1)",
        FAIRLEAD_TRACE="ur,pi,times",
        FAIRLEAD_TRACE_FILE=f"{tmp_path}/calls.txt",
    )
    assert plain((tmp_path / "calls.txt").read_text()) == (
        "urAdapterGet(.NumEntries = 0, .phAdapters = nullptr, .pNumAdapters = 0x.. (1)) -> "
        "UR_RESULT_SUCCESS; TIME\n"
        "---> piContextRetain(\n\tpi_context context : 0x1\n) ---> \tpi_result : "
        "PI_ERROR_UNSUPPORTED_FEATURE; TIME\n\n"
    )


def test_a_trace_file_that_cannot_be_written_is_a_warning(child: Child, tmp_path: Path) -> None:
    done = child(CALL, FAIRLEAD_TRACE="ur", FAIRLEAD_TRACE_FILE=f"{tmp_path}/no/folder.json")
    assert (
        "FAIRLEAD_TRACE_FILE" in done.err
        and "No such file" in done.err
        and done.err.count("\n") == 1
    )


def test_printing_survives_pointers_that_lead_nowhere_and_a_closed_stdout(child: Child) -> None:
    code = """
import os

fn = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(
    ctypes.cast(ur.urProgramBuild, ctypes.c_void_p).value
)
fn(1, 2, 0x10)
sys.stdout.flush()
sys.stdout.close()
assert ur.urAdapterGet(0, None, None) == 0
"""
    done = child(code, SYCL_UR_TRACE="2")
    assert ".pOptions = 0x10)" in done.out and done.err == ""


def test_without_a_variable_nothing_of_the_trace_is_loaded(run_python: RunPython) -> None:
    done = run_python(
        "import sys\n"
        "from fairlead.loader.base.table import DispatchTable\n"
        "from fairlead.icd.abi import OPENCL\n"
        "DispatchTable(OPENCL, 0)\n"
        "print('fairlead.loader.trace.trace' in sys.modules)\n",
        fresh=True,
    )
    assert done.out == "False\n"


def test_block_and_environment_go_together(child: Child) -> None:
    done = child(
        """
with trace() as found:
    ur.urAdapterGet(0, None, ctypes.byref(out))
assert [c.name for c in found.calls] == ["urAdapterGet"] and len(ur.layers) == 1
ur.urAdapterGet(0, None, ctypes.byref(out))
""",
        FAIRLEAD_TRACE="ur",
    )
    assert plain(done.err) == 2 * UR_LINES.format("")


def test_a_forked_child_begins_with_nothing_and_can_go_on(run_python: RunPython) -> None:
    code = """
import ctypes, os, threading
from fairlead.loader.base import layers
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
table = DispatchTable(UR, layers.make_table(UR)[0])
from fairlead.loader.trace.trace import trace
stop = False
def busy():
    while not stop:
        table.urAdapterGet(0, None, None)
threads = [threading.Thread(target=busy) for _ in range(3)]
with trace() as t:
    for thread in threads:
        thread.start()
    for _ in range(30):
        child = os.fork()
        if not child:
            before = len(t)
            table.urAdapterGet(0, None, None)
            os._exit(0 if before == 0 and len(t) == 1 and t[0].thread == os.getpid() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop = True
    for thread in threads:
        thread.join()
# to describe all calls of the threads would take a second
with trace() as after:
    table.urAdapterGet(0, None, None)
print(len(after))
"""
    assert run_python(code).out == "1\n"
