"""Which OpenCL drivers the tests run on.

The list is made once, in a child process, before the first test. Every process of the run uses it,
so a driver that is installed or removed meanwhile changes nothing. The tests have names for
drivers: "pocl_wheel" and "intel_cpu" are the two that `make` installs. Others have descriptive
names, "pocl-5.0" or "nvidia". OCL_ICD_FILENAMES may name further drivers.

A test that asks for `each_driver` runs once on each driver. If it is marked `one_driver`,
`make test` runs it on the driver that the mark names, else on the first one. `direct_pocl` is each
PoCL, on whose CPUs the engine `direct` runs. A test that needs certain drivers names them, by the
fixtures `pocl_wheel` and `intel_cpu` or by `@pytest.mark.driver("intel_cpu")`. It is skipped where
one is missing. `--drivers pocl_wheel` excludes every test on another driver.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from fairlead.icd import discovery
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from helpers.support import RunPython, once, run_program


@dataclass(frozen=True)
class Driver:
    """A driver that has a device, and its first platform's name and version."""

    name: str
    library: str
    platform: str
    version: str

    def has(self, platform: Any) -> bool:
        """Whether this is the driver of a platform, in whichever layer that was found."""
        return (platform.name, platform.version) == (self.platform, self.version)

    def skip_unless_it_runs(self, program: Path, run_python: RunPython) -> None:
        """Skip a test of a program that needs shared memory, where the first device has none."""
        if "malloc_shared" in program.read_text(encoding="utf-8"):
            self.skip_unless_it_shares(run_python)

    def skip_unless_it_shares(self, run_python: RunPython) -> None:
        """Skip a test that needs shared memory, where the first device has none."""
        env = {"OCL_ICD_VENDORS": self.library, "ONEAPI_DEVICE_SELECTOR": "opencl:0"}
        if run_python(_HAS_SHARED_MEMORY, env=env).out == "False\n":
            pytest.skip(f"needs shared memory, which {self} has not")

    def __str__(self) -> str:
        return self.name


#: The drivers that are known by their file: a pattern, the name, what it is and where to get it.
_FILES: Final = (
    ("libpocl-*.so", "pocl_wheel", "PyPI's PoCL 3.0: pip install pocl-binary-distribution"),
    ("libintelocl.so*", "intel_cpu", "Intel's CPU driver: pip install intel-opencl-rt"),
)
#: What the tests would like to run on: a pattern of names, and what it is.
WISHES: Final = (
    *((name, what) for _, name, what in _FILES),
    ("pocl-*", "a PoCL of the system, which has command-buffers: apt-get install pocl-opencl-icd"),
    ("nvidia", "NVIDIA's driver"),
)
#: Fixtures that stand for drivers.
_FIXTURES: Final = {
    "pocl_wheel": ("pocl_wheel",),
    "intel_cpu": ("intel_cpu",),
    "wheel_drivers": ("pocl_wheel", "intel_cpu"),
}
_LIST: Final = """
import json
from fairlead.icd.drivers import platforms
found = [(p.driver.path, p.name, p.version) for p in platforms() if p.devices]
print("\\n" + json.dumps(found))
"""
_HAS_SHARED_MEMORY: Final = """
from fairlead.runtime import devices
print(devices()[0].has("usm_shared_allocations"))
"""
_PRESENT: Final = pytest.StashKey[tuple[Driver, ...]]()
_CHOSEN: Final = pytest.StashKey[tuple[Driver, ...]]()


def chosen_drivers(config: pytest.Config) -> tuple[Driver, ...]:
    """The drivers that the tests of this run are run on."""
    return config.stash[_CHOSEN]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--drivers",
        metavar="NAMES",
        help="run the tests of these drivers alone: names with commas between them",
    )


