"""Leads the newest forms of Unified Runtime's functions to what an adapter of an earlier layout has instead.

2025.3 has functions of the same names with other parameters (in `UR` they are called `…_2025_3`), and sets a kernel's arguments one by
one where the newest API gives them with the launch. `adapt` puts a function of ours into each such slot of a bound table; it is one
entry of a layer (`layers`) whose handler converts the arguments and calls what the adapter has. No other slot is touched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from ..base.errors import FairleadError
from ..base.forks import new_lock
from ..base.layers import Layer
from ..base.table import POINTER_SIZE, DispatchTable
from .abi import UR, UR_RESULT_SUCCESS

#: What answers a call: given the adapter's functions and the arguments.
Adaptation: TypeAlias = Callable[["_Functions", Sequence[int]], int]


class _Functions:
    """The functions in a table, by name, behind whatever layers are in front of it: these calls are the bridge's, not the program's."""

    def __init__(self, table: DispatchTable) -> None:
        self._table = table
        self._lock = new_lock()
        self._turns: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        function = UR.functions[name]
        call = function.prototype(self._table.pointer(function.slot or 0))
        setattr(self, name, call)
        return call

    def turn(self, kernel: int) -> Any:
        """The lock of whoever sets this kernel's arguments, for as long as the launch has not taken them: the newest API gives them with
        the launch, so that threads may launch one kernel at the same time."""
        with self._lock:
            lock = self._turns.get(kernel)
            if lock is None:
                lock = self._turns[kernel] = new_lock()
            return lock


@dataclass(frozen=True)
class _Bridge:
    """`function` of the newest API can be answered by `answer` where the adapter has all that it `needs`."""

    function: str
    needs: tuple[str, ...]
    answer: Adaptation


def adapt(table: DispatchTable, has: frozenset[str]) -> tuple[frozenset[str], Layer | None]:
    """Fill what the adapter lacks of the newest API and can be had by calling what it `has`.

    The answer is what was filled, and the layer whose entries stand in the table (None if nothing was): it is to be given back when
    they do not any longer.
    """
    usable = [
        bridge for bridge in BRIDGES if bridge.function not in has and has.issuperset(bridge.needs)
    ]
    if not usable:
        return frozenset(), None
    answers = {UR.functions[bridge.function].slot: bridge.answer for bridge in usable}
    try:
        layer = Layer(
            UR, 0, UR_ERROR_UNSUPPORTED
        )  # nothing is behind it: its entries answer that when Python is gone
    except FairleadError:  # all are taken: the adapter works as far as it goes by itself
        return frozenset(), None
    functions = _Functions(table)
    layer.handle(lambda slot, arguments: answers[slot](functions, arguments))
    for slot in answers:
        entry = slice((slot or 0) * POINTER_SIZE, ((slot or 0) + 1) * POINTER_SIZE)
        ctypes.memmove(table.address + entry.start, layer.address + entry.start, POINTER_SIZE)
    return frozenset(bridge.function for bridge in usable), layer


def _without(index: int, routine: str, *inserted: int) -> Adaptation:
    """Call `routine` without the argument at `index`, which must be 0, and with `inserted` before the next one."""

    def answer(functions: _Functions, arguments: Sequence[int]) -> int:
        if arguments[index]:
            return UR_ERROR_UNSUPPORTED
        return getattr(functions, routine)(
            *_converted(routine, [*arguments[:index], *inserted, *arguments[index + 1 :]])
        )

    return answer


def _with_arguments(routine: str, first: int) -> Adaptation:
    """Set the kernel's arguments, which are `arguments[first]` structs at `arguments[first + 1]`, then call `routine` without them."""

    def answer(functions: _Functions, arguments: Sequence[int]) -> int:
        kernel, count, where = arguments[1], arguments[first], arguments[first + 1]
        if count and not where:
            return UR.codes["UR_RESULT_ERROR_INVALID_NULL_POINTER"]
        rest = _converted(routine, [*arguments[:first], *arguments[first + 2 :]])
        with functions.turn(kernel):
            for argument in (_argument_type() * count).from_address(where) if count else ():
                code = _set_argument(functions, kernel, argument)
                if code != UR_RESULT_SUCCESS:
                    return code
            return getattr(functions, routine)(*rest)

    return answer


