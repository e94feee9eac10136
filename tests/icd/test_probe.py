"""Probing in a child process: a driver that crashes, hangs or ends the process is named with a
reason."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.support import FakeDriver, RunPython, with_short_limit

from fairlead.icd.probe import DeviceReport, ProbeReport, probe, probe_all
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow

#: A timeout for drivers that never answer: long enough for Python to start, short enough to wait
#: for.
SHORT = 6.0

LIST = """
import json
from fairlead.icd.drivers import drivers

found = drivers()
print(
    json.dumps(
        [[p.name for p in found.platforms], {r.what: [r.reason, r.remedy] for r in found.refusals}]
    )
)
"""


def candidate(path: Path) -> Candidate:
    return Candidate(str(path), "test", str(path.with_suffix(".icd")))


# What is reported of a driver that works


def test_the_report_of_a_good_driver(fake_driver: FakeDriver) -> None:
    path = fake_driver(icd=2)
    report = probe(candidate(path))
    assert report.ok and report.reason == "" and report.probed and report.seconds > 0
    assert report.candidate == candidate(path) and report.real_path == str(path)
    assert report.icd_version == 2 and report.notes == report.quirks == report.missing == ()
    (platform,) = report.platforms
    assert (platform.name, platform.vendor, platform.suffix, platform.icd_version) == (
        "Fake 0",
        "fairlead's tests",
        "FAKE",
        2,
    )
    assert platform.devices == (
        DeviceReport("Fake device", "ACCELERATOR", "OpenCL 3.0 fake", "1.2.3", 7, 3 << 30),
    )


def test_a_report_survives_json(fake_driver: FakeDriver) -> None:
    for report in probe_all([candidate(fake_driver(platforms=2)), candidate(fake_driver(count=0))]):
        assert ProbeReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_a_bare_soname_is_probed_too() -> None:
    report = probe(Candidate("libm.so.6", "test"))
    assert not report.ok and "it is not an OpenCL driver" in report.reason


def test_reports_come_in_the_order_of_the_candidates(fake_driver: FakeDriver) -> None:
    paths = [fake_driver(name=f'"Order {index}"') for index in range(4)]
    reports = probe_all([candidate(path) for path in paths])
    assert [report.platforms[0].name for report in reports] == [
        f"Order {index} 0" for index in range(4)
    ]
    assert probe_all([]) == []


def test_noise_on_stdout_and_stderr_does_not_disturb_the_report(fake_driver: FakeDriver) -> None:
    report = probe(
        candidate(
            fake_driver(
                at_load='for (int i = 0; i < 100000; i++) fprintf(i % 2 ? stdout : stderr, "{} '
                'noise\\n")'
            )
        )
    )
    assert report.ok and report.platforms[0].name == "Fake 0"


def test_a_driver_that_fails_in_good_order(fake_driver: FakeDriver, tmp_path: Path) -> None:
    found = probe(candidate(fake_driver(exports=0))).reason
    assert found == "it has no clIcdGetPlatformIDsKHR, so it is not an OpenCL driver"
    report = probe(candidate(tmp_path / "nothing.so"))
    assert not report.ok and report.reason == "the file does not exist" and report.remedy


def test_a_refused_platform_and_a_failing_context_are_noted(fake_driver: FakeDriver) -> None:
    report = probe(candidate(fake_driver(platforms=2, handle="NULL", context_error=-6)))
    assert report.ok and [platform.name for platform in report.platforms] == ["Fake 1"]
    refused, failed = report.notes
    assert "platform 0: its handle is NULL" in refused
    assert "clCreateContext [CL_OUT_OF_HOST_MEMORY]" in failed and "'Fake device'" in failed


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ('chdir("/")', "it changes the working directory of the process from"),
        ("umask(0)", "it changes the umask of the process from"),
        ('setlocale(LC_ALL, "C")', "it changes the locale of the process from"),
    ],
)
@pytest.mark.parametrize("knob", ["at_load", "at_query"])
def test_what_a_driver_changes_in_the_process_is_a_note(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, knob: str, change: str, note: str
) -> None:
    """By its constructor, or later."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    report = probe(candidate(fake_driver(**{knob: f"if ({change}) {{}}"})))
    assert report.ok and report.handlers == ()
    assert [text.partition(" from")[0] + " from" for text in report.notes] == [note]


def test_signal_handlers_that_a_driver_installs_are_named(fake_driver: FakeDriver) -> None:
    """That is no fault: compilers inside drivers do it."""
    install = "signal(SIGINT, SIG_IGN), signal(SIGRTMIN + 3, SIG_IGN)"
    report = probe(candidate(fake_driver(at_load=install)))
    assert report.notes == () and report.handlers == ("SIGINT", "signal 37")


