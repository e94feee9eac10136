"""What a trace says about devices: every command is noted once, and its event released."""

from __future__ import annotations

import pytest
from helpers.support import RunPython

pytestmark = pytest.mark.slow

#: A driver whose event 0xE0 is that of every command. `released` has what was released with it.
PRELUDE = """
import ctypes
from fairlead.icd import tables
from fairlead.icd.abi import OPENCL
from fairlead.loader.base import layers
from fairlead.loader.base._native import lib
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.trace.trace import Trace, trace

class Driver:
    def __init__(self):
        self.released, self.kept, self.status = [], {}, 0
        slots = layers.make_stubs(OPENCL, "unsupported")
        for name in ("clEnqueueMapBuffer", "clEnqueueMarkerWithWaitList", "clGetEventInfo",
                     "clGetEventProfilingInfo", "clReleaseEvent"):
            function = OPENCL.functions[name]
            body = self.kept[name] = function.prototype(getattr(self, name))
            slots[function.slot] = ctypes.cast(body, ctypes.c_void_p).value
        self.slots = (ctypes.c_void_p * len(slots))(*slots)
        self.table = DispatchTable(OPENCL, ctypes.addressof(self.slots), "driver")
    def clEnqueueMapBuffer(self, *arguments):
        if not arguments[1]:  # no memory object
            return None
        ctypes.c_void_p.from_address(arguments[8]).value = 0xE0
        return 0x1234
    def clEnqueueMarkerWithWaitList(self, queue, count, waits, event):
        ctypes.c_void_p.from_address(event).value = 0xE0
        return 0
    def clGetEventInfo(self, event, name, size, value, size_ret):
        ctypes.c_int32.from_address(value).value = self.status
        return 0
    def clGetEventProfilingInfo(self, event, name, size, value, size_ret):
        ctypes.c_uint64.from_address(value).value = 5
        return 0
    def clReleaseEvent(self, event):
        self.released.append(event)
        return 0
"""


def test_a_map_is_a_command(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + """
driver = Driver()
with trace(("cl",), device=True) as found:
    for memory in (1, 0):
        driver.table.clEnqueueMapBuffer(2, memory, 1, 1, 0, 8, 0, None, None, None)
assert [one.function for one in found.commands] == ["clEnqueueMapBuffer"]
assert driver.released == [0xE0]
"""
    )


def test_a_command_that_ends_after_the_trace_is_its_drivers(run_python: RunPython) -> None:
    """The layer serves another driver by then, and another trace."""
    run_python(
        PRELUDE
        + """
first = Driver()
first.status = 3
with trace(("cl",), device=True):
    first.table.clEnqueueMarkerWithWaitList(2, 0, None, None)
first.status = 0
others = [Driver() for _ in range(16)]
del first.table
with trace(("cl",), device=True) as found:
    for other in others:
        other.table.clFinish(1)
assert first.released == [0xE0] and not any(other.released for other in others)
assert found.commands == []
"""
    )