def pytest_configure(config: pytest.Config) -> None:
    present = getattr(config, "workerinput", {}).get("drivers") or [
        [_name(*found), *found] for found in _installed()
    ]
    config.stash[_PRESENT] = drivers = tuple(Driver(*fields) for fields in present)
    here = [driver.name for driver in drivers]
    chosen = config.getoption("drivers")
    names = chosen.split(",") if chosen else here
    if unknown := sorted(set(names) - set(here)):
        raise pytest.UsageError(f"--drivers: no {' or '.join(unknown)} here, but {here}")
    config.stash[_CHOSEN] = tuple(driver for driver in drivers if driver.name in names)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the list."""
    node.workerinput["drivers"] = [
        [driver.name, driver.library, driver.platform, driver.version]
        for driver in node.config.stash[_PRESENT]
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "each_driver" in metafunc.fixturenames:
        drivers = chosen_drivers(metafunc.config)
        one = metafunc.definition.get_closest_marker("one_driver")
        wanted = [driver for driver in drivers if one and driver.name in one.args] or drivers
        parameters = [
            pytest.param(
                driver,
                id=driver.name,
                marks=(
                    pytest.mark.driver(driver.name),
                    *(() if one is None or driver is wanted[0] else (pytest.mark.thorough,)),
                ),
            )
            for driver in drivers
        ]
        metafunc.parametrize("each_driver", parameters, indirect=True, scope="session")
    if "direct_pocl" in metafunc.fixturenames:
        drivers = chosen_drivers(metafunc.config)
        known = [
            pytest.param(driver, id=driver.name, marks=pytest.mark.driver(driver.name))
            for driver in drivers
            if "PoCL" in driver.version
        ]
        missing = pytest.param(None, id="missing", marks=pytest.mark.driver("pocl_wheel"))
        metafunc.parametrize("direct_pocl", known or [missing], indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests whose fixtures are drivers, and skip those whose drivers are not here."""
    names = {driver.name for driver in chosen_drivers(config)}
    for item in items:
        for fixture in _FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.driver(*_FIXTURES[fixture]))
        needed = {name for mark in item.iter_markers("driver") for name in mark.args}
        if missing := sorted(needed - names):
            item.add_marker(pytest.mark.skip(_why_missing(config, missing)))


def _why_missing(config: pytest.Config, missing: Sequence[str]) -> str:
    present = {driver.name for driver in config.stash[_PRESENT]}
    why = "left out by --drivers" if present.issuperset(missing) else "not here"
    return f"needs {' and '.join(missing)}, {why}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in one line on which drivers the tests ran, and on which they would run as well."""
    names = [driver.name for driver in chosen_drivers(config)]
    wished = [what for pattern, what in WISHES if not fnmatch.filter(names, pattern)]
    line = f"drivers: ran on {' and '.join(names) or 'none'}"
    terminalreporter.write_line(line + "; would like ".join(["", *wished]))


@pytest.fixture(scope="session")
def present_drivers(request: pytest.FixtureRequest) -> tuple[Driver, ...]:
    """The drivers that were here when the run began."""
    return request.config.stash[_PRESENT]


@pytest.fixture(scope="session")
def each_driver(request: pytest.FixtureRequest) -> Driver:
    """A driver. The test runs once on each."""
    return request.param


@pytest.fixture(scope="session")
def direct_pocl(request: pytest.FixtureRequest) -> Driver:
    """A PoCL, on whose CPU the engine `direct` runs. The test runs once on each."""
    return request.param


@pytest.fixture(scope="session")
def pocl_wheel(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    """The driver inside PyPI's PoCL wheel."""
    return _candidate("pocl_wheel", pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def intel_cpu(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    """Intel's CPU driver from PyPI."""
    return _candidate("intel_cpu", pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def wheel_drivers(
    intel_cpu: Candidate, pocl_wheel: Candidate, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The variables by which an OpenCL loader finds Intel's driver, PoCL's wheel, and no other."""

    def register(vendors: Path) -> None:
        vendors.mkdir()
        for number, driver in enumerate((intel_cpu, pocl_wheel)):
            (vendors / f"{number}.icd").write_text(f"{locate(driver)[0]}\n", encoding="utf-8")

    return {"OCL_ICD_VENDORS": str(once(tmp_path_factory, "wheels", register))}


def _candidate(name: str, config: pytest.Config, factory: pytest.TempPathFactory) -> Candidate:
    """What discovery finds of a driver that is installed in this Python environment.

    A fixture may ask for it that stands for no driver. Then its tests are skipped here.
    """
    if name not in {driver.name for driver in chosen_drivers(config)}:
        pytest.skip(_why_missing(config, [name]))
    (pattern,) = (pattern for pattern, of, _ in _FILES if of == name)
    found = discovery.find({}, vendors=str(factory.mktemp("no-vendors"))).candidates
    return next(one for one in found if fnmatch.fnmatch(os.path.basename(one.library), pattern))


def _installed() -> list[tuple[str, str, str]]:
    """Library, platform name and platform version of each driver that has a device."""
    done = run_program(
        sys.executable, "-c", _LIST, cwd=os.path.dirname(os.environ["XDG_CACHE_HOME"])
    )
    if done.code:
        raise pytest.UsageError(f"no drivers could be listed:\n{done.err}")
    return list(
        {found[0]: tuple(found) for found in json.loads(done.out.splitlines()[-1])}.values()
    )


def _name(library: str, platform: str, version: str) -> str:
    file = os.path.basename(library)
    for pattern, name, _ in _FILES:
        if fnmatch.fnmatch(file, pattern):
            return name
    if found := re.search(r"PoCL v?(\d+\.\d+)", version):
        return f"pocl-{found[1]}"
    return platform.replace("(", " ").split()[0].lower()
