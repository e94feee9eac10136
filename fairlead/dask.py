"""Graphs on a Dask cluster: one graph, many batches, all devices of all workers.

    from dask.distributed import Client, LocalCluster
    import fairlead.dask

    client = Client(LocalCluster())
    futures = fairlead.dask.map(graph, [{"feed": f, "kill": k} for f, k in points], client=client)
    results = client.gather(futures)  # the outputs of each batch, arrays by name

The graph travels as a graph file (docs/graph_files.md). Each worker loads it once. Dask schedules,
transports and repeats. A batch that was lost with its worker runs again elsewhere, since it is a
function of the file and its values alone.

Each worker process has one device, and runs one batch at a time: it offers the Dask resource
"fairlead". The devices are those of the kind that the graph was captured on. The workers of a
machine divide them: each takes the lowest number that no other living worker has. Where there are
more workers than devices, some share one, and the client is warned.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from dask.delayed import delayed
from distributed import Client, WorkerPlugin, default_client, get_worker

from . import api
from .captured_graphs.executable import Executable
from .captured_graphs.graph import CapturedGraph
from .captured_graphs.pyopencl_client import ArgumentError
from .graph.command_graph import CommandGraph
from .graph.executable import ExecutableGraph
from .graph_files.archive import GraphArchive
from .graph_files.devices import find_similar_devices
from .graph_files.loaded import LoadedExecutable
from .graph_files.loading import load
from .graph_files.pickled import dump_graph
from .icd.objects import CLDevice
from .loader.base.errors import FairleadError, NotFoundError, explain_error
from .loader.base.forks import call_in_child, make_lock
from .loader.base.frames import get_variables
from .loader.base.progress import follow

#: The Dask resource that a worker with a device has one of.
RESOURCE: Final = "fairlead"
#: How many graphs a worker keeps loaded.
_MOST_LOADED: Final = 8


_GRAPHS: Final = CapturedGraph, Executable, CommandGraph, ExecutableGraph


class BatchError(FairleadError):
    """A batch failed. The message names its number, the graph, the worker and the device."""


@dataclass(frozen=True)
class _GraphFile:
    """A graph file that travels: what it is called, its device, its hash, and its bytes.

    `is_swapped` is that of the executable that was given.
    """

    name: str
    device: dict[str, str]
    key: str
    data: bytes
    is_swapped: bool


def map(
    graph: CapturedGraph | Executable | CommandGraph | ExecutableGraph | str | os.PathLike[str],
    batches: Iterable[Mapping[str, Any]],
    *,
    client: Any = None,
    times: int = 1,
    device: str = "",
    names: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Run a graph once for each batch, on all workers.

    Args:
        graph: a captured or loaded graph, a command graph, the executable of one, or the path of a
            graph file. Host tasks cannot travel.
        batches: for each batch the values of a call `loop(x=array, dt=0.25)`. Values may be
            futures of the same client. What is not given is as the graph was saved.
        client: a distributed.Client. By default the current one.
        times: how often the graph runs in each batch.
        device: a part of the name of devices or platforms, or a type such as "gpu". By default the
            devices of the platform and type that the graph was captured on; else those of its
            type; else all, and the client is warned.
        names: what memory is called, as for `graph.save`. By default, the variables of the caller.
        options: given to `Client.submit`, for example retries, priority or workers.

    Returns:
        A future for each batch, in their order: its outputs, arrays by name. They stay on the
        workers until they are gathered. Without any client, `dask.delayed` objects.

    Raises:
        GraphFileError: the graph cannot be written down, or the file is none.
        ArgumentError: an argument is of the wrong type.
    """
    batches = _check_batches(graph, batches, times)
    saved = _save_graph(graph, sys._getframe(1), names)
    client = client or _find_client()
    if client is None:
        run = delayed(_run, pure=False)
        return [run(saved, number, times, device, dict(one)) for number, one in enumerate(batches)]
    client.register_plugin(_OneDevice(), name=RESOURCE)
    name = f"fairlead-{saved.key[:16]}"
    (there,) = client.map(_get_saved, [saved], key=[name], pure=False)
    _copy_to_workers(there, client, options.get("workers"))
    again = f"{name}-{uuid4().hex[:8]}"
    options = {"pure": False, "resources": {RESOURCE: 1}} | options
    return [
        client.submit(
            _run, there, number, times, device, dict(one), key=f"{again}-{number}", **options
        )
        for number, one in enumerate(follow(batches, "map", "batches", len(batches)))
    ]


def _copy_to_workers(there: Any, client: Client, workers: Any) -> None:
    """Copy the file to all workers that are there.

    Dask gives tasks to workers that have what they need. If one worker alone had the file, it would
    be given all batches, and the others would have to steal them.
    """
    if client.nthreads():
        wanted = [workers] if isinstance(workers, str) else workers
        with suppress(ValueError):  # none is running any more: the file goes where a batch goes
            client.replicate([there], workers=wanted)


def _check_batches(graph: Any, batches: Any, times: Any) -> list[Mapping[str, Any]]:
    """Return the batches. Raises ArgumentError for what `map` does not take."""
    wrong = ""
    if not isinstance(graph, (*_GRAPHS, str, os.PathLike)):
        wrong = f"the graph is of type {type(graph).__name__}."
    elif not isinstance(batches, Iterable) or isinstance(batches, (str, Mapping)):
        wrong = f"the batches are of type {type(batches).__name__}."
    elif type(times) is not int or times < 1:
        wrong = "times must be a whole number from 1."
    else:
        listed = list(batches)
        number = next((n for n, one in enumerate(listed) if not isinstance(one, Mapping)), None)
        if number is None:
            return listed
        wrong = f"batch {number} is of type {type(listed[number]).__name__}."
    raise ArgumentError(
        wrong,
        routine="fairlead.dask.map",
        remedy="map(graph, [{'x': array}, {'x': other}]), with a captured graph or a file's path",
    )


