"""The Level Zero cases of the conformance suite: our driver passes them on each OpenCL driver, and
a driver that breaks a rule fails that rule's cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.suites import RunSuite

from fairlead.conformance import harness
from fairlead.conformance.report import SuiteReport
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ze.libze_loader import find_library as loader_path
from fairlead.plugins import build_level_zero_driver, level_zero_driver

pytestmark = pytest.mark.slow

_KINDS = ("1D", "1DARRAY", "2D", "2DARRAY", "3D")
_HEAD = """
from fairlead.plugins.level_zero import driver
from fairlead.plugins.level_zero.lists import ZeCommandList
from fairlead.plugins.level_zero.mutable_commands import MutableCommand
driver.in_c.clear()
"""
_WAITS = """
def put_waits(self, events, count):
    self.check("WAIT_EVENTS").waits = [event for event in events or () if event is not None]
MutableCommand.put_waits = put_waits
"""

#: What breaks a rule: an area, the Python of a driver, and the cases of the area that then fail.
BROKEN = {
    "a reset does nothing": (
        "events",
        "@driver.entry\ndef zeEventHostReset(hEvent): pass",
        {"events::host"},
    ),
    "any list is executed": (
        "lists",
        "ZeCommandList.check_executable = lambda self: None",
        {"lists::not_closed"},
    ),
    "a capture runs its commands": (
        "graphs",
        "@driver.entry\ndef zeCommandListBeginGraphCaptureExt(hCommandList): pass",
        {
            *("graphs::replay", "graphs::moment", "graphs::enabled", "graphs::empty"),
            *("graphs::events", "graphs::fork", "graphs::unjoined", "graphs::source"),
            *("graphs::regular", "graphs::twice", "graphs::dump"),
        },
    ),
    "a sub-device has no root": (
        "devices",
        "@driver.entry\ndef zeDeviceGetRootDevice(hDevice, phRootDevice): phRootDevice[0] = 0",
        {"devices::properties"},
    ),
    "a changed list is executed": (
        "mutable-errors",
        "ZeCommandList.check_executable = lambda self: None",
        {"mutable-errors::close_after_update"},
    ),
    "wait events are not counted": ("mutable-errors", _WAITS, {"mutable-errors::wait_count"}),
    "kernels change after all else": (
        "mutable-errors",
        "MutableCommand.launch_was_changed = property(lambda self: False)",
        {"mutable-errors::kernel_after_all_else"},
    ),
    "any group size is set": (
        "modules",
        "@driver.entry\ndef zeKernelSetGroupSize(hKernel): pass",
        {"modules::group_of_nothing"},
    ),
    "group counts are read once": (
        "indirect",
        "from fairlead.plugins.level_zero import group_counts, recording\n"
        "right = group_counts.CountsReading\n"
        "known = {}\n"
        "class Once(right):\n"
        "    def read_counts(self):\n"  # of one launch: a later one may have its address
        "        read = self._counts, super().read_counts()\n"
        "        return known.setdefault(id(self._counts), read)[1]\n"
        "recording.CountsReading = Once",
        {*(f"indirect::read_anew[{one}]" for one in (False, True)), "indirect::several"},
    ),
    "clones have no events": (
        "clones",
        "from fairlead.plugins.level_zero.recording import ListRecording\n"
        "right = ListRecording.clone_into\n"
        "def clone_into(self, made):\n"
        "    right(self, made)\n"
        "    for command in made.commands: command.waits, command.signal = (), None\n"
        "ListRecording.clone_into = clone_into",
        {"clones::events"},
    ),
    "launches do not set the size of groups": (
        "whole-launches",
        "from fairlead.plugins.level_zero.kernels import ZeKernel\n"
        "ZeKernel.sizes = property(lambda self: (1, 1, 1), lambda self, value: None)",
        {*(f"whole-launches::{name}" for name in ("launch", "local", "stays"))},
    ),
    "constants keep their defaults": (
        "module-links",
        "from fairlead.plugins.level_zero import modules\n"
        "modules.ModuleInput._read_constants = lambda self, row: ()",
        {"module-links::constants", "module-links::several"},
    ),
    "regions begin at 0": (
        "images",
        "from fairlead.plugins.level_zero import image_copies\n"
        "right = image_copies._read_region\n"
        "image_copies._read_region = lambda *given: ((0, 0, 0), right(*given)[1])",
        {*(f"images::contents[{kind}]" for kind in _KINDS), "images::region"},
    ),
    "updates are forgotten": (
        "mutable",
        "@driver.entry\ndef zeCommandListUpdateMutableCommandsExp(hCommandList):\n"
        "    hCommandList.in_c.note_change()",
        {
            *("mutable::value", "mutable::pointer", "mutable::local_memory"),
            *("mutable::group_count", "mutable::group_size", "mutable::global_offset"),
            *("mutable::several_changes", "mutable::again_and_again", "mutable::kernel"),
            *("mutable::kernel_signals", "mutable::kernel_waits", "mutable::next_command"),
            *("mutable::lists_on_an_immediate_list", "mutable::reset", "mutable::no_groups"),
        },
    ),
}


def failures(report: SuiteReport) -> set[str]:
    """The names of the cases that failed. None has to be ended because it hangs."""
    assert not report.trouble and not report.left, report.trouble
    failed = [case for case in report.cases if case.outcome == "failed"]
    assert not [case.name for case in failed if "hung" in case.got]
    return {case.name for case in failed}


def test_our_driver_passes(each_driver: Driver, run_suite: RunSuite, tmp_path: Path) -> None:
    (tmp_path / "only.icd").write_text(f"{each_driver.library}\n", encoding="utf-8")
    only = {"OCL_ICD_VENDORS": str(tmp_path), "FAIRLEAD_ZE_SUB_DEVICES": "2"}
    report = run_suite(level_zero_driver(), environment=only, timeout=120.0)
    assert not failures(report)
    assert sum(case.outcome == "passed" for case in report.cases) > 80


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_driver_fails(
    fault: str, run_suite: RunSuite, tmp_path: Path, wheel_drivers: dict[str, str]
) -> None:
    area, text, expected = BROKEN[fault]
    module = tmp_path / "broken_driver.py"
    module.write_text(_HEAD + text, encoding="utf-8")
    library = build_level_zero_driver(module, tmp_path)
    variables = {**wheel_drivers, "FAIRLEAD_ZE_SUB_DEVICES": "2"}
    report = run_suite(library, area=area, environment=variables, timeout=120.0)
    assert failures(report) == expected


def test_a_loader_is_refused() -> None:
    with pytest.raises(FairleadError, match="neither a Unified Runtime adapter"):
        harness.run(str(loader_path()))
