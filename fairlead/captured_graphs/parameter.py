"""Parameters: numbers and buffers that change between the replays of a captured graph.

    dt = fairlead.Parameter(numpy.float32(0.01))
    with fairlead.capture(queue) as graph:
        step(queue, (n,), None, u.data, dt)
    loop = graph.finalize()
    loop.replay(queue, dt=0.02)

A Parameter is never found by its value among the arguments of a launch. One that is passed as it is
has memory of its own, and clSetKernelArg gets its address. If PyOpenCL knows the types of a
kernel's arguments, it asks the Parameter for a number and sets that number next; the Parameter sees
which function asks. A Parameter of a buffer is a memory object of its own, a sub-buffer of all of
it. `numpy.float32(p)` in a block is a Parameter that is computed from p (ConvertedParameter).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import numpy as np

from ..icd._native import ffi, lib
from ..icd.abi import CL_INVALID_MEM_OBJECT
from ..icd.command_buffer.cells import AS_FLOAT, AS_INTEGER, AS_IT_IS, AS_MEMORY
from . import pyopencl_client as _client
from .expressions import BINARY, Expressions, Formula

if TYPE_CHECKING:
    from pyopencl import Buffer
    from pyopencl.array import Array
    from typing_extensions import Self

_Array = TypeVar("_Array", bound="Array")

#: Names that `replay` has for itself.
OPTIONS: Final = ("queue", "times", "wait_for", "wait", "until", "every")
#: What PyOpenCL's functions call sizes of launches, which no Parameter can be.
_SIZES: Final = ("global_size", "local_size", "global_offset")
#: What is known of each Parameter that is one number, whatever number it is.
_OF_ONE_NUMBER: Final = ("shape", "ndim", "size", "itemsize", "nbytes")
#: The last conversion that was refused in a thread: where, and why. C code may drop such an error.
_refused: Final = threading.local()
_ids: Final = itertools.count(1)
#: The Parameters that live, by number.
_alive: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()


def make_number() -> int:
    """Return a number that no Parameter has."""
    return next(_ids)


def find_parameter(number: int) -> Any:
    """Return the Parameter of a number, None if it is gone."""
    return _alive.get(number)


def list_living_memory() -> list[MemoryParameter]:
    """Return the Parameters of buffers that live."""
    living = [ref() for ref in _alive.valuerefs()]  # at once: other threads may make some
    return [one for one in living if isinstance(one, MemoryParameter)]


def _check_name(name: str | None) -> str | None:
    if name is not None and (
        not isinstance(name, str) or not name.isidentifier() or name in OPTIONS
    ):
        raise _client.ArgumentError(
            f"{name!r} cannot be a Parameter's name.",
            routine="Parameter",
            remedy="give a name that replay(queue, name=…) can take",
        )
    return name


class GraphParameter(Expressions):
    """A number or a buffer that changes between the replays of a captured graph.

    Pass it to kernels in a capture block, as often as wanted, as you would pass its value.
    `loop.replay(queue, dt=…)` and `loop.set(dt=…)` change all of these places. Outside of blocks it
    is like its value. In `pyopencl.array` expressions it can stand where a NumPy scalar can: `x *
    dt`, `x += dt`, `x.fill(dt)`.

    Args:
        value: a NumPy scalar; or a pyopencl.Buffer or Array, which gives a Buffer or Array of the
            same memory that is the Parameter.
        name: its name in `replay` and `set`. By default, the name of the one variable that holds it
            where the block ends.

    Raises:
        ArgumentError: the value is a Python number, which has no type, or something else that
            cannot be one; or the name is invalid.
    """

    is_python_float = False

    if TYPE_CHECKING:  # ctypes has it, and PyOpenCL's kernels take what has it
        real: Any
        imag: Any

        def __buffer__(self, flags: int, /) -> memoryview: ...

    @overload
    def __new__(cls, value: _Array, *, name: str | None = None) -> _Array: ...
    @overload
    def __new__(cls, value: Buffer, *, name: str | None = None) -> Buffer: ...
    @overload
    def __new__(cls, value: np.generic | np.ndarray, *, name: str | None = None) -> Self: ...
    def __new__(cls, value: Any, *, name: str | None = None) -> Any:
        """Make a Parameter of the kind that the value asks for."""
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if isinstance(value, np.generic):
            return ctypes.Array.__new__(_make_class(value.dtype.itemsize))
        return _make_memory_parameter(value, _check_name(name))

    def __init__(self, value: Any, *, name: str | None = None) -> None:
        self.name, self.number = _check_name(name), make_number()
        self._value = np.asarray(value)[()]
        #: What it is computed from, and how; None for one that the program made.
        self.source: tuple[GraphParameter, Callable[[Any], Any]] | None = None
        data = self._value.tobytes()
        address = ctypes.addressof(self._get_memory())
        ctypes.memmove(address, data, len(data))
        own = {"f": AS_FLOAT, "i": AS_INTEGER, "u": AS_INTEGER}.get(self.dtype.kind, AS_IT_IS)
        _register(self.number, address, own, len(data))
        _alive[self.number] = self

    @classmethod
    def from_float(cls, value: float, name: str | None) -> GraphParameter:
        """Return a Parameter of a Python float. The other operand decides a result's type."""
        made = cls(np.float64(value), name=name)
        made.is_python_float = True
        return made

    def _get_memory(self) -> Any:
        return self  # an object of ctypes: `__new__` has made one

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values."""
        return self._value.dtype

    @property
    def value(self) -> Any:
        """What the Parameter was made with, a NumPy scalar. A graph begins with it."""
        return float(self._value) if self.is_python_float else self._value

    def derived(self, function: Callable[[Any], Any]) -> GraphParameter:
        """Return a Parameter that is always `function` of this one.

        The function takes a NumPy scalar or an array of them.
        """
        value = function(self.value)
        made = GraphParameter(np.asarray(value)[()], name=self.name)
        made.source, made.is_python_float = (self, function), type(value) is float
        return made

    def _give_number(self, conversion: int, number: Any) -> Any:
        """Return the number.

        In a block only PyOpenCL's function that sets kernel arguments gets it.
        """
        if not lib.fl_is_recording():
            return number
        frame = sys._getframe(2)
        if not _client.is_invoker(frame.f_code):
            raise _refuse(
                f"{self!r} was converted to a number in a capture block: the graph would keep the "
                "number. Pass the Parameter itself to the kernel, and write numpy.sqrt(p) for "
                "math.sqrt(p). For a size or an offset write p.value, which replays keep",
                frame,
            )
        sizes = (frame.f_locals.get(name) for name in _SIZES)
        if any(self is one for given in sizes if isinstance(given, (tuple, list)) for one in given):
            raise _refuse(
                f"{self!r} is a size or an offset of a launch: the graph would keep the number. "
                "Write p.value, and change it by update_range or update_nd_range of the node",
                frame,
            )
        if "pack" in frame.f_code.co_names:
            raise TypeError(
                f"{self!r} is an argument of a kernel that has complex numbers, half, bool or long "
                "long among its declared types. Do not declare the types of that kernel's arguments"
            )
        real, integer = (number, 0) if conversion == AS_FLOAT else (0.0, number)
        signed = (integer + (1 << 63)) % (1 << 64) - (1 << 63)
        kernel = ffi.cast("void *", frame.f_locals["self"].int_ptr)
        lib.fl_convert_parameter(self.number, conversion, kernel, real, signed)
        return number

    def __float__(self) -> float:
        return self._give_number(AS_FLOAT, float(self._value))

    def __int__(self) -> int:
        return self._give_number(AS_INTEGER, int(self._value))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise _refuse(f"{self!r} is not a whole number", sys._getframe(1))
        return self._give_number(AS_INTEGER, int(self._value))

    def __round__(self, digits: int | None = None) -> Any:
        """Return what Python's `round` gives. In a block that is a Parameter, too."""
        if not lib.fl_is_recording():
            return round(self.value, digits)
        return (
            self.derived(Formula("round", digits))
            if digits is not None
            else _make_whole(self, "rint")
        )

    def __floor__(self) -> Any:
        return _make_whole(self, "floor")

    def __ceil__(self) -> Any:
        return _make_whole(self, "ceil")

    def astype(self, dtype: Any, *, copy: bool = True) -> GraphParameter:
        """Return a Parameter that is this number in another type."""
        return self.derived(Formula("astype", np.dtype(dtype)))

    if not TYPE_CHECKING:  # or a type checker would find no misspelt attribute

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the number. In a block the graph would keep most of them."""
            value = self.value if "_value" in vars(self) and name[0] != "_" else None
            found = getattr(value, name, None)
            if found is None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            if name not in _OF_ONE_NUMBER and lib.fl_is_recording():
                raise AttributeError(
                    f"{self!r} was asked for its number's {name} in a capture block, as kernels do "
                    "that have complex numbers: the graph would keep it. Write a kernel that takes "
                    f"the real and the imaginary part as two Parameters, or p.value.{name}"
                    if name in ("real", "imag")
                    else f"{self!r} was asked for its number's {name} in a capture block: the "
                    f"graph would keep it. Write p.value.{name} if that is meant"
                )
            return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return what NumPy makes an array or a number of."""
        if not lib.fl_is_recording():
            return np.asarray(self.value, dtype)
        if dtype is None or dtype.kind not in "biufc":
            raise TypeError(_describe_array(self))
        return ConvertedParameter.offer(self)

    def __bytes__(self) -> bytes:
        if lib.fl_is_recording():
            raise TypeError(
                f"{self!r} was made bytes in a capture block: the graph would keep its number. "
                "Pass the Parameter itself to the kernel; p.value.tobytes() are the bytes"
            )
        return self._value.tobytes()

    def __bool__(self) -> bool:
        if lib.fl_is_recording():
            raise TypeError(
                f"{self!r} was tested in a capture block: the graph would keep the outcome"
            )
        return bool(self._value)

    def __format__(self, form: str) -> str:
        if form and lib.fl_is_recording():
            raise TypeError(
                f"{self!r} was formatted as a number in a capture block: the text would keep the "
                "number. Write p.value if that is meant"
            )
        return format(self._value, form) if form else repr(self)

    def __copy__(self, *_: Any) -> Self:
        """Return itself, as numbers do: graphs know it by its identity."""
        return self

    __deepcopy__ = __copy__

    def __reduce_ex__(self, *_: Any) -> Any:
        if self.source is None:
            return partial(GraphParameter, name=self.name), (self._value,)
        source, function = self.source
        return source.derived, (function,)

    def __del__(self) -> None:
        if lib is not None and "number" in self.__dict__:
            lib.fl_forget_parameter(self.number)

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<Parameter{name}: {self.dtype} {self._value}>"


