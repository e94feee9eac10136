"""Builds libfairlead_layer.so, of which plugins/sdk/build.py makes libfairlead_command_buffer.so.

Three files are generated from icd/opencl.abi. `hooks.h` declares the functions that the layer
exchanges: each takes the next table and the arguments. `hooks.c` has them once for each instance,
without that first parameter. It also has the functions of the extensions, which call the body that
Python has put in. `extension_names.h` numbers these.

setup.py calls `layer()`. `python plugins/command_buffer_layer/native/build.py DIRECTORY` only
writes the generated C there, for tests in C.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
SDK = HERE.parents[1] / "sdk" / "native"
ICD = HERE.parents[2] / "icd" / "native"
icd = SimpleNamespace(**runpy.run_path(str(ICD / "build.py")))
building = icd.building

#: The functions that the layer exchanges, by the file that has them.
HOOKS = (
    *("clGetPlatformInfo", "clGetDeviceInfo", "clGetExtensionFunctionAddress"),
    "clGetExtensionFunctionAddressForPlatform",
    *("clCreateKernel", "clCreateKernelsInProgram", "clCloneKernel", "clSetKernelArg"),
    *("clSetKernelArgSVMPointer", "clSetKernelExecInfo"),
    *("clRetainEvent", "clReleaseEvent", "clGetEventInfo", "clGetEventProfilingInfo"),
)
#: The functions of the extensions that begin in C (handles.c).
IN_C = (
    "clRetainCommandBufferKHR",
    "clReleaseCommandBufferKHR",
    "clEnqueueCommandBufferKHR",
)
_INSTANCES = 64  # FL_INSTANCES of layer.h


def extension_functions(api: Any) -> list[Any]:
    """The functions of the three extensions."""
    found = [f for f in api.functions.values() if f.slot is None and f.name.endswith("KHR")]
    parts = ("CommandBuffer", "clCommand", "MutableCommand")
    return [f for f in found if any(part in f.name for part in parts)]


def _arguments(function: Any, *first: str) -> str:
    return ", ".join([*first, *(parameter.name for parameter in function.parameters)])


def _hook_declaration(function: Any) -> str:
    declared = function.c_declaration(f"hook_{function.name}")
    return declared.replace("(", "(fl_next next, ", 1)


def extension_names(api: Any) -> str:
    """The text of extension_names.h."""
    functions = extension_functions(api)
    lines = [building.generated_by("plugins/command_buffer_layer/native/build.py", api)]
    lines += [f"#define ENTRY_{f.name} {index}" for index, f in enumerate(functions)]
    lines.append(f"#define FL_ENTRIES {len(functions)}")
    names = ", ".join(f'"{f.name}"' for f in functions)
    lines.append(f"__attribute__((unused)) static const char *const fl_names[] = {{{names}}};")
    return "\n".join([*lines, ""])


def hooks_header(api: Any) -> str:
    """The text of hooks.h."""
    lines = [building.generated_by("plugins/command_buffer_layer/native/build.py", api)]
    lines += ["#ifndef FL_HOOKS_H", "#define FL_HOOKS_H", '#include "layer.h"']
    lines += [f"{_hook_declaration(api.functions[name])};" for name in HOOKS]
    lines += [f"{api.functions[name].c_declaration(f'fl_{name}')};" for name in IN_C]
    lines += ["void fl_release_event(void *event);", "#endif", ""]
    return "\n".join(lines)


def _entry(function: Any) -> str:
    """A function of the extensions that calls its body."""
    name = function.name
    call = f"((fn_{name} *)body)({_arguments(function)})"
    if function.error_channel == "errcode_ret":
        rest = (
            f"    {function.returns} made = {call};\n    fl_leave(CL_SUCCESS);\n    return made;\n"
        )
        without = "{ if (errcode_ret) *errcode_ret = fl_without_body(); return NULL; }"
    else:
        rest, without = f"    return fl_leave({call});\n", "return fl_without_body();"
    return (
        f"static {function.c_declaration(f'fl_{name}')} {{\n"
        f"    void *body = fl_body(ENTRY_{name});\n    if (!body)\n        {without}\n{rest}}}"
    )


def hooks_source(api: Any) -> str:
    """The text of hooks.c."""
    lines = [building.generated_by("plugins/command_buffer_layer/native/build.py", api)]
    lines += ["#define FL_DEFINE_STUBS", '#include "hooks.h"', '#include "extension_names.h"']
    lines += ["#include <string.h>", "static fl_next nexts[FL_INSTANCES];"]
    for instance in range(_INSTANCES):
        for name in HOOKS:
            function = api.functions[name]
            call = f"hook_{name}({_arguments(function, f'nexts[{instance}]')})"
            declared = function.c_declaration(f"hook_{instance}_{name}")
            lines.append(f"static {declared} {{ return {call}; }}")
    slots = ", ".join(f"SLOT_{name}" for name in HOOKS)
    lines.append(f"static const unsigned slots[] = {{{slots}}};")
    lines.append(f"static void *const hooks[FL_INSTANCES][{len(HOOKS)}] = {{")
    for instance in range(_INSTANCES):
        row = ", ".join(f"(void *)hook_{instance}_{name}" for name in HOOKS)
        lines.append(f"    {{{row}}},")
    lines.append(
        "};\nvoid fl_set_next(unsigned instance, fl_next next) { nexts[instance] = next; }"
    )
    lines.append("void fl_fill(void **table, unsigned instance) {")
    lines.append(f"    for (unsigned i = 0; i < {len(HOOKS)}; i++)")
    lines.append("        table[slots[i]] = hooks[instance][i];\n}")
    functions = extension_functions(api)
    lines += [_entry(function) for function in functions if function.name not in IN_C]
    lines.append("static void *const functions[FL_ENTRIES] = {")
    lines += [f"    (void *)fl_{function.name}," for function in functions]
    lines += ["};", "void *fl_own_function(const char *name) {"]
    lines.append("    for (unsigned i = 0; i < FL_ENTRIES; i++)")
    lines.append("        if (strcmp(name, fl_names[i]) == 0)\n            return functions[i];")
    return "\n".join([*lines, "    return NULL;\n}", ""])


def write_sources(directory: Path) -> list[Path]:
    """Write the generated C into a directory, and return what is to be linked."""
    api = building.api("cl")
    building.write_if_new(directory / "opencl_abi.h", icd.generated_header())
    building.write_if_new(directory / "extension_names.h", extension_names(api))
    building.write_if_new(directory / "hooks.h", hooks_header(api))
    generated = building.write_if_new(directory / "hooks.c", hooks_source(api))
    return [*sorted(HERE.glob("*.c")), SDK / "python.c", generated]


def layer() -> Any:
    """Return the setuptools extension that becomes libfairlead_layer.so.

    setup.py gives the file its name.
    """
    from setuptools import Extension

    options = building.extension(
        write_sources(building.GENERATED),
        [HERE, SDK, building.GENERATED],
        extra_link_args=["-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"],
        libraries=["pthread", "dl"],
    )
    return Extension("fairlead.plugins.command_buffer_layer.libfairlead_layer", **options)


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]))