def test_missing_dependencies_are_named(
    fake_driver: FakeDriver, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "empty.c").write_text("")
    needed = compile_c(
        tmp_path / "empty.c", tmp_path / "libfl-dependency.so", "-Wl,-soname,libfl-dependency.so"
    )
    path = fake_driver("-Wl,--no-as-needed", needed)
    needed.unlink()
    report = probe(candidate(path))
    assert not report.ok and report.missing == ("libfl-dependency.so",)
    assert report.reason == "it needs libfl-dependency.so, which is not found"


# Drivers that would take the process along


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"at_load": "crash()"}, "it crashed with SIGSEGV while opening the library"),
        ({"at_load": "abort()"}, "it crashed with SIGABRT while opening the library"),
        ({"at_load": "exit(0)"}, "it ended the process with exit code 0 while opening the library"),
        (
            {"at_load": "_exit(7)"},
            "it ended the process with exit code 7 while opening the library",
        ),
        ({"at_list": "crash()"}, "it crashed with SIGSEGV while listing its platforms"),
        (
            {"wild_slot": "SLOT_clGetPlatformInfo"},
            "it crashed with SIGSEGV while binding its platform 0",
        ),
        (
            {"wild_slot": "SLOT_clGetDeviceIDs"},
            "it crashed with SIGSEGV while asking the platform 'Fake 0' for its devices",
        ),
        (
            {"wild_slot": "SLOT_clGetDeviceInfo"},
            "it crashed with SIGSEGV while asking device 0 of the platform 'Fake 0' about itself",
        ),
        (
            {"wild_slot": "SLOT_clCreateContext"},
            "it crashed with SIGSEGV while making a context for the device 'Fake device'",
        ),
    ],
    ids=str,
)
def test_a_driver_that_ends_the_process(
    fake_driver: FakeDriver, knobs: dict[str, object], reason: str
) -> None:
    report = probe(candidate(fake_driver(**knobs)))
    assert report.reason.split(";")[0] == reason
    assert not report.ok and "FAIRLEAD_PROBE=0" in report.remedy


def test_drivers_that_hang(fake_driver: FakeDriver) -> None:
    hanging = ({"at_load": "hang()"}, {"at_list": "hang()"}, {"at_exit": "hang()"})
    candidates = [candidate(fake_driver(**knobs)) for knobs in hanging]

    def check(limit: int) -> None:
        assert [report.reason for report in probe_all(candidates, limit)] == [
            f"it did not answer within {limit} s while opening the library",
            f"it did not answer within {limit} s while listing its platforms",
            f"it answers, but does not let the process end within {limit} s",
        ]

    with_short_limit(check)


def test_a_driver_that_crashes_when_the_process_ends_is_usable_with_a_note(
    fake_driver: FakeDriver,
) -> None:
    report = probe(candidate(fake_driver(at_exit="crash()")))
    assert report.ok and report.notes == ("it crashed with SIGSEGV while the process was ending",)


def test_the_last_words_of_a_driver_are_told(fake_driver: FakeDriver) -> None:
    report = probe(
        candidate(fake_driver(at_load='fprintf(stderr, "option registered twice!\\n"), abort()'))
    )
    assert report.reason.endswith("; the last it printed was: option registered twice!")


