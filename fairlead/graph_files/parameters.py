"""Parameters of numbers in a file: their first values, and how others follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..captured_graphs.block import CapturedBlock
from ..captured_graphs.expressions import Formula, count_operands
from ..captured_graphs.parameter import GraphParameter
from .errors import make_invalid_error, make_save_error
from .naming import find_type_name

_TYPES: Final = frozenset(("astype", "inverse"))
_NUMBER: Final = re.compile(r"[<>|][biufc](1|2|4|8|16)")
#: Python's own numbers. NumPy converts them by other rules than its scalars.
_PYTHON: Final[Mapping[str, tuple[type, str]]] = {
    "int": (int, "<i8"),
    "float": (float, "<f8"),
    "complex": (complex, "<c16"),
}


def make_row(
    parameter: GraphParameter, block: CapturedBlock, whole: Callable[[Any], int]
) -> dict[str, Any]:
    """Return a Parameter as a file has it.

    Args:
        whole: gives the number of the Parameter that it is computed from.

    Raises:
        GraphFileError: nobody can tell how it is computed.
    """
    if parameter.source is None:
        name = block.names.get(parameter.number, "")
        row = _encode_scalar(np.asarray(parameter.value))
        return {"name": name, **row} if name else row
    source, function = parameter.source
    if isinstance(function, Formula) and function.other is None:
        step: list[Any] = [function.name]
    elif isinstance(function, Formula) and function.name in _TYPES:
        step = [function.name, function.other.str]
    elif isinstance(function, Formula):
        step = [function.name, _encode_operand(function.other), function.forward]
    else:
        raise make_save_error(
            f"{parameter!r} is computed from another Parameter by a function of the program",
            "make it a Parameter of its own",
        )
    return {"from": whole(source), "steps": [step]}


def _encode_scalar(value: np.ndarray) -> dict[str, str]:
    return {"dtype": find_type_name(value.dtype), "value": value.tobytes().hex()}


def _encode_operand(number: Any) -> dict[str, str]:
    for name, (kind, dtype) in _PYTHON.items():
        if type(number) is kind:
            try:
                return {"python": name, **_encode_scalar(np.asarray(number, dtype))}
            except OverflowError:
                raise make_save_error(
                    f"a Parameter is computed with {number}, which has more than 64 bits",
                    "compute with a smaller number",
                ) from None
    return _encode_scalar(np.asarray(number))


def make_parameter(row: Mapping[str, Any]) -> GraphParameter:
    """Return the Parameter of a row of a file that has a value of its own."""
    return GraphParameter(_decode_value(row), name=row.get("name"))


def derive_parameter(source: GraphParameter, row: Mapping[str, Any]) -> GraphParameter:
    """Return the Parameter of a row of a file that is computed from another one.

    Raises:
        GraphFileError: it cannot be computed.
    """
    made = source
    for step in row["steps"]:
        try:
            with np.errstate(all="ignore"):
                made = made.derived(_make_function(step))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise make_invalid_error(f"a Parameter cannot be computed: {error}") from None
    return made


def _make_function(step: list[Any]) -> Callable[[Any], Any]:
    if len(step) == 1:
        return Formula(step[0])
    if step[0] in _TYPES:
        return Formula(step[0], np.dtype(step[1]))
    number = _decode_value(step[1])
    if "python" in step[1]:
        number = _PYTHON[step[1]["python"]][0](number)
    return Formula(step[0], number, step[2])


def _decode_value(row: Mapping[str, Any]) -> Any:
    return np.frombuffer(bytes.fromhex(row["value"]), row["dtype"])[0]


def is_step(step: Any) -> bool:
    """Whether a value of a file is a step that a Parameter is computed by."""
    if not isinstance(step, list) or not step or not isinstance(step[0], str):
        return False
    if len(step) == 1:
        return count_operands(step[0]) == 1
    if step[0] in _TYPES:
        return len(step) == 2 and _is_dtype(step[1])
    if count_operands(step[0]) != 2 or len(step) != 3 or type(step[2]) is not bool:
        return False
    number = step[1]
    if not isinstance(number, dict) or not number.keys() <= {"python", "dtype", "value"}:
        return False
    dtype, value, python = (number.get(name) for name in ("dtype", "value", "python"))
    if not isinstance(dtype, str) or not _is_dtype(dtype) or not isinstance(value, str):
        return False
    has_size = re.fullmatch(r"([0-9a-f]{2})+", value) and len(value) == 2 * int(dtype[2:])
    kind = _PYTHON.get(python) if isinstance(python, str) else None
    return bool(has_size) and (python is None or (kind is not None and kind[1] == dtype))


def _is_dtype(value: Any) -> bool:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return False
    try:
        return np.dtype(value).kind == value[1]
    except TypeError:
        return False
