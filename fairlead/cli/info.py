"""`fairlead info`: what devices say of themselves, in sections.

The ABI data names every query of a device and the type of its answer. So a device is asked
everything that its interface has, and a query that it does not answer is left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..icd.abi import OPENCL
from ..loader.base.abi import Api
from ..loader.base.errors import FairleadError, NotFoundError
from ..loader.base.query import escape_text
from ..loader.cuda.abi import CUDA
from ..loader.gpu.driver import DriverDevice
from ..loader.hip.abi import HIP
from ..loader.trace.values import format_word
from ..loader.ur.devices import DIALECTS
from ..loader.ze.abi import ZE
from ..loader.ze.driver import ZEDevice
from .devices import INTERFACES, AnyDevice, DeviceRow, find_devices
from .gpus import query_gpu
from .level_zero_info import query_level_zero

#: The queries of an interface: their group in its ABI data, and what their names begin with.
_QUERIES: Final = {
    "OpenCL": ("cl_device_info", "CL_DEVICE_"),
    "UR": ("ur_device_info_t", "UR_DEVICE_INFO_"),
    "PI": ("pi_device_info", "PI_DEVICE_INFO_"),
}
#: The ABI data of drivers of GPUs, and what the names of attributes begin with.
_ATTRIBUTES: Final = {"CUDA": (CUDA, "CU_DEVICE_ATTRIBUTE_"), "HIP": (HIP, "hipDeviceAttribute")}
_FIRST_QUERY: Final = 0x1000  # in OpenCL; lower constants of the group are not queries

#: What says nothing of the device, or is said of it already.
_LEFT_OUT: Final = re.compile(
    "DRIVER_VERSION|PLATFORM|PARENT_DEVICE|REFERENCE_COUNT|COMPO.*_DEVICES?"
)
#: The sections in their order; a query is in the first one whose pattern fits its name.
_SECTIONS: Final = {
    "Extensions": ".*EXTENSIONS?|EXTENSIONS_.*|BUILT_IN_KERNELS.*|ILS?_.*|SPIRV_.*",
    "Version": "NAME|VENDOR.*|TYPE|.*VERSION.*|PROFILE|DEVICE_ID|U?UID|LUID.*|NODE_MASK|PCI_.*|"
    ".*AVAILABLE|OPENCL_C_.*|BACKEND.*",
    "USM and shared virtual memory": ".*(USM|SVM|MEM_CAPABILITIES|VIRTUAL_MEMORY).*",
    "Images": ".*IMAGE.*|.*(PIPE|SAMPLER|MIPMAP|CUBEMAP|YUV).*",
    "Memory": ".*MEM(ORY)?_.*|.*(BUFFER|GLOBAL_VARIABLE|CONSTANT|ALIGN).*|ENDIAN.*|ADDRESS_BITS|"
    "HOST_UNIFIED_MEMORY",
    "Limits": "MAX_.*|.*(WORK_GROUP|SUB_GROUP|VECTOR_WIDTH|PARTITION|UNITS|QUEUE|COUNT).*",
    "Capabilities": ".*",
}
_ORDER: Final = (
    "Version",
    "Limits",
    "Memory",
    "USM and shared virtual memory",
    "Images",
    "Capabilities",
    "Extensions",
)
_BYTES: Final = re.compile(
    ".*(MEM_SIZE|MEM_FREE|ALLOC_SIZE|CACHE_SIZE|CACHELINE_SIZE|BUFFER_SIZE|PARAMETER_SIZE|"
    "VARIABLE_SIZE|TOTAL_SIZE|PACKET_SIZE)|MEMORY"
)
_UNITS: Final = {
    "CLOCK_RATE": "kHz",
    "MAX_CLOCK_FREQUENCY": "MHz",
    "CORE_CLOCK_RATE": "MHz",
    "MEMORY_CLOCK_RATE": "kHz",
    "PROFILING_TIMER_RESOLUTION": "ns",
}


@dataclass(frozen=True)
class DeviceInfo:
    """A device and its answers.

    Attributes:
        row: the device as `fairlead devices` lists it.
        prefix: what the names of its queries begin with.
        answers: the name of each query, and the answer as a Python value.
    """

    row: DeviceRow
    api: Api
    prefix: str
    answers: dict[str, Any]

    def shorten(self, name: str) -> str:
        """Return a query without what all names begin with: hipDeviceAttributeWarpSize is
        WARP_SIZE."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removeprefix(self.prefix)).upper()

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints: the keys of the row, and `info`. Bytes are hexadecimal
        digits."""
        answers = {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in self.answers.items()
        }
        return {**self.row.get_fields(), "info": answers}


def describe_devices(
    interfaces: Sequence[str], warnings: list[str], wanted: str = ""
) -> Iterator[DeviceInfo]:
    """Ask devices everything.

    Args:
        interfaces: as of `find_devices`.
        warnings: as of `find_devices`.
        wanted: a device's number, its selector, or a part of its name; "" for all devices.

    Raises:
        NotFoundError: There is no such device, or none at all.
        SelectorError: The device selector of the environment cannot be understood.
    """
    known = []
    found = False
    word = wanted.split(" ")[0].lower()
    if not interfaces and " " in wanted and word in INTERFACES:
        interfaces = (word,)  # which shows fairlead's own driver of Level Zero, too
    for row, device in find_devices(interfaces, warnings):
        known.append(row.number)
        if _is_meant(row, wanted):
            found = True
            yield _describe(row, device)
    if not found:
        raise NotFoundError(
            f"no device is called {wanted!r}",
            remedy=f"name one of {', '.join(known)}, or a part of its name",
        )


def _is_meant(row: DeviceRow, wanted: str) -> bool:
    names = row.number.lower(), row.selector.lower()
    return wanted.lower() in names or (
        wanted.lower() in row.name.lower() and not re.fullmatch(r"\d*:\d*", wanted)
    )


def _describe(row: DeviceRow, device: AnyDevice) -> DeviceInfo:
    if isinstance(device, DriverDevice):
        return DeviceInfo(row, *_ATTRIBUTES[row.interface], query_gpu(row.interface, device))
    if isinstance(device, ZEDevice):
        return DeviceInfo(row, ZE, "", query_level_zero(device))
    api = OPENCL if row.interface == "OpenCL" else DIALECTS[row.interface].api
    group, prefix = _QUERIES[row.interface]
    answers = {}
    for number, name in api.groups[group].items():
        known = name.startswith(prefix) and (api is not OPENCL or number >= _FIRST_QUERY)
        if not known or _LEFT_OUT.fullmatch(name.removeprefix(prefix)):
            continue
        try:
            answers[name] = device.info(name)
        except FairleadError:
            continue  # the device, or its version of the interface, has no such query
    return DeviceInfo(row, api, prefix, answers)


def render(info: DeviceInfo, width: int) -> str:
    """Return a device as text.

    Args:
        width: columns of a line.
    """
    row = info.row
    lines = [f"{row.number}: {row.name}"]
    sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _ORDER}
    sections["Version"] += [
        ("platform", f"{row.platform_name}, {row.platform_version}"),
        ("library", row.library),
        ("interface", _find_interface(row)),
        ("driver version", row.driver_version),
    ]
    for name, value in info.answers.items():
        short = info.shorten(name)
        title = next(title for title in _SECTIONS if re.fullmatch(_SECTIONS[title], short))
        if value not in ("", b"", ()):
            sections[title].append(
                (_split_words(short), _format_answer(info.api, name, short, value))
            )
    for title, pairs in sections.items():
        lines += [f"  {title}"] if pairs else []
        for name, text in pairs:
            lines += _wrap(f"    {name}: {escape_text(text)}", width)
    return "\n".join(lines)


def _find_interface(row: DeviceRow) -> str:
    if row.interface == "OpenCL":
        return f"OpenCL, ICD {row.icd_version}"
    layout = f", layout {row.layout}" if row.layout else ""
    return f"{row.interface} {row.interface_version}{layout}"


def _split_words(name: str) -> str:
    return name.lower().replace("_", " ")


def _wrap(line: str, width: int) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False
    )


def _format_answer(api: Api, name: str, short: str, value: Any) -> str:
    """Return an answer as text: with the names of its bits, and the unit of a size."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):  # names and versions
            return ", ".join(f"{one} {'.'.join(map(str, version))}" for one, version in value)
        return (".".join if short.endswith("VERSION") else ", ".join)(map(str, value))
    if not isinstance(value, int):
        return str(value)
    if _BYTES.fullmatch(short):
        return _format_size(value)
    answer = api.constants[name].answer if name in api.constants else ""
    if answer and api.resolve(answer) in ("handle", "callback"):
        return f"{value:#x}"
    text = format_word(api, answer, value) if answer and not answer.endswith("[]") else str(value)
    return f"{text} {_UNITS[short]}" if short in _UNITS else text


def _format_size(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit} ({size} bytes)"
    return f"{size} bytes"
