"""How far long work is: shown on a terminal with tqdm, and nowhere else."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping

import pytest
from helpers.support import RunPython

#: Bars appear at once, so that nobody has to wait.
FOLLOW = """
import sys
from fairlead.loader.base import progress
progress._DELAY = 0.0
assert list(progress.follow(range(5), "work", "pieces", 5)) == [0, 1, 2, 3, 4]
"""
CAPTURE = """
import numpy, pyopencl, fairlead
from fairlead.captured_graphs import block
from fairlead.loader.base import progress
progress._DELAY, block._COUNTED = 0.0, 8
context = pyopencl.Context([fairlead.devices()[0].to_pyopencl()])
queue = pyopencl.CommandQueue(context)
buffer = pyopencl.Buffer(context, 0, 64)
with fairlead.capture(queue) as graph:
    for _ in range(20):
        pyopencl.enqueue_fill_buffer(queue, buffer, numpy.float32(0), 0, 64)
assert len(graph) == 20
"""


def run_on_terminal(code: str, env: Mapping[str, str] | None = None) -> str:
    """What a Python writes to its terminal, which is its stderr."""
    own, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=terminal, env={**os.environ, **(env or {})}
    ) as child:
        os.close(terminal)
        found = b""
        while True:
            try:
                part = os.read(own, 4096)
            except OSError:  # the child has ended
                break
            if not part:
                break
            found += part
    os.close(own)
    assert child.returncode == 0, found
    return found.decode()


def test_a_terminal_shows_a_bar_that_goes_away() -> None:
    said = run_on_terminal(FOLLOW)
    assert "work:" in said and "1/5" in said
    assert said.endswith(" \r"), "it is gone"


@pytest.mark.parametrize(
    "before",
    ["sys.modules['tqdm'] = None", "progress._DELAY = 3600"],
    ids=["without tqdm", "short work"],
)
def test_a_terminal_shows_nothing(before: str) -> None:
    code = FOLLOW.replace("assert", f"{before}\nassert")
    assert run_on_terminal(code) == ""


def test_a_file_shows_nothing(run_python: RunPython) -> None:
    assert run_python(FOLLOW, fresh=True).err == ""


def test_a_capture_of_many_commands_shows_how_far_it_is(wheel_drivers: dict[str, str]) -> None:
    assert "capture: 8 commands" in run_on_terminal(CAPTURE, wheel_drivers)
