"""Builds the native code with its harness, and runs every scenario under sanitizers and valgrind.

`python tests/helpers/sanitize.py` (`make sanitize`) makes the runs of `RUNS`, one line each. It
builds the mock driver, the reference adapter's entry points, the layers, libOpenCL, libze_loader
and the shells, too. The whole output of each run is in build/sanitize/. The exit code is 0 only if
every run was made and found nothing: a missing tool is a failure. test_native.py uses `build` and
`scenarios` for the quick runs of the test suite.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = ROOT / "tests/native"
NATIVE: Final = ROOT / "icd" / "native"
LOADER: Final = ROOT / "loader" / "base" / "native"
PLUGINS: Final = ROOT / "plugins" / "sdk" / "native"
ZE_LOADER: Final = ROOT / "loader" / "ze" / "libze_loader" / "native"
CL_LOADER: Final = ROOT / "icd" / "libopencl" / "native"
LAYER: Final = ROOT / "plugins" / "command_buffer_layer" / "native"
FAKES: Final = ROOT / "tests" / "fake"
LOGS: Final = ROOT / "build" / "sanitize"

ADDRESS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD: Final = ("-fsanitize=thread",)
#: Generated functions have the parameters of the ABI, used or not. Allocations go through the
#: harness, which can refuse them.
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
_ALLOCATIONS: Final = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"
_FLAGS: Final = (*_STRICT, _ALLOCATIONS)
#: What only the harness replaces.
_HARNESS: Final = "-Wl,--wrap=fopen,--wrap=sched_yield,--wrap=clock_gettime"
#: They become libraries by themselves, with their own idea of which APIs there are.
_APART: Final = ("trace_layer.c", "opencl_layer.c")
#: In `build` or `build_shells`.
_ELSEWHERE: Final = ("shell.c", "pi_shell.c", "ze_shell.c", "python.c", "runtime_waits.c")
#: Seconds that a program may take: half a minute of a processor that others may want, too.
_LONGEST: Final = 3600.0

#: ld.so writes a library's link map with its own lock, which ThreadSanitizer does not see, before
#: dlopen gives the library to anybody.
_LINK_MAPS: Final = "race:^find_range$\n"
#: These ask the kernel about addresses that may lead nowhere: that is what they are for.
_ADDRESSES: Final = """{
   addresses that may lead nowhere
   Memcheck:Param
   write(buf)
   ...
   fun:fl_safe_read
}
{
   the same
   Memcheck:Param
   rt_sigprocmask(set)
   ...
   fun:is_readable
}
{
   what the C library keeps of threads, also of those that have ended
   Memcheck:Leak
   match-leak-kinds: possible
   fun:calloc
   ...
   fun:_dl_allocate_tls
   ...
   fun:pthread_create*
}
"""


@dataclass(frozen=True)
class Run:
    """One run: its compiler flags, the command that runs the harness, and its scenarios; () means
    all.

    `suppressions` is what the tool is not to report, and `reads` the environment variable that says
    where that is, up to the file's path.
    """

    name: str
    flags: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    reads: str = ""
    suppressions: str = ""


RUNS: Final = (
    Run("AddressSanitizer and UndefinedBehaviorSanitizer", ADDRESS),
    Run(
        "ThreadSanitizer",
        THREAD,
        scenarios=("thread_",),
        reads="TSAN_OPTIONS=suppressions=",
        suppressions=_LINK_MAPS,
    ),
    Run(
        "valgrind",
        command=("valgrind", "--quiet", "--leak-check=full", "--error-exitcode=99"),
        reads="VALGRIND_OPTS=--suppressions=",
        suppressions=_ADDRESSES,
    ),
)


def scenarios() -> list[str]:
    """The names of all scenarios."""
    return re.findall(r"X\((\w{2,})\)", (HERE / "scenarios.h").read_text(encoding="utf-8"))


def build(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the harness into `directory` and return its path.

    Raises RuntimeError with the compiler's output.
    """
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "harness"
    compiler = os.environ.get("CC", "cc").split()
    (directory / "ur_slots.h").write_text(_slots(), encoding="utf-8")
    folders = [f"-I{folder}" for folder in (NATIVE, HERE, directory, PLUGINS, LOADER)]
    sources = [
        str(source)
        for folder in (NATIVE, LOADER, HERE)
        for source in sorted(folder.glob("*.c"))
        if source.name not in _APART
    ]
    sources += [str(PLUGINS / "launches.c"), *map(str, sorted(PLUGINS.glob("ze_[!s]*.c")))]
    layers = runpy.run_path(str(LOADER / "build.py"))["LAYERS"]
    objects = ["thunks_ur.o", "thunks_pi.o", *["layer_ur.o", "layer_pi.o"] * layers]
    commands = (
        [sys.executable, str(NATIVE / "build.py"), str(directory)],
        [sys.executable, str(LOADER / "build.py"), str(directory)],
        [sys.executable, str(PLUGINS / "build.py"), str(directory)],
        [sys.executable, str(PLUGINS / "build_ze.py"), str(directory)],
        [*compiler, *_STRICT, *flags, f"-I{LOADER}", "-c", "thunks_ur.c", "layer_ur.c"],
        # generated by the same code, so one API is enough for the sanitizers
        [*compiler, "-std=gnu11", f"-I{LOADER}", "-c", "thunks_pi.c", "layer_pi.c"],
        [*compiler, *_FLAGS, _HARNESS, *flags, *folders, *sources, *objects, "-o", str(program)],
    )
    for command in commands:
        _run(command, directory)
    return program


