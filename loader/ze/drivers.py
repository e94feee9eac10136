"""Finds, probes and opens every Level Zero driver of this machine.

    >>> from fairlead.loader.ze.drivers import open_drivers
    >>> for device in open_drivers().select():
    ...     print(device.name)

`discovery` finds the files. `probe_verdicts` has each probed in a child process (`probe`) if
nothing is known of it yet. fairlead's own driver is not probed: it probes the OpenCL drivers that
it uses. `driver.load` opens a driver. A driver that fails one of these steps becomes a Refusal with
its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..base.errors import FairleadError, NotFoundError, explain_error
from ..base.search import Refusal, SearchResult
from .discovery import ALT_DRIVERS, OWN, find_drivers
from .sound_drivers import find_unsound

TYPE_CHECKING = False
if TYPE_CHECKING:  # a process without a candidate does without it
    from .driver import ZEDevice, ZEDriver


class ZEDrivers:
    """The open Level Zero drivers of this process.

    Attributes:
        drivers: the drivers in search order, including those without a device.
    """

    def __init__(
        self, drivers: Sequence[ZEDriver], refusals: Sequence[Refusal], search: SearchResult
    ) -> None:
        self.drivers = tuple(drivers)
        self.refusals = tuple(refusals)
        self.search = search

    @property
    def devices(self) -> tuple[ZEDevice, ...]:
        """The root devices of all drivers.

        A driver that cannot list its devices is skipped; `failures` says why.
        """
        return self._find_devices_and_failures()[0]

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for every driver that failed to list its devices."""
        return self._find_devices_and_failures()[1]

    def _find_devices_and_failures(self) -> tuple[tuple[ZEDevice, ...], tuple[str, ...]]:
        devices: list[ZEDevice] = []
        failures: list[str] = []
        for driver in self.drivers:
            try:
                devices += driver.devices
            except FairleadError as error:
                failures.append(f"{driver.path} failed to list its devices: {error}")
        return tuple(devices), tuple(failures)

    @property
    def reasons(self) -> tuple[str, ...]:
        """A sentence for each file that was not used, each idle driver, and each place."""
        told = [(r.what, r.reason, r.remedy) for r in self.refusals]
        told += [(d.path, d.idle, d.remedy) for d in self.drivers if d.idle]
        return (
            *(f"{what}: {why}" + (f" ({todo})" if todo else "") for what, why, todo in told),
            *self.failures,
            *(f"{place.path}: {place.state}" for place in self.search.places),
        )

    def select(self) -> tuple[ZEDevice, ...]:
        """Return all devices.

        Raises:
            NotFoundError: there is none. It contains every reason.
        """
        devices = self.devices
        if not devices:
            raise NotFoundError(
                "no Level Zero device can be used",
                self.reasons,
                code="ZE_RESULT_ERROR_UNINITIALIZED",
                remedy=f"run `fairlead doctor`, or name a driver in {ALT_DRIVERS}",
            )
        return devices

    def __iter__(self) -> Iterator[ZEDriver]:
        return iter(self.drivers)

    def __len__(self) -> int:
        return len(self.drivers)


def open_drivers(environ: Mapping[str, str] | None = None, *, own: bool = True) -> ZEDrivers:
    """Find and open every usable Level Zero driver.

    Args:
        environ: where the variables are read, `os.environ` by default.
        own: whether fairlead's own driver is one of them.

    Returns:
        The open drivers. A driver that failed is a Refusal in `refusals`.
    """
    found = find_drivers(environ, own=OWN if own else None)
    refusals = list(found.refusals)
    unsound = find_unsound(found.candidates)
    drivers: list[ZEDriver] = []
    for candidate in found.candidates:
        from .driver import load

        if candidate in unsound:
            refusals.append(unsound[candidate])
            continue
        try:
            drivers.append(load(candidate))
        except FairleadError as error:
            why = explain_error(error, with_code=True)
            refusals.append(Refusal(candidate.library, why, error.remedy, candidate.found_via))
    return ZEDrivers(drivers, refusals, found)
