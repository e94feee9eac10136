"""ZE_ENABLE_PARAMETER_VALIDATION: wrong calls are answered before they reach the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.support import FakePlugin

from fairlead.loader.base.argument_rules import is_unchecked, list_rules
from fairlead.loader.base.search import Candidate
from fairlead.loader.ze.abi import ZE, LevelZeroError
from fairlead.loader.ze.driver import ZEDriver, load
from fairlead.loader.ze.validation import is_wanted


@pytest.fixture
def validated(fake_ze: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZEDriver]:
    monkeypatch.setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1")
    driver = load(Candidate(str(fake_ze()), "test"))
    yield driver
    assert driver.validation
    driver.validation.remove()


def code(name: str) -> int:
    return ZE.codes[f"ZE_RESULT_ERROR_{name}"]


def test_right_calls_pass(validated: ZEDriver) -> None:
    assert [device.name for device in validated.devices] == ["Fake 0"]


def test_a_null_handle_and_a_null_pointer_are_refused(validated: ZEDriver) -> None:
    table, driver = validated.table, validated.handles[0]
    assert table.zeContextCreate(None, None, None) == code("INVALID_NULL_HANDLE")
    assert table.zeContextCreate(driver, None, None) == code("INVALID_NULL_POINTER")
    assert table.zeDeviceGet(driver, None, None) == code("INVALID_NULL_POINTER")


def test_unknown_flags_and_enumerations_are_refused(validated: ZEDriver) -> None:
    table = validated.table
    assert table.zeInit(1 << 30) == code("INVALID_ENUMERATION")
    advise = (1, 1, 1, 1, 1 << 20)
    assert table.zeCommandListAppendMemAdvise(*advise) == code("INVALID_ENUMERATION")
    assert table.zeCommandListAppendMemAdvise(1, 1, 1, 1, 0) == code("UNSUPPORTED_FEATURE")


def test_events_to_wait_for_need_a_list(validated: ZEDriver) -> None:
    barrier = validated.table.zeCommandListAppendBarrier
    assert barrier(1, None, 2, None) == code("INVALID_SIZE")
    assert barrier(1, None, 0, None) == code("UNSUPPORTED_FEATURE")


def test_a_driver_that_fails_to_start_gives_its_layer_back(
    fake_ze: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 16."""
    monkeypatch.setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1")
    failing = Candidate(str(fake_ze(init_code="ZE_RESULT_ERROR_DEVICE_LOST")), "test")
    for _ in range(20):
        with pytest.raises(LevelZeroError):
            load(failing)


def test_without_the_variable_the_driver_answers(fake_ze: FakePlugin) -> None:
    driver = load(Candidate(str(fake_ze()), "test"))
    assert driver.validation is None
    assert driver.table.zeDriverGetExtensionProperties(None, None, None) == code(
        "INVALID_NULL_HANDLE"
    )


def test_only_a_1_switches_it_on() -> None:
    assert is_wanted({"ZE_ENABLE_PARAMETER_VALIDATION": "1"})
    assert not is_wanted({"ZE_ENABLE_PARAMETER_VALIDATION": "0"})
    assert not is_wanted({})


def test_every_function_has_a_rule_for_each_argument_that_may_not_be_null() -> None:
    for function in ZE.slots:
        if function.error_channel != "return":
            assert list_rules(function) == ()
            continue
        checked = {rule.parameter for rule in list_rules(function)}
        for parameter in function.parameters:
            needed = parameter.stars or ZE.resolve(parameter.type) == "handle"
            if needed and "optional" not in parameter.words:
                assert not is_unchecked(function, parameter)
                assert parameter.name in checked, (function.name, parameter.name)
