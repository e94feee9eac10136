"""What capture knows about PyOpenCL: its handles, owners of host memory, and calling lines.

A captured transfer uses its host memory when the graph is replayed. So the owner of that memory has
to live as long as the graph. OpenCL only sees an address. But a caller of PyOpenCL has the array in
a variable, at least in PyOpenCL's own parameter. So the owner is found among the variables of the
calling functions. PyOpenCL is not imported before it is needed.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Generic, TypeVar

from .. import noted_programs
from ..icd._native import ffi
from ..icd.abi import CL_INVALID_CONTEXT
from ..icd.calls import query_program
from ..icd.errors import error
from ..loader.base.errors import FairleadError
from ..loader.base.interrupts import mark_uninterrupted

#: How many frames up from the call an owner is searched: PyOpenCL's wrappers and the program's
#: function that called them.
_DEPTH: Final = 12


_T = TypeVar("_T")


class ArgumentError(FairleadError, TypeError):
    """An argument is of the wrong type."""


def get_handle(thing: Any, kind: str, routine: str) -> int:
    """Return the OpenCL handle of a PyOpenCL object of class `kind`. Raises ArgumentError.

    Args:
        kind: the name of its class in PyOpenCL, "CommandQueue".
        routine: named in errors.
    """
    import pyopencl

    if not isinstance(thing, getattr(pyopencl, kind)):
        raise ArgumentError(
            f"expected a pyopencl.{kind}, got {type(thing).__name__}.",
            routine=routine,
            remedy=f"pass the pyopencl.{kind} itself",
        )
    return thing.int_ptr


def is_device_object(thing: Any) -> bool:
    """Return whether something is a PyOpenCL buffer, image, sampler or SVM allocation, or holds
    one."""
    import pyopencl

    kinds = pyopencl.MemoryObjectHolder, pyopencl.SVMPointer, pyopencl.Sampler
    return isinstance(getattr(thing, "base_data", thing), kinds)


def find_buffer(thing: Any, routine: str) -> Any:
    """Return the pyopencl.Buffer that something is, or that an array lies in.

    Raises ArgumentError.
    """
    if not find_buffer_handle(thing):
        raise ArgumentError(
            f"expected a pyopencl.Buffer or an Array, got {type(thing).__name__}.",
            routine=routine,
            remedy="pass the buffer itself",
        )
    return getattr(thing, "base_data", thing)


def find_buffer_handle(thing: Any) -> int:
    """Return the handle of a pyopencl.Buffer, or of that of an array; 0 for anything else."""
    import pyopencl

    try:
        if isinstance(thing, FrameType):
            return 0
        buffer = getattr(thing, "base_data", thing)
        is_buffer = isinstance(buffer, pyopencl.MemoryObjectHolder)
        return buffer.int_ptr if is_buffer and not isinstance(buffer, pyopencl.Image) else 0
    except Exception:  # a variable of the program that cannot even be looked at
        return 0


def get_context(queue: Any, routine: str) -> int:
    """Return the handle of a queue's context.

    Some drivers call a context invalid once the program has dropped its pyopencl.Context.
    """
    import pyopencl

    try:
        return queue.context.int_ptr
    except pyopencl.Error as refused:
        raise error(
            CL_INVALID_CONTEXT,
            routine,
            "The queue's context is gone.",
            "keep the pyopencl.Context alive",
        ) from refused


@cache
def _find_package_folder() -> str:
    import pyopencl

    return str(Path(pyopencl.__file__).parent) + "/"


def _walk_frames(caller: FrameType | None) -> Iterator[FrameType]:
    frame = caller
    for _ in range(_DEPTH):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


class _Memo(Generic[_T]):
    """Facts about code and types, for as long as they live.

    They are looked up by identity, because hashing code is slow.

    Attributes:
        found: a weak reference to each thing, and what is known of it, by the thing's id.
    """

    def __init__(self) -> None:
        self.found: dict[int, tuple[Any, _T]] = {}

    def __len__(self) -> int:
        return len(self.found)

    def get(self, thing: object) -> _T | None:
        """Return what is known about a thing, None if that is nothing."""
        found = self.found.get(id(thing))
        return None if found is None else found[1]

    def put(self, thing: object, what: _T) -> _T:
        """Remember what is known about a thing, until it is gone."""
        key = id(thing)
        forget = mark_uninterrupted(lambda _: self.found.pop(key, None))
        self.found[key] = weakref.ref(thing, forget), what
        return what


_clients: Final[_Memo[bool]] = _Memo()


def _is_clients(code: CodeType) -> bool:
    """Whether code is PyOpenCL's own, or code that it generated, or ours."""
    known = _clients.get(code)
    if known is None:
        own = (_find_package_folder(), str(Path(__file__).parents[1]) + "/", "<generated")
        known = _clients.put(code, code.co_filename.startswith(own))
    return known


