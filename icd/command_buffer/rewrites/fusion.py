"""Fusion: launches that follow each other over the same items become one launch.

Each old kernel becomes a function of one item, and the new kernel calls them in order. That does
the same, bit for bit, because:

- an item of a launch uses nothing of its ids but its own number (launches.py);
- two launches are fused only if no item meets what another item wrote: where both use the same
  bytes and one writes them, each item has its own, by the same map (`UsedBytes.allows`);
- the functions have the old expressions, so a compiler rounds where it did. Only factors of 1 and
  -1 are left out of sums (sources.py). A value that crosses an old border is stored and loaded, or
  kept in a variable of its type;
- memory is replaced by such a variable only if nobody can see it: only the recording has a
  reference to it, only launches of this run use it, and each item writes its element first.

A launch alone is rewritten, too, if its kernel loops over its items in strides of the global size.
Without the loop a CPU runs along the memory instead of across it.
"""

from __future__ import annotations

from itertools import chain

from ...errors import OpenCLError
from ..commands import CommandList
from .arguments import NotFused
from .checking import FusionCheck
from .flow import Flow
from .fused_runs import FusedKernel, FusedRun, put_together
from .rewriting import Rewritten, stop_at_end
from .runs import RunList
from .uses import ListSnapshot, is_of_type


def fuse(commands: CommandList, snapshot: ListSnapshot, *, checks: bool = False) -> Rewritten:
    """Return commands with launches that are fused.

    Args:
        commands: what is rewritten. It may change meanwhile.
        snapshot: what it was.
        checks: whether the first replays run both ways (checking.py).
    """
    found, old = RunList(snapshot, is_isolated=needs_isolation(commands)), snapshot.commands
    lines, made, kernels = found.lines, dict[int, FusedRun](), dict[str, FusedKernel]()
    users = found.find_users()
    for run in found.runs:
        first, last = run.numbers[0], run.numbers[-1]
        many = f"commands {first}–{last} are" if first != last else f"command {first} is"
        stop_at_end()
        try:
            one = run.make(old, users, kernels)
        except (NotFused, OpenCLError) as error:  # this run stays as it was captured
            lines.append((last, f"{many} not fused: {' '.join(str(error).split())}"))
            continue
        lines.append((last, f"{many} one fused kernel, which saves: {one.plan.savings}"))
        made.update((number, one) for number in run.numbers)
    texts = [f"  {text}" for _, text in sorted(lines, key=lambda line: line[0])]
    fused, numbers, places = put_together(old, made, FusedRun.add)
    flow = check = None
    if commands.updatable:
        list_ = fused if made else None
        flow = Flow(commands, snapshot, list_, places, made, found.arguments)
    if checks and made:
        check = FusionCheck(commands, snapshot.cells, fused, places, made)
    sources = {one.numbers: one.plan.source for one in made.values()}
    hidden = frozenset(chain(*(one.hidden for one in set(made.values()))))
    return Rewritten(fused if made else None, numbers, texts, sources, check, flow, hidden)


def needs_isolation(commands: CommandList) -> bool:
    """Return whether the device's compiler may round otherwise in a fused kernel (isolation.py)."""
    return is_of_type(commands, "CL_DEVICE_TYPE_GPU")
