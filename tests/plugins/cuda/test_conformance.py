"""The conformance suite on the adapters for CUDA and HIP, with the drivers of the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.support import RunPython

from .conftest import LIBRARIES, Installed

#: Areas whose cases compute, or take much of the adapter. `fairlead conformance` runs all.
AREAS = (
    *("command-buffer-commands", "command-buffer-enqueue", "command-buffer-events"),
    *("update", "update-events", "update-rules", "enqueue", "native-handles", "pools"),
    *("arguments", "images", "kernel", "memory", "program", "sampler"),
)
#: `make test` runs all areas on CUDA, and on HIP these: there the profiles differ from CUDA.
SAMPLES = {
    "hip-6.4": ("command-buffer-commands", "update", "native-handles", "pools", "program"),
    "hip-5.2": ("native-handles", "pools", "memory"),
}
CASES = [
    pytest.param(
        library,
        area,
        marks=() if area in SAMPLES.get(library, AREAS) else pytest.mark.thorough,
    )
    for library in LIBRARIES
    for area in AREAS
]
#: The areas of which the adapter for HIP passes no case: it has no images.
IMAGES = ("images", "sampler")
#: The adapters let what is of no size succeed, as libsycl expects.
ON_PURPOSE = {
    f"arguments::listed_error[{call}]"
    for call in (
        "urEnqueueKernelLaunchWithArgsExp-pGlobalWorkSize=zeros",
        "urCommandBufferAppendUSMMemcpyExp-size",
        "urCommandBufferAppendUSMFillExp-size",
    )
}


@pytest.mark.slow
@pytest.mark.parametrize(("installed", "area"), CASES, indirect=["installed"])
def test_no_case_fails(area: str, run_python: RunPython, installed: Installed) -> None:
    command = "from fairlead.cli.main import main; main()"
    given = "conformance", "--json", "--area", area, "--timeout", "60", installed.library
    done = run_python(command, *given, env=installed.environment, check=False)
    report = json.loads(done.out)
    failed = [case for case in report["cases"] if case["outcome"] == "failed"]
    assert [case for case in failed if case["name"] not in ON_PURPOSE] == []
    has_images = "cuda" in Path(installed.library).name
    assert report["areas"][area]["passed"] > (2 if has_images or area not in IMAGES else -1)
