"""Children end with their parent, and a process without /proc or under seccomp still works.

Variables that are set for a while: getenv sees them, and what its readers hold does not
change.

The order in which everything ends when Python ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.support import CHILD_TIMEOUT, FakeDriver, RunPython
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import processes
from fairlead.loader.base.ends import ORDER
from fairlead.loader.base.environment import add_variables
from fairlead.loader.base.processes import TimeLimit, count_cores, hold_signals


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", ["devices", "doctor", "conformance"])
@pytest.mark.parametrize("spent", [0.0, 0.1, float("inf")])
def test_no_child_outlives_a_command(
    fake_driver: FakeDriver, tmp_path: Path, command: str, number: int, spent: float
) -> None:
    """A driver that computes for ever is being probed when the command is ended, or the command has
    only used so many seconds of a core."""
    driver = fake_driver(at_list="for (;;) continue")
    words = [command, str(driver)] if command == "conformance" else [command]
    folder = tmp_path / "temporary"
    folder.mkdir()
    environ = {**os.environ, "OCL_ICD_VENDORS": str(driver), "TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "fairlead", *words],
        env={**environ, "FAIRLEAD_PROBE_TIMEOUT": str(CHILD_TIMEOUT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        parent = psutil.Process(process.pid)
        children: list[psutil.Process] = []
        while not children and process.poll() is None and sum(parent.cpu_times()[:2]) <= spent:
            children = parent.children(recursive=True)
        process.send_signal(number)
        process.wait(CHILD_TIMEOUT)
    _, alive = psutil.wait_procs(children, CHILD_TIMEOUT)
    assert (children or spent < 1) and not alive
    assert not list(folder.iterdir())


def test_cores_are_counted_where_the_call_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> set[int]:
        raise PermissionError(1, "forbidden")

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    monkeypatch.setattr(processes, "_CGROUP", tmp_path / "missing")
    assert count_cores() == (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({"": "max 100000"}, 64),
        ({"": "200000 100000"}, 2),
        ({"": "250000 100000", "a/b": "max 100000"}, 3),
        ({"": "400000 100000", "a": "50000 100000", "a/b": "800000 100000"}, 1),
        ({"elsewhere": "100000 100000"}, 64),
        ({"a": "not numbers", "a/b": "300000 0", "": "500000 100000"}, 5),
    ],
)
def test_limits_of_control_groups_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, str], cores: int
) -> None:
    for folder, limit in limits.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "cpu.max").write_text(limit + "\n", encoding="utf-8")
    (tmp_path / "cgroup").write_text("1:cpu:/other\n0::/a/b\n", encoding="utf-8")
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: set(range(64)))
    monkeypatch.setattr(processes, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(processes, "_CGROUPS", tmp_path)
    assert count_cores() == cores


#: Interrupts the count at a random moment, again and again.
INTERRUPTED_COUNT = """
import random, signal, sys
from fairlead.loader.base import processes

processes._CGROUP, processes._CGROUPS = f"{sys.argv[1]}/cgroup", sys.argv[1]
raised = caught = 0

def interrupt(number, frame):
    global raised
    raised += 1
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for _ in range(5000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 5e-5))
        processes.count_cores()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        caught += 1
