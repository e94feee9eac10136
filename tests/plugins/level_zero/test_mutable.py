"""Mutable command lists: what can be changed, when, and how misuse is refused.

Graph arguments of mutable lists: an extension of NPUs, whose graphs no list has here.

Random changes of a mutable list, each by C or by Python, against a model of what it writes.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_short
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest
from helpers.entries import calls_in
from helpers.ze_bench import Ints, ZeBench, argument, group_count
from helpers.ze_calls import array, new

from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero.core import driver

ARGUMENTS, COUNT, SIZE, OFFSET, _SIGNAL, WAITS, KERNEL = (1 << bit for bit in range(7))


def change_kernel(bench: ZeBench, made: int, number: int, kernel: int) -> str:
    routine = "zeCommandListUpdateMutableCommandKernelsExp"
    return bench.ze.code(routine, made, 1, byref(ctypes.c_uint64(number)), array(kernel))


# what was executed, and what is refused


def test_the_same_kernel_keeps_its_arguments(bench: ZeBench) -> None:
    given = "add", ctypes.c_void_p(), c_int(3)
    out, add, mul = bench.ints(1), bench.kernel(*given), bench.kernel("mul")
    made, number = bench.closed(add, 1, ARGUMENTS | KERNEL, add, mul)
    assert bench.update(made, argument(number, 0, out.pointer)) == "SUCCESS"
    assert change_kernel(bench, made, number, add) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out[0] == 4


def test_a_struct_of_another_type_is_refused(bench: ZeBench) -> None:
    out, made = bench.ints(0), bench.list(mutable=True)
    wrong, number = new("ze_mutable_command_id_exp_desc_t"), ctypes.c_uint64()
    wrong.stype = ZE["ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC"]
    routine = "zeCommandListGetNextCommandIdExp"
    assert bench.ze.code(routine, made, byref(wrong), byref(number)) == "INVALID_ARGUMENT"
    known = bench.next_id(made)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)))
    bench.close_list(made)
    row = argument(known, 1, c_int(2))
    desc = new("ze_mutable_commands_exp_desc_t", pNext=row)
    desc.stype = ZE["ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC"]
    routine = "zeCommandListUpdateMutableCommandsExp"
    assert bench.ze.code(routine, made, byref(desc)) == "INVALID_ARGUMENT"
    bench.run(made)
    assert out[0] == 1


def test_events_that_are_none_are_refused(bench: ZeBench) -> None:
    out, (event,) = bench.ints(0), bench.events(1)
    made, number = bench.closed(bench.kernel("add", out.pointer, c_int(1)), waits=[event])
    ask = "zeCommandListUpdateMutableCommandWaitEventsExp", made, number
    assert bench.ze.code(*ask, 0, array(event)) == "INVALID_SIZE"
    assert bench.ze.code(*ask, 1, array(12345)) == "INVALID_SYNCHRONIZATION_OBJECT"
    bench.ze.ok("zeEventHostSignal", event)
    bench.run(made)
    assert out[0] == 1


def test_lists_say_whether_they_are_mutable(bench: ZeBench) -> None:
    for is_mutable in (False, True):
        answer = ctypes.c_uint8(7)
        bench.ze.ok("zeCommandListIsMutableExp", bench.list(mutable=is_mutable), answer)
        assert answer.value == is_mutable


GRAPH_ARGUMENTS: Final = 128


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (GRAPH_ARGUMENTS, "UNSUPPORTED_ENUMERATION"),
        (GRAPH_ARGUMENTS | 1, "UNSUPPORTED_ENUMERATION"),
        (2 * GRAPH_ARGUMENTS, "INVALID_ENUMERATION"),
    ],
)
def test_a_command_that_asks_for_them_is_refused(bench: ZeBench, flags: int, code: str) -> None:
    """The list goes on as if nobody had asked: what is appended next has no identifier."""
    made, number = bench.list(mutable=True), ctypes.c_uint64(7)
    kernel = bench.kernel("add", bench.ints(0).pointer, c_int(1))
    desc = new("ze_mutable_command_id_exp_desc_t", flags=flags)
    given = made, byref(desc), byref(number)
    assert bench.ze.code("zeCommandListGetNextCommandIdExp", *given) == code
    given = made, byref(desc), 1, array(kernel), byref(number)
    assert bench.ze.code("zeCommandListGetNextCommandIdWithKernelsExp", *given) == code
    assert number.value == 7
    assert bench.next_id(made) == 1
    bench.launch(made, kernel)
    bench.finish(made)


def test_a_change_of_one_is_refused_and_nothing_changes(bench: ZeBench) -> None:
    out, made = bench.ints(0), bench.list(mutable=True)
    command = bench.next_id(made)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)))
    bench.close_list(made)
    graph = new("ze_mutable_graph_argument_exp_desc_t", commandId=command)
    for changes in ((graph,), (argument(command, 1, c_int(5)), graph)):
        assert bench.update(made, *changes) == "INVALID_ARGUMENT"
    bench.run(made)
    assert out[0] == 1
    bench.ze.ok("zeCommandListDestroy", made)


GROUPS = 4


@dataclass
class Launch:
    """What a launch adds: a number to the first groups of a memory."""

    number: int
    value: int
    memory: int
    groups: int = GROUPS


class Model:
    """A list of launches that add, and the memory that they should have written.

    Args:
        bench: a context.
        random: what chooses.
    """

    def __init__(self, bench: ZeBench, random: Random) -> None:
        self.bench, self.random = bench, random
        self.memories = [bench.ints(count=GROUPS) for _ in range(2)]
        self.expected = [[0] * GROUPS for _ in self.memories]
        self.kernel = bench.kernel("add")
        self.made = bench.list(mutable=True, in_order=True)
        self.launches: list[Launch] = []
        self.record()

    def _pointer(self, memory: int) -> Ints:
        return self.memories[memory]

    def record(self) -> None:
        """Append launches, some of which can be changed, and close the list."""
        self.launches = []
        for value in range(1, 5):
            memory, can_change = self.random.randrange(2), self.random.random() < 0.7
            self.bench.set(self.kernel, 0, self._pointer(memory).pointer)
            self.bench.set(self.kernel, 1, c_int(value))
            number = self.bench.next_id(self.made) if can_change else 0
            self.bench.launch(self.made, self.kernel, GROUPS)
            self.launches.append(Launch(number, value, memory))
        self.close()

    def close(self) -> None:
        """Close the list."""
        self.bench.close_list(self.made)
        self.changed = False

    def anew(self) -> None:
        """Reset the list, and record other launches."""
        self.bench.ze.ok("zeCommandListReset", self.made)
        self.record()

    def update(self) -> None:
        """Make one to three changes in one call, which may be wrong as a whole."""
        can_change = [launch for launch in self.launches if launch.number]
        wrong, rows = self.random.random() < 0.2, []
        for launch in (
            self.random.choices(can_change, k=self.random.randint(1, 3)) if can_change else ()
        ):
            kind = self.random.choice(("value", "value", "memory", "groups"))
            given = self.random.randint(0, 1 if kind == "memory" else GROUPS)
            rows.append(self._row(launch, kind, given))
            if not wrong:
                setattr(launch, kind, given)
        if wrong and rows:
            rows.insert(
                self.random.randint(0, len(rows)), argument(can_change[0].number, 1, c_short())
            )
        expected = "INVALID_ARGUMENT" if wrong and rows else "SUCCESS"
        assert self.bench.update(self.made, *rows) == expected
        self.changed |= expected == "SUCCESS"

    def _row(self, launch: Launch, kind: str, given: int) -> object:
        if kind == "value":
            return argument(launch.number, 1, c_int(given))
        if kind == "memory":
            return argument(launch.number, 0, self._pointer(given).pointer)
        return group_count(launch.number, given)

    def run(self) -> None:
        """Execute the list, which is closed before if it has to be, and compare the memory."""
        if self.changed:
            self.close()
        self.bench.run(self.made)
        for launch in self.launches:
            for place in range(launch.groups):
                self.expected[launch.memory][place] += launch.value
        assert [memory.all for memory in self.memories] == self.expected


@pytest.mark.parametrize("seed", range(6))
def test_every_change_counts(bench: ZeBench, seed: int) -> None:
    random = Random(seed)
    model = Model(bench, random)
    steps = [model.update] * 5 + [model.run] * 3 + [model.anew]
    for _ in range(60):
        with calls_in(random.choice(("c", "c", "python")), driver):
            random.choice(steps)()
    model.run()
