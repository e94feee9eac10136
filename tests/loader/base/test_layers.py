"""Layers: calls pass unchanged, Python can answer and watch them, and they survive Python's end.

A process can have 16 layers of an API, so the tests share one in front of one table. Those that
take more run in a child process.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.support import RunPython
from hypothesis import given
from hypothesis import strategies as st

from fairlead.conformance.threads import in_threads
from fairlead.loader.base import layers
from fairlead.loader.base.layers import Layer, Log
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.abi import UR

CODES = {name: code for code, (name, _) in UR.errors.items()}
GET_INFO = UR.functions["urDeviceGetInfo"]
HEAD = 6  # words of a record before its arguments


class Adapter:
    """A table with one function, urDeviceGetInfo, which writes 42 and returns 7 or another code.

    `seen` are its calls' arguments.
    """

    def __init__(self, answer: int = 7) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.answer = answer
        address, slots = layers.make_table(UR)
        self._function = GET_INFO.prototype(self._get_info)
        slots[GET_INFO.slot] = ctypes.cast(self._function, ctypes.c_void_p).value
        self.table = DispatchTable(UR, address, label="adapter")

    def _get_info(self, *arguments: Any) -> int:
        self.seen.append(arguments)
        if arguments[3]:
            ctypes.c_uint32.from_address(arguments[3]).value = 42
        return self.answer


ADAPTER = Adapter()


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    ADAPTER.seen.clear()
    yield ADAPTER
    assert ADAPTER.table.layers == ()


@pytest.fixture
def layer(adapter: Adapter) -> Iterator[Layer]:
    """A layer in front of the adapter's table; `adapter.table` calls go through it."""
    found = Layer(UR, adapter.table.address)
    adapter.table.push(found)
    yield found
    adapter.table.remove(found)
    found.release()


def ask(adapter: Adapter, device: int = 0xD0, name: int = 3, value: Any = None) -> int:
    return adapter.table.urDeviceGetInfo(device, name, 4, value, None)


def test_new_tables_are_full_of_stubs() -> None:
    for api in (UR, PI):
        address, slots = layers.make_table(api)
        assert list(slots) == layers.make_stubs(api, "unsupported") and len(slots) == len(api.slots)
        assert address == ctypes.addressof(slots)
        assert not set(layers.make_stubs(api, "unsupported")) & set(
            layers.make_stubs(api, "uninitialized")
        )


def test_stubs_answer_their_code() -> None:
    for name, code in (("unsupported", "UNSUPPORTED_FEATURE"), ("uninitialized", "UNINITIALIZED")):
        for api, prefix in ((UR, "UR_RESULT_ERROR_"), (PI, "PI_ERROR_")):
            wanted = next(
                value for value, (symbol, _) in api.errors.items() if symbol == prefix + code
            )
            for address in layers.make_stubs(api, name):
                assert ctypes.CFUNCTYPE(ctypes.c_int32)(address)() == wanted


def test_a_layer_without_handlers_forwards(adapter: Adapter, layer: Layer) -> None:
    value = ctypes.c_uint32()
    assert ask(adapter, value=ctypes.byref(value)) == 7
    assert value.value == 42 and adapter.seen[0][:3] == (0xD0, 3, 4)
    assert adapter.table.urQueueFinish(1) == CODES["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"]


def test_a_number_answers_the_call_and_none_forwards_it(adapter: Adapter, layer: Layer) -> None:
    layer.handle(before=lambda slot, arguments: 99 if arguments[1] == 5 else None)
    assert ask(adapter, name=5) == 99 and adapter.seen == []
    assert ask(adapter, name=6) == 7 and len(adapter.seen) == 1
    layer.handle(before=lambda slot, arguments: -59)
    assert ask(adapter) == -59, "a negative code comes back as one"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1))
