"""A graph that was loaded, and what its `finalize` gives: a function of NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.executable import Executable
from ..captured_graphs.graph import CapturedGraph
from ..captured_graphs.parameter import GraphParameter
from ..captured_graphs.pyopencl_client import ArgumentError
from .contents import start_read, start_write, view_as_array
from .document import Document


class LoadedExecutable(Executable):
    """A loaded graph that can run. Called, it takes and gives NumPy arrays."""

    def __init__(self, graph: LoadedGraph, *arguments: Any, **options: Any) -> None:
        super().__init__(graph, *arguments, **options)
        self._loaded, self._own, self._calls = graph, graph.new_queue(), RLock()

    def __call__(self, *, times: int = 1, **values: Any) -> dict[str, np.ndarray]:
        """Set inputs and Parameters, run the graph, and return its outputs.

        Inputs that are not given keep what they hold. If a buffer of `capture(swap=(u, v))` is
        given, the graph begins as it was captured. Else it goes on where the last call ended.

        Args:
            times: how often it runs.
            values: arrays for memory of the graph, and values for Parameters, by name.

        Returns:
            The outputs, new arrays, by name.

        Raises:
            ArgumentError: there is no such name, or an array does not fit.
            ReplayError: a command cannot be enqueued.
            SYCLError: runtime, in a forked child.
        """
        begins_anew = values.keys() & self._loaded.swapped
        return self._call(times, values, False if begins_anew else None)

    def run_batch(
        self, times: int, start: Mapping[str, Any], values: Mapping[str, Any], *, swapped: bool
    ) -> dict[str, np.ndarray]:
        """Call it from a start that does not depend on the calls before.

        Args:
            times, values: those of the call, which it may raise the errors of.
            start: values of names that the call does not give.
            swapped: what `is_swapped` is at that start. See `__call__`.
        """
        is_swapped = swapped and not values.keys() & self._loaded.swapped
        return self._call(times, {**start, **values}, is_swapped)

    def _call(
        self, times: int, values: Mapping[str, Any], is_swapped: bool | None
    ) -> dict[str, np.ndarray]:
        """Call it at a turn of the buffers that exchange their roles, None for the present one."""
        graph = self._loaded
        self._block.check_process("loop")
        settings = {name: value for name, value in values.items() if name not in graph.memory}
        unknown = [name for name in settings if name not in self.parameters]
        if unknown:
            there = ", ".join((*graph.memory, *filter(None, self.parameters)))
            raise ArgumentError(
                f"the graph has nothing that is called {unknown[0]}.",
                routine="loop",
                remedy=f"it has: {there or 'no names'}",
            )
        given = {name: graph.bytes_of(name, values[name]) for name in values.keys() - settings}
        with self._calls:
            if is_swapped is not None:
                self.start_over(swapped=is_swapped)
            lying = self._find_addresses((*given, *graph.outputs))
            if lying is None:
                return self._enqueue(times, given, settings)
            for name, data in given.items():
                ctypes.memmove(lying[name], data.ctypes.data, data.nbytes)
            self.replay(self._own, times, wait=True, **settings)
            found = {name: graph.array_for(name) for name in graph.outputs}
            for name, made in found.items():
                ctypes.memmove(made.ctypes.data, lying[name], made.nbytes)
            return found

    def _enqueue(
        self, times: int, given: Mapping[str, np.ndarray], settings: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Run the graph between transfers by the driver. Only the end is waited for."""
        graph, queue = self._loaded, self._own
        kept = [graph.start_put(queue, name, data) for name, data in given.items()]
        end = self.replay(queue, times, **settings)
        found = graph.get_all(queue, graph.outputs)
        del kept  # which the driver has copied
        end.wait()  # raises what went wrong
        return found

    def _find_addresses(self, names: Sequence[str]) -> dict[str, int] | None:
        """Return where memory lies, by name, if this thread runs the graph in the host's memory.

        Then a transfer by the driver, and waiting for it, would take longer than all else.
        """
        only, handles = self._get_only_segment(), self._loaded.buffers
        if only is None or not handles.keys() >= set(names):
            return None
        found = only.find_addresses(self._own.int_ptr, [handles[name] for name in names])
        if found is None:
            return None
        self._own.finish()
        return dict(zip(names, found, strict=True))


