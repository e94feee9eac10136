"""Command-buffers on any OpenCL driver: commands that are recorded once and enqueued by one call, as often as wanted.

`Commands` is an array that grows, of the same `fl_command` that a capture records. `CommandBuffer` runs such an array: it lays
the steps out for each kind of queue that it meets (loader/schedule.py), has them enqueued by the native engine (`Program`), and
updates them. Both a capture's executable (fairlead/executable.py) and the reference adapter's command-buffers (plugins/opencl)
stand on it.

Where the driver has cl_khr_command_buffer, in a version that we speak and with what these commands need, it may run instead
(native_command_buffer.py): `FAIRLEAD_COMMAND_BUFFER` is auto, native or replay, and auto takes it where it was measured not to be
slower.

What it promises: an enqueue comes after the one before it, on whatever queue, and is not waited for. An update changes nothing of
what has been enqueued, since OpenCL takes a kernel's arguments when a launch is enqueued. Whoever asks for it is told why it runs
as it does (`explain`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..loader.forks import new_lock
from ..loader.schedule import BARRIER, Order, Schedule, plan
from ..loader.search import secure_environ
from ._native import ffi, lib
from .abi import OPENCL
from .capture import OPS
from .commands import call, enqueue_marker, new_queue, properties_of, wait_for
from .errors import OpenCLError, check
from .measuring import native_is_faster, time_of_order
from .native_command_buffer import NativeCommandBuffer, support_of, why_not
from .replay import Program

#: How much of a branching order is tried to find out how to run it: barriers and events cost what they cost by its shape.
_MEASURED: Final = 128

_INCOMPATIBLE: Final = -1140  # CL_INCOMPATIBLE_COMMAND_QUEUE_KHR

_OP: Final = {name: number for number, name in enumerate(OPS)}


class Commands:
    """A growing array of commands, each after the ones in its `dependencies`.

    `keep` holds what the array's pointers lead to. Argument lists are owned: one reference for each command that has it.
    """

    def __init__(self) -> None:
        self._room = 16
        self.array = ffi.new("fl_command[]", self._room)
        self.dependencies: list[Sequence[int]] = []
        self.order_only: list[bool] = []
        self.keep: list[Any] = []

    def __len__(self) -> int:
        return len(self.dependencies)

    def add(
        self, op: str, dependencies: Sequence[int], numbers: Sequence[int] = (), *, order_only: bool = False, **fields: Any
    ) -> int:
        """Append a command and return its number. `numbers` is what `fl_command.n` holds for the operation; pointers are cffi's
        or addresses."""
        index = len(self)
        if index == self._room:
            larger = ffi.new("fl_command[]", 2 * self._room)
            ffi.memmove(larger, self.array, ffi.sizeof(self.array))
            self.array, self._room = larger, 2 * self._room
        command = self.array[index]
        command.op = _OP[op]
        command.n[0 : len(numbers)] = numbers
        for name, value in fields.items():
            setattr(command, name, ffi.cast("void *", value) if isinstance(value, int) and name in _POINTERS else value)
        self.dependencies.append(dependencies)
        self.order_only.append(order_only)
        return index

    def pattern(self, data: bytes) -> Any:
        """Memory with these bytes, as long as the array lives."""
        self.keep.append(ffi.new("unsigned char[]", data))
        return self.keep[-1]

    def __del__(self) -> None:
        for index in range(len(self)):
            lib.fl_release_arguments(self.array[index].arguments)


_POINTERS: Final = frozenset({"kernel", "source", "target", "host"})


@dataclass(frozen=True)
class Memory:
    """The functions that a driver has for memory by address instead of SVM's (cl_intel_unified_shared_memory); 0: SVM's own."""

    set_pointer: int = 0
    copy: int = 0
    fill: int = 0


@dataclass
class Plan:
    """How a command-buffer runs on a kind of queue: its schedule as a program, the queues of our own that it needs besides the
    caller's, and why so. `step_of` says where a command is."""

    schedule: Schedule
    program: Program
    own_queues: list[int]
    why: str
    step_of: dict[int, int] = field(default_factory=dict)


