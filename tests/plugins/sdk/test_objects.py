"""The registry: which handle is which object, for how long, and how many references it has.

The list of allocations that adapters find addresses in.
"""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from helpers.entry_points import TABLE, make
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from fairlead.conformance.threads import in_threads
from fairlead.loader.ur.abi import URError
from fairlead.plugins import Object
from fairlead.plugins.sdk import objects
from fairlead.plugins.sdk._native import ffi, lib
from fairlead.plugins.sdk.objects import Registry
from fairlead.plugins.sdk.usm import AllocationList, AllocationObject, MemoryRequest


class Counted(Object):
    """Counts how often it is closed."""

    type = "ur_queue_handle_t"

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log = [] if log is None else log

    def close(self) -> None:
        self.log.append(id(self))

    def __len__(self) -> int:
        return 0  # what is false is an object all the same


class Fixed(Object):
    type, counted = "ur_platform_handle_t", False


@pytest.fixture
def registry() -> Registry:
    return Registry(TABLE)


def live(registry: Registry) -> dict[int, Any]:
    return registry.list_owned("ur_queue_handle_t")


def test_the_first_word_of_a_handle_is_the_table_and_the_second_its_number(
    registry: Registry,
) -> None:
    handles = [registry.give(Counted()) for _ in range(3000)]
    assert len(set(handles)) == 3000
    words = [
        (ffi.cast("uintptr_t *", handle)[0], ffi.cast("uintptr_t *", handle)[1])
        for handle in handles
    ]
    assert {first for first, _ in words} == {TABLE}
    assert [number for _, number in words] == list(range(1, 3001))


def test_an_object_lives_as_long_as_it_has_references(registry: Registry) -> None:
    thing = Counted()
    handle = registry.give(thing)
    registry.retain(thing)
    assert registry.give(thing) == handle and thing.references == 3
    assert [registry.release(thing) for _ in range(3)] == [False, False, True]
    assert (thing.handle, thing.references, live(registry), thing.log) == (0, 0, {}, [])
    log = thing.log
    del thing
    assert len(log) == 1


def test_what_uses_an_object_keeps_it_open(registry: Registry) -> None:
    log: list[Any] = []
    user, thing = Counted(), Counted(log)
    user.thing = thing  # pyright: ignore[reportAttributeAccessIssue]
    registry.give(thing)
    registry.release(thing)
    del thing
    assert not log
    del user
    assert len(log) == 1


def test_one_release_too_many_changes_nothing(registry: Registry) -> None:
    thing, other = Counted(), Counted()
    registry.give(thing)
    assert registry.release(thing)
    assert not registry.release(thing)
    handle = registry.show(other)
    assert not registry.release(other)
    assert (thing.references, other.references, other.handle) == (0, 0, handle)


def test_what_is_not_counted_stays(registry: Registry) -> None:
    thing = Fixed()
    handle = registry.show(thing)
    assert registry.give(thing) == handle
    registry.retain(thing)
    assert not registry.release(thing)
    assert thing.references == 1
    del thing
    assert handle in registry.list_owned("ur_platform_handle_t")


def test_a_lent_handle_lives_as_long_as_its_object(registry: Registry) -> None:
    thing = Counted()
    handle = registry.show(thing)
    assert registry.show(thing) == handle and thing.references == 0
    assert registry.find_lent("ur_queue_handle_t", handle) is thing
    assert registry.find_lent("ur_event_handle_t", handle) is None
    assert live(registry) == {}
    del thing
    assert registry.find_lent("ur_queue_handle_t", handle) is None


def test_what_is_being_closed_is_not_lent_any_more(registry: Registry) -> None:
    found = []

    class Looking(Counted):
        def close(self) -> None:
            found.append(registry.find_lent(self.type, self.handle))

    assert registry.show(Looking())
    assert found == [None]


def test_a_handle_that_ended_with_its_object_is_not_given_up_again(registry: Registry) -> None:
    """In a cycle, weak references end before anything is closed; and what is closed may forget its
    parts."""

    class Whole(Counted):
        def close(self) -> None:
            registry.forget(self.log[0])

    part = Counted()
    part.log.append(Whole([part]))
    handle = registry.show(part)
    del part
    gc.collect()
    assert list(registry._quarantined) == [handle]


def test_a_lent_object_that_is_retained_is_owned(registry: Registry) -> None:
    thing = Counted()
    handle = registry.show(thing)
    registry.retain(thing)
    assert (thing.references, thing.handle, live(registry)) == (1, handle, {handle: thing})
    assert registry.find_lent("ur_queue_handle_t", handle) is None
    assert registry.release(thing)
    assert registry.show(thing) != handle


