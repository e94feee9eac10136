"""Captured commands as rows of a graph file.

A command is an `fl_command`. What it names by a handle or an address is a row of its own
(saved_objects.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.parameter import MemoryParameter
from ..captured_graphs.pyopencl_client import warn_in_program
from ..captured_graphs.swaps import CaptureWarning
from ..icd._native import ffi, lib
from ..icd.calls import get_address
from ..icd.command_buffer.cells import find_cells
from ..icd.command_buffer.commands import NAMES, ORDER_ONLY, get_operand
from ..icd.command_buffer.edits import MEMORY, POINTER, SAMPLER, UNSET, VALUE
from ..icd.errors import check
from ..loader.base.operations import HOST, OPERATIONS, SVM
from .document import KERNEL, MARKER
from .errors import make_save_error
from .naming import describe_memory
from .parameters import make_row
from .saved_objects import SavedObjects


class CapturedRows:
    """Makes the rows of captured commands."""

    def __init__(self, objects: SavedObjects, blocks: Sequence[CapturedBlock]) -> None:
        self._objects, self.document = objects, objects.document
        self._parameters: dict[Any, int] = {}
        swaps = [swap for block in blocks for swap in block.swaps]
        self._swapped = {one.number for swap in swaps for one in swap.pair}
        if any(block.draws for block in blocks):
            warn_in_program(
                "a graph file has no generator of pyopencl.clrandom: every replay of it draws the "
                "same numbers. Remedy: fill the array before each replay, or pass it as an input",
                sys._getframe(1),
                CaptureWarning,
            )
        self.document.swaps += [
            [objects.number_memory(one.handle) for one in swap.pair] for swap in swaps
        ]

    def make_row(self, native: Any, block: CapturedBlock) -> dict[str, Any]:
        """Return the row of a command, without its order. Raises GraphFileError."""
        name = NAMES[native.op]
        if name in ORDER_ONLY:
            return {"op": MARKER}
        if name == KERNEL:
            return self._make_launch(native, block)
        return self._make_transfer(name, native, block)

    def _make_launch(self, native: Any, block: CapturedBlock) -> dict[str, Any]:
        count, dimensions = lib.fl_argument_count(native.arguments), native.work_dim
        row: dict[str, Any] = {
            "op": KERNEL,
            "kernel": self._objects.number_kernel(get_address(native.kernel), count),
            "global": list(native.n[3 : 3 + dimensions]),
        }
        if native.has_local:
            row["local"] = list(native.n[6 : 6 + dimensions])
        if native.has_offset:
            row["offset"] = list(native.n[0:dimensions])
        cells = _find_cells(native)
        row["args"] = [self._make_argument(native, index, block, cells) for index in range(count)]
        return row

    def _make_argument(
        self, native: Any, index: int, block: CapturedBlock, cells: Mapping[int, Any]
    ) -> dict[str, Any]:
        found = ffi.new("fl_change *")
        check(lib.fl_get_argument(native.arguments, index, found), "clSetKernelArg")
        kind, size = found.kind, found.size
        if kind == UNSET:
            raise make_save_error(
                f"argument {index} of the kernel "
                f"{block.get_kernel_name(native.kernel)} was set before the capture block",
                "set all arguments inside the block: kernel(queue, …) does",
            )
        number = lib.fl_parameter_of(native.arguments, index)
        if number and number not in self._swapped:
            cell = cells[get_address(found.value)]
            return {"parameter": self._refer_to_parameter(block, number, cell.conversion, size)}
        if kind == POINTER:
            memory, start = self._objects.find_address(
                get_address(found.value), 1, f"argument {index}"
            )
            return {"memory": memory, "start": start} if start else {"memory": memory}
        if not found.value:
            return {"local": size}
        data = ffi.buffer(found.value, size)[:]
        if kind == VALUE:
            return {"value": data.hex()}
        handle = int.from_bytes(data, "little")
        if kind == SAMPLER:
            return {"sampler": self._objects.number_sampler(handle)}
        assert kind == MEMORY
        return {"memory": self._objects.number_memory(handle)}

    def _make_transfer(self, name: str, native: Any, block: CapturedBlock) -> dict[str, Any]:
        operation = OPERATIONS[name]
        numbers = {one: get_operand(native, operation, one) for one in operation.numbers}
        row: dict[str, Any] = {"op": name, **numbers}
        if operation.pattern:
            row["pattern"] = bytes(ffi.buffer(native.pattern, native.pattern_size)).hex()
        for side in ("source", "target"):
            kind = getattr(operation, side)
            if kind in (HOST, SVM):
                pointer = native.host if kind == HOST else getattr(native, side)
                size = native.host_size if kind == HOST else row["size"]
                row[side], start = self._objects.find_address(get_address(pointer), size, name)
                if start:
                    row[f"{side}_start"] = start
            elif kind:
                row[side] = self._refer_to_object(get_address(getattr(native, side)), block)
        return row

    def _refer_to_object(self, handle: int, block: CapturedBlock) -> Any:
        """Return a memory object that a transfer names: its number, or the Parameter that it is."""
        number, _ = block.memory.get(handle, (0, 0)) if block.parameters else (0, 0)
        if number and number not in self._swapped:
            return {"parameter": self._refer_to_parameter(block, number, lib.FL_AS_MEMORY, 8)}
        return self._objects.number_memory(handle)

    def _refer_to_parameter(
        self, block: CapturedBlock, number: int, conversion: int, size: int
    ) -> int:
        """Return the row of a Parameter as an argument of this size and conversion."""
        return self._add_parameter(block, block.parameters[number], conversion, size)

    def _add_parameter(self, block: CapturedBlock, one: Any, conversion: int, size: int) -> int:
        key = one.number, conversion if conversion in (lib.FL_AS_FLOAT, lib.FL_AS_INTEGER) else 0
        key = (*key, size if key[1] else 0)
        if key in self._parameters:
            return self._parameters[key]
        if key[1]:  # the same number in another type
            whole = self._add_parameter(block, one, 0, 0)
            letter = "f" if conversion == lib.FL_AS_FLOAT else "i"
            row: dict[str, Any] = {"from": whole, "steps": [["astype", f"<{letter}{size}"]]}
        elif isinstance(one, MemoryParameter):
            memory = self._objects.number_memory(one.buffer.int_ptr)
            name = block.names.get(one.number, "")
            is_array = hasattr(one.value, "base_data")
            row = {"memory": memory, "is_array": is_array, **({"name": name} if name else {})}
            record = self.document.memory[memory]
            if "name" not in record and name:
                record |= describe_memory(name, one.value, record["size"])
        else:
            row = make_row(one, block, lambda whole: self._add_parameter(block, whole, 0, 0))
        self._parameters[key] = len(self.document.parameters)
        self.document.parameters.append(row)
        return self._parameters[key]


def _find_cells(native: Any) -> dict[int, Any]:
    """Return the cells of a launch, by the address of their bytes."""
    cells = {}
    for cell in find_cells(native, 1):
        look = ffi.new("fl_cell_look *")
        lib.fl_look_at_cell(cell, look)
        cells[get_address(look.bytes)] = look
    return cells
