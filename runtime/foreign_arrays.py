"""Memory of other packages, as `__sycl_usm_array_interface__` and `__cuda_array_interface__`
describe it.

| interface | strides count | the first element is |
|---|---|---|
| `__sycl_usm_array_interface__` (dpctl) | elements | `offset` elements after the address |
| `__cuda_array_interface__` (Numba) | bytes | at the address |
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy

from .checks import is_contiguous

_SYCL: Final = "__sycl_usm_array_interface__"
_CUDA: Final = "__cuda_array_interface__"


class ForeignArray(NamedTuple):
    """An array of another package.

    Attributes:
        pointer: the address of its first element, 0 for none.
        nbytes: the size of its elements, in bytes.
        is_contiguous: whether they follow each other in memory, in C's order.
        is_read_only: whether they may only be read.
    """

    pointer: int
    nbytes: int
    is_contiguous: bool
    is_read_only: bool


def find_foreign_array(value: Any) -> ForeignArray | None:
    """Return what an object of another package says of its memory, None if it has no interface."""
    for name in (_SYCL, _CUDA):
        found = getattr(value, name, None)
        if found:
            return _read_interface(found, is_sycl=name == _SYCL)
    return None


def _read_interface(found: dict[str, Any], *, is_sycl: bool) -> ForeignArray:
    pointer, flag = found["data"]
    item = numpy.dtype(found["typestr"]).itemsize
    shape, strides = found["shape"], found.get("strides")
    offset = found.get("offset", 0) * item if is_sycl else 0
    return ForeignArray(
        (pointer or 0) + offset,
        math.prod(shape) * item,
        strides is None or is_contiguous(shape, strides, 1 if is_sycl else item),
        # dpctl's memory sets the flag of SYCL's interface although it can be written to
        bool(flag) and not is_sycl,
    )
