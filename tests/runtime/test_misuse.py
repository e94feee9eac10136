"""What is given wrongly is told in words: the routine that was called, what it was given, what to
do instead."""

# What is given wrongly is the point.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

import numpy
import pytest
from helpers.support import RunPython
from helpers.sycl import SOURCE, N, check_refused, zeros

from fairlead.runtime import (
    USM,
    Accessor,
    Buffer,
    Context,
    Device,
    Errc,
    Event,
    Handler,
    LocalMemory,
    Program,
    Queue,
    RawArgument,
    SYCLError,
    devices,
    malloc_device,
    malloc_host,
    malloc_shared,
    platforms,
)
from fairlead.runtime.interop import (
    context_of,
    device_of,
    event_of,
    kernel_of,
    queue_of,
    to_pyopencl,
)

NO_MEMORY = (None, "text", [1, 2], 4.5)
NO_COUNT = ("4", 4.5, [4])


def test_what_is_given_wrongly(queue: Queue, program: Program, memory: USM) -> None:
    """Each line: what is called, the routine that the error names, words of its message."""
    context, device, array = queue.context, queue.device, numpy.zeros(N, numpy.int32)
    buffer, closed = Buffer(N, "int32"), Buffer(N, "int32")
    closed.close()
    submit: Any = queue.submit
    table: list[tuple[Any, str, str]] = [
        *(
            (lambda of=of: Queue(of), "Queue", "is not a Device or Context")
            for of in ("cpu", 3, [device], queue, program)
        ),
        (lambda: Queue(device, 3), "Queue", "int is not a Device"),
        *(
            (lambda of=of: Context(of), "Context", "is not a Device")
            for of in ("cpu", 3, queue, [device, 3])
        ),
        *(
            (lambda of=of: Program(of, SOURCE), "Program", "is not a Context, Queue or Device")
            for of in (None, 3, "cpu", [None])
        ),
        (lambda: Program([], SOURCE), "Program", "no context in common"),
        *(
            (lambda code=code: Program(queue, code), "Program", "is not source text or SPIR-V")
            for code in (None, 3, ["text"])
        ),
        (lambda: Program(queue, SOURCE, ["-w"]), "Program", "list is not text"),
        (lambda: Program.from_binary(queue, "text"), "Program.from_binary", "str is not bytes"),
        (lambda: program.kernel("x"), "Program.kernel", "no kernel 'x'"),
        (lambda: program.kernel(3), "Program.kernel", "int is not text"),
        (lambda: malloc_shared(4, "int32", context), "malloc_shared", "does not say which device"),
        *(
            (
                lambda of=of: malloc_host(4, "int32", of),
                "malloc_host",
                "is not a Queue, Device or (context, device)",
            )
            for of in (None, 3, (context,), (device, context))
        ),
        *(
            (
                lambda count=count: malloc_shared(count, "int32", queue),
                "malloc_shared",
                "is not a number of elements",
            )
            for count in NO_COUNT
        ),
        *(
            (
                lambda count=count: malloc_device(count, "int32", queue),
                "malloc_device",
                "is too large",
            )
            for count in (1 << 62, 1 << 70)
        ),
        (
            lambda: Buffer((1 << 40, 1 << 40), "int32"),
            "Buffer",
            "is too large for a number of bytes",
        ),
        (
            lambda: queue.memcpy(memory.pointer, memory.pointer, 1 << 64),
            "memcpy",
            "is too large for a number of bytes",
        ),
        *(
            (lambda of=of: queue.memcpy(of, memory, 4), "memcpy", "is not an address")
            for of in (-5, 1 << 64)
        ),
        (lambda: queue.memcpy(memory, numpy.array([None] * N)), "memcpy", "Python objects"),
        (lambda: malloc_shared(4, "nonsense", queue), "malloc_shared", "is not a dtype"),
        (lambda: malloc_shared(4, object, queue), "malloc_shared", "Python objects"),
        (lambda: memory + 1.5, "USM", "float is not a number of elements"),
        *(
            (lambda group=group: submit(group), "submit", "is not a command-group function")
            for group in (None, 3, program.add, lambda: 0)
        ),
        *(
            (lambda graph=graph: queue.graph(graph), "graph", "is not an ExecutableGraph")
            for graph in (None, 3, queue)
        ),
        (
            lambda: submit(lambda h: h.graph_execution(3)),
            "graph_execution",
            "int is not an ExecutableGraph",
        ),
        *(
            (lambda of=of: queue.memcpy(of, memory), "memcpy", "is not memory")
            for of in (*NO_MEMORY, buffer, Accessor(buffer))
        ),
        *((lambda of=of: queue.copy(memory, of), "copy", "is not memory") for of in NO_MEMORY),
        *((lambda of=of: queue.memset(of, 1), "memset", "is not memory") for of in NO_MEMORY),
        *((lambda of=of: queue.fill(of, 1), "fill", "is not memory") for of in NO_MEMORY),
        *((lambda of=of: queue.prefetch(of), "prefetch", "is not memory") for of in NO_MEMORY),
        *(
            (
                lambda count=count: queue.memcpy(memory, memory, count),
                "memcpy",
                "is not a number of bytes",
            )
            for count in NO_COUNT
        ),
        *(
            (lambda count=count: queue.copy(memory, memory, count), "copy", "is not a count")
            for count in NO_COUNT
        ),
        *(
            (
                lambda count=count: queue.memset(memory, 0, count),
                "memset",
                "is not a number of bytes",
            )
            for count in NO_COUNT
        ),
        *(
            (lambda count=count: queue.fill(memory, 1, count), "fill", "is not a count")
            for count in NO_COUNT
        ),
        (lambda: queue.fill(memory, 1, 4 * N), "fill", "more than there are"),
        *(
            (lambda byte=byte: queue.memset(memory, byte), "memset", "not a value of a byte")
            for byte in (256, -1, 1.5, "a", None)
        ),
        (lambda: queue.fill(memory, b""), "fill", "the pattern is empty"),
        (lambda: queue.fill(memory, None), "fill", "is not an element"),
        (lambda: queue.mem_advise(memory, 3.5), "mem_advise", "float is not advice"),
        (lambda: queue.host_task(3), "host_task", "int is not a function"),
        (lambda: submit(lambda h: h.native_command(3)), "native_command", "int is not a function"),
        *(
            (lambda of=of: queue.memset(memory, 1, depends_on=of), "depends_on", "is not an Event")
            for of in (3, "text", [None], None)
        ),
        *((lambda of=of: queue.barrier(of), "depends_on", "is not an Event") for of in (3, [3])),
        *(
            (lambda of=of: queue.parallel_for(N, of, memory), "parallel_for", "is not a Kernel")
            for of in (None, "add", program)
        ),
        (
            lambda: submit(lambda h: h.set_arg("a", numpy.int32(3))),
            "set_arg",
            "str is not an argument's index",
        ),
        (lambda: submit(lambda h: h.require(buffer)), "require", "Buffer is not an Accessor"),
        (lambda: submit(lambda h: h.update_host(buffer)), "require", "Buffer is not an Accessor"),
        *(
            (lambda of=of: Buffer(of, "int32"), "Buffer", "is not a shape")
            for of in (None, "x", 4.5, memory, (2, "a"))
        ),
        *(
            (lambda of=of: Buffer(of), "Buffer", "is not an array, list or shape")
            for of in (None, "x", 4.5, memory)
        ),
        (lambda: Buffer(N, "nonsense"), "Buffer", "is not a dtype"),
        (lambda: Buffer(["a"], "int32"), "Buffer", "the list cannot be an array of int32"),
        (lambda: Buffer([[1], [1, 2]], "int32"), "Buffer", "the list cannot be an array of int32"),
        (lambda: Buffer(array, "float32"), "Buffer", "int32, not float32"),
        (lambda: buffer.set_final_data([1, 2]), "set_final_data", "list is not a NumPy array"),
        (lambda: buffer.host_access(["read"]).__enter__(), "host_access", "no access mode"),
        (lambda: Accessor(buffer, ["read"]), "Accessor", "no access mode"),
        (lambda: Accessor(buffer, "read", "a"), "Accessor", "'a' is not a shape"),
        (closed.numpy, "host_access", "the buffer is closed"),
        *(
            (lambda of=of: Event.wait_all(of), "Event.wait_all", "int is not an Event")
            for of in (3, [3])
        ),
        *(
            (lambda of=of: queue.submit(of), routine, "an accessor itself says how many")
            for routine, of in (
                ("fill", lambda handler: handler.fill(handler.access(buffer, "write"), 1, 2)),
                ("copy", lambda handler: handler.copy(handler.access(buffer, "read"), array, 2)),
                ("copy", lambda handler: handler.copy(array, handler.access(buffer, "write"), 2)),
            )
        ),
        (lambda: Event().add_callback(3), "Event.add_callback", "int is not a function"),
        *((lambda of=of: LocalMemory(of), "LocalMemory", "is not a number") for of in NO_COUNT),
        *(
            (lambda of=of: RawArgument(of), "RawArgument", "is not bytes")
            for of in (None, 3, "text")
        ),
        *((lambda of=of: devices(of), "devices", "is not an adapter") for of in (3, "cpu")),
        (lambda: platforms(3), "platforms", "int is not an adapter"),
        (lambda: device.partition(counts=["1"]), "partition", "str is not an int"),
        (lambda: device_of(3), "device_of", "int is not a Device"),
        (lambda: context_of(3), "context_of", "int is not a Context"),
        (lambda: queue_of(3), "queue_of", "int is not a Queue"),
        (lambda: event_of(3, context), "event_of", "int is not an Event"),
        (lambda: kernel_of(3, context), "kernel_of", "int is not a Kernel"),
    ]
    check_refused(table)
    queue.wait()
    assert not memory.array.any()


