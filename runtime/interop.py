"""PyOpenCL objects in the runtime, and the runtime's objects as PyOpenCL's.

Both stand on the same native handles. Either object holds a reference of its own. Nothing here
imports PyOpenCL before a PyOpenCL object is met or asked for. The device must be one that the
runtime's adapters know too.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import make_lock
from ..loader.ur.abi import UR
from .arguments import FOREIGN, MEMORY, POINTER, Argument
from .checks import make_type_error
from .errors import Errc, SYCLError, make_invalid_error, make_unsupported_error
from .event import Event
from .handles import make_handle_array, make_struct
from .memory import Memory
from .platform import Device, platforms

if TYPE_CHECKING:
    from .context import Context
    from .program import Kernel
    from .queue import Queue


def _is_class(kind: type, name: str) -> bool:
    """Whether a class is a pyopencl class of that name, or a subclass. Imports nothing."""
    return any(
        base.__name__ == name and base.__module__.split(".")[0] == "pyopencl"
        for base in kind.__mro__
    )


def _is(value: Any, name: str) -> bool:
    return _is_class(type(value), name)


#: Where the runtime's own objects come from that are accepted besides PyOpenCL's.
_OURS: Final = {
    "Event": "what a submission gave, of a node node.event()",
    "Kernel": 'program.kernel("name")',
    "CommandQueue": "a Queue",
}


def _check(value: Any, name: str, routine: str) -> None:
    """Raise SYCLError (invalid) unless it is an object of a pyopencl class."""
    if not _is(value, name):
        remedy = (
            f"give {_OURS[name]}, or a pyopencl.{name}"
            if name in _OURS
            else f"give a pyopencl.{name}"
        )
        raise make_type_error(value, name.removeprefix("Command"), routine, remedy)


def _get_context(value: Any, routine: str) -> Any:
    """Return the pyopencl.Context of a pyopencl object. Raises SYCLError (invalid) if it is gone:
    on Intel's driver an object does not keep its context."""
    try:
        return value.context
    except Exception as error:  # pyopencl's, of the driver
        raise make_invalid_error(
            f"the context of the pyopencl.{type(value).__name__} is gone: {error}",
            routine=routine,
            remedy="keep the pyopencl.Context",
        ) from error


def _make_native_properties(kind: str) -> Any:
    """Return the properties for a native handle whose reference stays PyOpenCL's."""
    return ctypes.byref(make_struct(f"ur_{kind}_native_properties_t", isNativeHandleOwned=False))


def device_of(device: Any) -> Device:
    """Return the runtime's device for a pyopencl.Device, which may be a sub-device. Raises
    SYCLError (invalid) if no adapter has it."""
    _check(device, "Device", "device_of")
    wanted = device.int_ptr
    for platform in platforms():
        if platform.backend == "opencl":
            for found in (*platform.devices, *platform.parts.values()):
                if found.native() == wanted:
                    return found
    if device.parent_device is not None:
        whole = device_of(device.parent_device)
        adapter = whole.adapter
        return whole.sub_device(
            adapter.obtain(
                "urDeviceCreateWithNativeHandle",
                wanted,
                adapter.plugin.handles[0],
                _make_native_properties("device"),
            )
        )
    raise make_invalid_error(
        f"no adapter of the runtime has the device {device.name}",
        routine="device_of",
        remedy="run `fairlead doctor`",
    )


_lock: Final = make_lock()  # threads that ask at the same time get the same object


def context_of(context: Any) -> Context:
    """Return the runtime's context for a pyopencl.Context. It is the same one each time, as long as
    it lives."""
    _check(context, "Context", "context_of")
    with _lock:
        return _find_context(context)


def _find_context(context: Any) -> Context:
    from .context import Context, list_contexts

    native = context.int_ptr
    for known in list_contexts():
        if (
            known.handle
            and known.platform.backend == "opencl"
            and known.adapter.open
            and known.native() == native
        ):
            return known
    members = [device_of(device) for device in context.devices]
    adapter = members[0].adapter
    handle = adapter.obtain(
        "urContextCreateWithNativeHandle",
        native,
        adapter.plugin.handles[0],
        len(members),
        make_handle_array([device.handle for device in members]),
        _make_native_properties("context"),
    )
    return Context(members, handle=handle, keep=context)


_queues: Final[weakref.WeakValueDictionary[int, Queue]] = weakref.WeakValueDictionary()


def queue_of(queue: Any, routine: str = "queue_of") -> Queue:
    """Return the runtime's queue for a pyopencl.CommandQueue. It is the same one each time, as long
    as it lives.

    If the queue is in order, commands of both packages follow each other. `routine` is named in
    errors.
    """
    _check(queue, "CommandQueue", routine)
    with _lock:
        return _find_queue(queue, routine)


