"""Command-buffers on any OpenCL driver: commands that are recorded once and enqueued by one call, as often as wanted.

`Commands` is an array that grows, of the same `fl_command` that a capture records. `CommandBuffer` runs such an array: it has the
steps laid out for each kind of queue that it meets (plan.py), has them enqueued by the native engine (replay.py), and
updates them. Both the executables of captured graphs (fairlead/captured_graphs/executable.py) and the reference adapter's
command-buffers (plugins/opencl/command_buffer) use it.

Where the driver has cl_khr_command_buffer, in a version that we speak and with what these commands need, it may run instead
(native_command_buffer.py): `FAIRLEAD_COMMAND_BUFFER` is auto, native or replay, and auto takes it where it was measured to be clearly
faster, and nothing is known to be wrong with it.

What it promises: an enqueue comes after the one before it, on whatever queue, and is not waited for. An update changes nothing of
what has been enqueued, since OpenCL takes a kernel's arguments when a launch is enqueued. Whoever asks for it is told why it runs
as it does (`explain`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from ...loader.base.forks import new_lock
from ...loader.base.log import logger
from ...loader.base.search import secure_environ
from .._native import ffi, lib
from ..capture.recording import OPS
from ..errors import OpenCLError, check, error
from .commands import address, call, enqueue_marker, properties_of, wait_for
from .cost import native_is_faster
from .engines.native import NativeCommandBuffer, support_of, why_not
from .engines.replay import Route
from .leaving import leave, release_ended
from .order import Order
from .plan import Memory, Plan, Planner

_INCOMPATIBLE: Final = -1140  # CL_INCOMPATIBLE_COMMAND_QUEUE_KHR

_OP: Final = {name: number for number, name in enumerate(OPS)}


class Commands:
    """A growing array of commands, each after the ones in its `dependencies`.

    `keep` holds what the array's pointers lead to. Argument lists are owned: one reference for each command that has it.
    """

    def __init__(self) -> None:
        self.native = ffi.gc(ffi.new("fl_array *"), lib.fl_release_array)
        self.dependencies: list[Sequence[int]] = []
        self.order_only: list[bool] = []
        self.keep: list[Any] = []

    def __len__(self) -> int:
        return len(self.dependencies)

    @property
    def array(self) -> Any:
        """The first command, an `fl_command *`; it moves when commands are added."""
        return self.native.commands

    def add(
        self,
        op: str,
        dependencies: Sequence[int],
        numbers: Sequence[int] = (),
        *,
        order_only: bool = False,
        **fields: Any,
    ) -> int:
        """Append a command and return its number. `numbers` is what `fl_command.n` holds for the operation; pointers are cffi's
        or addresses."""
        command = lib.fl_new_command(self.native)
        if not command:
            raise MemoryError("no memory for a command")
        command.op = _OP[op]
        command.n[0 : len(numbers)] = numbers
        for name, value in fields.items():
            setattr(
                command,
                name,
                ffi.cast("void *", value)
                if isinstance(value, int) and name in _POINTERS
                else value,
            )
        return self.added(dependencies, order_only)

    def added(self, dependencies: Sequence[int], order_only: bool = False) -> int:
        """There is one more command in `native`: its number."""
        self.dependencies.append(dependencies)
        self.order_only.append(order_only)
        return len(self.dependencies) - 1

    def pattern(self, data: bytes) -> Any:
        """Memory with these bytes, as long as the array lives."""
        self.keep.append(ffi.new("unsigned char[]", data))
        return self.keep[-1]


_POINTERS: Final = frozenset({"kernel", "source", "target", "host"})


class CommandBuffer:
    """An array of commands that can be enqueued on queues of `context`, a handle. Thread-safe.

    Args:
        devices: handles; `fl_command.queue` is a number in it. Commands of other devices than the queue's run on queues of our own.
        array, order: the commands, and what each comes after. `owner` is kept for as long as they are used.
        schedule: "auto", "in-order", "lanes", "levels" or "events" (icd/command_buffer/order.py).
        updatable, others: whether `update` may be called, and the kernels (handles) that it may put in a launch's place.
        memory: the driver's functions for memory by address, if they are not those of SVM.
        externals, exports: how many outside events commands wait for, and the commands whose events the caller wants; both in the order
            in which `enqueue` takes and gives them.
        profiled: whether `enqueue` also gives the event of the first command.
        mode: "auto", "native" or "replay"; "" is what FAIRLEAD_COMMAND_BUFFER says.
        native: the driver's own command-buffer, which is recorded already, to be used and nothing else.
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
        memory: Memory | None = None,
        externals: Mapping[int, int] | None = None,
        exports: Sequence[int] = (),
        profiled: bool = False,
        mode: str = "",
        native: NativeCommandBuffer | None = None,
    ) -> None:
        release_ended()
        first = (
            next((index for index, only in enumerate(order.order_only) if not only), None)
            if profiled
            else None
        )
        self._planner = Planner(
            context,
            devices,
            array,
            order,
            owner,
            schedule=schedule,
            updatable=updatable,
            others=others,
            memory=memory or Memory(),
            externals=dict(externals or {}),
            exports=list(exports),
            first=first,
        )
        self._mode, self._given = mode or mode_of_environment(), native
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._natives: dict[
            tuple[int, int], NativeCommandBuffer
        ] = {}  # by device and the queue's properties
        self._why_not: dict[tuple[int, bool], str] = {}
        #: Its plans, as C knows them. `lock` is for threads of Python; updates in C look at `busy` (native/busy.h).
        self.ways = ffi.new("fl_ways *", {"has_native": native is not None})
        self._last = ffi.new("fl_last *")
        # The way of the last enqueue, and its queue
        self._route: Route | None = None
        self._queue = 0
        self.lock = new_lock()

    # running

    def enqueue(
        self,
        queue: int,
        device: int,
        in_order: bool,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
    ) -> tuple[int, int, int, list[int]]:
        """Enqueue it `times` times, after the events `waits` and after the enqueue before this one.

        Returns OpenCL's code, the event of its end (a reference for the caller, 0 if it is not `wanted`), the command that failed
        (-1: none of them), and the events of `exports`, a reference each; after them that of the first command, if it is
        `profiled` and the event of the end does not tell its time.
        """
        with self.lock:
            route = self._route
            if route is None or queue != self._queue:
                route = self._find_route(queue, device, in_order)
            if route.program is None:
                done = self._enqueue_native(route, queue, device, in_order, times, waits, wanted)
                if done is None:
                    route = self._replay_route(queue, device, in_order)
                    done = route.enqueue(times, waits, externals, wanted)
            else:
                done = route.enqueue(times, waits, externals, wanted)
            if not done[0] and route is not self._route:
                self._route = route
                self._hold(address(self._last.queue))
            return done

    def _hold(self, queue: int) -> None:
        """Keep the queue of the last enqueue, so that its handle is no other queue's, and give up the one before it; 0 is none."""
        before, self._queue = self._queue, queue
        if queue != before:
            if queue:
                call(queue, "clRetainCommandQueue")
                release_ended()
            if before:
                leave(before)

    def _find_route(self, queue: int, device: int, in_order: bool) -> Route:
        if not self._why_not_native(device, in_order):
            try:
                return self._native_route(
                    self._given or self._native(queue, device), queue, in_order
                )
            except OpenCLError as refusal:
                self._why_not[device, in_order] = f"the driver refused it, {refusal}"
        return self._replay_route(queue, device, in_order)

    def _replay_route(self, queue: int, device: int, in_order: bool) -> Route:
        used = self.plan(device, in_order)
        return Route(self.ways, self._last, [queue, *used.own_queues], in_order, used.program)

    def _native_route(self, native: NativeCommandBuffer, queue: int, in_order: bool) -> Route:
        return Route(
            self.ways,
            self._last,
            [queue],
            in_order,
            native=(native.cl, native.enqueue_function),
            owner=native,
        )

    def _enqueue_native(
        self,
        route: Route,
        queue: int,
        device: int,
        in_order: bool,
        times: int,
        waits: Sequence[int],
        wanted: bool,
    ) -> tuple[int, int, int, list[int]] | None:
        """As `enqueue`; None if the driver refuses: then it is replayed from now on. Raises OpenCLError if it does so later."""
        event = 0
        for turn in range(times):
            code, event, _, _ = route.enqueue(
                1, () if turn else waits, wanted=wanted and turn == times - 1
            )
            if self._given is not None and code == _INCOMPATIBLE:
                code, event = self._enqueue_elsewhere(self._given, queue, () if turn else waits)
                if event and (not wanted or turn < times - 1):
                    call(event, "clReleaseEvent")
            if code and not turn and self._given is None:
                self._why_not[device, in_order] = (
                    f"the driver refused it, {error(code, 'clEnqueueCommandBufferKHR')}"
                )
                return None
            check(code, "clEnqueueCommandBufferKHR")
        return 0, event, -1, []

    def _enqueue_elsewhere(
        self, native: NativeCommandBuffer, queue: int, waits: Sequence[int]
    ) -> tuple[int, int]:
        """The event of the end of one that was recorded for a queue that nobody knew yet, and that the driver takes on no other: it
        goes on that one, and the caller's queue waits for it."""
        before = enqueue_marker(queue, waits, "clEnqueueMarkerWithWaitList")
        code, made, _, _ = self._native_route(native, native.queue, native.in_order).enqueue(
            1, [before]
        )
        call(queue, "clFlush")
        call(native.queue, "clFlush")
        call(before, "clReleaseEvent")
        if code:
            return code, 0
        end = enqueue_marker(queue, [made], "clEnqueueBarrierWithWaitList")
        call(made, "clReleaseEvent")
        return 0, end

    def _native(self, queue: int, device: int) -> NativeCommandBuffer:
        properties, planner = properties_of(queue), self._planner
        found = self._natives.get((device, properties))
        if found is None:
            support = support_of(device)
            assert support is not None
            with self.changing():  # from now on updates have to reach it
                self.ways.has_native = True
            found = NativeCommandBuffer(
                support, planner.context, device, properties, updatable=planner.updatable
            )
            found.record(planner.array, planner.order)
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
        if (
            len(set(self._planner.devices)) > 1
            or self._planner.externals
            or self._planner.exports
            or self._planner.others
        ):
            return "it has events, kernel alternatives or several devices, which cl_khr_command_buffer does not have"
        if self._planner.schedule != "auto":
            return "a schedule was asked for"
        support = support_of(device)
        reason = why_not(
            support, self._planner.array, self._planner.order, self._planner.updatable, in_order
        )
        if reason or self._mode == "native":
            return reason
        assert support is not None
        if support.defect:
            return support.defect
        if not support.simultaneous:
            return "the driver's command-buffers cannot be enqueued again before they have ended"
        faster, figures = native_is_faster(self._planner.context, device, in_order)
        return "" if faster else f"the driver's command-buffers were not faster: {figures}"

    @property
    def last_event(self) -> int:
        """The event of the last enqueue, 0 if there was none; the reference stays here."""
        return address(self._last.event)

    def explain(self, queue: int, device: int, in_order: bool) -> str:
        """How an enqueue on this queue is run, and why so, in a few words."""
        commands = len(self._planner.order) - sum(self._planner.order.order_only)
        with self.lock:
            reason = self._why_not_native(device, in_order)
            if not reason:
                return f"{commands} commands, native cl_khr_command_buffer: {self._why_native(device, in_order)}"
            used = self.plan(device, in_order)
        how, own = used.schedule.kind, len(used.own_queues)
        how += f" ({own} queue{'s' * (own > 1)} of its own)" if own else ""
        events = f"{used.schedule.events} events in one pass"
        return f"{commands} commands, replay, {how}, {events}: {used.why}; not native: {reason}"

    def _why_native(self, device: int, in_order: bool) -> str:
        if self._given is not None:
            return "it has native commands"
        if self._mode == "native":
            return "FAIRLEAD_COMMAND_BUFFER=native"
        return native_is_faster(self._planner.context, device, in_order)[1]

    # updating

    @property
    def has_native(self) -> bool:
        """Whether updates have to reach the driver's own command-buffers, too."""
        return bool(self.ways.has_native)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """No update is made in C meanwhile. The caller holds `lock`, and does not enqueue."""
        lib.fl_begin_changes(self.ways)
        try:
            yield
        finally:
            lib.fl_end_changes(self.ways)

    def update(self, changes: Mapping[int, bool]) -> int:
        """Commands have changed in the array: their numbers, and whether they launch another kernel now. The caller holds `lock`.
        Returns OpenCL's code."""
        code = 0
        if len(changes) > 1:  # kernels first: by them launches follow each other
            changes = dict(sorted(changes.items(), key=lambda change: not change[1]))
        for command, relaunched in changes.items():
            code = lib.fl_update_ways(self.ways, command, relaunched) or code
        if self.has_native:
            code = code or self._update_natives(list(changes))
        return code

    def _update_natives(self, commands: Sequence[int]) -> int:
        natives = [*self._natives.values(), *([self._given] if self._given else [])]
        # SPEC clUpdateMutableCommandsKHR: not while it is executed, unless it is for simultaneous use
        if self.last_event and not all(native.simultaneous for native in natives):
            wait_for(self.last_event)
        if any(
            native.update(commands) for native in self._natives.values()
        ):  # the replay can do it
            self._natives.clear()
            self.ways.has_native = self._given is not None
            self._route = None
            self._why_not = dict.fromkeys(self._why_not, "the driver refused an update")
        return self._given.update(commands) if self._given is not None else 0

    # ways to run

    def plan(self, device: int, in_order: bool) -> Plan:
        """The plan for a kind of queue, made when it is first needed."""
        found = self._plans.get((device, in_order))
        if found is None:
            found = self._plans[device, in_order] = self._planner.plan(device, in_order)
            self._list_ways()
        return found

    def _list_ways(self) -> None:
        """Say in `ways` which step each command is, in each plan: for updates."""
        if not self._planner.updatable:
            return
        plans = self._plans.values()
        steps = [
            ffi.new(
                "uint32_t[]",
                [used.step_of.get(command, 0) for command in range(len(self._planner.order))],
            )
            for used in plans
        ]
        ways = ffi.new(
            "fl_way[]",
            [(used.program.native, step_of) for used, step_of in zip(plans, steps, strict=True)],
        )
        with self.changing():
            self._kept, self.ways.list, self.ways.count = (steps, ways), ways, len(ways)

    def close(self) -> None:
        """Give up what it holds of the driver; what was enqueued runs to its end."""
        self._route = None
        self.ways.count = 0
        for used in self._plans.values():
            for queue in used.own_queues:
                call(queue, "clReleaseCommandQueue")
            used.program.close()
        self._plans.clear()
        for native in self._natives.values():
            native.close()
        self._natives.clear()
        lib.fl_forget(self._last)
        self._hold(0)

    def __del__(self) -> None:
        if lib is not None:  # Python is not taking modules down
            self.close()


def mode_of_environment() -> str:
    """FAIRLEAD_COMMAND_BUFFER: "auto", "native" or "replay"; anything else is auto, and one warning."""
    mode = secure_environ().get("FAIRLEAD_COMMAND_BUFFER", "").strip().lower() or "auto"
    if mode in ("auto", "native", "replay"):
        return mode
    _ignore(mode)
    return "auto"


@cache
def _ignore(mode: str) -> None:
    """Warn of a mode that there is not, once."""
    text = f"FAIRLEAD_COMMAND_BUFFER={mode} is ignored: it may be auto, native or replay"
    logger("FAIRLEAD", "warning").write("warning", f"fairlead: warning: {text}\n")


__all__ = ["CommandBuffer", "Commands", "Memory", "Plan"]
