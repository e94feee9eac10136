"""Modules and kernels: built, refused, asked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int16, c_int32

from fairlead.conformance.checks import equal, failed, rule, unsupported
from fairlead.conformance.ur.spirv import make_store
from fairlead.conformance.ze.calls import ZECalls, new
from fairlead.conformance.ze.objects import ZEObjects
from fairlead.loader.ze.abi import ZE

SET = "zeKernelSetArgumentValue"


@rule("zeModuleCreate", "refuses SPIR-V that is damaged, with a build log")
def test_damaged(make: ZEObjects, ze: ZECalls, build: Callable[[int, bytes], int]) -> None:
    if not build(ZE["ZE_MODULE_FORMAT_IL_SPIRV"], make_store()):
        unsupported("the driver takes no SPIR-V")
    data = make_store()[:40]
    given = ctypes.create_string_buffer(data, len(data))
    fields = {"format": ZE["ZE_MODULE_FORMAT_IL_SPIRV"], "inputSize": len(data)}
    desc = new("ze_module_desc_t", pInputModule=given, **fields)
    module, log, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    ask = make.context, make.device, byref(desc), byref(module), byref(log)
    got = ze.code("zeModuleCreate", *ask)
    if got == "ZE_RESULT_SUCCESS":
        failed("an error", got)
    if log.value:
        ze.ok("zeModuleBuildLogGetString", log, size)
        ze.ok("zeModuleBuildLogDestroy", log)


@rule("zeModuleCreate", "refuses NULL")
def test_null(make: ZEObjects, ze: ZECalls) -> None:
    module, desc = ctypes.c_void_p(), new("ze_module_desc_t")
    after = byref(desc), byref(module), None
    ze.refuses("INVALID_NULL_HANDLE", "zeModuleCreate", None, make.device, *after)
    given = make.context, make.device, None, byref(module), None
    ze.refuses("INVALID_NULL_POINTER", "zeModuleCreate", *given)


@rule("zeModuleGetKernelNames", "lists the kernels")
def test_names(ze: ZECalls, module: Callable[[str], int]) -> None:
    found, count = module("store"), ctypes.c_uint32()
    ze.ok("zeModuleGetKernelNames", found, count)
    names = (ctypes.c_char_p * count.value)()
    ze.ok("zeModuleGetKernelNames", found, count, names)
    equal(b"store" in list(names), True, "whether `store` is listed")


@rule("zeKernelCreate", "refuses a name that the module does not have")
def test_no_kernel(ze: ZECalls, module: Callable[[str], int]) -> None:
    text, kernel = ctypes.create_string_buffer(b"missing"), ctypes.c_void_p()
    desc = new("ze_kernel_desc_t", pKernelName=text)
    ze.refuses("INVALID_KERNEL_NAME", "zeKernelCreate", module("store"), desc, kernel)


@rule("zeKernelGetName", "gives the name")
def test_name(make: ZEObjects, ze: ZECalls) -> None:
    kernel, size = make.kernel("store"), ctypes.c_size_t()
    ze.ok("zeKernelGetName", kernel, size)
    text = ctypes.create_string_buffer(size.value)
    ze.ok("zeKernelGetName", kernel, size, text)
    equal(text.value, b"store", "the name")


@rule("zeKernelGetProperties", "counts the arguments")
def test_properties(make: ZEObjects, ze: ZECalls) -> None:
    row = new("ze_kernel_properties_t")
    ze.ok("zeKernelGetProperties", make.kernel("store"), row)
    equal(row.numKernelArgs, 2, "numKernelArgs")


@rule(SET, "refuses an argument that the kernel does not have")
def test_argument_index(make: ZEObjects, ze: ZECalls) -> None:
    ze.refuses("INVALID_KERNEL_ARGUMENT_INDEX", SET, make.kernel("store"), 2, 4, c_int32(1))


@rule(SET, "refuses an argument of another size, and the one before stays")
def test_argument_size(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out = make.ints(count=2)
    kernel = make.kernel("store", out.pointer, c_int32(1))
    ze.refuses("INVALID_KERNEL_ARGUMENT_SIZE", SET, kernel, 1, 2, c_int16(9))
    made = make.list()
    make.launch(made, kernel, 2)
    make.close_list(made)
    make.check_result(queue, made, out, 1, 1)


@rule("zeKernelSetGroupSize", "refuses a group of nothing")
def test_group_of_nothing(make: ZEObjects, ze: ZECalls) -> None:
    kernel = make.kernel("store")
    ze.refuses("INVALID_GROUP_SIZE_DIMENSION", "zeKernelSetGroupSize", kernel, 0, 1, 1)


@rule("zeKernelSuggestGroupSize", "suggests a size that can be set")
def test_suggestion(make: ZEObjects, ze: ZECalls) -> None:
    kernel, found = make.kernel("store"), [ctypes.c_uint32() for _ in range(3)]
    ze.ok("zeKernelSuggestGroupSize", kernel, 1000, 1, 1, *map(byref, found))
    ze.ok("zeKernelSetGroupSize", kernel, *(size.value for size in found))
