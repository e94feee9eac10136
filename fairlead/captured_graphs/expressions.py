"""Parameters in expressions: what `x * dt` launches for an array of PyOpenCL, and what `dt * 2` and
`numpy.sqrt(dt)` are.

PyOpenCL's operators convert a number to the array's type before they pass it on. Then nothing shows
where it came from. But they leave what is not a number to the other operand. So a Parameter makes
the same launch as PyOpenCL does for a number, and passes itself: as it is, negated, or one divided
by it.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import numpy as np

from ..icd._native import lib

if TYPE_CHECKING:
    from pyopencl.array import Array
    from typing_extensions import Self

_Array = TypeVar("_Array", bound="Array")
_Number = int | float | complex | np.number


def _find_common_type(array: Any, parameter: Any) -> np.dtype[Any]:
    """Return the type of a result, as PyOpenCL finds it."""
    # PyOpenCL's own rule, which has no public name; so it is with that of quotients.
    from pyopencl.array import _get_common_dtype  # pyright: ignore[reportPrivateUsage]

    return _get_common_dtype(array, parameter.value, array.queue)


def _find_quotient_type(array: Any, parameter: Any) -> np.dtype[Any]:
    from pyopencl.array import _get_truedivide_dtype  # pyright: ignore[reportPrivateUsage]

    return _get_truedivide_dtype(array, parameter.value, array.queue)


def _find_truth_type(array: Any, parameter: Any) -> np.dtype[Any]:
    return np.dtype(np.int8)


@dataclass(frozen=True)
class Formula:
    """How a Parameter follows from another one. Graph files write it down (graph_files/).

    Attributes:
        name: "astype", "inverse", an operator's sign, "round", or a universal function of NumPy.
        other: the type of the result, that of the dividend 1, the other operand, a number, or None
            if there is none.
        forward: whether the Parameter is the operator's first operand.
    """

    name: str
    other: Any = None
    forward: bool = True

    def __call__(self, value: Any) -> Any:
        """Compute from a NumPy scalar or an array of them."""
        if self.name == "astype":
            if type(value) is float:  # a number that does not fit is an error, as it is in NumPy
                return self.other.type(value)
            return np.asarray(value).astype(self.other)[()]
        if self.name == "inverse":
            # NumPy 1 may find a wider type than that of the quotient, and PyOpenCL's `/` passes it
            return np.true_divide(self.other.type(1), value)
        function = _FUNCTIONS.get(self.name) or getattr(np, self.name)
        if self.other is None:
            return function(value)
        return function(value, self.other) if self.forward else function(self.other, value)


def count_operands(name: str) -> int:
    """Return how many operands a formula's function has, 0 if there is none of that name."""
    if name in _FUNCTIONS:
        return 1 if name in _UNARY else 2
    function = getattr(np, name, None)
    return function.nin if isinstance(function, np.ufunc) and _gives_one_number(function) else 0


def _gives_one_number(function: np.ufunc) -> bool:
    return function.nout == 1 and function.nin <= 2 and function.signature is None


def _cast(parameter: Any, dtype: np.dtype[Any]) -> Any:
    """Return a Parameter as a number of a type."""
    return parameter if parameter.dtype == dtype else parameter.derived(Formula("astype", dtype))


def _invert(parameter: Any, dtype: np.dtype[Any]) -> Any:
    return parameter.derived(Formula("inverse", dtype))


#: For `x sign p`: the type of a new result, PyOpenCL's launch, and its arguments after the result.
#: `c` is the type of the result.
_Row = tuple[Callable[[Any, Any], Any], str, Callable[[Any, Any, Any], tuple[Any, ...]]]
_OPERATORS: Final[dict[str, _Row]] = {
    "x + p": (_find_common_type, "_axpbz", lambda x, p, c: (x.dtype.type(1), x, _cast(p, c))),
    "x - p": (_find_common_type, "_axpbz", lambda x, p, c: (x.dtype.type(1), x, -p)),
    "p - x": (_find_common_type, "_axpbz", lambda x, p, c: (c.type(-1), x, _cast(p, c))),
    "x * p": (_find_common_type, "_axpbz", lambda x, p, c: (_cast(p, c), x, x.dtype.type(0))),
    "x / p": (_find_quotient_type, "_axpbz", lambda x, p, c: (_invert(p, c), x, x.dtype.type(0))),
    "p / x": (_find_quotient_type, "_rdiv_scalar", lambda x, p, c: (x, _cast(p, c))),
    "x ** p": (_find_common_type, "_pow_scalar", lambda x, p, c: (x, p)),
    "p ** x": (_find_common_type, "_rpow_scalar", lambda x, p, c: (_cast(p, c), x)),
    "x += p": (_find_common_type, "_axpbz", lambda x, p, c: (x.dtype.type(1), x, p)),
    "x -= p": (_find_common_type, "_axpbz", lambda x, p, c: (x.dtype.type(1), x, -p)),
    "x *= p": (_find_common_type, "_axpbz", lambda x, p, c: (p, x, x.dtype.type(0))),
    "x /= p": (
        _find_quotient_type,
        "_axpbz",
        lambda x, p, c: (_cast(1 / p, c), x, x.dtype.type(0)),
    ),
}
_OPERATORS["p + x"], _OPERATORS["p * x"] = _OPERATORS["x + p"], _OPERATORS["x * p"]

