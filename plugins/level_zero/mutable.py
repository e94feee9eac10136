"""Mutable command lists (ZE_experimental_mutable_command_list 1.1).

A command gets an identifier before it is appended, with what can be changed of it. After the list
is closed, changes are collected, checked at once, and made when the list is closed again: all of
them, or none. What was executed before keeps what it had.

(Level Zero: "Mutable Command List Extension".)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, Final

from ...icd._native import lib as icd_lib
from ...loader.ze.abi import LevelZeroError
from ..opencl.usm.addresses import make_pointer_argument
from ..sdk._native_ze import ffi
from ..sdk.kernel_arguments import URKernelArgument
from .arguments import make_arguments, set_in_command
from .core import ZE, driver, make_failure, walk_chain
from .devices import MUTABLE
from .events import ZeEvent
from .kernels import ZeKernel
from .lists import ZeCommandList
from .mutable_commands import FLAGS, LaunchDraft, MutableCommand, add_copy
from .recording import ListLaunch

_DEFINED: Final = reduce(or_, ZE.groups["ze_mutable_command_exp_flags_t"])
_BY_DEFAULT: Final = MUTABLE & ~FLAGS["KERNEL_INSTRUCTION"]


def _check_stype(desc: Any, name: str) -> None:
    """Raise LevelZeroError (INVALID_ARGUMENT) for a struct of another type."""
    if desc.stype != ZE[f"ZE_STRUCTURE_TYPE_{name}"]:
        raise make_failure("INVALID_ARGUMENT", f"desc->stype is {desc.stype:#x}, not {name}")


# identifiers


def _add_identifier(made: ZeCommandList, desc: Any, kernels: Sequence[ZeKernel]) -> int:
    _check_stype(desc, "MUTABLE_COMMAND_ID_EXP_DESC")
    flags = desc.flags
    made.check_regular()
    if made.mutable is None:
        raise make_failure("INVALID_ARGUMENT", "the list is not mutable")
    made.check_open()
    if flags & ~_DEFINED:
        raise make_failure("INVALID_ENUMERATION", f"{flags:#x} has undefined flags")
    if flags & ~MUTABLE:
        raise make_failure("UNSUPPORTED_ENUMERATION", "arguments of graphs cannot be changed")
    if flags & FLAGS["KERNEL_INSTRUCTION"] and not kernels:
        raise make_failure(
            "INVALID_ARGUMENT", "the kernels that the command may launch are missing"
        )
    for kernel in kernels:
        if not kernel.runs_on(made.context, made.device):
            raise make_failure("INVALID_KERNEL_HANDLE", "a kernel is of another context or device")
    number = next(made.identifiers)
    made.next_id = MutableCommand(made, number, flags or _BY_DEFAULT, kernels)
    return number


@driver.entry
def zeCommandListGetNextCommandIdExp(hCommandList: ZeCommandList, desc: Any) -> int:
    return _add_identifier(hCommandList, desc, ())


@driver.entry
def zeCommandListGetNextCommandIdWithKernelsExp(
    hCommandList: ZeCommandList, desc: Any, phKernels: list[ZeKernel]
) -> int:
    return _add_identifier(hCommandList, desc, phKernels)


@driver.entry
def zeCommandListIsMutableExp(hCommandList: ZeCommandList) -> int:
    return hCommandList.mutable is not None


# changes


def _list_commands(made: ZeCommandList) -> dict[int, MutableCommand]:
    """Return the commands that can be changed.

    Raises:
        LevelZeroError: INVALID_COMMAND_LIST_TYPE; INVALID_ARGUMENT if the list is not mutable, or
            was never closed.
    """
    made.check_regular()
    if made.mutable is None:
        raise make_failure("INVALID_ARGUMENT", "the list is not mutable")
    if not (made.closed or made.changed):
        raise make_failure("INVALID_ARGUMENT", "commands are changed after the list is closed")
    return made.mutable


def _find(commands: dict[int, MutableCommand], number: int) -> MutableCommand:
    if number not in commands:
        raise make_failure("INVALID_ARGUMENT", f"the list has no command {number}")
    return commands[number]


def _note(made: ZeCommandList, changed: Sequence[MutableCommand]) -> None:
    """Note that commands have changed: the list has to be closed again."""
    made.in_c.note_change()
    for command in changed:
        made.touched.append(command)
        if command.row is not None:
            command.row.in_python = 1


def _put_argument(draft: LaunchDraft, row: Any) -> LaunchDraft:
    kernel, index = draft.kernel, row.argIndex
    try:
        value = int(ffi.cast("uintptr_t", row.pArgValue))
        known = draft.arguments.get(index)
        argument = kernel.read_argument(index, row.argSize, value, known)
        if known is not None and known.kind == argument.kind == URKernelArgument.VALUE:
            if known.size != argument.size:
                raise make_failure("INVALID_ARGUMENT", f"argument {index} has {known.size} bytes")
        else:
            kernel.check_argument(index, argument)
        if argument.kind == URKernelArgument.POINTER:
            make_pointer_argument(kernel.context.ur, argument.value)
    except LevelZeroError as error:
        raise make_failure("INVALID_ARGUMENT", str(error)) from error
    return replace(draft, arguments={**draft.arguments, index: argument})


def _put_counts(draft: LaunchDraft, row: Any) -> LaunchDraft:
    if not row.pGroupCount:
        raise make_failure("INVALID_NULL_POINTER", "pGroupCount")
    count = row.pGroupCount[0]
    counts = count.groupCountX, count.groupCountY, count.groupCountZ
    return replace(draft, counts=counts)


def _put_sizes(draft: LaunchDraft, row: Any) -> LaunchDraft:
    sizes = row.groupSizeX, row.groupSizeY, row.groupSizeZ
    draft.kernel.check_group(sizes)
    return replace(draft, sizes=sizes)


def _put_offsets(draft: LaunchDraft, row: Any) -> LaunchDraft:
    return replace(draft, offsets=(row.offsetX, row.offsetY, row.offsetZ))


#: What a struct of the chain changes: its type, the flag that allows it, and the change.
_CHANGES: Final = {
    ZE[f"ZE_STRUCTURE_TYPE_MUTABLE_{name}_EXP_DESC"]: (
        f"ze_mutable_{name.lower()}_exp_desc_t *",
        flag,
        change,
    )
    for name, flag, change in (
        ("KERNEL_ARGUMENT", "KERNEL_ARGUMENTS", _put_argument),
        ("GROUP_COUNT", "GROUP_COUNT", _put_counts),
        ("GROUP_SIZE", "GROUP_SIZE", _put_sizes),
        ("GLOBAL_OFFSET", "GLOBAL_OFFSET", _put_offsets),
    )
}
_SIZED: Final = {ZE["ZE_STRUCTURE_TYPE_MUTABLE_GRAPH_ARGUMENT_EXP_DESC"]: "the arguments of graphs"}


def _list_rows(desc: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield the structs of a chain, the flags that allow them, and what they change."""
    for stype, at in walk_chain(desc.pNext):
        if stype in _SIZED:
            raise make_failure("INVALID_ARGUMENT", f"{_SIZED[stype]} cannot be changed")
        if stype not in _CHANGES:
            raise make_failure("INVALID_ARGUMENT", f"{stype:#x} is not a change of a command")
        struct, flag, change = _CHANGES[stype]
        yield ffi.cast(struct, at), flag, change


