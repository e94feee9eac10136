"""Ctrl-C in a Python program that calls an adapter all the time: KeyboardInterrupt comes to the program, and no call fails for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import CHILD_TIMEOUT, ROOT, RunPython

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


#: Waits again and again; `slow` is an adapter whose waits are long, as seen from the program.
WAITING = """
import ctypes, signal, sys, threading
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
import signal, time
from fairlead.plugins import Adapter

adapter = Adapter("slow")
platform, device = (adapter.kind(f"ur_{name}_handle_t", counted=False)() for name in ("platform", "device"))
Context, Queue = (adapter.kind(f"ur_{name}_handle_t") for name in ("context", "queue"))
adapter.declare(urPlatformGet=lambda: [platform], urDeviceGet=lambda: [device], urContextCreate=Context, urQueueCreate=Queue)
adapter.declare(urQueueFinish=lambda: time.sleep(0.05), urQueueFlush=lambda: signal.raise_signal(signal.SIGINT))
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """An adapter whose waits take their time, and in whose flush a Ctrl-C comes."""
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
    child = subprocess.Popen(
        [sys.executable, "-c", WAITING + loop, str(slow)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=CHILD_TIMEOUT)
    assert (out, err, child.returncode) == ("interrupted\n", "", 0)


def test_an_interrupt_in_a_call_comes_before_the_next_statement(
    slow: Path, run_python: RunPython
) -> None:
    """So that it also ends a sleep that would have followed."""
    calls = """
for _ in range(3):
    try:
        lib.urQueueFlush(queue)
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()  # what would send the signal once more
print("end")
"""
    done = run_python(WAITING + calls, str(slow))
    assert done.out == "interrupted\n" * 3 + "end\n" and not done.err


def test_an_interrupt_comes_to_the_program_and_to_no_entry_point(tmp_path: Path) -> None:
    library = build_adapter(ROOT / "examples/toy_adapter.py", tmp_path / "libur_adapter_toy.so.0")
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(library)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=CHILD_TIMEOUT)
        assert (out, err, child.returncode) == ("interrupted [0]\n", "", 0)
