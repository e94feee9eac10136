"""Chooses the device under test. `--device` means the same for every interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ur.selector import parse
from fairlead.loader.ur.selector_grammar import SelectorError

if TYPE_CHECKING:
    from fairlead.loader.ur.selector import Selectable

D = TypeVar("D", bound="Selectable")


class UsageError(FairleadError):
    """The command line asks for something that does not exist. `exit_code` is the command's."""

    exit_code = 2


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
