"""The site is made without a warning, and every public name is in it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import ROOT

pytestmark = pytest.mark.slow

MODULES = ("fairlead", "fairlead.graph", "fairlead.runtime", "fairlead.plugins")
#: The options of `make docs`.
(OPTIONS,) = re.findall(
    r"/sphinx-build (.*) -d \S+ \. \S+$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
)


def build(source: Path, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [*OPTIONS.split(), *more, "-d", f"{target}-doctrees", str(source), str(target)]
    command = [sys.executable, "-m", "sphinx", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def named(site: Path, module: str) -> set[str]:
    """Return the names that the page of a module describes."""
    page = (site / f"docs/reference/{module}.html").read_text(encoding="utf-8")
    return set(re.findall(rf'id="{re.escape(module)}\.([\w.]+)"', page))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_it_and_no_other(site: Path, module: str) -> None:
    found = importlib.import_module(module)
    names = named(site, module)
    assert {name.partition(".")[0] for name in names} <= set(found.__all__)
    assert {each for each in found.__all__ if callable(getattr(found, each))} <= names
    assert not [name for name in names if re.search(r"(^|\.)_", name)]


def test_guides_can_be_reached_and_searched(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    guides = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert guides <= set(re.findall(r'href="docs/(\w+)\.html"', first))
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "docs/capture" in index and "fairlead.graph" in index


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    found = importlib.import_module(module)
    public = (getattr(found, each) for each in found.__all__)
    assert not [each for each in public if callable(each) and not each.__doc__]


@pytest.mark.parametrize("link", ["nowhere.md", "#nothing"])
def test_a_link_that_leads_nowhere_is_an_error(link: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n[a link]({link})\n")
    done = build(tmp_path, tmp_path / "built", "-D", "root_doc=page")
    assert done.returncode == 1
    assert re.search(r"page.md:\d+: WARNING: ", done.stderr) and link.strip("#") in done.stderr
