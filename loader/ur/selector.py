"""Selects devices as the environment asks: three variables, one selector.

`from_environment` chooses the variable that applies and parses its value (`selector_grammar`). The
result is a `Selector`, a tuple of terms. Each term accepts or discards devices by patterns.
`Selector.accepts_backend` answers before any plugin is opened. `Selector.select` takes the devices
of all platforms in listed order and returns the selected ones.

The variables in order of precedence (an empty variable is not set):

1. `ONEAPI_DEVICE_SELECTOR`, whose grammar is `selector_grammar.GRAMMAR`.
2. `SYCL_DEVICE_FILTER` (deprecated), whose grammar is `selector_grammar.FILTER_GRAMMAR`. It is an
   error to set both.
3. `SYCL_BE` (deprecated), the name of one backend. It has no effect if another one is set.

The meaning of a term:

- A number is a device's index among the root devices of its backend on all platforms. It counts
  from 0, before anything is selected. `*:0` is therefore the first device of *each* backend.
- Sub-devices are listed only if an accepting term names them. They replace their parent.
- Discards apply after all accepts, wherever they are written. (DPC++ requires them at the end, the
  UR loader does not.) Discarding a device discards its sub-devices. Discarding a sub-device does
  not discard its parent.
- Only the terms that name a backend or `*` apply to it. If all of them discard, the other devices
  of the backend are accepted. A backend that no term names has no devices: `!opencl:0` selects all
  OpenCL devices except the first, and no CUDA device.

Sources: the UR loader's urDeviceGetSelected, as measured with DPC++ 2026.2, and the DPC++ document
"Environment Variables". They differ if a selector only discards: libsycl then accepts the devices
of all other backends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..base.frozen_value import Value
from ..base.search import filter_environ
from .selector_grammar import (
    ALL_DEVICES,
    BACKENDS,
    DEVICE_TYPES,
    FILTER_BACKENDS,
    ONEAPI_DEVICE_SELECTOR,
    PRECEDENCE,
    SYCL_BE,
    SYCL_DEVICE_FILTER,
    DevicePattern,
    SelectorError,
    Term,
    parse_filter_terms,
    parse_terms,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Protocol, TypeAlias, TypeVar

    D = TypeVar("D", bound="Selectable")

    class Selectable(Protocol):
        """The properties of a device that `Selector.select` uses."""

        @property
        def backend(self) -> str:
            """The backend's name in lower case, such as "opencl"."""
            ...

        @property
        def type(self) -> str:
            """The type in lower case: "cpu", "gpu", "acc", or another, which only `*` and numbers
            select.
            """
            ...

        def sub_devices(self: D) -> Sequence[D]:
            """Return the sub-devices by the next partitionable affinity domain, empty if there are
            none.
            """
            ...


#: Value of SYCL_BE to backend. A configuration file may add to it.
SYCL_BE_NAMES: Final[Mapping[str, str]] = {
    "PI_OPENCL": "opencl",
    "PI_LEVEL_ZERO": "level_zero",
    "PI_CUDA": "cuda",
    "PI_HIP": "hip",
    "PI_ESIMD_EMULATOR": "esimd_emulator",
    "PI_NATIVE_CPU": "native_cpu",
}


class Selector(Value):
    """Which devices a program may use. `str(selector)` is the shortest form of its value.

    Attributes:
        ignored: assignments that have no effect beside it, such as "SYCL_BE=PI_CUDA".
    """

    variable: str
    text: str
    terms: tuple[Term, ...]
    ignored: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ("," if self.variable == SYCL_DEVICE_FILTER else ";").join(map(str, self.terms))

    def select(self, devices: Sequence[D]) -> list[D]:
        """Return the selected devices in their order.

        Sub-devices follow their parent, or replace it if it is not selected. No device is returned
        twice.

        Args:
            devices: all root devices of all platforms.
        """
        rules: dict[tuple[str, str], tuple[_Tree, _Tree]] = {}
        numbers: Counter[str] = Counter()
        selected: list[D] = []
        for device in devices:
            backend, kind = device.backend, device.type
            if (backend, kind) not in rules:
                rules[backend, kind] = (
                    self._make_tree(backend, kind, False),
                    self._make_tree(backend, kind, True),
                )
            accepts, discards = rules[backend, kind]
            number = numbers[backend]
            numbers[backend] = number + 1
            _pick(device, _take_step([accepts], number), _take_step([discards], number), selected)
        return selected

    def accepts_backend(self, backend: str) -> bool:
        """Return whether a device of this backend could be selected. If not, do not open its
        plugin.
        """
        discards = self._list_patterns(backend.lower(), True)
        return any(
            not any(d.covers(a) for d in discards)
            for a in self._list_patterns(backend.lower(), False)
        )

    def explain(self) -> str:
        """Return which variable applies and what it selects, in plain words."""
        accepts = [str(term) for term in self.terms if not term.discard]
        named = {term.backend for term in self.terms if not term.discard}
        implied = dict.fromkeys(term.backend for term in self.terms if term.discard)
        accepts += [
            f"{backend}:* (no term accepts a device of it by name)"
            for backend in implied
            if not named & {backend, "*"}
        ]
        discards = [str(term)[1:] for term in self.terms if term.discard]
        but = f", but not {', '.join(discards)}" if discards else ""
        lines = [f"{self.variable}={self.text} selects {', '.join(accepts)}{but}"]
        if self.variable in (SYCL_DEVICE_FILTER, SYCL_BE):
            lines.append(f"{self.variable} is deprecated: use {ONEAPI_DEVICE_SELECTOR}")
        lines += [
            f"{assignment} has no effect: {self.variable} is set, and has precedence"
            for assignment in self.ignored
        ]
        return "\n".join(lines)

    def _list_patterns(self, backend: str, discard: bool) -> list[DevicePattern]:
        """Return what the terms for a backend accept, or discard.

        Terms that only discard accept everything else.
        """
        terms = [term for term in self.terms if term.backend in ("*", backend)]
        if not discard and terms and all(term.discard for term in terms):
            return [ALL_DEVICES]
        return [pattern for term in terms if term.discard == discard for pattern in term.devices]

    def _make_tree(self, backend: str, kind: str, discard: bool) -> _Tree:
        """Return the paths of the patterns that match devices of a backend and type."""
        types = ("*", DEVICE_TYPES.get(kind, kind))
        tree: _Tree = {}
        for pattern in self._list_patterns(backend, discard):
            if pattern.type in types:
                node = tree
                for part in pattern.path:
                    node = node.setdefault(part, {})
                node[_HERE] = {}
        return tree