def _set_argument(functions: _Functions, kernel: int, argument: Any) -> int:
    """ur_exp_kernel_arg_properties_t by the function for its type."""
    index, size, value = argument.index, argument.size, argument.value
    kind = UR.groups["ur_exp_kernel_arg_type_t"].get(argument.type, "").rsplit("TYPE_", 1)[-1]
    if kind == "VALUE":
        return functions.urKernelSetArgValue(kernel, index, size, None, value.value)
    if kind == "POINTER":
        return functions.urKernelSetArgPointer(kernel, index, None, value.pointer)
    if kind == "LOCAL":
        return functions.urKernelSetArgLocal(kernel, index, size, None)
    if kind == "SAMPLER":
        return functions.urKernelSetArgSampler(kernel, index, None, value.sampler)
    if kind == "MEM_OBJ":
        stype = UR["UR_STRUCTURE_TYPE_KERNEL_ARG_MEM_OBJ_PROPERTIES"]
        access = UR.struct("ur_kernel_arg_mem_obj_properties_t")(
            stype=stype, memoryAccess=value.memObjTuple.flags
        )
        how = ctypes.byref(access) if value.memObjTuple.flags else None
        return functions.urKernelSetArgMemObj(kernel, index, how, value.memObjTuple.hMem)
    return UR.codes["UR_RESULT_ERROR_INVALID_ENUMERATION"]


def _argument_type() -> Any:
    return UR.struct("ur_exp_kernel_arg_properties_t")


def _converted(routine: str, arguments: Sequence[int]) -> list[Any]:
    """Words as what ctypes takes for the parameters: a `char *` is a c_char_p, which does not take a number."""
    parameters = UR.functions[routine].parameters
    return [
        ctypes.cast(word, ctypes.c_char_p)
        if p.type == "char" and p.stars == 1 and p.const and word
        else word or (None if p.stars else 0)
        for p, word in zip(parameters, arguments, strict=True)
    ]


UR_ERROR_UNSUPPORTED: Final = UR.codes["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"]

_SET_ARGUMENTS: Final = tuple(
    f"urKernelSetArg{kind}" for kind in ("Value", "Pointer", "MemObj", "Local", "Sampler")
)


BRIDGES: Final = (
    _Bridge(
        "urEnqueueKernelLaunch",
        ("urEnqueueKernelLaunch_2025_3",),
        _without(6, "urEnqueueKernelLaunch_2025_3", 0, 0),
    ),
    _Bridge(
        "urEnqueueKernelLaunchWithArgsExp",
        ("urEnqueueKernelLaunch_2025_3", *_SET_ARGUMENTS),
        _with_arguments("urEnqueueKernelLaunch", 6),
    ),
    _Bridge(
        "urCommandBufferAppendKernelLaunchWithArgsExp",
        ("urCommandBufferAppendKernelLaunchExp", *_SET_ARGUMENTS),
        _with_arguments("urCommandBufferAppendKernelLaunchExp", 6),
    ),
    _Bridge(
        "urProgramBuildExp", ("urProgramBuildExp_2025_3",), _without(3, "urProgramBuildExp_2025_3")
    ),
    _Bridge(
        "urProgramCompileExp",
        ("urProgramCompileExp_2025_3",),
        _without(3, "urProgramCompileExp_2025_3"),
    ),
    _Bridge(
        "urProgramLinkExp", ("urProgramLinkExp_2025_3",), _without(3, "urProgramLinkExp_2025_3")
    ),
    _Bridge(
        "urBindlessImagesImageCopyExp",
        ("urBindlessImagesImageCopyExp_2025_3",),
        _without(9, "urBindlessImagesImageCopyExp_2025_3"),
    ),
)
