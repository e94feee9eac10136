"""Dictionaries that finalizers change."""

from __future__ import annotations

import gc

from fairlead.loader.base.snapshots import list_items


class _Circle:
    """Garbage that only a collection finds, whose finalizer changes a dictionary."""

    def __init__(self, changed: dict[int, str]) -> None:
        self.itself, self.changed = self, changed

    def __del__(self) -> None:
        self.changed.pop(next(iter(self.changed)))
        self.changed[-len(self.changed)] = "new"
        self.changed[-len(self.changed) * 100] = "new"


def test_a_collection_may_change_the_dictionary() -> None:
    thresholds = gc.get_threshold()
    gc.collect()
    try:
        for count in range(1, 40):  # at each allocation once
            changed = dict.fromkeys(range(5000), "old")  # Python keeps 2,000 pairs at hand
            _Circle(changed)
            gc.set_threshold(count, 1, 1)
            found = list_items(changed)
            gc.set_threshold(*thresholds)
            assert {value for _, value in found} <= {"old", "new"}
            assert {key for key, value in found if value == "old"} >= set(range(1, 5000))
    finally:
        gc.set_threshold(*thresholds)