# A tree of paths: index or "*" to what may follow. `_HERE` marks the end of a path. A device costs
# two look-ups, however many numbers a term lists.
_Tree: TypeAlias = "dict[int | str, _Tree]"
_HERE: Final = "end"


def _take_step(trees: Sequence[_Tree], number: int) -> list[_Tree]:
    """Return the paths below the device with this index."""
    return [tree[key] for tree in trees for key in (number, "*") if key in tree]


def _pick(
    device: D, accepts: Sequence[_Tree], discards: Sequence[_Tree], selected: list[D]
) -> None:
    """Append the device and its sub-devices to `selected` if accepted and not discarded."""
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
            _pick(sub_device, _take_step(accepts, number), _take_step(discards, number), selected)


def parse(text: str, *, backends: Iterable[str] = BACKENDS) -> Selector:
    """Parse a value of ONEAPI_DEVICE_SELECTOR.

    Args:
        backends: the names in lower case that are legal besides "*".

    Raises:
        SelectorError: the value is illegal. The message contains the grammar.
    """
    return Selector(ONEAPI_DEVICE_SELECTOR, text, parse_terms(text, tuple(backends)))


def parse_filter(text: str, *, backends: Iterable[str] = BACKENDS) -> Selector:
    """Parse a value of SYCL_DEVICE_FILTER. Arguments and errors are those of `parse`."""
    terms = parse_filter_terms(text, (*backends, *FILTER_BACKENDS))
    return Selector(SYCL_DEVICE_FILTER, text, terms)


def make_backend_selector(name: str, mapping: Mapping[str, str] = SYCL_BE_NAMES) -> Selector:
    """Return the selector for a value of SYCL_BE: all devices of one backend.

    Args:
        mapping: value to backend.

    Raises:
        SelectorError: the value is illegal. The message lists the legal values.
    """
    if name not in mapping:
        message = (
            f"{name!r} is not a backend that {SYCL_BE} can name. Legal are: "
            f"{', '.join(mapping) or 'none'}. {PRECEDENCE}"
        )
        raise SelectorError(
            message,
            code=SYCL_BE,
            remedy=f"correct {SYCL_BE}, or unset it and use {ONEAPI_DEVICE_SELECTOR}",
        )
    return Selector(SYCL_BE, name, (Term(False, mapping[name], (ALL_DEVICES,)),))


def from_environment(
    environ: Mapping[str, str] | None = None,
    *,
    sycl_be: Mapping[str, str] = SYCL_BE_NAMES,
    backends: Iterable[str] = BACKENDS,
) -> Selector | None:
    """Return the selector that the environment asks for, None if there is none.

    A secure process ignores the variables.

    Args:
        environ: the environment, `os.environ` by default.
        sycl_be: the values of SYCL_BE and their backends.
        backends: the legal names of backends.

    Raises:
        SelectorError: a value is illegal, or ONEAPI_DEVICE_SELECTOR and SYCL_DEVICE_FILTER are both
            set.
    """
    environ = filter_environ(environ)
    selector, device_filter, name = (
        environ.get(v, "") for v in (ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER, SYCL_BE)
    )
    if selector and device_filter:
        message = (
            f"{ONEAPI_DEVICE_SELECTOR} and {SYCL_DEVICE_FILTER} are both set and cannot be "
            f"combined. {PRECEDENCE}"
        )
        raise SelectorError(
            message,
            code=ONEAPI_DEVICE_SELECTOR,
            remedy=f"unset {SYCL_DEVICE_FILTER}: it is deprecated",
        )
    if not selector and not device_filter:
        return make_backend_selector(name, sycl_be) if name else None
    result = (
        parse(selector, backends=backends)
        if selector
        else parse_filter(device_filter, backends=backends)
    )
    return result.copy_with(ignored=(f"{SYCL_BE}={name}",)) if name else result


def make_selector_strings(devices: Iterable[Selectable]) -> list[str]:
    """Return for each root device the ONEAPI_DEVICE_SELECTOR that selects only it, "opencl:0"."""
    numbers: Counter[str] = Counter()
    strings = []
    for device in devices:
        strings.append(f"{device.backend}:{numbers[device.backend]}")
        numbers[device.backend] += 1
    return strings
