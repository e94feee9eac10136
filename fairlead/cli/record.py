"""`fairlead record`: runs a command, and writes down what it enqueues as a graph file.

The command runs under fairlead's libOpenCL with an OpenCL layer (icd.record_layer). Each of its
processes writes files into a temporary folder. They become graph files when it has ended, however
it ended.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..graph_files import archive
from ..graph_files.document import CONTENTS
from ..graph_files.recorded import RecordedProcess, make_recorded_process
from ..icd import libopencl, record_layer
from ..loader.base.errors import FairleadError
from ..loader.base.query import escape_text
from .execution import execute
from .output import count_things, say

NOTHING: Final = """\
nothing was recorded, and no file was written. Recorded are the commands that a program enqueues
through an OpenCL loader. Not those of a program that is linked with its driver, or is set-uid, and
not those that --from, --to and --kernel leave out."""


def run(
    command: Sequence[str],
    output: Path,
    first: int = 0,
    last: int | None = None,
    kernel: str = "",
    contents: str = "inputs",
) -> int:
    """Run a command and record it.

    Args:
        output: the file to write. Those of further processes have a number in their names.
        first, last: the numbers of the first and the last command, from 0 on; None: until the end.
        kernel: the kernel whose launches alone are counted and recorded, "" for all commands.
        contents: "none", "inputs" or "all", as `graph.save` takes it. With "all" the file also has
            what the program has read.

    Returns:
        The command's exit code for the shell; 1 if it is 0 and the recording is not complete.

    Raises:
        CommandError: the command cannot be run.
        FairleadError: a library is missing, or the file cannot be written.
    """
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        raise FairleadError(
            f"the graph cannot be written to {output}", remedy="name another file with -o"
        )
    with tempfile.TemporaryDirectory(prefix="fairlead-record-", ignore_cleanup_errors=True) as name:
        environ = {**os.environ, **libopencl.make_environment(os.environ)}
        environ |= record_layer.make_environment(
            os.environ, Path(name), first, last, kernel, CONTENTS.index(contents)
        )
        environ["PYOPENCL_NO_CACHE"] = "1"  # its cache makes programs whose source nobody knows
        code = execute(command, environ)
        found = [one for one in record_layer.read_recordings(Path(name)) if one.has_commands]
        problems = 0
        for number, recording in enumerate(found, 1):
            file = output if number == 1 else output.with_stem(f"{output.stem}-{number}")
            problems += not _write(recording, file, contents)
    if not found:
        say(NOTHING)
    return code or int(problems > 0 or not found)


def _write(recording: record_layer.ProcessRecording, file: Path, contents: str) -> bool:
    """Write the graph of a process. Returns whether it is complete."""
    try:
        graph = make_recorded_process(recording, contents)
        archive.write(file, graph.document, graph.members)
    except FairleadError as error:
        say(f"process {recording.pid} is not recorded: {error}")
        return False
    _say_what_was_recorded(graph, file)
    return not graph.ending


def _say_what_was_recorded(graph: RecordedProcess, file: Path) -> None:
    commands, where = count_things(len(graph.document.commands), "command"), graph.document.device
    place = escape_text(f"{where['device'].strip()} ({where['platform'].strip()})")
    say(f"{commands} of process {graph.pid} in {file}, recorded on {place}")
    for warning in dict.fromkeys(graph.warnings):
        say(f"warning: {warning}")
    if graph.ending:
        say(graph.ending)
