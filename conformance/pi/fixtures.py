"""The fixtures of cases for PI plugins. Those of Unified Runtime see the plugin as an adapter."""

from __future__ import annotations

import re
from typing import Final

import pytest

from fairlead.conformance.checks import spelling
from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.pi.as_adapter import as_adapter, write_in_pi
from fairlead.conformance.report import Case
from fairlead.conformance.ur import fixtures
from fairlead.loader.base.table import DispatchTable

pytest_plugins = ["fairlead.conformance.ur.fixtures"]


def open_library(target: LibraryUnderTest) -> fixtures.Opened:
    """Open and bind the plugin, and choose one of its devices."""
    spelling.append(write_in_pi)
    return fixtures.open_library(target, "PI", as_adapter)


#: pi.h lists no errors. These functions have those of what implements them, OpenCL's or Unified
#: Runtime's, which list the same.
_LIST_ERRORS: Final = (
    *("piextCommandBuffer", "piextEnqueueCommandBuffer", "piEnqueueKernelLaunch"),
    *("piContextCreate", "piMemBufferCreate", "piProgramCreate"),
)
#: A kernel of PI keeps its arguments, and pi.h does not say which error it is to have no IL.
_OTHERWISE: Final = "command-buffer-commands::arguments_complete", "program::no_il"


def concerns(case: Case) -> bool:
    """Return whether PI has what a borrowed case is about: all of its names are PI's."""
    if case.entry_point.startswith("ur") or re.search(r"\bUR_", case.name):
        return False
    if case.area == "arguments":
        return case.entry_point.startswith(_LIST_ERRORS)
    if case.area == "bad-input":
        return "ommandBuffer" in case.entry_point
    return not case.name.startswith(_OTHERWISE)


@pytest.fixture(scope="session")
def pi(opened: fixtures.Opened) -> DispatchTable:
    """The plugin's own functions."""
    return opened.library.table
