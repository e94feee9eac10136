"""Command-buffers on chains, and launches that start early. The engine `cuda` has the same rule."""

from __future__ import annotations

import ctypes
import random
import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cuda import PTX

from fairlead.icd.command_buffer.cuda_order import chain_commands
from fairlead.icd.command_buffer.order import Order
from fairlead.plugins.cuda import device_code, devices, opencl_c
from fairlead.plugins.cuda.core import DriverError

from .conftest import COUNT, Adapted, Knobs, Work, only_cuda
from .test_appends_in_c import Buffer
from .test_command_buffers import Updatable

_INT = ctypes.c_int32


def _object(adapted: Adapted, buffer: Any) -> Any:
    registry = adapted.module("core").adapter.registry
    return registry.list_owned("ur_exp_command_buffer_handle_t")[buffer.handle]


def _edges(adapted: Adapted, fake: Knobs, buffer: Any) -> tuple[list[list[int]], int]:
    """Return what each node comes after, and how many edges are programmatic."""
    made, room = _object(adapted, buffer), ctypes.create_string_buffer(1 << 16)
    count = fake.library.fake_cuda_edges(ctypes.c_void_p(made.graph), room, len(room))
    before: list[list[int]] = [[] for _ in range(made.count)]
    for one, other in re.findall(r"(\d+)>(\d+) ", room.value.decode()):
        before[int(other)].append(int(one))
    return before, count


def _graph(seed: int, count: int, width: int) -> list[list[int]]:
    """Return what each command of a random graph comes after."""
    chance = random.Random(seed)
    return [
        sorted(chance.sample(range(number), min(number, chance.randrange(width))))
        for number in range(count)
    ]


@pytest.mark.parametrize(
    "before",
    [
        *([[]] * 40 for _ in range(1)),
        [[], *([number] for number in range(30))],
        [[], *([0] for _ in range(20)), list(range(1, 21))],
        *(_graph(seed, 60, 2 + seed) for seed in range(4)),
    ],
    ids=["independent", "chain", "fork and join", *map(str, range(4))],
)
def test_launches_of_c_and_of_python_have_the_edges_of_the_engine(
    work: Work, adapted: Adapted, fake: Knobs, before: list[list[int]]
) -> None:
    """C appends all but the first launch of a kernel, and Python those of the other one."""
    kernel, fresh = work.kernel("add_one"), [work.kernel("add_one") for _ in before]
    expected = chain_commands(Order(before, [False] * len(before)))
    for kernels in ([kernel] * len(before), fresh):
        buffer, out = Buffer(work), work.memory()
        for one, numbers in zip(kernels, before, strict=True):
            buffer.add(one, out, after=tuple(number + 1 for number in numbers))
        found, early = _edges(adapted, fake, buffer)
        assert [sorted(one) for one in found] == [sorted(one) for one in expected.before]
        assert early == 0
        buffer.finalize()
        words = "a chain" if expected.chains == 1 else f"{expected.chains} chains"
        assert _object(adapted, buffer).explain().endswith(f"{len(before)} nodes in {words}")


def test_a_graph_keeps_the_order_that_it_was_given() -> None:
    """What a command has to come after, it comes after: by its edges, and by those of others."""
    for seed in range(30):
        before = _graph(seed, 200, 2 + seed % 5)
        edges = chain_commands(Order(before, [False] * len(before))).before
        after: list[set[int]] = []
        for number, direct in enumerate(edges):
            after.append({number}.union(*(after[one] for one in direct)))
            assert after[number].issuperset(before[number])
            for one in direct:  # none is implied by another one
                assert not any(one in after[other] for other in direct if other != one)


# --- launches that start early ---


