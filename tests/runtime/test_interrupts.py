"""Ctrl-C while the main thread waits: KeyboardInterrupt comes at once, whatever it waits for. Real
signals, in child processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.support import CHILD_TIMEOUT

from fairlead import plugins
from fairlead.runtime import Context, Queue, devices

pytestmark = pytest.mark.slow

#: Says "ready" for each device as soon as the main thread is in the function that the argument
#: names. Without the repair the parent waits for "interrupted" until its time is over.
PROGRAM = """
import os, signal, sys, threading
import fairlead, numpy, pyopencl
from fairlead import capture
from fairlead.graph import CommandGraph
from fairlead.loader.base import interrupts
from fairlead.plugins.opencl import program_builds
from fairlead.runtime import Buffer, Program, Queue, devices, malloc_device
from fairlead.runtime.interop import event_of, to_pyopencl

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs this may ignore it

def tell(function):
    def enter(frame, event, argument):
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            print("ready", flush=True)

    sys.setprofile(enter)

def endless(work, *arguments):
    while True:
        work(*arguments)

def replays(device):
    context = pyopencl.Context([to_pyopencl(device)])
    queue = pyopencl.CommandQueue(context)
    buffer = pyopencl.Buffer(context, pyopencl.mem_flags.READ_WRITE, 16)
    with capture(queue) as graph:
        pyopencl.enqueue_fill_buffer(queue, buffer, numpy.int32(0), 0, 16)
    graph.finalize().replay(queue, times=(1 << 32) - 1)

def builds(queue):
    stop = threading.Event()
    program_builds.run_aside = lambda work: interrupts.run_aside(lambda: (work(), stop.wait()))
    Program(queue, "kernel void nothing() {}")

def accesses(queue, never, user):
    with Buffer((4,), "int32") as buffer:
        queue.submit(lambda h: (h.depends_on(never), h.fill(h.access(buffer, "write"), 0)))
        try:
            buffer.numpy()
        finally:
            user.set_status(pyopencl.command_execution_status.COMPLETE)

for device in CHOSEN:
    queue = Queue(device)
    memory = malloc_device(4, "int32", queue)
    user = pyopencl.UserEvent(to_pyopencl(queue.context))
    never = event_of(user, queue.context)
    graph = CommandGraph(queue)
    graph.add(lambda h: h.memset(memory, 0))
    loop = graph.finalize()
    tell(*sys.argv[1:])
    try:
        ACTION
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        if user.command_execution_status:
            user.set_status(pyopencl.command_execution_status.COMPLETE)
print("done", flush=True)
os._exit(0)  # what goes on aside may never end
"""


@pytest.mark.parametrize(
    ("function", "action"),
    [
        ("wait", "queue.memset(memory, 0, depends_on=never).wait()"),
        ("wait", "queue.memset(memory, 0, depends_on=never), queue.wait()"),
        ("wait", "endless(lambda: queue.memset(memory, 0).wait())"),
        ("wait", "endless(lambda: queue.graph(loop).wait())"),
        ("urProgramBuild", "builds(queue)"),
        ("numpy", "accesses(queue, never, user)"),
        ("replay", "replays(device)"),
    ],
)
def test_an_interrupt_ends_a_wait(function: str, action: str) -> None:
    assert interrupted(function, action) > 0


@pytest.mark.parametrize(
    "action",
    [
        "queue.memset(memory, 0, depends_on=never).wait()",
        "queue.memset(memory, 0, depends_on=never), queue.wait()",
    ],
)
@pytest.mark.driver("intel_cpu")
def test_an_interrupt_ends_a_wait_in_an_adapter_of_others(
    action: str, real_plugins: Path, tmp_path: Path
) -> None:
    """Its function does not look for Ctrl-C, so another thread calls it."""
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    chosen = "[one for one in devices(fairlead.adapters()) if 'Intel' in one.platform.name]"
    assert interrupted("run_aside", action, chosen, UR_ADAPTERS_FORCE_LOAD=str(adapter)) == 1


LEVEL_ZERO = """
import ctypes, os, signal, sys, threading
from fairlead.loader.base import interrupts
from fairlead.plugins.ur_level_zero import core, programs
from fairlead.runtime import Event, Program, Queue, devices, malloc_host

