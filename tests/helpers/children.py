"""Child processes that run Python code: new interpreters, and forks of one that has imported."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from helpers.kept_files import digest
from helpers.support import CHILD_TIMEOUT, ROOT, Output

#: What most children import. No module here loads a driver, or reads a variable, when imported.
_IMPORTED: Final = (
    "pytest",
    "subprocess",
    "tempfile",
    "elftools.elf.dynamic",
    "elftools.elf.elffile",
    "numpy",
    "pytools.persistent_dict",  # PyOpenCL imports it
    "fairlead.api",
    "fairlead.icd.drivers",
    "fairlead.icd.probe",
    "fairlead.loader.ur.plugins",
    "fairlead.runtime",
    "fairlead.graph",
    "fairlead.plugins.opencl",
    "fairlead.cli.doctor.diagnosis",
    "fairlead.cli.doctor.report",
    "fairlead.cli.main",
    "fairlead.cli.conformance",
    "fairlead.conformance.harness",
    *(f"fairlead.conformance.{name}.fixtures" for name in ("ur", "pi", "ze", "opencl")),
)
#: Variables that are read when a process starts, or when one of these modules is imported. The
#: first one opens CUDA then, which does not work in a fork.
_READ_EARLY: Final = ("FAIRLEAD_CUDA", "LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "NPY_", "PYTHON")
#: With it, code imports the helpers. A fork can add that to its path.
_HELPERS: Final = ("PYTHONPATH", str(ROOT / "tests"))


class ForkServer:
    """A process that has imported `_IMPORTED`, and runs code in forks of itself, one at a time.

    Args:
        shortens: whether what has run to the end of an interpreter is not taken there again, and
            no end takes down the modules of other projects that the server has imported.
    """

    def __init__(self, *, shortens: bool = False) -> None:
        self._lock = threading.Lock()
        self._shortens, self._folder = shortens, Path(working_folder())
        self._environ = {
            name: value for name, value in os.environ.items() if name != _READ_EARLY[0]
        }
        self._socket, theirs = socket.socketpair()
        program = Path(__file__).with_name("fork_server.py").read_text(encoding="utf-8")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno()), *_IMPORTED],
                cwd=working_folder(),
                env=self._environ | {"OPENBLAS_NUM_THREADS": "1"},  # threads are not forked
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # files can be sought in, which Python remembers
                stderr=subprocess.PIPE,
            )
        self._answers = self._socket.makefile("rb")

    def can_run(self, environ: Mapping[str, str]) -> bool:
        """Whether a fork differs in nothing from a new interpreter with this environment."""
        differing = (environ.items() ^ self._environ.items()) - {_HELPERS}
        return not any(name.startswith(_READ_EARLY) for name, _ in differing)

    def run(self, code: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Output:
        """Run code in a fork, and return what it came to."""
        with self._lock:
            request = {
                "code": code,
                "arguments": arguments,
                "environ": dict(environ),
                "short": self._shortens and self._has_ended(code, arguments),
                "whole": not self._shortens,
            }
            data = json.dumps(request).encode()
            out, out_end = os.pipe()
            err, err_end = os.pipe()
            size = len(data).to_bytes(8, "little")
            socket.send_fds(self._socket, [size], [out_end, err_end])
            self._socket.sendall(data)
            os.close(out_end)
            os.close(err_end)
            child = self._answer()
            try:
                texts = _read((out, err), child)
            except TimeoutError:  # it was killed; the next answer is the next child's
                self._answer()
                raise
            return Output(self._answer(), *texts)

    def _has_ended(self, code: str, arguments: Sequence[str]) -> bool:
        """Whether a child of this run of tests has run this before, with other temporary files or
        variables at most."""
        lasting = [part for part in arguments if tempfile.gettempdir() not in part]
        try:
            (self._folder / f"ended-{digest([code, *lasting])}").touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def _answer(self) -> int:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the fork server ended: {self._process.communicate()[1].decode()}")
        return int(line)

    def close(self) -> None:
        """End the server."""
        self._answers.close()
        self._socket.close()
        self._process.communicate()


def _read(pipes: Sequence[int], child: int) -> list[str]:
    """Read pipes to their ends. A child that takes too long is killed."""
    end = time.monotonic() + CHILD_TIMEOUT
    said = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                raise TimeoutError(f"a child process ran longer than {CHILD_TIMEOUT:g} s")
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                said[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in said.values()]


def working_folder() -> str:
    """A folder for children, where no checkout of fairlead hides the installed one."""
    return os.path.dirname(os.environ["XDG_CACHE_HOME"])
