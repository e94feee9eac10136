"""A thread that waits inside a runtime does not hold the GIL, which an entry point may need."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest
from helpers.clients import cxx
from helpers.support import RunPython

from fairlead.plugins import build_adapter

_ADAPTER: Final = """
from fairlead.plugins import Adapter

adapter = Adapter("waits")
adapter.declare(urPlatformGet=lambda: [])
"""

#: A function of ctypes.PyDLL holds the GIL, as dpnp does where it calls libsycl.
_PROGRAM: Final = """
import ctypes, faulthandler, sys

faulthandler.dump_traceback_later(60, exit=True)  # only in a deadlock
runtime, ur = ctypes.PyDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
assert ur.urGetPlatformProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter = ctypes.c_void_p()
assert ur.urAdapterGet(1, ctypes.byref(adapter), None) == 0
codes = []


@ctypes.CFUNCTYPE(None)
def enter():
    codes.append(ur.urPlatformGet(adapter, 0, None, ctypes.byref(ctypes.c_uint32())))


"""

_WAITS: Final = (
    *("a mutex", "readers of a shared mutex", "a writer of a shared mutex", "call_once"),
    *("a spin lock", "a static variable", "a condition variable", "the end of a thread"),
)


@pytest.fixture(scope="session")
def waiting_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """waits.cpp as a library whose name is that of a runtime."""
    library = tmp_path_factory.mktemp("waits") / "libsycl.so.test"
    flags = ["-O1", "-shared", "-fPIC", "-pthread", "-Wl,-z,relro,-z,now", "-o", str(library)]
    source = str(Path(__file__).with_name("waits.cpp"))
    subprocess.run([*cxx(), "-Wall", "-Werror", source, *flags], check=True)
    return library


@pytest.fixture(scope="session")
def waiting_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of _ADAPTER."""
    module = tmp_path_factory.mktemp("waits") / "waits.py"
    module.write_text(_ADAPTER, encoding="utf-8")
    return build_adapter(module, module.with_suffix(".so"))


@pytest.mark.parametrize("how", range(len(_WAITS)), ids=_WAITS)
def test_an_entry_point_gets_the_gil_of_a_thread_that_waits(
    how: int, waiting_runtime: Path, waiting_adapter: Path, run_python: RunPython
) -> None:
    code = f"{_PROGRAM}runtime.wait_for({how}, enter)\nprint(codes)"
    output = run_python(code, str(waiting_runtime), str(waiting_adapter), check=False)
    assert (output.out, output.err, output.code) == ("[0]\n", "", 0)


def test_a_thread_has_the_gil_again_after_an_exception(
    waiting_runtime: Path, waiting_adapter: Path, run_python: RunPython
) -> None:
    code = f"{_PROGRAM}print(runtime.catch_from_once())"
    output = run_python(code, str(waiting_runtime), str(waiting_adapter), check=False)
    assert (output.out, output.err, output.code) == ("7\n", "", 0)
