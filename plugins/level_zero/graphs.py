"""Graphs: what immediate command lists are given is recorded, and replayed as a whole.

A capture is one recording of several lists. The commands of a list come after each other, and after
the commands of other lists whose events they wait for. A list that waits for an event of a capture
joins it. When the capture ends, every other list must have been joined again: the first list waits,
directly or not, for all that the others do.

An executable graph runs the recording on an immediate list, any number of times.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from ...icd.command_buffer.commands import describe
from ...loader.ze.abi import LevelZeroError
from ..sdk.objects import Object
from .contexts import ZeContext
from .core import ZE, driver, find_struct, make_failure
from .events import ZeEvent
from .execution import append_steps
from .lists import ZeCommandList, get_stream
from .queues import SYNCHRONOUS
from .recording import ListCommand, ListRecording

_TRUE: Final = ZE.codes["ZE_RESULT_QUERY_TRUE"]
_FALSE: Final = ZE.codes["ZE_RESULT_QUERY_FALSE"]
_SIMPLE: Final = ZE["ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE"]
# void (void *data), of zeGraphSetDestructionCallbackExt
_Callback: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ListCapture:
    """A capture: the lists of a graph record commands while it lasts.

    Args:
        first: the list that begins it, and has to end it.

    Attributes:
        failed: why it cannot become a graph, "" if it can.
    """

    def __init__(self, graph: ZeGraph, first: ZeCommandList) -> None:
        self.graph = graph
        self.recording = ListRecording(first.context, first.device, True)
        self.recording.kept.append(graph.kept)
        self.failed = ""
        self._lists: list[ZeCommandList] = []
        self._events: set[ZeEvent] = set()
        self._join(first)

    @property
    def first(self) -> ZeCommandList:
        """The list that began the capture."""
        return self._lists[0]

    def _join(self, made: ZeCommandList) -> None:
        made.capture = self
        self._lists.append(made)

    def begin(self, made: ZeCommandList, waits: Sequence[ZeEvent]) -> ListRecording:
        """Return what a list's next command is recorded in. The list joins if it is not a part yet.

        Raises:
            LevelZeroError: GRAPH_CAPTURE_MERGE_ATTEMPT, GRAPH_CAPTURE_UNSUPPORTED.
        """
        if any(event.capture not in (None, self) for event in waits):
            detail = "an event is of another capture, and captures do not become one"
            raise make_failure("GRAPH_CAPTURE_MERGE_ATTEMPT", detail)
        if made.capture is None:
            if made.device is not self.first.device or made.mode == SYNCHRONOUS:
                raise self.refuse("a list joins that is synchronous, or of another device")
            self._join(made)
        return self.recording

    def end(self, made: ZeCommandList, commands: Sequence[ListCommand]) -> None:
        """Note what was recorded of a list."""
        for command in commands:
            command.list_number = self._lists.index(made)
            if command.signal is not None:
                event, is_reset = command.signal, command.role == "reset"
                (self._events.discard if is_reset else self._events.add)(event)
                event.update_from_c()
                event.capture = None if is_reset else self

    def refuse(self, what: str) -> Exception:
        """Return what to raise for a call that cannot be captured. The capture is lost."""
        self.failed = what
        return make_failure("GRAPH_CAPTURE_UNSUPPORTED", f"{what} while it is captured")

    def finish(self) -> None:
        """Give the capture's lists and events back to their normal use.

        Raises:
            LevelZeroError: GRAPH_CAPTURE_INVALIDATED, GRAPH_UNJOINED_FORKS.
        """
        for made in self._lists:
            made.capture = None
        for event in self._events:
            event.capture = None
        if self.failed:
            raise make_failure("GRAPH_CAPTURE_INVALIDATED", self.failed)
        if self._has_forks():
            detail = "the list that ends the capture does not wait for all that the others do"
            raise make_failure("GRAPH_UNJOINED_FORKS", detail)

    def _has_forks(self) -> bool:
        """Return whether the first list does not wait for every command of the others."""
        self.recording.list_parts()
        joined, left = set[int](), set[int]()
        for command in reversed(self.recording.commands):
            if command.list_number == 0 or command.index in joined:
                joined.update(self.recording.array.dependencies[command.index])
            else:
                left.add(command.index)
        return bool(left)


@driver.kind
class ZeGraph(Object):
    """A graph of Level Zero: nothing yet, a capture, or what was captured.

    Attributes:
        capture: what it is made of at the moment, or None.
        recording: what was captured, None before.
        failed: whether the capture was lost.
        is_own: whether the program made it. Else it gets it at the end of a capture that succeeds.
        kept: what lives until the graph and all that it runs have ended.
    """

    type = "ze_graph_handle_t"

    def __init__(self, context: ZeContext, is_own: bool = True) -> None:
        self.context, self.is_own = context, is_own
        self.capture: ListCapture | None = None
        self.primary: ZeCommandList | None = None
        self.recording: ListRecording | None = None
        self.failed = False
        self.kept: list[Any] = []

    def begin(self, made: ZeCommandList) -> None:
        """Begin to capture a list.

        Raises:
            LevelZeroError: INVALID_COMMAND_LIST_TYPE, INVALID_ARGUMENT, INVALID_GRAPH.
        """
        get_stream(made)
        if not made.context.shares(self.context):
            raise make_failure("INVALID_ARGUMENT", "the list is of another context")
        if made.capture is not None or made.mode == SYNCHRONOUS:
            raise make_failure("INVALID_ARGUMENT", "the list is captured already, or synchronous")
        if self.primary is not None:
            raise make_failure("INVALID_GRAPH", "the graph has a capture already")
        self.primary, self.capture = made, ListCapture(self, made)

    def end(self) -> None:
        """End the graph's capture. Raises LevelZeroError: see `ListCapture.finish`."""
        assert self.capture is not None
        capture, self.capture = self.capture, None
        self.failed = True
        capture.finish()
        self.failed, self.recording = False, capture.recording

    def check(self) -> ListRecording:
        """Return what was captured, nothing at all if no list was.

        Raises:
            LevelZeroError: INVALID_GRAPH if the capture goes on, or was lost.
        """
        if self.primary is None:
            return ListRecording(self.context, self.context.devices[0], True)
        if self.recording is None:
            what = "was lost" if self.failed else "did not end yet"
            raise make_failure("INVALID_GRAPH", f"the capture of the graph {what}")
        return self.recording

    def close(self) -> None:
        if self.recording is not None:
            self.recording.drop_buffers()


