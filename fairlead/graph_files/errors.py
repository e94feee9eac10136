"""The error of graph files."""

from __future__ import annotations

from typing import Final

from ..loader.base.errors import FairleadError

#: What a `GraphFileError` can have as its code.
CANNOT_READ: Final = "CANNOT_READ"
INVALID: Final = "INVALID_GRAPH_FILE"
NEWER: Final = "NEWER_VERSION"
CANNOT_SAVE: Final = "CANNOT_SAVE"
CANNOT_LOAD: Final = "CANNOT_LOAD"


class GraphFileError(FairleadError):
    """A graph cannot be written to a file, or a file holds no graph that can be loaded.

    `code` is CANNOT_READ, INVALID_GRAPH_FILE, NEWER_VERSION, CANNOT_SAVE or CANNOT_LOAD.
    """


def make_invalid_error(message: str) -> GraphFileError:
    """Return the error for a file whose contents break the format's rules."""
    return GraphFileError(
        message, routine="load", code=INVALID, remedy="write the file anew: graph.save(…)"
    )


def make_save_error(message: str, remedy: str) -> GraphFileError:
    """Return the error for a graph that cannot be written down."""
    return GraphFileError(message, routine="save", code=CANNOT_SAVE, remedy=remedy)


def make_load_error(message: str, remedy: str) -> GraphFileError:
    """Return the error for a sound file that this device cannot run."""
    return GraphFileError(message, routine="load", code=CANNOT_LOAD, remedy=remedy)
