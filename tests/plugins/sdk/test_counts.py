"""References are counted in C: a runtime's thread never waits for the GIL that the program holds,
and what it releases is closed soon."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from helpers.hosts import compile_host
from helpers.support import RunPython

from fairlead.loader.ur.abi import UR
from fairlead.plugins import build_adapter, build_plugin

#: Four devices, of which it is told when they are closed.
ADAPTER: Final = """
import os
from fairlead.plugins import Adapter, Object

adapter = Adapter("counted")
closed = []


@adapter.kind
class Device(Object):
    type = "ur_device_handle_t"

    def __init__(self, number):
        self.number = number

    def close(self):
        closed.append(self.number)
        if "TELL" in os.environ:
            print("closed", self.number, flush=True)


platform = adapter.kind("ur_platform_handle_t", counted=False)()
adapter.declare(
    urPlatformGet=lambda: [platform], urDeviceGet=lambda: [Device(number) for number in range(4)]
)
adapter.info(
    "urDeviceGetInfo", {"UR_DEVICE_INFO_REFERENCE_COUNT": lambda device: device.references}
)
"""

#: The beginning of a program that holds the GIL as `dpctl.tensor` does. A function of ctypes.PyDLL
#: does not give it up.
PROGRAM: Final = """
import ctypes, faulthandler, sys

faulthandler.dump_traceback_later(100, exit=True)  # only in a deadlock
ur, held, free = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[2]), ctypes.CDLL(sys.argv[2])
assert ur.urGetDeviceProcAddrTable(12, (ctypes.c_void_p * 100)()) == 0
adapter, platform, devices = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_void_p * 4)()
assert ur.urAdapterGet(1, ctypes.byref(adapter), None) == 0
assert ur.urPlatformGet(adapter, 1, ctypes.byref(platform), None) == 0
assert ur.urDeviceGet(platform, 1, 4, devices, None) == 0
closed = sys.modules[sys.argv[3]].closed


def references(device):
    value = ctypes.c_uint32()
    code = ur.urDeviceGetInfo(
        ctypes.c_void_p(device), int(sys.argv[4]), ctypes.c_size_t(4), ctypes.byref(value), None
    )
    return value.value if code == 0 else -code


def in_thread(library, retains, releases, counts=(ur.urDeviceRetain, ur.urDeviceRelease)):
    assert library.in_thread(*counts, retains, releases, devices, 4) == 0
"""


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runtime.c, compiled."""
    library = tmp_path_factory.mktemp("runtime") / "runtime.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", str(library)]
    subprocess.run(
        [*os.environ.get("CC", "cc").split(), str(Path(__file__).with_name("runtime.c")), *flags],
        check=True,
    )
    return library


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module of ADAPTER, with its library and a PI plugin over that beside it."""
    module = tmp_path_factory.mktemp("counted") / "counted.py"
    module.write_text(ADAPTER, encoding="utf-8")
    build_plugin(build_adapter(module, module.with_suffix(".so")), module.with_name("plugin.so"))
    return module


#: Closes devices in a function of Py_AddPendingCall, which adds another one. With a tracer Python
#: 3.11 then repeats an instruction for ever.
_TRACED: Final = """
import resource

resource.setrlimit(resource.RLIMIT_CPU, (10, 10))


class Closed(list):
    def append(self, number):
        assert ctypes.pythonapi.Py_AddPendingCall(ctypes.CDLL(None).abs, None) == 0
        self.keep(number)

    def keep(self, number):
        super().append(number)


