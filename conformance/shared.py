"""The fixtures that cases for OpenCL drivers and PI plugins share. Handles are ints.

Building takes time, so the context and the program belong to the session. Queues, memory and
kernels belong to a case, which makes them with `objects`.

An interface's fixtures.py names this module in `pytest_plugins`. It has three fixtures of its own:
`chosen` is the device under test, `make_objects` makes a `Maker` of a context, and `program` builds
the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.maker import Maker

Make = Callable[..., Maker]


@pytest.fixture(scope="session")
def device(chosen: Any) -> int:
    """The handle of the device under test."""
    return chosen.handle


@pytest.fixture(scope="session")
def shared(target: LibraryUnderTest, make_objects: Make) -> Maker:
    """Makes the session's objects, and has the session's context."""
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
    """Makes a case's objects, without a program."""
    objects = make_objects(context)
    yield objects
    objects.close()


@pytest.fixture
def objects(bare_objects: Maker, program: int) -> Maker:
    """Makes a case's objects, with the program."""
    bare_objects.program = program
    return bare_objects


@pytest.fixture
def queue(bare_objects: Maker) -> int:
    """An in-order queue."""
    return bare_objects.queue()
