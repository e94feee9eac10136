"""Fixtures of all tests: fake drivers and plugins, real ones, and Python child processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from helpers.children import ForkServer, working_folder
from helpers.kept_files import KeptFiles, digest
from helpers.plugin_header import plugin_header, ur_stubs
from helpers.support import (
    ROOT,
    CompileC,
    FakeDriver,
    FakePlugin,
    Output,
    RunPython,
    once,
    run_program,
)
from helpers.ze_header import ze_header


@pytest.fixture(scope="session")
def native_headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the generated opencl_abi.h."""

    def generate(directory: Path) -> None:
        done = _run([sys.executable, str(ROOT / "icd/native/build.py"), str(directory)])
        assert done.code == 0, done.err

    return once(tmp_path_factory, "headers", generate)


@pytest.fixture(scope="session")
def compile_c(native_headers: Path) -> CompileC:
    """See CompileC."""

    def compile_c(source: Path, path: Path, *flags: str) -> Path:
        warnings = ("-Wall", "-Wextra", "-Werror")
        options = (
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-O0",
            *warnings,
            f"-I{native_headers}",
        )
        done = _run(["cc", *options, str(source), "-o", str(path), *flags])
        assert done.code == 0, done.err
        return path

    return compile_c


@pytest.fixture(scope="session")
def fake_driver(
    compile_c: CompileC, native_headers: Path, tmp_path_factory: pytest.TempPathFactory
) -> FakeDriver:
    """See FakeDriver. The same knobs give the same file."""
    part = ROOT / "tests/fake/commands.c"
    return _variants("driver", compile_c, tmp_path_factory, native_headers, part=part)


@pytest.fixture(scope="session")
def plugin_abi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the generated plugin_abi.h and ur_stubs.c."""

    def generate(directory: Path) -> None:
        directory.mkdir()
        (directory / "plugin_abi.h").write_text(plugin_header(), encoding="utf-8")
        (directory / "ur_stubs.c").write_text(ur_stubs(), encoding="utf-8")

    return once(tmp_path_factory, "plugin_abi", generate)


@pytest.fixture(scope="session")
def fake_plugin(
    compile_c: CompileC,
    native_headers: Path,
    plugin_abi: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> FakePlugin:
    """See FakePlugin. The same knobs give the same file."""
    part = plugin_abi / "ur_stubs.c"
    return _variants("plugin", compile_c, tmp_path_factory, native_headers, plugin_abi, part=part)


@pytest.fixture(scope="session")
def fake_adapter(
    compile_c: CompileC,
    native_headers: Path,
    plugin_abi: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> FakePlugin:
    """Builds a variant of tests/fake/adapter.c, as FakePlugin does of plugin.c."""
    return _variants("adapter", compile_c, tmp_path_factory, native_headers, plugin_abi)


@pytest.fixture(scope="session")
def ze_abi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the generated ze_fake.h."""

    def generate(directory: Path) -> None:
        directory.mkdir()
        (directory / "ze_fake.h").write_text(ze_header(), encoding="utf-8")

    return once(tmp_path_factory, "ze_abi", generate)