def test_arguments_and_results_come_through_as_they_are(
    device: int, name: int, result: int
) -> None:
    seen: list[Any] = []
    layer = Layer(UR, ADAPTER.table.address)
    ADAPTER.table.push(layer)
    try:
        layer.handle(before=lambda slot, arguments: seen.append((slot, *arguments)) or result)
        assert ask(ADAPTER, device, name) == result
        layer.handle(after=lambda slot, arguments, code: seen.append((slot, *arguments, code)))
        assert ask(ADAPTER, device, name) == 7
    finally:
        ADAPTER.table.remove(layer)
        layer.release()
    words = (GET_INFO.slot, device, name, 4, 0, 0)
    assert seen == [words, (*words, 7)]
    assert (ADAPTER.seen[-1][0] or 0, ADAPTER.seen[-1][1]) == (device, name)


def test_after_sees_what_the_call_wrote(adapter: Adapter, layer: Layer) -> None:
    seen: list[int] = []
    layer.handle(
        after=lambda slot, arguments, code: seen.append(
            ctypes.c_uint32.from_address(arguments[3]).value
        )
    )
    value = ctypes.c_uint32()
    ask(adapter, value=ctypes.byref(value))
    assert seen == [42]


def test_after_is_not_told_of_a_call_that_was_answered(adapter: Adapter, layer: Layer) -> None:
    seen: list[int] = []
    layer.handle(lambda slot, arguments: 1, lambda slot, arguments, code: seen.append(code))
    assert ask(adapter) == 1 and seen == []


def test_an_exception_in_a_handler_is_printed_and_the_call_forwarded(
    adapter: Adapter, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda report: printed.append(repr(report.exc_value))
    )

    def fail(*_: Any) -> int:
        raise ValueError("of the handler")

    layer.handle(fail, fail)
    assert ask(adapter) == 7 and len(adapter.seen) == 1
    assert printed == ["ValueError('of the handler')"] * 2


def test_a_handler_may_call_through_the_layer_itself(adapter: Adapter, layer: Layer) -> None:
    layer.handle(
        before=lambda slot, arguments: ask(adapter, name=6) + 1 if arguments[1] == 5 else None
    )
    assert ask(adapter, name=5) == 8


def test_handlers_run_on_the_calling_thread(adapter: Adapter, layer: Layer) -> None:
    seen: list[tuple[int, int]] = []
    layer.handle(before=lambda slot, arguments: seen.append((arguments[1], threading.get_ident())))
    own: dict[int, int] = {}

    def call(number: int) -> None:
        own[number] = threading.get_ident()
        for _ in range(50):
            ask(adapter, name=number)

    in_threads(4, call)
    assert len(seen) == 200 and all(own[number] == thread for number, thread in seen)


def test_a_layer_that_was_given_back_forwards_and_is_used_again(adapter: Adapter) -> None:
    first = Layer(UR, adapter.table.address)
    first.handle(before=lambda slot, arguments: 99)
    function = GET_INFO.prototype(
        ctypes.c_void_p.from_address(first.address + (GET_INFO.slot or 0) * 8).value
    )
    assert function(1, 2, 4, None, None) == 99
    first.release()
    assert function(1, 2, 4, None, None) == 7, "who still holds its table gets the adapter"
    again = Layer(UR, adapter.table.address)
    assert again.address == first.address
    first.release()  # a second time: it is not its own any more
    again.handle(before=lambda slot, arguments: 98)
    assert function(1, 2, 4, None, None) == 98
    again.release()


def test_a_layer_leads_to_the_table_that_it_was_taken_for_however_often_it_was_used_before() -> (
    None
):
    for number in range(40):  # more than there are layers
        adapter = Adapter(answer=number)
        layer = Layer(UR, adapter.table.address)
        function = GET_INFO.prototype(
            ctypes.c_void_p.from_address(layer.address + (GET_INFO.slot or 0) * 8).value
        )
        assert function(1, 2, 4, None, None) == number
        layer.release()


def test_layers_that_come_and_go_in_any_order_lead_to_the_table(adapter: Adapter) -> None:
    """Traces that overlap: each begins before the one before it has ended."""
    behind = Layer(UR, adapter.table.top)
    adapter.table.push(behind)
    for _ in range(40):  # more than there are layers
        front = Layer(UR, adapter.table.top)
        adapter.table.push(front)
        adapter.table.remove(behind)
        behind.release()
        others = [Layer(UR, 0, orphan=5) for _ in range(3)]
        assert adapter.table.urDeviceGetInfo(1, 2, 4, None, None) == 7
        for other in others:
            other.release()
        behind = front
    adapter.table.remove(behind)
    behind.release()


