"""Graphs in pickles: a pickle holds a graph file with the contents of the graph's inputs.

So multiprocessing, joblib, Dask and Ray carry graphs to other processes. Nothing in the file is a
pickle.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..captured_graphs.executable import Executable
from ..graph.executable import ExecutableGraph
from .loaded import LoadedExecutable, LoadedGraph
from .loading import load
from .rows import Savable
from .saving import save


def dump_graph(graph: Savable, names: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Return the file of a graph, with the contents of its inputs.

    Args:
        names: what memory is called; a loaded graph has the names that it had.

    Raises:
        GraphFileError: the graph cannot be written down.
    """
    stream = io.BytesIO()
    with graph.lock:
        known = {**(graph.known_names or {}), **names}
        save(graph, stream, "inputs", known, remembered=True)
    return stream.getvalue()


def load_graph(data: bytes) -> LoadedGraph:
    """Return the graph in a file, as `load` does.

    Raises:
        GraphFileError: it cannot be loaded here.
        PlatformNotFoundError: there is no driver.
    """
    return load(io.BytesIO(data), local_files=True)  # a pickle could do more


def load_executable(
    data: bytes, options: dict[str, Any], *, is_swapped: bool = False
) -> LoadedExecutable:
    """Return the graph in a file, finalized, at the same turn of `swap=`. See `load_graph`."""
    made = load_graph(data).finalize(**options)
    made.start_over(swapped=is_swapped)
    return made


def reduce_for_pickle(thing: Savable | Executable) -> tuple[Any, ...]:
    """Return how a graph or an executable is pickled.

    Updates of the executable of a captured graph alone are not kept.
    """
    if not isinstance(thing, (Executable, ExecutableGraph)):
        return load_graph, (dump_graph(thing),)
    options = {
        "schedule": thing.schedule,
        "updatable": thing.updatable,
        "enable_profiling": thing.profiling,
        "policy": thing.policy,
    }
    graph = thing.graph if isinstance(thing, Executable) else thing
    is_swapped = isinstance(thing, Executable) and thing.is_swapped
    return partial(load_executable, is_swapped=is_swapped), (dump_graph(graph), options)
