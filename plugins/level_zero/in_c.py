"""Level Zero driver: what C knows of kernels and command lists
(plugins/sdk/native/ze_calls.cdef.h).

C answers the calls that programs make all the time: a launch is appended, and an argument is set or
changed. It leaves everything else to Python, with nothing changed. With FAIRLEAD_CALLS=python it
answers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ...icd import calls
from ..opencl.kernel_arguments import URKernelArgument
from ..opencl.usm.strategies import find_strategy
from ..sdk._native import ffi as ur_ffi
from ..sdk._native import lib as ur_lib
from ..sdk._native_ze import ffi, lib
from .core import driver

OPEN: Final[int] = lib.FL_ZE_OPEN
CLOSED: Final[int] = lib.FL_ZE_CLOSED
CHANGED: Final[int] = lib.FL_ZE_CHANGED
UNKNOWN: Final[int] = lib.FL_ZE_UNKNOWN
VALUE: Final[int] = lib.FL_ZE_VALUE
LOCAL: Final[int] = lib.FL_ZE_LOCAL
POINTER: Final[int] = lib.FL_ZE_POINTER
IMAGE: Final[int] = lib.FL_ZE_IMAGE
SAMPLER: Final[int] = lib.FL_ZE_SAMPLER

_BITS: Final = 64
_ALL: Final = (1 << _BITS) - 1

driver.in_c |= {name[2:] for name in dir(lib.fl_in_c) if name.startswith("c_ze")}
lib.fl_ze_use(ffi.cast("void *", int(ur_ffi.cast("uintptr_t", ur_lib.fl_exported_by_sdk()))))


def get_address(struct: Any) -> int:
    """Return the address of a struct of C's."""
    return int(ffi.cast("uintptr_t", struct))


def find_address_bits(arguments: Mapping[int, URKernelArgument]) -> int:
    """Return a bit for each argument that is an address, as far as there are bits."""
    bits = 0
    for index, argument in arguments.items():
        if argument.kind == URKernelArgument.POINTER and index < _BITS:
            bits |= 1 << index
    return bits


def _get_driver(context: Any) -> Any:
    """Return what C knows of a context's platform."""
    platform = int(ur_ffi.cast("uintptr_t", context.platform.struct))
    return ffi.cast("struct fl_driver *", platform)


class KernelInC:
    """What C knows of a kernel: an `fl_ze_kernel`.

    Args:
        kernel: the kernel of the reference adapter.
        device: its device, of the reference adapter.
        kinds: what each argument is: UNKNOWN, VALUE, LOCAL, POINTER, IMAGE or SAMPLER.
        limits: the largest group in each dimension.
        required: the size of groups that it is compiled for, None for any.
    """

    def __init__(
        self,
        kernel: Any,
        device: Any,
        kinds: list[int],
        limits: tuple[int, ...],
        required: tuple[int, int, int] | None,
    ) -> None:
        self._kinds = ffi.new("uint8_t[]", kinds or [0])
        fields = {
            "context": kernel.context.cl,
            "device": device.cl,
            "kinds": self._kinds,
            "count": len(kinds),
            "most": kernel.query_group_size(device.root),
            "limits": limits,
            "required": required or (0, 0, 0),
        }
        self.struct = ffi.new("fl_ze_kernel *", fields)
        find_strategy(kernel.context)  # tells C, too
        c_sets_pointers = kernel.context.struct.usm != ur_lib.FL_USM_OTHER
        kernel.describe_to_c()  # makes room for what C sets
        if c_sets_pointers and len(kinds) <= ur_lib.FL_ARGUMENTS:
            number = int(ur_ffi.cast("uintptr_t", kernel.struct))
            self.struct.kernel = ffi.cast("struct fl_kernel *", number)

    def note_setting(self) -> None:
        """Note that something was set that is not an argument: other launches need other copies."""
        self.struct.settings += 1


