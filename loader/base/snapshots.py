"""Looks at dictionaries that finalizers change."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Key = TypeVar("Key")
    Value = TypeVar("Value")


def list_items(changing: dict[Key, Value]) -> list[tuple[Key, Value]]:
    """Return the items of a dictionary that a finalizer may change meanwhile, in the same thread.

    `list(changing.items())` allocates a pair for each item, so the garbage collector may run in
    between, and then raises RuntimeError. `list` of the keys allocates nothing while it looks.

    Args:
        changing: no value of it is None.
    """
    return [(key, one) for key in list(changing) if (one := changing.get(key)) is not None]
