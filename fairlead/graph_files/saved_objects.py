"""What the commands of a graph name becomes rows of a document, once: programs, kernels, memory and
samplers.

OpenCL's objects are named by their handles. The driver says what each one is (queries.py).
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..icd.errors import OpenCLError
from ..icd.objects import name_device_type
from ..loader.base.operations import HOST, SVM
from ..runtime.foreign_arrays import find_foreign_array
from ..runtime.usm import USM
from .contents import read_memory, view_as_array
from .document import Document
from .errors import make_save_error
from .naming import describe_memory, find_buffers
from .programs import make_program_row
from .queries import (
    identify_device,
    make_kernel_row,
    make_memory_row,
    make_sampler_row,
    query_number,
    query_text,
)


@dataclass(frozen=True)
class AddressedMemory:
    """Memory with an address.

    Attributes:
        address, size: in bytes.
        kind: "host" or "svm".
        owner: the object that has it, None for a place that no known object has.
        name: what the program calls it, "" if that is unknown.
    """

    address: int
    size: int
    kind: str
    owner: Any = None
    name: str = ""

    def has(self, address: int, size: int = 1) -> bool:
        """Whether so many bytes from an address on are in it."""
        return self.address <= address and address + size <= self.address + self.size

    def copy_data(self) -> np.ndarray:
        """Return a copy of its bytes, which the host can read."""
        return np.frombuffer(ctypes.string_at(self.address, self.size), np.uint8)


def find_allocation(thing: Any, name: str = "") -> AddressedMemory | None:
    """Return the allocation that an object has: a NumPy array, SVM or USM; None for others."""
    if isinstance(thing, np.ndarray):
        if thing.nbytes and thing.flags.c_contiguous:
            return AddressedMemory(thing.ctypes.data, thing.nbytes, "host", thing, name)
        return None
    if isinstance(thing, USM):
        return AddressedMemory(thing.pointer, thing.nbytes, "svm", thing, name)
    try:
        if hasattr(type(thing), "__sycl_usm_array_interface__"):
            foreign = find_foreign_array(thing)
            if foreign is None or not foreign.is_contiguous:
                return None
            pointer, size = foreign.pointer, foreign.nbytes
        else:
            pointer, size = getattr(thing, "svm_ptr", None), getattr(thing, "size", 0)
    except Exception:  # a variable of the program that cannot even be looked at
        return None
    if isinstance(pointer, int) and isinstance(size, int) and size > 0:
        return AddressedMemory(pointer, size, "svm", thing, name)
    return None


class AddressBook:
    """The allocations that commands use.

    Args:
        names: objects of the program by name; other values are left out.
        held: objects that a recording holds.
        used: addresses and sizes of host memory that transfers use, whoever owns it.
    """

    def __init__(
        self, names: Mapping[str, Any], held: Iterable[Any], used: Iterable[tuple[int, int]]
    ) -> None:
        known = [find_allocation(thing, name) for name, thing in names.items()]
        known += map(find_allocation, held)
        found: dict[int, AddressedMemory] = {}
        for one in sorted(filter(None, known), key=lambda one: (-one.size, not one.name)):
            if not any(other.has(one.address, one.size) for other in found.values()):
                found[one.address] = one
        self._known = found
        self._places = _join_spans(
            (address, size) for address, size in used if self.find_owner(address, size) is None
        )

    def find_owner(self, address: int, size: int = 1) -> AddressedMemory | None:
        """Return the known allocation that has these bytes, None if there is none."""
        return next((one for one in self._known.values() if one.has(address, size)), None)

    def find(self, address: int, size: int = 1) -> AddressedMemory | None:
        """Return the allocation that has these bytes, or the host memory around them; else None."""
        owner = self.find_owner(address, size)
        if owner is not None:
            return owner
        at = bisect.bisect(self._places, (address, 1 << 64)) - 1
        if at >= 0:
            begin, end = self._places[at]
            if begin <= address and address + size <= end:
                return AddressedMemory(begin, end - begin, "host")
        return None


def _join_spans(used: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that do not overlap, in order, as begin and end."""
    joined: list[tuple[int, int]] = []
    for address, size in sorted(used):
        if joined and address < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], address + size)
        else:
            joined.append((address, address + size))
    return joined


