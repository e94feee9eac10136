"""`fairlead devices`: a row for each device of OpenCL drivers, adapters and PI plugins.

`list_devices` asks each interface in turn. All plugins are opened, whatever the environment's
device selector says, so that every device has the number by which selectors name it. The selector
only decides which rows are marked as selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..loader.base.errors import FairleadError, NotFoundError, reason_of
from ..loader.base.query import printable
from ..loader.base.search import excluding_pattern
from ..loader.ur.plugins import Plugins, environment_selector, open_plugins
from ..loader.ur.selector import parse, selector_strings

#: The interfaces in the order of the rows: as `--interface` takes them, and as rows name them.
INTERFACES: Final = {"opencl": "OpenCL", "ur": "UR", "pi": "PI"}

_EVERYTHING: Final = "*:*"


@dataclass(frozen=True)
class DeviceRow:
    """A device as `fairlead devices --json` prints it, in an array, the OpenCL devices first.

    Later versions may add keys; none is renamed or removed.

    Attributes:
        platform: the index of the platform among those of its interface (`fairlead.platforms()`).
        device: the index of the device in the platform.
        icd_version: 1 or 2, 0 for a plugin.
        library: the real path of the driver or plugin.
        interface: "OpenCL", "UR" or "PI".
        interface_version: a plugin's, such as "0.12" or "15.47.1".
        layout: the release whose tables an adapter has, such as "2025.3".
        selector: the value of ONEAPI_DEVICE_SELECTOR that selects this device alone; "" for OpenCL.
        selected: whether the device selector of the environment selects it, or a part of it.
    """

    platform: int
    device: int
    type: str
    name: str
    platform_name: str
    platform_version: str
    driver_version: str
    icd_version: int
    library: str
    interface: str = "OpenCL"
    interface_version: str = ""
    layout: str = ""
    selector: str = ""
    selected: bool = True

    def __str__(self) -> str:
        """The row as a line: each text on one line, without runs of blanks."""
        opencl = self.interface == "OpenCL"
        number = f"{self.platform}:{self.device}" if opencl else f"{self.interface} {self.selector}"
        detail = f"layout {self.layout}" if self.layout else self.interface_version
        parts = (
            f"[{number}] {self.type}",
            self.name,
            f"{self.platform_name}, {self.platform_version}",
            f"driver {self.driver_version}",
            *(
                (f"ICD {self.icd_version}", self.library)
                if opencl
                else (f"{self.library} ({detail})",)
            ),
            *(() if self.selected else ("not selected",)),
        )
        return printable(" | ".join(" ".join(part.split()) for part in parts))


def list_devices(
    interfaces: Sequence[str] = tuple(INTERFACES),
) -> tuple[list[DeviceRow], list[str]]:
    """List devices.

    Args:
        interfaces: keys of INTERFACES.

    Returns:
        The rows, and a sentence for each driver, adapter, plugin or device that failed.

    Raises:
        SelectorError: the device selector of the environment cannot be understood.
        NotFoundError: there is no device; it is the first interface's, with every reason.
    """
    rows: list[DeviceRow] = []
    warnings: list[str] = []
    errors: list[NotFoundError] = []
    if set(interfaces) & {"ur", "pi"}:
        environment_selector()  # if it is illegal, say so before anything is opened
    for key, interface in INTERFACES.items():
        if key in interfaces:
            try:
                rows += (
                    _opencl_rows(warnings) if key == "opencl" else _plugin_rows(interface, warnings)
                )
            except NotFoundError as error:
                errors.append(error)
    if not rows and errors:
        raise errors[0]
    return rows, warnings


def _opencl_rows(warnings: list[str]) -> Iterator[DeviceRow]:
    from ..api import platforms, usable_devices

    found, failures = usable_devices()
    warnings += failures
    faults: list[str] = []
    indices = {platform: index for index, platform in enumerate(platforms())}
    for device in found:
        platform = device.platform
        numbers = indices[platform], platform.devices.index(device)
        try:
            yield DeviceRow(
                *numbers,
                type=device.type,
                name=device.name,
                platform_name=platform.name,
                platform_version=platform.version,
                driver_version=device.driver_version,
                icd_version=platform.icd_version,
                library=platform.driver.path,
            )
        except FairleadError as error:
            what = "the OpenCL device {}:{}".format(*numbers)
            faults.append(_failed(what, platform.driver.path, error))
    if len(faults) == len(found):
        raise NotFoundError(
            "no OpenCL device describes itself", faults, remedy="run `fairlead doctor`"
        )
    warnings += faults


def _plugin_rows(interface: str, warnings: list[str]) -> list[DeviceRow]:
    from ..api import nested_environment

    with open_plugins(
        interface, environment=nested_environment(), selector=parse(_EVERYTHING)
    ) as plugins:
        refused = (
            refusal
            for refusal in plugins.refusals
            if refusal.remedy and not excluding_pattern(refusal.what)
        )
        warnings += [f"{refusal.what}: {refusal.reason} ({refusal.remedy})" for refusal in refused]
        warnings += [f"{plugin.path}: {text}" for plugin in plugins for text in plugin.warnings]
        warnings += plugins.failures
        return list(_describe(plugins, warnings))


def _told(platform: Any, what: str) -> str:
    """What a platform says of itself; one that fails to may have devices that work."""
    try:
        return getattr(platform, what)
    except FairleadError:
        return ""


def _describe(plugins: Plugins, warnings: list[str]) -> Iterator[DeviceRow]:
    """A row for each root device. Raises NotFoundError if there is none."""
    devices = plugins.select()
    wanted = environment_selector()
    selected = {
        (device.parent or device) for device in (wanted.select(devices) if wanted else devices)
    }
    selected |= {device.parent for device in selected if device.parent}  # of a part of a part
    numbers = {platform: number for number, platform in enumerate(plugins.platforms)}
    for selector, device in zip(selector_strings(devices), devices, strict=True):
        platform, plugin = device.platform, device.platform.plugin
        try:
            yield DeviceRow(
                platform=numbers[platform],
                device=platform.devices.index(device),
                type=device.type,
                name=device.name,
                platform_name=_told(platform, "name"),
                platform_version=_told(platform, "version"),
                driver_version=device.driver_version,
                icd_version=0,
                library=plugin.path,
                interface=plugins.interface,
                interface_version=plugin.version,
                layout=plugin.binding.layout,
                selector=selector,
                selected=device in selected,
            )
        except FairleadError as error:
            what = f"the {plugins.interface} device {selector}"
            warnings.append(_failed(what, plugin.path, error))


def _failed(what: str, path: str, error: FairleadError) -> str:
    return f"{what} failed to describe itself ({path}): {reason_of(error, with_code=True)}"
