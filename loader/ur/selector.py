"""Which devices the environment selects: three variables, one selector.

How data goes through: `from_environment` picks the variable that counts and has its value parsed; the result is a `Selector`, a
tuple of terms, each of which accepts or discards devices by patterns. `Selector.accepts_backend` answers before anything is
opened (a plugin whose backend cannot be selected stays closed); `Selector.select` is given the devices of all platforms in listed
order and gives back those that the program may see.

The variables, and which one counts (a variable that is empty is not set):

1. `ONEAPI_DEVICE_SELECTOR`, the grammar of which is `GRAMMAR`;
2. `SYCL_DEVICE_FILTER` (deprecated), the grammar of which is `FILTER_GRAMMAR`. Both at once is an error;
3. `SYCL_BE` (deprecated), the name of one backend. It has no effect if one of the others is set.

What a term means:

- A number is the device's index among the root devices of its backend, counted over all platforms from 0, before anything is
  selected. `*:0` is therefore the first device of *each* backend.
- Sub-devices are asked for only if an accepting term names them, and stand in the place of their parent.
- Discards are applied after all accepts, wherever they stand (DPC++ wants them at the end, the UR loader does not care). A
  discarded device takes its sub-devices with it; a discarded sub-device leaves its parent alone.
- Each backend has only the terms that name it or `*`. If these only discard, all other devices of the backend are accepted. A
  backend that no term names has no device: `!opencl:0` selects the OpenCL devices but the first, and nothing of CUDA.

Source: the UR loader's urDeviceGetSelected, as measured with DPC++ 2026.2, and the DPC++ document "Environment Variables". The two
differ where a selector only discards: libsycl then accepts the devices of the backends that it does not name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from ..base.errors import FairleadError
from ..base.search import secure_environ

ONEAPI_DEVICE_SELECTOR: Final = "ONEAPI_DEVICE_SELECTOR"
SYCL_DEVICE_FILTER: Final = "SYCL_DEVICE_FILTER"
SYCL_BE: Final = "SYCL_BE"

#: The backends that a selector may name. More can be given to `parse`.
BACKENDS: Final = ("level_zero", "opencl", "cuda", "hip", "native_cpu", "offload")

#: What SYCL_DEVICE_FILTER may name besides: two backends of the past. No device has them now, so they select nothing.
FILTER_BACKENDS: Final = ("host", "esimd_emulator")

#: SYCL_BE's value → backend, unless a configuration file says otherwise.
SYCL_BE_NAMES: Final[Mapping[str, str]] = {
    "PI_OPENCL": "opencl",
    "PI_LEVEL_ZERO": "level_zero",
    "PI_CUDA": "cuda",
    "PI_HIP": "hip",
    "PI_ESIMD_EMULATOR": "esimd_emulator",
    "PI_NATIVE_CPU": "native_cpu",
}

PRECEDENCE: Final = (
    f"{ONEAPI_DEVICE_SELECTOR} or {SYCL_DEVICE_FILTER} counts, and both at once is an error; "
    f"{SYCL_BE} counts only if neither is set"
)

# A type as it is written → `Selectable.type`. "fpga" is the selector's word for an accelerator, "acc" the filter's.
_TYPES: Final = {"cpu": "cpu", "gpu": "gpu", "fpga": "acc", "acc": "acc"}
_FILTER_TYPES: Final = {"*": "*", "host": "host", **_TYPES}
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MAX_LEVELS: Final = 3  # a device, its sub-devices, and theirs

_GRAMMAR: Final = """\
selector = term {{ ";" term }}
term     = [ "!" ] backend ":" device {{ "," device }}          "!" discards what the rest names
backend  = {backends}
device   = * | cpu | gpu | fpga | acc                         fpga and acc: accelerators
         | N | N.N | N.* | *.*                                a device's number; its sub-devices
         | N.N.N | N.N.* | N.*.* | *.*.*                      and theirs
Upper and lower case mean the same; there are no blanks. N counts the devices of one backend from 0."""

_FILTER_GRAMMAR: Final = """\
filter  = item {{ "," item }}
item    = backend | [ backend ":" ] type | [ backend ":" ] [ type ":" ] N
backend = {backends}
type    = * | cpu | gpu | acc | fpga | host                   host selects nothing
Upper and lower case mean the same; there are no blanks. N counts the devices of one backend from 0."""


def _grammar(template: str, backends: Iterable[str]) -> str:
    return template.format(backends=" | ".join(["*", *backends]))


GRAMMAR: Final[str] = _grammar(_GRAMMAR, BACKENDS)
FILTER_GRAMMAR: Final[str] = _grammar(_FILTER_GRAMMAR, (*BACKENDS, *FILTER_BACKENDS))


class SelectorError(FairleadError):
    """A variable that selects devices has an illegal value. `code` is the variable's name.

    `position` is the character of the value, counted from 1, at which it goes wrong; 0 if it is about the value as a whole.
    """

    def __init__(self, message: str, *, position: int = 0, **parts: str) -> None:
        super().__init__(message, **parts)
        self.position = position


D = TypeVar("D", bound="Selectable")


class Selectable(Protocol):
    """What `Selector.select` needs of a device."""

    @property
    def backend(self) -> str:
        """The backend's name in lower case: "opencl"."""
        ...

    @property
    def type(self) -> str:
        """The device's type in lower case: "cpu", "gpu", "acc", or another that only `*` and numbers select."""
        ...

    def sub_devices(self: D) -> Sequence[D]:
        """The device's sub-devices (by affinity domain, next partitionable), empty if it has none."""
        ...


