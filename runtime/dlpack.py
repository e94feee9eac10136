"""DLPack: how packages give each other memory without a copy.

A capsule has the address of a struct that describes memory. Who takes the capsule renames it, and
calls the struct's deleter when it needs the memory no longer. A capsule that nobody takes calls the
deleter itself. `give` makes a capsule, and `take` empties one.

| memory | type of device |
|---|---|
| device memory of CUDA, of HIP | kDLCUDA, kDLROCM |
| host memory of CUDA, of HIP | kDLCUDAHost, kDLROCMHost |
| shared memory of CUDA, of HIP | kDLCUDAManaged, kDLROCM |
| host and shared memory of other backends | kDLCPU |

(dlpack.h 1.0, and `__dlpack__` of the Python array API standard.)
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy

from ..loader.base.interrupts import mark_uninterrupted
from .checks import is_contiguous

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
#: By the backend and the kind of memory.
_TYPES: Final = {
    ("cuda", "device"): CUDA,
    ("cuda", "host"): CUDA_HOST,
    ("cuda", "shared"): CUDA_MANAGED,
    ("hip", "device"): ROCM,
    ("hip", "host"): ROCM_HOST,
    ("hip", "shared"): ROCM,
}
#: The types whose producers are told a stream.
WITH_STREAMS: Final = frozenset({CUDA, CUDA_HOST, CUDA_MANAGED, ROCM, ROCM_HOST})
#: The types whose device has a number that is the driver's.
NUMBERED: Final = frozenset({CUDA, CUDA_MANAGED, ROCM})
#: The newest version whose structs this module reads and makes.
VERSION: Final = (1, 0)

_READ_ONLY: Final = 1
_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_KINDS: Final = {code: kind for kind, code in _CODES.items()}

# void (DLManagedTensor *), its deleter
_Function: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor, of before DLPack 1.0."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


#: The structs by the names of capsules. The names live as long as the process.
_STRUCTS: Final[dict[bytes, Any]] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_USED: Final = {name: ctypes.create_string_buffer(b"used_" + name) for name in _STRUCTS}
_NAMES: Final = {name: ctypes.create_string_buffer(name) for name in _STRUCTS}


def _get_api(name: str, result: Any, *parameters: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *parameters)((name, ctypes.pythonapi))


_Destructor: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new: Final = _get_api(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_address_in: Final = _get_api(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)
_is_named: Final = _get_api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_rename: Final = _get_api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
# A capsule that ends has no references any more, and must not get one.
_address_in_ended: Final = _get_api(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
)
_is_named_ended: Final = _get_api(
    "PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
)


class _Given(NamedTuple):
    """A tensor that was given away, with all that lives until its deleter is called."""

    struct: Any
    sizes: Any
    owner: Any


_given: Final[dict[int, _Given]] = {}


@_Function
@mark_uninterrupted
def _delete(address: int) -> None:
    _given.pop(address, None)


@_Destructor
@mark_uninterrupted
def _end(capsule: int) -> None:
    """Call the deleter of a capsule that nobody has taken."""
    for name in _STRUCTS:
        if _is_named_ended(capsule, name):
            _given.pop(_address_in_ended(capsule, name), None)


# Others may call them when this module is gone.
for _one in (_delete, _end, _USED, _NAMES):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_one))


def find_device_type(backend: str, kind: str) -> int:
    """Return the type of device of USM. Raises BufferError if DLPack has none.

    Args:
        kind: "device", "host" or "shared".
    """
    found = _TYPES.get((backend, kind), CPU if kind != "device" else 0)
    if not found:
        raise BufferError(f"other packages cannot use device memory of the backend {backend}")
    return found


def give(owner: Any, place: tuple[int, int], dtype: Any, *, is_versioned: bool) -> Any:
    """Return a capsule with memory.

    Args:
        owner: has `pointer` and `size`, and lives until the deleter is called.
        place: type and number of the device.
        is_versioned: whether the taker knows DLPack 1.0.

    Raises:
        BufferError: DLPack has no such elements.
    """
    if dtype.kind not in _CODES:
        raise BufferError(f"DLPack has no elements of type {dtype}")
    name = b"dltensor_versioned" if is_versioned else b"dltensor"
    made, sizes = _STRUCTS[name](), (ctypes.c_int64 * 2)(owner.size, 1)
    shape, strides = (
        ctypes.cast(ctypes.byref(sizes, step), ctypes.POINTER(ctypes.c_int64)) for step in (0, 8)
    )
    kind = _CODES[dtype.kind], 8 * dtype.itemsize, 1
    made.tensor = _Tensor(owner.pointer, *place, 1, *kind, shape, strides)
    made.deleter = ctypes.cast(_delete, ctypes.c_void_p).value
    if is_versioned:
        made.major, made.minor = VERSION
    address = ctypes.addressof(made)
    _given[address] = _Given(made, sizes, owner)
    return _new(address, ctypes.addressof(_NAMES[name]), ctypes.cast(_end, ctypes.c_void_p))


class Taken:
    """Memory of another package, until `release` is called.

    Args:
        struct: what describes it.

    Attributes:
        place: type and number of its device.
        size: how many there are.

    Raises:
        BufferError: USM cannot be read-only, strided, or of such elements.
    """

    def __init__(self, struct: Any) -> None:
        tensor = struct.tensor
        shape = tensor.shape[: tensor.ndim]
        strides = tensor.strides[: tensor.ndim] if tensor.strides else None
        if getattr(struct, "flags", 0) & _READ_ONLY:
            raise BufferError("the memory may only be read")
        if strides is not None and not is_contiguous(shape, strides):
            raise BufferError("the memory is not contiguous")
        self._struct: Any = struct
        self.pointer = (tensor.data or 0) + tensor.byte_offset
        self.place = tensor.device_type, tensor.device_id
        self.size = math.prod(shape)
        self.dtype = _find_dtype(tensor)

    def release(self) -> None:
        """Call the deleter, once."""
        struct, self._struct = self._struct, None
        if struct is not None and struct.deleter:
            _Function(struct.deleter)(ctypes.addressof(struct))


def _find_dtype(tensor: _Tensor) -> Any:
    """Return NumPy's type of the elements. Raises BufferError if there is none."""
    if tensor.lanes == 1 and tensor.code in _KINDS and not tensor.bits % 8:
        with suppress(TypeError):
            return numpy.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    raise BufferError(
        f"NumPy has no elements of {tensor.lanes} × {tensor.bits} bits of DLPack's type "
        f"{tensor.code}"
    )


def take(capsule: Any) -> Taken:
    """Take the memory of a capsule.

    Raises:
        BufferError: it is not a capsule of DLPack, was taken before, or has what USM cannot be.
            Then the capsule keeps the memory.
    """
    name = next((one for one in _STRUCTS if _is_named(capsule, one)), None)
    if name is None:
        raise BufferError(f"{capsule!r} is not a capsule of DLPack, or was taken before")
    struct = _STRUCTS[name].from_address(_address_in(capsule, name))
    if name == b"dltensor_versioned" and struct.major > VERSION[0]:
        raise BufferError(f"version {struct.major} of DLPack is unknown")
    taken = Taken(struct)
    _rename(capsule, ctypes.addressof(_USED[name]))
    return taken
