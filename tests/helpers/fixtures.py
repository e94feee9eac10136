"""Fixtures of all tests: fake drivers and plugins, real ones, and Python child processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fairlead.icd import discovery
from fairlead.loader.base.search import Candidate
from helpers.plugin_header import plugin_header
from helpers.support import CHILD_TIMEOUT, ROOT, FakeDriver, FakePlugin, Output, RunPython


@pytest.fixture(scope="session")
def native_headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the generated opencl_abi.h."""
    directory = tmp_path_factory.mktemp("headers")
    done = _run([sys.executable, str(ROOT / "icd/native/build.py"), str(directory)])
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="session")
def compile_c(native_headers: Path) -> Callable[..., Path]:
    """Compiles a C file to a shared library: `compile_c(source, path, *flags)`. A warning is an error."""

    def compile_c(source: Path, path: Path, *flags: str) -> Path:
        command = [
            "cc",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{native_headers}",
        ]
        done = _run([*command, str(source), "-o", str(path), *flags])
        assert done.returncode == 0, done.stderr
        return path

    return compile_c


@pytest.fixture(scope="session")
def fake_driver(
    compile_c: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> FakeDriver:
    """See FakeDriver. The same knobs give the same file."""
    directory = tmp_path_factory.mktemp("fake")

    def build(*flags: str | Path, **knobs: object) -> Path:
        all_flags = [
            *(f"-D{name.upper()}={value}" for name, value in sorted(knobs.items())),
            *map(str, flags),
        ]
        key = hashlib.sha1(" ".join(all_flags).encode(), usedforsecurity=False).hexdigest()[:10]
        path = directory / f"libfake-{key}.so"
        return path if path.exists() else compile_c(ROOT / "tests/fake/driver.c", path, *all_flags)

    return build


@pytest.fixture(scope="session")
def fake_plugin(
    compile_c: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> FakePlugin:
    """See FakePlugin. The same knobs give the same file."""
    directory = tmp_path_factory.mktemp("fake-plugin")
    (directory / "plugin_abi.h").write_text(plugin_header(), encoding="utf-8")

    def build(*flags: str | Path, **knobs: object) -> Path:
        all_flags = [
            *(f"-D{name.upper()}={value}" for name, value in sorted(knobs.items())),
            *map(str, flags),
        ]
        key = hashlib.sha1(" ".join(all_flags).encode(), usedforsecurity=False).hexdigest()[:10]
        path = directory / f"libfake_plugin-{key}.so"
        return (
            path
            if path.exists()
            else compile_c(ROOT / "tests/fake/plugin.c", path, f"-I{directory}", *all_flags)
        )

    return build


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """See RunPython."""

    def run(
        code: str, *arguments: str, env: Mapping[str, str | None] = {}, check: bool = True
    ) -> Output:
        environ = {
            name: value for name, value in {**os.environ, **env}.items() if value is not None
        }
        done = _run([sys.executable, "-c", code, *arguments], environ)
        assert not check or done.returncode == 0, (
            f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return Output(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def pocl_wheel(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    """The driver inside PyPI's PoCL wheel."""
    return _installed("libpocl-*.so", tmp_path_factory.mktemp("no-vendors"))


@pytest.fixture(scope="session")
def intel_cpu(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    """Intel's CPU driver from PyPI."""
    return _installed("libintelocl.so", tmp_path_factory.mktemp("no-vendors"))


@pytest.fixture(scope="session")
def wheel_drivers(
    pocl_wheel: Candidate, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The variables by which any OpenCL loader finds Intel's driver first, PoCL's wheel second, and whatever else is installed not."""
    vendors = tmp_path_factory.mktemp("wheels")
    for number, driver in enumerate((f"{sys.prefix}/lib/libintelocl.so", pocl_wheel.library)):
        (vendors / f"{number}.icd").write_text(f"{driver}\n", encoding="utf-8")
    return {"OCL_ICD_VENDORS": str(vendors)}


@pytest.fixture(scope="session")
def real_plugins() -> Path:
    """Plugins from PyPI in folders of their own: ur-now and ur-then (adapters), pi, and umf, which an adapter needs."""
    path = Path(os.environ.get("UR_PLUGINS", ""))
    assert (path / "fetched").exists(), (
        "UR_PLUGINS must name the folder of the fetched plugins: run the tests by `make test`"
    )
    return path


def _run(
    command: Sequence[str], environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a child, in a folder where no checkout of fairlead is in the way of the installed one."""
    return subprocess.run(
        command,
        cwd=os.path.dirname(os.environ["XDG_CACHE_HOME"]),
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT,
        stdin=subprocess.DEVNULL,
    )


def _installed(pattern: str, vendors: Path) -> Candidate:
    for candidate in discovery.find({}, vendors=vendors).candidates:
        if fnmatch(os.path.basename(candidate.library), pattern):
            return candidate
    pytest.fail(
        f"no driver {pattern} is installed in this Python environment: it is in the test extra"
    )
