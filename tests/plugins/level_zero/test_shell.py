"""The shell of a Level Zero driver: tables of every version, and what is not implemented."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from helpers.ze_calls import ZeCalls

from fairlead.loader.ze.abi import API_VERSION, TABLES, ZE, count_entries, name_getter
from fairlead.plugins import build_level_zero_driver, level_zero_driver

TOY = """
from fairlead.plugins import Object
from fairlead.plugins.sdk.ze import LevelZeroDriver, make_failure
driver = LevelZeroDriver("toy")

@driver.kind
class ToyDriver(Object):
    type, counted = "ze_driver_handle_t", False

@driver.kind
class ToyContext(Object):
    type = "ze_context_handle_t"

only = ToyDriver()

@driver.entry
def zeInit(flags):
    pass

@driver.entry
def zeDriverGet():
    return [only]

@driver.entry
def zeContextCreate(hDriver, desc):
    if desc.flags:
        raise make_failure("INVALID_ARGUMENT", "no flags")
    return ToyContext()

@driver.entry
def zeDriverGetApiVersion(hDriver):
    raise ZeroDivisionError
"""


def test_an_older_caller_has_room_for_its_own_table_alone() -> None:
    library = ctypes.CDLL(level_zero_driver())
    for minor in (0, 4, 9, 10, 17, 40):
        version = 1 << 16 | minor
        for table, names in TABLES.items():
            slots = (ctypes.c_void_p * (len(names) + 1))(*[0xABCD] * (len(names) + 1))
            assert library[name_getter(table)](version, slots) == 0
            filled = count_entries(table, version)
            assert all(slot != 0xABCD for slot in slots[:filled]), (table, minor)
            assert all(slot == 0xABCD for slot in slots[filled:]), (table, minor)


def test_getters_refuse_what_is_wrong() -> None:
    library = ctypes.CDLL(level_zero_driver())
    slots = (ctypes.c_void_p * 64)()
    for version, into, name in (
        (API_VERSION, None, "INVALID_NULL_POINTER"),
        (2 << 16, slots, "UNSUPPORTED_VERSION"),
        (0, slots, "UNSUPPORTED_VERSION"),
    ):
        code = library.zeGetKernelProcAddrTable(version, into)
        assert ZE.errors[code][0] == f"ZE_RESULT_ERROR_{name}"
    assert not any(slots)


@pytest.mark.parametrize("prefix", ["zet", "zes"])
def test_tables_of_tools_are_offered_and_left_empty(prefix: str) -> None:
    library = ctypes.CDLL(level_zero_driver())
    for table in ZE.other_tables[prefix]:
        slots = (ctypes.c_void_p * 64)()
        assert library[name_getter(table, prefix)](API_VERSION, slots) == 0
        assert not any(slots)


def test_what_is_not_implemented_says_so(ze: ZeCalls) -> None:
    assert ze.code("zeEventPoolCloseIpcHandle", 1) == "UNSUPPORTED_FEATURE"
    assert ze.code("zeFabricEdgeGetExp", 0, 0, None) == "UNSUPPORTED_FEATURE"


def test_a_driver_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "toy_driver.py").write_text(TOY, encoding="utf-8")
    library = build_level_zero_driver(tmp_path / "toy_driver.py", tmp_path)
    assert library == tmp_path / "libze_toy.so.1"
    ze = ZeCalls(str(library))
    ze.ok("zeInit", 0)
    (driver,) = ze.listed("zeDriverGet")
    desc = ZE.get_struct("ze_context_desc_t")(ZE["ZE_STRUCTURE_TYPE_CONTEXT_DESC"])
    context = ze.make("zeContextCreate", driver, ctypes.byref(desc))
    ze.ok("zeContextDestroy", context)
    assert ze.code("zeContextDestroy", context) == "INVALID_ARGUMENT", "it is released"
    assert ze.code("zeContextDestroy", None) == "INVALID_NULL_HANDLE"
    assert ze.code("zeContextDestroy", driver) == "INVALID_ARGUMENT", "it is a driver"
    made = ctypes.c_void_p()
    create = "zeContextCreate"
    assert ze.code(create, driver, None, ctypes.byref(made)) == "INVALID_NULL_POINTER"
    assert ze.code(create, driver, ctypes.byref(desc), None) == "INVALID_NULL_POINTER"
    desc.flags = 1
    assert ze.code(create, driver, ctypes.byref(desc), ctypes.byref(made)) == "INVALID_ARGUMENT"
    desc.flags = 1 << 20
    assert ze.code(create, driver, ctypes.byref(desc), ctypes.byref(made)) == "INVALID_ENUMERATION"
    version = ctypes.c_uint32()
    assert ze.code("zeDriverGetApiVersion", driver, version) == "UNKNOWN"
    assert ze.code("zeEventHostSignal", driver) == "UNSUPPORTED_FEATURE"


def test_a_module_without_a_driver_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("adapter = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no variable `driver`"):
        build_level_zero_driver(tmp_path / "nothing.py", tmp_path)
