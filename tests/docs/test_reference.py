"""The reference is made without a warning, and every public name is in it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from helpers.support import ROOT, RunPython

pytestmark = pytest.mark.slow

MODULES = ("fairlead", "fairlead.graph", "fairlead.runtime", "fairlead.plugins")
RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, run_python: RunPython) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    run_python(RUN, str(ROOT / "docs/make_reference.py"), str(folder))
    return folder


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_it(reference: Path, name: str) -> None:
    page = (reference / f"{name.replace('.', '/')}.html").read_text(encoding="utf-8")
    assert set(importlib.import_module(name).__all__) <= set(re.findall(r'id="(\w+)"', page))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    public = (getattr(module, each) for each in module.__all__)
    assert not [each for each in public if callable(each) and not each.__doc__]


def test_a_warning_is_an_error(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "wrong.py").write_text("def f(x: 'Nowhere') -> None: ...\n")
    code = f"""
import runpy, sys
sys.path.insert(0, {str(tmp_path)!r})
make = runpy.run_path({str(ROOT / "docs/make_reference.py")!r})["write_reference"]
make.__globals__["MODULES"] = ("wrong",)
make({str(tmp_path)!r})
"""
    assert "Nowhere" in run_python(code, check=False).err
