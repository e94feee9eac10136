"""What a capture block recorded: the commands, their order, and the Python objects that own memory.

A captured graph, its nodes and its executables share a `CapturedBlock`. It refers to none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import FrameType, MappingProxyType
from typing import Any, Final

from ..icd.calls import get_address, query_kernel_name
from ..icd.capture.recording import Recording
from ..icd.command_buffer.commands import NAMES, ORDER_ONLY
from ..icd.command_buffer.order import Order
from ..loader.base.forks import count_forks
from ..loader.base.progress import Progress
from ..runtime.context import Context
from ..runtime.errors import Errc, SYCLError
from ..runtime.interop import context_of, device_of
from ..runtime.platform import Device
from . import pyopencl_client as _client
from .argument_objects import find_root, is_constant, list_memory
from .parameter import MemoryParameter, find_names, find_parameter, list_living_memory
from .random_numbers import Draw, set_back

#: Commands between two looks at how far a capture is.
_COUNTED: Final = 1 << 14


class PyOpenCLObserver:
    """Answers a recording's questions from PyOpenCL's frames, and remembers the caller of each
    command."""

    def __init__(self, keep: Iterable[Any]) -> None:
        self.kept: list[Any] = list(keep)
        self.held: dict[int, Any] = {}
        self._progress: Progress | None = None
        self.places: list[Any] = []
        #: The place of all commands, if one call of the program makes them all.
        self.only_place: Any = None
        #: A place by its instruction, so that the commands of a loop share one.
        self._known: dict[int, tuple[Any, int]] = {}
        #: The Parameters that are used, by number.
        self.parameters: dict[int, Any] = {}
        #: Calls on queues that are not captured: by file and line, the first one's function.
        self.uncaptured_at: dict[tuple[str, int], str] = {}
        #: Where memory objects were made with contents of the host's memory, by handle.
        self.contents_at: dict[int, tuple[str, int]] = {}
        #: The launches that draw random numbers, by index; and the places of those of which that
        #: is all that is known.
        self.draws: dict[int, Draw] = {}
        self.random_at: set[tuple[str, int]] = set()

    def end_progress(self) -> None:
        if self._progress is not None:
            self._progress.end()

    def note_uncaptured_call(self, caller: FrameType | None, function: str) -> None:
        frame = _client.find_program_frame(caller)
        if frame is not None:
            self.uncaptured_at.setdefault((frame.f_code.co_filename, frame.f_lineno), function)

    def note_contents(self, caller: FrameType | None, memory: int) -> None:
        frame = _client.find_program_frame(caller)
        if frame is not None:
            self.contents_at[memory] = (frame.f_code.co_filename, frame.f_lineno)

    def keep_parameter(self, number: int) -> None:
        self.parameters[number] = find_parameter(number)

    def note_command(self, caller: FrameType | None, new_objects: bool) -> None:
        place = self.only_place
        if place is None:
            place = _client.find_calling_place(caller)
        if place is not None and place is not self.only_place:
            known = self._known.setdefault(place[1], place)
            place = known if known[0] is place[0] else place
        self.places.append(place)
        if not len(self.places) % _COUNTED:
            self._progress = self._progress or Progress("capture", "commands")
            self._progress.add(_COUNTED)
        if new_objects:
            self.hold_pooled_buffers(caller)
        if new_objects or self.draws:  # a generator has kernels of its own
            self._note_draw(caller)

    def _note_draw(self, caller: FrameType | None) -> None:
        filling = _client.find_filling_frame(caller)
        if filling is None:
            return
        draw, frame = Draw.from_frame(filling), _client.find_program_frame(caller)
        if draw is not None:
            self.draws[len(self.places) - 1] = draw
        elif frame is not None:
            self.random_at.add((frame.f_code.co_filename, frame.f_lineno))

    def hold_pooled_buffers(self, caller: FrameType | None) -> None:
        for pooled in _client.find_pooled_buffers(caller):
            self.held[id(pooled)] = pooled

    def keep_host(self, caller: FrameType | None, address: int, size: int) -> bool:
        memory = [one.buffer for one in list_living_memory()]
        owner = _client.find_owner_in([*self.kept, *memory], address, size)
        if owner is None:
            owner = _client.find_owner(caller, address, size)
        if owner is None:
            return False
        self.held[id(owner)] = owner
        return True

    def is_housekeeping(self, caller: FrameType | None) -> bool:
        return _client.is_housekeeping(caller)

    def describe_caller(self, caller: FrameType | None) -> str:
        return _client.format_place(_client.find_calling_place(caller))


class _Dependencies(Sequence[Sequence[int]]):
    """The predecessors of each command, as slices of the recording's own array."""

    def __init__(self, recording: Recording) -> None:
        self._commands, self._count = recording.commands, len(recording)
        self._all = recording.dependencies

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence[int]]:
        commands, all_of_them = self._commands, self._all
        for node in range(self._count):
            command = commands[node]
            first = command.first_dep
            yield all_of_them[first : first + command.dep_count]

    def __getitem__(self, node: Any) -> Any:
        if not 0 <= node < self._count:
            raise IndexError(node)
        command = self._commands[node]
        return self._all[command.first_dep : command.first_dep + command.dep_count]


