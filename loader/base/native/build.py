"""Builds `fairlead.loader.base._native` with cffi in API mode: layers, the log of calls, careful reads.

`thunks(api, name)` makes the C of all that is generated for an API from its ABI data: for every slot the thunk that hands a call to a
layer (layer.h), once for each layer; the stubs that stand where an adapter has nothing; and how a trace is to read each parameter.
icd/native/build.py makes those of OpenCL with the same function.

setup.py calls `ffibuilder()`; `python loader/base/native/build.py DIRECTORY` only writes the generated C there, for tests written in C.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = ("memory.c", "layers.c", "log.c")
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden")
LAYERS = 16  # FL_LAYERS
_PIECE = 128  # log.c: the most that is read of what a parameter leads to
_NOTHING = "{0, -1, 1}"  # an fl_shape: nothing is read

#: How a parameter becomes a word, by what its type is in the end.
_WORDS = {
    "pointer": "FL_POINTER({})",
    "handle": "FL_POINTER({})",
    "callback": "FL_POINTER({})",
    "void*": "FL_POINTER({})",
    "struct": "FL_POINTER(&{})",
    "float": "FL_FLOAT({})",
}


@cache
def abi_module() -> Any:
    """loader/base/abi.py, which is not importable as part of fairlead before fairlead is built."""
    spec = importlib.util.spec_from_file_location("_fairlead_abi", HERE.parent / "abi.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def declarations(api: Any) -> Iterator[str]:
    """The types of an API, in an order that C accepts; a handle is a pointer to a struct of its own."""
    declared = set()

    def declare(name: str) -> Iterator[str]:
        if name in declared or name not in api.types:
            return
        declared.add(name)
        base = api.types[name]
        if base == "struct":
            kind = api.structs[name].kind if name in api.structs else "struct"
            yield f"typedef {kind} {name} {name};"
        elif base == "handle":
            yield f"typedef struct fl_{name} *{name};"
        elif base == "callback":
            yield f"typedef void (*{name})(void);"
        else:
            yield from declare(base)
            yield f"typedef {base.replace('unsigned_char', 'unsigned char')} {name};"

    for name in api.types:
        yield from declare(name)
    for name in _passed_by_value(api):
        yield api.structs[name].c_definition


def _passed_by_value(api: Any) -> list[str]:
    found = (
        p.type
        for f in api.slots
        for p in f.parameters
        if not p.stars and api.resolve(p.type) == "struct"
    )
    return sorted(set(found))


def _thunk(api: Any, function: Any) -> str:
    """The body that all layers of a slot share. `current` was set a moment ago by the thunk that the caller called."""
    words = []
    for p in function.parameters:
        base = "pointer" if p.stars or p.type == "callback" else api.resolve(p.type)
        words.append(_WORDS.get(base, "FL_NUMBER({})").format(p.name))
    names = ", ".join(p.name for p in function.parameters)
    void, slot = function.returns == "void", function.slot
    is_number = api.ctype(function.returns) is not None and api.resolve(
        function.returns.rstrip("*")
    ) not in ("handle", "void*", "void")
    is_number = is_number and not function.returns.endswith("*")
    back = (
        "(void)0"
        if void
        else f"return ({function.returns})" + ("" if is_number else "(uintptr_t)") + "call.result"
    )
    forward = f"((fn_{function.name} *)next[{slot}])({names});"
    return f"""\
