"""What tests share besides fixtures: the types of the fixtures, and where the repository is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

ROOT: Final = Path(__file__).resolve().parents[2]
CHILD_TIMEOUT: Final = 120.0  # seconds


class FakeDriver(Protocol):
    """Builds a variant of tests/fake/driver.c: `fake_driver(icd=2, set_error=-6)` is compiled with -DICD=2 -DSET_ERROR=-6.

    A text is put in as it is; for a C string write the quotes. `flags` are for the compiler, such as libraries to link with.
    """

    def __call__(self, *flags: str | Path, **knobs: object) -> Path: ...


class FakePlugin(Protocol):
    """Builds a variant of tests/fake/plugin.c, a UR adapter or (`interface=2`) a PI plugin: `fake_plugin(layout=2, no_kernel=1)`.

    Knobs and flags are as for FakeDriver. The library's exported ints `fake_teardowns` and `fake_live_objects` count calls of piTearDown
    and contexts and queues that live; the file that FAKE_LOG names in the environment gets a line when it is loaded, torn down, unloaded.
    """

    def __call__(self, *flags: str | Path, **knobs: object) -> Path: ...


@dataclass(frozen=True)
class Output:
    """What a child process came to."""

    code: int
    out: str
    err: str


class RunPython(Protocol):
    """Runs Python code in a child process: `run_python("print(1)", env={"NAME": "value"}).out`.

    The child has the environment of this process and what `env` adds; None there removes a variable. It must end with exit code 0
    unless `check` is False.
    """

    def __call__(
        self, code: str, *arguments: str, env: Mapping[str, str | None] = {}, check: bool = True
    ) -> Output: ...


def check_named_tests(text: str) -> int:
    """Every `folder/test_file.py::function` that a document names exists under tests/; the answer is how many it names."""
    named = re.findall(r"`((?:[a-z_]+/)*test_\w+\.py)(?:::(\w+))?`", text)
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.exists(), file
        assert not function or re.search(
            rf"^def {function}\(", path.read_text(encoding="utf-8"), re.M
        ), f"{file}::{function}"
    return len(named)