#: The operators of one operand, by the names of Python and of NumPy.
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "negative": operator.neg,
    "positive": operator.pos,
    "absolute": operator.abs,
    "invert": operator.invert,
}
#: Those of two: the name of Python, and the function of NumPy.
BINARY: Final[dict[str, tuple[str, np.ufunc]]] = {
    "+": ("add", np.add),
    "-": ("sub", np.subtract),
    "*": ("mul", np.multiply),
    "/": ("truediv", np.true_divide),
    "**": ("pow", np.power),
    "//": ("floordiv", np.floor_divide),
    "%": ("mod", np.remainder),
    "<<": ("lshift", np.left_shift),
    ">>": ("rshift", np.right_shift),
    "&": ("and", np.bitwise_and),
    "|": ("or", np.bitwise_or),
    "^": ("xor", np.bitwise_xor),
}
#: Each comparison: its name, NumPy's function, and how it reads from the other side.
_COMPARED: Final[dict[str, tuple[str, np.ufunc, str]]] = {
    "<": ("lt", np.less, ">"),
    ">": ("gt", np.greater, "<"),
    "<=": ("le", np.less_equal, ">="),
    ">=": ("ge", np.greater_equal, "<="),
    "==": ("eq", np.equal, "=="),
    "!=": ("ne", np.not_equal, "!="),
}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **_UNARY,
    **{sign: getattr(operator, f"__{name}__") for sign, (name, _) in BINARY.items()},
    **{sign + "=": getattr(operator, f"__i{name}__") for sign, (name, _) in BINARY.items()},
    "round": np.round,
}
#: The sign of what NumPy calls a function: for operators of its numbers it calls that.
_SIGNS: Final = {
    **{function: sign for sign, (_, function) in BINARY.items()},
    **{function: sign for sign, (_, function, _) in _COMPARED.items()},
}
#: Python 3.10 has an instruction for each operator.
_OLD_NAMES: Final = {
    f"{kind}_{name}": sign + ("=" if kind == "INPLACE" else "")
    for kind in ("BINARY", "INPLACE")
    for name, sign in (
        ("ADD", "+"),
        ("SUBTRACT", "-"),
        ("MULTIPLY", "*"),
        ("TRUE_DIVIDE", "/"),
        ("POWER", "**"),
    )
}


def _read_operator(frame: Any) -> str | None:
    """Return the operator that a frame is executing, such as "+=".

    None means that it is not an operator of the program's text.
    """
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            if instruction.opname == "BINARY_OP":
                return instruction.argrepr
            return _OLD_NAMES.get(instruction.opname)
    return None


def _run(launch: str, result: Any, *arguments: Any, **options: Any) -> Any:
    """Make a launch of PyOpenCL's, whose kernel is chosen by the values of Parameters."""
    from pyopencl.array import Array, elwise_kernel_runner

    choose = getattr(Array, launch).__wrapped__

    def get_kernel(result: Any, *given: Any) -> Any:
        values = [one.value if isinstance(one, Expressions) else one for one in given]
        return choose(result, *values, **options)

    return elwise_kernel_runner(get_kernel)(result, *arguments)


def _is_array(thing: Any) -> bool:
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(thing, module.Array)


