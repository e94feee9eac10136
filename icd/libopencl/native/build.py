"""Builds libOpenCL.so.1: its exported functions are generated from the ABI data.

Every function with a slot gets up to five forms. The *exported* one jumps to the entry of
`fl_current`, where layers are. `dispatch_…` checks the handle and calls the driver by the handle's
own table. `icd1_…` does the same where every driver is of ICD 1: it looks for no tag. `careful_…`
first looks whether the driver's table has the slot. `start_…` finds the drivers, and stands in
`fl_current` until that is done. Where `fl_direct` allows it, the exported function calls the driver
itself.

setup.py calls `describe_libopencl()`. `python icd/libopencl/native/build.py DIRECTORY` only writes
the generated C there, for tests in C.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
ICD = HERE.parents[1] / "native"
LOADER = HERE.parents[2] / "loader" / "base" / "native"
icd = SimpleNamespace(**runpy.run_path(str(ICD / "build.py")))
building = icd.building

#: What a NULL handle is answered with.
NULL_HANDLE = {
    "cl_platform_id": "CL_INVALID_PLATFORM",
    "cl_device_id": "CL_INVALID_DEVICE",
    "cl_context": "CL_INVALID_CONTEXT",
    "cl_command_queue": "CL_INVALID_COMMAND_QUEUE",
    "cl_mem": "CL_INVALID_MEM_OBJECT",
    "cl_sampler": "CL_INVALID_SAMPLER",
    "cl_program": "CL_INVALID_PROGRAM",
    "cl_kernel": "CL_INVALID_KERNEL",
    "cl_event": "CL_INVALID_EVENT",
}
#: In entries.c: they have no handle to go by, or need no driver.
WRITTEN = (
    "clGetPlatformIDs",
    "clCreateContext",
    "clCreateContextFromType",
    "clUnloadCompiler",
    "clWaitForEvents",
    "clGetExtensionFunctionAddress",
    "clGetGLContextInfoKHR",
    "clGetExtensionFunctionAddressForPlatform",
)
#: A program has no handle before it called one of these. Those with a platform take NULL for one.
STARTING = (
    "clGetPlatformIDs",
    "clGetPlatformInfo",
    "clGetDeviceIDs",
    "clCreateContextFromType",
    "clGetExtensionFunctionAddress",
    "clGetGLContextInfoKHR",
    "clUnloadPlatformCompiler",
    "clGetExtensionFunctionAddressForPlatform",
)
#: Extensions whose functions have slots. Programs ask for them by clGetExtensionFunctionAddress.
_OWN = (
    "clCreateFromGL",
    "clGetGL",
    "clEnqueueAcquireGL",
    "clEnqueueReleaseGL",
    "clCreateEventFrom",
    "clCreateFromEGL",
    "clEnqueueAcquireEGL",
    "clEnqueueReleaseEGL",
    "clCreateSubDevicesEXT",
    "clRetainDeviceEXT",
    "clReleaseDeviceEXT",
    "clGetKernelSubGroupInfoKHR",
)
#: ocl-icd exports these under an older version than that of their slots.
_EGL = ("EGL", "OPENCL_1.0")


def is_exported(function: Any) -> bool:
    """Whether a function is exported. Those of Direct3D and DirectX are for Windows."""
    return not any(word in function.name for word in ("D3D", "DX9"))


def find_version(function: Any) -> str:
    """The version node of an exported function."""
    word, older = _EGL
    return older if word in function.name else f"OPENCL_{function.since[0]}.{function.since[1]}"


def emit_version_script(api: Any) -> str:
    """Return the text of the linker's version script. Each version follows the one before it."""
    nodes: dict[str, list[str]] = {}
    for function in filter(is_exported, api.slots):
        nodes.setdefault(find_version(function), []).append(function.name)
    text, before = "", ""
    for node in sorted(nodes):
        hidden = "" if before else " local: *;"
        text += f"{node} {{ global: {'; '.join(nodes[node])};{hidden} }}{before};\n"
        before = f" {node}"
    return text


def _list_arguments(function: Any) -> str:
    return ", ".join(parameter.name for parameter in function.parameters)


def _emit_call(function: Any, pointer: str) -> str:
    word = "" if function.returns == "void" else "return "
    return f"{word}((fn_{function.name} *){pointer})({_list_arguments(function)});"


def _emit_check(function: Any) -> str:
    """The answer to a NULL handle. NULL may stand for a platform (entries.c)."""
    handle = function.parameters[0]
    code = NULL_HANDLE[handle.type]
    answer = {
        "return": f"return {code};",
        "errcode_ret": f"{{ if (errcode_ret) *errcode_ret = {code}; return NULL; }}",
        "null": "return;" if function.returns == "void" else "return NULL;",
    }[function.error_channel]
    default = (
        f" && !({handle.name} = fl_default_platform())" if handle.type == "cl_platform_id" else ""
    )
    return f"if (FL_UNLIKELY(!{handle.name}{default})) {answer}"


def _emit_dispatch(function: Any) -> Iterator[str]:
    name, slot, handle = function.name, function.slot, function.parameters[0].name
    stop = " return;" if function.returns == "void" else ""
    for form in ("icd1", "dispatch")[name in STARTING :]:
        yield f"static {function.format_c_declaration(f'{form}_{name}')} {{"
        yield f"    {_emit_check(function)}"
        if form == "dispatch" and function.parameters[0].type in ("cl_platform_id", "cl_device_id"):
            yield "    fl_keep_tables();"
        yield f"    void *const *table = {handle}->dispatch;"
        if form == "dispatch":
            yield "    if (FL_UNLIKELY(fl_is_tagged(table)))"
            icd2 = f"((void *const *){handle}->dispatch_data)[{slot}]"
            yield f"        {{ {_emit_call(function, icd2)}{stop} }}"
        yield f"    if (FL_UNLIKELY(!table[{slot}]))"
        yield f"        {{ {_emit_call(function, f'stub_{name}')}{stop} }}"
        yield f"    {_emit_call(function, f'table[{slot}]')}\n}}"
    yield f"static {function.format_c_declaration(f'careful_{name}')} {{"
    yield f"    {_emit_check(function)}"
    missing = f"fl_lacks_slot((void *const *){handle}->dispatch, {slot})"
    yield f"    {_emit_call(function, f'({missing} ? stub_{name} : dispatch_{name})')}\n}}"


