"""The ground of the state machine: the objects that there are, their references, who waits for whom, and the checks at the end."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeVar

from fuzz_library import Failure, Library, array, struct
from fuzz_model import Access, Buffer, CommandBuffer, Context, Device, Event, Kernel, Pool, Program, Queue, Storage, Thing, Usm
from fuzz_session import Session, choose, driver_table
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur import UR
from fairlead.plugins.objects import Object
from fairlead.plugins.opencl.core import adapter as the_adapter

_Thing = TypeVar("_Thing", bound=Thing)
_Any = TypeVar("_Any")

_PATIENCE: Final = 3.0  # seconds until something that another thread does must have happened
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
        self.library.labels[thing.handle] = f"{name}{sum(isinstance(one, type(thing)) for one in self.things)}"
        return thing

    def of(self, kind: type[_Thing], context: Context | None = None, foreign: bool = False) -> list[_Thing]:
        """The living objects of a kind, of a context if one is given; those that nothing is known of only if asked for."""
        return [
            one
            for one in self.things
            if isinstance(one, kind) and one.foreign <= foreign and (context is None or one.context is context)
        ]

    def live(self, type_name: str) -> list[int]:
        """The handles of a type that are alive."""
        last = {"ur_adapter_handle_t": self.session.adapter, "ur_platform_handle_t": self.session.platform}
        found = [one.handle for one in self.things if one.type == type_name]
        if type_name == "ur_device_handle_t":
            found.append(self.session.device)
        if type_name == "ur_exp_command_buffer_command_handle_t":
            found += [c.handle for buffer in self.of(CommandBuffer) for c in buffer.commands if c.handle]
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
            left = [s for s in self.storages if s.last and s.last.queue is thing and not (s.last.event and s.last.event.alive)]
            if left:
                access = Access(thing, self.event_of(thing, "urEnqueueEventsWaitWithBarrier"))
                for storage in left:
                    storage.last = access
        elif isinstance(thing, Event):
            if thing.complete and not thing.done:
                self.let_go(thing)
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
        return self.library.number(f"{thing.stem}GetInfo{thing.end}", f"{thing.query}_REFERENCE_COUNT", **{first: thing.handle})

    def check_references(self, thing: Thing) -> None:
        """Compare the count with the model."""
        more = thing.called_back if isinstance(thing, Event) else 0
        if isinstance(thing, Event) and thing.done and more:
            self.becomes(lambda: self.references(thing) == thing.references, "all callbacks were called")
        elif not 0 <= (found := self.references(thing)) - thing.references <= more:
            raise Failure(f"{self.library.labels[thing.handle]} has {found} references, not {thing.references}")

    def becomes(self, condition: Callable[[], bool], what: str) -> None:
        """Raise Failure unless it comes true, by what another thread does."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"it does not come true that {what}")
            threading.Event().wait(0.001)

    # queues and events

    def queue_of(self, context: Context, flags: int, device: int = 0) -> Queue:
        """A new queue."""
        device = device or self.session.device
        properties = struct("ur_queue_properties_t", "QUEUE_PROPERTIES", flags=flags)
        made = self.library.made("urQueueCreate", "phQueue", hContext=context.handle, hDevice=device, pProperties=properties)
        return self.add(
            Queue(made, context, device=device, in_order=not flags & OUT_OF_ORDER, profiling=bool(flags & PROFILING))
        )

    def event_of(self, queue: Queue, routine: str, waits: Sequence[Event] = ()) -> Event:
        """The event of a command that does nothing."""
        given = {"numEventsInWaitList": len(waits), "phEventWaitList": array(*(event.handle for event in waits))}
        return self.add(Event(self.library.made(routine, "phEvent", hQueue=queue.handle, **given), queue.context, queue=queue))

    def hold(self, context: Context) -> Event:
        """An event that is not complete before `let_go`: a user event of OpenCL's."""
        table, native = driver_table(self.library, context)
        code = ctypes.c_int32()
        user = table.clCreateUserEvent(native, ctypes.byref(code))
        assert code.value == 0
        properties = struct("ur_event_native_properties_t", "EVENT_NATIVE_PROPERTIES", isNativeHandleOwned=True)
        given = {"hNativeEvent": user, "hContext": context.handle, "pProperties": properties}
        event = self.add(Event(self.library.made("urEventCreateWithNativeHandle", "phEvent", **given), context))

        def complete() -> None:
            self.library.lines.append(f"clSetUserEventStatus({self.library.labels[event.handle]}, CL_COMPLETE)")
            assert table.clSetUserEventStatus(user, OPENCL["CL_COMPLETE"]) == 0

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
        self._reached(storage for storage in self.storages if storage.last and storage.last.queue is queue)

    def wait(self, events: Sequence[Event]) -> None:
        """Wait for events."""
        self.unblock()
        self.library.ok("urEventWait", numEvents=len(events), phEventWaitList=array(*(event.handle for event in events)))
        for event in events:
            event.done = True
        self._reached(storage for storage in self.storages if storage.last and storage.last.event in events)

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
        """The events that a command has to wait for which uses this memory; what has no event is waited for here."""
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

    def after(self, queue: Queue, touched: Iterable[Storage], event: Event | None, done: bool) -> None:
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
                f"{storage.kind} memory of {len(found)} bytes ({storage.address:#x}) differs from byte {at} on: "
                f"{pair[0]} expected, not {pair[1]}"
            )

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
        self.library.ok("urEnqueueMemUnmap", hQueue=queue.handle, hMem=buffer.handle, pMappedPtr=address)
        buffer.mapped = None
        self.after(queue, [buffer.storage], None, False)

    # the end

    def teardown(self) -> None:
        if isinstance(sys.exc_info()[1], Exception):  # of the rule before; what hypothesis itself raises is none
            self._give_up()
            return
        try:
            self._end()
        except BaseException:
            self._give_up()
            raise

    def _end(self) -> None:
        """Compare everything with the model, release everything, and see that nothing is left."""
        self._check_memory()
        for thing in self.things:
            self.check_references(thing)
        order = random.Random(len(self.library.lines))
        if order.random() < 0.1:
            self._shut()
        else:
            self._release_all(order)
        for _, called in self.callbacks:
            if not called.wait(_PATIENCE):
                raise Failure("an event's callback was not called")
        self._nothing_left()

    def _check_memory(self) -> None:
        for storage in self.storages:
            if not storage.freed:
                self.settle(storage)
        self.unblock()
        for buffer in self.of(Buffer):
            if buffer.mapped:
                self.unmap(buffer)
                self.settle(buffer.storage)
        seen = set()
        for buffer in sorted(self.of(Buffer), key=lambda one: -one.size):
            if buffer.storage not in seen:
                seen.add(buffer.storage)
                self._check_buffer(buffer)
        for usm in self.allocations:
            self._check_usm(usm)

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
        return next(iter(self.of(Queue, context)), None) or self.queue_of(context, 0, self.some_device(context))

    def some_device(self, context: Context) -> int:
        """A device of a context, by whatever handle it has now."""
        devices = (ctypes.c_void_p * len(context.devices))()
        asked = {"propName": UR["UR_CONTEXT_INFO_DEVICES"], "propSize": ctypes.sizeof(devices), "pPropValue": devices}
        self.library.ok("urContextGetInfo", hContext=context.handle, **asked)
        return devices[0] or 0

    def _check_buffer(self, buffer: Buffer) -> None:
        queue, into = self.queue_for(self.revive(buffer)), ctypes.create_string_buffer(buffer.size)
        given = {"hBuffer": buffer.handle, "blockingRead": True, "size": buffer.size, "pDst": into}
        self.library.ok("urEnqueueMemBufferRead", hQueue=queue.handle, **given)
        end = buffer.origin + buffer.size
        self.compare(Storage("buffer", buffer.storage.data[buffer.origin : end]), into.raw)

    def _check_usm(self, usm: Usm) -> None:
        queue, into = self.queue_for(usm.context), self.host.take(usm.size)
        given = {"blocking": True, "pDst": into, "pSrc": usm.address, "size": usm.size}
        self.library.ok("urEnqueueUSMMemcpy", hQueue=queue.handle, **given)
        self.compare(usm.storage, ctypes.string_at(into, usm.size))

    def _release_all(self, order: random.Random) -> None:
        """In any order, but for memory by address, of which the contexts are needed to free it."""
        for usm in list(self.allocations):
            self.free(usm)
        while things := [one for one in self.things if not (self.is_base(one) and one.references == 1)]:
            thing = order.choice(things)
            for _ in range(thing.references - self.is_base(thing)):
                self.release(thing)
        for base in (self.program, self.context):
            self.things.remove(base)

    def _shut(self) -> None:
        """Release the adapter itself, which takes everything with it."""
        self.library.ok("urAdapterRelease", hAdapter=self.session.adapter)
        self.session.open()

    def _give_up(self) -> None:
        """After a failure: a clean floor for the next sequence, by whatever means."""
        self.session.failing = list(self.library.lines)
        for event in self.held:
            assert event.complete is not None
            event.complete()
        with contextlib.suppress(Exception):
            while self.library("urAdapterRelease", hAdapter=self.session.adapter) == "SUCCESS":
                pass
        self.session.open()

    def _nothing_left(self) -> None:
        """No object is alive but those that last: neither in the registry nor in Python."""
        deadline = time.monotonic() + _PATIENCE
        while (left := self._left()) and time.monotonic() < deadline:
            threading.Event().wait(0.002)  # a driver's thread may be about to give something up
        if left:
            raise Failure(f"{len(left)} objects are left: {', '.join(sorted(left)[:10])}")

    def _left(self) -> list[str]:
        registry, known = the_adapter.registry, self.session.known
        assert registry is not None
        kinds = (Context, Queue, Event, Program, Kernel, Pool, CommandBuffer, Buffer, Device)
        left = [
            f"{type(thing).__name__} {handle:#x} with {thing.references} references"
            for kind in kinds
            for handle, thing in list(registry.of(kind.type).items())
            if handle not in known and thing.counted
        ]
        if left or not self.session.check_all:
            return left
        gc.collect()
        python = {kind.type for kind in kinds if kind not in (Pool, Device)}  # a context keeps its devices' default pools
        last = [*self.session.lasting]
        last += [thing for kind in kinds for handle, thing in registry.of(kind.type).items() if handle in known]
        return [
            f"{type(thing).__name__} without a handle, in {_where(thing)}"
            for thing in gc.get_objects()
            if isinstance(thing, Object) and thing.counted and thing not in last and thing.type in python
        ]


def _where(thing: object) -> str:
    """What refers to an object that is left."""
    found = [one for one in gc.get_referrers(thing) if type(one).__name__ not in ("frame", "list_iterator")]
    return ", ".join(sorted(str(type(one)) + str(one)[:200] for one in found))
