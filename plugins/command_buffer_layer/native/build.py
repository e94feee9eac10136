"""Builds libfairlead_layer.so, of which setup.py makes libfairlead_command_buffer.so.

Four files are generated from icd/opencl.abi. `hooks.h` declares the functions that the layer
exchanges: each takes the next table and the arguments. `instance.c` has them without that first
parameter. It is compiled once and linked 64 times. Each copy is an instance with a next table of
its own, and adds itself to a list when the library is loaded. `extensions.c` has the functions of
the extensions, which call the body that Python has put in. `extension_names.h` numbers these.

setup.py calls `describe_layer()`. `python plugins/command_buffer_layer/native/build.py DIRECTORY`
only writes the generated C there, for tests in C.
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
IN_C = ("clRetainCommandBufferKHR", "clReleaseCommandBufferKHR", "clEnqueueCommandBufferKHR")
INSTANCES = 64  # loaders in a process


def list_extension_functions(api: Any) -> list[Any]:
    """The functions of the three extensions."""
    found = [f for f in api.functions.values() if f.slot is None and f.name.endswith("KHR")]
    parts = ("CommandBuffer", "clCommand", "MutableCommand")
    return [f for f in found if any(part in f.name for part in parts)]


def _list_arguments(function: Any, *first: str) -> str:
    return ", ".join([*first, *(parameter.name for parameter in function.parameters)])


def _emit_hook_declaration(function: Any) -> str:
    declared = function.format_c_declaration(f"hook_{function.name}")
    return declared.replace("(", "(fl_next next, ", 1)


def emit_extension_names(api: Any) -> str:
    """Return the text of extension_names.h."""
    functions = list_extension_functions(api)
    lines = [building.emit_first_line("plugins/command_buffer_layer/native/build.py", api)]
    lines += [f"#define ENTRY_{f.name} {index}" for index, f in enumerate(functions)]
    lines.append(f"#define FL_ENTRIES {len(functions)}")
    names = ", ".join(f'"{f.name}"' for f in functions)
    lines.append(f"__attribute__((unused)) static const char *const fl_names[] = {{{names}}};")
    return "\n".join([*lines, ""])


def emit_hooks_header(api: Any) -> str:
    """Return the text of hooks.h."""
    lines = [building.emit_first_line("plugins/command_buffer_layer/native/build.py", api)]
    lines += ["#ifndef FL_HOOKS_H", "#define FL_HOOKS_H", '#include "layer.h"']
    lines += [f"{_emit_hook_declaration(api.functions[name])};" for name in HOOKS]
    lines += [f"{api.functions[name].format_c_declaration(f'fl_{name}')};" for name in IN_C]
    lines += ["void fl_release_event(void *event);", "#endif", ""]
    return "\n".join(lines)


def _emit_entry(function: Any) -> str:
    """A function of the extensions that calls its body."""
    name = function.name
    call = f"((fn_{name} *)body)({_list_arguments(function)})"
    if function.error_channel == "errcode_ret":
        rest = (
            f"    {function.returns} made = {call};\n    fl_leave(CL_SUCCESS);\n    return made;\n"
        )
        without = "{ if (errcode_ret) *errcode_ret = fl_without_body(); return NULL; }"
    else:
        rest, without = f"    return fl_leave({call});\n", "return fl_without_body();"
    return (
        f"static {function.format_c_declaration(f'fl_{name}')} {{\n"
        f"    void *body = fl_body(ENTRY_{name});\n    if (!body)\n        {without}\n{rest}}}"
    )


def emit_instance_source(api: Any) -> str:
    """Return the text of instance.c."""
    lines = [building.emit_first_line("plugins/command_buffer_layer/native/build.py", api)]
    lines += ['#include "hooks.h"', "static fl_instance instance;"]
    for name in HOOKS:
        function = api.functions[name]
        call = f"hook_{name}({_list_arguments(function, 'instance.next')})"
        lines.append(f"static {function.format_c_declaration(f'here_{name}')} {{ return {call}; }}")
    lines.append("static void *const hooks[FL_SLOTS] = {")
    lines += [f"    [SLOT_{name}] = (void *)here_{name}," for name in HOOKS]
    lines += ["};", "static fl_instance instance = {.hooks = hooks};"]
    lines += ["__attribute__((constructor)) static void add(void) {"]
    lines += ["    instance.other = fl_instances;", "    fl_instances = &instance;", "}", ""]
    return "\n".join(lines)


def emit_extensions_source(api: Any) -> str:
    """Return the text of extensions.c."""
    functions = list_extension_functions(api)
    lines = [building.emit_first_line("plugins/command_buffer_layer/native/build.py", api)]
    lines += ["#define FL_DEFINE_STUBS", '#include "hooks.h"', '#include "extension_names.h"']
    lines.append("#include <string.h>")
    lines += [_emit_entry(function) for function in functions if function.name not in IN_C]
    lines.append("static void *const functions[FL_ENTRIES] = {")
    lines += [f"    (void *)fl_{function.name}," for function in functions]
    lines += ["};", "void *fl_own_function(const char *name) {"]
    lines.append("    for (unsigned i = 0; i < FL_ENTRIES; i++)")
    lines.append("        if (strcmp(name, fl_names[i]) == 0)\n            return functions[i];")
    return "\n".join([*lines, "    return NULL;\n}", ""])


def write_sources(directory: Path) -> list[Path]:
    """Write the generated C into a directory, and return what is to be linked."""
    api = building.read_api("cl")
    building.write_if_new(directory / "opencl_abi.h", icd.emit_header())
    building.write_if_new(directory / "extension_names.h", emit_extension_names(api))
    building.write_if_new(directory / "hooks.h", emit_hooks_header(api))
    instance = building.write_if_new(directory / "instance.c", emit_instance_source(api))
    extensions = building.write_if_new(directory / "extensions.c", emit_extensions_source(api))
    return [*sorted(HERE.glob("*.c")), SDK / "python.c", extensions, *[instance] * INSTANCES]


def describe_layer() -> Any:
    """Return the setuptools extension that becomes libfairlead_layer.so.

    setup.py gives the file its name.
    """
    from setuptools import Extension

    options = building.describe_extension(
        write_sources(building.GENERATED),
        [HERE, SDK, building.GENERATED],
        extra_link_args=["-Wl,-z,defs", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"],
        libraries=["pthread", "dl"],
    )
    return Extension("fairlead.plugins.command_buffer_layer.libfairlead_layer", **options)


if __name__ == "__main__":
    write_sources(Path(sys.argv[1]))
