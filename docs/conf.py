"""The site of guides and reference: `make docs` runs Sphinx with this configuration.

The sources are the Markdown files of the repository, as they lie. docs/README.md lists the guides
by audience, and the site's navigation is made of that list.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "fairlead"
html_title = "fairlead"
html_theme = "furo"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "docs/**.md", "*/README.md", "bench/results/*.md"]
exclude_patterns = ["fairlead", "build", "tests", ".*"]

# "toc": results of benchmarks are linked, and not in the navigation. "header": they begin with
# tables. "ref.python": the name of a builtin is also that of an attribute.
suppress_warnings = ["toc.not_included", "myst.header", "ref.python"]

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
napoleon_use_ivar = True  # a property that a class lists as an attribute has one entry
default_role = "code"  # docstrings write `code` as Markdown does


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the contents to README.md: one tree for each heading of docs/README.md."""
    if name != "README":
        return
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for part in index.split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        files = dict.fromkeys(re.findall(r"\]\(([\w./]+\.md)\)", text))
        pages = "\n".join(str(Path("docs", file)) for file in files)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def mark_code(
    _app: Sphinx, what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Mark the indented lines of a module's docstring as code."""
    if what == "module":
        text = re.sub(r"\n\n(?=    )", "\n\n::\n\n", "\n".join(lines), count=1)
        lines[:] = text.split("\n")


def make_index(app: Sphinx, failure: Exception | None) -> None:
    """Give the first page the name that hosts look for."""
    if failure is None:
        shutil.copyfile(app.outdir / f"{app.config.root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the functions above to Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", mark_code)
    app.connect("build-finished", make_index)
