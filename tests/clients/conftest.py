"""Fixtures of the tests with real clients: their folders, the compiler, the drivers."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from helpers.clients import DEBIAN_POCL, Compiler, Drivers

from fairlead.loader.base.search import Candidate


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder with `now` and `pi`: the DPC++ runtimes and dpctl of the two generations."""
    path = Path(os.environ.get("SYCL_CLIENTS", ""))
    assert (path / "fetched").exists(), (
        "SYCL_CLIENTS must name the folder of the fetched clients: run the tests by `make test`"
    )
    return path


@pytest.fixture(scope="session")
def now(clients: Path) -> Path:
    """DPC++ 2026.2 with its headers, the Unified Runtime loader, dpctl 0.22."""
    return _for_this_python(clients / "now")


@pytest.fixture(scope="session")
def pi(clients: Path) -> Path:
    """DPC++ 2024.2, the last with PI plugins, and dpctl 0.17."""
    if not (clients / "pi/dpctl").exists():
        pytest.skip("dpctl 0.17, the last with PI, was built for CPython 3.10 and 3.11 alone")
    return _for_this_python(clients / "pi")


@pytest.fixture(scope="session")
def compile_client(now: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Compiles a program of this folder, once a session."""
    return Compiler(now, tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="session")
def drivers(intel_cpu: Candidate, pocl_wheel: Candidate) -> Drivers:
    """The drivers of DRIVERS."""
    return Drivers(
        {
            "intel_cpu": intel_cpu,
            "pocl_wheel": pocl_wheel,
            "debian_pocl": Candidate(str(DEBIAN_POCL), "/usr/lib"),
        }
    )


def _for_this_python(home: Path) -> Path:
    module = home / f"dpctl/_sycl_device{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert module.exists(), (
        f"{home.parent} was fetched for another Python: remove it and run `make test` again"
    )
    return home
