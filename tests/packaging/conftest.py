"""The wheel, built once for all tests of packages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from helpers.installing import run
from helpers.kept_files import KeptFiles
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
    What the preprocessor makes of most sources is what it made of them when `make` installed
    fairlead. setup.py does not compile those again. `make` has also shown that pyproject.toml names
    what a build needs: this one uses what is in the environment of the tests.
    The packages are kept for later runs, until a source changes.
    """

    def build(target: Path) -> None:
        source = tmp_path_factory.mktemp("source")
        copy_sources(ROOT, source)
        names = sorted(str(path.relative_to(source)) for path in source.rglob("*"))
        kept = KeptFiles(source / "setup.py", [source], sys.version, *names).folder("wheel")
        if not any(kept.glob("*.whl")):
            options = ("--no-isolation", "--skip-dependency-check", "--outdir", str(kept))
            command = [sys.executable, "-m", "build", *options]
            objects = {"FAIRLEAD_OBJECTS": str(ROOT / "build/objects"), "FAIRLEAD_WERROR": "1"}
            run(*command, str(source), env={**os.environ, **objects})
        shutil.copytree(kept, target)

    return next(once(tmp_path_factory, "wheel", build).glob("fairlead-*.whl"))