def build_entry_points(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the reference adapter's entry points in C with entry_points/check.c.

    They are in another library than the harness's code, and some names are in both. Returns the
    program's path. Raises RuntimeError with the compiler's output.
    """
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "check_entry_points"
    for folder in (NATIVE, PLUGINS):
        _run([sys.executable, str(folder / "build.py"), str(directory)], directory)
    sources = [
        *sorted((HERE / "entry_points").glob("*.c")),
        *(HERE / "mock.c", HERE / "no_memory.c", NATIVE / "tables.c"),
        *(
            path
            for path in sorted(PLUGINS.glob("*.c"))
            if path.name not in _ELSEWHERE and not path.name.startswith("ze_")  # of Level Zero
        ),
    ]
    folders = [f"-I{folder}" for folder in (HERE, PLUGINS, NATIVE, LOADER, directory)]
    compiler = [*os.environ.get("CC", "cc").split(), *_FLAGS, *flags, *folders]
    _run([*compiler, *map(str, sources), "-o", str(program)], directory)
    return program


def build_shells(directory: Path, flags: Sequence[str] = ()) -> list[Path]:
    """Compile the shells of an adapter, a PI plugin and a Level Zero driver with shell/check.c.

    Returns the programs' paths.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for script in ("build.py", "shells.py", "build_ze.py"):
        _run([sys.executable, str(PLUGINS / script), str(directory)], directory)
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
    programs = {"check_shell": [], "check_pi_shell": ["-DFL_PI"], "check_ze_shell": ["-DFL_ZE"]}
    for name, define in programs.items():
        _run([*compiler, *define, str(HERE / "shell" / "check.c"), "-o", name, "-ldl"], directory)
    return [directory / name for name in programs]


def build_layer(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the command-buffer layer's C with layer/check.c. Returns the program's path."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "check_layer"
    _run([sys.executable, str(LAYER / "build.py"), str(directory)], directory)
    sources = [*sorted(LAYER.glob("*.c")), directory / "extensions.c", HERE / "layer" / "check.c"]
    folders = [f"-I{folder}" for folder in (LAYER, PLUGINS, directory)]
    compiler = [*os.environ.get("CC", "cc").split(), *_STRICT, *flags, *folders]
    _run([*compiler, "-c", "instance.c"], directory)
    instances = ["instance.o"] * runpy.run_path(str(LAYER / "build.py"))["INSTANCES"]
    _run([*compiler, *map(str, sources), *instances, "-o", str(program), "-ldl"], directory)
    return program


#: The fake drivers of opencl_loader/check.c, and their knobs (tests/fake/driver.c).
_CL_DRIVERS: Final = {
    "one": (),
    "two": ("-DICD=2", '-DNAME="Two"'),
    "old": ("-DSLOTS=100", '-DVERSION="OpenCL 1.2"'),
    "refuses": ("-DFETCH_ERROR=-6",),
    "empty": ("-DPLATFORMS=0",),
    "short": ("-DEXPORTS=0",),
}


def build_opencl_loader(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile libOpenCL's C with opencl_loader/check.c, its fake drivers, and the layers that trace
    and record.

    They have a folder of their own: libze_loader's check has drivers of the same names. Returns the
    program's path.
    """
    directory /= "opencl_loader"
    directory.mkdir(parents=True, exist_ok=True)
    compiler = [
        *os.environ.get("CC", "cc").split(),
        "-g",
        "-O1",
        *flags,
        "-fPIC",
        "-I.",
        "-pthread",
    ]
    folders = [f"-I{folder}" for folder in (CL_LOADER, NATIVE, LOADER, HERE, FAKES)]
    write = runpy.run_path(str(CL_LOADER / "build.py"))["write_sources"]
    sources = list(map(str, write(directory)))
    layer = runpy.run_path(str(NATIVE / "build.py"))
    common = [layer["LAYER"], *layer["loader"].SOURCES, *layer["write_headers"](directory)]
    library = [*compiler, *folders, "-shared", "-fvisibility=hidden"]
    for name, knobs in _CL_DRIVERS.items():
        source = [str(FAKES / "driver.c"), str(FAKES / "commands.c")]
        _run([*library, *knobs, *source, "-o", f"{name}.so"], directory)
    for name, own in (("trace", (layer["TRACE_LAYER"],)), ("record", layer["RECORD_LAYER"])):
        objects = list(map(str, dict.fromkeys([*own, *common])))
        _run([*library, _ALLOCATIONS, *objects, "-o", f"{name}.so"], directory)
    program = directory / "check_opencl_loader"
    checks = [str(HERE / "no_memory.c"), str(HERE / "opencl_loader" / "check.c")]
    link = ["-rdynamic", *sources, *checks, "-o", str(program), "-ldl"]
    _run([*compiler, *_FLAGS, '-DFL_VERSION="0"', *folders, *link], directory)
    return program


#: The fake drivers of ze_loader/check.c, and their knobs (tests/fake/ze_driver.c).
_ZE_DRIVERS: Final = {
    "one": (),
    "two": ('-DNAME="Two"',),
    "old": ("-DVERSION=4",),
    "bad": ("-DINIT_CODE=ZE_RESULT_ERROR_DEVICE_LOST",),
    "self": ("-DAT_INIT=if (zeInit(0) != ZE_RESULT_ERROR_UNINITIALIZED) crash()",),
}
_WRITE_ZE_FAKE: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from helpers.ze_header import ze_header;"
    "open('ze_fake.h', 'w', encoding='utf-8').write(ze_header())"
)


def build_ze_loader(directory: Path, flags: Sequence[str] = ()) -> Path:
    """Compile libze_loader's C with ze_loader/check.c, and its fake drivers.

    Returns the program's path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, str(ZE_LOADER / "build.py"), str(directory)], directory)
    _run([sys.executable, "-c", _WRITE_ZE_FAKE, str(ROOT / "tests")], directory)
    compiler = os.environ.get("CC", "cc").split()
    driver = [*compiler, "-g", "-O1", *flags, "-fPIC", "-shared", "-I.", f"-I{LOADER}"]
    source = str(FAKES / "ze_driver.c")
    for name, knobs in _ZE_DRIVERS.items():
        _run([*driver, *knobs, source, "-o", f"{name}.so"], directory)
    sources = [
        *sorted(ZE_LOADER.glob("*.c")),
        *(directory / "thunks_libze.c", directory / "thunks_libze_tools.c"),
        *(LOADER / "memory.c", HERE / "no_memory.c"),
        HERE / "ze_loader" / "check.c",
    ]
    folders = [f"-I{folder}" for folder in (directory, ZE_LOADER, LOADER, HERE)]
    program = directory / "check_ze_loader"
    command = [*compiler, *_FLAGS, *flags, *folders, "-rdynamic", *map(str, sources)]
    _run([*command, "-o", str(program), "-ldl"], directory)
    return program


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
        return (
            f"{run.command[0]} is not installed, so this run was NOT made (Debian: apt-get "
            f"install {run.command[0]})"
        )
    directory = LOGS / run.name.split()[0].lower()
    try:
        makers = (
            build,
            build_entry_points,
            build_layer,
            build_opencl_loader,
            build_ze_loader,
        )
        programs = [make(directory, run.flags) for make in makers]
        programs += build_shells(directory, run.flags)
    except RuntimeError as refused:
        return f"it could not be built\n{refused}"
    return "\n".join(filter(None, (_run_under(run, program) for program in programs)))


def _run_under(run: Run, program: Path) -> str:
    """Run one program; the answer is what was wrong, "" if nothing was."""
    command = [*run.command, str(program), *run.scenarios]
    if run.reads:
        suppressions = program.with_name("suppressions")
        suppressions.write_text(run.suppressions, encoding="utf-8")
        command = ["env", f"{run.reads}{suppressions}", *command]
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
        sound = (
            f"{len(which)} scenarios, the entry points, the layer, the loader and the shells, "
            "nothing found"
        )
        print(f"{run.name}: {wrong or sound}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