typedef {function.c_declaration("fn_" + function.name)};
static {function.c_declaration("body_" + function.name)} {{
    fl_layer *layer = current;
    void *const *next = __atomic_load_n(&layer->next, __ATOMIC_ACQUIRE);
    uint64_t arguments[] = {{{", ".join(words) or "0"}}};
    fl_call call = {{layer, {slot}, {len(words)}, arguments, layer->orphan, 0}};
    int (*before)(fl_call *) = __atomic_load_n(&layer->before, __ATOMIC_ACQUIRE);
    if ((before && before(&call)) || !next) {{
        {back};
        {"return;" if void else ""}
    }}
    {"" if void else function.returns + " result = "}{forward}
    void (*after)(fl_call *) = __atomic_load_n(&layer->after, __ATOMIC_ACQUIRE);
    if (after) {{
        call.result = {"0" if void else ("FL_NUMBER" if is_number else "FL_POINTER") + "(result)"};
        after(&call);
    }}
    {"" if void else "return result;"}
}}"""


def _layer(api: Any, number: str = "k") -> Iterator[str]:
    """The thunks of one layer, as a macro of its number."""
    yield f"#define LAYER({number}) \\"
    for f in api.slots:
        names = ", ".join(p.name for p in f.parameters)
        call = f"current = &layers[{number}]; {'' if f.returns == 'void' else 'return '}body_{f.name}({names});"
        yield f"static {f.c_declaration(f'thunk_{f.name}_##{number}')} {{ {call} }} \\"
    yield f"static void *const table_##{number}[] = {{ \\"
    yield from (f"(void *)thunk_{f.name}_##{number}, \\" for f in api.slots)
    yield "};"


def _stubs(api: Any, name: str, code: str) -> Iterator[str]:
    """A table in which every slot answers with an error, through the channel that the function has for errors."""
    for f in api.slots:
        if f.error_channel == "errcode_ret":
            body = f"if (errcode_ret) *errcode_ret = {code}; return NULL;"
        elif f.error_channel == "return":
            body = f"return {code};"
        else:
            body = "" if f.returns == "void" else "return NULL;"
        yield f"static {f.c_declaration(f'{name}_{f.name}')} {{ {body} }}"
    yield f"static void *const {name}[] = {{"
    yield from (f"    (void *){name}_{f.name}," for f in api.slots)
    yield "};"


def _shape(api: Any, function: Any, parameter: Any) -> str:
    """The fl_shape of a parameter. Raw memory is only read where its length is told, and it is not the data of a transfer."""
    base = api.resolve(parameter.type) if parameter.type != "callback" else "callback"
    counts = [
        index
        for index, p in enumerate(function.parameters)
        if p.name == parameter.length and not p.stars
    ]
    counted = counts[0] if counts else -1
    if not parameter.stars:
        return f"{{3, -1, {_size(api, parameter.type)}}}" if base == "struct" else _NOTHING
    if base == "char" and parameter.stars == 1 and not parameter.length:
        return "{2, -1, 1}" if parameter.const else _NOTHING
    if base == "void" and parameter.stars == 1:
        return f"{{1, {counted}, 1}}" if counted >= 0 and parameter.type_from else _NOTHING
    if base == "callback" or (base == "struct" and parameter.type not in api.structs):
        return _NOTHING
    size = 8 if parameter.stars > 1 or base == "handle" else _size(api, parameter.type)
    return f"{{1, {counted}, {size}}}" if size <= _PIECE else _NOTHING


def _size(api: Any, type_name: str) -> int:
    return ctypes.sizeof(api.ctype(type_name))


def thunks(api: Any, name: str, unsupported: str, uninitialized: str) -> str:
    """The C file of an API: `fl_thunks_NAME` (layer.h) and what it is made of. The two codes are what stubs answer."""
    layers = range(LAYERS)
    lines = [
        f"/* Generated from {api.path.name} by loader/base/native/build.py. */",
        '#include "layer.h"',
        "",
    ]
    lines += declarations(api)
    lines.append("static fl_layer layers[FL_LAYERS];")
    lines.append('static __thread fl_layer *current __attribute__((tls_model("initial-exec")));')
    lines += (_thunk(api, function) for function in api.slots)
    lines += _layer(api)
    lines += (f"LAYER({number})" for number in layers)
    lines.append(
        f"static void *const *const tables[FL_LAYERS] = {{{', '.join(f'table_{number}' for number in layers)}}};"
    )
    lines += _stubs(api, "unsupported", unsupported)
    lines += _stubs(api, "uninitialized", uninitialized)
    shapes = [
        [_shape(api, function, parameter) for parameter in function.parameters]
        for function in api.slots
    ]
    lines.append("static const fl_shape shapes[] = {")
    lines += (
        f"    {', '.join(row)}, /* {function.name} */"
        for function, row in zip(api.slots, shapes, strict=True)
        if row
    )
    lines.append("};")
    firsts, total = [], 0
    for row in shapes:
        firsts.append(total)
        total += len(row)
    lines.append(
        f"static const uint16_t first_shape[] = {{{', '.join(map(str, [*firsts, total]))}}};"
    )
    lines.append(f"extern const fl_thunks fl_thunks_{name};")
    members = f"{len(api.slots)}, layers, tables, unsupported, uninitialized, shapes, first_shape"
    lines.append(f"const fl_thunks fl_thunks_{name} = {{{members}}};")
    return "\n".join([*lines, ""])


def write_if_new(path: Path, text: str) -> Path:
    """Write a generated file, unless it is there already: then nothing is compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


def write_thunks(directory: Path) -> list[Path]:
    """Write thunks_ur.c and thunks_pi.c into `directory`."""
    api = abi_module().Api
    written = []
    for name, prefix in (("ur", "UR_RESULT_ERROR_"), ("pi", "PI_ERROR_")):
        data = api(HERE.parents[1] / name / f"{name}.abi")
        codes = (
            str(data.codes[prefix + what]) for what in ("UNSUPPORTED_FEATURE", "UNINITIALIZED")
        )
        written.append(write_if_new(directory / f"thunks_{name}.c", thunks(data, name, *codes)))
    return written


def ffibuilder() -> Any:
    """The cffi builder of `fairlead.loader.base._native`."""
    from cffi import FFI

    generated = write_thunks(Path("build/native"))
    strict = ("-Werror",) if os.environ.get("FAIRLEAD_WERROR") else ()
    ffi = FFI()
    for name in ("layer.cdef.h", "native.cdef.h"):
        ffi.cdef((HERE / name).read_text(encoding="utf-8"))
    ffi.cdef(
        'extern "Python" int fl_python_before(fl_call *);\nextern "Python" void fl_python_after(fl_call *);'
    )
    ffi.set_source(
        "fairlead.loader.base._native",
        '#include "native.h"',
        sources=[
            *(os.path.relpath(HERE / source) for source in SOURCES),
            *map(os.path.relpath, generated),
        ],
        depends=[os.path.relpath(path) for path in HERE.glob("*.h")],
        include_dirs=[str(HERE)],
        extra_compile_args=["-O2", *WARNINGS, *strict],
        libraries=["pthread"],
    )
    return ffi


if __name__ == "__main__":
    write_thunks(Path(sys.argv[1]))
