"""Builds `fairlead.loader.base._native` with cffi in API mode: layers, the log of calls, careful reads.

`thunks(name, …)` returns the C of an API's layers, generated from its ABI data, in three files:

- thunks_NAME.c is linked once. For each slot it has a *body*, which hands a call to the layer's handlers and to the next
  table (layer.h). It also has the stubs for slots that an adapter lacks, and what a trace reads of each parameter.
- layer_NAME.c is one layer: its table, and for each slot a *thunk*, which says which layer was called and jumps to the body.
  It is compiled once and linked 16 times. Each copy has its own layer, and puts the address into a section that
  thunks_NAME.c reads as an array. So 16 layers cost the compiler no more than one.
- thunks_NAME.h declares what the two share.

icd/native/build.py makes those of OpenCL with the same function.
setup.py calls `ffibuilder()`; `python loader/base/native/build.py DIRECTORY` only writes the generated C there, for tests in C.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
building = SimpleNamespace(**runpy.run_path(str(HERE / "building.py")))
declarations = building.declarations

SOURCES = tuple(HERE / name for name in ("memory.c", "layers.c", "log.c"))
LAYERS = 16  # of an API
_PIECE = 128  # bytes: log.c reads no more of what a parameter leads to
_NOTHING = "{0, -1, 1}"  # an fl_shape: nothing is read

#: How an argument is converted to a word, by what its type resolves to.
_WORDS = {
    "pointer": "FL_POINTER({})",
    "handle": "FL_POINTER({})",
    "callback": "FL_POINTER({})",
    "void*": "FL_POINTER({})",
    "struct": "FL_POINTER(&{})",
    "float": "FL_FLOAT({})",
}


def _names(function: Any) -> str:
    return ", ".join(parameter.name for parameter in function.parameters)


def _returns_number(api: Any, function: Any) -> bool:
    returns = function.returns
    return not returns.endswith("*") and api.resolve(returns) not in ("handle", "void*", "void")


def _body(api: Any, function: Any) -> str:
    """The C function that all layers of a slot share. The thunk has just set `fl_current_NAME`."""
    words = []
    for p in function.parameters:
        base = "pointer" if p.stars or p.type == "callback" else api.resolve(p.type)
        words.append(_WORDS.get(base, "FL_NUMBER({})").format(p.name))
    is_void, is_number, slot = (
        function.returns == "void",
        _returns_number(api, function),
        function.slot,
    )
    answer = (
        "return;"
        if is_void
        else f"return ({function.returns}){'' if is_number else '(uintptr_t)'}call.result;"
    )
    result = "0" if is_void else ("FL_NUMBER" if is_number else "FL_POINTER") + "(result)"
    return f"""\
