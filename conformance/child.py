"""The child process of a suite. It runs its cases with pytest.

`harness` starts it with a `SuiteRequest`. The child writes lines of JSON:

- `{"collected": N, "beyond": M}`: how many cases it runs, and how many are beyond the specification
- `{"begin": …}` and `{"end": …}`: before and after each case
- `{"facts": …}`: the library said something about itself
- `{"trouble": …}`: the suite itself failed
- `{"usage": …}`: there is no such device
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import pytest

from fairlead.loader.base.errors import CodeError, FairleadError
from fairlead.loader.base.processes import tie_to_parent

from .checks import NOT_IMPLEMENTED, Mismatch, Unsupported, alternatives, spell
from .device import UsageError
from .forks import in_fork, works_in_fork
from .report import Case

_MARKS: Final = (
    "rule(entry_point, text): what the case is about",
    "beyond_specification: counted apart",
    "forked: run in a fork where needed",
)
#: Plugins of pytest that do nothing for the cases. They take half of the time of a short area: each
#: is imported, and some collect garbage or take time in each case.
_PLUGINS_LEFT_OUT: Final = (
    *("cacheprovider", "doctest", "faulthandler", "junitxml", "legacypath", "logging", "pastebin"),
    *("recwarn", "setuponly", "setupplan", "skipping", "stepwise", "subtests", "terminal"),
    *("threadexception", "unittest", "unraisableexception"),
)
#: Opening and closing the library are cases, too: the first and the last one.
OPENING: Final = Case("library::opening", "library", "the library", "can be opened and bound")
ENDING: Final = Case(
    "library::ending", "library", "the library", "is closed, and the process ends, without a crash"
)


@dataclasses.dataclass(frozen=True)
class SuiteRequest:
    """What a child has to run: the cases of the suite in `package`, except those in `done`.

    `areas` limits them to these areas, unless it is empty. `forks` says that every case that may
    crash the library runs in a fork: also of entry points that have failed no such case yet.
    """

    library: str
    package: str
    device: str = ""
    areas: tuple[str, ...] = ()
    beyond: bool = False
    done: tuple[str, ...] = ()
    timeout: float = 20.0
    forks: bool = False


@dataclasses.dataclass
class LibraryUnderTest:
    """The library under test, as the fixture `target` gives it.

    `opened` is what the suite's `open_library` returned. `package` is the name of its package.
    """

    library: str
    package: str
    device: str
    timeout: float
    tell: Callable[..., None]
    opened: Any = None
    answer: Callable[[], object] = lambda: None  # asks the library a question: see forks.py
    endings: list[Callable[[], object]] = dataclasses.field(default_factory=list)

    def at_end(self, callback: Callable[[], object]) -> None:
        """Register a callback that closes something after the last case.

        The last one is called first.
        """
        self.endings.append(callback)

    def report_facts(self, **facts: str) -> None:
        """Report facts about the library: `report_facts(device="…")`."""
        self.tell(facts=facts)


class Reporter:
    """The pytest plugin that selects the cases, has the fixture `target` and writes the
    outcomes."""

    def __init__(self, request: SuiteRequest, tell: Callable[..., None]) -> None:
        self.request, self.tell = request, tell
        self._failed = set[str]()  # entry points
        self.target_ = LibraryUnderTest(
            request.library, request.package, request.device, request.timeout, tell
        )
        self.failure: BaseException | None = None

    @pytest.fixture(scope="session")
    def target(self) -> LibraryUnderTest:
        """The library under test."""
        return self.target_

    def pytest_configure(self, config: pytest.Config) -> None:
        for mark in _MARKS:
            config.addinivalue_line("markers", mark)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        done = set(self.request.done)
        twice = [
            name
            for name in sys.modules
            if name.startswith("conformance.") and f"fairlead.{name}" in sys.modules
        ]
        if doubled := [name for name in twice if not hasattr(sys.modules[name], "__path__")]:
            self._give_up(
                f"import fairlead.{doubled[0]} by its full name: a case has another package in "
                "the tree"
            )
        for item in items:
            if not item.get_closest_marker("rule"):
                self._give_up(f"{item.nodeid} has no rule")
        fixtures = importlib.import_module(f"{self.request.package}.fixtures")
        #: Whether the interface has what a case is about. A suite that borrows cases says so.
        concerns: Callable[[Case], bool] = getattr(fixtures, "concerns", lambda case: True)
        cases = [(item, case) for item in items if concerns(case := make_case(item))]
        items[:] = [
            item
            for item, case in cases
            if case.beyond == self.request.beyond and case.name not in done
        ]
        for item in items:
            mark = item.get_closest_marker("forked")
            if mark and isinstance(item, pytest.Function):
                ends = mark.kwargs.get("ends", False)
                item.obj = self.guard(item.obj, make_case(item).entry_point, ends)
        self.tell(collected=len(items), beyond=sum(case.beyond for _, case in cases))

    def guard(
        self, case: Callable[..., object], entry_point: str, ends: bool = False
    ) -> Callable[..., None]:
        """Return a case that runs in a fork once such a case of its entry point has failed, or if
        it ends the library.

        A fork takes ten times as long as most of these cases. The first that fails runs again.
        Beyond the specification it may have corrupted memory: then the process ends, and the next
        child runs it again.
        """
        forked = in_fork(case, self.request.timeout / 2, lambda: self._works_in_forks)

        @functools.wraps(case)
        def run(**arguments: Any) -> None:
            if ends and not self._works_in_forks:
                raise Unsupported("it ends a library that does not work in a fork")
            if not ends and not self.request.forks and entry_point not in self._failed:
                try:
                    case(**arguments)
                    return
                except Unsupported:
                    raise
                except Exception:
                    if self.request.beyond:
                        os._exit(1)
                    self._failed.add(entry_point)
                    if not self._works_in_forks:
                        raise
            forked(**arguments)

        return run

    @functools.cached_property
    def _works_in_forks(self) -> bool:
        """Whether the library works in a forked copy of this process, once a case needs it."""
        return works_in_fork(self.target_.answer, self.request.timeout / 2)

    def _give_up(self, trouble: str) -> NoReturn:
        self.tell(trouble=trouble)
        raise pytest.UsageError(trouble)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        report: Any = yield
        if report.failed:
            error = report.call.excinfo.value
            error = error.__cause__ or error  # pytest puts advice before an ImportError
            self.tell(
                trouble=(
                    f"{collector.nodeid} cannot be imported: {type(error).__name__}: "
                    f"{' '.join(str(error).split())}"
                )
            )
        return report

    def pytest_internalerror(self, excrepr: object) -> None:
        self.tell(trouble=str(excrepr).strip().splitlines()[-1])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        case, self.failure = make_case(item), None
        self.tell(begin=dataclasses.asdict(case))
        alternatives.clear()
        begun = time.monotonic()
        result = yield
        self.tell(
            end={
                "name": case.name,
                "seconds": round(time.monotonic() - begun, 4),
                "alternatives": alternatives,
                **read_outcome(self.failure),
            }
        )
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport | None:
        """Keep what a case raised. Nobody reads pytest's traceback, which takes long to write."""
        if not call.excinfo or call.when == "collect":
            return None
        if self.failure is None or isinstance(self.failure, Unsupported):
            self.failure = call.excinfo.value
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", None, call.when)


