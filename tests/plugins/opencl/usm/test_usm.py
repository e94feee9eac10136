"""USM of the reference adapter, in every way that the drivers can have it: allocation, queries,
arguments of kernels, host memory."""

from __future__ import annotations

import ctypes
import mmap
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.launching import find_foreign
from helpers.memory_calls import held_back, new_queue, opencl, struct
from helpers.tables import table
from helpers.ur_calls import Calls, array
from helpers.usm_ways import Way, aligned, forget_answers

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.usm import strategies

pytestmark = pytest.mark.usefixtures("begins_in")

ACCESS = UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS"]
CONCURRENT = UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS"]
SUPPORT = {
    "host": "HOST",
    "device": "DEVICE",
    "shared": "SINGLE_SHARED",
    "cross": "CROSS_SHARED",
    "system": "SYSTEM_SHARED",
}


QUERIES = {
    "host": "HOST_MEM",
    "device": "DEVICE_MEM",
    "shared": "SINGLE_DEVICE_SHARED_MEM",
    "cross": "CROSS_DEVICE_SHARED_MEM",
    "system": "SHARED_SYSTEM_MEM",
}


def support(ur: Calls, device: PluginDevice) -> dict[str, int]:
    names = {kind: f"UR_DEVICE_INFO_USM_{name}_SUPPORT" for kind, name in SUPPORT.items()}
    return {kind: ur.number("urDeviceGetInfo", device.handle, name) for kind, name in names.items()}


def test_a_device_says_what_it_can_do(way: Way) -> None:
    """By the extension, what the driver says. PoCL 7.1 has no concurrent access there."""
    found = support(way.ur, way.device)
    assert found["device"] & ACCESS
    if way.by_extension:
        table = opencl(way.ur, way.context)[0]
        native = way.ur.make("urDeviceGetNativeHandle", way.device.handle)
        for kind, name in QUERIES.items():
            said, what = ctypes.c_uint64(), OPENCL[f"CL_DEVICE_{name}_CAPABILITIES_INTEL"]
            assert table.clGetDeviceInfo(native, what, 8, ctypes.byref(said), None) == 0
            assert found[kind] == said.value
        return
    for kind in ("host", "shared", "cross"):
        assert bool(found[kind] & ACCESS) == (way.name != "buffer")
        assert bool(found[kind] & CONCURRENT) == (way.name != "buffer")
    assert bool(found["system"]) == ("Intel" in way.device.platform.name and way.name == "svm")


def test_a_way_that_the_driver_does_not_have(
    ur: Calls,
    pocl_wheel_device: PluginDevice,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    device = pocl_wheel_device
    monkeypatch.setenv("FAIRLEAD_USM", "intel")
    forget_answers()
    strategies._warn_once.cache_clear()
    assert not any(support(ur, device).values())
    context = ur.make("urContextCreate", 1, array(device.handle))
    made = ctypes.c_void_p()
    given = "urUSMDeviceAlloc", context, device.handle, None, None, 64, ctypes.byref(made)
    assert ur(*given) == "INVALID_OPERATION"
    assert ur("urUSMHostAlloc", context, None, None, 64, made) == "INVALID_OPERATION"
    ur.ok("urContextRelease", context)
    monkeypatch.setenv("FAIRLEAD_USM", "nonsense")
    forget_answers()
    assert support(ur, device)["device"]
    said = capfd.readouterr().err
    assert (
        f"FAIRLEAD_USM=intel leaves {device.name} without USM" in said
        and "FAIRLEAD_USM=nonsense is ignored" in said
    )


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        ((), set()),
        (("COARSE_GRAIN_BUFFER",), {"device"}),
        (("COARSE_GRAIN_BUFFER", "FINE_GRAIN_BUFFER"), {"device", "host", "shared", "cross"}),
        (
            ("COARSE_GRAIN_BUFFER", "FINE_GRAIN_BUFFER", "FINE_GRAIN_SYSTEM", "ATOMICS"),
            {"device", "host", "shared", "cross", "system"},
        ),
    ],
)
def test_what_svm_is_good_for_follows_from_its_grain(
    capabilities: tuple[str, ...], kinds: set[str]
) -> None:
    from fairlead.plugins.opencl.usm.strategies import SVM

    bits = sum(OPENCL[f"CL_DEVICE_SVM_{name}"] for name in capabilities)
    device: Any = SimpleNamespace(
        has=lambda version: True, icd=SimpleNamespace(info=lambda name: bits)
    )
    assert {kind for kind, flags in SVM.ask(device).items() if flags} == kinds
    atomic = UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS"]
    assert bool(SVM.ask(device).get("shared", 0) & atomic) == ("ATOMICS" in capabilities)


