"""The grammars of ONEAPI_DEVICE_SELECTOR and SYCL_DEVICE_FILTER, and their parsers.

`GRAMMAR` and `FILTER_GRAMMAR` are the grammars as error messages print them. `parse_terms` and
`parse_filter_terms` return `Term`s of `DevicePattern`s; selector.py applies them to devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..base.errors import FairleadError
from ..base.frozen_value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

ONEAPI_DEVICE_SELECTOR: Final = "ONEAPI_DEVICE_SELECTOR"


SYCL_DEVICE_FILTER: Final = "SYCL_DEVICE_FILTER"


SYCL_BE: Final = "SYCL_BE"


#: The backends that a selector may name. `selector.parse` accepts others, too.
BACKENDS: Final = ("level_zero", "opencl", "cuda", "hip", "native_cpu", "offload")


#: Backends of the past that SYCL_DEVICE_FILTER may name, too. They select nothing.
FILTER_BACKENDS: Final = ("host", "esimd_emulator")


#: The precedence of the variables, for messages.
PRECEDENCE: Final = (
    f"{ONEAPI_DEVICE_SELECTOR} or {SYCL_DEVICE_FILTER} counts, and both at once is an error; "
    f"{SYCL_BE} counts only if neither is set"
)


#: A type as written to `Selectable.type`. The selector calls an accelerator "fpga", the filter
#: "acc".
DEVICE_TYPES: Final = {"cpu": "cpu", "gpu": "gpu", "fpga": "acc", "acc": "acc"}


_FILTER_TYPES: Final = {"*": "*", "host": "host", **DEVICE_TYPES}


_MOST_DIGITS: Final = 9


_MAX_LEVELS: Final = 3  # a device, its sub-devices, and theirs


_GRAMMAR: Final = """\
selector = term {{ ";" term }}
term     = [ "!" ] backend ":" device {{ "," device }}          "!" discards what the rest names
backend  = {backends}
device   = * | cpu | gpu | fpga | acc                         fpga and acc: accelerators
         | N | N.N | N.* | *.*                                a device's number; its sub-devices
         | N.N.N | N.N.* | N.*.* | *.*.*                      and theirs
Case does not matter; blanks are illegal. N counts the devices of one backend from 0."""


_FILTER_GRAMMAR: Final = """\
filter  = item {{ "," item }}
item    = backend | [ backend ":" ] type | [ backend ":" ] [ type ":" ] N
backend = {backends}
type    = * | cpu | gpu | acc | fpga | host                   host selects nothing
Case does not matter; blanks are illegal. N counts the devices of one backend from 0."""


def _format_grammar(template: str, backends: Iterable[str]) -> str:
    return template.format(backends=" | ".join(["*", *backends]))


GRAMMAR: Final[str] = _format_grammar(_GRAMMAR, BACKENDS)


FILTER_GRAMMAR: Final[str] = _format_grammar(_FILTER_GRAMMAR, (*BACKENDS, *FILTER_BACKENDS))


class SelectorError(FairleadError):
    """A variable that selects devices has an illegal value. `code` is the name of the variable.

    Attributes:
        position: the character of the value that is wrong, counted from 1; 0 for the whole value.
    """

    def __init__(self, message: str, *, position: int = 0, **parts: str) -> None:
        super().__init__(message, **parts)
        self.position = position


class DevicePattern(Value):
    """The devices that one element of a term names.

    Attributes:
        type: the type of the devices, "*" for any.
        path: indices of the device, its sub-device and that one's sub-device, as far as named. "*"
            is any index.
    """

    type: str = "*"
    path: tuple[int | str, ...] = ("*",)

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        if self.type == "*":
            return path
        name = "fpga" if self.type == "acc" else self.type
        # Only SYCL_DEVICE_FILTER can name a type and a number.
        return name if path == "*" else f"{name}:{path}"

    def covers(self, other: DevicePattern) -> bool:
        """Return whether each device that `other` names is named by this pattern, or lies below
        one.
        """
        if self.type not in ("*", other.type) or len(self.path) > len(other.path):
            return False
        return all(
            mine in ("*", theirs) for mine, theirs in zip(self.path, other.path, strict=False)
        )


ALL_DEVICES: Final = DevicePattern()


class Term(Value):
    """Accepts or discards the devices of a backend that match any of the patterns.

    Attributes:
        backend: the backend, "*" for every backend.
    """

    discard: bool
    backend: str
    devices: tuple[DevicePattern, ...]

    def __str__(self) -> str:
        return f"{'!' * self.discard}{self.backend}:{','.join(map(str, self.devices))}"


def parse_terms(text: str, backends: Sequence[str]) -> tuple[Term, ...]:
    """Parse a value of ONEAPI_DEVICE_SELECTOR.

    Args:
        backends: the names that are legal besides "*".

    Raises:
        SelectorError: the value is illegal.
    """
    grammar = _format_grammar(_GRAMMAR, backends)
    value = _Piece(ONEAPI_DEVICE_SELECTOR, text, grammar, 0, text)
    return tuple(_parse_term(piece, backends) for piece in value.split(";"))


def parse_filter_terms(text: str, backends: Sequence[str]) -> tuple[Term, ...]:
    """Parse a value of SYCL_DEVICE_FILTER. Arguments and errors are those of `parse_terms`."""
    grammar = _format_grammar(_FILTER_GRAMMAR, backends)
    value = _Piece(SYCL_DEVICE_FILTER, text, grammar, 0, text)
    return tuple(_parse_filter_item(piece, backends) for piece in value.split(","))


class _Piece(Value):
    """A piece of a variable's value and its position `start` (from 0), which errors report."""

    variable: str
    whole: str
    grammar: str
    start: int
    text: str

    def cut_at(self, start: int, text: str) -> _Piece:
        return self.copy_with(start=self.start + start, text=text)

    def split(self, separator: str) -> Iterator[_Piece]:
        start = 0
        for text in self.text.split(separator):
            yield self.cut_at(start, text)
            start += len(text) + 1

    def make_error(self, problem: str, remedy: str) -> SelectorError:
        grammar = "\n".join(f"    {line}" for line in self.grammar.splitlines())
        where = f"at character {self.start + 1} of {self.whole!r}"
        message = f"{problem}, {where}. The grammar is:\n{grammar}"
        return SelectorError(message, position=self.start + 1, code=self.variable, remedy=remedy)


