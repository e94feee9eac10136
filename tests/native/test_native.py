"""The native code alone, with a mock driver: each scenario in a process of its own, under ASan,
UBSan.

`make sanitize` runs them under ThreadSanitizer and valgrind, too (helpers/sanitize.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from helpers.kept_files import KeptFiles
from helpers.sanitize import (
    ADDRESS,
    HERE,
    build,
    build_entry_points,
    build_layer,
    build_opencl_loader,
    build_shells,
    build_ze_loader,
    scenarios,
)
from helpers.support import CHILD_TIMEOUT, ROOT
from helpers.tables import table

pytestmark = pytest.mark.slow

#: The builds: under the sanitizers, and as it is shipped.
_BUILDS = pytest.mark.parametrize(
    "sanitized", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["sanitized", "plain"]
)


def _flags(sanitized: bool, directory: Path) -> tuple[str, ...]:
    """The flags of a build. A compiler without sanitizers skips the test."""
    if not sanitized:
        return ()
    source = directory / "empty.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, *ADDRESS, str(source), "-o", str(directory / "empty")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{compiler[0]} has no sanitizers: install libasan and libubsan; {done.stderr}")
    return ("-O0", *ADDRESS)  # they find as much, and it compiles faster


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_TIMEOUT)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]


@_BUILDS
def test_every_scenario(sanitized: bool, tmp_path: Path) -> None:
    flags, harness = _flags(sanitized, tmp_path), tmp_path / "harness"
    folders = [ROOT / name for name in ("icd", "loader", "plugins/sdk/native")]
    kept, name = KeptFiles(HERE / "harness.c", [*folders, HERE]), "-".join(["harness", *flags])
    kept.copy(name, harness, lambda: build(tmp_path, flags))
    table("scenario", scenarios())(lambda scenario: _run(harness, scenario))()


@_BUILDS
def test_the_entry_points_of_the_reference_adapter(sanitized: bool, tmp_path: Path) -> None:
    _run(build_entry_points(tmp_path, _flags(sanitized, tmp_path)))


@_BUILDS
def test_the_command_buffer_layer(sanitized: bool, tmp_path: Path) -> None:
    _run(build_layer(tmp_path, _flags(sanitized, tmp_path)))


@_BUILDS
def test_the_opencl_loader_and_its_layers(sanitized: bool, tmp_path: Path) -> None:
    _run(build_opencl_loader(tmp_path, _flags(sanitized, tmp_path)))


@_BUILDS
def test_the_level_zero_loader(sanitized: bool, tmp_path: Path) -> None:
    _run(build_ze_loader(tmp_path, _flags(sanitized, tmp_path)))


@_BUILDS
def test_the_shells_of_adapters(sanitized: bool, tmp_path: Path) -> None:
    for program in build_shells(tmp_path, _flags(sanitized, tmp_path)):
        _run(program)


def test_every_scenario_that_is_written_is_run() -> None:
    """A scenario that scenarios.h does not name would be compiled and never run."""
    written = {
        line.split("(")[1].split(")")[0]
        for source in HERE.glob("check_*.c")
        for line in source.read_text(encoding="utf-8").splitlines()
        if line.startswith("SCENARIO(")
    }
    assert written == set(scenarios())


def test_every_lock_in_c_is_free_in_forked_children() -> None:
    """A thread that does not exist in the child may have it."""
    sources = {
        source: source.read_text(encoding="utf-8")
        for folder in (*("icd/native", "loader/base/native"), "plugins/command_buffer_layer/native")
        for source in (ROOT / folder).glob("*.c")
    }
    locking = {name for name, text in sources.items() if "PTHREAD_MUTEX_INITIALIZER" in text}
    freeing = {
        name
        for name, text in sources.items()
        if re.search(r"\b(FL_FREE_IN_CHILD|FL_IN_CHILD|pthread_atfork)\(", text)
    }
    assert locking and locking <= freeing
