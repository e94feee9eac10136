"""Which device a text or an object means, for `fairlead.load` and the command line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
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


def find_similar_devices(saved: Mapping[str, str]) -> tuple[tuple[CLDevice, ...], str]:
    """Return the devices of the kind that a graph was saved on, those of its name first.

    These are the devices of its platform and type, else those of its type, else all.

    Args:
        saved: what a file says of that device (`Document.device`).

    Returns:
        One device at least; and what is to be warned of, "" for nothing.

    Raises:
        NotFoundError: there is no device.
    """
    name, platform, kind = (saved.get(key, "").strip() for key in ("device", "platform", "type"))
    found = sorted(devices(), key=lambda one: one.name.strip() != name)
    of_type = [one for one in found if kind in ("", one.type)]
    same = [one for one in of_type if one.platform.name.strip() == platform]
    similar = same or (of_type if kind else [])
    if similar or not platform:
        return tuple(similar or found), ""
    first = found[0]
    return tuple(found), (
        f"the graph was saved on {name} ({platform}{', ' * bool(kind)}{kind}), and no device here "
        f"is of that kind: {first.name.strip()} ({first.platform.name.strip()}, {first.type}) is "
        "taken"
    )


def find_pyopencl_device(device: Any, context: Any, saved: Mapping[str, str]) -> Any:
    """Return the pyopencl.Device that an argument of `load` means.

    Args:
        device, context: what `load` was given.

    Raises:
        NotFoundError: there is none.
    """
    import pyopencl as cl

    if isinstance(device, cl.Device):
        return device
    if device is None and context is not None:
        return context.devices[0]
    if device is None:
        similar, warning = find_similar_devices(saved)
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=3)
        return similar[0].to_pyopencl()
    if isinstance(device, CLDevice):
        return device.to_pyopencl()
    return find_device(str(device)).to_pyopencl()
