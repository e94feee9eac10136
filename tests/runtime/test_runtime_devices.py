"""Platforms, devices, aspects, selection, parts of devices, contexts.

The runtime on an adapter that others built: Intel's for OpenCL, of 2025.3, in a process of its
own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from helpers.drivers import Driver
from helpers.support import CHILD_TIMEOUT, RunPython, WatchedLock
from helpers.sycl import SOURCE, N, zeros

from fairlead.api import register_drivers
from fairlead.icd import driver_profiles
from fairlead.loader.base.search import Candidate
from fairlead.runtime import (
    Context,
    Device,
    Errc,
    Platform,
    Program,
    Queue,
    SYCLError,
    devices,
    platform,
    platforms,
)
from fairlead.runtime.queue import get_default_context

LIST = "from fairlead.runtime import devices; print([device.platform.name for device in devices()])"


def test_every_driver_has_a_platform(present_drivers: tuple[Driver, ...]) -> None:
    for driver in present_drivers:
        assert any(driver.has(platform) for platform in platforms())
    assert all(
        platform.version.startswith("OpenCL ") and platform.backend == "opencl"
        for platform in platforms()
    )


def test_a_device_is_one_object(device: Device) -> None:
    assert device in devices() and any(device is one for one in devices())
    assert device.platform.devices[0] is device
    assert (device.type, device.backend) == ("cpu", "opencl")
    assert device.info("MAX_COMPUTE_UNITS") >= 1 and device.name in repr(device)


def test_threads_that_ask_at_the_same_time_get_the_same_devices(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = WatchedLock(platform._lock)
    threads, results = list[threading.Thread](), list[Any]()

    class Found:
        handle = 1

        @property
        def devices(self) -> list[Any]:
            if not lock.is_watching:
                lock.wanted.set()
            elif not threads:
                threads.append(threading.Thread(target=lambda: results.append(made.devices)))
                threads[0].start()
                assert lock.wanted.wait(CHILD_TIMEOUT)
            return [type("FoundDevice", (), {"handle": 2})()]

    monkeypatch.setattr(platform, "_lock", lock)
    found: Any = Found()
    made = Platform(device.adapter, found)
    results.append(made.devices)
    threads[0].join()
    assert results[0][0] is results[1][0]


def test_aspects_are_what_the_device_says(device: Device) -> None:
    assert {
        "cpu",
        "queue_profiling",
        "online_compiler",
        "usm_device_allocations",
        "usm_shared_allocations",
    } <= device.aspects
    assert {"ext_oneapi_graph", "ext_oneapi_limited_graph"} <= device.aspects
    assert device.has("fp64") == ("cl_khr_fp64" in device.info("EXTENSIONS"))
    assert not device.has("gpu")


def test_the_selector_chooses(run_python: RunPython) -> None:
    assert eval(run_python(LIST).out) == [device.platform.name for device in devices()]
    last = len(devices()) - 1
    selector = {"ONEAPI_DEVICE_SELECTOR": f"opencl:{last}"}
    assert eval(run_python(LIST, env=selector).out) == [devices()[last].platform.name]
    code = """
from fairlead.runtime import Errc, SYCLError, devices
try:
    devices()
except SYCLError as error:
    print(error.errc is Errc.runtime, error)
"""
    said = run_python(code, env={"ONEAPI_DEVICE_SELECTOR": "opencl:gpu"}).out
    assert said.startswith("True") and "ONEAPI_DEVICE_SELECTOR" in said


def test_a_selected_part_is_one_object_too_and_runs(run_python: RunPython) -> None:
    """Whether a device can be divided by affinity depends on the machine: then `.*` selects the
    parts."""
    code = f"""
import numpy
from fairlead.runtime import Program, Queue, SYCLError, devices, malloc_shared
try:
    first, again = devices()[0], devices()[0]
except SYCLError as error:
    print("cannot be divided", error.errc.name)
else:
    assert first is again and first.parent is not None
    queue = Queue(first)
    memory = malloc_shared({N}, "int32", queue)
    program = Program(queue.context, '''{SOURCE}''')
    queue.parallel_for({N}, program.store, memory, numpy.int32(7)).wait()
    print("runs", set(memory.array.tolist()))
"""
    said = run_python(code, env={"ONEAPI_DEVICE_SELECTOR": "opencl:*.*"}).out
    assert said in ("cannot be divided runtime\n", "runs {7}\n")


@pytest.fixture
def intel_adapter(real_plugins: Path, tmp_path: Path) -> Path:
    """Intel's adapter of 2025 beside the library that it needs."""
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    return adapter


def test_other_adapters_can_be_forced(
    intel_adapter: Path, pocl_wheel: Candidate, run_python: RunPython
) -> None:
    """It has a loader of its own, which finds no driver that only pip installed: it is told one."""
    code = (
        "from fairlead.runtime import devices; print({device.adapter.plugin.path for "
        "device in devices()})"
    )
    driver, _ = driver_profiles.locate(pocl_wheel)
    env = {**register_drivers([driver]), "UR_ADAPTERS_FORCE_LOAD": str(intel_adapter)}
    (path,) = eval(run_python(code, env=env).out)
    assert Path(path) == intel_adapter.resolve()


