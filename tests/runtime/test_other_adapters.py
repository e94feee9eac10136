"""The runtime on an adapter that others built: Intel's for OpenCL, of 2025.3, in a process of its
own."""

from __future__ import annotations

from pathlib import Path

from helpers.support import RunPython
from helpers.sycl import SOURCE

CODE = f"""
import fairlead, numpy
from fairlead.runtime import *
for device in devices(fairlead.adapters()):
    if "Intel" not in device.platform.name:
        continue
    queue = Queue(device, profiling=True)
    program = Program(queue.context, '''{SOURCE}''')
    memory = malloc_shared(64, "int32", queue)
    event = queue.memset(memory, 0)
    where = NDRange(64, 8)
    event = queue.parallel_for(where, program.add, memory, numpy.int32(4), depends_on=[event])
    event = queue.host_task(lambda: memory.array.__iadd__(1), depends_on=[event])
    event = queue.parallel_for(64, program.mul, memory, numpy.int32(3), depends_on=[event])
    event.wait()
    assert (memory.array == 15).all() and event.profiling("end") >= event.profiling("start")
    got = numpy.zeros(64, numpy.int32)
    queue.memcpy(got, memory).wait()
    assert (got == 15).all()
    data = numpy.arange(64, dtype=numpy.int32)
    with Buffer(data) as buffer:
        queue.submit(lambda h: h.parallel_for(64, program.add, h.access(buffer), numpy.int32(2)))
        queue.submit(lambda h: (h.access(buffer), h.host_task(lambda: None)))
        with buffer.host_access() as array:
            array *= 2
        queue.submit(lambda h: h.parallel_for(64, program.add, h.access(buffer), numpy.int32(1)))
    assert (data == (numpy.arange(64) + 2) * 2 + 1).all()
    try:
        Program(queue.context, "kernel void broken( {{")
    except SYCLError as error:
        assert error.errc is Errc.build and "error" in error.message
    again = Program.from_binary(queue.context, program.binary())
    queue.parallel_for(64, again.store, memory, numpy.int32(1)).wait()
    assert (memory.array == 1).all()
    queue.wait()
    print(device.name)
"""


def test_programs_usm_kernels_buffers_and_host_tasks(
    real_plugins: Path, tmp_path: Path, run_python: RunPython
) -> None:
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    done = run_python(CODE, env={"UR_ADAPTERS_FORCE_LOAD": str(adapter)})
    assert done.out.count("\n") == 1 and done.err == ""
