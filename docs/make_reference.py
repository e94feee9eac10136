"""Writes the reference of the public modules: `python docs/make_reference.py FOLDER`.

pdoc makes the pages of the docstrings. Its warnings are errors, except about annotations that
Python itself evaluates and pdoc cannot.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

#: What users import.
MODULES = (
    "fairlead",
    "fairlead.graph",
    "fairlead.runtime",
    "fairlead.runtime.interop",
    "fairlead.runtime.task_levels",
    "fairlead.plugins",
)
#: A NamedTuple's constructor, and a class with an attribute called `type`: pdoc looks names up in
#: the wrong scope there.
MISREAD = r"Error parsing type annotation .* for fairlead\.(runtime\.NDRange|plugins\.sdk\.adapter)"


def write_reference(folder: Path) -> None:
    """Write the pages, index.html first.

    Args:
        folder: Where they are written. It is made if it does not exist.

    Raises:
        Warning: pdoc has a complaint, such as an annotation that names nothing.
    """
    pdoc.render.configure(docformat="google", footer_text="fairlead")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", MISREAD)
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
