"""The fixtures that cases for OpenCL drivers and PI plugins have in common. Handles are ints.

The context is the session's, and so is the program, since building takes time; queues, memory and kernels are a case's own, made with
`objects`. An interface's fixtures.py names this module in `pytest_plugins`, and has `chosen`, the device under test, `make_objects`, which
makes a `Maker` of a context, and `program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.conformance.child import Target
from fairlead.conformance.maker import Maker

Make = Callable[..., Maker]


@pytest.fixture(scope="session")
def device(chosen: Any) -> int:
    """The handle of the device under test."""
    return chosen.handle


@pytest.fixture(scope="session")
def shared(target: Target, make_objects: Make) -> Maker:
    """What makes the session's objects; it has the session's context."""
    objects = make_objects()
    target.at_end(objects.close)
    objects.context = objects.new_context()
    return objects


@pytest.fixture(scope="session")
def context(shared: Maker) -> int:
    """The session's context."""
    return shared.context


@pytest.fixture
def bare_objects(make_objects: Make, context: int) -> Iterator[Maker]:
    """What makes a case's objects, without a program."""
    objects = make_objects(context)
    yield objects
    objects.close()


@pytest.fixture
def objects(bare_objects: Maker, program: int) -> Maker:
    """What makes a case's objects, with the program."""
    bare_objects.program = program
    return bare_objects


@pytest.fixture
def queue(bare_objects: Maker) -> int:
    """A queue in order."""
    return bare_objects.queue()
