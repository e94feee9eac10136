"""`fairlead conformance`: runs the conformance suite on a library, and prints results and failures.

The suite (`fairlead.conformance`) needs pytest, which the extra `conformance` installs. A plugin
that searches for OpenCL drivers gets those that fairlead found.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..api import make_nested_environment
from ..loader.base.errors import FairleadError, NotFoundError
from ..loader.base.progress import Progress

if TYPE_CHECKING:
    from ..conformance.report import Case


def run(library: Path, *, suite: str, area: str, device: str, as_json: bool, timeout: float) -> int:
    """Run the suite, and return the exit code: 1 if a case failed, or was not run.

    Args:
        suite: the name of a suite; "" is the one of the library's interface.
        area: run only the cases of this area; "" runs all.
        device: the number or the selector of a device; "" is the first.
        timeout: seconds for each case.

    Raises:
        FairleadError: there are no cases for the library, or pytest is missing.
    """
    if not find_spec("pytest"):
        raise NotFoundError(
            "the conformance suite needs pytest", remedy="pip install 'fairlead[conformance]'"
        )
    if not library.exists():
        raise FairleadError(
            f"{library}: there is no such file",
            remedy="name the library itself: libur_adapter_….so.0, libpi_….so, libze_….so.1",
        )
    from ..conformance.harness import run as run_suite
    from ..conformance.report import render

    progress, failed = Progress("conformance", "cases"), 0

    def tell(case: Case) -> None:
        nonlocal failed
        failed += case.outcome == "failed"
        progress.add(text=f"{failed} failed: {case.area}")

    report = run_suite(
        str(library),
        suite=suite,
        area=area,
        device=device,
        timeout=timeout,
        environment=make_nested_environment(),
        progress=tell,
    )
    progress.end()
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else render(report))
    return 0 if report.ok else 1