def _register(number: int, key: int, conversion: int, size: int) -> None:
    code = lib.fl_know_parameter(ffi.cast("void *", key), number, conversion, size)
    if code == CL_INVALID_MEM_OBJECT:
        raise _client.ArgumentError(
            "a buffer of swap is a Parameter, or alternates in another block that has not ended.",
            routine="capture",
            remedy="name a buffer in one pair of one block at a time, and no Parameter",
        )
    if code:
        raise MemoryError("no memory for a Parameter")


def _make_whole(parameter: GraphParameter, function: str) -> Any:
    """Return the Parameter of a whole number, as Python's functions of that name do."""
    if not lib.fl_is_recording():
        return int(getattr(np, function)(parameter.value))
    return parameter.derived(Formula(function)).astype(np.int64)


def _refuse(why: str, frame: FrameType) -> TypeError:
    """Return the error of a conversion, and remember where it was asked for."""
    _refused.last = frame.f_code, frame.f_lineno, why
    return TypeError(why)


def find_swallowed_refusal(raised: BaseException | None) -> str | None:
    """Return why an error has come out of a block, if C code or PyOpenCL did not take a Parameter.

    They say a type that they do not know, or nothing. What was refused before is forgotten.
    """
    last, _refused.last = getattr(_refused, "last", None), None
    places = [(one.tb_frame, one.tb_lineno) for one in _walk(raised and raised.__traceback__)]
    if places and places[-1][0].f_code.co_name == "__getattr__":
        places.pop()
    if not places or not isinstance(raised, Exception):
        return None
    frame, line = places[-1]
    if last and last[:2] == (frame.f_code, line) and str(raised) != last[2]:
        return last[2]
    for frame, _ in reversed(places if not _client.is_pyopencl_error(raised) else ()):
        is_invoker = _client.is_invoker(frame.f_code)
        if not is_invoker and not _client.is_of_pyopencl(frame):
            return None
        for name, one in frame.f_locals.items():
            if isinstance(one, GraphParameter) and (not is_invoker or name in _SIZES):
                where = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
                return (
                    f"{one!r} was given to {where}, which takes no Parameter here. Write p.value, "
                    "which replays keep, or a kernel that takes the Parameter"
                )
    return None


