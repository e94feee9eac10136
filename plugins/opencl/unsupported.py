"""What the reference adapter does not implement, and why: the entry points that answer UNSUPPORTED_FEATURE.

`python -m fairlead.plugins.opencl.unsupported` prints docs/adapter_support.md, which a test compares with what the adapter declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...loader.ur.abi import UR
from .core import adapter
from .device_tables import WITHOUT

#: Why → the entry points, by their whole names.
REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "An image of OpenCL is a memory object that a kernel is given as an argument: none has a handle that a kernel could hold as a number, "
    "and mipmaps, cube maps and external arrays of that kind do not exist.": tuple(
        name
        for name in UR.functions
        if name.startswith("urBindlessImages") and not name.endswith("_2025_3")
    ),
    "Images are left out so far: nothing of this adapter copies them, and UR_DEVICE_INFO_IMAGE_SUPPORT is false.": (
        "urMemImageCreate",
        "urMemImageCreateWithNativeHandle",
        "urMemImageGetInfo",
        "urEnqueueMemImageRead",
        "urEnqueueMemImageWrite",
        "urEnqueueMemImageCopy",
    ),
    "OpenCL has no addresses that are reserved apart from memory, and no memory that is mapped to addresses afterwards.": (
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
    "OpenCL gives no memory to other interfaces or processes (cl_khr_external_memory only takes in what others made), and its events stay "
    "in their process.": (
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
    "OpenCL has no switch for what one device sees of another's memory: a context's devices share it as far as they can.": (
        "urUsmP2PEnablePeerAccessExp",
        "urUsmP2PDisablePeerAccessExp",
        "urUsmP2PPeerAccessGetInfoExp",
    ),
    "A queue of OpenCL cannot be told to record: what is to be run again is put into a command-buffer (urCommandBufferCreateExp).": (
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
    "OpenCL specialises a program before it is built (urProgramSetSpecializationConstants), not its kernels.": (
        "urKernelSetSpecializationConstants",
    ),
    "No driver but those of FPGAs has pipes that the host reads and writes (cl_intel_program_scope_host_pipe).": (
        "urEnqueueReadHostPipe",
        "urEnqueueWriteHostPipe",
    ),
}

#: The entry points of the newest layout, table by table.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(name for name in names if name)
    for table, names in next(iter(UR.layouts.values())).items()
}

_HEAD: Final = """# What the reference adapter supports

<!-- Made by `python -m fairlead.plugins.opencl.unsupported`; a test compares it with what the adapter declares. -->

Of the {all} entry points of Unified Runtime 0.12 the adapter over OpenCL implements {there}. The others answer
UR_RESULT_ERROR_UNSUPPORTED_FEATURE, for the reasons given here. What is implemented may still need something of a driver that the driver
lacks; then the answer to the one call is UR_RESULT_ERROR_UNSUPPORTED_FEATURE, and urAdapterGetLastError says what it was.
"""


def page() -> str:
    """docs/adapter_support.md."""
    declared = adapter.declared
    every = [name for names in TABLES.values() for name in names]
    parts = [_HEAD.format(all=len(every), there=sum(name in declared for name in every))]
    parts += [
        "\n".join(_section(table, names, declared)) for table, names in sorted(TABLES.items())
    ]
    parts.append("\n".join(_retired(declared)))
    parts.append("\n".join(_properties()))
    return "\n".join(parts)


def _section(table: str, names: tuple[str, ...], declared: frozenset[str]) -> Iterator[str]:
    there = [f"`{name}`" for name in names if name in declared]
    yield f"## {table}: {len(there)} of {len(names)}\n"
    if there:
        yield f"Implemented: {', '.join(there)}.\n"
    for reason, without in REASONS.items():
        missing = [f"`{name}`" for name in names if name in without and name not in declared]
        if missing:
            yield f"Not implemented: {', '.join(missing)}. {reason}\n"


def _retired(declared: frozenset[str]) -> Iterator[str]:
    newest = {name for names in TABLES.values() for name in names}
    there, without = [], []
    for name in UR.functions:
        if name not in newest:
            (there if name in declared else without).append(f"`{name.removesuffix('_2025_3')}`")
    yield "## Of earlier releases\n"
    yield "A loader of another release is served by its own order of the tables (`FAIRLEAD_UR_LAYOUT`).\n"
    yield f"Implemented, of what newer releases no longer have: {', '.join(there) or 'nothing'}.\n"
    yield f"Not implemented: {', '.join(without)} as 2025.3 had them, with other parameters than the functions of these names have now.\n"


def _properties() -> Iterator[str]:
    yield "## Properties of devices\n"
    yield "urDeviceGetInfo answers UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION to:\n"
    for reason, names in WITHOUT.items():
        yield f"- {', '.join(f'`UR_DEVICE_INFO_{name}`' for name in names)}: {reason}."


if __name__ == "__main__":
    print(page())
