"""Builds `fairlead.loader.base._native` with cffi in API mode: layers, the log of calls, safe
reads, and many launches by one call.

`write_thunks` writes the C of an API's layers, generated from its ABI data, in three files:

- thunks_NAME.c is linked once. It has a *body* for each signature, which passes a call to the
  layer's handlers and to the next table (layer.h). It also has the stubs for slots that an adapter
  lacks, and says what a trace reads of each parameter.
- layer_NAME.c is one layer: its table, and a *thunk* for each slot. The thunk says which slot of
  which layer was called, and jumps to the body. The file is compiled once and linked 16 times.
  Each copy has its own layer, and adds it to a list when the library is loaded. So 16 layers take
  the compiler no longer than one.
- thunks_NAME.h declares what the two share.

icd/native/build.py makes those of OpenCL with the same function. setup.py calls `ffibuilder()`.
`python loader/base/native/build.py DIRECTORY` only writes the generated C there, for tests in C.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
building = SimpleNamespace(**runpy.run_path(str(HERE / "building.py")))

SOURCES = tuple(
    HERE / f"{name}.c" for name in ("memory", "layers", "log", "device", "dump", "interrupts")
)
LAYERS = 16  # of an API
_PIECE = 128  # bytes: log.c reads no more of what a parameter leads to
_NOTHING = "{0, -1, 1}"  # an fl_shape: nothing is read
#: The value of a kernel's argument, and its size.
_ARGUMENT_VALUES = ("arg_value", "pArgValue")
_SIZES = ("arg_size", "argSize")
_TLS = '__attribute__((tls_model("initial-exec")))'  # one load and no call

_POINTER = "void *"
#: How a value is converted to a word. Numbers are extended as their types say.
_FLOATS = ("float", "double")
_CONVERSIONS = {_POINTER: "FL_POINTER", "float": "FL_FLOAT"}


class Signature:
    """What the calling convention sees of a function: its types, with all pointers alike.

    Functions with the same signature share their body and their stubs.
    """

    def __init__(self, api: Any, function: Any) -> None:
        self.structs = api.structs
        self.returns = self._find_c_type(api, function.returns, 0)
        self.types = tuple(self._find_c_type(api, p.type, p.stars) for p in function.parameters)
        self.names = ", ".join(f"a{index}" for index in range(len(self.types)))
        self.given = ", ".join(map(self._format_argument, range(len(self.types))))

    @staticmethod
    def _find_c_type(api: Any, name: str, stars: int) -> str:
        base = "callback" if name == "callback" else api.resolve(name)
        if stars or name.endswith("*") or base in ("handle", "callback", "void*"):
            return _POINTER
        return name if base == "struct" else base.replace("unsigned_char", "unsigned char")

    def _format_argument(self, index: int) -> str:
        """An argument as it is passed on. What fits into a word comes from the array of words."""
        type_ = self.types[index]
        if type_ == _POINTER:
            return f"(void *)(uintptr_t)arguments[{index}]"
        if type_ in self.structs or type_ in _FLOATS:
            return f"a{index}"
        return f"({type_})arguments[{index}]"

    def declare(self, name: str) -> str:
        """The prototype of a function of this signature. Its parameters are called a0, a1, …"""
        parameters = ", ".join(f"{type_} a{index}" for index, type_ in enumerate(self.types))
        return f"{self.returns} {name}({parameters or 'void'})"

    def format_word(self, type_name: str, value: str) -> str:
        """A value as 64 bits. What is larger is passed by its address."""
        if type_name in self.structs:
            return f"FL_POINTER(&{value})"
        return f"{_CONVERSIONS.get(type_name, 'FL_NUMBER')}({value})"


def _find_signatures(api: Any) -> tuple[list[Signature], list[int]]:
    """The distinct signatures, and for each slot the index of its own."""
    found: dict[tuple[str, ...], Signature] = {}
    keys = []
    for function in api.slots:
        signature = Signature(api, function)
        keys.append((signature.returns, *signature.types))
        found.setdefault(keys[-1], signature)
    indexes = {key: index for index, key in enumerate(found)}
    return list(found.values()), [indexes[key] for key in keys]


def _emit_body(s: Signature, name: str) -> str:
    """What all functions of a signature share. The thunk has just set CURRENT."""
    is_void, is_pointer = s.returns == "void", s.returns == _POINTER
    answer = f"return ({s.returns}){'(uintptr_t)' if is_pointer else ''}call.result;"
    words = ", ".join(s.format_word(type_, f"a{index}") for index, type_ in enumerate(s.types))
    return f"""\
{s.declare(name)} {{
    fl_layer *layer = CURRENT.layer;
    uint32_t slot = CURRENT.slot;
    void *const *next = __atomic_load_n(&layer->next, __ATOMIC_ACQUIRE);
    uint64_t arguments[] = {{{words or "0"}}};
    fl_call call = {{layer, slot, {len(s.types)}, arguments, layer->orphan, 0, 0}};
    int (*before)(fl_call *) = __atomic_load_n(&layer->before, __ATOMIC_ACQUIRE);
    if ((before && before(&call)) || !next) {{
        {"return;" if is_void else answer}
    }}
    {"" if is_void else f"{s.returns} result = "}(({s.declare("(*)")})next[slot])({s.given});
    void (*after)(fl_call *) = __atomic_load_n(&layer->after, __ATOMIC_ACQUIRE);
    if (after) {{
        call.result = {"0" if is_void else s.format_word(s.returns, "result")};
        after(&call);
    }}
    {"" if is_void else "return result;"}
}}"""


def _emit_table(api: Any, name: str, functions: Iterable[str]) -> Iterator[str]:
    """An array of functions, one for each slot."""
    yield f"static void *const {name}[] = {{"
    yield from (
        f"    (void *){function}, /* {slot.name} */"
        for function, slot in zip(functions, api.slots, strict=True)
    )
    yield "};"


def _emit_stubs(api: Any, name: str, code: int) -> Iterator[str]:
    """A table in which each slot fails, as its function reports errors."""
    signatures, indexes = _find_signatures(api)
    stubs: dict[str, str] = {}
    functions = []
    for function, index in zip(api.slots, indexes, strict=True):
        signature = signatures[index]
        failure = "" if signature.returns == "void" else "return NULL;"
        if function.error_channel == "return":
            failure = f"return {code};"
        elif function.error_channel == "errcode_ret":
            place = [p.name for p in function.parameters].index("errcode_ret")
            failure = f"if (a{place}) *(int32_t *)a{place} = {code}; return NULL;"
        stub = f"{name}_{index}_{function.error_channel}"
        stubs[stub] = f"static {signature.declare(stub)} {{ {failure} }}"
        functions.append(stub)
    yield from stubs.values()
    yield from _emit_table(api, name, functions)


def _emit_shape(api: Any, function: Any, parameter: Any) -> str:
    """Return the fl_shape of a parameter.

    Raw memory is read only if its length is known and it is not the data of a transfer.
    """
    base = api.resolve(parameter.type) if parameter.type != "callback" else "callback"
    counts = [
        index
        for index, p in enumerate(function.parameters)
        if p.name == parameter.length.lstrip("*") and p.stars == parameter.length.count("*")
    ]
    counted = counts[0] if counts else -1
    kind = 4 if counts and parameter.length.startswith("*") else 1
    if not parameter.stars:
        return f"{{3, -1, {_find_size(api, parameter.type)}}}" if base == "struct" else _NOTHING
    if base == "char" and parameter.stars == 1 and not parameter.length:
        return "{2, -1, 1}" if parameter.const else _NOTHING
    if base == "void" and parameter.stars == 1:
        if parameter.name in _ARGUMENT_VALUES:
            counted = next((i for i, p in enumerate(function.parameters) if p.name in _SIZES), -1)
            return f"{{1, {counted}, 1}}" if counted >= 0 else _NOTHING
        return f"{{1, {counted}, 1}}" if counted >= 0 and parameter.type_from else _NOTHING
    if base == "callback" or (base == "struct" and parameter.type not in api.structs):
        return _NOTHING
    size = 8 if parameter.stars > 1 or base == "handle" else _find_size(api, parameter.type)
    return f"{{{kind}, {counted}, {size}}}" if size <= _PIECE else _NOTHING


def _emit_event_place(api: Any) -> str:
    """Which parameter of each function gets the event of a command, -1 if none."""
    places = [
        next(
            (
                index
                for index, p in enumerate(function.parameters)
                if p.stars == 1 and not p.const and p.name in ("event", "phEvent")
            ),
            -1,
        )
        if "Enqueue" in function.name
        else -1
        for function in api.slots
    ]
    return f"static const int8_t event_at[] = {{{', '.join(map(str, places))}}};"


def _find_size(api: Any, type_name: str) -> int:
    return ctypes.sizeof(api.make_ctype(type_name))


def _emit_shapes(api: Any) -> Iterator[str]:
    """The fl_shape of every parameter, and where those of a function begin."""
    firsts = [0]
    yield "static const fl_shape shapes[] = {"
    for function in api.slots:
        row = [_emit_shape(api, function, parameter) for parameter in function.parameters]
        firsts.append(firsts[-1] + len(row))
        if row:
            yield f"    {', '.join(row)}, /* {function.name} */"
    yield "};"
    yield f"static const uint16_t first_shape[] = {{{', '.join(map(str, firsts))}}};"


def _emit_header(api: Any, name: str) -> Iterator[str]:
    yield '#include "layer.h"'
    yield from building.emit_declarations(api)
    yield "#pragma GCC visibility push(hidden)"
    yield f"extern __thread fl_entry fl_current_{name} {_TLS};"
    yield f"extern fl_layer *fl_layers_{name};"
    yield f"#define CURRENT fl_current_{name}"
    yield f"const fl_thunks *fl_{name}_thunks(void);"
    for index, signature in enumerate(_find_signatures(api)[0]):
        yield f"{signature.declare(f'fl_{name}_body_{index}')};"
    yield "#pragma GCC visibility pop"


def _emit_layer(api: Any, name: str) -> Iterator[str]:
    yield f'#include "thunks_{name}.h"'
    yield "static fl_layer layer;"
    signatures, indexes = _find_signatures(api)
    for slot, index in enumerate(indexes):
        signature = signatures[index]
        call = f"fl_{name}_body_{index}({signature.names});"
        yield (
            f"static {signature.declare(f'thunk_{slot}')} {{"
            f" CURRENT = (fl_entry){{&layer, {slot}}};"
            f" {'' if signature.returns == 'void' else 'return '}{call} }}"
        )
    yield from _emit_table(api, "table", (f"thunk_{slot}" for slot in range(len(indexes))))
    yield "static fl_layer layer = {.table = table};"
    yield "__attribute__((constructor)) static void add(void) {"
    yield f"    layer.other = fl_layers_{name};"
    yield f"    fl_layers_{name} = &layer;\n}}"


def _emit_thunks(api: Any, name: str, unsupported: str, uninitialized: str) -> Iterator[str]:
    yield f'#include "thunks_{name}.h"'
    yield f"__thread fl_entry fl_current_{name} {_TLS};"
    for index, signature in enumerate(_find_signatures(api)[0]):
        yield _emit_body(signature, f"fl_{name}_body_{index}")
    yield from _emit_stubs(api, "unsupported", api.codes[unsupported])
    yield from _emit_stubs(api, "uninitialized", api.codes[uninitialized])
    yield from _emit_shapes(api)
    yield _emit_event_place(api)
    yield f"fl_layer *fl_layers_{name};"
    yield f"const fl_thunks *fl_{name}_thunks(void) {{"
    members = (
        f"{len(api.slots)}, &fl_layers_{name}, unsupported, uninitialized, shapes, first_shape, "
        "event_at"
    )
    yield f"    static const fl_thunks thunks = {{{members}}};"
    yield "    return &thunks;\n}"


def write_thunks(directory: Path, name: str, unsupported: str, uninitialized: str) -> list[Path]:
    """Write the three files of an API.

    Args:
        name: a key of building.APIS.
        unsupported: The name of the error that the stubs of missing functions answer.
        uninitialized: The name of the error that the stubs answer before and after the adapter's
            life.

    Returns:
        The files to link: thunks_NAME.c once, and layer_NAME.c for each layer.
    """
    api = building.read_api(name)
    texts = {
        f"thunks_{name}.h": ["#pragma once", *_emit_header(api, name)],
        f"thunks_{name}.c": _emit_thunks(api, name, unsupported, uninitialized),
        f"layer_{name}.c": _emit_layer(api, name),
    }
    for file, lines in texts.items():
        text = "\n".join([building.emit_first_line("loader/base/native/build.py", api), *lines, ""])
        building.write_if_new(directory / file, text)
    return [directory / f"thunks_{name}.c", *[directory / f"layer_{name}.c"] * LAYERS]


def write_all(directory: Path) -> list[Path]:
    """Write the C files of the APIs of `loader/`, and return what is to be linked."""
    building.write_if_new(directory / "ur_launches.h", emit_launch_header())
    codes = {
        "ur": ("UR_RESULT_ERROR_UNSUPPORTED_FEATURE", "UR_RESULT_ERROR_UNINITIALIZED"),
        "pi": ("PI_ERROR_UNSUPPORTED_FEATURE", "PI_ERROR_UNINITIALIZED"),
        "ze": ("ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", "ZE_RESULT_ERROR_UNINITIALIZED"),
        "cuda": ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_INITIALIZED"),
        "hip": ("hipErrorNotSupported", "hipErrorInitializationError"),
    }
    return [
        source
        for name, (unsupported, uninitialized) in codes.items()
        for source in write_thunks(directory, name, unsupported, uninitialized)
    ]


#: What launches.c uses of Unified Runtime: a function, structs, the inner ones first, and how the
#: names of constants begin.
_APPEND = "urCommandBufferAppendKernelLaunchWithArgsExp"
_STRUCTS = (
    *(f"ur_exp_kernel_arg_{name}_t" for name in ("mem_obj_tuple", "value", "properties")),
    *(
        f"ur_exp_command_buffer_update_{name}_desc_t"
        for name in ("memobj_arg", "pointer_arg", "value_arg", "kernel_launch")
    ),
)
_CONSTANTS = ("UR_EXP_KERNEL_ARG_TYPE_", "UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_")


def emit_launch_header() -> str:
    """Return the text of ur_launches.h: what launches.c uses of Unified Runtime."""
    api = building.read_api("ur")
    lines = [building.emit_first_line("loader/base/native/build.py", api), "#pragma once"]
    lines += [f"#include <{name}.h>" for name in ("stdbool", "stddef", "stdint")]
    lines += building.emit_declarations(api)
    lines += [api.structs[name].c_definition for name in _STRUCTS]
    lines.append(f"typedef {api.functions[_APPEND].format_c_declaration('fn_' + _APPEND)};")
    lines += [
        f"#define {constant.name} ({constant.value})"
        for constant in api.constants.values()
        if constant.name.startswith(_CONSTANTS)
    ]
    return "\n".join([*lines, ""])


def ffibuilder() -> Any:
    """Return the cffi builder of `fairlead.loader.base._native`."""
    from cffi import FFI

    ffi = FFI()
    for name in ("layer.cdef.h", "native.cdef.h", "launches.cdef.h"):
        ffi.cdef((HERE / name).read_text(encoding="utf-8"))
    ffi.cdef(
        'extern "Python" int fl_python_before(fl_call *);\n'
        'extern "Python" void fl_python_after(fl_call *);'
    )
    sources = [*SOURCES, HERE / "launches.c", *write_all(building.GENERATED)]
    options = building.describe_extension(
        sources, [HERE, building.GENERATED], libraries=["pthread"]
    )
    headers = '#include "native.h"\n#include "launches.cdef.h"'
    ffi.set_source("fairlead.loader.base._native", headers, **options)
    return ffi


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
