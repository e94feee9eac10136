"""Fixtures of the tests of the examples, which run as a reader runs them."""

from __future__ import annotations

from functools import partial

import pytest
from helpers.support import RunPython


@pytest.fixture(scope="session")
def run_python(run_python: RunPython) -> RunPython:
    """Each child is a new interpreter, in which only what the text imports is there."""
    return partial(run_python, fresh=True)
