"""Which devices the environment selects: grammars, meanings, precedence of variables, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import search
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ur import selector, selector_grammar
from fairlead.loader.ur.selector_grammar import SelectorError


@dataclass(frozen=True)
class Device:
    """A device that knows how it would be named."""

    backend: str
    type: str
    name: str
    below: tuple[Device, ...] = ()

    def sub_devices(self) -> Sequence[Device]:
        return self.below


class Unpartitionable:
    """A device that must not be asked for its sub-devices."""

    backend, type = "opencl", "gpu"

    def sub_devices(self) -> Sequence[Unpartitionable]:
        raise AssertionError("asked for sub-devices")


def device(backend: str, kind: str, name: str, *shape: int) -> Device:
    """A device with `shape[0]` sub-devices, each of which has `shape[1]` of its own."""
    below = tuple(
        device(backend, kind, f"{name}.{number}", *shape[1:])
        for number in range(shape[0] if shape else 0)
    )
    return Device(backend, kind, name, below)


#: Two platforms of OpenCL with devices of another backend between them, as a listing may have them.
DEVICES = [
    device("opencl", "cpu", "o0"),
    device("opencl", "gpu", "o1", 2, 2),
    device("level_zero", "gpu", "z0", 2),
    device("level_zero", "gpu", "z1", 2),
    device("opencl", "acc", "o2"),
    device("cuda", "gpu", "c0"),
    device("native_cpu", "custom", "n0"),
]


def flat(devices: Sequence[Device]) -> list[str]:
    """The names of devices and of all below them, parents first."""
    return [name for d in devices for name in (d.name, *flat(d.below))]


def selected(text: str) -> str:
    return " ".join(d.name for d in selector.parse(text).select(DEVICES))


def filtered(text: str) -> str:
    return " ".join(d.name for d in selector.parse_filter(text).select(DEVICES))


# What ONEAPI_DEVICE_SELECTOR selects


@table(
    "text, names",
    [
        ("*:*", "o0 o1 z0 z1 o2 c0 n0"),
        ("opencl:*", "o0 o1 o2"),
        ("OpenCL:GPU", "o1"),
        ("*:gpu", "o1 z0 z1 c0"),
        ("opencl:fpga", "o2"),
        ("opencl:acc", "o2"),
        ("opencl:gpu,cpu", "o0 o1"),
        ("opencl:gpu;level_zero:gpu", "o1 z0 z1"),
        ("opencl:2", "o2"),  # the index counts over both platforms
        ("opencl:02", "o2"),
        ("opencl:2,0", "o0 o2"),  # in listed order
        ("*:0", "o0 z0 c0 n0"),  # the first of each backend
        ("*:1", "o1 z1"),
        ("opencl:7", ""),
        ("hip:*", ""),
        ("native_cpu:cpu", ""),
        ("native_cpu:0", "n0"),
    ],
)
def test_root_devices(text: str, names: str) -> None:
    assert selected(text) == names


@table(
    "text, names",
    [
        ("level_zero:0.1", "z0.1"),
        ("level_zero:1.*", "z1.0 z1.1"),
        ("level_zero:*.*", "z0.0 z0.1 z1.0 z1.1"),
        ("*:*.*", "o1.0 o1.1 z0.0 z0.1 z1.0 z1.1"),
        ("level_zero:*,*.*", "z0 z0.0 z0.1 z1 z1.0 z1.1"),
        ("level_zero:0,1.1", "z0 z1.1"),
        ("opencl:1.0.1", "o1.0.1"),
        ("opencl:1.1.*", "o1.1.0 o1.1.1"),
        ("opencl:1.*.*", "o1.0.0 o1.0.1 o1.1.0 o1.1.1"),
        ("*:*.*.*", "o1.0.0 o1.0.1 o1.1.0 o1.1.1"),
        ("opencl:1.0,1.0.0,1.*,*.*", "o1.0 o1.0.0 o1.1"),  # each once
        ("opencl:0.0", ""),  # no sub-devices
        ("level_zero:0.2", ""),  # and no such sub-device
    ],
)
def test_sub_devices(text: str, names: str) -> None:
    assert selected(text) == names


@table(
    "text, names",
    [
        ("opencl:*;!opencl:0", "o1 o2"),
        ("!opencl:0;opencl:*", "o1 o2"),  # wherever the discard stands
        ("!*:cpu", "o1 z0 z1 o2 c0 n0"),  # the rest is accepted
        ("!opencl:*;!level_zero:*", ""),
        ("!opencl:0", "o1 o2"),  # nothing of a backend that is not named
        ("!opencl:0;!cuda:1", "o1 o2 c0"),
        ("level_zero:*;!opencl:0", "o1 z0 z1 o2"),  # each backend by itself
        ("*:gpu;!cuda:*", "o1 z0 z1"),
        ("cuda:*;!opencl:*", "c0"),
        ("level_zero:*,*.*;!level_zero:0", "z1 z1.0 z1.1"),  # sub-devices go with their parent
        ("level_zero:*,*.*;!level_zero:0.*", "z0 z1 z1.0 z1.1"),
        ("level_zero:*;!level_zero:0.0", "z0 z1"),  # a parent stays without its sub-device
        ("opencl:1.*.*;!opencl:1.0", "o1.1.0 o1.1.1"),
        ("!*:*", ""),
        ("!*:*.*", "o0 o1 z0 z1 o2 c0 n0"),
    ],
)
def test_discards(text: str, names: str) -> None:
    assert selected(text) == names


def test_sub_devices_are_asked_for_only_by_terms_that_name_them() -> None:
    devices = [Unpartitionable(), Unpartitionable()]
    assert selector.parse("opencl:*;cuda:*.*;!opencl:0.0").select(devices) == devices
    assert selector.parse("opencl:0.0;!opencl:0").select(devices) == []
    with pytest.raises(AssertionError):
        selector.parse("opencl:1.0").select(devices)


def test_backends_are_data() -> None:
    (term,) = selector.parse("mine:0", backends=["mine"]).terms
    assert term.backend == "mine"
    with pytest.raises(SelectorError, match=r"backend  = \* \| mine\n"):
        selector.parse("opencl:0", backends=["mine"])


# What is not the grammar


@table(
    "text, position, says",
    [
        ("opencl", 7, "names no devices"),
        ("!opencl", 8, "names no devices"),
        ("opencl:", 8, "a device is missing"),
        ("opencl:gpu,", 12, "a device is missing"),
        ("opencl:gpu;", 12, "a term is missing"),
        (";opencl:gpu", 1, "a term is missing"),
        ("!", 2, "a term is missing"),
        (":gpu", 1, "the backend is missing"),
        ("opencl:gpu;gpu:0", 12, "'gpu' is not a backend"),
        ("!!opencl:gpu", 2, "'!opencl' is not a backend"),
        ("host:*", 1, "'host' is not a backend"),
        ("opencl: gpu", 8, "' gpu' is not a device"),
        ("opencl:gpu:0", 11, "second ':'"),
        ("opencl:cpu,tpu", 12, "'tpu' is not a device"),
        ("opencl:-1", 8, "'-1' is not a device"),
        ("opencl:1234567890", 8, "is not a device"),
        ("opencl:١", 8, "is not a device"),
        ("opencl:gpu.*", 8, "sub-devices of a type"),
        ("opencl:0.gpu", 10, "'gpu' is not a device"),
        ("opencl:*.0", 10, "a number after '*'"),
        ("opencl:0.*.1", 12, "a number after '*'"),
        ("opencl:*.*.0", 12, "a number after '*'"),
        ("opencl:0.", 10, "a device is missing"),
        ("opencl:.0", 8, "a device is missing"),
        ("opencl:0.0.0.0", 14, "more than two levels"),
    ],
)
def test_illegal_selectors(text: str, position: int, says: str) -> None:
    with pytest.raises(SelectorError) as caught:
        selector.parse(text)
    error = caught.value
    assert isinstance(error, FairleadError)
    assert error.code == "ONEAPI_DEVICE_SELECTOR" and error.position == position
    assert says in error.message and f"at character {position} of {text!r}" in error.message
    assert error.remedy
    assert all(line in str(error) for line in selector_grammar.GRAMMAR.splitlines())


# SYCL_DEVICE_FILTER


@table(
    "text, names",
    [
        ("opencl", "o0 o1 o2"),
        ("OPENCL:GPU", "o1"),
        ("opencl:gpu:1", "o1"),  # the index counts all devices of the backend
        ("opencl:gpu:0", ""),
        ("opencl:*:0", "o0"),
        ("opencl:2", "o2"),
        ("*", "o0 o1 z0 z1 o2 c0 n0"),
        ("*:acc", "o2"),
        ("gpu", "o1 z0 z1 c0"),
        ("gpu:0", "z0 c0"),
        ("1", "o1 z1"),
        ("cpu,level_zero:gpu:1", "o0 z1"),
        ("host", ""),
        ("*:host", ""),
        ("host:host:0,cuda", "c0"),
        ("esimd_emulator", ""),
    ],
)
def test_device_filter(text: str, names: str) -> None:
    assert filtered(text) == names


@table(
    "text, position, says",
    [
        ("opencl,", 8, "a device is missing"),
        ("opencl:", 8, "a device is missing"),
        ("vulkan:gpu", 1, "'vulkan' is not a backend, type or number"),
        ("opencl:tpu", 8, "'tpu' is not a backend, type or number"),
        ("opencl:0:gpu", 10, "'gpu' is not a backend, type or number"),
        ("opencl:0.0", 8, "'0.0' is not a backend, type or number"),
        ("opencl:gpu:0:0", 14, "'0' is not a backend, type or number"),
        ("!opencl", 1, "'!opencl' is not a backend, type or number"),
    ],
)
def test_illegal_filters(text: str, position: int, says: str) -> None:
    with pytest.raises(SelectorError) as caught:
        selector.parse_filter(text)
    error = caught.value
    assert error.code == "SYCL_DEVICE_FILTER" and error.position == position
    assert says in error.message and error.remedy
    assert all(line in error.message for line in selector_grammar.FILTER_GRAMMAR.splitlines())


# SYCL_BE, and which variable counts


def test_sycl_be_limits_to_one_backend() -> None:
    found = selector.from_environment({"SYCL_BE": "PI_LEVEL_ZERO"})
    assert found is not None and found.variable == "SYCL_BE"
    assert [d.name for d in found.select(DEVICES)] == ["z0", "z1"]


def test_names_for_sycl_be_are_data() -> None:
    found = selector.from_environment({"SYCL_BE": "PI_MINE"}, sycl_be={"PI_MINE": "mine"})
    assert (
        found is not None and found.accepts_backend("mine") and not found.accepts_backend("opencl")
    )


@pytest.mark.parametrize("name", ["PI_VULKAN", "opencl", "pi_opencl", " "])
def test_illegal_sycl_be_lists_the_legal_ones(name: str) -> None:
    with pytest.raises(SelectorError) as caught:
        selector.from_environment({"SYCL_BE": name})
    assert caught.value.code == "SYCL_BE" and repr(name) in caught.value.message
    assert all(legal in caught.value.message for legal in selector.SYCL_BE_NAMES)


def test_selector_and_filter_cannot_be_combined() -> None:
    with pytest.raises(SelectorError, match="cannot be combined") as caught:
        selector.from_environment(
            {"ONEAPI_DEVICE_SELECTOR": "opencl:*", "SYCL_DEVICE_FILTER": "opencl"}
        )
    assert (
        "SYCL_DEVICE_FILTER" in caught.value.remedy
        and selector_grammar.PRECEDENCE in caught.value.message
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [("ONEAPI_DEVICE_SELECTOR", "cuda:0"), ("SYCL_DEVICE_FILTER", "cuda:gpu:0")],
)
def test_others_win_over_sycl_be(variable: str, text: str) -> None:
    found = selector.from_environment({variable: text, "SYCL_BE": "nonsense"})
    assert found is not None and (found.variable, found.text) == (variable, text)
    assert [d.name for d in found.select(DEVICES)] == ["c0"]
    assert f"SYCL_BE=nonsense has no effect: {variable} is set" in found.explain()


@pytest.mark.parametrize(
    "environ", [{}, {"ONEAPI_DEVICE_SELECTOR": "", "SYCL_DEVICE_FILTER": "", "SYCL_BE": ""}]
)
def test_empty_is_not_set(environ: dict[str, str]) -> None:
    assert selector.from_environment(environ) is None


def test_empty_selector_leaves_the_filter_alone() -> None:
    found = selector.from_environment({"ONEAPI_DEVICE_SELECTOR": "", "SYCL_DEVICE_FILTER": "cuda"})
    assert found is not None and found.variable == "SYCL_DEVICE_FILTER"


def test_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SYCL_DEVICE_FILTER", "SYCL_BE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ONEAPI_DEVICE_SELECTOR", "opencl:cpu")
    found = selector.from_environment()
    assert found is not None and str(found) == "opencl:cpu"
    monkeypatch.setattr(search, "is_secure_process", lambda: True)
    assert selector.from_environment() is None


def test_explain() -> None:
    lines = selector.parse("opencl:*;!opencl:CPU").explain().splitlines()
    assert lines == [
        "ONEAPI_DEVICE_SELECTOR=opencl:*;!opencl:CPU selects opencl:*, but not opencl:cpu"
    ]
    found = "selects *:* (no term accepts a device of it by name), but not *:gpu"
    assert found in selector.parse("!*:gpu").explain()
    found = "selects cuda:gpu, opencl:* (no term accepts a device of it by name), but not opencl:0"
    assert found in selector.parse("cuda:gpu;!opencl:0").explain()
    found = "SYCL_DEVICE_FILTER is deprecated: use ONEAPI_DEVICE_SELECTOR"
    assert found in selector.parse_filter("gpu").explain()
    assert "SYCL_BE is deprecated" in selector.make_backend_selector("PI_CUDA").explain()


# The pre-filter


@table(
    "text, backends",
    [
        ("*:gpu", "level_zero opencl cuda hip native_cpu offload"),
        ("opencl:0", "opencl"),
        ("opencl:0.0;CUDA:*", "opencl cuda"),
        ("!opencl:*", ""),
        ("!opencl:gpu", "opencl"),
        ("cuda:*;!opencl:gpu", "opencl cuda"),
        ("opencl:gpu;cuda:*;!opencl:gpu", "cuda"),
        ("opencl:0.*,0.0.1;!opencl:0", ""),
        ("opencl:0.*;!opencl:0.0", "opencl"),
        ("opencl:0;!opencl:0.0", "opencl"),
        ("*:*;!*:*", ""),
    ],
)
def test_accepts_backend(text: str, backends: str) -> None:
    found = selector.parse(text)
    assert [
        name for name in selector_grammar.BACKENDS if found.accepts_backend(name)
    ] == backends.split()


# Properties

_numbers = st.integers(0, 3).map(str)
_device_words = st.one_of(
    st.sampled_from(["*", "cpu", "GPU", "fpga", "acc", "*.*", "*.*.*"]),
    _numbers,
    st.builds("{}.{}".format, _numbers, _numbers | st.just("*")),
    st.builds("{}.{}.{}".format, _numbers, _numbers, _numbers | st.just("*")),
    st.builds("{}.*.*".format, _numbers),
)
_backend_words = st.sampled_from(["*", "OpenCL", *selector_grammar.BACKENDS])
_accepts = st.builds(
    "{}:{}".format, _backend_words, st.lists(_device_words, min_size=1, max_size=3).map(",".join)
)
_discards = _accepts.map("!{}".format)
_texts = st.lists(_accepts | _discards, min_size=1, max_size=4).map(";".join)
_filters = st.lists(
    st.builds(
        lambda *parts: ":".join(filter(None, parts)) or "*",
        st.sampled_from(["", "*", "opencl", "cuda", "host"]),
        st.sampled_from(["", "*", "gpu", "acc", "host"]),
        _numbers | st.just(""),
    ),
    min_size=1,
    max_size=3,
).map(",".join)
_kinds = st.sampled_from(["cpu", "gpu", "acc", "custom"])
_shapes = st.lists(
    st.tuples(
        st.sampled_from(["opencl", "cuda", "level_zero"]),
        _kinds,
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=8,
)
_devices = _shapes.map(
    lambda shapes: [
        device(b, kind, f"d{n}", one, two) for n, (b, kind, one, two) in enumerate(shapes)
    ]
)


@given(_texts)
def test_text_of_a_selector_reads_back(text: str) -> None:
    first = selector.parse(text)
    again = selector.parse(str(first))
    assert again.terms == first.terms and str(again) == str(first)


@given(_filters)
def test_text_of_a_filter_reads_back(text: str) -> None:
    first = selector.parse_filter(text)
    assert selector.parse_filter(str(first)).terms == first.terms


@given(_texts, _devices)
def test_selection_is_a_subsequence(text: str, devices: list[Device]) -> None:
    remaining = iter(flat(devices))
    assert all(
        d.name in remaining for d in selector.parse(text).select(devices)
    )  # `in` eats what comes before


@given(_devices)
def test_everything_selects_all(devices: list[Device]) -> None:
    assert selector.parse("*:*").select(devices) == devices
    every_level = selector.parse("*:*,*.*,*.*.*").select(devices)
    assert [d.name for d in every_level] == flat(devices)


@given(_texts, _discards, _devices)
def test_a_discard_adds_nothing_to_what_is_named(
    text: str, discard: str, devices: list[Device]
) -> None:
    """Of backends that no other term names it accepts the rest."""
    named = {term.backend for term in selector.parse(text).terms}
    devices = [d for d in devices if named & {"*", d.backend}]
    before = {d.name for d in selector.parse(text).select(devices)}
    for longer in (f"{text};{discard}", f"{discard};{text}"):
        assert {d.name for d in selector.parse(longer).select(devices)} <= before


@given(_texts, _texts, _devices)
def test_order_of_terms_does_not_matter(one: str, other: str, devices: list[Device]) -> None:
    assert selector.parse(f"{one};{other}").select(devices) == selector.parse(
        f"{other};{one}"
    ).select(devices)


@given(_texts, _devices)
def test_a_refused_backend_has_no_selected_device(text: str, devices: list[Device]) -> None:
    found = selector.parse(text)
    assert all(found.accepts_backend(d.backend) for d in found.select(devices))


@given(_devices)
def test_selector_strings_pick_just_their_device(devices: list[Device]) -> None:
    strings = selector.make_selector_strings(devices)
    assert len(strings) == len(devices)
    for text, one in zip(strings, devices, strict=True):
        assert selector.parse(text).select(devices) == [one]


@given(st.text(alphabet="*!:;,.019abcdeghlnopruvz_ G", max_size=30))
def test_any_text_is_a_selector_or_an_error_that_points_into_it(text: str) -> None:
    for read in (selector.parse, selector.parse_filter):
        try:
            read(text)
        except SelectorError as error:
            assert 1 <= error.position <= len(text) + 1 and error.remedy
