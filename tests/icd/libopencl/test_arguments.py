"""Every exported function reaches the driver with its arguments, and its answer comes back.

A program calls each function once with other arguments than anyone would, and prints them. The
driver prints what it gets. It trusts its caller as little as the drivers of Khronos' own tests do:
a program that it does not know crashes when it asks for devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.support import CompileC, FakeDriver, once

from fairlead.icd.abi import OPENCL

from .conftest import Client, link_text, run_client, write_manifests
from .test_library import CODES, exports

#: The loader answers these itself.
OWN = ("clGetPlatformIDs", "clUnloadCompiler", "clGetExtensionFunctionAddress")
#: What the loader looks at beside a handle, in C; the platform serves for every object.
LOOKED_AT = {
    "clCreateContext": {"num_devices": "1", "devices": "&handle"},
    "clCreateContextFromType": {"properties": "properties"},
    "clGetGLContextInfoKHR": {"properties": "properties"},
    "clWaitForEvents": {"num_events": "1", "event_list": "&handle"},
    "clGetExtensionFunctionAddressForPlatform": {"func_name": '""'},
}
#: How a driver of each kind is built.
KINDS = {
    "ICD 1": ("-DICD=1", '-DVERSION="OpenCL 3.1 log"'),
    "ICD 1, and a version older than its table": ("-DICD=1", '-DVERSION="OpenCL 1.0 log"'),
    "ICD 2": ("-DICD=2", '-DVERSION="OpenCL 1.0 log"'),
}

DRIVER = r"""
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "opencl_abi.h"
#define TAG ((void *)(intptr_t)0x4F50454E434C3331)
static void *table[FL_SLOTS + 100];
static fl_object platform = {table, NULL};
__attribute__((unused)) static cl_int own_answer(cl_platform_info name, void *into, size_t *size) {
    const char *text = name == CL_PLATFORM_VERSION ? VERSION : "log";
    if (into)
        strcpy(into, text);
    if (size)
        *size = strlen(text) + 1;
    return CL_SUCCESS;
}
static void say(const char *format, ...) {
    va_list arguments;
    if (!getenv("LOGGED")) /* only the program sets it, when it begins */
        abort();
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}
%s
static void *functions[FL_SLOTS] = {%s};
static void *get_function(cl_platform_id of, const char *name) {
    static const char *const names[FL_SLOTS] = {%s};
    for (int slot = 0; slot < FL_SLOTS; slot++)
        if (of == &platform && strcmp(names[slot], name) == 0)
            return functions[slot];
    return NULL;
}
static cl_int set_data(cl_platform_id of, void *data) {
    return of->dispatch_data = data, CL_SUCCESS;
}
static cl_int list(cl_uint room, cl_platform_id *into, cl_uint *count) {
    memcpy(table, functions, sizeof functions);
    if (ICD == 2)
        memset(table, 0, sizeof functions), table[0] = table[SLOT_clUnloadCompiler] = TAG;
    if (into && room)
        *into = &platform;
    if (count)
        *count = 1;
    return CL_SUCCESS;
}
__attribute__((visibility("default"))) void *clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)list
         : ICD == 1 ? NULL
         : strcmp(name, "clIcdGetFunctionAddressForPlatformKHR") == 0 ? (void *)get_function
         : strcmp(name, "clIcdSetPlatformDispatchDataKHR") == 0 ? (void *)set_data : NULL;
}
"""

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "opencl_abi.h"
%s
int main(void) {
    cl_platform_id handle = NULL;
    cl_int code = clGetPlatformIDs(1, &handle, NULL);
    if (code)
        return printf("no platform: %%d\n", code), 1;
    cl_context_properties properties[] = {0x1084, (cl_context_properties)handle, 0};
    setenv("LOGGED", "1", 1);
    setvbuf(stdout, NULL, _IONBF, 0);
%s
    return 0;
}
"""


def called() -> Iterator[Any]:
    """The functions that go to a driver."""
    names = exports()
    return (f for f in OPENCL.slots if f.name in names and f.name not in OWN)


def line(who: str, function: Any, values: list[str]) -> str:
    """C that prints a call."""
    form = " ".join(["%llx"] * len(values))
    words = ", ".join(f"(unsigned long long)(uintptr_t)({value})" for value in values)
    say = "say" if who == "driver" else "printf"
    return f'{say}("{who} {function.name} {form}\\n", {words});'


