"""Child processes: whatever the code in a child does, the parent survives and says what
happened."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, FakeDriver, RunPython, keep_in_line, run_program, with_short_limit

from fairlead.loader.base.children import Outcome, Request, decode_candidate, run_all
from fairlead.loader.base.processes import _list_times_in_line
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow

MODULE = '''
import atexit, ctypes, os, signal, sys, threading

def spray(text):
    """Write to every descriptor that is not this code's own, as a confused library would."""
    for descriptor in range(3, 32):
        rest = text
        try:
            while rest:
                rest = rest[os.write(descriptor, rest):]
        except OSError:
            pass

def main(data, progress):
    progress("taking the first step")
    exec(data["code"])
    return {"seen": data, "pid": os.getpid()}
'''


@pytest.fixture(autouse=True)
def _a_module_that_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fairleads_child.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


#: Runs requests as forks of a process of its own, as libOpenCL.so.1's Python does.
FORKS = """
import os, pickle, sys

answer = os.dup(1)
os.dup2(2, 1)
sys.path[:], requests, timeout = pickle.load(sys.stdin.buffer)
from fairlead.loader.base import children, forked

requests, before = (
    [children.Request(*request) for request in requests],
    len(os.listdir("/proc/self/fd")),
)
forked.fork_children()
outcomes = [vars(outcome) for outcome in children.run_all(requests, timeout)]
assert len(os.listdir("/proc/self/fd")) == before and "fairleads_child" not in sys.modules
with open(answer, "wb") as stream:
    pickle.dump(outcomes, stream)
"""


def run_forked(requests: Sequence[Request], timeout: float | None = None) -> list[Outcome]:
    """`run_all`, with forks."""
    given = sys.path, [(one.module, one.data) for one in requests], timeout
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKS],
        input=pickle.dumps(given),
        check=True,
        stdout=subprocess.PIPE,
    )
    return [Outcome(**fields) for fields in pickle.loads(done.stdout)]


@pytest.fixture(params=[run_all, run_forked], ids=["started", "forked"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children begin as new Pythons, and as forks."""
    monkeypatch.setitem(globals(), "run_all", request.param)


each_way_too = pytest.mark.usefixtures("each_way")


def request(code: str, **data: object) -> Request:
    return Request("fairleads_child", {"code": code, **data})


def run(code: str, timeout: float | None = None, **data: object) -> Outcome:
    (outcome,) = run_all([request(code, **data)], timeout)
    return outcome


def report(outcome: Outcome) -> dict[str, object]:
    assert outcome.report is not None and outcome.reason == "" and outcome.probed
    return outcome.report


# Children that answer


@each_way_too
def test_a_report_comes_from_another_process() -> None:
    outcome = run("pass", text="ä\udcff\n", path=Path("/a/b"))
    seen = {"code": "pass", "text": "ä\udcff\n", "path": "/a/b"}
    assert report(outcome)["seen"] == seen and report(outcome)["pid"] != os.getpid()
    assert outcome.seconds > 0 and outcome.notes == () and outcome.remedy == ""


@each_way_too
def test_outcomes_come_in_the_order_of_the_requests() -> None:
    outcomes = run_all(
        [request("pass" if index % 2 else "os.abort()", index=index) for index in range(4)]
    )
    assert [outcome.report and outcome.report["seen"]["index"] for outcome in outcomes] == [
        None,
        1,
        None,
        3,
    ]
    assert run_all([]) == []


@each_way_too
def test_a_large_report_and_noise_on_stdout_and_stderr() -> None:
    code = (
        "data['large'] = 'x' * 1_000_000; print('noise' * 100_000, file=sys.stderr); "
        "print('{\"report\": 1}\\n' * 10_000)"
    )
    assert report(run(code))["seen"] == {"code": code, "large": "x" * 1_000_000}


@each_way_too
def test_a_crash_after_the_report_is_a_note() -> None:
    outcome = run("atexit.register(os.abort)")
    assert report(outcome) and outcome.notes == (
        "it crashed with SIGABRT while the process was ending",
    )
    outcome = run("atexit.register(os._exit, 3)")
    assert report(outcome) and outcome.notes == (
        "it ended the process with exit code 3 while the process was ending",
    )


@pytest.mark.slow
@each_way_too
@pytest.mark.parametrize(
    "line",
    [
        """b'{"report": {}}\\n'""",
        """b'{"report": 7}\\n{"step": {}}\\n{"report": null}\\n'""",
        r"b'7\nnull\n[]\n{}\n['",
        r"b'[' * 200_000 + b'\n'",
        r"b'\xff\x00\xfe\n' * 1000 + b'{'",
        "b'a line that does not end ' * 400_000",
    ],
)
def test_what_a_library_writes_to_the_pipe_is_no_report(line: str) -> None:
    """Neither before the report, nor after it, nor instead of it."""
    assert "seen" in report(run(f"spray({line}); atexit.register(spray, ({line})[:100])"))
    outcome = run(f"spray({line}); os._exit(0)")
    assert outcome.report is None and outcome.reason.startswith(
        "it ended the process with exit code 0 while "
    )


THREADS = """
import threading
from fairlead.loader.base.forked import fork_children, may_fork
end, seen = threading.Event(), [may_fork()]
fork_children()
seen.append(may_fork())
thread = threading.Thread(target=end.wait)
thread.start()
seen.append(may_fork())
end.set()
print(seen)
"""


def test_only_a_process_of_one_thread_that_was_asked_forks(run_python: RunPython) -> None:
    assert run_python(THREADS, fresh=True).out == "[False, True, False]\n"


OPENS = """
import sys
from fairlead.cli.main import main
from fairlead.loader.base.forked import may_fork
from fairlead.loader.base.library import open_library
seen = [may_fork()]
main(["--help"], standalone_mode=False)
seen.append(may_fork())
open_library(sys.argv[1])
print([*seen, may_fork()])
"""


def test_the_command_forks_until_it_opens_a_library(
    run_python: RunPython, fake_driver: FakeDriver
) -> None:
    done = run_python(OPENS, str(fake_driver()), fresh=True)
    assert done.out.splitlines()[-1] == "[False, True, False]"


# Children that do not


@pytest.mark.slow
@each_way_too
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.abort()", "it crashed with SIGABRT while taking the first step"),
        ("ctypes.string_at(0)", "it crashed with SIGSEGV while taking the first step"),
        (
            "progress('taking the second'); os.abort()",
            "it crashed with SIGABRT while taking the second",
        ),
        (
            "os.kill(os.getpid(), signal.SIGRTMIN + 2)",
            f"it crashed with signal {34 + 2} while taking the first step",
        ),
        ("os._exit(0)", "it ended the process with exit code 0 while taking the first step"),
        ("sys.exit(7)", "it ended the process with exit code 7 while taking the first step"),
        (
            "print('{\"report\": {}}', flush=True); os._exit(0)",
            "it ended the process with exit code 0 while taking the first step; the last "
            'it printed was: {"report": {}}',
        ),
        (
            "raise ValueError('no such thing')",
            "it ended the process with exit code 1 while taking the first step; the last it "
            "printed was: ValueError: no such thing",
        ),
    ],
)
def test_a_child_that_ends_without_a_report(code: str, reason: str) -> None:
    outcome = run(code)
    assert (outcome.report, outcome.reason, outcome.notes, outcome.probed) == (
        None,
        reason,
        (),
        True,
    )
    assert "FAIRLEAD_PROBE=0" in outcome.remedy and outcome.seconds > 0


@each_way_too
def test_children_that_hang() -> None:
    hang = "threading.Event().wait()"
    requests = [request(hang), request("atexit.register(threading.Event().wait)")]

    def check(limit: int) -> None:
        assert [outcome.reason for outcome in run_all(requests, limit)] == [
            f"it did not answer within {limit} s while taking the first step",
            f"it answers, but does not let the process end within {limit} s",
        ]

    with_short_limit(check)


@each_way_too
def test_a_module_that_cannot_be_imported() -> None:
    (outcome,) = run_all([Request("fairleads_other_child", {})])
    (note,) = outcome.notes
    assert (outcome.report, outcome.reason, outcome.probed) == (None, "", False)
    assert note.startswith("it was not probed: the child process failed to start: ")
    assert "No module named 'fairleads_other_child'" in note  # Python 3.15 suggests another


def test_a_child_that_is_not_ready_in_time_says_nothing_about_a_library() -> None:
    (outcome,) = run_all([request("pass")], 0.0)
    assert not outcome.probed and "did not start within 0 s" in outcome.notes[0]


#: Imports fairlead as an editable install does, by a hook. The arguments: its folder,
#: site-packages.
HOOKED = """
import importlib.util, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == "fairlead":
            return importlib.util.spec_from_file_location(name, sys.argv[1] + "/__init__.py")
sys.meta_path.insert(0, Hook())
sys.path.append(sys.argv[2])
from fairlead.icd.probe import probe
from fairlead.loader.base.search import Candidate
report = probe(Candidate(sys.argv[3], "test"))
print(report.ok, report.probed, [platform.name for platform in report.platforms])
"""


def test_a_child_finds_a_package_that_only_an_import_hook_finds(fake_driver: FakeDriver) -> None:
    """So it is where fairlead is installed editable, and another environment's Python uses it."""
    folders = str(ROOT / "fairlead"), sysconfig.get_path("purelib")
    done = run_program(
        os.path.realpath(sys.executable),
        "-I",
        "-c",
        HOOKED,
        *folders,
        str(fake_driver()),
        check=True,
    )
    assert done.out == "True True ['Fake 0']\n"


def test_a_process_group_is_ended_before_its_leader_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Afterwards the number may be that of somebody else's group."""
    leaders: list[bool] = []
    kill = os.killpg

    def killpg(group: int, number: int) -> None:
        leaders.append(Path(f"/proc/{group}").exists())
        kill(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    codes = ("pass", "os._exit(3)", "os.abort()")
    outcomes = run_all([request(code) for code in codes])
    assert [bool(outcome.report) for outcome in outcomes] == [True, False, False]
    assert leaders == [True] * 3


@each_way_too
def test_a_program_that_ignores_the_end_of_children() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert report(run("pass"))
        assert run("os._exit(3)").reason
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_what_cannot_be_started_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/some-program")
    monkeypatch.setattr("sys.exec_prefix", "/nonexistent")
    outcome = run("pass")
    assert (
        outcome.report is None
        and not outcome.probed
        and "no child process could be started" in outcome.notes[0]
    )


@pytest.mark.parametrize("every_core_is_busy", [False, True])
def test_time_without_a_core_does_not_count(
    monkeypatch: pytest.MonkeyPatch, every_core_is_busy: bool
) -> None:
    """A driver is not refused because the machine is busy."""
    if every_core_is_busy:
        keep_in_line(monkeypatch)
    assert (run("pass", 1e-6).report is not None) == every_core_is_busy


SPIN = [
    sys.executable,
    "-c",
    "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass",
]
START = [sys.executable, "-c", f"import subprocess\nsubprocess.run({SPIN})"]


def test_what_a_child_starts_is_seen_to_wait_for_a_core() -> None:
    """Two that never stop share one core. One has a parent, which is asked."""
    first = subprocess.Popen(START, start_new_session=True)
    second = subprocess.Popen(SPIN)
    waited: dict[int, float] = {}
    try:
        while not max((time for one, time in waited.items() if one != first.pid), default=0) > 0.01:
            assert first.poll() is None
            waited = dict(_list_times_in_line(first.pid))
        assert len(waited) == 2
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        second.kill()
        first.wait()
        second.wait()
    assert not list(_list_times_in_line(first.pid))  # it is gone


# What children are given


def test_a_child_that_waits_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two waits until the other one opens the same pipe.

    One after the other, neither would end.
    """
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    os.mkfifo(tmp_path / "pipe")
    outcomes = run_all(
        [request(f"open({str(tmp_path / 'pipe')!r}, {mode!r}).close()") for mode in "rw"]
    )
    assert all(map(report, outcomes))


def test_no_more_children_at_once_than_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a file that no other may find. None counts as waiting for something."""
    monkeypatch.setattr("fairlead.loader.base.children._LONGEST_WORK", float("inf"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    held = str(tmp_path / "held")
    code = (
        f"os.close(os.open({held!r}, os.O_CREAT | os.O_EXCL)); atexit.register(os.unlink, {held!r})"
    )
    assert all(map(report, run_all([request(code) for _ in range(4)])))


@each_way_too
def test_a_child_has_a_session_no_input_and_no_probing_of_its_own() -> None:
    facts = (
        "data |= dict(session=os.getsid(0) == os.getpid(), input=sys.stdin.read(), "
        "probe=os.environ['FAIRLEAD_PROBE'])"
    )
    assert report(run(facts))["seen"] == {"code": facts, "session": True, "input": "", "probe": "0"}


@pytest.mark.parametrize("missing", ["", "memfd_create"])
@each_way_too
def test_the_data_may_be_larger_than_an_argument(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Linux takes 128 KiB for one. Some Pythons make no memory without a name."""
    if missing:
        monkeypatch.delattr(os, missing)
    seen: Any = report(run("data['large'] = len(data['large'])", large="x" * 1_000_000))["seen"]
    assert seen["large"] == 1_000_000


@each_way_too
def test_who_lists_processes_does_not_see_the_data() -> None:
    code = "data |= dict(listed=open('/proc/self/cmdline').read(), private='private word')"
    seen: Any = report(run(code))["seen"]
    assert "private" not in seen["listed"]


def test_a_process_with_more_rights_than_its_user_gives_its_child_no_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.loader.base.search.is_secure_process", lambda: True)
    monkeypatch.setenv("FAIRLEAD_PROBE_TIMEOUT", "0.001")
    # Python itself sets LC_CTYPE.
    code = "data['names'] = [name for name in os.environ if name != 'LC_CTYPE']"
    assert report(run(code))["seen"] == {"code": code, "names": ["FAIRLEAD_PROBE"]}


def test_the_working_directory_holds_no_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path])
    assert report(run("pass"))


@pytest.mark.parametrize("manifest", [None, "/etc/vendors/a.icd"])
def test_a_candidate_survives_json(manifest: str | None) -> None:
    candidate = Candidate("/lib/\udcff.so", "test", manifest)
    assert decode_candidate(json.loads(json.dumps(asdict(candidate), default=str))) == candidate
