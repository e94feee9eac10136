"""Functions that answer what an object was made with, and commands with few uses.

docs/level_zero_support.md tells the truth: every function is declared, or there is a reason.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

import pytest
from helpers.drivers import Driver
from helpers.support import ROOT
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import array, new

from fairlead.icd.drivers import platforms
from fairlead.loader.ze.abi import TABLES, ZE
from fairlead.plugins.level_zero import contexts, device_properties
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.unsupported import find_reason, make_page

END = (None, 0, None)


def number(bench: ZeBench, routine: str, *given: Any, kind: Any = c_uint32) -> int:
    """Return the number that a function writes."""
    found = kind(99)
    bench.ze.ok(routine, *given, byref(found))
    return int(found.value or 0)


def test_two_threads_get_one_default_context(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second thread asks for it while the first one makes it."""
    known = contexts.driver.objects.list_owned("ze_driver_handle_t")[bench.driver]
    monkeypatch.setattr(known, "default_context", None)
    make, others = contexts.ZeContext, list[Any]()

    def make_after_another_thread(*given: Any) -> Any:
        monkeypatch.setattr(contexts, "ZeContext", make)
        others.append(contexts.zeDriverGetDefaultContext(known))
        return make(*given)

    monkeypatch.setattr(contexts, "ZeContext", make_after_another_thread)
    assert contexts.zeDriverGetDefaultContext(known) is others[0]
    contexts.driver.objects.release(others[0])


# what objects were made with


def test_a_queue_says_what_it_was_made_with(bench: ZeBench) -> None:
    queue = bench.new_queue(flags=1, mode=1, priority=2)
    asked = "Flags", "Mode", "Priority", "Ordinal", "Index"
    assert [number(bench, f"zeCommandQueueGet{name}", queue) for name in asked] == [1, 1, 2, 0, 0]
    bench.ze.ok("zeCommandQueueDestroy", queue)


def test_a_list_says_what_it_was_made_with(bench: ZeBench) -> None:
    regular, immediate = bench.list(in_order=True), bench.immediate(flags=2, mode=2, priority=1)
    for made, is_immediate in ((regular, 0), (immediate, 1)):
        ask = "zeCommandListIsImmediate"
        assert number(bench, ask, made, kind=ctypes.c_uint8) == is_immediate
        assert number(bench, "zeCommandListGetOrdinal", made) == 0
        for name, owner in (("Device", bench.device), ("Context", bench.context)):
            routine = f"zeCommandListGet{name}Handle"
            assert number(bench, routine, made, kind=c_void_p) == owner
    assert number(bench, "zeCommandListGetFlags", regular) == 8
    asked = "Flags", "Mode", "Priority", "Index"
    found = [number(bench, f"zeCommandListImmediateGet{name}", immediate) for name in asked]
    assert found == [2, 2, 1, 0]
    for name in asked:
        routine = f"zeCommandListImmediateGet{name}"
        assert bench.ze.code(routine, regular, byref(c_uint32())) != "SUCCESS"


