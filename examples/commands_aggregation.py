"""Ten commands on three queues: what a model of task levels predicts, and what a device does.

Intel's sample of this name shows how its runtime aggregates commands of several queues. Two queues
are in order, the third is not. `--in-order` puts all ten commands on one queue instead.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fairlead.runtime import USM, Event, Kernel, Program, Queue, devices, malloc_shared
from fairlead.runtime.task_levels import ModelCommand, TaskLevels

TIMES = 1_000_000
SOURCE = """
kernel void count(global int *buffer, int k, int times) {
    for (int i = 0; i < times; i++) buffer[k * get_global_size(0) + get_global_id(0)]++;
}"""

#: Of each command: its queue, the commands that it waits for, and the event that it returns.
COMMANDS: dict[int, tuple[int, Sequence[int], str]] = {
    1: (0, (), ""),
    2: (1, (), "e1"),
    3: (2, (), ""),
    4: (0, (), "e2"),
    5: (1, (), ""),
    6: (0, (), "e3"),
    7: (1, (4,), "e4"),
    8: (2, (7,), ""),
    9: (2, (2, 6), ""),
    10: (0, (), ""),
}


def predict(in_order: bool) -> TaskLevels:
    """Return the model of the ten commands."""
    model = TaskLevels()
    queues = [model.queue(f"ioq{n}") for n in (1, 2)] + [model.queue("ooq3", in_order=False)]
    made: dict[int, ModelCommand] = {}
    for number, (place, waits, returns) in COMMANDS.items():
        queue, before = (queues[0], ()) if in_order else (queues[place], waits)
        events = [made[other] for other in before]
        made[number] = queue.enqueue(str(number), waits_for=events, returns=returns)
    return model


def run(queues: Sequence[Queue], in_order: bool, kernel: Kernel, memory: USM) -> dict[int, Event]:
    """Enqueue the ten commands, wait for all, and return their events."""
    size, made = memory.array.size // len(COMMANDS), dict[int, Event]()
    for number, (place, waits, _) in COMMANDS.items():
        queue, before = (queues[0], ()) if in_order else (queues[place], waits)
        arguments = memory, np.int32(number - 1), np.int32(TIMES)
        events = [made[other] for other in before]
        made[number] = queue.parallel_for(size, kernel, *arguments, depends_on=events)
    Event.wait_all(made.values())
    return made


def overlapping(events: dict[int, Event]) -> list[list[int]]:
    """Group commands, by their start: those of a group all ran at some same time."""
    times = {number: (e.profiling("start"), e.profiling("end")) for number, e in events.items()}
    groups: list[list[int]] = []
    for number in sorted(times, key=lambda number: times[number]):
        if groups and times[number][0] < min(times[other][1] for other in groups[-1]):
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-order", action="store_true", help="all commands on one queue")
    parser.add_argument("--work-size", type=int, default=512, metavar="N", help="work-items")
    parser.add_argument("--device", metavar="SELECTOR", help='as ONEAPI_DEVICE_SELECTOR: "*:gpu"')
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the batches as SVG")
    options = parser.parse_args()
    if options.device:
        os.environ["ONEAPI_DEVICE_SELECTOR"] = options.device

    begin = time.perf_counter()
    device = devices()[0]
    model = predict(options.in_order)
    kernel = Program(device, SOURCE, "-cl-opt-disable").kernel("count")
    memory = malloc_shared(len(COMMANDS) * options.work_size, np.int32, device)
    right = True

    def measured(profiling: bool) -> tuple[dict[int, Event], float]:
        """Run the commands on queues of their own. Return the events, and the seconds."""
        nonlocal right
        queues = [Queue(device, in_order=n < 2, profiling=profiling) for n in range(3)]
        memory.array[:] = 0
        start = time.perf_counter()
        events = run(queues, options.in_order, kernel, memory)
        taken = time.perf_counter() - start
        right &= bool(np.all(memory.array == TIMES))
        return events, taken

    taken = measured(profiling=False)[1]  # profiling would keep commands apart
    print(f"Work size: {options.work_size}\nDevice: {device.name}")
    print(f"Kernels execution: {taken:.3f} s\nTotal: {time.perf_counter() - begin:.3f} s\n")
    groups = overlapping(measured(profiling=True)[0])
    print(model)
    print("on this device:", *(f"{{{', '.join(map(str, group))}}}" for group in groups))
    print(f"every element is {TIMES:,}" if right else "the result is WRONG")
    if options.plot:
        options.plot.write_text(model.to_svg(), encoding="utf-8")
    return right


if __name__ == "__main__":
    sys.exit(not main())