class CommandBuffer:
    """An array of commands that can be enqueued on queues of `context`, a handle. Thread-safe.

    `devices` are the devices (handles) that commands are for, by `fl_command.queue`; commands of other devices than the one of
    the queue that is given run on queues of our own. `schedule` is "auto", "in-order", "levels" or "events". `externals` says for
    commands how many outside events they wait for, `exports` which commands' events the caller wants; both in the order in which
    `enqueue` takes and gives them. `owner` is kept for as long as the array is used.
    """

    def __init__(
        self,
        context: int,
        devices: Sequence[int],
        array: Any,
        order: Order,
        owner: Any = None,
        *,
        schedule: str = "auto",
        updatable: bool = False,
        others: Sequence[int] = (),
        memory: Memory = Memory(),
        externals: Mapping[int, int] | None = None,
        exports: Sequence[int] = (),
        profiled: bool = False,
        mode: str = "",
        native: NativeCommandBuffer | None = None,
    ) -> None:
        self.context, self.devices, self.array, self.order, self.owner = context, devices, array, order, owner
        self._schedule, self._updatable, self._others, self._memory = schedule, updatable, others, memory
        self._externals, self._exports = dict(externals or {}), list(exports)
        self._first = next((index for index, only in enumerate(order.order_only) if not only), None) if profiled else None
        self._mode, self._given = mode or mode_of_environment(), native
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._natives: dict[tuple[int, int], NativeCommandBuffer] = {}  # by device and the queue's properties
        self._why_not: dict[tuple[int, bool], str] = {}
        self._last: tuple[int, int] = (0, 0)  # queue and event of the last enqueue, a reference of ours to each
        self.lock = new_lock()

    # running

    def enqueue(
        self, queue: int, device: int, in_order: bool, times: int = 1, waits: Sequence[int] = (), externals: Sequence[int] = ()
    ) -> tuple[int, int, int, list[int]]:
        """Enqueue it `times` times, after the events `waits` and after the enqueue before this one.

        Returns OpenCL's code, the event of its end (a reference for the caller), the command that failed (-1: none of them), and
        the events of `exports`, a reference each; after them that of the first command, if it is `profiled` and the event of the
        end does not tell its time.
        """
        with self.lock:
            last_queue, last_event = self._last
            if last_event and (last_queue != queue or not in_order):
                waits = [*waits, last_event]
                call(last_queue, "clFlush")  # SPEC clFlush: whoever waits for another queue's event has to flush that queue
            if self._given is not None:
                event = self._enqueue_given(self._given, queue, times, waits)
            elif self._why_not_native(device, in_order):
                event = 0
            else:
                event = self._enqueue_native(queue, device, in_order, times, waits)
            if event:
                code, failed, exported = 0, -1, list[int]()
            else:
                used = self.plan(device, in_order)
                code, event, failed, exported = used.program.replay([queue, *used.own_queues], times, waits, externals)
            if code == 0:
                self._remember(queue, event)
            return code, event, failed, exported

    def _enqueue_native(self, queue: int, device: int, in_order: bool, times: int, waits: Sequence[int]) -> int:
        """The event of the end; 0 if the driver refuses: then it is replayed from now on."""
        event = 0
        try:
            native = self._native(queue, device)
            for _ in range(times):
                code, last = native.enqueue(queue, [*waits, event] if event else waits)
                check(code, "clEnqueueCommandBufferKHR")
                if event:
                    call(event, "clReleaseEvent")
                event = last
        except OpenCLError as refusal:
            if event:  # some of the enqueues were made
                raise
            self._why_not[device, in_order] = f"the driver refused it, {refusal}"
            return 0
        return event

    def _enqueue_given(self, native: NativeCommandBuffer, queue: int, times: int, waits: Sequence[int]) -> int:
        """The event of the end of one that was recorded for a queue that nobody knew yet: if the driver takes it on no other, it goes on
        that one, and the caller's queue waits for it."""
        event = 0
        for _ in range(times):
            code, made = native.enqueue(queue, [*waits, event] if event else waits)
            if code == _INCOMPATIBLE:
                before = enqueue_marker(queue, waits, "clEnqueueMarkerWithWaitList")
                code, made = native.enqueue(native.queue, [before])
                call(queue, "clFlush")
                call(native.queue, "clFlush")
                call(before, "clReleaseEvent")
                if code == 0:
                    after, made = made, enqueue_marker(queue, [made], "clEnqueueBarrierWithWaitList")
                    call(after, "clReleaseEvent")
            check(code, "clEnqueueCommandBufferKHR")
            if event:
                call(event, "clReleaseEvent")
            event = made
        return event

    def _native(self, queue: int, device: int) -> NativeCommandBuffer:
        properties = properties_of(queue)
        found = self._natives.get((device, properties))
        if found is None:
            support = support_of(device)
            assert support is not None
            found = NativeCommandBuffer(support, self.context, device, properties, updatable=self._updatable)
            found.record(self.array, self.order)
            found.finalize()
            self._natives[device, properties] = found
        return found

    def _why_not_native(self, device: int, in_order: bool) -> str:
        """Why it is replayed, and not given to the driver as a whole; "" if it is given."""
        if self._given is not None:
            return ""
        key = device, in_order
        if key not in self._why_not:
            self._why_not[key] = self._decide(device, in_order)
        return self._why_not[key]

    def _decide(self, device: int, in_order: bool) -> str:
        if self._mode == "replay":
            return "FAIRLEAD_COMMAND_BUFFER=replay"
        if len(set(self.devices)) > 1 or self._externals or self._exports or self._others:
            return "it has events, kernel alternatives or several devices, which cl_khr_command_buffer does not have"
        if self._schedule != "auto":
            return "a schedule was asked for"
        support = support_of(device)
        reason = why_not(support, self.array, self.order, self._updatable, in_order)
        if reason or self._mode == "native":
            return reason
        assert support is not None
        if not support.simultaneous:
            return "the driver's command-buffers cannot be enqueued again before they have ended"
        faster, figures = native_is_faster(self.context, device, in_order)
        return "" if faster else f"the driver's command-buffers were slower: {figures}"

    def _remember(self, queue: int, event: int) -> None:
        last_queue, last_event = self._last
        call(event, "clRetainEvent")
        if last_event:
            call(last_event, "clReleaseEvent")
        if last_queue != queue:
            call(queue, "clRetainCommandQueue")
            if last_queue:
                call(last_queue, "clReleaseCommandQueue")
        self._last = queue, event

    @property
    def last_event(self) -> int:
        """The event of the last enqueue, 0 if there was none; the reference stays here."""
        return self._last[1]

    def explain(self, queue: int, device: int, in_order: bool) -> str:
        """How an enqueue on this queue is run, and why so, in a few words."""
        commands = len(self.order) - sum(self.order.order_only)
        with self.lock:
            reason = self._why_not_native(device, in_order)
            if not reason:
                asked = (
                    "FAIRLEAD_COMMAND_BUFFER=native"
                    if self._mode == "native"
                    else native_is_faster(self.context, device, in_order)[1]
                )
                return f"{commands} commands, native cl_khr_command_buffer: {asked}"
            used = self.plan(device, in_order)
        events = f"{used.schedule.events} events in one pass"
        return f"{commands} commands, replay, {used.schedule.kind}, {events}: {used.why}; not native: {reason}"

    def _why_native(self, device: int, in_order: bool) -> str:
        if self._given is not None:
            return "it has native commands"
        if self._mode == "native":
            return "FAIRLEAD_COMMAND_BUFFER=native"
        return native_is_faster(self.context, device, in_order)[1]

    # updating

    def update(self, changes: Sequence[tuple[int, bool]]) -> int:
        """Commands have changed in the array: (number, whether it launches another kernel now). The caller holds `lock`. Returns
        OpenCL's code."""
        code = 0
        for used in self._plans.values():
            for command, relaunched in changes:
                code = code or used.program.update(used.step_of[command], relaunched)
        natives = [*self._natives.values(), *([self._given] if self._given else [])]
        # SPEC clUpdateMutableCommandsKHR: not while it is executed, unless it is for simultaneous use
        if self._last[1] and not all(native.simultaneous for native in natives):
            wait_for(self._last[1])
        numbers = [command for command, _ in changes]
        if any(native.update(numbers) for native in self._natives.values()):  # the replay can do it
            self._natives.clear()
            self._why_not = dict.fromkeys(self._why_not, "the driver refused an update")
        if self._given is not None:
            code = code or self._given.update(numbers)
        return code

    # planning

    def plan(self, device: int, in_order: bool) -> Plan:
        """The plan for a kind of queue, made when it is first needed."""
        found = self._plans.get((device, in_order))
        if found is None:
            found = self._plans[device, in_order] = self._make_plan(device, in_order)
        return found

    def _make_plan(self, device: int, in_order: bool) -> Plan:
        """Lane 0 is the caller's queue; each other device that commands are for has an in-order queue of our own."""
        order, count = self.order, len(self.order)
        lane_of, own_queues = {device: 0}, list[int]()
        if len(self.devices) > 1:
            used = {self.array[node].queue for node in range(count) if not order.order_only[node]}
            for other in (self.devices[number] for number in sorted(used)):
                if other not in lane_of:
                    own_queues.append(self._own_queue(other))
                    lane_of[other] = len(own_queues)
            lanes = [lane_of.get(self.devices[self.array[node].queue], 0) for node in range(count)]
        else:
            lanes = [0] * count
        ordered = set(range(1, len(own_queues) + 1)) | ({0} if in_order else set())
        if own_queues:
            kind, why = "events", "commands of several devices wait for each other by events"
        elif in_order:
            kind, why = "in-order", "the queue keeps the order"
        else:
            kind, why = self._choose(device)
            if kind == "in-order":
                kind, lanes, ordered = "events", [1] * count, {1}
                own_queues.append(self._own_queue(device))
        schedule = plan(order, lanes, frozenset(ordered), kind)
        return self._as_plan(schedule, own_queues, why)

    def _as_plan(self, schedule: Schedule, own_queues: list[int], why: str) -> Plan:
        step_of = {step.command: number for number, step in enumerate(schedule.steps) if step.command != BARRIER}
        first_slot, externals = 0, dict[int, range]()
        for command, count in self._externals.items():
            externals[step_of[command]] = range(first_slot, first_slot + count)
            first_slot += count
        exports = [step_of[command] for command in self._exports] + ([] if self._first is None else [step_of[self._first]])
        for step in exports:
            schedule.steps[step].signals = True
        program = Program(
            self.array,
            self.owner,
            [(step.command, step.lane, step.waits, step.signals) for step in schedule.steps],
            schedule.final_waits,
            externals=externals,
            exports=exports,
            updatable=self._updatable,
            others=self._others,
            memory=(self._memory.set_pointer, self._memory.copy, self._memory.fill),
        )
        return Plan(schedule, program, own_queues, why, step_of)

    def _choose(self, device: int) -> tuple[str, str]:
        """How to run on one out-of-order queue."""
        if self._schedule != "auto":
            return self._schedule, "asked for"
        if self.order.is_path:
            return "in-order", "the graph is a single path, so an in-order queue of its own needs no events"
        shape = self.order.beginning(_MEASURED)
        seconds = {}
        for kind in ("levels", "events"):
            schedule = plan(shape, [0] * len(shape), frozenset(), kind)
            steps = [(step.command, step.lane, step.waits, step.signals) for step in schedule.steps]
            seconds[kind] = time_of_order(self.context, device, len(shape), steps, schedule.final_waits)
        figures = ", ".join(f"{kind} {value * 1e6:.0f} µs" for kind, value in seconds.items())
        best = min(seconds, key=seconds.__getitem__)
        return best, f"measured with empty commands in place of its first {len(shape)}: {figures}"

    def _own_queue(self, device: int) -> int:
        profiling = self._exports or self._first is not None  # somebody sees events of its commands
        return new_queue(self.context, device, OPENCL["CL_QUEUE_PROFILING_ENABLE"] if profiling else 0)

    def close(self) -> None:
        """Give up what it holds of the driver; what was enqueued runs to its end."""
        last_queue, last_event = self._last
        self._last = 0, 0
        for used in self._plans.values():
            for queue in used.own_queues:
                call(queue, "clReleaseCommandQueue")
            used.program.close()
        self._plans.clear()
        for native in self._natives.values():
            native.close()
        self._natives.clear()
        if last_event:
            call(last_event, "clReleaseEvent")
            call(last_queue, "clReleaseCommandQueue")

    def __del__(self) -> None:
        self.close()


def mode_of_environment() -> str:
    """FAIRLEAD_COMMAND_BUFFER: "auto", "native" or "replay"; anything else is auto."""
    mode = secure_environ().get("FAIRLEAD_COMMAND_BUFFER", "auto").strip().lower()
    return mode if mode in ("native", "replay") else "auto"


__all__ = ["CommandBuffer", "Commands", "Memory", "Plan", "new_queue"]
