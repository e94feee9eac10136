"""Sub-devices, and the variables that say which devices a program sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import Output, RunPython

from fairlead.plugins.level_zero.devices import Visible, find_visible

TESTS = Path(__file__).parents[2]
TWO_OF_FOUR = (4, 4)
ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("order", "mask", "expected"),
    [
        ("COMPOSITE", None, [Visible(0, ALL), Visible(1, ALL)]),
        ("COMPOSITE", "0,1", [Visible(0, ALL), Visible(1, ALL)]),
        ("COMPOSITE", "1", [Visible(1, ALL)]),
        ("COMPOSITE", "0.0", [Visible(0, (0,), True)]),
        ("COMPOSITE", "1.1,1.2", [Visible(1, (1, 2))]),
        ("COMPOSITE", "0.2,1.3,1.0,0.3", [Visible(0, (2, 3)), Visible(1, (0, 3))]),
        ("COMPOSITE", "7", []),
        ("FLAT", None, [Visible(0, ALL, True), Visible(1, ALL, True)]),
        ("FLAT", "1,2,7", [Visible(0, (1, 2), True), Visible(1, (3,), True)]),
        ("FLAT", "0.0", []),
        ("COMBINED", "4", [Visible(1, (0,), True)]),
    ],
)
def test_what_the_specification_shows(
    order: str, mask: str | None, expected: list[Visible]
) -> None:
    chosen = frozenset(mask.split(",")) if mask is not None else None
    assert find_visible(TWO_OF_FOUR, order, chosen) == expected


@pytest.mark.parametrize("order", ["COMPOSITE", "FLAT", "COMBINED"])
def test_devices_without_parts_are_visible_in_every_order(order: str) -> None:
    assert find_visible((0, 0), order, None) == [Visible(0, ()), Visible(1, ())]
    assert find_visible((0, 0), order, frozenset("1")) == [Visible(1, ())]


def child(
    run_python: RunPython, driver: Driver, action: str, parts: str = "2", **variables: str
) -> Output:
    code = f"from helpers import ze_parts; ze_parts.{action}()"
    env = {"OCL_ICD_FILENAMES": driver.library, "FAIRLEAD_EXCLUDE": "", **variables}
    env["PYTHONPATH"] = str(TESTS)
    found = run_python(code, env={**env, "FAIRLEAD_ZE_SUB_DEVICES": parts}, check=False)
    if "cannot be divided" in found.err:
        pytest.skip("the device has no sub-devices")
    assert found.code == 0, found.err
    return found


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["device, part 0 root, part 1 root"]),
        ({"ZE_AFFINITY_MASK": "0.1"}, ["device"]),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "FLAT"}, ["device", "device"]),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "combined"}, ["part 0 root", "part 1 root"]),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "COMBINED", "ZE_AFFINITY_MASK": "1"}, ["part 1 root"]),
    ],
    ids=str,
)
def test_what_a_program_sees(
    variables: dict[str, str], expected: list[str], each_driver: Driver, run_python: RunPython
) -> None:
    assert child(run_python, each_driver, "show", **variables).out.splitlines() == expected


def test_a_device_has_none_by_default(each_driver: Driver, run_python: RunPython) -> None:
    assert ", " not in child(run_python, each_driver, "show", "").out


def test_a_number_that_does_not_fit_is_named(each_driver: Driver, run_python: RunPython) -> None:
    found = child(run_python, each_driver, "show", "1000")
    assert ", " not in found.out
    assert "FAIRLEAD_ZE_SUB_DEVICES=1000 is ignored" in found.err


def test_kernels_run_on_a_sub_device_in_every_context(
    each_driver: Driver, run_python: RunPython
) -> None:
    found = child(run_python, each_driver, "compute")
    assert found.out.splitlines() == ["[31, 32, 33]"] * 3


def test_images_of_a_sub_device_are_refused_where_their_copies_crash(
    each_driver: Driver, run_python: RunPython
) -> None:
    found = child(run_python, each_driver, "images").out.split()
    works = each_driver.name == "intel_cpu"
    assert found == (
        ["SUCCESS"] * 3 + ["True"] if works else ["UNSUPPORTED_FEATURE"] * 3 + ["False"]
    )
