"""Programs that share their buffers with CUDA, in processes of their own: on PoCL and the fake
CUDA (helpers/cuda_children.py)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.cuda import SOURCE
from helpers.cuda_children import SHARING, environment, run
from helpers.driver_tables import EXCHANGED, functions_of_row, read_lists
from helpers.support import RunPython

pytestmark = pytest.mark.slow
__all__ = ["environment"]  # a fixture


def test_a_program_runs_as_a_cuda_graph(run_python: RunPython, environment: dict[str, str]) -> None:
    code = """
queue = cl.CommandQueue(context)
y = buffer(1)
loop = captured(queue, y, 2, 1, times=3)
loop.replay(queue, wait=True)
print(values(queue, y), launches(), shared(), "a CUDA Graph of 3 nodes" in loop.explain(queue))
"""
    assert run(run_python, environment, code) == ["[15] 1 1 True"]


def test_a_context_from_before_reuses_nothing(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """Its queues are not known, so nobody knows what they still use."""
    find, switch, share = SHARING.partition('os.environ["FAIRLEAD_CUDA"]')
    code = f"""
{find}
early = cl.Context([found.to_pyopencl()])
{switch}{share}
def addresses(context):
    for _ in range(40):
        made = cl.Buffer(context, READ_WRITE, 3 << 20)
        yield lib.fl_cuda_address(ffi.cast("void *", made.int_ptr))
        del made
queues = cl.CommandQueue(early), cl.CommandQueue(context)
for one in early, context:
    given = list(addresses(one))
    print(all(given), lib.fl_count_shared().reused)
"""
    done = run_python(code, env=environment)
    assert done.out.splitlines() == ["True 0", "True 39"]


def test_threads_share_and_replay_at_once(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """Each has a context, a queue, buffers and graphs of its own."""
    code = """
failures = []
def work(number):
    try:
        own = cl.Context([found.to_pyopencl()])
        queue, built = cl.CommandQueue(own), cl.Program(own, SOURCE_TEXT).build()
        for turn in range(5):
            y, expected = buffer(number, own), number
            loop = captured(queue, y, 3, turn, times=4, of=built)
            for wait in (True, False, True):
                loop.replay(queue, wait=wait)
                for _ in range(4):
                    expected = (expected * 3 + turn + 2**31) % 2**32 - 2**31
            found_values = values(queue, y)
            if found_values != [expected]:
                failures.append((number, turn, found_values, expected))
    except BaseException as error:
        failures.append((number, repr(error)))
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for one in threads: one.start()
for one in threads: one.join()
gc.collect()
print(failures, launches() >= 8 * 5 * 3)
queue, kept = cl.CommandQueue(context), buffer(0)
while shared() > 1:  # a graph that is dropped before it ends is freed with a later one
    captured(queue, kept, 2, 1).replay(queue, wait=True)
    gc.collect()