def test_a_device_says_its_pci_address(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    routine, row = "zeDevicePciGetPropertiesExt", new("ze_pci_ext_properties_t")
    monkeypatch.setattr(device_properties, "query_pci_numbers", lambda device: None)
    assert bench.ze.code(routine, bench.device, byref(row)) == "UNSUPPORTED_FEATURE"
    monkeypatch.setattr(device_properties, "query_pci_numbers", lambda device: (1, 2, 3, 4))
    bench.ze.ok(routine, bench.device, byref(row))
    address, speed = row.address, row.maxSpeed
    assert (address.domain, address.bus, address.device, address.function) == (1, 2, 3, 4)
    assert (speed.genVersion, speed.width, speed.maxBandwidth) == (-1, -1, -1)


def test_an_event_and_its_pool_say_what_they_were_made_with(bench: ZeBench) -> None:
    desc = new("ze_event_pool_desc_t", flags=5, count=1)
    pool = bench.ze.make("zeEventPoolCreate", bench.context, desc)
    event = bench.ze.make("zeEventCreate", pool, new("ze_event_desc_t", signal=4, wait=2))
    assert number(bench, "zeEventPoolGetFlags", pool) == 5
    assert number(bench, "zeEventPoolGetContextHandle", pool, kind=c_void_p) == bench.context
    assert number(bench, "zeEventGetEventPool", event, kind=c_void_p) == pool
    assert number(bench, "zeEventGetSignalScope", event) == 4
    assert number(bench, "zeEventGetWaitScope", event) == 2
    found = byref(c_uint32())
    assert bench.ze.code("zeEventGetCounterBasedFlags", event, found) == "INVALID_ARGUMENT"
    chained = new("ze_event_pool_counter_based_exp_desc_t", flags=2)
    (counted,) = bench.events(1, pNext=chained)
    assert number(bench, "zeEventGetCounterBasedFlags", counted) == 2


def test_a_kernel_says_what_was_set_on_it(bench: ZeBench) -> None:
    kernel = bench.kernel("fours", size=4)
    bench.ze.ok("zeKernelSetIndirectAccess", kernel, 3)
    assert number(bench, "zeKernelGetIndirectAccess", kernel) == 3
    bench.ze.ok("zeKernelSetCacheConfig", kernel, 1)
    assert number(bench, "zeKernelSuggestMaxCooperativeGroupCount", kernel) >= 1


def test_attributes_of_a_kernel_go_to_memory_of_the_caller(bench: ZeBench) -> None:
    kernel, size, routine = bench.kernel("fours", size=4), c_uint32(), "zeKernelGetSourceAttributes"
    bench.ze.ok(routine, kernel, byref(size), None)
    text = ctypes.create_string_buffer(b"?" * (size.value + 1))
    place = c_void_p(ctypes.addressof(text))
    bench.ze.ok(routine, kernel, byref(size), byref(place))
    assert place.value == ctypes.addressof(text)
    assert size.value == len(text.value) + 1
    assert text.raw[size.value :] == b"?\0"  # no byte more
    assert b"reqd_work_group_size" in text.value.replace(b" ", b"") or text.value == b""
    bench.ze.ok(routine, kernel, byref(size), byref(c_void_p()))


# devices


@pytest.mark.parametrize(
    ("routine", "struct", "is_positive"),
    [
        ("Compute", "ze_device_compute_properties_t", "maxTotalGroupSize"),
        ("Module", "ze_device_module_properties_t", "maxArgumentsSize"),
        ("MemoryAccess", "ze_device_memory_access_properties_t", "deviceAllocCapabilities"),
        ("ExternalMemory", "ze_device_external_memory_properties_t", ""),
    ],
)
def test_properties_of_a_device(
    routine: str, struct: str, is_positive: str, bench: ZeBench
) -> None:
    row = bench.ze.properties(f"zeDeviceGet{routine}Properties", struct, bench.device)
    assert not is_positive or getattr(row, is_positive) > 0


@pytest.mark.parametrize("routine", ["Memory", "Cache"])
def test_lists_of_properties(routine: str, bench: ZeBench) -> None:
    ask, count = f"zeDeviceGet{routine}Properties", c_uint32()
    bench.ze.ok(ask, bench.device, byref(count), None)
    rows = [new(f"ze_device_{routine.lower()}_properties_t") for _ in range(count.value)]
    kind: Any = type(rows[0])
    given = (kind * count.value)(*rows)
    bench.ze.ok(ask, bench.device, byref(count), given)
    assert count.value >= 1
    assert (given[0].totalSize if routine == "Memory" else given[0].cacheSize) > 0


def test_a_device_is_there_and_its_own_peer(bench: ZeBench) -> None:
    bench.ze.ok("zeDeviceGetStatus", bench.device)
    bench.ze.ok("zeContextGetStatus", bench.context)
    bench.ze.ok("zeContextSystemBarrier", bench.context, bench.device)
    both = bench.device, bench.device
    assert number(bench, "zeDeviceCanAccessPeer", *both, kind=ctypes.c_uint8) == 1
    bench.ze.properties("zeDeviceGetP2PProperties", "ze_device_p2p_properties_t", *both)
    bench.ze.properties("zeDriverGetIpcProperties", "ze_driver_ipc_properties_t", bench.driver)


def test_the_clock_of_a_device_goes_on(bench: ZeBench) -> None:
    seen = []
    for _ in range(2):
        host, device = c_uint64(), c_uint64()
        bench.ze.ok("zeDeviceGetGlobalTimestamps", bench.device, host, device)
        seen.append((host.value, device.value))
    assert seen[0][0] <= seen[1][0]
    assert 0 < seen[0][1] <= seen[1][1]


# commands


Append = Callable[[ZeBench, int, Any, Any], None]


def copy(bench: ZeBench, made: int, out: Any, source: Any) -> None:
    given = made, out.address, source.address, 16
    bench.ze.ok("zeCommandListAppendMemoryCopyWithParameters", *given)


def copy_from_context(bench: ZeBench, made: int, out: Any, source: Any) -> None:
    given = made, out.address, bench.context, source.address, 16
    bench.ze.ok("zeCommandListAppendMemoryCopyFromContext", *given)


def fill(bench: ZeBench, made: int, out: Any, source: Any) -> None:
    given = made, out.address, ctypes.create_string_buffer(source.raw, 16), 16, 16
    bench.ze.ok("zeCommandListAppendMemoryFillWithParameters", *given)


def launch(bench: ZeBench, made: int, out: Any, source: Any) -> None:
    count = new("ze_group_count_t", groupCountX=4, groupCountY=1, groupCountZ=1)
    given = made, bench.kernel("copy", out.pointer, source.pointer), byref(count)
    bench.ze.ok("zeCommandListAppendLaunchKernelWithParameters", *given)


@pytest.mark.parametrize("append", [copy, copy_from_context, fill, launch])
@pytest.mark.parametrize("is_immediate", [False, True])
def test_other_forms_of_commands(append: Append, is_immediate: bool, bench: ZeBench) -> None:
    source, out = bench.ints(1, 2, 3, 4), bench.ints(0, 0, 0, 0)
    made = bench.immediate() if is_immediate else bench.list()
    bench.ze.ok("zeCommandListAppendMemoryPrefetch", made, source.address, 16)
    sizes, ranges = (ctypes.c_size_t * 1)(16), array(source.address)
    barrier = "zeCommandListAppendMemoryRangesBarrier"
    bench.ze.ok(barrier, made, 1, sizes, ranges, *END)
    append(bench, made, out, source)
    bench.finish(made)
    assert out.all == [1, 2, 3, 4]


def test_lists_are_appended_with_parameters(bench: ZeBench) -> None:
    out, made, immediate = bench.ints(0), bench.list(), bench.immediate(flags=2)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(3)))
    bench.close_list(made)
    given = immediate, 1, array(made), None, *END
    bench.ze.ok("zeCommandListImmediateAppendCommandListsWithParameters", *given)
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out[0] == 3


