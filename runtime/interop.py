"""PyOpenCL objects in the runtime, and the runtime's objects as PyOpenCL's.

Both stand on the same native handles: a runtime object is made of a pyopencl object's handle, of which it takes a reference, and the
other way round. Nothing here imports PyOpenCL before a PyOpenCL object is met or asked for. The device has to be one that the runtime's
adapters know too, which is the case for every driver that both find.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Final

from .errors import invalid
from .event import Event
from .handles import array, struct
from .platform import Device, platforms

if TYPE_CHECKING:
    from .context import Context
    from .program import Kernel
    from .queue import Queue

_owned: Final = "isNativeHandleOwned"


def _is(value: Any, name: str) -> bool:
    """Whether it is a pyopencl object of a class, without importing pyopencl."""
    return any(base.__name__ == name and base.__module__.split(".")[0] == "pyopencl" for base in type(value).__mro__)


def device_of(device: Any) -> Device:
    """The runtime's device for a pyopencl.Device. Raises SYCLError (invalid) if no adapter has it."""
    wanted = device.int_ptr
    for platform in platforms():
        if platform.backend == "opencl":
            for found in platform.devices:
                if found.native() == wanted:
                    return found
    raise invalid(
        f"no adapter of the runtime has the device {device.name}", routine="from_pyopencl", remedy="run `fairlead doctor`"
    )


_contexts: Final[dict[int, weakref.ref[Context]]] = {}


def context_of(context: Any) -> Context:
    """The runtime's context for a pyopencl.Context: the same one each time, as long as it lives."""
    from .context import Context

    native = context.int_ptr
    known = _contexts.get(native)
    found = known() if known is not None else None
    if found is None:
        members = [device_of(device) for device in context.devices]
        adapter = members[0].adapter
        properties = struct("ur_context_native_properties_t", **{_owned: False})
        handle = adapter.made(
            "urContextCreateWithNativeHandle", native, adapter.plugin.handles[0], len(members),
            array(device.handle for device in members), ctypes.byref(properties),
        )  # fmt: skip
        found = Context(members, handle=handle)
        found.kept = context  # pyright: ignore[reportAttributeAccessIssue]
        _contexts[native] = weakref.ref(found)
    return found


def queue_of(queue: Any) -> Queue:
    """The runtime's queue for a pyopencl.CommandQueue; commands of both follow each other if it is in order."""
    if not _is(queue, "CommandQueue"):
        raise invalid(f"{type(queue).__name__} is no queue", routine="from_pyopencl", remedy="give a Queue or a pyopencl.CommandQueue")
    import pyopencl

    from .queue import Queue

    flags = pyopencl.command_queue_properties
    context, device = context_of(queue.context), device_of(queue.device)
    properties = struct("ur_queue_native_properties_t", **{_owned: False})
    handle = context.adapter.made(
        "urQueueCreateWithNativeHandle", queue.int_ptr, context.handle, device.handle, ctypes.byref(properties)
    )
    made = Queue(
        context, device, in_order=not queue.properties & flags.OUT_OF_ORDER_EXEC_MODE_ENABLE,
        profiling=bool(queue.properties & flags.PROFILING_ENABLE), handle=handle,
    )  # fmt: skip
    made.kept = queue  # pyright: ignore[reportAttributeAccessIssue]
    return made


def event_of(event: Any, context: Context) -> Event:
    """An event for a pyopencl.Event of the context."""
    if not _is(event, "Event"):
        raise invalid(f"{type(event).__name__} is no event", routine="depends_on", remedy="give an Event or a pyopencl.Event")
    properties = struct("ur_event_native_properties_t", **{_owned: False})
    return Event(
        context, context.adapter.made("urEventCreateWithNativeHandle", event.int_ptr, context.handle, ctypes.byref(properties))
    )


def kernel_of(kernel: Any, context: Context) -> Kernel:
    """A kernel for a pyopencl.Kernel of the context."""
    from .program import Kernel

    if not _is(kernel, "Kernel"):
        raise invalid(f"{type(kernel).__name__} is no kernel", routine="parallel_for", remedy="program.kernel(name)")
    properties = struct("ur_kernel_native_properties_t", **{_owned: False})
    handle = context.adapter.made(
        "urKernelCreateWithNativeHandle", kernel.int_ptr, context.handle, None, ctypes.byref(properties)
    )
    made = Kernel(context, handle)
    made.kept = kernel  # pyright: ignore[reportAttributeAccessIssue]
    return made


def to_pyopencl(value: Any) -> Any:
    """A runtime Device, Context, Queue or Event as the pyopencl object of the same native handle."""
    import pyopencl

    from .context import Context
    from .queue import Queue

    kinds = {Device: pyopencl.Device, Context: pyopencl.Context, Queue: pyopencl.CommandQueue}
    if isinstance(value, Event):
        return value.to_pyopencl()
    context = value if isinstance(value, Context) else getattr(value, "context", None)
    if context is not None:  # what is made with the pyopencl object comes back to the same context
        _contexts[context.native()] = weakref.ref(context)
    for kind, target in kinds.items():
        if isinstance(value, kind):
            return target.from_int_ptr(value.native(), True)
    raise invalid(f"{type(value).__name__} has no counterpart in pyopencl", routine="to_pyopencl")