@pytest.fixture(scope="session")
def fake_ze(
    compile_c: CompileC,
    native_headers: Path,
    ze_abi: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> FakePlugin:
    """Builds a variant of tests/fake/ze_driver.c, as FakePlugin does of plugin.c."""
    # -O1: the compiler drops what generated code names and the fake has not
    return _variants("ze_driver", compile_c, tmp_path_factory, native_headers, ze_abi, level="-O1")


def _variants(
    kind: str,
    compile_c: CompileC,
    factory: pytest.TempPathFactory,
    *folders: Path,
    level: str = "-O0",
    part: Path | None = None,
) -> Callable[..., Path]:
    """What compiles variants of tests/fake/{kind}.c, each once in a run, with further headers.

    Variants without the paths of this run are kept for later runs, until the source changes. A
    part is another file of the fake. It is compiled once for all that set none of its knobs.
    """
    source = ROOT / f"tests/fake/{kind}.c"
    text = part.read_text(encoding="utf-8") if part else ""
    kept = KeptFiles(source, folders, text)
    headers = [level, *(f"-I{folder}" for folder in folders), f"-I{source.parent}"]

    def compile_part(knobs: Mapping[str, object]) -> list[str]:
        if (file := part) is None:
            return []
        defines = [
            f"-D{name.upper()}={value}"
            for name, value in sorted(knobs.items())
            if f"#ifndef {name.upper()}\n" in text
        ]

        def make(path: Path) -> None:
            compile_c(file, path, "-c", *headers, *defines)

        return [str(once(factory, f"{file.stem}-{digest(defines)}.o", make))]

    def build(*flags: str | Path, **knobs: object) -> Path:
        defines = [f"-D{name.upper()}={value}" for name, value in sorted(knobs.items())]
        options = [*defines, *map(str, flags)]
        name = f"libfake_{kind}-{digest(options)}.so"

        def make(path: Path) -> None:
            kept.copy(
                name if not any("/" in option for option in options) else "",
                path,
                lambda: compile_c(source, path, *headers, *compile_part(knobs), *options),
            )

        return once(factory, name, make)

    return build


@pytest.fixture(scope="session")
def fork_server(pytestconfig: pytest.Config) -> Iterator[ForkServer]:
    """See ForkServer."""
    # to end an interpreter again is a repetition, which is thorough
    server = ForkServer(shortens="not thorough" in str(pytestconfig.getoption("markexpr")))
    yield server
    server.close()


@pytest.fixture(scope="session")
def run_python(fork_server: ForkServer) -> RunPython:
    """See RunPython."""

    def run(
        code: str,
        *arguments: str,
        env: Mapping[str, str | None] = {},
        check: bool = True,
        fresh: bool = False,
    ) -> Output:
        environ = {
            name: value for name, value in {**os.environ, **env}.items() if value is not None
        }
        if fresh or not fork_server.can_run(environ):
            done = _run([sys.executable, "-c", code, *arguments], environ)
        else:
            done = fork_server.run(code, arguments, environ)
        assert not check or done.code == 0, f"exit code {done.code}\n{done.out}\n{done.err}"
        return done

    return run


@pytest.fixture(scope="session")
def real_plugins() -> Path:
    """Plugins from PyPI, in folders of their own.

    ur-now and ur-then have adapters, pi a plugin, and umf a library that an adapter needs.
    """
    return _downloaded("UR_PLUGINS", "fetched")


@pytest.fixture(scope="session")
def dpcpp_then() -> Path:
    """DPC++ 2025.3 with its headers and the Unified Runtime loader."""
    return _downloaded("DPCPP_THEN", "fetched") / "dpcpp"


@pytest.fixture(scope="session")
def headers() -> Path:
    """The headers of OpenCL and Unified Runtime from PyPI's intel-sycl-rt."""
    return _downloaded("OPENCL_HEADERS", "unified-runtime/ur_api.h")


@pytest.fixture(scope="session")
def ze_headers() -> Path:
    """The headers of Level Zero from Debian's libze-dev, of any version."""
    path = Path(os.environ.get("ZE_HEADERS", ""))
    if not (path / "level_zero/ze_api.h").exists():
        pytest.skip("ZE_HEADERS names no headers: `make test` fetches libze-dev where apt-get is")
    return path


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder with `now` and `pi`: the DPC++ runtimes and dpctl of the two generations."""
    return _downloaded("SYCL_CLIENTS", "fetched")


#: Fixtures of what the Makefile downloads, and those that start processes or compile for long.
_MARKS: Final = {
    "clients": {"real_plugins", "headers", "clients", "ze_headers", "dpcpp_then"},
    "slow": {"run_python", "layered", "adapted"},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these fixtures."""
    for item in items:
        for mark, fixtures in _MARKS.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(mark)


def _downloaded(variable: str, file: str) -> Path:
    path = Path(os.environ.get(variable, ""))
    assert (path / file).exists(), f"{variable} must name what `make test` downloads: run that"
    return path


def _run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Output:
    """Run a child, in a folder where no checkout of fairlead is in the way of the installed one."""
    return run_program(*command, env=environ, cwd=working_folder())
