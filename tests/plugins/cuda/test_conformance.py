"""The conformance suite on the adapter for CUDA, with the driver of the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.support import RunPython

from fairlead import plugins
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate

#: Areas whose cases compute, or take much of the adapter. `fairlead conformance` runs all.
AREAS = (
    *("command-buffer-commands", "command-buffer-enqueue", "command-buffer-events"),
    *("update", "update-events", "update-rules", "enqueue", "native-handles", "pools"),
)


@pytest.mark.slow
@pytest.mark.parametrize("area", AREAS)
def test_no_case_fails(
    area: str, run_python: RunPython, fake_cuda_path: Path, pocl_wheel: Candidate
) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(fake_cuda_path.parent),
        "FAKE_CUDA_OPENCL": locate(pocl_wheel)[0],
    }
    command = "from fairlead.cli.main import main; main()"
    given = "conformance", "--json", "--area", area, "--timeout", "60", plugins.cuda_adapter()
    done = run_python(command, *given, env=environment, check=False)
    report = json.loads(done.out)
    assert [case for case in report["cases"] if case["outcome"] == "failed"] == []
    assert report["areas"][area]["passed"] > 2
