"""A completion says that its command has failed."""

from __future__ import annotations

import pyopencl as cl
import pytest

import fairlead
from fairlead.icd.calls import call, find_device_profile
from fairlead.loader.ze.abi import LevelZeroError
from fairlead.plugins.level_zero.completions import Completion


@pytest.mark.parametrize("waits", [False, True])
def test_a_command_behind_a_failed_event_has_failed(waits: bool) -> None:
    """Intel's driver says that such a command is complete. The completion does not."""
    for device in fairlead.devices():
        own = device.to_pyopencl()
        profile = find_device_profile(own.int_ptr)
        context = cl.Context([own])
        queue, gate = cl.CommandQueue(context), cl.UserEvent(context)
        event = cl.enqueue_marker(queue, wait_for=[gate])
        call(event.int_ptr, "clRetainEvent")
        end = Completion(event.int_ptr, None, profile.waits_one_at_a_time)
        queue.flush()
        assert end.is_pending
        gate.set_status(-5)
        with pytest.raises(LevelZeroError, match="DEVICE_LOST"):
            assert end.wait(None) if waits else end.is_done
        assert not end.is_pending
