"""`fairlead devices`: a row for each device of drivers, adapters and plugins.

`find_devices` asks each interface in turn, and `as_table` makes text of the rows. All plugins are
opened, whatever the environment's device selector says, so that every device has the number by
which selectors name it. The selector only decides which rows are marked as selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..icd import libopencl
from ..icd.objects import CLDevice
from ..loader.base import probe_verdicts
from ..loader.base.errors import FairleadError, NotFoundError, explain_error
from ..loader.base.forked import fork_children
from ..loader.base.frozen_value import Value
from ..loader.base.processes import end_in_order
from ..loader.base.search import find_excluding_pattern
from ..loader.gpu.places import PLACES, is_there
from ..loader.ur.plugins import Plugins, open_plugins, read_selector
from ..loader.ur.selector import make_selector_strings, parse
from ..loader.ze.drivers import open_drivers
from .columns import find_terminal_width, format_table
from .output import keep_stdout_to_ourselves, print_any_text, print_warnings

TYPE_CHECKING = False
if TYPE_CHECKING:  # what opens drivers and adapters is imported where there are any
    from typing import Any, Final, TypeAlias

    from ..loader.gpu.driver import DriverDevice
    from ..loader.ur.devices import PluginDevice
    from ..loader.ze.driver import ZEDevice

#: The interfaces in the order of the rows: as `--interface` takes them, and as rows name them.
INTERFACES: Final = {
    "opencl": "OpenCL",
    "ur": "UR",
    "pi": "PI",
    "ze": "ZE",
    "cuda": "CUDA",
    "hip": "HIP",
}

_EVERYTHING: Final = "*:*"
AnyDevice: TypeAlias = "CLDevice | PluginDevice | ZEDevice | DriverDevice"


class DeviceRow(Value):
    """A device as `fairlead devices --json` prints it, in an array, the OpenCL devices first.

    Later versions may add keys; none is renamed or removed.

    Attributes:
        platform: the index of the platform among those of its interface (`fairlead.platforms()`).
        device: the index of the device in the platform.
        icd_version: 1 or 2, 0 for what is not an OpenCL driver.
        library: the real path of the driver or plugin.
        interface: "OpenCL", "UR", "PI", "ZE" for Level Zero, "CUDA" or "HIP".
        interface_version: such as "0.12" or "15.47.1".
        layout: the release whose tables an adapter has, such as "2025.3".
        selector: the value of ONEAPI_DEVICE_SELECTOR that selects this device alone; "" for what
            is neither an adapter's nor a plugin's.
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

    @property
    def number(self) -> str:
        """What `fairlead info` takes for this device: "0:1", "ur level_zero:0"."""
        if self.interface == "OpenCL":
            return f"{self.platform}:{self.device}"
        here = self.selector or f"{self.platform}:{self.device}"
        return f"{self.interface.lower()} {here}"


_HEADINGS: Final = ("device", "type", "name", "platform", "driver")


def as_table(rows: Sequence[DeviceRow], width: int) -> list[str]:
    """Return the lines of a table of devices. It has a column "selected" if some are not.

    Args:
        width: columns of the table.
    """
    marked = not all(row.selected for row in rows)
    mark = {True: ("yes",), False: ("no",)} if marked else {True: ()}
    cells = [
        (
            row.number,
            row.type.lower(),
            row.name,
            row.platform_name,
            row.driver_version,
            *mark[row.selected],
        )
        for row in rows
    ]
    return format_table([(*_HEADINGS, *(("selected",) if marked else ())), *cells], width)


def print_devices() -> None:
    """Do what `fairlead devices` does. Nothing is printed before an error.

    Raises:
        FairleadError: there is no device, or an environment variable cannot be understood.
    """
    fork_children()
    end_in_order()
    print_any_text()
    keep_stdout_to_ourselves()
    warnings: list[str] = []
    rows = [row for row, _ in find_devices((), warnings)]
    print("\n".join(as_table(rows, find_terminal_width())), flush=True)
    print_warnings(warnings)


def find_devices(
    interfaces: Sequence[str], warnings: list[str]
) -> Iterator[tuple[DeviceRow, AnyDevice]]:
    """Yield each device with its row, while its driver or plugin is open.

    Args:
        interfaces: keys of INTERFACES. () means all, without fairlead's own Level Zero driver: its
            devices are those of OpenCL.
        warnings: gets a sentence for each driver, adapter, plugin or device that failed.

    Raises:
        SelectorError: the device selector of the environment cannot be understood.
        NotFoundError: there is no device; it is the first interface's, with every reason.
    """
    libopencl.forget_refusals()  # whoever asks may have repaired something
    probe_verdicts.forget_refusals(slow=False)  # but a library that hangs must not hold it up twice
    own, interfaces = bool(interfaces), interfaces or tuple(INTERFACES)
    any_device = False
    errors: list[NotFoundError] = []
    if set(interfaces) & {"ur", "pi"}:
        read_selector()  # if it is illegal, say so before anything is opened
    for key, interface in INTERFACES.items():
        if key not in interfaces:
            continue
        try:
            for found in _make_rows(key, interface, warnings, own):
                any_device = True
                yield found
        except NotFoundError as error:
            errors.append(error)
    if not any_device and errors:
        raise errors[0]