typedef {function.c_declaration("fn_" + function.name)};
{function.c_declaration("fl_body_" + function.name)} {{
    fl_layer *layer = CURRENT;
    void *const *next = __atomic_load_n(&layer->next, __ATOMIC_ACQUIRE);
    uint64_t arguments[] = {{{", ".join(words) or "0"}}};
    fl_call call = {{layer, {slot}, {len(words)}, arguments, layer->orphan, 0}};
    int (*before)(fl_call *) = __atomic_load_n(&layer->before, __ATOMIC_ACQUIRE);
    if ((before && before(&call)) || !next) {{
        {answer}
    }}
    {"" if is_void else function.returns + " result = "}((fn_{function.name} *)next[{slot}])({_names(function)});
    void (*after)(fl_call *) = __atomic_load_n(&layer->after, __ATOMIC_ACQUIRE);
    if (after) {{
        call.result = {result};
        after(&call);
    }}
    {"" if is_void else "return result;"}
}}"""


def _thunk(function: Any) -> str:
    call = f"{'' if function.returns == 'void' else 'return '}fl_body_{function.name}({_names(function)});"
    return (
        f"static {function.c_declaration('thunk_' + function.name)} {{ CURRENT = &layer; {call} }}"
    )


def _table(api: Any, prefix: str, name: str) -> Iterator[str]:
    """An array of the functions of all slots."""
    yield f"static void *const {name}[] = {{"
    yield from (f"    (void *){prefix}_{function.name}," for function in api.slots)
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
    yield from _table(api, name, name)


def _shape(api: Any, function: Any, parameter: Any) -> str:
    """The fl_shape of a parameter. Raw memory is read only if its length is known and it is not the data of a transfer."""
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


def _shapes(api: Any) -> Iterator[str]:
    """The fl_shape of every parameter, and where those of a function begin."""
    firsts = [0]
    yield "static const fl_shape shapes[] = {"
    for function in api.slots:
        row = [_shape(api, function, parameter) for parameter in function.parameters]
        firsts.append(firsts[-1] + len(row))
        if row:
            yield f"    {', '.join(row)}, /* {function.name} */"
    yield "};"
    yield f"static const uint16_t first_shape[] = {{{', '.join(map(str, firsts))}}};"


def _header(api: Any, name: str) -> Iterator[str]:
    yield '#include "layer.h"'
    yield from declarations(api)
    yield "#pragma GCC visibility push(hidden)"
    yield f'extern __thread fl_layer *fl_current_{name} __attribute__((tls_model("initial-exec")));'
    yield f"#define CURRENT fl_current_{name}"
    yield f"const fl_thunks *fl_{name}_thunks(void);"
    yield from (f"{function.c_declaration('fl_body_' + function.name)};" for function in api.slots)
    yield "#pragma GCC visibility pop"


def _layer(api: Any, name: str) -> Iterator[str]:
    yield f'#include "thunks_{name}.h"'
    yield "static fl_layer layer;"
    yield from map(_thunk, api.slots)
    yield from _table(api, "thunk", "table")
    yield "static fl_layer layer = {.table = table};"
    yield f'static fl_layer *const entry __attribute__((section("fl_layers_{name}"), used)) = &layer;'


def _thunks(api: Any, name: str, unsupported: str, uninitialized: str) -> Iterator[str]:
    yield f'#include "thunks_{name}.h"'
    yield f"__thread fl_layer *fl_current_{name};"
    yield from (_body(api, function) for function in api.slots)
    yield from _stubs(api, "unsupported", str(api.codes[unsupported]))
    if unsupported == uninitialized:
        yield "#define uninitialized unsupported"
    else:
        yield from _stubs(api, "uninitialized", str(api.codes[uninitialized]))
    yield from _shapes(api)
    first, end = (
        f"__{which}_fl_layers_{name}" for which in ("start", "stop")
    )  # the linker defines them
    yield f'extern fl_layer *const {first}[], *const {end}[] __attribute__((visibility("hidden")));'
    yield f"const fl_thunks *fl_{name}_thunks(void) {{"
    members = f"{len(api.slots)}, {first}, {end}, unsupported, uninitialized, shapes, first_shape"
    yield f"    static const fl_thunks thunks = {{{members}}};"
    yield "    return &thunks;\n}"


def write_thunks(directory: Path, name: str, unsupported: str, uninitialized: str) -> list[Path]:
    """Write the three files of an API.

    Args:
        directory: Where they are written.
        name: "ur", "pi" or "cl".
        unsupported: The name of the error that the stubs of missing functions answer.
        uninitialized: The name of the error that the stubs answer before and after the adapter's life.

    Returns:
        What is to be linked: thunks_NAME.c, and layer_NAME.c as often as there are layers.
    """
    api = building.api(name)
    texts = {
        f"thunks_{name}.h": ["#pragma once", *_header(api, name)],
        f"thunks_{name}.c": _thunks(api, name, unsupported, uninitialized),
        f"layer_{name}.c": _layer(api, name),
    }
    for file, lines in texts.items():
        text = "\n".join([building.generated_by("loader/base/native/build.py", api), *lines, ""])
        building.write_if_new(directory / file, text)
    return [directory / f"thunks_{name}.c", *[directory / f"layer_{name}.c"] * LAYERS]


def write_all(directory: Path) -> list[Path]:
    """Write the C files of Unified Runtime and PI, and return what is to be linked."""
    codes = {"ur": "UR_RESULT_ERROR_", "pi": "PI_ERROR_"}
    return [
        source
        for name, prefix in codes.items()
        for source in write_thunks(
            directory, name, f"{prefix}UNSUPPORTED_FEATURE", f"{prefix}UNINITIALIZED"
        )
    ]


def ffibuilder() -> Any:
    """The cffi builder of `fairlead.loader.base._native`."""
    from cffi import FFI

    ffi = FFI()
    for name in ("layer.cdef.h", "native.cdef.h"):
        ffi.cdef((HERE / name).read_text(encoding="utf-8"))
    ffi.cdef(
        'extern "Python" int fl_python_before(fl_call *);\nextern "Python" void fl_python_after(fl_call *);'
    )
    sources = [*SOURCES, *write_all(building.GENERATED)]
    options = building.extension(sources, [HERE, building.GENERATED], libraries=["pthread"])
    ffi.set_source("fairlead.loader.base._native", '#include "native.h"', **options)
    return ffi


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
