"""What native builds share: ABI data, C types of an API, generated files, compiler options.

The build files run before fairlead is installed, so they load this file by its path.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

LOADER = Path(__file__).resolve().parents[2]
ICD = LOADER.parent / "icd"
GENERATED = Path("build/native")  # setup.py runs in the project's folder
#: Where the ABI data of each API is.
APIS = {
    "ur": LOADER / "ur/ur.abi",
    "pi": LOADER / "pi/pi.abi",
    "cuda": LOADER / "cuda/cuda.abi",
    "hip": LOADER / "hip/hip.abi",
    "ze": LOADER / "ze/ze.abi",
    "cl": ICD / "opencl.abi",
}

#: Generated functions have every parameter of the ABI, used or not.
_OPTIONS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden")

#: The folders of C that is not generated.
_WRITTEN = ("captured_graphs/", "icd/", "loader/", "plugins/")
#: The beginnings of the names of generated files whose functions jump to others.
_JUMPING = ("layer_", "thunks_lib", "instance")
#: The level of generated functions that jump. They are short and many: -O2 makes them no shorter,
#: and takes half as long again.
LIGHTLY = ("-O1", "-foptimize-sibling-calls")


def get_level(source: str) -> tuple[str, ...]:
    """Return the options for how a file is optimized, besides those of `describe_extension`.

    -Og makes nearly the same code of generated functions as -O1, in three quarters of the time. But
    it does not make jumps of calls.
    """
    if source.removeprefix("fairlead/").startswith(_WRITTEN):  # a source distribution has folders
        return ()  # where the tree has links
    return LIGHTLY if Path(source).name.startswith(_JUMPING) else ("-Og",)


@cache
def _load(name: str) -> Any:
    """Return a module of loader/base, which imports none of the others."""
    path = LOADER / "base" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"_fairlead_{name}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def read_api(name: str) -> Any:
    """The ABI data of an API, by its name in APIS, read by loader/base/abi.py."""
    return _load("abi").Api(APIS[name])


def read_operations() -> Any:
    """The table of operations, read by loader/base/operations.py."""
    return _load("operations").OPERATIONS


def emit_declarations(api: Any) -> Iterator[str]:
    """Return the types of an API, in an order that C accepts.

    A handle is a pointer to a struct of its own.
    """
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
    passed_by_value = {
        p.type
        for f in api.slots
        for p in f.parameters
        if not p.stars and api.resolve(p.type) == "struct"
    }
    for name in sorted(passed_by_value):
        yield api.structs[name].c_definition


def emit_first_line(source: str, api: Any) -> str:
    """The first line of a generated file. `source` is the generator's path."""
    return f"/* Generated from {api.name}.abi by {source}. */"


def write_if_new(path: Path, text: str) -> Path:
    """Write a generated file unless it has this text already, so that nothing is compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


def describe_extension(
    sources: Iterable[Path], folders: Iterable[Path], *options: str, **more: Any
) -> dict[str, Any]:
    """The arguments of a setuptools Extension, and of `FFI.set_source`.

    Args:
        sources: C files. One that is named twice is linked twice, and compiled once (setup.py).
        folders: Where headers are looked for. A change of any header there leads to a new build.
        options: More options of the compiler.
    """
    folders = tuple(folders)
    strict = ("-Werror",) if os.environ.get("FAIRLEAD_WERROR") else ()
    debug = (
        ()
        if any(flag.startswith("-g") for flag in os.environ.get("CFLAGS", "").split())
        else ("-g0",)
    )
    return {
        "sources": [os.path.relpath(source) for source in sources],
        "depends": [
            os.path.relpath(header) for folder in folders for header in sorted(folder.glob("*.h"))
        ],
        "include_dirs": [str(folder) for folder in folders],
        "extra_compile_args": [*_OPTIONS, *options, *debug, *strict],
        **more,
    }
