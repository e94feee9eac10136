"""Capture in processes of their own: the order of imports, the end of the interpreter, forks."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

pytestmark = pytest.mark.slow

PROGRAM = """
import numpy as np
{imports}
from fairlead.captured_graphs.context import capture
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
values, got = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
x = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
y = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
with capture(queue) as graph:  # no kernel: PyPI's PoCL, unrepaired, builds none on some CPUs
    cl.enqueue_copy(queue, y, x)
loop = graph.finalize()
for _ in range(3):
    cl.enqueue_fill_buffer(queue, y, np.float32(0), 0, values.nbytes)
    event = loop.replay(queue)
cl.enqueue_copy(queue, got, y)
assert (got == values).all()
"""

IMPORTS = {
    "fairlead-first": "import fairlead\nimport fairlead.captured_graphs.context\nimport pyopencl "
    "as cl",
    "pyopencl-first": "import pyopencl as cl\ncl.get_platforms()\nimport fairlead",
    "drivers-first": "from fairlead.icd.drivers import drivers\ndrivers()\nimport pyopencl as cl",
    "drivers-last": "import pyopencl as cl\ncl.get_platforms()\nfrom fairlead.icd.drivers import "
    "drivers\ndrivers()",
}


@pytest.mark.parametrize("order", IMPORTS)
def test_the_order_of_imports_does_not_matter(run_python: RunPython, order: str) -> None:
    assert run_python(PROGRAM.format(imports=IMPORTS[order]) + "print('done')").out.endswith(
        "done\n"
    )


ENDINGS = {
    "all alive, work still running": "loop.replay(queue, times=50)",
    "a cycle": "graph.self = graph; graph.loop = loop; loop.replay(queue)",
    "inside a block": "block = capture(queue); block.__enter__(); cl.enqueue_copy(queue, y, x)",
    "only the graph": "del queue, context, x, y, event, loop",
    "held by a module": "import sys; sys.modules['json'] = loop",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_cleanly(run_python: RunPython, ending: str) -> None:
    done = run_python(
        PROGRAM.format(imports=IMPORTS["pyopencl-first"])
        + ENDINGS[ending]
        + "\nprint('done', flush=True)"
    )
    assert done.out.endswith("done\n")
    assert "Traceback" not in done.err


#: Out-of-order queues are dropped after their replays. The next replay gives up the last reference
#: while commands run.
LEAVING = """
import faulthandler, sys

faulthandler.dump_traceback_later(60, exit=True)  # only if it hangs
import numpy as np
import pyopencl as cl
import fairlead

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
other, out_of_order = (
    cl.CommandQueue(context),
    cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE,
)
host, target = np.ones(1 << 16, np.int32), np.zeros(1 << 16, np.int32)
first, second = (cl.Buffer(context, cl.mem_flags.READ_WRITE, host.nbytes) for _ in range(2))
queue = cl.CommandQueue(context, properties=out_of_order)
with fairlead.capture(queue) as graph:
    writes = [cl.enqueue_copy(queue, buffer, host, is_blocking=False) for buffer in (first, second)]
    cl.enqueue_copy(queue, first, second, wait_for=writes)
loop = graph.finalize(schedule="events")
for _ in range(200):
    queue = cl.CommandQueue(context, properties=out_of_order)
    loop.replay(queue)
    queue.flush()
    del queue
    cl.enqueue_copy(other, target, second, is_blocking=True)
loop.replay(other).wait()
print("released")
"""


def test_a_queue_is_left_while_a_replay_runs_on_it(
    run_python: RunPython, each_driver: Driver
) -> None:
    """Intel's driver would hang."""
    assert run_python(LEAVING, each_driver.library).out == "released\n"


