"""Native handles that a program gave to objects, which it leaves to its end."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

from fairlead import plugins

CODE = """
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
world.close()
print("end")
"""
OWN = {"opencl": plugins.reference_adapter, "level_zero": plugins.level_zero_adapter}


@pytest.mark.parametrize("backend", OWN)
def test_a_handle_that_two_objects_own_is_released_once(
    backend: str, each_driver: Driver, run_python: RunPython
) -> None:
    """Each object is released, after another one got its native handle, which the program leaves.

    PoCL ends a process that releases a sampler twice.
    """
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    left_out = ["urSampler"] if backend == "level_zero" else []  # which has no such function
    done = run_python(CODE, str(OWN[backend]()), backend, *left_out, env=env, fresh=True)
    assert (done.out, done.err) == ("end\n", "")
