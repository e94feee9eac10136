"""Launches that C appends to graphs of CUDA and HIP, and what it leaves to Python."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.threads import in_threads

from .conftest import COUNT, SIZE, Adapted, Knobs, Work
from .test_command_buffers import Recorded, Updatable

LAUNCH = "urCommandBufferAppendKernelLaunchWithArgsExp"
UPDATE = "urCommandBufferUpdateKernelLaunchExp"
_INT = ctypes.c_int32


class Buffer(Recorded):
    """A command-buffer whose launches have no event, as programs append most of them."""

    def code_of(
        self,
        kernel: int,
        *values: Any,
        after: tuple[int, ...] = (),
        size: int = COUNT,
        local: int = 0,
        offset: int | None = None,
    ) -> str:
        """Append a launch, and return the code. `point` becomes its sync-point, and `command` its
        handle."""
        points = (ctypes.c_uint32 * len(after))(*after) if after else None
        start = None if offset is None else (ctypes.c_size_t * 1)(offset)
        group = (ctypes.c_size_t * 1)(local) if local else None
        shape = kernel, 1, start, (ctypes.c_size_t * 1)(size), group
        point, command = ctypes.c_uint32(), ctypes.c_void_p()
        wanted = ctypes.byref(command) if self.updatable else None
        rest = 0, None, len(after), points, 0, None, ctypes.byref(point), None, wanted
        found = self.ur(LAUNCH, self.handle, *shape, *self.work.arguments(*values), *rest)
        self.point, self.command = point.value, command.value or 0
        return found

    point = command = 0

    def add(self, kernel: int, *values: Any, **how: Any) -> int:
        """Append a launch, and return its sync-point."""
        assert self.code_of(kernel, *values, **how) == "SUCCESS"
        return self.point


@pytest.mark.parametrize("in_order", [True, False])
def test_launches_run_in_their_order(work: Work, asked: list[str], in_order: bool) -> None:
    out, buffer = work.memory(), Buffer(work, isInOrder=in_order)
    add, twice = work.kernel("add_one"), work.kernel("twice")
    for count in range(5):
        after = (buffer.point, buffer.point) if buffer.point and not in_order else ()
        assert buffer.add(add, out, after=after) == 2 * count + 1
        buffer.add(twice, out, after=(buffer.point,) if not in_order else ())
    assert asked == [LAUNCH] * 2
    buffer.finalize()
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [62] * COUNT


def test_each_launch_has_its_own_arguments(work: Work, asked: list[str]) -> None:
    first, second, x = (work.memory() for _ in range(3))
    buffer, axpy = Buffer(work, isInOrder=True), work.kernel("axpy")
    work.put(x, bytes(_INT(1)) * COUNT)
    for factor in range(1, 9):
        buffer.add(axpy, first if factor % 2 else second, x, _INT(factor))
    assert asked == [LAUNCH]
    buffer.finalize()
    work.put(first, bytes(SIZE))
    work.put(second, bytes(SIZE))
    buffer.run()
    assert (work.numbers(first), work.numbers(second)) == ([16] * COUNT, [20] * COUNT)


def test_python_is_asked_for_new_sizes_and_new_kernels(work: Work, asked: list[str]) -> None:
    out, buffer = work.memory(), Buffer(work, isInOrder=True)
    kernel, same = work.kernel("add_one"), {"local": 4}
    for how in ({}, same, {"size": COUNT // 2}):
        asked.clear()
        buffer.add(kernel, out, **how)
        assert asked == [LAUNCH]
        buffer.add(kernel, out, **how)
        buffer.add(kernel, out, **{"offset": 0, **how})
        assert asked == [LAUNCH]
    buffer.add(work.kernel("add_one"), out)
    assert asked == [LAUNCH] * 2
    buffer.finalize()
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [10] * (COUNT // 2) + [7] * (COUNT // 2)


def test_more_launches_than_c_keeps_are_right(work: Work) -> None:
    out, buffer, kernel = work.memory(), Buffer(work, isInOrder=True), work.kernel("add_one")
    sizes = [1 + number % 40 for number in range(120)]
    for size in sizes:
        buffer.add(kernel, out, size=size)
    buffer.finalize()
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [sum(size > cell for size in sizes) for cell in range(COUNT)]


def test_events_are_pythons(work: Work, asked: list[str]) -> None:
    out, buffer = work.memory(), Buffer(work, isInOrder=True)
    for _ in range(2):
        buffer.launch(work.kernel("add_one"), out)  # it asks for an event
    assert asked == [LAUNCH] * 2


class UpdatableBuffer(Buffer, Updatable):
    """One whose launches have handles."""

    def commands(self, kernel: int, *values: Any, count: int = 3) -> list[int]:
        """Append a launch several times. Returns the handles."""
        return [self.command for _ in range(count) if self.add(kernel, *values)]


def test_launches_with_handles_are_updated_in_c(work: Work, asked: list[str]) -> None:
    out, x, buffer = work.memory(), work.memory(), UpdatableBuffer(work, isInOrder=True)
    commands = buffer.commands(work.kernel("axpy"), out, x, _INT(1))
    assert asked == [LAUNCH] and len(set(commands)) == 3
    buffer.finalize()
    for command, factor in zip(commands, (10, 100, 1000), strict=True):
        assert buffer.update(command, (2, _INT(factor))) == "SUCCESS"
    assert UPDATE not in asked
    work.put(out, bytes(SIZE))
    work.put(x, bytes(_INT(1)) * COUNT)
    buffer.run()
    assert work.numbers(out) == [1110] * COUNT


def test_python_takes_over_what_c_has_appended_and_changed(work: Work, asked: list[str]) -> None:
    out, x, buffer = work.memory(), work.memory(), UpdatableBuffer(work, isInOrder=True)
    first, second, third = buffer.commands(work.kernel("axpy"), out, x, _INT(1))
    buffer.finalize()
    assert buffer.update(second, (2, _INT(10))) == "SUCCESS"
    asked.clear()
    assert buffer.update(second, size=COUNT // 2) == "SUCCESS"  # with the factor that C knows
    assert buffer.update(third, (2, _INT(100)), size=COUNT // 2) == "SUCCESS"
    assert asked == [UPDATE] * 2
    assert buffer.update(second, (2, _INT(20))) == "SUCCESS"  # it is C's again
    assert buffer.update(first, (2, _INT(3))) == "SUCCESS"
    assert asked == [UPDATE] * 2
    work.put(out, bytes(SIZE))
    work.put(x, bytes(_INT(1)) * COUNT)
    buffer.run()
    assert work.numbers(out) == [123] * (COUNT // 2) + [3] * (COUNT // 2)


def test_handles_of_c_end_with_their_command_buffer(work: Work, asked: list[str]) -> None:
    out, x, buffer = work.memory(), work.memory(), UpdatableBuffer(work, isInOrder=True)
    _, second, third = buffer.commands(work.kernel("axpy"), out, x, _INT(1))
    buffer.finalize()
    assert buffer.update(third, size=COUNT // 2) == "SUCCESS"  # it is Python's now
    work.ur.ok("urCommandBufferReleaseExp", buffer.handle)
    other = UpdatableBuffer(work, isInOrder=True)
    other.commands(work.kernel("axpy"), out, x, _INT(1))
    other.finalize()
    for command in (second, third):
        assert other.update(command, (2, _INT(2))) == "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"


def test_a_command_buffer_without_updates_has_no_handles(work: Work) -> None:
    out, buffer = work.memory(), UpdatableBuffer(work, isInOrder=True)
    kernel, plain = work.kernel("add_one"), Buffer(work, isInOrder=True)
    plain.add(kernel, out)
    buffer.handle = plain.handle
    assert buffer.code_of(kernel, out) == "INVALID_OPERATION"


def test_wrong_launches_are_refused_and_nothing_is_appended(work: Work, asked: list[str]) -> None:
    out, buffer, axpy = work.memory(), Buffer(work), work.kernel("axpy")
    given = out, out, _INT(1)
    assert buffer.add(axpy, *given) == 1
    for code, values, after in (
        ("INVALID_KERNEL_ARGUMENT_SIZE", (out, out, ctypes.c_int64(1)), ()),
        ("INVALID_KERNEL_ARGUMENT_INDEX", (out, out), ()),
        ("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP", given, (2,)),
        ("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP", given, (0,)),
    ):
        asked.clear()
        assert buffer.code_of(axpy, *values, after=after) == code
        assert asked == [LAUNCH]
    assert buffer.add(axpy, *given, after=(1,)) == 2
    buffer.finalize()
    assert buffer.code_of(axpy, *given) == "INVALID_OPERATION"


def test_what_the_driver_refuses_is_explained(work: Work, fake: Knobs, asked: list[str]) -> None:
    out, buffer, kernel = work.memory(), Buffer(work, isInOrder=True), work.kernel("add_one")
    buffer.add(kernel, out)
    asked.clear()
    fake.fail("GraphAddKernelNode", 2)  # CUDA_ERROR_OUT_OF_MEMORY and hipErrorOutOfMemory
    assert buffer.code_of(kernel, out) == "OUT_OF_DEVICE_MEMORY"
    assert asked == [LAUNCH]
    fake.heal()
    assert buffer.add(kernel, out) == 2


def test_threads_append_to_one_command_buffer(work: Work) -> None:
    out, buffer, kernel = work.memory(), Buffer(work, isInOrder=True), work.kernel("add_one")
    in_threads(4, lambda _: [buffer.add(kernel, out) for _ in range(25)])
    buffer.finalize()
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [100] * COUNT


def test_a_released_kernel_stays_with_the_command_buffer(work: Work) -> None:
    out, buffer, kernel = work.memory(), Buffer(work, isInOrder=True), work.kernel("add_one")
    for _ in range(3):
        buffer.add(kernel, out)
    work.ur.ok("urKernelRelease", kernel)
    buffer.finalize()
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [3] * COUNT


def test_explain_counts_the_nodes_of_c(work: Work, adapted: Adapted) -> None:
    out, buffer, kernel = work.memory(), Buffer(work, isInOrder=True), work.kernel("add_one")
    for _ in range(3):
        buffer.add(kernel, out)
    registry = adapted.module("core").adapter.registry
    made: Any = registry.list_owned("ur_exp_command_buffer_handle_t")[buffer.handle]
    assert made.explain().startswith("3 commands") and made.explain().endswith(
        "of 3 nodes in a chain"
    )
