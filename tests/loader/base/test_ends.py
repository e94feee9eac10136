"""The order in which everything ends when Python ends."""

from __future__ import annotations

import pytest
from helpers.support import RunPython

from fairlead.loader.base.ends import ORDER

#: Each place gets two functions, the last place first.
PLACES = """
import atexit, tempfile, weakref
atexit.register(print, "registered before")
from fairlead.loader.base import ends

def make(text):
    def function():
        print(text)
        if text == "adapters 1":
            raise ValueError("the others are called all the same")
    return function

for place in reversed(ends.ORDER):
    for number in (1, 2):
        ends.call_at_end(place)(make(f"{place} {number}"))
thing = make("a thing")
weakref.finalize(thing, print, "a finalizer of others")
released = make("another")
ends.call_at_end("tables")(lambda: globals().pop("released"))
weakref.finalize(released, print, "what has a finalizer is released").atexit = False
atexit.register(print, "registered later")
"""


def test_places_come_in_their_order_whenever_they_were_declared(run_python: RunPython) -> None:
    done = run_python(PLACES, fresh=True)
    places = [f"{place} {number}" for place in ORDER for number in (2, 1)]
    places.insert(places.index("tables 2"), "what has a finalizer is released")
    assert done.out.splitlines() == [
        "registered later",
        "a finalizer of others",
        *places,
        "registered before",
    ]
    assert done.err.endswith("ValueError: the others are called all the same\n")


#: What fairlead declares, by the module, in the order in which it is called.
EXPECTED = """
submissions fairlead.icd.command_buffer.background
submissions fairlead.runtime.context
loaders fairlead.loader.ur.plugin
pi fairlead.plugins.sdk.pi
adapters fairlead.plugins.sdk.start
level_zero fairlead.plugins.sdk.ze.start
layers fairlead.plugins.command_buffer_layer.start
queues fairlead.icd.command_buffer.queue_release
memory fairlead.captured_graphs.segment
memory fairlead.icd.command_buffer.lifetimes
tables fairlead.icd.command_buffer.engines.cuda
tables fairlead.loader.base.layers
"""
MODULES = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from fairlead.loader.base import ends
for place, functions in ends._functions.items():
    functions[:] = [lambda p=place, f=one: print(p, f.__module__) for one in functions]
"""


@pytest.mark.parametrize("step", [1, -1])
def test_releases_come_in_one_order_whatever_was_imported_first(
    run_python: RunPython, step: int
) -> None:
    expected = EXPECTED.strip().splitlines()
    modules = [line.split()[1] for line in expected]
    called = run_python(MODULES, *modules[::step], fresh=True).out.splitlines()
    assert {*called} == {*expected}
    places = [line.split()[0] for line in called]
    assert places == sorted(places, key=ORDER.index)
