"""docs/variables.md names every variable that the product reads, and no other.

docs/command_line.md lists every command of fairlead, and no other.

docs/dependencies.md has a row for each requirement of setup.cfg, and for nothing else.

docs/errors.md is what the errors' classes and the codes' tables say.
"""

from __future__ import annotations

import configparser
import re
import runpy

from helpers.support import ROOT, RunPython

from fairlead.cli.main import main
from fairlead.icd import discovery
from fairlead.loader.ur import plugin_variables
from fairlead.loader.ze import discovery as ze_discovery

#: Set by fairlead itself for its children, or for those who build it.
INTERNAL = {
    "FAIRLEAD_TRACE_LOG",
    "FAIRLEAD_RECORD",
    "FAIRLEAD_RECORD_FROM",
    "FAIRLEAD_RECORD_TO",
    "FAIRLEAD_RECORD_KERNEL",
    "FAIRLEAD_RECORD_CONTENTS",
    "FAIRLEAD_WERROR",
    "FAIRLEAD_LIBOPENCL_CHILD",
    "FAIRLEAD_LIBOPENCL_PYTHON",
}
FOLDERS = ("fairlead", "graph", "icd", "loader", "plugins", "runtime")


def sources() -> str:
    found = (
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".c", ".h"} and path.is_file()
    )
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


def documented() -> set[str]:
    text = (ROOT / "docs" / "variables.md").read_text(encoding="utf-8")
    return {
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", line)
    } - {"RTLD_DEEPBIND", "UR_LAYER_TRACING", "PI_OPENCL"}


def test_every_variable_is_documented() -> None:
    read = set(re.findall(r'"((?:FAIRLEAD|UR_LOG|SYCL_PI|SYCL_UR)_[A-Z_]*[A-Z])"', sources()))
    tables = (*discovery.VARIABLES, *plugin_variables.VARIABLES, *ze_discovery.VARIABLES)
    honoured = {row.name for row in tables if row.honoured} | {*plugin_variables.SELECTORS}
    assert (read | honoured) - INTERNAL - documented() == set()


def test_every_documented_variable_is_read() -> None:
    assert documented() - set(re.findall(r"\w+", sources())) == set()


def test_every_command_is_listed() -> None:
    text = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `fairlead ([a-z-]+)` \|", text, re.M)) == set(main.commands)


def test_every_requirement_has_a_row() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = {line for text in texts for line in text.splitlines() if line}
    required = {re.split(r"[<>=\[;]", line)[0] for line in lines} - {"fairlead"}
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8").partition("## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \| (?:core|extra)", text, re.M)
    assert {name for row in rows for name in row.split(", ")} == required


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
