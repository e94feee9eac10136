"""Gives back what tests push in front of tables, because a process has few layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead.loader.base import layers


@pytest.fixture(autouse=True)
def layers_are_given_back() -> Iterator[None]:
    """After each test, the layers with Python handlers that it has not given back itself."""
    before = set(layers._handled)
    yield
    for layer in [layer for key, layer in layers._handled.items() if key not in before]:
        layer.release()
