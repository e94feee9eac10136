"""The rules of graph files. A file is written by others, so nothing of it is used before it was
checked: types, numbers, references, sizes, and the order.

members.py says what each record consists of. Here is what the records have to be to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..loader.base.operations import BUFFER, HOST, IMAGE, OPERATIONS, SVM
from . import members
from .document import CONTENTS, FORMAT, KERNEL, MARKER, VERSION, Document
from .errors import NEWER, GraphFileError, make_invalid_error
from .extents import find_extent


def check_document(value: Any) -> Document:
    """Check a value of graph.json.

    Raises:
        GraphFileError: it is not a graph, of a later version, or breaks a rule.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise make_invalid_error("the file is a zip archive, and not a graph of fairlead")
    version = value.get("version")
    if type(version) is int and version > VERSION:
        raise GraphFileError(
            f"the file has version {version} of the format, and this fairlead reads version "
            f"{VERSION}",
            routine="load",
            code=NEWER,
            remedy="install a newer fairlead, or have the file saved by this one",
        )
    if version != VERSION:
        raise make_invalid_error(
            f"the file's version is {members.shorten(version)}, and the first one is 1"
        )
    names = {one.name for one in fields(Document)}
    missing = sorted(names - value.keys())
    if missing:
        raise make_invalid_error(f"graph.json has no {missing[0]}")
    made = Document(**{name: value[name] for name in names})
    _Check(made).check_all()
    return made


def _check_reference(path: str, value: Any, among: list[Any]) -> None:
    if not members.is_number(value) or value >= len(among):
        raise make_invalid_error(
            f"{path} is {members.shorten(value)}, and there are {len(among)} of these"
        )