def _emit_exported(function: Any) -> Iterator[str]:
    yield f"FL_EXPORT {function.format_c_declaration(function.name)} {{"
    # a layer that another thread has just started has written what its function reads
    current = f"__atomic_load_n(&fl_current[{function.slot}], __ATOMIC_ACQUIRE)"
    if function.name in (*WRITTEN, *STARTING):
        yield f"    {_emit_call(function, current)}\n}}"
        return
    stop = " return;" if function.returns == "void" else ""
    handle, slot = function.parameters[0].name, function.slot
    yield f"    if (FL_UNLIKELY(!fl_direct[{slot}]))"
    yield f"        {{ {_emit_call(function, current)}{stop} }}"
    yield f"    {_emit_check(function)}"
    yield f"    {_emit_call(function, f'{handle}->dispatch[{slot}]')}\n}}"


def _emit_table(api: Any, declaration: str, name_of: Any) -> Iterator[str]:
    yield f"{declaration} = {{"
    yield from (f"    {name_of(function)}, /* {function.slot} */" for function in api.slots)
    yield "};"


def _name_first_entry(function: Any) -> str:
    form = "start" if function.name in STARTING else "dispatch"
    return f"(void *){form}_{function.name}"


def emit_thunks() -> str:
    """Return the text of thunks_libopencl.c."""
    api = building.read_api("cl")
    lines = [building.emit_first_line("icd/libopencl/native/build.py", api)]
    lines += ["#define FL_DEFINE_STUBS", '#include "loader.h"', "#include <string.h>"]
    lines.append("cl_platform_id fl_default_platform(void);")
    for function in api.slots:
        if function.name in WRITTEN:
            lines.append(f"{function.format_c_declaration(f'dispatch_{function.name}')};")
        else:
            lines += _emit_dispatch(function)
        if function.name in STARTING:
            pointer = f"(fl_start() ? fl_current : fl_bottom)[{function.slot}]"
            lines.append(
                f"static {function.format_c_declaration(f'start_{function.name}')} "
                f"{{ {_emit_call(function, pointer)} }}"
            )
        if is_exported(function):
            lines += _emit_exported(function)
    lines += [
        "bool fl_direct[FL_SLOTS];",
        *_emit_table(api, "void *fl_current[FL_SLOTS]", _name_first_entry),
    ]
    lines += _emit_table(api, "void *fl_bottom[FL_SLOTS]", lambda f: f"(void *)dispatch_{f.name}")
    for form, without in (("icd1", (*WRITTEN, *STARTING)), ("careful", WRITTEN)):
        lines += _emit_table(
            api,
            f"void *const fl_{form}[FL_SLOTS]",
            lambda f, form=form, without=without: (
                "NULL" if f.name in without else f"(void *){form}_{f.name}"
            ),
        )
    lines += _emit_table(
        api, "const uint8_t fl_since[FL_SLOTS]", lambda f: f"{f.since[0] << 4 | f.since[1]:#x}"
    )
    lines.append("void *fl_own_extension(const char *name) {")
    lines += [
        f'    if (strcmp(name, "{f.name}") == 0) return (void *){f.name};'
        for f in api.slots
        if is_exported(f) and f.name.startswith(_OWN)
    ]
    return "\n".join([*lines, "    return NULL;\n}", ""])


def write_sources(directory: Path) -> list[Path]:
    """Write the generated C into a directory, and return what is to be linked."""
    building.write_if_new(directory / "opencl_abi.h", icd.emit_header())
    api = building.read_api("cl")
    names = ", ".join(f'"{function.name}"' for function in api.slots)
    building.write_if_new(directory / "slot_names.h", f"#define FL_SLOT_NAMES {names}\n")
    building.write_if_new(directory / "libopencl.map", emit_version_script(api))
    generated = building.write_if_new(directory / "thunks_libopencl.c", emit_thunks())
    return [*sorted(HERE.glob("*.c")), LOADER / "memory.c", generated]


def describe_libopencl(version: str) -> Any:
    """Return the setuptools extension that becomes fairlead/icd/libopencl/libOpenCL.so.1.

    setup.py gives the file its name, and FL_PYTHON in a tree that is used as it lies.

    Args:
        version: The version of fairlead, which the library tells.
    """
    from setuptools import Extension

    sources = write_sources(building.GENERATED)
    options = building.describe_extension(
        sources,
        [HERE, LOADER, building.GENERATED],
        "-falign-functions=32",  # a call that is read in two parts takes a cycle more
        libraries=["pthread", "dl"],
        define_macros=[("FL_VERSION", f'"{version}"')],
        extra_link_args=[
            "-Wl,-z,defs",
            "-Wl,-z,nodelete",  # drivers keep our tables
            "-Wl,-Bsymbolic",
            "-Wl,-soname,libOpenCL.so.1",
            f"-Wl,--version-script={building.GENERATED / 'libopencl.map'}",
        ],
    )
    return Extension("fairlead.icd.libopencl.libOpenCL", **options)


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]))
