"""A driver's own command-buffer when the driver refuses something: an error, and nothing at the
end."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.icd.command_buffer import driver_command_buffer
from fairlead.icd.command_buffer.driver_command_buffer import DriverCommandBuffer
from fairlead.icd.errors import OpenCLError, check

#: A driver that makes a command-buffer of any queue, and takes it back.
SUPPORT: Any = SimpleNamespace(simultaneous=False, function=lambda name: lambda *_: 0)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was raised in a `__del__`."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_value))
    return found


def test_a_queue_that_cannot_be_made(dropped: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        driver_command_buffer, "make_queue", lambda *_: check(-6, "clCreateCommandQueue")
    )
    with pytest.raises(OpenCLError, match="clCreateCommandQueue"):
        DriverCommandBuffer(SUPPORT, 0, 0, 0, updatable=False)
    gc.collect()
    assert dropped == []


def test_a_kernel_that_cannot_be_copied(
    dropped: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would be given NULL, and most crash then."""
    refuse = SimpleNamespace(fl_clone_kernel=lambda kernel: driver_command_buffer.ffi.NULL)
    monkeypatch.setattr(driver_command_buffer, "make_queue", lambda *_: 0)
    monkeypatch.setattr(driver_command_buffer, "lib", refuse)
    buffer = DriverCommandBuffer(SUPPORT, 0, 0, 0, updatable=False)
    with pytest.raises(OpenCLError, match="made no copy of a kernel"):
        buffer._list_launch(SimpleNamespace(kernel=None))
    buffer.close()
    del buffer
    gc.collect()
    assert dropped == []