class _Check:
    """Checks all of a document. Each method raises GraphFileError."""

    def __init__(self, document: Document) -> None:
        self.document = document
        #: What arguments refer to.
        self._among = {
            "memory": document.memory,
            "sampler": document.samplers,
            "parameter": document.parameters,
        }
        self._seen: set[tuple[str, int | str]] = set()
        self._swapped: set[int] = set()

    def check_all(self) -> None:
        """Check every record."""
        one = self.document
        members.make_choice_rule(*CONTENTS).check("contents", one.contents)
        for name in ("device", "inputs", "outputs"):
            if not isinstance(getattr(one, name), dict):
                raise make_invalid_error(f"{name} is not an object")
        for name, text in one.device.items():
            members.TEXT.check(f"device.{name}", text)
        for name, check in (
            ("programs", self._check_program),
            ("kernels", self._check_kernel),
            ("memory", self._check_memory_row),
            (
                "samplers",
                lambda path, value, number: members.check_record(path, value, members.SAMPLER),
            ),
            ("parameters", self._check_parameter),
            ("swaps", self._check_swap),
            ("commands", self._check_command),
        ):
            rows = getattr(one, name)
            members.LIST.check(name, rows)
            for number, row in enumerate(rows):
                check(f"{name}[{number}]", row, number)
        self._check_names()

    def _check_names(self) -> None:
        one = self.document
        for title, names in (("inputs", one.inputs), ("outputs", one.outputs)):
            for name, number in names.items():
                members.NAME.check(f"a name of {title}", name)
                _check_reference(f"{title}.{name}", number, one.memory)
        given = [row["name"] for row in one.parameters if "name" in row]
        if len(given) > len(set(given)):
            raise make_invalid_error("two Parameters have the same name")

    def _check_program(self, path: str, value: Any, number: int) -> None:
        members.check_record(path, value, members.PROGRAM)
        for index, binary in enumerate(value.get("binaries", ())):
            members.check_record(f"{path}.binaries[{index}]", binary, members.BINARY)
        if not value.keys() & {"source", "il", "binaries"}:
            raise make_invalid_error(f"{path} has neither source nor IL nor binaries")

    def _check_kernel(self, path: str, value: Any, number: int) -> None:
        members.check_record(path, value, members.KERNEL)
        _check_reference(f"{path}.program", value["program"], self.document.programs)
        for index, argument in enumerate(value.get("arguments", ())):
            members.check_record(f"{path}.arguments[{index}]", argument, members.ARGUMENT_INFO)

    def _check_memory_row(self, path: str, value: Any, number: int) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        members.ANY_MEMORY.rules["kind"].check(f"{path}.kind", kind)
        assert isinstance(kind, str)
        members.check_record(path, value, members.MEMORY[kind])
        if "of" in value:  # only of an earlier one: so none is a part of itself
            _check_reference(f"{path}.of", value["of"], self.document.memory[:number])
            whole = self.document.memory[value["of"]]
            if whole["kind"] not in ("buffer", "sub_buffer"):
                raise make_invalid_error(
                    f"{path} is a part of memory[{value['of']}], which is not a buffer"
                )
            if value.get("offset", 0) + value["size"] > whole["size"] and kind == "sub_buffer":
                raise make_invalid_error(
                    f"{path} does not lie within the buffer that it is a part of"
                )
        if kind == IMAGE:
            x, y, z = value["extent"]
            if x * y * z * value["element_size"] != value["size"]:
                raise make_invalid_error(f"{path}.size is not that of its extent")
        if "dtype" in value and "shape" in value:
            length = int(value["dtype"][2:])
            for one in value["shape"]:
                length = min(length * one, members.MOST)
            if length > value["size"]:
                raise make_invalid_error(f"{path}.shape is larger than its size")

    def _check_parameter(self, path: str, value: Any, number: int) -> None:
        if isinstance(value, dict) and "from" in value:
            members.check_record(path, value, members.DERIVED_PARAMETER)
            _check_reference(f"{path}.from", value["from"], self.document.parameters[:number])
            if "memory" in self.document.parameters[value["from"]]:
                raise make_invalid_error(f"{path} is computed from a Parameter that is memory")
            return
        if isinstance(value, dict) and "memory" in value:
            members.check_record(path, value, members.MEMORY_PARAMETER)
            _check_reference(f"{path}.memory", value["memory"], self.document.memory)
            if self.document.find_memory(value["memory"])["kind"] not in ("buffer", "sub_buffer"):
                raise make_invalid_error(f"{path}.memory is not a buffer")
            return
        members.check_record(path, value, members.NUMBER_PARAMETER)
        if len(value["value"]) != 2 * int(value["dtype"][2:]) or not value["value"]:
            raise make_invalid_error(f"{path}.value has not the size of its type")

    def _check_swap(self, path: str, value: Any, number: int) -> None:
        if not isinstance(value, list) or len(value) != 2 or value[0] == value[1]:
            raise make_invalid_error(f"{path} is not a pair")
        memory = self.document.memory
        for one in value:
            _check_reference(path, one, memory)
            if memory[one]["kind"] not in ("buffer", "sub_buffer"):
                raise make_invalid_error(f"{path} is not a pair of buffers")
            if one in self._swapped:
                raise make_invalid_error(f"{path} has a buffer of another pair")
        if memory[value[0]]["size"] != memory[value[1]]["size"]:
            raise make_invalid_error(f"{path} is not a pair of buffers of the same size")
        self._swapped.update(value)

    def _check_command(self, path: str, value: Any, number: int) -> None:
        name = value.get("op") if isinstance(value, dict) else None
        if name == KERNEL:
            self._check_launch(path, value)
        elif name == MARKER:
            members.check_record(path, value, members.AFTER)
        elif isinstance(name, str) and name in OPERATIONS and OPERATIONS[name].target:
            self._check_transfer(path, value, name)
        else:
            raise make_invalid_error(
                f"{path} is not a command that this version knows: {members.shorten(name)}"
            )
        for before in value["after"]:
            if not members.is_number(before) or before >= number:
                raise make_invalid_error(
                    f"{path} comes after command {members.shorten(before)}, which is not before "
                    "it: the order would be a cycle"
                )

    def _check_launch(self, path: str, value: Any) -> None:
        members.check_record(path, value, members.LAUNCH)
        _check_reference(f"{path}.kernel", value["kernel"], self.document.kernels)
        for name in ("local", "offset"):
            if name in value and len(value[name]) != len(value["global"]):
                raise make_invalid_error(f"{path}.{name} has not as many dimensions as the range")
        if len(value["args"]) > 4096:
            raise make_invalid_error(
                f"{path} has {len(value['args'])} arguments, and 4096 are the most"
            )
        for index, argument in enumerate(value["args"]):
            if self._is_new(argument):
                self._check_argument(f"{path}.args[{index}]", argument)

    def _is_new(self, argument: Any) -> bool:
        """Whether no equal argument has been checked. One with several members is always new."""
        if type(argument) is not dict or len(argument) != 1:
            return True
        ((kind, value),) = argument.items()
        if type(value) is not int and type(value) is not str:  # True is equal to 1
            return True
        before = len(self._seen)
        self._seen.add((kind, value))
        return len(self._seen) > before

    def _check_argument(self, path: str, value: Any) -> None:
        for kind in value if isinstance(value, dict) else ():
            if kind in members.ARGUMENT:
                break
        else:
            raise make_invalid_error(f"{path} is {members.shorten(value)}, and not an argument")
        members.check_record(path, value, members.ARGUMENT[kind])
        one = self.document
        if kind in self._among:
            _check_reference(path, value[kind], self._among[kind])
        if kind == "memory":
            memory = one.memory[value["memory"]]
            if memory["kind"] == HOST or value.get("start", 0) >= memory["size"]:
                raise make_invalid_error(f"{path} is not memory that a kernel can use")
            if value.get("start", 0) and memory["kind"] != SVM:
                raise make_invalid_error(f"{path} begins within memory that has no address")

    def _check_transfer(self, path: str, value: Any, name: str) -> None:
        operation = OPERATIONS[name]
        rules: dict[str, members.ValueRule] = {}
        for one in operation.numbers:
            is_region, is_origin = one == "region", one.endswith("origin")
            rules[one] = (
                members.ValueRule("three numbers", members.make_triple_rule(int(is_region)))
                if is_region or is_origin
                else members.NUMBER
            )
        if operation.pattern:
            rules["pattern"] = members.HEX
        sides = [side for side in ("source", "target") if getattr(operation, side)]
        for side in sides:
            rules[side], rules[f"{side}_start?"] = members.ANYTHING, members.NUMBER
        members.check_record(path, value, members.AFTER | members.Members(rules))
        for side in sides:
            self._check_memory(f"{path}.{side}", value[side], getattr(operation, side))
        if operation.pattern and not 1 <= len(value["pattern"]) // 2 <= 128:
            raise make_invalid_error(f"{path}.pattern has {len(value['pattern']) // 2} bytes")
        found = {side: self.document.find_memory(value[side]) for side in sides}
        for side in sides:
            other = found.get("target" if side == "source" else "source")
            first, end = find_extent(value, side, found[side], other)
            if end > found[side]["size"] or end <= first:
                raise make_invalid_error(f"{path} leads out of its {side}: bytes {first} to {end}")
            if found[side]["kind"] not in (HOST, SVM) and value.get(f"{side}_start"):
                raise make_invalid_error(f"{path}.{side}_start is for memory that has an address")
            if found[side]["kind"] == IMAGE:
                self._check_region(path, value, side, found[side])

    def _check_region(self, path: str, value: Any, side: str, image: Mapping[str, Any]) -> None:
        origin = value.get(f"{side}_origin", value.get("origin"))
        for at, size, there in zip(origin, value["region"], image["extent"], strict=True):
            if at + size > there:
                raise make_invalid_error(f"{path} leads out of its image")

    def _check_memory(self, path: str, value: Any, kind: str) -> None:
        """Check that a value refers to memory of a kind, perhaps through a Parameter."""
        one, reference = self.document, value
        if isinstance(value, dict):
            members.check_record(path, value, members.REFERENCE)
            _check_reference(path, value["parameter"], one.parameters)
            reference = one.parameters[value["parameter"]].get("memory")
        _check_reference(path, reference, one.memory)
        kinds = {BUFFER: ("buffer", "sub_buffer"), SVM: ("svm", "host")}.get(kind, (kind,))
        if one.memory[reference]["kind"] not in kinds:
            raise make_invalid_error(
                f"{path} is {one.memory[reference]['kind']} memory, and not {kind} memory"
            )
