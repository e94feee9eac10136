"""Fixtures of the tests with real clients: their folders, the compiler, the drivers."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from helpers.clients import DEVICE_PROGRAMS, Compiler
from helpers.drivers import Driver


@pytest.fixture(scope="session")
def now(clients: Path) -> Path:
    """DPC++ 2026.2 with its headers, and the Unified Runtime loader."""
    return clients / "now"


@pytest.fixture(scope="session")
def dpctl(now: Path) -> Path:
    """The folder `now`, which has dpctl 0.22, too."""
    if not (now / "dpctl").exists():
        pytest.skip("dpctl 0.22 has no wheel for this Python")
    return _for_this_python(now)


@pytest.fixture(scope="session")
def pi(clients: Path) -> Path:
    """DPC++ 2024.2, the last with PI plugins, and dpctl 0.17."""
    if not (clients / "pi/dpctl").exists():
        pytest.skip("dpctl 0.17, the last with PI, was built for CPython 3.10 and 3.11 alone")
    return _for_this_python(clients / "pi")


@pytest.fixture(scope="session")
def compile_client(now: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Compiles the programs of this folder."""
    return Compiler(now, tmp_path_factory)


@pytest.fixture(scope="session")
def compile_then(dpcpp_then: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Compiles the programs with device code, for DPC++ 2025.3."""
    return Compiler(dpcpp_then, tmp_path_factory, DEVICE_PROGRAMS)


@pytest.fixture(scope="session")
def drivers(present_drivers: tuple[Driver, ...]) -> dict[str, str]:
    """The libraries of the drivers that are here, by name."""
    return {driver.name: driver.library for driver in present_drivers}


def _for_this_python(home: Path) -> Path:
    module = home / f"dpctl/_sycl_device{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert module.exists(), (
        f"{home.parent} was fetched for another Python: remove it and run `make test` again"
    )
    return home