@driver.entry
def zeCommandListUpdateMutableCommandsExp(hCommandList: ZeCommandList, desc: Any) -> None:
    """Collect changes of launches: all that the chain asks for, or nothing."""
    commands = _list_commands(hCommandList)
    _check_stype(desc, "MUTABLE_COMMANDS_EXP_DESC")
    if desc.flags:
        raise make_failure("INVALID_ENUMERATION", "the flags are reserved")
    drafts: dict[MutableCommand, LaunchDraft] = {}
    for row, flag, change in _list_rows(desc):
        command = _find(commands, row.commandId)
        command.check(flag)
        drafts[command] = change(drafts.get(command) or command.make_draft(), row)
    for command, draft in drafts.items():
        command.draft = draft
    _note(hCommandList, list(drafts))


@driver.entry
def zeCommandListUpdateMutableCommandSignalEventExp(
    hCommandList: ZeCommandList, commandId: int, hSignalEvent: ZeEvent | None
) -> None:
    command = _find(_list_commands(hCommandList), commandId)
    hCommandList.check_events((hSignalEvent,))
    command.put_signal(hSignalEvent)
    hCommandList.recording.note_change()
    _note(hCommandList, [command])


@driver.entry
def zeCommandListUpdateMutableCommandWaitEventsExp(
    hCommandList: ZeCommandList,
    commandId: int,
    numWaitEvents: int,
    phWaitEvents: list[ZeEvent | None] | None,
) -> None:
    command = _find(_list_commands(hCommandList), commandId)
    command.put_waits(phWaitEvents, numWaitEvents)
    hCommandList.recording.note_change()
    _note(hCommandList, [command])