@driver.kind
class ZeExecutableGraph(Object):
    """A graph of Level Zero that lists run. It keeps its `ZeGraph`."""

    type = "ze_executable_graph_handle_t"

    def __init__(self, graph: ZeGraph) -> None:
        self.graph, self.recording = graph, graph.check()


class _AtEnd:
    """Calls a function of the program when nobody needs the graph any more."""

    def __init__(self, function: int, data: int) -> None:
        self._call, self._data = _Callback(function), data

    def __del__(self) -> None:
        if "_data" in self.__dict__:  # it was made to its end
            self._call(self._data)


@driver.entry
def zeCommandListBeginGraphCaptureExt(hCommandList: ZeCommandList) -> None:
    graph = ZeGraph(hCommandList.context, is_own=False)
    graph.begin(hCommandList)
    driver.objects.give(graph)  # it has a handle while it is made


@driver.entry
def zeCommandListBeginCaptureIntoGraphExt(hCommandList: ZeCommandList, hGraph: ZeGraph) -> None:
    hGraph.begin(hCommandList)


@driver.entry
def zeCommandListIsGraphCaptureEnabledExt(hCommandList: ZeCommandList) -> int:
    return _TRUE if hCommandList.capture is not None else _FALSE


def _get_capture(made: ZeCommandList) -> ListCapture:
    if made.capture is None:
        raise make_failure("INVALID_ARGUMENT", "the list is not captured")
    return made.capture


