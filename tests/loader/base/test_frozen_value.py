"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property

import pytest

from fairlead.loader.base.frozen_value import Value, convert_for_json


class Place(Value):
    path: str
    state: str = "not searched"

    @cached_property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Named(Place, key=("path", "by")):
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    place: Place
    more: tuple[Place, ...] = ()


def test_fields_come_by_place_and_by_name() -> None:
    assert Place("/a") == Place(path="/a") == Place("/a", "not searched")
    assert Named("/a", "found", ("x",)).by == ("x",) and Named("/a").state == "not searched"
    assert Place("/a").get_fields() == {"path": "/a", "state": "not searched"}
    assert repr(Named("/a")) == "Named(path='/a', state='not searched', by=())"


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", "b", "c"), {}), (("a",), {"path": "b"}), (("a",), {"other": 1})],
)
def test_what_does_not_fit_is_refused(values: tuple[str, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="Place takes path, state; it was given"):
        Place(*values, **named)  # type: ignore[arg-type]


def test_records_of_equal_fields_are_equal() -> None:
    assert len({Place("/a"), Place("/a"), Place("/b"), Named("/a")}) == 3
    assert Place("/a") != Named("/a") and Place("/a") != ("/a", "not searched")
    assert Named("/a", "found") == Named("/a", "gone") != Named("/a", by=("x",))
    one, other = Place("/a/b"), Place("/a/b")
    assert one.name == "b" and one == other, "what was computed is no field"


def test_they_cannot_be_changed_but_copied_with_changes() -> None:
    place = Place("/a")
    for change in (lambda: setattr(place, "path", ""), lambda: delattr(place, "path")):
        with pytest.raises(AttributeError, match=r"Place\.path cannot be changed"):
            change()
    assert place.copy_with(state="gone") == replace(place, state="gone") == Place("/a", "gone")
    assert copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place


def test_dataclasses_take_them() -> None:
    assert is_dataclass(Place) and [field.name for field in fields(Named)][-1] == "by"
    report = Report(Place("/a"), (Named("/b"),))
    assert asdict(report)["place"] == {"path": "/a", "state": "not searched"}
    assert asdict(report)["more"][0]["by"] == ()


def test_what_json_makes_of_them() -> None:
    assert (
        convert_for_json(Place("/a")) == Place("/a").get_fields() and convert_for_json(1.5) == "1.5"
    )
