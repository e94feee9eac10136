"""Launches of the reference adapter: every kind of argument, sizes, events, launch properties,
threads, and the older functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.launching import Numbers, find_foreign, is_intel, launch
from helpers.support import ROOT, RunPython
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice

pytestmark = pytest.mark.usefixtures("begins_in")


@pytest.fixture
def kernels(ur: Calls, program: int) -> dict[str, int]:
    return {
        name: ur.make("urKernelCreate", program, name.encode()).value or 0
        for name in ("store", "nothing", "shape", "fours", "sums")
    }


@pytest.fixture
def numbers(ur: Calls, context: int) -> Iterator[Numbers]:
    made = Numbers(ur, context, 16)
    yield made
    ur.ok("urMemRelease", made.handle)


# what runs


def test_an_empty_launch_has_its_place_and_an_event(
    ur: Calls, queue: int, kernels: dict[str, int], numbers: Numbers
) -> None:
    event = ctypes.c_void_p()
    assert launch(ur, queue, kernels["store"], (16,), numbers.argument, 1) == "SUCCESS"
    for size, local in (((0,), (1,)), ((4, 0), None)):  # as libsycl has it for range<1>{0}
        given = ur, queue, kernels["store"], size, numbers.argument, 100
        assert launch(*given, local=local, event=ctypes.byref(event)) == "SUCCESS"
        ur.ok("urEventWait", 1, ctypes.byref(event))
        arguments = "urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE"
        assert ur.number(*arguments) == UR["UR_COMMAND_KERNEL_LAUNCH"]
        ur.ok("urEventRelease", event)
    assert numbers.read(queue) == list(range(1, 17))


# what is refused


@pytest.mark.parametrize("find", [lambda device: device, find_foreign], ids=["same", "other"])
def test_kernels_memory_and_queues_of_different_contexts(
    ur: Calls,
    context: int,
    queue: int,
    kernels: dict[str, int],
    device: PluginDevice,
    find: Callable[[PluginDevice], PluginDevice],
) -> None:
    """Both contexts are of the same driver, or of different ones."""
    where = find(device).handle
    other = ur.make("urContextCreate", 1, array(where)).value or 0
    foreign = ur.make("urQueueCreate", other, where).value or 0
    memory = Numbers(ur, other, 4)
    assert launch(ur, foreign, kernels["nothing"], (1,)) == "INVALID_CONTEXT"
    assert launch(ur, queue, kernels["store"], (1,), memory.argument, 1) == "INVALID_CONTEXT"


# launch properties


def chain(flags: int, *structs: Any) -> Any:
    first = UR.get_struct("ur_kernel_launch_ext_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_EXT_PROPERTIES"], flags=flags
    )
    first.kept = structs
    for before, after in zip((first, *structs), structs, strict=False):
        before.pNext = ctypes.addressof(after)
    return ctypes.byref(first)


def cluster(*dimensions: int) -> Any:
    made = UR.get_struct("ur_kernel_launch_cluster_property_t")(
        stype=UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY"]
    )
    made.clusterDim[:] = dimensions
    return made


def scratch(size: int) -> Any:
    kind = UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY"]
    return UR.get_struct("ur_kernel_launch_workgroup_property_t")(
        stype=kind, workgroup_mem_size=size
    )


def test_launch_properties(
    ur: Calls, queue: int, kernels: dict[str, int], numbers: Numbers, device: PluginDevice
) -> None:
    together = UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
    serial = UR["UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE"]
    endless = scratch(0)
    endless.pNext = ctypes.addressof(endless)
    for properties, code in (
        (chain(0), "SUCCESS"),
        (chain(serial), "SUCCESS"),
        (chain(together), "SUCCESS" if is_intel(device) else "INVALID_OPERATION"),
        (chain(0, cluster(1, 1, 1), scratch(0)), "SUCCESS"),
        (chain(0, cluster(2, 1, 1)), "INVALID_OPERATION"),
        (chain(0, scratch(16)), "INVALID_OPERATION"),
        (
            chain(
                0,
                UR.get_struct("ur_queue_properties_t")(
                    stype=UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"]
                ),
            ),
            "INVALID_OPERATION",
        ),
        (chain(8), "INVALID_ENUMERATION"),
        (chain(0, endless), "INVALID_VALUE"),
    ):
        given = ur, queue, kernels["store"], (16,), numbers.argument, 3
        assert launch(*given, local=(4,), properties=properties) == code
        if code == "SUCCESS":
            assert numbers.read(queue) == list(range(3, 19))
    assert (
        launch(ur, queue, kernels["store"], (16,), numbers.argument, 4) == "SUCCESS"
    )  # and a usual launch after it
    assert numbers.read(queue) == list(range(4, 20))


def test_a_cooperative_launch_needs_no_local_size(
    ur: Calls, queue: int, kernels: dict[str, int], numbers: Numbers, device: PluginDevice
) -> None:
    if not is_intel(device):
        pytest.skip("needs a driver with cl_intel_concurrent_dispatch: Intel's")
    together = chain(UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"])
    code = launch(ur, queue, kernels["store"], (16,), numbers.argument, 5, properties=together)
    assert code == "SUCCESS" and numbers.read(queue) == list(range(5, 21))


# the older functions


OLD_LAYOUT = """
import sys

sys.path.append(sys.argv[1])
import ctypes
from helpers.launching import SOURCE, sizes
from helpers.ur_calls import Calls, array
from fairlead.api import make_nested_environment
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate

adapter = load(
    PluginCandidate(sys.argv[2], "test", backend="opencl"), environment=make_nested_environment()
)
print(adapter.binding.layout)
ur = Calls(adapter.table)
for device in adapter.devices:
    context = ur.make("urContextCreate", 1, array(device.handle), None)
    queue = ur.make("urQueueCreate", context, device.handle, None)
    program = ur.make("urProgramCreateWithIL", context, SOURCE, len(SOURCE), None)
    ur.ok("urProgramBuild", context, program, None)
    kernel = ur.make("urKernelCreate", program, b"store")
    memory, value, found = (
        ur.make("urUSMSharedAlloc", context, device.handle, None, None, 16),
        ctypes.c_int32(9),
        (ctypes.c_int32 * 4)(),
    )
    ur.ok("urKernelSetArgPointer", kernel, 0, None, memory)
    ur.ok("urKernelSetArgValue", kernel, 1, 4, None, ctypes.byref(value))
    ur.ok("urEnqueueKernelLaunch", queue, kernel, 1, None, sizes((4,)), None, None, 0, None, None)
    ur.ok("urEnqueueUSMMemcpy", queue, True, found, memory, 16, 0, None, None)
    print(list(found))
"""


@pytest.mark.parametrize("layout", ["2025.3", "2026.0", "2026.1"])
def test_the_tables_of_earlier_releases_lead_to_them(
    run_python: RunPython, adapter: Any, layout: str
) -> None:
    done = run_python(
        OLD_LAYOUT, str(ROOT / "tests"), adapter.path, env={"FAIRLEAD_UR_LAYOUT": layout}
    )
    lines = done.out.splitlines()
    assert lines[0] == layout and lines[1:] == ["[9, 10, 11, 12]"] * len(adapter.devices)
