"""How far long work is: a bar of tqdm in a terminal and in a notebook.

Nothing is shown where tqdm is not installed, or where nobody reads stderr as it is written. What
takes less than a second shows nothing either.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Seconds before a bar appears.
_DELAY: Final = 1.0


def is_shown() -> bool:
    """Return whether a bar would be seen: in a notebook, or on a terminal."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    return hasattr(shell, "kernel") or bool(sys.stderr and sys.stderr.isatty())


class Progress:
    """How far one piece of work is. `end` removes the bar.

    Args:
        unit: what is counted.
        total: how many there are, None if nobody knows.
    """

    def __init__(self, what: str, unit: str, total: int | None = None) -> None:
        self._what, self._unit, self._total = what, unit, total
        self._begun, self._count = time.monotonic(), 0
        self._is_shown = is_shown()
        self._bar: Any = None

    def add(self, count: int = 1, text: str = "") -> None:
        """Count what was done since, and show a text beside the bar."""
        self._count += count
        took = time.monotonic() - self._begun if self._is_shown else 0.0
        if not self._is_shown or took < _DELAY:
            return
        if self._bar is None:
            self._bar = _make_bar(self._what, self._unit, self._total)
            self._is_shown = self._bar is not None
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            if not self._bar.n:
                self._bar.start_t -= took
                self._bar.update(self._count)
                self._bar.refresh()
            else:
                self._bar.update(count)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


def follow(items: Iterable[T], what: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and show how many there were. The parameters are those of `Progress`."""
    progress = Progress(what, unit, total)
    try:
        for item in items:
            yield item
            progress.add()
    finally:
        progress.end()


def _make_bar(what: str, unit: str, total: int | None) -> Any:
    """Return a bar, None without tqdm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of text
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
    options = {"leave": False, "dynamic_ncols": True, "delay": 1e-9}  # it is not shown empty
    return tqdm(desc=what, unit=f" {unit}", total=total, **options)
