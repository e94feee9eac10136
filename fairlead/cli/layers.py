"""`fairlead layers`: the OpenCL layers that libOpenCL.so.1 would load, and what they say.

Those that fairlead and other packages register have names, which `fairlead run --layers` takes,
too. An entry point of the group `fairlead.layers` names a function that returns the library's path.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..loader.base.errors import FairleadError, explain_error
from ..loader.base.library import Library, open_library
from ..loader.base.manifests import search_directory
from ..loader.base.registered import Registered, list_registered
from ..loader.base.search import Candidate, Refusal, filter_environ, split_list

#: Where the Khronos loader looks for manifests of layers.
SYSTEM_LAYERS: Final = Path("/etc/OpenCL/layers")
_API_VERSION, _NAME = 0x4240, 0x4241
_ENTRIES: Final = ("clInitLayer", "clInitLayerWithProperties", "clDeinitLayer")

# cl_int clGetLayerInfo(cl_layer_info, size_t size, void *value, size_t *size_ret)
_GetLayerInfo = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


@dataclass(frozen=True)
class LayerRow:
    """A layer, as it says of itself.

    Attributes:
        name: CL_LAYER_NAME.
        version: CL_LAYER_API_VERSION, 100 for all layers today.
        entries: which of the functions that start and end a layer it has.
    """

    name: str
    version: int
    entries: tuple[str, ...]
    library: str

    def __str__(self) -> str:
        return f"{self.name} | {self.version} | {' '.join(self.entries)} | {self.library}"


def list_registered_layers() -> dict[str, Registered]:
    """Return the layers that packages register, by their names."""
    return {one.name: one for one in list_registered("fairlead.layers")}


def find_layer(registered: Registered) -> str:
    """Return the path of a registered layer's library.

    Raises:
        FairleadError: its package cannot be imported, or does not return a path.
    """
    path = registered.call()
    try:
        return os.fspath(path)
    except TypeError:
        remedy = "return the path of the layer's library"
        raise registered.refuse("returns no path", remedy) from None


def expand(names: str) -> str:
    """Return a `:`-list of layers with paths in place of the names of registered ones.

    Raises:
        FairleadError: an element is neither such a name nor like the name of a library. Or the
            package of one cannot be imported.
    """
    known = list_registered_layers()
    for name in filter(None, names.split(":")):
        if name not in known and "/" not in name and ".so" not in name:
            raise FairleadError(
                f"there is no OpenCL layer called '{name}'",
                remedy=f"name {' or '.join(known)}, or a library; `:` separates several",
            )
    return ":".join(find_layer(known[name]) if name in known else name for name in names.split(":"))


def list_named_layers() -> tuple[list[str], list[str]]:
    """Return the layers that packages register: name, then as in `list_layers`.

    The second list says why others cannot be used.
    """
    rows, warnings = [], []
    for name, registered in list_registered_layers().items():
        try:
            rows.append(f"{name} | {describe(find_layer(registered))}")
        except FairleadError as error:
            warnings.append(f"{name}: {explain_error(error)}")
    return rows, warnings


def list_layers() -> tuple[list[LayerRow], list[str]]:
    """Return the layers in the order in which they are loaded, and why others are none."""
    rows, warnings = [], []
    for finding in _search():
        if isinstance(finding, Candidate):
            try:
                rows.append(describe(finding.library))
            except FairleadError as error:
                warnings.append(f"{finding.library}: {explain_error(error)}")
        else:
            warnings.append(f"{finding.what}: {finding.reason}")
    return rows, warnings


def _search() -> Iterator[Candidate | Refusal]:
    environ = filter_environ()
    directory = environ.get("OPENCL_LAYER_PATH") or str(SYSTEM_LAYERS)
    for finding in search_directory(directory, "OPENCL_LAYER_PATH", suffix=".lay"):
        if isinstance(finding, (Candidate, Refusal)):
            yield finding
    names = environ.get("OPENCL_LAYERS")
    for name in split_list("OPENCL_LAYERS", names) if names else ():
        if isinstance(name, Refusal):
            yield name
        else:
            yield Candidate(os.path.abspath(name) if "/" in name else name, "OPENCL_LAYERS")


def describe(path: str) -> LayerRow:
    """Ask a layer about itself, without starting it.

    Raises:
        FairleadError: it cannot be opened, is not a layer, or does not answer.
    """
    library = open_library(path)
    entries = tuple(name for name in _ENTRIES if library.find_symbol(name))
    if not library.find_symbol("clGetLayerInfo") or not set(entries) & set(_ENTRIES[:2]):
        raise FairleadError("it is not an OpenCL layer", remedy="name a layer's library")
    version = int.from_bytes(_ask(library, _API_VERSION), "little")
    name = _ask(library, _NAME).rstrip(b"\0").decode(errors="replace")
    return LayerRow(name, version, entries, library.path)


def _ask(library: Library, name: int) -> bytes:
    call = _GetLayerInfo(library.find_symbol("clGetLayerInfo") or 0)
    answer, size = ctypes.create_string_buffer(1024), ctypes.c_size_t()
    if call(name, len(answer), answer, ctypes.byref(size)):
        raise FairleadError(
            f"clGetLayerInfo does not answer {name:#x}", remedy="update or remove the layer"
        )
    return answer.raw[: size.value]
