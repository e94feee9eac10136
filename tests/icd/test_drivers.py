"""Opening drivers: good, odd and broken ones, alone and together, and their objects."""

from __future__ import annotations

import ctypes
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.support import FakeDriver, RunPython

from fairlead.icd.abi import CL_INVALID_OPERATION
from fairlead.icd.drivers import Driver, Drivers, drivers, load
from fairlead.icd.errors import OpenCLError
from fairlead.icd.tables import DriverError
from fairlead.loader.base.errors import FairleadError, LibraryError
from fairlead.loader.base.search import Candidate, Place, Refusal, SearchResult

#: Prints what `drivers()` came to, as JSON.
LIST = """
import json
from fairlead.icd.drivers import drivers
found = drivers()
print(json.dumps({
    "platforms": [platform.name for platform in found.platforms],
    "refusals": {refusal.what: [refusal.reason, refusal.remedy] for refusal in found.refusals},
    "reasons": found.reasons,
}))
"""


def opened(path: Path | str) -> Driver:
    return load(Candidate(str(path), "test"))


def refusal(path: Path) -> DriverError:
    with pytest.raises(DriverError) as caught:
        opened(path)
    return caught.value


# The protocol


def test_a_driver_that_exports_only_the_list_of_its_platforms(fake_driver: FakeDriver) -> None:
    driver = opened(fake_driver(exports=1))
    assert [platform.name for platform in driver.platforms] == ["Fake 0"]
    assert driver.extension_function("clFakeFunctionFAKE") is None


def test_a_library_that_is_no_driver(fake_driver: FakeDriver) -> None:
    error = refusal(fake_driver(exports=0))
    assert "it has no clIcdGetPlatformIDsKHR, so it is not an OpenCL driver" in error.message
    assert error.remedy


def test_a_loader_that_poses_as_a_driver(fake_driver: FakeDriver) -> None:
    assert "it is an OpenCL loader, not a driver" in refusal(fake_driver(is_loader=1)).message


def test_two_platforms(fake_driver: FakeDriver) -> None:
    driver = opened(fake_driver(platforms=2))
    assert [platform.name for platform in driver.platforms] == ["Fake 0", "Fake 1"]
    assert len(set(driver.platforms)) == 2


@pytest.mark.parametrize("knobs", [{"count": 0}, {"count_error": -1001}])
def test_a_driver_without_platforms(fake_driver: FakeDriver, knobs: dict[str, int]) -> None:
    error = refusal(fake_driver(**knobs))
    assert error.message == "it has no platform: it found no device that it can drive"
    assert "permissions" in error.remedy


@pytest.mark.parametrize("switches", ["", "-no-platform-is-no-memory"])
def test_intels_driver_without_its_gpu(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switches: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_QUIRKS", switches)
    shutil.copy(fake_driver(count_error=-6), tmp_path / "libigdrcl.so")
    error = refusal(tmp_path / "libigdrcl.so")
    assert (error.code == "CL_OUT_OF_HOST_MEMORY") == bool(switches)
    assert error.message.startswith("it has no platform") == (not switches)


def test_an_absurd_number_of_platforms_is_not_allocated(fake_driver: FakeDriver) -> None:
    found = refusal(fake_driver(count=0xFFFFFFFF)).message
    assert found == "it says that it has 4294967295 platforms, which cannot be"


def test_a_driver_that_fails_to_count(fake_driver: FakeDriver) -> None:
    error = refusal(fake_driver(count_error=-6))
    assert (error.routine, error.code) == ("clIcdGetPlatformIDsKHR", "CL_OUT_OF_HOST_MEMORY")


def test_a_driver_that_counts_and_then_fails(fake_driver: FakeDriver) -> None:
    error = refusal(fake_driver(fetch_error=-5))
    assert error.code == "CL_OUT_OF_RESOURCES" and "asked for its 1 platforms" in error.message


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"suffix_error": -30}, "clGetPlatformInfo [CL_INVALID_VALUE]"),
        ({"name_error": -30}, "clGetPlatformInfo [CL_INVALID_VALUE]"),
        ({"vendor_error": -30}, "clGetPlatformInfo [CL_INVALID_VALUE]"),
        ({"extensions_error": -30}, "clGetPlatformInfo [CL_INVALID_VALUE]"),
        (
            {"suffix_size": "((size_t)1 << 40)"},
            "it reports an answer of 1099511627776 bytes, which is impossible",
        ),
    ],
)
def test_required_queries(fake_driver: FakeDriver, knobs: dict[str, object], reason: str) -> None:
    assert reason in refusal(fake_driver(**knobs)).message
    assert reason in refusal(fake_driver(icd=2, **knobs)).message


