"""The layer as a loader sees it, and what Python programs, threads and the command line make of
it."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path

from helpers.drivers import Driver
from helpers.support import ROOT, FakeDriver, RunPython

from fairlead.icd import libopencl
from fairlead.icd.abi import OPENCL
from fairlead.plugins import command_buffer_layer

from .conftest import Calls, Layered

SLOTS = len(OPENCL.slots)
BUILD = ROOT / "plugins/command_buffer_layer/native/build.py"

#: Starts the layer with a table of invented pointers, and prints which slots changed.
START = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
def start(entries, name="clInitLayer", *more, first=1):
    theirs = (ctypes.c_void_p * entries)(*range(first, first + entries))
    count, table = ctypes.c_uint32(), ctypes.c_void_p()
    function = getattr(library, name)
    code = function(entries, theirs, ctypes.byref(count), ctypes.byref(table), *more)
    if code:
        return code
    ours = (ctypes.c_void_p * count.value).from_address(table.value)
    return [slot for slot, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b]
"""


def test_only_what_it_needs_is_exchanged(run_python: RunPython) -> None:
    """All other calls are the next table's own functions, and cost nothing."""
    code = (
        f"print(start({SLOTS})); print(start(10)); print(start({SLOTS}, "
        "'clInitLayerWithProperties', None))"
    )
    hooks = runpy.run_path(str(BUILD))["HOOKS"]
    expected = sorted(OPENCL.functions[name].slot or 0 for name in hooks)
    output = run_python(START + code, str(command_buffer_layer.find_library())).out.splitlines()
    whole, short, second = map(eval, output)
    assert whole == second == expected
    assert short == [slot for slot in expected if slot < 10]


def test_what_it_refuses_of_a_loader(run_python: RunPython) -> None:
    code = """
print(library.clInitLayer(0, None, None, None))
print(start(150, "clInitLayerWithProperties", (ctypes.c_uint64 * 3)(7, 7, 0)))
print({isinstance(start(150), int) for _ in range(1000)})
print([isinstance(start(150, first=number), int) for number in range(1, 67)].index(True))
print(start(150, first=1000), isinstance(start(150), list))
print(library.clDeinitLayer())
size, text = ctypes.c_size_t(), ctypes.create_string_buffer(100)
print(library.clGetLayerInfo(0x4241, 100, text, ctypes.byref(size)), text.value.decode())
print(library.clGetLayerInfo(0x4241, 3, text, None), library.clGetLayerInfo(7, 100, text, None))
"""
    assert run_python(START + code, str(command_buffer_layer.find_library())).out.splitlines() == [
        "-30",
        "-64",
        "{False}",
        "64",
        "-5 True",
        "0",
        "0 fairlead command-buffer",
        "-30 -30",
    ]


