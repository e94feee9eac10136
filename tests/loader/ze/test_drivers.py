"""Level Zero drivers, opened and probed: a fake that keeps the rules, and hostile ones."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from helpers.support import FakePlugin, RunPython, with_short_limit

from fairlead.loader.base.errors import FairleadError, LibraryError, NotFoundError
from fairlead.loader.base.search import Candidate
from fairlead.loader.trace.trace import trace
from fairlead.loader.ze.abi import ZE, LevelZeroError, check
from fairlead.loader.ze.binding import DriverBindError
from fairlead.loader.ze.driver import ZEDriver, load
from fairlead.loader.ze.drivers import ZEDrivers, open_drivers
from fairlead.loader.ze.probe import probe_all

pytestmark = pytest.mark.slow

UNSUPPORTED = ZE.codes["ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"]


def candidate(path: Path) -> Candidate:
    return Candidate(str(path), "test")


def opened(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> ZEDrivers:
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", ",".join(map(str, paths)))
    return open_drivers()


def test_a_driver_is_opened_and_describes_itself(fake_ze: FakePlugin) -> None:
    driver = load(candidate(fake_ze(devices=2)))
    assert [(device.name, device.type) for device in driver.devices] == [
        ("Fake 0", "GPU"),
        ("Fake 1", "GPU"),
    ]
    assert driver.devices[0].driver_version == "7"
    assert (driver.api_version, driver.extensions) == ("1.17", {"ZE_fake": "1.2"})
    assert (driver.binding.version, driver.binding.notes, driver.idle) == ("1.17", (), "")


def test_a_function_that_a_driver_lacks_says_so(fake_ze: FakePlugin) -> None:
    """Also those of a table that ends early, that has no getter, or whose entry is NULL."""
    for knobs in ({}, {"no_fence": 1}, {"null_after": 4}):
        driver = load(candidate(fake_ze(**knobs)))
        assert driver.table.zeFenceReset(1) == UNSUPPORTED, knobs
        assert "zeFenceReset" in driver.binding.missing
    assert load(candidate(fake_ze(no_fence=1))).binding.missing_tables == ("Fence",)


@pytest.mark.parametrize("strict", [0, 1])
def test_an_older_driver_has_smaller_tables(fake_ze: FakePlugin, strict: int) -> None:
    """A strict one refuses newer versions than its own."""
    driver = load(candidate(fake_ze(version=4, strict=strict)))
    assert driver.table.zeInitDrivers(None, None, None) == UNSUPPORTED
    assert [device.name for device in driver.devices] == ["Fake 0"]
    assert driver.binding.version == ("1.4" if strict else "1.17")
    assert bool(driver.binding.notes) == bool(strict)


def test_a_getter_that_writes_more_than_is_known_harms_nothing(fake_ze: FakePlugin) -> None:
    driver = load(candidate(fake_ze(beyond=200)))
    assert [device.name for device in driver.devices] == ["Fake 0"]
    assert driver.table.zeFenceReset(1) == UNSUPPORTED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"no_global": 1}, "it has no zeInit and no zeInitDrivers"),
        ({"no_device": 1}, "it has no zeDeviceGet"),
        ({"null_after": 0}, "it has no zeInit and no zeInitDrivers"),
        ({"getter_code": "ZE_RESULT_ERROR_UNINITIALIZED"}, "it refuses to fill its table"),
        ({"getter_code": "ZE_RESULT_ERROR_UNSUPPORTED_VERSION"}, "Level Zero 1.17 or older"),
    ],
)
def test_a_driver_that_breaks_the_protocol_is_refused(
    fake_ze: FakePlugin, knobs: dict[str, object], words: str
) -> None:
    with pytest.raises(DriverBindError, match=words) as caught:
        load(candidate(fake_ze(**knobs)))
    assert caught.value.remedy


def test_other_libraries_are_no_drivers(fake_adapter: FakePlugin, tmp_path: Path) -> None:
    with pytest.raises(DriverBindError, match="not a Level Zero driver"):
        load(candidate(fake_adapter()))
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(LibraryError):
        load(candidate(tmp_path / "text.so"))


def test_a_driver_without_devices_is_idle(fake_ze: FakePlugin) -> None:
    for knobs in ({"init_code": "ZE_RESULT_ERROR_UNINITIALIZED"},):
        driver = load(candidate(fake_ze(**knobs)))
        assert driver.devices == () and "ZE_RESULT_ERROR_UNINITIALIZED" in driver.idle
        assert driver.remedy
    assert load(candidate(fake_ze(devices=0))).devices == ()


def test_a_driver_that_fails_to_start_is_refused_with_its_code(fake_ze: FakePlugin) -> None:
    with pytest.raises(LevelZeroError) as caught:
        load(candidate(fake_ze(init_code="ZE_RESULT_ERROR_DEVICE_LOST")))
    assert caught.value.code == "ZE_RESULT_ERROR_DEVICE_LOST"
    assert caught.value.routine == "zeInitDrivers"


def test_impossible_counts_are_refused_and_larger_ones_cut(fake_ze: FakePlugin) -> None:
    driver = load(candidate(fake_ze(more_devices=1000000)))
    with pytest.raises(FairleadError, match="impossible"):
        _ = driver.devices
    assert len(load(candidate(fake_ze(more_devices=3))).devices) == 1


HOSTILE = {
    "crashes when it is loaded": {"at_load": "crash()"},
    "crashes in a getter": {"at_getter": "crash()"},
    "crashes in zeInit": {"at_init": "crash()"},
    "ends the process": {"at_init": "_exit(0)"},
}


@pytest.mark.slow
@pytest.mark.parametrize("knobs", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_driver_hides_no_other(
    fake_ze: FakePlugin, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, object]
) -> None:
    drivers = opened(monkeypatch, fake_ze(**knobs), fake_ze())
    assert [device.name for device in drivers.select()] == ["Fake 0"]
    assert [refusal.what for refusal in drivers.refusals] == [str(fake_ze(**knobs))]
    assert any(str(fake_ze(**knobs)) in reason for reason in drivers.reasons)


def test_a_driver_that_hangs_is_refused(fake_ze: FakePlugin) -> None:
    hanging = candidate(fake_ze(at_init="hang()"))
    words = "initializing it"

    def check(limit: int) -> None:
        (report,) = probe_all([hanging], timeout=limit)
        assert f"within {limit} s" in report.reason and words in report.reason

    with_short_limit(check)


def test_a_probe_describes_a_driver(fake_ze: FakePlugin) -> None:
    good, bad = probe_all(
        [candidate(fake_ze()), candidate(fake_ze(properties_code="ZE_RESULT_ERROR_DEVICE_LOST"))]
    )
    assert (good.ok, good.version, good.tables, good.idle) == (True, "1.17", "1.17", "")
    assert [(d.name, d.type, d.driver_version) for d in good.devices] == [("Fake 0", "GPU", "7")]
    assert bad.ok and bad.devices == () and "DEVICE_LOST" in bad.warnings[0]


def test_no_driver_at_all_is_an_error_with_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError) as caught:
        opened(monkeypatch, Path("/nonexistent/driver.so")).select()
    assert any(
        "/nonexistent/driver.so: does not exist" in reason for reason in caught.value.reasons
    )
    assert caught.value.code == "ZE_RESULT_ERROR_UNINITIALIZED" and caught.value.remedy


def test_a_pattern_leaves_drivers_out(fake_ze: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_EXCLUDE", "*libfake_ze*")
    drivers = opened(monkeypatch, fake_ze())
    assert len(drivers) == 0 and "FAIRLEAD_EXCLUDE" in drivers.refusals[0].reason


def events_of(driver: ZEDriver) -> int:
    """Make a context, a pool and an event, signal it, and return the result of its query."""
    table = driver.table
    context, pool, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    descs = [ZE.get_struct(f"ze_{name}_desc_t")() for name in ("context", "event_pool", "event")]
    context_desc, pool_desc, event_desc = map(ctypes.byref, descs)
    check(table.zeContextCreate(driver.handles[0], context_desc, ctypes.byref(context)), "create")
    check(table.zeEventPoolCreate(context, pool_desc, 0, None, ctypes.byref(pool)), "pool")
    check(table.zeEventCreate(pool, event_desc, ctypes.byref(event)), "event")
    before = table.zeEventQueryStatus(event)
    check(table.zeEventHostSignal(event), "signal")
    assert table.zeEventQueryStatus(event) == 0
    check(table.zeEventDestroy(event), "zeEventDestroy")
    check(table.zeEventPoolDestroy(pool), "zeEventPoolDestroy")
    check(table.zeContextDestroy(context), "zeContextDestroy")
    return before


def test_calls_are_traced_with_what_their_counts_lead_to(fake_ze: FakePlugin) -> None:
    driver = load(candidate(fake_ze(devices=2, name='"Traced"')))
    with trace(["ze"]) as calls:
        devices = driver.devices
        events_of(driver)
    text = {call.name: str(call) for call in calls}
    both = ", ".join(f"{device.handle:#x}" for device in devices)
    assert f"{{{both}}}" in text["zeDeviceGet"]
    assert text["zeEventHostSignal"].endswith("-> ZE_RESULT_SUCCESS;")
    query = next(call for call in calls if call.name == "zeEventQueryStatus")
    assert "ZE_RESULT_NOT_READY" in str(query) and not query.failed


@pytest.mark.parametrize("variable", ["FAIRLEAD_TRACE=ze", "ZE_ENABLE_TRACING_LAYER=1"])
def test_the_environment_starts_a_trace(
    fake_ze: FakePlugin, run_python: RunPython, variable: str
) -> None:
    code = "import fairlead; print([device.name for device in fairlead.level_zero().select()])"
    name, value = variable.split("=")
    done = run_python(code, env={"ZE_ENABLE_ALT_DRIVERS": str(fake_ze()), name: value})
    assert done.out == "['Fake 0']\n"
    assert "zeDeviceGetProperties(.hDevice = 0x" in done.err


def test_the_drivers_are_opened_once(fake_ze: FakePlugin, run_python: RunPython) -> None:
    code = """
import fairlead
drivers = fairlead.level_zero()
assert fairlead.level_zero() is drivers
print(len(drivers), [device.name for device in drivers.devices], drivers.failures)
"""
    paths = f"{fake_ze()},{fake_ze(name=chr(34) + 'Other' + chr(34))}"
    done = run_python(code, env={"ZE_ENABLE_ALT_DRIVERS": paths})
    assert done.out == "2 ['Fake 0', 'Other 0'] ()\n"
