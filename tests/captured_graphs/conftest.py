"""Fixtures of the tests of captured graphs, which run on every driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, Numbers, new_queue
from helpers.cuda import FakeCuda
from helpers.cuda_program import Program
from helpers.drivers import Driver
from pyopencl.tools import clear_first_arg_caches

from fairlead.icd.drivers import platforms


@pytest.fixture(scope="session")
def device(each_driver: Driver) -> cl.Device:
    """The first device of a driver, as PyOpenCL sees it; the test runs once on each driver."""
    platform = next(platform for platform in platforms() if each_driver.has(platform))
    return platform.devices[0].to_pyopencl()


@pytest.fixture
def context(device: cl.Device) -> Iterator[cl.Context]:
    """A context of the test's own. PyOpenCL's caches of array kernels would keep it.

    On NVIDIA's driver a context holds half a gibibyte of the card.
    """
    yield cl.Context([device])
    clear_first_arg_caches()


@pytest.fixture
def queue(context: cl.Context) -> Iterator[cl.CommandQueue]:
    queue = cl.CommandQueue(context)
    yield queue
    queue.finish()


@pytest.fixture
def out_of_order(context: cl.Context) -> Iterator[cl.CommandQueue]:
    queue = new_queue(context, OUT_OF_ORDER)
    yield queue
    queue.finish()


@pytest.fixture
def numbers(queue: cl.CommandQueue) -> Numbers:
    return Numbers(queue)


@pytest.fixture
def program(cuda_on_pocl: FakeCuda) -> Program:
    """Kernels on PoCL that the engine `cuda` runs on the fake CUDA driver."""
    return Program(cuda_on_pocl)


@pytest.fixture(scope="module")
def pyopencl_tests_folder() -> Path:
    """The folder with PyOpenCL's own tests."""
    folder = Path(os.environ.get("PYOPENCL_SOURCE", "nothing"), "test")
    if not folder.is_dir():
        pytest.skip("PYOPENCL_SOURCE names no source distribution of PyOpenCL")
    return folder


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rewrites begin after a number of replays, however short these are."""
    monkeypatch.setattr("fairlead.icd.command_buffer.rewrites.rewriting._WORTH_SECONDS", 0)