def test_an_adapter_without_platforms_is_named_with_what_is_missing(
    intel_adapter: Path, tmp_path: Path, run_python: RunPython
) -> None:
    code = """
from fairlead.runtime import SYCLError, devices
try:
    devices()
except SYCLError as error:
    print(error)
"""
    env = {
        "OCL_ICD_VENDORS": str(tmp_path),
        "OCL_ICD_FILENAMES": None,
        "UR_ADAPTERS_FORCE_LOAD": str(intel_adapter),
    }
    said = run_python(code, env=env).out
    assert f"{intel_adapter.resolve()}: it has no platform: " in said
    assert "fairlead.adapters()" in said and "run `fairlead doctor`" in said


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("SYCL_BE", "PI_CUDA", "correct or unset SYCL_BE, `fairlead devices` shows what there is"),
        ("FAIRLEAD_EXCLUDE", "*", "run `fairlead doctor`"),
    ],
)
def test_a_variable_that_leaves_no_device(
    run_python: RunPython, name: str, value: str, remedy: str
) -> None:
    """Our own adapter needs no libOpenCL.so.1: nothing has to be installed."""
    code = "from fairlead.runtime import devices\ndevices()"
    env = {"ONEAPI_DEVICE_SELECTOR": None, "UR_ADAPTERS_FORCE_LOAD": None, name: value}
    said = run_python(code, env=env, check=False).err
    assert f"there is no device that the runtime can use\n  remedy: {remedy}" in said


def test_a_device_is_divided(device: Device, parts: Sequence[Device]) -> None:
    units = device.info("MAX_COMPUTE_UNITS")
    assert len(parts) == units and all(
        part.parent is device and part.info("MAX_COMPUTE_UNITS") == 1 for part in parts
    )
    (one,) = device.partition(counts=[1])
    queue = Queue(one)
    assert queue.context.devices == (one,) and queue.context is get_default_context(one)
    memory = zeros(queue)
    queue.parallel_for(N, Program(queue.context, SOURCE).add, memory, numpy.int32(3)).wait()
    assert (memory.array == 3).all()


def test_a_device_that_cannot_be_divided_so_says_it(device: Device) -> None:
    with pytest.raises(SYCLError, match="cannot be divided so") as caught:
        device.partition(counts=[device.info("MAX_COMPUTE_UNITS") + 1])
    assert caught.value.errc is Errc.feature_not_supported
    wrongs: list[dict[str, Any]] = [{}, {"equally": -1}, {"counts": [0]}]
    for wrong in wrongs:
        with pytest.raises(SYCLError, match="at least one compute unit"):
            device.partition(**wrong)


def test_contexts_are_of_devices_of_one_platform(device: Device, other_device: Device) -> None:
    assert Context(device).devices == (device,) and device in Context(device)
    assert get_default_context(device) is get_default_context(device)
    with pytest.raises(SYCLError, match="several platforms") as caught:
        Context([device, other_device])
    assert caught.value.errc is Errc.invalid
    with pytest.raises(SYCLError, match="needs a device"):
        Context([])
    with pytest.raises(SYCLError, match="not one of the context's"):
        Queue(Context(device), other_device)


CODE = f"""
import fairlead, numpy
from fairlead.runtime import *
for device in devices(fairlead.adapters()):
    if "Intel" not in device.platform.name:
        continue
    queue = Queue(device, profiling=True)
    program = Program(queue.context, '''{SOURCE}''')
    memory = malloc_shared(64, "int32", queue)
    event = queue.memset(memory, 0)
    where = NDRange(64, 8)
    event = queue.parallel_for(where, program.add, memory, numpy.int32(4), depends_on=[event])
    event = queue.host_task(lambda: memory.array.__iadd__(1), depends_on=[event])
    event = queue.parallel_for(64, program.mul, memory, numpy.int32(3), depends_on=[event])
    event.wait()
    assert (memory.array == 15).all() and event.profiling("end") >= event.profiling("start")
    got = numpy.zeros(64, numpy.int32)
    queue.memcpy(got, memory).wait()
    assert (got == 15).all()
    data = numpy.arange(64, dtype=numpy.int32)
    with Buffer(data) as buffer:
        queue.submit(lambda h: h.parallel_for(64, program.add, h.access(buffer), numpy.int32(2)))
        queue.submit(lambda h: (h.access(buffer), h.host_task(lambda: None)))
        with buffer.host_access() as array:
            array *= 2
        queue.submit(lambda h: h.parallel_for(64, program.add, h.access(buffer), numpy.int32(1)))
    assert (data == (numpy.arange(64) + 2) * 2 + 1).all()
    try:
        Program(queue.context, "kernel void broken( {{")
    except SYCLError as error:
        assert error.errc is Errc.build and "error" in error.message
    again = Program.from_binary(queue.context, program.binary())
    queue.parallel_for(64, again.store, memory, numpy.int32(1)).wait()
    assert (memory.array == 1).all()
    queue.wait()
    print(device.name)
"""


def test_programs_usm_kernels_buffers_and_host_tasks(
    real_plugins: Path, tmp_path: Path, run_python: RunPython
) -> None:
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    done = run_python(CODE, env={"UR_ADAPTERS_FORCE_LOAD": str(adapter)})
    assert done.out.count("\n") == 1 and done.err == ""
