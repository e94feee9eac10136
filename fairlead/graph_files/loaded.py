"""A graph that was loaded, and what its `finalize` gives: a function of NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any

import numpy as np

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.executable import Executable
from ..captured_graphs.graph import CapturedGraph
from ..captured_graphs.parameter import GraphParameter
from ..captured_graphs.pyopencl_client import ArgumentError
from .contents import read_memory, typed, write_memory
from .document import Document


class LoadedExecutable(Executable):
    """A loaded graph that can run. Called, it takes and gives NumPy arrays."""

    def __init__(self, graph: LoadedGraph, *arguments: Any, **options: Any) -> None:
        super().__init__(graph, *arguments, **options)
        self._loaded, self._own, self._calls = graph, graph.new_queue(), RLock()

    def __call__(self, *, times: int = 1, **values: Any) -> dict[str, np.ndarray]:
        """Set inputs and Parameters, run the graph, and return its outputs.

        Inputs that are not given keep what they hold.

        Args:
            times: how often it runs.
            values: arrays for memory of the graph, and values for Parameters, by name.

        Returns:
            The outputs, new arrays, by name.

        Raises:
            ArgumentError: there is no such name, or an array does not fit.
            ReplayError: a command cannot be enqueued.
        """
        graph = self._loaded
        settings = {name: value for name, value in values.items() if name not in graph.memory}
        unknown = [name for name in settings if name not in self.parameters]
        if unknown:
            there = ", ".join((*graph.memory, *filter(None, self.parameters)))
            raise ArgumentError(
                f"the graph has nothing that is called {unknown[0]}.",
                routine="loop",
                remedy=f"it has: {there or 'no names'}",
            )
        with self._calls:
            for name in values.keys() - settings.keys():
                graph.put(self._own, name, values[name])
            self.replay(self._own, times, wait=True, **settings)
            return {name: graph.get(self._own, name) for name in graph.outputs}


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
        super().__init__(block)
        self.state = "captured"
        self.document = document
        self.inputs, self.outputs = tuple(document.inputs), tuple(document.outputs)
        self._objects, self._kept = memory, keep
        queue = self.new_queue()
        self._numbers = {
            record.get("name", f"memory{number}"): number
            for number, record in enumerate(document.memory)
        }
        self._numbers |= document.inputs | document.outputs
        self.memory = {
            name: shown(queue, document.memory[number], memory[number])
            for name, number in self._numbers.items()
        }
        self.known_names = self.memory

    def finalize(self, **options: Any) -> LoadedExecutable:
        """Make the graph ready to run. See `CapturedGraph.finalize`."""
        made = super().finalize(**options)
        assert isinstance(made, LoadedExecutable)
        return made

    def start_values(self) -> dict[str, Any]:
        """What its inputs hold now, and what its named numbers were saved with, by name."""
        queue = self.new_queue()
        numbers = {
            one.name: one.value
            for one in self.block.parameters.values()
            if isinstance(one, GraphParameter) and one.name and one.source is None
        }
        return numbers | {name: self.get(queue, name) for name in self.inputs}

    def new_queue(self) -> Any:
        """A pyopencl queue, in order, of the graph's context and device."""
        import pyopencl as cl

        first = self.block.queues[0]
        return cl.CommandQueue(first.context, first.device)

    def put(self, queue: Any, name: str, value: Any) -> None:
        """Copy an array to a memory of the graph. Raises ArgumentError if it does not fit."""
        number = self._numbers[name]
        record = self.document.memory[number]
        there = typed(record, np.empty(record["size"], np.uint8))
        given = np.asarray(value)
        fits = "dtype" not in record and given.nbytes == record["size"]
        if "dtype" in record and given.shape == there.shape:
            fits = np.can_cast(given.dtype, there.dtype, "same_kind")
        if not fits:
            raise ArgumentError(
                f"{name} is memory of {there.shape} {there.dtype}, and the array given is "
                f"{given.shape} {given.dtype}.",
                routine="loop",
                remedy="give an array of that shape and type",
            )
        made = given if "dtype" not in record else given.astype(there.dtype, copy=False)
        data = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
        write_memory(queue, record, _place(self._objects[number]), data)

    def get(self, queue: Any, name: str) -> np.ndarray:
        """A copy of a memory of the graph, after everything that is in the queue."""
        number = self._numbers[name]
        record = self.document.memory[number]
        return typed(record, read_memory(queue, record, _place(self._objects[number])))


def _place(memory: Any) -> Any:
    """A memory as `read_memory` takes it."""
    pointer = getattr(memory, "svm_ptr", None)
    return memory if pointer is None else pointer


def shown(queue: Any, record: Mapping[str, Any], memory: Any) -> Any:
    """A memory as a program wants to see it: with its type and shape, if they are known."""
    from pyopencl import Buffer
    from pyopencl.array import Array

    if isinstance(memory, np.ndarray):
        return typed(record, memory)
    form = typed(record, np.empty(record["size"], np.uint8))
    if "dtype" not in record or not isinstance(memory, Buffer):
        return memory
    return Array(queue, form.shape, form.dtype, data=memory)
