"""Finds the driver of a GPU's API, once for the process.

`GpuSearch` looks in its steps, one place after the other. A library is tried in a child process
first (probe.py). Every place that does not lead to a device has a reason, and NotFoundError lists
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..base.errors import FairleadError, NotFoundError, explain_error
from ..base.forks import call_in_child, make_lock
from ..base.probe_verdicts import judge
from ..base.search import Candidate, Refusal
from .driver import DeviceDriver
from .places import find_refusal, make_refusal
from .probe import GpuReport, probe_all

DriverT = TypeVar("DriverT", bound=DeviceDriver[Any])


class GpuSearch(Generic[DriverT]):
    """The search for the driver of one API.

    Args:
        name: the name of the API and of its folder, such as "cuda".
        steps: where the driver may be, and what each place is.
        remedy: what to do if there is none.

    Attributes:
        found: the driver, None until `get` has opened it.
    """

    def __init__(
        self, name: str, driver: type[DriverT], steps: Sequence[Candidate], remedy: str
    ) -> None:
        self.name, self.driver, self.steps, self.remedy = name, driver, tuple(steps), remedy
        self.found: DriverT | None = None
        self._lock, self._forked = make_lock(), False
        call_in_child(self._forget)

    def _forget(self) -> None:
        """Forget the driver: it does not survive a fork."""
        self._forked = self._forked or self.found is not None
        self.found = None

    def find(self, steps: Sequence[Candidate] = ()) -> tuple[DriverT | None, tuple[Refusal, ...]]:
        """Return the first driver that has a device, and why the places before it were not used.

        Args:
            steps: where to look; none means in the places of this search.
        """
        refusals: list[Refusal] = []
        for candidate in steps or self.steps:
            failed = find_refusal(candidate)
            failed = failed or judge((candidate,), self.probe, self.name).get(candidate)
            if failed is None:
                try:
                    return self.driver.open(candidate.library, candidate.found_via), (*refusals,)
                except FairleadError as error:
                    reason = explain_error(error, with_code=True)
                    failed = make_refusal(candidate, reason, error.remedy)
            refusals.append(failed)
        return None, tuple(refusals)

    @property
    def probe(self) -> Callable[[Sequence[Candidate]], list[GpuReport]]:
        """The function that tries candidates in child processes."""
        return partial(probe_all, self.name)

    def get(self) -> DriverT:
        """Return the driver, opened once for the process.

        Raises:
            NotFoundError: no place has a driver with a device. Its `reasons` name every place.
            CodeError: the process was forked after the driver was opened.
        """
        with self._lock:
            driver = self.driver
            if self._forked:
                raise driver.error.from_code(
                    driver.api.codes[driver.not_initialized],
                    driver.names["Init"],
                    f"This process was forked from one that uses {driver.error.api_name}.",
                    "start it with the method spawn",
                )
            if self.found is None:
                self.found, refusals = self.find()
                if self.found is None:
                    raise NotFoundError(
                        f"no {driver.error.api_name} driver with a device was found",
                        [_format_line(refusal) for refusal in refusals],
                        routine=f"fairlead.{self.name}",
                        code=driver.no_device[0],
                        remedy=self.remedy,
                    )
            return self.found


def _format_line(refusal: Refusal) -> str:
    text = f"{refusal.what} ({refusal.found_via}): {refusal.reason}"
    return f"{text} ({refusal.remedy})" if refusal.remedy else text