@driver.entry
def zeCommandListUpdateMutableCommandKernelsExp(
    hCommandList: ZeCommandList, pCommandId: list[int], phKernels: list[ZeKernel]
) -> None:
    """Let commands launch other kernels, which then need arguments and sizes."""
    commands = _list_commands(hCommandList)
    drafts: dict[MutableCommand, LaunchDraft] = {}
    for number, kernel in zip(pCommandId, phKernels, strict=True):
        command = _find(commands, number)
        counts = command.check("KERNEL_INSTRUCTION").counts
        command.check_kernel(kernel)
        if kernel is (drafts.get(command) or command.make_draft()).kernel:
            continue
        if command.launch_was_changed or command in drafts:
            detail = f"the kernel of command {number} is changed before its arguments and sizes"
            raise make_failure("INVALID_ARGUMENT", detail)
        present = None if counts is None else (0, 0, 0)  # it is read from memory
        drafts[command] = LaunchDraft(kernel, {}, present, None, (0, 0, 0))
    for command, draft in drafts.items():
        command.draft = draft
    _note(hCommandList, list(drafts))


# closing


@driver.entry
def zeCommandListClose(hCommandList: ZeCommandList) -> None:
    """Close a list. One that is closed or immediate stays as it is."""
    if hCommandList.closed or hCommandList.is_immediate:
        return
    if hCommandList.changed:
        _commit(hCommandList)
    hCommandList.close_recording()
    if hCommandList.mutable:
        _write_commands_for_c(hCommandList, hCommandList.mutable)


def _write_commands_for_c(made: ZeCommandList, commands: dict[int, MutableCommand]) -> None:
    """Let C change arguments of commands of a closed list."""
    touched, made.touched = made.touched, []
    if not made.in_c.knows(made.recording.built):
        for command in commands.values():
            command.update_from_c()
        rows = made.in_c.add_commands(max(commands), made.recording.built)
        parts = [part for part in made.recording.list_parts() if part.buffer is not None]
        ends = [part.end for part in parts]
        for number, command in commands.items():
            if command.command is None or command.command.launch is None:
                continue
            index = command.command.index
            part = parts[bisect_right(ends, index)]
            assert part.buffer is not None
            command.write_for_c(rows[number - 1], part.buffer.native, index - part.first)
        return
    for command in touched:
        command.write_kernel_for_c()


def _commit(made: ZeCommandList) -> None:
    """Make the changes that were collected.

    Raises:
        LevelZeroError: a launch is not complete; nothing has changed.
        OpenCLError: an engine refuses a change.
    """
    for command in made.touched:
        command.update_from_c()
    drafts = {one: one.draft.finish() for one in made.touched if one.draft is not None}
    recording = made.recording
    is_new = [
        add_copy(recording.alternatives, recording.copies.get_copy(new.kernel, new.arguments))
        for command, new in drafts.items()
        if command.command is not None
        and command.command.launch is not None
        and command.command.launch.kernel is not new.kernel
    ]
    if any(is_new):  # what was built does not know the kernel
        recording.drop_buffers()
    by_place = {one.command.index: (one, new) for one, new in drafts.items() if one.command}
    changed = [*by_place, *(index for index in made.in_c.list_dirty() if index not in by_place)]
    for part in recording.list_parts() if changed else ():
        numbers = [index for index in changed if part.first <= index < part.end]
        if numbers and part.buffer is not None:
            part.buffer.plans.change(
                [index - part.first for index in numbers],
                lambda first=part.first, numbers=numbers: {
                    index - first: index in by_place and _rewrite(made, *by_place[index])
                    for index in numbers
                },
                "zeCommandListClose",
            )
    for command, new in drafts.items():
        if command.command is not None:
            command.command.launch = new
        command.draft = None


def _rewrite(made: ZeCommandList, command: MutableCommand, new: ListLaunch) -> bool:
    """Write a launch to the array. Returns whether it has another kernel than before."""
    assert command.command is not None and command.command.launch is not None
    recording, old = made.recording, command.command.launch
    present = recording.array.array + command.command.index
    new.shape.put(present)
    if new.kernel is old.kernel and old.is_complete:
        for index, argument in new.arguments.items():
            if argument != old.arguments.get(index):
                set_in_command(present, made.context, index, argument)
        return False
    count = new.kernel.ur.argument_count
    arguments = make_arguments(made.context, count, new.arguments)
    before, present.arguments = present.arguments, arguments
    icd_lib.fl_release_arguments(before)
    present.kernel = recording.copies.get_copy(new.kernel, new.arguments)
    recording.kept.append(new.kernel)
    return True
