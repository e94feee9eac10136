"""Whether the engine `cuda` may run what NVIDIA's compiler gives: a self-test says so.

The self-test (cuda_self_test.py) runs in a child process (self_tests.py), once for each driver, its
version and a GPU.
"""

from __future__ import annotations

from typing import Final

from ...loader.base.forks import make_lock
from ..calls import find_driver_file, identify_device
from ..errors import OpenCLError
from . import self_tests

#: The module whose `main` is the self-test.
SELF_TEST: str = "fairlead.icd.command_buffer.cuda_self_test"

_known: Final[dict[tuple[str, ...], str | None]] = {}
_lock: Final = make_lock()


def why_not_device(device: int) -> str | None:
    """Why the engine does not run kernels of a device (a handle), None if it does.

    It is known once for the process. Threads that ask at the same time wait for one self-test.
    """
    try:
        identity = identify_device(device)
    except OpenCLError as error:
        return f"the driver does not describe the device, {error}"
    with _lock:
        if identity not in _known:
            kind, path = " ".join(("cuda", *identity[2:])), find_driver_file(device)
            _known[identity] = self_tests.why_not_library(path, kind, SELF_TEST)
        return _known[identity]


def try_library(path: str) -> str | None:
    """Run the self-test of a driver's file anew; nothing is remembered.

    Returns:
        Why it is not trusted, None if it is.
    """
    return self_tests.try_library(path, SELF_TEST)
