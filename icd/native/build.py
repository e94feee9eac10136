"""Builds `fairlead.icd._native` with cffi in API mode: C that outlives Python, or runs without it.

`emit_header` makes opencl_abi.h from icd/opencl.abi: the types, a typedef for each function
(`fn_clFinish`), the number of each slot (`SLOT_clFinish`), and a table with a stub for each slot.
Each function's parameters and their names are there, too (`PARAMETERS_clFinish`,
`ARGUMENTS_clFinish`). A stub returns CL_INVALID_OPERATION as its function returns errors
(api/opencl_platform_layer.asciidoc, "unsupported entry points"). The other C files are
hand-written.

`emit_table_header` makes cuda_abi.h from loader/cuda/cuda.abi in the same way.

operation_headers.py makes the C that follows from the table of operations. Functions that neither
the table nor record.c records are refused. loader/base/native/build.py makes the layers of OpenCL.
`describe_layers` says how libfairlead_trace.so and libfairlead_record.so are built from them. They
are libraries for OpenCL loaders, not for Python.

setup.py calls `ffibuilder()` and `describe_layers()`. `python icd/native/build.py DIRECTORY` only
writes the generated C there, for tests in C.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
LOADER = HERE.parents[1] / "loader" / "base" / "native"
loader = SimpleNamespace(**runpy.run_path(str(LOADER / "build.py")))
building = loader.building

#: What Python sees, in an order that C accepts.
CDEF = ("native.cdef.h", "command_buffer.cdef.h", "engines.cdef.h")
#: The entry points of OpenCL layers without Python, which are libraries by themselves.
LAYER = HERE / "opencl_layer.c"
TRACE_LAYER = HERE / "trace_layer.c"
RECORD_LAYER = tuple(sorted((HERE / "record_layer").glob("*.c")))
SOURCES = tuple(source for source in sorted(HERE.glob("*.c")) if source not in (LAYER, TRACE_LAYER))


def _emit_types(api: Any) -> Iterator[str]:
    yield "typedef struct fl_object { void **dispatch; void *dispatch_data; } fl_object;"
    for name in api.types:
        kind = api.types[name]
        if kind == "struct":
            yield f"typedef struct {name} {name};"
        elif kind == "handle":
            yield f"typedef fl_object *{name};"
        else:
            yield f"typedef {kind} {name};"


def _emit_stub(function: Any) -> str:
    """A stub takes the arguments of its function, so that errcode_ret is where the ABI puts it."""
    body = {
        "errcode_ret": "if (errcode_ret) *errcode_ret = CL_INVALID_OPERATION; return NULL;",
        "return": "return CL_INVALID_OPERATION;",
        "null": "" if function.returns == "void" else "return NULL;",
    }[function.error_channel]
    return f"static {function.format_c_declaration('stub_' + function.name)} {{ {body} }}"


def emit_header() -> str:
    """Return the text of opencl_abi.h."""
    api = building.read_api("cl")
    lines = [
        building.emit_first_line("icd/native/build.py", api),
        "#ifndef FL_OPENCL_ABI_H",
        "#define FL_OPENCL_ABI_H",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>"]
    lines += _emit_types(api)
    lines += [f"#define {name} ({code})" for code, (name, _) in api.errors.items()]
    lines += [f"#define {constant.name} ({constant.value})" for constant in api.constants.values()]
    for function in api.functions.values():
        declared = function.format_c_declaration("fn_" + function.name)
        lines.append(f"typedef {declared};")
        lines.append(f"#define PARAMETERS_{function.name} {declared.partition('(')[2][:-1]}")
        arguments = ", ".join(parameter.name for parameter in function.parameters)
        lines.append(f"#define ARGUMENTS_{function.name} {arguments}")
        if function.slot is not None:
            lines.append(f"#define SLOT_{function.name} {function.slot}")
    lines.append(f"#define FL_SLOTS {len(api.slots)}")
    lines.append("#ifdef FL_DEFINE_STUBS")
    lines += [_emit_stub(function) for function in api.slots]
    lines.append("void *const fl_stubs[FL_SLOTS] = {")
    lines += [f"    (void *)stub_{function.name}," for function in api.slots]
    lines += ["};", "#endif", "#endif", ""]
    return "\n".join(lines)


def emit_table_header(name: str) -> str:
    """Return the text of NAME_abi.h: types, codes, constants, and each function's typedef and slot.

    Args:
        name: an API without tables of its own, a key of building.APIS.
    """
    api = building.read_api(name)
    lines = [building.emit_first_line("icd/native/build.py", api), "#pragma once"]
    lines += ["#include <stddef.h>", "#include <stdint.h>", *building.emit_declarations(api)]
    definitions = (struct.c_definition for struct in api.structs.values())
    lines += [one for one in definitions if one not in lines]  # some are declared already
    lines += [f"#define {name} ({code})" for code, (name, _) in api.errors.items()]
    lines += [f"#define {constant.name} ({constant.value})" for constant in api.constants.values()]
    for function in api.slots:
        lines.append(f"typedef {function.format_c_declaration('fn_' + function.name)};")
        lines.append(f"#define SLOT_{function.name} {function.slot}")
    return "\n".join([*lines, ""])


def emit_operations() -> dict[str, str]:
    """Return the texts of the files that are made of the table of operations, by their names."""
    make = SimpleNamespace(**runpy.run_path(str(HERE / "operation_headers.py")))
    table, api = building.read_operations(), building.read_api("cl")
    operations = list(table.values())
    written = re.findall(r"RECORD\((cl\w+)\)", (HERE / "record.c").read_text(encoding="utf-8"))
    first = "/* Generated from operations.ini by icd/native/operation_headers.py. */"
    return {
        "operations.cdef.h": f"{first}\n#pragma once\n{make.emit_numbers(operations)}\n",
        "operations.h": make.emit_facts(operations, first),
        "record_operations.h": make.emit_records(operations, api.slots, written, first),
        "replay_operations.h": make.emit_issues(operations, first),
        "fenced_calls.h": make.emit_fences(api.slots, first),
    }


def write_headers(directory: Path) -> list[Path]:
    """Write the generated C into `directory`, and return what is to be linked."""
    building.write_if_new(directory / "opencl_abi.h", emit_header())
    for name, text in emit_operations().items():
        building.write_if_new(directory / name, text)
    building.write_if_new(directory / "cuda_abi.h", emit_table_header("cuda"))
    return loader.write_thunks(directory, "cl", "CL_INVALID_OPERATION", "CL_INVALID_OPERATION")


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.icd._native`."""
    from cffi import FFI

    ffi = FFI()
    declared = [emit_operations()["operations.cdef.h"].replace("#pragma once", "")]
    declared += [(HERE / name).read_text(encoding="utf-8") for name in CDEF]
    declared.append('extern "Python" { fl_observer fl_python_observer; fl_tell fl_python_ended; }')
    ffi.cdef("\n".join(declared))
    sources = [*SOURCES, LOADER / "memory.c", *write_headers(building.GENERATED)]
    options = building.describe_extension(
        sources, [HERE, LOADER, building.GENERATED], libraries=["pthread"]
    )
    ffi.set_source("fairlead.icd._native", '#include "native.h"', **options)
    return ffi


def describe_layers() -> list[Any]:
    """Return the setuptools extensions that become libfairlead_trace.so and libfairlead_record.so.

    setup.py gives the files their names. They lie in fairlead/icd.
    """
    return [_describe_layer("trace", (TRACE_LAYER,)), _describe_layer("record", RECORD_LAYER)]


def _describe_layer(name: str, own: tuple[Path, ...]) -> Any:
    from setuptools import Extension

    sources = [*own, LAYER, *loader.SOURCES, *write_headers(building.GENERATED)]
    options = building.describe_extension(
        sources,
        [LOADER, building.GENERATED],
        libraries=["pthread"],
        extra_link_args=["-Wl,-z,defs", "-Wl,-z,nodelete"],  # loaders keep our tables
    )
    return Extension(f"fairlead.icd.libfairlead_{name}", **options)


if __name__ == "__main__":
    write_headers(Path(sys.argv[1]))
