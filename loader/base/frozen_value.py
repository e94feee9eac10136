"""Immutable values with named fields.

A `Value` is what `dataclasses.dataclass(frozen=True)` makes of a class, at a tenth of the price:
dataclasses compiles a class's methods when its module is imported, and imports a compiler for that.
A program that waits for a verdict (icd/libopencl/) would wait 25 ms longer.

    >>> class Place(Value):
    ...     path: str
    ...     state: str = "not searched"
    >>> Place("/etc/OpenCL/vendors")
    Place(path='/etc/OpenCL/vendors', state='not searched')

`asdict`, `fields` and `replace` of dataclasses take them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeVar

    from typing_extensions import dataclass_transform

    _Kind = TypeVar("_Kind", bound="Value")
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda kind: kind


class _Fields:
    """What dataclasses looks for in a class: its fields, made when it looks."""

    def __get__(self, value: Value | None, kind: type[Value]) -> dict[str, Any]:
        return _list_fields(kind.value_fields)


@cache
def _list_fields(names: tuple[str, ...]) -> dict[str, Any]:
    from dataclasses import make_dataclass

    made: Any = make_dataclass("Value", names)
    return made.__dataclass_fields__


@dataclass_transform(frozen_default=True)
class Value:
    """A base class: the annotations of a class are its fields, after those of its base.

    A class's keyword `key` names the fields that are compared; by default all are.
    """

    value_fields: ClassVar[tuple[str, ...]] = ()
    value_defaults: ClassVar[dict[str, Any]] = {}
    value_key: ClassVar[Sequence[str]] = ()
    __dataclass_fields__: ClassVar[Any] = _Fields()

    def __init_subclass__(cls, key: Sequence[str] = ()) -> None:
        own = tuple(vars(cls).get("__annotations__", ()))
        defaults = {name: vars(cls)[name] for name in own if name in vars(cls)}
        cls.value_fields = (*cls.value_fields, *own)
        cls.value_defaults = {**cls.value_defaults, **defaults}
        cls.value_key = key or cls.value_fields

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self.value_fields
        given = dict(zip(names, values, strict=False))
        fields = {**self.value_defaults, **given, **named}
        if len(values) > len(names) or given.keys() & named or fields.keys() != {*names}:
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(names)}; "
                f"it was given {len(values)} values, and by name {', '.join(named) or 'none'}"
            )
        self.__dict__.update(fields)

    def get_fields(self) -> dict[str, Any]:
        """The fields and their values."""
        return {name: self.__dict__[name] for name in self.value_fields}

    def copy_with(self: _Kind, **fields: Any) -> _Kind:
        """One that differs in these fields."""
        return type(self)(**{**self.get_fields(), **fields})

    def _list_compared(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self.value_key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(other) is not type(self):
            return NotImplemented
        return self._list_compared() == other._list_compared()

    def __hash__(self) -> int:
        return hash(self._list_compared())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.get_fields().items())
        return f"{type(self).__name__}({fields})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


def convert_for_json(value: object) -> Any:
    """Return what JSON makes of a value that is not of its own types.

    It is the `default` of `json.dumps`.
    """
    return value.get_fields() if isinstance(value, Value) else str(value)