@dataclass(frozen=True)
class DevicePattern:
    """The devices that one element of a term names: those of a type, and of a path of indices.

    `path` has an index, or "*" for any, for the device, and for its sub-device and that one's sub-device where they are meant.
    """

    type: str = "*"
    path: tuple[int | str, ...] = ("*",)

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        if self.type == "*":
            return path
        name = "fpga" if self.type == "acc" else self.type
        return (
            name if path == "*" else f"{name}:{path}"
        )  # a type and a number: only SYCL_DEVICE_FILTER can say that

    def covers(self, other: DevicePattern) -> bool:
        """Whether each device that `other` names is one that this names, or lies below one."""
        if self.type not in ("*", other.type) or len(self.path) > len(other.path):
            return False
        return all(
            mine in ("*", theirs) for mine, theirs in zip(self.path, other.path, strict=False)
        )


_ALL: Final = DevicePattern()


@dataclass(frozen=True)
class Term:
    """Accepts or discards the devices of one backend ("*": of every one) that any of the patterns names."""

    discard: bool
    backend: str
    devices: tuple[DevicePattern, ...]

    def __str__(self) -> str:
        return f"{'!' * self.discard}{self.backend}:{','.join(map(str, self.devices))}"


@dataclass(frozen=True)
class Selector:
    """Which devices a program may see: the variable that says so, its value, and what that means.

    `str(selector)` is the value in its shortest form; `ignored` holds the assignments that had no effect beside it.
    """

    variable: str
    text: str
    terms: tuple[Term, ...]
    ignored: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ("," if self.variable == SYCL_DEVICE_FILTER else ";").join(map(str, self.terms))

    def select(self, devices: Sequence[D]) -> list[D]:
        """The selected ones of `devices`, all root devices of all platforms, in their order.

        Sub-devices follow their parent, or stand in its place if it is not selected itself. Nothing is listed twice.
        """
        rules: dict[tuple[str, str], tuple[_Tree, _Tree]] = {}
        numbers: Counter[str] = Counter()
        selected: list[D] = []
        for device in devices:
            backend, kind = device.backend, device.type
            if (backend, kind) not in rules:
                rules[backend, kind] = (
                    self._tree(backend, kind, False),
                    self._tree(backend, kind, True),
                )
            accepts, discards = rules[backend, kind]
            number = numbers[backend]
            numbers[backend] = number + 1
            _pick(device, _step([accepts], number), _step([discards], number), selected)
        return selected

    def accepts_backend(self, backend: str) -> bool:
        """Whether a device of this backend could be selected. False only if none can be: its plugin need not be opened."""
        discards = self._patterns(backend.lower(), True)
        return any(
            not any(d.covers(a) for d in discards) for a in self._patterns(backend.lower(), False)
        )

    def explain(self) -> str:
        """What counts and why, in plain words, a line for each thing to know."""
        accepts = [str(term) for term in self.terms if not term.discard]
        named = {term.backend for term in self.terms if not term.discard}
        implied = dict.fromkeys(term.backend for term in self.terms if term.discard)
        accepts += [
            f"{backend}:* (nothing of it is accepted by name)"
            for backend in implied
            if not named & {backend, "*"}
        ]
        discards = [str(term)[1:] for term in self.terms if term.discard]
        but = f", but not {', '.join(discards)}" if discards else ""
        lines = [f"{self.variable}={self.text} selects {', '.join(accepts)}{but}"]
        if self.variable in (SYCL_DEVICE_FILTER, SYCL_BE):
            lines.append(f"{self.variable} is deprecated: use {ONEAPI_DEVICE_SELECTOR}")
        lines += [
            f"{assignment} has no effect: {self.variable} is set, and wins over it"
            for assignment in self.ignored
        ]
        return "\n".join(lines)

    def _patterns(self, backend: str, discard: bool) -> list[DevicePattern]:
        """What the terms that apply to a backend accept, or discard. If they only discard, they accept everything else."""
        terms = [term for term in self.terms if term.backend in ("*", backend)]
        if not discard and terms and all(term.discard for term in terms):
            return [_ALL]
        return [pattern for term in terms if term.discard == discard for pattern in term.devices]

    def _tree(self, backend: str, kind: str, discard: bool) -> _Tree:
        """The paths of the patterns that fit devices of this backend and type."""
        types = ("*", _TYPES.get(kind, kind))
        tree: _Tree = {}
        for pattern in self._patterns(backend, discard):
            if pattern.type in types:
                node = tree
                for part in pattern.path:
                    node = node.setdefault(part, {})
                node[_HERE] = {}
        return tree


