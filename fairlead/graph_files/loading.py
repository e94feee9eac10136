"""`fairlead.load("step.flg")`: a file becomes a captured graph.

The graph is captured again: its commands are given to a queue in a capture block. So what is loaded
is a graph like any other.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ..captured_graphs.context import capture
from ..captured_graphs.parameter import GraphParameter
from ..icd.errors import OpenCLError
from ..loader.base.operations import HOST, SVM
from . import devices
from .archive import GraphArchive, Place
from .contents import write_memory
from .document import Document
from .errors import make_invalid_error, make_load_error
from .loaded import LoadedGraph
from .parameters import derive_parameter, make_parameter
from .programs import build_program
from .recorder import DocumentRecorder, RecordedObjects

#: A backslash at the end of a line, also as a trigraph, joins it with the next one.
_JOINT: Final = re.compile(r"(?:\\|\?\?/)[ \t\v\f]*(?:\r\n|\n|\r)")
_BLANKS: Final = r"(?:\s|/\*.*?\*/)*"
#: `#` has three spellings. PyOpenCL's own headers are taken from its package.
_OWN: Final = r"<pyopencl-[\w-]+(?:\.h|/\w+\.cl)>"
_DIRECTIVE: Final = re.compile(
    rf"(?:#|%:|\?\?=){_BLANKS}(?:include\w*|import|embed)\b(?!{_BLANKS}{_OWN})", re.DOTALL
)
#: They tell whether a file is there, or let the assembler read one.
_WORD: Final = re.compile(r"\b(?:__has_include\w*|__has_embed|asm|__asm|__asm__|\w*incbin)\b")
#: Options of which none names a file.
_OPTION: Final = re.compile(r"-[DU][^\s\"']*|-cl-[\w=.+-]+|-[wg]|-O\w*|-W[\w=+-]*|-kernel-arg-info")

#: What follows -D or -U behind a blank.
_NAME: Final = re.compile(r"[A-Za-z_][^\s\"']*")


def find_local_file(source: str, options: str) -> str:
    """Return what may read a file of this machine while a program is built, "" if nothing does.

    What it reads could reach the graph's outputs. This looks at the text alone, and refuses too
    much rather than too little. It is not a sandbox: kernels run.

    Args:
        source: the source of the program, "" if it has none.
    """
    text = _JOINT.sub("", source)
    found = _DIRECTIVE.search(text) or _WORD.search(text)
    if found:
        return " ".join(found.group().split())
    before = ""
    for option in options.split():
        allowed = _NAME if before in ("-D", "-U") else _OPTION
        if not allowed.fullmatch(option):
            return option
        before = option
    return ""


_REMEDY: Final = "load it on another device: fairlead.load(path, device=…)"


def load(
    path: Place, device: Any = None, *, context: Any = None, local_files: bool | None = None
) -> LoadedGraph:
    """Load a graph that `graph.save` has written.

    Its programs are built for the device, and its memory is made there. Memory whose contents the
    file does not have is zero. The graph can be looked at, changed and finalized like any other.

    Args:
        path: the file, or a binary stream.
        device: a pyopencl.Device, a device of `fairlead.devices()`, or a text that
            `fairlead replay --device` takes. By default the first device of the kind that the graph
            was saved on: of its platform and type, those of its name first; else of its type. Else
            the first device, with a RuntimeWarning.
        local_files: whether its programs may read files of this machine when they are built, by
            `#include` and the like or by options such as -I. By default a file may, and a stream,
            which may have come over a network, may not.
        context: a pyopencl.Context to load it in, for graphs that share memory or are sub-graphs.

    Returns:
        The graph. (docs/graph_files.md)

    Raises:
        GraphFileError: the file cannot be read, is damaged or of a later version; or the device
            cannot run the graph.
        NotFoundError: there is no such device.
    """
    import pyopencl as cl

    if local_files is None:
        local_files = isinstance(path, (str, os.PathLike))
    with GraphArchive(path) as archive:
        if not local_files:
            _refuse_local_files(archive)
        chosen = devices.find_pyopencl_device(device, context, archive.document.device)
        made_in = context if context is not None else cl.Context([chosen])
        with _convert_errors():
            return _Loader(archive, made_in, chosen).make_graph()


def _refuse_local_files(archive: GraphArchive) -> None:
    """Refuse a graph whose programs may read files of this machine when they are built."""
    for number, record in enumerate(archive.document.programs):
        data = archive.read_program(record["source"]) if "source" in record else b""
        found = find_local_file(data.decode("utf-8", "replace"), record["options"])
        if found:
            raise make_load_error(
                f"program {number} may read files of this machine when it is built ({found})",
                "if you trust who made it: fairlead.load(…, local_files=True)",
            )


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Turn what a driver refuses into GraphFileError."""
    import pyopencl as cl

    try:
        yield
    except (OpenCLError, cl.Error) as refused:
        text = str(refused).strip().replace("\n", " ")
        raise make_load_error(
            f"the device refuses a part of the graph: {text[:500]}", _REMEDY
        ) from refused


