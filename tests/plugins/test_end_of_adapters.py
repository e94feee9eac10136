"""The ends of an adapter and of the driver below it, in one process.

Native handles that a program gave to objects, which it leaves to its end.
"""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.given_handles import count_releases
from helpers.support import RunPython

from fairlead import plugins

#: A program that leaves everything to its end, an enqueued command, too.
CODE = """
import ctypes, sys
from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.values import BufferValue
from fairlead.conformance.ur.world import World
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.plugins.sdk import objects

plugin = load(PluginCandidate(sys.argv[1], "test", backend="level_zero"))
device = plugin.devices[0]
calls = URCalls(plugin, device.handle)
world = World(calls, plugin.handles[0], device.platform.handle, device.handle)
kernel = world.kernel()
if "never ends" in sys.argv:
    from fairlead.plugins.ur_level_zero.core import adapter
    context = adapter.objects.list_owned("ur_context_handle_t")[world.the_context]
    cell = context.take_cell()  # nothing signals it
    event = calls.new("urEventCreateWithNativeHandle", cell.ze, world.the_context, None)
    wait = world.the_queue, 1, handles(event), None
    calls.ok("urEnqueueEventsWaitWithBarrier", *wait)
else:
    objects._PATIENCE = 600.0  # seconds; a busy machine needs more than one for the command
world.launch(world.the_queue, kernel, BufferValue(world.the_buffer), ints([9]))
print("begins to end", file=sys.stderr, flush=True)
"""


def end(run_python: RunPython, driver: Driver, *arguments: str) -> list[str]:
    """Return the functions of Level Zero that are called when the program has come to its end.

    Raises:
        AssertionError: one answers that the driver has ended, or the program crashes.
    """
    env = {"OCL_ICD_FILENAMES": driver.library, "OCL_ICD_VENDORS": driver.library}
    given = str(plugins.level_zero_adapter()), *arguments
    done = run_python(CODE, *given, env={**env, "FAIRLEAD_TRACE": "ze"}, fresh=True)
    lines = done.err.partition("begins to end\n")[2].splitlines()
    assert lines and not [line for line in lines if "UNINITIALIZED" in line]
    return [line.removeprefix("---> ") for line in lines if line.startswith("---> ")]


def test_an_adapter_ends_before_the_level_zero_driver_below_it(
    each_driver: Driver, run_python: RunPython
) -> None:
    called = end(run_python, each_driver)
    queue, memory, module, context = (
        called.index(f"ze{name}")
        for name in ("CommandListDestroy", "MemFree", "ModuleDestroy", "ContextDestroy")
    )
    assert queue < memory < context == len(called) - 1 and module < context


def test_what_a_command_may_use_is_left_if_it_never_ends(
    each_driver: Driver, run_python: RunPython
) -> None:
    called = end(run_python, each_driver, "never ends")
    assert not {"zeMemFree", "zeModuleDestroy", "zeKernelDestroy", "zeContextDestroy"} & {*called}


OWN = {
    "opencl": (plugins.reference_adapter, "cl", ()),
    "level_zero": (plugins.level_zero_adapter, "ze", ("urSampler",)),  # it has no such function
}


@pytest.mark.parametrize("backend", OWN)
def test_a_handle_that_two_objects_own_is_released_once(
    backend: str, each_driver: Driver, run_python: RunPython
) -> None:
    """PoCL ends a process that releases a sampler twice."""
    library, api, left_out = OWN[backend]
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    counts = count_releases(run_python, str(library()), backend, api, left_out, env)
    assert counts.pop("urDevice") == 0  # a root device
    assert counts == dict.fromkeys(counts, 1)