class CapturedBlock:
    """The commands of a capture block.

    Attributes:
        queues: the pyopencl queues that were captured; `fl_command.queue` is a number in it.
        segments: makes segments of its commands in executable graphs (partitions.Replays).
        order: what each command comes directly after; empty before the block has ended.
        title: what errors call the graph.
    """

    def __init__(
        self, recording: Recording, observer: PyOpenCLObserver, queues: Sequence[Any], segments: Any
    ) -> None:
        self.segments = segments
        self.recording, self.queues = recording, tuple(queues)
        self._observer = observer
        self.order = Order((), ())
        self.title = "a graph"
        self._commands: Any = None
        self._names: dict[Any, str] = {}
        #: The pairs of buffers that alternate (swaps.Swap).
        self.swaps: Sequence[Any] = ()
        #: What the program's variables were at the block's end, by the handles of their memory: the
        #: name, and what an array looks like.
        self.buffer_names: Mapping[int, tuple[str, Any]] = {}
        #: The names of its Parameters, by number.
        self.names: dict[int, str] = {}
        self._forks = count_forks()

    def __del__(self) -> None:
        """Release what owns memory before the recording, which frees the SVM that it uses itself.

        PyOpenCL may have SVM freed by a queue. PoCL reads PyOpenCL's list for that when it is gone.
        """
        if "_observer" in self.__dict__:  # it was made to its end
            self._observer.held.clear()

    def check_process(self, routine: str) -> None:
        """Raise SYCLError (runtime) in a forked child, which lacks the threads of its parent's
        drivers."""
        if self._forks != count_forks():
            raise SYCLError(
                Errc.runtime,
                "the graph was captured before this process was forked",
                routine=routine,
                remedy='capture in the child; of multiprocessing\'s start methods use "spawn"',
            )

    def note_only_caller(self, caller: FrameType) -> None:
        """Note that one call of the program, which led to this frame, makes all commands."""
        self._observer.only_place = _client.find_calling_place(caller)

    def end(self, failed: bool, variables: Mapping[str, Any] = MappingProxyType({})) -> None:
        """End the recording: what was recorded can be used, unless the block failed.

        Args:
            failed: whether an error was raised.
            variables: the variables of the function with the block, which name Parameters.
        """
        self._observer.end_progress()
        set_back(self.draws.values())
        if failed:
            self.recording.drop()
            return
        commands, count = self.recording.commands, len(self.recording)
        self._commands = commands
        self.order = Order(
            _Dependencies(self.recording),
            [NAMES[commands[node].op] in ORDER_ONLY for node in range(count)],
        )
        self._find_memory()
        self.names = find_names(variables, self.parameters.values())

    def _find_memory(self) -> None:
        """Find the Parameters that only transfers use, which no kernel's argument told of."""
        living = {one.handle: one for one in list_living_memory()}
        for number in range(len(self) if living else 0):
            command = self._commands[number]
            for field in (command.source, command.target):
                found = living.get(get_address(field))
                if found is not None:
                    self.parameters[found.number] = found

    @property
    def uncaptured_calls(self) -> Mapping[tuple[str, int], str]:
        """The calls in the block on queues that were not captured: by file and line, the first
        one's function."""
        return self._observer.uncaptured_at

    @property
    def filled_once(self) -> Iterable[tuple[str, int]]:
        """Where memory that commands use was made in the block, with contents of the host's memory:
        file and line. Memory that kernels only read keeps them."""
        made = self._observer.contents_at
        if not made:
            return ()
        used = list_memory(self._commands, len(self))
        used |= {find_root(one) for one in used}
        kept = {one for one in made if one in used and not is_constant(one)}
        return sorted({made[one] for one in kept})

    @property
    def random_launches(self) -> Iterable[tuple[str, int]]:
        """Where pyopencl.clrandom was called in a way that is not known: file and line."""
        return sorted(self._observer.random_at)

    @property
    def draws(self) -> Mapping[int, Draw]:
        """The launches that draw random numbers, by the index of the command."""
        return self._observer.draws

    @property
    def has_cells(self) -> bool:
        """Whether replays have arguments of their own: Parameters and random numbers."""
        return bool(self.parameters or self.draws)

    @property
    def parameters(self) -> dict[int, Any]:
        """The Parameters that its commands use, by number."""
        return self._observer.parameters

    @property
    def held(self) -> list[Any]:
        """The owners of host memory and SVM that the block keeps, as far as they were found."""
        return list(self._observer.held.values())

    @property
    def has_parameters(self) -> bool:
        """Whether commands of the block may have Parameters."""
        return bool(self.parameters) or bool(list_living_memory())

    @property
    def memory(self) -> dict[int, tuple[int, int]]:
        """The number and the first memory of each Parameter with a memory object of its own.

        The key is the handle of that object; the first memory is a handle, too.
        """
        return {
            one.handle: (one.number, one.buffer.int_ptr)
            for one in self.parameters.values()
            if isinstance(one, MemoryParameter)
        }

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def devices(self) -> list[int]:
        """The devices (handles) of the queues."""
        return [queue.device.int_ptr for queue in self.queues]

    @cached_property
    def context(self) -> Context:
        """The runtime's context for the one that was captured in."""
        return context_of(self.queues[0].context)

    @cached_property
    def edge_count(self) -> int:
        """How many edges there are between its commands, after its end."""
        return sum(len(set(before)) for before in self.order.dependencies)

    @cached_property
    def runtime_devices(self) -> tuple[Device, ...]:
        """The runtime's device of each queue."""
        return tuple(device_of(queue.device) for queue in self.queues)

    def get_command(self, index: int) -> Any:
        """Return a pointer to a recorded command, which must not be changed."""
        return self._commands + index

    def get_kernel_name(self, kernel: Any) -> str:
        """Return the function name of a recorded kernel, a pointer of cffi's."""
        name = self._names.get(kernel)
        if name is None:
            name = self._names[kernel] = query_kernel_name(get_address(kernel))
        return name

    def find_place(self, index: int) -> str:
        """Return file and line of the call that a command was recorded from, "" if unknown."""
        return _client.format_place(self._observer.places[index])

    @property
    def uses_host_memory(self) -> bool:
        """Whether commands use what drivers do not keep while they run.

        It is the host's memory, SVM, that of images of buffers, or samplers.
        """
        return bool(self.host_memory)

    @property
    def host_memory(self) -> list[Any]:
        """The owners of host memory. A list drops its last member first, as `__del__` does."""
        recording, owners = self.recording, list(self._observer.held.values())
        if recording.pinned or recording.has_parts:
            return [recording, *owners]
        samplers = recording.share_samplers()
        return owners if samplers is None else [samplers, *owners]
