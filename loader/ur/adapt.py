"""Provides the newest Unified Runtime functions on adapters of an earlier layout.

2025.3 has functions of the same names with other parameters (`…_2025_3` in `UR`). It sets a
kernel's arguments one by one, where the newest API passes them with the launch. `adapt` writes a
function of fairlead into each such slot of a bound table. It is an entry of a layer (`layers`),
whose handler converts the arguments and calls the adapter. No other slot changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from ..base.errors import FairleadError
from ..base.forks import make_lock
from ..base.layers import Layer
from ..base.table import POINTER_SIZE, DispatchTable
from .abi import UR, UR_RESULT_SUCCESS

#: Answers a call, given the adapter's functions and the arguments.
Adaptation: TypeAlias = Callable[["_Functions", Sequence[int]], int]


class _Functions:
    """The functions in a table by name, without the layers in front of it.

    The program did not make these calls, so traces must not contain them.
    """

    def __init__(self, table: DispatchTable) -> None:
        self._table = table
        self._lock = make_lock()
        self._kernel_locks: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        function = UR.functions[name]
        call = function.prototype(self._table.get_pointer(function.slot or 0))
        setattr(self, name, call)
        return call

    def get_kernel_lock(self, kernel: int) -> Any:
        """Return the lock for setting a kernel's arguments and launching it.

        The newest API passes arguments with the launch, so threads may launch one kernel at once.
        """
        with self._lock:
            lock = self._kernel_locks.get(kernel)
            if lock is None:
                lock = self._kernel_locks[kernel] = make_lock()
            return lock


@dataclass(frozen=True)
class _Adaptation:
    """How to provide a function.

    Attributes:
        function: the function of the newest API.
        needs: the functions of the adapter that `answer` calls.
        answer: serves a call by them.
    """

    function: str
    needs: tuple[str, ...]
    answer: Adaptation


def adapt(table: DispatchTable, has: frozenset[str]) -> tuple[frozenset[str], Layer | None]:
    """Fill the slots that an adapter lacks and that can be served by its other functions.

    Returns:
        The functions that were filled, and the layer whose entries are in the table (None if there
        is none). Release the layer when the table no longer uses it.
    """
    usable = [
        adaptation
        for adaptation in ADAPTATIONS
        if adaptation.function not in has and has.issuperset(adaptation.needs)
    ]
    if not usable:
        return frozenset(), None
    answers = {UR.functions[adaptation.function].slot: adaptation.answer for adaptation in usable}
    try:
        layer = Layer(
            UR, 0, UR_ERROR_UNSUPPORTED
        )  # nothing is behind it: its entries answer that when Python is gone
    except FairleadError:  # all layers are in use: the adapter works without the adaptations
        return frozenset(), None
    functions = _Functions(table)
    layer.handle(lambda slot, arguments: answers[slot](functions, arguments))
    for slot in answers:
        entry = slice((slot or 0) * POINTER_SIZE, ((slot or 0) + 1) * POINTER_SIZE)
        ctypes.memmove(table.address + entry.start, layer.address + entry.start, POINTER_SIZE)
    return frozenset(adaptation.function for adaptation in usable), layer


def _make_shorter_call(index: int, routine: str, *inserted: int) -> Adaptation:
    """Return an adaptation that calls `routine` with one argument less.

    Args:
        index: the argument to drop, which must be 0.
        *inserted: arguments to insert in its place.
    """

    def answer(functions: _Functions, arguments: Sequence[int]) -> int:
        if arguments[index]:
            return UR_ERROR_UNSUPPORTED
        return getattr(functions, routine)(
            *_convert_arguments(routine, [*arguments[:index], *inserted, *arguments[index + 1 :]])
        )

    return answer


def _make_call_with_arguments(routine: str, first: int) -> Adaptation:
    """Return an adaptation that sets a kernel's arguments and then calls `routine` without them.

    They are `arguments[first]` structs at the address `arguments[first + 1]`.
    """

    def answer(functions: _Functions, arguments: Sequence[int]) -> int:
        kernel, count, where = arguments[1], arguments[first], arguments[first + 1]
        if count and not where:
            return UR.codes["UR_RESULT_ERROR_INVALID_NULL_POINTER"]
        others = _convert_arguments(routine, [*arguments[:first], *arguments[first + 2 :]])
        with functions.get_kernel_lock(kernel):
            for argument in (_find_argument_type() * count).from_address(where) if count else ():
                code = _set_argument(functions, kernel, argument)
                if code != UR_RESULT_SUCCESS:
                    return code
            return getattr(functions, routine)(*others)

    return answer


def _set_argument(functions: _Functions, kernel: int, argument: Any) -> int:
    """Set an argument (ur_exp_kernel_arg_properties_t) with the function for its type."""
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
        access = UR.get_struct("ur_kernel_arg_mem_obj_properties_t")(
            stype=stype, memoryAccess=value.memObjTuple.flags
        )
        how = ctypes.byref(access) if value.memObjTuple.flags else None
        return functions.urKernelSetArgMemObj(kernel, index, how, value.memObjTuple.hMem)
    return UR.codes["UR_RESULT_ERROR_INVALID_ENUMERATION"]


def _find_argument_type() -> Any:
    return UR.get_struct("ur_exp_kernel_arg_properties_t")


def _convert_arguments(routine: str, arguments: Sequence[int]) -> list[Any]:
    """Convert words to what ctypes accepts: a c_char_p parameter does not accept a number."""
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


ADAPTATIONS: Final = (
    _Adaptation(
        "urEnqueueKernelLaunch",
        ("urEnqueueKernelLaunch_2025_3",),
        _make_shorter_call(6, "urEnqueueKernelLaunch_2025_3", 0, 0),
    ),
    _Adaptation(
        "urEnqueueKernelLaunchWithArgsExp",
        ("urEnqueueKernelLaunch_2025_3", *_SET_ARGUMENTS),
        _make_call_with_arguments("urEnqueueKernelLaunch", 6),
    ),
    _Adaptation(
        "urCommandBufferAppendKernelLaunchWithArgsExp",
        ("urCommandBufferAppendKernelLaunchExp", *_SET_ARGUMENTS),
        _make_call_with_arguments("urCommandBufferAppendKernelLaunchExp", 6),
    ),
    _Adaptation(
        "urProgramBuildExp",
        ("urProgramBuildExp_2025_3",),
        _make_shorter_call(3, "urProgramBuildExp_2025_3"),
    ),
    _Adaptation(
        "urProgramCompileExp",
        ("urProgramCompileExp_2025_3",),
        _make_shorter_call(3, "urProgramCompileExp_2025_3"),
    ),
    _Adaptation(
        "urProgramLinkExp",
        ("urProgramLinkExp_2025_3",),
        _make_shorter_call(3, "urProgramLinkExp_2025_3"),
    ),
    _Adaptation(
        "urBindlessImagesImageCopyExp",
        ("urBindlessImagesImageCopyExp_2025_3",),
        _make_shorter_call(9, "urBindlessImagesImageCopyExp_2025_3"),
    ),
)