class Expressions:
    """The operators of Parameters."""

    value: Any
    derived: Callable[[Callable[[Any], Any]], Any]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Return the Parameter that a function of NumPy makes of this one and of numbers.

        NumPy's numbers and arrays leave their operators to it, too.
        """
        if method == "__call__" and not options and _gives_one_number(ufunc):
            made = self._apply(ufunc, *inputs)
            if made is not NotImplemented:
                return made
        if lib.fl_is_recording():
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise TypeError(
                f"{name} would make an array of {self!r} in a capture block: the graph would keep "
                "the number. It computes from one Parameter and numbers; p.value is the number"
            )
        values = (one.value if isinstance(one, Expressions) else one for one in inputs)
        return getattr(ufunc, method)(*values, **options)

    def _apply(self, ufunc: np.ufunc, first: Any, second: Any = None) -> Any:
        name: str = _SIGNS.get(ufunc) or ufunc.__name__
        if ufunc.nin == 1:  # NumPy makes its own number of Python's
            one = self if isinstance(self.value, np.generic) else _cast(self, np.dtype(float))
            return one.derived(Formula(name) if getattr(np, name, None) is ufunc else ufunc)
        forward = first is self
        other = second if forward else first
        if name in _COMPARED:
            return self._compare(other, name if forward else _COMPARED[name][2])
        if name not in _FUNCTIONS and getattr(np, name, None) is not ufunc:
            return NotImplemented  # such as one of SciPy's
        return self._combine(other, name, forward)

    def _combine(self, other: Any, sign: str, forward: bool) -> Any:
        """`other sign self`, or `self sign other` if `forward`."""
        if isinstance(other, np.ndarray) and not isinstance(other, Expressions) and not other.ndim:
            other = other[()]
        if isinstance(other, (int, float, complex, np.number)):
            return self.derived(Formula(sign, other, forward))
        if isinstance(other, Expressions):
            raise TypeError(
                f"{self!r} {sign} {other!r}: a graph computes from one Parameter. Make the result "
                "a Parameter, and set that"
            )
        if not _is_array(other) or f"p {sign} x" not in _OPERATORS:
            return NotImplemented
        written = _read_operator(sys._getframe(2))
        if written not in (sign, sign + "="):
            raise TypeError(
                f"a Parameter cannot be the operand of a function: write the operator, x {sign} p"
            )
        if lib.fl_is_recording():
            return self._launch(other, f"p {sign} x" if forward else f"x {written} p")
        function = _FUNCTIONS[written]
        return function(self.value, other) if forward else function(other, self.value)

    def _launch(self, array: Any, expression: str) -> Any:
        row = _OPERATORS.get(expression)
        if row is None:
            raise TypeError(f"{expression} is not there for Parameters: write it without the =")
        kind_of, launch, arguments = row
        kind, in_place = kind_of(array, self), "=" in expression
        if (
            in_place
            and launch
            and "/" in expression
            and not np.can_cast(kind, array.dtype, "same_kind")
        ):
            raise TypeError(f"Cannot cast {array.dtype!r} to {kind!r}")
        result = array if in_place else array._new_like_me(kind)
        result.add_event(_run(launch, result, *arguments(array, self, kind)))
        return result

    def _compare(self, other: Any, sign: str) -> Any:
        """`self sign other`."""
        if _is_array(other):
            mirrored = _COMPARED[sign][2]
            if not lib.fl_is_recording():
                return _compare_numbers(mirrored, other, self.value)
            result = other._new_like_me(_find_truth_type(other, self))
            result.add_event(_run("_scalar_comparison", result, other, self, op=mirrored))
            return result
        number = other.value if isinstance(other, Expressions) else other
        if other is self or not isinstance(number, (int, float, complex, np.number)):
            return NotImplemented
        if lib.fl_is_recording():
            raise TypeError(
                f"{self!r} was compared in a capture block: the graph would keep the outcome"
            )
        return _compare_numbers(sign, self.value, number)

    if TYPE_CHECKING:  # _give_operators makes them

        @overload
        def __add__(self, other: _Number) -> Self: ...
        @overload
        def __add__(self, other: _Array) -> _Array: ...
        def __add__(self, other: Any) -> Any: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__
        __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __add__

        def __mod__(self, other: _Number, /) -> Self: ...

        __floordiv__ = __rfloordiv__ = __rmod__ = __mod__
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __mod__
        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __mod__

        def __neg__(self) -> Self: ...

        __pos__ = __abs__ = __invert__ = __neg__

        @overload
        def __lt__(self, other: _Number) -> bool: ...
        @overload
        def __lt__(self, other: _Array) -> _Array: ...
        def __lt__(self, other: Any) -> Any: ...

        __le__ = __gt__ = __ge__ = __lt__


def _compare_numbers(sign: str, first: Any, second: Any) -> Any:
    return getattr(operator, _COMPARED[sign][0])(first, second)


def _give_operators() -> None:
    """Give Expressions the methods that Python looks for."""
    for name in _UNARY:

        def apply(self: Any, name: str = name) -> Any:
            return self.derived(Formula(name))

        setattr(Expressions, f"__{_UNARY[name].__name__}__", apply)
    for sign, (name, _) in BINARY.items():
        for prefix, forward in (("", True), ("r", False)):

            def combine(self: Any, other: Any, sign: str = sign, forward: bool = forward) -> Any:
                return self._combine(other, sign, forward)

            setattr(Expressions, f"__{prefix}{name}__", combine)
    for sign, (name, _, _) in _COMPARED.items():

        def compare(self: Any, other: Any, sign: str = sign) -> Any:
            return self._compare(other, sign)

        setattr(Expressions, f"__{name}__", compare)
    Expressions.__hash__ = object.__hash__


_give_operators()