# Paths that share their beginnings: index or "*" → what may follow; `_HERE` → a path ends here. However many numbers a term
# lists, a device costs two look-ups.
_Tree: TypeAlias = "dict[int | str, _Tree]"
_HERE: Final = "end"


def _step(trees: Sequence[_Tree], number: int) -> list[_Tree]:
    """What is left of the paths below the device with this index."""
    return [tree[key] for tree in trees for key in (number, "*") if key in tree]


def _pick(
    device: D, accepts: Sequence[_Tree], discards: Sequence[_Tree], selected: list[D]
) -> None:
    """Append the device and what lies below it to `selected`, as far as accepted and not discarded."""
    for tree in discards:
        if _HERE in tree:
            return
    deeper = False
    accepted = False
    for tree in accepts:
        here = _HERE in tree
        accepted = accepted or here
        deeper = deeper or len(tree) > here
    if accepted:
        selected.append(device)
    if deeper:
        for number, sub_device in enumerate(device.sub_devices()):
            _pick(sub_device, _step(accepts, number), _step(discards, number), selected)


def parse(text: str, *, backends: Iterable[str] = BACKENDS) -> Selector:
    """The selector that a value of ONEAPI_DEVICE_SELECTOR stands for.

    `backends` are the names that are legal besides "*", in lower case. Raises SelectorError, which quotes the grammar.
    """
    backends = tuple(backends)
    whole = _Piece(ONEAPI_DEVICE_SELECTOR, text, _grammar(_GRAMMAR, backends), 0, text)
    return Selector(
        whole.variable, text, tuple(_term(piece, backends) for piece in whole.split(";"))
    )


def parse_filter(text: str, *, backends: Iterable[str] = BACKENDS) -> Selector:
    """The selector that a value of SYCL_DEVICE_FILTER stands for. `backends` and errors as for `parse`."""
    backends = (*backends, *FILTER_BACKENDS)
    whole = _Piece(SYCL_DEVICE_FILTER, text, _grammar(_FILTER_GRAMMAR, backends), 0, text)
    return Selector(
        whole.variable, text, tuple(_filter_item(piece, backends) for piece in whole.split(","))
    )


def of_backend(name: str, mapping: Mapping[str, str] = SYCL_BE_NAMES) -> Selector:
    """The selector that a value of SYCL_BE stands for: all devices of the backend that `mapping` gives for it.

    Raises SelectorError, which lists the legal values.
    """
    if name not in mapping:
        message = f"{name!r} is no backend that {SYCL_BE} can name. Legal are: {', '.join(mapping) or 'none'}. {PRECEDENCE}"
        raise SelectorError(
            message,
            code=SYCL_BE,
            remedy=f"correct {SYCL_BE}, or unset it and use {ONEAPI_DEVICE_SELECTOR}",
        )
    return Selector(SYCL_BE, name, (Term(False, mapping[name], (_ALL,)),))


def from_environment(
    environ: Mapping[str, str] | None = None,
    *,
    sycl_be: Mapping[str, str] = SYCL_BE_NAMES,
    backends: Iterable[str] = BACKENDS,
) -> Selector | None:
    """The selector that the environment asks for, None if it asks for none, and always None in a secure process.

    `environ` stands for `os.environ`, `sycl_be` gives the backend for each value of SYCL_BE, `backends` are the legal names of
    backends. Raises SelectorError for an illegal value, and for ONEAPI_DEVICE_SELECTOR together with SYCL_DEVICE_FILTER.
    """
    environ = secure_environ(environ)
    selector, device_filter, name = (
        environ.get(v, "") for v in (ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER, SYCL_BE)
    )
    if selector and device_filter:
        message = f"{ONEAPI_DEVICE_SELECTOR} and {SYCL_DEVICE_FILTER} are both set and cannot be combined. {PRECEDENCE}"
        raise SelectorError(
            message,
            code=ONEAPI_DEVICE_SELECTOR,
            remedy=f"unset {SYCL_DEVICE_FILTER}: it is deprecated",
        )
    if not selector and not device_filter:
        return of_backend(name, sycl_be) if name else None
    result = (
        parse(selector, backends=backends)
        if selector
        else parse_filter(device_filter, backends=backends)
    )
    return replace(result, ignored=(f"{SYCL_BE}={name}",)) if name else result