def make_case(item: pytest.Item) -> Case:
    """Return a case's name and what its marks say.

    test_context.py::test_retain[x] is called "context::retain[x]".
    """
    area = find_area(item.path)
    mark = item.get_closest_marker("rule")
    assert mark is not None
    entry_point, text = mark.args
    beyond = item.get_closest_marker("beyond_specification") is not None
    name = f"{area}::{item.name.removeprefix('test_')}"
    return Case(spell(name), area, spell(entry_point), spell(text), beyond)


def find_area(path: Path) -> str:
    """Return the area of a file's cases: "command-buffer" for test_command_buffer.py."""
    return path.stem.removeprefix("test_").replace("_", "-")


def find_files(package: ModuleType) -> dict[str, Path]:
    """Return the files of a suite's cases by area: its own, and what it borrows of another."""
    folders = map(Path, getattr(package, "__path__", ()))
    own = (path for folder in folders for path in folder.glob("test_*.py"))
    return {find_area(path): path for path in (*getattr(package, "BORROWED", ()), *own)}


#: How the names of codes end by which a library says that it does not know a function or a query.
_NO_ANSWER: Final = (NOT_IMPLEMENTED, "_UNSUPPORTED_ENUMERATION")


def read_outcome(failure: BaseException | None) -> dict[str, str]:
    """Return the outcome that an exception means, as fields of a `Case`."""
    if failure is None:
        return {"outcome": "passed"}
    if isinstance(failure, Unsupported):
        return {"outcome": "unsupported", "got": spell(str(failure))}
    if isinstance(failure, Mismatch):
        expected, got = spell(failure.expected), spell(failure.got)
        return {"outcome": "failed", "expected": expected, "got": got}
    if isinstance(failure, CodeError) and failure.code.endswith(_NO_ANSWER):
        return {"outcome": "unsupported", "got": f"{failure.routine} answers {failure.code}"}
    first = (str(failure).strip().splitlines() or [""])[0]
    return {
        "outcome": "failed",
        "got": first
        if isinstance(failure, FairleadError)
        else f"{type(failure).__name__}: {first}",
    }


