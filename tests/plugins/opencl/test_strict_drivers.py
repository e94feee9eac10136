"""What NVIDIA's driver (580.159) refuses or fails at, put in front of PoCL: every machine sees that
the adapter does without."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.launching import MEM, POINTER, built, rows, sizes
from helpers.memory_calls import new_queue
from helpers.ur_calls import Calls, array

from fairlead.conformance.threads import in_threads
from fairlead.icd.abi import OPENCL
from fairlead.icd.driver_profiles import find_profile_by_names
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.sdk._native import lib

COUNT = 16
Put = Callable[[str, Callable[..., Any]], None]


@pytest.fixture
def device(pocl_wheel_device: PluginDevice, monkeypatch: pytest.MonkeyPatch) -> PluginDevice:
    """PoCL's, with the habits of NVIDIA's driver."""
    platform = thing("platform", pocl_wheel_device.platform.handle)
    habits = find_profile_by_names("NVIDIA CUDA", "NVIDIA Corporation", "OpenCL 3.0 CUDA 13.0")
    assert habits.svm_needs_lock and habits.svm_arguments_stick
    monkeypatch.setattr(platform, "profile", habits)
    memory = thing("device", pocl_wheel_device.handle).memory
    monkeypatch.setattr(memory, "usm", lib.FL_USM_OTHER)  # C knows nothing of such a device's
    return pocl_wheel_device


def thing(kind: str, handle: int) -> Any:
    """The adapter's object of a handle."""
    name = f"ur_{kind}_handle_t"
    return reference.objects.list_owned(name).get(handle) or reference.objects.find_lent(
        name, handle
    )


@pytest.fixture
def table(context: int) -> DispatchTable:
    """The driver's functions."""
    return thing("context", context).table


