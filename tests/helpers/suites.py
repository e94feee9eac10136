"""The conformance suite, run in a fork of a Python that has imported it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pytest

from fairlead.conformance.report import Case, SuiteReport
from helpers.support import RunPython

_RUN = """
import dataclasses, json, sys
from fairlead.conformance import harness
from fairlead.loader.base.forked import fork_children
fork_children()
library, areas, options = json.loads(sys.argv[1])
reports = [harness.run(library, area=area, **options) for area in areas]
print("\\n" + json.dumps([dataclasses.asdict(one) for one in reports]))
"""


class RunSuite(Protocol):
    """Runs the suite as `harness.run` does: `run_suite(library, area="icd")`.

    With several areas the report is that of the last one, with the cases and troubles of all.
    `env` is for the process that runs the harness, also what a process reads when it starts.
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
def run_suite(run_python: RunPython) -> RunSuite:
    """See RunSuite."""

    def run(
        library: object,
        *,
        area: str | Sequence[str] = "",
        env: Mapping[str, str | None] = {},
        **options: Any,
    ) -> SuiteReport:
        areas = [area] if isinstance(area, str) else area
        text = run_python(_RUN, json.dumps([str(library), areas, options]), env=env).out
        reports = json.loads(text.splitlines()[-1])
        cases = [Case(**case) for one in reports for case in one["cases"]]
        trouble = "; ".join(one["trouble"] for one in reports if one["trouble"])
        return SuiteReport(**{**reports[-1], "cases": cases, "trouble": trouble})

    return run
