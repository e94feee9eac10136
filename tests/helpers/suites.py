"""The conformance suite, run in a fork of a Python that has imported it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from fairlead.conformance.report import Case, SuiteReport
from helpers.kept_files import digest
from helpers.support import RunPython, once

_RUN = """
import dataclasses, json, sys
from fairlead.conformance import harness
from fairlead.loader.base.forked import fork_children
fork_children()
library, area, options = json.loads(sys.argv[1])
report = harness.run(library, area=area, **options)
print("\\n" + json.dumps(dataclasses.asdict(report)))
"""


class RunSuite(Protocol):
    """Runs the suite as `harness.run` does: `run_suite(library, area="icd")`.

    In a run of the tests, the same library with the same options is run once. `env` is for the
    process that runs the harness, also what a process reads when it starts.
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
    ) -> SuiteReport: ...


@pytest.fixture(scope="session")
def run_suite(run_python: RunPython, tmp_path_factory: pytest.TempPathFactory) -> RunSuite:
    """See RunSuite."""

    def run(
        library: object,
        *,
        area: str | Sequence[str] = "",
        env: Mapping[str, str | None] = {},
        **options: Any,
    ) -> SuiteReport:
        request = json.dumps([str(library), area, options], sort_keys=True)

        def make(path: Path) -> None:
            text = run_python(_RUN, request, env=env).out
            path.write_text(text.splitlines()[-1], encoding="utf-8")

        name = f"suite-{digest([request, json.dumps(env, sort_keys=True)])}.json"
        report = json.loads(once(tmp_path_factory, name, make).read_text(encoding="utf-8"))
        return SuiteReport(**{**report, "cases": [Case(**case) for case in report["cases"]]})

    return run
