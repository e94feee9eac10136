"""A client of today's dpctl (0.22) and of the PI generation's (0.17), run as a child process.

It lists the devices, allocates the three kinds of USM, copies, builds a kernel of OpenCL C, and
runs it with profiling. It prints the results, one `name: values` a line. A failure is one line
`error: type: message`, and exit code 1.
"""

from __future__ import annotations

import ctypes
import sys

import dpctl  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)
import dpctl.memory  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)
import dpctl.program  # pyright: ignore[reportMissingImports]  (it is fetched, not installed)

COUNT = 8
SOURCE = """
kernel void axpy(global int *y, global const int *x, int a) {
    size_t i = get_global_id(0);
    y[i] += a * x[i];
}
kernel void shape(global int *out, float scale) {
    size_t x = get_global_id(0), y = get_global_id(1);
    out[x + get_global_size(0) * y] = (int)(scale * (100 * get_local_size(1) + 10 * y + x));
}
"""
KINDS = {
    "device": dpctl.memory.MemoryUSMDevice,
    "host": dpctl.memory.MemoryUSMHost,
    "shared": dpctl.memory.MemoryUSMShared,
}


def show(name: str, *values: object) -> None:
    print(f"{name}:", *values, flush=True)


def ints(memory: dpctl.memory.MemoryUSMShared) -> list[int]:
    """The contents of an allocation of any kind."""
    return list(memoryview(bytes(memory.copy_to_host())).cast("i"))


def filled(queue: dpctl.SyclQueue, kind: str, values: range) -> dpctl.memory.MemoryUSMShared:
    """An allocation with these values, which are copied into it."""
    memory = KINDS[kind](4 * len(values), queue=queue)
    memory.copy_from_host(memoryview((ctypes.c_int * len(values))(*values)).cast("B"))
    return memory


def platforms() -> None:
    for device in dpctl.get_devices():
        show(
            "device",
            device.name,
            "|",
            device.sycl_platform.name,
            "|",
            device.backend,
            device.device_type,
        )
        show(
            "limits",
            device.max_compute_units > 0,
            device.max_work_group_size > 0,
            device.global_mem_size > 0,
            device.has_aspect_usm_device_allocations,
        )


def memory(queue: dpctl.SyclQueue) -> None:
    made = {
        kind: filled(queue, kind, range(index, index + COUNT)) for index, kind in enumerate(KINDS)
    }
    for kind, each in made.items():
        show(kind, each.get_usm_type(), *ints(each))
    made["host"].copy_from_device(made["device"])
    made["shared"].copy_from_device(made["host"])
    show("copied", *ints(made["shared"]))
    queue.memcpy(made["device"], filled(queue, "shared", range(70, 70 + COUNT)), 4 * COUNT)
    show("memcpy", *ints(made["device"]))


def kernels(queue: dpctl.SyclQueue) -> None:
    program = dpctl.program.create_program_from_source(queue, SOURCE, "-cl-std=CL1.2")
    axpy, shape = program.get_sycl_kernel("axpy"), program.get_sycl_kernel("shape")
    show(
        "kernels",
        axpy.num_args,
        shape.num_args,
        axpy.work_group_size > 0,
        program.has_sycl_kernel("axpy"),
        program.has_sycl_kernel("nothing"),
    )
    y, x = filled(queue, "device", range(COUNT)), filled(queue, "shared", range(10, 10 + COUNT))
    first = queue.submit(axpy, [y, x, ctypes.c_int(2)], [COUNT])
    last = queue.submit(axpy, [y, x, ctypes.c_int(-1)], [COUNT], [4], [first])
    last.wait()
    show("axpy", *ints(y))
    out = filled(queue, "host", range(12))
    event = queue.submit(shape, [out, ctypes.c_float(2.0)], [4, 3], [2, 3])
    event.wait()
    show("shape", *ints(out))
    show(
        "times",
        0 < event.profiling_info_submit <= event.profiling_info_start < event.profiling_info_end,
        event.execution_status,
    )


def main() -> int:
    try:
        platforms()
        queue = dpctl.SyclQueue(
            property=["enable_profiling", "in_order"]
            if sys.argv[1:] == ["in_order"]
            else "enable_profiling"
        )
        show("queue", queue.is_in_order, queue.has_enable_profiling)
        memory(queue)
        kernels(queue)
        queue.wait()
    except Exception as error:
        show("error", f"{type(error).__name__}:", error)
        return 1
    show("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
