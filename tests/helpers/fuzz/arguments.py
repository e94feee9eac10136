"""Arguments for any entry point, made from the ABI data, and what can be wrong with them.

Every pointer points to memory that exists, of the size that the call names, because anything else
is undefined for a C interface. A size or a count that is far too large is fair if the adapter can
see it from the object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.ur.abi import UR
from helpers.fuzz.library import array, array_of

_ROOM: Final = 1 << 16  # bytes behind every pointer
SMALL: Final = (0, 1, 3, 4, 8, 16, 64, 256)
HUGE: Final = (1 << 40, 1 << 63, (1 << 64) - 1, (1 << 64) - 8, (1 << 64) - 4096)
_GIANT: Final = ((1 << 20) + 1, 1 << 31, (1 << 32) - 1)  # counts of lists that are shorter

#: Sizes of memory that only the program knows: the adapter has to believe them.
_BELIEVED: Final = frozenset(
    (
        "length",
        "hostRowPitch",
        "hostSlicePitch",
        "hostOrigin",
        "hostOffset",
        "propSize",
        "argSize",
        "dynamicSharedMemorySize",
        "elementSizeBytes",
        "pLengths",
        "ipcMemHandleDataSize",
        "size_of_pool",
    )
)

_NAMES: Final = (
    b"",
    b"store",
    b"nothing",
    b"-cl-opt-disable",
    b"no such name",
    b"-D=",
    b"\xff\xfe",
)
_NOTHING: Final = ctypes.CFUNCTYPE(None)(lambda: None)
_CALLBACK: Final = ctypes.cast(_NOTHING, ctypes.c_void_p).value or 0

#: The code for a handle of a type that is none, besides INVALID_ and the type's name.
_OWN_CODES: Final = {
    "ur_adapter_handle_t": ("INVALID_ARGUMENT",),
    "ur_mem_handle_t": ("INVALID_MEM_OBJECT",),
    "ur_usm_pool_handle_t": ("INVALID_VALUE",),
    "ur_exp_command_buffer_handle_t": ("INVALID_COMMAND_BUFFER_EXP",),
    "ur_exp_command_buffer_command_handle_t": ("INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP",),
}
_LISTS: Final = {
    "phEventWaitList": "INVALID_EVENT_WAIT_LIST",
    "pSyncPointWaitList": "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP",
}


def codes_for(type_name: str) -> tuple[str, ...]:
    """What a call answers whose handle of a type is none."""
    return _OWN_CODES.get(type_name) or (
        f"INVALID_{type_name.removeprefix('ur_').removesuffix('_handle_t').upper()}",
    )


@dataclass(frozen=True)
class Flaw:
    """A wrong `value` for an argument. The call has to answer one of `codes`."""

    values: dict[str, Any]
    codes: tuple[str, ...]


class Arguments:
    """Makes arguments for calls.

    `live` returns the handles of a type, `gone` the released ones, `native` an OpenCL handle for a
    parameter. With `wild`, every argument that is not a handle or pointer may be anything.
    """

    def __init__(
        self,
        draw: Callable[[Any], Any],
        live: Callable[[str], Sequence[int]],
        gone: Callable[[str], Sequence[int]],
        native: Callable[[str], int],
        room: Callable[[int], int],
        wild: bool = False,
    ) -> None:
        self._draw, self._live, self._gone, self._native, self._room, self._wild = (
            draw,
            live,
            gone,
            native,
            room,
            wild,
        )
        self.kept: list[Any] = []
        self.missing: tuple[str, ...] = ()  # codes, since there are no objects of some kinds

    def pick(self, things: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(things)) if len(things) > 1 else things[0]

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) >= 100 - percent

    # arguments that are as they should be

    def of(self, function: Function) -> dict[str, Any]:
        """The arguments of a call, by name."""
        counts = {
            p.length: self._count(p.length)
            for p in function.parameters
            if self._is_count(function, p)
        }
        return {
            p.name: counts[p.name] if p.name in counts else self._argument(p, counts)
            for p in function.parameters
        }

    def _is_count(self, function: Function, p: Parameter) -> bool:
        """Return whether another parameter has the number of elements that a parameter points
        to."""
        return (
            bool(p.stars)
            and p.type != "void"
            and any(p.length == other.name for other in function.parameters)
        )

    def _count(self, name: str) -> int:
        if name in ("workDim", "numWorkDim"):
            return self.pick((1, 2, 3))
        return (
            self.pick((0, 0, 1, 2))
            if name.startswith(("numEvents", "numSync", "numKernel", "numMems"))
            else self.pick((1, 1, 2))
        )

    def _argument(self, p: Parameter, counts: dict[str, int]) -> Any:
        base = "callback" if p.type == "callback" else UR.resolve(p.type)
        if p.type == "ur_native_handle_t" and not p.stars:
            native = self._native(p.name)
            if not native:
                self.missing += ("INVALID_NULL_HANDLE",)
            return native
        if base == "handle" and not p.stars:
            return 0 if "optional" in p.words and self.chance(60) else self.handle(p.type)
        if p.stars:
            return self._pointer(p, base, counts)
        if base == "callback":
            return _CALLBACK
        return (
            self._struct(p.type, p.name) if base == "struct" else self._number(p.name, p.type, base)
        )

    def handle(self, type_name: str) -> int:
        """A handle of an object that is alive; of nothing, where there is none of the type."""
        if live := self._live(type_name):
            return self.pick(live)
        self.missing += (*codes_for(type_name), *_LISTS.values())
        return self._room(64)

    def _pointer(self, p: Parameter, base: str, counts: dict[str, int]) -> Any:
        is_out = p.stars - (p.type == "void") > 0 and not {"out", "inout"}.isdisjoint(p.words)
        if "optional" in p.words and (self._wild and self.chance(50)):
            return None
        if is_out or base in ("void", "unsigned_char", "uint8_t") or (p.stars > 1):
            return self._memory(p)
        if p.type == "char":
            return self.pick(_NAMES)
        if p.length in counts:
            return self._list(p, base, counts[p.length])
        if base == "struct":
            return (
                None if "optional" in p.words and self.chance(50) else self._struct(p.type, p.name)
            )
        return self._numbers(p, 3)

    def _memory(self, p: Parameter) -> Any:
        """Memory with room for anything; for binaries, a list of them."""
        address = self._room(_ROOM)
        if p.type == "uint8_t" and p.stars == 2:
            return self._keep(array(*[address] * 4))
        return address

    def _list(self, p: Parameter, base: str, count: int) -> Any:
        """An array of so many elements; NULL for none, if it may be."""
        if not count and "optional" in p.words:
            return None
        if base == "handle":
            return self._keep(array(*(self.handle(p.type) for _ in range(max(count, 1)))))
        if base == "struct":
            rows = [self._struct(p.type, p.name) for _ in range(max(count, 1))]
            return self._keep(array_of(rows))
        return self._numbers(p, max(count, 1))

    def _numbers(self, p: Parameter, count: int) -> Any:
        kind = UR.make_ctype(p.type)
        return self._keep((kind * count)(*(self.pick((1, 2, 4, 16)) for _ in range(count))))

    def _number(self, name: str, type_name: str, base: str) -> Any:
        values = UR.groups.get(type_name)
        if values:
            if self._wild and self.chance(10):
                return self.pick((0, 0x7FFFFF00, 0xFFFFFFFF, 1 << 30))
            if UR.is_bitfield(type_name):
                return self.pick((0, *values)) | (self.pick((0, *values)) if self._wild else 0)
            return self.pick(list(values))
        if base == "bool":
            return self.chance(50)
        if name == "propSize" and not self._wild:
            return 256
        if name == "numWorkDim":
            return self.pick((1, 2, 3))
        if name == "NumBinaries":  # the count of a list, which the data does not say
            return self.pick((0, 1, *_GIANT))
        if self._wild and name not in _BELIEVED and self.chance(25):
            return self.pick(HUGE) & ((1 << 8 * ctypes.sizeof(UR.make_ctype(type_name))) - 1)
        return self.pick(SMALL)

    def _struct(self, name: str, parameter: str) -> Any:
        """Return a struct whose fields are drawn in turn.

        Pointers are NULL, or point to empty memory.
        """
        made = UR.get_struct(name)()
        for field in UR.structs[name].fields:
            if field.name == "stype":
                tag = f"UR_STRUCTURE_TYPE_{name.removeprefix('ur_').removesuffix('_t').upper()}"
                value: Any = UR[tag] if tag in UR.constants else 0
            elif field.name in ("pNext", "isNativeHandleOwned") or (
                field.length and not field.stars
            ):
                continue
            elif field.stars:
                value = self._zeros() if self._wild and self.chance(30) else None
            else:
                value = self._field(field, parameter)
            setattr(made, field.name, value)
        return self._keep(made)

    def _field(self, field: Parameter, parameter: str) -> Any:
        base = UR.resolve(field.type)
        if base == "struct":
            return (
                UR.get_struct(field.type)()
                if UR.structs[field.type].kind == "union"
                else self._struct(field.type, parameter)
            )
        if base == "handle":
            return (
                self.handle(field.type)
                if self.chance(70)
                else self.pick([0, *self._gone(field.type)])
            )
        name = parameter if parameter in _BELIEVED else field.name
        return self._number(name, field.type, base)

    def _zeros(self) -> int:
        return ctypes.addressof(self._keep((ctypes.c_char * 4096)()))

    def _keep(self, thing: Any) -> Any:
        self.kept.append(thing)
        return thing

    # what can be wrong

    def flaws(self, function: Function, arguments: dict[str, Any]) -> Iterator[Flaw]:
        """Yield every flaw of one argument for which the call has to be refused, whatever the
        others are."""
        for p in function.parameters:
            base = UR.resolve(p.type)
            if p.name in ("propSize", "pPropValue", "pPropSizeRet"):
                continue
            if base == "handle" and not p.stars:
                yield from self._handle_flaws(p)
            elif p.stars or base == "callback":
                yield from self._pointer_flaws(p, function, arguments)
            else:
                yield from self._number_flaws(p)
        if {
            "propName",
            "propSize",
            "pPropValue",
        } <= arguments.keys() and "pPropSizeRet" in arguments:
            asked = {name: arguments[name] for name in ("propSize", "pPropValue", "pPropSizeRet")}
            yield Flaw({**asked, "propSize": 0}, ("INVALID_SIZE", "INVALID_VALUE"))
            yield Flaw({**asked, "pPropValue": None}, ("INVALID_NULL_POINTER",))
            yield Flaw(
                {"propSize": 0, "pPropValue": None, "pPropSizeRet": None}, ("INVALID_NULL_POINTER",)
            )

    def bad_handles(self, type_name: str) -> list[int]:
        """Yield handles that are invalid for this type: stale ones, other kinds, other memory, no
        addresses."""
        others = [
            handle for other in _OWN_CODES for handle in self._live(other) if other != type_name
        ]
        return [
            *self._gone(type_name),
            *others,
            self._room(64),
            1,
            0xDEADBEEF,
            (1 << 64) - 1,
            (1 << 47) + 8,
        ]

    def _handle_flaws(self, p: Parameter) -> Iterator[Flaw]:
        if "optional" not in p.words:
            yield Flaw({p.name: None}, ("INVALID_NULL_HANDLE",))
        bad = self.bad_handles(p.type)
        yield Flaw({p.name: self.pick(bad)}, codes_for(p.type))

    def _pointer_flaws(
        self, p: Parameter, function: Function, arguments: dict[str, Any]
    ) -> Iterator[Flaw]:
        own = (_LISTS[p.name],) if p.name in _LISTS else ()
        if "optional" not in p.words:
            yield Flaw({p.name: None}, ("INVALID_NULL_POINTER", "INVALID_SIZE", "INVALID_VALUE"))
        if UR.resolve(p.type) != "handle" or not p.length or "out" in p.words:
            if p.name in _LISTS:  # sync-points
                yield from self._mismatches(p, own)
            return
        count = p.length
        bad = self._keep(array(self.pick([*self.bad_handles(p.type), 0])))
        yield Flaw({count: 1, p.name: bad}, (*codes_for(p.type), "INVALID_NULL_HANDLE", *own))
        if self._is_alone(function, p):
            room = self._keep(array(self.handle(p.type), 0, 0, 0))
            yield Flaw(
                {count: self.pick(_GIANT), p.name: room}, ("INVALID_SIZE", "INVALID_VALUE", *own)
            )
        if "optional" in p.words:
            yield from self._mismatches(p, own)

    def _is_alone(self, function: Function, p: Parameter) -> bool:
        return sum(other.length == p.length for other in function.parameters) == 1

    def _mismatches(self, p: Parameter, own: tuple[str, ...]) -> Iterator[Flaw]:
        codes = own or ("INVALID_VALUE", "INVALID_SIZE", "INVALID_NULL_POINTER")
        yield Flaw({p.length: self.pick((1, 1 << 31)), p.name: None}, codes)
        if p.name in _LISTS or UR.resolve(p.type) == "handle":
            yield Flaw({p.length: 0, p.name: self._keep(array(self._room(64)))}, codes)

    def _number_flaws(self, p: Parameter) -> Iterator[Flaw]:
        values = UR.groups.get(p.type)
        if p.name in ("workDim", "numWorkDim"):
            yield Flaw({p.name: self.pick((0, 4, (1 << 32) - 1))}, ("INVALID_WORK_DIMENSION",))
        elif values and UR.is_bitfield(p.type):
            known = 0
            for value in values:
                known |= value
            if unknown := [1 << bit for bit in range(32) if not known >> bit & 1]:
                yield Flaw({p.name: self.pick(unknown)}, ("INVALID_ENUMERATION", "INVALID_VALUE"))
        elif values:
            yield Flaw(
                {p.name: self.pick((0x7FFFFF00, 0xFFFFFFFF))},
                ("INVALID_ENUMERATION", "UNSUPPORTED_ENUMERATION"),
            )