def test_what_is_of_another_context_is_told_with_a_remedy(
    queue: Queue, device: Device, memory: USM
) -> None:
    theirs = Program(Context(device), SOURCE)
    with pytest.raises(SYCLError) as caught:
        queue.parallel_for(N, theirs.add, memory, numpy.int32(1))
    assert caught.value.errc is Errc.invalid and "Program(queue" in caught.value.remedy
    with pytest.raises(SYCLError) as caught:
        queue.adapter.call("urEventWait", 1, None)
    assert caught.value.routine == "urEventWait" and caught.value.message.count("NULL") == 1
    assert "phEventWaitList" in caught.value.message


def test_what_an_adapter_says_of_its_last_error_is_told(queue: Queue, program: Program) -> None:
    """In the place of the code's own sentence, which it contains."""
    with pytest.raises(SYCLError) as caught:
        queue.adapter.obtain("urKernelCreate", program.handle, b"nothing", detail="(a detail)")
    found = caught.value.message
    assert found == "clCreateKernel: The program has no kernel of this name. (a detail)"


def test_what_a_command_group_function_raises_is_its_own(queue: Queue) -> None:
    """A TypeError from within is no misuse of `submit`."""
    with pytest.raises(TypeError, match="unsupported operand"):
        queue.submit(lambda handler: 1 + "a")


