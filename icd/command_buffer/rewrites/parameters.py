"""The parameters of a fused kernel, and what its calls of the old kernels give to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._native import ffi, lib
from .arguments import ArgumentValue, list_keys, make_arguments
from .launches import RecordedLaunch
from .opaque import isolate
from .overflow import list_hidden
from .places import FIRST, IDS, ITEM, ElementPlace, write_element
from .reductions import SUM
from .used_bytes import UsedBytes

if TYPE_CHECKING:
    from .runs import Run

#: What the names of vectors begin with.
_VECTOR: Final = "fl_vector_"
#: The key of an argument that is 0 (isolation.py, overflow.py).
_ZERO: Final = "zero"


class FusedArgument(NamedTuple):
    """An argument of a fused kernel.

    Attributes:
        kind: its type, and what stands before its name.
        place: of the launch in the run that has it, -1 for a zero.
        argument: of that launch.
    """

    kind: str
    name: str
    place: int
    argument: int

    @property
    def text(self) -> str:
        """The declaration of its parameter."""
        return f"{self.kind}{self.name}"


class FusedParameters:
    """The parameters of a fused kernel: each buffer and each value once.

    Args:
        temporaries: what a variable stands for, and its type, by handle.
        shared: memory whose elements pass from launch to launch in variables, by handle; None if
            launches are not isolated.
        lanes: how many items a work-item takes.

    Attributes:
        variables: their names, by handle.
        places: of the rows, by the keys of the launches' arguments.
        size: bytes of the arguments.
        zero: the `fl_arguments *` that has a zero, None if there is none.
    """

    def __init__(
        self,
        run: Run,
        temporaries: Mapping[int, str],
        shared: Mapping[int, ElementPlace] | None = None,
        lanes: int = 1,
    ) -> None:
        self.temporaries, self.shared, self.lanes = temporaries, shared, lanes
        handles = [*temporaries, *(shared or ())]
        self.variables = {handle: f"fl_own_{n}" for n, handle in enumerate(handles)}
        if run.reduction is not None:
            self.variables[run.launches[-1].result] = SUM
        self.places: dict[Any, int] = {}
        self.hidden = dict[int, Sequence[UsedBytes]]()
        self.rows, self.size, self.zero = list[FusedArgument](), 0, None
        pointer = f"global uchar *{'restrict ' if run.is_apart else ''}"
        for place, launch in enumerate(run.launches):
            for index, key in enumerate(list_keys(place, launch.arguments)):
                if key not in temporaries and key not in self.places:
                    one, value = launch.kernel.parameters[index], launch.arguments[index].turns[0]
                    kind = pointer if isinstance(key, int) else f"{one.type.name} "
                    self._add(key, value, kind, f"fl_{len(self.rows)}", place, index)
        if shared is None:
            for place, launch in enumerate(run.launches):
                self.hidden[place] = list_hidden(run.launches, place)
                names = {one.argument for one in self.hidden[place]}
                for name in sorted(names | launch.twins):
                    key = _ZERO, place, name
                    self._add(key, bytes(4), "uint ", f"fl_zero_{len(self.rows)}", -1, 0)
                    self.zero = ffi.gc(make_arguments([bytes(4)]), lib.fl_release_arguments)
        else:
            zeros, kind = bytes(4 * lanes), f"uint{lanes} {_VECTOR}" if lanes > 1 else "uint "
            self.zero = ffi.gc(make_arguments([zeros]), lib.fl_release_arguments)
            for place in range(len(run.launches)):
                self._add((_ZERO, place), zeros, kind, f"fl_zero_{place}", -1, 0)

    def _add(self, key: Any, value: ArgumentValue, *row: Any) -> None:
        self.places[key] = len(self.rows)
        self.rows.append(FusedArgument(*row))
        self.size += max(8, len(value)) if isinstance(value, bytes) else 8

    def name(self, key: Any) -> str:
        """Return the name of a row, by its key."""
        return self.rows[self.places[key]].name

    def write_body(self, calls: Sequence[str]) -> list[str]:
        """Return the statements of a work-item.

        Args:
            calls: the statements for an item, between those that load and store its variables.
        """
        own = [f"    {kind} {self.variables[one]};" for one, kind in self.temporaries.items()]
        if self.lanes == 1:
            load, store = self._pass_variables(self._write_memory)
            return [*own, *load, *calls, *store]
        lines, store = self._pass_variables(self._write_memory, _VECTOR, str(self.lanes))
        zeros = [row.name for row in self.rows if row.kind.endswith(_VECTOR)]
        for lane in range(self.lanes):
            load, last = self._pass_variables(
                lambda handle, lane=lane: f"{_VECTOR}{self.variables[handle]}.s{lane}"
            )
            first = [f"    const uint {zero} = {_VECTOR}{zero}.s{lane};" for zero in zeros]
            item = f"    const size_t {ITEM} = {FIRST} + {lane};"
            lines += ["    {", item, *first, *own, *load, *calls, *last, "    }"]
        return [*lines, *store]

    def _pass_variables(
        self, write: Callable[[int], str], prefix: str = "", lanes: str = ""
    ) -> tuple[list[str], list[str]]:
        """Return the statements that declare the variables of shared memory, and that store them.

        Args:
            write: writes what a variable stands for, of a handle.
            prefix: of the variables' names.
        """
        first, last = list[str](), list[str]()
        for handle, one in (self.shared or {}).items():
            name = prefix + self.variables[handle]
            value = f" = {write(handle)}" if one.is_loaded else ""
            first.append(f"    {one.kind}{lanes} {name}{value};")
            if one.is_stored:
                last.append(f"    {write(handle)} = {name};")
        return first, last

    def _write_memory(self, handle: int) -> str:
        assert self.shared is not None
        return self.shared[handle].write(self.name(handle), self.lanes)

    def write_call(
        self, name: str, place: int, launch: RecordedLaunch, met: Collection[int]
    ) -> list[str]:
        """Return the statements that call the function of an old kernel.

        Args:
            place: of the launch in the run.
            met: the memory that launches before it use, handles.
        """
        keys = list_keys(place, launch.arguments)
        if self.shared is None:
            zeros = {one: self.name((_ZERO, place, one)) for one in launch.twins}
            given = [*self._list_arguments(launch, keys, zeros), *(IDS if launch.grid else (ITEM,))]
            hidden = (self._hide(place, one) for one in self.hidden[place])
            return [f"    {name}({', '.join(given)});", *hidden]
        zero = self.name((_ZERO, place))
        kinds = {**self.temporaries, **{one: row.kind for one, row in self.shared.items()}}
        # what nobody has used yet comes from memory, as in the old kernel
        read = {one.handle for one in launch.memory[0] if not launch.writes_first(one.handle)}
        before = [
            f"    {variable} = {isolate(variable, kinds[handle], zero)};"
            for handle, variable in self.variables.items()
            if handle in read and handle in met
        ]
        zeros = dict.fromkeys((one.name for one in launch.kernel.parameters), zero)
        zeros |= {one: f"{n} * {zero}" for n, one in enumerate(sorted(launch.twins), 2)}
        arguments = [*self._list_arguments(launch, keys, zeros), isolate(ITEM, "ulong", zero)]
        return [*before, f"    {name}({', '.join(arguments)});"]

    def _hide(self, place: int, memory: UsedBytes) -> str:
        """Return the statement that hides an item's element from the launches behind."""
        text = self.variables.get(memory.handle)
        if text is None:
            where = memory.kind, memory.offset, memory.stride
            text = write_element(self.name(memory.handle), *where)
        zero = self.name((_ZERO, place, memory.argument))
        return f"    {text} = {isolate(text, memory.kind, zero)};"

    def _list_arguments(
        self, launch: RecordedLaunch, keys: Sequence[Any], zeros: Mapping[str, str]
    ) -> list[str]:
        own = [f"&{self.variables[key]}" for key in keys if key in self.variables]
        pairs = zip(launch.kernel.parameters, keys, strict=True)
        given = (self._write(one.type, key, zeros.get(one.name, "")) for one, key in pairs)
        return [*given, *own]

    def _write(self, type_: Any, key: Any, zero: str) -> str:
        if not isinstance(key, int):
            return isolate(self.name(key), type_.name, zero) if zero else self.name(key)
        pointer = f"(global {type_.target.name or 'void'} *)"
        if key in self.variables:
            return f"{pointer}0"
        return f"{pointer}({self.name(key)} + {zero})" if zero else pointer + self.name(key)
