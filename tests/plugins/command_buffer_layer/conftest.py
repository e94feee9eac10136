"""Programs under the command-buffer layer, in child processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from helpers.children import working_folder
from helpers.drivers import Driver
from helpers.support import ROOT, Output, RunPython, once, run_program

from fairlead.icd import libopencl
from fairlead.plugins import command_buffer_layer


class Layered(Protocol):
    """Runs a program under the layer: `layered(program, "3", drivers=[library], loader=path)`.

    By default the loader is fairlead's. `env` adds variables; None removes one.
    """

    def __call__(
        self,
        *command: str | Path,
        drivers: list[str | Path],
        env: Mapping[str, str | None] = {},
        loader: Path | None = None,
        check: bool = True,
    ) -> Output: ...


@pytest.fixture
def variables(tmp_path: Path) -> Callable[[list[str | Path]], dict[str, str | None]]:
    """Returns the variables by which fairlead's loader finds these drivers, and the layer."""

    def write(drivers: list[str | Path]) -> dict[str, str | None]:
        vendors = tmp_path / "vendors"
        vendors.mkdir(exist_ok=True)
        for number, driver in enumerate(drivers):
            (vendors / f"{number}.icd").write_text(f"{driver}\n", encoding="utf-8")
        return {
            "OCL_ICD_VENDORS": f"{vendors}/",
            "OPENCL_LAYERS": str(command_buffer_layer.find_library()),
            "FAIRLEAD_LAYER_LOG": "1",
        }

    return write


@pytest.fixture
def layered(variables: Callable[[list[str | Path]], dict[str, str | None]]) -> Layered:
    """See Layered."""

    def run(
        *command: str | Path,
        drivers: list[str | Path],
        env: Mapping[str, str | None] = {},
        loader: Path | None = None,
        check: bool = True,
    ) -> Output:
        folder = Path(loader or libopencl.find_library()).parent
        # Intel's driver needs the libraries beside it, which only fairlead's loader finds.
        folders = [folder, *(Path(driver).parent for driver in drivers)]
        ways = {**variables(drivers), "LD_LIBRARY_PATH": ":".join(map(str, folders)), **env}
        environ = {**os.environ, **{name: value for name, value in ways.items() if value}}
        return run_program(*command, env=environ, check=check)

    return run


@pytest.fixture(scope="session")
def network(native_headers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """client.c, linked with an OpenCL loader that the environment chooses."""

    def build(path: Path) -> None:
        source = ROOT / "tests/plugins/command_buffer_layer/client.c"
        command = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{native_headers}", source, "-o", path]
        subprocess.run([*command, libopencl.find_library()], check=True)

    return once(tmp_path_factory, "network", build)


class Calls(Protocol):
    """Runs Python code that uses calls.py on a driver, and returns what it printed as JSON."""

    def __call__(self, code: str, driver: Driver, env: Mapping[str, str] = {}) -> list[Any]: ...


@pytest.fixture
def calls(
    run_python: RunPython, variables: Callable[[list[str | Path]], dict[str, str | None]]
) -> Calls:
    """See Calls."""

    def run(code: str, driver: Driver, env: Mapping[str, str] = {}) -> list[Any]:
        folder = ROOT / "tests/plugins/command_buffer_layer"
        begin = f"import sys; sys.path.insert(0, {str(folder)!r})\nfrom calls import *\n"
        kept = f"{working_folder()}/layer-{driver.name}"
        found = variables([driver.library])
        ways = {**found, "LOADER": libopencl.find_library(), "KEPT": kept, **env}
        output = run_python(begin + code, env=ways)
        return [json.loads(line) for line in output.out.splitlines()]

    return run