def test_an_attribute_that_is_no_kernel_says_which_there_are(program: Program) -> None:
    with pytest.raises(AttributeError, match=r"(?s)no kernel 'nothing'.*it has add, mul"):
        _ = program.nothing
    assert set(program.kernel_names) >= {"add", "mul"} and "add, mul" in repr(program)


def test_a_program_without_kernels_says_so(queue: Queue) -> None:
    program = Program(queue, "void nothing() {}")
    assert program.kernel_names == () and repr(program) == "<Program of no kernel>"
    with pytest.raises(SYCLError, match="no kernel 'nothing'"):
        program.kernel("nothing")


def test_pyopencls_objects_are_told_the_way(queue: Queue) -> None:
    for call in (
        lambda of: Queue(of),
        lambda of: Program(of, SOURCE),
        lambda of: malloc_device(4, "int32", of),
    ):
        with pytest.raises(SYCLError, match="pyopencl's Context is not") as caught:
            call(to_pyopencl(queue.context))
        assert "interop" in caught.value.remedy


def test_a_device_of_another_platform_has_no_context_in_common(
    queue: Queue, other_device: Device
) -> None:
    both = [queue.device, other_device]
    check_refused(
        [
            (lambda: Program(both, SOURCE), "Program", "no context in common"),
            (
                lambda: malloc_device(4, "int32", (queue.context, other_device)),
                "malloc_device",
                "not one of the context's",
            ),
        ]
    )


def test_a_program_and_memory_are_made_for_what_has_a_context(queue: Queue, device: Device) -> None:
    for of in (queue.context, queue, device, [device]):
        memory = zeros(queue)
        queue.parallel_for(N, Program(of, SOURCE).add, memory, numpy.int32(1)).wait()
        assert (memory.array == 1).all()
    assert malloc_device(4, "int32", device).context is queue.context
    assert malloc_host(4, "int32", queue.context).device is None


CHILD = """
import os, sys, threading
from fairlead.graph import CommandGraph
from fairlead.runtime import *

device = next(one for one in devices() if one.platform.version == sys.argv[1])
queue, never = Queue(device), threading.Event()
memory, graph = malloc_shared(16, "int32", queue), CommandGraph(queue)
node = graph.add(lambda h: h.memset(memory, 1))
executable = graph.finalize(updatable=True)
ready = queue.memset(memory, 1)
ready.wait()
waiting = queue.memset(memory, 1, depends_on=[queue.host_task(never.wait)])
uses = {
    "done": lambda: ready.done,
    "status": lambda: ready.status,
    "malloc": lambda: malloc_device(4, "int32", queue),
    "add": graph.add,
    "recording": lambda: graph.recording(queue).__enter__(),
    "update": lambda: executable.update(node),
    "graph": lambda: queue.graph(executable),
    "wait": waiting.wait,
    "program": lambda: Program(queue, "kernel void nothing() {}"),
    "context": lambda: Context(device),
    "finalize": graph.finalize,
}
if not os.fork():
    for name, use in uses.items():
        try:
            use()
            print(name, "is not refused")
        except SYCLError as error:
            if "forked" not in str(error) or "spawn" not in error.remedy:
                print(name, error)
    print("child", flush=True)
    os._exit(0)
os.wait()
never.set()
waiting.wait()
print(set(memory.array.tolist()))
"""


def test_a_forked_child_is_refused_everything(device: Device, run_python: RunPython) -> None:
    assert run_python(CHILD, device.platform.version).out == "child\n{16843009}\n"


def test_a_handler_is_good_for_its_function_alone(queue: Queue, memory: USM) -> None:
    kept: list[Handler] = []
    for function in (
        kept.append,
        lambda handler: (kept.append(handler), handler.memset(memory, 0)),
    ):
        queue.submit(function)
        with pytest.raises(SYCLError, match="names a second operation, memset after"):
            kept[-1].memset(memory, 1)
    queue.wait()
    assert not memory.array.any()