@driver.entry
def zeCommandListEndGraphCaptureExt(hCommandList: ZeCommandList, phGraph: Any) -> None:
    capture = _get_capture(hCommandList)
    if capture.first is not hCommandList:
        raise make_failure("INVALID_ARGUMENT", "another list began the capture, and has to end it")
    graph = capture.graph
    try:
        graph.end()
    except LevelZeroError:
        if not graph.is_own:
            driver.destroy(graph)
        raise
    phGraph[0] = driver.objects.show(graph)


@driver.entry
def zeGraphGetPrimaryCommandListExt(hGraph: ZeGraph) -> ZeCommandList:
    if hGraph.primary is None or not hGraph.primary.handle:
        raise make_failure("INVALID_GRAPH", "no list was captured, or it is destroyed")
    return hGraph.primary


@driver.entry
def zeGraphSetDestructionCallbackExt(hGraph: ZeGraph, pfnCallback: int, pUserData: int) -> None:
    hGraph.kept.append(_AtEnd(pfnCallback, pUserData))


driver.declare(
    zeGraphCreateExt=lambda hContext: ZeGraph(hContext),
    zeCommandListGetGraphExt=lambda hCommandList: _get_capture(hCommandList).graph,
    zeGraphInstantiateExt=lambda hGraph: ZeExecutableGraph(hGraph),
)


@driver.entry
def zeGraphIsEmptyExt(hGraph: ZeGraph) -> int:
    recording = hGraph.capture.recording if hGraph.capture is not None else hGraph.recording
    return _FALSE if recording is not None and recording.commands else _TRUE


@driver.entry
def zeGraphDestroyExt(hGraph: ZeGraph) -> None:
    """Destroy a graph. A capture into it ends, and is lost."""
    if hGraph.capture is not None:
        with suppress(LevelZeroError):
            hGraph.end()
    driver.destroy(hGraph)


@driver.entry
def zeExecutableGraphGetSourceGraphExt(hGraph: ZeExecutableGraph) -> ZeGraph:
    if not hGraph.graph.handle:
        raise make_failure("INVALID_GRAPH", "the graph is destroyed")
    return hGraph.graph


@driver.entry
def zeCommandListAppendGraphExt(
    hCommandList: ZeCommandList,
    hGraph: ZeExecutableGraph,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    recording = hGraph.recording
    if recording.commands and not (
        recording.context.shares(hCommandList.context) and recording.device is hCommandList.device
    ):
        raise make_failure("INVALID_ARGUMENT", "the graph is of another context or device")
    append_steps(hCommandList, recording.list_steps, hSignalEvent, phWaitEvents)


# pictures


def _draw(recording: ListRecording, is_simple: bool) -> Iterator[str]:
    """Yield the lines of a picture in the language DOT."""
    yield "digraph captured {"
    for command in recording.commands:
        title, details = describe(recording.array.array[command.index])
        title = title if command.role == "command" else command.role
        lines = [title] if is_simple else [title, *map(_describe_row, details.items())]
        label = "\\n".join(lines)
        yield f'  n{command.index} [label="{label}"];'
        for before in recording.array.dependencies[command.index]:
            yield f"  n{before} -> n{command.index};"
    yield "}"


def _describe_row(row: tuple[str, object]) -> str:
    return f"{row[0]}: {row[1]}"


@driver.entry
def zeGraphDumpContentsExt(hGraph: ZeGraph, filePath: str, pNext: int) -> None:
    stype = "ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_DUMP_DESC"
    desc = find_struct(pNext, stype, "ze_record_replay_graph_ext_dump_desc_t")
    is_simple = desc is not None and desc.mode == _SIMPLE
    recording = hGraph.check()
    recording.list_parts()
    try:
        with open(filePath, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _draw(recording, is_simple))
    except (OSError, ValueError) as error:
        raise make_failure("INVALID_ARGUMENT", f"the file cannot be written: {error}") from error
