"""Programs that PoCL compiles long for any local size: a child does it, the driver replays."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.support import RunPython

from fairlead.captured_graphs.context import capture
from fairlead.icd.command_buffer import prepared_programs
from fairlead.icd.drivers import platforms
from fairlead.loader.base.children import Outcome, Request

pytestmark = pytest.mark.driver("pocl_wheel")

PLAIN = "kernel void {} (global int *a) {{ a[get_global_id(0)] += 1; }}\n"
TURNS = """
kernel void turns(global int *a, local int *l) {{
    l[get_local_id(0)] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    a[get_global_id(0)] = l[get_local_size(0) - 1 - get_local_id(0)] + {};
}}
"""


@pytest.fixture
def context(pocl_wheel: Any) -> cl.Context:
    device = next(one for one in platforms() if "PoCL" in one.version).devices[0]
    return cl.Context([device.to_pyopencl()])


class Children:
    """What stands for the child processes: each ends when the test lets it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.outcome = Outcome({})
        self.began = threading.Event()
        self._gate = threading.Event()

    def run_all(self, requests: list[Request], timeout: float) -> list[Outcome]:
        self.requests += requests
        self.began.set()
        self._gate.wait()
        return [self.outcome]

    def end(self) -> None:
        """Let them end, and wait for what follows."""
        self._gate.set()
        for thread in threading.enumerate():
            if thread.name == "fairlead-prepares":
                thread.join()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    monkeypatch.delenv("POCL_KERNEL_CACHE", raising=False)
    monkeypatch.setattr(prepared_programs, "_known", {})
    monkeypatch.setattr(prepared_programs, "find_cache", lambda: str(tmp_path))
    found = Children()
    monkeypatch.setattr(prepared_programs, "run_all", found.run_all)
    yield found
    found.end()


class Turns:
    """A captured launch that turns 64 numbers around and adds to them, eight by eight."""

    def __init__(self, context: cl.Context, number: int) -> None:
        self.queue = cl.CommandQueue(context)
        self.expected, self._number = np.arange(64, dtype=np.int32), number
        flags = cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(context, flags, hostbuf=self.expected)
        program = cl.Program(context, TURNS.format(number)).build()
        with capture(self.queue) as graph:
            local: Any = cl.LocalMemory(32)
            program.turns(self.queue, (64,), (8,), self._buffer, local)
        self._loop = graph.finalize(fuse=False)

    def replay(self) -> str:
        """Replay it, look at the numbers, and return what is said of the engine."""
        self._loop.replay(self.queue, wait=True)
        self.expected = self.expected.reshape(8, 8)[:, ::-1].ravel() + np.int32(self._number)
        found = np.empty(64, np.int32)
        cl.enqueue_copy(self.queue, found, self._buffer)
        assert found.tolist() == self.expected.tolist()
        lines = self._loop.explain(self.queue).splitlines()
        return next(line for line in lines if line.startswith("  direct"))


def test_the_driver_replays_until_the_child_has_compiled(
    context: cl.Context, children: Children
) -> None:
    turns = Turns(context, 5)
    for _ in range(3):
        assert prepared_programs._UNTIL_THEN in turns.replay()
    children.end()
    for _ in range(3):
        assert "direct  one native kernel" in turns.replay()
    (request,) = children.requests
    assert request.data["options"] is not None


