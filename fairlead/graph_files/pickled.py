"""Graphs in pickles: a pickle holds a graph file with the contents of the graph's inputs.

So multiprocessing, joblib, Dask and Ray carry graphs to other processes. Nothing in the file is a
pickle.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..api import platforms
from ..icd.objects import CLDevice
from .archive import GraphArchive
from .loaded import LoadedExecutable, LoadedGraph
from .loading import load
from .saving import save

if TYPE_CHECKING:
    from ..captured_graphs.executable import Executable
    from ..captured_graphs.graph import CapturedGraph


def data_of(graph: CapturedGraph, names: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """The file of a graph, with the contents of its inputs.

    Args:
        graph: the graph.
        names: what memory is called; a loaded graph has the names that it had.

    Raises:
        GraphFileError: the graph cannot be written down.
    """
    stream = io.BytesIO()
    with graph.lock:
        known = {**(graph.known_names or {}), **names}
        save(graph, stream, "inputs", known, remembered=True)
    return stream.getvalue()


def graph_of(data: bytes) -> LoadedGraph:
    """The graph in a file: on the device that has the same name and platform, else on the first.

    Raises:
        GraphFileError: it cannot be loaded here.
        PlatformNotFoundError: there is no driver.
    """
    with GraphArchive(io.BytesIO(data)) as archive:
        device = _same_device(archive.document.device)
    return load(io.BytesIO(data), device)


def _same_device(wanted: dict[str, Any]) -> CLDevice | None:
    identity = wanted.get("device"), wanted.get("platform")
    for platform in platforms():
        for device in platform.devices:
            if (device.name, platform.name) == identity:
                return device
    return None


def executable_of(data: bytes, options: dict[str, Any]) -> LoadedExecutable:
    """The graph in a file, finalized. See `graph_of`."""
    return graph_of(data).finalize(**options)


def reduced_graph(graph: CapturedGraph) -> tuple[Any, ...]:
    """How a graph is pickled."""
    return graph_of, (data_of(graph),)


def reduced_executable(executable: Executable) -> tuple[Any, ...]:
    """How the executable of a graph is pickled: updates of the executable alone are not kept."""
    options = {
        "schedule": executable.schedule,
        "updatable": executable.updatable,
        "enable_profiling": executable.profiling,
        "policy": executable.policy,
    }
    return executable_of, (data_of(executable.graph), options)
