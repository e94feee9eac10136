"""Says how `fairlead.captured_graphs._native` is built: a method of a Python class in C.

It is a module of its own, because the C of `icd/native` knows no Python.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
BUILDING = HERE.parents[1] / "loader/base/native/building.py"


def describe_replay_method() -> Any:
    """Return the setuptools extension of the module."""
    from setuptools import Extension

    building = SimpleNamespace(**runpy.run_path(str(BUILDING)))
    # It calls nothing of the C library. auditwheel refuses a wheel with a module that needs none.
    links = ["-Wl,--no-as-needed", "-lc"]
    options = building.describe_extension([HERE / "replay_method.c"], [], extra_link_args=links)
    return Extension("fairlead.captured_graphs._native", py_limited_api=True, **options)