def driver_source() -> str:
    bodies = []
    for f in called():
        print_call = line("driver", f, [p.name for p in f.parameters])
        if f.name == "clGetPlatformInfo":  # what a loader asks is no call of the program
            ask = "return own_answer(param_name, param_value, param_value_size_ret);"
            print_call = f"if (param_name >= 0x900 && param_name < 0x1000) {ask} {print_call}"
        answer = "" if f.returns == "void" else f"return ({f.returns})(intptr_t){1000 + f.slot};"
        bodies.append(
            f"static {f.format_c_declaration(f'log_{f.name}')} {{ {print_call} {answer} }}"
        )
    functions = ", ".join(f"[{f.slot}] = (void *)log_{f.name}" for f in called())
    names = ", ".join(f'"{f.name}"' for f in OPENCL.slots)
    return DRIVER % ("\n".join(bodies), functions, names)


def program_source() -> str:
    declarations = "\n".join(f"fn_{f.name} {f.name};" for f in OPENCL.slots if f.name in exports())
    calls = []
    for f in called():
        values = [
            f"({p.c_type})(intptr_t)({LOOKED_AT.get(f.name, {}).get(p.name, number)})"
            for number, p in enumerate(f.parameters, 0x4000 + 0x100 * f.slot)
        ]
        if f.parameters[0].type in CODES and not f.parameters[0].stars:
            values[0] = "handle"
        call = f"{f.name}({', '.join(values)})"
        if f.returns != "void":
            call = f'printf("program answer %llu\\n", (unsigned long long)(uintptr_t){call})'
        calls += [line("program", f, values), f"{call};"]
    return PROGRAM % (declarations, "\n".join(calls))


@pytest.fixture(scope="module")
def program(native_headers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that calls every function."""
    text = program_source()
    return once(
        tmp_path_factory, "calls-everything", lambda path: link_text(text, path, native_headers)
    )


@pytest.fixture(scope="module")
def logging_driver(
    compile_c: CompileC, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The driver that prints its calls, of one of KINDS."""

    def build(kind: str) -> Path:
        def compile_it(path: Path) -> None:
            source = path.with_suffix(".c")
            source.write_text(driver_source(), encoding="utf-8")
            compile_c(source, path, *KINDS[kind])

        name = "".join(letter for letter in kind if letter.isalnum())
        return once(tmp_path_factory, f"liblogging-{name}.so", compile_it)

    return build


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"])
@pytest.mark.parametrize("by", ["plain", "verdict"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_and_every_answer(
    program: Path,
    logging_driver: Callable[[str], Path],
    tmp_path: Path,
    kind: str,
    by: str,
    variable: str,
) -> None:
    driver = logging_driver(kind)
    folder = write_manifests(tmp_path / "vendors", [driver])
    ways = {
        "OCL_ICD_FILENAMES": {"OCL_ICD_VENDORS": "/nowhere", "OCL_ICD_FILENAMES": str(driver)},
        "OCL_ICD_VENDORS": {"OCL_ICD_VENDORS": str(folder)},
    }
    env = {**ways[variable], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    if by == "plain":
        env["FAIRLEAD_PYTHON"] = "0"
    rest = iter(run_client([program], env).out.splitlines())
    functions = list(called())
    for f in functions:
        call = next(rest)
        assert call.startswith(f"program {f.name} ")
        assert next(rest) == call.replace("program", "driver", 1)
        if f.returns != "void":
            assert next(rest) == f"program answer {1000 + f.slot}"
    assert not list(rest) and len(functions) == 134 - len(OWN)


@pytest.mark.slow
def test_a_driver_that_fails_behind_its_platforms_is_left_out_unless_it_is_named(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """What a variable names is the user's wish. Other drivers must have usable devices."""
    bad, good = fake_driver(at_query="crash()", name='"Bad"'), fake_driver()
    assert client("names", drivers=[bad, good], by="verdict").out == "Bad 0, Fake 0\n"
    places = {"OCL_ICD_VENDORS": None, "OPENCL_VENDOR_PATH": str(tmp_path / "vendors")}
    found = client("names", drivers=[bad, good], by="verdict", env=places).out
    assert "Fake 0" in found and "Bad" not in found
    named = {"OCL_ICD_FILENAMES": str(bad)}
    for exclude, platforms in (("", "Bad 0, Fake 0\n"), (bad.name, "Fake 0\n")):
        env = {**named, "FAIRLEAD_EXCLUDE": exclude}
        assert client("names", drivers=[good], by="verdict", env=env).out == platforms
