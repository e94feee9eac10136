"""The driver's own table: which entries fairlead exchanges, until when. SECURITY.md lists them.

Each test runs in a child process, where no other graph is alive, and compares words of memory.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from helpers.driver_tables import EXCHANGED, functions_of_row, read_lists
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython

pytestmark = pytest.mark.slow

#: A context and a queue on one driver; a block, and one that an error ends.
BLOCKS: Final = f"""
{EXCHANGED}
(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
queue = cl.CommandQueue(context, properties=out_of_order)
svm = cl.SVM(cl.svm_empty(context, cl.svm_mem_flags.READ_WRITE, 64, np.int32))
memory = [cl.Buffer(context, cl.mem_flags.READ_WRITE, 256) for _ in range(2)]
source = "kernel void add(global int *a, int by) {{ a[get_global_id(0)] += by; }}"
program = cl.Program(context, source).build()

def add(*given):
    return cl.Kernel(program, "add")(queue, (64,), None, *given, np.int32(1))

def append_branches():
    for buffer in memory:
        add(buffer)
    cl.enqueue_barrier(queue)
    add(memory[0])

add(svm).wait()
queue_word, before = read_word(queue.int_ptr), table_of(context)
"""


def test_a_block_gives_everything_back(run_python: RunPython, each_driver: Driver) -> None:
    code = """
with fairlead.capture(queue) as graph:
    append_branches()
    print(exchanged())
    assert read_word(queue.int_ptr) != queue_word
print(exchanged())
assert read_word(queue.int_ptr) == queue_word
try:
    with fairlead.capture(queue):
        queue.finish()
except fairlead.FairleadError:
    print(exchanged())
assert read_word(queue.int_ptr) == queue_word
"""
    env = {"FAIRLEAD_CUDA": "0"}  # shared memory exchanges the functions that make memory before
    child = run_python(BLOCKS + code, each_driver.library, env=env)
    inside, after, failed = read_lists(child.out)
    assert inside == sorted(
        functions_of_row("a capture block") + functions_of_row("a graph that uses SVM")
    )
    assert after == failed == []


def test_a_graph_that_uses_svm_keeps_three(run_python: RunPython, each_driver: Driver) -> None:
    code = """
with fairlead.capture(queue) as graph:
    add(svm)
loop = graph.finalize()
loop.replay(queue).wait()
print(exchanged())
del graph
print(exchanged())
del loop
print(exchanged())
"""
    graph, executable, none = read_lists(run_python(BLOCKS + code, each_driver.library).out)
    assert graph == executable == functions_of_row("a graph that uses SVM")
    assert none == []


@pytest.mark.parametrize("switched_off", [False, True])
def test_a_branching_graph_keeps_the_waits_on_intels_driver(
    run_python: RunPython, each_driver: Driver, switched_off: bool
) -> None:
    code = """
with fairlead.capture(queue) as graph:
    append_branches()
loop = graph.finalize(schedule="queues")
loop.replay(queue).wait()
print(exchanged())
del loop
print(exchanged())
"""
    env = {"FAIRLEAD_COMMAND_BUFFER": "replay"}
    if switched_off:
        (switch,) = re.findall(r"`FAIRLEAD_QUIRKS=(-waits\S+)`", (ROOT / "SECURITY.md").read_text())
        env["FAIRLEAD_QUIRKS"] = switch
    alive, none = read_lists(run_python(BLOCKS + code, each_driver.library, env=env).out)
    stays = "Intel" in each_driver.platform and not switched_off
    assert alive == (functions_of_row("a graph with branches") if stays else [])
    assert none == []