def _find_client() -> Client | None:
    with suppress(ValueError):
        return default_client()
    return None


def _save_graph(graph: Any, caller: Any, names: Mapping[str, Any] | None) -> _GraphFile:
    """Return the file of what was given as a graph."""
    is_swapped = isinstance(graph, Executable) and graph.is_swapped
    if isinstance(graph, (str, os.PathLike)):
        opened = GraphArchive(graph)  # the refusal of a file that is not a graph
        name, data = Path(graph).name, Path(graph).read_bytes()
    else:
        wanted = graph.graph if isinstance(graph, Executable) else graph
        variables = {**caller.f_globals, **get_variables(caller)}
        name = next((key for key, value in variables.items() if value is graph), "graph")
        if names is None:
            names = variables if wanted.known_names is None else {}
        data = dump_graph(wanted, names)
        opened = GraphArchive(io.BytesIO(data))
    with opened as archive:
        return _GraphFile(name, archive.document.device, sha256(data).hexdigest(), data, is_swapped)


def _get_saved(saved: _GraphFile) -> _GraphFile:
    """Return the file, on a worker. Dask can make it again, unlike what was scattered."""
    return saved


# on the workers


class _OneDevice(WorkerPlugin):
    """Gives a worker the resource of one device."""

    async def setup(self, worker: Any) -> None:
        await worker.set_resources(**{RESOURCE: 1})


@dataclass
class _Loaded:
    """A graph on the device of this process. `start` is what each batch begins with."""

    executable: LoadedExecutable
    device: CLDevice
    start: dict[str, Any]


_lock: Final = make_lock()
#: The number of this process, and the socket whose name says that it is taken.
_slot: Final[dict[int, socket.socket]] = {}
#: By the file and what was asked of the device.
_executables: OrderedDict[tuple[str, str], _Loaded] = OrderedDict()


@call_in_child
def _forget() -> None:
    """Forget the number and the graphs of this process, which are the parent's."""
    _slot.clear()
    _executables.clear()


def _run(
    saved: _GraphFile, number: int, times: int, device: str, values: dict[str, Any]
) -> dict[str, Any]:
    """Run a batch in a worker. Raises BatchError, which tells where."""
    where = "no device"
    try:
        loaded = _load_graph(saved, device)
        where = f"{loaded.device.name} ({loaded.device.platform.name})"
        run = loaded.executable.run_batch
        return run(times, loaded.start, values, swapped=saved.is_swapped)
    except Exception as error:
        reason = explain_error(error) if isinstance(error, FairleadError) else str(error)
        raise BatchError(
            f"batch {number} of {saved.name} failed on {_find_worker()}, {where}: {reason}",
            routine="map",
            code=getattr(error, "code", "") or type(error).__name__,
            remedy=getattr(error, "remedy", ""),
        ) from error


def _find_worker() -> str:
    with suppress(ValueError):
        return f"worker {get_worker().address}"
    return f"process {os.getpid()}"


def _load_graph(saved: _GraphFile, device: str) -> _Loaded:
    """Return the graph, loaded once in this process."""
    with _lock:
        found = _executables.get((saved.key, device))
        if found is None:
            chosen = _choose_device(device, saved.device)
            graph = load(io.BytesIO(saved.data), chosen, local_files=True)
            found = _Loaded(graph.finalize(), chosen, graph.start_values())
            _executables[saved.key, device] = found
            while len(_executables) > _MOST_LOADED:
                _executables.popitem(last=False)
        _executables.move_to_end((saved.key, device))
        return found


def _choose_device(wanted: str, saved: Mapping[str, str]) -> CLDevice:
    """Return the device of this process: workers divide those of the machine.

    Args:
        wanted: what devices were asked for; "" for those of the kind of the graph's.
        saved: what the graph's file says of its device.
    """
    found, warning = _find_named(wanted) if wanted else find_similar_devices(saved)
    if warning:
        _warn_client(warning)
    number = _number_process()
    chosen = found[number % len(found)]
    if number >= len(found):  # each of them says the same, which the client prints once
        name = f"{chosen.name.strip()} ({chosen.platform.name.strip()})"
        _warn_client(
            f"several workers share {name}: the machine has more workers than such devices "
            "(LocalCluster(n_workers=…) sets their number)"
        )
    return chosen


def _find_named(wanted: str) -> tuple[Sequence[CLDevice], str]:
    """Return the devices that a text means, and no warning."""
    text = wanted.lower()
    found = [
        one
        for one in api.devices()
        if text == one.type.lower() or text in f"{one.name}\n{one.platform.name}".lower()
    ]
    if not found:
        raise NotFoundError(
            f"this machine has no device that is meant by {wanted!r}",
            routine="map",
            code="CL_DEVICE_NOT_FOUND",
            remedy="run `fairlead devices` there",
        )
    return found, ""


def _warn_client(text: str) -> None:
    """Warn where `map` was called. The worker itself would print it among the others' lines."""
    try:
        get_worker().log_event("warn", f"{socket.gethostname()}: {text}")
    except ValueError:  # without a cluster
        warnings.warn(text, stacklevel=2)


def _number_process() -> int:
    """Return the lowest number that no other living process of this user and machine has."""
    numbers = count()
    while not _slot:
        number, held = next(numbers), socket.socket(socket.AF_UNIX)
        try:  # a name of the kernel's until the process ends; no file, so none of another user's
            held.bind(f"\0fairlead-dask-{os.getuid()}-{number}")
            _slot[number] = held
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
    return next(iter(_slot))
