"""Builds `fairlead.icd._native` with cffi in API mode: the C that must outlive the interpreter, or run without it.

`generated_header` makes `opencl_abi.h` from `icd/opencl.abi`: the types, a typedef for every function (`fn_clFinish`), the number of
every slot (`SLOT_clFinish`), and the table of stubs, one for every slot, that answer CL_INVALID_OPERATION through the right channel
(api/opencl_platform_layer.asciidoc, "unsupported entry points"). The rest of the C is hand-written and lies beside this file.

`generated_refusals` makes `refusals.h`: what a recording table has for the commands that record.c does not record.
loader/base/native/build.py makes `thunks_cl.c`, the layers of OpenCL.

`trace_layer` says how `libfairlead_trace.so` is built from the same thunks: a library for OpenCL loaders, not for Python.

setup.py calls `ffibuilder()` and `trace_layer()`; `python icd/native/build.py DIRECTORY` only writes the headers there, for tests that
are written in C.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[1] / "loader" / "base" / "native"
SOURCES = (
    "tables.c",
    "keep.c",
    "patch.c",
    "arguments.c",
    "array.c",
    "svm.c",
    "recording.c",
    "record.c",
    "order.c",
    "events.c",
    "prepare.c",
    "replay.c",
    "enqueue.c",
    "wait.c",
)
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden")


@cache
def _loader() -> Any:
    """loader/base/native/build.py, which is not importable as part of fairlead before fairlead is built."""
    spec = importlib.util.spec_from_file_location("_fairlead_loader_build", LOADER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def _abi() -> Any:
    """The OpenCL ABI."""
    return _loader().abi_module().Api(HERE.parent / "opencl.abi")


def _types(api: Any) -> Iterator[str]:
    yield "typedef struct fl_object { void **dispatch; void *dispatch_data; } fl_object;"
    for name in api.types:
        kind = api.types[name]
        if kind == "struct":
            yield f"typedef struct {name} {name};"
        elif kind == "handle":
            yield f"typedef fl_object *{name};"
        else:
            yield f"typedef {kind} {name};"


def _stub(function: Any) -> str:
    """A stub takes the arguments of its function, so that errcode_ret is where the ABI puts it."""
    body = {
        "errcode_ret": "if (errcode_ret) *errcode_ret = CL_INVALID_OPERATION; return NULL;",
        "return": "return CL_INVALID_OPERATION;",
        "null": "" if function.returns == "void" else "return NULL;",
    }[function.error_channel]
    return f"static {function.c_declaration('stub_' + function.name)} {{ {body} }}"


def generated_header() -> str:
    """The text of opencl_abi.h."""
    api = _abi()
    lines = [
        "/* Generated from icd/opencl.abi by icd/native/build.py. */",
        "#ifndef FL_OPENCL_ABI_H",
        "#define FL_OPENCL_ABI_H",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>"]
    lines += _types(api)
    lines += [f"#define {name} ({code})" for code, (name, _) in api.errors.items()]
    lines += [f"#define {constant.name} ({constant.value})" for constant in api.constants.values()]
    for function in api.functions.values():
        lines.append(f"typedef {function.c_declaration('fn_' + function.name)};")
        if function.slot is not None:
            lines.append(f"#define SLOT_{function.name} {function.slot}")
    lines.append(f"#define FL_SLOTS {len(api.slots)}")
    lines.append("#ifdef FL_DEFINE_STUBS")
    lines += [_stub(function) for function in api.slots]
    lines.append("void *const fl_stubs[FL_SLOTS] = {")
    lines += [f"    (void *)stub_{function.name}," for function in api.slots]
    lines += ["};", "#endif", "#endif", ""]
    return "\n".join(lines)


def _refusal(function: Any) -> str:
    """What a recording table has for a queue command that record.c does not record: it refuses, in the function's own channel."""
    arguments = ", ".join(parameter.name for parameter in function.parameters)
    fail = {
        "return": "return code;",
        "errcode_ret": "if (errcode_ret)\n        *errcode_ret = code;\n    return NULL;",
    }[function.error_channel]
    return (
        f"static {function.c_declaration('refused_' + function.name)} {{\n"
        f"    void **table;\n    cl_int code = refuse_call({function.parameters[0].name}, SLOT_{function.name}, &table);\n"
        f"    if (table)\n        return CALL(table, {function.name})({arguments});\n    {fail}\n}}"
    )


def generated_refusals() -> str:
    """The text of refusals.h: every clEnqueue… that record.c does not record."""
    recorded = re.findall(r"RECORD\((cl\w+)\)", (HERE / "record.c").read_text(encoding="utf-8"))
    functions = [
        f for f in _abi().slots if f.name.startswith("clEnqueue") and f.name not in recorded
    ]
    lines = [
        "/* Generated from icd/opencl.abi by icd/native/build.py. */",
        *map(_refusal, functions),
    ]
    fill = " ".join(
        f"(slots)[SLOT_{f.name}] = (void *)(fn_{f.name} *)refused_{f.name};" for f in functions
    )
    return "\n".join([*lines, f"#define FL_FILL_REFUSALS(slots) {fill}", ""])


def write_headers(directory: Path) -> Path:
    """Write opencl_abi.h, refusals.h and thunks_cl.c into `directory` and return it."""
    code = "-59"  # CL_INVALID_OPERATION
    thunks = _loader().thunks(_abi(), "cl", code, code)
    for name, text in (
        ("opencl_abi.h", generated_header()),
        ("refusals.h", generated_refusals()),
        ("thunks_cl.c", thunks),
    ):
        _loader().write_if_new(directory / name, text)
    return directory


def ffibuilder() -> Any:
    """The cffi builder of `fairlead.icd._native`."""
    from cffi import FFI

    generated = write_headers(Path("build/native"))
    strict = ("-Werror",) if os.environ.get("FAIRLEAD_WERROR") else ()
    ffi = FFI()
    ffi.cdef((HERE / "native.cdef.h").read_text(encoding="utf-8"))
    ffi.cdef('extern "Python" fl_observer fl_python_observer;')
    ffi.set_source(
        "fairlead.icd._native",
        '#include "native.h"',
        sources=[
            *(os.path.relpath(HERE / source) for source in SOURCES),
            os.path.relpath(LOADER / "memory.c"),
            os.path.relpath(generated / "thunks_cl.c"),
        ],
        depends=[
            os.path.relpath(HERE / name) for name in ("native.h", "native.cdef.h", "recording.h")
        ],
        include_dirs=[str(HERE), str(LOADER), str(generated)],
        extra_compile_args=["-O2", *WARNINGS, *strict],
        libraries=["pthread"],
    )
    return ffi


def trace_layer() -> Any:
    """The setuptools extension that becomes `fairlead/icd/libfairlead_trace.so`; setup.py sees to the file's name."""
    from setuptools import Extension

    generated = write_headers(Path("build/native"))
    strict = ("-Werror",) if os.environ.get("FAIRLEAD_WERROR") else ()
    sources = [
        HERE / "trace_layer.c",
        *(LOADER / source for source in _loader().SOURCES),
        generated / "thunks_cl.c",
    ]
    return Extension(
        "fairlead.icd.libfairlead_trace",
        sources=[os.path.relpath(source) for source in sources],
        depends=[os.path.relpath(path) for path in sorted(LOADER.glob("*.h"))],
        include_dirs=[str(LOADER)],
        extra_compile_args=["-O2", *WARNINGS, *strict],
        extra_link_args=["-Wl,-z,defs"],  # Python is not there to define anything
        libraries=["pthread"],
    )


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
