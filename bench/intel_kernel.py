"""What a program binary of Intel's CPU driver holds, and what a kernel of it takes if this process
calls it.

    OCL_ICD_VENDORS=… python -m bench.intel_kernel [FLOATS]

The binary is an ELF file with a section `.ocl.obj`: an object file of x86-64, not linked. Each
kernel is a function of it that runs one work-group. Its first argument points to the kernel's
arguments, each at a multiple of its size, and behind them, at a multiple of 8, to numbers of 64
bits: of dimensions, and in each dimension the offset, the range and, from byte 168 on, the local
size. Its second one points to the number of the group. A third one is not used here.

This is a program to look at it with: the object file must not refer to anything, and the kernel has
no local memory and no barrier.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyopencl as cl

_NAME: Final = "compute"
_SOURCE: Final = f"""
kernel void {_NAME}(global const float *restrict x, global const float *restrict y,
                    global const float *restrict z, global float *restrict out) {{
    size_t i = get_global_id(0);
    float a = x[i] * y[i];
    a = a + z[i];
    float b = a * x[i];
    b = b - y[i];
    float c = b * z[i];
    c = c + a;
    float d = x[i] * b;
    d = c - d;
    d = d * y[i];
    out[i] = d + c;
}}
"""
_LOCAL_SIZE: Final = 168  # bytes behind the arguments
_BLOCK: Final = 256  # bytes behind the arguments that are passed
_ROUNDS: Final = 2000


def list_sections(file: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the offset and the size of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", file, 40)
    count, names = struct.unpack_from("<HH", file, 60)
    rows: list[Any] = [struct.unpack_from("<IIQQQQ", file, table + 64 * n) for n in range(count)]
    for name, _, _, _, offset, size in rows:
        begin = rows[names][4] + name
        yield file[begin : file.index(b"\0", begin)].decode(), offset, size


def find_function(file: bytes, name: str) -> int:
    """Return the offset of a function in an object file.

    Raises:
        SystemExit: the file refers to something, or has no such function.
    """
    sections = list(list_sections(file))
    places = {name: (offset, size) for name, offset, size in sections}
    if any(name.startswith(".rela") for name in places):
        raise SystemExit("the object file refers to something")
    (symbols, size), (names, _) = places[".symtab"], places[".strtab"]
    for row in range(symbols, symbols + size, 24):
        at, _, _, section, value = struct.unpack_from("<IBBHQ", file, row)
        if file[names + at : file.index(b"\0", names + at)].decode() == name:
            return sections[section][1] + value
    raise SystemExit(f"the object file has no {name}")


def load(program: cl.Program) -> tuple[Any, Any]:
    """Return the kernel as a function of ctypes, and the memory that it lies in."""
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    binary: bytes = binaries[0]
    found = [(at, size) for name, at, size in list_sections(binary) if name == ".ocl.obj"]
    if not found:
        raise SystemExit("the program binary is not one of Intel's CPU driver")
    offset, size = found[0]
    code = binary[offset : offset + size]
    memory = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + find_function(code, _NAME)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return kind(address), memory


def measure(action: Callable[[], object]) -> float:
    """Return the tenth percentile of the time of a call, in microseconds."""
    times = list[float]()
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return 1e6 * sorted(times)[_ROUNDS // 10]


def main() -> None:
    """Call the kernel, compare the bits with those of its launch, and print what both take."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    program = cl.Program(context, _SOURCE).build()
    kernel, flags = cl.Kernel(program, _NAME), cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    hosts = [*np.random.default_rng(1).random((3, count), np.float32), np.empty(count, np.float32)]
    buffers = [cl.Buffer(context, flags, hostbuf=one) for one in hosts]
    kernel.set_args(*buffers)
    cl.enqueue_nd_range_kernel(queue, kernel, (count,), (count,)).wait()
    launched = np.empty(count, np.float32)
    cl.enqueue_copy(queue, launched, buffers[3])

    hosts[3][:] = 0
    function, _memory = load(program)
    block, number = ctypes.create_string_buffer(8 * len(hosts) + _BLOCK), (ctypes.c_uint64 * 3)()
    struct.pack_into("<4Q", block, 0, *(one.ctypes.data for one in hosts))
    ones = [1, 0, 0, 0, count, 1, 1]  # dimensions, offset, range
    struct.pack_into("<7Q", block, 8 * len(hosts), *ones)
    struct.pack_into("<3Q", block, 8 * len(hosts) + _LOCAL_SIZE, count, 1, 1)
    given = ctypes.addressof(block), ctypes.addressof(number), None
    function(*given)
    if hosts[3].tobytes() != launched.tobytes():
        raise SystemExit("the call has other bits than the launch")
    called = measure(lambda: function(*given))
    launch = measure(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (count,), (count,)).wait())
    print(f"{count} floats: a call by ctypes {called:.2f} µs, a launch and a wait {launch:.2f} µs")


if __name__ == "__main__":
    main()
