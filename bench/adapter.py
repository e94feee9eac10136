"""The reference adapter, called from C through its ABI: its start, enqueues and updates.

A C loop does what the command-buffer does, with the driver's own functions: 1,000 launches, and
before each the arguments that change. An enqueue of a command-buffer has an event of its end, which
costs something on out-of-order queues. So there is also a loop with such an event. If the driver
has cl_khr_command_buffer, the same launches are a command-buffer of the driver's, too.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairlead.loader.ur.abi import UR
from fairlead.plugins import reference_adapter

from .adapter_work import Buffer, MemoryUpdate, Objects, Update, ValueUpdate, build, c_functions
from .command_buffer import DriverCommandBuffer, why_none
from .measuring import Row, Samples, Target, in_turns, ratio, summary
from .replay import Loops
from .work import Launches, check_same, driver_function, make_queue

_ROUNDS = 101
_SLOWER = 1.05
_MARKED = "C loop with an event of its end"


def measure(quick: bool) -> list[Row]:
    """Take all measures of the adapter."""
    return [
        _start(quick),
        *_enqueues(quick, in_order=True),
        *_enqueues(quick, in_order=False),
        *_small(quick),
        *_updates(quick),
    ]


def _start(quick: bool) -> Row:
    """Measure starts in fresh processes.

    The first one remembers the driver's verdict and warms the disk.
    """
    with TemporaryDirectory() as folder:
        program = build(Path(folder, "adapter"))
        samples = []
        for _ in range(-1, 3 if quick else 25):
            done = subprocess.run(
                [program, reference_adapter()], check=True, capture_output=True, text=True
            )
            answer = json.loads(done.stdout)
            if not answer["devices"]:
                return Row("start-up in a C program", None, "s", note="it saw no device")
            samples.append(answer["seconds"])
    series = {"start": summary(samples[1:])}
    return Row(
        "start-up in a C program, to all devices",
        series["start"]["median"],
        "s",
        Target("≤", 0.3),
        series,
        "s",
    )


def _enqueues(quick: bool, *, in_order: bool) -> list[Row]:
    """Measure enqueues with each engine, and with the default, against the C loop of their kind."""
    count = 100 if quick else 1000
    where = "in order" if in_order else "out of order"
    # In-order launches depend on each other. Out-of-order launches write to different places.
    launches = Launches(
        make_queue(out_of_order=not in_order), count, **({} if in_order else {"targets": count})
    )
    objects, loops = Objects(launches), Loops(launches)
    actions: dict[str, Callable[[], object]] = {
        "C loop": loops.set_and_launch,
        _MARKED: loops.set_launch_and_mark,
    }
    buffers = {
        mode: Buffer(objects, launches, mode, in_order=in_order) for mode in ("replay", "auto")
    }
    reason = why_none()
    if not reason:
        driver = DriverCommandBuffer(launches)
        functions = (
            ctypes.c_void_p(driver.address("clEnqueueCommandBufferKHR")),
            driver_function("clFinish"),
        )
        things = ctypes.c_void_p(launches.queue.int_ptr), ctypes.c_void_p(driver.handle)
        actions["C loop, command-buffer of the driver"] = partial(
            c_functions().native_pass, *functions, *things
        )
        buffers["native"] = Buffer(objects, launches, "native", in_order=in_order)
    actions |= {mode: buffer.run for mode, buffer in buffers.items()}
    check_same(launches, **actions)
    samples = in_turns(actions, 5 if quick else _ROUNDS, count)
    return _compared(samples, where, reason)


def _compared(samples: Samples, where: str, reason: str) -> list[Row]:
    target = Target("≤", _SLOWER)
    rows = [
        ratio(f"command-buffer replayed ÷ C loop, {where}", samples, "replay", "C loop", target),
        ratio(f"command-buffer replayed ÷ {_MARKED}, {where}", samples, "replay", _MARKED, target),
    ]
    what = f"command-buffer native ÷ the driver's own in a C loop, {where}"
    best = "replay"
    if reason:
        rows.append(Row(what, None, "×", note=reason))
    else:
        rows.append(ratio(what, samples, "native", "C loop, command-buffer of the driver", target))
        best = min(("replay", "native"), key=lambda mode: summary(samples[mode])["median"])
    rows.append(
        ratio(
            f"command-buffer by itself ÷ the better of the two, {where}",
            samples,
            "auto",
            best,
            target,
            note=best,
        )
    )
    return rows


def _small(quick: bool) -> list[Row]:
    """Measure what an enqueue costs beyond its launches: 10 of them, against a C loop of as
    many."""
    each, times = 10, 10 if quick else 100
    queue = make_queue()
    few, many = Launches(queue, each), Launches(queue, each * times)
    objects, loops = Objects(few), Loops(many)
    buffer = Buffer(objects, few, "replay", in_order=True)
    actions = {"enqueue": partial(buffer.enqueue, times), "C loop": loops.set_and_launch}
    samples = in_turns(actions, 5 if quick else _ROUNDS, times)
    series = {name: summary(values) for name, values in samples.items()}
    added = series["enqueue"]["median"] - series["C loop"]["median"]
    what = f"an enqueue of {each} launches, beyond the C loop"
    return [Row(what, added, "µs", None, series, f"µs per {each} launches")]


def _updates(quick: bool) -> list[Row]:
    """Measure updates of one argument, command by command, in a command-buffer that was
    enqueued."""
    launches = Launches(make_queue(), 100 if quick else 1000)
    objects, rows = Objects(launches), []
    for mode in ("auto", *([] if why_none() else ["native"])):
        buffer = Buffer(objects, launches, mode, in_order=True, updatable=True)
        buffer.run()
        kinds = {
            "a number": _numbers(buffer, launches),
            "a buffer": _memory(buffer, launches, objects),
        }
        actions = {name: partial(buffer.update, updates) for name, updates in kinds.items()}
        samples = in_turns(actions, 5 if quick else 51, len(kinds["a number"]))
        for name in kinds:
            series = {"update": summary(samples[name])}
            target = Target("≤", 5) if mode == "auto" else None
            what = f"update of one argument, {name}" + (", native" if mode == "native" else "")
            rows.append(
                Row(what, series["update"]["median"], "µs", target, series, "µs per update")
            )
    return rows


def _numbers(buffer: Buffer, launches: Launches) -> Any:
    """Return two updates of every command that change each value, with the number of the last one
    first."""
    numbers = [ctypes.c_float(row[2] + step) for step in (1, 0) for row in launches.arguments]
    kind = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC"]
    lists = [ValueUpdate(kind, None, 2, 4, None, ctypes.addressof(number)) for number in numbers]
    return _updates_of(buffer, "ValueArg", lists, numbers)


def _memory(buffer: Buffer, launches: Launches, objects: Objects) -> Any:
    sources = [objects.buffer(row[1].int_ptr) for row in launches.arguments]
    kind = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_MEMOBJ_ARG_DESC"]
    lists = [
        MemoryUpdate(kind, None, 1, None, handle) for handle in [*sources[1:], sources[0], *sources]
    ]
    return _updates_of(buffer, "MemObjArg", lists)


def _updates_of(buffer: Buffer, which: str, lists: list[Any], *kept: Any) -> Any:
    """Return one update for each list of one new argument. The commands follow in turn."""
    updates = (Update * len(lists))()
    updates.kept = lists, kept
    for index, (update, new) in enumerate(zip(updates, lists, strict=True)):
        update.stype = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"]
        update.hCommand, update.newWorkDim = buffer.commands[index % len(buffer.commands)], 1
        setattr(update, f"numNew{which}s", 1)
        setattr(update, f"pNew{which}List", ctypes.addressof(new))
    return updates
