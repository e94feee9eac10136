"""The site of guides and reference: `make docs` runs Sphinx with this configuration.

The sources are the Markdown files of the repository, as they lie. docs/README.md lists the guides
by audience, and the site's navigation is made of that list.
"""

from __future__ import annotations

import re
import shutil
from os.path import normpath
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

# "header": results of benchmarks begin with tables. "ref.python": the name of a builtin is also
# that of an attribute.
suppress_warnings = ["myst.header", "ref.python"]

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
napoleon_use_ivar = True  # a property that a class lists as an attribute has one entry
default_role = "code"  # docstrings write `code` as Markdown does


def find_guides() -> dict[str, list[str]]:
    """Return the pages that docs/README.md lists, by its headings, without their endings."""
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for part in index.split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        links = dict.fromkeys(re.findall(r"\]\(([\w./]+)\.md\)", text))
        found[heading] = [normpath(f"docs/{link}") for link in links]
    return found


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to README.md; say of a page that is not in it that this is meant."""
    guides = find_guides()
    if name == "README":
        for heading, pages in guides.items():
            lines = ["```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```"]
            source[0] += "\n" + "\n".join(lines) + "\n"
    elif not any(name in pages for pages in guides.values()):
        source[0] = f"---\norphan: true\n---\n{source[0]}"


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