print(shared())
""".replace("SOURCE_TEXT", repr(SOURCE))
    assert run(run_python, environment, code) == ["[] True", "1"]


def test_a_forked_child_shares_nothing_and_its_parent_goes_on(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    code = """
queue = cl.CommandQueue(context)
y = buffer(1)
loop = captured(queue, y, 2, 1)
loop.replay(queue, wait=True)
child = os.fork()
if not child:
    before = shared()
    plain = cl.Buffer(context, READ_WRITE, 4 * SIZE)
    forgotten = cuda_sharing.find_shared_device(found.handle) is None
    is_plain = not lib.fl_cuda_address(ffi.cast("void *", plain.int_ptr))
    os._exit(0 if forgotten and is_plain and shared() == before else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loop.replay(queue, wait=True)
new = buffer(0)
print(values(queue, y), bool(lib.fl_cuda_address(ffi.cast("void *", new.int_ptr))))
"""
    assert run(run_python, environment, code) == ["0", "[7] True"]


def test_objects_are_released_in_any_order(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """24 orders, each after a replay that nobody has waited for."""
    code = """
kinds = "buffer", "queue", "context", "loop"
for order in itertools.permutations(kinds):
    own = cl.Context([found.to_pyopencl()])
    built = cl.Program(own, SOURCE_TEXT).build()
    objects = {"context": own, "queue": cl.CommandQueue(own), "buffer": buffer(1, own)}
    objects["loop"] = captured(objects["queue"], objects["buffer"], 2, 1, of=built)
    objects["loop"].replay(objects["queue"])
    del own, built
    for kind in order:
        del objects[kind]
        gc.collect()
kept, queue = buffer(0), cl.CommandQueue(context)
while shared() > 1:  # a graph that is dropped before it ends is freed with a later one
    captured(queue, kept, 2, 1).replay(queue, wait=True)
    gc.collect()
print(shared(), launches() >= 24)
""".replace("SOURCE_TEXT", repr(SOURCE))
    assert run(run_python, environment, code) == ["1 True"]


@pytest.mark.parametrize("wait", [True, False])
def test_a_program_may_end_with_everything_alive(
    run_python: RunPython, environment: dict[str, str], wait: bool
) -> None:
    code = f"""
queue = cl.CommandQueue(context)
y, z = buffer(1), cl.Buffer(context, READ_WRITE, 3 << 20)
loop = captured(queue, y, 2, 1, times=50)
for _ in range(5):
    end = loop.replay(queue, wait={wait})
print(shared())
"""
    assert run(run_python, environment, code) == ["2"]


def test_svm_stays_the_drivers_own(run_python: RunPython, environment: dict[str, str]) -> None:
    """A graph with shared virtual memory runs by another engine, beside one that CUDA runs."""
    code = """
queue = cl.CommandQueue(context)
svm = cl.SVM(cl.csvm_empty(context, SIZE, np.int32))
with svm.map_rw(queue) as mapped:
    mapped[:] = 1
y = buffer(1)
with fairlead.capture(queue) as graph:
    scale(queue, svm, 2, 1)
loop, other = graph.finalize(), captured(queue, y, 2, 1)
for _ in range(3):
    loop.replay(queue)
    other.replay(queue)
queue.finish()
with svm.map_ro(queue) as mapped:
    print(sorted(set(mapped.tolist())), values(queue, y), launches(), shared())
(line,) = (one for one in loop.explain(queue).splitlines() if "  cuda" in one)
print(line.split("not chosen: ")[1])
"""
    lines = run(run_python, environment, code)
    why_not = "it uses shared virtual memory: use buffers, or run it outside the block"
    assert lines == ["[15] [15] 3 1", f"command 0 (kernel): {why_not}"]


def test_shared_memory_keeps_what_shared_buffers_need(
    run_python: RunPython, fake_cuda_path: Path
) -> None:
    """When the sharing ends, the two that make buffers go back."""
    find, switch, share = SHARING.partition('os.environ["FAIRLEAD_CUDA"]')
    code = f"""
{find}
{EXCHANGED}
context = cl.Context([found.to_pyopencl()])
before = table_of(context)
{switch}{share}
print(exchanged())
kept = buffer(0)
cuda_sharing.stop_sharing()
print(exchanged())
"""
    env = {"LD_LIBRARY_PATH": str(fake_cuda_path.parent), "FAIRLEAD_CUDA": "0"}
    shared, ended = read_lists(run_python(code, env=env).out)
    assert shared == functions_of_row("shared memory")
    assert ended == sorted(set(shared) - {"clCreateBuffer", "clCreateBufferWithProperties"})


def test_calls_on_queues_are_seen_and_those_of_extensions_are_respected(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """A program that has a call on queues which is not in the table gets barriers."""
    find, switch, share = SHARING.partition('os.environ["FAIRLEAD_CUDA"]')
    code = f"""
{find}
{EXCHANGED}
from fairlead.icd.calls import find_function
slot = OPENCL.functions["clGetExtensionFunctionAddressForPlatform"].slot
answer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    lambda platform, name: 1 if name == b"clEnqueueOfAnExtension" else None
)
place = ctypes.c_void_p.from_address(read_word(found.handle) + 8 * slot)
place.value = ctypes.cast(answer, ctypes.c_void_p).value
{switch}{share}
before = table_of(context)
queue, y = cl.CommandQueue(context), buffer(0)
loop = captured(queue, y, 1, 1)
loop.replay(queue, wait=True)
print(exchanged())
def count_lanes():
    events = [loop.replay(queue) for _ in range(3)]
    return [one.command_type for one in events].count(cl.command_type.USER)
platform = context.devices[0].platform.int_ptr
ask = find_function(platform, "clGetExtensionFunctionAddressForPlatform")
print(count_lanes())
print(ask(platform, b"clEnqueueOfNobody"), count_lanes())
print(ask(platform, b"clEnqueueOfAnExtension"), count_lanes())
print(values(queue, y))
"""
    names, *lines = run_python(code, env=environment).out.splitlines()
    listed = functions_of_row("the first replay")
    assert [one for one in ast.literal_eval(names) if not one.startswith("clEnqueue")] == listed
    assert lines == ["3", "None 3", "1 0", "[10]"]
