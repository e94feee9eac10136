"""The conformance suite, run in a fork of a Python that has imported it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from fairlead.conformance.report import Case, SuiteReport
from helpers.kept_files import digest
from helpers.support import RunPython, once

_RUN = """
import dataclasses, json, sys
from fairlead.conformance import harness
from fairlead.loader.base.forked import fork_children
fork_children()
library, area, options, before = json.loads(sys.argv[1])
exec(before, {})
report = harness.run(library, area=area, **options)
print("\\n" + json.dumps(dataclasses.asdict(report)))
"""


#: What the adapters of fairlead let succeed although it has no size, as libsycl expects.
_ON_PURPOSE: Final = {
    f"arguments::listed_error[{call}]"
    for call in (
        "urEnqueueKernelLaunchWithArgsExp-pGlobalWorkSize=zeros",
        "urCommandBufferAppendUSMMemcpyExp-size",
        "urCommandBufferAppendUSMFillExp-size",
        "piEnqueueKernelLaunch-pGlobalWorkSize=zeros",
        "piextCommandBufferMemcpyUSM-size",
        "piextCommandBufferFillUSM-size",
    )
}
#: Where adapters of fairlead may answer another code than the first one that a case names, and
#: plugins of theirs. All others have the same answers. docs/conformance.md says why for each.
_OTHER_ANSWERS: Final = {
    "ur": {
        "launch::too_large_a_group": "INVALID_WORK_ITEM_SIZE",
        "program::function_pointer": "FUNCTION_ADDRESS_NOT_AVAILABLE",
        "bad-input::address_of_no_memory[urUSMReleaseExp-pMem]": "INVALID_VALUE",
    },
    "pi": {
        "launch::too_large_a_group": "INVALID_WORK_ITEM_SIZE",
        "forms::argument_errors[no-value]": "INVALID_VALUE",
    },
}


def check_own_adapter(report: SuiteReport, habits: Collection[str] = ()) -> None:
    """Check that no case fails on an adapter of fairlead, and that it answers as the others do.

    Args:
        habits: the cases that fail because of what the driver itself does.
    """
    failed = {case.name: case.got for case in report.cases if case.outcome == "failed"}
    assert not report.trouble and failed.keys() <= _ON_PURPOSE | set(habits), failed
    other = {
        (case.name, code.removeprefix("UR_RESULT_ERROR_").removeprefix("PI_ERROR_"))
        for case in report.cases
        if case.outcome == "passed"
        for code in case.alternatives
    }
    assert other <= _OTHER_ANSWERS[report.interface].items()


class RunSuite(Protocol):
    """Runs the suite as `harness.run` does: `run_suite(library, area="icd")`.

    In a run of the tests, the same library with the same options is run once. `env` is for the
    process that runs the harness, also what a process reads when it starts. `before` is code that
    this process executes first: the process of the cases is a fork of it.
    """

    def __call__(
        self,
        library: object,
        *,
        area: str | Sequence[str] = "",
        device: str = "",
        timeout: float = 20.0,
        environment: Mapping[str, str] | None = None,
        env: Mapping[str, str | None] = {},
        before: str = "",
    ) -> SuiteReport: ...


@pytest.fixture(scope="session")
def run_suite(run_python: RunPython, tmp_path_factory: pytest.TempPathFactory) -> RunSuite:
    """See RunSuite."""

    def run(
        library: object,
        *,
        area: str | Sequence[str] = "",
        env: Mapping[str, str | None] = {},
        before: str = "",
        **options: Any,
    ) -> SuiteReport:
        request = json.dumps([str(library), area, options, before], sort_keys=True)

        def make(path: Path) -> None:
            text = run_python(_RUN, request, env=env).out
            path.write_text(text.splitlines()[-1], encoding="utf-8")

        name = f"suite-{digest([request, json.dumps(env, sort_keys=True)])}.json"
        report = json.loads(once(tmp_path_factory, name, make).read_text(encoding="utf-8"))
        return SuiteReport(**{**report, "cases": [Case(**case) for case in report["cases"]]})

    return run