def _find_queue(queue: Any, routine: str) -> Queue:
    import pyopencl

    from .queue import Queue

    known = _queues.get(queue.int_ptr)
    if known is not None and known.handle:
        return known
    flags = pyopencl.command_queue_properties
    context, device = context_of(_get_context(queue, routine)), device_of(queue.device)
    handle = context.adapter.obtain(
        "urQueueCreateWithNativeHandle",
        queue.int_ptr,
        context.handle,
        device.handle,
        _make_native_properties("queue"),
    )
    made = _queues[queue.int_ptr] = Queue(
        context,
        device,
        in_order=not queue.properties & flags.OUT_OF_ORDER_EXEC_MODE_ENABLE,
        profiling=bool(queue.properties & flags.PROFILING_ENABLE),
        handle=handle,
        keep=queue,
    )
    return made


def event_of(event: Any, context: Context, routine: str = "event_of") -> Event:
    """Return an event for a pyopencl.Event, of this context or of another.

    Args:
        event: a pyopencl.Event.
        context: a runtime.Context.
        routine: named in errors.
    """
    _check(event, "Event", routine)
    its_own = _get_context(event, routine)
    if its_own.int_ptr != context.native():
        context = context_of(its_own)
    return Event(
        context,
        context.adapter.obtain(
            "urEventCreateWithNativeHandle",
            event.int_ptr,
            context.handle,
            _make_native_properties("event"),
        ),
    )


def kernel_of(kernel: Any, context: Context, routine: str = "kernel_of") -> Kernel:
    """Return a kernel for a pyopencl.Kernel of the context.

    Args:
        kernel: a pyopencl.Kernel.
        context: a runtime.Context.
        routine: named in errors.

    Raises:
        SYCLError: invalid, if the kernel's program is gone. Intel's driver does not know it then.
    """
    from .program import Kernel, Program

    _check(kernel, "Kernel", routine)
    try:
        adapter, its_own = context.adapter, kernel.program
    except Exception as error:  # pyopencl's, of the driver
        raise make_invalid_error(
            f"the kernel {kernel.function_name} has no program any more: {error}",
            routine=routine,
            remedy="keep the pyopencl.Program",
        ) from error
    made = adapter.obtain(
        "urProgramCreateWithNativeHandle",
        its_own.int_ptr,
        context.handle,
        _make_native_properties("program"),
    )
    program = Program(context, b"", handle=made, built=True)
    handle = adapter.obtain(
        "urKernelCreateWithNativeHandle",
        kernel.int_ptr,
        context.handle,
        made,
        _make_native_properties("kernel"),
    )
    return Kernel(context, handle, program, keep=(kernel, its_own))


class PyOpenCLMemory(Memory):
    """A pyopencl buffer from a byte on, as a memory object of its context."""

    def __init__(self, buffer: Any, offset: int, nbytes: int) -> None:
        self.keep, self.offset, self.nbytes = buffer, offset, nbytes
        self._made: tuple[Context, int] | None = None

    def memory(self, context: Context) -> int:
        if self._made is None or self._made[0] is not context:
            if _get_context(self.keep, "submit").int_ptr != context.native():
                raise make_invalid_error(
                    "the pyopencl memory belongs to another context",
                    routine="submit",
                    remedy="use context_of(…) of it",
                )
            self._release()
            self._made = context, self._take(context)
        return self._made[1]

    def _take(self, context: Context) -> int:
        """Return the adapter's handle for the memory object."""
        given = self.keep.int_ptr, context.handle, _make_native_properties("mem")
        return context.adapter.obtain("urMemBufferCreateWithNativeHandle", *given)

    def _release(self) -> None:
        made, self._made = getattr(self, "_made", None), None
        if made is not None and made[0].adapter.open:
            made[0].adapter.ur.urMemRelease(made[1])

    def __del__(self) -> None:
        self._release()

    def __repr__(self) -> str:
        return f"<pyopencl buffer of {self.nbytes} bytes>"


