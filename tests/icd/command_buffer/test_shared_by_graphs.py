"""What several graphs share: while it ends, no other graph is given it."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pytest

from fairlead.icd.command_buffer import direct_device, group_functions
from fairlead.icd.drivers import platforms

pytestmark = pytest.mark.driver("pocl_wheel")


@pytest.fixture
def context(pocl_wheel: Any) -> cl.Context:
    device = next(one for one in platforms() if "PoCL" in one.version).devices[0]
    return cl.Context([device.to_pyopencl()])


def test_a_device_that_ends_is_given_to_nobody(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    release = direct_device.release_queue

    def ask() -> direct_device.DirectDevice:
        return direct_device.get_device(context.int_ptr, context.devices[0].int_ptr)

    def release_and_ask(queue: int) -> None:  # another thread asks while the driver is called
        if not found:
            found.append(ask())
        release(queue)

    monkeypatch.setattr(direct_device, "release_queue", release_and_ask)
    first = ask()
    ended = int(direct_device.ffi.cast("uintptr_t", first.native.queue))
    assert ask() is first
    del first
    assert int(direct_device.ffi.cast("uintptr_t", found[0].native.queue)) != ended
    assert found[0] is ask()


def test_functions_that_end_are_given_to_nobody(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = cl.Program(context, "kernel void f(global int *a) { a[0] = 1; }").build()
    handle, found, released = program.int_ptr, [], []
    call = group_functions.call

    def call_and_ask(this: int, routine: str, *values: Any) -> Any:
        if routine == "clReleaseProgram" and not released:
            released.append(this)
            found.append(group_functions.get_functions(handle))
        return call(this, routine, *values)

    monkeypatch.setattr(group_functions, "call", call_and_ask)
    first = group_functions.get_functions(handle)
    kernels = first.kernels
    del first
    assert released == [handle]
    assert found[0] is group_functions.get_functions(handle)
    assert list(found[0].kernels) == ["f"] and found[0].kernels is not kernels