def test_the_failed_query_is_named(fake_driver: FakeDriver) -> None:
    assert "(CL_PLATFORM_ICD_SUFFIX_KHR)" in refusal(fake_driver(suffix_error=-30)).message


def test_a_platform_that_does_not_list_cl_khr_icd_is_taken_with_a_note(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (platform,) = opened(fake_driver(extensions='"cl_khr_fp64"')).platforms
    assert "does not list cl_khr_icd" in platform.notes[0]
    monkeypatch.setenv("OCL_ICD_ASSUME_ICD_EXTENSION", "1")
    (platform,) = opened(fake_driver(extensions='"cl_khr_int64"')).platforms
    assert platform.notes == ()


#: Forks while another thread is in a search; the child opens drivers, too.
FORK_IN_A_SEARCH = """
import os, threading
from fairlead.icd import drivers, tables

held, done = threading.Event(), threading.Event()

def hold():
    with drivers._lock, tables._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    os._exit(not (drivers._lock.acquire(blocking=False) and tables._lock.acquire(blocking=False)))
done.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_in_a_search_can_search(run_python: RunPython) -> None:
    assert run_python(FORK_IN_A_SEARCH).out == "0\n"


# Opening twice, and unloading


def test_a_driver_is_opened_once_by_whatever_name(fake_driver: FakeDriver, tmp_path: Path) -> None:
    path = fake_driver()
    link = tmp_path / "link.so"
    link.symlink_to(path)
    assert opened(link) is opened(path)


def test_a_copy_of_a_driver_is_another_driver(fake_driver: FakeDriver, tmp_path: Path) -> None:
    path = fake_driver()
    copy = shutil.copy(path, tmp_path / "copy.so")
    assert opened(copy).platforms != opened(path).platforms


def test_a_platform_of_another_driver_is_not_offered_again(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver(name='"First"')).platforms
    message = refusal(
        fake_driver(name='"Second"', handle=f"((void *){platform.handle:#x})")
    ).message
    assert f"it is the same platform as one of {platform.driver.path}" in message


def test_a_platform_that_a_driver_lists_twice_is_offered_once(fake_driver: FakeDriver) -> None:
    driver = opened(fake_driver(platforms=2, handle="&platforms[1]"))
    assert [platform.name for platform in driver.platforms] == ["Fake 1"]
    assert "the same platform" in driver.refusals[0].reason


def test_a_driver_that_allows_it_is_unloaded_and_can_be_opened_again(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    path = shutil.copy(fake_driver(icd=2, unloadable=1), tmp_path / "unloadable.so")
    driver = opened(path)
    assert opened(path) is driver
    driver.unload()
    assert "unloadable.so" not in Path("/proc/self/maps").read_text()
    assert driver.platforms == ()
    assert [platform.name for platform in opened(path).platforms] == ["Fake 0"]


@pytest.mark.parametrize(
    "knobs", [{"unloadable": 0}, {"unloadable": 1, "extensions": '"cl_khr_icd"'}]
)
def test_a_driver_that_does_not_allow_it_stays(
    fake_driver: FakeDriver, knobs: dict[str, object]
) -> None:
    driver = opened(fake_driver(**knobs))
    with pytest.raises(DriverError, match="does not allow its driver to be unloaded"):
        driver.unload()
    assert [platform.info("CL_PLATFORM_NAME") for platform in driver.platforms] == ["Fake 0"]


# Objects


def test_properties_of_a_platform(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver()).platforms
    assert (platform.name, platform.vendor, platform.suffix) == (
        "Fake 0",
        "fairlead's tests",
        "FAKE",
    )
    assert platform.version == "OpenCL 3.0 fake" and platform.version_number == (3, 0)
    assert platform.extensions == {"cl_khr_icd", "cl_khr_icd_unloadable"}
    assert platform.info("CL_PLATFORM_UNLOADABLE_KHR") is False
    assert "Fake 0" in repr(platform) and "ICD 1" in repr(platform)
    assert "Driver" in repr(platform.driver)


def test_properties_of_a_device_have_python_types(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver()).platforms
    (device,) = platform.devices
    assert (device.name, device.vendor, device.driver_version) == (
        "Fake device",
        "fairlead's tests",
        "1.2.3",
    )
    assert device.type == "ACCELERATOR" and device.available is True
    assert device.extensions == {"cl_khr_fake", "cl_khr_other"} and device.version_number == (3, 0)
    assert device.info("CL_DEVICE_MAX_COMPUTE_UNITS") == 7
    assert device.info("CL_DEVICE_GLOBAL_MEM_SIZE") == 3 << 30
    assert device.info("CL_DEVICE_MAX_WORK_ITEM_SIZES") == (64, 32, 16)
    assert device.info("CL_DEVICE_NUMERIC_VERSION") == (3, 1, 4)
    assert device.info("CL_DEVICE_EXTENSIONS_WITH_VERSION") == (("cl_khr_fake", (3, 1, 4)),)
    assert device.info("CL_DEVICE_UUID") == b"0123456789abcdef"
    assert "Fake device" in repr(device) and "ACCELERATOR" in repr(device)


def test_a_property_that_the_driver_does_not_know(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver()).platforms
    with pytest.raises(OpenCLError, match="CL_DEVICE_LOCAL_MEM_SIZE") as caught:
        platform.devices[0].info("CL_DEVICE_LOCAL_MEM_SIZE")
    assert (caught.value.routine, caught.value.code) == ("clGetDeviceInfo", "CL_INVALID_VALUE")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("CL_DEVICE_TYPE", ""),
        ("CL_DEVICE_MAX_COMPUTE_UNITS", "abc"),
        ("CL_DEVICE_AVAILABLE", ""),
        ("CL_DEVICE_MAX_WORK_ITEM_SIZES", "abcdefghi"),
        ("CL_DEVICE_NUMERIC_VERSION", ""),
        ("CL_DEVICE_EXTENSIONS_WITH_VERSION", "abc"),
    ],
)
def test_an_answer_that_cannot_be_of_its_type(
    fake_driver: FakeDriver, name: str, answer: str
) -> None:
    """Properties say so, and a repr works all the same."""
    give = f'return give("{answer}", {len(answer)}, room, into, size)'
    (platform,) = opened(fake_driver(at_query=give)).platforms
    (device,) = platform.devices
    with pytest.raises(FairleadError, match=f"{name} has {len(answer)} bytes") as caught:
        device.info(name)
    assert caught.value.routine == "clGetDeviceInfo" and caught.value.remedy
    assert "of unknown type" in repr(device) and "Fake 0" in repr(device)


def test_reprs_of_what_does_not_answer(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver(at_query="return CL_OUT_OF_RESOURCES")).platforms
    assert repr(platform.devices) == "(<Device of unknown name (of unknown type) of 'Fake 0'>,)"


def test_a_property_that_opencl_does_not_know(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver()).platforms
    with pytest.raises(OpenCLError, match="OpenCL has no constant CL_PLATFORM_COLOUR"):
        platform.info("CL_PLATFORM_COLOUR")


def test_a_platform_without_devices(fake_driver: FakeDriver) -> None:
    (platform,) = opened(fake_driver(devices=0)).platforms
    assert platform.devices == ()


def test_extension_functions(fake_driver: FakeDriver) -> None:
    for version in ("3.0", "1.1"):
        (platform,) = opened(fake_driver(version=f'"OpenCL {version} fake"')).platforms
        address = platform.extension_function("clFakeFunctionFAKE")
        assert address and ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 4242
        assert platform.extension_function("clNoSuchFunctionFAKE") is None
        assert platform.extension_function("clIcdGetPlatformIDsKHR") is None


# Several drivers at once

KINDS = ({"icd": 1}, {"icd": 2}, {"icd": 2, "devices": 2})


@pytest.mark.parametrize("order", tuple(itertools.permutations(range(3))))
@pytest.mark.parametrize("kinds", [(0, 1, 2), (1, 1, 1), (1, 0, 0)])
def test_drivers_of_both_kinds_together_in_any_order(
    fake_driver: FakeDriver, tmp_path: Path, kinds: tuple[int, ...], order: tuple[int, ...]
) -> None:
    paths = [
        shutil.copy(fake_driver(**KINDS[kind]), tmp_path / f"driver{index}.so")
        for index, kind in enumerate(kinds)
    ]
    found = {index: opened(paths[index]).platforms[0] for index in order}
    tables = {platform.table.address for platform in found.values()}
    assert len(tables) == len(set(found.values())) == 3
    for index, platform in found.items():
        assert platform.icd_version == KINDS[kinds[index]]["icd"]
        assert platform.info("CL_PLATFORM_NAME") == "Fake 0" and platform.dispatch_data_is_ours
        for device in platform.devices:
            code = ctypes.c_int32()
            context = platform.table.clCreateContext(
                None, 1, (ctypes.c_void_p * 1)(device.handle), None, None, ctypes.byref(code)
            )
            assert context and code.value == 0
            queue = platform.table.clCreateCommandQueue(
                context, device.handle, 0, ctypes.byref(code)
            )
            assert platform.table.clFinish(queue) == 0
            assert (
                platform.table.clReleaseCommandQueue(queue)
                == platform.table.clReleaseContext(context)
                == 0
            )


# drivers(): the whole search


@pytest.fixture
def vendors(fake_driver: FakeDriver, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Makes a vendor directory of fake drivers: `vendors({"icd": 2}, {"count": 0})`.

    It returns the environment that names it. The libraries are called a.so, b.so, … in this order.
    """

    def make(*variants: dict[str, object]) -> dict[str, str]:
        names: Iterator[str] = iter("abcdefgh")
        for knobs in variants:
            path = tmp_path / f"{next(names)}.so"
            shutil.copy(fake_driver(**knobs), path)
            path.with_suffix(".icd").write_text(f"{path}\n")
        return {"OCL_ICD_VENDORS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    return make


def listed(
    run_python: RunPython, env: dict[str, str]
) -> dict[str, list[str] | dict[str, list[str]]]:
    return json.loads(run_python(LIST, env=env).out)


def names(*, of: str) -> dict[str, object]:
    return {"name": f'"{of}"'}


def test_drivers_are_listed_in_the_order_of_the_search(
    run_python: RunPython, vendors: Callable[..., dict[str, str]]
) -> None:
    env = vendors(names(of="A"), {**names(of="B"), "icd": 2}, {**names(of="C"), "platforms": 2})
    assert listed(run_python, env)["platforms"] == ["A 0", "B 0", "C 0", "C 1"]


def test_every_refusal_is_kept_with_its_reason(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    env = vendors(
        {"count": 0}, names(of="Good"), {"platforms": 2, "handle": "NULL", **names(of="Half")}
    )
    (tmp_path / "text.icd").write_text("/nonexistent/libdriver.so\n")
    found = listed(run_python, env)
    assert found["platforms"] == ["Good 0", "Half 1"]
    assert isinstance(found["refusals"], dict)
    assert "it has no platform" in found["refusals"][f"{tmp_path}/a.so"][0]
    assert found["refusals"][f"{tmp_path}/c.so, platform 0"][0] == "its handle is NULL"
    assert found["refusals"]["/nonexistent/libdriver.so"][0] == "the file does not exist"
    assert any(str(tmp_path) in reason for reason in found["reasons"])


def test_drivers_are_searched_once_and_again_on_demand(
    run_python: RunPython, vendors: Callable[..., dict[str, str]]
) -> None:
    code = """
import os
from fairlead.icd.drivers import drivers, platforms
first = drivers()
assert drivers() is first
again = drivers(refresh=True)
assert again is not first and again.platforms == first.platforms == platforms()
assert [a is b for a, b in zip(again.drivers, first.drivers, strict=True)] == [True, True]
print("good")
"""
    assert run_python(code, env=vendors(names(of="A"), {"icd": 2})).out == "good\n"


def test_many_threads_get_the_same_drivers(
    run_python: RunPython, vendors: Callable[..., dict[str, str]]
) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from fairlead.icd.drivers import drivers
with ThreadPoolExecutor(8) as pool:
    print(len({id(found) for found in pool.map(lambda _: drivers(), range(32))}))
"""
    assert run_python(code, env=vendors({"icd": 2})).out == "1\n"


@pytest.mark.parametrize("pattern", ["a.so", "*/a.so", "/nothing:a.*"])
def test_fairlead_exclude(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], tmp_path: Path, pattern: str
) -> None:
    env = vendors({"at_load": "abort()"}, names(of="B"))
    found = listed(run_python, {**env, "FAIRLEAD_EXCLUDE": pattern})
    assert found["platforms"] == ["B 0"] and isinstance(found["refusals"], dict)
    reason, remedy = found["refusals"][f"{tmp_path}/a.so"]
    assert reason.startswith("excluded by FAIRLEAD_EXCLUDE") and "FAIRLEAD_EXCLUDE" in remedy


@pytest.mark.parametrize(("value", "order"), [("", "BAC"), ("none", "ABC"), ("devices", "BCA")])
def test_ocl_icd_platform_sort(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], value: str, order: str
) -> None:
    """As in ocl-icd: most GPUs first. `devices` counts CPUs after them, and then all devices."""
    env = vendors(
        {**names(of="A"), "devices": 3},
        {**names(of="B"), "device_type": "CL_DEVICE_TYPE_GPU"},
        {**names(of="C"), "device_type": "CL_DEVICE_TYPE_CPU"},
    )
    found = listed(run_python, {**env, "OCL_ICD_PLATFORM_SORT": value})
    assert found["platforms"] == [f"{name} 0" for name in order]


@pytest.mark.parametrize(("value", "order"), [("", "BDAC"), ("none", "ABCD")])
def test_platforms_without_devices_come_last(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], value: str, order: str
) -> None:
    """As in ocl-icd: programs take the first one. The others keep the order of the search."""
    devices = {"A": 0, "B": 1, "C": 0, "D": 2}
    env = vendors(*({**names(of=name), "devices": count} for name, count in devices.items()))
    found = listed(run_python, {**env, "OCL_ICD_PLATFORM_SORT": value})
    assert found["platforms"] == [f"{name} 0" for name in order]


DEFAULT = """
from fairlead.icd.drivers import default_platform
from fairlead.loader.base.errors import FairleadError
try:
    print(default_platform().name)
except FairleadError as error:
    print(type(error).__name__, error.code, error)
"""


@pytest.mark.parametrize(("index", "name"), [("", "A 0"), ("0", "A 0"), ("1", "B 0")])
def test_ocl_icd_default_platform(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], index: str, name: str
) -> None:
    env = vendors(names(of="A"), names(of="B"))
    assert run_python(DEFAULT, env={**env, "OCL_ICD_DEFAULT_PLATFORM": index}).out.strip() == name


@pytest.mark.parametrize("index", ["2", "-1", "first"])
def test_a_bad_ocl_icd_default_platform(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], index: str
) -> None:
    out = run_python(DEFAULT, env={**vendors({}, {}), "OCL_ICD_DEFAULT_PLATFORM": index}).out
    assert "OpenCLError CL_INVALID_PLATFORM" in out and "numbered 0 to 1" in out


def test_no_platform_at_all_says_what_was_looked_at(
    run_python: RunPython, vendors: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    out = run_python(DEFAULT, env=vendors({"count": 0})).out
    assert "PlatformNotFoundError CL_PLATFORM_NOT_FOUND_KHR" in out
    assert f"{tmp_path}/a.so: " in out and "it has no platform" in out and "remedy: " in out


def test_nothing_is_left_open_to_crash_at_exit(
    run_python: RunPython, vendors: Callable[..., dict[str, str]]
) -> None:
    """Objects and tables outlive the interpreter's own end."""
    env = vendors({"icd": 2}, {"icd": 1})
    code = """
import atexit
from fairlead.icd.drivers import platforms
atexit.register(lambda: print([platform.info("CL_PLATFORM_NAME") for platform in platforms()]))
platforms()
"""
    assert run_python(code, env=env).out.strip() == "['Fake 0', 'Fake 0']"


# Real drivers


def test_the_wheel_of_pocl_and_intel_s_driver_are_found_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    code = (
        "from fairlead.icd.drivers import drivers\nprint([(p.name, d.type) for p in "
        "drivers().platforms for d in p.devices])"
    )
    out = run_python(code, env={"LD_LIBRARY_PATH": None}).out
    assert "('Portable Computing Language', 'CPU')" in out and "('Intel(R) OpenCL', 'CPU')" in out


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.driver(name)) for name in ("pocl_wheel", "intel_cpu")
    ]
)
def real(request: pytest.FixtureRequest) -> Driver:
    return load(request.getfixturevalue(request.param))