def find_calling_place(caller: FrameType | None) -> tuple[CodeType, int] | None:
    """Return the first frame that is not PyOpenCL's, as code and instruction.

    `format_place` reads it. Every captured command asks, so it calls little.
    """
    frame, found = caller, _clients.found
    while frame is not None:
        code = frame.f_code
        known = found.get(id(code))
        if not (_is_clients(code) if known is None else known[1]):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def find_program_frame(caller: FrameType | None) -> FrameType | None:
    """Return the first frame that is neither PyOpenCL's nor fairlead's."""
    frame = caller
    while frame is not None and (
        _is_clients(frame.f_code) or frame.f_globals.get("__name__", "").startswith("fairlead.")
    ):
        frame = frame.f_back
    return frame


def warn_in_program(text: str, caller: FrameType, category: type[Warning] = RuntimeWarning) -> None:
    """Give a warning in the program's line that led to a frame."""
    frame = find_program_frame(caller) or caller
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, registry=registry
    )


def is_invoker(code: CodeType) -> bool:
    """Whether code is what PyOpenCL generates to set a kernel's arguments."""
    return code.co_filename.startswith("<generated") and (
        code.co_name == "set_args" or code.co_name.startswith("enqueue_knl_")
    )


def is_of_pyopencl(frame: FrameType) -> bool:
    """Return whether a frame runs code of PyOpenCL or of pytools."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("pyopencl", "pytools")


def is_pyopencl_error(raised: BaseException, name: str = "") -> bool:
    """Return whether PyOpenCL raised an exception, for the OpenCL error `name` if one is given."""
    import pyopencl

    return isinstance(raised, pyopencl.Error) and name in str(raised)


def format_place(place: tuple[CodeType, int] | None) -> str:
    """Return "file:line" of a place, "" for None."""
    if place is None:
        return ""
    code, instruction = place
    line = (
        next((line for begin, end, line in code.co_lines() if begin <= instruction < end), None)
        or code.co_firstlineno
    )
    return f"{code.co_filename}:{line}"


def is_housekeeping(caller: FrameType | None) -> bool:
    """Return whether pyopencl.array is trimming its list of events, as it does when the list is
    long."""
    return (
        caller is not None
        and caller.f_code.co_name == "add_event"
        and caller.f_code.co_filename == _find_package_folder() + "array.py"
    )


def find_filling_frame(caller: FrameType | None) -> FrameType | None:
    """Return the frame of pyopencl.clrandom that is filling an array, None if none is."""
    own = _find_package_folder() + "clrandom.py"
    return next((frame for frame in _walk_frames(caller) if frame.f_code.co_filename == own), None)


#: Whether an object has the buffer protocol. Python itself tells from 3.12 on alone.
_is_buffer: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(
    ("PyObject_CheckBuffer", ctypes.pythonapi)
)


def _find_memory(thing: Any) -> tuple[int, int, Any] | None:
    """Return address, size in bytes and the object to hold, of something with memory, else None."""
    interface = getattr(thing, "__array_interface__", None)
    if isinstance(
        interface, dict
    ):  # NumPy arrays, also those that are contiguous in Fortran's order
        return interface["data"][0], thing.nbytes, thing
    if _is_buffer(thing):
        try:
            view = ffi.from_buffer(thing)  # holding the view also keeps a bytearray from moving
        except (TypeError, BufferError, ValueError):
            return None
        return int(ffi.cast("uintptr_t", view)), len(view), view
    pointer = getattr(thing, "svm_ptr", None)  # pyopencl.SVM, SVMAllocation, PooledSVM
    if isinstance(pointer, int):
        return pointer, getattr(thing, "size", 0) or 0, thing
    backing = getattr(thing, "hostbuf", None)  # a pyopencl.Buffer made with USE_HOST_PTR
    return (
        None
        if backing is None or backing is thing
        else _find_memory_in(_find_memory(backing), thing)
    )


def _find_memory_in(memory: tuple[int, int, Any] | None, thing: Any) -> tuple[int, int, Any] | None:
    return memory and (memory[0], memory[1], (thing, memory[2]))


def find_owner_in(things: Iterable[Any], address: int, size: int) -> Any:
    """Return what to hold to keep `size` bytes at `address` alive; None if none of `things` owns
    them.
    """
    for thing in things:
        if type(thing) in (type(None), int, float, str, bool, FrameType):
            continue
        try:
            memory = _find_memory(thing)
        except Exception:  # a variable that cannot even be looked at: it is not what was passed
            continue
        if memory and memory[0] <= address and address + size <= memory[0] + memory[1]:
            return memory[2]
    return None


def find_owner(caller: FrameType | None, address: int, size: int) -> Any:
    """Return what `find_owner_in` finds among the variables of the functions that are calling.

    Args:
        caller: the innermost of the functions.
    """
    for frame in _walk_frames(caller):
        owner = find_owner_in(list(frame.f_locals.values()), address, size)
        if owner is not None:
            return owner
    return None


@cache
def _find_pooled_types() -> tuple[type, ...]:
    from pyopencl import _cl

    return tuple(getattr(_cl, name) for name in ("PooledBuffer", "PooledSVM") if hasattr(_cl, name))


_IGNORED, _POOLED, _ARRAY = range(3)
_type_kinds: Final[_Memo[int]] = _Memo()


def _find_type_kind(kind: type) -> int:
    """Return whether things of a type are pooled buffers, or hold one (pyopencl.array.Array).

    It is remembered by type.
    """
    module = sys.modules.get("pyopencl.array")
    if module is not None and issubclass(kind, module.Array):
        return _type_kinds.put(kind, _ARRAY)
    return _type_kinds.put(kind, _POOLED if issubclass(kind, _find_pooled_types()) else _IGNORED)


def find_pooled_buffers(caller: FrameType | None) -> list[Any]:
    """Return the buffers of a PyOpenCL memory pool among the variables of the calling function.

    A pool gives a dropped buffer's memory to the next caller, so holding the OpenCL object is not
    enough.
    """
    found = []
    for thing in () if caller is None else caller.f_locals.values():
        kind = _type_kinds.get(type(thing))
        if kind is None:
            kind = _find_type_kind(type(thing))
        if kind == _ARRAY:
            thing = getattr(thing, "base_data", None)  # not there yet while the array is being made
            if isinstance(thing, _find_pooled_types()):
                found.append(thing)
        elif kind == _POOLED:
            found.append(thing)
    return found


def find_wholes() -> set[int]:
    """Return the memory objects (handles) that living buffers and images of PyOpenCL are parts of.

    Intel's driver counts no reference to a buffer for its parts.
    """
    import pyopencl as cl

    found = set[int]()
    for one in gc.get_referrers(cl.Buffer, cl.Image):
        if type(one) in (cl.Buffer, cl.Image):
            try:
                whole = one.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
            except Exception:  # one that was released
                continue
            if whole is not None:
                found.add(whole.int_ptr)
    return found


def keep_sources(programs: Collection[int]) -> list[Any]:
    """Return the living pyopencl.Programs of handles, which have the sources (`find_sources`)."""
    return (
        [one for one in list(noted_programs.noted.values()) if one.int_ptr in programs]
        if programs
        else []
    )


def find_sources(programs: Collection[int]) -> dict[int, str]:
    """Return the sources that living programs and kernels of PyOpenCL were made of.

    PyOpenCL's cache makes programs from binaries, of which the driver does not know the source.
    Intel's driver tells nothing of a program that only its kernels keep.

    Args:
        programs: handles.

    Returns:
        Those that are known, by handle.
    """
    import pyopencl as cl

    living = keep_sources(programs)
    found: dict[int, Any] = {one.int_ptr: one._source for one in living if "_source" in vars(one)}
    # `get_objects` has tuples that other threads are filling. Python raises SystemError in such a
    # thread if somebody else refers to its tuple. Objects refer to their type.
    for one in gc.get_referrers(cl.Kernel, cl.Program) if {*programs} - found.keys() else ():
        try:
            if type(one) is cl.Kernel:
                handle = query_program(one.int_ptr)
            elif type(one) is cl.Program:
                handle = one.int_ptr
            else:
                continue
            source = getattr(one, "_source", "") if handle in programs else ""
        except Exception:  # one that was never built, or was made of a binary
            continue
        if source:
            found[handle] = source
    return {
        handle: one if isinstance(one, str) else one.decode("utf-8", "replace")
        for handle, one in found.items()
    }
