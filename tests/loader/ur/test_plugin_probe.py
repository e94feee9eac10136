"""Probes of adapters and plugins in child processes: their reports, and that no plugin harms the
caller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.support import FakePlugin, with_short_limit

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin_probe import (
    PluginDeviceReport,
    PluginPlatformReport,
    PluginReport,
    probe_all,
)

pytestmark = pytest.mark.slow


def probe(
    path: Path | str,
    interface: str = "UR",
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> PluginReport:
    (report,) = probe_all(
        [PluginCandidate(str(path), "test", None, interface, "opencl")], timeout, environment
    )
    return report


def test_a_report_of_an_adapter_that_is_well(fake_plugin: FakePlugin) -> None:
    path = fake_plugin(devices=2)
    report = probe(path)
    assert (report.ok, report.reason, report.idle, report.probed, report.missing) == (
        True,
        "",
        "",
        True,
        (),
    )
    assert (report.real_path, report.version, report.layout) == (
        str(path),
        "0.12",
        next(iter(UR.layouts)),
    )
    assert (report.notes, report.warnings, report.opened) == ((), (), "") and report.seconds > 0
    devices = tuple(
        PluginDeviceReport(f"Fake device {number}", "gpu", "1.2.3", "level_zero")
        for number in (0, 1)
    )
    assert report.platforms == (PluginPlatformReport("Fake 0", "1.2 fake", "level_zero", devices),)


def test_a_report_of_a_plugin_that_is_well(fake_plugin: FakePlugin) -> None:
    report = probe(fake_plugin(interface=2), "PI")
    assert (report.ok, report.version, report.layout) == (True, "15.47.1", "") and len(
        report.platforms
    ) == 1


def test_the_candidate_comes_back_as_it_was() -> None:
    candidate = PluginCandidate(
        "/nowhere/libgone.so", "somewhere", "/etc/plugins.conf", "PI", "cuda", True
    )
    (report,) = probe_all([candidate])
    assert report.candidate is candidate and not report.ok
    assert (report.reason, report.remedy) == (
        "the file does not exist",
        "install the package that ships it, or correct the path",
    )


@pytest.mark.parametrize("interface", ["UR", "PI"])
@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"at_load": "abort()"}, "it crashed with SIGABRT while opening the library"),
        (
            {"at_load": "_exit(3)"},
            "it ended the process with exit code 3 while opening the library",
        ),
        ({"at_list": "crash()"}, "it crashed with SIGSEGV while listing its platforms"),
        (
            {"at_devices": "crash()"},
            "it crashed with SIGSEGV while asking its platforms for their devices",
        ),
        ({"at_teardown": "crash()"}, "it crashed with SIGSEGV while closing it"),
        ({"at_exit": "crash()"}, "it crashed with SIGSEGV while closing it"),
    ],
)
def test_what_ends_the_child_is_named(
    fake_plugin: FakePlugin, interface: str, knobs: dict[str, object], reason: str
) -> None:
    report = probe(fake_plugin(interface=1 if interface == "UR" else 2, **knobs), interface)
    assert (
        not report.ok
        and report.probed
        and report.reason.startswith(reason)
        and "FAIRLEAD_PROBE=0" in report.remedy
    )


def test_what_hangs_is_ended(fake_plugin: FakePlugin) -> None:
    plugin, words = fake_plugin(at_devices="hang()"), "while asking its platforms for their devices"

    def check(limit: int) -> None:
        assert probe(plugin, timeout=limit).reason == f"it did not answer within {limit} s {words}"

    with_short_limit(check)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        (
            {"exports": -1},
            "it exports no urGet…ProcAddrTable function and no piPluginInit, so it is neither",
        ),
        (
            {"getter_error": "UR_RESULT_ERROR_UNSUPPORTED_VERSION"},
            "urGetKernelProcAddrTable: it refuses to fill its table Kernel",
        ),
        ({"count": "(1 << 20)"}, "urPlatformGet: it reports 1048576 handles, which is impossible"),
    ],
)
def test_an_adapter_that_is_refused(
    fake_plugin: FakePlugin, knobs: dict[str, object], reason: str
) -> None:
    report = probe(fake_plugin(**knobs))
    assert not report.ok and report.reason.startswith(reason)


def test_an_idle_adapter_is_sound(fake_plugin: FakePlugin) -> None:
    report = probe(fake_plugin(platforms=0))
    assert (
        report.ok
        and report.idle.startswith("it has no platform")
        and report.remedy
        and report.platforms == ()
    )


@pytest.mark.parametrize(
    ("knobs", "warning"),
    [
        (
            {"at_devices": "return UR_RESULT_ERROR_DEVICE_LOST"},
            "its platform 0 failed to describe its devices: urDeviceGet [",
        ),
        (
            {"info_error": "UR_RESULT_ERROR_DEVICE_LOST"},
            "its platform 0 failed to describe itself: urPlatformGetInfo [",
        ),
        (
            {"release_error": "UR_RESULT_ERROR_DEVICE_LOST"},
            "urAdapterRelease [UR_RESULT_ERROR_DEVICE_LOST]",
        ),
    ],
)
def test_what_is_odd_about_a_sound_one(
    fake_plugin: FakePlugin, knobs: dict[str, object], warning: str
) -> None:
    report = probe(fake_plugin(**knobs))
    assert report.ok and any(said.startswith(warning) for said in report.warnings)


def test_a_remark_is_no_warning(fake_plugin: FakePlugin) -> None:
    report = probe(fake_plugin(layout=2))
    assert (
        len(report.notes) == 1 and tuple(UR.layouts)[1] in report.notes[0] and report.warnings == ()
    )


def test_the_child_sees_the_environment_that_is_given(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    before = dict(os.environ)
    assert probe(fake_plugin(), environment={"FAKE_LOG": str(log)}).ok
    assert log.read_text().startswith("load\n") and dict(os.environ) == before


def test_reports_are_in_the_order_of_the_candidates(fake_plugin: FakePlugin) -> None:
    paths = [fake_plugin(at_load="abort()"), fake_plugin(), fake_plugin(platforms=0)]
    candidates = [PluginCandidate(str(path), "test", None, "UR", "unknown") for path in paths]
    reports = probe_all(candidates)
    assert [report.candidate for report in reports] == candidates and [
        report.ok for report in reports
    ] == [False, True, True]
    assert probe_all([]) == []


def test_no_child_can_be_started(monkeypatch: pytest.MonkeyPatch, fake_plugin: FakePlugin) -> None:
    monkeypatch.setattr("sys.executable", "")
    monkeypatch.setattr("sys.exec_prefix", "/nowhere")
    report = probe(fake_plugin())
    assert (
        report.ok
        and not report.probed
        and "no child process could be started" in report.warnings[0]
    )


def test_a_real_adapter_opens_an_opencl_loader(real_plugins: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (tmp_path / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    report = probe(adapter)
    assert (
        report.ok
        and report.layout == "2025.3"
        and os.path.basename(report.opened).startswith("libOpenCL.so")
    )
