"""`fairlead record`: what the layer has written of a program becomes a document and its members.

No driver is asked: the layer has asked it while the program ran (icd/record_layer.py). A number of
an object, its *serial*, stands for it in the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ..icd import record_layer
from ..icd.abi import OPENCL
from ..icd.objects import name_device_type
from ..icd.record_layer import ProcessRecording, Record
from ..loader.base.operations import HOST, OPERATIONS, SVM
from ..loader.base.progress import follow
from .access import find_inputs_and_outputs, name_memory
from .checks import check_document
from .contents import view_as_array
from .document import KERNEL, MARKER, Document
from .naming import describe_by_argument, make_unique
from .order import RecordedOrder
from .recorded_rows import RecordedRows, read_text, read_word, read_words

#: The words of a COMMAND record before its arguments.
_NUMBER, _SLOT, _QUEUE, _STATE, _EVENT, _ARGUMENTS = 0, 1, 2, 3, 4, 6
_FAILED: Final = 2
#: What a kernel's argument is (commands.c).
_VALUE, _LOCAL, _MEMORY, _SAMPLER, _NO_MEMORY, _SVM = range(6)
_KERNEL_ARGUMENT: Final = 256
_BARRIERS: Final = ("clEnqueueBarrier", "clEnqueueBarrierWithWaitList", "clEnqueueWaitForEvents")
_OUT_OF_ORDER: Final = 1
_MAP_READ: Final = OPENCL["CL_MAP_READ"]
_BY_ROUTINE: Final = {
    one.functions["cl"].name: name for name, one in OPERATIONS.items() if one.target
}
_MAPS: Final = ("clEnqueueMapBuffer", "clEnqueueMapImage")
#: Commands of the queue that became places, but are not markers of OpenCL.
_WITHOUT_PLACE: Final = (
    *_MAPS,
    "clEnqueueUnmapMemObject",
    "clEnqueueMigrateMemObjects",
    "clEnqueueSVMMap",
    "clEnqueueSVMUnmap",
    "clEnqueueSVMFree",
    "clEnqueueSVMMigrateMem",
)
_BLOCKING: Final = ("blocking_read", "blocking_write", "blocking_map", "blocking_copy")
_LISTS: Final = ("event_wait_list", "event_list")
#: Why a recording ends (enum fl_record_end).
_EXTENSION: Final = 8
_ENDINGS: Final = {
    1: "{routine} has no place in a graph file",
    2: "argument {detail} of the kernel {name} was never set",
    3: "{routine} uses SVM with atomics, or memory of the system: the program may change it unseen",
    4: "{routine} waits for a user event that the program has not set yet",
    5: "the contents of memory that {routine} uses cannot be read: {code}",
    6: "{routine} uses memory of a kind that graph files do not have",
    7: "{routine} ends a mapping that was not seen",
    9: "{routine} uses a queue that a function of an extension has made",
}


@dataclass
class RecordedProcess:
    """The commands of one process, as a graph file has them.

    Attributes:
        ending: why the recording ended before the program did, "" if it did not.
        warnings: sentences about what it may lack.
    """

    pid: int
    document: Document
    members: dict[str, Any]
    ending: str = ""
    warnings: list[str] = field(default_factory=list)


def make_recorded_process(recording: ProcessRecording, contents: str) -> RecordedProcess:
    """Return a process's commands in the form of a graph file.

    Args:
        contents: one of CONTENTS. The layer has recorded contents unless it is "none".

    Raises:
        GraphFileError: what was recorded breaks a rule of the format.
    """
    writer = _Writer(recording)
    records = recording.records
    for record in follow(records, "record", "records", len(records)):
        writer.add(record)
    return writer.finish(contents)


class _Writer:
    """Collects the rows of a document."""

    def __init__(self, recording: ProcessRecording) -> None:
        self._made = RecordedProcess(recording.pid, Document(), {})
        self._document, self._members = self._made.document, self._made.members
        self._data = recording.data
        self._rows = RecordedRows(
            self._made.document, self._made.members, recording.data, self._made.warnings
        )
        self._order = RecordedOrder(self._document.commands)
        #: The memory of the host's that each read writes, by the number of the command.
        self._read_to: dict[int, int] = {}
        self._add = {
            record_layer.COMMAND: self._add_command,
            record_layer.CONTENTS: self._add_contents,
            record_layer.SYNC: self._add_sync,
            record_layer.GAP: lambda record: self._order.add_gap(),
            record_layer.END: self._add_end,
            record_layer.RESULT: self._add_result,
        }

    def add(self, record: Record) -> None:
        """Add what a record says."""
        adding = self._add.get(record.kind)
        if adding is not None:
            adding(record)
            return
        self._rows.facts[record.words[0]] = record
        if record.kind == record_layer.QUEUE and not self._document.device:
            *texts, bits = (data for _, data in record.pieces)
            names = "device", "driver", "opencl", "platform"
            self._document.device |= dict(zip(names, map(read_text, texts), strict=True))
            self._document.device["type"] = name_device_type(read_word(bits))

    # the order

    def _is_in_order(self, queue: int) -> bool:
        return not self._rows.facts[queue].words[1] & _OUT_OF_ORDER

    def _add_sync(self, record: Record) -> None:
        (queue,) = record.words
        if queue:
            if queue in self._rows.facts:
                self._order.finish(queue, self._is_in_order(queue))
            return
        for event in read_words(record.pieces[0][1]):
            self._order.wait(event)

    def _add_end(self, record: Record) -> None:
        reason, number, slot, detail = record.words
        name, routine = read_text(record.pieces[0][1]), OPENCL.slots[slot].name
        if reason == _EXTENSION:
            self._made.warnings.append(
                f"the program asked for {name}: what it enqueues with that is not recorded"
            )
            return
        code = OPENCL.errors.get(detail, (str(detail),))[0]
        why = _ENDINGS[reason].format(routine=routine, name=name, detail=detail, code=code)
        self._made.ending = f"the recording ends before command {number}: {why}"

    # commands

    def _add_command(self, record: Record) -> None:
        words = record.words
        if words[_STATE] & 0xFFFFFFFF == _FAILED:
            return
        routine, arguments = OPENCL.slots[words[_SLOT]].name, words[_ARGUMENTS:]
        row = self._make_row(routine, arguments, record)
        if self._is_read(row):
            self._read_to[words[_NUMBER]] = row["target"]
        listed, blocking = _find_places(routine)
        waits = read_words(dict(record.pieces).get(listed, b""))
        queue = words[_QUEUE]
        place = self._order.place(
            queue,
            self._is_in_order(queue),
            waits,
            is_place=row["op"] == MARKER and routine not in _WITHOUT_PLACE,
            is_barrier=routine in _BARRIERS,
        )
        self._document.commands.append({**row, "after": place})
        self._order.note_command(queue, words[_EVENT])
        if blocking >= 0 and arguments[blocking]:
            self._order.wait_for_last(queue, self._is_in_order(queue))

    def _is_read(self, row: dict[str, Any]) -> bool:
        """Whether the program gets what a transfer reads, without gaps."""
        if row["op"] == "svm_copy":
            return self._document.memory[row["target"]]["kind"] == HOST
        return row["op"] in ("read", "read_image")

    def _make_row(self, routine: str, arguments: Sequence[int], record: Record) -> dict[str, Any]:
        pieces = dict(record.pieces)
        if routine in ("clEnqueueNDRangeKernel", "clEnqueueTask"):
            return self._make_launch(routine, pieces)
        if routine in ("clEnqueueSVMMemcpy", "clEnqueueSVMMemFill"):
            return self._make_svm_transfer(_BY_ROUTINE[routine], arguments, pieces)
        if routine == "clEnqueueSVMMap":
            return self._make_svm_mapping(arguments, pieces)
        if routine == "clEnqueueSVMUnmap":
            return self._make_svm_unmapping(pieces)
        if routine in _BY_ROUTINE:
            return self._make_transfer(_BY_ROUTINE[routine], arguments, pieces)
        if routine in _MAPS:
            return self._make_mapping(arguments, pieces)
        if routine == "clEnqueueUnmapMemObject":
            return self._make_unmapping(pieces)
        return {"op": MARKER}

    def _make_launch(self, routine: str, pieces: dict[int, bytes]) -> dict[str, Any]:
        kernel = self._rows.number_kernel(read_word(pieces[1]))
        row: dict[str, Any] = {"op": KERNEL, "kernel": kernel}
        if routine == "clEnqueueTask":
            row |= {"global": [1], "local": [1]}
        else:
            row["global"] = read_words(pieces[4])
            row |= {
                name: read_words(pieces[i])
                for i, name in ((5, "local"), (3, "offset"))
                if i in pieces
            }
        found = sorted(
            (tag & 0xFFFF, tag >> 16, data)
            for tag, data in pieces.items()
            if tag & 0xFFFF >= _KERNEL_ARGUMENT
        )
        row["args"] = [self._make_argument(kind, data) for _, kind, data in found]
        declared = self._document.kernels[kernel].get("arguments", ())
        for argument, known in zip(row["args"], declared, strict=False):
            if "memory" in argument:
                describe_by_argument(self._document.memory[argument["memory"]], known)
        return row

    def _make_argument(self, kind: int, data: bytes) -> dict[str, Any]:
        if kind == _MEMORY:
            return {"memory": self._rows.number_memory(read_word(data))}
        if kind == _SVM:
            serial, start, _ = read_words(data)
            return {
                "memory": self._rows.number_memory(serial),
                **({"start": start} if start else {}),
            }
        if kind == _SAMPLER:
            return {"sampler": self._rows.number_sampler(read_word(data))}
        if kind == _LOCAL:
            return {"local": read_word(data)}
        return {"value": bytes(8).hex() if kind == _NO_MEMORY else data.hex()}

    def _make_transfer(
        self, name: str, arguments: Sequence[int], pieces: dict[int, bytes]
    ) -> dict[str, Any]:
        operation = OPERATIONS[name]
        row: dict[str, Any] = {"op": name}
        host, at = (0, ""), 1
        for word in operation.functions["cl"].operands:
            if word in ("source", "target"):
                if getattr(operation, word) == HOST:
                    host = at, word
                else:
                    row[word] = self._rows.number_memory(read_word(pieces[at]))
            elif word in ("pattern", "colour"):
                row["pattern"] = pieces[at].hex()
            elif word in operation.numbers:
                row[word] = read_words(pieces[at]) if at in pieces else arguments[at]
            at += 1
        at, side = host
        if side:
            data = read_word(pieces[at]) if at in pieces else 0
            row[side] = self._rows.number_host(row, side, arguments[at], data)
        return row

    def _make_mapping(self, arguments: Sequence[int], pieces: dict[int, bytes]) -> dict[str, Any]:
        """Return a read of what is mapped to be read, into memory of the replay."""
        if not arguments[3] & _MAP_READ:
            return {"op": MARKER}
        memory = self._rows.number_memory(read_word(pieces[1]))
        row: dict[str, Any] = {"op": "read", "source": memory}
        if self._document.memory[memory]["kind"] == "image":
            row |= {
                "op": "read_image",
                "origin": read_words(pieces[4]),
                "region": read_words(pieces[5]),
            }
            row |= {"row_pitch": 0, "slice_pitch": 0}
        else:
            row |= {"offset": arguments[4], "size": arguments[5]}
        row["target"] = self._rows.number_host(row, "target", ("mapped", memory, *arguments[4:6]))
        return row

    def _make_unmapping(self, pieces: dict[int, bytes]) -> dict[str, Any]:
        """Return a write of what the program has written while it was mapped."""
        flags, data, *numbers = read_words(pieces[2])
        if not flags & ~_MAP_READ:
            return {"op": MARKER}
        memory = self._rows.number_memory(read_word(pieces[1]))
        row: dict[str, Any] = {"op": "write", "target": memory}
        if self._document.memory[memory]["kind"] == "image":
            row |= {"op": "write_image", "origin": numbers[:3], "region": numbers[3:6]}
            row |= {"row_pitch": numbers[6], "slice_pitch": numbers[7]}
        else:
            row |= {"offset": numbers[0], "size": numbers[1]}
        row["source"] = self._rows.number_host(row, "source", ("mapped", memory, *numbers), data)
        return row

    # SVM

    def _make_svm_transfer(
        self, name: str, arguments: Sequence[int], pieces: dict[int, bytes]
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"op": name, "size": arguments[4]}
        if name == "svm_fill":
            return {
                **row,
                "pattern": pieces[2].hex(),
                **self._describe_svm_place("target", pieces[1]),
            }
        data = read_words(pieces[3])[2]
        for side, at, number in (("source", 3, data), ("target", 2, 0)):
            row |= self._describe_svm_place(side, pieces[at]) or {
                side: self._rows.number_host_bytes(arguments[at], arguments[4], number)
            }
        return row

    def _describe_svm_place(self, side: str, piece: bytes) -> dict[str, int]:
        """Return what a transfer says of a side that is SVM, nothing if it is the host's memory."""
        serial, start, _ = read_words(piece)
        return {side: self._rows.number_memory(serial), f"{side}_start": start} if serial else {}

    def _make_svm_mapping(
        self, arguments: Sequence[int], pieces: dict[int, bytes]
    ) -> dict[str, Any]:
        if not arguments[2] & _MAP_READ:
            return {"op": MARKER}
        row = {
            "op": "svm_copy",
            "size": arguments[4],
            **self._describe_svm_place("source", pieces[3]),
        }
        place = "mapped", row["source"], row["source_start"], arguments[4]
        return {**row, "target": self._rows.number_host_bytes(place, arguments[4])}

    def _make_svm_unmapping(self, pieces: dict[int, bytes]) -> dict[str, Any]:
        """Return a write of what the program has written while it was mapped."""
        flags, data, start, size, *_ = read_words(pieces[2])
        if not flags & ~_MAP_READ:
            return {"op": MARKER}
        row = {"op": "svm_copy", "size": size, **self._describe_svm_place("target", pieces[1])}
        place = "mapped", row["target"], start, size
        return {**row, "source": self._rows.number_host_bytes(place, size, data)}

    def _add_contents(self, record: Record) -> None:
        serial, number = record.words
        data, is_new = self._data.get(number), not self._rows.has(serial)
        memory = self._rows.number_memory(serial)
        if data is None:
            return
        if is_new:
            self._rows.give(memory, data)
            return
        known = self._document.memory[memory]
        row: dict[str, Any] = {"op": "write", "target": memory}
        if known["kind"] == SVM:
            row |= {"op": "svm_copy", "size": known["size"]}
        elif known["kind"] == "image":
            row |= {"op": "write_image", "origin": [0, 0, 0], "region": known["extent"]}
            row |= {"row_pitch": 0, "slice_pitch": 0}
        else:
            row |= {"offset": 0, "size": known["size"]}
        row["source"] = self._rows.number_host(row, "source", 0, number)
        self._document.commands.append({**row, "after": self._order.find_predecessors_of_write()})
        self._order.note_write()

    def _add_result(self, record: Record) -> None:
        number, data = record.words
        if number in self._read_to and data in self._data:
            self._rows.give(self._read_to[number], self._data[data], "result")

    # the end

    def finish(self, contents: str) -> RecordedProcess:
        """Name the inputs and outputs, and leave out contents that are not wanted."""
        document = self._document
        document.contents = contents
        make_unique(document)
        inputs, outputs = find_inputs_and_outputs(document)
        document.inputs = dict(name_memory(document, inputs))
        document.outputs = dict(name_memory(document, outputs))
        for number, row in enumerate(document.memory):
            if "result" in row:
                self._members[row["result"]] = view_as_array(row, self._members[row["result"]])
            if "contents" not in row:
                continue
            if contents == "none" or (contents == "inputs" and number not in inputs):
                del self._members[row.pop("contents")]
            else:
                self._members[row["contents"]] = view_as_array(row, self._members[row["contents"]])
        check_document(document.to_json())
        return self._made


@cache
def _find_places(routine: str) -> tuple[int, int]:
    """Which parameter is the wait list, and which says whether it blocks; -1: none."""
    names = [one.name for one in OPENCL.functions[routine].parameters]
    listed, blocking = (
        next((at for at, name in enumerate(names) if name in known), -1)
        for known in (_LISTS, _BLOCKING)
    )
    return listed, blocking
