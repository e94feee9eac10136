"""Runs the clients: programs compiled against the DPC++ of a wheel, and dpctl.

A client is a child process that sees one driver, through the Khronos loader of Intel's wheel, and
one adapter. Intel's own is linked into libsycl.so.9 and libur_loader.so.0 of 2026.2;
UR_ADAPTERS_FORCE_LOAD names another.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from fairlead import plugins
from fairlead.api import register_drivers
from helpers.kept_files import KeptFiles
from helpers.support import ROOT, Output, once, run_program

HERE: Final = ROOT / "tests/clients"
PROGRAMS: Final = tuple(
    sorted(path.stem for path in (HERE / "sycl").glob("*.cpp") if path.stem != "leaking")
)
#: Those whose kernels are SYCL code, which libsycl compiles at run time.
DEVICE_PROGRAMS: Final = tuple(sorted(path.stem for path in (HERE / "device").glob("*.cpp")))
#: Where libOpenCL.so.1 and what the Intel drivers need lie.
PREFIX_LIB: Final = Path(sys.prefix, "lib")
#: What a program needs to know of Level Zero's devices.
ZE_VARIABLES: Final[dict[str, dict[str, str]]] = {"sub_devices": {"FAIRLEAD_ZE_SUB_DEVICES": "2"}}
#: On Level Zero: the programs of each process.
ZE_PROCESSES: Final = (
    tuple(name for name in DEVICE_PROGRAMS if name not in ZE_VARIABLES),
    *((name,) for name in ZE_VARIABLES),
)
#: The drivers whose results the tests know: the names are those of helpers/drivers.py.
DRIVERS: Final = ("intel_cpu", "pocl_wheel", "pocl-3.1")
#: Intel's own adapter and ours; for PI the same names mean the plugins.
ADAPTERS: Final = ("intel", "fairlead")


@dataclass(frozen=True)
class Case:
    """On what a client runs."""

    adapter: str
    driver: str

    def __str__(self) -> str:
        return f"{self.adapter}-{self.driver}"


def on(*values: Case | str) -> list[Any]:
    """Parameters: each value, and the mark of the driver that it needs."""
    return [
        pytest.param(
            value,
            id=str(value),
            marks=pytest.mark.driver(value.driver if isinstance(value, Case) else value),
        )
        for value in values
    ]


#: Each adapter on each driver. Intel's runs no code of ours, so `make test` leaves it out.
CASES: Final = [
    pytest.param(
        *case.values,
        id=case.id,
        marks=(*case.marks, *([pytest.mark.thorough] if case.values[0].adapter == "intel" else [])),
    )
    for case in on(*(Case(adapter, driver) for adapter in ADAPTERS for driver in DRIVERS))
]


@cache
def adapter_path(adapter: str) -> str | None:
    """Return the file of an adapter; None for Intel's, which needs none.

    SYCL_CLIENTS_ADAPTER names another one than the reference adapter.
    """
    return (
        None
        if adapter == "intel"
        else os.environ.get("SYCL_CLIENTS_ADAPTER") or plugins.reference_adapter()
    )


@cache
def plugin_path(adapter: str, home: Path) -> str:
    """The file of a PI plugin. SYCL_CLIENTS_PLUGIN names another one than the reference plugin."""
    if adapter == "intel":
        return str(home / "lib/libpi_opencl.so")
    return os.environ.get("SYCL_CLIENTS_PLUGIN") or plugins.reference_plugin()


def run(
    command: Sequence[str | Path],
    home: Path,
    driver: str,
    adapter: str | None = None,
    **variables: str | Path,
) -> Output:
    """Run a client.

    Args:
        home: the folder of its DPC++.
        driver: a driver's library.
        adapter: an adapter's library, or None.
    """
    libraries = (home / "lib", PREFIX_LIB, os.environ.get("LD_LIBRARY_PATH"))
    environ = {
        **os.environ,
        **_vendors(driver),
        # only for this run: with it, system tools would take Intel's libraries for their own
        "LD_LIBRARY_PATH": ":".join(filter(None, map(str, libraries))),
        **({"UR_ADAPTERS_FORCE_LOAD": adapter} if adapter else {}),
        **{name: str(value) for name, value in variables.items()},
    }
    return run_program(*command, env=environ, cwd=home)


@cache
def _vendors(driver: str) -> dict[str, str]:
    """The variables by which the Khronos loader finds this driver alone."""
    return register_drivers([driver])


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of each test in a report of pytest: "passed", "failure", "error" or
    "skipped"."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = min(tags, default="passed")
    return found


def printed(source: Path) -> str:
    """What a program has to print: the comment `Prints:` at the end of its source."""
    _, found, block = source.read_text(encoding="utf-8").partition("\n// Prints:\n")
    assert found, f"{source.name} does not say what it prints"
    return "".join(f"{line.removeprefix('//   ')}\n" for line in block.splitlines())


def error_of(output: Output) -> str:
    """The error that ended a program, in one line."""
    return " ".join(output.out.partition("error: ")[2].split())


@cache
def is_repaired(library: str) -> bool:
    """Return whether fairlead repairs the CPU name that the driver compiles for.

    Without fairlead such a driver builds nothing on this CPU.
    """
    code = (
        "import sys; from fairlead.icd.drivers import load; from "
        "fairlead.loader.base.search import Candidate; "
    )
    code += "print('pocl-generic-cpu' in load(Candidate(sys.argv[1], 'test')).quirks)"
    done = run_program(sys.executable, "-c", code, library, check=True)
    return done.out.strip() == "True"


#: The validation layers of the real loader. They report only where UR_LOG_VALIDATION says. A file
#: would miss what they report at the end of the process.
WATCHED: Final = {
    "UR_ENABLE_LAYERS": "UR_LAYER_FULL_VALIDATION,UR_LAYER_LEAK_CHECKING",
    "UR_LOG_VALIDATION": "level:debug;output:stderr",
}


def complaints(output: Output) -> list[str]:
    """Return what the layers reported in a run with WATCHED, and the rest of its standard error.

    Addresses and stack traces are left out. The layers must have followed every handle.
    """
    lines = [line.removeprefix("<VALIDATION>") for line in output.err.splitlines()]
    assert any(line.startswith("[DEBUG]: Reference count for handle") for line in lines), (
        "the layers were not at work"
    )
    said = [
        re.sub(r"0x[0-9a-f]+", "0x…", line)
        for line in lines
        if not line.startswith("[DEBUG]") and line not in _NO_COMPLAINT
    ]
    return [
        line
        for line in said
        if not re.match(r"\[ERROR\]: (#\d+ |Handle 0x… was recorded for first time here:)", line)
    ]


def without_titles(lines: Sequence[str]) -> list[str]:
    """The lines that are not the titles between programs of one process: see `outputs`."""
    return [line for line in lines if not line.startswith("begin ")]


#: Reported for every handle that is optional and NULL, whatever the adapter: the pool of an
#: allocation, the program of a native kernel.
_NO_COMPLAINT: Final = ("[ERROR]: There are no valid references to handle 0", "")
LEAK: Final = "[ERROR]: Retained 1 reference(s) to handle 0x…"


#: The SYCL programs are one program, which is told which of them to be: the headers take longest to
#: compile, and are compiled once. Told several, it is one after the other, and writes between them
#: which one begins and what the last one returned.
_ALL: Final = """\
#include "device.hpp"
#include <cstring>
#define main program_main
{includes}
#undef main
static int run(const char *name) {{
{calls}
  return 2;
}}
int main(int count, char **names) {{
  if (count == 2)
    return run(names[1]);
  for (int i = 1; i < count; i++) {{
    std::cout << "begin " << names[i] << std::endl;
    std::cerr << "begin " << names[i] << std::endl;
    int code = run(names[i]);
    std::cout << "end " << code << std::endl;
  }}
}}
"""


def outputs(output: Output, programs: Sequence[str]) -> dict[str, Output]:
    """What each of these programs came to that ran in one process, by its name.

    One that did not end has the exit code of the process.
    """
    if len(programs) == 1:
        return {programs[0]: output}
    said: dict[str, Output] = {}
    errors = dict(_sections(output.err))
    for name, text in _sections(output.out):
        out, _, code = text.rpartition("end ")
        said[name] = (
            Output(int(code), out, errors[name])
            if code.strip().isdigit()
            else Output(output.code, text, errors[name])
        )
    return said


def _sections(text: str) -> list[tuple[str, str]]:
    """The name of each program, and what was written while it ran."""
    _, *parts = re.split(r"^begin (\w+)\n", text, flags=re.M)
    return list(zip(parts[::2], parts[1::2], strict=True))


class Compiler:
    """Compiles the programs of tests/clients, by the host's compilers alone.

    What is made of SYCL is kept for later runs, until a program or libsycl changes.

    Args:
        home: the folder of its DPC++.
        factory: the fixture `tmp_path_factory`.
        programs: the names of the SYCL programs that this DPC++ compiles.
    """

    def __init__(
        self,
        home: Path,
        factory: pytest.TempPathFactory,
        programs: Sequence[str] = (*PROGRAMS, "leaking", *DEVICE_PROGRAMS),
    ) -> None:
        self.home, self.factory, self.programs = home, factory, programs
        self.library = next(home.glob("lib/libsycl.so.[0-9]"))
        library = self.library.stat()
        parts = f"{home} {library.st_size} {library.st_mtime_ns}", Path(__file__).read_text("utf-8")
        self.kept = KeptFiles(HERE / "sycl/client.hpp", [HERE / "sycl", HERE / "device"], *parts)

    def run_device(
        self, names: Sequence[str], driver: str, adapter: str | None, **variables: str | Path
    ) -> Output:
        """Run device/{name}.cpp, or several in one process. The parameters are those of `run`.

        libsycl compiles the SYCL code of a program once. Its binaries are made anew. A process of
        libsycl may read what another one is writing, so each has a copy.
        """
        compiled = self.kept.folder("kernel_compiler")
        with tempfile.TemporaryDirectory(dir=compiled.parent) as cache:
            own = Path(cache, "ext_kernel_compiler")
            shutil.copytree(compiled, own)
            caching: dict[str, str | Path] = {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": cache}
            output = run(self.sycl(*names), self.home, driver, adapter, **caching, **variables)
            for entry in own.iterdir() if output.code == 0 else ():
                with suppress(OSError):  # it is there already
                    entry.rename(compiled / entry.name)
            return output

    def c(self, source: Path) -> list[str]:
        """The command that runs a program in C, which is linked to the loader."""
        library = self.home / "lib/libur_loader.so.0"
        return [
            str(
                once(
                    self.factory,
                    source.stem,
                    lambda program: self._run(["cc"], source, program, library),
                )
            )
        ]

    def sycl(self, *names: str) -> list[str]:
        """The command that runs a program of sycl/ or device/, or several: see `outputs`."""

        def make(program: Path) -> None:
            includes = (
                f'namespace program_{name} {{\n#include "{name}.cpp"\n}}' for name in self.programs
            )
            calls = (
                f'  if (!std::strcmp(name, "{name}"))\n    return program_{name}::program_main();'
                for name in self.programs
            )
            source = program.with_name(f"{program.name}.cpp")
            source.write_text(_ALL.format(includes="\n".join(includes), calls="\n".join(calls)))
            folders = [f"-I{HERE / folder}" for folder in ("sycl", "device")]
            self.kept.copy(
                source.stem,
                program,
                lambda: self._run(cxx(), source, program, self.library, *folders),
            )

        return [str(once(self.factory, f"programs_{self.library.name}", make)), *names]

    def _run(
        self, compiler: list[str], source: Path, program: Path, library: Path, *more: str
    ) -> None:
        options = ["-w", "-O0", "-isystem", self.home / "include", *more, source, "-o", program]
        libraries = [library, PREFIX_LIB / "libOpenCL.so.1", "-Wl,--allow-shlib-undefined"]
        done = run_program(*compiler, *map(str, (*options, *libraries)))
        assert done.code == 0, done.err


@cache
def cxx() -> list[str]:
    """The command of a C++ compiler: CXX, c++ or g++."""
    for command in (os.environ.get("CXX", "").split(), ["c++"], ["g++"]):
        if command and shutil.which(command[0]):
            return [*command, "-std=c++17"]
    pytest.fail(
        "SYCL programs are compiled with the host's C++ compiler, and there is none: install one "
        "(Debian: apt-get install g++)"
    )