def test_where_no_child_can_be_made_the_driver_replays(
    context: cl.Context, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later programs are prepared all the same."""
    run_all = prepared_programs.run_all

    def fail(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(prepared_programs, "run_all", fail)
    turns = Turns(context, 14)
    turns.replay()
    for thread in threading.enumerate():
        if thread.name == "fairlead-prepares":
            thread.join()
    assert f"{prepared_programs._FAILED}: OSError: no space left" in turns.replay()
    monkeypatch.setattr(prepared_programs, "run_all", run_all)
    other = Turns(context, 15)
    other.replay()
    children.end()
    other.replay()
    assert "one native kernel" in other.replay()


def test_what_the_child_cannot_compile_is_the_drivers(
    context: cl.Context, children: Children
) -> None:
    children.outcome = Outcome(reason="it crashed with SIGSEGV")
    turns = Turns(context, 6)
    turns.replay()
    children.end()
    assert f"{prepared_programs._FAILED}: it crashed with SIGSEGV" in turns.replay()
    assert "it crashed with SIGSEGV" in Turns(context, 6).replay()
    assert len(children.requests) == 1


def test_equal_programs_are_compiled_once(context: cl.Context, children: Children) -> None:
    first, second = Turns(context, 7), Turns(context, 7)
    first.replay()
    second.replay()
    children.end()
    assert all("one native kernel" in turns.replay() for turns in (first, second))
    assert len(children.requests) == 1


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ("nothing", True),
        ("a variable", False),
        ("the cache", False),
        ("the source", False),
        ("a header", False),
        ("a crash", False),
    ],
)
def test_the_next_process_starts_no_child(
    context: cl.Context,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: str,
    is_known: bool,
) -> None:
    """PoCL's cache has what a child has compiled, unless something has changed."""
    source = TURNS.format(17) + '\n#if 0\n#include "x"\n#endif\n' * (change == "a header")
    program = cl.Program(context, source).build()
    if change == "a crash":
        children.outcome = Outcome(reason="it crashed with SIGSEGV")
    device = context.devices[0].int_ptr
    assert prepared_programs.prepare(program.int_ptr, device) is not None
    children.end()
    monkeypatch.setattr(prepared_programs, "_known", {})
    if change == "a variable":
        monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "loopvec")
    if change == "the cache":
        shutil.rmtree(tmp_path)
    if change == "the source":
        program = cl.Program(context, TURNS.format(18)).build()
    found = prepared_programs.prepare(program.int_ptr, device)
    assert (found is None) is is_known


