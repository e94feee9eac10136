"""Builds the native code with its harness and the mock driver, and the shells of adapters, and runs every scenario under the sanitizers
and valgrind.

`python tests/native/sanitize.py` (`make sanitize`) makes the runs of `RUNS`, one line each; the whole output of each lies in
build/sanitize/. The exit code is 0 only if every run was made and found nothing: a missing tool counts as a failure.
test_native.py uses `build` and `scenarios` for the quick runs of the test suite.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
NATIVE: Final = ROOT / "icd" / "native"
LOADER: Final = ROOT / "loader" / "base" / "native"
PLUGINS: Final = ROOT / "plugins" / "sdk" / "native"
LOGS: Final = ROOT / "build" / "sanitize"

ADDRESS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD: Final = ("-fsanitize=thread",)
#: Generated functions have the parameters of the ABI, used or not. Allocations go through the harness, which can refuse them.
_STRICT: Final = (
    "-g",
    "-O1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-pthread",
)
_FLAGS: Final = (*_STRICT, "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc")
_APART: Final = (
    "trace_layer.c"  # it becomes a library by itself, with its own idea of which APIs there are
)
_LONGEST: Final = 900.0  # seconds that a run may take

#: fl_safe_read asks the kernel about addresses that may lead nowhere: that is what it is for.
_SUPPRESSIONS: Final = """{
   addresses that may lead nowhere
   Memcheck:Param
   write(buf)
   ...
   fun:fl_safe_read
}
"""


@dataclass(frozen=True)
class Run:
    """One run: its compiler flags, the command that the harness is run by, and which scenarios (all if there are none)."""

    name: str
    flags: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()


RUNS: Final = (
    Run("AddressSanitizer and UndefinedBehaviorSanitizer", ADDRESS),
    Run("ThreadSanitizer", THREAD, scenarios=("thread_",)),
    Run("valgrind", command=("valgrind", "--quiet", "--leak-check=full", "--error-exitcode=99")),
)


def scenarios() -> list[str]:
    """The names of all scenarios."""
    return re.findall(r"X\((\w{2,})\)", (HERE / "scenarios.h").read_text(encoding="utf-8"))


def build(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the harness into `directory` and return its path. Raises RuntimeError with what the compiler said."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "harness"
    compiler = os.environ.get("CC", "cc").split()
    (directory / "ur_slots.h").write_text(_slots(), encoding="utf-8")
    folders = [f"-I{folder}" for folder in (NATIVE, HERE, directory, LOADER, PLUGINS)]
    sources = [
        str(source)
        for folder in (NATIVE, LOADER, HERE)
        for source in sorted(folder.glob("*.c"))
        if source.name != _APART
    ]
    sources.append(str(PLUGINS / "launches.c"))
    commands = (
        [sys.executable, str(NATIVE / "build.py"), str(directory)],
        [sys.executable, str(LOADER / "build.py"), str(directory)],
        [sys.executable, str(PLUGINS / "build.py"), str(directory)],
        # generated, and like the thunks of UR, which are what the scenarios call
        [*compiler, "-std=gnu11", f"-I{LOADER}", "-c", "thunks_cl.c", "thunks_pi.c"],
        [
            *compiler,
            *_FLAGS,
            *flags,
            *folders,
            *sources,
            "thunks_ur.c",
            "thunks_cl.o",
            "thunks_pi.o",
            "-o",
            str(program),
        ],
    )
    for command in commands:
        _run(command, directory)
    return program


def build_shells(directory: Path, flags: Sequence[str] = ()) -> list[Path]:
    """Compile the shells of an adapter and of a PI plugin with what checks them (shell/check.c), and return the two programs' paths."""
    directory.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, str(PLUGINS / "build.py"), str(directory)], directory)
    getters = re.findall(
        r"\b(urGet\w+ProcAddrTable)\(", (directory / "ur_entries.h").read_text(encoding="utf-8")
    )
    (directory / "getters.h").write_text(
        f"#define GETTERS {', '.join(getters)}\n", encoding="utf-8"
    )
    compiler = [
        *os.environ.get("CC", "cc").split(),
        *_STRICT,
        *flags,
        f"-I{PLUGINS}",
        f"-I{directory}",
        "-rdynamic",
    ]
    programs = {"check_shell": [], "check_pi_shell": ["-DFL_PI"]}
    for name, define in programs.items():
        _run([*compiler, *define, str(HERE / "shell" / "check.c"), "-o", name, "-ldl"], directory)
    return [directory / name for name in programs]


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _slots() -> str:
    """The text of ur_slots.h: where the functions of Unified Runtime are in a table."""
    functions = re.findall(
        r"^ *(\d+) \S+ \S+ (ur\w+)\(",
        (LOADER.parents[1] / "ur" / "ur.abi").read_text(encoding="utf-8"),
        re.M,
    )
    return "".join(f"#define SLOT_{name} {slot}\n" for slot, name in functions)


def _make(run: Run) -> str:
    """Make a run; the answer is what was wrong, "" if nothing was."""
    if run.command and not shutil.which(run.command[0]):
        return f"{run.command[0]} is not installed, so this run was NOT made (Debian: apt-get install {run.command[0]})"
    directory = LOGS / run.name.split()[0].lower()
    try:
        programs = [build(directory, run.flags), *build_shells(directory, run.flags)]
    except RuntimeError as refused:
        return f"it could not be built\n{refused}"
    return "\n".join(filter(None, (_run_under(run, program) for program in programs)))


def _run_under(run: Run, program: Path) -> str:
    """Run one program; the answer is what was wrong, "" if nothing was."""
    command = [*run.command, str(program), *run.scenarios]
    if run.command:
        suppressions = program.with_name("suppressions")
        suppressions.write_text(_SUPPRESSIONS, encoding="utf-8")
        command.insert(1, f"--suppressions={suppressions}")
    log = program.with_name("log" if program.name == "harness" else f"log_{program.name}")
    with log.open("w", encoding="utf-8") as output:
        try:
            code = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, timeout=_LONGEST
            ).returncode
        except subprocess.TimeoutExpired:
            return f"it did not end within {_LONGEST:.0f} s: {log}"
    if code == 0:
        return ""
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
    return f"exit code {code}: {log}\n{tail}"


def main() -> int:
    """Make all runs; the exit code."""
    failed = 0
    for run in RUNS:
        wrong = _make(run)
        failed += bool(wrong)
        which = [
            name for name in scenarios() if not run.scenarios or name.startswith(run.scenarios)
        ]
        print(
            f"{run.name}: {wrong or f'{len(which)} scenarios and the shells, nothing found'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
