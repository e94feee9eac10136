"""A model of the adapter's objects in Python: reference counts, and the contents of memory.

A command is carried out in the model when it is enqueued. The adapter has the same result because
of an order that `Storage.last` keeps: a command waits for the last event or queue that used its
memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

MASK: Final = 0xFFFFFFFF


@dataclass(eq=False)
class Thing:
    """An object behind a handle. `references` are ours; without any, the handle is stale."""

    handle: int
    context: Context | None = None
    references: int = 1
    foreign: bool = (
        False  # made by the rule that calls anything: nothing is known of it but its references
    )
    alias: bool = False  # made of a native handle: what changes it changes another object as well

    type: ClassVar[str]
    stem: ClassVar[str]  # of its functions, urQueue
    end: ClassVar[str] = ""  # of its functions' names
    query: ClassVar[str]  # for its references, UR_QUEUE_INFO

    @property
    def alive(self) -> bool:
        return self.references > 0

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()}@{self.handle:x}"


@dataclass(eq=False, repr=False)
class Context(Thing):
    type, stem, query = "ur_context_handle_t", "urContext", "UR_CONTEXT_INFO"
    devices: list[int] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Device(Thing):
    """A sub-device."""

    type, stem, query = "ur_device_handle_t", "urDevice", "UR_DEVICE_INFO"


@dataclass(eq=False, repr=False)
class Queue(Thing):
    type, stem, query = "ur_queue_handle_t", "urQueue", "UR_QUEUE_INFO"
    device: int = 0
    in_order: bool = True
    profiling: bool = False


@dataclass(eq=False, repr=False)
class Event(Thing):
    type, stem, query = "ur_event_handle_t", "urEvent", "UR_EVENT_INFO"
    queue: Queue | None = None
    done: bool = False
    complete: Callable[[], None] | None = None  # of an event that is held back: what completes it
    called_back: int = 0  # how many callbacks it has, which refer to it until they are called
    signals: bool = True  # False: of a command in a command-buffer that was never enqueued


@dataclass(eq=False, repr=False)
class Program(Thing):
    type, stem, query = "ur_program_handle_t", "urProgram", "UR_PROGRAM_INFO"
    built: bool = True


@dataclass(eq=False, repr=False)
class Kernel(Thing):
    type, stem, query = "ur_kernel_handle_t", "urKernel", "UR_KERNEL_INFO"
    name: str = ""
    arguments: dict[int, Any] = field(default_factory=dict)  # as they were last set


@dataclass(eq=False, repr=False)
class Sampler(Thing):
    type, stem, query = "ur_sampler_handle_t", "urSampler", "UR_SAMPLER_INFO"


@dataclass(eq=False, repr=False)
class Pool(Thing):
    type, stem, query = "ur_usm_pool_handle_t", "urUSMPool", "UR_USM_POOL_INFO"
    device: int = 0


@dataclass(eq=False, repr=False)
class CommandBuffer(Thing):
    type, stem, end = "ur_exp_command_buffer_handle_t", "urCommandBuffer", "Exp"
    query = "UR_EXP_COMMAND_BUFFER_INFO"
    device: int = 0
    updatable: bool = False
    in_order: bool = False
    finalized: bool = False
    commands: list[Recorded] = field(default_factory=list)
    enqueued: bool = False

    @property
    def touches(self) -> list[Storage]:
        """All memory that it uses."""
        return list(
            dict.fromkeys(
                storage for command in self.commands for storage in command.operation.touches
            )
        )


KINDS: tuple[Any, ...] = (
    Context,
    Device,
    Queue,
    Event,
    Program,
    Kernel,
    Sampler,
    Pool,
    CommandBuffer,
)


@dataclass(eq=False)
class Access:
    """The last command that used some memory: its queue, and its event if it has one."""

    queue: Queue
    event: Event | None


@dataclass(eq=False)
class Storage:
    """Memory.

    `address` is where the host finds it, 0 if nowhere. `kind` is "buffer", "host" for the program's
    own, or the kind of USM.
    """

    kind: str
    data: bytearray
    address: int = 0
    last: Access | None = None
    freed: bool = False
    kept: bool = False  # whether a command-buffer ever used it

    @property
    def visible(self) -> bool:
        """Whether the host can look at it."""
        return self.kind != "buffer" and self.kind != "device"


@dataclass(eq=False, repr=False)
class Buffer(Thing):
    """A buffer or a sub-buffer: a part of a storage."""

    type, stem, query = "ur_mem_handle_t", "urMem", "UR_MEM_INFO"
    storage: Storage = field(default_factory=lambda: Storage("buffer", bytearray()))
    origin: int = 0
    size: int = 0
    parent: Buffer | None = None
    mapped: tuple[int, int, int, bool] | None = None  # address, offset, size, for writing


KINDS += (Buffer,)


@dataclass(eq=False)
class Usm:
    """A USM allocation of a context."""

    address: int
    context: Context
    storage: Storage
    pool: Pool | None = None

    @property
    def size(self) -> int:
        return len(self.storage.data)

    @property
    def alive(self) -> bool:
        return not self.storage.freed

    def __repr__(self) -> str:
        return f"{self.storage.kind}@{self.address:x}"


@dataclass(eq=False)
class Span:
    """Some bytes of a storage, and how calls name them: the buffer, or the address."""

    storage: Storage
    at: int  # in the storage
    size: int
    buffer: Buffer | None = None
    offset: int = 0  # in the buffer
    address: int = 0

    def get(self) -> bytes:
        return bytes(self.storage.data[self.at : self.at + self.size])

    def put(self, data: bytes, at: int = 0) -> None:
        assert len(data) + at <= self.size
        self.storage.data[self.at + at : self.at + at + len(data)] = data


@dataclass(eq=False)
class Operation:
    """A command: how it is enqueued and with which arguments, which memory it uses, what it does
    there.

    `append` is the function that appends it to a command-buffer, "" if none does.
    """

    enqueue: str
    append: str
    given: dict[str, Any]
    touches: list[Storage]
    apply: Callable[[], None]
    blocks: bool = False
    launch: Launch | None = None

    @property
    def has_run(self) -> bool:
        """Whether the command has run when the call returns.

        A blocking write has read the host's memory by then, and may run later
        (clEnqueueWriteBuffer).
        """
        return self.blocks and "MemBufferWrite" not in self.enqueue


@dataclass(eq=False)
class Recorded:
    """A command of a command-buffer. Sync-point and handle are 0 if they were not requested."""

    operation: Operation
    sync_point: int = 0
    handle: int = 0
    event: Event | None = None
    waits: list[Event] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)  # that it may launch


@dataclass(eq=False)
class Launch:
    """A launch of a kernel of `KERNELS`.

    Its arguments are spans of memory and numbers; updates change it.
    """

    kernel: Kernel
    alternatives: list[Kernel]
    arguments: list[Any]
    offset: int
    size: list[int]
    local: list[int] | None

    @property
    def count(self) -> int:
        """How many work-items there are."""
        return self.size[0] * (self.size[1] if len(self.size) > 1 else 1)

    def apply(self) -> None:
        EFFECTS[self.kernel.name](self)


SOURCE: Final = b"""
#define ITEM (get_global_id(0) + get_global_size(0) * get_global_id(1))
kernel void store(global uint *out, uint value) { out[ITEM] = value + ITEM; }
kernel void add(global uint *out, uint value) { out[ITEM] += value; }
kernel void move(global uint *in, global uint *out) { out[ITEM] = in[ITEM] * 3 + 1; }
kernel void sums(global uint *out, local uint *scratch) {
    scratch[get_local_id(0)] = get_local_id(0) + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint sum = 0;
    for (uint i = 0; i < get_local_size(0); i++) sum += scratch[i];
    out[get_global_id(0)] = sum;
}
kernel void nothing(void) {}
"""

#: Name → its parameters: "memory", "value", "local".
KERNELS: Final = {
    "store": ("memory", "value"),
    "add": ("memory", "value"),
    "move": ("memory", "memory"),
    "sums": ("memory", "local"),
    "nothing": (),
}


def _words(span: Span) -> Any:
    """The 32-bit numbers of a span, in the storage itself."""
    return (ctypes.c_uint32 * (span.size // 4)).from_buffer(span.storage.data, span.at)


def _store(launch: Launch) -> None:
    words, value = _words(launch.arguments[0]), launch.arguments[1]
    for item in range(launch.offset, launch.offset + launch.count):
        words[item] = (value + item) & MASK


def _add(launch: Launch) -> None:
    words, value = _words(launch.arguments[0]), launch.arguments[1]
    for item in range(launch.offset, launch.offset + launch.count):
        words[item] = (words[item] + value) & MASK


def _move(launch: Launch) -> None:
    source, target = map(_words, launch.arguments)
    for item in range(launch.offset, launch.offset + launch.count):
        target[item] = (source[item] * 3 + 1) & MASK


def _sums(launch: Launch) -> None:
    words, group = _words(launch.arguments[0]), (launch.local or launch.size)[0]
    for item in range(launch.offset, launch.offset + launch.count):
        words[item] = group * (group + 1) // 2


EFFECTS: Final[dict[str, Callable[[Launch], None]]] = {
    "store": _store,
    "add": _add,
    "move": _move,
    "sums": _sums,
    "nothing": lambda launch: None,
}
