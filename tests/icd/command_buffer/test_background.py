"""Work that a thread does in the background, at the end of Python."""

from __future__ import annotations

from helpers.support import RunPython

#: Python calls first what was registered last. So the thread goes on when Python has given up to
#: wait for it.
_INTERRUPTED = """
import atexit, os, signal, threading
from fairlead.icd.command_buffer.background import Background

background, ends = Background("works", daemon=False), threading.Event()
atexit.register(ends.set)

def work():
    while threading.main_thread().is_alive():
        pass
    while not caught:  # one that comes just before Python waits is seen after the wait
        os.kill(os.getpid(), signal.SIGINT)
    ends.wait()
    print("done", flush=True)

caught = []

def interrupt(*given):
    caught.append(given)
    if len(caught) == 1:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
assert background.add(work)
"""


def test_python_waits_for_the_piece_although_ctrl_c_ended_that(run_python: RunPython) -> None:
    """A driver that still compiled would crash."""
    done = run_python(_INTERRUPTED, fresh=True, check=False)
    assert (done.code, done.out) == (0, "done\n"), done.err
