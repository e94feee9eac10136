"""AMD's code objects: what their metadata says of kernels, and two changes of it.

A code object is an ELF file. Its note NT_AMDGPU_METADATA describes every kernel in MessagePack
(LLVM, "User Guide for AMDGPU Backend"). HIP has no function that tells a kernel's parameters.

HIP passes every kernel a global offset of 0, and gives all `__local` arguments the same address.
Both are parameters of the code, and only the metadata makes HIP fill them. `prepare` calls them
values in it. Then a launch passes them as it passes numbers. Sizes and places stay.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

#: Values of a fixed size, by their first byte.
_NUMBERS: Final = {
    **{0xCC + power: f">{letter}" for power, letter in enumerate("BHIQ")},
    **{0xD0 + power: f">{letter}" for power, letter in enumerate("bhiq")},
    0xCA: ">f",
    0xCB: ">d",
}
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
#: Values whose length follows, by their first byte: what they are, and how the length is written.
_LENGTHS: Final = {
    **{0xC4 + power: (bytes, f">{letter}") for power, letter in enumerate("BHI")},
    **{0xD9 + power: (str, f">{letter}") for power, letter in enumerate("BHI")},
    **{0xDC + power: (list, f">{letter}") for power, letter in enumerate("HI")},
    **{0xDE + power: (dict, f">{letter}") for power, letter in enumerate("HI")},
}
#: Values whose length is in the first byte: the lowest one, what they are, and the length's bits.
_SHORT: Final = ((0xA0, str, 0x1F), (0x90, list, 0x0F), (0x80, dict, 0x0F))


class _MessageReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("the data ends within a value")
        return self.data[self.at - size : self.at]

    def read_number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def read_value(self) -> Any:
        first = self.read_number("B")
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self.read_number(_NUMBERS[first])
        if first in _LENGTHS:
            kind, form = _LENGTHS[first]
            return self.read_sequence(kind, self.read_number(form))
        for lowest, kind, bits in _SHORT:
            if first & ~bits == lowest:
                return self.read_sequence(kind, first & bits)
        raise ValueError(f"a value begins with the unknown byte {first:#x}")

    def read_sequence(self, kind: type, length: int) -> Any:
        if kind is list:
            return [self.read_value() for _ in range(length)]
        if kind is dict:
            return {self.read_value(): self.read_value() for _ in range(length)}
        data = self.take(length)
        return data.decode() if kind is str else data


def read_messagepack(data: bytes) -> Any:
    """Return the first value in data.

    Args:
        data: MessagePack, without extension types. What follows the first value is not read.

    Raises:
        ValueError: the data is damaged, or nested too deeply.
    """
    try:
        return _MessageReader(data).read_value()
    except (TypeError, RecursionError) as error:  # a list as a key
        raise ValueError(str(error)) from error


Sizes = tuple[int, int, int]

_BUNDLE: Final = b"__CLANG_OFFLOAD_BUNDLE__"
#: How a code object and a bundle of some begin.
MAGIC: Final = b"\x7fELF", _BUNDLE
_NOTE: Final = 32  # NT_AMDGPU_METADATA
_AMD_GPU: Final = 224  # EM_AMDGPU

_OFFSETS: Final = tuple(f"hidden_global_offset_{axis}" for axis in "xyz")
_LOCAL: Final = "dynamic_shared_pointer"
_VALUE: Final = "by_value"


class CodeObjectParameter(NamedTuple):
    """A parameter of a kernel that a launch passes.

    Attributes:
        offset: its place in the kernel's arguments, in bytes.
        size: bytes.
        kind: what it is, such as "by_value" or "global_buffer".
        axis: 0 to 2 for a parameter that takes the global offset of a dimension, else -1.
    """

    offset: int
    size: int
    kind: str
    axis: int = -1


class CodeObjectKernel(NamedTuple):
    """What is known of a kernel.

    Attributes:
        parameters: what a launch passes, in order.
        argument_bytes: the size of all arguments, hidden ones too.
        local_bytes: local memory that the kernel always has.
        most_items: work-items of a work-group at most.
        required: the size of work-groups that it is compiled for, None for any size.
        wavefront: work-items of a sub-group.
    """

    name: str
    parameters: tuple[CodeObjectParameter, ...]
    argument_bytes: int
    local_bytes: int
    most_items: int
    required: Sizes | None
    wavefront: int

    @property
    def given(self) -> tuple[CodeObjectParameter, ...]:
        """Return the parameters that the program sets: those of the source."""
        return tuple(one for one in self.parameters if one.axis < 0)


class CodeObject(NamedTuple):
    """A code object.

    Attributes:
        image: the code object as HIP may load it.
        target: what it is for, such as "amdgcn-amd-amdhsa--gfx90a".
    """

    image: bytes
    target: str
    kernels: dict[str, CodeObjectKernel]


class CodeObjectError(Exception):
    """Data is not a code object that can be read."""


def find_processor(target: str) -> str:
    """Return the processor of a target without its features: "gfx90a" of "…--gfx90a:xnack-"."""
    return target.rpartition("-")[2].split(":")[0]


def _unbundle(data: bytes, processor: str) -> bytes:
    """Return the code object for a processor in a bundle (LLVM, "Clang Offload Bundler").

    Raises:
        CodeObjectError: there is none.
    """
    (count,), at, found = struct.unpack_from("<Q", data, len(_BUNDLE)), len(_BUNDLE) + 8, []
    for _ in range(count):
        start, size, length = struct.unpack_from("<3Q", data, at)
        name = data[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if not name.startswith("host") and find_processor(name.rstrip("+-")) == processor:
            return data[start : start + size]
        found.append(name)
    raise CodeObjectError(f"the bundle has no code for {processor}, only {', '.join(found)}")


def _find_note(data: bytes) -> tuple[int, bytes]:
    """Return the place of the metadata in an ELF file, and the metadata."""
    file = ELFFile(io.BytesIO(data))
    if file["e_machine"] not in ("EM_AMDGPU", _AMD_GPU):
        raise CodeObjectError("the ELF file is not for AMD's GPUs")
    for segment in file.iter_segments("PT_NOTE"):
        for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
            if note["n_name"] == "AMDGPU" and note["n_type"] == _NOTE:
                size = note["n_descsz"]
                # Owner and description are each padded to 4 bytes, behind a header of 12.
                start = note["n_offset"] + 12 + (note["n_namesz"] + 3) // 4 * 4
                return start, data[start : start + size]
    raise CodeObjectError("the code object has no metadata (NT_AMDGPU_METADATA)")


def _parse_parameters(rows: list[dict[str, Any]]) -> Iterator[CodeObjectParameter]:
    for row in rows:
        kind = row[".value_kind"]
        if kind in _OFFSETS:
            yield CodeObjectParameter(row[".offset"], row[".size"], _VALUE, _OFFSETS.index(kind))
        elif not kind.startswith("hidden_"):
            yield CodeObjectParameter(row[".offset"], row[".size"], kind)


def _parse_kernel(row: dict[str, Any]) -> CodeObjectKernel:
    required = row.get(".reqd_workgroup_size")
    return CodeObjectKernel(
        row[".name"],
        tuple(_parse_parameters(row.get(".args", []))),
        row[".kernarg_segment_size"],
        row[".group_segment_fixed_size"],
        row[".max_flat_workgroup_size"],
        (required[0], required[1], required[2]) if required else None,
        row[".wavefront_size"],
    )


def prepare(data: bytes, processor: str) -> CodeObject:
    """Read a code object, and let launches pass global offsets and places in local memory.

    Args:
        data: a code object, or a bundle of some.
        processor: the device's, such as "gfx90a". It chooses from a bundle.

    Raises:
        CodeObjectError: the data is neither, or has no code for the processor.
    """
    try:
        if data.startswith(_BUNDLE):
            data = _unbundle(data, processor)
        start, note = _find_note(data)
        metadata = read_messagepack(note)
        kernels = {row[".name"]: _parse_kernel(row) for row in metadata.get("amdhsa.kernels", [])}
        target = str(metadata.get("amdhsa.target", ""))
    except (ELFError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise CodeObjectError(f"the code object cannot be read: {error}") from error
    changed = _name_values(note)
    return CodeObject(data[:start] + changed + data[start + len(note) :], target, kernels)


def _encode_text(value: str) -> bytes:
    return bytes([0xA0 + len(value)]) + value.encode()


def _name_values(note: bytes) -> bytes:
    """Return metadata of the same size in which what HIP would fill is called a value.

    A shorter word leaves room. An entry of its own at the end fills it.
    """
    made, key = note, _encode_text(".value_kind")
    for kind in (*_OFFSETS, _LOCAL):
        made = made.replace(key + _encode_text(kind), key + _encode_text(_VALUE))
    room = len(note) - len(made)
    if not room:
        return note
    if not 0x80 <= note[0] < 0x8F:
        raise CodeObjectError("the metadata has no room for another entry")
    filler = room - len(_encode_text(".pad")) - 5
    end = _encode_text(".pad") + struct.pack(">BI", 0xDB, filler) + b" " * filler
    return bytes([made[0] + 1]) + made[1:] + end
