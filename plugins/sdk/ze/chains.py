"""Chains of structs (`pNext`), and codes of Level Zero by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ....loader.ze.abi import ZE, LevelZeroError
from .._native_ze import ffi

_LONGEST: Final = 1 << 16  # structs of a chain; more means that it is a ring (ze_lists.c)


def find_code(name: str) -> int:
    """Return the number of a code by its name, with or without ZE_RESULT_ERROR_."""
    return ZE.codes[name if name.startswith("ZE_RESULT_") else f"ZE_RESULT_ERROR_{name}"]


def make_failure(name: str, detail: str = "", routine: str = "") -> LevelZeroError:
    """Return an exception for an entry point to raise.

    Args:
        name: the code that the caller gets, such as "INVALID_ARGUMENT".
        detail: what zeDriverGetLastErrorDescription says.
        routine: the function that failed, if it is not the entry point.
    """
    return LevelZeroError.from_code(find_code(name), routine, detail)


def walk_chain(address: int) -> Iterator[tuple[int, int]]:
    """Yield the structs of a chain: their ze_structure_type_t and addresses.

    Args:
        address: the first struct, 0 for none.

    Raises:
        LevelZeroError: INVALID_ARGUMENT for a chain that does not end.
    """
    for _ in range(_LONGEST):
        if not address:
            return
        base = ffi.cast("ze_base_desc_t *", address)
        yield base.stype, address
        address = base.pNext
    raise make_failure("INVALID_ARGUMENT", "the chain of structs does not end")


def find_struct(address: int, stype: str, struct: str) -> Any:
    """Find a struct in a chain, and return a pointer to it, None if the chain has none.

    Args:
        address: the first struct, 0 for none.
        stype: the name of its ze_structure_type_t.

    Raises:
        LevelZeroError: INVALID_ARGUMENT for a chain that does not end.
    """
    wanted = ZE[stype]
    for found, at in walk_chain(address):
        if found == wanted:
            return ffi.cast(f"{struct} *", at)
    return None
