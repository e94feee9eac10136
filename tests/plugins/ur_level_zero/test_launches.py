"""What the adapter on Level Zero says of launches."""

from __future__ import annotations

import ctypes

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.plugins.ur_level_zero.devices import LZDevice


def test_local_memory_limits_how_many_groups_run_at_the_same_time(
    make: URObjects, program: int, calls: URCalls, behind: LZDevice
) -> None:
    """Level Zero does not ask for the bytes that a launch adds."""
    count, local = ctypes.c_uint32(), (ctypes.c_size_t * 3)(1, 1, 1)
    kernel, room = make.kernel(program), behind.compute.maxSharedLocalMemory

    def ask(dynamic: int) -> int:
        routine = "urKernelSuggestMaxCooperativeGroupCount"
        calls.ok(routine, kernel, make.device, 1, local, dynamic, ctypes.byref(count))
        return count.value

    assert ask(0) >= 1
    assert 1 <= ask(room // 2) <= ask(0)
    assert ask(room + 1) == 0