@table("align", [1, 2, 4, 8, 16, 32, 64, 128, 256, 4096, 1 << 21])
def test_memory_is_aligned_as_asked(way: Way, align: int) -> None:
    for kind in way.kinds:
        addresses = [way.alloc(kind, 24, descriptor=aligned(align)) for _ in range(4)]
        assert not any(address % align for address in addresses)
        way.free(*addresses)


def test_a_device_of_another_context(way: Way) -> None:
    foreign = find_foreign(way.device)
    assert way.try_alloc("device", 64, device=foreign.handle)[0] == "INVALID_DEVICE"


@table("host_flags, device_flags", [(1, 0), (0, 1), (0, 2), (0, 7), (1, 7)])
def test_wishes_that_hang_on_the_descriptor(way: Way, host_flags: int, device_flags: int) -> None:
    host = struct("ur_usm_host_desc_t", "USM_HOST_DESC", flags=host_flags)
    device = struct(
        "ur_usm_device_desc_t", "USM_DEVICE_DESC", pNext=ctypes.addressof(host), flags=device_flags
    )
    place = struct(
        "ur_usm_alloc_location_desc_t",
        "USM_ALLOC_LOCATION_DESC",
        pNext=ctypes.addressof(device),
        location=0,
    )
    for kind in way.kinds:
        address = way.alloc(kind, 64, descriptor=aligned(8, hints=2, pNext=ctypes.addressof(place)))
        way.copy(address, b"x" * 64, 64)
        way.free(address)


def test_wishes_that_there_are_not(way: Way) -> None:
    host = struct("ur_usm_host_desc_t", "USM_HOST_DESC", flags=2)
    device = struct("ur_usm_device_desc_t", "USM_DEVICE_DESC", flags=8)
    for chain in (host, device):
        found = way.try_alloc("device", 64, descriptor=aligned(8, pNext=ctypes.addressof(chain)))[0]
        assert found == "INVALID_ENUMERATION"
    host.flags, host.pNext = 0, ctypes.addressof(device)
    device.flags, device.pNext = 0, ctypes.addressof(host)  # a ring
    way.free(way.alloc("device", 64, descriptor=aligned(8, pNext=ctypes.addressof(host))))


def test_a_context_outlives_its_handle_while_it_has_memory(way: Way, ur: Calls) -> None:
    other = ur.make("urContextCreate", 1, array(way.device.handle))
    made = ur.make("urUSMDeviceAlloc", other, way.device.handle, None, None, 64)
    ur.ok("urContextRelease", other)
    assert way.info(made, "TYPE") in (
        UR["UR_USM_TYPE_UNKNOWN"],
        UR["UR_USM_TYPE_DEVICE"],
    )  # of a context that nobody can name


def test_two_contexts_over_one_of_opencl_s_have_the_same_memory(way: Way, ur: Calls) -> None:
    native = ur.make("urContextGetNativeHandle", way.context).value
    table = opencl(ur, way.context)[0]
    assert table.clRetainContext(native) == 0
    owned = struct(
        "ur_context_native_properties_t", "CONTEXT_NATIVE_PROPERTIES", isNativeHandleOwned=True
    )
    adapter = ur.number("urPlatformGetInfo", way.device.platform.handle, "UR_PLATFORM_INFO_ADAPTER")
    devices = array(way.device.handle)
    other = ur.make("urContextCreateWithNativeHandle", native, adapter, 1, devices, owned)
    assert other.value != way.context
    address, queue = way.alloc("device", 64), new_queue(ur, other.value or 0, way.device.handle)
    way.copy(address, b"shared by two", 13, queue=queue.value or 0)
    assert way.content(address, 13) == b"shared by two"
    ur.ok("urUSMFree", other, address)


# kernels

SOURCE = (
    b"kernel void next(global int *a, global const int *b) { a[get_global_id(0)] = "
    b"b ? b[get_global_id(0)] + 1 : 7; }"
)


