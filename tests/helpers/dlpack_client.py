"""A package that knows CUDA and DLPack, and nothing of fairlead: it takes and gives memory.

It does by ctypes what torch and CuPy do in C++. The structs are those of dlpack.h before 1.0, which
every package knows. Nothing of fairlead.runtime.dlpack is used: that is what is tested.
"""

from __future__ import annotations

import ctypes
from typing import Any

_UNUSED, _USED = b"dltensor", b"used_dltensor"


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


def _api(name: str, result: Any, *parameters: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *parameters)((name, ctypes.pythonapi))


_get = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Cuda:
    """CUDA's driver.

    Attributes:
        stream: a stream of this package.
    """

    def __init__(self) -> None:
        self._library, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function, which has to answer 0."""
        code = self._library[name](*arguments)
        assert code == 0, (name, code)

    def copy(self, to: Any, source: Any, size: int) -> None:
        """Copy bytes between any two addresses, and wait."""
        addresses = ctypes.c_void_p(to), ctypes.c_void_p(source)
        self.call("cuMemcpyAsync", *addresses, ctypes.c_size_t(size), self.stream)
        self.call("cuStreamSynchronize", self.stream)

    def read(self, address: int, count: int) -> list[int]:
        """Return numbers of 32 bits."""
        numbers = (ctypes.c_int32 * count)()
        self.copy(ctypes.addressof(numbers), address, 4 * count)
        return list(numbers)

    def write(self, address: int, values: list[int]) -> None:
        """Write numbers of 32 bits."""
        numbers = (ctypes.c_int32 * len(values))(*values)
        self.copy(address, ctypes.addressof(numbers), 4 * len(values))


class Taken:
    """Memory of another package, taken as its `from_dlpack` would.

    Attributes:
        device: DLPack's type and number of the device.
        address: where it is.
        count: how many numbers of 32 bits it has.
    """

    def __init__(self, source: Any, cuda: Cuda) -> None:
        capsule = source.__dlpack__(stream=cuda.stream.value)
        self._managed = Managed.from_address(_get(capsule, _UNUSED))
        assert _rename(capsule, _USED) == 0
        tensor = self._managed.tensor
        assert (tensor.type_code, tensor.type_bits, tensor.type_lanes) == (0, 32, 1)
        assert tensor.ndim == 1 and tensor.strides[0] == 1
        self.device = tensor.device_type, tensor.device_id
        assert self.device == source.__dlpack_device__()
        self.address = tensor.data + tensor.byte_offset
        self.count = tensor.shape[0]

    def release(self) -> None:
        """Call the deleter, as the end of an array does."""
        self._managed.deleter(ctypes.addressof(self._managed))


class Array:
    """Memory of this package: some numbers of 32 bits, which it gives from the second one on.

    Attributes:
        streams: the streams that takers have named.
        releases: how often the deleter was called.
    """

    def __init__(self, cuda: Cuda, values: list[int]) -> None:
        address = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * len(values)))
        self.address, self.releases, self.streams = address.value, 0, list[Any]()
        cuda.write(self.address, values)
        self._shape = (ctypes.c_int64 * 1)(len(values) - 1)
        kind = 0, 32, 1
        tensor = Tensor(self.address, 2, 0, 1, *kind, self._shape, None, 4)
        self._managed = Managed(tensor, None, Managed._fields_[2][1](self._delete))

    def _delete(self, address: int) -> None:
        assert address == ctypes.addressof(self._managed)
        self.releases += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any) -> Any:
        """Return a capsule. A package of before 1.0 knows no other parameter."""
        self.streams.append(stream)
        return _new(ctypes.addressof(self._managed), _UNUSED, None)
