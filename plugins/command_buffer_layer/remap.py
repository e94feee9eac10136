"""Deep copies of command-buffers for other queues (cl_khr_command_buffer_multi_device 0.9.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...icd.calls import get_address
from ...icd.command_buffer.edits import put
from ...icd.errors import OpenCLError
from .buffers import (
    LayerCommand,
    LayerCommandBuffer,
    LayerQueue,
    get_buffer,
    get_command,
    read_queues,
)
from .entries import entry, make_error, read_numbers
from .launches import check_sizes
from .updates import get_range


@entry
def clRemapCommandBufferKHR(
    buffer: int | None,
    automatic: int,
    count: int,
    queues: int | None,
    handle_count: int,
    handles: int | None,
    handles_ret: int | None,
) -> int:
    old = get_buffer(buffer)
    if not count or not queues:
        raise make_error("CL_INVALID_VALUE", "there are no queues")
    if not automatic and count != len(old.queues):
        raise make_error("CL_INVALID_VALUE", f"{count} queues instead of {len(old.queues)}")
    if not (bool(handle_count) == bool(handles) == bool(handles_ret)):
        raise make_error("CL_INVALID_VALUE", "a list of handles is NULL or empty, and not all are")
    wanted = [_get_command(old, one) for one in read_numbers(handles, "uintptr_t", handle_count)]
    given = read_queues(count, queues)
    if any(queue.context != old.context for queue in given):
        raise make_error("CL_INVALID_CONTEXT", "a queue is of another context")
    with old.lock:
        made = make_remapped(old, given)
    with close_unless_complete(made):
        for number, command in enumerate(wanted):
            made.recorded[command.number].give_handle((handles_ret or 0) + 8 * number)
    return made.handle


@contextmanager
def close_unless_complete(made: LayerCommandBuffer) -> Iterator[None]:
    """Close a command-buffer that the program does not get, because the block has raised."""
    try:
        yield
    except BaseException:
        made.close()
        raise


def _get_command(buffer: LayerCommandBuffer, handle: int) -> LayerCommand:
    """Return a command of this command-buffer. Raises OpenCLError (CL_INVALID_VALUE)."""
    try:
        found = get_command(handle)
    except OpenCLError:
        found = None
    if found is None or found.buffer is not buffer:
        raise make_error("CL_INVALID_VALUE", "a handle is not a command of this command-buffer")
    return found


def make_remapped(old: LayerCommandBuffer, queues: list[LayerQueue]) -> LayerCommandBuffer:
    """Return a copy of a command-buffer with other queues, in the same state.

    Commands of a queue's number go to the queue with that number. If there are fewer queues, they
    are shared out in turn.

    Raises:
        OpenCLError: a device cannot run a command.
    """
    for command in old.recorded:
        _check(old, command, queues[command.queue % len(queues)].device)
    made = LayerCommandBuffer(queues, old.properties)
    with close_unless_complete(made):
        made.commands.keep.append(old.commands)  # patterns
        for kind, handle in old.held:
            made.hold(kind, handle)
        for copy in old.copies.values():
            made.hold("Kernel", get_address(copy))
        for command in old.recorded:
            _copy(made, command)
        if old.runner is not None:
            made.finalize()
    return made


def _copy(made: LayerCommandBuffer, command: LayerCommand) -> None:
    native = command.buffer.commands.array + command.number
    queue = command.queue % len(made.queues)
    operation, dependencies = native.op, command.buffer.commands.dependencies[command.number]
    order_only = command.buffer.commands.order_only[command.number]
    in_order = (
        made.orders[queue].find_predecessors((), False) if made.queues[queue].in_order else ()
    )
    after = list(dict.fromkeys([*in_order, *dependencies]))
    number = made.commands.add("marker", after, order_only=order_only)
    target = made.commands.array + number
    put(target, native, made.devices.index(made.queues[queue].device))
    target.op = operation
    made.orders[queue].add(number, False, True)
    new = LayerCommand(made, number, command.type, queue, command.properties)
    new.kernel, new.fields, new.asserts = command.kernel, command.fields, command.asserts
    new.groups = command.groups
    made.recorded.append(new)
    if command in command.buffer.deferred:
        made.deferred.append(new)


def _check(old: LayerCommandBuffer, command: LayerCommand, device: int) -> None:
    """Check that a device can run a command. Raises OpenCLError."""
    facts = old.get_device(device)
    if command.kernel:
        check_sizes(old.get_kernel(command.kernel, device), facts, get_range(command))
    if "IMAGE" in command.type and not facts.has_images:
        raise make_error("CL_INVALID_OPERATION", "a device has no images")
    if "SVM" in command.type and not facts.has_svm:
        raise make_error("CL_INVALID_OPERATION", "a device has no SVM")