signal.signal(signal.SIGINT, signal.default_int_handler)

def tell(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("synchronize", "_wait"):
        sys.setprofile(None)
        print("ready", flush=True)

def builds():
    stop = threading.Event()
    programs.run_aside = lambda work: interrupts.run_aside(lambda: (work(), stop.wait()))
    Program(queue, "kernel void nothing() {}")

never = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: threading.Event().wait())
queue, made = Queue(devices()[0]), ctypes.c_void_p()
enqueue = queue.adapter.ur.urEnqueueHostTaskExp
assert enqueue(queue.handle, never, None, None, 0, None, ctypes.byref(made)) == 0
event, memory = Event(queue.context, made.value), malloc_host(1, "int32", queue)

# A driver in C that waits to the end does not come back to Python before.
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)

def synchronize(event, timeout):
    return libc.pthread_mutex_lock(mutex) if timeout == core.FOREVER else core.NOT_READY

table = core.adapter.objects.list_owned("ur_queue_handle_t")[queue.handle].table
table.zeEventHostSynchronize = synchronize
sys.setprofile(tell)
try:
    WAIT
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "wait", ["event.wait()", "queue.memset(memory, 0), queue.wait()", "builds()"]
)
def test_an_interrupt_ends_a_wait_in_the_adapter_on_level_zero(wait: str) -> None:
    """The adapter itself looks for Ctrl-C."""
    child = subprocess.Popen(
        [sys.executable, "-c", LEVEL_ZERO.replace("WAIT", wait)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "UR_ADAPTERS_FORCE_LOAD": str(plugins.level_zero_adapter())},
    )
    watchdog = threading.Timer(CHILD_TIMEOUT, child.kill)
    watchdog.start()
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out = child.communicate()[0]
    watchdog.cancel()
    assert (out, child.returncode) == ("interrupted\n", 0)


def interrupted(function: str, action: str, chosen: str = "devices()", **variables: str) -> int:
    """Run the program, and interrupt it on each device. Returns on how many that was."""
    code = textwrap.dedent(PROGRAM).replace("ACTION", action).replace("CHOSEN", chosen)
    child = subprocess.Popen(
        [sys.executable, "-c", code, function],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    watchdog = threading.Timer(CHILD_TIMEOUT, child.kill)
    watchdog.start()
    assert child.stdout is not None and child.stderr is not None
    lines = []
    for line in child.stdout:
        lines.append(line.strip())
        if line == "ready\n":
            child.send_signal(signal.SIGINT)
    watchdog.cancel()
    said = child.communicate()[1]
    assert lines[-1:] == ["done"] and lines[:2] == ["ready", "interrupted"], (
        f"{said}, ended with {child.returncode}"
    )
    assert lines[:-1] == ["ready", "interrupted"] * (len(lines) // 2)
    assert child.returncode == 0
    return len(lines) // 2


FINALIZER = """
import signal
from fairlead.runtime import devices

signal.signal(signal.SIGINT, signal.default_int_handler)
devices()

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

finalized = Finalized()
try:
    del finalized
    while True:
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_a_finalizer_comes_after_it() -> None:
    """Python drops an exception that leaves `__del__`: the loop would go on for ever."""
    child = subprocess.run(
        [sys.executable, "-c", FINALIZER], capture_output=True, text=True, timeout=CHILD_TIMEOUT
    )
    assert (child.stdout, child.stderr, child.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize(("owner", "moment"), [(Context, "_released"), (Queue, "handle")])
def test_what_is_interrupted_while_it_is_made_is_released(
    owner: type[Any], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `__del__` finds all that it needs as soon as there is a handle."""

    class Interrupted(owner):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == moment and not raised:
                raised.append(name)
                raise KeyboardInterrupt

    ignored: list[Any] = []
    raised: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    device = devices()[0]
    with pytest.raises(KeyboardInterrupt):
        Interrupted(device)
    gc.collect()
    assert not ignored
