"""Adapters and plugins: calls, tracing, discovery and binding, selection of devices.

It is measured once for the machine. The plugins are the four UR adapters and the PI plugin of
others that `make` fetches for the tests. UR_PLUGINS names their folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.loader.trace.trace import trace
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate, find_adapters
from fairlead.loader.ur.plugin import Plugin
from fairlead.loader.ur.selector import parse

from .measuring import Row, Target, in_turns, ratio, summary

#: Timed in a fresh process: everything up to five bound tables. The libraries are opened
#: beforehand.
_BIND = """
import json, sys, time
from pathlib import Path
from fairlead.loader.base import library, probe_verdicts
from fairlead.loader.base.search import find_python_libraries
from fairlead.loader.ur import adapters, discovery, plugins

def probe(candidates):
    from fairlead.loader.ur.plugin_probe import probe_all
    return probe_all(candidates)

def everything():
    bound = []
    plugins.read_selector()
    for interface, find in (("ur", discovery.find_adapters), ("pi", discovery.find_plugins)):
        found = find().candidates
        unsound = probe_verdicts.judge(found, probe, interface)
        sound = [candidate for candidate in found if candidate not in unsound]
        bound += [adapters.open_and_bind(candidate, previewed=True) for candidate in sound]
    return bound

start = time.perf_counter()
for path in sys.argv[1:]:
    library.open_with_siblings(path, find_python_libraries())
opened = time.perf_counter()
count = len(everything())
print(json.dumps([(opened - start) * 1000, (time.perf_counter() - opened) * 1000, count]))
"""


def measure(quick: bool) -> list[Row]:
    """Take all four measures."""
    with tempfile.TemporaryDirectory() as folder:
        paths = _beside_each_other(Path(folder))
        os.environ["UR_ADAPTERS_FORCE_LOAD"] = ",".join(str(path) for path in paths[:-1])
        os.environ["SYCL_PI_CONFIG"] = str(Path(folder, "plugins.conf"))
        Path(folder, "plugins.conf").write_text(f"{paths[-1]} PI opencl -\n", encoding="utf-8")
        adapter = _opencl_adapter()
        return [
            _call(adapter, quick),
            _tracing(adapter, quick),
            _binding(paths, quick),
            _selection(quick),
        ]


def _beside_each_other(folder: Path) -> list[Path]:
    """Make links to four adapters and a plugin, and to the library that one of them needs."""
    source = Path(os.environ["UR_PLUGINS"])
    names = [
        "ur-now/libur_adapter_level_zero.so.0",
        "ur-now/libur_adapter_level_zero_v2.so.0",
        "ur-then/libur_adapter_opencl.so.0",
        "ur-then/libur_adapter_level_zero.so.0",
        "pi/libpi_opencl.so",
    ]
    links = []
    for name in names:
        link = folder / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(source / name)
        (link.parent / "libumf.so.1").unlink(missing_ok=True)
        (link.parent / "libumf.so.1").symlink_to(source / "umf/libumf.so.1")
        links.append(link)
    return links


def _opencl_adapter() -> Plugin:
    candidates = [
        c
        for c in find_adapters().candidates
        if isinstance(c, PluginCandidate) and "opencl" in c.library
    ]
    return load(candidates[0])


#: What the call of `_arguments` writes to.
_ANSWER, _SIZE = ctypes.c_uint32(), ctypes.c_size_t()


def _arguments(plugin: Plugin) -> tuple[Any, ...]:
    """Return the arguments of a call that an adapter answers at once, with pointers to two
    places."""
    name = UR["UR_ADAPTER_INFO_VERSION"]
    return (
        plugin.handles[0],
        name,
        ctypes.sizeof(_ANSWER),
        ctypes.addressof(_ANSWER),
        ctypes.addressof(_SIZE),
    )


def _call(plugin: Plugin, quick: bool) -> Row:
    table, arguments = plugin.table, _arguments(plugin)
    pointer = table.get_pointer(UR.functions["urAdapterGetInfo"].slot or 0)
    bare = ctypes.CFUNCTYPE(ctypes.c_int32)(pointer)
    bare.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    calls = range(100 if quick else 5000)

    def through_table() -> None:
        for _ in calls:
            table.urAdapterGetInfo(*arguments)

    def through_ctypes() -> None:
        for _ in calls:
            bare(*arguments)

    samples = in_turns(
        {"table": through_table, "ctypes": through_ctypes}, 5 if quick else 101, len(calls)
    )
    return ratio(
        "a call through an adapter's table ÷ bare ctypes",
        samples,
        "table",
        "ctypes",
        Target("≤", 1.2),
        unit="µs per call",
    )


def _tracing(plugin: Plugin, quick: bool) -> Row:
    table, arguments = plugin.table, _arguments(plugin)
    calls = range(100 if quick else 2000)

    def untraced() -> None:
        for _ in calls:
            table.urAdapterGetInfo(*arguments)

    def traced() -> None:
        with trace(("ur",)):
            untraced()

    samples = in_turns({"traced": traced, "untraced": untraced}, 5 if quick else 51, len(calls))
    series = {name: summary(values) for name, values in samples.items()}
    added = series["traced"]["median"] - series["untraced"]["median"]
    return Row(
        "tracing to memory, added to a call", added, "µs", Target("≤", 5), series, "µs per call"
    )


def _binding(paths: list[Path], quick: bool) -> Row:
    what = "finding and binding five plugins, on top of their dlopen"
    opened, bound = [], []
    for turn in range(-1, 3 if quick else 25):
        command = [sys.executable, "-c", _BIND, *map(str, paths)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        dlopen, rest, count = json.loads(done.stdout)
        if count != len(paths):
            return Row(what, None, "ms", note=f"{count} of {len(paths)} plugins were bound")
        if turn >= 0:  # the first round remembers the verdicts
            opened.append(dlopen)
            bound.append(rest)
    series = {"binding": summary(bound), "dlopen": summary(opened)}
    return Row(what, series["binding"]["median"], "ms", Target("≤", 50), series, "ms")


@dataclass(frozen=True)
class _Device:
    backend: str
    type: str

    def sub_devices(self) -> tuple[_Device, ...]:
        return ()


def _selection(quick: bool) -> Row:
    devices = [
        _Device(("opencl", "level_zero", "cuda")[index % 3], ("cpu", "gpu", "acc")[index % 2])
        for index in range(1000)
    ]

    def select() -> None:
        if len(parse("*:gpu,cpu;!opencl:7,8;cuda:*").select(devices)) < 100:
            raise SystemExit("the selector selects too little")

    samples = in_turns({"select": select}, 5 if quick else 101)
    milliseconds = [value / 1000 for value in samples["select"]]
    series = {"select": summary(milliseconds)}
    return Row(
        "selecting among 1,000 devices",
        series["select"]["median"],
        "ms",
        Target("≤", 5),
        series,
        "ms",
    )
