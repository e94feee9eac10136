"""Entry points of Unified Runtime adapters that begin in C, and call Python for the others.

C counts references and updates launches (`find_counts_and_updates`). What programs call all the
time begins in C by the rules of calls.h (`CALLS`). C also keeps the answers of some queries
(`_KEPT`).
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
c_types = SimpleNamespace(**runpy.run_path(str(HERE / "c_types.py")))
building = c_types.building

_UPDATE = "urCommandBufferUpdateKernelLaunchExp"
#: The entry points that have a function in C (calls.h), by their file.
CALLS = {
    "queues.c": (
        *("urQueueFinish", "urQueueFlush", "urEventWait"),
        *("urEventGetInfo", "urEventGetProfilingInfo", "urEnqueueEventsWait"),
        *("urEnqueueEventsWaitWithBarrier", "urEnqueueEventsWaitWithBarrierExt"),
    ),
    "kernels.c": (
        *("urKernelSetArgValue", "urKernelSetArgLocal", "urKernelSetArgPointer"),
        *("urKernelSetArgMemObj", "urEnqueueKernelLaunch", "urEnqueueKernelLaunchWithArgsExp"),
    ),
    "allocations.c": (
        *("urUSMHostAlloc", "urUSMDeviceAlloc", "urUSMSharedAlloc", "urUSMFree"),
        "urUSMGetMemAllocInfo",
    ),
    "contexts.c": ("urContextCreate",),
    "appends.c": ("urCommandBufferAppendKernelLaunchWithArgsExp",),
    "gpu_launches.c": ("urEnqueueCommandBufferExp",),
    "transfers.c": (
        *("urEnqueueUSMMemcpy", "urEnqueueUSMFill", "urEnqueueMemBufferRead"),
        *("urEnqueueMemBufferWrite", "urEnqueueMemBufferCopy", "urEnqueueMemBufferFill"),
    ),
}
#: The entry points of the adapter on Level Zero that have a function in C (level_zero.c), and what
#: that calls of Level Zero.
LEVEL_ZERO = ("urEnqueueCommandBufferExp", "urEventWait", "urQueueFinish")
_ZE_FUNCTIONS = (
    *("zeCommandListImmediateAppendCommandListsExp", "zeCommandListHostSynchronize"),
    *("zeEventQueryStatus", "zeEventHostReset", "zeEventHostSynchronize"),
)
#: Queries whose answers C keeps (answers.c), with its number for them.
_KEPT = {
    "urPlatformGetInfo": "FL_OF_PLATFORM",
    "urDeviceGetInfo": "FL_OF_DEVICE",
    "urContextGetInfo": "FL_OF_CONTEXT",
    "urKernelGetInfo": "FL_OF_KERNEL",
    "urKernelGetGroupInfo": "FL_OF_GROUP",
    "urKernelGetSubGroupInfo": "FL_OF_SUB_GROUP",
    "urCommandBufferGetInfoExp": "FL_OF_COMMAND_BUFFER",
}


def find_counts_and_updates() -> dict[str, str]:
    """Return the entry points that begin in C, with the C expression that answers them.

    They count references (counts.h), or update launches (launches.h, gpu_launches.h).
    """
    found = {}
    for f in c_types.list_functions():
        first = f.parameters[0]
        for word in ("retain", "release"):
            if len(f.parameters) == 1 and word in first.words:
                arguments = f"adapter, {first.name}, kind_{first.type}, py_{f.name}"
                found[f.name] = f"fl_entry_{word}({arguments})"
    names = ", ".join(p.name for p in c_types.read_ur().functions[_UPDATE].parameters)
    others = f"fl_entry_update(adapter, {names}, py_{_UPDATE}, py_urCommandBufferReleaseExp)"
    return {**found, _UPDATE: f"fl_update_gpu_graph(adapter, {names}) ? 0 : {others}"}


def list_calls() -> list[str]:
    """Return the entry points of the reference adapter that begin in C."""
    return [name for names in CALLS.values() for name in names] + list(_KEPT)


def _emit_call(name: str, prefix: str = "fl_") -> str:
    """Return the body of an entry point that Python makes if C does not.

    Args:
        prefix: the beginning of the C function's name.
    """
    names = ", ".join(p.name for p in c_types.read_ur().functions[name].parameters)
    return (
        "    void *gil = fl_let_gil_go();\n"
        f"    int32_t code = {prefix}{name}(adapter, {names});\n"
        "    fl_take_gil(gil);\n"
        f"    return code == FL_TO_PYTHON ? py_{name}(adapter, {names}) : code;"
    )


class AddressTable(NamedTuple):
    """The C of a struct with the addresses of functions in C.

    Python only needs the addresses. cffi would make a wrapper for each function that it declares,
    which takes long to compile.
    """

    declaration: str
    definition: str


def emit_address_table(names: list[str]) -> AddressTable:
    """Return the struct `fl_in_c` with the addresses of these functions, by their names."""
    fields = " ".join(f"void *{name};" for name in names)
    values = ", ".join(f"(void *){name}" for name in names)
    return AddressTable(
        f"typedef struct {{ {fields} }} fl_in_c_table;",
        f"static const fl_in_c_table fl_in_c = {{{values}}};",
    )


def _emit_kept_query(name: str) -> str:
    """Return the body of a query whose answers are kept."""
    given = c_types.read_ur().functions[name].parameters
    handles = [p for p in given if c_types.read_ur().resolve(p.type) == "handle"]
    second = handles[1].name if len(handles) > 1 else "0"
    objects = ", ".join(p.name for p in handles)
    asked = f"adapter, {_KEPT[name]}, kind_{handles[0].type}, {handles[0].name}, {second}, propName"
    return (
        "    size_t size = 0;\n"
        f"    int32_t code = fl_kept({asked}, propSize, pPropValue, pPropSizeRet);\n"
        "    if (code != FL_TO_PYTHON)\n"
        "        return code;\n"
        f"    code = py_{name}(adapter, {objects}, propName, propSize, pPropValue,"
        " pPropValue ? &size : pPropSizeRet);\n"
        "    if (pPropValue && !code)\n"
        f"        fl_keep({asked}, pPropValue, size);\n"
        "    if (pPropValue && pPropSizeRet && !code)\n"
        "        *pPropSizeRet = size;\n"
        "    return code;"
    )


def emit_functions() -> Iterator[str]:
    """Yield a C function for each of them, and what tells C of Python's."""
    bodies = {name: f"    return {answer};" for name, answer in find_counts_and_updates().items()}
    bodies |= {
        name: _emit_kept_query(name) if name in _KEPT else _emit_call(name) for name in list_calls()
    }
    for name, body in bodies.items():
        declared = ", ".join(c_types.declare_parameters(c_types.read_ur().functions[name]))
        yield f"static int32_t py_{name}(uint32_t, {declared});"
        yield f"static int32_t c_{name}(uint32_t adapter, {declared}) {{\n{body}\n}}"
    for name in LEVEL_ZERO:
        declared = ", ".join(c_types.declare_parameters(c_types.read_ur().functions[name]))
        body = _emit_call(name, "fl_lz_")
        yield f"static int32_t py_{name}(uint32_t, {declared});"
        yield f"static int32_t lz_{name}(uint32_t adapter, {declared}) {{\n{body}\n}}"
    yield "__attribute__((constructor)) static void tell_python(void) {"
    for name, answer in find_counts_and_updates().items():
        if answer.startswith("fl_entry_release"):
            kind = c_types.read_ur().functions[name].parameters[0].type
            yield f"    fl_in_python.release[kind_{kind}] = py_{name};"
    yield "    fl_in_python.wait = py_urEventWait;\n}"


