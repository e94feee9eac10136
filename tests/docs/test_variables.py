"""docs/variables.md names every variable that the product reads, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.icd import discovery
from fairlead.loader.ur import plugin_variables
from fairlead.loader.ze import discovery as ze_discovery

ROOT = Path(__file__).parents[2]
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
