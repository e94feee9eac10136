"""The Parameters of a finalized capture: set by name, for the next replays or for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from numpy import ndarray

from ..graph.executable import ExecutableGraph
from ..runtime.errors import Errc, SYCLError
from .pyopencl_client import ArgumentError
from .segment import CapturedSegment

if TYPE_CHECKING:
    from ..graph.node import Node
    from ..graph.update import HasCommandGraph

_SERIES: Final = (list, tuple, ndarray)


def _is_series(value: Any) -> bool:
    """Whether a value is one for each replay: a list, or a NumPy array."""
    return isinstance(value, _SERIES) and getattr(value, "shape", None) != ()


class Settable(ABC):
    """An executable graph whose segments have Parameters."""

    _lock: RLock
    #: All commands, if the graph is as it was recorded.
    _whole: CapturedSegment | None = None
    _executable_graph: ExecutableGraph | None = None

    @abstractmethod
    def update(
        self, what: HasCommandGraph | Node | Iterable[Node], *, strict: bool = False
    ) -> None:
        """Take over changes of nodes: see `Executable`."""

    def _list_captured_segments(self) -> list[CapturedSegment]:
        if self._executable_graph is None:
            return [self._whole] if self._whole is not None else []
        return [one for one in self._executable_graph.segments if isinstance(one, CapturedSegment)]

    def _get_only_segment(self) -> CapturedSegment | None:
        """Return the segment of all commands, None if it is not one of captured commands."""
        if self._executable_graph is None:
            return self._whole
        only = self._executable_graph.only
        return only if isinstance(only, CapturedSegment) else None

    def set(self, *argument: Any, **values: Any) -> None:
        """Set Parameters, by name, for the next replays. Earlier replays do not change.

        `set(node, index, value)` is `node.set_arg(index, value)` and `update(node)` in one.

        Args:
            argument: nothing, or a node, the index of an argument, and its value.
            values: a number that the Parameter's type can hold (floats are rounded to it), or
                memory of the context. `set(dt=0.5)`.

        Raises:
            SYCLError: invalid, for an unknown Parameter; kernel_argument, for a value that it
                cannot have. Nothing has changed then.
        """
        if argument:
            if len(argument) != 3:
                raise ArgumentError(
                    f"{len(argument)} arguments were given.",
                    routine="set",
                    remedy="set(node, index, value), or a Parameter by its name: set(dt=0.5)",
                )
            node, index, value = argument
            node.set_arg(index, value)
            self.update(node)
        if values:
            self._set_values(values)

    def _set_values(self, values: Mapping[str, Any]) -> None:
        only = self._whole if self._executable_graph is None else self._get_only_segment()
        if only is not None and only.settings is not None:
            try:
                only.set(values)
            except KeyError:
                raise self._make_name_error(values) from None
            return
        with self._lock:
            self._set_parts(values)

    def _set_parts(self, values: Mapping[str, Any]) -> None:
        parts = [
            (one, one.settings.writers) for one in self._list_captured_segments() if one.settings
        ]
        for name in values:
            if not any(name in writers for _, writers in parts):
                raise self._make_name_error(values)
        if self._executable_graph is not None:
            self._executable_graph.wait_for_deferred()
        try:
            for segment, writers in parts:
                segment.stage({name: values[name] for name in values if name in writers})
        except BaseException:
            for segment, _ in parts:
                segment.unstage()
            raise
        for segment, _ in parts:
            segment.commit()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its Parameters. One without a name is ""."""
        names: dict[str, None] = {}
        for segment in self._list_captured_segments():
            names |= dict.fromkeys(segment.settings.by_name if segment.settings else ())
        return tuple(names)

    @property
    def is_swapped(self) -> bool:
        """Whether the next replay exchanges the buffers of `capture(swap=(u, v))`.

        It does so after an odd number of replays.
        """
        settings = [one.settings for one in self._list_captured_segments()]
        return any(one is not None and one.alternations and one.turn % 2 for one in settings)

    def _make_name_error(self, values: Mapping[str, Any]) -> SYCLError:
        names = self.parameters
        unknown = next((name for name in values if name not in names), "")
        there = ", ".join(name or "one without a name" for name in names) or "none"
        return SYCLError(
            Errc.invalid,
            f"the graph has no Parameter {unknown}; it has: {there}",
            routine="set",
            remedy="pass a Parameter itself to a kernel in the block; give it a name if no "
            "variable or several hold it: Parameter(value, name=…)",
        )

    def _set_for_replay(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set what is the same for all replays. Returns the others, which have a value for each."""
        for value in values.values():  # each replay comes here: no function is called for a number
            if isinstance(value, _SERIES) and _is_series(value):
                return self._begin_series(values)
        self._set_values(values)
        return {}

    def _begin_series(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set what is not a series. Returns the series."""
        series = {name: value for name, value in values.items() if _is_series(value)}
        if not series.keys() <= set(self.parameters):
            raise self._make_name_error(series)
        self.set(**{name: value for name, value in values.items() if name not in series})
        return series
