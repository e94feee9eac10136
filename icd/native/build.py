"""Builds `fairlead.icd._native` with cffi in API mode: the C that must outlive the interpreter, or run without it.

`generated_header` makes `opencl_abi.h` from `icd/opencl.abi`: the types, a typedef for every function (`fn_clFinish`), the number of
every slot (`SLOT_clFinish`), and the table of stubs, one for every slot, that answer CL_INVALID_OPERATION through the right channel
(api/opencl_platform_layer.asciidoc, "unsupported entry points"). The rest of the C is hand-written and lies beside this file.

setup.py calls `ffibuilder()`; `python icd/native/build.py DIRECTORY` only writes the header there, for tests written in C.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = ("tables.c",)
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden")


def _abi_module() -> ModuleType:
    """loader/abi.py, which is not importable as part of fairlead before fairlead is built."""
    spec = importlib.util.spec_from_file_location("_fairlead_abi", HERE.parent.parent / "loader" / "abi.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
    api = _abi_module().Api(HERE.parent / "opencl.abi")
    lines = ["/* Generated from icd/opencl.abi by icd/native/build.py. */", "#ifndef FL_OPENCL_ABI_H", "#define FL_OPENCL_ABI_H"]
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


def write_header(directory: Path) -> Path:
    """Write opencl_abi.h into `directory` and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "opencl_abi.h"
    path.write_text(generated_header(), encoding="utf-8")
    return path


def ffibuilder() -> Any:
    """The cffi builder of `fairlead.icd._native`."""
    from cffi import FFI

    generated = write_header(HERE.parent.parent / "build" / "native").parent
    strict = ("-Werror",) if os.environ.get("FAIRLEAD_WERROR") else ()
    ffi = FFI()
    ffi.cdef((HERE / "native.cdef.h").read_text(encoding="utf-8"))
    ffi.set_source(
        "fairlead.icd._native",
        '#include "native.h"',
        sources=[os.path.relpath(HERE / source) for source in SOURCES],
        depends=[os.path.relpath(HERE / name) for name in ("native.h", "native.cdef.h")],
        include_dirs=[str(HERE), str(generated)],
        extra_compile_args=["-O2", *WARNINGS, *strict],
        libraries=["pthread"],
    )
    return ffi


if __name__ == "__main__":
    write_header(Path(sys.argv[1]))