class _Loader:
    """Makes the objects of a document, and captures its commands."""

    def __init__(self, archive: GraphArchive, context: Any, device: Any) -> None:
        self._archive, self._context, self._device = archive, context, device
        self._document: Document = archive.document
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse what the device has no memory for, before anything is made."""
        most, whole = self._device.max_mem_alloc_size, self._device.global_mem_size
        total = 0
        for number, record in enumerate(self._document.memory):
            if "of" in record:
                continue
            total += record["size"]
            if record["size"] > (whole if record["kind"] == HOST else most) or total > whole:
                raise make_load_error(
                    f"memory {number} of the graph has {record['size']} bytes, and "
                    f"{self._device.name} has no such place",
                    _REMEDY,
                )

    def make_graph(self) -> LoadedGraph:
        """Make everything, and return the graph."""
        import pyopencl as cl

        self._queue = cl.CommandQueue(self._context, self._device)
        programs = [self._make_program(record) for record in self._document.programs]
        kernels = [self._make_kernel(programs, record) for record in self._document.kernels]
        self._memory: list[Any] = []
        for record in self._document.memory:
            self._memory.append(self._make_memory(record))
        samplers = [self._make_sampler(record) for record in self._document.samplers]
        self._parameters: list[Any] = []
        for record in self._document.parameters:
            self._parameters.append(self._make_parameter(record))
        self._queue.finish()
        arguments = RecordedObjects(self._memory, samplers, self._parameters)
        block = self._capture(kernels, arguments)
        return LoadedGraph(block, self._document, self._memory, (self._parameters, programs))

    # objects

    def _make_program(self, record: Mapping[str, Any]) -> Any:
        import pyopencl as cl

        read = self._archive.read_program
        options = record["options"]
        identity = {"device": self._device.name, "driver": self._device.driver_version}
        for one in record.get("binaries", ()):
            if {name: one[name].strip() for name in identity} == identity:
                try:
                    binary = cl.Program(self._context, [self._device], [read(one["file"])])
                    return build_program(binary, options, self._device)
                except cl.Error:  # of a driver that was built or set up differently
                    if not record.keys() & {"source", "il"}:
                        raise
        if "source" in record:
            source = read(record["source"]).decode("utf-8", "replace")
            return build_program(cl.Program(self._context, source), options, self._device)
        if "il" in record:
            il = cl.Program(self._context, read(record["il"]))
            return build_program(il, options, self._device)
        known = ", ".join(f"{one['device']} ({one['driver']})" for one in record["binaries"])
        raise make_load_error(
            f"a program of the graph has neither source nor IL, only binaries for {known}",
            "load it on that device, or save it from a program that was built from source",
        )

    def _make_kernel(self, programs: list[Any], record: Mapping[str, Any]) -> Any:
        import pyopencl as cl

        return cl.Kernel(programs[record["program"]], record["name"])

    def _find_flags(self, record: Mapping[str, Any]) -> Any:
        """Return the flags of a memory. What its program's host could not do, whoever loads it
        can."""
        import pyopencl as cl

        flags = 0
        for name in record["flags"]:
            flag = getattr(cl.mem_flags, name.upper(), None)
            if not isinstance(flag, int) or name.upper() in ("USE_HOST_PTR", "COPY_HOST_PTR"):
                raise make_invalid_error(f"memory has the unknown flag {name}")
            flags |= 0 if name.upper().startswith("HOST_") else flag
        return flags

    def _make_memory(self, record: Mapping[str, Any]) -> Any:
        import pyopencl as cl

        kind, size = record["kind"], record["size"]
        data = self._archive.read_contents(record)
        if kind == HOST:
            return np.zeros(size, np.uint8) if data is None else data.copy()
        if kind == SVM:
            made = cl.SVMAllocation(self._context, size, 0, cl.svm_mem_flags.READ_WRITE)
            data = np.zeros(size, np.uint8) if data is None else data
            write_memory(self._queue, record, made.svm_ptr, data)
            return made
        if kind == "sub_buffer":
            whole = self._memory[record["of"]]
            return whole.get_sub_region(record["offset"], size, self._find_flags(record))
        made = self._make_image(record) if kind == "image" else None
        if made is None:
            made = cl.Buffer(self._context, self._find_flags(record), size)
        if "of" not in record:
            zeros = np.zeros(size if data is None else 0, np.uint8)
            write_memory(self._queue, record, made, zeros if data is None else data)
        return made

    def _make_image(self, record: Mapping[str, Any]) -> Any:
        import pyopencl as cl

        order = getattr(cl.channel_order, record["order"], None)
        channel_type = getattr(cl.channel_type, record["channel_type"], None)
        if not isinstance(order, int) or not isinstance(channel_type, int):
            raise make_invalid_error(f"an image has the unknown format {record['order']}")
        form, kind, extent = cl.ImageFormat(order, channel_type), record["type"], record["extent"]
        dimensions = int(kind[5])
        is_array = kind.endswith("_array")
        description: Any = cl.ImageDescriptor()
        description.image_type = getattr(cl.mem_object_type, kind.upper())
        description.shape = (*extent[:dimensions], *[0] * (3 - dimensions))
        description.array_size = extent[dimensions] if is_array else 0
        description.num_mip_levels = description.num_samples = 0
        description.pitches = (record.get("row_pitch", 0), 0)
        description.buffer = self._memory[record["of"]] if "of" in record else None
        made = cl.Image(self._context, self._find_flags(record), form, desc=description)
        if made.get_image_info(cl.image_info.ELEMENT_SIZE) != record["element_size"]:
            raise make_invalid_error("an image has another element size than its format")
        return made

    def _make_sampler(self, record: Mapping[str, Any]) -> Any:
        import pyopencl as cl

        addressing = getattr(cl.addressing_mode, record["addressing"], None)
        filtering = getattr(cl.filter_mode, record["filter"], None)
        if not isinstance(addressing, int) or not isinstance(filtering, int):
            raise make_invalid_error("a sampler has an unknown mode")
        return cl.Sampler(self._context, record["normalized"], addressing, filtering)

    def _make_parameter(self, record: Mapping[str, Any]) -> Any:
        if "from" in record:
            return derive_parameter(self._parameters[record["from"]], record)
        if "memory" not in record:
            return make_parameter(record)
        buffer, row = self._memory[record["memory"]], self._document.memory[record["memory"]]
        if record["is_array"] and "dtype" in row and "shape" in row:
            from pyopencl.array import Array

            shape, dtype = tuple(row["shape"]), np.dtype(row["dtype"])
            buffer = Array(self._queue, shape, dtype, data=buffer)
        return GraphParameter(buffer, name=record.get("name"))

    # commands

    def _capture(self, kernels: list[Any], arguments: RecordedObjects) -> Any:
        """Give the commands to a queue in a capture block. Returns the block."""
        import pyopencl as cl

        out_of_order: Any = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        if not self._device.queue_properties & out_of_order:
            out_of_order = 0
        queue = cl.CommandQueue(self._context, self._device, properties=out_of_order)
        swaps = [[self._memory[one] for one in pair] for pair in self._document.swaps]
        keep = [one for one in self._memory if isinstance(one, np.ndarray)]
        done = cl.UserEvent(self._context)
        done.set_status(cl.command_execution_status.COMPLETE)
        with capture(queue, keep=keep, swap=swaps) as captured:
            captured.block.note_only_caller(sys._getframe())
            given = kernels, arguments, self._document, done.int_ptr, self._device
            DocumentRecorder(queue.int_ptr, *given).run()
        return captured.block
