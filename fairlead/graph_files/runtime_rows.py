"""Commands of the runtime as rows of a graph file: launches, and transfers of buffers and USM.

OpenCL's objects behind them are named by their native handles. USM becomes SVM, which the same
addresses lead to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from ..graph.dynamic import DynamicParameter
from ..loader.base.operations import HOST, OPERATIONS, SVM
from ..runtime.accessor import Accessor
from ..runtime.arguments import LOCAL, MEMORY, POINTER, SAMPLER, VALUE, Argument
from ..runtime.coherent_memory import CoherentMemory
from ..runtime.context import Context
from ..runtime.interop import PyOpenCLMemory
from ..runtime.launches import KernelLaunch
from ..runtime.memory import Memory
from ..runtime.program import Kernel
from ..runtime.transfers import Transfer
from .document import KERNEL, MARKER
from .extents import find_extent
from .naming import describe_by_argument, find_type_name
from .rows import FileRow
from .saved_objects import SavedObjects

_NOTHING: Final = bytes(8).hex()
_LONGEST: Final = 9999  # bytes of a Parameter in a file
#: How long patterns of OpenCL's fills can be, in bytes.
_PATTERNS: Final = frozenset(1 << power for power in range(8))


class RuntimeRows:
    """Makes the rows of the runtime's commands.

    Args:
        context: the runtime's, None if there are no such commands.
    """

    def __init__(
        self, objects: SavedObjects, context: Context | None, names: Mapping[str, Any]
    ) -> None:
        self._objects, self._context, self._document = objects, context, objects.document
        ours = (CoherentMemory, DynamicParameter)
        self._names = {
            id(value): name for name, value in names.items() if issubclass(type(value), ours)
        }
        self._kernels: dict[Kernel, int] = {}
        self._kept: list[Any] = []  # whose handles must not become those of others
        self._parameters: dict[Any, int] = {}
        #: What kernels declare for memory and for Parameters: the row, and the declaration.
        self._declared: list[tuple[dict[str, Any], Mapping[str, Any]]] = []

    def make_rows(self, row: FileRow) -> Iterable[dict[str, Any]]:
        """Return the rows of a command, without their order: each comes after the one before it.
        Raises GraphFileError."""
        if isinstance(row.command, KernelLaunch):
            return [self._make_launch(row.command, row.parameters)]
        return self._make_transfer(row.command)

    # launches

    def _make_launch(
        self, launch: KernelLaunch, parameters: Mapping[int, DynamicParameter]
    ) -> dict[str, Any]:
        whole, local, offset = launch.sizes
        if 0 in whole:
            return {"op": MARKER}
        kernel = self._number_kernel(launch.kernel)
        row: dict[str, Any] = {"op": KERNEL, "kernel": kernel, "global": [*whole]}
        for name, sizes in (("local", local), ("offset", offset)):
            row |= {name: [*sizes]} if sizes else {}
        declared = self._document.kernels[kernel].get("arguments", ())
        row["args"] = []
        for index, argument in enumerate(launch.arguments):
            made = self._make_argument(argument, parameters.get(index), f"argument {index}")
            row["args"].append(made)
            if index < len(declared):
                self._declare(made, declared[index])
        return row

    def _number_kernel(self, kernel: Kernel) -> int:
        if kernel not in self._kernels:
            asked = kernel.make_queryable()
            self._kept.append(asked)
            self._kernels[kernel] = self._objects.number_kernel(asked.native(), kernel.num_args)
        return self._kernels[kernel]

    def _make_argument(
        self, argument: Argument, parameter: DynamicParameter | None, what: str
    ) -> dict[str, Any]:
        if parameter is not None and argument.type in (VALUE, MEMORY):
            number = self._number_parameter(parameter, argument)
            if number is not None:
                return {"parameter": number}
        if argument.type == LOCAL:
            return {"local": argument.size}
        if argument.type == VALUE:
            return {"value": argument.keep.hex()}
        if argument.type == POINTER:
            if not argument.word:
                return {"value": _NOTHING}
            memory, start = self._objects.find_address(argument.word, 1, what)
            return {"memory": memory, "start": start} if start else {"memory": memory}
        assert argument.buffer is not None and self._context is not None
        if argument.type == SAMPLER:
            handle = argument.buffer.memory(self._context)
            native = self._context.adapter.obtain("urSamplerGetNativeHandle", handle)
            return {"sampler": self._objects.number_sampler(native)}
        assert isinstance(argument.buffer, Memory)
        return {"memory": self._number_memory(argument.buffer)}

    def _number_parameter(self, parameter: DynamicParameter, used: Argument) -> int | None:
        """Return the row of a dynamic parameter, None if files have no such Parameter.

        A launch may use a number in another type than that of the parameter: then it is a Parameter
        that follows from it.
        """
        own, key = parameter.argument, id(parameter)
        if own.size > _LONGEST or (own.type == MEMORY and not isinstance(own.keep, Accessor)):
            return None
        if key not in self._parameters:
            if own.type == VALUE:
                row = _encode_value(own)
            else:
                assert isinstance(own.buffer, Memory)
                row = {"memory": self._number_memory(own.buffer), "is_array": False}
                if self._document.memory[row["memory"]]["kind"] == "image":
                    return None
            if id(parameter) in self._names:
                row["name"] = self._names[id(parameter)]
            self._parameters[key] = self._add_parameter(row)
        if own.type == VALUE and _find_type(own) != _find_type(used):
            whole, key = self._parameters[key], (key, _find_type(used))
            if key not in self._parameters:
                steps = [["astype", _find_type(used)]]
                self._parameters[key] = self._add_parameter({"from": whole, "steps": steps})
        return self._parameters[key]

    def _add_parameter(self, row: dict[str, Any]) -> int:
        self._document.parameters.append(row)
        return len(self._document.parameters) - 1

    # memory

    def _number_memory(self, memory: Memory) -> int:
        """Return the number of a buffer or an image."""
        if isinstance(memory, PyOpenCLMemory):
            return self._objects.number_memory(memory.keep.int_ptr)
        assert self._context is not None
        handle, device = memory.memory(self._context), self._context.devices[0].handle
        native = self._context.adapter.obtain("urMemGetNativeHandle", handle, device)
        self._objects.buffer_names[native] = self._names.get(id(memory), ""), memory
        return self._objects.number_memory(native)

    # transfers

    def _make_transfer(self, transfer: Transfer) -> Iterable[dict[str, Any]]:
        name = transfer.row.operation
        if not name:  # advice
            return [{"op": MARKER}]
        fields = dict(zip(transfer.row.fields, transfer.fields, strict=True))
        pattern = b""
        if "pattern" in fields:
            pattern = ctypes.string_at(fields.pop("pattern"), fields.pop("pattern_size"))
        operation = OPERATIONS[name]
        numbers = {one: _convert_to_plain(fields[one]) for one in operation.numbers}
        row: dict[str, Any] = {"op": name, **numbers}
        if pattern and (len(pattern) not in _PATTERNS or row.get("offset", 0) % len(pattern)):
            row["op"] = "svm_copy" if operation.target == SVM else "write"
            size = row["size"]
            row["source"] = self._objects.add_host_memory(size, pattern * (size // len(pattern)))
        elif pattern:
            row["pattern"] = pattern.hex()
        places = [(one, getattr(operation, one)) for one in ("source", "target")]
        for side, kind in places:
            if kind not in ("", HOST, SVM):
                row[side] = self._number_memory(fields[side])
        for side, kind in places:
            if kind == SVM:
                row |= self._describe_place(side, fields[side], row["size"], name)
            elif kind == HOST:
                return self._make_host_transfer(row, side, fields[side])
        return [row]

    def _describe_place(self, side: str, pointer: int, size: int, what: str) -> dict[str, Any]:
        """Return what a row says of a side that is an address."""
        memory, start = self._objects.find_address(pointer, size, what)
        return {side: memory, f"{side}_start": start} if start else {side: memory}

    def _make_host_transfer(
        self, row: dict[str, Any], side: str, pointer: int
    ) -> list[dict[str, Any]]:
        """Return a transfer between a memory object and an address. USM takes part by a copy."""
        other = "target" if side == "source" else "source"
        _, size = find_extent(row, side, {"kind": HOST}, self._document.memory[row[other]])
        place = self._describe_place(side, pointer, size, row["op"])
        if self._document.memory[place[side]]["kind"] == HOST:
            return [{**row, **place}]
        between = self._objects.add_host_memory(size)
        copy = {"op": "svm_copy", "size": size, other: between, **place}
        row[side] = between
        return [row, copy] if side == "target" else [copy, row]

    # names

    def _declare(self, argument: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
        """Remember what a kernel declares for an argument."""
        if "memory" in argument:
            self._declared.append((self._document.memory[argument["memory"]], declared))
        elif "parameter" in argument:
            row = self._document.parameters[argument["parameter"]]
            self._declared.append(
                (self._document.parameters[row.get("from", argument["parameter"])], declared)
            )

    def name_others(self) -> None:
        """Give memory and Parameters without a name that of a kernel's argument that they are."""
        used = {row["name"] for row in self._document.memory if "name" in row}
        used |= {row["name"] for row in self._document.parameters if "name" in row}
        for row, declared in self._declared:
            name = declared["name"]
            free = name if name not in used else ""
            if "kind" in row:
                describe_by_argument(row, {**declared, "name": free})
            elif "name" not in row and free.isidentifier():
                row["name"] = name
            used.add(row.get("name", ""))
            if "is_array" in row and "name" in row:
                self._document.memory[row["memory"]].setdefault("name", row["name"])


def _find_type(argument: Argument) -> str:
    """Return what a file calls the type of a number, or of other bytes."""
    dtype = argument.dtype
    if isinstance(dtype, np.dtype) and dtype.itemsize == argument.size:
        return find_type_name(dtype)
    return f"|V{argument.size}"


def _encode_value(argument: Argument) -> dict[str, Any]:
    """Return a number as the row of a Parameter."""
    return {"dtype": _find_type(argument), "value": argument.keep.hex()}


def _convert_to_plain(value: Any) -> Any:
    """Return a number, or the three of an origin or a region."""
    if isinstance(value, ctypes.Structure):
        return [getattr(value, name) for name, *_ in value._fields_]
    return value
