"""Converts between PI and Unified Runtime as `pi_from_ur.map` says.

The types of a PI parameter (constant, field) and of its UR counterpart determine the conversion:
constants by `ENUMS`, structs by `STRUCTS`. Structs that UR takes by value are read from PI's
pointer. `make_argument_conversion` converts a parameter from PI to UR. `answer` converts the answer
of an info query from UR to PI. `convert_result` converts result codes.

Nothing here calls an adapter. A value without a counterpart raises a PIError, whose `value` is
returned to the caller.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..base.abi import Constant, Parameter
from ..ur.abi import UR
from .abi import PI, PIError

_Lines: TypeAlias = "list[str]"


def refuse(name: str, detail: str) -> PIError:
    """Return the exception that makes a call return the PI code called `name`."""
    return PIError.from_code(PI.codes[name], "", detail)


@dataclass
class Enum:
    """The constants of a PI type and their counterparts in a UR type.

    If values of the UR type are combined bits, each bit is converted separately.

    Attributes:
        pi: the PI type.
        ur: the UR type.
        constants: PI name to UR constant.
        answers: UR value to PI value.
        fixed: queries that always have the same number as answer.
        missing: PI name to the reason why it has no counterpart.
    """

    pi: str
    ur: str
    constants: dict[str, Constant] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values: dict[int, int] = {}
        self.bits = UR.is_bitfield(self.ur)

    def add_pair(self, pi: str, ur: str, both_ways: bool = True) -> None:
        """Make two constants counterparts. Earlier pairs have precedence."""
        value = int(pi) if pi.lstrip("-").isdecimal() else PI[pi]
        if both_ways:
            self.constants.setdefault(pi, UR.constants[ur])
            self.values.setdefault(value, UR[ur])
        self.answers.setdefault(UR[ur], value)

    def convert_to_ur(self, value: int) -> int:
        """Return the UR value for a PI value.

        Raises:
            PIError: the value or one of its bits has no counterpart.
        """
        if value in self.values:
            return self.values[value]
        found = 0
        for bit in _split_bits(value) if self.bits else [value]:
            if bit not in self.values:
                raise refuse(
                    "PI_ERROR_INVALID_VALUE",
                    f"{value:#x} of {self.pi} has no counterpart in {self.ur}.",
                )
            found |= self.values[bit]
        return found

    def convert_to_pi(self, value: int) -> int:
        """Return the PI value for a UR value. Bits without a counterpart are dropped.

        Raises:
            PIError: the value has no counterpart.
        """
        if value in self.answers:
            return self.answers[value]
        if not self.bits:
            raise refuse(
                "PI_ERROR_UNSUPPORTED_FEATURE",
                f"{value:#x} of {self.ur} has no counterpart in {self.pi}.",
            )
        found = 0
        for bit in _split_bits(value):
            found |= self.answers.get(bit, 0)
        return found


def _split_bits(value: int) -> Iterator[int]:
    return (1 << n for n in range(value.bit_length()) if value >> n & 1)


# Reading the map


def _read_sections() -> dict[str, _Lines]:
    sections: dict[str, _Lines] = {}
    lines: _Lines = []
    for line in Path(__file__).with_name("pi_from_ur.map").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _parse_enums(lines: _Lines) -> Iterator[Enum]:
    """Yield the enums of the map. Explicit pairs have precedence over patterns."""
    blocks: list[tuple[Enum, list[str]]] = []
    for line in lines:
        if line.startswith(" "):
            blocks[-1][1].append(line.strip())
        else:
            pi, ur = line.split()
            blocks.append((Enum(pi, ur), []))
    for enum, rows in blocks:
        for row in sorted(rows, key=lambda row: "*" in row):
            _read_row(enum, row)
        yield enum


def _read_row(enum: Enum, row: str) -> None:
    left, right, *rest = row.split(" ", 2)
    if "*" in left:
        for name in PI.constants.values():
            match = (
                re.fullmatch(left.replace("*", r"(\w+)"), name.name)
                if name.group == enum.pi
                else None
            )
            other = UR.constants.get(right.replace("*", match[1])) if match else None
            if other and other.group == enum.ur and name.name not in enum.missing:
                enum.add_pair(name.name, other.name)
    elif right == "-":
        enum.missing[left] = rest[0]
    elif right == ":=":
        enum.fixed[left] = int(rest[0])
    else:
        enum.add_pair(left, rest[0], both_ways=right == "=")


def _parse_results(lines: _Lines) -> dict[int, int]:
    named = dict(line.split(" ") for line in lines)
    return {
        code: PI.codes[named.get(name, name.replace("UR_RESULT_", "PI_"))]
        for code, (name, _) in UR.errors.items()
    }


def _parse_structs(lines: _Lines) -> Iterator[tuple[str, tuple[str, dict[str, str]]]]:
    for line in lines:
        names, fields = line.split(": ")
        pi, ur = names.split(" ")
        yield ur, (pi, dict(pair.split("=") for pair in fields.split(", ")))


_SECTIONS: Final = _read_sections()

#: PI function to the UR function and its arguments, as written in the map.
FUNCTIONS: Final[Mapping[str, str]] = dict(line.split(" = ", 1) for line in _SECTIONS["functions"])
#: PI function to the reason why UR cannot serve it. It returns PI_ERROR_UNSUPPORTED_FEATURE.
UNSUPPORTED: Final[Mapping[str, str]] = dict(
    line.split(": ", 1) for line in _SECTIONS["unsupported"]
)
#: All pairs of types with constants.
ALL_ENUMS: Final = tuple(_parse_enums(_SECTIONS["enums"]))
#: PI type to its Enum.
ENUMS: Final[Mapping[str, Enum]] = {enum.pi: enum for enum in ALL_ENUMS}
#: UR struct to the PI struct that fills it, and UR field to PI field.
STRUCTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = dict(
    _parse_structs(_SECTIONS["structs"])
)
#: UR result code to PI result code.
RESULTS: Final[Mapping[int, int]] = _parse_results(_SECTIONS["results"])


def convert_result(code: int) -> int:
    """Return the PI code for a UR code, PI_ERROR_UNKNOWN if UR does not define it."""
    return RESULTS.get(code, PI.codes["PI_ERROR_UNKNOWN"])


# Structs


def make_struct(name: str, **fields: Any) -> Any:
    """Return a UR struct.

    Args:
        name: the struct. Its `stype` is set.
        **fields: the values of its fields, all others are 0. A pointer may be given as the struct
            or array that it points to.
    """
    kind = UR.get_struct(name)
    struct = kind()
    if kind._fields_[0][0] == "stype":
        struct.stype = UR[
            f"UR_STRUCTURE_TYPE_{name.removeprefix('ur_').removesuffix('_t').upper()}"
        ]
    kept = []
    for key, value in fields.items():
        if isinstance(value, (ctypes.Structure, ctypes.Array)):
            kept.append(value)
            value = ctypes.addressof(value)
        setattr(struct, key, value)
    struct.kept = kept
    return struct


def read_struct(address: int, name: str) -> Any:
    """Return the PI struct `name` at an address.

    Raises:
        PIError: the address is NULL.
    """
    if not address:
        raise refuse("PI_ERROR_INVALID_VALUE", f"A {name} is NULL.")
    return PI.get_struct(name).from_address(address)


def convert_struct(address: int, name: str) -> Any:
    """Return the UR struct `name`, filled from the PI struct at `address`.

    Raises:
        PIError: the address is NULL.
    """
    pi, fields = STRUCTS[name]
    source = read_struct(address, pi)
    types = {f.name: f.type for f in PI.structs[pi].fields}
    values = {ur: getattr(source, of) for ur, of in fields.items()}
    return make_struct(
        name,
        **{
            ur: ENUMS[types[of]].convert_to_ur(values[ur]) if types[of] in ENUMS else values[ur]
            for ur, of in fields.items()
        },
    )


# Parameters


def make_argument_conversion(source: Parameter, target: Parameter) -> Callable[[int], Any] | None:
    """Return how to convert the word of a PI parameter to the UR argument, None if unchanged."""
    if target.stars == 1 and target.type in STRUCTS and source.stars:
        return lambda address: (
            ctypes.byref(convert_struct(address, target.type)) if address else None
        )
    if not target.stars and UR.resolve(target.type) == "struct":
        return lambda address: _read_struct(address, target.type, source.name)
    if UR.make_ctype(target.type, target.stars, target.const) is ctypes.c_char_p:
        return lambda address: ctypes.c_char_p(address or None)
    if not source.stars and source.type in ENUMS:
        return ENUMS[source.type].convert_to_ur
    return None


def _read_struct(address: int, name: str, parameter: str) -> Any:
    if not address:
        raise refuse("PI_ERROR_INVALID_VALUE", f"{parameter} is NULL.")
    return UR.get_struct(name).from_address(address)


# Answers of queries


def answer(pi: Constant, ur: Constant) -> Callable[[bytes], bytes] | None:
    """Return how to convert the answer of a UR query to PI's, None if unchanged."""
    special = {
        "ur_image_format_t": _convert_image_format,
        "ur_device_partition_property_t[]": _convert_partition,
    }.get(ur.answer)
    pi_type, ur_type = pi.answer.removesuffix("[]"), ur.answer.removesuffix("[]")
    if special or not pi_type or not ur_type or "*" in pi_type:
        return special
    enum = ENUMS.get(pi_type)
    pi_size, ur_size = ctypes.sizeof(PI.make_ctype(pi_type)), ctypes.sizeof(UR.make_ctype(ur_type))
    if enum is None and pi_size == ur_size:
        return None
    is_list = ur.answer.endswith("[]")

    def convert(data: bytes) -> bytes:
        step = ur_size if is_list else max(len(data), 1)
        parts = (data[at : at + step] for at in range(0, len(data), step))
        words = (int.from_bytes(part, "little") for part in parts)
        if enum:
            words = map(enum.convert_to_pi, words)
        # PI's list of partition types ends with a 0.
        end = b"\0" * pi_size if ur_type == "ur_device_partition_t" else b""
        return b"".join(_convert_word(word, pi_size) for word in words) + end

    return convert


def _convert_word(value: int, size: int) -> bytes:
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _convert_image_format(data: bytes) -> bytes:
    order, kind = data[:4], data[4:8]
    return b"".join(
        _convert_word(ENUMS[name].convert_to_pi(int.from_bytes(part, "little")), 4)
        for name, part in (("pi_image_channel_order", order), ("pi_image_channel_type", kind))
    )


def _convert_partition(data: bytes) -> bytes:
    """Convert UR's pairs of type and value to PI's list: the type, its values, 0.

    The list of a partition by counts has a 0 of its own at the end.
    """
    pairs = [
        (
            int.from_bytes(data[at : at + 4], "little"),
            int.from_bytes(data[at + 4 : at + 8], "little"),
        )
        for at in range(0, len(data), 8)
    ]
    if not pairs:
        return b""
    kind = ENUMS["pi_device_partition_property"].convert_to_pi(pairs[0][0])
    counts = [0] if kind == PI["PI_DEVICE_PARTITION_BY_COUNTS"] else []
    return b"".join(
        _convert_word(value, 8) for value in [kind, *(value for _, value in pairs), *counts, 0]
    )
