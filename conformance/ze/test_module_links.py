"""Modules of several inputs, specialization constants, and modules that import from others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int32, c_uint32, c_void_p
from typing import Any

import pytest

from fairlead.conformance.checks import equal, failed, rule, unsupported
from fairlead.conformance.ur.spirv import SPEC_ID, make_importing_store, make_plus, make_store
from fairlead.conformance.ze.calls import ZECalls, handles, new
from fairlead.conformance.ze.objects import ZEObjects
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice

CREATE, LINK, INSPECT = "zeModuleCreate", "zeModuleDynamicLink", "zeModuleInspectLinkageExt"
_SPIRV = ZE["ZE_MODULE_FORMAT_IL_SPIRV"]


def make_constants(number: int, value: Any) -> Any:
    """Return the value of one specialization constant."""
    numbers, values = (c_uint32 * 1)(number), handles(ctypes.addressof(value))
    made = new("ze_module_constants_t", numConstants=1, pConstantIds=numbers)
    made.pConstantValues, made.values = ctypes.addressof(values), (values, value)
    return made


@pytest.fixture
def create(
    make: ZEObjects, ze: ZECalls, build: Callable[[int, bytes], int]
) -> Callable[..., tuple[str, int]]:
    """Creates a module of SPIR-V. It returns the code and the module."""
    if not build(_SPIRV, make_store()):
        unsupported("the driver takes no SPIR-V")

    def make_module(data: bytes = b"", given: Any = None, chained: Any = None) -> tuple[str, int]:
        text, module = ctypes.create_string_buffer(data, len(data)), c_void_p()
        fields = {"format": _SPIRV, "pNext": chained, "pConstants": given}
        if data:
            fields |= {"inputSize": len(data), "pInputModule": text}
        desc = new("ze_module_desc_t", **fields)
        code = ze.code(CREATE, make.context, make.device, desc, module)
        if module.value:
            make.defer(lambda: ze.number("zeModuleDestroy", module))
        return code.removeprefix("ZE_RESULT_"), module.value or 0

    return make_module


def run_store(make: ZEObjects, ze: ZECalls, module: int, value: int) -> int:
    """Return what the kernel `store` of a module writes for a value."""
    own = ZEObjects(ze, make.context, make.device, lambda name: module)
    try:
        out, made = own.ints(0), own.immediate()
        own.launch(made, own.kernel("store", out.pointer, c_int32(value)), 1)
        own.finish(made)
        return out.all[0]
    finally:
        own.close()


@rule(CREATE, "specialization constants get their values, or their defaults")
def test_constants(make: ZEObjects, ze: ZECalls, create: Callable[..., tuple[str, int]]) -> None:
    for given, wanted in ((make_constants(SPEC_ID, c_int32(10)), 15), (None, 5)):
        code, module = create(make_store(), given)
        equal(code, "SUCCESS", "the code")
        equal(run_store(make, ze, module, 5), wanted, "what the kernel has written")


@rule("ze_module_program_exp_desc_t", "inputs are linked, each with its own constants")
def test_several(
    make: ZEObjects, ze: ZECalls, chosen: ZEDevice, create: Callable[..., tuple[str, int]]
) -> None:
    if "ZE_experimental_module_program" not in chosen.driver.extensions:
        unsupported("the driver has no ZE_experimental_module_program")
    inputs, given = (make_importing_store(), make_plus()), make_constants(SPEC_ID, c_int32(30))
    data = [ctypes.create_string_buffer(one, len(one)) for one in inputs]
    several = new(
        "ze_module_program_exp_desc_t",
        count=2,
        inputSizes=(ctypes.c_size_t * 2)(*map(len, inputs)),
        pInputModules=handles(*map(ctypes.addressof, data)),
        pConstants=handles(0, ctypes.addressof(given)),
    )
    code, module = create(chained=several)
    equal(code, "SUCCESS", "the code")
    equal(run_store(make, ze, module, 5), 35, "what the kernel has written")


@rule(LINK, "a module with imports runs after it is linked, and not before")
def test_link(make: ZEObjects, ze: ZECalls, create: Callable[..., tuple[str, int]]) -> None:
    (_, caller), (_, other) = create(make_importing_store()), create(make_plus())
    row = new("ze_module_properties_t")
    ze.ok("zeModuleGetProperties", caller, row)
    equal(bool(row.flags & ZE["ZE_MODULE_PROPERTY_FLAG_IMPORTS"]), True, "whether it has imports")
    text, kernel = ctypes.create_string_buffer(b"store"), c_void_p()
    given = caller, byref(new("ze_kernel_desc_t", pKernelName=text)), byref(kernel)
    ze.refuses("INVALID_MODULE_UNLINKED", "zeKernelCreate", *given)
    ze.ok(LINK, 2, handles(caller, other))
    equal(run_store(make, ze, caller, 5), 5, "what the kernel has written")


@rule(LINK, "refuses imports that nobody defines, with a log")
def test_unresolved(ze: ZECalls, create: Callable[..., tuple[str, int]]) -> None:
    (_, caller), log = create(make_importing_store()), c_void_p()
    ze.refuses("MODULE_LINK_FAILURE", LINK, 1, handles(caller), log)
    if not log.value:
        failed("a log", "none")
    ze.ok("zeModuleBuildLogDestroy", log)


@rule(INSPECT, "names what modules import and export")
def test_inspection(ze: ZECalls, chosen: ZEDevice, create: Callable[..., tuple[str, int]]) -> None:
    if "ZE_extension_linkage_inspection" not in chosen.driver.extensions:
        unsupported("the driver has no ZE_extension_linkage_inspection")
    (_, caller), log, size = create(make_importing_store()), c_void_p(), ctypes.c_size_t()
    desc = new("ze_linkage_inspection_ext_desc_t", flags=3)
    ze.ok(INSPECT, desc, 1, handles(caller), log)
    ze.ok("zeModuleBuildLogGetString", log, size)
    text = ctypes.create_string_buffer(size.value)
    ze.ok("zeModuleBuildLogGetString", log, size, text)
    ze.ok("zeModuleBuildLogDestroy", log)
    equal(text.value.count(b"plus"), 2, "how often the log names the import")