def selector_strings(devices: Iterable[Selectable]) -> list[str]:
    """For each root device the ONEAPI_DEVICE_SELECTOR that selects just it: "opencl:0", "opencl:1", "cuda:0", …"""
    numbers: Counter[str] = Counter()
    strings = []
    for device in devices:
        strings.append(f"{device.backend}:{numbers[device.backend]}")
        numbers[device.backend] += 1
    return strings


@dataclass(frozen=True)
class _Piece:
    """A piece of a variable's value that knows where it stands (`start`, from 0), so that an error can point at it."""

    variable: str
    whole: str
    grammar: str
    start: int
    text: str

    def at(self, start: int, text: str) -> _Piece:
        return replace(self, start=self.start + start, text=text)

    def split(self, separator: str) -> Iterator[_Piece]:
        start = 0
        for text in self.text.split(separator):
            yield self.at(start, text)
            start += len(text) + 1

    def error(self, problem: str, remedy: str) -> SelectorError:
        grammar = "\n".join(f"    {line}" for line in self.grammar.splitlines())
        where = f"at character {self.start + 1} of {self.whole!r}"
        message = f"{problem}, {where}. The grammar is:\n{grammar}"
        return SelectorError(message, position=self.start + 1, code=self.variable, remedy=remedy)


def _term(piece: _Piece, backends: Sequence[str]) -> Term:
    """`[!]backend:devices`."""
    discard = piece.text.startswith("!")
    rest = piece.at(1, piece.text[1:]) if discard else piece
    backend, *devices = rest.split(":")
    if not rest.text:
        raise rest.error(
            "a term is missing", "write one, such as 'opencl:gpu', or remove the extra ';' or '!'"
        )
    if not backend.text:
        raise backend.error(
            "the backend is missing before ':'", "name a backend, or write '*' for every one"
        )
    if backend.text.lower() not in ("*", *backends):
        raise backend.error(
            f"{backend.text!r} is no backend", f"name one of: *, {', '.join(backends)}"
        )
    if not devices:
        end = rest.at(len(rest.text), "")
        raise end.error(
            f"{rest.text!r} names no devices",
            f"write '{rest.text}:*' for all devices of the backend",
        )
    if len(devices) > 1:
        raise (
            devices[1]
            .at(-1, ":")
            .error(f"{rest.text!r} has a second ':'", "separate devices by ',' and terms by ';'")
        )
    return Term(
        discard, backend.text.lower(), tuple(_device(device) for device in devices[0].split(","))
    )


def _device(piece: _Piece) -> DevicePattern:
    """One element of a term's devices: a type, or indices with dots between them."""
    text = piece.text.lower()
    if text in _TYPES:
        return DevicePattern(_TYPES[text])
    first, *below = parts = list(piece.split("."))
    if below and first.text.lower() in _TYPES:
        remedy = "give the device by its number or as '*'"
        raise first.error(f"{piece.text!r} names sub-devices of a type of device", remedy)
    if len(parts) > _MAX_LEVELS:
        raise parts[_MAX_LEVELS].error(
            f"{piece.text!r} has more than two levels of sub-devices", "remove the last ones"
        )
    path: list[int | str] = []
    for part in parts:
        if part.text == "*":
            path.append("*")
        elif not _NUMBER.fullmatch(part.text):
            problem = f"{part.text!r} is no device" if part.text else "a device is missing"
            raise part.error(problem, "write '*', cpu, gpu, fpga or a number")
        elif "*" in path:
            raise part.error(f"{piece.text!r} has a number after '*'", "write '*' there too")
        else:
            path.append(int(part.text))
    return DevicePattern("*", tuple(path))


def _filter_item(piece: _Piece, backends: Sequence[str]) -> Term:
    """`backend:type:number`, of which any two may be left out. A single "*" or "host" is taken for a backend."""
    parts = list(piece.split(":"))
    backend, kind, number = "*", "*", "*"
    if parts[0].text.lower() in ("*", *backends):
        backend = parts.pop(0).text.lower()
    if parts and parts[0].text.lower() in _FILTER_TYPES:
        kind = _FILTER_TYPES[parts.pop(0).text.lower()]
    if parts and _NUMBER.fullmatch(parts[0].text):
        number = int(parts.pop(0).text)
    if parts:
        text = parts[0].text
        problem = (
            f"{text!r} is no backend, type or number that may stand here"
            if text
            else "a device is missing"
        )
        raise parts[0].error(
            problem, "write backend:type:number, in this order, with the names of the grammar"
        )
    return Term(False, backend, (DevicePattern(kind, (number,)),))
