"""Clones of closed command lists (ZE_experimental_command_list_clone 1.0).

A clone has everything of its own that changes: rows, kernels, what can be changed, and what host
functions write. So it may run beside the list that it was made of, and each is changed alone.
"""

from __future__ import annotations

from typing import Final

from ...loader.base.forks import make_lock
from .core import ZE, driver, make_failure
from .lists import ZeCommandList
from .mutable import zeCommandListClose

_CLONEABLE: Final = ZE["ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE"]

#: Two threads may clone one list.
_lock: Final = make_lock()


@driver.entry
def zeCommandListCreateCloneExp(hCommandList: ZeCommandList) -> ZeCommandList:
    hCommandList.check_regular()
    if not hCommandList.flags & _CLONEABLE:
        raise make_failure("INVALID_ARGUMENT", "the list was made without EXP_CLONEABLE")
    if not hCommandList.closed:
        what = "was changed and not closed again" if hCommandList.changed else "is not closed"
        raise make_failure("INVALID_ARGUMENT", f"the list {what}")
    with _lock:
        return _clone(hCommandList)


def _clone(list_: ZeCommandList) -> ZeCommandList:
    commands = list_.mutable
    made = ZeCommandList(
        list_.context,
        list_.device,
        list_.flags,
        in_order=list_.in_order,
        mutable=commands is not None,
    )
    for command in (commands or {}).values():
        command.update_from_c()
    list_.recording.clone_into(made.recording)
    if commands is not None:
        made.mutable = {number: one.clone(made) for number, one in commands.items()}
        made.identifiers = list_.identifiers
    zeCommandListClose(made)
    return made