def _parse_term(piece: _Piece, backends: Sequence[str]) -> Term:
    """Parse `[!]backend:devices`."""
    discard = piece.text.startswith("!")
    rest = piece.cut_at(1, piece.text[1:]) if discard else piece
    backend, *devices = rest.split(":")
    if not rest.text:
        raise rest.make_error(
            "a term is missing", "write one, such as 'opencl:gpu', or remove the extra ';' or '!'"
        )
    if not backend.text:
        raise backend.make_error(
            "the backend is missing before ':'", "name a backend, or write '*' for every one"
        )
    if backend.text.lower() not in ("*", *backends):
        raise backend.make_error(
            f"{backend.text!r} is not a backend", f"name one of: *, {', '.join(backends)}"
        )
    if not devices:
        end = rest.cut_at(len(rest.text), "")
        raise end.make_error(
            f"{rest.text!r} names no devices",
            f"write '{rest.text}:*' for all devices of the backend",
        )
    if len(devices) > 1:
        second = devices[1].cut_at(-1, ":")
        raise second.make_error(
            f"{rest.text!r} has a second ':'", "separate devices by ',' and terms by ';'"
        )
    return Term(
        discard,
        backend.text.lower(),
        tuple(_parse_device(device) for device in devices[0].split(",")),
    )


def _parse_device(piece: _Piece) -> DevicePattern:
    """Parse an element of a term's devices: a type, or indices separated by dots."""
    text = piece.text.lower()
    if text in DEVICE_TYPES:
        return DevicePattern(DEVICE_TYPES[text])
    first, *below = parts = list(piece.split("."))
    if below and first.text.lower() in DEVICE_TYPES:
        remedy = "give the device by its number or as '*'"
        raise first.make_error(f"{piece.text!r} names sub-devices of a type of device", remedy)
    if len(parts) > _MAX_LEVELS:
        raise parts[_MAX_LEVELS].make_error(
            f"{piece.text!r} has more than two levels of sub-devices", "remove the last ones"
        )
    path: list[int | str] = []
    for part in parts:
        if part.text == "*":
            path.append("*")
        elif not _is_number(part.text):
            problem = f"{part.text!r} is not a device" if part.text else "a device is missing"
            raise part.make_error(problem, "write '*', cpu, gpu, fpga or a number")
        elif "*" in path:
            raise part.make_error(f"{piece.text!r} has a number after '*'", "write '*' there too")
        else:
            path.append(int(part.text))
    return DevicePattern("*", tuple(path))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _parse_filter_item(piece: _Piece, backends: Sequence[str]) -> Term:
    """Parse `backend:type:number`, of which two may be missing.

    A single "*" or "host" is a backend.
    """
    parts = list(piece.split(":"))
    backend, kind, number = "*", "*", "*"
    if parts[0].text.lower() in ("*", *backends):
        backend = parts.pop(0).text.lower()
    if parts and parts[0].text.lower() in _FILTER_TYPES:
        kind = _FILTER_TYPES[parts.pop(0).text.lower()]
    if parts and _is_number(parts[0].text):
        number = int(parts.pop(0).text)
    if parts:
        text = parts[0].text
        problem = (
            f"{text!r} is not a backend, type or number that may stand here"
            if text
            else "a device is missing"
        )
        raise parts[0].make_error(
            problem, "write backend:type:number, in this order, with the names of the grammar"
        )
    return Term(False, backend, (DevicePattern(kind, (number,)),))
