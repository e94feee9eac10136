"""Fixtures of the tests of the reference adapter's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ur_calls import Calls, array
from usm_ways import WAYS, Way

from fairlead.loader.adapters import Plugin


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest, adapter: Plugin, ur: Calls, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    """USM on each driver, in each way that it can have it."""
    platform, name = WAYS[request.param]
    monkeypatch.setenv("FAIRLEAD_USM", name)
    device = next(found for found in adapter.devices if platform in found.platform.name)
    context = ur.made("urContextCreate", 1, array(device.handle), None).value or 0
    queue = ur.made("urQueueCreate", context, device.handle, None).value or 0
    yield Way(ur, device, name, context, queue)
    ur.ok("urQueueRelease", queue)
    ur.ok("urContextRelease", context)
