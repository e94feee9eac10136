"""The environment of all tests, set before any driver is loaded.

The caches of fairlead and PoCL are in a directory of the run. So no test reads what another run
left, and none writes into the user's home. `make test` keeps the kernels that PoCL has compiled:
PoCL finds them by what they are made of. Variables of OpenCL, SYCL and fairlead are removed. The
system's registered drivers are those that it had when the run began, and those of
OCL_ICD_FILENAMES. The fixtures are in helpers/fixtures.py and helpers/drivers.py.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import tempfile
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import Loader
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("helpers")
pytest_plugins = [f"helpers.{name}" for name in ("fixtures", "drivers", "cuda", "hip", "suites")]

#: Variables that the Makefile sets, or the user to choose what is tested.
_OURS: Final = (
    "OPENCL_HEADERS",
    "UR_PLUGINS",
    "ZE_HEADERS",
    "SYCL_CLIENTS",
    "FAIRLEAD_FUZZ",
    "FAIRLEAD_FUZZ_SEED",
    "FAIRLEAD_CALLS",
    "SYCL_CLIENTS_ADAPTER",
    "SYCL_CLIENTS_PLUGIN",
    "FAIRLEAD_CUDA",
    "FAIRLEAD_COMMAND_BUFFER",
    "FAIRLEAD_FUSE",
)
_OTHERS: Final = ("OCL_ICD_", "OPENCL_", "FAIRLEAD_", "SYCL_", "ONEAPI_", "UR_", "ZE_", "ZEL_")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the conformance suite, parts of which tests of all folders import."""
    for mark in ("rule", "beyond_specification", "forked"):
        config.addinivalue_line("markers", f"{mark}: of a case of the conformance suite")
    config.pluginmanager.register(_Failures(config.pluginmanager))
    if worker := getattr(config, "workerinput", None):
        _rewrite_share(config, int(worker["workerid"].removeprefix("gw")), worker["workercount"])


class _Failures:
    """Names each failed test at once: a run that hangs or is cut has no summary."""

    def __init__(self, plugins: pytest.PytestPluginManager) -> None:
        self._plugins = plugins

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        printer = self._plugins.get_plugin("terminalreporter")
        if report.failed and printer is not None:  # workers have no printer
            printer.write_line(f"FAILED {report.nodeid}")


def _rewrite_share(config: pytest.Config, number: int, count: int) -> None:
    """Let pytest rewrite the assertions of each `count`th new file of tests or helpers, and keep
    the result.

    In a new checkout every worker would rewrite all files, at the same time, for 20 seconds.
    """
    loader = config.pluginmanager.rewrite_hook
    if not isinstance(loader, Loader):  # --assert=plain
        return
    paths = [config.invocation_params.dir / name.split("::")[0] for name in config.args]
    files = sorted({file for path in paths for file in path.rglob("test_*.py")})
    files += sorted(Path(__file__).with_name("helpers").rglob("*.py"))
    for file in files[number::count]:
        if any(file.parent.glob(f"__pycache__/{file.stem}.*-pytest-*")):
            continue
        module = types.ModuleType(file.stem)
        module.__spec__ = importlib.util.spec_from_file_location(file.stem, file, loader=loader)
        module.__dict__["__builtins__"] = {}  # without them it ends where it imports first
        with suppress(ImportError):
            loader.exec_module(module)


def _remove_old(kernels: Path) -> None:
    """Remove from a cache of PoCL's the programs that no run of the last week has built."""
    last_week = time.time() - 7 * 24 * 60 * 60
    used = [*kernels.glob("*/*/last_accessed"), *kernels.glob("tempfile_*")]
    for file in used:
        if file.stat().st_mtime < last_week:
            file.unlink()
            if file.parent != kernels:
                shutil.rmtree(file.parent, ignore_errors=True)


def _prepare(folder: Path) -> None:
    """Set the environment of this process, which the workers of pytest-xdist inherit."""
    further = os.environ.get("OCL_ICD_FILENAMES", "")
    for name in tuple(os.environ):
        if name.startswith(_OTHERS) and name not in _OURS:
            del os.environ[name]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each child would compile every module anew
    os.environ["XDG_CACHE_HOME"] = str(folder / "xdg")
    kernels = Path(os.environ.pop("KEPT_POCL_CACHE", folder / "pocl"))
    os.environ["POCL_CACHE_DIR"] = str(kernels)
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    os.environ["OPENCL_VENDOR_PATH"] = str(folder / "vendors")
    kernels.mkdir(parents=True, exist_ok=True)
    _remove_old(kernels)
    from helpers.kept_files import remove_damaged_kernels  # its assertions are rewritten by now

    remove_damaged_kernels(kernels)
    (folder / "vendors").mkdir()
    for manifest in Path("/etc/OpenCL/vendors").glob("*.icd"):
        shutil.copy(manifest, folder / "vendors")
    for number, library in enumerate(filter(None, further.split(":"))):
        manifest = folder / "vendors" / f"further-{number}.icd"
        manifest.write_text(f"{os.path.abspath(library)}\n", encoding="utf-8")


if "PYTEST_XDIST_WORKER" not in os.environ:
    _FOLDER = tempfile.TemporaryDirectory(prefix="fairlead-tests-", ignore_cleanup_errors=True)
    _prepare(Path(_FOLDER.name))

# A shell has what it starts in the background ignore Ctrl-C, which tests of interrupts need.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test is never too slow: the machine may be busy with something else.
settings.register_profile("fairlead", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What `make test-fast` takes of each property.
settings.register_profile("fast", settings.get_profile("fairlead"), max_examples=20)
settings.load_profile("fairlead")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the tests out of garbage collections, which would look at all of them each time."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()
