"""Programs of PI, served from Unified Runtime."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..ur.abi import UR
from .abi import PI
from .mapping import ENUMS, make_struct, read_struct, refuse
from .translation import UNSUPPORTED_FEATURE, make_c_string, read_word, read_words, serves

if TYPE_CHECKING:
    from .serve import Service


# void (pi_program, void *data), of piProgramBuild
_Notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@serves("piProgramCreateWithBinary")
def _create_program_from_binary(
    service: Service,
    context: int,
    count: int,
    devices: int,
    lengths: int,
    binaries: int,
    num_metadata: int,
    metadata: int,
    status: int,
    program: int,
) -> int:
    properties = None
    if num_metadata:
        if not metadata:
            raise refuse("PI_ERROR_INVALID_VALUE", "metadata is NULL.")
        entries = (UR.get_struct("ur_program_metadata_t") * num_metadata)()
        for entry, address in zip(entries, read_words(metadata, num_metadata), strict=False):
            _convert_metadata(entry, read_struct(address, "pi_device_binary_property_struct"))
        properties = ctypes.byref(
            make_struct("ur_program_properties_t", count=num_metadata, pMetadatas=entries)
        )
    code = service.call(
        "urProgramCreateWithBinary", context, count, devices, lengths, binaries, properties, program
    )
    for index in range(count if status else 0):
        ctypes.c_int32.from_address(status + 4 * index).value = code
    return code


def _convert_metadata(entry: Any, source: Any) -> None:
    """Convert an entry of metadata. PI stores a number in the field of the size."""
    entry.pName = source.Name
    entry.type = ENUMS["pi_property_type"].convert_to_ur(source.Type)
    if source.Type == PI["PI_PROPERTY_TYPE_UINT32"]:
        entry.size, entry.value.data32 = 4, source.ValSize
    else:
        entry.size, entry.value.pData = source.ValSize, source.ValAddr


@serves("piProgramBuild")
def _build_program(
    service: Service, program: int, count: int, devices: int, options: int, notify: int, data: int
) -> int:
    """Build for a list of devices, which UR does only by an optional extension.

    Without it, UR builds for all devices of the context.
    """
    return _build(service, "urProgramBuild", program, count, devices, options, notify, data)


@serves("piProgramCompile")
def _compile_program(
    service: Service,
    program: int,
    count: int,
    devices: int,
    options: int,
    num_headers: int,
    headers: int,
    names: int,
    notify: int,
    data: int,
) -> int:
    """UR has no headers, so a call with headers is refused."""
    if num_headers:
        return UNSUPPORTED_FEATURE
    return _build(service, "urProgramCompile", program, count, devices, options, notify, data)


def _build(
    service: Service,
    name: str,
    program: int,
    count: int,
    devices: int,
    options: int,
    notify: int,
    data: int,
) -> int:
    code = UNSUPPORTED_FEATURE
    if count and devices and service.has(name + "Exp"):
        code = service.call(name + "Exp", program, count, devices, 0, make_c_string(options))
    if code == UNSUPPORTED_FEATURE:
        context = read_word(
            service.query("urProgramGetInfo", program, UR["UR_PROGRAM_INFO_CONTEXT"])
        )
        code = service.call(name, context, program, make_c_string(options))
    return _call_notify(code, program, notify, data)


def _call_notify(code: int, program: int, notify: int, data: int) -> int:
    """Call the callback: PI may build later, but UR has already built."""
    if notify:
        _Notify(notify)(program, data)
    return code


@serves("piProgramLink")
def _link_programs(
    service: Service,
    context: int,
    count: int,
    devices: int,
    options: int,
    num_programs: int,
    programs: int,
    notify: int,
    data: int,
    linked: int,
) -> int:
    code = UNSUPPORTED_FEATURE
    if count and devices and service.has("urProgramLinkExp"):
        code = service.call(
            "urProgramLinkExp",
            context,
            count,
            devices,
            0,
            num_programs,
            programs,
            make_c_string(options),
            linked,
        )
    if code == UNSUPPORTED_FEATURE:
        code = service.call(
            "urProgramLink", context, num_programs, programs, make_c_string(options), linked
        )
    return _call_notify(code, ctypes.c_uint64.from_address(linked).value, notify, data)