class SavedObjects:
    """Makes the rows of a document.

    Args:
        device: the pyopencl.Device that the graph is for.
        held: objects that may own memory with an address.
        used: addresses and sizes of host memory that transfers use.
        binaries: whether the programs' binaries for the device are wanted.

    Attributes:
        buffer_names: the name and the object of memory, by its handle.
        own: the numbers of memory that only the file has.
    """

    def __init__(
        self,
        device: Any,
        names: Mapping[str, Any],
        held: Iterable[Any],
        used: Iterable[tuple[int, int]],
        *,
        binaries: bool = False,
    ) -> None:
        self._device, self._binaries = device, binaries
        self.document = Document(device=identify_device(device.int_ptr))
        self.document.device |= {
            "platform": device.platform.name,
            "type": name_device_type(device.type),
            "opencl": query_text(device.int_ptr, "clGetDeviceInfo", "CL_DEVICE_VERSION"),
        }
        self.members: dict[str, Any] = {}
        self.buffer_names: dict[int, tuple[str, Any]] = find_buffers(names)
        self.own: set[int] = set()
        self._programs: dict[int, int] = {}
        self._kernels: dict[tuple[int, str, int], int] = {}
        self._known_kernels: dict[int, int] = {}
        self._memory: dict[Any, int] = {}
        self._samplers: dict[int, int] = {}
        #: How the contents of each memory are read: a handle, or an allocation.
        self._sources: dict[int, Any] = {}
        self._book = AddressBook(names, held, used)
        self._addresses: dict[tuple[int, int], tuple[int, int]] = {}

    def number_kernel(self, handle: int, count: int) -> int:
        """Return the number of a kernel with so many arguments."""
        known = self._known_kernels.get(handle)
        if known is not None:
            return known
        program = query_number(handle, "clGetKernelInfo", "CL_KERNEL_PROGRAM")
        name = query_text(handle, "clGetKernelInfo", "CL_KERNEL_FUNCTION_NAME")
        key = program, name, count
        if key not in self._kernels:
            if program not in self._programs:
                number = self._programs[program] = len(self._programs)
                record, members = make_program_row(
                    program, self._device.int_ptr, number, self._binaries
                )
                self.document.programs.append(record)
                self.members |= members
            self._kernels[key] = len(self._kernels)
            self.document.kernels.append(make_kernel_row(handle, self._programs[program], count))
        self._known_kernels[handle] = self._kernels[key]
        return self._kernels[key]

    def number_memory(self, handle: int) -> int:
        """Return the number of a memory object."""
        if handle not in self._memory:
            record, whole = make_memory_row(handle)
            if whole:
                record["of"] = self.number_memory(whole)
            self._add_memory(handle, record, handle)
            if handle in self.buffer_names:
                record |= describe_memory(*self.buffer_names[handle], record["size"])
        return self._memory[handle]

    def _add_memory(self, key: Any, record: dict[str, Any], source: Any) -> None:
        number = self._memory[key] = len(self.document.memory)
        self.document.memory.append(record)
        if "of" not in record:
            self._sources[number] = source

    def find_address(self, pointer: int, size: int, what: str) -> tuple[int, int]:
        """Return the memory that an address belongs to, and where in it.

        Args:
            pointer, size: an address, and how many bytes are used from there on.
            what: names them in errors.
        """
        known = self._addresses.get((pointer, size))
        if known is None:
            found = self._book.find(pointer, size)
            if found is None:
                raise make_save_error(
                    f"{what} is memory whose owner is not known",
                    "name the object that has it: graph.save(path, names={'m': memory})",
                )
            key = found.kind, found.address
            if key not in self._memory:
                record: dict[str, Any] = {"kind": found.kind, "size": found.size}
                if found.kind == SVM:
                    record["flags"] = ["read_write"]
                if found.owner is not None:
                    record |= describe_memory(found.name, found.owner, found.size)
                self._add_memory(key, record, found)
            known = self._addresses[pointer, size] = self._memory[key], pointer - found.address
        return known

    def number_sampler(self, handle: int) -> int:
        """Return the number of a sampler."""
        if handle not in self._samplers:
            self._samplers[handle] = len(self._samplers)
            self.document.samplers.append(make_sampler_row(handle))
        return self._samplers[handle]

    def add_host_memory(self, size: int, data: bytes | None = None) -> int:
        """Return the number of new memory of the host's, with contents if there are any."""
        number = len(self.document.memory)
        self.own.add(number)
        self._add_memory(("new", number), {"kind": HOST, "size": size}, None)
        if data is not None:
            self._give(number, np.frombuffer(data, np.uint8))
        return number

    def _give(self, number: int, data: np.ndarray) -> None:
        name = self.document.memory[number]["contents"] = f"contents/{number}.npy"
        self.members[name] = view_as_array(self.document.memory[number], data)

    def add_contents(self, context: Any, numbers: set[int] | None) -> None:
        """Add the contents of memory, when nothing uses it.

        Args:
            context: the pyopencl.Context of the graph.
            numbers: the numbers of the memory to add, None for all.

        Raises:
            GraphFileError: a driver refuses.
        """
        import pyopencl as cl

        queue = cl.CommandQueue(context, self._device)
        for number, source in self._sources.items():
            if source is None or (numbers is not None and number not in numbers):
                continue
            record = self.document.memory[number]
            try:
                data = read_memory(queue, record, _make_readable(source, record))
            except (OpenCLError, cl.Error) as refused:
                raise make_save_error(
                    f"the contents of memory {number} cannot be read: {refused}",
                    'save with contents="none"',
                ) from None
            self._give(number, data)


def _make_readable(source: Any, record: Mapping[str, Any]) -> Any:
    """Return a memory as `read_memory` takes it: a handle becomes an object of PyOpenCL's."""
    import pyopencl as cl

    if not isinstance(source, int):
        return source.copy_data() if source.kind == HOST else source.address
    return (cl.Image if record["kind"] == "image" else cl.Buffer).from_int_ptr(source)
