"""Random changes of a mutable list, each by C or by Python, against a model of what it writes."""

from __future__ import annotations

from ctypes import c_int, c_short
from dataclasses import dataclass
from random import Random

import pytest
from helpers.ze_bench import Ints, ZeBench, argument, group_count
from helpers.ze_entries import calls_in

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
        self.bench.ze.ok("zeCommandListClose", self.made)
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
        with calls_in(random.choice(("c", "c", "python"))):
            random.choice(steps)()
    model.run()