def native_kernel(ur: Calls, way: Way) -> tuple[Any, int]:
    """The driver's table, and a kernel of its own."""
    table, context = opencl(ur, way.context)
    device, code = ur.make("urDeviceGetNativeHandle", way.device.handle), ctypes.c_int32()
    given = context, 1, array(ctypes.cast(ctypes.c_char_p(SOURCE), ctypes.c_void_p)), None
    program = table.clCreateProgramWithSource(*given, ctypes.byref(code))
    assert table.clBuildProgram(program, 1, ctypes.byref(device), None, None, None) == 0
    kernel = table.clCreateKernel(program, b"next", ctypes.byref(code))
    assert code.value == 0
    table.clReleaseProgram(program)
    return table, kernel


def set_pointer(way: Way, table: Any, kernel: int, index: int, address: int) -> None:
    """What a launch does with `usm.pointer_argument`: it is looked at in this process, where the
    adapter's Python is."""
    from fairlead.plugins.opencl.core import adapter
    from fairlead.plugins.opencl.platforms import find_extension
    from fairlead.plugins.opencl.usm import addresses as usm

    context = adapter.objects.list_owned("ur_context_handle_t")[way.context]
    how, value = usm.make_pointer_argument(context, address)
    if how == "usm":
        given = kernel, index, value
        assert find_extension(context.platform, "clSetKernelArgMemPointerINTEL")(*given) == 0
    elif how == "svm":
        assert table.clSetKernelArgSVMPointer(kernel, index, value) == 0
    else:
        assert how == "mem"
        cl = ctypes.c_void_p(value)
        assert table.clSetKernelArg(kernel, index, 8, ctypes.byref(cl) if value else None) == 0


def test_kernels_reach_memory_by_its_address(way: Way, ur: Calls) -> None:
    table, kernel = native_kernel(ur, way)
    native_queue = ctypes.c_void_p()
    ur.ok("urQueueGetNativeHandle", way.queue, None, native_queue)
    count = (ctypes.c_size_t * 1)(256)
    numbers = (ctypes.c_int32 * 256)(*range(256))
    for kind in way.kinds:
        source, target = way.alloc(kind, 4096), way.alloc(kind, 4096)
        way.copy(source + 1024, numbers, 1024)
        for offset in (0, 2048):
            set_pointer(way, table, kernel, 0, target + offset)
            set_pointer(way, table, kernel, 1, source + 1024)
            given = native_queue, kernel, 1, None, count, None, 0, None, None
            assert table.clEnqueueNDRangeKernel(*given) == 0
            assert table.clFinish(native_queue) == 0
            assert way.content(target + offset, 1024) == bytes(
                (ctypes.c_int32 * 256)(*range(1, 257))
            )
        set_pointer(way, table, kernel, 1, 0)
        given = native_queue, kernel, 1, None, count, None, 0, None, None
        assert table.clEnqueueNDRangeKernel(*given) == 0
        assert way.content(target + 2048, 1024) == bytes((ctypes.c_int32 * 256)(*[7] * 256))
        way.free(source, target)
    table.clReleaseKernel(kernel)


def test_svm_functions_take_addresses_of_every_kind(way: Way, ur: Calls) -> None:
    """What native command-buffers rely on, since OpenCL has no others there (OpenCL-Docs#843)."""
    if way.name == "buffer":
        return
    table, kernel = native_kernel(ur, way)
    queue = ctypes.c_void_p()
    ur.ok("urQueueGetNativeHandle", way.queue, None, queue)
    into = ctypes.create_string_buffer(64)
    for kind in way.kinds:
        address = way.alloc(kind, 64)
        assert table.clEnqueueSVMMemFill(queue, address, b"abcd", 4, 64, 0, None, None) == 0
        assert table.clEnqueueSVMMemcpy(queue, True, into, address, 64, 0, None, None) == 0
        assert into.raw == b"abcd" * 16
        assert table.clSetKernelArgSVMPointer(kernel, 0, address) == 0
        assert table.clSetKernelArgSVMPointer(kernel, 1, None) == 0
        given = queue, kernel, 1, None, (ctypes.c_size_t * 1)(16), None, 0, None, None
        assert table.clEnqueueNDRangeKernel(*given) == 0
        assert way.content(address, 64) == bytes((ctypes.c_int32 * 16)(*[7] * 16))
        way.free(address)
    table.clReleaseKernel(kernel)