#: Python ends, and frees the host's memory, while a replay writes there. Its pages are gone then.
ENDING = """
import sys
import numpy as np
import pyopencl as cl
import fairlead

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
queue = cl.CommandQueue(context)
properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
other = cl.CommandQueue(context, properties=properties)
host = np.zeros(1 << 22, np.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, host.nbytes)
cl.enqueue_fill_buffer(queue, buffer, np.int32(7), 0, host.nbytes).wait()
with fairlead.capture(queue) as graph:
    cl.enqueue_copy(queue, host, buffer, is_blocking=False)
loop = graph.finalize()
loop.replay(QUEUE, times=300)
"""


@pytest.mark.parametrize("used", ["queue", "other"])
@pytest.mark.parametrize("dropped", ["host", "host, graph, loop", "graph, loop, queue, other"])
def test_a_replay_runs_when_the_interpreter_ends(
    run_python: RunPython, each_driver: Driver, used: str, dropped: str
) -> None:
    """Intel's driver crashes if the process ends with a running out-of-order queue."""
    program = f"{ENDING.replace('QUEUE', used)}del {dropped}\nprint('done', flush=True)"
    assert run_python(program, each_driver.library).out == "done\n"


@pytest.mark.skipif("FAIRLEAD_CUDA" in os.environ, reason="CUDA is opened before the fork")
def test_a_capture_in_a_forked_child(run_python: RunPython) -> None:
    """A child that forked before any driver was used captures for itself."""
    code = "import os, fairlead.captured_graphs.context\npid = os.fork()\n"
    code += "if pid:\n    assert os.waitpid(pid, 0)[1] == 0\n    print('parent')\nelse:\n"
    body = (PROGRAM.format(imports="import pyopencl as cl") + "os._exit(0)").replace("\n", "\n    ")
    assert "parent" in run_python(code + "    " + body).out


#: A child of a process that has used drivers lacks their threads. A replay would wait for them.
FORKED = """
import os
import re

loop = graph.finalize(updatable=True)
loop.replay(queue).wait()
uses = {
    "replay": lambda: loop.replay(queue),
    "explain": lambda: loop.explain(queue),
    "update": lambda: loop.update(graph),
    "finalize": graph.finalize,
}
if not os.fork():
    for name, use in uses.items():
        try:
            use()
            print(name, "is not refused")
        except fairlead.FairleadError as error:
            if "forked" not in str(error) or "spawn" not in error.remedy:
                print(name, error)
    print("child", flush=True)
    os._exit(0)
os.wait()
loop.replay(queue).wait()
print("parent")
"""


def test_a_forked_child_is_refused_a_parents_graph(run_python: RunPython) -> None:
    program = PROGRAM.format(imports=IMPORTS["fairlead-first"])
    assert run_python(program + FORKED).out == "child\nparent\n"


#: Forks. The child makes a context and captures. The arguments are the driver, and who has opened
#: it before the fork.
OPENED_BEFORE = """
import os, signal, sys
import numpy as np
import pyopencl as cl
import fairlead

def find_device():
    platforms = fairlead.platforms()
    return next(p for p in platforms if p.driver.path.endswith(sys.argv[1])).devices[0]

if sys.argv[2] == "fairlead":
    find_device()
elif sys.argv[2] == "PyOpenCL":
    [platform.get_devices() for platform in cl.get_platforms()]
read, write = os.pipe()
if not os.fork():
    signal.alarm(60)  # only if it hangs; a watchdog would be a thread
    device = find_device().to_pyopencl()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    buffer, found = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4), np.zeros(1, np.int32)
    try:
        with fairlead.capture(queue) as graph:
            cl.enqueue_fill_buffer(queue, buffer, np.int32(7), 0, 4)
        graph.finalize().replay(queue)
        cl.enqueue_copy(queue, found, buffer)
        said = f"{found[0]}"
    except fairlead.CaptureError as refusal:
        said = str(refusal)
    os.write(write, f"{device.max_compute_units} {said}".encode())
    os._exit(0)
os.close(write)
os.wait()
print(os.read(read, 4096).decode())
"""


