"""Every function with NULL and 0 for every argument, except for outputs.

It must answer an error, and not crash. pi.h lists no errors, so any error is right.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.checks import NOT_IMPLEMENTED, failed, forked, name_of, rule, unsupported
from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

HANDLES = (
    *(
        "pi_platform",
        "pi_device",
        "pi_context",
        "pi_queue",
        "pi_mem",
        "pi_sampler",
        "pi_program",
        "pi_kernel",
        "pi_event",
    ),
    "pi_ext_command_buffer",
)
#: Functions without a handle to refuse: they are about the plugin, or take a driver's handle.
_NOTHING = (
    *(
        "piTearDown",
        "piPluginGetLastError",
        "piextPluginGetOpaqueData",
        "piPlatformsGet",
        "piPluginGetBackendOption",
    ),
    *(
        "piextPlatformCreateWithNativeHandle",
        "piextDeviceCreateWithNativeHandle",
        "piextContextCreateWithNativeHandle",
    ),
)


def list_functions() -> list[Function]:
    """Return the functions that take a handle, or a list of handles."""
    return [
        f
        for f in PI.slots
        if f.name not in _NOTHING
        and any(p.type in HANDLES and "out" not in p.words for p in f.parameters)
    ]


def make_zero(parameter: Parameter) -> Any:
    """Return NULL or 0, or memory for what is written."""
    if "out" in parameter.words and not parameter.length:
        return ctypes.byref((ctypes.c_uint64 * 8)())
    is_pointer = parameter.stars or PI.resolve(parameter.type) in ("handle", "callback", "void*")
    return None if is_pointer else 0


@forked
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(f, id=f.name, marks=rule(f.name, "an error if everything is NULL or 0"))
        for f in list_functions()
    ],
)
def test_null(pi: DispatchTable, function: Function) -> None:
    code = getattr(pi, function.name)(*map(make_zero, function.parameters))
    if name_of(PI, code).endswith(NOT_IMPLEMENTED):
        unsupported(f"{function.name} answers {name_of(PI, code)}")
    if not code:
        failed("an error", "PI_SUCCESS")