class QueueInC:
    """What C knows of a command queue: an `fl_ze_queue`.

    Args:
        context: its context, of the reference adapter.
        device: its cl_device_id.
        cl: the cl_command_queue.
    """

    def __init__(self, context: Any, device: int, cl: int) -> None:
        fields = {"context": context.cl, "device": device, "cl": cl}
        self.struct = ffi.new("fl_ze_queue *", {**fields, "driver": _get_driver(context)})

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let C enqueue nothing on the queue."""
        before = self.struct.in_python
        lib.fl_ze_pause(self.struct)
        try:
            yield
        finally:
            self.struct.in_python = before

    def take_last(self) -> int:
        """Return the event of what C has enqueued last, a reference, and forget it; 0 for none."""
        return int(ffi.cast("uintptr_t", lib.fl_ze_take_last(self.struct)))


class EventInC:
    """What C knows of an event: an `fl_ze_event`. C may signal it at first.

    Args:
        context: its context, of the reference adapter.
        counts: whether it is counter-based.
    """

    def __init__(self, context: Any, counts: bool) -> None:
        fields = {"context": context.cl, "driver": _get_driver(context), "counts": counts}
        self.struct = ffi.new("fl_ze_event *", fields)

    def take(self) -> int:
        """Let only Python use the event. Returns C's signal, a reference to a cl_event, or 0."""
        return int(ffi.cast("uintptr_t", lib.fl_ze_take_event(self.struct)))

    def give(self) -> None:
        """Let C signal the event, which is reset and which nothing waits for."""
        lib.fl_ze_give_event(self.struct)

    def put(self, cl: int) -> None:
        """Let C answer for a counter-based event that a cl_event signals."""
        lib.fl_ze_put_event(self.struct, ffi.cast("void *", cl))


class ListInC:
    """What C knows of a command list: an `fl_ze_list`.

    Args:
        context: its cl_context.
        device: its cl_device_id.
    """

    def __init__(self, context: int, device: int, in_order: bool) -> None:
        fields = {"context": context, "device": device, "in_order": in_order}
        self.struct = ffi.new("fl_ze_list *", fields)
        self._copies: dict[tuple[int, int, int], Any] = {}
        self._commands: Any = None
        self._built: Any = None
        self._resets: Any = None

    def run_on(self, queue: QueueInC | None) -> None:
        """Let C append lists to an immediate list that runs on `queue`. None: Python does."""
        self.struct.stream = queue.struct if queue is not None else ffi.NULL

    def begin(self, array: Any) -> None:
        """Begin another recording, in an `fl_array *`. Nothing can be changed."""
        struct = self.struct
        struct.array = ffi.cast("struct fl_array *", calls.get_address(array))
        struct.state, struct.drafts, struct.count = OPEN, 0, 0
        struct.commands = struct.dirty = ffi.NULL
        struct.copies, self._copies = ffi.NULL, {}
        self._commands = self._built = None
        struct.only = ffi.NULL

    def add_copy(self, kernel: Any, addresses: int, sticks: bool, copy: Any) -> None:
        """Let C append launches of a kernel.

        Args:
            kernel: an `fl_ze_kernel *`. The list keeps its kernel.
            addresses: a bit for each argument that is an address.
            sticks: whether the driver keeps addresses that were set.
            copy: the kernel that nobody else sets arguments on, for such launches.
        """
        mask = _ALL if sticks else 0
        key = get_address(kernel), kernel.settings, addresses & mask
        if key not in self._copies:
            fields = {
                "next": self.struct.copies,
                "kernel": kernel,
                "settings": kernel.settings,
                "addresses": addresses,
                "mask": mask,
                "copy": ffi.cast("void *", calls.get_address(copy)),
            }
            self.struct.copies = self._copies[key] = ffi.new("fl_ze_copy *", fields)

    def knows(self, built: Any) -> bool:
        """Return whether C has the commands that can be changed, of what was built last."""
        return built is self._built

    def add_commands(self, count: int, built: Any) -> Any:
        """Return room for commands that can be changed, by Python alone at first.

        Args:
            built: what stands for their build.
        """
        self._built = built
        self._commands = ffi.new("fl_ze_command[]", [{"in_python": 1}] * count)
        self.struct.count, self.struct.commands = count, self._commands
        self.struct.dirty = ffi.NULL
        return self._commands

    def list_dirty(self) -> list[int]:
        """Return the commands that C has changed since the last close, as places in the array."""
        found, one = [], self.struct.dirty
        while one:
            found.append(one.index)
            one = one.next
        return found

    def close(self, only: Any, resets: Sequence[EventInC] = ()) -> None:
        """Note that the list is closed, and that everything built knows its commands.

        Args:
            only: the `fl_buffer *` that runs all of it, None if there is none, or if events of
                elsewhere matter.
        """
        self._resets = ffi.new("fl_ze_event *[]", [event.struct for event in resets])
        self.struct.resets, self.struct.reset_count = self._resets, len(resets)
        self.struct.only = ffi.cast("struct fl_buffer *", calls.get_address(only) if only else 0)
        struct, one = self.struct, self.struct.dirty
        while one:
            one.dirty, one = 0, one.next
        struct.dirty, struct.drafts, struct.state = ffi.NULL, 0, CLOSED

    def note_change(self) -> None:
        """Note that the list's next close has something to do in Python."""
        self.struct.state, self.struct.drafts = CHANGED, 1