@pytest.fixture
def early(work: Work, fake: Knobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compiler, whose kernels may start early."""
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: PTX.encode())
    monkeypatch.setattr(device_code, "can_start_early", lambda device: True)
    one = next(iter(devices.list_platforms())).devices[0]
    assert one.early_threads == 4 * 2048 // 2


def _scale(work: Work) -> int:
    return work.kernel("scale", b"kernel void scale() {}")


@only_cuda
def test_launches_of_a_chain_start_early(
    work: Work, adapted: Adapted, fake: Knobs, early: None
) -> None:
    buffer, out, kernel = Buffer(work, isInOrder=True), work.memory(), _scale(work)
    for _ in range(5):
        buffer.add(kernel, out, _INT(2), _INT(1))
    assert _edges(adapted, fake, buffer)[1] == 0
    buffer.finalize()
    before, count = _edges(adapted, fake, buffer)
    assert (before, count) == ([[], [0], [1], [2], [3]], 4)
    text = _object(adapted, buffer).explain()
    assert text.endswith("a chain, 4 of which start early (programmatic dependent launch)")
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    for _ in range(2):
        buffer.run()
    assert work.numbers(out) == [1024 * number + 1023 for number in range(COUNT)]


@only_cuda
@pytest.mark.parametrize(
    ("how", "expected"),
    [("fork", 0), ("copy", 1), ("many chains", 0), ("events", 0), ("another kernel", 0)],
)
def test_what_does_not_start_early(
    work: Work,
    adapted: Adapted,
    fake: Knobs,
    early: None,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    expected: int,
) -> None:
    kernel, out = _scale(work), work.memory()
    buffer: Any = Updatable(work) if how in ("events", "another kernel") else Buffer(work)
    given = kernel, out, _INT(2), _INT(1)
    if how == "fork":
        first = buffer.add(*given)
        for _ in range(2):
            buffer.add(*given, after=(first,))
    elif how == "copy":
        first = buffer.append("USMMemcpy", out, work.memory(), 16)[0]
        buffer.add(*given, after=(buffer.add(*given, after=(first,)),))
    elif how == "many chains":
        for _ in range(5):
            buffer.add(*given, after=(buffer.add(*given),))
    elif how == "events":
        buffer.launch(*given, after=(buffer.launch(*given)[0],))
    else:
        monkeypatch.setattr(device_code, "can_start_early", lambda device: False)
        other = work.kernel("total", b"kernel void total() {}")
        buffer.launch(*given, others=(other,), after=(buffer.launch(*given)[0],))
    buffer.finalize()
    assert _edges(adapted, fake, buffer)[1] == expected


@only_cuda
def test_a_driver_that_refuses_gets_the_edges_as_they_were(
    work: Work, adapted: Adapted, fake: Knobs, early: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, out = _scale(work), work.memory()

    def appended() -> Buffer:
        buffer = Buffer(work, isInOrder=True)
        for _ in range(3):
            buffer.add(kernel, out, _INT(2), _INT(1))
        return buffer

    fake.fail("GraphRemoveDependencies", 801)
    buffer = appended()
    work.ur.make("urCommandBufferGetNativeHandleExp", buffer.handle)
    buffer.finalize()
    assert _edges(adapted, fake, buffer) == ([[], [0], [1]], 0)
    fake.fail("GraphRemoveDependencies", 0)

    make, refused = devices.CuDevice.make, []

    def refuses(self: Any, name: str, *given: Any) -> int:
        if name == "GraphInstantiateWithFlags" and not refused:
            refused.append(_edges(adapted, fake, buffer)[1])
            raise DriverError.from_code(801, name)
        return make(self, name, *given)

    buffer = appended()
    monkeypatch.setattr(devices.CuDevice, "make", refuses)
    buffer.finalize()
    assert refused == [2] and _edges(adapted, fake, buffer) == ([[], [0], [1]], 0)
    assert _object(adapted, buffer).explain().endswith("a chain")

    buffer = appended()
    fake.fail("GraphAddDependencies", 801)
    assert work.ur("urCommandBufferFinalizeExp", buffer.handle) == "OUT_OF_RESOURCES"
    native = ctypes.byref(ctypes.c_void_p())
    assert work.ur("urCommandBufferGetNativeHandleExp", buffer.handle, native) != "SUCCESS"
    fake.fail("GraphAddDependencies", 0)
    buffer.finalize()
    assert _edges(adapted, fake, buffer) == ([[], [0], [1]], 2)


@only_cuda
def test_who_asks_for_the_graph_sees_edges_that_are_added_late(
    work: Work, adapted: Adapted, fake: Knobs, early: None
) -> None:
    """They are added when the graph ends, because their kind is known then."""
    buffer, out, kernel = Buffer(work, isInOrder=True), work.memory(), _scale(work)
    for _ in range(4):
        buffer.add(kernel, out, _INT(2), _INT(1))
    assert _edges(adapted, fake, buffer)[0] == [[], [], [], []]
    work.ur.make("urCommandBufferGetNativeHandleExp", buffer.handle)
    assert _edges(adapted, fake, buffer) == ([[], [0], [1], [2]], 0)
    buffer.add(kernel, out, _INT(2), _INT(1))
    buffer.finalize()
    assert _edges(adapted, fake, buffer) == ([[], [0], [1], [2], [3]], 4)


@only_cuda
def test_a_fork_behind_a_launch_has_plain_edges(
    work: Work, adapted: Adapted, fake: Knobs, early: None
) -> None:
    buffer, out, kernel = Buffer(work), work.memory(), _scale(work)
    first = buffer.add(kernel, out, _INT(2), _INT(1))
    second = buffer.add(kernel, out, _INT(2), _INT(1), after=(first,))
    for _ in range(2):
        buffer.add(kernel, out, _INT(2), _INT(1), after=(second,))
    buffer.finalize()
    assert _edges(adapted, fake, buffer) == ([[], [0], [1], [1]], 1)
