"""Counter-based events beside regular ones, in the adapter on Level Zero.

    python -m bench.ze_events [TURNS]

Microseconds of one call of the adapter: a barrier with an event in an in-order queue, and an
in-order command-buffer of one launch. If the command has an event for the program, the adapter
enqueues in Python. Processes take turns, 4 by default, and the least counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

KINDS: Final = "regular", "counter-based"
_CALLS: Final = 500


def _measure(run: Callable[[], None]) -> float:
    """Return the least microseconds of a call, of five loops."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(_CALLS):
            run()
        best = min(best, (time.perf_counter() - begun) / _CALLS)
    return best * 1e6


def child(place: int) -> dict[str, float]:
    """Return what the calls take on a driver, with the events that the variable names."""
    from fairlead import plugins
    from fairlead.conformance.ur.calls import URCalls
    from fairlead.conformance.ur.objects import URObjects
    from fairlead.conformance.ur.recording import URRecording
    from fairlead.loader.ur.adapters import load
    from fairlead.loader.ur.discovery import PluginCandidate

    candidate = PluginCandidate(plugins.level_zero_adapter(), "bench", backend="level_zero")
    plugin = load(candidate)
    device = plugin.platforms[place].devices[0]
    calls = URCalls(plugin, device.handle)
    make = URObjects(calls, plugin.handles[0], device.platform.handle, device.handle)
    queue = make.queue()

    def barrier() -> None:
        event = make.barrier(queue)
        make.wait(event)
        make.release(event)

    def recorded(event: bool) -> URRecording:
        recording = URRecording(make, isInOrder=True)
        recording.launch(make.kernel("nothing"), event=event)
        recording.finalize()
        return recording

    found = {"a barrier, each waited for": _measure(barrier)}
    for name, event in (("", False), (", whose command has an event", True)):
        recording = recorded(event)

        def run(recording: URRecording = recording) -> None:
            made = recording.enqueue(queue)
            make.wait(made)
            make.release(made)

        def run_on(recording: URRecording = recording) -> None:
            make.release(recording.enqueue(queue))

        found[f"a command-buffer{name}, each waited for"] = _measure(run)
        found[f"a command-buffer{name}, in a row"] = _measure(run_on)
        calls.ok("urQueueFinish", queue)
    return found


def main(turns: int) -> None:
    """Measure in child processes, and print a table."""
    from fairlead.icd.drivers import platforms

    names = [platform.name for platform in platforms() if platform.devices]
    print(f"| driver, call | {', µs | '.join(KINDS)}, µs |\n|---|---|---|")
    for place, name in enumerate(names):
        rows: dict[str, dict[str, float]] = {}
        for _ in range(turns):
            for kind in KINDS:
                done = subprocess.run(
                    [sys.executable, "-m", "bench.ze_events", "--child", str(place)],
                    env={**os.environ, "FAIRLEAD_ZE_EVENTS": kind},
                    check=True,
                    capture_output=True,
                    text=True,
                )
                for what, value in json.loads(done.stdout.splitlines()[-1]).items():
                    row = rows.setdefault(what, {})
                    row[kind] = min(value, row.get(kind, value))
        for what, row in rows.items():
            print(f"| {name}, {what} | " + " | ".join(f"{row[kind]:.2f}" for kind in KINDS) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
