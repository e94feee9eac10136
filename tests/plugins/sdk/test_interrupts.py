"""Ctrl-C in a Python program that calls an adapter all the time: KeyboardInterrupt comes to the
program, and no call fails for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import CHILD_TIMEOUT, ROOT, run_program

from fairlead.plugins import build_adapter

PROGRAM = """
import ctypes, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs this may ignore it
lib = ctypes.CDLL(sys.argv[1])
assert lib.urGetAdapterProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter, platform, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint32()
assert lib.urAdapterGet(1, ctypes.byref(adapter), None) == 0
assert lib.urPlatformGet(adapter, 1, ctypes.byref(platform), None) == 0
text, codes = ctypes.create_string_buffer(64), set()

def ask():
    codes.add(lib.urPlatformGetInfo(platform, 1, ctypes.c_size_t(64), text, None))

try:
    ask()
    print("ready", flush=True)
    while True:
        ask()
except KeyboardInterrupt:
    print("interrupted", sorted(codes), flush=True)
"""


def _interrupt(code: str, library: Path) -> str:
    """What a program prints after "ready", when it is sent SIGINT. It ends without an error."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(library)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=CHILD_TIMEOUT)
    assert (err, child.returncode) == ("", 0)
    return out


def test_an_interrupt_comes_to_the_program_and_to_no_entry_point(tmp_path: Path) -> None:
    library = build_adapter(ROOT / "examples/toy_adapter.py", tmp_path / "libur_adapter_toy.so.0")
    for _ in range(3):
        assert _interrupt(PROGRAM, library) == "interrupted [0]\n"


#: Its one query is interrupted while it runs.
ADAPTER = """
import signal
from fairlead.plugins import Adapter

adapter = Adapter("interrupted")

@adapter.entry
def urAdapterGetInfo(propName):
    signal.raise_signal(signal.SIGINT)
    finished.append(propName)
    return 1

finished = []
"""

CALLER = """
import ctypes, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs this may ignore it
lib = ctypes.CDLL(sys.argv[1])
assert lib.urGetAdapterProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter, value = ctypes.c_void_p(), ctypes.c_uint32()
assert lib.urAdapterGet(1, ctypes.byref(adapter), None) == 0
if sys.argv[2] == "default":  # as a notebook does for each cell
    signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    lib.urAdapterGetInfo(adapter, 0, ctypes.c_size_t(4), ctypes.byref(value), None)
    threading.Event().wait()
except KeyboardInterrupt:
    print("interrupted", value.value)
"""


@pytest.mark.parametrize(("handler", "value"), [("ours", 1), ("default", 0)])
def test_an_interrupt_in_an_entry_point_ends_what_follows(
    tmp_path: Path, handler: str, value: int
) -> None:
    """Our handler lets the entry point finish. The default one cuts it off, and the program gets
    the exception all the same."""
    (tmp_path / "interrupted.py").write_text(ADAPTER)
    library = build_adapter(tmp_path / "interrupted.py", tmp_path / "libur_adapter_own.so.0")
    child = run_program(sys.executable, "-c", CALLER, library, handler)
    assert (child.out, child.err, child.code) == (f"interrupted {value}\n", "", 0)


#: Waits again and again; `slow` is an adapter whose waits are long, as seen from the program.
WAITING = """
import ctypes, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
lib = ctypes.CDLL(sys.argv[1])
assert lib.urGetAdapterProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter, platform, device, context, queue = (ctypes.c_void_p() for _ in range(5))
assert lib.urAdapterGet(1, ctypes.byref(adapter), None) == 0
assert lib.urPlatformGet(adapter, 1, ctypes.byref(platform), None) == 0
assert lib.urDeviceGet(platform, 1, 1, ctypes.byref(device), None) == 0
assert lib.urContextCreate(1, ctypes.byref(device), None, ctypes.byref(context)) == 0
assert lib.urQueueCreate(context, device, None, ctypes.byref(queue)) == 0
"""

