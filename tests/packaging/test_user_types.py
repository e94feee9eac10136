"""A type checker knows what fairlead gives to programs, and finds what they misspell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from helpers.support import ROOT

BEGIN: Final = """
import numpy as np, pyopencl as cl, pyopencl.array as ca
import fairlead

context = cl.Context([fairlead.devices()[0].to_pyopencl()])
q = cl.CommandQueue(context)
x, buffer = ca.zeros(q, 4, np.float32), cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
s = fairlead.Parameter(np.float32(1))
step = cl.Program(context, "kernel void step(global float *x, float s) {}").build().step
with fairlead.capture(q) as graph:
    step(q, (4,), None, buffer, s)
    x *= s
    x.fill(s)
loop = graph.finalize()

@fairlead.graphed
def scale(u: ca.Array, by: float) -> ca.Array:
    return u * by

class Model:
    @fairlead.graphed
    def step(self, by: float) -> None: ...

"""
#: What a program writes, and the type of it.
KNOWN: Final = {
    "s": "GraphParameter",
    "s * 2": "GraphParameter",
    "1 - s": "GraphParameter",
    "-s": "GraphParameter",
    "s * x": "Array",
    "x ** s": "Array",
    "fairlead.Parameter(x)": "Array",
    "fairlead.Parameter(buffer)": "Buffer",
    "graph": "CapturedGraph",
    "graph[0]": "CapturedNode",
    'graph.find("scale")[0]': "CapturedNode",
    "loop": "Executable",
    "loop.replay(q, wait=True)": "Event",
    "loop.replay(q, s=2)": "Event",
    "loop.replay(q, 9, until=x)": "EndedLoop",
    "scale": "Graphed[(u: Array, by: float), Array]",
    "scale(x, 0.5)": "Array",
    "scale.explain()": "str",
    "abs(s % 2)": "GraphParameter",
    "s.astype(np.int32)": "GraphParameter",
    "Model().step.explain()": "str",
    "Model().step(0.5)": "None",
}
#: What a program misspells, and the rule of the error.
MISSPELT: Final = {
    "graph.finalise()": "reportAttributeAccessIssue",
    "loop.replay(time=3)": "reportCallIssue",
    "loop.replay(q, times=3).wiat()": "reportAttributeAccessIssue",
    "loop.replay(q, 9, until=x).replay": "reportAttributeAccessIssue",
    "fairlead.captur(q)": "reportAttributeAccessIssue",
    "s.vlaue": "reportAttributeAccessIssue",
    "graph[0].arg": "reportAttributeAccessIssue",
    'scale(x, "a")': "reportArgumentType",
    "scale(x)": "reportCallIssue",
    "scale.explian()": "reportAttributeAccessIssue",
    "Model().step()": "reportCallIssue",
}


def check(path: Path, lines: list[str]) -> list[dict[str, Any]]:
    """What pyright says of each line after BEGIN, which has to be without a fault."""
    path.write_text(BEGIN + "\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    ran = subprocess.run([*command, str(path)], cwd=ROOT, env=env, capture_output=True, text=True)
    if not ran.stdout.startswith("{"):
        pytest.skip("pyright cannot be run: it downloads Node.js first")
    found = {
        one["range"]["start"]["line"]: one for one in json.loads(ran.stdout)["generalDiagnostics"]
    }
    first = BEGIN.count("\n")
    assert not [one for line, one in found.items() if line < first]
    return [found.get(first + number, {}) for number in range(len(lines))]


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_types_are_known_and_misspellings_found(tmp_path: Path) -> None:
    lines = [*(f"reveal_type({text})" for text in KNOWN), *MISSPELT]
    said = check(tmp_path / "program.py", lines)
    types = {text: one.get("message", "") for text, one in zip(KNOWN, said, strict=False)}
    assert types == {text: f'Type of "{text}" is "{kind}"' for text, kind in KNOWN.items()}
    rules = [one.get("rule", "") for one in said[len(KNOWN) :]]
    assert dict(zip(MISSPELT, rules, strict=True)) == MISSPELT
