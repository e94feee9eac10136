"""A program that gives native handles to objects and leaves these to its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from helpers.support import RunPython

#: Each object is released, after another one got its native handle, which the program leaves.
_CODE: Final = """
import ctypes, sys
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.test_native_handles import WAYS, query_native
from fairlead.conformance.ur.world import World
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate

plugin = load(PluginCandidate(sys.argv[1], "test", backend=sys.argv[2]))
device = plugin.devices[0]
calls = URCalls(plugin, device.handle)
world = World(calls, plugin.handles[0], device.platform.handle, device.handle)
for way in WAYS:
    if way.release and way.stem not in sys.argv[3:]:
        native = query_native(calls, world, way)
        how = calls.struct(f"ur_{way.properties}_native_properties_t", isNativeHandleOwned=True)
        calls.new(way.create, native, *way.given(world), ctypes.byref(how))
        print(way.stem, native)
world.close()
"""
_CALL: Final = re.compile(r"<--- \w+(Retain|Release|Destroy|Free|Unload)\w*\((.*)\) -> (\w+)")
#: Makes an event, perhaps with the handle of one that is gone. It is another object.
_MAKES_EVENT: Final = re.compile(r"<--- cl(?:Enqueue|CreateUserEvent)\w*.*")
_NUMBER: Final = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")


def count_releases(
    run_python: RunPython,
    library: str,
    backend: str,
    api: str,
    left_out: Collection[str] = (),
    env: Mapping[str, str] = {},
) -> dict[str, int]:
    """Run the program with a trace of the driver.

    Args:
        library: the adapter.
        backend: what it says that it drives.
        api: the driver's, as FAIRLEAD_TRACE calls it.
        left_out: the objects that the adapter does not make of native handles, such as "urSampler".
        env: more variables of the program.

    Returns:
        How often each handle was released or destroyed to the end, less how often it was retained.

    Raises:
        AssertionError: the driver refused one, or something else was printed.
    """
    only = "*Retain*,*Release*,*Destroy*,*Free*,*Unload*,clEnqueue*,clCreateUserEvent"
    env = {**env, "FAIRLEAD_TRACE": api, "FAIRLEAD_TRACE_ONLY": only}
    done = run_python(_CODE, library, backend, *left_out, env=env, fresh=True)
    counts: Counter[int] = Counter()
    made_again = set[int]()
    for line in done.err.splitlines():
        if line.startswith("---> "):
            continue
        if _MAKES_EVENT.match(line):
            made_again |= {int(one, 0) for one in _NUMBER.findall(line)} & (+counts).keys()
            continue
        called = _CALL.fullmatch(line.rstrip(";"))
        assert called is not None, done.err
        assert called[3].upper().endswith("SUCCESS"), line
        handle = int(re.findall(r"= (0x[0-9a-f]+|\d+)", called[2])[-1], 0)  # the last argument
        if handle not in made_again:
            counts[handle] += -1 if called[1] == "Retain" else 1
    natives = dict(line.split() for line in done.out.splitlines())
    return {stem: counts[int(native)] for stem, native in natives.items()}
