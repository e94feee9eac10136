"""Binding: every table of a driver becomes a complete one, and errors of platforms are plain."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from helpers.support import FakeDriver
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd import tables
from fairlead.icd.abi import (
    CL_INVALID_OPERATION,
    ICD2_TAG,
    OPENCL,
    SLOT_COUNT,
    TAG_SLOTS,
    count_slots,
)
from fairlead.icd.drivers import Driver, load
from fairlead.icd.objects import CLPlatform
from fairlead.icd.tables import DriverError, bind, parse_version
from fairlead.loader.base.memory import read, read_text, read_word, read_words
from fairlead.loader.base.query import decode_text
from fairlead.loader.base.search import Candidate
from fairlead.loader.base.table import POINTER_SIZE

NOWHERE = 0x123456789000


def opened(path: Path) -> Driver:
    return load(Candidate(str(path), "test"))


def only_platform(path: Path) -> CLPlatform:
    (platform,) = opened(path).platforms
    return platform


def refusal(path: Path) -> str:
    with pytest.raises(DriverError) as caught:
        opened(path)
    return caught.value.message


def stubs() -> set[int]:
    """The addresses that a slot has when the driver has nothing for it."""
    return {int(tables.ffi.cast("uintptr_t", stub)) for stub in tables.lib.fl_stubs}


def missing(platform: CLPlatform, name: str) -> bool:
    """Whether a stub stands in the slot of `name`."""
    slot = OPENCL.functions[name].slot
    assert slot is not None
    return platform.table.get_pointer(slot) in stubs()


def is_complete(platform: CLPlatform) -> bool:
    pointers = [platform.table.get_pointer(slot) for slot in range(SLOT_COUNT)]
    return all(pointers) and ICD2_TAG not in pointers


# ICD 1


def test_a_plain_icd_1_driver(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver())
    assert platform.icd_version == 1 and platform.notes == () and platform.dispatch_data_is_ours
    assert is_complete(platform)
    assert platform.table.address != read_word(platform.handle), (
        "the driver's own table is not called"
    )


def test_a_null_slot_answers_in_its_own_error_channel(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver())
    table, code = platform.table, ctypes.c_int32()
    assert table.clSetCommandQueueProperty(None, 0, 0, None) == CL_INVALID_OPERATION
    assert table.clCreateSampler(None, 0, 0, 0, ctypes.byref(code)) is None
    assert code.value == CL_INVALID_OPERATION
    assert table.clCreateSampler(None, 0, 0, 0, None) is None
    older = only_platform(fake_driver(version='"OpenCL 1.2 fake"')).table
    assert older.clSVMAlloc(None, 0, 0, 0) is None
    assert older.clSVMFree(None, None) is None
    found = table.clEnqueueAcquireD3D11ObjectsKHR(None, 0, None, 0, None, None)
    assert found == CL_INVALID_OPERATION


def test_a_null_slot_among_the_driver_s_own_functions(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(null_slot="SLOT_clFinish"))
    assert missing(platform, "clFinish") and not missing(platform, "clGetDeviceIDs")


@pytest.mark.parametrize(
    "version", [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1)]
)
def test_a_short_table_is_not_read_past_its_end(
    fake_driver: FakeDriver, version: tuple[int, int]
) -> None:
    """Behind the table lies a page that nobody may read."""
    slots = count_slots(version)
    major, minor = version
    platform = only_platform(fake_driver(slots=slots, version=f'"OpenCL {major}.{minor} fake"'))
    assert is_complete(platform) and platform.notes == ()
    assert [device.name for device in platform.devices] == ["Fake device"]
    assert missing(platform, "clGetKernelSuggestedLocalWorkSize")


def test_a_table_that_is_shorter_than_its_version_promises(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(slots=100, version='"OpenCL 3.0 fake"'))
    assert is_complete(platform)
    assert platform.notes == ("its dispatch table ends after 100 of the 149 slots of OpenCL 3.0",)


def test_a_version_that_is_none_is_taken_for_the_oldest(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(slots=count_slots((1, 0)), version='"third edition"'))
    assert is_complete(platform) and platform.version_number == (1, 0)


def test_the_tag_in_slot_31_alone_means_icd_1(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(tag_in_slot_31=1))
    assert platform.icd_version == 1
    assert platform.notes == (
        "the ICD 2 tag is in slot 31 alone, so the driver is taken for ICD 1",
    )
    assert is_complete(platform)
    assert platform.table.clUnloadCompiler() == CL_INVALID_OPERATION


# What leads nowhere, and what is not whole

_SET = "clIcdSetPlatformDispatchDataKHR"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        (
            {"null_slot": "SLOT_clGetPlatformInfo"},
            "clGetPlatformInfo is NULL in its dispatch table",
        ),
        ({"handle": "NULL"}, "platform 0: its handle is NULL"),
        (
            {"handle": "NOWHERE"},
            f"its handle {NOWHERE:#x} leads to memory that cannot be read",
        ),
        ({"table": "NULL"}, "its dispatch table is NULL"),
        (
            {"table": "NOWHERE"},
            f"its dispatch table at {NOWHERE:#x} leads to memory that cannot be read",
        ),
        ({"icd": 2, "tag_in_slot_31": 0}, "the ICD 2 tag in slot 0 but not in slot 31"),
        (
            {"icd": 2, "has_get_function": 0},
            "the ICD 2 tags, but the driver has no clIcdGetFunctionAddressForPlatformKHR",
        ),
        ({"icd": 2, "has_set_data": 0}, f"the ICD 2 tags, but the driver has no {_SET}"),
        ({"icd": 2, "set_error": -6}, f"{_SET} [CL_OUT_OF_HOST_MEMORY]"),
        (
            {"icd": 2, "set_stores": 0},
            f"{_SET}: it took the dispatch data but did not store it",
        ),
    ],
)
def test_it_is_refused(fake_driver: FakeDriver, knobs: dict[str, Any], words: str) -> None:
    assert words in refusal(fake_driver(**knobs))


@pytest.mark.parametrize(
    "broken", [{"handle": "NULL"}, {"handle": "NOWHERE"}, {"table": "NULL"}, {"table": "NOWHERE"}]
)
def test_a_broken_platform_does_not_take_the_next_one_along(
    fake_driver: FakeDriver, broken: dict[str, str]
) -> None:
    driver = opened(fake_driver(platforms=2, **broken))
    assert [platform.name for platform in driver.platforms] == ["Fake 1"]
    (refused,) = driver.refusals
    assert refused.what.endswith(", platform 0")


# ICD 2


def test_an_icd_2_driver_is_given_a_complete_table(fake_driver: FakeDriver) -> None:
    """The fake refuses a table that has a NULL slot or a tag at the time when it is handed over."""
    platform = only_platform(fake_driver(icd=2))
    assert (
        platform.icd_version == 2 and platform.notes == () and platform.foreign_dispatch_data == 0
    )
    assert is_complete(platform)
    assert platform.dispatch_data_is_ours
    assert [device.name for device in platform.devices] == ["Fake device"]
    assert read_word(platform.devices[0].handle + POINTER_SIZE) == platform.table.address


def test_a_function_that_an_icd_2_driver_has_not_answers_invalid_operation(
    fake_driver: FakeDriver,
) -> None:
    platform = only_platform(fake_driver(icd=2, null_slot="SLOT_clFinish"))
    assert platform.table.clFinish(None) == CL_INVALID_OPERATION


# Two loaders in one process


class ForeignLoader:
    """Another loader: it binds a driver's first platform with a block of its own, as ocl-icd and
    the Khronos loader do."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.clGetExtensionFunctionAddress.restype = ctypes.c_void_p
        entry = library.clGetExtensionFunctionAddress
        handle = ctypes.c_void_p()
        get_ids = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(
            entry(b"clIcdGetPlatformIDsKHR")
        )
        assert get_ids(1, ctypes.byref(handle), None) == 0
        self.set_data = tables.SetDispatchData(entry(b"clIcdSetPlatformDispatchDataKHR"))
        self.handle = handle.value or 0
        self.data = int(tables.ffi.cast("uintptr_t", tables.lib.fl_new_table()))

    def bind(self) -> None:
        assert self.set_data(self.handle, self.data) == 0


