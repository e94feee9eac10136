"""`graph.save("step.flg")`: a captured graph becomes a document and its members.

What a command names by a handle or an address becomes a row of the document, once. The driver says
what it is (queries.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.commands import Captured
from ..captured_graphs.parameter import MemoryParameter
from ..icd._native import ffi, lib
from ..icd.calls import address
from ..icd.command_buffer.commands import OPERATIONS as RECORDED
from ..icd.command_buffer.edits import MEMORY, POINTER, SAMPLER, UNSET, VALUE
from ..icd.errors import OpenCLError, check
from . import archive
from .access import inputs_and_outputs, named_memory
from .addresses import AddressBook
from .contents import read_memory, typed
from .document import CONTENTS, KERNEL, MARKER, Document
from .errors import cannot_save
from .naming import buffers_of, description, make_unique
from .operations import HOST, OPERATIONS, SVM
from .parameters import row_of
from .queries import (
    identity_of,
    kernel_record,
    memory_record,
    program_of,
    program_record,
    sampler_record,
    text_in,
)
from .rows import Row, host_places, rows_of

if TYPE_CHECKING:
    from ..captured_graphs.graph import CapturedGraph

_PLACES: Final = frozenset({"marker", "barrier", "hint"})


def save(
    graph: CapturedGraph,
    place: archive.Place,
    contents: str,
    names: Mapping[str, Any],
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    *,
    binaries: bool = False,
    remembered: bool = False,
) -> None:
    """Write a graph to a path or a binary stream. See `CapturedGraph.save`.

    If `remembered`, memory without a name has that of the variable that it was in the block.
    """
    if contents not in CONTENTS:
        raise cannot_save(f"contents is {contents!r}", f"give one of {', '.join(CONTENTS)}")
    if graph.state != "captured":
        raise cannot_save("the capture block has not ended", "save after the block")
    rows = list(rows_of(graph))
    writer = _Writer(graph.block, rows, names, binaries)
    if remembered:
        writer.remember_names()
    for row in rows:
        writer.add(*row)
    document = writer.finish(inputs, outputs)
    document.contents = contents
    if contents != "none":
        writer.add_contents(
            document, set(document.inputs.values()) if contents == "inputs" else None
        )
    archive.write(place, document, writer.members)


class _Writer:
    """Collects the rows of a document."""

    def __init__(
        self, block: CapturedBlock, rows: Iterable[Row], names: Mapping[str, Any], binaries: bool
    ) -> None:
        self._binaries, self._names = binaries, names
        self._block, self._device = block, block.queues[0].device
        device = self._device.int_ptr
        self.document = Document(device=identity_of(device))
        platform = self._device.platform
        self.document.device |= {
            "platform": platform.name,
            "opencl": text_in(device, "clGetDeviceInfo", "CL_DEVICE_VERSION"),
        }
        self.members: dict[str, Any] = {}
        self._programs: dict[int, int] = {}
        self._kernels: dict[tuple[int, str, int], int] = {}
        self._known_kernels: dict[int, int] = {}
        self._memory: dict[Any, int] = {}
        self._samplers: dict[int, int] = {}
        self._parameters: dict[Any, int] = {}
        #: How the contents of each memory are read: a handle, or an allocation.
        self._sources: dict[int, Any] = {}
        blocks = {id(one): one for _, one, _ in rows}
        self._swapped = {
            one.number for block in blocks.values() for swap in block.swaps for one in swap.pair
        }
        held = [thing for block in blocks.values() for thing in block.held]
        self._book = AddressBook(names, held, host_places(rows))
        self._addresses: dict[tuple[int, int], tuple[int, int]] = {}
        self._buffer_names = buffers_of(names)
        self._blocks = tuple(blocks.values())
        for one in blocks.values():
            for swap in one.swaps:
                pair = [self._memory_number(entry.handle) for entry in swap.pair]
                self.document.swaps.append(pair)

    def remember_names(self) -> None:
        """Give memory without a name that of the variable that it was in its block."""
        for block in self._blocks:
            self._buffer_names = {**block.buffer_names, **self._buffer_names}

    # commands

    def add(self, command: Any, block: CapturedBlock, before: Sequence[int]) -> None:
        """Write a command down. Raises GraphFileError."""
        native = command.native if isinstance(command, Captured) else command
        name = MARKER if native is None else RECORDED[native.op]
        if name in _PLACES or name == MARKER:
            row: dict[str, Any] = {"op": MARKER}
        elif name == KERNEL:
            row = self._launch(native, block)
        else:
            row = self._transfer(name, native, block)
        self.document.commands.append({**row, "after": list(before)})

    def _launch(self, native: Any, block: CapturedBlock) -> dict[str, Any]:
        count, dimensions = lib.fl_argument_count(native.arguments), native.work_dim
        row: dict[str, Any] = {
            "op": KERNEL,
            "kernel": self._kernel(address(native.kernel), count),
            "global": list(native.n[3 : 3 + dimensions]),
        }
        if native.has_local:
            row["local"] = list(native.n[6 : 6 + dimensions])
        if native.has_offset:
            row["offset"] = list(native.n[0:dimensions])
        cells = _cells_of(native)
        row["args"] = [self._argument(native, index, block, cells) for index in range(count)]
        return row

    def _kernel(self, handle: int, count: int) -> int:
        known = self._known_kernels.get(handle)
        if known is not None:
            return known
        program = program_of(handle)
        name = text_in(handle, "clGetKernelInfo", "CL_KERNEL_FUNCTION_NAME")
        key = program, name, count
        if key not in self._kernels:
            if program not in self._programs:
                number = self._programs[program] = len(self._programs)
                record, members = program_record(
                    program, self._device.int_ptr, number, self._binaries
                )
                self.document.programs.append(record)
                self.members |= members
            self._kernels[key] = len(self._kernels)
            self.document.kernels.append(kernel_record(handle, self._programs[program], count))
        self._known_kernels[handle] = self._kernels[key]
        return self._kernels[key]

    def _argument(
        self, native: Any, index: int, block: CapturedBlock, cells: Mapping[int, Any]
    ) -> dict[str, Any]:
        found = ffi.new("fl_change *")
        check(lib.fl_get_argument(native.arguments, index, found), "clSetKernelArg")
        kind, size = found.kind, found.size
        if kind == UNSET:
            raise cannot_save(
                f"argument {index} of the kernel "
                f"{self.document.kernels[-1]['name']} was set before the capture block",
                "set all arguments inside the block: kernel(queue, …) does",
            )
        number = lib.fl_parameter_of(native.arguments, index)
        if number and number not in self._swapped:
            cell = cells[address(found.value)]
            return {"parameter": self._parameter(block, number, cell.conversion, size)}
        if kind == POINTER:
            memory, start = self._address(address(found.value), 1, f"argument {index}")
            return {"memory": memory, "start": start} if start else {"memory": memory}
        if not found.value:
            return {"local": size}
        data = ffi.buffer(found.value, size)[:]
        if kind == VALUE:
            return {"value": data.hex()}
        handle = int.from_bytes(data, "little")
        if kind == SAMPLER:
            return {"sampler": self._sampler(handle)}
        assert kind == MEMORY
        return {"memory": self._memory_number(handle)}

    def _transfer(self, name: str, native: Any, block: CapturedBlock) -> dict[str, Any]:
        operation = OPERATIONS[name]
        row: dict[str, Any] = {"op": name, **operation.read(native)}
        if operation.has_pattern:
            row["pattern"] = bytes(ffi.buffer(native.pattern, native.pattern_size)).hex()
        for side in ("source", "target"):
            kind = getattr(operation, side)
            if kind in (HOST, SVM):
                pointer = native.host if kind == HOST else getattr(native, side)
                size = native.host_size if kind == HOST else row["size"]
                row[side], start = self._address(address(pointer), size, name)
                if start:
                    row[f"{side}_start"] = start
            elif kind:
                row[side] = self._object(address(getattr(native, side)), block)
        return row

    # what commands name

    def _object(self, handle: int, block: CapturedBlock) -> Any:
        """A memory object that a transfer names: its number, or the Parameter that it is."""
        number, _ = block.memory.get(handle, (0, 0)) if block.parameters else (0, 0)
        if number and number not in self._swapped:
            return {"parameter": self._parameter(block, number, lib.FL_AS_MEMORY, 8)}
        return self._memory_number(handle)

    def _memory_number(self, handle: int) -> int:
        if handle not in self._memory:
            record, whole = memory_record(handle)
            if whole:
                record["of"] = self._memory_number(whole)
            self._new_memory(handle, record, handle)
            if handle in self._buffer_names:
                record |= description(*self._buffer_names[handle], record["size"])
        return self._memory[handle]

    def _new_memory(self, key: Any, record: dict[str, Any], source: Any) -> None:
        number = self._memory[key] = len(self.document.memory)
        self.document.memory.append(record)
        if "of" not in record:
            self._sources[number] = source

    def _address(self, pointer: int, size: int, what: str) -> tuple[int, int]:
        """The memory that an address belongs to, and where in it."""
        known = self._addresses.get((pointer, size))
        if known is None:
            found = self._book.find(pointer, size)
            if found is None:
                raise cannot_save(
                    f"{what} is memory whose owner is not known",
                    "name the object that has it: graph.save(path, names={'m': memory})",
                )
            key = found.kind, found.address
            if key not in self._memory:
                record: dict[str, Any] = {"kind": found.kind, "size": found.size}
                if found.kind == SVM:
                    record["flags"] = ["read_write"]
                if found.name:
                    record |= description(found.name, found.owner, found.size)
                self._new_memory(key, record, found)
            known = self._addresses[pointer, size] = self._memory[key], pointer - found.address
        return known

    def _sampler(self, handle: int) -> int:
        if handle not in self._samplers:
            self._samplers[handle] = len(self._samplers)
            self.document.samplers.append(sampler_record(handle))
        return self._samplers[handle]

    def _parameter(self, block: CapturedBlock, number: int, conversion: int, size: int) -> int:
        """The row of a Parameter as an argument of this size and conversion."""
        return self._parameter_row(block, block.parameters[number], conversion, size)

    def _parameter_row(self, block: CapturedBlock, one: Any, conversion: int, size: int) -> int:
        key = one.number, conversion if conversion in (lib.FL_AS_FLOAT, lib.FL_AS_INTEGER) else 0
        key = (*key, size if key[1] else 0)
        if key in self._parameters:
            return self._parameters[key]
        if key[1]:  # the same number in another type
            whole = self._parameter_row(block, one, 0, 0)
            letter = "f" if conversion == lib.FL_AS_FLOAT else "i"
            row: dict[str, Any] = {"from": whole, "steps": [["astype", f"<{letter}{size}"]]}
        elif isinstance(one, MemoryParameter):
            memory = self._memory_number(one.buffer.int_ptr)
            name = block.names.get(one.number, "")
            is_array = hasattr(one.value, "base_data")
            row = {"memory": memory, "is_array": is_array, **({"name": name} if name else {})}
            record = self.document.memory[memory]
            if "name" not in record and name:
                record |= description(name, one.value, record["size"])
        else:
            row = row_of(one, block, lambda whole: self._parameter_row(block, whole, 0, 0))
        self._parameters[key] = len(self.document.parameters)
        self.document.parameters.append(row)
        return self._parameters[key]

    # the end

    def finish(self, inputs: Iterable[str] | None, outputs: Iterable[str] | None) -> Document:
        """Name the inputs and outputs. Raises GraphFileError for a name that no memory has."""
        document = self.document
        make_unique(document)
        found = inputs_and_outputs(document)
        by_name = {
            one["name"]: number for number, one in enumerate(document.memory) if "name" in one
        }
        for title, wanted, numbers in zip(
            ("inputs", "outputs"), (inputs, outputs), found, strict=True
        ):
            names = dict(named_memory(document, numbers))
            if wanted is not None:
                names = {}
                for name in wanted:
                    if name not in by_name:
                        raise cannot_save(
                            f"the graph uses no memory that is called {name}",
                            f"it has {', '.join(by_name) or 'no named memory'}; name others: "
                            "graph.save(path, names={'x': x})",
                        )
                    names[name] = by_name[name]
            setattr(document, title, names)
        return document

    def add_contents(self, document: Document, numbers: set[int] | None) -> None:
        """Add the contents of memory, None for all of it. Raises GraphFileError."""
        import pyopencl as cl

        for queue in self._block.queues:
            queue.finish()
        queue = cl.CommandQueue(self._block.queues[0].context, self._device)
        for number, source in self._sources.items():
            if numbers is not None and number not in numbers:
                continue
            record = document.memory[number]
            name = record["contents"] = f"contents/{number}.npy"
            try:
                data = read_memory(queue, record, _readable(source, record))
            except (OpenCLError, cl.Error) as refused:
                raise cannot_save(
                    f"the contents of memory {number} cannot be read: {refused}",
                    'save with contents="none"',
                ) from None
            self.members[name] = typed(record, data)


def _readable(source: Any, record: Mapping[str, Any]) -> Any:
    """A memory as `read_memory` takes it: a handle becomes an object of PyOpenCL's."""
    import pyopencl as cl

    if not isinstance(source, int):
        return source.data() if source.kind == HOST else source.address
    return (cl.Image if record["kind"] == "image" else cl.Buffer).from_int_ptr(source)


def _cells_of(native: Any) -> dict[int, Any]:
    """The cells of a launch, by the address of their bytes."""
    count = lib.fl_find_cells(native, 1, ffi.NULL, 0)
    if not count:
        return {}
    found, cells = ffi.new("fl_cell *[]", count), {}
    lib.fl_find_cells(native, 1, found, count)
    for cell in found:
        look = ffi.new("fl_cell_look *")
        lib.fl_look_at_cell(cell, look)
        cells[address(look.bytes)] = look
    return cells
