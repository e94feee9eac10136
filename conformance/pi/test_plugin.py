"""Opening a plugin: piPluginInit, versions, the function table, exports, queries of the plugin."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.checks import ends_library, equal, expect, failed, rule
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import API_VERSION, PI, TABLE_OFFSET, VERSION_SIZE
from fairlead.loader.ur.plugin import Plugin

INIT = "piPluginInit"
_Init = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_MARK = 0x4C44_4146_0000_0001
_WORDS = 512
IN_TABLE_ALONE = ("piextEnqueueDeviceGlobalVariableWrite", "piextEnqueueDeviceGlobalVariableRead")


def init(plugin: Plugin, version: str) -> tuple[int, bytes, list[int]]:
    """Call piPluginInit as a host of a version.

    Returns its code, the struct's head, and the slots of the table.
    """
    address = plugin.library.find_own_symbol(INIT)
    if not address:
        failed("the library exports piPluginInit", "it does not")
    block = (ctypes.c_uint64 * _WORDS)(*[_MARK] * _WORDS)
    ctypes.memset(block, 0, TABLE_OFFSET)
    ctypes.memmove(block, version.encode(), len(version))
    code = _Init(address)(ctypes.addressof(block))
    return code, bytes(block)[:TABLE_OFFSET], block[TABLE_OFFSET // 8 :]


def read_version(head: bytes) -> str:
    """Return the version that the plugin wrote."""
    return head[VERSION_SIZE : 2 * VERSION_SIZE].split(b"\0")[0].decode("ascii", "replace")


@rule(INIT, "PI_SUCCESS for a host of the same version")
def test_same_version(plugin: Plugin) -> None:
    code, head, _ = init(plugin, API_VERSION)
    expect(PI, code, "PI_SUCCESS")
    major, _, rest = read_version(head).partition(".")
    equal((major.isdecimal(), bool(rest)), (True, True), f"{read_version(head)!r} is a version")


@rule(INIT, "PI_SUCCESS for a host of a later version")
@pytest.mark.parametrize("version", ["15.48", "16.0"])
def test_later_version(plugin: Plugin, version: str) -> None:
    expect(PI, init(plugin, version)[0], "PI_SUCCESS")


@rule(
    INIT,
    "PI_ERROR_INVALID_OPERATION for a host of an earlier major version, and nothing is written",
)
@pytest.mark.parametrize("version", ["14.30", "1.2"])
def test_earlier_version(plugin: Plugin, version: str) -> None:
    code, head, words = init(plugin, version)
    expect(PI, code, "PI_ERROR_INVALID_OPERATION")
    equal(read_version(head), "", "the plugin's version")
    equal(words, [_MARK] * len(words), "the table")


@rule(INIT, "fills the table of its version, no entry of which is NULL, and nothing beyond")
def test_table(plugin: Plugin) -> None:
    _, _, words = init(plugin, API_VERSION)
    missing = [f.name for f in PI.slots if words[f.slot or 0] in (0, _MARK)]
    beyond = [word for word in words[len(PI.slots) :] if word != _MARK]
    equal(
        (missing, beyond[1:]),
        ([], []),
        "entries that are NULL, and words beyond the table and SanitizeType",
    )


@rule(INIT, "the table's entries are the exported functions of their names, where there are such")
def test_exported_names(plugin: Plugin) -> None:
    _, _, words = init(plugin, API_VERSION)
    addresses = {f.name: plugin.library.find_own_symbol(f.name) for f in PI.slots}
    differ = [
        name
        for name, address in addresses.items()
        if address and address != words[PI.functions[name].slot or 0]
    ]
    equal(differ, [], "functions that are elsewhere")


@rule(INIT, "every function but those of device globals is exported by its name too")
def test_exports(plugin: Plugin) -> None:
    absent = [
        f.name
        for f in PI.slots
        if f.name not in IN_TABLE_ALONE and not plugin.library.find_own_symbol(f.name)
    ]
    equal(absent, [], "names that are not exported")


@rule(INIT, "a second call gives the same table")
def test_again(plugin: Plugin) -> None:
    equal(init(plugin, API_VERSION)[2], init(plugin, API_VERSION)[2], "the table")


@rule("piPluginGetLastError", "gives a message, or says that there is none")
def test_last_error(pi: DispatchTable) -> None:
    message = ctypes.c_char_p()
    expect(
        PI,
        pi.piPluginGetLastError(ctypes.byref(message)),
        "PI_SUCCESS",
        "PI_ERROR_PLUGIN_SPECIFIC_ERROR",
        "PI_ERROR_UNSUPPORTED_FEATURE",
    )


@rule(
    "piPluginGetBackendOption",
    "translates -O0 to -O3, and gives PI_ERROR_INVALID_VALUE for what is not an option",
)
def test_backend_option(pi: DispatchTable, platform: int) -> None:
    option = ctypes.c_char_p()
    for level in range(4):
        expect(
            PI,
            pi.piPluginGetBackendOption(platform, b"-O%d" % level, ctypes.byref(option)),
            "PI_SUCCESS",
        )
        equal(option.value is None, False, "the option is NULL")
    expect(
        PI,
        pi.piPluginGetBackendOption(platform, b"-no-such-option", ctypes.byref(option)),
        "PI_ERROR_INVALID_VALUE",
    )


@ends_library
@rule("piTearDown", "PI_SUCCESS; a byte at the parameter may be written")
def test_tear_down(pi: DispatchTable) -> None:
    parameter: Any = ctypes.c_uint64()
    expect(PI, pi.piTearDown(ctypes.byref(parameter)), "PI_SUCCESS")