def test_operations_of_the_replay_engine(way: Way) -> None:
    from fairlead.plugins.opencl.core import adapter
    from fairlead.plugins.opencl.usm import addresses as usm

    context = adapter.objects.list_owned("ur_context_handle_t")[way.context]
    one = way.alloc("device", 256)
    other = way.alloc("device", 256)
    host = ctypes.create_string_buffer(64)
    outside = ctypes.addressof(host)
    pairs = [(one + 8, other + 16), (one + 8, outside), (outside, one + 8)]
    found = [usm.make_copy_operation(context, target, source, 32) for target, source in pairs]
    found.append(usm.make_fill_operation(context, one + 8, b"four", 32, lambda data: data))
    functions = usm.get_memory_functions(context)
    given = functions.copy and functions.fill and functions.set_pointer
    assert bool(given) == way.by_extension
    named = [transfer.operation for transfer in found]
    if way.name != "buffer":
        assert named == ["svm_copy", "svm_copy", "svm_copy", "svm_fill"]
        assert found[0].operands == {"target": one + 8, "source": other + 16, "size": 32}
        assert found[3].operands["size"] == 32
    else:
        first, second = usm.find(context, one), usm.find(context, other)
        assert first is not None and second is not None
        assert named == ["copy", "write", "read", "fill"]
        assert found[0].operands == {
            "source": second.mem,
            "target": first.mem,
            "source_offset": 16,
            "target_offset": 8,
            "size": 32,
        }
        span = {"offset": 8, "size": 32}
        assert found[1].operands == {"source": outside, "target": first.mem, **span}
        assert found[2].operands == {"source": first.mem, "target": outside, **span}
        assert span.items() <= found[3].operands.items()
        memory = found[3].keep[0]
        way.free(one)
        assert memory.cl  # an operation keeps the buffer, whatever becomes of the address
        one = way.alloc("device", 256)
    way.free(one, other)


# the program's own memory


def has_system(way: Way) -> bool:
    return bool(support(way.ur, way.device)["system"])


def test_host_memory_is_made_known_where_the_device_can_use_it(way: Way, ur: Calls) -> None:
    pages = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for make, unmake, more in (
        ("ImportExp", "ReleaseExp", ()),
        ("HostAllocRegisterExp", "HostAllocUnregisterExp", (None,)),
    ):
        code = ur(f"urUSM{make}", way.context, address, 4 * mmap.PAGESIZE, *more)
        if not has_system(way):
            assert code == "UNSUPPORTED_FEATURE"
            assert ur(f"urUSM{unmake}", way.context, address) == "INVALID_VALUE"
            continue
        assert code == "SUCCESS"
        assert way.info(address + 100, "TYPE") == UR["UR_USM_TYPE_HOST"]
        assert way.info(address + 100, "BASE_PTR") == address
        assert ur("urUSMFree", way.context, address) == "INVALID_MEM_OBJECT"  # it is the program's
        assert ur(f"urUSM{make}", way.context, address, 4 * mmap.PAGESIZE, *more) == "INVALID_VALUE"
        way.copy(address + 8, b"known", 5)
        assert pages[8:13] == b"known"
        ur.ok(f"urUSM{unmake}", way.context, address)
        assert ur(f"urUSM{unmake}", way.context, address) == "INVALID_VALUE"
        assert way.info(address, "TYPE") == UR["UR_USM_TYPE_UNKNOWN"]


def test_memory_that_was_allocated_by_interoperation(way: Way, ur: Calls) -> None:
    """Intel's driver tells of its own memory, whoever allocated it."""
    if "Intel" not in way.device.platform.name or way.name == "buffer":
        return
    from fairlead.plugins.opencl.core import adapter
    from fairlead.plugins.opencl.platforms import find_extension

    context = adapter.objects.list_owned("ur_context_handle_t")[way.context]
    code = ctypes.c_int32()
    address = find_extension(context.platform, "clSharedMemAllocINTEL")(
        context.cl, context.devices[0].cl, None, 64, 0, ctypes.byref(code)
    )
    assert code.value == 0
    way.copy(address, b"interoperation", 14)
    assert way.content(address, 14) == b"interoperation"
    if way.name != "svm":
        assert way.info(address + 8, "BASE_PTR") == address
        assert way.info(address, "DEVICE") == way.device.handle
    assert find_extension(context.platform, "clMemFreeINTEL")(context.cl, address) == 0


def test_queues_of_other_contexts_are_not_waited_for(way: Way, ur: Calls) -> None:
    other = ur.make("urContextCreate", 1, array(way.device.handle)).value or 0
    queue = new_queue(ur, other, way.device.handle).value or 0
    gate, go = held_back(ur, other)
    ur.ok("urEnqueueEventsWait", queue, 1, array(gate))
    way.free(way.alloc("device", 64))
    assert go() == 0
    ur.ok("urQueueFinish", queue)
