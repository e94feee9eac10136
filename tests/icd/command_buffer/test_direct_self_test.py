"""The self-test of the engine `direct` passes on every PoCL, and sees what is read wrongly."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

#: Runs the self-test in this process. What PoCL's binary says of kernels is changed before.
_CHANGED = """
import sys
from dataclasses import asdict, replace
from fairlead.icd.command_buffer import direct_self_test, group_functions
from fairlead.loader.base.search import Candidate

read = direct_self_test.parse

def exchange(kernel, **names):
    return tuple(names.get(space, space) for space in kernel.spaces)

CHANGES = {
    "nothing": lambda kernel: {},
    "smaller local variables": lambda kernel: {
        "automatic": tuple(size - 1 for size in kernel.automatic)
    },
    "local variables in another order": lambda kernel: {"automatic": kernel.automatic[::-1]},
    "denormals": lambda kernel: {"flushes": not kernel.flushes},
    "required sizes": lambda kernel: {"required": (0, 0, 0)},
    "sizes": lambda kernel: {"sizes": tuple(size // 2 for size in kernel.sizes)},
    "printf": lambda kernel: {"why_not": None},
    "images": lambda kernel: {"spaces": exchange(kernel, other="value")},
}

def parse(binary):
    change = CHANGES[sys.argv[2]]
    return {name: replace(kernel, **change(kernel)) for name, kernel in read(binary).items()}

direct_self_test.parse = group_functions.parse = parse
candidate = asdict(Candidate(sys.argv[1], "the driver of a device", None))
print(direct_self_test.main(candidate, lambda step: None)["difference"] or "passed")
"""


def test_it_passes(run_python: RunPython, direct_pocl: Driver) -> None:
    done = run_python(_CHANGED, direct_pocl.library, "nothing")
    assert done.out == "passed\n", done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("smaller local variables", "the local variables of fairlead_locals have (36, 127, 255)"),
        ("local variables in another order", "the local variables of fairlead_locals have (256,"),
        ("denormals", "results differ for ((0, 0, 0), (24, 1, 1), (8, 1, 1)) -DHOST"),
        ("required sizes", "the required sizes are (0, 0, 0)"),
        ("sizes", "CL_INVALID_KERNEL_ARGS"),
        ("printf", "a kernel with printf would be called"),
        ("images", "a kernel with images would be called"),
    ],
)
def test_it_sees_what_is_read_wrongly(
    run_python: RunPython, direct_pocl: Driver, change: str, said: str
) -> None:
    if direct_pocl.name != "pocl_wheel":
        pytest.skip("one driver is enough: what is read of others is the same")
    done = run_python(_CHANGED, direct_pocl.library, change, check=False)
    assert "passed" not in done.out and said in done.out + done.err