def test_forgetting_ends_every_kind_of_handle(registry: Registry) -> None:
    things = [Counted(), Counted(), Fixed(), Counted()]
    registry.give(things[0])
    registry.give(things[0])
    registry.show(things[1])
    registry.give(things[2])
    handles = [thing.handle for thing in things]
    for thing in things:
        registry.forget(thing)
    assert [(thing.handle, thing.references) for thing in things] == [(0, 0)] * 4
    for thing, handle in zip(things, handles, strict=True):
        assert (
            handle not in registry.list_owned(thing.type)
            and registry.find_lent(thing.type, handle) is None
        )


def test_closing_closes_queues_first_and_of_a_kind_the_youngest(registry: Registry) -> None:
    log: list[Any] = []
    failed: list[Exception] = []

    class Bad(Counted):
        type = "ur_event_handle_t"

        def close(self) -> None:
            super().close()
            raise OSError("it will not")

    things = [Counted(log), Bad(log), Counted(log), Counted(log)]
    for thing in things[:3]:
        registry.give(thing)
    registry.show(things[3])
    registry.close(failed.append)
    assert log == [id(things[place]) for place in (3, 2, 0, 1)]
    assert [str(error) for error in failed] == ["it will not"]
    assert not live(registry) and all(thing.handle == 0 for thing in things)
    registry.close(failed.append)
    assert len(log) == 4


def test_closing_leaves_native_handles_to_the_program_that_gave_them(registry: Registry) -> None:
    given, own, released = Counted(), Counted(), Counted()
    for thing in (given, own, released):
        registry.give(thing)
    given.given = released.given = True
    registry.release(released)
    registry.close(lambda error: pytest.fail(str(error)))
    assert [thing.owned for thing in (given, own, released)] == [False, True, True]


