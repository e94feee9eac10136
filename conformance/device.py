"""Chooses the device under test. `--device` means the same for every interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ur.selector import parse
from fairlead.loader.ur.selector_grammar import SelectorError

if TYPE_CHECKING:
    from fairlead.loader.ur.selector import Selectable

D = TypeVar("D", bound="Selectable")
T = TypeVar("T")


class UsageError(FairleadError):
    """The command line asks for something that does not exist. `exit_code` is the command's."""

    exit_code = 2


@dataclass(frozen=True, eq=False)
class _RootDevice:
    """A device of OpenCL or Level Zero as device selectors see it. Its parts are not tested."""

    device: Any
    backend: str

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def type(self) -> str:
        """ "cpu", "gpu", "acc", or another name, which no selector matches."""
        return self.device.type.lower().replace("accelerator", "acc")

    def sub_devices(self) -> Sequence[_RootDevice]:
        return ()


def choose_root(devices: Iterable[T], backend: str, text: str) -> T:
    """Return the device that a text names, of those of a driver. See `choose`."""
    return choose([_RootDevice(device, backend) for device in devices], text).device


def choose(devices: Sequence[D], text: str) -> D:
    """Return the device that a text names.

    Args:
        text: a number, or a device selector's term ("opencl:1", "*:gpu"). "" is the first device.

    Raises:
        UsageError: the text names no device. The message lists the devices.
        FairleadError: the library has no devices.
    """
    if not devices:
        raise FairleadError("the library has no device", remedy="look with `fairlead doctor` why")
    number = text or "0"
    try:
        found = (
            devices[int(number) : int(number) + 1]
            if number.isdecimal()
            else parse(number).select(devices)
        )
    except SelectorError:
        found = ()
    if not found:
        there = "; ".join(_format_line(number, device) for number, device in enumerate(devices))
        raise UsageError(
            f"the library has no device {text}",
            remedy=(
                "give --device a number or a selector, such as "
                f"{devices[0].backend}:{devices[0].type}; there are: {there}"
            ),
        )
    return found[0]


def _format_line(number: int, device: Any) -> str:
    return f"{number} ({device.backend}:{device.type}, {device.name})"
