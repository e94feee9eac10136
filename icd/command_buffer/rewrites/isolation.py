"""What keeps a compiler of GPUs from rounding otherwise in a fused kernel.

Such a compiler contracts `a * b + c`. Whether it does depends on who else uses the product. So the
function of an old kernel must not see what another one calculates, and calculate nothing that
another one shares. Each value that goes into it passes `x + zero`, with a zero of that launch that
is a kernel argument: a compiler cannot know that it is 0. A value that just comes from memory needs
that only if another launch had it before. Values of memory pass in variables. That is the same as
memory only where an old kernel reads all before it writes.
"""

from __future__ import annotations

from ...kernel_source.reading import KernelAccess
from .kernels import has_inner_loops
from .opaque import measure_kind


def why_not_isolated(access: KernelAccess) -> str | None:
    """Return why the function of a kernel may round otherwise with variables for memory."""
    for one in access.parameters:
        if one.type.kind != "pointer" and not measure_kind(one.type.name):
            return f"its argument {one.name} has a type that a GPU's fused kernel cannot have"
    if has_inner_loops(access):
        return "an item has a loop, in which a GPU's compiler may round otherwise"
    if not all(one.certain for one in access.accesses if one.writes):
        return "an item may leave memory as it is, which a variable would write back"
    order = [one.writes for one in access.accesses]
    return "it reads memory after it has written some" if order != sorted(order) else None