def test_stubs_stand_where_a_real_driver_has_nothing(real: Driver) -> None:
    (platform,) = real.platforms
    code = ctypes.c_int32()
    table = platform.table
    given = platform.handle, 0, None, 0, 0, None, None
    assert table.clGetDeviceIDsFromD3D11KHR(*given) == CL_INVALID_OPERATION
    given = None, 0, None, ctypes.byref(code)
    assert table.clCreateFromD3D10BufferKHR(*given) is None and code.value == CL_INVALID_OPERATION
    assert (
        table.clCreateEventFromEGLSyncKHR(None, None, None, ctypes.byref(code)) is None
        and code.value == CL_INVALID_OPERATION
    )


def test_the_slot_that_is_null_in_pocl_answers_invalid_operation(pocl_wheel: Candidate) -> None:
    (platform,) = load(pocl_wheel).platforms
    assert platform.table.clSetCommandQueueProperty(None, 0, 1, None) == CL_INVALID_OPERATION


def test_properties_of_a_real_driver(real: Driver) -> None:
    (platform,) = real.platforms
    (device,) = platform.devices
    assert platform.version.startswith("OpenCL 3.") and platform.suffix in ("POCL", "INTEL")
    assert platform.info("CL_PLATFORM_NUMERIC_VERSION")[:2] == platform.version_number
    assert dict(platform.info("CL_PLATFORM_EXTENSIONS_WITH_VERSION")).keys() == platform.extensions
    assert (
        device.type == "CPU"
        and device.available
        and device.info("CL_DEVICE_PLATFORM") == platform.handle
    )
    assert (
        device.info("CL_DEVICE_MAX_COMPUTE_UNITS") > 0
        and len(device.info("CL_DEVICE_MAX_WORK_ITEM_SIZES")) >= 3
    )
    assert device.info("CL_DEVICE_PARENT_DEVICE") == 0


