"""What the Level Zero driver does not implement, and why: what answers UNSUPPORTED_FEATURE.

`python -m fairlead.plugins.level_zero.unsupported` prints docs/level_zero_support.md. A test
compares it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...loader.ze.abi import TABLES
from ..sdk.support_pages import list_sections
from . import driver

#: Why → a pattern of the names of functions.
REASONS: Final[Mapping[str, str]] = {
    "OpenCL has no ray tracing.": r"ze\w*RTAS\w+",
    "OpenCL has no fabric of devices.": r"zeFabric\w+|zeDeviceGetFabricVertexExp",
    "OpenCL makes no image of memory by its address.": (
        r"zeImageGetDeviceOffsetExp|zeMemGetPitchFor2dImage"
    ),
    "OpenCL exports no memory and no events.": r"ze\w+Ipc\w+",
    "OpenCL cannot reserve addresses without memory, nor map memory to addresses afterwards.": (
        r"zeVirtualMem\w+|zePhysicalMem\w+"
    ),
    "OpenCL has semaphores only as extensions, which no driver of the tests has.": (
        r"ze\w+Semaphores?\w*"
    ),
    "OpenCL has no settings of caches.": r"zeDevice(ReserveCache|SetCacheAdvice)Ext",
    "OpenCL does not tell what a program needs of a device.": r"zeDevice\w*RuntimeRequirements\w*",
    "The counters of events are not in memory.": (
        r"zeDeviceGetAggregatedCopyOffloadIncrementValue|zeDeviceGetCounterBasedEventMaxValue"
        r"|zeEventCounterBasedGetDeviceAddress"
    ),
    "OpenCL has no setting of atomic accesses to memory.": r"zeMem\w+AtomicAccessAttributeExp",
    "OpenCL has binaries of programs, and no memory of kernels.": (
        r"zeKernel(GetBinary|GetAllocationProperties)Exp"
    ),
    "OpenCL has no hints of scheduling.": r"zeKernelSchedulingHintExp",
}

_HEAD: Final = """# What the Level Zero driver supports

<!-- Printed by `python -m fairlead.plugins.level_zero.unsupported`; a test compares it. -->

Of the {all} functions of Level Zero 1.17 the driver implements {there}. The others answer
ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, for the reasons given here. An implemented function may need a
feature that an OpenCL driver lacks. Then this call answers ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, and
zeDriverGetLastErrorDescription says why. [level_zero_driver.md](level_zero_driver.md) is the guide.
"""

#: Failures of the public level-zero-tests on Intel's CPU driver → why this driver has them.
FAILURES: Final[Mapping[str, str]] = {
    "`test_mutable_cmdlist`: `zeMutableCommandListSLMTests`": (
        "its kernel writes to memory that the test has freed"
    ),
    "`test_event`, `test_cmdlist`, `test_cmdqueue`: `…TimeoutTests` on a busy machine": (
        "a wait has to end within 2 % of 5 ms"
    ),
    "`test_event`: `…GettingIpcEventHandle…`": "OpenCL exports no events",
    "`test_cmdlist`: `zeCommandListCreateTests…/8`": (
        "the flags 0x7fffffff are undefined: INVALID_ENUMERATION"
    ),
    "`test_cmdlist`: `zeCommandListCloseThenAppendTests`": (
        "it says that an append to a closed list fails, and expects success"
    ),
    "`test_cmdlist`: `…WithScratchSpace…`": (
        "a CPU never spills registers, so the test finds no kernel that does"
    ),
    "`test_cmdlist`: `…CopyOffloadHint…`": (
        "without a queue that only copies, it fills with patterns of 0 bytes, and waits for ever"
    ),
    "`test_cmdqueue`: `CommandQueuePriorityTest`": (
        "OpenCL queues of Intel's CPU driver have no priority"
    ),
    "`test_module`: `zeKernelLaunchTests…/4`, `/5`": (
        "256 work-items write to 16 numbers, behind the end of the memory"
    ),
    "`test_module`: `…GettingSourceAttribute…`": (
        "Intel's CPU driver does not tell the attributes of SPIR-V"
    ),
    "`test_module`: `…CompiledWithOptimizations…`": (
        "it looks for options of Intel's GPU compiler in the binary"
    ),
    "`test_module`: `…RetrievingFunctionPointer…`": (
        "Intel's CPU driver does not know the function"
    ),
    "`test_copy`: `…CopyEngine…`, half of `…RegionWithSharedSystem`": (
        "a device has no queue that only copies"
    ),
    "`test_copy`: `…MemoryBackToBackTests`, those that only copy": (
        "they take the second group of queues, and there is one group"
    ),
    "`test_copy`: `EmptyCopySignalAndWaitCheck…/2`": (
        "it fills with a number of four bytes, 8, and expects 0x08080808"
    ),
    "`test_copy`: `KernelCopyTests…GivenInDirectMemory…`": (
        "it gives eight bytes to an `int`: INVALID_KERNEL_ARGUMENT_SIZE"
    ),
    "`test_copy`: `ParamAppendMemCopy…`, beside a second OpenCL driver": (
        "it uses devices of the second driver in a context of the first"
    ),
    "`test_copy`: `…WithCopyExt…`": "its pitch counts pixels, where bytes are meant",
    "`test_memory`: `zeVirtualMemoryTests`, `zePhysicalMem…`": (
        "OpenCL has no virtual memory; without a page size the tests divide by 0"
    ),
}

_FAILURES_HEAD: Final = """## level-zero-tests

Of the public conformance tests, these fail on Intel's CPU driver. The reason is not in this driver.
[conformance.md](conformance.md) has the figures.

| test | why |
|---|---|"""


def find_reason(name: str) -> str:
    """Return why a function is not implemented, "" if there is no reason."""
    found = (why for why, pattern in REASONS.items() if re.fullmatch(pattern, name))
    return next(found, "")


def make_page() -> str:
    """Return docs/level_zero_support.md."""
    declared = driver.declared
    every = [name for names in TABLES.values() for name in names]
    parts = [_HEAD.format(all=len(every), there=sum(name in declared for name in every))]
    parts += list_sections(TABLES, declared, find_reason)
    rows = (f"| {test} | {why} |" for test, why in FAILURES.items())
    return "\n".join([*parts, _FAILURES_HEAD, *rows])


if __name__ == "__main__":
    print(make_page())