def test_a_layer_that_was_given_back_forgets_its_handlers(adapter: Adapter) -> None:
    class Handler:
        def __call__(self, *arguments: Any) -> None:
            pass

    layer, handler = Layer(UR, adapter.table.address), Handler()
    layer.handle(handler, handler)
    alive = weakref.ref(handler)
    del handler
    layer.release()
    assert alive() is None


def test_two_layers_see_each_call_in_order(adapter: Adapter, layer: Layer) -> None:
    seen: list[str] = []
    front = Layer(UR, adapter.table.top)
    adapter.table.push(front)
    for name, one in (("back", layer), ("front", front)):
        one.handle(
            lambda slot, arguments, name=name: seen.append(name),
            lambda slot, arguments, code, name=name: seen.append(f"{name} again"),
        )
    assert ask(adapter) == 7
    assert seen == ["front", "back", "back again", "front again"]
    adapter.table.remove(front)
    front.release()


def test_a_log_has_what_the_calls_were(adapter: Adapter, layer: Layer) -> None:
    log, value = Log(), ctypes.c_uint32()
    layer.log(log)
    ask(adapter, value=ctypes.byref(value))
    layer.log(None)
    ask(adapter)
    words = log.copy_words()
    assert (words[0] & 0xFFFFFFFF, words[0] >> 32) == (len(words), GET_INFO.slot)
    assert words[1] & 0xFFFF == 5 and words[3] <= words[4] and words[5] == 7
    assert list(words[HEAD : HEAD + 5]) == [0xD0, 3, 4, ctypes.addressof(value), 0]
    assert log.lost == 0
    log.clear()
    assert len(log.copy_words()) == 0


def test_a_full_log_counts_what_it_lost(adapter: Adapter, layer: Layer) -> None:
    log = Log(limit=200)
    layer.log(log)
    for _ in range(10):
        assert ask(adapter) == 7
    layer.log(None)
    words = log.copy_words()
    kept = len(words) // (words[0] & 0xFFFFFFFF)
    assert 0 < kept < 10 and kept + log.lost == 10


def test_when_all_layers_are_taken_the_error_says_so(run_python: RunPython) -> None:
    code = """
from fairlead.loader.base import layers
from fairlead.loader.ur.abi import UR
address, _ = layers.make_table(UR)
taken = []
try:
    while len(taken) < 100:
        taken.append(layers.Layer(UR, address))
except Exception as error:
    print(len(taken), type(error).__name__, error)
"""
    out = run_python(code).out
    assert (
        out.startswith("16 FairleadError all ") and "layers are in use" in out and "remedy: " in out
    )


def test_a_layer_with_nothing_behind_it_answers_its_orphan(run_python: RunPython) -> None:
    code = """
from fairlead.loader.base import layers
from fairlead.loader.pi.abi import PI
from fairlead.loader.base.table import DispatchTable
layer = layers.Layer(PI, 0, orphan=-999)
table = DispatchTable(PI, layer.address)
print(table.piQueueFinish(1))
layer.handle(before=lambda slot, arguments: slot)
print(table.piQueueFinish(1) == PI.functions["piQueueFinish"].slot)
layer.release()
print(table.piQueueFinish(1))
"""
    assert run_python(code).out.split() == ["-999", "True", "-999"]


def test_calls_after_the_end_of_python_are_forwarded(run_python: RunPython) -> None:
    """A C thread, or an exit handler, may hold a layer's table for longer than Python lives."""
    code = """
import ctypes
from fairlead.loader.base import layers
from fairlead.loader.ur.abi import UR
address, _ = layers.make_table(UR)
layer = layers.Layer(UR, address)
layer.handle(before=lambda slot, arguments: print("asked", flush=True) or 1)
libc = ctypes.CDLL(None)
libc.__cxa_atexit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
slot = UR.functions["urQueueFinish"].slot
function = ctypes.c_void_p.from_address(layer.address + slot * 8).value
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)(None))
assert libc.__cxa_atexit(function, None, None) == 0
"""
    assert run_python(code).out.split() == ["asked", "1"]
