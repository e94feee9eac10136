"""Signals in a process that has opened drivers: LLVM, which some of them are linked with, takes
over the handlers of many.

Its handler gives every signal back to the handler before it, so Ctrl-C is still KeyboardInterrupt.
LLVM takes them over when a driver is opened, and again at each build after a signal.
"""

from __future__ import annotations

import pytest
from helpers.support import RunPython

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal
import pyopencl
import fairlead

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs this may ignore it
heard = []

def interrupted():
    try:
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):  # the handler runs between two instructions
            pass
    except KeyboardInterrupt:
        return True
    return False

opened = [device.to_pyopencl() for device in fairlead.devices()]
print(len(opened) > 0, interrupted(), interrupted())
for number, device in enumerate(opened):
    context = pyopencl.Context([device])
    for handler in (signal.default_int_handler, lambda *_: heard.append(number)):
        signal.signal(signal.SIGINT, handler)
        text = f"kernel void built_by_{os.getpid()}(global int *a) {{ a[0] = {len(heard)}; }}"
        program = pyopencl.Program(context, text).build(cache_dir=False)
        kernel = pyopencl.Kernel(program, program.kernel_names)
        queue = pyopencl.CommandQueue(context)
        kernel(queue, (1,), None, pyopencl.Buffer(context, 1, 4)).wait()
        print(interrupted())
print(heard == [*range(len(opened))])
"""


def test_ctrl_c_is_heard_although_drivers_take_its_handler(run_python: RunPython) -> None:
    opened, *of_devices, heard = run_python(PROGRAM).out.split("\n")[:-1]
    assert opened == "True True True" and heard == "True"
    assert of_devices == ["True", "False"] * (len(of_devices) // 2)