def emit_ur_calls() -> str:
    """Return the text of ur_calls.h: the functions in C, and their parameters as macros."""
    lines = [
        building.emit_first_line("plugins/sdk/native/entries_in_c.py", c_types.read_ur()),
        '#pragma once\n#include "ur_types.h"',
    ]
    in_c = [name for name in list_calls() if name not in _KEPT]
    for name in dict.fromkeys([*in_c, *LEVEL_ZERO]):
        declared = ", ".join(c_types.declare_parameters(c_types.read_ur().functions[name]))
        lines.append(f"#define PARAMETERS_{name} uint32_t adapter, {declared}")
    lines += (f"int32_t fl_{name}(PARAMETERS_{name});" for name in in_c)
    lines += (f"int32_t fl_lz_{name}(PARAMETERS_{name});" for name in LEVEL_ZERO)
    return "\n".join([*lines, ""])


def emit_ze_slots() -> str:
    """Return the text of ze_slots.h: where functions of Level Zero are in fairlead's tables."""
    api = building.read_api("ze")
    lines = [building.emit_first_line("plugins/sdk/native/entries_in_c.py", api), "#pragma once"]
    lines += (f"#define SLOT_{name} {api.functions[name].slot}" for name in _ZE_FUNCTIONS)
    return "\n".join([*lines, ""])