class LoadedGraph(CapturedGraph):
    """A captured graph that was read from a file.

    Attributes:
        inputs, outputs: the names of memory that it reads before it writes it, and that it writes.
        memory: its memory by name: pyopencl arrays where the type is known, buffers, images, SVM,
            and NumPy arrays.
        document: what the file says (docs/graph_files.md).
    """

    executable_class = LoadedExecutable

    def __init__(
        self, block: CapturedBlock, document: Document, memory: list[Any], keep: Any
    ) -> None:
        from pyopencl import Buffer

        super().__init__(block)
        self.state = "captured"
        self.document = document
        self.inputs, self.outputs = tuple(document.inputs), tuple(document.outputs)
        self._objects, self._kept = memory, keep
        self._places = [_place(one) for one in memory]
        forms = [
            view_as_array(record, np.empty(record["size"], np.uint8)) for record in document.memory
        ]
        self._forms = [(one.dtype, one.shape) for one in forms]
        queue = self.new_queue()
        self._numbers = {
            record.get("name", f"memory{number}"): number
            for number, record in enumerate(document.memory)
        }
        self._numbers |= document.inputs | document.outputs
        self.memory = {
            name: view_result(queue, document.memory[number], memory[number])
            for name, number in self._numbers.items()
        }
        self.known_names = self.memory
        swapped = {number for pair in document.swaps for number in pair}
        #: The names of buffers that exchange their roles after each replay.
        self.swapped = {name for name, number in self._numbers.items() if number in swapped}
        #: The handles of those that are buffers, by name.
        self.buffers = {
            name: memory[number].int_ptr
            for name, number in self._numbers.items()
            if isinstance(memory[number], Buffer)
        }

    def finalize(self, **options: Any) -> LoadedExecutable:
        """Make the graph ready to run. See `CapturedGraph.finalize`."""
        made = super().finalize(**options)
        assert isinstance(made, LoadedExecutable)
        return made

    def start_values(self) -> dict[str, Any]:
        """Return what the inputs hold now, and what the named numbers were saved with, by name."""
        queue = self.new_queue()
        numbers = {
            one.name: one.value
            for one in self.block.parameters.values()
            if isinstance(one, GraphParameter) and one.name and one.source is None
        }
        return numbers | self.get_all(queue, self.inputs)

    def new_queue(self) -> Any:
        """Return a pyopencl queue, in order, of the graph's context and device."""
        import pyopencl as cl

        first = self.block.queues[0]
        return cl.CommandQueue(first.context, first.device)

    def bytes_of(self, name: str, value: Any) -> np.ndarray:
        """Return an array as the bytes of a memory of the graph.

        Raises:
            ArgumentError: the array does not fit.
        """
        number = self._numbers[name]
        record, (dtype, shape) = self.document.memory[number], self._forms[number]
        given = np.asarray(value)
        fits = "dtype" not in record and given.nbytes == record["size"]
        if "dtype" in record and given.shape == shape:
            fits = given.dtype == dtype or np.can_cast(given.dtype, dtype, "same_kind")
        if not fits:
            raise ArgumentError(
                f"{name} is memory of {shape} {dtype}, and the array given is "
                f"{given.shape} {given.dtype}.",
                routine="loop",
                remedy="give an array of that shape and type",
            )
        made = given if "dtype" not in record else given.astype(dtype, copy=False)
        return np.ascontiguousarray(made).reshape(-1).view(np.uint8)

    def start_put(self, queue: Any, name: str, data: np.ndarray) -> Any:
        """Begin to copy bytes to a memory of the graph.

        Returns:
            What has to be kept until the queue has finished.
        """
        number = self._numbers[name]
        record = self.document.memory[number]
        return data, start_write(queue, record, self._places[number], data)

    def array_for(self, name: str) -> np.ndarray:
        """Return an array for what a memory of the graph holds."""
        dtype, shape = self._forms[self._numbers[name]]
        return np.empty(shape, dtype)

    def get_all(self, queue: Any, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Copies of memory of the graph by name, after everything that is in the queue."""
        found: dict[str, np.ndarray] = {}
        events: list[Any] = []
        for name in names:
            number = self._numbers[name]
            made = found[name] = self.array_for(name)
            data = made.reshape(-1).view(np.uint8)
            record = self.document.memory[number]
            events.append(start_read(queue, record, self._places[number], data))
        queue.finish()
        events.clear()
        return found


def _place(memory: Any) -> Any:
    """Return a memory as `read_memory` takes it."""
    pointer = getattr(memory, "svm_ptr", None)
    return memory if pointer is None else pointer


def view_result(queue: Any, record: Mapping[str, Any], memory: Any) -> Any:
    """Return a memory as a program wants to see it: with its type and shape, if they are known."""
    from pyopencl import Buffer

    if isinstance(memory, np.ndarray):
        return view_as_array(record, memory)
    if "dtype" not in record or not isinstance(memory, Buffer):
        return memory
    from pyopencl.array import Array  # which takes a while

    form = view_as_array(record, np.empty(record["size"], np.uint8))
    return Array(queue, form.shape, form.dtype, data=memory)