print(raised > 0, raised == caught)
"""


def test_an_interrupt_of_the_count_comes_to_the_program(
    tmp_path: Path, run_python: RunPython
) -> None:
    """Not so where int("max") is tried, with up to Python 3.11."""
    (tmp_path / "cpu.max").write_text("max 100000\n", encoding="utf-8")
    (tmp_path / "cgroup").write_text("0::/\n", encoding="utf-8")
    assert run_python(INTERRUPTED_COUNT, str(tmp_path)).out == "True True\n"


def test_cores_are_counted_without_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_CGROUP", tmp_path / "missing")
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {3, 5})
    assert count_cores() == 2


@pytest.mark.parametrize(
    ("in_line", "added"),
    [
        ({}, 0),  # the kernel does not tell
        ({1: [4, 4]}, 8),
        ({1: [4, 4], 2: [4, 4], 3: [3, 3]}, 8),  # side by side
        ({1: [4, 0], 2: [0, 3]}, 7),  # one after the other
        ({1: [4], 2: [4, 4]}, 8),  # the first one has ended
        ({1: [400, 0]}, 300),
    ],
)
def test_processes_that_wait_side_by_side_for_a_core_wait_once(
    monkeypatch: pytest.MonkeyPatch, in_line: dict[int, list[float]], added: float
) -> None:
    """`in_line` has for how many seconds each thread waits, first and then."""
    clock = [0.0]
    waits = [
        [
            (thread, float(sum(times[:count])))
            for thread, times in in_line.items()
            if count <= len(times)
        ]
        for count in range(3)
    ]
    monkeypatch.setattr(processes, "_list_times_in_line", lambda process: waits.pop(0))
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    limit = TimeLimit(0, 1)
    clock[0] = 1.0
    limit.find_rest()
    assert limit.find_rest() == added


def test_devices_are_found_without_proc_and_under_a_filter(run_python: RunPython) -> None:
    code = """
import builtins, os
real_open, real_list = builtins.open, os.listdir
def open_(path, *rest, **more):
    if str(path).startswith("/proc/"):
        raise FileNotFoundError(2, "no /proc", path)
    return real_open(path, *rest, **more)
def listdir(path="."):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "no /proc", path)
    return real_list(path)
def refuse(*_):
    raise PermissionError(1, "forbidden")
builtins.open, os.listdir = open_, listdir
os.sched_getaffinity = os.waitid = refuse
import fairlead
print(len(fairlead.devices()) > 0)
"""
    assert run_python(code, fresh=True).out.strip() == "True"


def test_a_signal_that_comes_while_it_forks_ends_a_process(run_python: RunPython) -> None:
    """Exceptions are lost in functions that Python calls then, as logging has one."""
    code = """
import os, signal, sys
from fairlead.loader.base.forked import ForkedChild
from fairlead.loader.base.processes import end_in_order
end_in_order()
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
def compute():
    while True:
        pass
try:
    child = ForkedChild(compute, {}, 1, 1)
    os.kill(child.pid, signal.SIGKILL)
except SystemExit as end:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print(end.code, "without a child")
"""
    assert run_python(code, fresh=True).out.strip() == "143 without a child"


LIBC = ctypes.CDLL(None)
LIBC.getenv.restype = ctypes.c_char_p


def seen(name: str) -> bytes | None:
    return LIBC.getenv(name.encode())


def strings() -> tuple[int, list[bytes]]:
    """The environment's array, and what it holds."""
    address = ctypes.c_void_p.in_dll(LIBC, "environ").value or 0
    return address, held(address)


def held(address: int) -> list[bytes]:
    found: list[bytes] = []
    while (text := ctypes.c_char_p.from_address(address + 8 * len(found)).value) is not None:
        found.append(text)
    return found


@given(
    st.dictionaries(
        st.sampled_from(["FL_TEST_A", "FL_TEST_B", "HOME"]), st.text("ab/=", max_size=3)
    )
)
def test_they_are_seen_inside_and_as_before_afterwards(added: dict[str, str]) -> None:
    before, python = strings(), dict(os.environ)
    with pytest.raises(ZeroDivisionError), add_variables(added):
        for name, value in added.items():
            assert seen(name) == value.encode()
        names = [text.partition(b"=")[0] for text in strings()[1]]
        assert len(names) == len(set(names))
        assert dict(os.environ) == python
        raise ZeroDivisionError
    assert strings() == before and dict(os.environ) == python


def test_what_a_thread_reads_at_that_time_is_not_changed() -> None:
    """A thread in getenv has the old array, or the new one; neither is written to nor freed."""
    array, content = strings()
    with add_variables({"HOME": "/elsewhere", "FL_TEST_A": "1"}):
        inside, inner = strings()
        assert inside != array and held(array) == content
    assert held(inside) == inner and held(array) == content