def test_processes_that_a_driver_started_are_ended_with_it(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Whoever reads the pipe comes to its end when no process is left that could write."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    fork = f'open("{tmp_path}/pipe", O_WRONLY); if (fork() == 0) hang(); abort()'
    assert "SIGABRT" in probe(candidate(fake_driver(at_load=fork))).reason
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_all_candidates_are_probed_at_the_same_time(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Each of two drivers waits for the file that the other one makes.

    One after the other, neither would end.
    """
    reports = probe_all(
        [
            candidate(
                fake_driver(
                    at_load=f'creat("{tmp_path}/{mine}", 0600); '
                    f'while (access("{tmp_path}/{other}", F_OK)) usleep(1000)'
                )
            )
            for mine, other in (("a", "b"), ("b", "a"))
        ]
    )
    assert [report.ok for report in reports] == [True, True]


@pytest.mark.parametrize("value", ["", "0", "-1", "nan", "soon"])
def test_a_timeout_that_is_none_is_not_taken(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE_TIMEOUT", value)
    assert probe(candidate(fake_driver())).ok


def test_a_driver_that_writes_to_descriptors_of_others(fake_driver: FakeDriver) -> None:
    noise = 'for (int f = 3; f < 32; f++) if (write(f, "7\\n{}\\n[", 6) < 0) continue'
    assert probe(candidate(fake_driver(at_load=noise))).ok


def test_no_python_to_start_means_no_verdict(
    fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/some-program")
    monkeypatch.setattr("sys.exec_prefix", "/nonexistent")
    report = probe(candidate(fake_driver()))
    assert (
        report.ok and not report.probed and "no child process could be started" in report.notes[0]
    )


def test_the_child_does_not_look_for_modules_in_the_working_directory(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path])
    assert probe(candidate(fake_driver())).ok


# drivers() and what it remembers


class Vendors:
    """A vendor directory of fake drivers, a cache of its own, and `drivers()` in a new process."""

    def __init__(self, directory: Path, fake_driver: FakeDriver, run_python: RunPython) -> None:
        self.root, self.fake_driver, self.run_python = directory, fake_driver, run_python
        self.directory, self.cache = directory / "vendors", directory / "cache"
        self.directory.mkdir()

    def add(self, name: str, *flags: str | Path, **knobs: object) -> Path:
        """A driver that notes each time that it is opened in `<name>.opened`."""
        path = self.directory / f"{name}.so"
        note = (
            f'{{ FILE *f = fopen("{self.opened(name)}", "a"); fputc(120, f); fclose(f); }} '
            f"{knobs.pop('at_load', '')}"
        )
        shutil.copy(self.fake_driver(*flags, name=f'"{name}"', at_load=note, **knobs), path)
        path.with_suffix(".icd").write_text(f"{path}\n")
        return path

    def opened(self, name: str) -> Path:
        return self.root / f"{name}.opened"

    def times_opened(self, name: str) -> int:
        """How often it was opened since the last time that this was asked."""
        try:
            return len(self.opened(name).read_text())
        finally:
            self.opened(name).write_text("")

    def list(self, **env: str) -> tuple[list[str], dict[str, list[str]]]:
        """The platforms' names and the refusals."""
        ours = {"OCL_ICD_VENDORS": str(self.directory), "XDG_CACHE_HOME": str(self.cache)}
        platforms, refusals = json.loads(self.run_python(LIST, env={**ours, **env}).out)
        return platforms, refusals

    @property
    def remembered(self) -> Path:
        return self.cache / "fairlead/probes.json"


@pytest.fixture
def vendors(tmp_path: Path, fake_driver: FakeDriver, run_python: RunPython) -> Vendors:
    return Vendors(tmp_path, fake_driver, run_python)


def test_dangerous_drivers_do_not_keep_the_good_ones_away(vendors: Vendors) -> None:
    crashing = vendors.add("crashing", at_load="crash();")
    exiting = vendors.add("exiting", at_load="exit(0);")
    hanging = vendors.add("hanging", at_load="hang();")
    vendors.add("good", icd=2)
    platforms, refusals = vendors.list(FAIRLEAD_PROBE_TIMEOUT=str(SHORT))
    assert platforms == ["good 0"]
    assert "crashed with SIGSEGV" in refusals[str(crashing)][0]
    assert "exit code 0" in refusals[str(exiting)][0]
    assert "did not answer within 6 s" in refusals[str(hanging)][0]
    assert vendors.times_opened("crashing") == 1


def test_a_good_verdict_is_remembered(vendors: Vendors) -> None:
    vendors.add("good")
    for opened in (2, 1, 1):  # the child and this process, then this process alone
        assert vendors.list()[0] == ["good 0"]
        assert vendors.times_opened("good") == opened


def test_a_driver_that_has_changed_is_probed_again(vendors: Vendors) -> None:
    path = vendors.add("good")
    vendors.list()
    os.utime(path, ns=(1, 1))
    vendors.times_opened("good")
    vendors.list()
    assert vendors.times_opened("good") == 2


def test_a_bad_verdict_is_remembered_for_an_hour_and_says_so(vendors: Vendors) -> None:
    path = vendors.add("bad", at_load="abort();")
    _, refusals = vendors.list()
    assert "remembered" not in refusals[str(path)][0] and vendors.times_opened("bad") == 1
    _, refusals = vendors.list()
    reason, remedy = refusals[str(path)]
    assert (
        "crashed with SIGABRT" in reason
        and "(remembered; `fairlead doctor` tries it again)" in reason
        and remedy
    )
    assert vendors.times_opened("bad") == 0
    verdicts = json.loads(vendors.remembered.read_text())
    for verdict in verdicts.values():
        verdict["at"] -= 3601.0
    vendors.remembered.write_text(json.dumps(verdicts))
    vendors.list()
    assert vendors.times_opened("bad") == 1


@pytest.mark.parametrize(("lasts", "kept"), [(30.0, 0), (400.0, 1)])
def test_devices_does_not_wait_again_for_what_hangs(
    vendors: Vendors, lasts: float, kept: int
) -> None:
    vendors.add("bad", at_load="abort();")
    vendors.list()
    ((key, verdict),) = json.loads(vendors.remembered.read_text()).items()
    vendors.remembered.write_text(json.dumps({key: {**verdict, "lasts": lasts}}))
    for options, left in (("slow=False", kept), ("", 0)):
        code = "from fairlead.loader.base import probe_verdicts as it; "
        env = {"XDG_CACHE_HOME": str(vendors.cache)}
        vendors.run_python(f"{code}it.forget_refusals({options})", env=env)
        assert len(json.loads(vendors.remembered.read_text())) == left


def test_a_bad_verdict_is_forgotten_when_the_user_follows_the_remedy(
    vendors: Vendors, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    """A library that appears beside the driver, as `pip install` would put it there."""
    (tmp_path / "empty.c").write_text("")
    needed = compile_c(
        tmp_path / "empty.c", vendors.directory / "libfl-later.so", "-Wl,-soname,libfl-later.so"
    )
    path = vendors.add("late", "-Wl,--no-as-needed", needed, "-Wl,-rpath,$ORIGIN")
    away = needed.rename(tmp_path / "cache-of-pip")
    for remembered in (False, True):
        platforms, refusals = vendors.list()
        reason, _ = refusals[str(path)]
        assert (
            platforms == []
            and "libfl-later.so" in reason
            and ("remembered" in reason) == remembered
        )
    away.rename(needed)
    assert vendors.list()[0] == ["late 0"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"a": 1}', '{"a": {"ok": true}}', "\0", '{"a": null}']
)
def test_a_corrupt_memory_is_ignored_and_repaired(vendors: Vendors, content: str) -> None:
    vendors.add("good")
    vendors.remembered.parent.mkdir(parents=True)
    vendors.remembered.write_text(content)
    assert vendors.list()[0] == ["good 0"]
    assert len(json.loads(vendors.remembered.read_text())) == 1


def test_a_memory_that_cannot_be_written_is_harmless(vendors: Vendors) -> None:
    vendors.add("good")
    vendors.cache.write_text("a file where a directory should be")
    assert vendors.list()[0] == ["good 0"]
    assert vendors.list()[0] == ["good 0"]


def test_no_file_is_left_beside_the_memory(vendors: Vendors) -> None:
    vendors.add("good")
    vendors.list()
    assert [path.name for path in vendors.remembered.parent.iterdir()] == ["probes.json"]


def test_a_relative_cache_directory_is_not_used(vendors: Vendors, tmp_path: Path) -> None:
    vendors.add("good")
    assert vendors.list(XDG_CACHE_HOME="cache-of-nobody")[0] == ["good 0"]
    assert not Path("cache-of-nobody").exists()


def test_fairlead_probe_0_opens_without_a_probe(vendors: Vendors) -> None:
    vendors.add("good")
    assert vendors.list(FAIRLEAD_PROBE="0")[0] == ["good 0"]
    assert vendors.times_opened("good") == 1 and not vendors.cache.exists()


def test_known_drivers_cost_no_child_process_and_no_elf_parser(vendors: Vendors) -> None:
    vendors.add("good")
    vendors.list()
    code = LIST + (
        "import sys\nprint([name for name in ('subprocess', 'elftools', 'click', "
        "'fairlead.icd.probe') if name in sys.modules])"
    )
    env = {"OCL_ICD_VENDORS": str(vendors.directory), "XDG_CACHE_HOME": str(vendors.cache)}
    assert vendors.run_python(code, env=env, fresh=True).out.splitlines()[-1] == "[]"


def test_a_process_with_more_rights_than_its_user_remembers_nothing(vendors: Vendors) -> None:
    code = """
import sys
from fairlead.icd.probe import probe_all
from fairlead.loader.base import own_files, probe_verdicts
from fairlead.loader.base.search import Candidate
own_files.is_secure_process = lambda: True
assert probe_verdicts.judge([Candidate(sys.argv[1], "test")], probe_all, "cl") == {}
"""
    path = vendors.add("good")
    vendors.run_python(code, str(path), env={"XDG_CACHE_HOME": str(vendors.cache)})
    assert not vendors.cache.exists()