closed = sys.modules[sys.argv[3]].closed = Closed()
sys.TOOL(lambda *event: None)
in_thread(held, 100, 101)
in_thread(free, 0, 0)
print(closed)
"""

#: What a program does, and what it prints.
CASES: Final = {
    "other references": (
        "in_thread(held, 100, 98); print(*map(references, devices), closed)",
        "3 3 3 3 []",
    ),
    # closed by the main thread, as soon as it has had the GIL anew
    "the last reference": (
        "in_thread(held, 100, 101); in_thread(free, 0, 0); print(closed)",
        "[0, 1, 2, 3]",
    ),
    "the last reference, without the GIL": (
        "in_thread(free, 100, 101); print(closed)",
        "[0, 1, 2, 3]",
    ),
    "the last reference, with a tracer": (_TRACED.replace("TOOL", "settrace"), "[0, 1, 2, 3]"),
    "the last reference, with a profiler": (_TRACED.replace("TOOL", "setprofile"), "[0, 1, 2, 3]"),
    "through PI": (
        "pi, plugin = ctypes.CDLL(sys.argv[5]), ctypes.create_string_buffer(b'15.47', "
        "4096)\n"
        "assert pi.piPluginInit(plugin) == 0\n"
        "in_thread(held, 100, 98, (pi.piDeviceRetain, pi.piDeviceRelease)); "
        "print(*map(references, devices), closed)\n"
        "in_thread(free, 0, 3, (pi.piDeviceRetain, pi.piDeviceRelease)); print(closed, "
        "pi.piDeviceRelease(None), "
        "pi.piDeviceRelease(ctypes.c_void_p(devices[0])))",
        "3 3 3 3 []\n[0, 1, 2, 3] -33 -33",
    ),
    "in a thread that has the GIL": (
        "release = ctypes.PyDLL(sys.argv[1]).urDeviceRelease\n"
        "print([(release(ctypes.c_void_p(d)), *closed) for d in devices[:2]])",
        "[(0, 0), (0, 0, 1)]",
    ),
    # closed by the next call of the adapter, while the main thread waits in C and has no time for
    # it
    "in a thread that calls on": (
        "def other():\n"
        "    in_thread(held, 0, 1)\n"
        "    print(list(closed), -references(devices[0]), "
        "ur.urDeviceRetain(ctypes.c_void_p(devices[0])), closed)\n"
        "assert free.call_in_thread(ctypes.CFUNCTYPE(None)(other)) == 0",
        "[] 19 19 [0, 1, 2, 3]",
    ),
}


@pytest.mark.parametrize(("code", "printed"), CASES.values(), ids=CASES)
def test_a_thread_does_not_wait_for_the_gil_to_count(
    code: str, printed: str, runtime: Path, counted: Path, run_python: RunPython
) -> None:
    library, plugin = counted.with_suffix(".so"), counted.with_name("plugin.so")
    arguments = (
        str(library),
        str(runtime),
        str(counted),
        str(UR["UR_DEVICE_INFO_REFERENCE_COUNT"]),
        str(plugin),
    )
    output = run_python(PROGRAM + code, *arguments, check=False)
    assert (output.out, output.err, output.code) == (f"{printed}\n", "", 0)


def test_where_the_program_has_no_python_the_last_release_closes(
    counted: Path, tmp_path: Path
) -> None:
    host = compile_host(tmp_path)
    words = "open", counted.with_suffix(".so"), "table", "adapter", "platform", "devices", "4"
    output = host(*words, env={"TELL": "1"})
    assert output.out.splitlines()[4:] == [
        *(f"closed {number}" for number in range(4)),
        "devices: 0",
    ], output


_FORK = """
import os
from fairlead.plugins.sdk._native import ffi, lib

lib.fl_make_handles(15, 1)  # an adapter: from now on C knows of forks
busy = ffi.new("unsigned *")
kernel, sdk = ffi.new("fl_kernel *", {"busy": busy}), lib.fl_exported_by_sdk()
lib.fl_enter_kernel(kernel)
child = os.fork()
entered = sdk.try_kernel(kernel)
if not child:
    os._exit(entered)
print(entered, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_kernel_that_a_thread_had_is_free_in_a_forked_child(run_python: RunPython) -> None:
    assert run_python(_FORK, fresh=True).out.split() == ["False", "1"]


_FORK_ZE = """
import os
from fairlead.plugins.level_zero import in_c
from fairlead.plugins.sdk._native import ffi as sdk_ffi, lib as sdk
from fairlead.plugins.sdk._native_ze import ffi, lib

sdk.fl_make_handles(15, 1)
event, queue = ffi.new("fl_ze_event *"), ffi.new("fl_ze_queue *")
for thing in event, queue:
    lock = sdk_ffi.cast("unsigned *", int(ffi.cast("uintptr_t", ffi.addressof(thing, "lock"))))
    sdk.fl_exported_by_sdk().enter_lock(lock)
child = os.fork()
if not child:
    lib.fl_ze_give_event(event)
    lib.fl_ze_pause(queue)
    os._exit(queue.in_python + 1)
print(event.lock, queue.lock, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_events_and_queues_of_level_zero_are_free_in_a_forked_child(run_python: RunPython) -> None:
    assert run_python(_FORK_ZE, fresh=True).out.split() == ["1", "1", "2"]
