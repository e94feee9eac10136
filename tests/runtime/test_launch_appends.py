"""What an adapter is given when commands are appended, many launches by one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy
import pytest

from fairlead.loader.base._native import ffi
from fairlead.loader.ur.abi import UR
from fairlead.runtime.arguments import MEMORY, POINTER, Argument, make_argument
from fairlead.runtime.errors import SYCLError, make_invalid_error
from fairlead.runtime.launch_appends import Appends
from fairlead.runtime.launches import KernelLaunch

NAME: Final = "urCommandBufferAppendKernelLaunchWithArgsExp"
ROW: Final = UR.get_struct("ur_exp_kernel_arg_properties_t")


def _numbers(at: Any, count: int, kind: Any) -> tuple[int, ...] | None:
    return tuple((kind * count).from_address(at)) if at else None


class _Adapter:
    """An adapter that notes the launches. Its sync-points begin at 100, its handles at 1000.

    Args:
        refused: the number of the call that it refuses.
    """

    def __init__(self, refused: int = -1) -> None:
        self.calls: list[SimpleNamespace] = []
        self.refused = refused
        setattr(self, NAME, UR.functions[NAME].prototype(self._append))
        self.ur = self

    def _append(self, *given: Any) -> int:
        buffer, kernel, dim, offset, size, local, count, rows, alternatives = given[:9]
        others, waits, points, event_count, events, point, event, command = given[9:]
        number = len(self.calls)
        if number == self.refused:
            return UR.codes["UR_RESULT_ERROR_INVALID_KERNEL"]
        sizes = [_numbers(one, dim, ctypes.c_size_t) for one in map(_at, (size, local, offset))]
        taken = (ROW * count).from_address(_at(rows)) if count else ()
        values = [(r.index, r.type, r.size, r.value.pointer) for r in taken]
        self.calls.append(
            SimpleNamespace(
                buffer=_at(buffer),
                kernel=_at(kernel),
                sizes=tuple(sizes),
                values=values,
                others=_numbers(_at(others), alternatives, ctypes.c_void_p),
                points=_numbers(_at(points), waits, ctypes.c_uint32),
                rest=(event_count, _at(events), _at(event)),
            )
        )
        ctypes.c_uint32.from_address(_at(point)).value = 100 + number
        if _at(command):
            ctypes.c_void_p.from_address(_at(command)).value = 1000 + number
        return 0

    def check(self, code: int, routine: str, detail: str) -> None:
        raise make_invalid_error(f"{code} {detail}", routine=routine)


def _at(given: Any) -> int:
    """Return the address that a callback was given."""
    return ctypes.cast(given, ctypes.c_void_p).value or 0


def _buffer(adapter: _Adapter, updatable: bool = False) -> Any:
    return SimpleNamespace(adapter=adapter, handle=7, context="context", updatable=updatable)


def _launch(
    *arguments: Argument, sizes: Any = ((16,), (), ()), others: Sequence[int] = ()
) -> KernelLaunch:
    made = KernelLaunch(SimpleNamespace(handle=9, name="k"), sizes, arguments)  # pyright: ignore[reportArgumentType]
    made.alternatives = [SimpleNamespace(handle=one) for one in others]  # pyright: ignore[reportAttributeAccessIssue]
    return made


def test_the_structs_of_c_are_those_of_the_api() -> None:
    assert len(make_argument(numpy.int8(1)).row) == ctypes.sizeof(ROW)
    assert ffi.sizeof("fl_range") == 4 * 4 + 9 * ctypes.sizeof(ctypes.c_size_t)


def test_a_launch_arrives_as_it_was_given() -> None:
    adapter = _Adapter()
    appends = Appends(_buffer(adapter, updatable=True), 2)
    value = make_argument(numpy.int32(5))
    buffer: Any = SimpleNamespace(memory=lambda context: {"context": 77}[context])
    memory = Argument(MEMORY, 8, 0, 3, None, buffer)
    sizes = (8, 4), (2, 2), (1, 0)
    first = _launch(Argument(POINTER, 8, 0x40), value, memory, sizes=sizes, others=(11, 12))
    appends.append_launches([first, _launch()], [(), (0,)])
    one, other = adapter.calls
    assert (one.buffer, one.kernel, one.sizes) == (7, 9, sizes)
    assert [index for index, *_ in one.values] == [0, 1, 2]
    assert one.values[0][2:] == (8, 0x40)
    assert one.values[1][2] == 4
    assert one.values[2][1:] == (MEMORY, 8, 77)
    assert (one.others, one.points) == ((11, 12), None)
    assert (other.values, other.others, other.points) == ([], None, (100,))
    assert other.sizes == ((16,), None, None)
    assert one.rest == other.rest == (0, 0, 0)
    assert list(appends.read_handles()) == [1000, 1001]


def test_a_command_that_is_no_launch_stands_between_launches() -> None:
    adapter, seen = _Adapter(), list[Any]()

    def append(buffer: Any, count: int, points: bytes | None) -> int:
        seen.append((count, points))
        return 40 + len(seen)

    other: Any = SimpleNamespace(append=append)
    appends = Appends(_buffer(adapter), 4)
    appends.append_launches([_launch()], [()])
    appends.append_others([other, other], [(0,), ()])
    appends.append_launches([_launch()], [(0, 1, 2)])
    assert seen == [(1, (100).to_bytes(4, "little")), (0, None)]
    assert adapter.calls[1].points == (100, 41, 42)
    assert appends.read_handles() == ()


def test_more_launches_than_c_is_given_at_once() -> None:
    adapter, count = _Adapter(), 1500
    appends = Appends(_buffer(adapter), count)
    launches = [_launch(Argument(POINTER, 8, number + 1)) for number in range(count)]
    appends.append_launches(launches, [(max(number - 2, 0),) for number in range(count)])
    assert [one.values[0][3] for one in adapter.calls] == list(range(1, count + 1))
    assert [one.points for one in adapter.calls[2:]] == [(100 + one,) for one in range(count - 2)]


@pytest.mark.parametrize("place", [0, 3, 1200])
def test_the_launch_that_is_refused_is_named(place: int) -> None:
    appends = Appends(_buffer(_Adapter(refused=place)), 1300)
    with pytest.raises(SYCLError, match="kernel, name: k") as caught:
        appends.append_launches([_launch() for _ in range(1300)], None)
    assert (appends.number, caught.value.routine) == (place, NAME)


@pytest.mark.parametrize("place", [0, 3, 1200])
def test_an_argument_that_is_not_to_be_had_is_named_by_its_launch(place: int) -> None:
    def memory(context: Any) -> int:
        raise make_invalid_error("it is closed")

    closed: Any = SimpleNamespace(memory=memory)
    launches = [_launch() for _ in range(1300)]
    launches[place] = _launch(Argument(MEMORY, 8, 0, 0, None, closed))
    appends = Appends(_buffer(_Adapter()), 1300)
    with pytest.raises(SYCLError, match="it is closed"):
        appends.append_launches(launches, None)
    assert appends.number == place