def _make_rows(
    key: str, interface: str, warnings: list[str], own: bool
) -> Iterator[tuple[DeviceRow, AnyDevice]]:
    if key == "opencl":
        return _make_opencl_rows(warnings)
    if key in PLACES:
        return _make_gpu_rows(key, interface, own)
    return (
        _make_level_zero_rows(warnings, own)
        if key == "ze"
        else _make_plugin_rows(interface, warnings)
    )


def _make_level_zero_rows(warnings: list[str], own: bool) -> Iterator[tuple[DeviceRow, ZEDevice]]:
    from ..api import level_zero

    drivers = level_zero() if own else open_drivers(own=False)
    refused = (r for r in drivers.refusals if r.remedy and not find_excluding_pattern(r.what))
    warnings += [f"{refusal.what}: {refusal.reason} ({refusal.remedy})" for refusal in refused]
    warnings += drivers.failures
    handles = [handle for driver in drivers for handle in driver.handles]
    counts = [0] * len(handles)
    for device in drivers.select():
        number = handles.index(device.driver_handle)
        counts[number] += 1
        driver = device.driver
        try:
            row = DeviceRow(
                platform=number,
                device=counts[number] - 1,
                type=device.type,
                name=device.name,
                platform_name=driver.find_name(device.driver_handle),
                platform_version=f"Level Zero {driver.api_version}",
                driver_version=device.driver_version,
                icd_version=0,
                library=driver.path,
                interface="ZE",
                interface_version=driver.api_version,
            )
        except FairleadError as error:
            what = f"the Level Zero device {number}:{counts[number] - 1}"
            warnings.append(_describe_failure(what, driver.path, error))
        else:
            yield row, device


def _make_gpu_rows(key: str, interface: str, own: bool) -> Iterator[tuple[DeviceRow, DriverDevice]]:
    if not own and not any(map(is_there, PLACES[key])):
        return  # only who asks for it wants to know why
    from .gpus import SEARCHES

    driver = SEARCHES[interface].get()
    version = "{}.{}".format(*driver.version)
    for device in driver.devices:
        yield (
            DeviceRow(
                platform=0,
                device=device.number,
                type="GPU",
                name=device.name,
                platform_name=interface,
                platform_version=f"{interface} {version}",
                driver_version=version,
                icd_version=0,
                library=driver.path,
                interface=interface,
                interface_version=version,
            ),
            device,
        )


def _make_opencl_rows(warnings: list[str]) -> Iterator[tuple[DeviceRow, CLDevice]]:
    from ..api import find_usable_devices, platforms

    found, failures = find_usable_devices()
    warnings += failures
    faults: list[str] = []
    indices = {platform: index for index, platform in enumerate(platforms())}
    for device in found:
        platform = device.platform
        numbers = indices[platform], platform.devices.index(device)
        try:
            row = DeviceRow(
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
            faults.append(_describe_failure(what, platform.driver.path, error))
        else:
            yield row, device
    if len(faults) == len(found):
        raise NotFoundError(
            "no OpenCL device describes itself", faults, remedy="run `fairlead doctor`"
        )
    warnings += faults


def _make_plugin_rows(
    interface: str, warnings: list[str]
) -> Iterator[tuple[DeviceRow, PluginDevice]]:
    from ..api import make_nested_environment

    with open_plugins(
        interface, environment=make_nested_environment, selector=parse(_EVERYTHING)
    ) as plugins:
        refused = (
            refusal
            for refusal in plugins.refusals
            if refusal.remedy and not find_excluding_pattern(refusal.what)
        )
        warnings += [f"{refusal.what}: {refusal.reason} ({refusal.remedy})" for refusal in refused]
        warnings += [f"{plugin.path}: {text}" for plugin in plugins for text in plugin.warnings]
        warnings += plugins.failures
        yield from _describe(plugins, warnings)


def _read_or_empty(platform: Any, what: str) -> str:
    """Return what a platform says of itself; one that fails to may have devices that work."""
    try:
        return getattr(platform, what)
    except FairleadError:
        return ""


def _describe(plugins: Plugins, warnings: list[str]) -> Iterator[tuple[DeviceRow, PluginDevice]]:
    """Yield each root device and its row. Raises NotFoundError if there is none."""
    devices = plugins.select()
    wanted = read_selector()
    selected = {
        (device.parent or device) for device in (wanted.select(devices) if wanted else devices)
    }
    selected |= {device.parent for device in selected if device.parent}  # of a part of a part
    numbers = {platform: number for number, platform in enumerate(plugins.platforms)}
    for selector, device in zip(make_selector_strings(devices), devices, strict=True):
        platform, plugin = device.platform, device.platform.plugin
        try:
            row = DeviceRow(
                platform=numbers[platform],
                device=platform.devices.index(device),
                type=device.type,
                name=device.name,
                platform_name=_read_or_empty(platform, "name"),
                platform_version=_read_or_empty(platform, "version"),
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
            warnings.append(_describe_failure(what, plugin.path, error))
        else:
            yield row, device


def _describe_failure(what: str, path: str, error: FairleadError) -> str:
    return f"{what} failed to describe itself ({path}): {explain_error(error, with_code=True)}"
