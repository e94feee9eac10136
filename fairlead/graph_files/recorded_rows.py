"""The rows of a recorded graph for what its commands name: memory, samplers, programs, kernels.

What the layer has written of an object becomes a row when the first command names it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..icd.record_layer import Record
from ..loader.base.operations import HOST, SVM
from .document import KERNEL, Document
from .extents import find_extent
from .programs import strip_includes
from .queries import IMAGE_TYPES, NOT_WRITTEN, encode_sampler, list_flag_names, make_image_row


class RecordedRows:
    """Makes the rows of a document.

    Args:
        data: what the layer wrote of contents, by number.
        warnings: sentences about what it may lack are added to it.

    Attributes:
        facts: the last record of each object, by serial.
    """

    def __init__(
        self,
        document: Document,
        members: dict[str, Any],
        data: Mapping[int, memoryview],
        warnings: list[str],
    ) -> None:
        self.document, self.members = document, members
        self.data, self.warnings = data, warnings
        self.facts: dict[int, Record] = {}
        self._places: dict[Any, int] = {}

    def has(self, serial: int) -> bool:
        """Whether an object has a row."""
        return serial in self._places

    def _number_row(self, key: Any, rows: list[Any], row: dict[str, Any]) -> int:
        self._places[key] = len(rows)
        rows.append(row)
        return self._places[key]

    def number_host(self, row: dict[str, Any], side: str, address: Any, number: int = 0) -> int:
        """Return the number of memory of the host's.

        There is one for each address that is read to, and one for all equal bytes.

        Args:
            row, side: the transfer, and "source" or "target".
            address: where the memory lies, or what stands for that.
            number: the number of the bytes that the memory has now, 0 if nobody knows them.
        """
        of = self.document.find_memory(row["source" if side == "target" else "target"])
        _, size = find_extent(row, side, {"kind": HOST}, of)
        return self.number_host_bytes(address, size, number)

    def number_host_bytes(self, address: Any, size: int, number: int = 0) -> int:
        """Return the number of `size` bytes of the host's memory. See `number_host`."""
        data = self.data.get(number)
        key = ("read", address, size) if data is None else ("bytes", number, size)
        if key not in self._places:
            made = self._number_row(key, self.document.memory, {"kind": HOST, "size": size})
            if data is not None:
                self.give(made, data)
        return self._places[key]

    def give(self, number: int, data: memoryview, what: str = "contents") -> None:
        """Give a memory its contents, or its result."""
        name = self.document.memory[number][what] = f"{what}/{number}.npy"
        self.members[name] = np.frombuffer(data, np.uint8)

    def number_memory(self, serial: int) -> int:
        """Return the number of a memory object, given by its serial."""
        if serial in self._places:
            return self._places[serial]
        _, kind, flags, size, of, offset, *image = self.facts[serial].words
        row: dict[str, Any] = {"kind": "buffer", "size": size, "flags": list_flag_names(flags)}
        if not kind:
            row["kind"] = SVM
        elif image:
            form, element, pitch, *dimensions = image
            row |= make_image_row(IMAGE_TYPES[kind], form, element, dimensions)
            row |= {"row_pitch": pitch} if of else {}
        elif of:
            row |= {"kind": "sub_buffer", "offset": offset}
        if of:
            row["of"] = self.number_memory(of)
        return self._number_row(serial, self.document.memory, row)

    def number_sampler(self, serial: int) -> int:
        """Return the number of a sampler, given by its serial."""
        if serial in self._places:
            return self._places[serial]
        row = encode_sampler(*self.facts[serial].words[1:])
        return self._number_row(serial, self.document.samplers, row)

    def number_kernel(self, serial: int) -> int:
        """Return the number of a kernel, given by its serial."""
        if serial not in self._places:
            self._places[serial] = self._add_kernel(self.facts[serial])
        return self._places[serial]

    def _add_kernel(self, record: Record) -> int:
        """Return the number of a kernel; objects of equal program and name have one."""
        _, program, _ = record.words
        name, *facts = (data for _, data in record.pieces)
        key = KERNEL, program, name
        if key in self._places:
            return self._places[key]
        row: dict[str, Any] = {"program": self._number_program(program), "name": read_text(name)}
        arguments = [
            {
                "type": read_text(kind),
                "name": read_text(title),
                "constant": any(
                    number & mask == wanted
                    for number, (_, mask, wanted) in zip(
                        read_words(numbers), NOT_WRITTEN, strict=True
                    )
                ),
            }
            for numbers, kind, title in zip(*[iter(facts)] * 3, strict=True)
        ]
        if all(one["type"] for one in arguments):
            row["arguments"] = arguments
        return self._number_row(key, self.document.kernels, row)

    def _number_program(self, serial: int) -> int:
        if ("program", serial) in self._places:
            return self._places["program", serial]
        number, found = len(self.document.programs), dict(self.facts[serial].pieces)
        source, il, binary = read_text(found[0]), found[1], found.get(3, b"")
        row: dict[str, Any] = {"options": strip_includes(read_text(found.get(2, b"")))}
        if 2 not in found:
            self.warnings.append(
                "the driver did not tell a program's build options: the file has none for it"
            )
        if source.strip():
            row["source"] = self._add_member(f"programs/{number}.cl", source.encode())
        elif il:
            row["il"] = self._add_member(f"programs/{number}.spv", il)
        else:
            file = self._add_member(f"programs/{number}.bin", binary)
            identity = {name: self.document.device[name] for name in ("device", "driver")}
            row["binaries"] = [{**identity, "file": file}]
            self.warnings.append(
                "a program was made from binaries: only the same device can load the file"
            )
        return self._number_row(("program", serial), self.document.programs, row)

    def _add_member(self, name: str, data: bytes) -> str:
        self.members[name] = data
        return name


def read_word(data: bytes) -> int:
    """Return the number in a piece."""
    return int.from_bytes(data[:8], "little")


def read_words(data: bytes) -> list[int]:
    """Return the numbers in a piece."""
    return list(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))


def read_text(data: bytes) -> str:
    """Return the text in a piece."""
    return data.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "")