def test_many_loaders_in_one_process(
    layered: Layered, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Each has a table of its own in front of the driver, and tells its program of the layer."""
    copies = [
        shutil.copy(libopencl.find_library(), tmp_path / f"libOpenCL.so.{i}") for i in range(9)
    ]
    code = """
import ctypes, sys
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    platform, text = (ctypes.c_void_p * 1)(), ctypes.create_string_buffer(1000)
    assert library.clGetPlatformIDs(1, platform, None) == 0
    one = ctypes.c_void_p(platform[0])
    assert library.clGetPlatformInfo(one, 0x904, ctypes.c_size_t(1000), text, None) == 0
    print(b"cl_khr_command_buffer" in text.value.split())
"""
    env = {"FAIRLEAD_PYTHON": "0"}
    output = layered(sys.executable, "-c", code, *copies, drivers=[fake_driver()], env=env)
    assert output.out == 9 * "True\n" and output.err == ""


def test_fairlead_knows_it_by_its_name(
    layered: Layered, each_driver: Driver, run_python: RunPython
) -> None:
    main = "from fairlead.cli.main import main; main()"
    own = run_python(main, "layers", "--own").out
    assert "command-buffer | fairlead command-buffer | 100 | clInitLayer" in own
    assert str(command_buffer_layer.find_library().resolve()) in own
    ask = "import os; print(os.environ['OPENCL_LAYERS'])"
    program = (sys.executable, "-c", main, "run", "--layers", "command-buffer:/x")
    output = layered(*program, "--", sys.executable, "-c", ask, drivers=[each_driver.library])
    first, second = output.out.strip().split(":")
    assert os.path.samefile(first, command_buffer_layer.find_library()) and second == "/x"


def test_threads(calls: Calls, each_driver: Driver) -> None:
    """Each has command-buffers of its own, and all share one."""
    code = """
import threading
shared, total = create(), buffer(4)
launch(shared, kernel("add", total, (1,)), 4)
finalize(shared)
found = {}
def work(number):
    queue, a = new_queue(), buffer(4)
    k = kernel("add", a, (number,))
    for turn in range(5):
        cb, handle = create(queue, properties=(FLAGS, MUTABLE, 0)), out()
        launch(cb, k, 4, handle=handle)
        finalize(cb)
        for _ in range(4):
            ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
            ok(cl.clEnqueueCommandBufferKHR(0, None, shared, 0, None, None))
            assert update(cb, config(handle.value, number_argument(1, number))) == "CL_SUCCESS"
        ok(cl.clReleaseCommandBufferKHR(cb))
    found[number] = read(a, 4, queue)
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for one in threads: one.start()
for one in threads: one.join()
say([found.get(number) for number in range(6)])
say(read(total, 4))
"""
    assert calls(code, each_driver) == [[[20 * number] * 4 for number in range(6)], [120] * 4]


def test_a_program_of_pyopencl(layered: Layered, each_driver: Driver) -> None:
    """PyOpenCL knows no command-buffers. Its kernels and queues can be used for them."""
    code = """
import ctypes, sys, warnings
import fairlead.preload
import numpy, pyopencl

warnings.simplefilter("ignore")
from fairlead.icd.abi import OPENCL

(device,) = pyopencl.get_platforms()[0].get_devices()
context = pyopencl.Context([device])
queue = pyopencl.CommandQueue(context)
print("cl_khr_command_buffer" in device.extensions.split())
program = pyopencl.Program(
    context, "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"
).build()
a = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(5, dtype=numpy.int32)
)
library = ctypes.CDLL("libOpenCL.so.1")
ask = library.clGetExtensionFunctionAddressForPlatform
ask.restype, ask.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)


def function(name):
    return OPENCL.functions[name].prototype(ask(device.platform.int_ptr, name.encode()))


code = ctypes.c_int32()
made = function("clCreateCommandBufferKHR")(
    1, (ctypes.c_void_p * 1)(queue.int_ptr), None, ctypes.addressof(code)
)
add = program.add
size = (ctypes.c_size_t * 1)(5)
for number in range(4):
    add.set_args(a, numpy.int32(10**number))
    assert not function("clCommandNDRangeKernelKHR")(
        made, None, None, add.int_ptr, 1, None, size, None, 0, None, None, None
    )
assert not function("clFinalizeCommandBufferKHR")(made)
for _ in range(3):
    assert not function("clEnqueueCommandBufferKHR")(0, None, made, 0, None, None)
result = numpy.empty(5, numpy.int32)
pyopencl.enqueue_copy(queue, result, a)
print(result.tolist())
"""
    output = layered(sys.executable, "-c", code, drivers=[each_driver.library])
    assert output.out.splitlines() == ["True", str([3333 + number for number in range(5)])]


def test_ctrl_c_is_not_lost(calls: Calls, each_driver: Driver) -> None:
    """It comes while the layer records in Python. The call ends, then it is raised."""
    code = """
import os, signal
a = buffer(4)
k = kernel("add", a, (1,))
recorded, interrupts = create(), 0
for turn in range(200):
    try:
        if turn % 20 == 10:
            os.kill(os.getpid(), signal.SIGINT)
        launch(recorded, k, 4)
    except KeyboardInterrupt:
        interrupts += 1
        continue
finalize(recorded)
say(interrupts)
enqueue(recorded)
say(read(a, 4)[0] >= 190)
"""
    assert calls(code, each_driver) == [10, True]