def test_an_engine_that_is_asked_for_waits(
    context: cl.Context, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")
    assert "one native kernel" in Turns(context, 8).replay()
    assert children.requests == []


@pytest.mark.parametrize(
    ("source", "is_prepared"),
    [
        ("".join(map(PLAIN.format, "abcd")), False),
        ("".join(map(PLAIN.format, "abcde")), True),
        (TURNS.format(9), True),
        ('#if 0\n#include "x"\n#endif\n' + PLAIN.format("f"), True),
    ],
    ids=["four kernels", "five kernels", "a barrier", "a header"],
)
def test_what_is_prepared(
    context: cl.Context, children: Children, source: str, is_prepared: bool
) -> None:
    program, device = cl.Program(context, source).build(), context.devices[0].int_ptr
    found = prepared_programs.prepare(program.int_ptr, device)
    assert (found is not None) is is_prepared


@pytest.mark.parametrize("way", ["a binary", "no cache"])
def test_what_a_child_cannot_do_is_asked_for_at_once(
    context: cl.Context, children: Children, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    program = cl.Program(context, TURNS.format(10)).build()
    if way == "a binary":
        binaries: Any = program.get_info(cl.program_info.BINARIES)
        program = cl.Program(context, context.devices, binaries).build()
    else:
        monkeypatch.setenv("POCL_KERNEL_CACHE", "0")
    assert prepared_programs.prepare(program.int_ptr, context.devices[0].int_ptr) is None


def test_a_line_says_that_it_takes_long(
    context: cl.Context,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = threading.Event()
    say: Callable[[str], None] = prepared_programs._say

    def say_and_note(where: str) -> None:
        say(where)
        said.set()

    monkeypatch.setattr(prepared_programs, "_SAID_AFTER", 0)
    monkeypatch.setattr(prepared_programs, "_said", set())
    monkeypatch.setattr(prepared_programs, "_say", say_and_note)
    Turns(context, 11).replay()
    said.wait()
    line = "PoCL compiles a graph's kernels for any local size, in a child process"
    assert capsys.readouterr().err.count(line) == 1


def test_the_line_is_no_part_of_what_a_child_came_to(run_python: RunPython) -> None:
    """On a busy machine it comes in any child that replays a graph on PoCL."""
    module = "fairlead.icd.command_buffer.prepared_programs"
    code = f"import sys; from {module} import _say; _say('x'); print('rest', file=sys.stderr)"
    assert run_python(code).err == "rest\n"


def test_a_fork_begins_again(context: cl.Context, children: Children) -> None:
    turns = Turns(context, 12)
    turns.replay()
    children.began.wait()  # a thread that has not begun would lose its work, as no child's does
    prepared_programs._background._forget()
    prepared_programs._begin_in_child()
    assert prepared_programs._known == {} and not prepared_programs._background._works
    turns.replay()  # planned again, and prepared by another thread
    children.end()
    turns.replay()
    assert "one native kernel" in turns.replay()
    assert len(children.requests) == 2


#: Prints the generic functions in PoCL's cache before and after the preparation, and what replays
#: say. The argument is the driver.
_COLD = """
import os, sys, threading
from pathlib import Path
import numpy as np
import pyopencl as cl
import fairlead
from fairlead.icd.command_buffer import group_functions, prepared_programs

def list_functions():
    found = [path.name for path in Path(os.environ["POCL_CACHE_DIR"]).rglob("0-0-0*/*.so")]
    return sorted(name for name in found if "fairlead" not in name)  # those are the self-test's

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
queue = cl.CommandQueue(context)
program = cl.Program(context, sys.argv[2]).build("-DNOTHING=1")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
with fairlead.capture(queue) as graph:
    program.turns(queue, (64,), (8,), buffer, cl.LocalMemory(32))
loop = graph.finalize(fuse=False)
loop.replay(queue, wait=True)
for thread in threading.enumerate():
    if thread.name == "fairlead-prepares":
        thread.join()
print(list_functions())
ask = group_functions.query_binary
group_functions.query_binary = lambda program: print(list_functions()) or ask(program)
loop.replay(queue, wait=True)
print(loop.explain(queue).splitlines()[1])
"""


@pytest.mark.slow
def test_the_child_fills_the_cache(
    run_python: RunPython, pocl_wheel: Any, tmp_path: os.PathLike[str]
) -> None:
    env = {
        "FAIRLEAD_COMMAND_BUFFER": "auto",
        "POCL_CACHE_DIR": os.fspath(tmp_path),
        "POCL_KERNEL_CACHE": None,
    }
    done = run_python(_COLD, pocl_wheel.library, TURNS.format(13), env=env)
    *functions, said = done.out.splitlines()
    assert functions == ["['turns.so']"] * 2
    assert "direct  one native kernel" in said


#: Ends in the middle of a preparation, when its child is about to start, or has started.
_KILLED = """
import os, signal, sys
import pyopencl as cl
import fairlead
from fairlead.icd.command_buffer import prepared_programs
from fairlead.loader.base import children

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
device = platform.devices[0].to_pyopencl()
program = cl.Program(cl.Context([device]), sys.argv[2]).build()
start = children._start
children.may_fork = lambda: False

def end_after_start(*arguments):
    if sys.argv[3] == "starts":
        os.kill(os.getpid(), signal.SIGKILL)
    start(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

children._start = end_after_start
prepared_programs.prepare(program.int_ptr, device.int_ptr)
signal.pause()
"""


@pytest.mark.parametrize("when", ["starts", "has started"])
def test_a_killed_program_leaves_no_source(
    run_python: RunPython, pocl_wheel: Any, tmp_path: Path, when: str
) -> None:
    """Sources may be private. They were in files of the folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    env = {
        "TMPDIR": str(folder),
        "POCL_CACHE_DIR": str(tmp_path / "cache"),
        "POCL_KERNEL_CACHE": None,
    }
    source = TURNS.format(16)
    done = run_python(_KILLED, pocl_wheel.library, source, when, env=env, check=False)
    assert done.code == -signal.SIGKILL
    assert list(folder.iterdir()) == []
