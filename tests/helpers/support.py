"""What tests share besides fixtures: the types of the fixtures, and where the repository is."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds after which a child process hangs, whatever else this machine is doing.
CHILD_TIMEOUT: Final = 600.0


class CompileC(Protocol):
    """Compiles a C file to a shared library: `compile_c(source, path, *flags)`. Warnings are
    errors."""

    def __call__(self, source: Path, path: Path, *flags: str) -> Path: ...


class FakeDriver(Protocol):
    """Builds a variant of tests/fake/driver.c.

    `fake_driver(icd=2, set_error=-6)` compiles it with -DICD=2 -DSET_ERROR=-6. A text is inserted
    as it is; for a C string write the quotes. `flags` are for the compiler, such as libraries to
    link with.
    """

    def __call__(self, *flags: str | Path, **knobs: object) -> Path: ...


class FakePlugin(Protocol):
    """Builds a variant of tests/fake/plugin.c, a UR adapter or (`interface=2`) a PI plugin.

    An example is `fake_plugin(layout=2, no_kernel=1)`. Knobs and flags are as for FakeDriver. The
    library exports two ints: `fake_teardowns` counts calls of piTearDown, and `fake_live_objects`
    the living contexts and queues. The file that FAKE_LOG names gets a line when the library is
    loaded, torn down, or unloaded.
    """

    def __call__(self, *flags: str | Path, **knobs: object) -> Path: ...


#: This line comes where PoCL compiles for more than a second, which a busy machine can cause.
_SLOW: Final = re.compile(r"^fairlead: warning: PoCL compiles a graph's kernels .*\n", re.M)


@dataclass(frozen=True)
class Output:
    """What a child process came to. `err` is without the line about slow compilations."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "err", _SLOW.sub("", self.err))


def run_program(
    *command: str | Path | int,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = CHILD_TIMEOUT,
    check: bool = False,
) -> Output:
    """Run a program that reads nothing from its terminal.

    Args:
        env: all of its variables, by default those of this process.
        timeout: in seconds.
        check: whether it has to end with exit code 0.
    """
    done = subprocess.run(
        list(map(str, command)),
        env=env,
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    said = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert not check or done.returncode == 0, said
    return Output(done.returncode, done.stdout, done.stderr)


class RunPython(Protocol):
    """Runs Python code in a child process: `run_python("print(1)", env={"NAME": "value"}).out`.

    The child has the environment of this process and what `env` adds; None there removes a
    variable. It must end with exit code 0 unless `check` is False.

    The child is a fork of a Python that has imported fairlead and NumPy, but has opened no driver.
    It is a new interpreter if `fresh`, for tests of imports, or if `env` has what a process reads
    when it starts.

    It ends as an interpreter does. Where a child has ended so before, with the same code and with
    other temporary files or variables at most, `make test` lets the next one end as a C program
    does, behind the functions of atexit. In the others the modules of other projects stay, which
    the fork server has imported. `make test-all` takes each to the interpreter's whole end.
    """

    def __call__(
        self,
        code: str,
        *arguments: str,
        env: Mapping[str, str | None] = {},
        check: bool = True,
        fresh: bool = False,
    ) -> Output: ...


def check_named_tests(text: str) -> int:
    """Check that every `folder/test_file.py::function` that a document names exists.

    Returns how many.
    """
    named = re.findall(r"`((?:[a-z_]+/)*test_\w+\.py)(?:::(\w+))?`", text)
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.exists(), file
        assert not function or re.search(
            rf"^def {function}\(", path.read_text(encoding="utf-8"), re.M
        ), f"{file}::{function}"
    return len(named)


def check_named_files(text: str, pattern: str) -> int:
    """Check that every file of the tree that a document names exists.

    Args:
        text: the document.
        pattern: what is a name: a regular expression, with one group at most.

    Returns:
        How many names there are.
    """
    named = re.findall(pattern, text)
    for file in named:
        assert (ROOT / file).exists(), file
    return len(named)


def keep_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes seem to wait for a core all the time."""
    seconds = itertools.count(step=1000.0)
    monkeypatch.setattr(
        "fairlead.loader.base.processes._list_times_in_line",
        lambda process: [(process, next(seconds))],
    )


def with_short_limit(check: Callable[[int], object]) -> None:
    """Check something that hangs, with the shortest limit that lets it come so far.

    On a busy machine a child process may need longer than the first limit to reach the place that
    hangs. Then the check fails, and runs again with a longer one.

    Args:
        check: is given a limit in seconds.
    """
    for limit in (2, 20):
        with suppress(AssertionError):
            check(limit)
            return
    check(200)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A file or folder that is made once in a run, by the first process that asks for it.

    Args:
        factory: the fixture `tmp_path_factory`.
        name: what the file or folder is called, different for all that differ.
        make: makes it at the path that it is given.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the folder that all workers have in common
    path = base / "once" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = Path(f"{path}.done")
        if not done.exists():
            make(path)
            done.touch()
    return path


class WatchedLock:
    """A lock that tells when another thread than that of the test wants it.

    Attributes:
        wanted: is set then.
    """

    def __init__(self, lock: Any) -> None:
        self._lock, self._owner = lock, threading.current_thread()
        self.wanted = threading.Event()

    @property
    def is_watching(self) -> bool:
        """Whether the caller is the thread of the test."""
        return threading.current_thread() is self._owner

    def __enter__(self) -> None:
        if not self.is_watching:
            self.wanted.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def list_imports(*command: str, env: Mapping[str, str]) -> set[str]:
    """Return the modules that a command of fairlead imports. It must succeed.

    What the start of Python imports for an editable installation (`-S`) is left out.

    Args:
        env: variables to set.
    """
    run = [sys.executable, "-S", "-X", "importtime", "-m", "fairlead", *command]
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, sys.path)))}
    done = subprocess.run(
        run, env={**os.environ, **paths, **env}, capture_output=True, text=True, check=True
    )
    return {line.split("|")[-1].strip() for line in done.stderr.splitlines()}


def vendors(directory: Path, *libraries: Path) -> dict[str, str]:
    """Registers libraries in a directory, and gives the environment that leads to it."""
    for number, library in enumerate(libraries):
        (directory / f"{number}.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(directory)}