@pytest.fixture
def put(table: DispatchTable, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Has the adapter call a function that is given the driver's own as its first argument."""

    def put(name: str, function: Callable[..., Any]) -> None:
        real = getattr(table, name)
        monkeypatch.setattr(table, name, lambda *arguments: function(real, *arguments))

    return put


@pytest.fixture
def store(ur: Calls, context: int) -> Iterator[int]:
    """The kernel `store`."""
    program = built(ur, context)
    kernel = ur.make("urKernelCreate", program, b"store").value or 0
    yield kernel
    ur.ok("urKernelRelease", kernel)
    ur.ok("urProgramRelease", program)


@pytest.fixture
def addresses_stay(put: Put) -> set[tuple[int, int]]:
    """An argument that was an address once makes every launch fail in which it is none, and NULL is
    not an address. The answer is kernels and arguments that were."""
    were: set[tuple[int, int]] = set()
    wrong: set[tuple[int, int]] = set()

    def set_address(real: Any, kernel: int, index: int, address: int) -> int:
        were.add((kernel, index))
        (wrong.discard if address else wrong.add)((kernel, index))
        return real(kernel, index, address)

    def set_other(real: Any, kernel: int, *argument: Any) -> int:
        if (kernel, argument[0]) in were:
            wrong.add((kernel, argument[0]))
        return real(kernel, *argument)

    def create(real: Any, *arguments: Any) -> int:
        made = real(*arguments)
        for known in (were, wrong):
            known.difference_update([key for key in known if key[0] == made])
        return made

    def launch(real: Any, queue: int, kernel: int, *arguments: Any) -> int:
        refused = any(key[0] == kernel for key in wrong)
        return (
            OPENCL.codes["CL_INVALID_KERNEL_ARGS"] if refused else real(queue, kernel, *arguments)
        )

    put("clSetKernelArgSVMPointer", set_address)
    put("clSetKernelArg", set_other)
    put("clCreateKernel", create)
    put("clEnqueueNDRangeKernel", launch)
    return were


@pytest.fixture
def memory(ur: Calls, context: int, device: PluginDevice) -> Iterator[tuple[int, int]]:
    """Shared memory, and a buffer."""
    address = ur.make("urUSMSharedAlloc", context, device.handle, None, None, 4 * COUNT).value or 0
    given = "urMemBufferCreate", context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT, None
    buffer = ur.make(*given).value or 0
    yield address, buffer
    ur.ok("urMemRelease", buffer)
    ur.ok("urUSMFree", context, address)


def read(ur: Calls, queue: int, argument: tuple[int, int]) -> list[int]:
    into = (ctypes.c_int32 * COUNT)()
    kind, given = argument
    if kind == MEM:
        ur.ok("urEnqueueMemBufferRead", queue, given, True, 0, 4 * COUNT, into)
    else:
        ur.ok("urEnqueueUSMMemcpy", queue, True, into, given, 4 * COUNT)
    return list(into)


def launch(ur: Calls, queue: int, kernel: int, *arguments: Any) -> str:
    given = rows(*arguments)
    head = (queue, kernel, 1, None, sizes((COUNT,)), None, len(given), given)
    return ur("urEnqueueKernelLaunchWithArgsExp", *head)


def test_an_argument_is_an_address_and_a_buffer_in_turn(
    ur: Calls, queue: int, store: int, memory: tuple[int, int], addresses_stay: set[tuple[int, int]]
) -> None:
    address, buffer = memory
    for number, argument in enumerate([(POINTER, address), (MEM, buffer)] * 2):
        assert launch(ur, queue, store, argument, number) == "SUCCESS"
        assert read(ur, queue, argument) == list(range(number, number + COUNT))
    assert addresses_stay
    given = ur, queue, store, (POINTER, 0), 1, (POINTER, address)
    assert launch(*given) == "INVALID_KERNEL_ARGUMENT_INDEX"


def test_a_kernel_that_others_know_stays_the_same(
    ur: Calls, queue: int, store: int, memory: tuple[int, int], addresses_stay: set[tuple[int, int]]
) -> None:
    address, buffer = memory
    native = ctypes.c_void_p()
    thing("kernel", store).struct.in_python = 1  # C would call the driver past `addresses_stay`
    assert launch(ur, queue, store, (POINTER, address), 1) == "SUCCESS"
    ur.ok("urKernelGetNativeHandle", store, native)
    assert launch(ur, queue, store, (MEM, buffer), 1) == "INVALID_KERNEL_ARGS"
    assert thing("kernel", store).cl == native.value


def test_null_is_no_address(
    ur: Calls,
    context: int,
    queue: int,
    memory: tuple[int, int],
    addresses_stay: set[tuple[int, int]],
) -> None:
    source = (
        b"kernel void seven(global int *a, global int *b) { size_t i = "
        b"get_global_id(0); a[i] = b ? b[i] : 7; }"
    )
    address, _ = memory
    program = built(ur, context, source)
    kernel = ur.make("urKernelCreate", program, b"seven").value or 0
    for other, found in ((0, [7] * COUNT), (address, [7] * COUNT), (0, [7] * COUNT)):
        assert launch(ur, queue, kernel, (POINTER, address), (POINTER, other)) == "SUCCESS"
        assert read(ur, queue, (POINTER, address)) == found


def test_launches_of_a_command_buffer_share_a_kernel_if_the_same_arguments_are_addresses(
    ur: Calls, context: int, device: PluginDevice, queue: int, store: int, memory: tuple[int, int]
) -> None:
    address, buffer = memory
    assert (
        launch(ur, queue, store, (POINTER, address), 9) == "SUCCESS"
    )  # a copy would have this address
    desc = UR.get_struct("ur_exp_command_buffer_desc_t")(0x1000, None, False, True, False)
    made = (
        ur.make("urCommandBufferCreateExp", context, device.handle, ctypes.byref(desc)).value or 0
    )
    for number, argument in enumerate([(POINTER, address), (MEM, buffer)] * 2):
        given = rows(argument, number)
        head = (made, store, 1, None, sizes((COUNT,)), None, len(given), given)
        ur.ok("urCommandBufferAppendKernelLaunchWithArgsExp", *head, *(0, None) * 3)
    assert len(thing("exp_command_buffer", made).copies) == 2
    ur.ok("urCommandBufferFinalizeExp", made)
    ur.ok("urEnqueueCommandBufferExp", queue, made)
    assert read(ur, queue, (POINTER, address)) == list(range(2, 2 + COUNT))
    assert read(ur, queue, (MEM, buffer)) == list(range(3, 3 + COUNT))


def test_one_thread_at_a_time_allocates_and_frees(
    ur: Calls, context: int, device: PluginDevice, put: Put
) -> None:
    inside, most = itertools.count(), list[int]()
    present: set[int] = set()

    def watch(real: Any, *arguments: Any) -> int | None:
        number = next(inside)
        present.add(number)
        most.append(len(present))
        made = real(*arguments)
        present.remove(number)
        return made

    put("clSVMAlloc", watch)
    put("clSVMFree", watch)

    def work(_: int) -> None:
        for _ in range(50):
            memory = ur.make("urUSMDeviceAlloc", context, device.handle, None, None, 4096)
            ur.ok("urUSMFree", context, memory)

    in_threads(4, work)
    assert len(most) == 400 and max(most) == 1


def test_a_time_stamp_is_no_marker_that_waits(
    ur: Calls, context: int, device: PluginDevice, put: Put
) -> None:
    """Such a one has the times of another command, or none."""
    queue = new_queue(ur, context, device.handle, "PROFILING_ENABLE").value or 0
    counts: list[int] = []  # of the events that markers waited for
    last: dict[int, int] = {}  # by handle, which a later marker may have again

    def mark(real: Any, queue: int, count: int, waits: Any, event: Any) -> int:
        code = real(queue, count, waits, event)
        if event:
            counts.append(count)
            last[event._obj.value] = count
        return code

    put("clEnqueueMarkerWithWaitList", mark)
    before, stamp, native = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    ur.ok("urEnqueueEventsWait", queue, 0, None, before)
    ur.ok("urEnqueueTimestampRecordingExp", queue, True, 1, array(before), stamp)
    ur.ok("urEventGetNativeHandle", stamp, native)
    assert 1 in counts and last[native.value or 0] == 0
    times = [
        ur.number("urEventGetProfilingInfo", event, "UR_PROFILING_INFO_COMMAND_END")
        for event in (before, stamp)
    ]
    assert 0 < times[0] <= times[1]