@pytest.mark.driver("pocl_wheel")
@pytest.mark.parametrize("opened_by", ["fairlead", "PyOpenCL", "nobody"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_fork_without_the_drivers_threads(
    run_python: RunPython, pocl_wheel: Any, opened_by: str, fresh: bool
) -> None:
    """PoCL's threads run all commands. A replay would never end.

    A fresh interpreter imports most of fairlead in the fork only.
    """
    env = {"FAIRLEAD_QUIRKS": None, "POCL_DEVICES": "pthread"}
    units, _, said = run_python(
        OPENED_BEFORE, pocl_wheel.library, opened_by, env=env, fresh=fresh
    ).out.partition(" ")
    if opened_by == "nobody":
        assert said == "7\n"
    elif int(units) > 1:
        assert "its threads do not exist here" in said and "forkserver" in said
    else:
        pytest.skip("with one compute unit the device may need no threads")


#: A graph that a module holds, of a program in which a context of fairlead's lives on.
HELD_TO_THE_END = """
import sys
import numpy as np, pyopencl as cl, pyopencl.array as cl_array
from fairlead import capture
from fairlead.icd.drivers import platforms

(platform,) = (found for found in platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
queue = cl.CommandQueue(context)
x = cl_array.to_device(queue, np.ones(64, np.float32))
with capture(queue) as graph:
    out = x * x
loop = graph.finalize(fuse="wait")
for _ in range(4):
    loop.replay(queue, wait=True)
print("replayed")
"""


def test_a_graph_that_lives_to_the_end_prints_nothing(
    run_python: RunPython, each_driver: Driver
) -> None:
    done = run_python(HELD_TO_THE_END, each_driver.library, fresh=True)
    assert done.out == "replayed\n"
    assert "Exception ignored" not in done.err


#: A capture and a replay print what was imported for them.
FIRST_CAPTURE = """
import sys
import numpy as np, pyopencl as cl

context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
queue = cl.CommandQueue(context)
source, target = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 64) for _ in range(2))
before = set(sys.modules)
from fairlead import capture
with capture(queue) as graph:
    cl.enqueue_copy(queue, target, source)
graph.finalize().replay(queue, wait=True)
print(*set(sys.modules) - before)
"""
#: What a first capture does without: other drivers' engines and what they need, what opens
#: adapters, what draws, and modules of Python's that take milliseconds.
_NOT_FOR_IT = re.compile(
    r"fairlead\.(loader\.(ze|ur\.(adapters|binding|plugins?|preview|validation\w*))"
    r"|loader\.(base\.drawing|trace\.summary)|graph_files|plugins|conformance|cli|dask)\b.*"
    r"|configparser|difflib|filecmp|glob|html|statistics|decimal|fractions|secrets"
)
#: What only one platform needs, by what its name has.
_FOR_ONE = {
    "Portable": re.compile(
        r"fairlead\.icd\.(command_buffer\.(engines\.direct|direct_\w+|prepared_\w+)|pocl_kernels)"
    ),
    "NVIDIA": re.compile(
        r"fairlead\.(icd\.(command_buffer\.(engines\.cuda|cuda_\w+)|cuda_sharing|nvidia_ptx)"
        r"|loader\.(cuda|gpu))\b.*"
    ),
}


def test_a_first_capture_imports_what_its_driver_needs(
    run_python: RunPython, each_driver: Driver
) -> None:
    env = {"OCL_ICD_VENDORS": each_driver.library}
    imported = run_python(FIRST_CAPTURE, env=env, fresh=True).out.split()
    assert "fairlead.icd.command_buffer.engines.replay" in imported
    assert [name for name in imported if _NOT_FOR_IT.fullmatch(name)] == []
    for platform, names in _FOR_ONE.items():
        found = [name for name in imported if names.fullmatch(name)]
        assert bool(found) == (platform in each_driver.platform), found