def test_commands_that_never_end_keep_what_they_may_use_for_good(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    failed: list[Exception] = []
    monkeypatch.setattr(objects, "_PATIENCE", 0.0)

    class Context(Counted):
        type = "ur_context_handle_t"

    class Memory(Counted):
        type = "ur_mem_handle_t"

    def fail() -> None:
        raise OSError("it will not")

    things = [Context(log), Counted(log), Memory(log)]
    assert all(registry.give(thing) for thing in things)
    seen = weakref.ref(things[2])
    registry.close(failed.append, [lambda: True, fail])
    assert log == [id(things[1])] and [str(error) for error in failed] == ["it will not"]
    assert not live(registry)
    things.clear()
    assert seen() is not None and len(log) == 1


def test_a_function_that_fails_keeps_no_context(registry: Registry) -> None:
    log: list[Any] = []
    failed: list[Exception] = []

    class Context(Counted):
        type = "ur_context_handle_t"

    def fail() -> None:
        raise OSError("it will not")

    registry.give(Context(log))
    registry.close(failed.append, [fail])
    assert len(log) == 1 and [str(error) for error in failed] == ["it will not"] * 2


def test_an_address_comes_again_after_a_long_time_only(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_QUARANTINE", 3000)
    seen = []
    for _ in range(10_000):
        thing = Counted()
        seen.append(registry.give(thing))
        registry.release(thing)
    distances: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, handle in enumerate(seen):
        if handle in last:
            distances[handle] = min(distances.get(handle, index), index - last[handle])
        last[handle] = index
    assert distances and min(distances.values()) > 3000
    assert len(last) < 3000 + 2 * 1024  # a block more than there has to be


def test_handles_of_several_registries_are_different() -> None:
    first, second = Registry(TABLE), Registry(TABLE)
    assert not {first.give(Counted()) for _ in range(100)} & {
        second.give(Counted()) for _ in range(100)
    }


def test_no_memory_is_an_error_that_changes_nothing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def fl_block(self, table: int) -> int:
            return 0

    thing = Counted()
    monkeypatch.setattr(objects, "lib", Full())
    with pytest.raises(MemoryError):
        registry.give(thing)
    assert (thing.handle, thing.references) == (0, 0)
    monkeypatch.undo()
    assert registry.give(thing) == thing.handle != 0


def test_thousands_of_threads_lose_no_reference(registry: Registry) -> None:
    thing = Counted()
    registry.give(thing)
    own = []

    def work(_: int) -> None:
        mine = Counted()
        for _ in range(3):
            registry.retain(thing)
            registry.give(mine)
            registry.show(mine)
        for _ in range(3):
            registry.release(thing)
            own.append(registry.release(mine))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            in_threads(100, work)
    finally:
        sys.setswitchinterval(interval)
    assert thing.references == 1 and live(registry) == {thing.handle: thing}
    assert (own.count(True), own.count(False)) == (2000, 4000)


def test_memory_is_flat(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_QUARANTINE", 1000)
    process = psutil.Process()

    def rounds(count: int) -> None:
        for _ in range(count):
            owned, lent = Counted(), Counted()
            registry.give(owned)
            registry.show(lent)
            registry.release(owned)

    rounds(5000)
    gc.collect()
    before = process.memory_info().rss
    rounds(50_000)
    gc.collect()
    assert process.memory_info().rss - before < 1 << 20
    assert len(registry._free) + len(registry._quarantined) < 4 * 1024


class Model(RuleBasedStateMachine):
    """Any sequence of what can be done with objects, beside a model that only counts."""

    things = Bundle("things")

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(TABLE)
        self.counts: dict[int, int] = {}
        self.alive: dict[int, Object] = {}

    @rule(
        target=things,
        type_name=st.sampled_from(["ur_queue_handle_t", "ur_event_handle_t", "ur_mem_handle_t"]),
    )
    def new(self, type_name: str) -> Object:
        thing = make(type_name)
        self.alive[id(thing)] = thing
        self.counts[id(thing)] = 0
        return thing

    @rule(thing=things)
    def give(self, thing: Object) -> None:
        assert self.registry.give(thing) == thing.handle
        self.counts[id(thing)] += 1

    @rule(thing=things)
    def retain(self, thing: Object) -> None:
        self.registry.retain(thing)
        self.counts[id(thing)] += 1

    @rule(thing=things)
    def show(self, thing: Object) -> None:
        assert self.registry.show(thing) == thing.handle != 0

    @rule(thing=things)
    def release(self, thing: Object) -> None:
        before, handle = self.counts[id(thing)], thing.handle
        assert self.registry.release(thing) == (before == 1)
        self.counts[id(thing)] = max(before - 1, 0)
        assert thing.handle == (0 if before == 1 else handle)

    @rule(thing=things)
    def forget(self, thing: Object) -> None:
        self.registry.forget(thing)
        self.counts[id(thing)] = 0

    @rule(thing=consumes(things))
    def drop(self, thing: Object) -> None:
        if not self.counts[id(thing)]:
            del self.alive[id(thing)], self.counts[id(thing)]

    @invariant()
    def the_registry_knows_what_the_model_knows(self) -> None:
        handles = [thing.handle for thing in self.alive.values() if thing.handle]
        assert len(set(handles)) == len(handles)
        for key, thing in self.alive.items():
            assert thing.references == self.counts[key]
            owned = self.registry.list_owned(thing.type).get(thing.handle)
            lent = self.registry.find_lent(thing.type, thing.handle)
            assert (owned is thing) == (thing.references > 0)
            assert (lent is thing) == (thing.handle != 0 and not thing.references)
            assert ffi.cast("uintptr_t *", thing.handle)[0] == TABLE if thing.handle else True


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=100, stateful_step_count=40)


def test_kinds_that_are_asked_for_while_a_handle_is_looked_for_change_nothing(
    registry: Registry,
) -> None:
    """Entry points are compiled in any thread, and ask for the objects of their kinds."""

    class Asking(dict[int, Any]):
        def __contains__(self, handle: object) -> bool:
            for kind in ("ur_event_handle_t", "ur_mem_handle_t"):
                registry.list_owned(kind)
            return super().__contains__(handle)

    registry._owned["ur_adapter_handle_t"] = Asking()
    handle = registry.give(thing := Counted())
    registry.remove_released(handle)
    assert not thing.handle and handle not in live(registry)


def test_a_handle_of_c_keeps_its_references_if_its_object_cannot_be_made() -> None:
    registry = Registry(TABLE, 15)
    handle = lib.fl_block(TABLE)
    lib.fl_begin(handle, 1, 15, lib.kind_ur_event_handle_t, 1)
    ffi.cast("fl_handle *", handle).of_c = True  # as fl_begin_made does
    registry.adopters["ur_event_handle_t"] = fail = Mock(side_effect=MemoryError)
    for _ in range(2):
        with pytest.raises(MemoryError):
            registry.adopt("ur_event_handle_t", handle)
        assert lib.fl_references(handle) == 1
    assert fail.call_count == 2
    lib.fl_end(handle)


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
