"""The marks of the conformance suite, which is imported here and run in child processes."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("rule", "beyond_specification", "forked"):
        config.addinivalue_line("markers", f"{mark}: of a case of the conformance suite")
