"""The base of the state machine: the objects, their references, and who waits for whom."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.abi import UR
from helpers.fuzz.library import Failure, Library, array
from helpers.fuzz.model import (
    Access,
    Buffer,
    CommandBuffer,
    Context,
    Event,
    Program,
    Queue,
    Storage,
    Thing,
    Usm,
)
from helpers.fuzz.session import Session, choose, driver_table
from helpers.memory_calls import struct

_Thing = TypeVar("_Thing", bound=Thing)
_Any = TypeVar("_Any")

PATIENCE: Final = 3.0  # seconds until something that another thread does must have happened
OUT_OF_ORDER: Final = UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
_NUMBERS: Final = st.integers(0, 99)


class World(RuleBasedStateMachine):
    """A sequence of calls: every rule makes some, in its model and in the adapter."""

    session: ClassVar[Session]

    def __init__(self) -> None:
        super().__init__()
        self.library: Library = self.session.library
        self.host = self.session.host
        self.library.begin()
        self.host.reset()
        self.things: list[Thing] = []
        self.stale: dict[str, list[int]] = {}
        self.storages: list[Storage] = []
        self.allocations: list[Usm] = []
        self.held: list[Event] = []
        self.callbacks: list[tuple[Any, threading.Event]] = []
        self.way = ""
        self.data: Any = None  # what hypothesis draws from

    # choosing

    def pick(self, things: Sequence[_Any]) -> _Any:
        """One of them."""
        return self.data.draw(st.sampled_from(things)) if len(things) > 1 else things[0]

    def chance(self, percent: int) -> bool:
        return self.data.draw(_NUMBERS) >= 100 - percent

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    # objects

    @initialize(data=st.data())
    def begin(self, data: Any) -> None:
        """A context with a program, and a queue."""
        self.data = data
        session = self.session
        self.way = self.pick(session.ways)
        choose(self.way, self.pick(("auto", "replay", "native")))
        base = session.base(self.way)
        self.kinds = session.supported()
        self.context = self.add(Context(base.context, devices=[session.device]))
        self.program = self.add(Program(base.program, self.context))
        self.queue_of(self.context, 0)

    def add(self, thing: _Thing) -> _Thing:
        """A new object, or one more reference to one that there is."""
        for known in self.things:
            if known.handle == thing.handle and known.type == thing.type:
                known.references += 1
                return known  # pyright: ignore
        self.things.append(thing)
        name = type(thing).__name__.lower()
        self.library.labels[thing.handle] = (
            f"{name}{sum(isinstance(one, type(thing)) for one in self.things)}"
        )
        return thing

    def of(
        self, kind: type[_Thing], context: Context | None = None, foreign: bool = False
    ) -> list[_Thing]:
        """Return the living objects of a kind, of one context if it is given.

        Objects of unknown state are included only if requested.
        """
        return [
            one
            for one in self.things
            if isinstance(one, kind)
            and one.foreign <= foreign
            and (context is None or one.context is context)
        ]

    def live(self, type_name: str) -> list[int]:
        """The handles of a type that are alive."""
        last = {
            "ur_adapter_handle_t": self.session.adapter,
            "ur_platform_handle_t": self.session.platform,
        }
        found = [one.handle for one in self.things if one.type == type_name]
        if type_name == "ur_device_handle_t":
            found.append(self.session.device)
        if type_name == "ur_exp_command_buffer_command_handle_t":
            found += [
                c.handle for buffer in self.of(CommandBuffer) for c in buffer.commands if c.handle
            ]
        return [*found, last[type_name]] if type_name in last else found

    def is_base(self, thing: Thing) -> bool:
        """Whether it is there for all sequences, so that one reference is not ours."""
        return thing is self.context or thing is self.program

    def release(self, thing: Thing) -> None:
        """One reference less; whatever is needed for what is known to stay known is done before."""
        if thing.references == 1:
            self._prepare_end(thing)
        first = UR.functions[f"{thing.stem}Release{thing.end}"].parameters[0].name
        self.library.ok(f"{thing.stem}Release{thing.end}", **{first: thing.handle})
        thing.references -= 1
        if not thing.references:
            self.things.remove(thing)
            self.stale.setdefault(thing.type, []).append(thing.handle)
            if isinstance(thing, CommandBuffer):
                commands = self.stale.setdefault("ur_exp_command_buffer_command_handle_t", [])
                commands += [command.handle for command in thing.commands if command.handle]

    def _prepare_end(self, thing: Thing) -> None:
        if isinstance(thing, Queue):
            left = [
                s
                for s in self.storages
                if s.last and s.last.queue is thing and not (s.last.event and s.last.event.alive)
            ]
            if left:
                access = Access(thing, self.event_of(thing, "urEnqueueEventsWaitWithBarrier"))
                for storage in left:
                    storage.last = access
        elif isinstance(thing, Event):
            for storage in self.storages:
                if storage.last and storage.last.event is thing and not storage.last.queue.alive:
                    self.settle(storage)
        elif isinstance(thing, Buffer) and thing.mapped:
            self.unmap(thing)
        elif isinstance(thing, Context):  # its USM would keep it, and could not be freed any more
            for usm in [one for one in self.allocations if one.context is thing]:
                self.free(usm)

    def references(self, thing: Thing) -> int:
        """What the adapter says."""
        first = UR.functions[f"{thing.stem}GetInfo{thing.end}"].parameters[0].name
        return self.library.number(
            f"{thing.stem}GetInfo{thing.end}",
            f"{thing.query}_REFERENCE_COUNT",
            **{first: thing.handle},
        )

    def check_references(self, thing: Thing) -> None:
        """Compare the count with the model."""
        more = thing.called_back if isinstance(thing, Event) else 0
        if isinstance(thing, Event) and thing.done and more:
            self.becomes(
                lambda: self.references(thing) == thing.references, "all callbacks were called"
            )
        elif not 0 <= (found := self.references(thing)) - thing.references <= more:
            raise Failure(
                f"{self.library.labels[thing.handle]} has {found} references, not "
                f"{thing.references}"
            )

    def becomes(self, condition: Callable[[], bool], what: str) -> None:
        """Raise Failure unless it comes true, by what another thread does."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"it does not come true that {what}")
            threading.Event().wait(0.001)

    # queues and events

    def queue_of(self, context: Context, flags: int, device: int = 0) -> Queue:
        """A new queue."""
        device = device or self.session.device
        properties = struct("ur_queue_properties_t", "QUEUE_PROPERTIES", flags=flags)
        made = self.library.make(
            "urQueueCreate",
            "phQueue",
            hContext=context.handle,
            hDevice=device,
            pProperties=properties,
        )
        return self.add(
            Queue(
                made,
                context,
                device=device,
                in_order=not flags & OUT_OF_ORDER,
                profiling=bool(flags & PROFILING),
            )
        )

    def event_of(self, queue: Queue, routine: str, waits: Sequence[Event] = ()) -> Event:
        """The event of a command that does nothing."""
        given = {
            "numEventsInWaitList": len(waits),
            "phEventWaitList": array(*(event.handle for event in waits)),
        }
        return self.add(
            Event(
                self.library.make(routine, "phEvent", hQueue=queue.handle, **given),
                queue.context,
                queue=queue,
            )
        )

    def hold(self, context: Context) -> Event:
        """Make an event that is incomplete before `let_go`: an OpenCL user event.

        We keep it if its handle here is released.
        """
        table, native = driver_table(self.library, context)
        code = ctypes.c_int32()
        user = table.clCreateUserEvent(native, ctypes.byref(code))
        assert code.value == 0 and table.clRetainEvent(user) == 0
        properties = struct(
            "ur_event_native_properties_t", "EVENT_NATIVE_PROPERTIES", isNativeHandleOwned=True
        )
        given = {"hNativeEvent": user, "hContext": context.handle, "pProperties": properties}
        event = self.add(
            Event(self.library.make("urEventCreateWithNativeHandle", "phEvent", **given), context)
        )

        def complete() -> None:
            self.library.lines.append(
                f"clSetUserEventStatus({self.library.labels[event.handle]}, CL_COMPLETE)"
            )
            assert (
                table.clSetUserEventStatus(user, OPENCL["CL_COMPLETE"]) == 0
                and table.clReleaseEvent(user) == 0
            )

        event.complete = complete
        self.held.append(event)
        return event

    def let_go(self, event: Event) -> None:
        """Complete an event that was held back."""
        assert event.complete is not None
        event.complete()
        event.done = True
        self.held.remove(event)

    def unblock(self) -> None:
        """Before whatever waits: nothing is held back any more."""
        while self.held:
            self.let_go(self.held[0])

    def finish(self, queue: Queue) -> None:
        """Wait for all that is in a queue, and look at what has come of it."""
        self.unblock()
        self.library.ok("urQueueFinish", hQueue=queue.handle)
        for event in self.of(Event):
            event.done |= event.queue is queue
        self._reached(
            storage for storage in self.storages if storage.last and storage.last.queue is queue
        )

    def wait(self, events: Sequence[Event]) -> None:
        """Wait for events."""
        self.unblock()
        self.library.ok(
            "urEventWait",
            numEvents=len(events),
            phEventWaitList=array(*(event.handle for event in events)),
        )
        for event in events:
            event.done = True
        self._reached(
            storage for storage in self.storages if storage.last and storage.last.event in events
        )

    def settle(self, storage: Storage) -> None:
        """Wait until nothing uses the memory."""
        last = storage.last
        if last is None:
            return
        if last.event is not None and last.event.alive:
            self.wait([last.event])
        else:
            self.finish(last.queue)

    def before(self, queue: Queue, touched: Iterable[Storage]) -> list[Event]:
        """Return the events that a command has to wait for which uses this memory.

        If such a command has no event, it is waited for here.
        """
        waits = []
        for storage in touched:
            last = storage.last
            if last is None or (last.queue is queue and queue.in_order):
                continue
            if last.event is not None and last.event.alive:
                waits.append(last.event)
            else:
                self.settle(storage)
        return list(dict.fromkeys(waits))

    def after(
        self, queue: Queue, touched: Iterable[Storage], event: Event | None, done: bool
    ) -> None:
        """A command that uses this memory was enqueued."""
        for storage in touched:
            storage.last = Access(queue, event)
        if done:
            self._reached(touched)

    def _reached(self, storages: Iterable[Storage]) -> None:
        for storage in list(storages):
            storage.last = None
            self.look(storage)

    def look(self, storage: Storage) -> None:
        """Compare what is in memory that the host sees, and that nothing uses, with the model."""
        if storage.visible and not storage.freed:
            self.compare(storage, ctypes.string_at(storage.address, len(storage.data)))

    def compare(self, storage: Storage, found: bytes) -> None:
        """Raise Failure unless the memory holds what it should."""
        if found != bytes(storage.data):
            at = next(index for index, byte in enumerate(storage.data) if found[index] != byte)
            pair = storage.data[at : at + 16].hex(), found[at : at + 16].hex()
            raise Failure(
                f"{storage.kind} memory of {len(found)} bytes ({storage.address:#x}) differs from "
                f"byte {at} on: {pair[0]} expected, not {pair[1]}"
            )

    def revive(self, thing: Thing) -> Context:
        """The context of an object, retained if we have given up all references to it."""
        context = thing.context
        assert context is not None
        if not context.alive:
            first = UR.functions[f"{thing.stem}GetInfo{thing.end}"].parameters[0].name
            asked = f"{thing.stem}GetInfo{thing.end}", f"{thing.query}_CONTEXT"
            context.handle = self.library.number(*asked, **{first: thing.handle})
            self.library.ok("urContextRetain", hContext=context.handle)
            context.references = 1
            self.add(context)
        return context

    def queue_for(self, context: Context) -> Queue:
        """A queue of the context: one that there is, or a new one."""
        return next(iter(self.of(Queue, context)), None) or self.queue_of(
            context, 0, self.some_device(context)
        )

    def some_device(self, context: Context) -> int:
        """A device of a context, by whatever handle it has now."""
        devices = (ctypes.c_void_p * len(context.devices))()
        asked = {
            "propName": UR["UR_CONTEXT_INFO_DEVICES"],
            "propSize": ctypes.sizeof(devices),
            "pPropValue": devices,
        }
        self.library.ok("urContextGetInfo", hContext=context.handle, **asked)
        return devices[0] or 0

    # memory that is used by everything

    def new_host(self, size: int, data: bytes | None = None) -> Storage:
        """Memory of the program's own."""
        address = self.host.take(size, data)
        storage = Storage("host", bytearray(ctypes.string_at(address, size)), address)
        self.storages.append(storage)
        return storage

    def free(self, usm: Usm) -> None:
        """Free USM, whatever uses it."""
        self.unblock()
        last = usm.storage.last
        if last is not None and not last.queue.alive:  # a queue that was released is not waited for
            self.settle(usm.storage)
        self.library.ok("urUSMFree", hContext=usm.context.handle, pMem=usm.address)
        usm.storage.freed = True
        self.allocations.remove(usm)

    def unmap(self, buffer: Buffer) -> None:
        """End a mapping; what the host has written is in the buffer then."""
        assert buffer.mapped and buffer.context
        address, offset, size, writes = buffer.mapped
        if writes:
            data = random.Random(address).randbytes(size)
            ctypes.memmove(address, data, size)
            buffer.storage.data[buffer.origin + offset : buffer.origin + offset + size] = data
        queue = self.queue_for(self.revive(buffer))
        self.library.ok(
            "urEnqueueMemUnmap", hQueue=queue.handle, hMem=buffer.handle, pMappedPtr=address
        )
        buffer.mapped = None
        self.after(queue, [buffer.storage], None, False)