def test_a_launch_whose_groups_run_together(bench: ZeBench) -> None:
    """As many groups as the device runs at the same time, and no more."""
    out, made = bench.ints(0), bench.list()
    kernel = bench.kernel("add", out.pointer, c_int(5))
    most = number(bench, "zeKernelSuggestMaxCooperativeGroupCount", kernel)
    count = new("ze_group_count_t", groupCountX=1, groupCountY=1, groupCountZ=1)
    launch = "zeCommandListAppendLaunchCooperativeKernel"
    bench.ze.ok(launch, made, kernel, byref(count), *END)
    count.groupCountX = most + 1
    assert bench.ze.code(launch, made, kernel, byref(count), *END) == "UNSUPPORTED_FEATURE"
    bench.finish(made)
    assert out[0] == 5


def test_memory_may_be_made_resident(bench: ZeBench) -> None:
    memory = bench.ints(1)
    for routine in ("zeContextMakeMemoryResident", "zeContextEvictMemory"):
        bench.ze.ok(routine, bench.context, bench.device, memory.address, 4)


def test_times_of_an_event_are_asked_by_device(bench: ZeBench) -> None:
    (event,), out = bench.events(1, flags=5), bench.ints(0)
    count, row = c_uint32(), new("ze_kernel_timestamp_result_t")
    ask = "zeEventQueryTimestampsExp", event, bench.device, byref(count)
    assert bench.ze.code(*ask, None) == "NOT_READY"
    made = bench.immediate(mode=1)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 1, event)
    bench.ze.ok(*ask, None)
    assert count.value == 1
    bench.ze.ok(*ask, byref(row))
    times = getattr(row, "global")
    assert 0 < times.kernelStart <= times.kernelEnd


