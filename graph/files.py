"""Graphs as files and in pickles (docs/graph_files.md).

The package above writes them, since files hold OpenCL's commands. This one imports nothing of it,
and names its modules by texts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, BinaryIO, Final, NoReturn

from ..loader.base.frames import get_variables
from ..loader.base.never_copied import NeverCopied

_SAVING: Final = "fairlead.graph_files.saving"
_PICKLED: Final = "fairlead.graph_files.pickled"


class Pickles(NeverCopied):
    """A graph that pickles by a file. What is loaded has the pyopencl objects of its device."""

    #: Files may give names to memory, other graphs do not.
    known_names: Mapping[str, Any] | None = None
    lock: AbstractContextManager[Any]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the graph with the contents of its inputs (docs/graph_files.md)."""
        return import_module(_PICKLED).reduce_for_pickle(self)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        super().__reduce_ex__(2)


class Saves(Pickles):
    """A graph that can be written to a file."""

    def save(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        contents: str = "none",
        *,
        names: Mapping[str, Any] | None = None,
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
        binaries: bool = False,
    ) -> None:
        """Write the graph to a file, for `fairlead.load` (docs/graph_files.md).

        The file is written completely, or not at all. Nothing of the graph runs.

        Args:
            path: the file, or a binary stream.
            contents: what the file has of the memory's contents as they are now. "none": nothing,
                so a loaded graph begins with zeros. "inputs": those of the inputs. "all": of all
                memory.
            names: what memory is called: buffers, arrays, images, SVM, USM and NumPy arrays by
                name; and dynamic parameters. By default, the variables of the caller. A loaded
                graph has the names that it had.
            inputs, outputs: the names of memory that is an input or an output. By default, inputs
                are what is read before it is written, and outputs are what is written.
            binaries: whether the programs' binaries for this device are written, too.

        Raises:
            GraphFileError: the graph cannot be written down, for example because of a host task;
                or the file cannot be written.
        """
        if self.known_names is not None:
            names = {**self.known_names, **(names or {})}
        elif names is None:
            frame = sys._getframe(1)
            names = {**frame.f_globals, **get_variables(frame)}
        with self.lock:
            save = import_module(_SAVING).save
            save(self, path, contents, names, inputs, outputs, binaries=binaries)