class PyOpenCLImage(PyOpenCLMemory):
    """A pyopencl image, as a memory object of its context."""

    def __init__(self, image: Any) -> None:
        super().__init__(image, 0, image.size)

    @property
    def kind(self) -> str:
        """Its type in OpenCL, "IMAGE2D"."""
        import pyopencl

        return pyopencl.mem_object_type.to_string(self.keep.type)

    def _take(self, context: Context) -> int:
        import pyopencl

        order = pyopencl.channel_order.to_string(self.keep.format.channel_order).upper()
        channel = pyopencl.channel_type.to_string(self.keep.format.channel_data_type)
        names = f"UR_IMAGE_CHANNEL_ORDER_{order}", f"UR_IMAGE_CHANNEL_TYPE_{channel}"
        if any(name not in UR.constants for name in names):
            raise make_unsupported_error(
                f"Unified Runtime has no images of {order} and {channel}", routine="set_arg"
            )
        format = make_struct(
            "ur_image_format_t", channelOrder=UR[names[0]], channelType=UR[names[1]]
        )
        kind = UR[f"UR_MEM_TYPE_{self.kind.removesuffix('_BUFFER')}"]
        desc = make_struct("ur_image_desc_t", type=kind)
        given = ctypes.byref(format), ctypes.byref(desc), _make_native_properties("mem")
        native = self.keep.int_ptr
        return context.adapter.obtain(
            "urMemImageCreateWithNativeHandle", native, context.handle, *given
        )

    def __repr__(self) -> str:
        return f"<pyopencl image of {self.nbytes} bytes>"


def find_memory(value: Any) -> tuple[PyOpenCLMemory | int, int | None] | None:
    """Return the memory object, or the address, and the size in bytes (None if unknown) of a
    pyopencl.Buffer, pyopencl.array.Array or SVM. None for others."""
    offset, nbytes = 0, None
    if _is(value, "Array"):
        if not value.flags.forc:
            raise make_invalid_error(
                "the pyopencl array is not contiguous", routine="submit", remedy="copy it first"
            )
        offset, nbytes, value = value.offset, value.nbytes, value.base_data
    if _is(value, "SVMPointer"):
        return value.svm_ptr + offset, value.size if nbytes is None else nbytes
    if _is(value, "MemoryObjectHolder") and not _is(value, "Image"):
        nbytes = value.size if nbytes is None else nbytes
        return PyOpenCLMemory(value, offset, nbytes), nbytes
    return None


def _find_maker(kind: type) -> Callable[[Any], Argument] | None:
    """Return what makes arguments of a class of pyopencl's memory, None for other classes."""
    return (
        _make_argument
        if any(_is_class(kind, name) for name in ("Array", "SVMPointer", "MemoryObjectHolder"))
        else None
    )


def _make_argument(value: Any) -> Argument:
    if _is(value, "Image"):
        image = PyOpenCLImage(value)
        flags, declared = UR["UR_MEM_FLAG_READ_WRITE"], sys.intern(f"{image.kind.lower()}_t")
        return Argument(MEMORY, 8, 0, flags, value, image, declared)
    found = find_memory(value)
    if found is None or (isinstance(found[0], PyOpenCLMemory) and found[0].offset):
        raise SYCLError(
            Errc.kernel_argument,
            f"this {type(value).__name__} does not begin where its buffer does",
            routine="set_arg",
            remedy="copy it first",
        )
    memory = found[0]
    if isinstance(memory, int):
        return Argument(POINTER, 8, memory, 0, value)
    return Argument(MEMORY, 8, 0, UR["UR_MEM_FLAG_READ_WRITE"], value, memory)


FOREIGN.append(_find_maker)


def to_pyopencl(value: Any) -> Any:
    """Return a runtime Device, Context, Queue, Event, Program or Kernel as the pyopencl object of
    the same native handle. A queue, program or kernel keeps its context, which Intel's driver
    leaves to the program.

    Raises:
        SYCLError: invalid, for other objects, and for those of other backends.
    """
    import pyopencl

    from .context import Context
    from .program import Kernel, Program
    from .queue import Queue

    if isinstance(value, Event):
        return value.to_pyopencl()
    kinds = {
        Device: pyopencl.Device,
        Context: pyopencl.Context,
        Queue: pyopencl.CommandQueue,
        Program: pyopencl.Program,
        Kernel: pyopencl.Kernel,
    }
    target = kinds.get(type(value))
    kind = type(value).__name__
    if target is None:
        raise make_invalid_error(f"{kind} has no counterpart in pyopencl", routine="to_pyopencl")
    backend = value.adapter.plugin.backend
    if backend != "opencl":
        raise make_invalid_error(
            f"a {kind} of {backend} has no counterpart in pyopencl, which has devices of OpenCL's "
            "alone",
            routine="to_pyopencl",
            remedy="ONEAPI_DEVICE_SELECTOR=opencl:* selects one",
        )
    made = target.from_int_ptr(value.native(), True)
    if target not in (pyopencl.Device, pyopencl.Context):
        made.fairlead_context = to_pyopencl(value.context)
    return made
