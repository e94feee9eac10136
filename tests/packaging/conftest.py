"""The wheel, built once for all tests of packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.installing import run
from helpers.sources import copy_sources
from helpers.support import ROOT, once


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the wheel compiles all of it, which takes long on a busy
    machine."""
    for item in items:
        if "wheel" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1800))
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a source distribution, and a wheel from it; return the wheel.

    They are built from a copy of the sources, so that nothing that was built here gets into them.
    """

    def build(target: Path) -> None:
        source = tmp_path_factory.mktemp("source")
        copy_sources(ROOT, source)
        run(sys.executable, "-m", "build", "--outdir", str(target), str(source))

    return next(once(tmp_path_factory, "wheel", build).glob("fairlead-*.whl"))
