"""The list of allocations that adapters find addresses in."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fairlead.loader.ur.abi import URError
from fairlead.plugins.sdk.usm import AllocationList, AllocationObject, MemoryRequest


def _allocate(base: int, size: int) -> AllocationObject:
    return AllocationObject(base, MemoryRequest(None, "host", None, size))


def test_an_allocation_is_found_by_any_address_in_it() -> None:
    """Allocations that do not touch are added and removed in any order."""
    draw, listed, known = random.Random(38), AllocationList(), dict[int, AllocationObject]()
    for _ in range(500):
        base = draw.randrange(64) * 16
        if base in known:
            assert listed.remove(base) is known.pop(base)
        else:
            known[base] = listed.add(_allocate(base, draw.randrange(1, 16)))
        address = draw.randrange(64 * 16)
        expected = known.get(address // 16 * 16)
        if expected is not None and address >= expected.end:
            expected = None
        assert listed.find(address) is expected
        assert len(listed) == len(known)
    assert set(listed) == set(known.values())


def test_only_where_an_allocation_begins_it_is_removed() -> None:
    listed = AllocationList()
    listed.add(_allocate(100, 10))
    with pytest.raises(URError, match="INVALID_MEM_OBJECT"):
        listed.remove(105)
    assert listed.find(105) is not None


class _Interrupted(int):
    """An address whose first comparison runs something else, as a garbage collection does."""

    def __new__(cls, address: int, run: Callable[[], object]) -> _Interrupted:
        made = super().__new__(cls, address)
        made.run = [run]
        return made

    run: list[Callable[[], object]]

    def __lt__(self, other: int) -> bool:
        if self.run:
            self.run.pop()()
        return int(self) < other

    __hash__ = int.__hash__


def test_memory_is_freed_in_the_middle_of_a_search() -> None:
    """A garbage collection frees other memory in the thread that searches."""
    for count in range(2, 9):
        listed = AllocationList()
        made = [listed.add(_allocate(4096 * number, 64)) for number in range(1, count + 1)]

        def free(listed: AllocationList = listed, made: list[AllocationObject] = made) -> None:
            for one in made[:-1]:
                listed.remove(one.base)

        assert listed.find(_Interrupted(made[-1].base + 8, free)) is made[-1]
        assert len(listed) == 1 and listed.find(made[0].base) is None
