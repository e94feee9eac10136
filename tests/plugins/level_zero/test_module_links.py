"""Modules of several inputs, specialization constants, and modules that import from others."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint32, c_void_p
from typing import Any

import pytest
from helpers.ze_bench import FOREVER, ZeBench, argument
from helpers.ze_calls import array, new

from fairlead.conformance.ur.spirv import SPEC_ID, make_importing_store, make_plus, make_store

SPIRV, TEXT = 0, 1
CALLER = b"""
int plus(int value);
kernel void store(global int *out, int value) { out[get_global_id(0)] = plus(value); }
"""
PLUS = b"int plus(int value) { return value + NUMBER; }"
LINK = "zeModuleDynamicLink"


def constants(*pairs: tuple[int, Any]) -> Any:
    """Return values of specialization constants: None is a NULL pointer."""
    numbers = (c_uint32 * len(pairs))(*(number for number, _ in pairs))
    values = array(*(0 if value is None else ctypes.addressof(value) for _, value in pairs))
    made = new("ze_module_constants_t", numConstants=len(pairs), pConstantIds=numbers)
    made.pConstantValues, made.values = ctypes.addressof(values), (values, pairs)
    return made


def create(bench: ZeBench, desc: Any) -> tuple[str, int, str]:
    """Return the code of zeModuleCreate, the module, and the log."""
    module, log = c_void_p(), c_void_p()
    given = bench.context, bench.device, byref(desc), byref(module), byref(log)
    code = bench.ze.code("zeModuleCreate", *given)
    return code, module.value or 0, read_log(bench, log)


def read_log(bench: ZeBench, log: c_void_p) -> str:
    if not log:
        return ""
    size = ctypes.c_size_t()
    bench.ze.ok("zeModuleBuildLogGetString", log, size)
    room = ctypes.create_string_buffer(size.value)
    bench.ze.ok("zeModuleBuildLogGetString", log, size, room)
    bench.ze.ok("zeModuleBuildLogDestroy", log)
    return room.value.decode()


def module_of(
    bench: ZeBench, data: bytes, form: int = SPIRV, given: Any = None
) -> tuple[str, int, str]:
    text = ctypes.create_string_buffer(data, len(data))
    desc = new(
        "ze_module_desc_t", format=form, inputSize=len(data), pInputModule=text, pConstants=given
    )
    return create(bench, desc)


def module_of_several(
    bench: ZeBench, form: int, *inputs: tuple[bytes, bytes | None, Any]
) -> tuple[str, int, str]:
    """Create a module of inputs: their data, flags and constants."""
    count = len(inputs)
    data = [ctypes.create_string_buffer(one, len(one)) for one, _, _ in inputs]
    several = new(
        "ze_module_program_exp_desc_t",
        count=count,
        inputSizes=(ctypes.c_size_t * count)(*(len(one) for one, _, _ in inputs)),
        pInputModules=array(*map(ctypes.addressof, data)),
        pBuildFlags=(ctypes.c_char_p * count)(*(flags for _, flags, _ in inputs)),
        pConstants=array(*(ctypes.addressof(one) if one else 0 for _, _, one in inputs)),
    )
    several.data = data
    return create(bench, new("ze_module_desc_t", format=form, pNext=several))


@pytest.fixture
def takes_spirv(bench: ZeBench) -> bool:
    """Whether the driver takes SPIR-V."""
    row = bench.ze.properties(
        "zeDeviceGetModuleProperties", "ze_device_module_properties_t", bench.device
    )
    return bool(row.spirvVersionSupported)


@pytest.fixture
def spirv(takes_spirv: bool) -> None:
    if not takes_spirv:
        pytest.skip("needs a driver that takes SPIR-V: Intel's")


def stored(bench: ZeBench, module: int, value: int) -> int:
    """Return what the kernel `store` of a module writes for a value."""
    out, made = bench.ints(0), bench.immediate()
    bench.launch(made, bench.kernel("store", out.pointer, c_int(value), module=module))
    bench.finish(made)
    return out[0]


def has_imports(bench: ZeBench, module: int) -> bool:
    row = bench.ze.properties("zeModuleGetProperties", "ze_module_properties_t", module)
    return bool(row.flags)


# what SPIR-V says of arguments


def kernel_of_spirv(bench: ZeBench) -> int:
    code, module, log = module_of(bench, make_store())
    assert code == "SUCCESS", log
    return bench.kernel("store", module=module)


@pytest.mark.parametrize("form", [SPIRV, TEXT])
def test_build_flags_of_other_drivers(bench: ZeBench, takes_spirv: bool, form: int) -> None:
    """They are left out. The log names those that are no flags of Level Zero."""
    if form == SPIRV and not takes_spirv:
        pytest.skip("needs a driver that takes SPIR-V: Intel's")
    text = b"kernel void one(global int *out) { *out = NUMBER; }"
    data = make_store() if form == SPIRV else text
    number = b"" if form == SPIRV else b" -D NUMBER=1"
    for flags, ignored in (
        (b"-no-such-flag", "-no-such-flag"),
        (b"-cl-mad-enable -vc-codegen -ze-opt-level=2", "-vc-codegen"),
        (b"-library-compilation -ze-opt-large-register-file", ""),
        (b"-cl-intel-256-GRF-per-thread", "-cl-intel-256-GRF-per-thread"),
    ):
        room = ctypes.create_string_buffer(data, len(data))
        given = {"format": form, "inputSize": len(data), "pInputModule": room}
        desc = new(
            "ze_module_desc_t", **given, pBuildFlags=ctypes.create_string_buffer(flags + number)
        )
        code, _, log = create(bench, desc)
        assert code == "SUCCESS", log
        told = f"unknown build flags are ignored: {ignored}\n" in f"{log}\n".replace("\0", "")
        assert told == bool(ignored), log


def test_an_unlinked_module_has_a_native_binary(bench: ZeBench, spirv: None) -> None:
    """Another module is made of it, and linked."""
    code, module, _ = module_of(bench, make_importing_store())
    assert (code, has_imports(bench, module)) == ("SUCCESS", True)
    code, again, _ = module_of(bench, bench.native(module), TEXT)
    assert (code, has_imports(bench, again)) == ("SUCCESS", True)
    _, plus, _ = module_of(bench, make_plus())
    bench.ze.ok(LINK, 2, array(again, plus))
    assert stored(bench, again, 5) == 5


def test_null_is_zeros_for_a_value_of_spirv(bench: ZeBench, spirv: None) -> None:
    out, kernel, made = bench.ints(7), kernel_of_spirv(bench), bench.list(mutable=True)
    bench.set(kernel, 0, out.pointer)
    bench.set(kernel, 1, c_int(5))
    number = bench.next_id(made)
    bench.launch(made, kernel)
    bench.close_list(made)
    assert bench.update(made, argument(number, 1, 4)) == "SUCCESS"
    bench.close_list(made)
    bench.run(made)
    assert out[0] == 0
    bench.ze.ok("zeKernelSetArgumentValue", kernel, 1, 4)


def test_a_shorter_value_of_spirv_has_zeros_behind_it(bench: ZeBench, spirv: None) -> None:
    out, kernel, made = bench.ints(7), kernel_of_spirv(bench), bench.immediate()
    bench.set(kernel, 0, out.pointer)
    bench.set(kernel, 1, ctypes.c_uint16(5))
    bench.launch(made, kernel)
    bench.finish(made)
    assert out[0] == 5
    code = bench.ze.code("zeKernelSetArgumentValue", kernel, 1, 8, ctypes.c_uint64())
    assert code == "INVALID_KERNEL_ARGUMENT_SIZE"


def test_memory_of_the_system_is_an_argument_if_it_is_claimed(bench: ZeBench, spirv: None) -> None:
    routine, struct = "zeDeviceGetMemoryAccessProperties", "ze_device_memory_access_properties_t"
    row = bench.ze.properties(routine, struct, bench.device)
    if not row.sharedSystemAllocCapabilities:
        pytest.skip("needs a device that uses memory of the system: Intel's")
    out, (_, module, _) = c_int(7), module_of(bench, make_store())
    _, again, _ = module_of(bench, bench.native(module), TEXT)  # nobody tells its arguments
    for one, made in ((module, bench.immediate()), (module, bench.list()), (again, bench.list())):
        kernel = bench.kernel("store", module=one)
        bench.set(kernel, 0, c_void_p(ctypes.addressof(out)))
        bench.set(kernel, 1, c_int(5))
        bench.launch(made, kernel)
        bench.finish(made)
        assert out.value == 5
        out.value = 7


def test_a_module_of_one_context_runs_in_another(bench: ZeBench) -> None:
    """All contexts of the same devices share what they have, as in other drivers."""
    other = ZeBench(bench.ze, bench.driver, bench.device)
    (event,), out = bench.events(1), bench.ints(0)
    kernel = other.kernel("add", out.pointer, c_int(3))
    for made in (bench.list(), bench.immediate()):
        bench.launch(made, kernel, 1, event)
        bench.finish(made)
    bench.ze.ok("zeEventHostSynchronize", event, FOREVER)
    assert out[0] == 6
    source, made = other.ints(9), bench.immediate()
    routine = "zeCommandListAppendMemoryCopyFromContext"
    bench.ze.ok(routine, made, out.address, other.context, source.address, 4, None, 0, None)
    bench.finish(made)
    assert out[0] == 9
    other.close()
    out.fill(1)  # memory of the first context is still there
    assert out[0] == 1


# specialization constants


def test_constants_that_are_wrong_are_refused(bench: ZeBench, takes_spirv: bool) -> None:
    code, _, log = module_of(bench, make_store(), given=constants((99, c_int(1))))
    assert (code, "constant 99" in log) == ("MODULE_BUILD_FAILURE", True)
    code, _, _ = module_of(bench, make_store(), given=constants((SPEC_ID, None)))
    assert code == "INVALID_NULL_POINTER"
    for missing in ("pConstantIds", "pConstantValues"):
        given = constants((SPEC_ID, c_int(1)))
        setattr(given, missing, None)
        assert module_of(bench, make_store(), given=given)[0] == "INVALID_NULL_POINTER"
    code, _, log = module_of(bench, CALLER, TEXT, constants((SPEC_ID, c_int(1))))
    assert (code, "only SPIR-V" in log) == ("INVALID_ARGUMENT", True)
    code, _, log = module_of(bench, make_store(), given=constants((SPEC_ID, c_int(1))))
    assert code == ("SUCCESS" if takes_spirv else "UNSUPPORTED_FEATURE"), log


def test_a_driver_without_specialization_constants(
    bench: ZeBench, spirv: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.plugins.opencl import program_builds

    monkeypatch.setattr(program_builds, "can_take_specialization_constants", lambda device: False)
    code, _, log = module_of(bench, make_store(), given=constants((SPEC_ID, c_int(1))))
    assert code == "UNSUPPORTED_FEATURE"
    assert "specialization constants need SPIR-V and OpenCL 2.2" in log


# several inputs


def test_texts_are_linked(bench: ZeBench) -> None:
    inputs = (CALLER, None, None), (PLUS, b"-DNUMBER=4", None)
    code, module, log = module_of_several(bench, TEXT, *inputs)
    assert code == "SUCCESS", log
    assert stored(bench, module, 5) == 9
    assert bench.kernel_names(module) == [b"store"]


def test_what_of_several_inputs_is_wrong_is_in_the_log(bench: ZeBench) -> None:
    broken = b"int plus(int value) { return nonsense; }"
    code, _, log = module_of_several(bench, TEXT, (CALLER, None, None), (broken, None, None))
    assert (code, "nonsense" in log) == ("MODULE_BUILD_FAILURE", True)
    assert module_of_several(bench, TEXT)[0] == "INVALID_SIZE"
    assert module_of_several(bench, TEXT, (b"", None, None))[0] == "INVALID_SIZE"
    mixed = (make_store(), None, None), (PLUS, b"-DNUMBER=1", None)
    assert module_of_several(bench, SPIRV, *mixed)[0] == "INVALID_NATIVE_BINARY"


def test_a_module_may_have_no_kernels(bench: ZeBench) -> None:
    code, module, _ = module_of(bench, b"int plus(int value) { return value + 1; }", TEXT)
    assert (code, bench.kernel_names(module)) == ("SUCCESS", [])


def test_two_inputs_that_define_the_same_are_refused(bench: ZeBench) -> None:
    twice = (PLUS, b"-DNUMBER=1", None), (PLUS, b"-DNUMBER=2", None), (CALLER, None, None)
    assert module_of_several(bench, TEXT, *twice)[0] == "MODULE_LINK_FAILURE"


# dynamic links


def test_imports_that_two_modules_define_are_refused(bench: ZeBench, spirv: None) -> None:
    modules = [
        module_of(bench, data)[1] for data in (make_importing_store(), make_plus(), make_plus())
    ]
    log = c_void_p()
    assert bench.ze.code(LINK, 3, array(*modules), log) == "MODULE_LINK_FAILURE"
    assert "several modules export plus" in read_log(bench, log)


def test_a_link_takes_modules_of_one_device(bench: ZeBench) -> None:
    assert bench.ze.code(LINK, 0, array(0)) == "INVALID_SIZE"
    bench.ze.ok(LINK, 1, array(bench.module()))
