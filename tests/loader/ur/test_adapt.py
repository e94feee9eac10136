"""The newest forms of functions, on an adapter of the layout of 2025.3 that is made of Python
functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.threads import in_threads
from fairlead.loader.base import layers
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapt import ADAPTATIONS, adapt

UNSUPPORTED = next(
    code for code, (name, _) in UR.errors.items() if name == "UR_RESULT_ERROR_UNSUPPORTED_FEATURE"
)


class Adapter:
    """A table that has the given functions; `calls` are the calls that reached them: (name,
    arguments)."""

    def __init__(self, *names: str, codes: dict[str, int] | None = None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._keep: list[Any] = []
        address, slots = layers.make_table(UR)
        for name in names:
            function = UR.functions[name].prototype(self._called(name, (codes or {}).get(name, 0)))
            self._keep.append(function)
            slots[UR.functions[name].slot] = ctypes.cast(function, ctypes.c_void_p).value
        self.table = DispatchTable(UR, address)
        self.filled, self.layer = adapt(self.table, frozenset(names))

    def _called(self, name: str, code: int) -> Callable[..., int]:
        def called(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            return code

        return called


SETTERS = [f"urKernelSetArg{kind}" for kind in ("Value", "Pointer", "MemObj", "Local", "Sampler")]


def arguments_of(*rows: tuple[str, int, int, int]) -> Any:
    """An array of ur_exp_kernel_arg_properties_t: (type, index, size, value)."""
    kind = UR.get_struct("ur_exp_kernel_arg_properties_t")
    array = (kind * len(rows))()
    for item, (name, index, size, value) in zip(array, rows, strict=True):
        item.type, item.index, item.size = UR[f"UR_EXP_KERNEL_ARG_TYPE_{name}"], index, size
        item.value.pointer = value
    return array


def test_a_launch_goes_to_the_form_that_counts_its_properties() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3")
    size = (ctypes.c_size_t * 1)(64)
    assert adapter.table.urEnqueueKernelLaunch(1, 2, 1, None, size, None, None, 0, None, None) == 0
    ((name, arguments),) = adapter.calls
    assert name == "urEnqueueKernelLaunch_2025_3"
    assert arguments == (1, 2, 1, None, ctypes.addressof(size), None, 0, None, 0, None, None)


def test_launch_properties_that_it_cannot_have_are_refused() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3")
    given = 1, 2, 1, None, None, None, 99, 0, None, None
    assert adapter.table.urEnqueueKernelLaunch(*given) == UNSUPPORTED
    assert adapter.calls == []


def test_a_launch_with_arguments_sets_each_by_its_type_and_then_launches() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3", *SETTERS)
    given = arguments_of(
        ("VALUE", 0, 4, 0x10),
        ("POINTER", 1, 8, 0x20),
        ("MEM_OBJ", 2, 8, 0x30),
        ("LOCAL", 3, 256, 0),
        ("SAMPLER", 4, 8, 0x40),
    )
    code = adapter.table.urEnqueueKernelLaunchWithArgsExp(
        1, 2, 1, None, None, None, len(given), given, None, 0, None, None
    )
    assert code == 0
    assert adapter.calls[:-1] == [
        ("urKernelSetArgValue", (2, 0, 4, None, 0x10)),
        ("urKernelSetArgPointer", (2, 1, None, 0x20)),
        ("urKernelSetArgMemObj", (2, 2, None, 0x30)),
        ("urKernelSetArgLocal", (2, 3, 256, None)),
        ("urKernelSetArgSampler", (2, 4, None, 0x40)),
    ]
    assert adapter.calls[-1][0] == "urEnqueueKernelLaunch_2025_3"


def test_threads_that_launch_one_kernel_take_turns() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3", *SETTERS)

    def launch(number: int) -> None:
        call = adapter.table.urEnqueueKernelLaunchWithArgsExp
        given = arguments_of(("LOCAL", 0, number, 0), ("LOCAL", 1, number, 0))
        for _ in range(500):
            assert call(number, 2, 1, None, None, None, 2, given, None, 0, None, None) == 0

    in_threads(4, lambda number: launch(number + 1))
    launches = zip(
        *[iter(adapter.calls)] * 3, strict=True
    )  # a launch's two arguments, and the launch from its queue
    assert all(
        first[2] == second[2] == enqueued[0] for (_, first), (_, second), (_, enqueued) in launches
    )


def test_an_argument_that_is_refused_ends_it() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3", *SETTERS, codes={"urKernelSetArgPointer": 7})
    given = arguments_of(("POINTER", 0, 8, 0x20), ("VALUE", 1, 4, 0x10))
    arguments = 1, 2, 1, None, None, None, 2, given, None, 0, None, None
    assert adapter.table.urEnqueueKernelLaunchWithArgsExp(*arguments) == 7
    assert [name for name, _ in adapter.calls] == ["urKernelSetArgPointer"]


def test_arguments_that_are_not_there_are_refused() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3", *SETTERS)
    code = adapter.table.urEnqueueKernelLaunchWithArgsExp(
        1, 2, 1, None, None, None, 2, None, None, 0, None, None
    )
    assert UR.errors[code][0] == "UR_RESULT_ERROR_INVALID_NULL_POINTER"


def test_a_build_passes_its_options_on_and_refuses_flags() -> None:
    adapter = Adapter("urProgramBuildExp_2025_3")
    devices = (ctypes.c_void_p * 1)(5)
    assert adapter.table.urProgramBuildExp(1, 1, devices, 0, b"-cl-fast-relaxed-math") == 0
    assert adapter.calls == [
        ("urProgramBuildExp_2025_3", (1, 1, ctypes.addressof(devices), b"-cl-fast-relaxed-math"))
    ]
    assert adapter.table.urProgramBuildExp(1, 1, devices, 1, None) == UNSUPPORTED


@pytest.mark.parametrize("adaptation", ADAPTATIONS, ids=lambda adaptation: adaptation.function)
def test_a_bridge_is_built_only_where_it_is_needed_and_can_stand(adaptation: Any) -> None:
    assert adaptation.function in Adapter(*adaptation.needs).filled
    assert adaptation.function not in Adapter(adaptation.function, *adaptation.needs).filled
    assert adaptation.function not in Adapter(*adaptation.needs[1:]).filled


def test_a_layer_is_taken_once_for_adapters_that_come_and_go() -> None:
    for _ in range(40):  # more than there are layers
        adapter = Adapter("urEnqueueKernelLaunch_2025_3")
        assert adapter.layer is not None
        adapter.layer.release()


def test_without_python_a_bridged_function_answers_that_it_is_not_supported() -> None:
    adapter = Adapter("urEnqueueKernelLaunch_2025_3")
    assert adapter.layer is not None
    adapter.layer.log(None)  # what the end of the interpreter does: no handler is left
    given = 1, 2, 1, None, None, None, None, 0, None, None
    assert adapter.table.urEnqueueKernelLaunch(*given) == UNSUPPORTED