def test_a_variable_that_is_set_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    home = seen("HOME")
    with add_variables({"HOME": "/elsewhere", "FL_TEST_A": "1"}):
        monkeypatch.setenv("FL_TEST_B", "2")  # which calls setenv
        assert seen("FL_TEST_A") == b"1"
    assert (seen("FL_TEST_A"), seen("FL_TEST_B"), seen("HOME")) == (None, b"2", home)


def test_blocks_within_blocks() -> None:
    with add_variables({"FL_TEST_A": "1"}):
        with add_variables({"FL_TEST_A": "2"}):
            assert seen("FL_TEST_A") == b"2"
        assert seen("FL_TEST_A") == b"1"
    assert seen("FL_TEST_A") is None


#: Each place gets two functions, the last place first.
PLACES = """
import atexit, tempfile, weakref
atexit.register(print, "registered before")
from fairlead.loader.base import ends

def make(text):
    def function():
        print(text)
        if text == "adapters 1":
            raise ValueError("the others are called all the same")
    return function

for place in reversed(ends.ORDER):
    for number in (1, 2):
        ends.call_at_end(place)(make(f"{place} {number}"))
thing = make("a thing")
weakref.finalize(thing, print, "a finalizer of others")
released = make("another")
ends.call_at_end("tables")(lambda: globals().pop("released"))
weakref.finalize(released, print, "what has a finalizer is released").atexit = False
atexit.register(print, "registered later")
"""


def test_places_come_in_their_order_whenever_they_were_declared(run_python: RunPython) -> None:
    done = run_python(PLACES, fresh=True)
    places = [f"{place} {number}" for place in ORDER for number in (2, 1)]
    places.insert(places.index("tables 2"), "what has a finalizer is released")
    assert done.out.splitlines() == [
        "registered later",
        "a finalizer of others",
        *places,
        "registered before",
    ]
    assert done.err.endswith("ValueError: the others are called all the same\n")


#: What fairlead declares, by the module, in the order in which it is called.
EXPECTED = """
submissions fairlead.icd.command_buffer.background
submissions fairlead.runtime.context
loaders fairlead.loader.ur.plugin
pi fairlead.plugins.sdk.pi
adapters fairlead.plugins.sdk.start
level_zero fairlead.plugins.sdk.ze.start
layers fairlead.plugins.command_buffer_layer.start
queues fairlead.icd.command_buffer.queue_release
memory fairlead.captured_graphs.segment
memory fairlead.icd.command_buffer.lifetimes
tables fairlead.icd.command_buffer.engines.cuda
tables fairlead.loader.base.layers
"""
MODULES = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from fairlead.loader.base import ends
for place, functions in ends._functions.items():
    functions[:] = [lambda p=place, f=one: print(p, f.__module__) for one in functions]
"""


@pytest.mark.parametrize("step", [1, -1])
def test_releases_come_in_one_order_whatever_was_imported_first(
    run_python: RunPython, step: int
) -> None:
    expected = EXPECTED.strip().splitlines()
    modules = [line.split()[1] for line in expected]
    called = run_python(MODULES, *modules[::step], fresh=True).out.splitlines()
    assert {*called} == {*expected}
    places = [line.split()[0] for line in called]
    assert places == sorted(places, key=ORDER.index)


def test_an_interrupt_just_before_signals_are_held_leaves_none_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python handles what came before a call at its end, when the call has done its work."""
    real, before = signal.pthread_sigmask, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def change(how: int, mask: set[int]) -> set[signal.Signals | int]:
        was = real(how, mask)
        if signal.SIGINT in mask:
            raise KeyboardInterrupt
        return was

    monkeypatch.setattr(signal, "pthread_sigmask", change)
    with pytest.raises(KeyboardInterrupt), hold_signals():
        pass
    after = real(signal.SIG_SETMASK, before)
    assert after == before