def _walk(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace:
        yield trace
        trace = trace.tb_next


def _refuse_items(parameter: Any, *_: Any) -> Any:
    raise TypeError(f"{parameter!r} is one number")


#: Who asks for a buffer with this flag wants a type and a shape, too (PyBUF_FORMAT).
_FORMAT: Final = 4


def _give_memory(parameter: Any, flags: int) -> memoryview:
    """Return the memory as bytes. In a block only PyOpenCL gets it without a warning."""
    if flags & _FORMAT:  # NumPy asks for `__array__` then
        raise BufferError(f"{parameter!r} is one number: p.value.tobytes() are its bytes")
    if lib.fl_is_recording():
        frame = sys._getframe(1)
        if not (
            _client.is_invoker(frame.f_code)
            or "set_arg" in frame.f_code.co_names
            or frame.f_globals.get("__name__") == "pyopencl"  # its transfers, which are refused
        ):
            from .swaps import CaptureWarning

            warnings.warn(
                f"the memory of {parameter!r} is read in a capture block. The graph will not "
                "notice other numbers there. Pass the Parameter itself to the kernel",
                CaptureWarning,
                stacklevel=2,
            )
    kind = ctypes.c_ubyte * ctypes.sizeof(parameter)
    return memoryview(kind.from_address(ctypes.addressof(parameter)))


#: What replaces the methods of arrays, which Parameters are for PyOpenCL and NumPy.
_ONE_NUMBER: Final = {
    "__iter__": None,
    "__contains__": None,
    **dict.fromkeys(("__len__", "__getitem__", "__setitem__"), _refuse_items),
}
#: More dimensions than a memoryview can have, so that NumPy asks for `__array__` instead.
_DIMENSIONS: Final = 65


@cache
def _make_class(size: int) -> type[Any]:
    """Return the class of Parameters of so many bytes: an array of ctypes.

    PyOpenCL passes its memory on as it is. NumPy would make a number or an array of that, and its
    origin would be lost.
    """
    kind: Any = ctypes.c_ubyte * size
    for _ in range(_DIMENSIONS - 2):
        kind = kind * 1
    members = {"_type_": kind, "_length_": 1, "__module__": __name__, **_ONE_NUMBER}
    if sys.version_info >= (3, 12):  # before, Python code does not see who asks
        members["__buffer__"] = _give_memory
    return type("Parameter", (GraphParameter, ctypes.Array), members)


def _describe_array(parameter: GraphParameter) -> str:
    return (
        f"{parameter!r} was made an array in a capture block: the graph would keep its number. "
        "Pass the Parameter itself, or numpy.float32(p) for another type; p.value is the number"
    )


class _Element:
    """The element of an array that a Parameter offers. It refuses to become a number."""

    def __init__(self, parameter: GraphParameter) -> None:
        self._parameter = parameter

    def _refuse(self) -> Any:
        raise TypeError(_describe_array(self._parameter))

    __float__ = __int__ = __index__ = __complex__ = __bool__ = _refuse


#: What NumPy's errors say of arrays that are made of `numpy.float32(p)`, in the name of a member.
_NO_COPY: Final = "numpy.float32(p) is a Parameter: pass it as it is, or p.astype(numpy.float64)"


@cache
def _make_closed_type(size: int) -> np.dtype[Any]:
    """Return a type that NumPy casts to no number, since it has two members."""
    names, formats = [_NO_COPY, "and"], ["V1", "V1"]
    return np.dtype({"names": names, "formats": formats, "offsets": [0, 0], "itemsize": size})


class ConvertedParameter(GraphParameter, np.ndarray):  # pyright: ignore[reportIncompatibleMethodOverride]
    """What `numpy.float32(p)` gives in a capture block: a Parameter of that type, computed from p.

    NumPy's types return what `__array__` gives, cast, if it has a dimension; and a cast keeps the
    class of an array. Everything else that NumPy makes of `__array__` loses the class, and asks the
    element for a number, which it refuses.

    The array is empty, and NumPy can cast nothing to or from its type. So no copy of it is a
    number, and a kernel takes no argument without bytes. C knows the address, and takes the
    Parameter's bytes for it.
    """

    _offered: GraphParameter | None = None

    @staticmethod
    def offer(parameter: GraphParameter) -> Any:
        """Return an array that a type of NumPy casts to a ConvertedParameter."""
        elements = np.empty(1, object)
        elements[0] = _Element(parameter)
        made = elements.view(ConvertedParameter)
        made._offered = parameter
        return made

    def __array_finalize__(self, array: Any) -> None:
        """Become the Parameter, if NumPy is casting what one has offered."""
        offered: Any = getattr(array, "_offered", None)
        dtype = vars(np.ndarray)["dtype"].__get__(self)
        if offered is None or dtype.hasobject:
            return
        function = Formula("astype", dtype)
        value = function(offered.value)
        state: Any = (1, (0,), _make_closed_type(dtype.itemsize), False, b"")
        np.ndarray.__setstate__(self, state)  # NumPy 2.5 warns of those who set `dtype`
        self._memory = (ctypes.c_ubyte * dtype.itemsize)()
        GraphParameter.__init__(self, value, name=offered.name)
        self.source = offered, function
        address = self.__array_interface__["data"][0]
        lib.fl_stand_for_parameter(self.number, ffi.cast("void *", address))

    def _get_memory(self) -> Any:
        return self._memory

    def __array_function__(self, *_: Any) -> Any:
        raise TypeError(_describe_array(self))

    def __reduce_ex__(self, *_: Any) -> Any:
        raise TypeError(_describe_array(self))

    def leave_to_operator(self, other: Any) -> Any:
        """`x += 1` is `x = x + 1`."""
        return NotImplemented

    __str__ = GraphParameter.__repr__


def _hide_array() -> None:
    """Take the attributes of arrays from converted Parameters."""

    for name in dir(np.ndarray):
        if not name.startswith("__") and not hasattr(GraphParameter, name):
            setattr(ConvertedParameter, name, property(doc="asks GraphParameter.__getattr__"))
    for name, _ in BINARY.values():
        setattr(ConvertedParameter, f"__i{name}__", ConvertedParameter.leave_to_operator)
    for name, method in _ONE_NUMBER.items():
        setattr(ConvertedParameter, name, method)


_hide_array()


class MemoryParameter:
    """The facts about a Parameter that is a buffer or an array. The buffer that stands for it owns
    it.

    Attributes:
        number, name: as of a Parameter.
        value: the buffer or array that it was made of.
        buffer: the same as a buffer.
        handle: the handle of the memory object that stands for it.
    """

    source = None

    def __init__(self, value: Any, buffer: Any, alias: Any, name: str | None) -> None:
        import pyopencl

        self.number, self.name = make_number(), name
        self.value, self.buffer, self.handle = value, buffer, alias.int_ptr
        #: While this lives no other memory object has the handle. It does not refer to the alias.
        self._kept = pyopencl.Buffer.from_int_ptr(self.handle)
        _register(self.number, self.handle, AS_MEMORY, 8)
        _alive[self.number] = self

    @classmethod
    def of_itself(cls, buffer: Any) -> MemoryParameter:
        """Return a Parameter with a buffer itself, not a sub-buffer. Nothing else may use it."""
        return cls(buffer, buffer, buffer, None)

    def forget(self) -> None:
        """Remove the Parameter from the table in which C looks memory objects up."""
        lib.fl_forget_parameter(self.number)
        _alive.pop(self.number, None)

    def __del__(self) -> None:
        if lib is not None and "number" in self.__dict__:
            lib.fl_forget_parameter(self.number)


def find_root(parameter: Any) -> Any:
    """Return the Parameter that the program made, from which this one is computed."""
    while parameter.source is not None:
        parameter = parameter.source[0]
    return parameter


def find_names(variables: Mapping[str, Any], parameters: Iterable[Any]) -> dict[int, str]:
    """Return the names of Parameters, by number: their own, or that of the one variable that holds
    each."""
    roots = {root.number: root for root in map(find_root, parameters)}
    names = {number: root.name for number, root in roots.items() if root.name}
    found: dict[int, list[str]] = {}
    for name, value in variables.items() if len(names) < len(roots) else ():
        entry = find_entry(value)
        if entry is not None and entry.number in roots and name not in OPTIONS:
            found.setdefault(entry.number, []).append(name)
    unnamed = {number: one[0] for number, one in found.items() if len(one) == 1}
    return unnamed | names


#: The attribute of a buffer by which it owns its MemoryParameter.
_ATTRIBUTE: Final = "fairlead_parameter"


def find_entry(thing: Any) -> Any:
    """Return the Parameter that something is, or the MemoryParameter of a buffer or array, else
    None."""
    try:
        if isinstance(thing, GraphParameter):
            return thing
        return getattr(getattr(thing, "base_data", thing), _ATTRIBUTE, None)
    except Exception:  # a variable of the program that cannot even be looked at
        return None


def _make_memory_parameter(value: Any, name: str | None) -> Any:
    import pyopencl
    from pyopencl.array import Array

    buffer: Any = value.base_data if isinstance(value, Array) else value
    if not isinstance(buffer, pyopencl.MemoryObjectHolder) or isinstance(buffer, pyopencl.Image):
        raise _client.ArgumentError(
            f"{type(value).__name__} cannot be a Parameter.",
            routine="Parameter",
            remedy="give a NumPy scalar, such as numpy.float32(0.01), a pyopencl.Buffer or an "
            "Array",
        )
    whole, offset = buffer, 0
    parent: Any = buffer.get_info(pyopencl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is not None:
        whole, offset = parent, buffer.get_info(pyopencl.mem_info.OFFSET)
    plain: Any = pyopencl.Buffer.from_int_ptr(whole.int_ptr)  # a pool's buffers have no sub-buffers
    alias: Any = plain.get_sub_region(offset, buffer.size)
    setattr(alias, _ATTRIBUTE, MemoryParameter(value, buffer, alias, name))
    if not isinstance(value, Array):
        return alias
    made = object.__new__(type(value))  # a class derived from Array has operators of its own
    # The list of events is the same one: PyOpenCL orders uses of one memory by it alone.
    vars(made).update(vars(value), base_data=alias, allocator=None)
    return made


#: What programs call it: `fairlead.Parameter`.
Parameter = GraphParameter
