"""What the reference adapter does not implement, and why: what answers UNSUPPORTED_FEATURE.

`python -m fairlead.plugins.opencl.unsupported` prints docs/adapter_support.md. A test compares it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...loader.ur.abi import UR
from ..sdk.support_pages import list_sections, wrap
from .core import adapter
from .device_tables import WITHOUT

#: Why → the entry points, by their whole names.
REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "An image of OpenCL is a memory object, and an argument of a kernel. It has no handle that a "
    "kernel could hold as a number. Mipmaps, cube maps and external arrays do not exist.": tuple(
        name
        for name in UR.functions
        if name.startswith("urBindlessImages") and not name.endswith("_2025_3")
    ),
    "OpenCL cannot reserve addresses without memory, nor map memory to addresses afterwards.": (
        "urVirtualMemGranularityGetInfo",
        "urVirtualMemReserve",
        "urVirtualMemFree",
        "urVirtualMemMap",
        "urVirtualMemUnmap",
        "urVirtualMemSetAccess",
        "urVirtualMemGetInfo",
        "urPhysicalMemCreate",
        "urPhysicalMemRetain",
        "urPhysicalMemRelease",
        "urPhysicalMemGetInfo",
    ),
    "OpenCL exports no memory (cl_khr_external_memory only imports), and no events.": (
        "urIPCGetMemHandleExp",
        "urIPCPutMemHandleExp",
        "urIPCOpenMemHandleExp",
        "urIPCCloseMemHandleExp",
        "urIPCGetPhysMemHandleExp",
        "urIPCPutPhysMemHandleExp",
        "urIPCOpenPhysMemHandleExp",
        "urIPCClosePhysMemHandleExp",
        "urIPCGetEventHandleExp",
        "urIPCPutEventHandleExp",
        "urIPCOpenEventHandleExp",
        "urMemoryExportAllocExportableMemoryExp",
        "urMemoryExportFreeExportableMemoryExp",
        "urMemoryExportExportMemoryHandleExp",
    ),
    "OpenCL has no switch for access to another device's memory. Contexts share what they can.": (
        "urUsmP2PEnablePeerAccessExp",
        "urUsmP2PDisablePeerAccessExp",
        "urUsmP2PPeerAccessGetInfoExp",
    ),
    "A queue of OpenCL cannot record. Use a command-buffer (urCommandBufferCreateExp).": (
        "urQueueBeginGraphCaptureExp",
        "urQueueBeginCaptureIntoGraphExp",
        "urQueueEndGraphCaptureExp",
        "urQueueIsGraphCaptureEnabledExp",
        "urQueueGetGraphExp",
        "urEnqueueGraphExp",
        "urGraphCreateExp",
        "urGraphInstantiateGraphExp",
        "urGraphDestroyExp",
        "urGraphExecutableGraphDestroyExp",
        "urGraphIsEmptyExp",
        "urGraphGetIdExp",
        "urGraphSetDestructionCallbackExp",
        "urGraphDumpContentsExp",
        "urGraphGetNativeHandleExp",
        "urGraphExecutableGraphGetNativeHandleExp",
    ),
    "An event of OpenCL is complete once, and cannot be signalled again.": ("urEventCreateExp",),
    "OpenCL links programs before they are executable, not after.": ("urProgramDynamicLinkExp",),
    "OpenCL specialises programs (urProgramSetSpecializationConstants), not kernels.": (
        "urKernelSetSpecializationConstants",
    ),
    "Only FPGA drivers have pipes of the host (cl_intel_program_scope_host_pipe).": (
        "urEnqueueReadHostPipe",
        "urEnqueueWriteHostPipe",
    ),
}

#: The functions that a library has in the form of 2025.3 (sdk/native/ur_2025_3.h).
OLDER: Final = tuple(
    f"ur{name}_2025_3"
    for name in ("EnqueueKernelLaunch", "ProgramBuildExp", "ProgramCompileExp", "ProgramLinkExp")
)

#: The entry points of the newest layout, table by table.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(name for name in names if name)
    for table, names in next(iter(UR.layouts.values())).items()
}

_HEAD: Final = """# What the reference adapter supports

<!-- Printed by `python -m fairlead.plugins.opencl.unsupported`; a test compares it. -->

Of the {all} entry points of Unified Runtime 0.12 the adapter over OpenCL implements {there}. The
others answer UR_RESULT_ERROR_UNSUPPORTED_FEATURE, for the reasons given here. An implemented entry
point may need a feature that a driver lacks. Then this call answers
UR_RESULT_ERROR_UNSUPPORTED_FEATURE, and urAdapterGetLastError names the feature.
"""


def make_page() -> str:
    """Return docs/adapter_support.md."""
    declared = adapter.declared
    every = [name for names in TABLES.values() for name in names]
    parts = [_HEAD.format(all=len(every), there=sum(name in declared for name in every))]
    parts += list_sections(TABLES, declared, _find_reason)
    parts.append("\n".join(_list_retired(declared)))
    parts.append("\n".join(_list_properties()))
    return "\n".join(parts)


def _find_reason(name: str) -> str:
    return next((reason for reason, without in REASONS.items() if name in without), "")


def _list_retired(declared: frozenset[str]) -> Iterator[str]:
    newest = {name for names in TABLES.values() for name in names}
    retired = [name for name in UR.functions if name not in newest]
    there = ", ".join(f"`{name}`" for name in retired if name in declared)
    older = ", ".join(f"`{name[:-7]}`" for name in retired if name in OLDER)
    yield "## Of earlier releases\n"
    yield "A loader of another release gets the tables of that release.\n"
    yield wrap(f"Implemented, and retired since: {there or 'nothing'}.") + "\n"
    yield wrap(f"Implemented with the parameters of 2025.3, too: {older}.") + "\n"
    yield wrap("Not implemented in that form: `urBindlessImagesImageCopyExp`.") + "\n"


def _list_properties() -> Iterator[str]:
    yield "## Properties of devices\n"
    yield "urDeviceGetInfo answers UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION to:\n"
    for reason, names in WITHOUT.items():
        properties = ", ".join(f"`UR_DEVICE_INFO_{name}`" for name in names)
        yield wrap(f"- {properties}: {reason}.", indent="  ")


if __name__ == "__main__":
    print(make_page())
