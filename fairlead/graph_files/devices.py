"""Which device a text or an object means, for `fairlead.load` and the command line."""

from __future__ import annotations

from typing import Any

from ..api import devices, platforms
from ..icd.objects import CLDevice
from ..loader.base.errors import NotFoundError


def find_device(selector: str) -> CLDevice:
    """Return the first device that a selector means.

    Args:
        selector: a number in `fairlead.devices()`; platform:device, as `fairlead devices` prints
            it; a type, such as cpu or gpu; or a part of the name of a device or its platform.

    Raises:
        NotFoundError: there is none. The error lists those that there are.
    """
    found = devices()
    wanted = selector.strip().lower().removeprefix("opencl:")
    first, colon, second = wanted.partition(":")
    if wanted.isdecimal() and int(wanted) < len(found):
        return found[int(wanted)]
    if colon and first.isdecimal() and second.isdecimal():
        rows = platforms()
        if int(first) < len(rows) and int(second) < len(rows[int(first)].devices):
            return rows[int(first)].devices[int(second)]
    for texts in (lambda one: (one.type,), lambda one: (one.name, one.platform.name)):
        for one in found:
            if any(
                wanted == text.lower() or (len(wanted) > 2 and wanted in text.lower())
                for text in texts(one)
            ):
                return one
    listed = [
        f"{number}: {one.type} {one.name}, {one.platform.name}" for number, one in enumerate(found)
    ]
    raise NotFoundError(
        f"no device is meant by {selector!r}; these are there:",
        listed,
        routine="device",
        code="CL_DEVICE_NOT_FOUND",
        remedy="give a number, platform:device, a type, or a part of a name",
    )


def find_pyopencl_device(device: Any, context: Any) -> Any:
    """Return the pyopencl.Device that an argument of `load` means.

    Raises:
        NotFoundError: there is none.
    """
    import pyopencl as cl

    if isinstance(device, cl.Device):
        return device
    if device is None and context is not None:
        return context.devices[0]
    if device is None:
        return devices()[0].to_pyopencl()
    if isinstance(device, CLDevice):
        return device.to_pyopencl()
    return find_device(str(device)).to_pyopencl()
