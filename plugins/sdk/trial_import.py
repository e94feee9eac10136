"""Imports an adapter's module once, in a child process (loader/base/children.py).

What is wrong with it is then known when its library is built, and not when a program loads that:
the SDK refuses entry points, parameters and properties that the specification does not have.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ...loader.base.children import Request, run_all
from .start import find_module


def find_fault(module: str, variable: str) -> str:
    """Return why a module cannot be used, with its line; "" if it can.

    Args:
        module: its name, or the path of a `.py` file.
        variable: what has the adapter or driver.
    """
    (outcome,) = run_all([Request(__name__, {"module": module, "variable": variable})])
    if outcome.report is None:  # a module that hangs or ends the process has no line
        return f"{module}: {outcome.reason}" if outcome.probed else ""
    return outcome.report["fault"]


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: import the module, and look for the variable."""
    module, variable = data["module"], data["variable"]
    progress("importing it")
    try:
        found = find_module(module)
    except Exception as error:
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step for step in steps if step.filename == module] or steps[-1:]
        # the text of a KeyError is the key alone
        text = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        return {"fault": f"{lines[-1].filename}, line {lines[-1].lineno}: {text}"}
    return {"fault": "" if hasattr(found, variable) else f"{module} has no variable `{variable}`"}
