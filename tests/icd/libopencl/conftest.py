"""A C program under libOpenCL.so.1, in child processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from helpers.support import ROOT, Output, once, run_program

from fairlead.icd import libopencl


class Client(Protocol):
    """Runs client.c with the drivers of a directory of manifests.

    `client("names", drivers=[path])` writes a manifest for each driver. `by` is "plain", where no
    Python helps, or "verdict". Names in `env` that are None are removed.
    """

    def __call__(
        self,
        *arguments: str | Path,
        drivers: Iterable[Path] = (),
        by: str = "plain",
        env: Mapping[str, str | None] = {},
        check: bool = True,
    ) -> Output: ...


def write_manifests(folder: Path, drivers: Iterable[Path]) -> Path:
    """A directory with a manifest for each driver, in their order."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.icd"):
        old.unlink()
    for number, driver in enumerate(drivers):
        (folder / f"{number:04}.icd").write_text(f"{driver}\n", encoding="utf-8")
    return folder


def run_client(
    command: Iterable[str | Path], env: Mapping[str, str | None], check: bool = True
) -> Output:
    """Run a program in the environment of this process and what `env` changes in it."""
    environ = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    return run_program(*command, env=environ, check=check)


def link(source: Path, path: Path, headers: Path, *flags: str) -> None:
    """Compile a program and link it with our library."""
    library = libopencl.find_library()
    command = ["cc", f"-I{headers}", source, "-o", path, library]
    command += [f"-Wl,-rpath,{os.path.dirname(library)}", *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def link_text(text: str, path: Path, headers: Path) -> None:
    """Write the text of a program beside `path`, and compile it into `path`."""
    source = path.with_suffix(".c")
    source.write_text(text, encoding="utf-8")
    link(source, path, headers)


@pytest.fixture(scope="session")
def client_path(native_headers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """client.c, linked with our library."""

    source = ROOT / "tests/icd/libopencl/client.c"
    flags = "-Wall", "-Wextra", "-Werror", "-lpthread", "-ldl"
    return once(
        tmp_path_factory, "opencl-client", lambda path: link(source, path, native_headers, *flags)
    )


@pytest.fixture
def client(client_path: Path, tmp_path: Path) -> Client:
    """See Client."""

    def run(
        *arguments: str | Path,
        drivers: Iterable[Path] = (),
        by: str = "plain",
        env: Mapping[str, str | None] = {},
        check: bool = True,
    ) -> Output:
        vendors = write_manifests(tmp_path / "vendors", drivers)
        ways = {"OCL_ICD_VENDORS": str(vendors), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        if by == "plain":
            ways["FAIRLEAD_PYTHON"] = "0"
        return run_client([client_path, *arguments], {**ways, **env}, check)

    return run
