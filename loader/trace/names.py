"""Names of the objects in a trace: of kernels by their functions, of queues by their order.

A trace has handles. `Names` reads from the calls which kernel each handle was, and when. A driver
may use a handle again for another object, so a name holds from the call that gave it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from .printing import TracedCall

#: The functions that make a kernel: the parameter with its name, and that with its handle ("" is
#: the result).
_KERNELS: Final = {
    "clCreateKernel": ("kernel_name", ""),
    "urKernelCreate": ("pKernelName", "phKernel"),
    "piKernelCreate": ("kernel_name", "ret_kernel"),
}
#: The queries for a kernel's name, and the parameters of the question and the answer.
_QUERIES: Final = {
    "clGetKernelInfo": ("param_name", "param_value", "CL_KERNEL_FUNCTION_NAME"),
    "urKernelGetInfo": ("propName", "pPropValue", "UR_KERNEL_INFO_FUNCTION_NAME"),
    "piKernelGetInfo": ("param_name", "param_value", "PI_KERNEL_INFO_FUNCTION_NAME"),
}
#: The functions that make a queue, and the parameter with its handle ("" is the result).
_QUEUES: Final = {
    "clCreateCommandQueue": "",
    "clCreateCommandQueueWithProperties": "",
    "urQueueCreate": "phQueue",
    "piQueueCreate": "queue",
    "piextQueueCreate": "queue",
}
#: The types whose objects have names.
KERNEL_TYPES: Final = ("cl_kernel", "ur_kernel_handle_t", "pi_kernel")
QUEUE_TYPES: Final = ("cl_command_queue", "ur_queue_handle_t", "pi_queue")


class _NamesOfHandle(NamedTuple):
    """The names that a handle had, and since when (ns)."""

    since: list[int]
    names: list[str]


class Names:
    """The names of kernels and queues in some calls.

    Args:
        calls: the calls of one process.
    """

    def __init__(self, calls: Iterable[TracedCall] = ()) -> None:
        self._kernels: dict[int, _NamesOfHandle] = {}
        self._queues: dict[int, _NamesOfHandle] = {}
        self._devices: dict[int, _NamesOfHandle] = {}  # of queues
        self._counts: dict[str, int] = {}
        for call in sorted(calls, key=lambda one: one.end):
            self.learn(call)

    def learn(self, call: TracedCall) -> None:
        """Learn what a call that has returned says about names."""
        if call.name in _KERNELS and not call.failed:
            name, handle = _KERNELS[call.name]
            self._note_name(
                self._kernels, _find_handle(call, handle), call.end, _read_text(call, name)
            )
        elif call.name in _QUERIES and not call.failed:
            question, answer, wanted = _QUERIES[call.name]
            if dict(call.format_arguments()).get(question) == wanted:
                place = call.function.parameters[0].name
                self._note_name(
                    self._kernels, _find_handle(call, place), call.begin, _read_text(call, answer)
                )
        elif call.name == "clCloneKernel" and call.result:
            name = self.find_kernel(call.arguments[0], call.begin)
            self._note_name(self._kernels, call.result, call.end, name)
        elif call.name in _QUEUES and not call.failed:
            api = call.api.name
            self._counts[api] = number = self._counts.get(api, 0) + 1
            handle = _find_handle(call, _QUEUES[call.name])
            self._note_name(self._queues, handle, call.end, f"queue {number}")

    @staticmethod
    def _note_name(known: dict[int, _NamesOfHandle], handle: int, since: int, name: str) -> None:
        if not (handle and name):
            return
        had = known.setdefault(handle, _NamesOfHandle([since], [name]))
        if had.names[-1] != name:
            had.names.append(name)  # first: another thread may look for the name of a time
            had.since.append(since)

    def find_kernel(self, handle: int, time: int) -> str:
        """The name of a kernel, "" if it is not known."""
        return _find_name(self._kernels, handle, time)

    def find_queue(self, handle: int, time: int) -> str:
        """The name of a queue, "queue 1" for the first one that was made, "" if it is not known."""
        return _find_name(self._queues, handle, time)

    def note_device(self, queue: int, since: int, name: str) -> None:
        """Note what the device of a queue is called."""
        self._note_name(self._devices, queue, since, name)

    def find_device(self, queue: int, time: int) -> str:
        """What the device of a queue is called, "" if it is not known."""
        return _find_name(self._devices, queue, time)

    def format_call(self, call: TracedCall) -> str:
        """The call in a line, with names."""
        return call.format_line(self.format_arguments(call))

    def format_arguments(self, call: TracedCall) -> list[tuple[str, str]]:
        """The name of each parameter and the text of its argument, as of the call, with names."""
        found = []
        for index, (name, text) in enumerate(call.format_arguments()):
            type_name, known = call.function.parameters[index].type, ""
            if not call.function.parameters[index].stars:
                if type_name in KERNEL_TYPES:
                    known = self.find_kernel(call.arguments[index], call.begin)
                elif type_name in QUEUE_TYPES:
                    known = self.find_queue(call.arguments[index], call.begin)
            found.append((name, f"{text} ({known})" if known else text))
        return found


def _find_name(known: dict[int, _NamesOfHandle], handle: int, time: int) -> str:
    had = known.get(handle)
    if had is None:
        return ""
    # The first name also holds before it was learnt: a query comes after the kernel was made.
    return had.names[max(bisect_right(had.since, time) - 1, 0)]


def _find_handle(call: TracedCall, parameter: str) -> int:
    if not parameter:
        return call.result
    return call.get_handle([one.name for one in call.function.parameters].index(parameter))


def _read_text(call: TracedCall, parameter: str) -> str:
    """The C string behind a parameter."""
    place = [one.name for one in call.function.parameters].index(parameter)
    return call.pieces.get(place, b"").partition(b"\0")[0].decode(errors="replace")