def test_a_platform_and_its_devices_can_be_given_to_pyopencl(
    run_python: RunPython, intel_cpu: Candidate
) -> None:
    """Also when PyOpenCL's own loader finds no driver at all."""
    code = """
import numpy, pyopencl
from fairlead.icd.drivers import platforms

platform = next(p for p in platforms() if "Intel" in p.name)
device = platform.devices[0].to_pyopencl()
assert platform.to_pyopencl().name == platform.name and device.name == platform.devices[0].name
assert device.platform == platform.to_pyopencl()
context = pyopencl.Context([device])
queue = pyopencl.CommandQueue(context)
program = pyopencl.Program(
    context, "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }"
).build()
buffer = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(5, dtype=numpy.int32)
)
program.twice(queue, (5,), None, buffer)
result = numpy.empty(5, numpy.int32)
pyopencl.enqueue_copy(queue, result, buffer)
print(result.tolist())
"""
    assert run_python(code).out.strip() == "[0, 2, 4, 6, 8]"


def test_a_candidate_that_cannot_be_opened_is_a_library_error() -> None:
    with pytest.raises(LibraryError, match="does not exist"):
        opened("/nonexistent/libdriver.so")


def test_drivers_of_this_machine_are_usable_here() -> None:
    for platform in drivers().platforms:
        assert platform.name and all(device.name for device in platform.devices)


def test_what_nobody_can_act_on_comes_after_the_other_reasons() -> None:
    twice = Refusal("twice.icd", "same file as another", "", "/etc/OpenCL/vendors")
    real = Refusal("libbroken.so", "it crashed", "update it", "/etc/OpenCL/vendors")
    search = SearchResult((), (), (Place("/etc/OpenCL/vendors", "system", "3 manifests"),))
    assert Drivers((), (twice, real), search).reasons == (
        "libbroken.so: it crashed (update it)",
        "twice.icd: same file as another",
        "/etc/OpenCL/vendors: 3 manifests",
    )
