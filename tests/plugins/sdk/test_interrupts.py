"""Ctrl-C in a Python program that calls an adapter all the time: KeyboardInterrupt comes to the program, and no call fails for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from helpers.support import CHILD_TIMEOUT, ROOT

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
