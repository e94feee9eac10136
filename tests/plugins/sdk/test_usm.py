"""The list of allocations that adapters find addresses in."""

from __future__ import annotations

import random

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