def run_request(pipe: int, parent: int, text: str) -> None:
    """Run a request, which is JSON, and write lines to a file descriptor.

    It ends when the process with the number `parent` does.
    """
    tie_to_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(pipe, False)

    def tell(**line: Any) -> None:
        os.write(pipe, json.dumps(line).encode() + b"\n")

    data = json.loads(text)
    request = SuiteRequest(**{**data, **{name: tuple(data[name]) for name in ("areas", "done")}})
    reporter = Reporter(request, tell)
    if not _open(reporter.target_, tell):
        return
    code = _run_pytest(request, reporter)
    if code not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        tell(trouble=f"the suite itself failed: {pytest.ExitCode(code).name}")
    tell(begin=dataclasses.asdict(ENDING))
    for callback in reversed(reporter.target_.endings):
        callback()
    tell(finished=True)


def _open(target: LibraryUnderTest, tell: Callable[..., None]) -> bool:
    """Open the library with its suite's `open_library`. Returns whether it opened."""
    fixtures = importlib.import_module(f"{target.package}.fixtures")
    tell(begin=dataclasses.asdict(OPENING))
    failure = None
    try:
        target.opened = fixtures.open_library(target)
    except UsageError as error:
        tell(usage={"message": error.message, "remedy": error.remedy})
        return False
    except (FairleadError, Mismatch, Unsupported) as error:
        failure = error
    tell(end={"name": OPENING.name, **read_outcome(failure)})
    return failure is None


def _run_pytest(request: SuiteRequest, reporter: Reporter) -> int:
    # Other installed pytest plugins would be imported in each child and change the cases.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    package = importlib.import_module(request.package)
    folder = Path(next(iter(package.__path__)))
    settings = (
        "-c",
        os.devnull,
        f"--rootdir={folder}",
        f"--confcutdir={folder}",
        "--import-mode=importlib",
    )
    without = [part for name in _PLUGINS_LEFT_OUT for part in ("-p", f"no:{name}")]
    fixtures: Sequence[str] = ("-p", f"{request.package}.fixtures")
    files = find_files(package)
    cases = [str(files[area]) for area in request.areas or sorted(files)]
    return pytest.main([*settings, *without, *fixtures, "--capture=no", *cases], plugins=[reporter])
