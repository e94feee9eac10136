"""docs/errors.md is what the errors' classes and the codes' tables say."""

from __future__ import annotations

import runpy

from helpers.support import ROOT, RunPython

CATALOGUE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")


def test_printing_it_anew_gives_the_file(run_python: RunPython) -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    assert run_python(code, str(ROOT / "docs/make_errors.py")).out == CATALOGUE


def test_every_exception_says_when_it_is_raised() -> None:
    found = runpy.run_path(str(ROOT / "docs/make_errors.py"))["exceptions"]()
    assert len(found) > 15
    for each in found:
        assert each.__doc__ and f"{each.__name__}`" in CATALOGUE, each


def test_every_code_has_a_sentence() -> None:
    rows = [line.split(" | ") for line in CATALOGUE.splitlines() if line.startswith("| `")]
    codes = [row for row in rows if len(row) == 4 and row[1].lstrip("-").isdigit()]
    assert len(codes) > 200
    assert all(row[2].endswith(".") for row in codes)