def test_kernel_times_are_asked_by_the_extension(bench: ZeBench) -> None:
    (event,), out, count = bench.events(1, flags=5), bench.ints(0), c_uint32()
    times = new("ze_kernel_timestamp_result_t")
    row = ZE.get_struct("ze_event_query_kernel_timestamps_results_ext_properties_t")()
    row.pKernelTimestampsBuffer = ctypes.addressof(times)
    ask = "zeEventQueryKernelTimestampsExt", event, bench.device, byref(count)
    bench.ze.ok(*ask, None)
    assert count.value == 1
    assert bench.ze.code(*ask, byref(row)) == "NOT_READY"
    made = bench.immediate(mode=1)
    bench.launch(made, bench.kernel("add", out.pointer, c_int(1)), 1, event)
    bench.ze.ok(*ask, byref(row))
    found = getattr(times, "global")
    assert 0 < found.kernelStart <= found.kernelEnd
    chained = new("ze_event_query_kernel_timestamps_ext_properties_t")
    routine, kind = "zeDeviceGetProperties", "ze_device_properties_t"
    bench.ze.properties(routine, kind, bench.device, chained=chained)
    assert chained.flags == 3  # the driver's clock, and the host's


def test_vector_widths_are_those_of_opencl(bench: ZeBench, each_driver: Driver) -> None:
    count, row = c_uint32(), new("ze_device_vector_width_properties_ext_t")
    ask = "zeDeviceGetVectorWidthPropertiesExt", bench.device, byref(count)
    bench.ze.ok(*ask, None)
    assert count.value == 1
    bench.ze.ok(*ask, byref(row))
    (device, *_) = next(one for one in platforms() if one.devices and each_driver.has(one)).devices
    for name in ("char", "int", "double"):
        for kind in ("preferred", "native"):
            wanted = device.info(f"CL_DEVICE_{kind.upper()}_VECTOR_WIDTH_{name.upper()}")
            assert getattr(row, f"{kind}_vector_width_{name}") == wanted
    assert row.vector_width_size == row.native_vector_width_char > 0


def test_a_module_has_no_imports(bench: ZeBench) -> None:
    module = bench.module()
    assert bench.ze.properties("zeModuleGetProperties", "ze_module_properties_t", module).flags == 0
    for routine in ("zeModuleGetGlobalPointer", "zeModuleGetFunctionPointer"):
        found = byref(c_void_p())
        given = (module, b"none", None, found) if "Global" in routine else (module, b"none", found)
        refused = {"INVALID_GLOBAL_NAME", "INVALID_FUNCTION_NAME", "UNSUPPORTED_FEATURE"}
        assert bench.ze.code(routine, *given) in refused


EVERY = [name for names in TABLES.values() for name in names]


def test_every_function_is_implemented_or_has_a_reason() -> None:
    without = [name for name in EVERY if name not in driver.declared]
    assert [name for name in without if not find_reason(name)] == []
    assert driver.declared <= set(EVERY)


def test_the_page_is_what_the_driver_declares() -> None:
    page = (ROOT / "docs/level_zero_support.md").read_text(encoding="utf-8")
    assert page == make_page() + "\n"
