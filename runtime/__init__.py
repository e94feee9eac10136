"""SYCL-like objects on Unified Runtime: platform, device, context, queue, event, USM, buffer,
image, sampler, program, kernel, handler.

    from fairlead.runtime import Program, Queue, malloc_shared

    queue = Queue()
    kernel = Program(queue, "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }").twice
    memory = malloc_shared(1024, "int32", queue)
    memory.array[:] = 21
    queue.parallel_for(1024, kernel, memory)
    queue.wait()

The objects run on any Unified Runtime adapter through `loader`. The default is the reference
adapter, which runs on every OpenCL driver. Names are SYCL's, written as Python writes them. Errors
are `SYCLError` with SYCL's error class.
"""

from .accessor import Accessor
from .arguments import LocalMemory, RawArgument
from .buffer import Buffer
from .commands import InteropHandle
from .context import Context
from .errors import Errc, SYCLError
from .event import Event
from .handler import Handler
from .image import Image
from .launches import NDRange
from .platform import Device, Platform, devices, platforms
from .program import Kernel, Program
from .queue import Queue
from .sampler import Sampler
from .usm import USM, from_dlpack, malloc_device, malloc_host, malloc_shared

__all__ = [
    "USM",
    "Accessor",
    "Buffer",
    "Context",
    "Device",
    "Errc",
    "Event",
    "Handler",
    "Image",
    "InteropHandle",
    "Kernel",
    "LocalMemory",
    "NDRange",
    "Platform",
    "Program",
    "Queue",
    "RawArgument",
    "SYCLError",
    "Sampler",
    "devices",
    "from_dlpack",
    "malloc_device",
    "malloc_host",
    "malloc_shared",
    "platforms",
]