SLOW = """
import time
from fairlead.plugins import Adapter

adapter = Adapter("slow")
platform, device = (
    adapter.kind(f"ur_{name}_handle_t", counted=False)() for name in ("platform", "device")
)
Context, Queue = (adapter.kind(f"ur_{name}_handle_t") for name in ("context", "queue"))
adapter.declare(
    urPlatformGet=lambda: [platform],
    urDeviceGet=lambda: [device],
    urContextCreate=Context,
    urQueueCreate=Queue,
)
adapter.declare(urQueueFinish=lambda: time.sleep(0.05))
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """An adapter whose waits take their time."""
    source = tmp_path / "slow_adapter.py"
    source.write_text(SLOW)
    return build_adapter(source, tmp_path)


def test_an_interrupt_comes_to_a_loop_that_only_waits(slow: Path) -> None:
    loop = """
try:
    print("ready", flush=True)
    while True:
        code = lib.urQueueFinish(queue)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert _interrupt(WAITING + loop, slow) == "interrupted\n"


#: Its query is a wait that Ctrl-C may end, and comes in the middle of.
STOPPABLE = """
import signal
from fairlead.loader.base.interrupts import stop_if_interrupted, mark_stoppable
from fairlead.plugins import Adapter

adapter = Adapter("stoppable")

@adapter.entry
def urAdapterGetInfo(propName):
    if propName == 1:
        signal.raise_signal(signal.SIGINT)  # before the wait
    return wait(propName)

@mark_stoppable
def wait(number):
    stop_if_interrupted()
    if number == 0:
        signal.raise_signal(signal.SIGINT)
    return 1
"""

CALLERS = """
import ctypes, signal, sys, threading
from fairlead.loader.base.interrupts import mark_leaving_waits
signal.signal(signal.SIGINT, signal.default_int_handler)
lib = ctypes.CDLL(sys.argv[1])
assert lib.urGetAdapterProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter, value = ctypes.c_void_p(), ctypes.c_uint32()
assert lib.urAdapterGet(1, ctypes.byref(adapter), None) == 0

def ask():
    lib.urAdapterGetInfo(adapter, int(sys.argv[3]), ctypes.c_size_t(4), ctypes.byref(value), None)
    threading.Event().wait()

try:
    (mark_leaving_waits if sys.argv[2] == "ours" else lambda function: function)(ask)()
except KeyboardInterrupt:
    print("interrupted", value.value)
"""


@pytest.mark.parametrize("when", ["in the wait", "before it"])
@pytest.mark.parametrize(("caller", "value"), [("ours", 0), ("another", 1)])
def test_a_wait_ends_early_only_for_callers_that_expect_it(
    tmp_path: Path, caller: str, value: int, when: str
) -> None:
    """To libsycl a wait that has returned has ended."""
    (tmp_path / "stoppable.py").write_text(STOPPABLE)
    library = build_adapter(tmp_path / "stoppable.py", tmp_path / "libur_adapter_stoppable.so.0")
    name = str(int(when == "before it"))
    child = run_program(sys.executable, "-c", CALLERS, library, caller, name)
    assert (child.out, child.err, child.code) == (f"interrupted {value}\n", "", 0)


LAYERED = """
import signal, sys, threading
from fairlead.loader.base import layers
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
import ctypes
signal.signal(signal.SIGINT, signal.default_int_handler)
assert ctypes.CDLL(sys.argv[1]).urGetAdapterProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
answered = []

def answer(slot, arguments):
    signal.raise_signal(signal.SIGINT)
    answered.append(slot)
    return 7

layer = layers.Layer(UR, 0)
layer.handle(answer)
try:
    code = DispatchTable(UR, layer.address, label="layer").urAdapterRelease(1)
    threading.Event().wait()
except KeyboardInterrupt:
    print("interrupted", len(answered))
"""


def test_an_interrupt_in_a_layer_comes_after_it(tmp_path: Path) -> None:
    """C calls its handler: an exception would be printed there, and lost. PI is served by such a
    layer."""
    library = build_adapter(ROOT / "examples/toy_adapter.py", tmp_path / "libur_adapter_toy.so.0")
    child = run_program(sys.executable, "-c", LAYERED, library)
    assert (child.out, child.err, child.code) == ("interrupted 1\n", "", 0)