def test_a_platform_goes_on_working_when_another_loader_takes_it_over(
    fake_driver: FakeDriver,
) -> None:
    path = fake_driver(icd=2, name='"Taken over"')
    platform = only_platform(path)
    ForeignLoader(path).bind()
    assert not platform.dispatch_data_is_ours
    assert platform.info("CL_PLATFORM_NAME") == "Taken over 0"
    assert [device.name for device in platform.devices] == ["Fake device"]


def test_a_platform_that_another_loader_had_bound_before(fake_driver: FakeDriver) -> None:
    path = fake_driver(icd=2, name='"Bound before"')
    foreign = ForeignLoader(path)
    foreign.bind()
    platform = only_platform(path)
    assert platform.foreign_dispatch_data == foreign.data
    assert platform.dispatch_data_is_ours, (
        "ours begins with a complete table, so the other loader can go on with it"
    )
    assert platform.notes == ("another OpenCL loader in this process had bound it before",)


def test_a_platform_is_bound_once_in_a_process(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(icd=2))
    again = bind(platform.handle, lambda name: None)
    assert again.table is platform.table


# Reading memory and texts that a driver gives


def test_reading_where_nothing_is() -> None:
    assert (
        read(NOWHERE, 8) == b"" and read_word(NOWHERE) is None and read_words(0, 2) == [None, None]
    )
    assert read_text(NOWHERE) == b""


def test_reading_up_to_the_end_of_memory(fake_driver: FakeDriver) -> None:
    platform = only_platform(fake_driver(slots=100, version='"OpenCL 3.0 fake"'))
    own = read_word(platform.handle)
    assert own
    words = read_words(own, SLOT_COUNT)
    assert words.index(None) == 100 and words[100:] == [None] * 50


@given(st.binary(max_size=100))
def test_a_text_is_read_up_to_its_end(content: bytes) -> None:
    buffer = ctypes.create_string_buffer(content, 101)
    assert read_text(ctypes.addressof(buffer), 200) == content.split(b"\0")[0]


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("OpenCL 3.0 PoCL 5.0", (3, 0)),
        ("OpenCL 1.2", (1, 2)),
        ("OpenCL C 1.2 x", (1, 2)),
        ("OpenCL", (1, 0)),
        ("", (1, 0)),
    ],
)
def test_versions(version: str, number: tuple[int, int]) -> None:
    assert parse_version(version) == number


def test_texts_end_at_their_nul_and_need_not_be_utf_8() -> None:
    assert decode_text(b"  name \0rest") == "name"
    assert decode_text(b"\xff\0") == "\N{REPLACEMENT CHARACTER}"


def test_the_tag_slots_are_in_the_first_piece_that_is_read() -> None:
    assert max(TAG_SLOTS) * POINTER_SIZE < 256
